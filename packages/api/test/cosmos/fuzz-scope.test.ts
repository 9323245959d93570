import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { call, keyHeader, testServer, type Reply } from './support/client.ts';

const MINE = 'ann';
const THEIRS = 'bob';
/** Every text of a document contains this mark, so that any part of it that shows up is noticed. */
const markOf = (customer: string) => `${customer}-only`;
const IDS = ['o1', 'o2', 'o3', 'o4', 'o5', 'shared'];

let folder: string;
let store: Store;
let app: FastifyInstance;
/** Continuation tokens from the server, of all kinds of reads and of both customers. */
const tokens: string[] = [];
const containers = ['wide', 'levels'];
const docs = (container: string) => `/dbs/fuzz/colls/${container}/docs`;
const keyOf = (container: string, customer: string) =>
  container === 'levels' ? keyHeader(customer, 'x') : keyHeader(customer);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'epitaph-fuzz-scope-'));
  store = await openEmbeddedStore({ folder, clock: 'manual', writers: 'inline', durable: false });
  app = testServer({ store });
  await call(app, 'POST', '/dbs', { body: { id: 'fuzz' } });
  const paths = { wide: ['/customer'], levels: ['/customer', '/kind'] };
  for (const [id, partitionKey] of Object.entries(paths)) {
    await call(app, 'POST', '/dbs/fuzz/colls', {
      // Enough throughput for several partition key ranges.
      headers: { 'x-ms-offer-throughput': '30000' },
      body: { id, partitionKey: { paths: partitionKey }, defaultTtl: -1 },
    });
    for (const customer of [MINE, THEIRS, 'cleo', 'dora']) {
      for (const [n, itemId] of IDS.entries()) {
        const mark = markOf(customer);
        const body = { id: itemId, customer, kind: 'x', n, mark, list: [mark, n], deep: { mark }, [mark]: n };
        const reply = await call(app, 'POST', docs(id), { body, headers: keyOf(id, customer) });
        expect(reply.status).toBe(201);
      }
    }
    await collectTokens(id);
  }
  expect(tokens.length).toBeGreaterThan(10);
});
afterAll(async () => {
  await store.close();
  await rm(folder, { recursive: true });
});

async function collectTokens(container: string): Promise<void> {
  const scopes = [{}, keyOf(container, MINE), keyOf(container, THEIRS)];
  const queries = ['SELECT * FROM c', 'SELECT * FROM c ORDER BY c.n', 'SELECT DISTINCT c.n FROM c', undefined];
  for (const scope of scopes) {
    for (const query of queries) {
      const headers = { ...scope, 'x-ms-max-item-count': '2' };
      const reply =
        query === undefined
          ? await call(app, 'GET', docs(container), { headers })
          : await call(app, 'POST', docs(container), { headers: { ...headers, ...asQuery }, body: { query } });
      const token = reply.headers['x-ms-continuation'];
      if (typeof token === 'string') tokens.push(token, unbound(token));
    }
  }
}

const asQuery = { 'content-type': 'application/query+json', 'x-ms-documentdb-isquery': 'true' };

/** Mostly values that any query may read, so that most queries get as far as the documents. */
const value = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.constantFrom(
      'c.n',
      'c.id',
      'c.mark',
      'c.customer',
      'c.list',
      'c["deep"].mark',
      'c',
      '@p',
      'c.nothing',
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      '1',
      'null',
      'undefined',
      'x',
      'COUNT(1)',
      'MAX(c.mark)',
      'ARRAY(SELECT VALUE d.mark FROM d IN c.list)',
      '(SELECT VALUE COUNT(1) FROM d IN c.list)',
      'ObjectToArray(c)',
      'VectorDistance(c.list, [1])',
    ),
  },
);
const condition = fc.oneof(
  fc
    .tuple(value, fc.constantFrom('=', '!=', '<', '>=', 'LIKE', 'IN', '||', '??'), value)
    .map((parts) => parts.join(' ')),
  fc.constantFrom(
    'true',
    '1 = 1 OR true',
    'c.customer != "ann"',
    'NOT (c.customer = "ann")',
    'c.id IN ("o1", "shared")',
    'c.id = "shared" OR c.id = "o2"',
    'c._ts > 0',
    'EXISTS(SELECT VALUE d FROM d IN c.list)',
    'FullTextContains(c.mark, "only")',
  ),
);
const clause = (word: string, what: fc.Arbitrary<string>, without = 1) =>
  fc.oneof(
    { weight: without, arbitrary: fc.constant('') },
    { weight: 1, arbitrary: what.map((text) => ` ${word} ${text}`) },
  );
const sql = fc
  .tuple(
    fc.constantFrom('SELECT', 'SELECT', 'SELECT DISTINCT', 'SELECT TOP 3', 'SELECT VALUE', 'SELECT DISTINCT VALUE'),
    fc.oneof(
      fc.constant('*'),
      value,
      fc.tuple(value, value).map(([a, b]) => `${a}, ${b} AS b`),
    ),
    fc.constantFrom(
      '',
      ' FROM c',
      ' FROM c',
      ' FROM c',
      ' FROM c JOIN x IN c.list',
      ' FROM x IN c.list',
      ' FROM c.deep',
    ),
    clause('WHERE', condition),
    clause('GROUP BY', value, 9),
    clause(
      'ORDER BY',
      fc.tuple(value, fc.constantFrom('', ' DESC', ', c.id')).map((parts) => parts.join('')),
    ),
    fc.constantFrom('', '', ' OFFSET 1 LIMIT 2', ' OFFSET @p LIMIT 1', ';'),
  )
  .map((parts) => parts.join(''));
const parameter = fc.record({ name: fc.constantFrom('@p', '@q', 'p'), value: fc.jsonValue({ maxDepth: 2 }) });
const parameters = fc.oneof(
  { weight: 6, arbitrary: fc.constant([{ name: '@p', value: 1 }]) },
  { weight: 1, arbitrary: fc.array(parameter, { maxLength: 3 }) },
  { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 1 }) },
);

/** The queries of the tokens, so that some tokens fit. */
const plain = fc.constantFrom(
  'SELECT * FROM c',
  'SELECT VALUE c.mark FROM c',
  'SELECT * FROM c ORDER BY c.n',
  'SELECT VALUE c.mark FROM c ORDER BY c.mark DESC',
  'SELECT DISTINCT c.n, c.mark FROM c',
);

/** A token as it was given, which seldom fits another query, or one with changed content. */
const token = fc
  .tuple(fc.nat(), fc.nat(), fc.oneof(fc.maxSafeInteger(), fc.jsonValue({ maxDepth: 1 })))
  .chain(([which, at, put]) => {
    const real = tokens[which % tokens.length]!;
    const other = [bent(real, at, put), flipped(real, at), `${real}x`, real.slice(0, at % real.length)];
    return fc.oneof(fc.constant(real), fc.constantFrom(...other));
  });

/** The token without its container, key and order, by which the server tells that it belongs to another request. */
function unbound(real: string): string {
  const said = JSON.parse(Buffer.from(real, 'base64url').toString()) as Readonly<Record<string, unknown>>;
  const { of: _container, key: _key, by: _order, ...content } = said;
  return Buffer.from(JSON.stringify(content)).toString('base64url');
}

function bent(real: string, at: number, put: unknown): string {
  try {
    const content = JSON.parse(Buffer.from(real, 'base64url').toString()) as Record<string, unknown>;
    const names = Object.keys(content);
    content[names[at % names.length]!] = put;
    return Buffer.from(JSON.stringify(content)).toString('base64url');
  } catch {
    return real;
  }
}

function flipped(real: string, at: number): string {
  const bytes = Buffer.from(real, 'base64url');
  const index = at % bytes.length;
  bytes[index] = bytes[index]! ^ (1 << (at % 8));
  return bytes.toString('base64url');
}

const epk = fc.oneof(
  fc.constantFrom('', 'FF', '05C1', '05C1E1B3D9CD2608', 'ff', 'G', '00', '3FFFFFFFFFFFFFFF'),
  fc.stringMatching(/^[0-9A-F]{2,32}$/),
);
const words = fc.stringMatching(/^[ -~]{0,20}$/);
const headerValues: Readonly<Record<string, fc.Arbitrary<string>>> = {
  'x-ms-continuation': token,
  'x-ms-max-item-count': fc.constantFrom('1', '2', '-1', '0', '100000', 'x'),
  'x-ms-documentdb-partitionkeyrangeid': fc.oneof(fc.constantFrom('0', '1', '5', '99', '-1', 'a,0', ''), words),
  'x-ms-start-epk': epk,
  'x-ms-end-epk': epk,
  'x-ms-read-key-type': fc.constantFrom('EffectivePartitionKeyRange', 'x'),
  'x-ms-session-token': fc.oneof(fc.constantFrom('0:-1#1', '0:-1#1,1:-1#2', '1:-1#999999999'), words),
  'x-ms-consistency-level': fc.oneof(fc.constantFrom('Strong', 'Eventual', 'strong'), words),
  'x-ms-documentdb-populatequerymetrics': fc.constantFrom('true', 'x'),
  'x-ms-cosmos-is-query-plan-request': fc.constantFrom('False', 'x'),
  'x-ms-version': fc.constantFrom('2018-06-18', '2020-07-15', '9999-12-31', 'x'),
  'if-none-match': fc.oneof(
    fc.constantFrom('*', '"1"', '"0"', '"-1"', '"999999999"', '"x"'),
    token.map((text) => `"${text}"`),
  ),
  'if-modified-since': fc.oneof(
    fc.constantFrom(
      'Sat, 21 Nov 2026 10:00:00 GMT',
      'Thu, 01 Jan 1970 00:00:00 GMT',
      'Fri, 31 Dec 9999 23:59:59 GMT',
      'x',
    ),
    words,
  ),
  'a-im': fc.constantFrom('Incremental Feed', 'Incremental feed', 'Full-Fidelity Feed', 'x'),
  'x-ms-cosmos-changefeed-wire-format-version': fc.constantFrom('2021-09-15', 'x'),
};
const extraHeaders = (...names: readonly string[]): fc.Arbitrary<Readonly<Record<string, string>>> =>
  fc
    .subarray([...names], { maxLength: 4 })
    .chain((some) => fc.record(Object.fromEntries(some.map((name) => [name, headerValues[name]!]))));

/** Expects an answer that shows nothing of other partitions and is not a fault of the server. */
function expectHarmless(reply: Reply): void {
  expect(reply.status, reply.text).toBeLessThan(500);
  if (reply.status >= 300) return;
  for (const other of [THEIRS, 'cleo', 'dora']) {
    expect(reply.text).not.toContain(markOf(other));
    expect(reply.text).not.toContain(`"customer":"${other}"`);
  }
}

const batchOperation = fc.record(
  {
    operationType: fc.constantFrom('Create', 'Upsert', 'Read', 'Delete', 'Replace', 'Patch', 'create', 'x'),
    id: fc.oneof(fc.constantFrom(...IDS, 'new'), fc.jsonValue({ maxDepth: 0 })),
    partitionKey: fc.constantFrom('["ann"]', '["bob"]', '["bob","x"]', '[', 5, ['bob']),
    ifMatch: fc.constantFrom('*', '"x"', 5),
    resourceBody: fc.oneof(
      fc.record({
        id: fc.constantFrom(...IDS, 'new', 5),
        customer: fc.constantFrom(MINE, THEIRS),
        kind: fc.constantFrom('x', 'y'),
        ttl: fc.constantFrom(1, 0, -1, 'x'),
      }),
      fc.record({
        operations: fc.array(
          fc.record({
            op: fc.constantFrom('set', 'add', 'x'),
            path: fc.constantFrom('/n', '/customer', '/id'),
            value: fc.constantFrom(1, THEIRS),
          }),
          { maxLength: 3 },
        ),
      }),
      fc.jsonValue({ maxDepth: 2 }),
    ),
  },
  { requiredKeys: ['operationType'] },
);
const batchBody = fc.oneof(
  { weight: 8, arbitrary: fc.array(batchOperation, { maxLength: 6 }).map((all) => JSON.stringify(all)) },
  { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 2 }).map((all) => JSON.stringify(all)) },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)) },
);

/** The current items of the other partition. */
async function theirItems(): Promise<string[]> {
  const replies = containers.flatMap((name) =>
    IDS.map((id) => call(app, 'GET', `${docs(name)}/${id}`, { headers: keyOf(name, THEIRS) })),
  );
  return (await Promise.all(replies)).map(({ text }) => text);
}

const container = fc.constantFrom(...containers);

describe('within one partition key', () => {
  test('a query of any text, parameters, headers and continuation shows nothing of another partition', async () => {
    const seen = new Map<number, number>();
    const headers = extraHeaders(
      ...Object.keys(headerValues).filter((name) => !name.startsWith('if-') && name !== 'a-im'),
    );
    await fc.assert(
      fc.asyncProperty(
        container,
        fc.oneof(plain, sql),
        parameters,
        fc.oneof(fc.constant({}), headers),
        async (name, query, given, extra) => {
          const reply = await call(app, 'POST', docs(name), {
            headers: { ...asQuery, ...keyOf(name, MINE), ...extra },
            body: { query, parameters: given },
          });
          expectHarmless(reply);
          seen.set(reply.status, (seen.get(reply.status) ?? 0) + 1);
        },
      ),
      { numRuns: 800 },
    );
    expect(seen.get(200) ?? 0).toBeGreaterThan(30);
    expect(seen.get(400) ?? 0).toBeGreaterThan(100);
  }, 120_000);

  test('plain queries, continued with anybody’s token, show nothing of another partition', async () => {
    let answered = 0;
    await fc.assert(
      fc.asyncProperty(container, fc.oneof(plain, plain, sql), token, async (name, query, continuation) => {
        const reply = await call(app, 'POST', docs(name), {
          headers: { ...asQuery, ...keyOf(name, MINE), 'x-ms-max-item-count': '2', 'x-ms-continuation': continuation },
          body: { query, parameters: [{ name: '@p', value: 1 }] },
        });
        expectHarmless(reply);
        if (reply.status === 200) answered += 1;
      }),
      { numRuns: 500 },
    );
    expect(answered).toBeGreaterThan(30);
  }, 120_000);

  test('a feed, of items or of changes, shows nothing of another partition', async () => {
    const seen = new Set<number>();
    const headers = extraHeaders(...Object.keys(headerValues));
    await fc.assert(
      fc.asyncProperty(container, headers, async (name, extra) => {
        const reply = await call(app, 'GET', docs(name), { headers: { ...keyOf(name, MINE), ...extra } });
        expectHarmless(reply);
        seen.add(reply.status);
      }),
      { numRuns: 800 },
    );
    expect([...seen]).toEqual(expect.arrayContaining([200, 400]));
  }, 120_000);

  test('a batch of any operations changes and shows nothing of another partition', async () => {
    const before = await theirItems();
    const headers = fc.record(
      {
        'x-ms-cosmos-batch-atomic': fc.constantFrom('true', 'True', 'false'),
        'x-ms-cosmos-batch-continue-on-error': fc.constantFrom('true', 'True', 'false'),
        'x-ms-cosmos-batch-ordered': fc.constantFrom('true', 'false'),
      },
      { requiredKeys: ['x-ms-cosmos-batch-atomic'] },
    );
    const seen = new Set<number>();
    await fc.assert(
      fc.asyncProperty(container, headers, batchBody, async (name, extra, sent) => {
        // A batch that isn't atomic has its keys in its operations, and may well name another partition.
        const reply = await call(app, 'POST', docs(name), {
          headers: {
            ...keyOf(name, MINE),
            'x-ms-cosmos-is-batch-request': 'True',
            ...extra,
            'x-ms-cosmos-batch-atomic': 'true',
          },
          body: sent,
        });
        expectHarmless(reply);
        seen.add(reply.status);
      }),
      {
        numRuns: 550,
        // A batch that succeeds, as few others do.
        examples: [
          [
            'wide',
            { 'x-ms-cosmos-batch-atomic': 'true' },
            JSON.stringify([{ operationType: 'Upsert', resourceBody: { id: 'new', customer: MINE, kind: 'x' } }]),
          ],
        ],
      },
    );
    expect([...seen]).toEqual(expect.arrayContaining([200, 207, 400]));
    expect(await theirItems()).toEqual(before);
  }, 120_000);

  test('an item is found under its own id and key only', async () => {
    const id = fc.oneof(fc.constantFrom(...IDS), fc.string({ minLength: 1, unit: 'grapheme', maxLength: 12 }));
    const key = fc.oneof(
      fc.constantFrom('["ann"]', '["ann","x"]', '[]', '[{}]', '[null]', '["ann","x","y"]', '["ann"'),
      fc.json({ maxDepth: 1 }),
    );
    await fc.assert(
      fc.asyncProperty(container, id, key, async (name, itemId, partitionKey) => {
        if (/["',]bob|cleo|dora/.test(partitionKey) || !itemId.isWellFormed() || /[^ -~]/.test(partitionKey)) return;
        const reply = await call(app, 'GET', `${docs(name)}/${encodeURIComponent(itemId)}`, {
          headers: { 'x-ms-documentdb-partitionkey': partitionKey },
        });
        expectHarmless(reply);
        if (reply.status === 200) expect(reply.json).toMatchObject({ id: itemId, customer: MINE });
      }),
      { numRuns: 500 },
    );
  }, 120_000);
});

describe('with a resource token for one partition key', () => {
  /** Authorizes everything within one partition key of one container. */
  let authorization: string;
  beforeAll(async () => {
    await call(app, 'POST', '/dbs/fuzz/users', { body: { id: 'holder' } });
    const { status, json } = await call(app, 'POST', '/dbs/fuzz/users/holder/permissions', {
      body: {
        id: 'own',
        permissionMode: 'All',
        resource: 'dbs/fuzz/colls/wide',
        resourcePartitionKey: [MINE],
      },
    });
    expect(status).toBe(201);
    authorization = encodeURIComponent(String(json['_token']));
  });

  test('whatever is requested, nothing of another partition is shown or changed', async () => {
    const before = await theirItems();
    const seen = new Map<number, number>();
    const key = fc.oneof(
      { weight: 4, arbitrary: fc.constant(keyHeader(MINE)) },
      { weight: 2, arbitrary: fc.constantFrom({}, keyHeader(THEIRS), keyHeader({}), keyHeader(MINE, 'x')) },
    );
    const item = fc.record({ id: fc.constantFrom(...IDS, 'new'), customer: fc.constantFrom(MINE, THEIRS) });
    const asText = (value: unknown) => JSON.stringify(value);
    const batch = { 'x-ms-cosmos-is-batch-request': 'True', 'x-ms-cosmos-batch-atomic': 'true' };
    const bulk = { ...batch, 'x-ms-cosmos-batch-atomic': 'false', 'x-ms-cosmos-batch-continue-on-error': 'true' };
    const target = fc.constantFrom(docs('wide'), docs('wide'), docs('levels'));
    const ofItem = fc.tuple(target, fc.constantFrom(...IDS)).map(([feed, id]) => `${feed}/${id}`);
    const request = fc.oneof(
      fc.record({
        verb: fc.constant('POST' as const),
        path: target,
        with: fc.constantFrom({}, asQuery, batch, bulk, { 'x-ms-documentdb-is-upsert': 'true' }),
        body: fc.oneof(
          fc.tuple(sql, parameters).map(([query, given]) => asText({ query, parameters: given })),
          item.map(asText),
          batchBody,
        ),
      }),
      fc.record({
        verb: fc.constantFrom('GET' as const, 'PUT' as const, 'PATCH' as const, 'DELETE' as const),
        path: ofItem,
        with: fc.constant({}),
        body: fc.oneof(item.map(asText), fc.constant('[{"op":"set","path":"/n","value":7}]')),
      }),
      fc.record({
        verb: fc.constantFrom('GET' as const, 'POST' as const),
        path: fc.constantFrom(
          docs('wide'),
          '/dbs/fuzz/colls/wide/operations/partitionkeydelete',
          '/dbs/fuzz/colls/wide/pkranges',
          '/dbs/fuzz/users/holder/permissions',
          '/dbs/fuzz/users',
          '/dbs/fuzz/colls',
          '/offers',
          '/',
        ),
        with: fc.constantFrom({}, asQuery),
        body: fc.constant('{"query":"SELECT * FROM c"}'),
      }),
    );
    const headers = extraHeaders(...Object.keys(headerValues));
    await fc.assert(
      fc.asyncProperty(request, key, headers, async ({ verb, path, with: given, body }, partitionKey, extra) => {
        const reply = await call(app, verb, path, {
          headers: { ...extra, ...given, ...partitionKey, authorization },
          ...(verb === 'GET' || verb === 'DELETE' ? {} : { body }),
        });
        expectHarmless(reply);
        seen.set(reply.status, (seen.get(reply.status) ?? 0) + 1);
      }),
      { numRuns: 1_300 },
    );
    for (const status of [200, 201, 204, 400, 403, 404])
      expect(seen.get(status) ?? 0, String(status)).toBeGreaterThan(0);
    expect(await theirItems()).toEqual(before);
  }, 120_000);
});
