import { type Container, type FeedOptions, PartitionKeyDefinitionVersion, type SqlQuerySpec } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { raw } from '../support/raw.ts';
import { refusalOf, World } from '../support/world.ts';

let world: World;
/** Both containers have the same documents, one in a single partition key range, the other in five. */
let one: Container;
let five: Container;

const CUSTOMERS = 17;

const document = (n: number) => ({
  id: `i${String(n).padStart(3, '0')}`,
  customer: `c${n % CUSTOMERS}`,
  n,
  team: ['red', 'green', 'blue', 'it\'s "odd"'][n % 4],
  half: n / 2,
  flag: n % 3 === 0,
  rank: n % 7,
  ...(n % 5 === 0 ? {} : { maybe: n % 10 }),
  ...(n === 40 ? { rare: 7 } : {}),
  ...(n === 41 ? { spoilt: 'text' } : { spoilt: n }),
  mixed: n === 41 ? [n] : n,
  order: { value: 100 - n },
  tags: ['x', `t${n % 3}`],
  text: `${'swim '.repeat((n % 7) + 1)}${n % 11 === 0 ? 'run ' : ''}${'far '.repeat(n)}`,
  vector: [Math.cos(n), Math.sin(n), n / 100],
  ...(n === 50 ? { long: 'ü'.repeat(3000) } : { long: `${n}`.repeat(400) }),
});

beforeAll(async () => {
  world = await World.open();
  const partitionKey = { paths: ['/customer'], version: PartitionKeyDefinitionVersion.V2 };
  one = await world.container({ partitionKey, throughput: 400 });
  five = await world.container({ partitionKey, throughput: 25_100 });
  for (const { scripts } of [one, five]) {
    await scripts.userDefinedFunctions.create({ id: 'twice', body: '(n) => n * 2' });
    await scripts.userDefinedFunctions.create({ id: 'isOdd', body: '(n) => n % 2 === 1' });
    await scripts.userDefinedFunctions.create({ id: 'part', body: '(n) => (n > 3 ? undefined : [n])' });
  }
  for (let n = 0; n < 120; n += 1) {
    await one.items.create(document(n));
    await five.items.create(document(n));
  }
});
afterAll(() => world.end());

/** Queries whose rows have only one possible order. */
const ORDERED: (string | SqlQuerySpec)[] = [
  'SELECT c.id, c.n FROM c ORDER BY c.n',
  'SELECT c.id, c.n FROM c ORDER BY c.n DESC',
  'SELECT c.id, c.n FROM c WHERE c._ts > 1 ORDER BY c.id DESC',
  'SELECT VALUE c.id FROM c ORDER BY c.order["value"]',
  'SELECT VALUE c["order"] FROM c ORDER BY c["order"]["value"] DESC',
  'SELECT c.id FROM c ORDER BY c.team, c.n DESC',
  'SELECT c.id FROM c WHERE c.n > 20 AND c.flag OR c.rank = 3 ORDER BY c.id',
  'SELECT TOP 7 c.id FROM c ORDER BY c.n DESC',
  'SELECT c.id FROM c ORDER BY c.n OFFSET 11 LIMIT 13',
  'SELECT VALUE c.n + 1 FROM c ORDER BY c.n OFFSET 100 LIMIT 100',
  'SELECT TOP 0 c.id FROM c ORDER BY c.n',
  {
    query: 'SELECT TOP @top c.id FROM c WHERE c.n >= @n ORDER BY c.n',
    parameters: [
      { name: '@top', value: 9 },
      { name: '@n', value: 30 },
    ],
  },
  'SELECT VALUE {"a": c.n, "b": c.maybe} FROM c ORDER BY c.n',
  'SELECT VALUE c.maybe FROM c WHERE c.n < 60 ORDER BY c.n',
  'SELECT c.id, t FROM c JOIN t IN c.tags WHERE t != "x" ORDER BY c.n',
  'SELECT DISTINCT c.team FROM c ORDER BY c.team',
  'SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team DESC',
  'SELECT DISTINCT VALUE c.rank FROM c ORDER BY c.rank',
  'SELECT c.rank, MAX(c.mixed) AS high FROM c GROUP BY c.rank ORDER BY c.rank',
  'SELECT VALUE t FROM t IN c.tags WHERE t = "t1" ORDER BY t',
  'SELECT o FROM c.order o ORDER BY o["value"]',
  'SELECT VALUE c.id FROM c ORDER BY c.long',
  'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team ORDER BY c.team DESC',
  'SELECT c.rank, c.flag, AVG(c.n) AS mean, MAX(c.id) AS high FROM c GROUP BY c.rank, c.flag ORDER BY c.rank DESC, c.flag',
  'SELECT c.customer, MIN(c.rare) AS low, SUM(c.half) AS sum FROM c WHERE c.n > 7 GROUP BY c.customer ORDER BY c.customer',
  'SELECT VALUE c.team FROM c GROUP BY c.team ORDER BY c.team',
  'SELECT VALUE SUM(c.n) FROM c GROUP BY c.rank ORDER BY c.rank OFFSET 2 LIMIT 3',
  'SELECT TOP 2 c.rank, COUNT(1) AS n FROM c GROUP BY c.rank ORDER BY c.rank DESC',
  'SELECT t, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t ORDER BY UPPER(t)',
  'SELECT TOP 7 c.id, udf.twice(c.n) AS twice FROM c WHERE udf.isOdd(c.n) ORDER BY c.n DESC',
  "SELECT c.id FROM c WHERE c.customer IN ('c3', 'c11', 'c3', 'nobody') ORDER BY c.n",
  "SELECT c.id FROM c WHERE c.customer = 'c3' OR c.customer = 'c8' ORDER BY c.n DESC OFFSET 2 LIMIT 7",
  "SELECT TOP 5 c.id FROM c WHERE (c.customer = 'c3' AND c.n > 40) OR (c.customer = 'c9' AND c.flag) ORDER BY c.n",
  "SELECT c.customer, COUNT(1) AS n FROM c WHERE c.customer IN ('c1', 'c2', 'c5') GROUP BY c.customer ORDER BY c.customer",
];

/** Queries whose rows may come in any order. */
const UNORDERED: (string | SqlQuerySpec)[] = [
  'SELECT * FROM c',
  'SELECT c.id FROM c WHERE c.flag',
  'SELECT VALUE c.id FROM c JOIN t IN c.tags WHERE t = "t2"',
  'SELECT VALUE t FROM t IN c.tags',
  'SELECT DISTINCT c.team FROM c',
  'SELECT DISTINCT VALUE c.rank + 1 FROM c',
  'SELECT DISTINCT VALUE c.rank FROM c',
  'SELECT DISTINCT VALUE c.flag FROM c',
  'SELECT DISTINCT c.team, c.flag FROM c',
  'SELECT VALUE COUNT(1) FROM c',
  'SELECT VALUE COUNT(c.maybe) FROM c WHERE c.n > 3',
  'SELECT VALUE SUM(c.n) FROM c',
  'SELECT VALUE SUM(c.rare) FROM c',
  'SELECT VALUE SUM(c.spoilt) FROM c',
  'SELECT VALUE AVG(c.half) FROM c',
  'SELECT VALUE AVG(c.rare) FROM c',
  'SELECT VALUE AVG(c.none) FROM c',
  'SELECT VALUE AVG(c.spoilt) FROM c',
  'SELECT VALUE MIN(c.n) FROM c WHERE c.team = "blue"',
  'SELECT VALUE MAX(c.id) FROM c',
  'SELECT VALUE MIN(c.rare) FROM c',
  'SELECT VALUE MAX(c.none) FROM c',
  'SELECT VALUE MIN(c["order"]) FROM c',
  'SELECT MIN(c.n) AS low, MAX(c.tags) AS high FROM c WHERE c.n > 3',
  'SELECT VALUE COUNT(1) FROM c WHERE false',
  'SELECT VALUE COUNTIF(c.flag) FROM c',
  'SELECT DISTINCT VALUE MAX(c.n) FROM c',
  'SELECT DISTINCT VALUE SUM(c.spoilt) FROM c',
  'SELECT DISTINCT COUNT(1) AS n, MIN(c.id) AS low FROM c',
  'SELECT COUNT(1) AS n, SUM(c.n) AS s, AVG(c.half) AS a, MIN(c.id) AS low, MAX(c.id) AS high FROM c',
  'SELECT COUNT(1), MAX(c.rare) FROM c',
  'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team',
  'SELECT c.team, c.flag, AVG(c.n) AS mean, SUM(c.half) AS total FROM c GROUP BY c.team, c.flag',
  'SELECT c.rank, MIN(c.maybe) AS low, MAX(c.maybe) AS high FROM c GROUP BY c.rank',
  'SELECT c.rank, MIN(c["order"]) AS low, MAX(c.tags) AS high FROM c GROUP BY c.rank',
  'SELECT VALUE c.team FROM c GROUP BY c.team',
  'SELECT UPPER(c.team) AS up, COUNT(1) AS n FROM c GROUP BY UPPER(c.team)',
  'SELECT VALUE COUNT(1) FROM c GROUP BY c.team',
  // One group has a text among its numbers, and therefore no sum, average, minimum or maximum.
  'SELECT c.rank, SUM(c.spoilt) AS s FROM c GROUP BY c.rank',
  'SELECT c.rank, AVG(c.spoilt) AS a FROM c GROUP BY c.rank',
  'SELECT c.rank, SUM(c.team) AS s, COUNT(1) AS n FROM c WHERE c.customer = "c3" GROUP BY c.rank',
  'SELECT c.rank, MIN(c.mixed) AS low, MAX(c.mixed) AS high FROM c GROUP BY c.rank',
  'SELECT VALUE SUM(c.spoilt) FROM c GROUP BY c.rank',
  'SELECT VALUE AVG(c.spoilt) FROM c GROUP BY c.rank',
  'SELECT VALUE MAX(c.mixed) FROM c GROUP BY c.rank',
  'SELECT VALUE MAX(c.mixed) FROM c',
  'SELECT udf.part(c.rank) AS part, MAX(udf.twice(c.n)) AS most FROM c GROUP BY udf.part(c.rank)',
  'SELECT VALUE 1',
  'SELECT VALUE c.n FROM (SELECT VALUE d FROM d WHERE d.n > 100) c',
  "SELECT VALUE c.n FROM c WHERE c.customer = 'c3'",
  "SELECT VALUE c.n FROM c WHERE c.customer IN ('c3', 'c4', 'c5', 'c6', 'c7', 1, null, true)",
  "SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(['c0', 'c16'], c.customer) AND c.n < 100",
  "SELECT * FROM c WHERE c.id IN ('i003', 'i020', 'i021') AND c.customer IN ('c3', 'c4')",
  "SELECT VALUE COUNT(1) FROM c WHERE c.customer IN ('c3', 'c4')",
  "SELECT VALUE c.n FROM c WHERE c.customer IN ('nobody', 'else')",
  'SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS([], c.customer)',
  `SELECT VALUE c.n FROM c WHERE c.customer IN (${Array.from({ length: 150 }, (_, n) => `'c${n}'`).join(', ')})`,
  { query: 'SELECT VALUE SUM(c.n) FROM c WHERE c.customer = @who', parameters: [{ name: '@who', value: 'c5' }] },
];

const MODES: readonly FeedOptions[] = [
  {},
  { forceQueryPlan: true },
  { forceQueryPlan: true, maxItemCount: 3 },
  { enableQueryControl: true, maxItemCount: 4 },
];

const all = async (container: Container, query: string | SqlQuerySpec, options: FeedOptions) =>
  (await container.items.query<unknown>(query, options).fetchAll()).resources.map(plain);

/** A row without the properties that its container adds. */
function plain(row: unknown): unknown {
  if (typeof row !== 'object' || row === null) return row;
  return Object.fromEntries(Object.entries(row).filter(([name]) => !name.startsWith('_')));
}

const sorted = (rows: readonly unknown[]) => rows.map((row) => JSON.stringify(canonical(row))).toSorted();
const canonical = (row: unknown): unknown =>
  typeof row === 'object' && row !== null && !Array.isArray(row)
    ? Object.fromEntries(Object.entries(row).toSorted(([left], [right]) => (left < right ? -1 : 1)))
    : row;

const textOf = (query: string | SqlQuerySpec) => (typeof query === 'string' ? query : query.query);

describe('over five ranges as over one', () => {
  test.each(ORDERED.map((query) => [textOf(query), query] as const))('%s', async (_, query) => {
    const expected = await all(one, query, {});
    for (const options of MODES) expect(await all(five, query, options), JSON.stringify(options)).toEqual(expected);
    expect(await all(one, query, { forceQueryPlan: true, maxItemCount: 3 })).toEqual(expected);
  });

  test.each(UNORDERED.map((query) => [textOf(query), query] as const))('%s', async (_, query) => {
    const expected = sorted(await all(one, query, {}));
    for (const options of MODES) {
      expect(sorted(await all(five, query, options)), JSON.stringify(options)).toEqual(expected);
    }
    expect(sorted(await all(one, query, { forceQueryPlan: true, maxItemCount: 3 }))).toEqual(expected);
  });

  test.each([
    'SELECT c.id FROM c',
    'SELECT c.id FROM c OFFSET 110 LIMIT 30',
    'SELECT VALUE c.n FROM c WHERE c.n > 60 OFFSET 55 LIMIT 30',
    'SELECT c.id FROM c ORDER BY c.n DESC',
    'SELECT c.id FROM c ORDER BY c.rank',
    'SELECT c.id FROM c ORDER BY c.rank DESC',
    'SELECT c.id FROM c ORDER BY c.n OFFSET 5 LIMIT 30',
    'SELECT TOP 21 c.id FROM c ORDER BY c.id',
    'SELECT c.id FROM c ORDER BY c.rank, c.n DESC',
    'SELECT c.id FROM c ORDER BY c.flag DESC, c.team, c.id OFFSET 7 LIMIT 70',
    'SELECT c.id, t FROM c JOIN t IN c.tags ORDER BY c.n DESC',
    'SELECT c.id, t FROM c JOIN t IN (SELECT VALUE [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]) ORDER BY c.n',
    'SELECT DISTINCT c.team FROM c ORDER BY c.team',
    'SELECT DISTINCT VALUE c.rank FROM c ORDER BY c.rank DESC OFFSET 2 LIMIT 3',
    'SELECT DISTINCT c.rank, c.flag FROM c ORDER BY c.rank, c.flag',
    'SELECT DISTINCT VALUE c.n % 20 FROM c',
  ])('page by page, with a new client for each page: %s', async (query) => {
    const expected = await all(one, query, {});
    for (const maxItemCount of [3, 8]) {
      const found: unknown[] = [];
      for (let continuationToken: string | undefined; ;) {
        const client = world.connect();
        const container = client.database('shop').container(five.id);
        const options = {
          enableQueryControl: true,
          maxItemCount,
          ...(continuationToken === undefined ? {} : { continuationToken }),
        };
        const page = await container.items.query<unknown>(query, options).fetchNext();
        client.dispose();
        found.push(...page.resources);
        // The client returns empty pages on the way. It also returns a token when a limit is reached, but nothing follows then.
        if (page.continuationToken === undefined || page.continuationToken === continuationToken) break;
        continuationToken = page.continuationToken;
      }
      expect(sorted(found), String(maxItemCount)).toEqual(sorted(expected));
      const hasOneOrder = /ORDER BY .*(c\.n|c\.id|c\.team|DISTINCT)/.test(query) || /DISTINCT .* ORDER/.test(query);
      if (hasOneOrder) expect(found, String(maxItemCount)).toEqual(expected);
    }
  });

  test('the nearest items by vector', async () => {
    const query = 'SELECT TOP 9 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0.5])';
    const expected = await all(one, query, {});
    expect(expected).toHaveLength(9);
    for (const options of MODES) expect(await all(five, query, options)).toEqual(expected);
    const unbounded = 'SELECT c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0.5])';
    for (const container of [one, five]) {
      expect((await refusalOf(all(container, unbounded, { forceQueryPlan: true }))).message).toContain('TOP or LIMIT');
    }
  });

  test.each([
    "SELECT TOP 9 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'swim', 'run')",
    "SELECT * FROM c WHERE c.flag ORDER BY RANK FullTextScore(c.text, ['run', 'far']) OFFSET 3 LIMIT 5",
    'SELECT TOP 8 c.id, c.n FROM c WHERE c.n > 3 ORDER BY RANK RRF(FullTextScore(c.text, "swim"), VectorDistance(c.vector, [1, 0, 0.5]))',
    'SELECT TOP 8 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, "far"), FullTextScore(c.team, "red", "odd"), [3, 1])',
    'SELECT TOP 5 c.id FROM c ORDER BY RANK RRF(VectorDistance(c.nothing, [1]), VectorDistance(c.vector, [1, 0, 0.5]))',
    'SELECT TOP 5 c.id FROM c ORDER BY RANK VectorDistance(c.vector, [1, 0, 0.5])',
    'SELECT TOP 5 c.id FROM c ORDER BY RANK VectorDistance(c.vector, [1, 0, 0.5], true, {distanceFunction: "euclidean"})',
    'SELECT TOP 8 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, "far"), VectorDistance(c.vector, [1, 0, 0.5], true, {distanceFunction: "euclidean"}))',
  ])('the best items by rank: %s', async (query) => {
    const expected = await all(one, query, {});
    expect(expected.length).toBeGreaterThan(4);
    for (const options of MODES) expect(await all(five, query, options), JSON.stringify(options)).toEqual(expected);
  });

  test('a query that the client would run by a plan needs none if the client leaves the page size to the server', async () => {
    // given
    const vectors = 'SELECT TOP 9 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0.5])';
    const further = 'SELECT c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0.5]) OFFSET 3 LIMIT 6';
    const groups = 'SELECT c.rank, COUNT(1) AS n FROM c GROUP BY c.rank';
    for (const container of [one, five]) {
      for (const query of [vectors, further, groups]) {
        // when
        const { resources } = await container.items.query<unknown>(query, { maxItemCount: -1 }).fetchNext();
        // then
        expect(sorted(resources ?? []), query).toEqual(sorted(await all(one, query, {})));
      }
      const unbounded = 'SELECT c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0.5])';
      const refusal = await refusalOf(container.items.query(unbounded, { maxItemCount: -1 }).fetchNext());
      expect(refusal.message).toContain('TOP or LIMIT');
    }
  });

  test('groups are merged by the client, which keeps a group key that is undefined', async () => {
    const query = 'SELECT c.team, AVG("text") AS mean FROM c GROUP BY c.team';
    const { resources } = await five.items.query<object>(query).fetchAll();
    expect(resources).toHaveLength(4);
    for (const group of resources) expect(Object.keys(group)).toEqual(['team', 'mean']);
  });

  test('groups are merged by the server for clients that state no capabilities; others get the plan', async () => {
    const groups = 'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team';
    const group = ({ id }: Container, query: string, headers: Readonly<Record<string, string>>) =>
      raw(world.endpoint, 'POST', `/dbs/shop/colls/${id}/docs`, {
        headers: {
          'content-type': 'application/query+json',
          'x-ms-documentdb-isquery': 'True',
          'x-ms-documentdb-query-enablecrosspartition': 'True',
          ...headers,
        },
        body: JSON.stringify({ query }),
      });
    const whole = await group(five, groups, {});
    expect(whole.json?.['Documents']).toHaveLength(4);
    const able = { 'x-ms-cosmos-sdk-supportedcapabilities': '1' };
    // Ordered groups, and groups of a container with one range, are never left to the client.
    const far = groups.replace('GROUP BY', 'WHERE NOT IS_DEFINED(VectorDistance(c.none, [1])) GROUP BY');
    for (const reply of [
      await group(five, `${groups} ORDER BY c.team`, able),
      await group(one, groups, able),
      await group(one, far, able),
    ]) {
      expect(reply.json?.['Documents']).toHaveLength(4);
    }
    // Neither are groups of a part of the keys, because a plan would not name that part.
    const parts = [
      { 'x-ms-start-epk': '', 'x-ms-end-epk': '1F' },
      { 'x-ms-start-epk': '1F', 'x-ms-end-epk': 'FF' },
    ];
    const counted = [];
    for (const part of parts) {
      const { json } = await group(five, groups, { ...able, ...part });
      const documents = json?.['Documents'] as readonly { readonly n: number }[];
      counted.push(...documents.map(({ n }) => n));
    }
    const { resources } = await five.items.query<number>('SELECT VALUE COUNT(1) FROM c').fetchAll();
    expect(counted.reduce((sum, n) => sum + n, 0)).toBe(resources[0]);
    expect((await group(five, groups.replace('GROUP BY', 'group\tby'), able)).status).toBe(400);
    const refused = await group(five, groups, able);
    expect(refused).toMatchObject({ status: 400, headers: { 'x-ms-substatus': '1004' } });
    expect(JSON.parse(String(refused.json?.['additionalErrorInfo']))).toMatchObject({
      queryInfo: { groupByAliasToAggregateType: { team: null, n: 'Count' } },
      queryRanges: [{ min: '', max: '' }],
    });
  });

  test('rows that a JOIN makes of one document are distinct for the .NET client, which can resume at each of them', async () => {
    const ask = (body: object, headers: Readonly<Record<string, string>>) =>
      raw(world.endpoint, 'POST', `/dbs/shop/colls/${five.id}/docs`, {
        headers: { 'content-type': 'application/query+json', ...headers },
        body: JSON.stringify(body),
      });
    const query = 'SELECT c.id, t FROM c JOIN t IN c.tags ORDER BY c.rank DESC';
    const { json } = await ask(
      { query },
      {
        'x-ms-cosmos-is-query-plan-request': 'True',
        'x-ms-cosmos-supported-query-features': 'OrderBy, MultipleOrderBy, DCount, NonStreamingOrderBy',
      },
    );
    const { rewrittenQuery } = json!['queryInfo'] as { readonly rewrittenQuery: string };
    const [range] = (await five.readPartitionKeyRanges().fetchAll()).resources;
    const page = async (size: number, resumeFilter?: object, continuation?: string) => {
      const reply = await ask(
        {
          query: rewrittenQuery.replace('{documentdb-formattableorderbyquery-filter}', 'true'),
          ...(resumeFilter === undefined ? {} : { resumeFilter }),
        },
        {
          'x-ms-documentdb-isquery': 'True',
          'x-ms-documentdb-query-enablecrosspartition': 'True',
          'x-ms-documentdb-partitionkeyrangeid': range!.id,
          'x-ms-max-item-count': String(size),
          ...(continuation === undefined ? {} : { 'x-ms-continuation': continuation }),
        },
      );
      const rows = reply.json?.['Documents'] as readonly {
        readonly _rid: string;
        readonly orderByItems: [{ item: number }];
      }[];
      return { rows, token: reply.headers['x-ms-continuation'] as string | undefined };
    };
    const { rows: whole } = await page(1000);
    expect(new Set(whole.map(({ _rid }) => _rid)).size).toBe(whole.length);
    for (const size of [1, 2, 3]) {
      let token: string | undefined;
      for (let start = 0; start < whole.length; start += size) {
        const { rows, token: next } = await page(size, undefined, token);
        expect(rows).toEqual(whole.slice(start, start + size));
        // The client can resume at each row, with the token that the row's page began with.
        for (const [index, { _rid: rid, orderByItems }] of rows.entries()) {
          const resume = { value: [orderByItems[0].item], rid, exclude: false };
          expect((await page(4, resume, token)).rows).toEqual(whole.slice(start + index, start + index + 4));
        }
        const last = rows.at(-1)!;
        const resume = { value: [last.orderByItems[0].item], rid: last._rid, exclude: false };
        if (next !== undefined) {
          expect((await page(4, resume, next)).rows).toEqual(whole.slice(start + size, start + size + 4));
        }
        token = next;
      }
      expect(token).toBeUndefined();
    }
  });

  test('a plan is refused if the client does not state that it can merge the query', async () => {
    const plan = (query: string, features?: string, agent = 'any') =>
      raw(world.endpoint, 'POST', `/dbs/shop/colls/${five.id}/docs`, {
        headers: {
          'content-type': 'application/query+json',
          'user-agent': agent,
          'x-ms-cosmos-is-query-plan-request': 'True',
          ...(features === undefined ? {} : { 'x-ms-cosmos-supported-query-features': features }),
        },
        body: JSON.stringify({ query }),
      });
    const groups = 'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team';
    // The features that the Python client states.
    const refused = await plan(groups, 'Aggregate,CompositeAggregate,Distinct,MultipleOrderBy,OrderBy,Top');
    expect(refused.status).toBe(400);
    expect(refused.json?.['message']).toContain(
      'Query contains the following features, which the calling client does not support: NonValueAggregate GroupBy',
    );
    expect((await plan(groups, 'DCount, GroupBy, NonValueAggregate')).json).toMatchObject({
      queryInfo: { groupByAliases: ['team', 'n'] },
    });
    expect((await plan('SELECT * FROM c ORDER BY c.n')).status).toBe(400);
    expect((await plan('SELECT * FROM c WHERE c.n > 3')).status).toBe(200);
    // The features that the Java client states. It returns groups in an order of its own, and can't merge lists.
    const says = 'Aggregate, OrderBy, GroupBy, DCount, NonValueAggregate';
    const java = (query: string) => plan(query, says, 'azsdk-java-cosmos/4.80.0 Linux/6.1 JRE/17');
    expect((await java(groups)).status).toBe(200);
    expect((await java(`${groups} ORDER BY c.team`)).json?.['message']).toContain('OrderedGroupBy');
    expect((await plan(`${groups} ORDER BY c.team`, says)).status).toBe(200);
    expect((await java('SELECT VALUE MAKELIST(c.n) FROM c')).json?.['message']).toContain('ListAndSetAggregate');
    // The features that .NET clients stated some years ago. They return parts of such a value instead of the whole.
    const values = 'SELECT VALUE COUNT(1) FROM c GROUP BY c.team';
    expect((await plan(values, says)).json?.['message']).toContain('GroupByValueAggregate');
    expect((await plan(values, `${says}, NonStreamingOrderBy`)).status).toBe(200);
  });

  test.each(['documentdb-netcore-sdk/2.11.6', 'documentdb-dotnet-sdk/2.18.0'])(
    '%s gets complete groups, although it states that it can merge them',
    async (userAgent) => {
      const reply = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${five.id}/docs`, {
        headers: {
          'x-ms-cosmos-is-query-plan-request': 'True',
          'x-ms-cosmos-supported-query-features': 'Aggregate, GroupBy, NonValueAggregate',
          'user-agent': `Linux/12 ${userAgent}`,
        },
        body: JSON.stringify({ query: 'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team' }),
      });
      const rewrittenQuery = '/* of all ranges */ SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team';
      expect(reply.json).toMatchObject({ queryInfo: { groupByExpressions: [], rewrittenQuery } });
    },
  );

  test('the plan of a query over one range stays right after the first split, for a client that keeps the kind of its plan', async () => {
    const container = await world.container({ throughput: 1000 });
    // The features that the Rust client states. It merges rows, but no aggregates.
    const plan = async (query: string) => {
      const { status, json } = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
        headers: {
          'content-type': 'application/query+json',
          'x-ms-cosmos-is-query-plan-request': 'True',
          'x-ms-cosmos-supported-query-features': 'MultipleOrderBy,OffsetAndLimit,OrderBy,Top',
        },
        body: JSON.stringify({ query }),
      });
      return { status, queryInfo: json?.['queryInfo'] as { rewrittenQuery: string }, ranges: json?.['queryRanges'] };
    };
    const merged = [
      'SELECT TOP 17 * FROM c',
      'SELECT c.id FROM c OFFSET 5 LIMIT 17',
      'SELECT * FROM c ORDER BY c.n, c.team DESC',
      "SELECT * FROM c WHERE c.customer = 'c1'",
    ];
    const alone = [
      'SELECT DISTINCT c.team FROM c',
      'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team',
      'SELECT VALUE COUNT(1) + 1 FROM c',
    ];
    const before = await Promise.all(merged.map(plan));
    expect(before[0]!.queryInfo).toMatchObject({
      top: 17,
      rewrittenQuery: expect.not.stringContaining('TOP') as string,
    });
    for (const query of alone)
      expect(await plan(query), query).toMatchObject({ status: 200, queryInfo: { rewrittenQuery: '' } });

    const { resource: offer } = await container.readOffer();
    await world.client
      .offer(offer!.id)
      .replace({ ...offer!, content: { ...offer!.content!, offerThroughput: 13_000 } });

    expect(await Promise.all(merged.map(plan))).toEqual(before);
    for (const query of alone) expect(await plan(query), query).toMatchObject({ status: 400 });
  });

  /** The plan for a client that is not the JavaScript one, and states that it can merge more than any other does. */
  const planFor = (query: string) =>
    raw(world.endpoint, 'POST', `/dbs/shop/colls/${five.id}/docs`, {
      headers: {
        'content-type': 'application/query+json',
        'x-ms-cosmos-is-query-plan-request': 'True',
        'x-ms-cosmos-supported-query-features':
          'Aggregate, CompositeAggregate, DCount, Distinct, GroupBy, HybridSearch, MultipleAggregates, MultipleOrderBy, NonStreamingOrderBy, NonValueAggregate, OrderBy, Top',
      },
      body: JSON.stringify({ query }),
    });

  test('a query that no client can merge is refused if a plan is asked for, and answered otherwise', async () => {
    for (const query of [
      'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team ORDER BY COUNT(1)',
      'SELECT VALUE COUNT(1) + 1 FROM c',
      'SELECT VALUE {"n": COUNT(1)} FROM c',
      'SELECT DISTINCT c.team, COUNT(1) AS n FROM c GROUP BY c.team',
      'SELECT VALUE c.n FROM (SELECT TOP 3 VALUE d FROM d ORDER BY d.n) c',
      'SELECT DISTINCT TOP 3 c.team FROM c ORDER BY RANK FullTextScore(c.text, "swim", "run")',
    ]) {
      const expected = await all(one, query, {});
      expect(await all(five, query, {})).toEqual(expected);
      const { status, json } = await planFor(query);
      expect({ status, message: json?.['message'] }, query).toEqual({
        status: 400,
        message: expect.stringContaining("can't be put together"),
      });
      if (!query.includes('RANK')) expect(await all(five, query, { forceQueryPlan: true })).toEqual(expected);
    }
  });

  test('the JavaScript client asks one range, whichever partition keys the query is about', async () => {
    for (const filter of ["c.customer = 'c0'", "c.customer IN ('c2', 'c5', 'c7')", 'c.n > 3']) {
      const options = { forceQueryPlan: true, maxItemCount: 1000 };
      const iterator = five.items.query(`SELECT * FROM c WHERE ${filter}`, options);
      const { diagnostics, resources } = await iterator.fetchAll();
      expect(resources.length).toBeGreaterThan(5);
      const { gatewayStatistics } = diagnostics.clientSideRequestStatistics;
      expect(gatewayStatistics.filter((call) => String(call.operationType) === 'query')).toHaveLength(1);
    }
  });

  test('a range has no rows for keys outside it, and a query over all ranges is answered by only one of them', async () => {
    const [first, second] = (await five.readPartitionKeyRanges().fetchAll()).resources;
    const docs = `/dbs/shop/colls/${five.id}/docs`;
    const ask = (query: string, headers: Readonly<Record<string, string>>) =>
      raw(world.endpoint, 'POST', docs, {
        headers: { 'content-type': 'application/query+json', ...headers },
        body: JSON.stringify({ query }),
      });
    const apart = {
      'x-ms-documentdb-partitionkeyrangeid': first!.id,
      'x-ms-start-epk': second!.minInclusive,
      'x-ms-end-epk': second!.maxExclusive,
    };
    expect((await ask('SELECT * FROM c', apart)).json).toMatchObject({ _count: 0 });
    expect((await raw(world.endpoint, 'GET', docs, { headers: apart })).json).toMatchObject({ _count: 0 });
    const ofAll = '/* of all ranges */ SELECT VALUE COUNT(1) FROM c';
    for (const [range, rows] of [
      [first!, 1],
      [second!, 0],
    ] as const) {
      const reply = await ask(ofAll, { 'x-ms-documentdb-partitionkeyrangeid': range.id });
      expect(reply).toMatchObject({ status: 200, json: { _count: rows } });
      expect(Number(reply.headers['x-ms-request-charge'])).toBeGreaterThanOrEqual(2.25);
    }
    // A client that continued there would miss the rest of the first range.
    const goingOn = { 'x-ms-documentdb-partitionkeyrangeid': second!.id, 'x-ms-continuation': 'any' };
    expect(await ask(ofAll, goingOn)).toMatchObject({
      status: 400,
      text: expect.stringContaining('other partition key ranges'),
    });
  });

  test('other clients are told the partition keys that a filter allows', async () => {
    for (const [filter, count] of [
      ["c.customer = 'c0'", 1],
      ["c.customer IN ('c2', 'c5', 'c7')", 3],
      ["c.customer = 'c3' OR c.customer = 'c4'", 2],
    ] as const) {
      const ranges = (await planFor(`SELECT * FROM c WHERE ${filter}`)).json?.['queryRanges'] as readonly {
        readonly min: string;
        readonly max: string;
      }[];
      expect(ranges).toHaveLength(count);
      for (const { min, max } of ranges) expect(max).toBe(min);
    }
    expect((await planFor("SELECT * FROM c WHERE c.customer = 'c0' OR c.n = 3")).json).toMatchObject({
      queryRanges: [{ min: '', max: 'FF' }],
    });
  });
});
