import { describe, expect, test } from 'vitest';
import { checkComputedProperties, evaluate, parseQuery, planQuery } from '../src/index.ts';
import type { ComputedProperty, Json } from '../src/index.ts';

const computed: readonly ComputedProperty[] = [
  { name: 'cp_lower', query: 'SELECT VALUE LOWER(c.name) FROM c' },
  { name: 'cp_net', query: 'SELECT VALUE root.price * (1 - root.discount) FROM root' },
  { name: 'cp_tags', query: 'SELECT VALUE ARRAY_CONCAT(x.tags, ["all"]) FROM x' },
  { name: 'cp_place', query: 'SELECT VALUE {"city": c.address.city, "known": IS_DEFINED(c.address)} FROM c' },
  { name: 'cp_key', query: 'SELECT VALUE c.id FROM c' },
  // Documents have a property of this name as well.
  { name: 'price2', query: 'SELECT VALUE c.price * 2 FROM c' },
];
/** The same as expressions, for a document called `c`. */
const expanded: Readonly<Record<string, string>> = {
  'c.cp_lower': 'LOWER(c.name)',
  "c['cp_lower']": 'LOWER(c.name)',
  'c.cp_net': '(c.price * (1 - c.discount))',
  'c.cp_tags': 'ARRAY_CONCAT(c.tags, ["all"])',
  'c.cp_place': '({"city": c.address.city, "known": IS_DEFINED(c.address)})',
  'c.cp_key': 'c.id',
  'c.price2': '(c.price * 2)',
};

const documents: readonly Json[] = Array.from({ length: 40 }, (_, index) => ({
  id: `item ${index}`,
  _ts: 1_000 + index,
  ...(index % 7 === 0 ? {} : { name: ['Ann', 'BEN', 'Carla', 'ann'][index % 4]! }),
  ...(index % 5 === 0 ? { price: 'odd' } : { price: index }),
  discount: (index % 3) / 4,
  price2: 'stored',
  ...(index % 4 === 0 ? {} : { tags: [`t${index % 3}`, index % 2] }),
  ...(index % 6 === 0 ? {} : { address: { city: `city ${index % 5}` } }),
}));

const plan = (sql: string) => planQuery(parseQuery(sql), [], { computedProperties: computed });
const rows = (sql: string): Json[] => [...evaluate(plan(sql), documents)];
const plainRows = (sql: string): Json[] => [...evaluate(planQuery(parseQuery(sql)), documents)];
const byHand = (sql: string): string =>
  Object.entries(expanded).reduce((text, [name, expression]) => text.replaceAll(name, expression), sql);

describe('a computed property', () => {
  test.each([
    'SELECT VALUE c.cp_lower FROM c',
    "SELECT VALUE c['cp_lower'] FROM c",
    'SELECT c.id, c.cp_net AS net, c.cp_place AS place FROM c',
    "SELECT VALUE c.id FROM c WHERE c.cp_lower = 'ann'",
    "SELECT VALUE c.id FROM c WHERE c.cp_lower IN ('ann', 'ben') AND c.cp_net > 5 AND NOT IS_DEFINED(c.nothing)",
    "SELECT VALUE c.id FROM c WHERE c.cp_key = 'item 7'",
    "SELECT VALUE c.id FROM c WHERE c.cp_key IN ('item 7', 'item 8') OR c.price2 = 18",
    "SELECT VALUE c.id FROM c WHERE c.price2 = 'stored'",
    'SELECT VALUE c.id FROM c WHERE c.price2 BETWEEN 10 AND 20',
    'SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.cp_net)',
    "SELECT VALUE c.cp_place.city FROM c WHERE c.cp_place.known AND STARTSWITH(c.cp_place.city, 'city')",
    'SELECT VALUE c.cp_tags[0] FROM c',
    'SELECT VALUE c.id FROM c ORDER BY c.cp_lower, c.id DESC',
    'SELECT TOP 5 VALUE c.id FROM c ORDER BY c.cp_net DESC',
    'SELECT DISTINCT VALUE c.cp_lower FROM c',
    'SELECT VALUE SUM(c.cp_net) FROM c',
    'SELECT c.cp_lower AS name, COUNT(1) AS n, MAX(c.price2) AS top FROM c GROUP BY c.cp_lower',
    'SELECT VALUE t FROM c JOIN t IN (SELECT VALUE c.cp_tags)',
    "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN (SELECT VALUE c.cp_tags) WHERE t = 't1')",
    'SELECT VALUE d FROM (SELECT c.cp_lower AS low, c.id FROM c) AS d ORDER BY d.id',
    'SELECT * FROM c',
    'SELECT VALUE c FROM c',
  ])('gives a query the same results as its expression: %s', (sql) => {
    const found = rows(sql);
    expect(found).toEqual(plainRows(byHand(sql)));
    // A value that documents have under the name of a computed property is not used.
    expect(found.length > 0).toBe(!sql.includes("'stored'"));
  });

  test.each(['SELECT VALUE t FROM c JOIN t IN c.cp_tags', 'SELECT VALUE t FROM t IN c.cp_tags'])(
    'can be iterated over: %s',
    (sql) => {
      const whole = documents.flatMap((document) => {
        const { tags } = document as { tags?: Json[] };
        return tags === undefined ? [] : [...tags, 'all'];
      });
      expect(rows(sql)).toEqual(whole);
    },
  );

  test('is visible in a subquery that gives the document another name', () => {
    expect(rows('SELECT VALUE (SELECT VALUE d.cp_lower FROM c AS d) FROM c')).toEqual(
      rows('SELECT VALUE c.cp_lower FROM c'),
    );
  });

  test('does not exist on the rows of a query in FROM, or inside a document', () => {
    expect(rows('SELECT VALUE d.cp_lower FROM (SELECT VALUE c FROM c) AS d')).toEqual([]);
    expect(rows('SELECT VALUE a.cp_lower FROM c JOIN a IN (SELECT VALUE c.address)')).toEqual([]);
  });

  test('is not used by the pushdown, whatever property it has the name of', () => {
    const { pushdown } = plan("SELECT * FROM c WHERE c.cp_key = 'a' AND c.price2 = 1 AND c.discount = 0");
    expect(pushdown.equals).toEqual([{ path: ['discount'], value: 0 }]);
    expect(pushdown.ids).toBe(undefined);
    expect(pushdown.complete).toBe(false);
  });

  test('is computed only if it is read, from the properties that it needs', () => {
    expect(plan('SELECT VALUE c.name FROM c').documentProperties).toEqual(['name']);
    expect(plan('SELECT VALUE c.cp_net FROM c').documentProperties).toEqual(['price', 'discount']);
    expect(plan('SELECT VALUE c.cp_key FROM c').needsBody).toBe(false);
  });
});

describe('the definition of a computed property', () => {
  const check = (query: string) => () => checkComputedProperties([...computed, { name: 'cp_new', query }], 10_000);

  test('may be any expression of the document', () => {
    for (const query of [
      'SELECT VALUE c FROM c',
      'SELECT VALUE SUBSTRING(c.a.b[0], 0, 2) FROM c',
      'SELECT VALUE c.a ? 1 : [c.b, {"x": -c.d}] FROM c',
      "SELECT VALUE c.a LIKE '%x%' AND c.b BETWEEN 1 AND 2 OR c.d IN (1, 2) FROM MyContainer c",
    ]) {
      expect(check(query)).not.toThrow();
    }
  });

  test.each([
    ['SELECT c.a FROM c', 'SELECT VALUE'],
    ['SELECT * FROM c', 'SELECT VALUE'],
    ['SELECT VALUE 1', 'FROM'],
    ['SELECT VALUE t FROM t IN c.tags', 'FROM'],
    ['SELECT VALUE a FROM c.a', 'FROM'],
    ['SELECT VALUE d FROM (SELECT VALUE c FROM c) AS d', 'FROM'],
    ['SELECT VALUE t FROM c JOIN t IN c.tags', 'JOIN'],
    ['SELECT VALUE c.a FROM c WHERE c.b', 'WHERE'],
    ['SELECT DISTINCT VALUE c.a FROM c', 'DISTINCT'],
    ['SELECT TOP 1 VALUE c.a FROM c', 'TOP'],
    ['SELECT VALUE c.a FROM c ORDER BY c.a', 'ORDER BY'],
    ['SELECT VALUE c.a FROM c GROUP BY c.a', 'GROUP BY'],
    ['SELECT VALUE c.a FROM c OFFSET 1 LIMIT 1', 'OFFSET'],
    ['SELECT VALUE COUNT(c.a) FROM c', 'aggregates'],
    ['SELECT VALUE 1 + (SELECT VALUE c.a) FROM c', 'subqueries'],
    ['SELECT VALUE EXISTS(SELECT VALUE 1) FROM c', 'subqueries'],
    ['SELECT VALUE [GetCurrentTimestamp()] FROM c', 'value changes'],
    ['SELECT VALUE {"a": RAND()} FROM c', 'value changes'],
    ['SELECT VALUE udf.f(c.a) FROM c', 'user-defined'],
    ['SELECT VALUE ST_DISTANCE(c.a, c.b) FROM c', 'spatial'],
    ['SELECT VALUE c.a + @p FROM c', 'parameters'],
    ['SELECT VALUE d.a FROM c', 'd'],
    ['SELECT VALUE NOSUCH(c.a) FROM c', 'NOSUCH'],
    ['SELECT VALUE LOWER() FROM c', 'LOWER'],
    ['SELECT VALUE c.cp_lower FROM c', 'cp_lower'],
    ['SELECT VALUE', ''],
  ])('is refused: %s', (query, why) => {
    expect(check(query)).toThrow(new RegExp(why));
  });
});

test('a computed property that is read thousands of times is parsed once', () => {
  const query = `SELECT VALUE ${Array.from({ length: 400 }, (_, n) => `(c.t${n} ?? 'x')`).join(' || ')} FROM c`;
  const sql = `SELECT VALUE ARRAY_LENGTH([${Array<string>(20_000).fill('c.p').join()}]) FROM c`;
  const before = process.threadCpuUsage().user;
  planQuery(parseQuery(sql), [], { computedProperties: [{ name: 'p', query }] });
  // It used to take more than a minute.
  expect(process.threadCpuUsage().user - before).toBeLessThan(1_500_000);
});
