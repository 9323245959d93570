import {
  type ChangeFeedIteratorOptions,
  ChangeFeedStartFrom,
  type Container,
  CosmosClient,
  type Items,
  type PartitionKey,
  PartitionKeyDefinitionVersion,
  PartitionKeyKind,
  type PartitionKeyRange,
} from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { effectivePartitionKey, isInRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import { keyHeader, raw, type RawReply } from '../support/raw.ts';
import { refusalOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const FIVE_RANGES = 25_100;
const V2 = { kind: 'Hash', version: 2 } as const;

async function rangesOf(container: Container): Promise<readonly PartitionKeyRange[]> {
  return (await container.readPartitionKeyRanges().fetchAll()).resources;
}

/** Options with which the client returns pages with tokens of its own. */
const BY_TOKENS = { maxItemCount: 7, forceQueryPlan: true, enableQueryControl: true };
const goingOn = (token: string | undefined) => (token === undefined ? {} : { continuationToken: token });

/** The items through a new client, which has to read the ranges first. */
const itemsOf = ({ id }: Container): Items => world.connect().database('shop').container(id).items;

/** All rows, sorted. The clients take turns in reading the pages. */
async function pagesOf(clients: readonly Items[], sql: string): Promise<readonly number[]> {
  const found: number[] = [];
  let token: string | undefined;
  for (let pages = 0; pages === 0 || token !== undefined; pages += 1) {
    const page = await clients[pages % clients.length]!.query<number>(sql, {
      ...BY_TOKENS,
      ...goingOn(token),
    }).fetchNext();
    found.push(...page.resources);
    token = page.continuationToken;
  }
  return found.toSorted((left, right) => left - right);
}

/** 60 items of 20 customers. */
async function stocked(
  throughput: number,
  id?: string,
  version = PartitionKeyDefinitionVersion.V2,
): Promise<Container> {
  const container = await world.container({
    throughput,
    ...(id === undefined ? {} : { id }),
    partitionKey: { paths: ['/customer'], version },
  });
  for (let n = 0; n < 60; n += 1) await container.items.create({ id: `i${n}`, customer: `c${n % 20}`, n });
  return container;
}

const get = (container: Container, kind: string, headers: Readonly<Record<string, string>>): Promise<RawReply> =>
  raw(world.endpoint, 'GET', `/dbs/shop/colls/${container.id}/${kind}`, { headers });

const ask = (container: Container, query: string, headers: Readonly<Record<string, string>>): Promise<RawReply> =>
  raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
    headers: {
      'x-ms-documentdb-isquery': 'true',
      'x-ms-documentdb-query-enablecrosspartition': 'true',
      'content-type': 'application/query+json',
      ...headers,
    },
    body: JSON.stringify({ query }),
  });

const rows = <Row>(reply: RawReply): readonly Row[] => {
  expect(reply.status, reply.text).toBe(200);
  return reply.json!['Documents'] as readonly Row[];
};

/** All pages of a feed. */
async function feed(
  container: Container,
  headers: Readonly<Record<string, string>>,
  size: number,
): Promise<readonly Item[]> {
  const found: Item[] = [];
  for (let continuation: string | undefined; ;) {
    const reply = await get(container, 'docs', {
      'x-ms-max-item-count': String(size),
      ...headers,
      ...(continuation === undefined ? {} : { 'x-ms-continuation': continuation }),
    });
    found.push(...rows<Item>(reply));
    continuation = reply.headers['x-ms-continuation'] as string | undefined;
    if (continuation === undefined) return found;
  }
}

interface Item {
  readonly id: string;
  readonly customer: string;
  readonly n: number;
}

const ofRange = (id: string) => ({ 'x-ms-documentdb-partitionkeyrangeid': id });
const between = (min: string, max: string) => ({ 'x-ms-start-epk': min, 'x-ms-end-epk': max });

describe('the ranges of a container', () => {
  test.each([
    [400, 1],
    [12_000, 2],
    [FIVE_RANGES, 5],
  ])('are determined by its throughput: %i request units make %i', async (throughput, count) => {
    const container = await world.container({ throughput });
    const ranges = await rangesOf(container);
    expect(ranges.length).toBe(count);
    expect(ranges[0]!.minInclusive).toBe('');
    expect(ranges.at(-1)!.maxExclusive).toBe('FF');
    for (let at = 1; at < count; at += 1) expect(ranges[at]!.minInclusive).toBe(ranges[at - 1]!.maxExclusive);
  });

  test('are answered with 304 until they change', async () => {
    const container = await world.container({ throughput: 400 });
    const first = await get(container, 'pkranges', { 'a-im': 'Incremental feed' });
    const etag = first.headers['etag'] as string;
    expect((await get(container, 'pkranges', { 'a-im': 'Incremental feed', 'if-none-match': etag })).status).toBe(304);
    await setThroughput(container, 12_000);
    const after = await get(container, 'pkranges', { 'a-im': 'Incremental feed', 'if-none-match': etag });
    expect(after.status).toBe(200);
    expect(after.headers['etag']).not.toBe(etag);
  });

  test('contain each item once, in the range where the client looks for it', async () => {
    const container = await stocked(FIVE_RANGES);
    const ranges = await rangesOf(container);
    const seen: string[] = [];
    for (const { id, minInclusive: min, maxExclusive: max } of ranges) {
      const items = await feed(container, ofRange(id), 7);
      const queried = rows<Item>(await ask(container, 'SELECT * FROM c', ofRange(id)));
      expect(queried.map((item) => item.id)).toEqual(items.map((item) => item.id));
      for (const item of items) {
        seen.push(item.id);
        expect(isInRange(effectivePartitionKey(V2, JSON.stringify([item.customer])), { min, max })).toBe(true);
      }
    }
    expect(seen.length).toBe(60);
    expect(new Set(seen).size).toBe(60);
  });

  test('can be requested one at a time, with the container’s rid or without', async () => {
    const container = await stocked(12_000);
    const all = (await rangesOf(container)).map(({ id }) => id);
    const { resource } = await container.read();
    const rid = (resource as unknown as { readonly _rid: string })._rid;
    for (const id of all) {
      expect(await feed(container, ofRange(`${rid},${id}`), 50)).toEqual(await feed(container, ofRange(id), 50));
    }
    const several = ofRange(`${rid},${all.join(',')}`);
    for (const reply of [await get(container, 'docs', several), await ask(container, 'SELECT * FROM c', several)]) {
      expect(reply.status).toBe(400);
      expect(reply.json?.['message']).toContain('x-ms-documentdb-partitionkeyrangeid header contains invalid value');
    }
  });

  test('can be read in parts of any size, which together have all items', async () => {
    const container = await stocked(12_000);
    const ranges = await rangesOf(container);
    const found: string[] = [];
    for (const { id, minInclusive: min, maxExclusive: max } of ranges) {
      // Hashes begin with 0 to 3. Each middle is inside one of the two ranges.
      const middle = min === '' ? '0ABC' : '2FFF00';
      for (const [start, end] of [
        [min, middle],
        [middle, max],
      ] as const) {
        const items = await feed(container, { ...ofRange(id), ...between(start, end) }, 5);
        for (const item of items) {
          const hashed = effectivePartitionKey(V2, JSON.stringify([item.customer]));
          expect(isInRange(hashed, { min: start, max: end })).toBe(true);
        }
        const counted = await ask(container, 'SELECT VALUE COUNT(1) FROM c', {
          ...ofRange(id),
          ...between(start, end),
        });
        expect(rows(counted)).toEqual([items.length]);
        found.push(...items.map((item) => item.id));
      }
    }
    expect(found.toSorted()).toEqual(Array.from({ length: 60 }, (_, n) => `i${n}`).toSorted());
  });

  test('split when the throughput rises, never merge, and clients continue without noticing', async () => {
    const container = await stocked(400);
    const [before] = await rangesOf(container);
    // This client knows the one range only, and queries it.
    const iterator = container.items.query<Item>('SELECT * FROM c', { forceQueryPlan: true, maxItemCount: 5 });
    const first = (await iterator.fetchNext()).resources;
    // It has also begun to read groups without a plan. With several ranges it would need one.
    const sql = 'SELECT c.customer, COUNT(1) AS n FROM c GROUP BY c.customer';
    const wholeGroups = (await container.items.query(sql).fetchAll()).resources;
    const groups = container.items.query(sql, { maxItemCount: 7 });
    const { resources: firstGroups, continuationToken } = await groups.fetchNext();
    await setThroughput(container, FIVE_RANGES);
    const former = await ask(container, 'SELECT VALUE COUNT(1) FROM c', ofRange(before!.id));
    expect(rows(former)).toEqual([60]);
    const rest: Item[] = [];
    while (iterator.hasMoreResults()) rest.push(...((await iterator.fetchNext()).resources ?? []));
    expect([...first, ...rest].map(({ n }) => n).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 60 }, (_, n) => n),
    );
    const laterGroups: unknown[] = [];
    while (groups.hasMoreResults()) laterGroups.push(...((await groups.fetchNext()).resources ?? []));
    expect([...firstGroups, ...laterGroups]).toEqual(wholeGroups);
    const byToken = itemsOf(container).query(sql, { continuationToken });
    expect((await byToken.fetchAll()).resources).toEqual(laterGroups);
    const after = await rangesOf(container);
    expect(after.length).toBe(5);
    for (const range of after) expect(range.parents).toContain(before!.id);
    await setThroughput(container, 400);
    expect((await rangesOf(container)).map(({ id }) => id)).toEqual(after.map(({ id }) => id));
  });

  test.each([
    'SELECT VALUE c.n FROM c',
    'SELECT VALUE c.n FROM c ORDER BY c.n',
    'SELECT DISTINCT VALUE c.n FROM c',
    'SELECT TOP 55 VALUE c.n FROM c',
    'SELECT VALUE c.n FROM c OFFSET 0 LIMIT 55',
    'SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n',
    'SELECT VALUE c.n FROM c GROUP BY c.n',
    'SELECT VALUE c.n FROM c JOIN (SELECT VALUE 1) ORDER BY c.n',
    "SELECT VALUE c.n FROM c ORDER BY CONCAT(REPLICATE('x', 1000), c.id)",
  ])('let a client continue %s in each of their parts after a split', async (sql) => {
    const container = await stocked(400);
    const [whole] = await rangesOf(container);
    const first = await ask(container, sql, { ...ofRange(whole!.id), 'x-ms-max-item-count': '20' });
    const token = String(first.headers['x-ms-continuation']);
    await setThroughput(container, FIVE_RANGES);
    // Clients with a token from before the split do the same: they ask each part to continue from it.
    const found = [...rows(first)];
    for (const range of await rangesOf(container)) {
      let next: string | undefined = token;
      while (next !== undefined) {
        const page: RawReply = await ask(container, sql, {
          ...ofRange(range.id),
          'x-ms-max-item-count': '7',
          'x-ms-continuation': next,
        });
        expect(page.status).toBe(200);
        found.push(...rows(page));
        next = page.headers['x-ms-continuation'] as string | undefined;
      }
    }
    // Clients limit the rows of all parts together, so no part may return fewer than they need.
    expect(new Set(found).size).toBe(found.length);
    expect(found.length).toBeGreaterThanOrEqual(sql.includes('55') ? 55 : 60);
  });

  test.each([
    ['SELECT VALUE c.n FROM c', 60],
    ['SELECT VALUE c.n FROM c ORDER BY c.n DESC', 60],
    ['SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 40', 40],
    ['SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n', 60],
    ['SELECT TOP 45 VALUE c.n FROM c', 45],
  ])(
    'continue %s one after the other, in its order, if the .NET client passes the query through',
    async (sql, count) => {
      const container = await stocked(400);
      const expected = rows(await ask(container, sql, { 'x-ms-max-item-count': '100' }));
      const [whole] = await rangesOf(container);
      const page = (headers: Readonly<Record<string, string>>) =>
        ask(container, sql, { 'user-agent': 'cosmos-netstandard-sdk/3.64.0', 'x-ms-max-item-count': '20', ...headers });
      const first = await page(ofRange(whole!.id));
      const token = String(first.headers['x-ms-continuation']);
      const found = [...rows(first)];
      for (const throughput of [12_000, FIVE_RANGES]) {
        await setThroughput(container, throughput);
        const rest: unknown[] = [];
        for (const { id } of await rangesOf(container)) {
          for (let next: string | undefined = token; next !== undefined;) {
            const reply = await page({ ...ofRange(id), 'x-ms-continuation': next });
            rest.push(...rows(reply));
            next = reply.headers['x-ms-continuation'] as string | undefined;
          }
        }
        const all = [...found, ...rest];
        expect(all.length).toBe(count);
        // Without ORDER BY, the rows of each range come together.
        if (sql === 'SELECT VALUE c.n FROM c') expect(new Set(all)).toEqual(new Set(expected));
        else expect(all).toEqual(expected);
      }
    },
  );

  test.each([
    ['SELECT TOP 20 VALUE c.n FROM c', 20],
    ['SELECT VALUE c.n FROM c OFFSET 10 LIMIT 30', 30],
    ['SELECT VALUE c.n FROM c OFFSET 0 LIMIT 30', 30],
    ['SELECT VALUE c.n FROM c', 60],
  ])('that split while a client reads %s by its own tokens still give it all %i rows', async (sql, count) => {
    const container = await stocked(400);
    const { items } = world.connect().database('shop').container(container.id);
    const found: number[] = [];
    let token: string | undefined;
    for (let pages = 1; pages === 1 || token !== undefined; pages += 1) {
      const page = await items.query<number>(sql, { ...BY_TOKENS, ...goingOn(token) }).fetchNext();
      found.push(...page.resources);
      token = page.continuationToken;
      if (pages === 2) await setThroughput(container, FIVE_RANGES);
    }
    expect(new Set(found).size).toBe(found.length);
    expect(found.length).toBe(count);
  });

  // The client looks for the ranges that a token names among those that it knows.
  test.each([400, 12_000, 15_000])(
    'that split from those of %i request units: a token is refused if its next client knows other ranges than its first',
    async (throughput) => {
      const container = await stocked(throughput);
      const ofBefore = itemsOf(container);
      const queries = [
        'SELECT VALUE c.n FROM c',
        'SELECT VALUE c.n FROM c ORDER BY c.n DESC',
        'SELECT DISTINCT VALUE c.n FROM c',
        'SELECT VALUE c.n FROM c OFFSET 0 LIMIT 100',
      ];
      await pagesOf([ofBefore], queries[1]!);
      await setThroughput(container, FIVE_RANGES);
      const ofNow = itemsOf(container);
      for (const sql of queries) {
        const expected = Array.from({ length: 60 }, (_, n) => n);
        expect(await pagesOf([ofBefore], sql)).toEqual(expected);
        expect(await pagesOf([ofNow], sql)).toEqual(expected);
        for (const turns of [
          [ofBefore, ofNow],
          [ofNow, ofBefore],
          [ofNow, ofNow, ofBefore],
        ]) {
          const refusal = await refusalOf(pagesOf(turns, sql));
          expect(refusal).toMatchObject({ code: 400, message: expect.stringContaining('with a new client') });
        }
      }
    },
    60_000,
  );

  test.each([
    ['one', 400, PartitionKeyDefinitionVersion.V2],
    ['more', 50_000, PartitionKeyDefinitionVersion.V2],
    ['five, of keys of another version', FIVE_RANGES, PartitionKeyDefinitionVersion.V1],
  ])(
    'of an earlier container of the same name: a token is refused if its next client knows the present one, which has %s',
    async (_, throughput, version) => {
      const earlier = await stocked(FIVE_RANGES);
      const ofBefore = itemsOf(earlier);
      const sql = 'SELECT VALUE c.n FROM c ORDER BY c.n';
      await pagesOf([ofBefore], sql);
      await earlier.delete();
      const ofNow = itemsOf(await stocked(throughput, earlier.id, version));
      for (const client of [ofBefore, ofNow]) {
        expect(await pagesOf([client], sql)).toEqual(Array.from({ length: 60 }, (__, n) => n));
      }
      for (const turns of [
        [ofBefore, ofNow],
        [ofNow, ofBefore],
      ]) {
        expect(await refusalOf(pagesOf(turns, sql))).toMatchObject({ code: 400 });
      }
    },
    60_000,
  );

  test('are named in the answers from them, also in the session tokens', async () => {
    const container = await stocked(FIVE_RANGES);
    const ranges = await rangesOf(container);
    const expectFrom = ({ headers }: RawReply, id: string) => {
      expect(headers['x-ms-documentdb-partitionkeyrangeid']).toBe(id);
      expect(headers['x-ms-session-token']).toMatch(new RegExp(`^${id}:-1#\\d+$`));
    };
    for (const { id, minInclusive, maxExclusive } of ranges) {
      expectFrom(await ask(container, 'SELECT * FROM c', ofRange(id)), id);
      expectFrom(await ask(container, 'SELECT * FROM c', between(minInclusive, maxExclusive)), id);
      expectFrom(await get(container, 'docs', ofRange(id)), id);
      expectFrom(await get(container, 'docs', { ...ofRange(id), 'a-im': 'Incremental Feed' }), id);
      // Each range has items. Requests for the partition key of one of them name the range, too.
      const [item] = rows<Item>(await ask(container, 'SELECT * FROM c', ofRange(id)));
      const key = keyHeader(item!.customer);
      expectFrom(await get(container, `docs/${item!.id}`, key), id);
      expectFrom(await ask(container, 'SELECT * FROM c', key), id);
    }
  });

  test('from before a split that are asked for the part of a present range name that one, so the .NET client reads the ranges again', async () => {
    const container = await stocked(12_000);
    const known = await rangesOf(container);
    await setThroughput(container, FIVE_RANGES);
    const today = await rangesOf(container);
    const named = ({ headers }: RawReply) => headers['x-ms-documentdb-partitionkeyrangeid'];
    for (const { id, minInclusive, maxExclusive } of today) {
      const parent = known.findLast((range) => range.minInclusive <= minInclusive)!;
      expect(today.map((range) => range.id)).not.toContain(parent.id);
      const part = { ...ofRange(parent.id), ...between(minInclusive, maxExclusive) };
      expect(named(await ask(container, 'SELECT * FROM c', part))).toBe(id);
      expect(named(await get(container, 'docs', part))).toBe(id);
      expect(named(await ask(container, 'SELECT * FROM c', ofRange(parent.id)))).toBe(parent.id);
    }
  });

  test('of an earlier container of the same name, which had more of them, can still be used', async () => {
    const { id } = await stocked(FIVE_RANGES);
    const client = world.connect();
    const { items } = client.database('shop').container(id);
    const ordered = 'SELECT VALUE c.n FROM c ORDER BY c.n';
    const grouped = 'SELECT c.customer, COUNT(1) AS n FROM c GROUP BY c.customer';
    await items.query(ordered, { forceQueryPlan: true }).fetchAll();
    await world.of(id).delete();
    await stocked(12_000, id);
    const { resources: inOrder } = await items.query(ordered, { forceQueryPlan: true, maxItemCount: 7 }).fetchAll();
    expect(inOrder).toEqual(Array.from({ length: 60 }, (_, n) => n));
    const { resources: groups } = await items.query<{ readonly n: number }>(grouped).fetchAll();
    expect(groups.map(({ n }) => n)).toEqual(Array.from({ length: 20 }, () => 3));
  }, 30_000);

  test.each([
    ['one', 400, PartitionKeyDefinitionVersion.V2],
    ['one, of keys of another version', 400, PartitionKeyDefinitionVersion.V1],
  ])(
    'of an earlier container of the same name can be used for queries, though the present one has %s',
    async (_, throughput, version) => {
      const { id } = await stocked(FIVE_RANGES);
      const { items } = world.connect().database('shop').container(id);
      const ordered = 'SELECT VALUE c.n FROM c ORDER BY c.n';
      await items.query(ordered, { forceQueryPlan: true }).fetchAll();
      const [range] = (await world.of(id).readPartitionKeyRanges().fetchAll()).resources;
      await world.of(id).delete();
      await stocked(throughput, id, version);
      const all = Array.from({ length: 60 }, (__, n) => n);
      // The request names a range, so it is answered whether or not it allows a query over several partition keys.
      const { status, json } = await ask(world.of(id), ordered, {
        ...ofRange(range!.id),
        'x-ms-useragent': 'Node.js/24 azure-cosmos-js/4.10.1',
        'x-ms-documentdb-query-enablecrosspartition': 'false',
      });
      expect({ status, rows: json?.['Documents'] }).toEqual({ status: 200, rows: all });
      for (const more of [{ maxItemCount: 7 }, { maxItemCount: 7, enableQueryControl: true }, {}]) {
        const found = await items.query<number>(ordered, { forceQueryPlan: true, ...more }).fetchAll();
        expect(found.resources).toEqual(all);
      }
      const rowsOf = async (sql: string) => (await items.query(sql, { forceQueryPlan: true }).fetchAll()).resources;
      expect(await rowsOf('SELECT VALUE COUNT(1) FROM c')).toEqual([60]);
      expect(await rowsOf('SELECT DISTINCT VALUE c.customer FROM c ORDER BY c.customer OFFSET 3 LIMIT 2')).toEqual([
        'c11',
        'c12',
      ]);
      expect(await rowsOf("SELECT TOP 2 VALUE c.n FROM c WHERE c.customer = 'c19' ORDER BY c.n DESC")).toEqual([
        59, 39,
      ]);
      expect(await rowsOf('SELECT c.customer, SUM(c.n) AS sum FROM c GROUP BY c.customer')).toHaveLength(20);
      const pages = items.query<number>(ordered, { forceQueryPlan: true, enableQueryControl: true, maxItemCount: 7 });
      const { resources: first, continuationToken } = await pages.fetchNext();
      const rest = items.query<number>(ordered, {
        forceQueryPlan: true,
        enableQueryControl: true,
        maxItemCount: 7,
        continuationToken,
      });
      expect([...first, ...(await rest.fetchAll()).resources]).toEqual(all);
    },
    30_000,
  );

  test.each([
    ['deleted alone', (id: string) => world.of(id).delete()],
    ['deleted with its database', () => world.client.database('shop').delete()],
  ])(
    'of an earlier container with another hash version, %s, hide no rows from queries of some partition keys',
    async (_, remove) => {
      const { V1, V2 } = PartitionKeyDefinitionVersion;
      const { id } = await stocked(FIVE_RANGES);
      const { items } = world.connect().database('shop').container(id);
      const ask = async (sql: string, forceQueryPlan = true) =>
        (await items.query(sql, { forceQueryPlan }).fetchAll()).resources;
      await ask('SELECT VALUE c.n FROM c ORDER BY c.n');
      for (const version of [V1, V2]) {
        await remove(id);
        await stocked(FIVE_RANGES, id, version);
        expect(await ask("SELECT VALUE c.n FROM c WHERE c.customer = 'c3' ORDER BY c.n")).toEqual([3, 23, 43]);
        expect(await ask("SELECT VALUE COUNT(1) FROM c WHERE c.customer IN ('c3', 'c11')")).toEqual([6]);
        const grouped = "SELECT c.customer, COUNT(1) AS n FROM c WHERE c.customer IN ('c3', 'c11') GROUP BY c.customer";
        const groups = await ask(grouped, false);
        expect(groups).toHaveLength(2);
        expect(groups).toEqual(
          expect.arrayContaining([
            { customer: 'c3', n: 3 },
            { customer: 'c11', n: 3 },
          ]),
        );
      }
    },
    30_000,
  );

  test.each([
    ['version 1', PartitionKeyDefinitionVersion.V2, PartitionKeyDefinitionVersion.V1],
    ['version 2', PartitionKeyDefinitionVersion.V1, PartitionKeyDefinitionVersion.V2],
  ])(
    'of an earlier container with another hash version do not confuse change feeds: each item of the one in %s comes once',
    async (_, before, after) => {
      const { id } = await stocked(FIVE_RANGES, undefined, before);
      const [stale, fresh] = [world.connect(), world.connect()];
      const clients = [stale, fresh].map((client) => client.database('shop').container(id));
      // A client that has read a feed or executed a query knows the ranges.
      await clients[0]!.items.query('SELECT VALUE c.n FROM c ORDER BY c.n', { forceQueryPlan: true }).fetchAll();
      await world.of(id).delete();
      await stocked(15_000, id, after);
      for (const turns of [[0], [0, 1], [1, 0], [1, 1, 0, 0]]) {
        const found: string[] = [];
        let changeFeedStartFrom: ChangeFeedIteratorOptions['changeFeedStartFrom'] = ChangeFeedStartFrom.Beginning();
        for (let page = 0; ; page += 1) {
          const { items } = clients[turns[page % turns.length]!]!;
          const feedOf = items.getChangeFeedIterator<Item>({ maxItemCount: 3, changeFeedStartFrom });
          const { statusCode, result, continuationToken } = await feedOf.readNext();
          if (statusCode === 304) break;
          found.push(...result.map((item) => item.id));
          changeFeedStartFrom = ChangeFeedStartFrom.Continuation(continuationToken);
        }
        expect(found.toSorted(), `in turn ${turns.join()}`).toEqual(
          Array.from({ length: 60 }, (__, n) => `i${n}`).toSorted(),
        );
      }
      stale.dispose();
      fresh.dispose();
    },
    30_000,
  );

  test('of an earlier container with another hash version hide no items of a range that is named by its keys, either', async () => {
    const { id } = await stocked(FIVE_RANGES);
    await world.of(id).delete();
    const container = await stocked(15_000, id, PartitionKeyDefinitionVersion.V1);
    const client = { 'x-ms-useragent': 'Node.js/24 azure-cosmos-js/4.10.1' };
    const { resources: ranges } = await container.readPartitionKeyRanges().fetchAll();
    for (const { minInclusive, maxExclusive } of ranges) {
      const part = { ...client, ...between(minInclusive, maxExclusive) };
      const { json } = await get(container, 'docs', part);
      expect(json!['_count']).toBeGreaterThan(0);
      for (const earlier of ['1', '2']) {
        expect((await get(container, 'docs', { ...part, ...ofRange(earlier) })).json).toEqual(json);
      }
    }
  });

  test('of hash version 1 are also found by the ids that earlier versions of the store gave them, which leases keep', async () => {
    const container = await stocked(15_000, undefined, PartitionKeyDefinitionVersion.V1);
    const feedOf = async (rangeId: string) => {
      const { status, json } = await get(container, 'docs', { ...ofRange(rangeId), 'a-im': 'Incremental feed' });
      return [status, (json!['Documents'] as readonly Item[]).map(({ id }) => id)];
    };
    for (const id of [1, 2, 3, 4]) expect(await feedOf(String(id))).toEqual(await feedOf(String(1_000 + id)));
  });

  test('that never existed are answered with 410', async () => {
    const container = await world.container({ throughput: 400 });
    for (const id of ['1', 'x', `${container.id},7`]) {
      const reply = await ask(container, 'SELECT * FROM c', ofRange(id));
      expect([reply.status, reply.headers['x-ms-substatus']]).toEqual([410, '1002']);
    }
    expect((await ask(container, 'SELECT * FROM c', ofRange(`${container.id},0`))).status).toBe(200);
  });

  test.each([
    ['from the key to itself', 'E6AE'],
    ['up to the next', 'E6AF'],
  ])('of one partition key of version 1 with more than 100 bytes contain its items, %s', async (_, end) => {
    const container = await world.container({
      partitionKey: { paths: ['/customer'], version: PartitionKeyDefinitionVersion.V1 },
    });
    await container.items.create({ id: 'i0', customer: '字'.repeat(100) });
    await container.items.create({ id: 'i1', customer: 'a' });
    // The hash that Microsoft.Azure.Cosmos 3.64.0 computes for the first key.
    const hashed = `05C1CB3B2B912008${'E6AE98'.repeat(33)}`;
    const range = between(`${hashed}E6AE`, `${hashed}${end}`);
    expect((await feed(container, range, 10)).map(({ id }) => id)).toEqual(['i0']);
    expect(rows(await ask(container, 'SELECT VALUE c.id FROM c', range))).toEqual(['i0']);
  });

  test('with invalid bounds are refused', async () => {
    const container = await world.container();
    for (const headers of [between('xyz', 'FF'), between('1', '0'), between('0'.repeat(1000), 'FF')]) {
      expect((await get(container, 'docs', headers)).status).toBe(400);
      expect((await ask(container, 'SELECT * FROM c', headers)).status).toBe(400);
    }
  });
});

describe('a session', () => {
  test('survives a split', async () => {
    const container = await stocked(400);
    const reply = await get(container, 'docs', {});
    const token = reply.headers['x-ms-session-token'] as string;
    expect(token).toMatch(/^0:-1#\d+$/);
    await setThroughput(container, FIVE_RANGES);
    expect((await get(container, 'docs', { 'x-ms-session-token': token })).status).toBe(200);
    const session = world.connect({ session: true });
    const same = session.database('shop').container(container.id);
    for (let n = 0; n < 20; n += 1) {
      await same.items.create({ id: `later ${n}`, customer: `c${n}`, n });
      expect((await same.item(`later ${n}`, `c${n}`).read<Item>()).resource?.n).toBe(n);
    }
    expect((await same.items.query('SELECT VALUE COUNT(1) FROM c').fetchAll()).resources).toEqual([80]);
    session.dispose();
  });

  test('is not affected by a read without the partition key, which another range answers', async () => {
    const container = await world.container({ throughput: FIVE_RANGES, partitionKey: { paths: ['/id'] } });
    let sent: unknown;
    // Shows what the client sends. It is not among the client's typed options.
    const plugin = (context: { readonly headers: object }, _node: unknown, next: (context: unknown) => unknown) => {
      sent = context.headers;
      return next(context);
    };
    const options = { consistencyLevel: 'Session', plugins: [{ on: 'request', plugin }] } as const;
    const session = new CosmosClient({ endpoint: world.endpoint, key: EMULATOR_KEY, ...options });
    const same = session.database('shop').container(container.id);
    const { headers } = await same.items.create({ id: '1' });
    const missed = await same.item('1').read();
    expect(missed.statusCode).toBe(404);
    const elsewhere = missed.headers['x-ms-documentdb-partitionkeyrangeid'];
    expect(elsewhere).not.toBe(headers['x-ms-documentdb-partitionkeyrangeid']);
    expect(missed.headers['x-ms-session-token']).toMatch(new RegExp(`^${elsewhere}:-1#\\d+$`));
    expect((await same.item('1', '1').read()).statusCode).toBe(200);
    expect(sent).toMatchObject({ 'x-ms-session-token': headers['x-ms-session-token'] });
    session.dispose();
  });
});

describe('a hierarchical partition key', () => {
  const keys = ['a', 'b'].flatMap((tenant) =>
    ['x', 'xx', 1, null].flatMap((user) => [1, 2].map((session) => [tenant, user, session] as const)),
  );

  async function filled(throughput: number): Promise<Container> {
    const container = await world.container({
      throughput,
      partitionKey: {
        paths: ['/tenant', '/user', '/session'],
        kind: PartitionKeyKind.MultiHash,
        version: PartitionKeyDefinitionVersion.V2,
      },
    });
    for (const [index, [tenant, user, session]] of keys.entries()) {
      await container.items.create({ id: `i${index}`, tenant, user, session, n: index });
    }
    await container.items.create({ id: 'no user', tenant: 'a', session: 1, n: 99 });
    return container;
  }

  const expected = (...prefix: readonly unknown[]) =>
    keys
      .map((key, index) => ({ key, id: `i${index}` }))
      .filter(({ key }) => prefix.every((value, at) => key[at] === value))
      .map(({ id }) => id);

  test.each([400, FIVE_RANGES])(
    'can be queried and listed by its leading components, with %i request units',
    async (units) => {
      const container = await filled(units);
      for (const prefix of [['a'], ['b'], ['a', 'x'], ['b', 1], ['b', null], ['c'], ['a', 'x', 1]]) {
        const wanted = [...expected(...prefix), ...(prefix.length === 1 && prefix[0] === 'a' ? ['no user'] : [])];
        const partitionKey = prefix as PartitionKey;
        const query = container.items.query<string>('SELECT VALUE c.id FROM c', { partitionKey, maxItemCount: 2 });
        expect((await query.fetchAll()).resources).toEqual(wanted);
        const counted = container.items.query<number>('SELECT VALUE COUNT(1) FROM c', { partitionKey });
        expect((await counted.fetchAll()).resources).toEqual([wanted.length]);
        const grouped = 'SELECT c.tenant, COUNT(1) AS n FROM c GROUP BY c.tenant';
        const { resources: groups } = await container.items.query(grouped, { partitionKey }).fetchAll();
        expect(groups).toEqual(wanted.length === 0 ? [] : [{ tenant: prefix[0], n: wanted.length }]);
        const nearest = 'SELECT TOP 99 VALUE c.id FROM c ORDER BY VectorDistance(c.vector, [0, 0])';
        const { resources: found } = await container.items.query<string>(nearest, { partitionKey }).fetchAll();
        expect(found.toSorted()).toEqual(wanted.toSorted());
        expect((await feed(container, keyHeader(...prefix), 3)).map(({ id }) => id)).toEqual(wanted);
      }
      const nothing = container.items.query<string>('SELECT VALUE c.id FROM c', {
        partitionKey: ['a', {}] as unknown as PartitionKey,
      });
      expect((await nothing.fetchAll()).resources).toEqual(['no user']);
    },
  );

  test('can be given by the filter of a query, whole or in part', async () => {
    const container = await filled(400);
    const query = async (filter: string) =>
      (await container.items.query<string>(`SELECT VALUE c.id FROM c WHERE ${filter}`).fetchAll()).resources;
    expect(await query("c.tenant = 'b'")).toEqual(expected('b'));
    expect(await query("c.tenant = 'b' AND c.user = null")).toEqual(expected('b', null));
    expect(await query("c.tenant = 'a' AND c.user = 'x' AND c.session = 2")).toEqual(expected('a', 'x', 2));
    expect(await query("c.tenant = 'a' AND c.session = 2 AND c.user = 'y'")).toEqual([]);
    const some = (...filters: (string | null | number)[][]) => filters.flatMap((key) => expected(...key)).toSorted();
    const inAll = async (filter: string) => (await query(filter)).toSorted();
    expect(await inAll("c.tenant IN ('b', 'a', 'nobody') AND c.user IN ('x', null)")).toEqual(
      some(['a', 'x'], ['a', null], ['b', 'x'], ['b', null]),
    );
    expect(
      await inAll("(c.tenant = 'b' AND c.user = null) OR (c.tenant = 'a' AND c.user = 'x' AND c.session = 2)"),
    ).toEqual(some(['b', null], ['a', 'x', 2]));
    expect(await inAll("c.tenant = 'b' OR (c.tenant = 'b' AND c.user = null)")).toEqual(some(['b']));
    expect(await query("c.tenant = 'a' OR c.user = 1")).toHaveLength(keys.length / 2 + 1 + expected('b', 1).length);
  });

  test('must be complete for point operations', async () => {
    const container = await filled(400);
    expect((await container.item('i0', ['a', 'x', 1]).read<Item>()).resource?.n).toBe(0);
    expect((await refusalOf(container.item('i0', ['a', 'x']).read())).code).toBe(400);
    expect((await refusalOf(container.item('i0', ['a', 'x']).delete())).code).toBe(400);
    expect((await container.item('i0', ['a', 'x', 1]).delete()).statusCode).toBe(204);
  });
});

async function setThroughput(container: Container, units: number): Promise<void> {
  const { offer, resource } = await container.readOffer();
  await offer?.replace({ ...resource!, content: { ...resource!.content!, offerThroughput: units } });
}

describe('a page of a query', () => {
  test('is limited in bytes as well as in rows, and the next page continues it', async () => {
    const container = await world.container();
    const text = 'x'.repeat(900_000);
    for (let n = 0; n < 8; n += 1) await container.items.create({ id: `i${n}`, customer: 'ann', n, text });
    for (const query of ['SELECT * FROM c', 'SELECT * FROM c ORDER BY c.n', 'SELECT DISTINCT c.id, c.text FROM c']) {
      const found: Item[] = [];
      let continuation: string | undefined;
      let pages = 0;
      do {
        const reply = await ask(
          container,
          query,
          continuation === undefined ? {} : { 'x-ms-continuation': continuation },
        );
        expect(reply.text.length).toBeLessThan(4.5 * 1024 * 1024);
        found.push(...rows<Item>(reply));
        continuation = reply.headers['x-ms-continuation'] as string | undefined;
        pages += 1;
      } while (continuation !== undefined);
      expect(pages).toBe(2);
      expect(found.map(({ id }) => id)).toEqual(Array.from({ length: 8 }, (_, n) => `i${n}`));
    }
    expect((await feed(container, {}, 100)).length).toBe(8);
  });

  test('is not continued by the token of a query of another kind', async () => {
    const container = await stocked(400);
    const queries = ['SELECT * FROM c', 'SELECT * FROM c ORDER BY c.n', 'SELECT VALUE c.n FROM c GROUP BY c.n'];
    const tokens = await Promise.all(
      queries.map(async (query) => {
        const reply = await ask(container, query, { 'x-ms-max-item-count': '2' });
        return reply.headers['x-ms-continuation'] as string;
      }),
    );
    for (const [at, query] of queries.entries()) {
      for (const [of, token] of tokens.entries()) {
        const reply = await ask(container, query, { 'x-ms-continuation': token });
        const fits = at === of;
        expect(reply.status, `${at} ${of}`).toBe(fits ? 200 : 400);
        if (!fits) expect(reply.text).toContain('Invalid Continuation Token');
      }
    }
  });

  test('says how long it took', async () => {
    const container = await stocked(400);
    const reply = await ask(container, 'SELECT * FROM c', { 'x-ms-documentdb-populatequerymetrics': 'true' });
    const text = reply.headers['x-ms-documentdb-query-metrics'] as string;
    expect(text.endsWith(';')).toBe(false);
    const metrics = Object.fromEntries(text.split(';').map((pair) => pair.split('=') as [string, string]));
    expect(Number(metrics['totalExecutionTimeInMs'])).toBeGreaterThan(0);
    expect(metrics['retrievedDocumentCount']).toBe('60');
  });
});

// The rule is `GetProvidedPartitionKeyRanges` in Microsoft.Azure.Cosmos/src/Routing/PartitionRoutingHelper.cs of
// https://github.com/Azure/azure-cosmos-dotnet-v3. The message is in https://github.com/Azure/azure-cosmos-js/issues/154.
describe('a query whose client has not allowed it to span several partition keys', () => {
  const unallowed = { 'x-ms-documentdb-query-enablecrosspartition': 'False' };

  test.each([
    ['SELECT * FROM c', {}],
    ['SELECT VALUE COUNT(1) FROM c', {}],
    ["SELECT * FROM c WHERE c.customer IN ('c1', 'c2')", {}],
    ["SELECT * FROM c WHERE c.customer > 'c1'", {}],
    [
      "SELECT * FROM c WHERE c.tenant = 't1'",
      { partitionKey: { kind: PartitionKeyKind.MultiHash, paths: ['/tenant', '/customer'] } },
    ],
  ])('is refused if its filter does not name one partition key: %s', async (query, definition) => {
    const container = await world.container(definition);
    const refused = await ask(container, query, unallowed);
    expect([refused.status, refused.headers['x-ms-substatus']]).toEqual([400, undefined]);
    expect(refused.json).toMatchObject({
      code: 'BadRequest',
      message: expect.stringContaining(
        'Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.',
      ) as unknown,
    });
    expect((await ask(container, query, { 'x-ms-documentdb-query-enablecrosspartition': 'True' })).status).toBe(200);
  });

  test('returns the rows of the partition key or range that it names, and so do feeds', async () => {
    const container = await stocked(FIVE_RANGES);
    const ids = async (query: string, headers: Readonly<Record<string, string>> = {}) =>
      rows<string>(await ask(container, query, { ...unallowed, ...headers }));
    for (const query of [
      "SELECT VALUE c.id FROM c WHERE c.customer = 'c1'",
      "SELECT VALUE c.id FROM c WHERE c.customer IN ('c1') AND c.n < 100",
    ]) {
      expect((await ids(query)).toSorted(), query).toEqual(['i1', 'i21', 'i41']);
    }
    expect(await ids('SELECT VALUE c.id FROM c', keyHeader('c1'))).toHaveLength(3);
    expect(await ids('SELECT VALUE c.id FROM c', { 'x-ms-start-epk': '', 'x-ms-end-epk': 'FF' })).toHaveLength(60);
    expect((await get(container, 'docs', unallowed)).json).toMatchObject({ _count: 60 });
    const byId = await world.container({ partitionKey: { paths: ['/id'] } });
    await byId.items.create({ id: 'a' });
    expect(rows(await ask(byId, "SELECT VALUE c.id FROM c WHERE c.id = 'a'", unallowed))).toEqual(['a']);
  });
});

describe('a query that names its items by id and partition key, as ReadMany of the .NET client does,', () => {
  const wanted = [0, 1, 25, 59].map((n) => ({ id: `i${n}`, customer: `c${n % 20}` }));
  const asked = async (container: Container, query: string, parameters: readonly object[] = []) => {
    const reply = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
      headers: {
        'x-ms-documentdb-isquery': 'true',
        'x-ms-documentdb-query-enablecrosspartition': 'true',
        'x-ms-documentdb-populatequerymetrics': 'true',
      },
      body: JSON.stringify({ query, parameters }),
    });
    const metrics = reply.headers['x-ms-documentdb-query-metrics'] as string;
    return {
      ids: rows<{ id: string }>(reply).map(({ id }) => id),
      examined: Number(/retrievedDocumentCount=(\d+)/.exec(metrics)?.[1]),
    };
  };

  test('examines these items only', async () => {
    const container = await stocked(400);
    const ids = wanted.map(({ id }) => id);
    const parameters = wanted.flatMap(({ id, customer }, at) => [
      { name: `@param_id${at}`, value: id },
      { name: `@param_pk${at}`, value: customer },
    ]);
    const alternatives = (pk: string) =>
      wanted.map((_, at) => `( c.id = @param_id${at} AND ${pk} = @param_pk${at} )`).join(' OR ');
    for (const pk of ['c.customer', 'c["customer"]']) {
      const query = `SELECT * FROM c WHERE ( ${alternatives(pk)} )`;
      expect(await asked(container, query, parameters)).toEqual({ ids, examined: 4 });
    }
    const twice = `SELECT * FROM c WHERE c.n > 0 AND (${alternatives('c.customer')} OR (c.id = 'i1' AND c.customer = 'c1'))`;
    expect(await asked(container, twice, parameters)).toEqual({ ids: ids.slice(1), examined: 4 });
    const elsewhere = `SELECT * FROM c WHERE (c.id = 'i1' AND c.customer = 'c2') OR (c.id = 'i2' AND c.customer = 'c2')`;
    expect(await asked(container, elsewhere)).toEqual({ ids: ['i2'], examined: 1 });
  });

  test('examines all items if one of the alternatives does not name an item', async () => {
    const container = await stocked(400);
    for (const open of ['c.n = 7', "c.id = 'i7'", "(c.id > 'i6' AND c.n = 7)", "(c.id = 'i7' AND c.customer > '')"]) {
      const { ids, examined } = await asked(
        container,
        `SELECT * FROM c WHERE (c.id = 'i1' AND c.customer = 'c1') OR ${open}`,
      );
      expect([ids, examined]).toEqual([['i1', 'i7'], 60]);
    }
  });

  test('needs only the ids if they are the partition key, and all levels of a hierarchical key', async () => {
    const byId = await world.container({ partitionKey: '/id' });
    for (let n = 0; n < 20; n += 1) await byId.items.create({ id: `i${n}` });
    expect(await asked(byId, "SELECT * FROM c WHERE c.id IN ('i3', 'i1', 'no', 'i1')")).toEqual({
      ids: ['i1', 'i3'],
      examined: 2,
    });
    const levels = await world.container({
      partitionKey: {
        paths: ['/a', '/b'],
        kind: PartitionKeyKind.MultiHash,
        version: PartitionKeyDefinitionVersion.V2,
      },
    });
    for (let n = 0; n < 20; n += 1) await levels.items.create({ id: `i${n}`, a: n % 2, b: n % 4 });
    const both = "SELECT * FROM c WHERE (c.id = 'i3' AND c.b = 3 AND c.a = 1) OR (c.id = 'i4' AND c.b = 0 AND c.a = 0)";
    expect(await asked(levels, both)).toEqual({ ids: ['i3', 'i4'], examined: 2 });
    const shared = "SELECT * FROM c WHERE c.a = 1 AND ((c.id = 'i3' AND c.b = 3) OR (c.id = 'i4' AND c.b = 0))";
    expect(await asked(levels, shared)).toEqual({ ids: ['i3'], examined: 1 });
  });

  test('returns each item once over several pages', async () => {
    const container = await stocked(FIVE_RANGES);
    const all = Array.from({ length: 60 }, (_, n) => `(c.id = 'i${n}' AND c.customer = 'c${n % 20}')`).join(' OR ');
    const { resources } = await container.items
      .query<{ id: string }>(`SELECT * FROM c WHERE ${all}`, { maxItemCount: 7 })
      .fetchAll();
    expect(new Set(resources.map(({ id }) => id)).size).toBe(60);
    expect(resources).toHaveLength(60);
  });
});
