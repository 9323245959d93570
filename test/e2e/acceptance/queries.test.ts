import type { Container, SqlParameter } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { refusalOf, World } from '../support/world.ts';

let world: World;
let container: Container;

beforeAll(async () => {
  world = await World.open();
  container = await world.container({ defaultTtl: 1_000 });
  const items: Record<string, unknown>[] = [
    { id: '1', n: 3, name: 'Ann', tags: ['a', 'b'], at: { city: 'Oslo', zip: 1 } },
    { id: '2', n: 1, name: 'Bob', tags: [], at: { city: 'Rome' } },
    { id: '3', n: 2, name: null, at: null },
    { id: '4', n: null, name: 'ann' },
    { id: '5', n: '2', name: 'Cleo', done: true },
    { id: '6', n: 2.5, name: 'Dan', done: false, 'odd name': 'x' },
    { id: '7' },
    { id: 'gone', n: 2, name: 'Ann', ttl: 5 },
  ];
  for (const [index, item] of items.entries())
    await container.items.create({ customer: index < 4 ? 'low' : 'high', ...item });
  await world.advance(5_000);
});
afterAll(() => world.end());

async function rows(sql: string, parameters: SqlParameter[] = [], partitionKey?: string): Promise<unknown[]> {
  const options = partitionKey === undefined ? {} : { partitionKey };
  return (await container.items.query<unknown>({ query: sql, parameters }, options).fetchAll()).resources;
}

describe('the query language', () => {
  test.each<[string, unknown[]]>([
    ['SELECT c.id, c.n FROM c WHERE c.id = "1"', [{ id: '1', n: 3 }]],
    ['SELECT c.id, c.missing FROM c WHERE c.id = "1"', [{ id: '1' }]],
    ['SELECT c.n AS number, c.at.city FROM c WHERE c.id = "1"', [{ number: 3, city: 'Oslo' }]],
    ['SELECT VALUE c.n FROM c', [3, 1, 2, null, '2', 2.5]],
    ['SELECT VALUE {"n": c.n, "m": c.missing} FROM c WHERE c.id = "2"', [{ n: 1 }]],
    ['SELECT VALUE [c.n, c.missing] FROM c WHERE c.id = "2"', [[1]]],
    ['SELECT VALUE x.id FROM items x WHERE x.n = 3', ['1']],
    ['SELECT VALUE root.id FROM root WHERE root.n = 3', ['1']],
    ['SELECT VALUE COUNT(1) FROM c', [7]],
    ['SELECT VALUE COUNT(c.n) FROM c', [6]],
    ['SELECT COUNT(1) AS count FROM c WHERE c.n > 1', [{ count: 3 }]],
    ['SELECT VALUE COUNT(1) FROM c WHERE false', [0]],
    ['SELECT VALUE c.id FROM c WHERE c.n = 2', ['3']],
    ['SELECT VALUE c.id FROM c WHERE c.n != 2', ['1', '2', '4', '5', '6']],
    ['SELECT VALUE c.id FROM c WHERE c.n > 2', ['1', '6']],
    ['SELECT VALUE c.id FROM c WHERE c.n >= 2 AND c.n < 3', ['3', '6']],
    ['SELECT VALUE c.id FROM c WHERE c.n = "2"', ['5']],
    ['SELECT VALUE c.id FROM c WHERE c.n = null', ['4']],
    ['SELECT VALUE c.id FROM c WHERE c.missing = null', []],
    ['SELECT VALUE c.id FROM c WHERE c.missing = undefined', []],
    ['SELECT VALUE c.id FROM c WHERE NOT (c.n = 2)', ['1', '2', '4', '5', '6']],
    ['SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.n)', ['7']],
    ['SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.at.city)', ['1', '2']],
    ['SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.at)', ['1', '2', '3']],
    ['SELECT VALUE c.id FROM c WHERE IS_NULL(c.at)', ['3']],
    ['SELECT VALUE c.id FROM c WHERE c.done', ['5']],
    ['SELECT VALUE c.id FROM c WHERE NOT c.done', ['6']],
    ['SELECT VALUE c.id FROM c WHERE c.done = true OR c.n = 1', ['2', '5']],
    ['SELECT VALUE c.id FROM c WHERE c.missing > 1 OR c.n = 1', ['2']],
    ['SELECT VALUE c.id FROM c WHERE c.n = 1 OR c.n = 3 AND c.name = "nobody"', ['2']],
    ['SELECT VALUE c.id FROM c WHERE (c.n = 1 OR c.n = 3) AND c.name = "Ann"', ['1']],
    ['SELECT VALUE c.id FROM c WHERE c.n IN (1, 3, "2", null)', ['1', '2', '4', '5']],
    ['SELECT VALUE c.id FROM c WHERE c.n NOT IN (1, 3)', ['3', '4', '5', '6']],
    ['SELECT VALUE c.id FROM c WHERE c.n BETWEEN 2 AND 3', ['1', '3', '6']],
    ['SELECT VALUE c.id FROM c WHERE STARTSWITH(c.name, "A")', ['1']],
    ['SELECT VALUE c.id FROM c WHERE STARTSWITH(c.name, "a", true)', ['1', '4']],
    ['SELECT VALUE c.id FROM c WHERE STARTSWITH(c.n, "2")', ['5']],
    ['SELECT VALUE c.id FROM c WHERE c.at.zip = 1', ['1']],
    ['SELECT VALUE c.id FROM c WHERE c["at"]["city"] = \'Rome\'', ['2']],
    ['SELECT VALUE c.id FROM c WHERE c["odd name"] = "x"', ['6']],
    ['SELECT VALUE c.id FROM c WHERE c.tags[1] = "b"', ['1']],
    ['SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, "a")', ['1']],
    ['SELECT VALUE c.tags FROM c', [['a', 'b'], []]],
    ['SELECT VALUE t FROM c JOIN t IN c.tags', ['a', 'b']],
    ['SELECT VALUE c.id FROM c ORDER BY c.n', ['7', '4', '2', '3', '6', '1', '5']],
    ['SELECT VALUE c.id FROM c ORDER BY c.n DESC', ['5', '1', '6', '3', '2', '4', '7']],
    ['SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id DESC', ['7', '6']],
    ['SELECT TOP 0 VALUE c.id FROM c', []],
    ['SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 2 LIMIT 3', ['3', '4', '5']],
    ['SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 6 LIMIT 3', ['7']],
    ['SELECT VALUE c.id FROM c OFFSET 0 LIMIT 2', ['1', '2']],
    ['SELECT VALUE c.n + 1 FROM c WHERE c.id IN ("1", "5", "7")', [4]],
    ['SELECT VALUE c.name || "!" FROM c WHERE c.id IN ("1", "3")', ['Ann!']],
    ['SELECT VALUE SUM(c.n) FROM c WHERE IS_NUMBER(c.n)', [8.5]],
    ['SELECT VALUE SUM(c.n) FROM c', []],
    ['SELECT VALUE MAX(c.n) FROM c WHERE false', []],
    ['SELECT DISTINCT VALUE c.customer FROM c ORDER BY c.customer', ['high', 'low']],
    [
      'SELECT c.customer, COUNT(1) AS n FROM c GROUP BY c.customer',
      [
        { customer: 'low', n: 4 },
        { customer: 'high', n: 3 },
      ],
    ],
    ['SELECT VALUE 1', [1]],
  ])('%s', async (sql, expected) => {
    const found = await rows(sql);
    expect(sql.includes('ORDER BY') ? found : found.toSorted(byText)).toEqual(
      sql.includes('ORDER BY') ? expected : expected.toSorted(byText),
    );
  });

  test('SELECT * is the whole item, with its system properties', async () => {
    const [found] = await rows('SELECT * FROM c WHERE c.id = "1"');
    expect(found).toEqual((await container.item('1', 'low').read()).resource);
    expect(
      await rows('SELECT * FROM c WHERE c._etag = @etag', [
        { name: '@etag', value: (found as { _etag: string })._etag },
      ]),
    ).toEqual([found]);
  });

  test('parameters may be of any type, and are values, never text of the query', async () => {
    const where = (condition: string, value: SqlParameter['value']) =>
      rows(`SELECT VALUE c.id FROM c WHERE ${condition}`, [{ name: '@p', value }]);
    expect(await where('c.n = @p', 3)).toEqual(['1']);
    expect(await where('c.n = @p', null)).toEqual(['4']);
    expect(await where('c.done = @p', true)).toEqual(['5']);
    expect(await where('ARRAY_CONTAINS(@p, c.id)', ['1', '7', '9'])).toEqual(['1', '7']);
    expect(await where('c.at = @p', { city: 'Rome' })).toEqual(['2']);
    expect(await where('c.name = @p', '" OR 1 = 1 OR "" = "')).toEqual([]);
    // A parameter without a value is undefined, as in Cosmos DB.
    expect(await where('c.n = @other', 3)).toEqual([]);
    expect(await where('c.n = 3 AND NOT IS_DEFINED(@other)', 3)).toEqual(['1']);
  });

  test('a partition key restricts every query to its own items', async () => {
    expect(await rows('SELECT VALUE c.id FROM c', [], 'low')).toEqual(['1', '2', '3', '4']);
    expect(await rows('SELECT VALUE COUNT(1) FROM c', [], 'high')).toEqual([3]);
    expect(await rows('SELECT VALUE c.id FROM c WHERE c.id = "1"', [], 'high')).toEqual([]);
    expect(await rows('SELECT VALUE c.id FROM c WHERE c.id IN ("1", "5", "gone")', [], 'low')).toEqual(['1']);
    expect(await rows('SELECT VALUE c.id FROM c', [], 'nobody')).toEqual([]);
  });

  test('the client’s own pipeline gives the same answers', async () => {
    for (const sql of [
      'SELECT VALUE COUNT(1) FROM c',
      'SELECT VALUE c.id FROM c ORDER BY c.id DESC',
      'SELECT TOP 3 VALUE c.id FROM c ORDER BY c.id',
      'SELECT c.customer, COUNT(1) AS n FROM c GROUP BY c.customer',
      'SELECT DISTINCT VALUE c.customer FROM c',
      'SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 2 LIMIT 3',
    ]) {
      const asked = container.items.query<unknown>(sql, { forceQueryPlan: true, maxItemCount: 2 });
      expect((await asked.fetchAll()).resources, sql).toEqual(await rows(sql));
    }
  });
});

describe('queries that Cosmos DB refuses are answered', () => {
  test.each<[string, string, unknown[]]>([
    [
      'ORDER BY in a subquery',
      'SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.tags ORDER BY t DESC) FROM c WHERE c.id = "1"',
      [['b', 'a']],
    ],
    ['ORDER BY the elements of a JOIN', 'SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY t DESC', ['b', 'a']],
    [
      'ORDER BY an expression',
      'SELECT VALUE c.id FROM c WHERE IS_STRING(c.name) ORDER BY LOWER(c.name) DESC, c.id',
      ['6', '5', '2', '1', '4'],
    ],
    ['aggregates over groups', 'SELECT VALUE COUNT(1) FROM (SELECT c.done FROM c GROUP BY c.done) AS g', [3]],
    ['BETWEEN next to AND', 'SELECT VALUE c.id FROM c WHERE c.n BETWEEN 2 AND 3 AND c.id != "1"', ['3', '6']],
    [
      'a keyword as a name',
      'SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.value) AND NOT IS_DEFINED(c.order) AND c.n = 1',
      ['2'],
    ],
  ])('%s', async (_what, sql, expected) => {
    expect(await rows(sql)).toEqual(expected);
  });
});

describe('a query that can’t be run is refused with 400 and a helpful message', () => {
  test.each([
    ['SELECT VALUE udf.f(c.n) FROM c', /udf|user-defined/i],
    ['SELECT FullTextScore(c.name, "ann") FROM c', /ORDER BY RANK/],
    ['SELECT VALUE NOSUCHFUNCTION(c.n) FROM c', /NOSUCHFUNCTION/],
    ['SELEC * FROM c', /syntax|SELEC/i],
    ['SELECT * FROM c WHERE', /./],
    ['SELECT * FROM c WHERE c.n = ', /./],
    ['SELECT * FROM c WHERE c.n = "open', /./],
    ['SELECT VALUE d.id FROM c', /'?d'?/],
    ['SELECT *, c.n FROM c', /./],
    ['SELECT * FROM c ORDER BY', /./],
    ['SELECT * FROM c OFFSET 1', /./],
    ['SELECT TOP -1 * FROM c', /./],
    ['SELECT TOP 1 * FROM c OFFSET 1 LIMIT 1', /./],
    ['SELECT c.n, COUNT(1) FROM c GROUP BY c.name', /./],
    ['DELETE FROM c', /./],
    ['UPDATE c SET c.n = 1', /./],
    ['INSERT INTO c VALUES (1)', /./],
    ["SELECT * FROM c; DROP TABLE items; --'", /./],
    [`SELECT * FROM c WHERE ${'('.repeat(20_000)}true${')'.repeat(20_000)}`, /./],
    [`SELECT * FROM c WHERE c.n IN (${Array.from({ length: 50_000 }, (_, n) => n).join(',')}) AND`, /./],
    [`SELECT VALUE "${'x'.repeat(300_000)}"`, /exceeded the maximum limit of 262144 characters.*as parameters/],
    ['', /./],
  ])('%.60s', async (sql, words) => {
    const head = await world.head();
    const { code, message } = await refusalOf(container.items.query(sql).fetchAll());
    expect(code).toBe(400);
    expect(message).toMatch(words);
    expect(await world.head()).toBe(head);
    expect(await rows('SELECT VALUE COUNT(1) FROM c')).toEqual([7]);
  });
});

function byText(left: unknown, right: unknown): number {
  const [a, b] = [JSON.stringify(left), JSON.stringify(right)];
  return a < b ? -1 : Number(a > b);
}
