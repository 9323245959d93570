import { type Container, PriorityLevel } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keyHeader, raw } from '../support/raw.ts';
import { refusalOf, World } from '../support/world.ts';

let world: World;
let container: Container;
beforeAll(async () => {
  world = await World.open();
  container = await world.container();
});
afterAll(() => world.end());

describe('a request that names', () => {
  test('an indexing directive is accepted and changes nothing: the item is found like any other', async () => {
    await container.items.create({ id: 'excluded', customer: 'ann', n: 1 }, { indexingDirective: 'Exclude' });
    const { resources } = await container.items.query('SELECT VALUE c.id FROM c WHERE c.n = 1').fetchAll();
    expect(resources).toEqual(['excluded']);
  });

  test('a priority and a throughput bucket are accepted and change nothing', async () => {
    const options = { priorityLevel: PriorityLevel.Low, throughputBucket: 2 };
    await container.items.create({ id: 'unhurried', customer: 'ann' }, options);
    const { resource } = await container.item('unhurried', 'ann').read(options);
    expect(resource).toMatchObject({ id: 'unhurried' });
  });

  test('many arrays or a polygon with many points may exceed the quotas of the service', async () => {
    await container.items.create({ id: 'listed', customer: 'ann', list: [1] });
    const joins = Array.from({ length: 11 }, (_, n) => `JOIN j${n} IN c.list`).join(' ');
    const joined = await container.items.query(`SELECT VALUE j10 FROM c ${joins}`).fetchAll();
    expect(joined.resources).toEqual([1]);

    const turns = Array.from({ length: 5_000 }, (_, n) => (2 * Math.PI * n) / 5_000);
    const ring = [...turns, 0].map((turn) => [Math.cos(turn), Math.sin(turn)]);
    const value = { type: 'Polygon', coordinates: [ring] };
    const valid = await container.items
      .query({ query: 'SELECT VALUE ST_ISVALID(@polygon)', parameters: [{ name: '@polygon', value }] })
      .fetchAll();
    expect(valid.resources).toEqual([true]);
  });

  test('any version of the protocol, even a future one, is accepted; an answer never has query advice', async () => {
    const docs = `/dbs/shop/colls/${container.id}/docs`;
    await container.items.create({ id: 'versioned', customer: 'ann' });
    for (const version of ['2014-08-21', '2031-01-01', 'next']) {
      const headers = { ...keyHeader('ann'), 'x-ms-version': version };
      expect((await raw(world.endpoint, 'GET', `${docs}/versioned`, { headers })).status).toBe(200);
    }
    const asked = await raw(world.endpoint, 'POST', docs, {
      headers: {
        ...keyHeader('ann'),
        'content-type': 'application/query+json',
        'x-ms-documentdb-isquery': 'true',
        'x-ms-cosmos-populatequeryadvice': 'true',
      },
      body: JSON.stringify({ query: "SELECT * FROM c WHERE CONTAINS(c.id, 'versioned')", parameters: [] }),
    });
    expect(asked).toMatchObject({ status: 200, json: { _count: 1 } });
    expect(Object.keys(asked.headers)).not.toContain('x-ms-cosmos-query-advice');
  });

  test('a missing trigger is refused, and nothing is written', async () => {
    const head = await world.head();
    for (const options of [{ preTriggerInclude: 'stamp' }, { postTriggerInclude: ['count'] }]) {
      const { code, message } = await refusalOf(container.items.create({ id: 'triggered', customer: 'ann' }, options));
      expect(code).toBe(400);
      expect(message).toMatch(/There is no (pre|post)-trigger '(stamp|count)'/);
    }
    expect(await world.head()).toBe(head);
  });
});

describe('an integer of 64 bits', () => {
  const long = '1234567890123456789';
  const near = '1234567890123456788';
  let items: Container;
  let docs: string;
  beforeAll(async () => {
    items = await world.container();
    docs = `/dbs/shop/colls/${items.id}/docs`;
    for (const [id, n] of Object.entries({ a: long, b: near, c: '-9223372036854775808' })) {
      await raw(world.endpoint, 'POST', docs, {
        headers: keyHeader('ann'),
        body: `{"id":"${id}","customer":"ann","n":${n},"list":[{"n":${n}}]}`,
      });
    }
  });

  async function found(query: string, parameters = '[]', headers: Record<string, string> = {}) {
    return raw(world.endpoint, 'POST', docs, {
      headers: { ...keyHeader('ann'), 'x-ms-documentdb-isquery': 'true', ...headers },
      body: `{"query":${JSON.stringify(query)},"parameters":${parameters}}`,
    });
  }

  test('is returned with all of its digits, by a read and by a query', async () => {
    const { text } = await raw(world.endpoint, 'GET', `${docs}/a`, { headers: keyHeader('ann') });
    expect(text).toContain(`"n":${long},"list":[{"n":${long}}]`);
    expect((await found("SELECT * FROM c WHERE c.id = 'c'")).text).toContain('"n":-9223372036854775808,');
    expect((await found('SELECT VALUE c.n FROM c ORDER BY c.n DESC')).text).toContain(
      `"Documents":[${long},${near},-9223372036854775808]`,
    );
  });

  test('is distinguished from its neighbours, by a literal and by a parameter', async () => {
    const query = 'SELECT VALUE c.id FROM c WHERE c.n = ';
    expect((await found(query + near)).json!['Documents']).toEqual(['b']);
    expect((await found(`${query}@n`, `[{"name":"@n","value":${long}}]`)).json!['Documents']).toEqual(['a']);
  });

  test('may be unsigned, as hashes often are', async () => {
    const unsigned = '18446744073709551615';
    const one = { headers: keyHeader('eve') };
    await raw(world.endpoint, 'POST', docs, { ...one, body: `{"id":"u","customer":"eve","n":${unsigned}}` });
    expect((await raw(world.endpoint, 'GET', `${docs}/u`, one)).text).toContain(`"n":${unsigned},`);
    const patch = { ...one, body: '[{"op":"incr","path":"/n","value":-1}]' };
    expect((await raw(world.endpoint, 'PATCH', `${docs}/u`, patch)).text).toContain('"n":18446744073709551614,');
    const query = 'SELECT VALUE [c.id, c.n] FROM c WHERE c.n = 18446744073709551614';
    expect((await found(query, '[]', keyHeader('eve'))).text).toContain('["u",18446744073709551614]');
  });

  test('is exact as the place where the next page of an ordered query begins', async () => {
    const query = 'SELECT VALUE c.id FROM c ORDER BY c.n';
    const ids: unknown[] = [];
    let token: string | undefined;
    do {
      const page = await found(query, '[]', {
        'x-ms-max-item-count': '1',
        ...(token === undefined ? {} : { 'x-ms-continuation': token }),
      });
      ids.push(...(page.json!['Documents'] as readonly unknown[]));
      token = page.headers['x-ms-continuation'] as string | undefined;
    } while (token !== undefined && ids.length < 9);
    expect(ids).toEqual(['c', 'b', 'a']);
  });

  test('is kept by an operation of a batch, too', async () => {
    const body = `[{"operationType":"Create","resourceBody":{"id":"d","customer":"bob","n":${long}}}]`;
    const { status } = await raw(world.endpoint, 'POST', docs, {
      headers: { ...keyHeader('bob'), 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-atomic': 'true' },
      body,
    });
    expect(status).toBe(200);
    const { text } = await raw(world.endpoint, 'GET', `${docs}/d`, { headers: keyHeader('bob') });
    expect(text).toContain(`"n":${long},`);
  });

  test('is exact in a patch, which may set it or add to it, and in the patch’s condition', async () => {
    const create = `{"id":"e","customer":"cy","n":${long},"m":1}`;
    expect((await raw(world.endpoint, 'POST', docs, { headers: keyHeader('cy'), body: create })).status).toBe(201);
    const patch = (condition: string) =>
      raw(world.endpoint, 'PATCH', `${docs}/e`, {
        headers: keyHeader('cy'),
        body: `{"condition":"FROM c WHERE c.n = ${condition}","operations":[{"op":"incr","path":"/n","value":-1},{"op":"set","path":"/m","value":${long}}]}`,
      });
    expect((await patch(near)).status).toBe(412);
    expect((await patch(long)).text).toContain(`"n":${BigInt(long) - 1n},"m":${long}`);
    const { text } = await raw(world.endpoint, 'GET', `${docs}/e`, { headers: keyHeader('cy') });
    expect(text).toContain(`"n":${BigInt(long) - 1n},"m":${long}`);
  });

  test('is exact in a query of databases, too', async () => {
    const { text } = await raw(world.endpoint, 'POST', '/dbs', {
      headers: { 'x-ms-documentdb-isquery': 'true' },
      body: `{"query":"SELECT VALUE ${long} FROM root r WHERE r.id = 'shop'"}`,
    });
    expect(text).toContain(`[${long}]`);
  });
});

describe('a double as large as integers of 64 bits', () => {
  const doubles = ['1.989763852669747E+18', '1.9897638526697472e18', '-1.2345678901234567E+18'];
  let docs: string;
  beforeAll(async () => {
    docs = `/dbs/shop/colls/${(await world.container()).id}/docs`;
    for (const [index, n] of doubles.entries()) {
      const body = `{"id":"i${index}","customer":"ann","n":${n}}`;
      expect((await raw(world.endpoint, 'POST', docs, { headers: keyHeader('ann'), body })).status).toBe(201);
    }
  });

  const found = (query: string, parameters: string, headers: Record<string, string> = {}) =>
    raw(world.endpoint, 'POST', docs, {
      headers: { ...keyHeader('ann'), 'x-ms-documentdb-isquery': 'true', ...headers },
      body: `{"query":"SELECT VALUE c.id FROM c ${query}","parameters":[${parameters}]}`,
    });

  test('is found as .NET, Java and Python write it, by a literal and by a parameter', async () => {
    for (const [index, n] of doubles.entries()) {
      for (const [query, parameters] of [
        [`WHERE c.n = ${n}`, ''],
        ['WHERE c.n = @n', `{"name":"@n","value":${n}}`],
        ['WHERE ARRAY_CONTAINS(@n, c.n)', `{"name":"@n","value":[${n}]}`],
      ] as const) {
        expect((await found(query, parameters)).json!['Documents'], query).toEqual([`i${index}`]);
      }
    }
  });

  test('that is computed is exact as the place where the next page begins', async () => {
    const ids: unknown[] = [];
    for (let token: string | undefined; ids.length < 9;) {
      const { json, headers } = await found('ORDER BY c.n < 0 ? c.n / 3 : c.n * 0.7, c.id DESC', '', {
        'x-ms-max-item-count': '1',
        ...(token === undefined ? {} : { 'x-ms-continuation': token }),
      });
      ids.push(...(json!['Documents'] as readonly unknown[]));
      token = headers['x-ms-continuation'] as string | undefined;
      if (token === undefined) break;
    }
    expect(ids).toEqual(['i2', 'i0', 'i1']);
  });
});

describe('the properties of an item', () => {
  const docs = () => `/dbs/shop/colls/${container.id}/docs`;
  const send = (body: string, headers: Record<string, string> = {}, path = docs(), method = 'POST') =>
    raw(world.endpoint, method, path, { headers: { ...keyHeader('ann'), ...headers }, body });
  const asQuery = { 'x-ms-documentdb-isquery': 'true' };

  test('are returned in the order in which they were written, even if their names are whole numbers', async () => {
    const by = '{"z":1,"2":"b","1":"a","01":"c","4294967295":"d","4294967294":[{"y":1,"0":9007199254740993}]}';
    const operation = (body: string) =>
      `{"operationType":"Upsert","partitionKey":"[\\"ann\\"]","resourceBody":${body}}`;
    const item = (id: string) => `{"id":"${id}","customer":"ann","by":${by},"9":1`;
    const answers = [
      await send(`${item('order')}}`),
      await raw(world.endpoint, 'GET', `${docs()}/order`, { headers: keyHeader('ann') }),
      await send('{"query":"SELECT * FROM c WHERE c.id = \'order\'"}', asQuery),
      await raw(world.endpoint, 'GET', docs(), { headers: { ...keyHeader('ann'), 'A-IM': 'Incremental feed' } }),
      await send(`[${operation(`${item('order')}}`)}]`, {
        'x-ms-cosmos-is-batch-request': 'true',
        'x-ms-cosmos-batch-atomic': 'true',
      }),
    ];
    for (const { text } of answers) expect(text).toContain(`${item('order')},"_rid"`);
    const parts = await send(
      '{"query":"SELECT c.by, [c.by[\'4294967294\']] AS list FROM c WHERE c.id = \'order\'"}',
      asQuery,
    );
    expect(parts.text).toContain(`{"by":${by},"list":[[{"y":1,"0":9007199254740993}]]}`);
    const patch = '[{"op":"add","path":"/by/0","value":{"b":1,"3":2}},{"op":"remove","path":"/by/2"}]';
    const patched = await send(patch, {}, `${docs()}/order`, 'PATCH');
    const after = by.replace('"2":"b",', '').replace(/\}$/, ',"0":{"b":1,"3":2}}');
    expect(patched.text).toContain(`{"id":"order","customer":"ann","by":${after},"9":1,"_rid"`);
  });

  test('with escapes in their names are never mistaken for others', async () => {
    // After this document, Node.js would take the names of the next one for those of this one: https://github.com/nodejs/node/issues/63785
    await send(String.raw`{"odd":[],"\\":0,"id":"first","customer":"ann","n":{}}`);
    const document = String.raw`{"odd":1,"\"":2,"id":"second","customer":"ann","\n":{"\t":3}`;
    const { status, text } = await send(`${document}}`);
    expect(status).toBe(201);
    expect(text).toContain(`${document},"_rid"`);
    const found = await send(String.raw`{"query":"SELECT * FROM c WHERE c['\"'] = 2"}`, asQuery);
    expect(found.text).toContain(`${document},"_rid"`);
  });
});

describe('a resume filter, with which the .NET client continues an ordered query,', () => {
  const rewritten = (order: string, from = 'FROM c') =>
    `SELECT c._rid, [{"item": c.n}] AS orderByItems, c.id AS payload ${from} WHERE (true) ORDER BY c.n ${order}`;
  let items: Container;
  const rids = new Map<string, string>();

  beforeAll(async () => {
    items = await world.container();
    for (const [id, n] of Object.entries({ a: 1, b: 2, c: 2, d: 2, e: 3, f: undefined })) {
      const { resource } = await items.items.create({ id, customer: 'ann', n, list: [1, 2] });
      rids.set(id, resource!._rid);
    }
  });

  async function found(query: string, resumeFilter: unknown): Promise<unknown> {
    const reply = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${items.id}/docs`, {
      headers: { ...keyHeader('ann'), 'x-ms-documentdb-isquery': 'true' },
      body: JSON.stringify({ query, resumeFilter }),
    });
    const documents = reply.json!['Documents'] as readonly { payload: string }[] | undefined;
    return documents === undefined ? reply.status : documents.map(({ payload }) => payload).join('');
  }

  test.each<[string, unknown, string]>([
    ['ASC', { value: [2], exclude: false }, 'bcde'],
    ['ASC', { value: [2], exclude: true }, 'e'],
    ['ASC', { value: [2], rid: 'c', exclude: false }, 'cde'],
    ['DESC', { value: [2], exclude: false }, 'dcbaf'],
    ['DESC', { value: [2], rid: 'c', exclude: false }, 'cbaf'],
    ['ASC', { value: [[]], exclude: true }, 'abcde'],
    ['DESC', { value: [[]], exclude: true }, ''],
    ['ASC', { value: [null], exclude: true }, 'abcde'],
  ])('makes an answer in the order %s begin at %j', async (order, filter, expected) => {
    const { rid, ...rest } = filter as { rid?: string };
    const resumeFilter = rid === undefined ? rest : { ...rest, rid: rids.get(rid) };
    expect(await found(rewritten(order), resumeFilter)).toBe(expected);
    const doubled = [...expected].map((id) => id + id).join('');
    expect(await found(rewritten(order, 'FROM c JOIN x IN c.list'), resumeFilter)).toBe(doubled);
  });

  test('that is null is ignored', async () => {
    expect(await found(rewritten('ASC'), null)).toBe('fabcde');
  });

  test.each([
    ['x'],
    [{ value: 2, exclude: false }],
    [{ value: [1, 2], exclude: false }],
    [{ value: [2] }],
    [{ value: [2], rid: 5, exclude: true }],
    [{ value: [{ type: 'object', low: 1, high: 2 }], exclude: true }],
  ])('that is %j is refused', async (resumeFilter) => {
    expect(await found(rewritten('ASC'), resumeFilter)).toBe(400);
  });
});

describe('every answer', () => {
  test('has a charge, which is higher for a larger document and for a query that reads more', async () => {
    const written = async (id: string, text: string) =>
      (await container.items.upsert({ id, customer: 'bob', text })).requestCharge;
    const small = await written('small', 'x');
    expect(small).toBeGreaterThan(0);
    expect(await written('large', 'x'.repeat(100_000))).toBeGreaterThan(5 * small);
    const read = await container.item('small', 'bob').read();
    expect(read.requestCharge).toBeGreaterThan(0);
    expect(read.requestCharge).toBeLessThan(small);
    const charged = async (sql: string) => (await container.items.query(sql).fetchAll()).requestCharge;
    const one = await charged("SELECT * FROM c WHERE c.id = 'small' AND c.customer = 'bob'");
    for (let n = 0; n < 50; n += 1) await written(`more${n}`, 'x');
    expect(await charged('SELECT * FROM c')).toBeGreaterThan(one);
  });

  test('has the time that the server took, in milliseconds', async () => {
    const docs = `/dbs/shop/colls/${container.id}/docs`;
    for (const [target, headers, status] of [
      ['/', {}, 200],
      [docs, keyHeader('ann'), 200],
      [`${docs}/nothing`, keyHeader('ann'), 404],
      [docs, { authorization: 'none' }, 401],
    ] as const) {
      const reply = await raw(world.endpoint, 'GET', target, { headers });
      expect(reply.status).toBe(status);
      expect(reply.headers['x-ms-request-duration-ms']).toMatch(/^\d+\.\d{3}$/);
      expect(Number(reply.headers['x-ms-request-duration-ms'])).toBeLessThan(10_000);
    }
  });

  test('must not be cached, because content that is erased here would remain in a browser', async () => {
    const docs = `/dbs/shop/colls/${container.id}/docs`;
    await container.items.upsert({ id: 'kept', customer: 'ann' });
    const read = await raw(world.endpoint, 'GET', `${docs}/kept`, { headers: keyHeader('ann') });
    const answers = [
      read,
      await raw(world.endpoint, 'GET', `${docs}/kept`, {
        headers: { ...keyHeader('ann'), 'if-none-match': String(read.headers['etag']) },
      }),
      await raw(world.endpoint, 'GET', docs, { headers: { ...keyHeader('ann'), 'a-im': 'Incremental feed' } }),
      await raw(world.endpoint, 'GET', '/'),
      await raw(world.endpoint, 'GET', `${docs}/nothing`, { headers: keyHeader('ann') }),
      await raw(world.endpoint, 'GET', docs, { authorization: null }),
      await raw(world.endpoint, 'PROPFIND', docs),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 304, 200, 200, 404, 401, 405]);
    for (const { headers } of answers) expect(headers['cache-control']).toBe('no-store, no-cache');
  });

  test('to a read has the position of the item’s last write, whatever was written since', async () => {
    const docs = `/dbs/shop/colls/${container.id}/docs`;
    const write = async (id: string) => {
      const body = JSON.stringify({ id, customer: 'ann' });
      const headers = { ...keyHeader('ann'), 'x-ms-documentdb-is-upsert': 'true' };
      return (await raw(world.endpoint, 'POST', docs, { headers, body })).headers['lsn'];
    };
    const read = async () =>
      (await raw(world.endpoint, 'GET', `${docs}/placed`, { headers: keyHeader('ann') })).headers;
    const first = await write('placed');
    await write('another');
    expect((await read())['x-ms-item-lsn']).toBe(first);
    const second = await write('placed');
    expect(second).not.toBe(first);
    expect((await read())['x-ms-item-lsn']).toBe(second);
    expect(Number((await read())['lsn'])).toBeGreaterThanOrEqual(Number(second));
  });
});
