import { afterAll, describe, expect, it } from 'vitest';
import { ScriptRunner } from '@epitaph/scripts';
import { bodyOf, failureOf, Recorder, run } from './run.ts';

const runner = new ScriptRunner();
afterAll(() => runner.close());

const PRE = {
  kind: 'pre-trigger',
  args: undefined as never,
  request: { operationType: 'Create', body: '{"id":"1","name":"a lamp"}', values: { 'x-ms-date': 'today' } },
} as const;
const POST = { ...PRE, kind: 'post-trigger', response: { body: '{"id":"1","_etag":"e"}' } } as const;

describe('A pre-trigger', () => {
  it('reads the request, and may give it another body', async () => {
    const source = `function stamp() {
      const request = getContext().getRequest(), document = request.getBody();
      document.stamped = [request.getOperationType(), request.getValue('x-ms-date')];
      request.setBody(document);
    }`;
    expect(await run(runner, source, undefined, PRE)).toEqual({
      kind: 'done',
      requestBody: '{"id":"1","name":"a lamp","stamped":["Create","today"]}',
      log: '',
      workedMs: expect.any(Number),
    });
  });

  it('is called without arguments, whatever the document looks like', async () => {
    const request = { operationType: 'Create', body: '{"id":"1","length":2}' };
    const source = 'function f() { throw [arguments.length]; }';
    expect(await failureOf(runner, source, undefined, { ...PRE, request })).toBe('Exception = [0]');
  });

  it('leaves the body as it is where it sets none', async () => {
    const outcome = await run(runner, 'function f() { __.request.getBody().name = 1; }', undefined, PRE);
    expect(outcome).toEqual({ kind: 'done', log: '', workedMs: expect.any(Number) });
  });

  it('can refuse the write, has no response, and sets no body that is none', async () => {
    const failure = (source: string) => failureOf(runner, source, undefined, PRE);
    expect(await failure('function f() { throw new Error(400, "no name"); }')).toBe('400 Exception = Error: no name');
    expect(await failure('function f() { getContext().getResponse(); }')).toContain(
      '400 Exception = Error: A pre-trigger has no',
    );
    expect(await failure('function f() { __.response.setBody(1); }')).toContain('TypeError');
    expect(await failure('function f() { __.request.setBody(1); }')).toContain(
      '400 Exception = Error: The body of a document',
    );
    expect(await failure('function f() { __.request.setValue("x-ms-date", 1); }')).toContain('403 Exception');
    expect(await failure('function f() { throw [typeof __.request.getValue("toString")]; }')).toContain(
      '["undefined"]',
    );
    expect(await failure('function f() { __.request.setValue("x-ms-new", 1); }')).toContain('400 Exception');
    expect(await failure('function f() { __.filter(() => true); }')).toContain(
      '400 Exception = Error: A pre-trigger has no',
    );
  });
});

describe('A post-trigger', () => {
  it('reads request and response, and writes beside them', async () => {
    const host = new Recorder();
    const source = `function audit() {
      const context = getContext(), document = context.getResponse().getBody();
      if (!__.createDocument(__.getSelfLink(), { of: document.id, name: context.getRequest().getBody().name })) throw 1;
    }`;
    expect(await run(runner, source, host, POST)).toEqual({ kind: 'done', log: '', workedMs: expect.any(Number) });
    expect(host.operations).toEqual([{ kind: 'create', body: '{"of":"1","name":"a lamp"}', makesId: true }]);
  });

  it('may give the response another body, and not the request', async () => {
    expect(await bodyOf(runner, 'function f() { __.response.setBody({ b: 1 }); }', undefined, POST)).toEqual({ b: 1 });
    expect(await failureOf(runner, 'function f() { __.request.setBody({}); }', undefined, POST)).toContain('403');
    const large = 'function f() { __.response.setBody(["x".repeat(4 * 1024 * 1024)]); }';
    expect(await failureOf(runner, large, undefined, POST)).toContain('413 Exception');
  });

  it('has no body for a delete', async () => {
    const request = { operationType: 'Delete' };
    const source =
      'function f() { throw [__.request.getOperationType(), typeof __.request.getBody(), typeof __.response.getBody()]; }';
    expect(await failureOf(runner, source, undefined, { ...POST, request, response: {} })).toBe(
      'Exception = ["Delete","undefined","undefined"]',
    );
  });
});
