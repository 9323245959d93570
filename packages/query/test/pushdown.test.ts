import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  Chosen,
  choosingPlan,
  evaluate,
  matches,
  parseQuery,
  planQuery,
  QueryError,
  sparingPlan,
  startEvaluation,
  withoutValues,
} from '../src/index.ts';
import type { Json, PathComparison, Pushdown, QueryPlan, Value } from '../src/index.ts';

const planOf = (sql: string): QueryPlan =>
  planQuery(parseQuery(sql), [
    { name: '@a', value: 'a' },
    { name: '@list', value: ['a', 'b'] },
  ]);

describe('pushdown', () => {
  const none = { equals: [], paths: [], complete: true };
  it.each<[string, Partial<Pushdown>]>([
    ['SELECT * FROM c', none],
    ['SELECT * FROM c WHERE true', none],
    ["SELECT * FROM c WHERE c.id = 'a'", { ids: ['a'], complete: true }],
    ['SELECT * FROM c WHERE @a = c["id"]', { ids: ['a'], complete: true }],
    ["SELECT * FROM c WHERE c.id IN ('a', 'b') AND c.id = 'b'", { ids: ['b'], complete: true }],
    ["SELECT * FROM c WHERE c.id = 'a' OR c.id IN ('b')", { ids: ['a', 'b'], complete: true }],
    ['SELECT * FROM c WHERE ARRAY_CONTAINS(@list, c.id)', { ids: ['a', 'b'], complete: true }],
    ['SELECT * FROM c WHERE c.id = 5', { ids: [], complete: true }],
    ["SELECT * FROM c WHERE c.id = 'a' OR c.x = 1", { complete: false, paths: [] }],
    ["SELECT * FROM c WHERE c.id = 'a' OR c.id > 'b'", { complete: false, paths: [] }],
    ["SELECT * FROM c WHERE c.id > 'a'", { complete: false, paths: [{ path: ['id'], op: '>', values: ['a'] }] }],
    ["SELECT * FROM c WHERE NOT (c.id = 'a')", { complete: false, paths: [] }],
    ['SELECT * FROM c WHERE c._ts > 5 AND c._ts <= 9.5', { ts: { min: 6, max: 9 }, complete: true }],
    ['SELECT * FROM c WHERE 5.5 < c._ts AND c._ts < 9', { ts: { min: 6, max: 8 }, complete: true }],
    ['SELECT * FROM c WHERE c._ts BETWEEN 5 AND 2 + 7', { ts: { min: 5, max: 9 }, complete: true }],
    ['SELECT * FROM c WHERE c._ts = 7', { ts: { min: 7, max: 7 }, complete: true }],
    ["SELECT * FROM c WHERE c._ts > '5'", { complete: false }],
    [
      "SELECT * FROM c WHERE c.pk = LOWER('A') AND c.n > 1 AND c.id = 'a'",
      {
        ids: ['a'],
        equals: [
          { path: ['pk'], value: 'a' },
          { path: ['id'], value: 'a' },
        ],
        complete: false,
      },
    ],
    [
      'SELECT * FROM c WHERE c.a.b["c d"] = null',
      { equals: [{ path: ['a', 'b', 'c d'], value: null }], complete: false },
    ],
    ['SELECT * FROM c WHERE c.a = [1]', { equals: [], paths: [], complete: false }],
    ['SELECT * FROM c WHERE c.a = undefined', { equals: [], paths: [], complete: false }],
    ['SELECT * FROM c WHERE c.a[0] = 1', { equals: [], paths: [], complete: false }],
    ["SELECT VALUE x FROM c JOIN x IN c.list WHERE c.id = 'a' AND x.id = 'b'", { ids: ['a'], complete: false }],
    ["SELECT VALUE x FROM x IN c.list WHERE x.id = 'a'", { equals: [], paths: [], complete: false }],
    [
      "SELECT VALUE x.id FROM (SELECT * FROM c WHERE c.id = 'a') AS x WHERE x.id = 'b'",
      { ids: ['a'], complete: false },
    ],
    ['SELECT 1 WHERE 1 = 1', none],
    [
      "SELECT * FROM c WHERE (c.id = 'a' AND c.pk = 1) OR ('b' = c.id AND c.pk = 2 AND c.n > 5 AND NOT IS_NULL(c.x))",
      {
        alternatives: [
          [
            { path: ['id'], value: 'a' },
            { path: ['pk'], value: 1 },
          ],
          [
            { path: ['id'], value: 'b' },
            { path: ['pk'], value: 2 },
          ],
        ],
        equals: [],
        complete: false,
      },
    ],
    [
      "SELECT * FROM c WHERE (c.id = 'a' AND c.pk = 1) OR c.n > 5",
      {
        alternatives: [
          [
            { path: ['id'], value: 'a' },
            { path: ['pk'], value: 1 },
          ],
          [],
        ],
      },
    ],
    ["SELECT * FROM c WHERE NOT ((c.id = 'a' AND c.pk = 1) OR (c.id = 'b' AND c.pk = 2))", { complete: false }],
  ])('%s', (sql, expected) => {
    expect(planOf(sql).pushdown).toMatchObject(expected);
    if (expected.ids === undefined) expect(planOf(sql).pushdown.ids).toBe(undefined);
    if (expected.ts === undefined) expect(planOf(sql).pushdown.ts).toBe(undefined);
    if (sql.includes('NOT (')) expect(planOf(sql).pushdown.alternatives).toBe(undefined);
  });
});

describe('the properties of a plan', () => {
  it.each([
    ['SELECT * FROM c', { streaming: true, needsBody: true, countOnly: false, documentProperties: undefined }],
    ['SELECT c.id FROM c WHERE c._ts > 1', { streaming: true, needsBody: false, documentProperties: ['_ts', 'id'] }],
    ["SELECT c.id FROM c WHERE c.pk = 'a'", { streaming: true, needsBody: true, documentProperties: ['pk', 'id'] }],
    ['SELECT VALUE x FROM c JOIN x IN c.list', { streaming: true, needsBody: true, documentProperties: ['list'] }],
    ['SELECT VALUE 1 FROM c', { streaming: true, needsBody: false }],
    ['SELECT TOP 1 * FROM c', { streaming: false, top: 1 }],
    ['SELECT * FROM c OFFSET 1 LIMIT 2', { streaming: false, offset: 1, limit: 2 }],
    ['SELECT * FROM c ORDER BY c.a', { streaming: false }],
    ['SELECT DISTINCT * FROM c', { streaming: false }],
    ['SELECT c.a FROM c GROUP BY c.a', { streaming: false }],
    ['SELECT VALUE 1', { streaming: false, readsDocuments: false, needsBody: false }],
    ['SELECT VALUE x FROM (SELECT VALUE c.a FROM c) AS x', { streaming: true, needsBody: true }],
    ['SELECT VALUE COUNT(1) FROM (SELECT c.id FROM c) AS x', { streaming: false, needsBody: false, countOnly: false }],
    ['SELECT VALUE COUNT(1) FROM c', { countOnly: true, needsBody: false, streaming: false }],
    ["SELECT VALUE COUNT('x') FROM c WHERE c.id = 'a' AND c._ts >= 1", { countOnly: true, needsBody: false }],
    ['SELECT VALUE COUNT(c) FROM c', { countOnly: true, needsBody: false }],
    ['SELECT VALUE COUNT(c.a) FROM c', { countOnly: false, needsBody: true }],
    ['SELECT VALUE COUNT(undefined) FROM c', { countOnly: false }],
    ['SELECT COUNT(1) FROM c', { countOnly: false, needsBody: false }],
    ["SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'a'", { countOnly: false, needsBody: true }],
    ['SELECT VALUE COUNT(1) FROM c JOIN x IN c.list', { countOnly: false, needsBody: true }],
    ['SELECT TOP 1 VALUE COUNT(1) FROM c', { countOnly: false }],
    ['SELECT VALUE COUNT(1) FROM c GROUP BY c.id', { countOnly: false }],
    ['SELECT VALUE COUNT(1) + 1 FROM c', { countOnly: false }],
  ])('%s', (sql, expected) => {
    expect(planOf(sql)).toMatchObject(expected);
  });
});

describe('the documents of an ordered answer', () => {
  it.each([
    ['SELECT * FROM c ORDER BY c._ts DESC', ['c', 'a', 'd', 'b']],
    ['SELECT TOP 5 c.a, c.b FROM c ORDER BY c["id"], c._ts', ['a', 'b', 'c', 'd']],
    ['SELECT VALUE d FROM c AS d WHERE d._ts >= 5 AND d.id != @a ORDER BY d._ts OFFSET 2 LIMIT 9', ['c']],
    ['SELECT [c.a] AS keys, c AS payload FROM c WHERE true ORDER BY c._ts', ['b', 'd', 'a', 'c']],
  ])('can be chosen by id and _ts alone: %s', (sql, expected) => {
    const parameters = [{ name: '@a', value: 'a' }];
    const chooser = choosingPlan(planQuery(parseQuery(sql), parameters), parameters, {})!;
    expect(chooser).toMatchObject({ needsBody: false });
    const stubs = ['b', 'a', 'c', 'd'].map((id, index) => ({ id, _ts: 5 + (index % 3) }));
    const chosen = [...evaluate(chooser, stubs)].map((row) => Chosen.documentOf(row));
    expect(chosen).toEqual(expected.map((id) => stubs.find((stub) => stub.id === id)));
    expect(chosen.every((row) => stubs.includes(row as never))).toBe(true);
  });

  it.each([
    'SELECT * FROM c',
    'SELECT c.id FROM c ORDER BY c._ts',
    'SELECT * FROM c ORDER BY c.n',
    'SELECT * FROM c ORDER BY c._ts, c.n',
    'SELECT * FROM c ORDER BY c.part.id',
    'SELECT * FROM c WHERE c.n > 1 ORDER BY c._ts',
    'SELECT * FROM c WHERE EXISTS (SELECT VALUE x FROM x IN c.list) ORDER BY c._ts',
    'SELECT VALUE c.a FROM c ORDER BY c._ts',
    'SELECT DISTINCT c.a FROM c ORDER BY c._ts',
    'SELECT c.id, MAX(c.a) AS high FROM c GROUP BY c.id ORDER BY c.id',
    'SELECT x FROM c JOIN x IN c.list ORDER BY c._ts',
    'SELECT * FROM c ORDER BY RANK FullTextScore(c.id, "a")',
    'SELECT d.a FROM (SELECT c.a, c.id FROM c) AS d ORDER BY d.id',
  ])('can’t be chosen by id and _ts alone, or need not be opened: %s', (sql) => {
    expect(choosingPlan(planOf(sql), [], {})).toBe(undefined);
  });
});

describe('the conditions on id and _ts that rule a document out', () => {
  const STUBS = ['a', 'b', 'c'].map((id, index) => ({ id, _ts: 5 + index }));
  it.each([
    ["SELECT * FROM c WHERE c.id != 'b'", ['a', 'c']],
    ['SELECT TOP 1 c.n FROM c WHERE c.n > 1 AND c.id NOT IN (@a, "c") ORDER BY c.n', ['b']],
    ['SELECT c.n, COUNT(1) FROM c WHERE c._ts < 7 AND (c.n = 1 AND NOT (c.id = "b")) GROUP BY c.n', ['a']],
    ['SELECT DISTINCT d.n FROM c AS d JOIN x IN d.list WHERE x.id = "a" AND d.id > "a" OFFSET 1 LIMIT 1', ['b', 'c']],
    ['SELECT VALUE x.n FROM (SELECT * FROM c WHERE c.id != "a" AND c.n = 1) AS x WHERE x.id != "b"', ['b', 'c']],
    ['SELECT * FROM c WHERE c.id = 5 AND c.n = 1', []],
  ])('are the part of the filter that needs no content: %s', (sql, left) => {
    const parameters = [{ name: '@a', value: 'a' }];
    const sparing = sparingPlan(planQuery(parseQuery(sql), parameters), parameters, {})!;
    expect(STUBS.filter((stub) => matches(sparing, stub)).map(({ id }) => id)).toEqual(left);
  });

  it.each([
    'SELECT * FROM c',
    "SELECT * FROM c WHERE c.n = 1 OR c.id != 'b'",
    "SELECT VALUE x FROM x IN c.list WHERE x.id != 'b'",
    "SELECT VALUE s FROM c.sub AS s WHERE s.id != 'b'",
    "SELECT * FROM c WHERE EXISTS (SELECT VALUE x FROM x IN c.list WHERE c.id != 'b')",
    "SELECT VALUE x FROM (SELECT c.a AS id FROM c) AS x WHERE x.id != 'b'",
    "SELECT * FROM c WHERE c.id != 'b' ORDER BY RANK FullTextScore(c.text, 'a')",
  ])('don’t exist in: %s', (sql) => {
    expect(sparingPlan(planOf(sql), [], {})).toBe(undefined);
  });
});

describe('the number of rows that documents have', () => {
  const DOCUMENTS = [
    { id: 'a', n: 1, list: [1, 2] },
    { id: 'b', n: 2, list: [] },
    { id: 'c', sub: { n: 1 } },
  ];
  it.each([
    ['SELECT * FROM c', false],
    ['SELECT c.x, c.n AS y FROM c WHERE c.id != "b"', false],
    ['SELECT VALUE d FROM c AS d WHERE d._ts > 1', false],
    ['SELECT VALUE c FROM c JOIN x IN c.list WHERE x > 1', true],
    ['SELECT VALUE c.n FROM c', true],
    ['SELECT VALUE s FROM c.sub AS s', true],
    ['SELECT * FROM c.sub', true],
    ['SELECT * FROM x IN c.list WHERE x > 1', true],
    ['SELECT VALUE x FROM (SELECT VALUE c.n FROM c) AS x', true],
  ])('is the same without the rows’ values: %s', (sql, needsBody) => {
    const [whole, plan] = [parseQuery(sql), withoutValues(parseQuery(sql))].map((query) => planQuery(query));
    const rowsOf = (of: QueryPlan) => DOCUMENTS.map((document) => [...evaluate(of, [document])].length);
    expect(rowsOf(plan!)).toEqual(rowsOf(whole!));
    expect(plan!.needsBody).toBe(needsBody);
  });
});

function read(document: Json, path: readonly string[]): Value {
  let value: Value = document;
  for (const key of path) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    value = Object.hasOwn(value, key) ? value[key] : undefined;
  }
  return value;
}

/** A store's comparison, written independently of the package's. */
function passes(value: Value, { op, values }: PathComparison): boolean {
  if (op === 'in' || op === '=') return values.some((other) => value === other);
  const [other] = values;
  if (value === null && other === null) return op === '<=' || op === '>=';
  if (typeof value !== typeof other || typeof value === 'object' || value === undefined) return false;
  const [x, y] = [value as number, other as number];
  return op === '<' ? x < y : op === '<=' ? x <= y : op === '>' ? x > y : x >= y;
}

function decided(document: Json, { ids, ts }: Pushdown): boolean {
  const id = read(document, ['id']);
  const seconds = read(document, ['_ts']);
  return (
    (ids === undefined || (typeof id === 'string' && ids.includes(id))) &&
    (ts === undefined || (Number(seconds) >= (ts.min ?? -Infinity) && Number(seconds) <= (ts.max ?? Infinity)))
  );
}

const primitive = fc.constantFrom<Json>(null, true, false, 0, 1, 2.5, 3, '', 'a', 'b', '1');
const documentArbitrary = fc.record(
  {
    id: fc.constantFrom('a', 'b', 'c'),
    _ts: fc.integer({ min: 0, max: 4 }),
    n: primitive,
    o: fc.oneof(primitive, fc.record({ p: primitive })),
    list: fc.array(fc.oneof(primitive, fc.record({ n: primitive })), { maxLength: 3 }),
  },
  { requiredKeys: ['id', '_ts'] },
) as fc.Arbitrary<Json>;

const pathArbitrary = fc.constantFrom('c.id', 'c._ts', 'c.n', 'c.o.p', 'c["n"]', 'c.list[0]', 'c.list');
const constantArbitrary = primitive.map((value) => JSON.stringify(value));
const comparisonArbitrary = fc.oneof(
  fc
    .tuple(pathArbitrary, fc.constantFrom('=', '!=', '<', '<=', '>', '>='), constantArbitrary)
    .map((parts) => parts.join(' ')),
  fc.tuple(constantArbitrary, fc.constantFrom('=', '<', '>='), pathArbitrary).map((parts) => parts.join(' ')),
  fc
    .tuple(pathArbitrary, fc.constantFrom('IN', 'NOT IN'), fc.array(constantArbitrary, { minLength: 1, maxLength: 3 }))
    .map(([path, operator, values]) => `${path} ${operator} (${values.join(', ')})`),
  fc
    .tuple(pathArbitrary, constantArbitrary, constantArbitrary)
    .map(([path, low, high]) => `${path} BETWEEN ${low} AND ${high}`),
  fc
    .tuple(fc.array(constantArbitrary, { maxLength: 3 }), pathArbitrary)
    .map(([values, path]) => `ARRAY_CONTAINS([${values.join(',')}], ${path})`),
  fc.tuple(pathArbitrary, pathArbitrary).map(([a, b]) => `${a} = ${b}`),
  fc.constantFrom(
    'true',
    'false',
    'undefined',
    'IS_DEFINED(c.n)',
    'EXISTS(SELECT VALUE x FROM x IN c.list WHERE x = 1)',
  ),
);
const { condition: conditionArbitrary } = fc.letrec<{ condition: string }>((tie) => ({
  condition: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    comparisonArbitrary,
    fc
      .tuple(tie('condition'), fc.constantFrom('AND', 'AND', 'OR'), tie('condition'))
      .map(([a, operator, b]) => `(${a} ${operator} ${b})`),
    tie('condition').map((inner) => `NOT (${inner})`),
  ),
}));

describe('documents left out by the pushdown', () => {
  const queries = [
    (where: string) => `SELECT * FROM c WHERE ${where}`,
    (where: string) => `SELECT c.id, c.n FROM c WHERE ${where} ORDER BY c.n DESC`,
    (where: string) => `SELECT c.id, COUNT(1) AS k FROM c WHERE ${where} GROUP BY c.id`,
    (where: string) => `SELECT VALUE x FROM c JOIN x IN c.list WHERE ${where}`,
    (where: string) => `SELECT VALUE COUNT(1) FROM c WHERE ${where}`,
  ];

  it('would have had no row', () => {
    fc.assert(
      fc.property(
        conditionArbitrary,
        fc.constantFrom(...queries),
        fc.array(documentArbitrary, { maxLength: 12 }),
        (where, query, documents) => {
          const plan = planOf(query(where));
          const { pushdown } = plan;
          const kept = documents.filter(
            (document) =>
              decided(document, pushdown) &&
              pushdown.paths.every((comparison) => passes(read(document, comparison.path), comparison)) &&
              pushdown.equals.every(({ path, value }) => read(document, path) === value),
          );
          const rows = [...evaluate(plan, documents)];
          expect([...evaluate(plan, kept)]).toEqual(rows);
          if (plan.countOnly)
            expect(rows).toEqual([documents.filter((document) => decided(document, pushdown)).length]);
          if (!plan.needsBody) {
            const bare = documents.map((document) => ({
              id: read(document, ['id']) as Json,
              _ts: read(document, ['_ts']) as Json,
            }));
            expect([...evaluate(plan, bare)]).toEqual(rows);
          }
          const pushed = startEvaluation(plan);
          const given = [];
          for (let taken = 0; taken < documents.length;) {
            taken = pushed.offer(documents, taken);
            given.push(...pushed.takeRows());
          }
          expect(pushed.wantsDocuments).toBe(true);
          Array.from(pushed.finishing());
          expect([...given, ...pushed.takeRows()]).toEqual(rows);
          if (plan.streaming) {
            expect(documents.flatMap((document) => [...evaluate(plan, [document])])).toEqual(rows);
          }
        },
      ),
      { numRuns: 1_500 },
    );
  });

  it('include all that fail the filter, if the pushdown is complete', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(
            fc.tuple(fc.constantFrom('=', 'IN'), fc.constantFrom('a', 'b')).map(([op, id]) => `c.id ${op} ('${id}')`),
            fc
              .tuple(fc.constantFrom('=', '<', '<=', '>', '>='), fc.constantFrom(0, 1, 1.5, 2, 3))
              .map(([op, n]) => `c._ts ${op} ${n}`),
          ),
          { minLength: 1, maxLength: 4 },
        ),
        fc.array(documentArbitrary, { maxLength: 12 }),
        (conditions, documents) => {
          const plan = planOf(`SELECT * FROM c WHERE ${conditions.join(' AND ')}`);
          expect(plan.pushdown.complete).toBe(true);
          expect(documents.filter((document) => decided(document, plan.pushdown))).toEqual([
            ...evaluate(plan, documents),
          ]);
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe('random text', () => {
  const words =
    "SELECT VALUE DISTINCT TOP FROM WHERE GROUP BY ORDER ASC DESC OFFSET LIMIT JOIN IN AS AND OR NOT LIKE BETWEEN ESCAPE EXISTS ARRAY ALL FIRST UNDEFINED NULL TRUE c x c.a c.list c.list[0] * ( ) [ ] { } , . : ? ?? || + - / % & | ^ ~ << >> >>> = != <> < <= 1 0x1 2.5 'a' \"b\" @a @list @nope COUNT SUM MAX MAKELIST LEFT CONCAT ABS REGEXMATCH GetCurrentTimestamp udf -- /* */ ' \\ ; ORDER\u0020BY GROUP\u0020BY SELECT\u0020VALUE FROM\u0020c".split(
      ' ',
    );
  const run = (sql: string): void => {
    try {
      for (const _row of evaluate(planOf(sql), [{ id: 'a', a: 1, list: [1, 'x'] }], { nowMs: 0 })) continue;
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
    }
  };

  it('makes the parser throw nothing but QueryErrors', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...words), { maxLength: 20 }), (parts) => run(parts.join(' '))),
      { numRuns: 3_000 },
    );
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (text) => run(`SELECT VALUE ${text}`)),
      { numRuns: 1_000 },
    );
    fc.assert(
      fc.property(conditionArbitrary, fc.nat(), fc.nat(), fc.string({ maxLength: 2 }), (where, at, cut, text) => {
        const sql = `SELECT c.a, COUNT(1) FROM c JOIN x IN c.list WHERE ${where} GROUP BY c.a ORDER BY c.a OFFSET 1 LIMIT 2`;
        const index = at % sql.length;
        run(sql.slice(0, index) + text + sql.slice(index + (cut % 10)));
      }),
      { numRuns: 2_000 },
    );
  });
});
