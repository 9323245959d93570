import { describe, expect, it } from 'vitest';
import {
  evaluate,
  isOrdered,
  isRanked,
  matches,
  Memory,
  OrderedPage,
  parseCondition,
  parseQuery,
  planQuery,
  startAfter,
  startEvaluation,
} from '../src/index.ts';
import type { Json } from '../src/index.ts';
import { rows } from './run.ts';

/** Runs a generator to its end and returns its result. */
function lastOf<Result>(steps: Generator<void, Result>): Result {
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}

const many = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

const families = [
  {
    id: 'andersen',
    name: 'Andersen',
    city: 'Seattle',
    size: 3,
    children: [{ first: 'Henriette', grade: 5, pets: [{ name: 'Fluffy' }] }],
    _ts: 100,
  },
  {
    id: 'wakefield',
    name: 'Wakefield',
    city: 'NY',
    size: 4,
    children: [
      { first: 'Jesse', grade: 1, pets: [{ name: 'Goofy' }, { name: 'Shadow' }] },
      { first: 'Lisa', grade: 8 },
    ],
    _ts: 200,
  },
  { id: 'smith', city: 'NY', size: null, children: [], _ts: 300 },
];

describe('SELECT', () => {
  it.each([
    ["SELECT * FROM c WHERE c.id = 'smith'", [families[2]]],
    ["SELECT c.id, c.city AS town FROM c WHERE c.id = 'smith'", [{ id: 'smith', town: 'NY' }]],
    ["SELECT c.id, c.city town FROM c WHERE c.id = 'smith'", [{ id: 'smith', town: 'NY' }]],
    ["SELECT c FROM c WHERE c.id = 'smith'", [{ c: families[2] }]],
    [
      "SELECT c.size + 1, c.id, 'x', c['city'] FROM c WHERE c.id = 'andersen'",
      [{ $1: 4, id: 'andersen', $2: 'x', city: 'Seattle' }],
    ],
    ['SELECT c.id, c.name FROM c WHERE c.size = null', [{ id: 'smith' }]],
    ['SELECT VALUE c.name FROM c', ['Andersen', 'Wakefield']],
    ['SELECT VALUE c.name AS n FROM c', ['Andersen', 'Wakefield']],
    ['SELECT DISTINCT VALUE c.name n FROM c', ['Andersen', 'Wakefield']],
    ['SELECT VALUE {n: c.name} FROM c', [{ n: 'Andersen' }, { n: 'Wakefield' }, {}]],
    [
      'SELECT VALUE [c.id, c.size] FROM c',
      [
        ['andersen', 3],
        ['wakefield', 4],
        ['smith', null],
      ],
    ],
    ['SELECT DISTINCT c.city FROM c', [{ city: 'Seattle' }, { city: 'NY' }]],
    ['SELECT DISTINCT VALUE c.city FROM c', ['Seattle', 'NY']],
    ['SELECT TOP 1 c.id FROM c', [{ id: 'andersen' }]],
    ['SELECT TOP 0 c.id FROM c', []],
    ['SELECT DISTINCT TOP 1 VALUE c.city FROM c', ['Seattle']],
    ['SELECT VALUE c.id FROM c OFFSET 1 LIMIT 1', ['wakefield']],
    ['SELECT VALUE c.id FROM c OFFSET 5 LIMIT 1', []],
    ['SELECT VALUE c.id FROM c OFFSET 0 LIMIT 0', []],
    ['SELECT 1 AS one, 2', [{ one: 1, $1: 2 }]],
    ['SELECT 1 AS "the one", 2 \'two\'', [{ 'the one': 1, two: 2 }]],
    ['select value c.id from c where c.size >= 4', ['wakefield']],
    ['SELECT VALUE 1 FROM c WHERE undefined', []],
    ['SELECT VALUE c.id FROM c WHERE c.name', []],
    ['SELECT VALUE value.id FROM families value', 'error'],
    ['SELECT VALUE f.id FROM families AS f', ['andersen', 'wakefield', 'smith']],
    ['SELECT VALUE root.id FROM root', ['andersen', 'wakefield', 'smith']],
  ])('%s', (sql, expected) => {
    if (expected === 'error') expect(() => rows(sql, families)).toThrow('SC1001');
    else expect(rows(sql, families)).toEqual(expected);
  });

  it('binds parameters anywhere; one without a value or that is not given is undefined', () => {
    const parameters = [
      { name: '@id', value: 'smith' },
      { name: '@n', value: 2 },
      { name: '@none' },
      { name: '@ids', value: ['smith', 'andersen'] },
      { name: '@o', value: { a: [1] } },
    ];
    expect(rows('SELECT VALUE c.city FROM c WHERE c.id = @id', families, parameters)).toEqual(['NY']);
    expect(rows('SELECT TOP @n VALUE c.id FROM c', families, parameters)).toEqual(['andersen', 'wakefield']);
    expect(rows('SELECT VALUE c.id FROM c OFFSET @n LIMIT @n', families, parameters)).toEqual(['smith']);
    expect(rows('SELECT VALUE @none', [], parameters)).toEqual([]);
    expect(rows('SELECT @nowhere AS v, IS_DEFINED(@nowhere) AS d', [], parameters)).toEqual([{ d: false }]);
    expect(rows('SELECT VALUE c.id FROM c WHERE c.id = @nowhere', families)).toEqual([]);
    expect(rows('SELECT VALUE @o.a[0]', [], parameters)).toEqual([1]);
    expect(rows('SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)', families, parameters)).toEqual([
      'andersen',
      'smith',
    ]);
  });
});

describe('FROM', () => {
  it.each([
    ['SELECT VALUE x.first FROM x IN c.children', ['Henriette', 'Jesse', 'Lisa']],
    ['SELECT * FROM x IN c.children WHERE x.grade = 8', [{ first: 'Lisa', grade: 8 }]],
    ['SELECT VALUE children FROM c.children', families.map(({ children }) => children)],
    ['SELECT VALUE x FROM c.city AS x', ['Seattle', 'NY', 'NY']],
    ['SELECT VALUE x.first FROM c.children[1] x', ['Lisa']],
    ['SELECT VALUE c.first FROM c IN c.children', ['Henriette', 'Jesse', 'Lisa']],
    ['SELECT * FROM c.children[1]', [{ first: 'Lisa', grade: 8 }]],
    [
      'SELECT f.id, x.first FROM f JOIN x IN f.children',
      [
        { id: 'andersen', first: 'Henriette' },
        { id: 'wakefield', first: 'Jesse' },
        { id: 'wakefield', first: 'Lisa' },
      ],
    ],
    ['SELECT VALUE p.name FROM f JOIN x IN f.children JOIN p IN x.pets', ['Fluffy', 'Goofy', 'Shadow']],
    [
      'SELECT VALUE p FROM f JOIN (SELECT VALUE x.first FROM x IN f.children WHERE x.grade > 1) AS p',
      ['Henriette', 'Lisa'],
    ],
    ['SELECT VALUE f.id FROM f JOIN (SELECT VALUE x FROM x IN f.children)', ['andersen', 'wakefield', 'wakefield']],
    ["SELECT VALUE kv.k FROM f JOIN kv IN ObjectToArray({a: f.id, b: 1}) WHERE kv.v = 'andersen'", ['a']],
    ["SELECT VALUE u.n FROM f JOIN u IN (SELECT VALUE [{c: 'NY', n: 1}, {c: 'LA', n: 2}]) WHERE u.c = f.city", [1, 1]],
    ['SELECT VALUE x.id FROM (SELECT c.id, c.size FROM c WHERE c.size > 3) AS x', ['wakefield']],
    ['SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.city FROM c)', [2]],
    [
      'SELECT * FROM (SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.children))',
      ['andersen', 'wakefield'],
    ],
    [
      'SELECT VALUE {id: f.id, n: city} FROM f JOIN f.city',
      [
        { id: 'andersen', n: 'Seattle' },
        { id: 'wakefield', n: 'NY' },
        { id: 'smith', n: 'NY' },
      ],
    ],
  ])('%s', (sql, expected) => {
    expect(rows(sql, families)).toEqual(expected);
  });
});

describe('subqueries', () => {
  it.each([
    ['SELECT VALUE (SELECT VALUE COUNT(1) FROM x IN c.children) FROM c', [1, 2, 0]],
    [
      'SELECT c.id, (SELECT VALUE SUM(x.grade) FROM x IN c.children) AS s FROM c',
      [
        { id: 'andersen', s: 5 },
        { id: 'wakefield', s: 9 },
        { id: 'smith', s: 0 },
      ],
    ],
    [
      "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE p FROM x IN c.children JOIN p IN x.pets WHERE p.name = 'Shadow')",
      ['wakefield'],
    ],
    ['SELECT VALUE c.id FROM c WHERE NOT EXISTS (SELECT 1 FROM x IN c.children)', ['smith']],
    ['SELECT VALUE ARRAY(SELECT VALUE x.first FROM x IN c.children) FROM c', [['Henriette'], ['Jesse', 'Lisa'], []]],
    [
      'SELECT VALUE ARRAY(SELECT VALUE x.first FROM x IN c.children ORDER BY x.grade DESC) FROM c',
      [['Henriette'], ['Lisa', 'Jesse'], []],
    ],
    ['SELECT VALUE ARRAY(SELECT TOP 1 VALUE x.grade FROM x IN c.children) FROM c', [[5], [1], []]],
    [
      'SELECT VALUE c.id FROM c WHERE ALL(SELECT VALUE x FROM x IN c.children WHERE x.grade > 1)',
      ['andersen', 'smith'],
    ],
    [
      'SELECT VALUE c.id FROM c WHERE ALL(SELECT VALUE x FROM x IN c.children WHERE x.pets[0].name = "Fluffy")',
      ['andersen', 'smith'],
    ],
    [
      'SELECT VALUE c.id FROM c WHERE ALL(SELECT VALUE x FROM x IN c.children WHERE x.age > 1)',
      ['andersen', 'wakefield', 'smith'],
    ],
    ['SELECT VALUE c.id FROM c WHERE ALL(SELECT VALUE x FROM x IN c.children)', ['andersen', 'wakefield', 'smith']],
    ['SELECT VALUE FIRST(SELECT VALUE x.first FROM x IN c.children) FROM c', ['Henriette', 'Jesse']],
    ['SELECT VALUE LAST(SELECT VALUE x.first FROM x IN c.children) FROM c', ['Henriette', 'Lisa']],
    ['SELECT VALUE (SELECT VALUE c.id) FROM c', ['andersen', 'wakefield', 'smith']],
    [
      'SELECT VALUE ARRAY(SELECT x.grade, COUNT(1) AS n FROM x IN c.children GROUP BY x.grade) FROM c WHERE c.id = "andersen"',
      [[{ grade: 5, n: 1 }]],
    ],
  ])('%s', (sql, expected) => {
    expect(rows(sql, families)).toEqual(expected);
  });

  it('refuses a scalar subquery of several rows', () => {
    expect(() => rows('SELECT VALUE (SELECT VALUE x FROM x IN c.children) FROM c', families)).toThrow('Cardinality');
  });
});

describe('aggregates', () => {
  const items: Json[] = [
    { g: 'a', n: 1, s: 'x' },
    { g: 'b', n: 5, s: 'y' },
    { g: 'a', n: 3 },
    { g: 'b', s: 'x' },
    { n: 2 },
  ];
  it.each([
    ['SELECT VALUE COUNT(1) FROM c', [5]],
    ['SELECT VALUE COUNT(c.n) FROM c', [4]],
    ['SELECT VALUE COUNT(undefined) FROM c', [0]],
    ['SELECT VALUE COUNT(null) FROM c', [5]],
    [
      'SELECT COUNT(1) AS n, SUM(c.n) AS s, AVG(c.n) AS a, MIN(c.n), MAX(c.s) FROM c',
      [{ n: 5, s: 11, a: 2.75, $1: 1, $2: 'y' }],
    ],
    ['SELECT VALUE SUM(c.n) + 1 FROM c', [12]],
    ['SELECT VALUE {total: SUM(c.n), twice: SUM(c.n * 2)} FROM c', [{ total: 11, twice: 22 }]],
    ['SELECT VALUE SUM(c.s) FROM c', []],
    ['SELECT VALUE AVG(c.s) FROM c', []],
    ['SELECT SUM(c.s) AS s, COUNT(1) AS n FROM c', [{ n: 5 }]],
    ['SELECT VALUE MIN([c.n]) FROM c', []],
    ['SELECT VALUE MAX(c.s ?? c.n) FROM c', ['y']],
    ['SELECT VALUE COUNTIF(c.n > 1) FROM c', [3]],
    ['SELECT VALUE MAKELIST(c.s) FROM c', [['x', 'y', 'x']]],
    ['SELECT VALUE MAKESET(c.s) FROM c', [['x', 'y']]],
    ['SELECT VALUE COUNT(1) FROM c WHERE false', [0]],
    ['SELECT VALUE SUM(c.n) FROM c WHERE false', [0]],
    ['SELECT VALUE SUM(c.n) FROM c ORDER BY c.n', [11]],
    ['SELECT VALUE COUNT(1) FROM c ORDER BY COUNT(1) DESC', [5]],
    ['SELECT VALUE MIN(c.n) FROM c WHERE false', []],
    ['SELECT TOP 0 VALUE COUNT(1) FROM c', []],
    ['SELECT VALUE COUNT(1) FROM c OFFSET 0 LIMIT 0', []],
    ['SELECT VALUE ARRAY(SELECT TOP 0 VALUE COUNT(1)) FROM c OFFSET 0 LIMIT 1', [[]]],
    ['SELECT SUM(c.n) FROM c WHERE false', [{ $1: 0 }]],
    ['SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g', [{ k: 1 }, { g: 'a', k: 2 }, { g: 'b', k: 2 }]],
    ['SELECT c.g FROM c GROUP BY c.g', [{}, { g: 'a' }, { g: 'b' }]],
    ['SELECT VALUE c["g"] FROM c GROUP BY c.g', ['a', 'b']],
    [
      'SELECT c.g || "!" AS g, SUM(c.n) FROM c WHERE IS_DEFINED(c.g) GROUP BY c.g',
      [
        { g: 'a!', $1: 4 },
        { g: 'b!', $1: 5 },
      ],
    ],
    ['SELECT VALUE LOWER(c.s) FROM c GROUP BY LOWER(c.s)', ['x', 'y']],
    ['SELECT VALUE COUNT(1) FROM c GROUP BY c.g, c.s', [1, 1, 1, 1, 1]],
    [
      'SELECT c.g, COUNT(1) AS k FROM c WHERE IS_DEFINED(c.g) GROUP BY c.g ORDER BY c.g DESC',
      [
        { g: 'b', k: 2 },
        { g: 'a', k: 2 },
      ],
    ],
    ['SELECT VALUE c.g FROM c GROUP BY c.g OFFSET 1 LIMIT 1', ['b']],
    ['SELECT VALUE COUNT(1) FROM c WHERE false GROUP BY c.g', []],
    ['SELECT VALUE (SELECT VALUE c.g) FROM c GROUP BY c.g', ['a', 'b']],
  ])('%s', (sql, expected) => {
    expect(rows(sql, items)).toEqual(expected);
  });

  it.each([
    ['SELECT COUNT(1), c.n FROM c', 'GROUP BY'],
    ['SELECT c.n FROM c GROUP BY c.g', 'GROUP BY'],
    ['SELECT * FROM c GROUP BY c.g', 'SELECT *'],
    ['SELECT VALUE 1 FROM c WHERE COUNT(1) > 1', "can't be used here"],
    ['SELECT VALUE SUM(COUNT(1)) FROM c', 'Cannot perform an aggregate function'],
    ['SELECT VALUE COUNT() FROM c', 'argument'],
  ])('%s is refused', (sql, message) => {
    expect(() => rows(sql, items)).toThrow(message);
  });
});

describe('ORDER BY', () => {
  const mixed = [
    { v: 'b' },
    { v: 2 },
    {},
    { v: [1] },
    { v: null },
    { v: true },
    { v: { a: 1 } },
    { v: false },
    { v: 'a' },
    { v: -1 },
  ];
  const ordered = [undefined, null, false, true, -1, 2, 'a', 'b', [1], { a: 1 }];

  it('puts types in the order of Cosmos DB and keeps undefined', () => {
    expect(rows('SELECT c.v FROM c ORDER BY c.v', mixed)).toEqual(ordered.map((v) => (v === undefined ? {} : { v })));
    expect(rows('SELECT c.v FROM c ORDER BY c.v DESC', mixed)).toEqual(
      ordered.toReversed().map((v) => (v === undefined ? {} : { v })),
    );
  });

  it.each([
    ['c.a, c.b DESC', 1, -1, 1],
    ['c.a DESC, c.b', -1, 1, -1],
    ['c.a DESC, c.b DESC', -1, -1, -1],
  ])('is stable, reversed where the first key is descending, also with a bounded heap: %s', (keys, a, b, last) => {
    const documents = Array.from({ length: 300 }, (_, n) => ({ n, a: (n * 7) % 10, b: (n * 13) % 4 }));
    const expected = documents
      .toSorted((x, y) => a * (x.a - y.a) || b * (x.b - y.b) || last * (x.n - y.n))
      .map(({ n }) => n);
    expect(rows(`SELECT VALUE c.n FROM c ORDER BY ${keys}`, documents)).toEqual(expected);
    for (const limit of [1, 2, 17, 299, 300, 301]) {
      expect(rows(`SELECT TOP ${limit} VALUE c.n FROM c ORDER BY ${keys}`, documents)).toEqual(
        expected.slice(0, limit),
      );
      expect(rows(`SELECT VALUE c.n FROM c ORDER BY ${keys} OFFSET 7 LIMIT ${limit}`, documents)).toEqual(
        expected.slice(7, 7 + limit),
      );
    }
  });

  it('combines with DISTINCT and with rows that are undefined', () => {
    expect(rows('SELECT DISTINCT TOP 2 VALUE c.city FROM c ORDER BY c.city', families)).toEqual(['NY', 'Seattle']);
    expect(rows('SELECT TOP 1 VALUE c.name FROM c ORDER BY c._ts DESC', families)).toEqual(['Wakefield']);
  });

  it('orders groups and distinct rows by their own value where the order keys are equal, however they were found', () => {
    const documents = [{ list: ['b', 'c', 'a', 'b'] }];
    for (const [rest, expected] of [
      ['GROUP BY x ORDER BY COUNT(1)', ['a', 'c', 'b']],
      ['GROUP BY x ORDER BY COUNT(1) DESC', ['b', 'a', 'c']],
    ] as const) {
      expect(rows(`SELECT VALUE x FROM c JOIN x IN c.list ${rest}`, documents), rest).toEqual(expected);
      expect(rows(`SELECT VALUE ARRAY(SELECT VALUE x FROM x IN c.list ${rest}) FROM c`, documents), rest).toEqual([
        expected,
      ]);
    }
    const distinct = 'SELECT DISTINCT VALUE x FROM x IN c.list ORDER BY c.n';
    expect(rows(`SELECT VALUE ARRAY(${distinct}) FROM c`, documents)).toEqual([['a', 'b', 'c']]);
  });

  it('puts the most similar vectors first', () => {
    const vectors = [{ id: 'far', v: [-1, 0] }, { id: 'near', v: [1, 0.1] }, { id: 'none' }, { id: 'mid', v: [0, 1] }];
    const find = (rest: string): Json[] =>
      rows(`SELECT TOP 3 VALUE c.id FROM c WHERE IS_DEFINED(c.v) ORDER BY VectorDistance(c.v, [1, 0]${rest})`, vectors);
    expect(find('')).toEqual(['near', 'mid', 'far']);
    expect(find(", true, {distanceFunction: 'Euclidean'}")).toEqual(['near', 'mid', 'far']);
    expect(find(", false, {distanceFunction: 'DotProduct'}")).toEqual(['near', 'mid', 'far']);
  });

  it("uses the distance function of the container's policy unless the query names one", () => {
    const documents = [
      { id: 'a', v: [2, 0] },
      { id: 'b', v: [0, 2] },
    ];
    const find = (distanceFunction: string, rest = ''): Json[] => {
      const query = parseQuery(
        `SELECT TOP 2 VALUE VectorDistance(c.v, [1, 0]${rest}) FROM c ORDER BY VectorDistance(c.v, [1, 0]${rest})`,
      );
      const options = { name: '@options', value: { searchListSizeMultiplier: 20 } };
      const plan = planQuery(query, [options], { vectorEmbeddings: [{ path: '/v', distanceFunction }] });
      return [...evaluate(plan, documents)];
    };
    expect(find('euclidean')).toEqual([1, Math.sqrt(5)]);
    expect(find('dotproduct')).toEqual([2, 0]);
    expect(find('dotproduct', ", true, {distanceFunction: 'cosine'}")).toEqual([1, 0]);
    for (const rest of [
      ', true, {}',
      ", false, {searchListSizeMultiplier: 20, dataType: 'float32'}",
      ', true, @options',
    ]) {
      expect(find('euclidean', rest), rest).toEqual([1, Math.sqrt(5)]);
      expect(find('dotproduct', rest), rest).toEqual([2, 0]);
    }
    const named = planQuery(
      parseQuery('SELECT TOP 2 VALUE VectorDistance(c[@path], @v) FROM c ORDER BY VectorDistance(c[@path], @v)'),
      [
        { name: '@path', value: 'v' },
        { name: '@v', value: [1, 0] },
      ],
      { vectorEmbeddings: [{ path: '/v', distanceFunction: 'euclidean' }] },
    );
    expect([...evaluate(named, documents)]).toEqual([1, Math.sqrt(5)]);
  });
});

describe('evaluation', () => {
  const plan = (sql: string) => planQuery(parseQuery(sql));
  function* counted(counter: { taken: number }): Generator<Json> {
    for (;;) {
      counter.taken += 1;
      yield { n: counter.taken };
    }
  }

  it('takes only as many documents as the wanted rows need', () => {
    for (const [sql, wanted, taken] of [
      ['SELECT VALUE c.n FROM c WHERE c.n % 2 = 0', 2, 4],
      ['SELECT DISTINCT VALUE c.n FROM c', 3, 3],
    ] as const) {
      const counter = { taken: 0 };
      const result = evaluate(plan(sql), counted(counter)).take(wanted).toArray();
      expect([sql, result.length, counter.taken]).toEqual([sql, wanted, taken]);
    }
  });

  it.each([
    ['SELECT TOP 3 * FROM c', 3],
    ['SELECT * FROM c OFFSET 2 LIMIT 2', 4],
    ['SELECT TOP 0 * FROM c', 0],
    ['SELECT TOP 0 * FROM c ORDER BY c.n', 0],
  ])('%s stops taking documents by itself', (sql, taken) => {
    const counter = { taken: 0 };
    expect([...evaluate(plan(sql), counted(counter))].length).toBeLessThan(4);
    expect(counter.taken).toBe(taken);
  });

  it.each([
    ['SELECT VALUE c.n FROM c WHERE c.n > 1', [[], [2], [3]], []],
    ['SELECT TOP 2 VALUE c.n FROM c', [[1], [2]], []],
    ['SELECT TOP 0 * FROM c', [[]], []],
    ['SELECT VALUE COUNT(1) FROM c', [[], [], []], [3]],
    ['SELECT VALUE c.n FROM c ORDER BY c.n DESC', [[], [], []], [3, 2, 1]],
    ['SELECT VALUE SUM(x.n) FROM (SELECT TOP 2 c.n FROM c) AS x', [[], []], [3]],
    ['SELECT VALUE x + 1 FROM (SELECT DISTINCT VALUE c.n FROM c) AS x', [[2], [3], [4]], []],
    ['SELECT VALUE 7', [[7]], []],
  ])('%s can be handed its documents one by one', (sql, during, after) => {
    const evaluation = startEvaluation(plan(sql));
    const seen: Json[][] = [];
    for (const n of [1, 2, 3]) {
      evaluation.offer([{ n }], 0);
      seen.push(evaluation.takeRows());
      if (!evaluation.wantsDocuments) break;
    }
    expect(seen).toEqual(during);
    Array.from(evaluation.finishing());
    expect(evaluation.takeRows()).toEqual(after);
  });

  it.each([
    ['SELECT VALUE c.n FROM c WHERE c.n > 2', [3, 4], true],
    ['SELECT TOP 2 VALUE c.n FROM c', [1, 2], false],
    ['SELECT VALUE COUNT(1) FROM c', [4], true],
    ['SELECT VALUE x + 1 FROM (SELECT TOP 3 VALUE c.n FROM c) AS x WHERE x <> 2', [1, 3], false],
    ['SELECT VALUE 7', [0], false],
  ])(
    '%s, given all documents at once, stops after each that gives a row, and after the last one wanted',
    (sql, ends, more) => {
      const evaluation = startEvaluation(plan(sql));
      const documents = [1, 2, 3, 4].map((n) => ({ n }));
      const stops: number[] = [];
      let taken = 0;
      do {
        taken = evaluation.offer(documents, taken);
        if (evaluation.hasRows || stops.length === 0) stops.push(taken);
        evaluation.takeRows();
      } while (evaluation.wantsDocuments && taken < documents.length);
      expect([stops, evaluation.wantsDocuments]).toEqual([ends, more]);
    },
  );

  it('can run a plan again, with fresh aggregates', () => {
    const count = plan('SELECT VALUE COUNT(1) FROM c');
    expect([...evaluate(count, families)]).toEqual([3]);
    expect([...evaluate(count, families)]).toEqual([3]);
  });

  it.each([
    'SELECT * FROM c ORDER BY c.n',
    'SELECT TOP 90 * FROM c ORDER BY c.n',
    "SELECT * FROM c ORDER BY RANK FullTextScore(c.text, 'x')",
    'SELECT c.text FROM c GROUP BY c.text',
    'SELECT MAX(c.text) AS most FROM c GROUP BY c.n',
    'SELECT DISTINCT c.text FROM c',
    'SELECT DISTINCT c.text FROM c ORDER BY c.n',
    'SELECT VALUE MAKELIST(c.text) FROM c',
    'SELECT VALUE MAKESET(c.text) FROM c',
    `SELECT VALUE c.n FROM c ORDER BY RANK FullTextScore(c.text, ${Array<string>(300).fill("'x'").join()})`,
    'SELECT c.n, ARRAY(SELECT VALUE CONCAT(c.text, ToString(x)) FROM x IN c.list) AS all FROM c',
    'SELECT c.text, x FROM c JOIN x IN c.list WHERE IS_DEFINED(c.list)',
  ])('%s has a limit on the memory that it uses', (sql) => {
    const documents = Array.from({ length: 100 }, (_, n) => ({ n, text: `${n} x`.padEnd(1000, '.') }));
    const list = documents.map(({ n }) => n);
    const first = { ...documents[0]!, list };
    const memory = new Memory(100_000);
    expect(() => rows(sql, [first, ...documents.slice(1)], [], { memory })).toThrow('SC3002');
    const few = documents.slice(0, 20);
    expect(
      rows(sql, [{ ...few[0]!, list: list.slice(0, 20) }, ...few], [], { memory: new Memory(100_000) }),
    ).not.toEqual([]);
  });

  it('frees the memory of a subquery after each document', () => {
    const sql = 'SELECT VALUE ARRAY(SELECT DISTINCT VALUE x FROM x IN c.list ORDER BY x) FROM c';
    const list = Array.from({ length: 100 }, (_, n) => n);
    const memory = new Memory(100_000);
    expect(
      rows(
        sql,
        Array.from({ length: 100 }, () => ({ list })),
        [],
        { memory },
      ).length,
    ).toBe(100);
    expect(memory.heldBytes).toBe(0);
  });

  it('keeps only as many rows for a TOP as it may return', () => {
    const memory = new Memory(100_000);
    const documents = Array.from({ length: 1_000 }, (_, n) => ({ n: (n * 7919) % 1_000, text: `${n}`.padEnd(1000) }));
    expect(rows('SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n', documents, [], { memory })).toEqual([0, 1, 2, 3, 4]);
    expect(rows('SELECT TOP 5 * FROM c ORDER BY c.n DESC', documents, [], { memory }).length).toBe(5);
  });

  it('keeps as many of the first rows of a page as fit, and tells that there are more', () => {
    const memory = new Memory(100_000);
    const page = new OrderedPage(plan('SELECT * FROM c ORDER BY c.n'), { memory }, undefined, 1_000, {
      bytes: 50_000,
      leastRows: 6,
    });
    const documents = Array.from({ length: 200 }, (_, n) => ({ n: (n * 79) % 200, text: `${n}`.padEnd(2000) }));
    page.offer(documents, (index) => index);
    Array.from(page.finishing());
    const { rows: found, isCut } = page.rows();
    expect(isCut).toBe(true);
    expect(found.length).toBeGreaterThan(6);
    expect(found.map(({ row }) => (row as { n: number }).n)).toEqual(found.map((_, place) => place));
  });

  it('gives up on a document that takes seconds to iterate over', () => {
    const list = Array.from({ length: 100 }, (_, n) => n);
    const sql = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list';
    let nowMs = 0;
    const slow = { monotonicMs: () => (nowMs += 30) };
    expect(() => rows(sql, [{ list }], [], slow)).toThrow('SC3001');
    // The time limit is for each document.
    expect(rows(sql, [{ list: list.slice(0, 40) }, { list: list.slice(0, 40) }], [], slow)).toEqual([3_200]);
  });

  it('gives up on a document whose rows in a subquery in FROM take seconds together', () => {
    const list = Array.from({ length: 100 }, (_, n) => n);
    const sql = 'SELECT VALUE COUNT(1) FROM (SELECT VALUE c.list FROM c JOIN x IN c.list) AS y JOIN z IN y';
    let nowMs = 0;
    const slow = { monotonicMs: () => (nowMs += 15) };
    const work = (documents: readonly Json[]): Json[] => {
      const evaluation = startEvaluation(plan(sql), slow);
      for (const document of documents) evaluation.offer([document], 0);
      Array.from(evaluation.finishing());
      return evaluation.takeRows();
    };
    expect(() => work([{ list }])).toThrow('SC3001');
    expect(work([{ list: list.slice(0, 60) }, { list: list.slice(0, 60) }])).toEqual([7_200]);
  });

  it('throws the given error when a document exceeds its time', () => {
    const list = Array.from({ length: 100 }, (_, n) => n);
    let nowMs = 0;
    const tooLong = (): Error => new Error('Go elsewhere.');
    const slow = { monotonicMs: () => (nowMs += 1), maxDocumentMs: 10, tooLong };
    const sql = (aliases: string): string => `SELECT VALUE COUNT(1) FROM c ${aliases}`;
    expect(rows(sql('JOIN x IN c.list'), [{ list }], [], slow)).toEqual([100]);
    expect(() => rows(sql('JOIN x IN c.list JOIN y IN c.list'), [{ list }], [], slow)).toThrow('Go elsewhere.');
  });

  it.each([
    ['c.n = 2 AND x = 1 AND y > x', [[1, 2]]],
    ['c.n = 3 AND x = 1 AND y > x', []],
    ['c.missing AND x = 1', []],
    ['(c.n = 3 OR x = 2) AND y = 1', [[2, 1]]],
    ['NOT (c.n = 3) AND EXISTS(SELECT VALUE z FROM z IN c.list WHERE z = x + 1) AND y = 2', [[1, 2]]],
    [
      'EXISTS(SELECT VALUE z FROM z IN c.list JOIN w IN c.list WHERE z = 1 AND w = y AND x = 2 AND c.n = 2) AND y = 2',
      [[2, 2]],
    ],
    [
      '1 = 1 AND x = y AND RAND() < 2',
      [
        [1, 1],
        [2, 2],
      ],
    ],
  ])(
    'returns the rows of a JOIN for which WHERE %s, at whichever level of the JOIN the parts of the condition are evaluated',
    (where, expected) => {
      const documents = [{ n: 2, list: [1, 2] }, { n: 4 }, { list: 'none', n: 2 }];
      const sql = `SELECT VALUE [x, y] FROM c JOIN x IN c.list JOIN y IN c.list WHERE ${where}`;
      expect(rows(sql, documents)).toEqual(expected);
      expect(rows(sql.replace('WHERE', 'WHERE true = (').concat(')'), documents)).toEqual(expected);
    },
  );

  it.each<[sql: string, document: Json, least: number, most: number]>([
    ['SELECT c.id FROM c WHERE c.n > 2 AND c.id IN ("a", "b", "c") ORDER BY c.n', { id: 'a', n: 3 }, 0, 0],
    ['SELECT VALUE COUNT(1) FROM c JOIN x IN c.list', { list: many(50) }, 0, 0],
    ['SELECT VALUE COUNT(1) FROM c JOIN x IN c.list', { list: many(1_000) }, 8_000, 15_000],
    ['SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list', { list: many(100) }, 80_000, 150_000],
    ['SELECT VALUE EXISTS(SELECT VALUE x FROM x IN c.list WHERE x > 998) FROM c', { list: many(1_000) }, 8_000, 20_000],
    ['SELECT x, COUNT(1) AS n FROM c JOIN x IN c.list GROUP BY x', { list: many(1_000) }, 8_000, 25_000],
    ['SELECT VALUE x FROM c JOIN x IN c.list ORDER BY x', { list: many(1_000) }, 8_000, 15_000],
    ["SELECT VALUE CONTAINS(c.text, 'b', true) FROM c", { text: 'a'.repeat(80_000) }, 8_000, 15_000],
    ["SELECT VALUE REGEXMATCH(c.text, '[^a]') FROM c", { text: 'a'.repeat(8_000) }, 50_000, 100_000],
    ['SELECT VALUE LENGTH(TOSTRING(c.list)) FROM c', { list: many(50_000) }, 30_000, 300_000],
    ['SELECT VALUE SetUnion(c.list, c.list) FROM c', { list: many(1_000) }, 40_000, 100_000],
    // Arrays of different lengths would be told apart by their lengths alone.
    ['SELECT VALUE COUNT(1) FROM c JOIN x IN c.list WHERE c.list != [x]', { list: many(1_000) }, 8_000, 30_000],
    ["SELECT VALUE COUNT(1) FROM c JOIN x IN c.list WHERE c.list IN ([x], 'a')", { list: many(1_000) }, 8_000, 40_000],
    // The part of WHERE that needs no array is evaluated before the arrays are iterated over.
    [
      'SELECT VALUE x FROM c JOIN x IN c.list JOIN y IN c.list WHERE c.n > 1 AND x = y',
      { list: many(200), n: 1 },
      0,
      0,
    ],
    ['SELECT VALUE x FROM c JOIN x IN c.list JOIN y IN c.list WHERE x = 7', { list: many(1_000) }, 15_000, 40_000],
    [
      'SELECT VALUE x FROM c JOIN x IN c.list JOIN y IN c.list WHERE EXISTS(SELECT VALUE z FROM z IN c.list WHERE z > x)',
      { list: many(20) },
      5_000,
      100_000,
    ],
  ])('counts the work of %s on a document, the same each time', (sql, document, least, most) => {
    const works = [1, 2].map(() => {
      const query = plan(sql);
      const run = isOrdered(query) ? new OrderedPage(query, {}, undefined, 10) : startEvaluation(query);
      if (run instanceof OrderedPage) run.offer([document], () => 1);
      else run.offer([document], 0);
      Array.from(run.finishing());
      return run.extraWork;
    });
    expect(works[0]).toBeGreaterThanOrEqual(least);
    expect(works[0]).toBeLessThanOrEqual(most);
    expect(works[1]).toBe(works[0]);
  });

  it('has a limit on what joins iterate over', () => {
    const list = Array.from({ length: 100 }, (_, n) => n);
    const sql = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list';
    expect(() => rows(sql, [{ list }], [], { maxStepsPerDocument: 100_000 })).toThrow('SC3001');
    expect(rows(sql, [{ list }, { list }], [], { maxStepsPerDocument: 1_100_000 })).toEqual([2_000_000]);
  });

  it.each([
    ["CONTAINS(c.text, 'b', true)"],
    ["c.text LIKE '%a%_b'"],
    ["c.text LIKE '%b%'"],
    ["c.text || 'b' = 'b'"],
    ['c.text >= c.text'],
    ["REPLACE(c.text, 'a', 'b')"],
    ["CONTAINS_ANY_CI(c.text, 'b', 'c', 'd')"],
    ['REVERSE(c.text)'],
    ["RegexMatch('aaaa', '(a|a)*b')"],
    ['c.list = c.other'],
    ['c.list IN (c.other, c.other)'],
    ['ARRAY_CONTAINS(c.list, 0)'],
    ['TOSTRING(c.list)'],
    ['CONTAINS(@text, "b", true)'],
    ['@list = @other'],
    ["@text LIKE '%a%_b'"],
    ['@text < @text'],
  ])('gives up on %s, evaluated thousands of times for one document', (expression) => {
    const text = 'a'.repeat(20_000);
    const list = Array.from({ length: 5_000 }, (_, n) => n);
    const document = { text, list, other: list.with(4_999, -1) };
    const parameters = Object.entries(document).map(([name, value]) => ({ name: `@${name}`, value }));
    let nowMs = 0;
    const slow = { monotonicMs: () => (nowMs += 5) };
    const sql = (times: number): string => `SELECT VALUE [${Array<string>(times).fill(expression).join(',')}] FROM c`;
    expect(() => rows(sql(500), [document], parameters, slow)).toThrow('SC3001');
    // The time limit is for each document.
    expect(rows(sql(80), [document, document], parameters, slow)).toHaveLength(2);
  });

  it.each([
    'SELECT VALUE c.object FROM c JOIN x IN c.list',
    'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list GROUP BY [c.object, x]',
    'SELECT VALUE COUNT(c.object) FROM c JOIN x IN c.list',
    'SELECT VALUE ARRAY_LENGTH(MAKESET(c.object)) FROM c JOIN x IN c.list',
    'SELECT DISTINCT VALUE c.object FROM c JOIN x IN c.list',
    'SELECT DISTINCT VALUE c.object FROM c JOIN x IN c.list ORDER BY x',
    'SELECT VALUE x FROM c JOIN x IN c.list ORDER BY c.object',
    'SELECT VALUE LAST(SELECT VALUE [c.object] FROM x IN c.list) FROM c',
    'SELECT VALUE 1 FROM c WHERE ARRAY_LENGTH(ARRAY(SELECT VALUE c.object FROM x IN c.list)) > 0',
    'SELECT VALUE 1 FROM c WHERE EXISTS(SELECT DISTINCT VALUE c.object FROM x IN c.list OFFSET 1000 LIMIT 1) OR true',
    'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list WHERE IS_DEFINED(c.computed) OR true',
  ])('gives up on a document of which a few rows each take much work: %s', (sql) => {
    // Fewer elements than are visited between two checks of the time.
    const object = Object.fromEntries(many(8_000).map((n) => [`name${n}`, n]));
    const computedProperties = [
      { name: 'computed', query: `SELECT VALUE [${Array<string>(8_000).fill('c.n').join()}] FROM c` },
    ];
    const query = planQuery(parseQuery(sql), [], { computedProperties });
    let nowMs = 0;
    const asked = (elements: number): Json[] => [
      ...evaluate(query, [{ object, list: many(elements) }], { monotonicMs: () => (nowMs += 30) }),
    ];
    expect(() => asked(60)).toThrow('SC3001');
    expect(() => asked(10)).not.toThrow();
  });

  it.each([
    ['SELECT VALUE [{list}] FROM c'],
    ['SELECT VALUE {"a": [{list}]} FROM c'],
    ['SELECT DISTINCT VALUE [{list}] FROM c'],
    ['SELECT {list} FROM c'],
    ['SELECT VALUE COUNT(1) FROM c GROUP BY [{list}]'],
    ['SELECT VALUE c.id FROM c ORDER BY [{list}]'],
    ['SELECT VALUE MAKESET([{list}]) FROM c'],
    ['SELECT VALUE MAKELIST([{list}]) FROM c'],
    ['SELECT VALUE LENGTH(TOSTRING([{list}])) FROM c'],
    ['SELECT VALUE SetUnion([[{list}]], []) FROM c'],
    ['SELECT VALUE SetUnion([{list}], []) FROM c'],
    ['SELECT VALUE ARRAY_CONTAINS([{list}], [1]) FROM c'],
    ['SELECT VALUE COUNT(1) FROM c JOIN a IN (SELECT VALUE [{list}])'],
  ])('has a limit on repetitions of the same text in a value: %s', (sql) => {
    const document = { text: 'a'.repeat(1_000_000) };
    const list = Array.from({ length: 20 }, (_, index) =>
      sql.includes('SELECT {') ? `c.text AS t${index}` : 'c.text',
    );
    expect(() => rows(sql.replace('{list}', list.join(',')), [document])).toThrow('SC3001');
  });

  it.each([
    ['SELECT VALUE 1 FROM c WHERE ARRAY_LENGTH([{list}]) > 0'],
    ['SELECT VALUE CHOOSE(1, {list}) FROM c'],
    ['SELECT VALUE ARRAY_LENGTH([ARRAY(SELECT VALUE UPPER(x || c.text) FROM x IN c.list)]) FROM c'],
    ['SELECT VALUE ARRAY_LENGTH([{arrays}]) FROM c'],
  ])('has a limit on the size of the values that it makes for a row: %s', (sql) => {
    const text = 'a'.repeat(1_000_000);
    const list = Array.from({ length: 40 }, (_, index) => `UPPER(c.text || '${index}')`).join(',');
    const arrays = Array.from({ length: 48 }, () => 'ARRAY(SELECT VALUE x FROM x IN c.numbers)').join(',');
    const document = { text, list: many(40).map(String), numbers: many(100_000) };
    const query = sql.replace('{list}', list).replace('{arrays}', arrays);
    expect(() => rows(query, [document])).toThrow('computes too many large values');
  });

  it('can make any number of large values one after the other', () => {
    const text = 'a'.repeat(1_000_000);
    const document = { text, list: many(40).map(String) };
    const found = many(40).map((index) => `CONTAINS(LOWER(c.text || '${index}'), 'b')`);
    for (const sql of [
      `SELECT VALUE 1 FROM c WHERE NOT (${found.join(' OR ')})`,
      `SELECT VALUE [${found.join(', ')}] FROM c`,
      "SELECT VALUE LEFT(UPPER(c.text || x), 1) FROM c JOIN x IN c.list WHERE LOWER(c.text || x) != 'x'",
      'SELECT VALUE ARRAY(SELECT VALUE LENGTH(UPPER(c.text || x)) FROM x IN c.list) FROM c',
      "SELECT VALUE COUNT(1) FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.list WHERE UPPER(c.text || x) = 'x') = false",
    ]) {
      expect(rows(sql, [document]).length, sql).toBeGreaterThan(0);
    }
  });

  it('has a limit on a value that doubles at each step', () => {
    const joins = Array.from({ length: 60 }, (_, n) => `JOIN a${n + 1} IN (SELECT VALUE [a${n}, a${n}])`).join(' ');
    expect(() => rows(`SELECT VALUE a60 FROM a0 ${joins}`, [{ text: 'a' }])).toThrow('SC3001');
  });

  it.each([
    ['SELECT VALUE c.n FROM c GROUP BY c.n', 10_000],
    ['SELECT VALUE c.n FROM c GROUP BY c.n ORDER BY c.n', 10_000],
    ['SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n', 20],
    ['SELECT VALUE c.n FROM c ORDER BY RANK FullTextScore(c.text, "a")', 20],
    ['SELECT VALUE COUNT(1) FROM (SELECT VALUE c.n FROM c GROUP BY c.n)', 20_000],
    ['SELECT VALUE d FROM (SELECT VALUE c.n FROM c ORDER BY c.n) d ORDER BY d', 10_000],
  ])('pauses often after the last document, so that other work gets turns: %s', (sql, pauses) => {
    const documents = many(10_000).map((n) => ({ n: (n * 7919) % 10_000, text: 'a b' }));
    const query = plan(sql);
    if (isOrdered(query) || isRanked(query)) {
      const page = new OrderedPage(query, {}, undefined, 10_000);
      page.offer(documents, (index) => index);
      expect(Array.from(page.finishing()).length).toBeGreaterThanOrEqual(pauses);
      const found = page.rows().rows.map(({ row }) => row);
      expect(found).toEqual(isRanked(query) ? documents.map(({ n }) => n) : many(10_000));
    } else {
      const evaluation = startEvaluation(query);
      for (let next = 0; next < documents.length;) next = evaluation.offer(documents, next);
      expect(Array.from(evaluation.finishing()).length).toBeGreaterThanOrEqual(pauses);
      expect(evaluation.takeRows()).toEqual(sql.includes('COUNT') ? [10_000] : many(10_000));
    }
  });

  it.each([
    ['SELECT VALUE c.n FROM c ORDER BY c.array', 12],
    ['SELECT DISTINCT VALUE [c.n, c.array] FROM c ORDER BY c.n', 24],
    ['SELECT DISTINCT VALUE [c.n, c.array] FROM (SELECT TOP 100 * FROM c) c ORDER BY c.n', 12],
    ['SELECT VALUE MAX(c.n) FROM (SELECT TOP 100 * FROM c) c GROUP BY c.array', 24],
  ])('pauses between large values, so that other work gets turns: %s', (sql, pauses) => {
    const documents = many(12).map((n) => ({ n, array: [...Array<number>(70_000).fill(1), n] }));
    const query = plan(sql);
    const steps = (run: { finishing(): Iterable<void> }): number => Array.from(run.finishing()).length;
    if (isOrdered(query)) {
      const page = new OrderedPage(query, {}, undefined, 100);
      page.offer(documents, (index) => index);
      expect(steps(page)).toBeGreaterThanOrEqual(pauses);
      const found = page.rows().rows;
      expect(found.length).toBe(12);
      const start = lastOf(startAfter(query.program, found.slice(0, 5), found.slice(5)));
      const next = new OrderedPage(query, {}, start, 100);
      next.offer(documents, (index) => index);
      expect(steps(next)).toBeGreaterThanOrEqual(12);
      expect(next.rows().rows.length).toBe(7);
      return;
    }
    const evaluation = startEvaluation(query);
    for (let next = 0; next < documents.length;) next = evaluation.offer(documents, next);
    expect(steps(evaluation)).toBeGreaterThanOrEqual(pauses);
    expect(evaluation.takeRows().length).toBe(12);
  });

  it('gives each group as much time as a document', () => {
    const list = Array.from({ length: 300 }, (_, n) => n);
    let nowMs = 0;
    const slow = { monotonicMs: () => (nowMs += 30) };
    const sql = 'SELECT VALUE ARRAY_LENGTH(MAKELIST(x)) FROM c JOIN x IN c.list GROUP BY x';
    expect(rows(sql, [{ list }], [], slow)).toHaveLength(300);
  });

  it('has a limit on what one call searches for', () => {
    const words = 'ab '.repeat(300_000);
    const list = Array.from({ length: 100_000 }, (_, n) => n);
    const sought = Array.from({ length: 2_000 }, (_, n) => `'zz${n}'`).join(',');
    expect(rows(`SELECT VALUE ARRAY_CONTAINS_ANY(c.list, ${sought}) FROM c`, [{ list }])).toEqual([false]);
    for (const call of [
      `CONTAINS_ANY_CI(c.words, ${sought})`,
      `ARRAY_CONTAINS_ANY(c.list, ${sought.replaceAll(/'(\w+)'/g, '["$1"]')})`,
      `FullTextContains(c.words, '${'ab '.repeat(1_000)}')`,
      `_FullTextScore(c.words, [${sought}], 1, 1, [1])`,
      `FullTextContainsAny(c.words, ${sought})`,
      `FullTextContainsAny(c.words, [${sought}])`,
    ]) {
      expect(() => rows(`SELECT VALUE ${call} FROM c`, [{ words, list }])).toThrow('SC3001');
    }
  });

  it('checks the time with each search term while it ranks a text', () => {
    const terms = Array.from({ length: 100 }, (_, n) => `'t${n}'`).join(',');
    const sql = `SELECT VALUE 1 FROM c ORDER BY RANK FullTextScore(c.words, ${terms})`;
    const documents = [{ words: 'ab '.repeat(2_000) }];
    let nowMs = 0;
    expect(rows(sql, documents)).toEqual([1]);
    expect(() => rows(sql, documents, [], { monotonicMs: () => (nowMs += 30) })).toThrow('SC3001');
  });

  it('throws a QueryError for documents nested deeper than the stack allows', () => {
    let deep: Json = 1;
    for (let level = 0; level < 100_000; level += 1) deep = [deep];
    expect(() => rows('SELECT DISTINCT VALUE c.d FROM c', [{ d: deep }])).toThrow('SC3001');
  });
});

describe('patch conditions', () => {
  it.each([
    ["FROM c WHERE c.city = 'NY'", [false, true, true]],
    ["from c where c.city = 'NY' and is_defined(c.name)", [false, true, false]],
    ['FROM c', [true, true, true]],
    ['from root r where r.size > 3', [false, true, false]],
    ['FROM c JOIN x IN c.children WHERE x.grade = 5', [true, false, false]],
    ['SELECT * FROM c WHERE c.size = 3', [true, false, false]],
  ])('%s', (condition, expected) => {
    const plan = planQuery(parseCondition(condition));
    expect(families.map((document) => matches(plan, document))).toEqual(expected);
  });

  it.each(['', 'WHERE c.x = 1', 'FROM c WHERE', 'FROM c WHERE c.x = 1 ORDER BY c.x'])('%j is refused', (condition) => {
    expect(() => parseCondition(condition)).toThrow('Syntax error');
  });
});
