import type { Container } from '@azure/cosmos';
import { connect } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { keyHeader, raw, type RawCall } from '../support/raw.ts';
import { anyItem, anyKey, anyPatch, READ_ONLY_KEY, statusOf, World } from '../support/world.ts';

let world: World;
let container: Container;
let docs: string;

beforeAll(async () => {
  world = await World.open();
  container = await world.container({ id: 'guarded', defaultTtl: -1 });
  await container.items.create({ id: 'there', customer: 'ann', n: 1 });
  docs = '/dbs/shop/colls/guarded/docs';
});
afterAll(() => world.end());

const ann = keyHeader('ann');
const ITEM = { id: 'x', customer: 'ann' };

/** Sends a request that has to be refused. It must write nothing, and the server must keep running. */
async function refused(
  method: string,
  target: string,
  call: RawCall,
  status: number | readonly number[],
): Promise<void> {
  const head = await world.head();
  const reply = await raw(world.endpoint, method, target, call);
  expect([status].flat(), `${method} ${target.slice(0, 80)}: ${reply.text.slice(0, 200)}`).toContain(reply.status);
  if (method !== 'HEAD') expect(reply.json).toMatchObject({ code: expect.any(String), message: expect.any(String) });
  expect(reply.headers['x-ms-activity-id']).toMatch(/^[0-9a-f-]{36}$/);
  expect(await world.head()).toBe(head);
  expect((await container.item('there', 'ann').read()).resource).toMatchObject({ n: 1 });
}

describe('a body that is not a valid document is refused', () => {
  const bodies: [string, string | Buffer, number?][] = [
    ['nothing', ''],
    ['half a document', '{"id":"x","customer":'],
    ['text', 'hello'],
    ['XML', '<item id="x"/>'],
    ['an array', '[{"id":"x","customer":"ann"}]'],
    ['null', 'null'],
    ['a number', '7'],
    ['two documents', '{"id":"x","customer":"ann"}{"id":"y"}'],
    ['trailing commas', '{"id":"x","customer":"ann",}'],
    ['comments', '{"id":"x",/* c */"customer":"ann"}'],
    ['single quotes', "{'id':'x','customer':'ann'}"],
    ['NaN', '{"id":"x","customer":"ann","n":NaN}'],
    ['a number beyond doubles', '{"id":"x","customer":"ann","n":1e999}'],
    ['bytes that are not text', Buffer.from([0xff, 0xfe, 0x00, 0x80])],
    ['zeros', Buffer.alloc(100)],
    ['100,000 brackets', `{"id":"x","customer":"ann","a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
    ['100,000 objects', `{"id":"x","customer":"ann","a":${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}}`],
    ['129 levels', `{"id":"x","customer":"ann","a":${'['.repeat(128)}${']'.repeat(128)}}`],
    ['an id that is missing', '{"customer":"ann"}'],
    ['an id that is empty', '{"id":"","customer":"ann"}'],
    ['an id that is a number', '{"id":1,"customer":"ann"}'],
    ['an id that is an object', '{"id":{"toString":"x"},"customer":"ann"}'],
    ['an id of 1,024 bytes', JSON.stringify({ id: 'ü'.repeat(512), customer: 'ann' })],
    ['an id with a slash', '{"id":"a/b","customer":"ann"}'],
    ['an id with half a character', String.raw`{"id":"\ud83d","customer":"ann"}`],
    ['a partition key of 3 KB', JSON.stringify({ id: 'x', customer: 'k'.repeat(3_000) })],
    ['3 MB', JSON.stringify({ ...ITEM, text: 'x'.repeat(3_000_000) }), 413],
    ['5 MB', JSON.stringify({ ...ITEM, text: 'x'.repeat(5_000_000) }), 413],
  ];
  test.each(bodies)('%s', async (_name, body, status = 400) => {
    await refused('POST', docs, { body }, status);
    await refused('POST', docs, { body, headers: { ...ann, 'x-ms-documentdb-is-upsert': 'true' } }, status);
    await refused('PUT', `${docs}/there`, { body, headers: ann }, status);
  });

  test('also if the client sends it', async () => {
    const text = 'x'.repeat(3_000_000);
    expect(await statusOf(container.items.create({ ...ITEM, text }))).toBe(413);
    expect(await statusOf(container.items.upsert({ ...ITEM, text }))).toBe(413);
    expect(await statusOf(container.item('there', 'ann').replace({ id: 'there', customer: 'ann', text }))).toBe(413);
    expect(await statusOf(container.item('there', 'ann').patch([{ op: 'set', path: '/t', value: text }]))).toBe(413);
    expect(await statusOf(container.item('there', 'ann').read())).toBe(200);
  });

  test('also if it is a patch that can’t be applied', async () => {
    const item = container.item('there', 'ann');
    const before = (await item.read()).resource;
    const patches: unknown[] = [
      [],
      [{}],
      [{ op: 'set', path: '/n' }],
      [{ op: 'set', path: 'n', value: 1 }],
      [{ op: 'set', path: '/', value: 1 }],
      [{ op: 'set', path: '/missing/deep', value: 1 }],
      [{ op: 'set', path: '/id', value: 'other' }],
      [{ op: 'set', path: '/customer', value: 'bob' }],
      [{ op: 'remove', path: '/customer' }],
      [{ op: 'set', path: '/_ts', value: 1 }],
      [{ op: 'set', path: '/_etag', value: 'x' }],
      [{ op: 'incr', path: '/n', value: '1' }],
      [{ op: 'remove', path: '/missing' }],
      [{ op: 'test', path: '/n', value: 1 }],
      [{ op: { toString: 1 }, path: '/n', value: 1 }],
      [
        { op: 'set', path: '/n', value: 2 },
        { op: 'remove', path: '/missing' },
      ],
      Array.from({ length: 11 }, (_, n) => ({ op: 'set', path: `/p${n}`, value: n })),
      [{ op: 'set', path: '/ttl', value: 0 }],
    ];
    for (const operations of patches) {
      const body = JSON.stringify(operations);
      await refused('PATCH', `${docs}/there`, { body, headers: ann }, 400);
      await refused('PATCH', `${docs}/there`, { body: `{"operations":${body}}`, headers: ann }, 400);
    }
    for (const body of ['', 'null', '7', '{"condition":"FROM c"}', '{"operations":{}}']) {
      await refused('PATCH', `${docs}/there`, { body, headers: ann }, 400);
    }
    const condition = { condition: 'FROM c WHERE', operations: [{ op: 'set', path: '/n', value: 2 }] };
    await refused('PATCH', `${docs}/there`, { body: JSON.stringify(condition), headers: ann }, 400);
    expect((await item.read()).resource).toEqual(before);
  });
});

describe('a request without the right signature is refused', () => {
  const now = Date.now();
  const calls: [string, RawCall, number][] = [
    ['none', { authorization: null }, 401],
    ['an empty one', { authorization: '' }, 401],
    ['a word', { authorization: 'please' }, 401],
    ['the bearer of the management plane', { authorization: `Bearer ${EMULATOR_KEY}` }, 401],
    ['the key itself', { authorization: encodeURIComponent(`type=master&ver=1.0&sig=${EMULATOR_KEY}`) }, 401],
    ['half an escape', { authorization: 'type%3Dmaster%2' }, 401],
    ['another key', { key: Buffer.alloc(64, 9).toString('base64') }, 401],
    [
      'another verb',
      { authorization: 'type%3dmaster%26ver%3d1.0%26sig%3dAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA%3d' },
      401,
    ],
    ['another container', { signed: { type: 'docs', link: 'dbs/shop/colls/other' } }, 401],
    ['another kind of resource', { signed: { type: 'colls', link: 'dbs/shop/colls/guarded' } }, 401],
    ['a link in another case', { signed: { type: 'docs', link: 'dbs/shop/colls/GUARDED' } }, 401],
    ['another date than is sent', { headers: { 'x-ms-date': new Date(now - 60_000).toUTCString() } }, 401],
    ['no date', { headers: { 'x-ms-date': '' } }, 401],
    ['an invalid date', { headers: { 'x-ms-date': 'yesterday' } }, 401],
    ['a date of 16 minutes ago', { dateMs: now - 16 * 60_000 }, 403],
    ['a date 16 minutes ahead', { dateMs: now + 16 * 60_000 }, 403],
    ['the read-only key', { key: READ_ONLY_KEY }, 403],
  ];
  test.each(calls)('%s', async (_name, call, status) => {
    await refused('POST', docs, { ...call, body: JSON.stringify(ITEM) }, status);
    if (call.key === READ_ONLY_KEY) return;
    if (call.signed === undefined)
      await refused('GET', `${docs}/there`, { ...call, headers: { ...ann, ...call.headers } }, status);
  });

  test('also on the management plane, without a key', async () => {
    for (const authorization of ['', 'Bearer ', 'Bearer x', `Basic ${EMULATOR_KEY}`, EMULATOR_KEY]) {
      const response = await fetch(`${world.endpoint}/_epitaph/purge`, { headers: { authorization } });
      expect(response.status).toBe(401);
      expect(response.headers.get('content-type')).toContain('application/problem+json');
    }
  });
});

describe('an unknown target or method is refused', () => {
  test.each([
    ['GET', '/nowhere', 404],
    ['GET', '/dbs/none', 404],
    ['GET', '/dbs/shop/colls/none', 404],
    ['GET', '/dbs/shop/colls/none/docs', 404],
    ['GET', '/dbs/shop/tables', 404],
    ['GET', '/dbs/shop/colls/guarded/docs/there/attachments/x/y', [400, 404]],
    ['PUT', '/dbs', 405],
    ['PATCH', '/dbs/shop', [400, 405]],
    ['POST', '/dbs/shop/colls/guarded', 405],
    ['PATCH', '/dbs/shop/colls/guarded', 405],
    ['DELETE', '/dbs/shop/colls/guarded/docs', 405],
    ['PUT', '/dbs/shop/colls/guarded/docs', 405],
    ['POST', '/dbs/shop/colls/guarded/docs/there', [400, 405]],
    ['DELETE', '/dbs/shop/colls/guarded/pkranges', 405],
    ['DELETE', '/', [404, 405]],
    ['OPTIONS', '/dbs', [404, 405]],
    ['GET', '/dbs/shop/colls/guarded/docs/there', 400],
    ['GET', '/dbs/shop/colls/guarded/docs/%E0%A4%A', [400, 401]],
    ['GET', `/dbs/shop/colls/guarded/docs/${'x'.repeat(1_100)}`, 400],
    ['GET', '/dbs/../../etc/passwd', [400, 404]],
    ['GET', '/dbs/__proto__', 404],
    ['GET', '/dbs/shop/colls/constructor', 404],
    ['GET', '/dbs/shop/__proto__', 404],
  ] as const)('%s %s', async (method, target, status) => {
    await refused(method, target, method === 'GET' || method === 'DELETE' ? {} : { body: '{}' }, status);
  });

  test.each([
    ['x-ms-documentdb-partitionkey', 'ann'],
    ['x-ms-documentdb-partitionkey', '["ann"'],
    ['x-ms-documentdb-partitionkey', '{"a":1}'],
    ['x-ms-documentdb-partitionkey', '["ann","bob"]'],
    ['x-ms-documentdb-partitionkey', '[["ann"]]'],
    ['x-ms-documentdb-partitionkey', '[]'],
    ['x-ms-session-token', 'junk'],
    ['x-ms-session-token', '0:-1#1e3x'],
  ])('a header %s of %s', async (name, value) => {
    await refused('GET', `${docs}/there`, { headers: { ...ann, [name]: value } }, 400);
  });

  test.each([
    ['x-ms-continuation', 'junk'],
    ['x-ms-continuation', Buffer.from('{"kind":"after","birth":-1}').toString('base64url')],
    ['x-ms-continuation', Buffer.from('{"kind":"after","birth":"1 OR 1=1"}').toString('base64url')],
    ['x-ms-continuation', 'A'.repeat(1_100)],
    ['x-ms-max-item-count', '-5'],
    ['x-ms-max-item-count', 'many'],
    ['x-ms-documentdb-partitionkey', 'ann'],
    ['a-im', 'Some Feed'],
  ])('a feed with %s of %s', async (name, value) => {
    await refused('GET', docs, { headers: { [name]: value } }, 400);
  });

  test('an id longer than any allowed one', async () => {
    await refused('GET', `${docs}/${'x'.repeat(20_000)}`, { headers: ann }, [400, 414]);
    await refused('DELETE', `/dbs/${'x'.repeat(300)}`, {}, 404);
  });

  test('a delete by partition key without a key', async () => {
    const target = '/dbs/shop/colls/guarded/operations/partitionkeydelete';
    const signed = { type: 'colls', link: 'dbs/shop/colls/guarded' };
    await refused('POST', target, { body: '', signed }, 400);
  });

  test('bytes that are not HTTP', async () => {
    for (const text of [
      'hello\r\n\r\n',
      'GET\r\n\r\n',
      'GET / HTTP/1.1\r\nx: y\r\n\r\n',
      `GET / HTTP/1.1\r\nhost: a\r\nx: ${'y'.repeat(64_000)}\r\n\r\n`,
    ]) {
      const answer = await new Promise<string>((resolve, reject) => {
        let received = '';
        const socket = connect(Number(new URL(world.endpoint).port), '127.0.0.1', () => socket.end(text));
        socket.setEncoding('utf8').on('data', (part: string) => (received += part));
        socket.on('error', reject).on('close', () => resolve(received));
      });
      expect(answer).toMatch(/^HTTP\/1\.1 (4\d\d) /);
      expect(await statusOf(container.item('there', 'ann').read())).toBe(200);
    }
  });
});

describe('an id', () => {
  // Ids that the JavaScript client can send. It refuses / and \, can't send ? and # at the end of a name, and resolves dots as parts of a
  // path.
  const fine = [
    'a?b',
    'a&b=c',
    '100%',
    '%41',
    '%2F',
    '%25',
    '%',
    '+',
    'a+b',
    "it's",
    '"quoted"',
    '`',
    '👻 ghost',
    '👨‍👩‍👧',
    '文字',
    'é',
    'e\u0301',
    ' blank ',
    'a\nb',
    '\u0000',
    '\u007f',
    '\u200b',
    '{}',
    '[]',
    '<script>',
    ';--',
    'a;b',
    'a,b',
    'a:b',
    'a@b',
    'a$b',
    'a!b',
    'a*b',
    '(a)',
    '~',
    '^',
    '|',
    '=',
    'null',
    'undefined',
    '__proto__',
    'constructor',
    'toString',
    'docs',
    '0',
    '-1',
    '1e3',
    'x'.repeat(1_023),
    'ü'.repeat(511),
    '👻'.repeat(255),
    'a.b',
    '...',
  ];
  test.each(fine.map((id) => [JSON.stringify(id).slice(0, 30), id]))(
    'of %s is kept, found and freed',
    async (_name, id) => {
      const own = world.of('guarded');
      const created = await own.items.create({ id, customer: 'ann', v: 1 });
      expect(created.resource!.id).toBe(id);
      expect(await statusOf(own.items.create({ id, customer: 'ann' }))).toBe(409);
      const item = own.item(id, 'ann');
      expect((await item.read()).resource).toEqual(created.resource);
      expect((await item.replace({ id, customer: 'ann', v: 2 })).resource).toMatchObject({ id, v: 2 });
      expect((await item.patch([{ op: 'incr', path: '/v', value: 1 }])).resource).toMatchObject({ id, v: 3 });
      const asked = { query: 'SELECT VALUE c.id FROM c WHERE c.id = @id', parameters: [{ name: '@id', value: id }] };
      expect((await own.items.query(asked).fetchAll()).resources).toEqual([id]);
      expect((await own.items.query(asked, { partitionKey: 'ann' }).fetchAll()).resources).toEqual([id]);
      expect((await world.history('guarded', id)).map(({ data }) => data['id'])).toEqual([id, id, id]);
      expect((await item.delete()).statusCode).toBe(204);
      expect((await item.read()).statusCode).toBe(404);
      expect(await world.explain('guarded', id)).toMatchObject({ state: 'deleted' });
    },
  );

  test.each(['.', '..', '?', 'a?', '%2e%2e', '   ', '\t'])(
    'of %s is stored, though the JavaScript client can’t address it by its path',
    async (id) => {
      expect(await statusOf(container.items.create({ id, customer: 'ann' }))).toBe(201);
      const signed = { type: 'docs', link: `${docs.slice(1)}/${id}` };
      const target = `${docs}/${encodeURIComponent(id)}`;
      expect((await raw(world.endpoint, 'GET', target, { headers: ann, signed })).json).toMatchObject({ id });
      expect((await raw(world.endpoint, 'DELETE', target, { headers: ann, signed })).status).toBe(204);
      expect((await raw(world.endpoint, 'GET', target, { headers: ann, signed })).status).toBe(404);
    },
  );

  test('in another case or another normal form names another item', async () => {
    const own = await world.container();
    const ids = ['a', 'A', 'é', 'e\u0301', 'a ', ' a', 'ﬁ', 'fi'];
    for (const id of ids) expect(await statusOf(own.items.create({ id, customer: 'ann' }))).toBe(201);
    for (const id of ids) expect((await own.item(id, 'ann').read()).resource?.id).toBe(id);
  });
});

describe('a partition key', () => {
  const keys: unknown[] = [
    'ann',
    '',
    ' ',
    null,
    true,
    false,
    0,
    1,
    -1,
    1.5,
    1e21,
    2 ** 53,
    1e-7,
    -0,
    '0',
    '1',
    'true',
    'null',
    '{}',
    '[]',
    '["ann"]',
    '"',
    '\\',
    '\u0000',
    'ünïcödé',
    '文字',
    '👻',
    '\uFFFF',
    '__proto__',
    'k'.repeat(2_000),
    'ü'.repeat(1_000),
  ];
  test('of any value has its own item, separate from values that look alike', async () => {
    const own = await world.container();
    const distinct = keys.filter((key) => !Object.is(key, -0));
    for (const [n, customer] of distinct.entries()) {
      expect(await statusOf(own.items.create(anyItem({ id: 'same', customer, n }))), JSON.stringify(customer)).toBe(
        201,
      );
    }
    expect(await statusOf(own.items.create(anyItem({ id: 'same', n: -1 })))).toBe(201);
    for (const [n, customer] of distinct.entries()) {
      const { resource } = await own.item('same', anyKey(customer)).read();
      expect(resource, JSON.stringify(customer)).toMatchObject({ n, customer });
      const asked = await own.items.query('SELECT VALUE c.n FROM c', { partitionKey: anyKey(customer) }).fetchAll();
      expect(asked.resources).toEqual([n]);
      expect(await world.history(own.id, 'same', { key: customer })).toHaveLength(1);
    }
    expect((await own.items.query('SELECT VALUE COUNT(1) FROM c').fetchAll()).resources).toEqual([distinct.length + 1]);
    expect(await statusOf(own.items.create(anyItem({ id: 'same', customer: -0 })))).toBe(409);
    const missing = await raw(world.endpoint, 'GET', `/dbs/shop/colls/${own.id}/docs/same`, { headers: keyHeader({}) });
    expect(missing.json).toMatchObject({ n: -1 });
    expect(missing.json).not.toHaveProperty('customer');
  });

  test('may have 2,048 bytes of text, however long its JSON is', async () => {
    const own = await world.container();
    for (const customer of ['"'.repeat(2_048), 'ü'.repeat(1_024), '\u0001'.repeat(2_048)]) {
      await own.items.create({ id: 'long', customer });
      expect((await own.item('long', customer).read()).resource).toMatchObject({ customer });
    }
    expect(await statusOf(own.items.create({ id: 'long', customer: 'x'.repeat(2_049) }))).toBe(400);
    expect(await statusOf(own.items.create({ id: 'long', customer: 'ü'.repeat(1_025) }))).toBe(400);
  });

  test('that is an object or an array is treated as missing', async () => {
    const own = await world.container();
    const target = `/dbs/shop/colls/${own.id}/docs`;
    const headers = keyHeader({});
    const create = async (item: unknown) =>
      (await raw(world.endpoint, 'POST', target, { body: JSON.stringify(item), headers })).status;
    expect(await create({ id: 'a', customer: { name: 'ann' } })).toBe(201);
    expect(await create({ id: 'a' })).toBe(409);
    expect(await create({ id: 'b', customer: ['ann'] })).toBe(201);
    const read = await raw(world.endpoint, 'GET', `${target}/a`, { headers });
    expect(read.json).toMatchObject({ customer: { name: 'ann' } });
    // For such a document the JavaScript client sends a key without components, which names no partition.
    expect(await statusOf(own.items.create(anyItem({ id: 'c', customer: { name: 'ann' } })))).toBe(400);
  });

  test('can be nested in the document', async () => {
    const own = await world.container({ partitionKey: '/a/"b c"/__proto__' });
    const body = '{"id":"1","a":{"b c":{"__proto__":"deep"}}}';
    const target = `/dbs/shop/colls/${own.id}/docs`;
    expect((await raw(world.endpoint, 'POST', target, { body, headers: keyHeader('deep') })).status).toBe(201);
    const read = await raw(world.endpoint, 'GET', `${target}/1`, { headers: keyHeader('deep') });
    expect(read.text).toContain('{"b c":{"__proto__":"deep"}}');
  });

  test.each([
    [`/'level" 1*()'/'le/vel2'`, 'level" 1*()'],
    [`/"level' 1*()"/"le/vel2"`, "level' 1*()"],
  ])('at a path of quoted names, %s, is found there', async (path, name) => {
    const own = await world.container({ partitionKey: path });
    await own.items.create({ id: '1', [name]: { 'le/vel2': 'deep' } });
    expect((await own.item('1', 'deep').read()).statusCode).toBe(200);
    expect((await own.item('1', 'other').read()).statusCode).toBe(404);
    const { resources } = await own.items.query('SELECT VALUE c.id FROM c', { partitionKey: 'deep' }).fetchAll();
    expect(resources).toEqual(['1']);
  });

  test('in the header is decoded as UTF-8 if its characters are not escaped, and as Latin-1 if the bytes are not UTF-8', async () => {
    const own = await world.container();
    const asLatin1 = Buffer.from('ünï').toString('latin1');
    for (const customer of ['ünï', asLatin1, '文字']) await own.items.create({ id: 'same', customer });
    const target = `/dbs/shop/colls/${own.id}/docs`;
    const header = (bytes: string) => ({ 'x-ms-documentdb-partitionkey': bytes });
    const customersBy = async (bytes: string) => {
      const read = await raw(world.endpoint, 'GET', `${target}/same`, { headers: header(bytes) });
      const feed = await raw(world.endpoint, 'GET', target, { headers: header(bytes) });
      const listed = feed.json?.['Documents'] as readonly { readonly customer: string }[];
      return [read.json?.['customer'], ...listed.map(({ customer }) => customer)];
    };
    expect(await customersBy('["ünï"]')).toEqual(['ünï', 'ünï']);
    expect(await customersBy(Buffer.from('["ünï"]').toString('latin1'))).toEqual(['ünï', 'ünï']);
    expect(await customersBy(Buffer.from('["文字"]').toString('latin1'))).toEqual(['文字', '文字']);
    // In a JSON body the characters are unambiguous, so they are not decoded again.
    const body = JSON.stringify([{ operationType: 'Read', id: 'same', partitionKey: JSON.stringify([asLatin1]) }]);
    const bulk = await raw(world.endpoint, 'POST', target, {
      body,
      headers: { 'x-ms-cosmos-is-batch-request': 'true' },
    });
    expect(JSON.parse(bulk.text)).toMatchObject([{ statusCode: 200, resourceBody: { customer: asLatin1 } }]);
  });

  test('in the header that differs from the document’s is refused with substatus 1001', async () => {
    const reply = await raw(world.endpoint, 'POST', docs, { body: JSON.stringify(ITEM), headers: keyHeader('bob') });
    expect(reply).toMatchObject({ status: 400, headers: { 'x-ms-substatus': '1001' } });
    await refused('POST', docs, { body: JSON.stringify(ITEM), headers: keyHeader('bob') }, 400);
  });
});

describe('a document', () => {
  const nested = (depth: number) => JSON.parse(`${'['.repeat(depth)}${']'.repeat(depth)}`) as unknown;
  const values: [string, unknown][] = [
    ['nesting of 127 levels', nested(127)],
    [
      'numbers at the ends of doubles',
      [Number.MAX_VALUE, Number.MIN_VALUE, -Number.MAX_VALUE, 5e-324, 1e308, 0.1 + 0.2],
    ],
    [
      'whole numbers at the ends of what is safe',
      [2 ** 53 - 1, -(2 ** 53 - 1), 2 ** 53, 1e21, 123_456_789_012_345_680],
    ],
    ['texts of every kind', ['', '\u0000', '\u2028\u2029', '\ud83d', '👻', '"\\/\b\f\n\r\t', 'x'.repeat(100_000)]],
    ['empty things', [[], {}, '', null, false, 0]],
    [
      'names of every kind',
      { '': 1, ' ': 2, 'a.b': 3, 'a/b': 4, '~0': 5, $ref: 6, '0': 7, ü: 8, '👻': 9, toString: 10, hasOwnProperty: 11 },
    ],
    ['10,000 properties', Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`p${n}`, n]))],
  ];
  test.each(values)('with %s is returned as it was written', async (_name, value) => {
    const created = await container.items.create({ id: 'faithful', customer: 'ann', value });
    expect(created.resource).toMatchObject({ value });
    expect((await container.item('faithful', 'ann').read()).resource).toEqual(created.resource);
    const asked = container.items.query('SELECT VALUE c["value"] FROM c WHERE c.id = "faithful"');
    expect((await asked.fetchAll()).resources).toEqual([value]);
    await container.item('faithful', 'ann').delete();
  });

  test('with properties called __proto__ and constructor is returned as it was written, and changes no prototype', async () => {
    const own = '"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"hasOwnProperty":1';
    const body = `{"id":"p","customer":"ann",${own},"in":{${own}}}`;
    expect((await raw(world.endpoint, 'POST', docs, { body, headers: ann })).status).toBe(201);
    const read = await raw(world.endpoint, 'GET', `${docs}/p`, { headers: ann });
    expect(read.text.startsWith(body.slice(0, -1))).toBe(true);
    const query = JSON.stringify({ query: 'SELECT VALUE c["__proto__"].polluted FROM c WHERE c.id = "p"' });
    const asked = await raw(world.endpoint, 'POST', docs, {
      body: query,
      headers: {
        'content-type': 'application/query+json',
        'x-ms-documentdb-isquery': 'true',
        'x-ms-documentdb-query-enablecrosspartition': 'true',
      },
    });
    expect(asked.json).toMatchObject({ Documents: [true] });
    await container.item('p', 'ann').patch(anyPatch([{ op: 'set', path: '/in/__proto__/polluted', value: 2 }]));
    expect((await raw(world.endpoint, 'GET', `${docs}/p`, { headers: ann })).text).toContain(
      '"in":{"__proto__":{"polluted":2}',
    );
    expect(Object.hasOwn(Object.prototype, 'polluted')).toBe(false);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test('with a repeated property has the last value, also for its id and partition key', async () => {
    const body = '{"id":"first","id":"twice","customer":"bob","customer":"ann","n":1,"n":2}';
    expect((await raw(world.endpoint, 'POST', docs, { body, headers: ann })).status).toBe(201);
    expect((await container.item('twice', 'ann').read()).resource).toMatchObject({ n: 2 });
    expect((await container.item('first', 'ann').read()).statusCode).toBe(404);
  });

  test('can’t set system properties', async () => {
    const forged = { _ts: 1, _etag: '"forged"', _rid: 'forged', _self: 'forged', _attachments: 'forged' };
    const { resource } = await container.items.create({ id: 'forged', customer: 'ann', ...forged });
    expect(JSON.stringify(resource)).not.toContain('"forged\\"');
    expect(resource!._ts).toBe(Math.floor((await world.now()) / 1000));
    expect((await container.item('forged', 'ann').read()).resource).toEqual(resource);
  });

  test('with a byte order mark or another content type is read normally', async () => {
    const marked = Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from('{"id":"bom","customer":"ann"}')]);
    expect((await raw(world.endpoint, 'POST', docs, { body: marked, headers: ann })).status).toBe(201);
    for (const [n, type] of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'nonsense',
      'multipart/form-data',
    ].entries()) {
      const call = { body: `{"id":"type${n}","customer":"ann"}`, headers: { ...ann, 'content-type': type } };
      expect((await raw(world.endpoint, 'POST', docs, call)).status).toBe(201);
    }
  });
});

test('a query of databases that would run long is soon refused', async () => {
  const values = JSON.stringify(Array.from({ length: 120 }, (_, n) => n));
  const joins = ['x', 'y', 'z', 'u'].map((name) => `JOIN ${name} IN (SELECT VALUE ${values})`).join(' ');
  const startedMs = performance.now();
  await refused(
    'POST',
    '/dbs',
    {
      body: JSON.stringify({ query: `SELECT VALUE COUNT(1) FROM c ${joins}` }),
      headers: { 'x-ms-documentdb-isquery': 'true', 'x-ms-documentdb-query-enablecrosspartition': 'true' },
    },
    400,
  );
  expect(performance.now() - startedMs).toBeLessThan(5_000);
});

describe('after all of these requests', () => {
  let before: number;
  beforeEach(async () => {
    before = await world.head();
  });

  test('the store is consistent, also after a restart', async () => {
    expect(await world.fsck()).toEqual([]);
    await world.restart();
    expect(await world.fsck()).toEqual([]);
    expect(await world.head()).toBe(before);
    expect((await world.of('guarded').item('there', 'ann').read()).resource).toMatchObject({ n: 1 });
    expect((await world.manage('GET', '/health/ready')).body).toEqual({ status: 'ready' });
  });
});
