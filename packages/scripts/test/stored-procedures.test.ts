import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { ScriptRunner } from '@epitaph/scripts';
import { ALT, bodyOf, failureOf, Recorder, run, SELF } from './run.ts';

const runner = new ScriptRunner();
afterAll(() => runner.close());

const ANY_JSON = fc.jsonValue({ noUnicodeString: false });

describe('A stored procedure', () => {
  it('is called with its arguments, and answers with the body of its response', async () => {
    const source = 'function greet(name) { getContext().getResponse().setBody({ hello: name }); }';
    expect(await run(runner, source, undefined, { args: '["ann"]' })).toEqual({
      kind: 'done',
      body: '{"hello":"ann"}',
      log: '',
      workedMs: expect.any(Number),
    });
  });

  it.each([
    ['a declaration', 'function f() { __.response.setBody(1); }'],
    ['one without a name', 'function () { __.response.setBody(1); }'],
    ['an arrow function', '() => { __.response.setBody(1); }'],
    ['an asynchronous function', 'async function f() { __.response.setBody(1); }'],
    ['an expression that comes to one', '(function () { return () => __.response.setBody(1); })()'],
    ['with comments and a semicolon', '// one\n/* two */ function f() { __.response.setBody(1); };\n// three'],
    ['one without a name and a semicolon', 'function () { __.response.setBody(1); };'],
    [
      'one without a name, and what it calls',
      'function () { g(); };\nconst n = 1; function g() { __.response.setBody(n); }',
    ],
    [
      'the first of several, which may call the others',
      'function f() { g(); }\nfunction g() { __.response.setBody(1); }',
    ],
    ['a program that comes to one', 'const one = 1; const f = () => __.response.setBody(one); f'],
    ['strict', '"use strict";\nfunction f() { __.response.setBody(this === undefined ? 1 : 2); }'],
  ])('may be given as %s', async (_, source) => {
    expect(await bodyOf(runner, source)).toBe(1);
  });

  it.each([
    ['', 'Error: The text is not a function'],
    ['1', 'Error: The text is not a function'],
    ['const f = 1', 'Error: The text is not a function'],
    ['function f( {', 'SyntaxError: invalid property name'],
    ['function () { what is this }', "SyntaxError: expecting ';'"],
    ['import fs from "fs"; function f() {}', 'SyntaxError'],
    ['f', "ReferenceError: 'f' is not defined"],
  ])('that is no function is told so: %s', async (source, why) => {
    expect(await run(runner, source)).toMatchObject({
      kind: 'threw',
      message: expect.stringContaining(why),
      number: 65_535,
    });
  });

  it('gives back any JSON that it is given', async () => {
    const echo = 'function echo(...values) { __.response.setBody(values); }';
    await fc.assert(
      fc.asyncProperty(fc.array(ANY_JSON, { minLength: 30, maxLength: 100 }), async (values) => {
        const args = JSON.stringify(values);
        expect(await bodyOf(runner, echo, undefined, { args })).toEqual(JSON.parse(args));
      }),
      { numRuns: 3 },
    );
  });

  it('answers with empty text where it answers nothing', async () => {
    expect(await bodyOf(runner, 'function f() {}')).toBe('');
    expect(await bodyOf(runner, 'function f() { __.response.setBody(undefined); }')).toBe('');
  });

  it('has names for the numbers of errors', async () => {
    const source = `function f() {
      ErrorCodes.NotFound = 1;
      throw new Error(ErrorCodes.NotFound, JSON.stringify(ErrorCodes));
    }`;
    expect(await run(runner, source)).toMatchObject({
      kind: 'threw',
      number: 404,
      message: expect.stringContaining(
        '{"BadRequest":400,"Forbidden":403,"NotFound":404,"Conflict":409,"PreconditionFailed":412,"RequestEntityTooLarge":413,"RetryWith":449,"InternalServerError":500}',
      ),
    });
    // A script may have its own.
    expect(
      await bodyOf(runner, 'const ErrorCodes = { A: 1 }; function f() { __.response.setBody(ErrorCodes.A); }'),
    ).toBe(1);
  });

  it('may append to its response', async () => {
    const source = 'function f() { for (let i = 0; i < 10; i++) getContext().getResponse().appendValue("Body", i); }';
    expect(await bodyOf(runner, source)).toBe('0123456789');
    expect(await bodyOf(runner, 'function f() { __.response.appendBody("a"); __.response.appendBody("b"); }')).toBe(
      'ab',
    );
  });

  it('has no values in its request and its response but the body', async () => {
    const source = `function f() {
      const { request, response } = __;
      response.setValue('body', 'b');
      const ofResponse = [response.getValue('body'), response.getValue('x'), response.getValue('toString')];
      response.setValue('body', null);
      const quotas = [response.getMaxResourceQuota(), response.getResourceQuotaCurrentUsage()];
      response.appendValue('Body', [request.getValue('toString'), request.getValue('body'), ...ofResponse, ...quotas]);
      response.getBody().push(response.getValue('Body').length);
      const refused = (does) => { try { does(); } catch (error) { response.getBody().push(error.number); } };
      refused(() => response.setValue('x', 1));
      refused(() => response.appendValue('x', 1));
      refused(() => request.setValue('body', 1));
      refused(() => request.setValue('x', 1));
    }`;
    expect(await bodyOf(runner, source, undefined, { args: '[7]' })).toEqual([
      null,
      [7],
      'b',
      null,
      null,
      '',
      '',
      7,
      400,
      400,
      403,
      400,
    ]);
  });

  it('finds its arguments in the request, which it cannot change', async () => {
    const source = 'function f() { __.response.setBody(__.request.getBody()); __.request.setBody(1); }';
    expect(await failureOf(runner, source, undefined, { args: '[1,2]' })).toContain(
      '403 Exception = Error: Only a pre',
    );
    const first = 'function f() { __.response.setBody(__.request.getBody()); }';
    expect(await bodyOf(runner, first, undefined, { args: '[1,2]' })).toEqual([1, 2]);
  });

  it('keeps its log where that is asked for, up to 64 KB', async () => {
    const source =
      'function f() { console.log("%s is %s", "one", 1, 2); console.log("x".repeat(1e5)); console.log("y"); }';
    expect((await run(runner, source)).log).toBe('');
    const { log } = await run(runner, source, undefined, { logs: true });
    expect(log.slice(0, 10)).toBe('one is 1xx');
    expect(log.length).toBe(64 * 1024);
  });

  it('may throw anything, and clients are told what', async () => {
    const thrown = (what: string) => failureOf(runner, `function f() { throw ${what}; }`);
    expect(await thrown('new Error("no")')).toBe('Exception = Error: no');
    expect(await thrown('new Error("no", "why")')).toBe('Exception = Error: no');
    expect(await thrown('new Error(5)')).toBe('Exception = Error: 5');
    expect(await thrown('[new Error("no").number]')).toBe('Exception = [null]');
    expect(await thrown('new TypeError("no")')).toBe('Exception = TypeError: no');
    expect(await thrown('new (class Mine extends Error { name = "Mine"; })("no")')).toBe('Exception = Mine: no');
    expect(await thrown('new Error(409, "no")')).toBe('409 Exception = Error: no');
    expect(await thrown('Error(409, "no")')).toBe('409 Exception = Error: no');
    expect(await thrown('new (new TypeError("no").__proto__.__proto__.constructor)(409, "no")')).toBe(
      '409 Exception = Error: no',
    );
    expect(await thrown('new Error(1e300, "no")')).toBe('Exception = Error: no');
    expect(await thrown('"text"')).toBe('Exception = text');
    expect(await thrown('null')).toBe('Exception = null');
    expect(await thrown('undefined')).toBe('Exception = undefined');
    expect(await thrown('Symbol("s")')).toBe('Exception = Symbol(s)');
    expect(await thrown('{ number: 400, body: "b" }')).toBe('400 Exception = {"number":400,"body":"b"}');
    expect(await thrown('{ toJSON() {} }')).toBe('Exception = [object Object]');
    expect(await thrown('{ number: "400", get a() { throw 1; } }')).toBe('Exception = an error that cannot be told');
  });

  it('may throw a lot, and clients are told the beginning', async () => {
    for (const what of [
      '"x".repeat(1e6)',
      'new Error("x".repeat(1e6))',
      '["x".repeat(1e6)]',
      'new Error(400, "x".repeat(1e6))',
    ]) {
      expect(await run(runner, `function f() { throw ${what}; }`)).toMatchObject({
        kind: 'threw',
        message: expect.stringMatching(/^Exception = .{8000,8200}$/s),
      });
    }
  });

  it('is told where it threw, and not of what is around it', async () => {
    const outcome = await run(runner, 'function f() {\n  g();\n}\nfunction g() {\n  throw new Error(400, "no");\n}');
    expect(outcome).toMatchObject({
      kind: 'threw',
      message: 'Exception = Error: no\r\nStack trace: Error: no\n    at g (script.js:5:18)\n    at f (script.js:2:4)',
    });
    expect(
      await run(runner, 'function f() { __.readDocument(__.getAltLink() + "/docs/1", () => null.x); }'),
    ).toMatchObject({
      message: expect.stringMatching(/\r\nStack trace: TypeError: [^\n]*\n {4}at <anonymous> \(script\.js:1:\d+\)$/),
    });
  });

  it('may be ended by abort, whatever comes after', async () => {
    expect(
      await failureOf(
        runner,
        `async function f() {
          try { getContext().abort(new Error(412, "enough")); } catch { }
          __.response.setBody(1);
          if (__.createDocument(__.getSelfLink(), {})) throw new Error("it goes on");
        }`,
      ),
    ).toBe('412 Exception = Error: enough');
  });

  it('fails by what its promise is rejected with', async () => {
    expect(await failureOf(runner, 'async function f() { await null; throw new Error(404, "gone"); }')).toBe(
      '404 Exception = Error: gone',
    );
  });

  it('cannot answer what is no JSON, or too much of it', async () => {
    expect(await failureOf(runner, 'function f() { const a = []; a.push(a); __.response.setBody(a); }')).toContain(
      'TypeError: circular reference',
    );
    expect(await failureOf(runner, 'function f() { __.response.setBody(["x".repeat(4 * 1024 * 1024)]); }')).toContain(
      '413 Exception = Error: The response would be too large',
    );
    const half = 'const half = "x".repeat(3 * 1024 * 1024); __.response.appendBody(half);';
    expect(
      await bodyOf(
        runner,
        `() => { ${half} try { __.response.appendBody(half); } catch (e) { __.response.setBody(e.number); } }`,
      ),
    ).toBe(413);
  });

  it('has the links of its collection', async () => {
    const source =
      'function f() { const c = getContext().getCollection(); __.response.setBody([c.getSelfLink(), __.getAltLink()]); }';
    expect(await bodyOf(runner, source)).toEqual([SELF, ALT]);
  });

  it('has nothing of another run', async () => {
    expect(
      await bodyOf(runner, 'function f() { globalThis.left = 1; Array.prototype.left = 1; __.response.setBody(1); }'),
    ).toBe(1);
    for (let runs = 0; runs < 3; runs++) {
      expect(await bodyOf(runner, 'function f() { __.response.setBody([typeof left, typeof [].left]); }')).toEqual([
        'undefined',
        'undefined',
      ]);
    }
  });

  it('is stopped by what its host fails with, and the thread is not used again', async () => {
    const error = new Error('the disk is full');
    const host = new Recorder(() => Promise.reject(error));
    const source = 'function f() { __.createDocument(__.getSelfLink(), {}, () => {}); }';
    expect(await run(runner, source, host)).toMatchObject({ kind: 'stopped', error });
    expect(await bodyOf(runner, '() => __.response.setBody(1)')).toBe(1);
  });
});
