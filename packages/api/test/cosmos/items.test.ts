import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, test, vi } from 'vitest';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';
import { call, DOCS, keyHeader, shop, type Call } from './support/client.ts';
import { fakeStore } from './support/fake-store.ts';
import type { FastifyInstance } from 'fastify';

const ann = keyHeader('ann');
const create = (app: FastifyInstance, body: unknown, options: Call = {}) =>
  call(app, 'POST', DOCS, { body, ...options });
const upserting = { 'x-ms-documentdb-is-upsert': 'true' };

describe('an item', () => {
  test('is answered with its system properties when it is created, and read back equal', async () => {
    const app = await shop();
    const created = await create(app, { id: 'o1', customer: 'ann', total: 12.5 }, { headers: ann });
    expect(created.status).toBe(201);
    expect(created.json).toMatchObject({ id: 'o1', customer: 'ann', total: 12.5, _attachments: 'attachments/' });
    const rid = Buffer.from(String(created.json['_rid']).replaceAll('-', '/'), 'base64');
    expect(rid).toHaveLength(16);
    // The .NET clients tell items, stored procedures, ranges and so on by these bits of the rid.
    expect(rid[15]! >> 4).toBe(0);
    expect(created.headers['etag']).toBe(created.json['_etag']);
    const read = await call(app, 'GET', `${DOCS}/o1`, { headers: ann });
    expect(read.status).toBe(200);
    expect(read.json).toEqual(created.json);
  });

  test('has an id that is unique within its partition key, not within the container', async () => {
    const app = await shop();
    expect((await create(app, { id: 'o1', customer: 'ann' })).status).toBe(201);
    expect((await create(app, { id: 'o1', customer: 'bob' })).status).toBe(201);
    expect((await create(app, { id: 'o1', customer: 'ann' })).status).toBe(409);
  });

  test('is created by an upsert, then replaced by one', async () => {
    const app = await shop();
    const upsert = (total: number) => create(app, { id: 'o1', customer: 'ann', total }, { headers: upserting });
    expect((await upsert(1)).status).toBe(201);
    expect((await upsert(2)).status).toBe(200);
    expect((await call(app, 'GET', `${DOCS}/o1`, { headers: ann })).json['total']).toBe(2);
  });

  test('keeps every property, whatever its name or value', async () => {
    const app = await shop();
    const text =
      '{"id":"o1","customer":"ann","__proto__":{"a":1},"constructor":null,"toString":"x","":0,"emoji":"\\ud83d\\ude00","half":"\\ud83d","n":1e21,"nested":{"_ts":1,"__proto__":2}}';
    const created = await create(app, text);
    expect(created.status).toBe(201);
    expect(created.text.startsWith(text.slice(0, 60))).toBe(true);
    const { text: read } = await call(app, 'GET', `${DOCS}/o1`, { headers: ann });
    expect(read).toContain('"__proto__":{"a":1}');
    expect(read).toContain('"nested":{"_ts":1,"__proto__":2}');
    expect(read).toContain('"half":"\\ud83d"');
  });

  test('can’t be given system properties by the client', async () => {
    const app = await shop();
    const body = { id: 'o1', _rid: 'x', _self: 'x', _etag: 'x', _attachments: 'x', _ts: 1, _lsn: 1, customer: 'ann' };
    const created = await create(app, body);
    expect(created.json['_ts']).toBeGreaterThan(1_000_000);
    expect(created.json['_etag']).not.toBe('x');
    expect(created.text.match(/"_ts"/g)).toHaveLength(1);
    expect(created.json).not.toHaveProperty('_lsn');
  });

  test.each([
    ['no body', ''],
    ['no JSON', '{'],
    ['JSON that is no object', '[]'],
    ['null', 'null'],
    ['no id', '{"customer":"ann"}'],
    ['an empty id', '{"id":"","customer":"ann"}'],
    ['an id that is a number', '{"id":1,"customer":"ann"}'],
    ['an id of null', '{"id":null,"customer":"ann"}'],
    ['a slash in the id', '{"id":"a/b","customer":"ann"}'],
    ['a backslash in the id', '{"id":"a\\\\b","customer":"ann"}'],
    ['a hash in the id', '{"id":"a#b","customer":"ann"}'],
    ['half a character in the id', '{"id":"\\ud83d","customer":"ann"}'],
    ['an id of 1,024 bytes', JSON.stringify({ id: 'ü'.repeat(512), customer: 'ann' })],
    ['a number beyond doubles', '{"id":"1","customer":"ann","n":1e400}'],
    ['nesting without end', `{"id":"1","customer":"ann","a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
    ['nesting one deeper than 128', `{"id":"1","customer":"ann","a":${'['.repeat(128)}${']'.repeat(128)}}`],
    ['a partition key of 3 KB', JSON.stringify({ id: '1', customer: 'x'.repeat(3000) })],
    ['invalid UTF-8 for a name', Buffer.from([0x7b, 0xff, 0x7d])],
    ['a text in another encoding than UTF-8', Buffer.from('{"id":"1","customer":"ann","town":"Zürich"}', 'latin1')],
  ])('is refused with 400 for %s', async (_name, body) => {
    const reply = await create(await shop(), body);
    expect(reply.status).toBe(400);
    expect(reply.json['code']).toBe('BadRequest');
  });

  // Python writes NaN, and programs that write JSON themselves a comma too many.
  test.each([
    ['{"id":"1","customer":"ann","n":NaN}', "Unexpected token 'N'"],
    ['{"id":"1","customer":"ann",}', 'at position 27'],
  ])('that is not JSON is told where: %s', async (body, where) => {
    const { status, json } = await create(await shop(), body);
    expect([status, json['message']]).toEqual([400, expect.stringContaining('The request body is not JSON: ')]);
    expect(json['message']).toContain(where);
  });

  test.each(['1', '9007199254740993'])('that is nested too deeply is told so, with a number %s', async (n) => {
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
    const { status, json } = await create(await shop(), `{"id":"1","customer":"ann","n":${n},"deep":${deep}}`);
    expect([status, json['message']]).toEqual([400, expect.stringContaining('is nested too deeply')]);
  });

  test.each([gzipSync, deflateSync, brotliCompressSync])(
    'that is compressed is refused with an explanation: %o',
    async (compress) => {
      const { status, json } = await create(await shop(), compress('{"id":"1","customer":"ann"}'));
      expect([status, json['message']]).toEqual([400, expect.stringContaining('Content-Encoding is not supported')]);
    },
  );

  test('without an id is refused with the service’s message', async () => {
    const { json } = await create(await shop(), { customer: 'ann' });
    expect(json['message']).toContain(
      "The input content is invalid because the required properties - 'id; ' - are missing",
    );
  });

  test('may have a question mark in its id, 1,023 bytes of it, and 128 levels', async () => {
    const app = await shop();
    const nested = `{"id":"1","customer":"ann","a":${'['.repeat(127)}${']'.repeat(127)}}`;
    expect((await create(app, nested)).status).toBe(201);
    expect((await create(app, { id: 'x'.repeat(1023), customer: 'ann' })).status).toBe(201);
    // The message is from https://github.com/Azure/azure-sdk-for-python/blob/main/sdk/cosmos/azure-cosmos/tests/test_resource_id.py
    const tooLong = await create(app, { id: 'x'.repeat(1024), customer: 'ann' });
    expect(tooLong.status).toBe(400);
    expect(tooLong.json['message']).toContain(
      "Ensure to provide a unique non-empty string less than '1024' characters.",
    );
    expect((await create(app, { id: 'a?b=c&d', customer: 'ann' })).status).toBe(201);
    const signed = { type: 'docs', link: 'dbs/shop/colls/orders/docs/a?b=c&d' };
    const read = await call(app, 'GET', `${DOCS}/a?b=c&d`, { headers: ann, signed });
    expect(read.json['id']).toBe('a?b=c&d');
  });

  test('of more than 2 MB is refused with 413 in Cosmos DB’s shape, at 3 MB and at 30', async () => {
    const app = await shop();
    const body = (bytes: number) => JSON.stringify({ id: 'big', customer: 'ann', text: 'x'.repeat(bytes) });
    expect((await create(app, body(2 * 1024 * 1024 - 100))).status).toBe(201);
    for (const bytes of [2 * 1024 * 1024, 3_000_000, 30_000_000]) {
      const reply = await create(app, body(bytes));
      expect(reply.status).toBe(413);
      expect(reply.json['code']).toBe('RequestEntityTooLarge');
      expect(reply.json['message']).toMatch(/^Message: \{"Errors":\["Request size is too large"\]\}\r\n/);
      expect(reply.headers['x-ms-activity-id']).toBeDefined();
    }
    const growing = `{"id":"grows","customer":"ann","n":[${Array(400_000).fill('1e20').join(',')}]}`;
    expect((await create(app, growing)).status).toBe(413);
  });

  test('must agree with the partition key header', async () => {
    const app = await shop();
    const reply = await create(app, { id: 'o1', customer: 'ann' }, { headers: keyHeader('bob') });
    expect(reply.status).toBe(400);
    expect(reply.headers['x-ms-substatus']).toBe('1001');
    expect(reply.json['message']).toContain("doesn't match the one specified in the header");
    expect((await create(app, { id: 'o1' }, { headers: keyHeader(null) })).status).toBe(400);
    expect((await create(app, { id: 'o1' }, { headers: keyHeader({}) })).status).toBe(201);
    expect((await create(app, { id: 'o2', customer: -0 }, { headers: keyHeader(0) })).status).toBe(201);
    expect((await create(app, { id: 'o3', customer: { a: 1 } }, { headers: keyHeader({}) })).status).toBe(201);
    expect(
      (await create(app, { id: 'o4', customer: 'ü' }, { headers: { 'x-ms-documentdb-partitionkey': '["\\u00fc"]' } }))
        .status,
    ).toBe(201);
  });

  test.each(['x', '{}', '["a"', '[[]]', '[{"a":1}]', '["a","b"]', '[]', 'null', '[1e999]'])(
    'can’t be named by the partition key %s',
    async (key) => {
      const app = await shop();
      const headers = { 'x-ms-documentdb-partitionkey': key };
      expect((await call(app, 'GET', `${DOCS}/o1`, { headers })).status).toBe(400);
    },
  );

  test('is not read or written if the request means a former container of the same name', async () => {
    const app = await shop();
    const container = await call(app, 'GET', '/dbs/shop/colls/orders');
    const meant = (rid: string) => ({ ...keyHeader('ann'), 'x-ms-cosmos-intended-collection-rid': rid });
    const create = (rid: string) =>
      call(app, 'POST', DOCS, { headers: meant(rid), body: { id: 'meant', customer: 'ann' } });
    const refused = await create('AAAAAIAAAAA=');
    expect(refused.status).toBe(400);
    expect(refused.headers['x-ms-substatus']).toBe('1024');
    expect((await create(String(container.json['_rid']))).status).toBe(201);
    expect((await call(app, 'GET', `${DOCS}/meant`, { headers: meant('AAAAAIAAAAA=') })).status).toBe(400);
  });

  test('needs a partition key to be read', async () => {
    const reply = await call(await shop(), 'GET', `${DOCS}/o1`);
    expect(reply.status).toBe(400);
    expect(reply.json['message']).toContain('PartitionKey value must be supplied for this operation.');
  });

  test('is replaced only under its own partition key', async () => {
    const app = await shop();
    await create(app, { id: 'o1', customer: 'ann' });
    const put = (body: unknown) => call(app, 'PUT', `${DOCS}/o1`, { body, headers: ann });
    expect((await put({ id: 'o1', customer: 'ann', total: 1 })).json['total']).toBe(1);
    expect((await put({ id: 'o1', customer: 'bob' })).status).toBe(400);
    expect((await put({ id: 'o2', customer: 'bob' })).status).toBe(400);
    const missing = { body: { id: 'o9', customer: 'ann' }, headers: ann };
    expect((await call(app, 'PUT', `${DOCS}/o9`, missing)).status).toBe(404);
    const elsewhere = { body: { id: 'o9', customer: 'bob' }, headers: ann };
    expect((await call(app, 'PUT', `${DOCS}/o9`, elsewhere)).status).toBe(404);
  });

  test('is answered as by any replace when the replace gives it another id', async () => {
    const app = await shop();
    const { json: created } = await create(app, { id: 'o1', customer: 'ann' });
    const body = { id: 'o2', customer: 'ann', total: 1 };
    const renamed = await call(app, 'PUT', `${DOCS}/o1`, { body, headers: ann });
    expect(renamed).toMatchObject({ status: 200, json: body, headers: { etag: renamed.json['_etag'] } });
    const read = await call(app, 'GET', `${DOCS}/o2`, { headers: ann });
    expect(read.json).toEqual(renamed.json);
    expect(renamed.headers['x-ms-session-token']).toBe(read.headers['x-ms-session-token']);
    expect((await call(app, 'GET', `${DOCS}/o1`, { headers: ann })).status).toBe(404);
    const again = await call(app, 'PUT', `${DOCS}/o2`, { body, headers: ann });
    expect(renamed.headers['x-ms-request-charge']).toBe(again.headers['x-ms-request-charge']);
    const minimal = { ...ann, prefer: 'return=minimal' };
    const back = await call(app, 'PUT', `${DOCS}/o2`, { body: { ...body, id: 'o1' }, headers: minimal });
    expect(back).toMatchObject({ status: 200, text: '', headers: { 'content-type': 'application/json' } });
    const { json: returned } = await call(app, 'GET', `${DOCS}/o1`, { headers: ann });
    expect(back.headers['x-ms-request-charge']).toBe(again.headers['x-ms-request-charge']);
    expect(back.headers['etag']).toBe(returned['_etag']);
    expect(back.headers['etag']).not.toBe(created['_etag']);
  });

  test('is guarded by If-Match; If-None-Match with its etag answers 304', async () => {
    const app = await shop();
    const { json } = await create(app, { id: 'o1', customer: 'ann' });
    const etag = String(json['_etag']);
    const put = (headers: Record<string, string>) =>
      call(app, 'PUT', `${DOCS}/o1`, { body: { id: 'o1', customer: 'ann' }, headers: { ...ann, ...headers } });
    const refused = await put({ 'if-match': '"other"' });
    expect(refused.status).toBe(412);
    expect(refused.json['message']).toContain('One of the specified pre-condition is not met');
    const unchanged = await call(app, 'GET', `${DOCS}/o1`, { headers: { ...ann, 'if-none-match': etag } });
    expect(unchanged.status).toBe(304);
    expect(unchanged.text).toBe('');
    expect(unchanged.headers['etag']).toBe(etag);
    expect((await put({ 'if-match': etag })).status).toBe(200);
    expect((await call(app, 'GET', `${DOCS}/o1`, { headers: { ...ann, 'if-none-match': etag } })).status).toBe(200);
    expect((await call(app, 'DELETE', `${DOCS}/o1`, { headers: { ...ann, 'if-match': etag } })).status).toBe(412);
    const deleted = await call(app, 'DELETE', `${DOCS}/o1`, { headers: { ...ann, 'if-match': '*' } });
    expect(deleted).toMatchObject({ status: 204, text: '', headers: { 'content-type': 'application/json' } });
    const missing = await call(app, 'GET', `${DOCS}/o1`, { headers: ann });
    expect(missing.status).toBe(404);
    // Some clients and tests look for the one text, some for the other.
    expect(missing.json['message']).toContain('Entity with the specified id does not exist in the system.');
    expect(missing.json['message']).toContain('Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found');
  });

  test('is patched without a content type', async () => {
    const app = await shop();
    await create(app, { id: 'o1', customer: 'ann', total: 1 });
    const patch = (body: unknown) => call(app, 'PATCH', `${DOCS}/o1`, { body: JSON.stringify(body), headers: ann });
    expect((await patch([{ op: 'incr', path: '/total', value: 2 }])).json['total']).toBe(3);
    expect(
      (await patch({ operations: [{ op: 'set', path: '/a', value: 1 }], condition: 'FROM c WHERE c.total = 3' })).json[
        'a'
      ],
    ).toBe(1);
    expect(
      (await patch({ operations: [{ op: 'set', path: '/a', value: 2 }], condition: 'FROM c WHERE c.total = 4' }))
        .status,
    ).toBe(412);
    expect((await patch([{ op: 'set', path: '/customer', value: 'bob' }])).status).toBe(400);
    const absent =
      'Node(nothing) to be removed is absent. Note: it may also have been removed earlier in the transaction.';
    expect(await patch([{ op: 'remove', path: '/nothing' }])).toMatchObject({
      status: 400,
      json: { code: 'BadRequest', message: expect.stringContaining(`{"Errors":["For Operation(1): ${absent}"]}`) },
    });
  });

  test('is found by the rids of its self link', async () => {
    const app = await shop();
    const { json } = await create(app, { id: 'o1', customer: 'ann' });
    await create(app, { id: 'o2', customer: 'ann' });
    const signed = { type: 'docs', link: String(json['_rid']).toLowerCase() };
    const read = await call(app, 'GET', `/${String(json['_self'])}`, { signed });
    expect(read.json).toEqual(json);
    expect((await call(app, 'GET', `/${String(json['_self'])}`, { signed, headers: ann })).json).toEqual(json);
    const other = await call(app, 'GET', `/${String(json['_self'])}`, { signed, headers: keyHeader('bob') });
    expect(other.status).toBe(404);
  });

  test('with an invalid ttl is refused with the message of Cosmos DB', async () => {
    const app = await shop();
    await call(app, 'POST', '/dbs/shop/colls', {
      body: { id: 'brief', partitionKey: { paths: ['/id'] }, defaultTtl: -1 },
    });
    const reply = await call(app, 'POST', '/dbs/shop/colls/brief/docs', { body: { id: '1', ttl: null } });
    expect(reply.status).toBe(400);
    expect(reply.json['message']).toMatch(/^Message: \{"Errors":\["The input ttl 'null' is invalid\./);
  });
});

describe('a feed of items', () => {
  const fill = async () => {
    const app = await shop();
    for (let n = 0; n < 7; n += 1) await create(app, { id: `o${n}`, customer: n % 2 === 0 ? 'ann' : 'bob' });
    return app;
  };
  const query = {
    'x-ms-documentdb-isquery': 'true',
    'x-ms-documentdb-query-enablecrosspartition': 'true',
    'content-type': 'application/query+json',
  };

  test('continues page by page to its end', async () => {
    const app = await fill();
    const seen: unknown[] = [];
    let continuation: string | undefined;
    for (let page = 0; page < 10; page += 1) {
      const reply = await call(app, 'GET', DOCS, {
        headers: {
          'x-ms-max-item-count': '3',
          ...(continuation === undefined ? {} : { 'x-ms-continuation': continuation }),
        },
      });
      expect(reply.json['_count']).toBe(Number(reply.headers['x-ms-item-count']));
      seen.push(...(reply.json['Documents'] as { readonly id: string }[]).map(({ id }) => id));
      continuation = reply.headers['x-ms-continuation'] as string | undefined;
      if (continuation === undefined) break;
      expect(continuation.length).toBeLessThan(1024);
    }
    expect(seen).toEqual(['o0', 'o1', 'o2', 'o3', 'o4', 'o5', 'o6']);
  });

  test('is limited to one partition key by the header', async () => {
    const app = await fill();
    const { json } = await call(app, 'GET', DOCS, { headers: keyHeader('bob') });
    expect(json['_count']).toBe(3);
  });

  test('refuses an invalid continuation', async () => {
    const app = await fill();
    const junk = [
      'x',
      'e30',
      'bnVsbA',
      Buffer.from('{"kind":"after","birth":-1}').toString('base64url'),
      'x'.repeat(5000),
      '{"a":1}',
    ];
    for (const continuation of junk) {
      for (const reply of [
        await call(app, 'GET', DOCS, { headers: { 'x-ms-continuation': continuation } }),
        await call(app, 'POST', DOCS, {
          headers: { ...query, 'x-ms-continuation': continuation },
          body: { query: 'SELECT * FROM c' },
        }),
      ]) {
        expect(reply.status).toBe(400);
        expect(reply.json['message']).toContain('Invalid Continuation Token');
      }
    }
    for (const count of ['-2', 'x', '1.5']) {
      expect(await call(app, 'GET', DOCS, { headers: { 'x-ms-max-item-count': count } })).toMatchObject({
        status: 400,
        json: { message: expect.stringContaining(`The input PageSize ${count} is invalid.`) },
      });
    }
  });

  test('leaves the page size to the server if it is -1 or 0, as in programs that do not set it', async () => {
    const app = await fill();
    const whole = (await call(app, 'GET', DOCS)).json;
    for (const headers of [{ 'x-ms-max-item-count': '0' }, { 'x-ms-max-item-count': '-1' }]) {
      expect(await call(app, 'GET', DOCS, { headers })).toMatchObject({ status: 200, json: whole });
      const asked = { headers: { ...query, ...headers }, body: { query: 'SELECT * FROM c' } };
      expect(await call(app, 'POST', DOCS, asked)).toMatchObject({ status: 200, json: { _count: whole['_count'] } });
    }
  });

  test('reads 10,000 rows for a page at most, and 1,000 if the client leaves it to the server', async () => {
    const store = fakeStore();
    const app = await shop({ store });
    const listed = vi.spyOn(store, 'listItems');
    const asked: number[] = [];
    for (const count of ['-1', '999', '10000', '10001']) {
      await call(app, 'GET', DOCS, { headers: { 'x-ms-max-item-count': count } });
      asked.push(listed.mock.lastCall![1].maxItemCount);
    }
    expect(asked).toEqual([1_000, 999, 10_000, 10_000]);
  });

  test.each([
    ['0', 'The continuation token limit specified is not large enough'],
    ['-1', 'which must be a positive integer'],
    ['x', 'which must be a positive integer'],
    ['1', undefined],
    ['16', undefined],
  ])('takes a limit of %s kB for the continuation of a query, if it is one', async (limit, refusal) => {
    const reply = await call(await shop(), 'POST', DOCS, {
      body: { query: 'SELECT * FROM c' },
      headers: {
        'x-ms-documentdb-isquery': 'true',
        'x-ms-documentdb-query-enablecrosspartition': 'true',
        'x-ms-documentdb-responsecontinuationtokenlimitinkb': limit,
      },
    });
    expect(reply.status).toBe(refusal === undefined ? 200 : 400);
    expect(String(reply.json['message'])).toContain(String(refusal));
  });

  test('answers queries with metrics that every client can parse', async () => {
    const app = await fill();
    const reply = await call(app, 'POST', DOCS, {
      headers: { ...query, 'x-ms-documentdb-populatequerymetrics': 'True' },
      body: { query: 'SELECT VALUE c.id FROM c WHERE c.id = @id', parameters: [{ name: '@id', value: 'o3' }] },
    });
    expect(reply.json['Documents']).toEqual(['o3']);
    const metrics = String(reply.headers['x-ms-documentdb-query-metrics']);
    expect(metrics.split(';').every((part) => /^\w+=[\d.]+$/.test(part))).toBe(true);
    expect(metrics).toContain('retrievedDocumentCount=7');
  });

  test('reports sizes in bytes, whatever characters the items contain', async () => {
    const app = await fill();
    const reply = await call(app, 'POST', DOCS, {
      headers: { ...query, 'x-ms-documentdb-populatequerymetrics': 'True' },
      body: { query: "SELECT VALUE 'яя漢' FROM c WHERE c.id = 'o3'" },
    });
    const bytes = Buffer.byteLength(JSON.stringify(reply.json));
    expect(String(reply.headers['x-ms-documentdb-query-metrics'])).toContain(`outputDocumentSize=${bytes};`);
  });

  /** The query metrics with which a page with these measurements is answered. */
  async function metricsToldOf(
    metrics: Awaited<ReturnType<StoreApi['queryItems']>>['metrics'],
    examined = 7,
  ): Promise<string[]> {
    const inner = fakeStore();
    const queryItems: StoreApi['queryItems'] = async (...given) => ({
      ...(await inner.queryItems(...given)),
      examined,
      metrics,
    });
    const app = await shop({ store: { ...inner, queryItems } });
    const headers = { ...query, 'x-ms-documentdb-populatequerymetrics': 'True' };
    const reply = await call(app, 'POST', DOCS, { headers, body: { query: 'SELECT * FROM c' } });
    return String(reply.headers['x-ms-documentdb-query-metrics']).split(';');
  }

  test('reports a query’s total time, from which clients subtract what was not spent in the engine', async () => {
    const metrics = await metricsToldOf({ totalMs: 10, compileMs: 1, planMs: 0.5, lookupMs: 2, loadMs: 6 });
    expect(metrics).toContain('totalExecutionTimeInMs=10.00');
    expect(metrics).toContain('queryCompileTimeInMs=1.00');
    expect(metrics).toContain('queryLogicalPlanBuildTimeInMs=0.50');
    expect(metrics).toContain('VMExecutionTimeInMs=8.50');
    expect(metrics).toContain('indexLookupTimeInMs=2.00');
    expect(metrics).toContain('documentLoadTimeInMs=6.00');
  });

  test('reports no time of 0 for work that was done, however quickly', async () => {
    const measured = { totalMs: 0.004, compileMs: 0.002, planMs: 0.001, lookupMs: 0, loadMs: 0 };
    const metrics = await metricsToldOf(measured);
    expect(metrics).toContain('totalExecutionTimeInMs=0.01');
    expect(metrics).toContain('queryCompileTimeInMs=0.01');
    expect(metrics).toContain('queryLogicalPlanBuildTimeInMs=0.01');
    expect(metrics).toContain('VMExecutionTimeInMs=0.01');
    expect(metrics).toContain('documentLoadTimeInMs=0.01');
    expect(metrics).toContain('indexLookupTimeInMs=0.00');
    expect(await metricsToldOf(measured, 0)).toContain('documentLoadTimeInMs=0.00');
  });

  test('reports which parts of a filter were decided before documents were read', async () => {
    const app = await fill();
    const utilized = async (where: string, headers: Record<string, string>) => {
      const reply = await call(app, 'POST', DOCS, {
        headers: { ...query, 'x-ms-cosmos-populateindexmetrics': 'True', ...headers },
        body: { query: `SELECT * FROM c WHERE ${where}` },
      });
      const text = Buffer.from(String(reply.headers['x-ms-cosmos-index-utilization']), 'base64').toString();
      const metrics = JSON.parse(text) as Record<string, Record<string, unknown>[]>;
      expect(metrics).toMatchObject({
        PotentialSingleIndexes: [],
        UtilizedCompositeIndexes: [],
        PotentialCompositeIndexes: [],
      });
      return metrics['UtilizedSingleIndexes'];
    };
    const everywhere = { 'x-ms-documentdb-query-enablecrosspartition': 'True' };
    const byId = { FilterExpression: '(ROOT.id = "o3")', IndexSpec: '/id/?', FilterPreciseSet: true };
    const byKey = { FilterExpression: '', IndexSpec: '/customer/?', FilterPreciseSet: true };
    expect(await utilized("c.id = 'o3'", { 'x-ms-documentdb-partitionkey': '["ann"]' })).toEqual([
      { ...byKey, IndexPreciseSet: true, IndexImpactScore: 'High' },
      { ...byId, IndexPreciseSet: true, IndexImpactScore: 'High' },
    ]);
    expect(await utilized("c.id = 'o3'", everywhere)).toEqual([
      { ...byId, IndexPreciseSet: false, IndexImpactScore: 'Low' },
    ]);
    expect(await utilized("c.id = 'o3' AND c.customer = 'ann' AND c._ts >= 7", everywhere)).toEqual([
      { ...byId, IndexPreciseSet: true, IndexImpactScore: 'High' },
      {
        FilterExpression: '(ROOT.customer = "ann")',
        IndexSpec: '/customer/?',
        FilterPreciseSet: false,
        IndexPreciseSet: true,
        IndexImpactScore: 'High',
      },
      {
        FilterExpression: '(ROOT._ts >= 7)',
        IndexSpec: '/_ts/?',
        FilterPreciseSet: true,
        IndexPreciseSet: false,
        IndexImpactScore: 'Low',
      },
    ]);
    expect(await utilized("c.customer IN ('ann', 'bob') AND c.total > 5", everywhere)).toMatchObject([
      { FilterExpression: '(ROOT.customer IN ("ann", "bob"))', IndexSpec: '/customer/?', IndexPreciseSet: true },
    ]);
    expect(await utilized('c.total > 5', everywhere)).toEqual([]);
    // Clients in Node refuse a response with more than 16 KB of headers.
    const long = Array.from({ length: 20 }, (_, n) => `c.id = '${n} ${'字'.repeat(200)}'`).join(' AND ');
    const shown = (await utilized(long, everywhere))!;
    expect(shown.length).toBeGreaterThan(5);
    expect(shown.length).toBeLessThan(20);
    const plain = await call(app, 'POST', DOCS, {
      headers: { ...query, ...everywhere },
      body: { query: 'SELECT * FROM c' },
    });
    expect(plain.headers['x-ms-cosmos-index-utilization']).toBe(undefined);
  });

  test('reports the same in the second version of index metrics, each path once', async () => {
    const app = await fill();
    const reply = await call(app, 'POST', DOCS, {
      headers: {
        ...query,
        'x-ms-documentdb-query-enablecrosspartition': 'True',
        'x-ms-cosmos-populateindexmetrics-V2': 'True',
      },
      body: { query: "SELECT * FROM c WHERE c.id = 'o3' AND c._ts >= 7 AND c._ts <= 9" },
    });
    expect(JSON.parse(decodeURIComponent(String(reply.headers['x-ms-cosmos-index-utilization'])))).toEqual({
      UtilizedIndexes: { SingleIndexes: [{ IndexSpec: '/id/?' }, { IndexSpec: '/_ts/?' }], CompositeIndexes: [] },
      PotentialIndexes: { SingleIndexes: [], CompositeIndexes: [] },
    });
  });

  test('answers a query plan that passes everything through, and 400 for text that is no query', async () => {
    const app = await fill();
    const plan = (body: unknown) =>
      call(app, 'POST', DOCS, { headers: { ...query, 'x-ms-cosmos-is-query-plan-request': 'True' }, body });
    const { json } = await plan({ query: 'SELECT TOP 5 * FROM c ORDER BY c.id' });
    expect(json).toMatchObject({
      partitionedQueryExecutionInfoVersion: 2,
      queryInfo: { aggregates: [], rewrittenQuery: '' },
    });
    expect((await plan({ query: 'SELECT FROM' })).status).toBe(400);
    for (const body of [
      {},
      { query: 1 },
      { query: ' ' },
      { query: 'SELECT 1', parameters: {} },
      { query: 'SELECT 1', parameters: [{ name: 'x' }] },
      { query: `SELECT ${'1+'.repeat(200_000)}1` },
    ]) {
      expect((await plan(body)).status).toBe(400);
      expect((await call(app, 'POST', DOCS, { headers: query, body })).status).toBe(400);
    }
  });

  test('refuses an empty batch', async () => {
    const app = await fill();
    expect(
      (await call(app, 'POST', DOCS, { headers: { 'x-ms-cosmos-is-batch-request': 'true' }, body: [] })).status,
    ).toBe(400);
  });
});

describe('a session token', () => {
  test('is a position in the log, and is refused with 404 and 1002 if the server is behind it', async () => {
    const app = await shop();
    const created = await create(app, { id: 'o1', customer: 'ann' });
    const token = String(created.headers['x-ms-session-token']);
    expect(token).toMatch(/^0:-1#\d+$/);
    const { json: container } = await call(app, 'GET', '/dbs/shop/colls/orders');
    expect(created.headers['x-ms-content-path']).toBe(container['_rid']);
    expect(created.headers['x-ms-alt-content-path']).toBe('dbs/shop/colls/orders');
    const readAt = (session: string) =>
      call(app, 'GET', `${DOCS}/o1`, { headers: { ...ann, 'x-ms-session-token': session } });
    expect((await readAt(token)).status).toBe(200);
    const ahead = await readAt('0:-1#999');
    expect([ahead.status, ahead.headers['x-ms-substatus']]).toEqual([404, '1002']);
    expect((await readAt('0:-1#1,1:-1#2')).status).toBe(200);
    for (const junk of ['x', '0:', ':', '0:-1#x', '0:-1#', '0:-1#1.5', '0:-1#1e999', ',']) {
      expect((await readAt(junk)).status, junk).toBe(400);
    }
  });

  test('must be valid, for a write as well, and may be ahead of this server for a write', async () => {
    const app = await shop();
    const at = (session: string) => ({ headers: { ...ann, 'x-ms-session-token': session } });
    const body = { id: 'o1', customer: 'ann' };
    const refused = await create(app, body, at('junk'));
    expect(refused.status).toBe(400);
    expect(refused.json['message']).toContain("The session token provided 'junk' is invalid.");
    expect((await create(app, body, at('0:-1#999'))).status).toBe(201);
    expect((await call(app, 'PUT', `${DOCS}/o1`, { body, ...at('junk') })).status).toBe(400);
    expect((await call(app, 'DELETE', `${DOCS}/o1`, at('junk'))).status).toBe(400);
    expect((await call(app, 'DELETE', `${DOCS}/o1`, at('0:-1#999'))).status).toBe(204);
  });
});
