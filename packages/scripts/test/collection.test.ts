import { afterAll, describe, expect, it } from 'vitest';
import { ScriptRunner } from '@epitaph/scripts';
import { ALT, bodyOf, failureOf, pages, Recorder, run, SELF } from './run.ts';

const runner = new ScriptRunner();
afterAll(() => runner.close());

describe('The collection', () => {
  it('carries out what a script asks, in its order, and gives each answer to its callback', async () => {
    const host = new Recorder();
    const body = await bodyOf(
      runner,
      `function f() {
        const link = __.getSelfLink() + 'docs/d/', said = [];
        const heard = (name) => (error, resource) => said.push([name, error === undefined, resource && resource.id]);
        __.createDocument(__.getSelfLink(), { id: '1' }, heard('create'));
        __.createDocument(__.getAltLink(), '{"id":"2"}', { disableAutomaticIdGeneration: true }, heard('text'));
        __.upsertDocument(__.getAltLink() + '/', { id: '3' }, {}, heard('upsert'));
        __.replaceDocument(link, { id: '4' }, { etag: '"e"' }, heard('replace'));
        __.readDocument(link, { ifNoneMatch: '"e"' }, heard('read'));
        __.deleteDocument(link, { etag: '"e"' }, heard('delete'));
        __.readDocuments(__.getSelfLink(), { pageSize: 5, continuation: 'c' }, heard('list'));
        __.queryDocuments(__.getSelfLink(), 'SELECT * FROM c', heard('query'));
        __.queryDocuments(__.getSelfLink(), { query: 'SELECT 1', parameters: [{ name: '@a', value: 1 }] }, { pageSize: -1 },
          () => __.response.setBody(said));
        said.push('asked');
      }`,
      host,
    );
    expect(host.operations).toEqual([
      { kind: 'create', body: '{"id":"1"}', makesId: true },
      { kind: 'create', body: '{"id":"2"}', makesId: false },
      { kind: 'upsert', body: '{"id":"3"}', makesId: true },
      { kind: 'replace', link: `${SELF}docs/d/`, body: '{"id":"4"}', ifMatch: '"e"' },
      { kind: 'read', link: `${SELF}docs/d/`, ifNoneMatch: '"e"' },
      { kind: 'delete', link: `${SELF}docs/d/`, ifMatch: '"e"' },
      { kind: 'list', pageSize: 5, continuation: 'c' },
      { kind: 'query', query: 'SELECT * FROM c', parameters: '[]', pageSize: 100 },
      { kind: 'query', query: 'SELECT 1', parameters: '[{"name":"@a","value":1}]', pageSize: 100 },
    ]);
    expect(body).toEqual([
      'asked',
      ['create', true, '1'],
      ['text', true, '2'],
      ['upsert', true, '3'],
      ['replace', true, '4'],
      ['read', true, null],
      ['delete', true, null],
      ['list', true, null],
      ['query', true, null],
    ]);
  });

  it('is asked for one thing at a time, and for nothing once the run has ended', async () => {
    let beside = 0;
    const host = new Recorder(async () => {
      expect(++beside).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 1));
      beside--;
      return { kind: 'done', body: '{}' };
    });
    const source = `function f() { for (let i = 0; i < 5; i++) __.createDocument(__.getSelfLink(), {}, () => { if (i === 2) throw 1; }); }`;
    expect(await failureOf(runner, source, host)).toBe('Exception = 1');
    expect(host.operations.length).toBe(3);
  });

  it('gives callbacks what went wrong, by its status and its message', async () => {
    const host = new Recorder(() => ({ kind: 'failed', status: 409, message: 'it is there' }));
    const source = (then: string) => `function f() { __.createDocument(__.getSelfLink(), {}, ${then}); }`;
    expect(
      await bodyOf(
        runner,
        source('(e, d) => __.response.setBody([e.number, e.body, e.message, e instanceof Error, d])'),
        host,
      ),
    ).toEqual([409, 'it is there', 'it is there', true, null]);
    expect(await failureOf(runner, source('(e) => { if (e) throw e; }'), host)).toBe(
      '409 Exception = Error: it is there',
    );
    expect(await failureOf(runner, source('undefined'), host)).toBe('409 Exception = Error: it is there');
  });

  it('tells a read that the document is as it was', async () => {
    const host = new Recorder(() => ({ kind: 'failed', status: 304, message: 'as it was' }));
    const source = `function f() { __.readDocument(__.getAltLink() + '/docs/1', { ifNoneMatch: 'e' },
      (e, d, o) => __.response.setBody([e === undefined, d === undefined, o])); }`;
    const told = { statusCode: 304, notModified: true, currentCollectionSizeInMB: '', maxCollectionSizeInMB: '' };
    expect(await bodyOf(runner, source, host)).toEqual([true, true, told]);
  });

  it('gives what the answer says besides', async () => {
    const headers = { 'x-ms-resource-usage': 'documentSize=1;', 'x-ms-resource-quota': 'documentSize=2;' };
    const host = new Recorder(() => ({ kind: 'done', body: '[1]', continuation: 'next', headers }));
    const source = `function f() { __.queryDocuments(__.getSelfLink(), 'SELECT', (e, rows, o) => __.response.setBody([rows, o])); }`;
    expect(await bodyOf(runner, source, host)).toEqual([
      [1],
      {
        continuation: 'next',
        currentCollectionSizeInMB: 'documentSize=1;',
        maxCollectionSizeInMB: 'documentSize=2;',
        notModified: false,
      },
    ]);
  });

  it('can be waited for by promises', async () => {
    const host = new Recorder();
    const source = `async function f() {
      const create = (document) => new Promise((resolve, reject) => {
        const isAccepted = __.createDocument(__.getSelfLink(), document, (e, d) => (e ? reject(e) : resolve(d)));
        if (!isAccepted) reject(new Error(429, 'not accepted'));
      });
      const made = [];
      for (let i = 0; i < 3; i++) made.push(await create({ id: String(i) }));
      getContext().getResponse().setBody(made.map((d) => d.id));
    }`;
    expect(await bodyOf(runner, source, host)).toEqual(['0', '1', '2']);
  });

  it.each([
    ['__.createDocument("dbs/other/colls/b", {})', '400 Exception = Error: This is not the link of the collection'],
    ['__.createDocument(undefined, {})', '400 Exception = Error: This is not the link of the collection'],
    ['__.createDocument(__.getSelfLink(), 1)', '400 Exception = Error: The body of a document must be an object'],
    ['__.createDocument(__.getSelfLink(), null)', '400 Exception = Error: The body of a document must be an object'],
    ['__.createDocument(__.getSelfLink(), { toJSON() {} })', '400 Exception = Error: The body of a document must be'],
    ['__.createDocument(__.getSelfLink(), "{")', 'Exception = SyntaxError'],
    ['__.createDocument(__.getSelfLink(), {}, 1)', '400 Exception = Error: The options must be an object'],
    ['__.createDocument(__.getSelfLink(), {}, {}, 1)', '400 Exception = Error: The callback must be a function'],
    [
      '__.createDocument(__.getSelfLink(), { a: "x".repeat(2 * 1024 * 1024) })',
      '413 Exception = Error: The document is larger',
    ],
    [
      '__.upsertDocument(__.getSelfLink(), {}, { etag: "e" })',
      '400 Exception = Error: upsertDocument does not accept an etag',
    ],
    ['__.readDocument("dbs/a/colls/bb/docs/1")', '400 Exception = Error: This is not the link of a document'],
    ['__.deleteDocument(__.getSelfLink())', '400 Exception = Error: This is not the link of a document'],
    [
      '__.deleteDocument(__.getSelfLink() + "docs/1", { etag: 1 })',
      '400 Exception = Error: The option "etag" must be a string',
    ],
    [
      '__.deleteDocument(__.getSelfLink() + "docs/" + "x".repeat(8 * 1024))',
      '400 Exception = Error: This is not the link of a document',
    ],
    [
      '__.readDocuments(__.getSelfLink(), { continuation: "x".repeat(512 * 1024 + 1) })',
      '400 Exception = Error: The option "continuation" must be a string',
    ],
    ['__.readDocuments("dbs/other")', '400 Exception = Error: This is not the link of the collection'],
    ['__.queryDocuments("dbs/other", "")', '400 Exception = Error: This is not the link of the collection'],
    [
      '__.queryDocuments(__.getSelfLink(), "x".repeat(512 * 1024 + 1))',
      '400 Exception = Error: A query must be a string',
    ],
    [
      '__.queryDocuments(__.getSelfLink(), { query: "", parameters: ["x".repeat(2 * 1024 * 1024)] })',
      '413 Exception = Error: The parameters of the query are too large',
    ],
    [
      '__.queryDocuments(__.getSelfLink(), { query: "", parameters: { toJSON() {} } })',
      '400 Exception = Error: A query must be',
    ],
    ['__.queryDocuments(__.getSelfLink(), 1)', '400 Exception = Error: A query must be a string'],
    ['__.queryDocuments(__.getSelfLink(), { query: "", parameters: {} })', '400 Exception = Error: A query must be'],
    ['__.createAttachment("", {})', '400 Exception = Error: createAttachment is not supported'],
    ['__.patchDocument("", [])', '400 Exception = Error: patchDocument is not supported'],
    ['__.filter()', '400 Exception = Error: filter must be given a function'],
    ['__.pluck("")', '400 Exception = Error: pluck must be given the name of a property'],
    [
      '__.chain().filter((d) => d, {}).value()',
      '400 Exception = Error: In a chain, options and callback must be given to value()',
    ],
    [
      '__.filter((d) => d, { continuation: "x" })',
      '400 Exception = Error: The continuation was not returned by a query',
    ],
  ])('is not asked %s', async (call, why) => {
    const host = new Recorder();
    expect(await failureOf(runner, `function f() { ${call}; }`, host)).toContain(why);
    expect(host.operations).toEqual([]);
  });

  it('is asked for pages and by etags that the store knows, whatever the script has for them', async () => {
    const host = new Recorder(() => ({ kind: 'failed', status: 304, message: 'as it was' }));
    const source = `function f() {
      const self = __.getSelfLink(), link = '/' + __.getAltLink() + '/docs/1', heard = () => {};
      for (const pageSize of [1, 2.7, 0, -1, '5', NaN, Infinity]) __.readDocuments(self, { pageSize }, heard);
      __.queryDocuments(self, { query: 'Q', parameters: null }, { pageSize: 1e9, continuation: '' }, heard);
      __.readDocument(link, { ifNoneMatch: null }, null);
      __.deleteDocument(link, null, heard);
      __.replaceDocument(link, {}, { etag: '' }, heard);
    }`;
    expect(await run(runner, source, host)).toMatchObject({ kind: 'done' });
    const link = `/${ALT}/docs/1`;
    expect(host.operations).toEqual([
      ...[1, 2, 100, 100, 100, 100, 10_000].map((pageSize) => ({ kind: 'list', pageSize })),
      { kind: 'query', query: 'Q', parameters: '[]', pageSize: 10_000 },
      { kind: 'read', link },
      { kind: 'delete', link },
      { kind: 'replace', link, body: '{}' },
    ]);
  });

  it('gives the callback of a deletion its options second and third, as scripts have been written for either', async () => {
    const source = `function f() {
      __.deleteDocument(__.getSelfLink() + 'docs/1', (...heard) => __.response.setBody(heard.map((one) => one && one.notModified)));
    }`;
    expect(await bodyOf(runner, source)).toEqual([null, false, false]);
  });

  it('takes nothing more while the answer is made, and says so', async () => {
    const host = new Recorder();
    const source = `function f() { __.response.setBody({ toJSON: () => __.createDocument(__.getSelfLink(), {}) }); }`;
    expect(await bodyOf(runner, source, host)).toBe(false);
    expect(host.operations).toEqual([]);
  });

  it('takes no more when four fifths of the time are over', async () => {
    const hasty = new ScriptRunner({ timeMs: 3_000, threads: 3 });
    const host = new Recorder(async () => {
      await new Promise((resolve) => setTimeout(resolve, 2_450));
      return { kind: 'done', body: '[1]', continuation: 'more' };
    });
    const read = `const link = __.getSelfLink() + 'docs/1';
      __.readDocument(link, () => __.response.setBody([__.readDocument(link), __.filter(() => true).isAccepted]));`;
    const answer = '(e, rows, o) => __.response.setBody(e ? e.number : { rows, next: o.continuation })';
    const scripts = [read, `__.filter(() => true, ${answer});`, `__.sortBy((d) => d, ${answer});`];
    const bodies = await Promise.all(scripts.map((does) => bodyOf(hasty, `function f() { ${does} }`, host)));
    // A filtering query can be continued; a sorting one can't.
    expect(bodies).toEqual([[false, false], { rows: [1], next: '0:more' }, 408]);
    await hasty.close();
  });

  it('takes no more than 10,000 in one run', async () => {
    const host = new Recorder(() => ({ kind: 'failed', status: 429, message: 'no' }));
    const source = `function f() { let n = 0; while (__.readDocument(__.getSelfLink() + 'docs/1', () => {})) n++; throw n; }`;
    expect(await failureOf(runner, source, host)).toBe('Exception = 10000');
    expect(host.operations).toEqual([]);
  });
});

describe('Queries by functions', () => {
  const people = Array.from({ length: 250 }, (_, at) => ({
    id: `${at}`,
    age: (at * 37) % 100,
    tags: [`t${at}`, [`u${at}`]],
    kids: at % 100 === 0 ? [{ name: `k${at}` }, { name: `l${at}` }] : undefined,
  }));
  const asked = (call: string, host = pages(people, 100)) => bodyOf(runner, `function f() { ${call} }`, host);
  const answer = '(e, rows, o) => { if (e) throw e; __.response.setBody({ rows, next: o.continuation }); }';

  it('find what is on any page', async () => {
    expect(await asked(`__.filter((d) => d.id === '249', ${answer});`)).toEqual({ rows: [people[249]] });
  });

  it('go on where a page has ended', async () => {
    const ids: string[] = [];
    let next: string | undefined;
    for (let calls = 0; calls < 20; calls++) {
      const options = JSON.stringify({ pageSize: 7, continuation: next });
      const page = (await asked(`__.chain().filter((d) => d.age < 30).pluck('id').value(${options}, ${answer});`)) as {
        rows: string[];
        next?: string;
      };
      expect(page.rows.length).toBeLessThanOrEqual(7);
      ids.push(...page.rows);
      next = page.next;
      if (next === undefined) break;
    }
    expect(ids).toEqual(people.filter(({ age }) => age < 30).map(({ id }) => id));
    expect(await asked(`__.pluck('id', { pageSize: 100 }, ${answer});`)).toMatchObject({
      rows: { length: 100 },
      next: '0:100',
    });
    expect(await asked(`__.pluck('id', { pageSize: 99 }, ${answer});`)).toMatchObject({
      rows: { length: 99 },
      next: '99:',
    });
  });

  it('sort all documents, and give them in pages', async () => {
    const sorted = people.toSorted((left, right) => right.age - left.age).map(({ id }) => id);
    const by = `__.chain().sortByDescending((d) => d.age).map((d) => d.id)`;
    expect(await asked(`${by}.value({ pageSize: 3 }, ${answer});`)).toEqual({ rows: sorted.slice(0, 3), next: '3:' });
    const host = pages(people, 100);
    expect(await asked(`${by}.value({ pageSize: 300, continuation: '245:' }, ${answer});`, host)).toEqual({
      rows: sorted.slice(245),
    });
    expect(host.operations[0]).toEqual({ kind: 'list', pageSize: 100 });
    const mixed = ['b', { a: 1 }, '1', 2, undefined, 0, null, 'a', false, [3], 10, true].map((v) => ({ v }));
    expect(await asked(`__.chain().sortBy((d) => d.v).value(${answer});`, pages(mixed, 3))).toEqual({
      rows: [{}, ...[null, false, true, 0, 2, 10, '1', 'a', 'b', { a: 1 }, [3]].map((v) => ({ v }))],
    });
  });

  it('flatten and unwind', async () => {
    const two = pages(people.slice(0, 2), 100);
    expect(await asked(`__.chain().pluck('tags').flatten().value(${answer});`, two)).toEqual({
      rows: ['t0', 'u0', 't1', 'u1'],
    });
    expect(await asked(`__.chain().pluck('tags').flatten(true).value(${answer});`, two)).toEqual({
      rows: ['t0', ['u0'], 't1', ['u1']],
    });
    expect(await asked(`__.flatten({ pageSize: 1 }, ${answer});`, pages([[1, [2]], 3], 100))).toEqual({
      rows: [1, 2],
      next: '1:',
    });
    expect(await asked(`__.unwind((d) => d.kids, (d, k) => d.id + k.name, ${answer});`, pages(people, 100))).toEqual({
      rows: ['0k0', '0l0', '100k100', '100l100', '200k200', '200l200'],
    });
    expect(await asked(`__.chain().unwind((d) => d.kids).pluck('name').value({ pageSize: 2 }, ${answer});`)).toEqual({
      rows: ['k0', 'l0'],
      next: '1:',
    });
  });

  it('may be led by the collection, and go on from one chain to several', async () => {
    const two = () => pages([{ id: 'a' }, { id: 'b' }], 100);
    for (const led of ['__', 'getContext().getCollection()']) {
      expect(await asked(`__.filter(${led}, (d) => d.id === 'b', ${answer});`, two())).toEqual({ rows: [{ id: 'b' }] });
    }
    const each = '(e, rows) => __.response.appendBody(JSON.stringify(rows))';
    const source = `const b = __.chain().filter((d) => d.id === 'b'); if (!b.isAccepted) throw 1; b.map(() => 1).value(${each}); b.value(${each});`;
    expect(await asked(source, two())).toBe('[1][{"id":"b"}]');
  });

  it('unwind what is a list, and flatten what is none', async () => {
    const mixed = pages([{ v: [1, [2, [3]]] }, { v: { length: 1, 0: 'x' } }, { v: 4 }], 100);
    expect(await asked(`__.chain().unwind((d) => d.v).value(${answer});`, mixed)).toEqual({
      rows: [1, [2, [3]]],
    });
    expect(await asked(`__.unwind((d) => d.v, { pageSize: 1 }, ${answer});`, mixed)).toMatchObject({ next: '1:' });
    expect(await asked(`__.chain().pluck('v').flatten().value(${answer});`, mixed)).toEqual({
      rows: [1, 2, 3, { length: 1, 0: 'x' }, 4],
    });
  });

  it('write to the response where there is no callback', async () => {
    const body = await asked(`if (!__.filter((d) => d.age === 37).isAccepted) throw 1;`);
    expect(JSON.parse(body as string)).toEqual(people.filter(({ age }) => age === 37));
  });

  it('give what their functions throw, and what the store refuses, to the callback, and their callback throws for itself', async () => {
    expect(
      await asked(`__.map((d) => d.no.no, (e, rows) => __.response.setBody([e.message, rows === undefined]));`),
    ).toEqual(["cannot read property 'no' of undefined", true]);
    expect(await failureOf(runner, 'function f() { __.map((d) => d.no.no); }', pages(people, 100))).toBe(
      "Exception = TypeError: cannot read property 'no' of undefined",
    );
    const failing = new Recorder(() => ({ kind: 'failed', status: 429, message: 'no' }));
    expect(await asked('__.filter(() => true, (e, rows) => __.response.setBody([e.number, rows]));', failing)).toEqual([
      429,
      null,
    ]);
    const host = pages(people, 100);
    const source = `function f() { __.filter((d) => true, (e) => { console.log('called'); throw new Error('mine'); }); }`;
    const outcome = await run(runner, source, host, { logs: true });
    expect(outcome).toMatchObject({ kind: 'threw', log: 'called' });
  });
});
