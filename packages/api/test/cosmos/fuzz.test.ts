import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { call, DOCS, httpDate, keyHeader, NOW_MS, shop, sign } from './support/client.ts';
import { inject } from './support/inject.ts';
import { parseTarget } from '@epitaph/api/cosmos/target.ts';

const method = fc.constantFrom('GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS');

const name = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.constantFrom(
      'shop',
      'orders',
      'o1',
      'dbs',
      'colls',
      'docs',
      'pkranges',
      'offers',
      'sprocs',
      'users',
      'conflicts',
      'operations',
      'partitionkeydelete',
      '/////wAB',
      '__proto__',
      'constructor',
    ),
  },
  { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 20 }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('%', '%zz', '%E0%A4%A', '%00', '%2F', '..', '.', '?', '?a=b', '&', ';', '%25'),
  },
);
const encoded = name.map((text) => (text.includes('%') || text.includes('?') ? text : encodeURI(text)));
const path = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      '/',
      '/dbs',
      '/dbs/shop',
      '/dbs/shop/colls',
      '/dbs/shop/colls/orders',
      DOCS,
      `${DOCS}/o1`,
      '/dbs/shop/colls/orders/pkranges',
      '/offers',
    ),
  },
  { weight: 2, arbitrary: fc.array(encoded, { maxLength: 8 }).map((parts) => `/${parts.join('/')}`) },
  { weight: 1, arbitrary: encoded.map((id) => `${DOCS}/${id}`) },
);

const flag = fc.constantFrom('true', 'True', 'false', '', 'x');
const text = fc.oneof(
  fc.string({ maxLength: 30 }).map((value) => value.replace(/[^\x20-\x7e]/g, '')),
  fc.constantFrom(
    '*',
    '"x"',
    '-1',
    '0',
    '1e999',
    '[]',
    '["ann"]',
    '[{}]',
    '[null]',
    '{}',
    '0:-1#1',
    '0:-1#99999',
    ',',
    'null',
  ),
);
const headerValues = {
  'x-ms-documentdb-partitionkey': text,
  'x-ms-documentdb-isquery': flag,
  'x-ms-cosmos-is-query-plan-request': flag,
  'x-ms-documentdb-is-upsert': flag,
  'x-ms-cosmos-is-batch-request': flag,
  'x-ms-continuation': fc.oneof(
    text,
    fc.json({ maxDepth: 1 }).map((json) => Buffer.from(json).toString('base64url')),
  ),
  'x-ms-max-item-count': text,
  'x-ms-session-token': text,
  'x-ms-version': text,
  'if-match': text,
  'if-none-match': text,
  'a-im': text,
  prefer: fc.constant('return=minimal'),
  'content-type': fc.oneof(
    text,
    fc.constantFrom('application/json', 'application/query+json', 'text/plain', 'multipart/form-data'),
  ),
};
/** Mostly one or two at a time, because a request with ten odd headers fails at the first of them. */
const headers = fc
  .oneof(
    { weight: 3, arbitrary: fc.constant([]) },
    { weight: 5, arbitrary: fc.subarray(Object.keys(headerValues), { maxLength: 2 }) },
    { weight: 1, arbitrary: fc.subarray(Object.keys(headerValues)) },
  )
  .chain((names: readonly string[]) =>
    fc.record(Object.fromEntries(names.map((header) => [header, headerValues[header as keyof typeof headerValues]]))),
  );

const document = fc.record(
  {
    id: fc.oneof(fc.constantFrom('o1', 'shop', 'orders'), fc.jsonValue({ maxDepth: 1 })),
    customer: fc.oneof(fc.constant('ann'), fc.jsonValue({ maxDepth: 1 })),
    ttl: fc.jsonValue({ maxDepth: 0 }),
    partitionKey: fc.oneof(fc.constant({ paths: ['/customer'] }), fc.jsonValue({ maxDepth: 2 })),
    indexingPolicy: fc.jsonValue({ maxDepth: 2 }),
    defaultTtl: fc.jsonValue({ maxDepth: 0 }),
  },
  { requiredKeys: ['id'] },
);
const patch = fc.array(
  fc.record(
    {
      op: fc.constantFrom('add', 'set', 'remove', 'incr', 'move', 'x'),
      path: fc.oneof(fc.constantFrom('/a', '/a/b', '/a/-', '/id', '/__proto__/x'), fc.string()),
      from: fc.constant('/a'),
      value: fc.jsonValue({ maxDepth: 1 }),
    },
    { requiredKeys: ['op'] },
  ),
  { maxLength: 11 },
);
const query = fc.record(
  {
    query: fc.oneof(
      fc.constantFrom('SELECT * FROM c', 'SELECT VALUE COUNT(1) FROM c', 'SELECT c.a FROM c ORDER BY c.b', 'SELECT'),
      fc.string(),
    ),
    parameters: fc.oneof(fc.constant([]), fc.jsonValue({ maxDepth: 2 })),
  },
  { requiredKeys: ['query'] },
);
const body = fc.oneof(
  fc.constant(undefined),
  fc.string(),
  fc.uint8Array().map((bytes) => Buffer.from(bytes)),
  fc.jsonValue().map((value) => JSON.stringify(value)),
  document.map((value) => JSON.stringify(value)),
  patch.map((value) => JSON.stringify(value)),
  query.map((value) => JSON.stringify(value)),
);

const asText = (value: unknown): string => JSON.stringify(value);
/** Requests that are nearly right, which get further than random ones. */
const plausible = fc.oneof(
  fc.tuple(fc.constant('POST'), fc.constantFrom(DOCS, '/dbs', '/dbs/shop/colls'), document.map(asText)),
  fc.tuple(fc.constant('PUT'), fc.constantFrom(`${DOCS}/o1`, '/dbs/shop/colls/orders'), document.map(asText)),
  fc.tuple(fc.constant('PATCH'), fc.constant(`${DOCS}/o1`), patch.map(asText)),
  fc.tuple(fc.constant('POST'), fc.constantFrom(DOCS, '/dbs', '/offers'), query.map(asText)),
  fc.tuple(fc.constant('DELETE'), fc.constantFrom(`${DOCS}/o1`, '/dbs/shop/colls/orders'), fc.constant('')),
);
const request = fc.oneof(plausible, fc.tuple(method, path, body));

let folder: string;
let store: Store;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'epitaph-fuzz-'));
  store = await openEmbeddedStore({ folder, clock: 'manual', writers: 'inline', durable: false });
});
afterAll(async () => {
  await store.close();
  await rm(folder, { recursive: true });
});

describe('whatever is sent', () => {
  test('with a key is answered, never with a fault of the server', async () => {
    const app = await shop({ store });
    await call(app, 'POST', DOCS, { body: { id: 'o1', customer: 'ann' }, headers: keyHeader('ann') });
    const date = httpDate(NOW_MS);
    const seen = new Set<number>();
    await fc.assert(
      fc.asyncProperty(request, headers, async ([verb, target, payload], extra) => {
        // Earlier requests may have deleted what the next ones need.
        await call(app, 'POST', '/dbs', { body: { id: 'shop' } });
        await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'orders', partitionKey: { paths: ['/customer'] } } });
        let signed = { resourceType: '', resourceLink: '' };
        try {
          signed = parseTarget(target, 10_000);
        } catch {
          // No client could sign this request; it must be answered nevertheless.
        }
        const response = await inject(app, {
          method: verb,
          url: target,
          headers: {
            'x-ms-date': date,
            authorization: sign(verb, signed.resourceType, signed.resourceLink, date),
            ...extra,
          },
          ...(payload === undefined || payload.length === 0 ? {} : { payload }),
        });
        seen.add(response.statusCode);
        expect(response.statusCode, response.payload).toBeLessThan(500);
        expect(response.headers['x-ms-activity-id']).toBeDefined();
        if (response.statusCode >= 400 && verb !== 'HEAD') {
          expect(response.json()).toMatchObject({ code: expect.any(String), message: expect.any(String) });
        }
      }),
      { numRuns: 1_000 },
    );
    // If random requests were all refused at once, they would show nothing.
    for (const status of [200, 201, 204, 400, 404, 405, 409]) expect(seen).toContain(status);
    // The server still works.
    expect((await call(app, 'GET', '/dbs')).status).toBe(200);
  }, 60_000);

  test('without a key is refused with 400 or 401', async () => {
    const app = await shop({ store });
    const authorization = fc.oneof(
      fc.string().map((value) => value.replace(/[^\x20-\x7e]/g, '')),
      fc.constantFrom('type=master&ver=1.0&sig=', 'Bearer x', 'type%3Dmaster%26ver%3D1.0%26sig%3D'),
      fc.base64String().map((sig) => encodeURIComponent(`type=master&ver=1.0&sig=${sig}`)),
    );
    await fc.assert(
      fc.asyncProperty(
        method,
        path,
        authorization,
        fc.oneof(
          fc.constant(httpDate(NOW_MS)),
          fc.string().map((value) => value.replace(/[^\x20-\x7e]/g, '')),
        ),
        async (verb, target, given, date) => {
          const response = await inject(app, {
            method: verb,
            url: target,
            headers: { authorization: given, 'x-ms-date': date },
          });
          expect([400, 401, 403]).toContain(response.statusCode);
        },
      ),
      { numRuns: 350 },
    );
  }, 60_000);
});
