import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  checkComputedProperties,
  FunctionCalls,
  type Json,
  jsonText,
  parseQuery,
  planForClients,
  planQuery,
  type PlanOptions,
  QueryError,
  sparingPlan,
  startEvaluation,
  tryDocuments,
  type UserFunctionCall,
  type UserFunctions,
} from '../src/index.ts';
import { documents, plain, queries } from './grammar.ts';
import { builtInHost, Host, withUserFunctions } from './host.ts';
import { rows } from './run.ts';

interface Asked extends PlanOptions {
  /** Stops offering documents once there are this many rows. */
  readonly mostRows?: number;
  readonly monotonicMs?: () => number;
}

/** The rows of a query, with the functions of a host. */
async function called(
  sql: string,
  of: readonly Json[],
  host: UserFunctions & { readonly names: ReadonlySet<string> },
  { mostRows = Number.POSITIVE_INFINITY, monotonicMs, ...options }: Asked = {},
): Promise<Json[]> {
  const plan = planQuery(parseQuery(sql), [], { ...options, userFunctions: host.names });
  const calls = new FunctionCalls(host, monotonicMs);
  const context = { nowMs: 0, calls };
  const evaluation = startEvaluation(plan, context);
  const ready = plan.callsFunctions ? tryDocuments(plan, context) : () => of.length;
  const found: Json[] = [];
  for (let from = 0; from < of.length && evaluation.wantsDocuments;) {
    const to = ready(of, from, of.length);
    if (to === from) await calls.settle();
    for (const offered = of.slice(0, to); from < to && evaluation.wantsDocuments;) {
      from = evaluation.offer(offered, from);
      found.push(...evaluation.takeRows());
      if (found.length >= mostRows) return found;
    }
  }
  for (const _ of evaluation.finishing()) if (calls.isWaiting) await calls.settle();
  return [...found, ...evaluation.takeRows()];
}

/** Rows as text, or the code of the error. */
async function answer(find: () => readonly Json[] | Promise<readonly Json[]>): Promise<readonly string[] | string> {
  try {
    return (await find()).map((row) => jsonText(row));
  } catch (error) {
    if (error instanceof QueryError) return error.errors[0]!.code;
    throw error;
  }
}

const refusal = (sql: string, options: PlanOptions): unknown => {
  try {
    return planQuery(parseQuery(sql), [], options);
  } catch (error) {
    if (error instanceof QueryError) return error.errors[0];
    throw error;
  }
};

const of = (...all: readonly Json[]): Json[] => all.map((one, index) => ({ id: `i${index}`, ...(one as object) }));
const many = (count: number, make: (index: number) => Json): Json[] =>
  of(...Array.from({ length: count }, (_, index) => make(index)));
const simple = () =>
  Host.of({
    twice: (x) => (typeof x === 'number' ? 2 * x : undefined),
    isBig: (x) => (x as number) > 2,
    same: (x) => x,
    count: (...args) => args.length,
    fail: () => {
      throw new Error('no input');
    },
    failAbove: (x) => {
      if ((x as number) > 2) throw new Error(`above: ${x as number}`);
      return x;
    },
  });

describe('user-defined functions', () => {
  it('give the same results in all clauses as built-in functions of the same meaning', async () => {
    let compared = 0;
    await fc.assert(
      fc.asyncProperty(queries.map(plain), documents, async (sql, all) => {
        const expected = await answer(() => rows(sql, all, [], { nowMs: 0 }));
        // Queries that fail are left out: constants are folded when the query is read, and not every failing document is reached.
        if (typeof expected === 'string') return;
        const asUsers = withUserFunctions(sql);
        if (asUsers !== sql) compared += 1;
        let nowMs = 0;
        // If the clock stands still, several documents are tried together; if it moves, each is tried alone.
        const monotonicMs = () => (nowMs += all.length % 3);
        expect(await answer(() => called(asUsers, all, builtInHost(sql), { monotonicMs }))).toEqual(expected);
      }),
      { numRuns: 400 },
    );
    expect(compared).toBeGreaterThan(150);
  });

  it.each([
    ['SELECT VALUE udf.twice(c.n) FROM c', [2, 4, 6, 8]],
    ['SELECT VALUE udf.twice(udf.twice(c.n)) FROM c WHERE udf.isBig(udf.twice(c.n))', [8, 12, 16]],
    ['SELECT udf.twice(c.n) FROM c WHERE c.n = 1', [{ $1: 2 }]],
    ['SELECT VALUE udf.twice(21)', [42]],
    ['SELECT VALUE x FROM c JOIN (SELECT VALUE udf.same(y) FROM y IN c.list) x WHERE c.n = 2', [1, 2]],
    ['SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE 1 FROM x IN c.list WHERE udf.isBig(x))', [3, 4]],
    ['SELECT VALUE ARRAY(SELECT VALUE udf.twice(x) FROM x IN c.list) FROM c WHERE c.n = 3', [[2, 4, 6]]],
    ['SELECT VALUE c.n FROM c ORDER BY udf.twice(-c.n)', [4, 3, 2, 1]],
    ['SELECT VALUE c.n FROM c ORDER BY udf.isBig(c.n) DESC, c.n', [3, 4, 1, 2]],
    [
      'SELECT udf.isBig(c.n) AS big, SUM(udf.twice(c.n)) AS n FROM c GROUP BY udf.isBig(c.n)',
      [
        { big: false, n: 6 },
        { big: true, n: 14 },
      ],
    ],
    ['SELECT DISTINCT VALUE udf.isBig(c.n) FROM c', [false, true]],
    ['SELECT VALUE udf.twice(COUNT(1)) FROM c', [8]],
    [
      'SELECT c.even, udf.twice(MAX(c.n)) AS most FROM c GROUP BY c.even ORDER BY c.even',
      [
        { even: false, most: 6 },
        { even: true, most: 8 },
      ],
    ],
    ['SELECT VALUE udf.twice(d.n) FROM (SELECT TOP 2 c.n FROM c ORDER BY c.n DESC) d', [8, 6]],
    ['SELECT VALUE udf.twice(d) FROM (SELECT VALUE udf.twice(c.n) FROM c) d WHERE d > 4', [12, 16]],
    ['SELECT TOP 1 VALUE udf.twice(c.n) FROM c WHERE udf.isBig(c.n)', [6]],
    ['SELECT VALUE c.n FROM c ORDER BY udf.same(c.n) DESC OFFSET 1 LIMIT 2', [3, 2]],
    ["SELECT VALUE c.n FROM c WHERE udf.same(c.id) LIKE '%1' AND c.n BETWEEN udf.same(1) AND udf.same(9)", [2]],
    [
      'SELECT VALUE [udf.count(), udf.count(c.no), udf.count(c.no, 1), udf.same(c.no) ?? 0] FROM c WHERE c.n = 1',
      [[0, 1, 2, 0]],
    ],
    ['SELECT VALUE udf.same({"a": [c.n, {"b": null}]}) FROM c WHERE c.n = 1', [{ a: [1, { b: null }] }]],
    ['SELECT VALUE udf.same(GetCurrentTimestamp()) FROM c WHERE c.n = 1', [0]],
    ['SELECT VALUE c.n FROM c ORDER BY VectorDistance(udf.same([c.n, 1]), [1, 2])', [1, 2, 3, 4]],
    ["SELECT VALUE c.n FROM c ORDER BY RANK FullTextScore(udf.same(c.id), 'i2')", [3, 1, 2, 4]],
    ['SELECT VALUE c.n FROM c ORDER BY RANK VectorDistance(udf.same([c.n, 1]), [1, 2])', [1, 2, 3, 4]],
  ] as const)('can be used in %s', async (sql, expected) => {
    const all = many(4, (index) => ({
      n: index + 1,
      even: index % 2 === 1,
      list: Array.from({ length: index + 1 }, (_, at) => at + 1),
    }));
    expect(await called(sql, all, simple())).toEqual(expected);
  });

  it.each([
    'SELECT VALUE (c.n = 1 ? udf.same(c.n) : udf.fail(c.n)) FROM c WHERE c.n = 1',
    'SELECT VALUE (c.n ?? udf.fail(c.n)) FROM c WHERE c.n = 1',
    'SELECT VALUE c.n FROM c WHERE c.n = 1 AND (c.n = 1 OR udf.fail(c.n))',
    'SELECT VALUE c.n FROM c WHERE c.n < udf.same(2) AND (c.n = 1 ? true : udf.fail(c.n))',
    'SELECT TOP 1 VALUE udf.failAbove(c.n) FROM c',
    'SELECT TOP 1 VALUE c.n FROM c WHERE c.n = 1 OR udf.fail()',
    'SELECT TOP 1 VALUE udf.failAbove(x.n) FROM (SELECT VALUE c FROM c ORDER BY c.n) x',
    'SELECT TOP 1 VALUE udf.failAbove(x.n) FROM (SELECT c.n FROM c GROUP BY c.n) x',
    'SELECT VALUE 1 FROM c WHERE c.n = 1 AND EXISTS(SELECT VALUE 1 FROM x IN c.list WHERE udf.failAbove(x) = 1)',
    'SELECT VALUE (SELECT TOP 1 VALUE udf.failAbove(udf.same(x)) FROM x IN c.list) FROM c WHERE c.n = 1',
    'SELECT VALUE FIRST(SELECT VALUE udf.failAbove(x) FROM x IN c.list) FROM c WHERE udf.twice(c.n) = 2',
  ])('don’t fail a query that does not need the failing call: %s', async (sql) => {
    const all = many(4, (index) => ({ n: index + 1, list: [1, 2, 3, 4] }));
    expect(await called(sql, all, simple())).toEqual([1]);
  });

  it('fail a query by what they throw, once the query needs that call', async () => {
    const all = many(6, (index) => ({ n: index }));
    const host = simple();
    const sql = 'SELECT VALUE udf.failAbove(c.n) FROM c';
    expect(await called(sql, all, host, { mostRows: 3 })).toEqual([0, 1, 2]);
    await expect(called(sql, all, host)).rejects.toThrow('above: 3');
    await expect(called('SELECT VALUE COUNT(udf.failAbove(c.n)) FROM c', all, host)).rejects.toThrow('above: 3');
    await expect(called('SELECT VALUE udf.fail(COUNT(1)) FROM c', all, host)).rejects.toThrow('no input');
  });

  it('are called together for many documents and rows, and once for equal arguments', async () => {
    const all = many(60, (index) => ({ n: index % 50, list: Array.from({ length: 15 }, (_, at) => at) }));
    for (const [sql, asks] of [
      ['SELECT VALUE udf.twice(c.n) FROM c', [16, 34]],
      ['SELECT VALUE udf.twice(udf.same(c.n)) FROM c', [16, 34, 50]],
      ['SELECT udf.same(c.n) AS a, udf.twice(c.n) AS b FROM c', [16, 64, 20]],
      ['SELECT VALUE udf.twice(x) FROM c JOIN x IN c.list', [15]],
      ['SELECT VALUE ARRAY(SELECT VALUE udf.same(x) FROM x IN c.list WHERE udf.isBig(x)) FROM c', [15, 12]],
      [
        'SELECT VALUE 1 FROM c JOIN a IN c.list JOIN (SELECT VALUE udf.same(y) FROM y IN c.list) b WHERE udf.isBig(a) AND b = 1',
        [15, 15],
      ],
      ['SELECT VALUE udf.count(d) FROM (SELECT udf.same(c.n % 2) AS a, udf.twice(c.n % 2) AS b FROM c) d', [4, 2]],
      ['SELECT c.n, udf.twice(SUM(c.n)) AS s FROM c GROUP BY c.n', [16, 29]],
    ] as const) {
      const host = simple();
      await called(sql, all, host);
      expect(new Set(host.calls).size, sql).toBe(host.calls.length);
      expect(
        host.asked.map(({ length }) => length),
        sql,
      ).toEqual(asks);
    }
  });

  it('are called in batches that take some milliseconds', async () => {
    let nowMs = 0;
    const host = new Host(['slow'], () => (x) => {
      nowMs += (x as number) < 80 ? 1 : 5;
      return x;
    });
    const all = many(200, (index) => ({ n: index }));
    await called('SELECT VALUE udf.slow(c.n) FROM c', all, host, { monotonicMs: () => nowMs });
    expect(host.asked.map(({ length }) => length)).toEqual([16, 64, 64, 40, 16]);
  });

  it('are called in smaller batches if large ones fail', async () => {
    const asked: number[] = [];
    const host = {
      names: new Set(['f']),
      call: async (calls: readonly UserFunctionCall[]) => {
        asked.push(calls.length);
        if (calls.length > 5) throw new Error('out of time');
        return calls.map(({ args }) => args[0]);
      },
    };
    const all = many(6, () => ({ list: Array.from({ length: 40 }, (_, index) => index) }));
    const sql = 'SELECT VALUE [c.id, udf.f(x), udf.f([c.id, x])] FROM c JOIN x IN c.list';
    expect(await called(sql, all, host)).toHaveLength(240);
    expect(asked.slice(0, 4)).toEqual([16, 8, 1, 1]);
  });

  it('don’t prevent the pushdown of the other conditions of a filter', () => {
    const options = { userFunctions: new Set(['f', 'ARRAY_CONTAINS', 'COUNT']) };
    const plan = (sql: string) => planQuery(parseQuery(sql), [], options);
    const { pushdown } = plan('SELECT * FROM c WHERE c.id = "a" AND udf.f(c) AND c._ts > udf.f(3)');
    expect(pushdown).toEqual({
      ids: ['a'],
      equals: [{ path: ['id'], value: 'a' }],
      paths: [{ path: ['id'], op: '=', values: ['a'] }],
      complete: false,
    });
    expect(plan('SELECT * FROM c WHERE udf.ARRAY_CONTAINS(["a"], c.id)').pushdown.paths).toEqual([]);
    expect(plan('SELECT VALUE udf.COUNT(1) FROM c').countOnly).toBe(false);
    const telling = sparingPlan(plan('SELECT * FROM c WHERE c.id = "a" AND udf.f(c)'), [], {});
    expect(telling).toMatchObject({ callsFunctions: false, pushdown: { ids: ['a'] } });
  });

  it('are kept unchanged in the queries that clients send to ranges', () => {
    const sql = 'SELECT udf.f(c.a, udf.g("x")) AS f FROM c WHERE udf.isIn(c.b) ORDER BY udf.f(c.n)';
    const plan = planForClients(planQuery(parseQuery(sql), [], { userFunctions: new Set(['f', 'g', 'isIn']) }));
    const { rewrittenQuery, orderByExpressions } = 'queryInfo' in plan ? plan.queryInfo : expect.fail();
    expect(orderByExpressions).toEqual(['udf.f(c.n)']);
    expect(rewrittenQuery).toContain('{"f": udf.f(c.a, udf.g("x"))} AS payload FROM c WHERE (udf.isIn(c.b) AND');
  });
});

describe('a query that calls functions', () => {
  const userFunctions = new Set(['f']);

  it('is refused if there is no such function, with its place', () => {
    expect(refusal('SELECT VALUE udf.F(c.n) FROM c', { userFunctions })).toEqual({
      severity: 'Error',
      location: { start: 13, end: 23 },
      code: 'SC2005',
      message: "'F' is not a recognized user-defined function name.",
    });
    expect(refusal('SELECT VALUE udf.f(c.n) FROM c', {})).toMatchObject({
      code: 'SC2201',
      message: "The user-defined function 'udf.f' can't be called here.",
    });
    expect(() => checkComputedProperties([{ name: 'p', query: 'SELECT VALUE udf.f(c.n) FROM c' }], 1_000)).toThrow(
      /The computed property 'p' can't have user-defined functions/,
    );
  });

  it.each(['SELECT VALUE udf.f(RAND()) FROM c', 'SELECT VALUE udf.f(d) FROM (SELECT VALUE RAND() FROM c) d'])(
    'is refused with functions that would give another value when a document is tried than when it is evaluated: %s',
    (sql) => {
      expect(refusal(sql, { userFunctions })).toMatchObject({
        code: 'SC2201',
        message: expect.stringContaining('RAND'),
      });
    },
  );

  it('is refused with more than a hundred calls in its text', () => {
    const sql = (calls: number) => `SELECT VALUE [${Array.from({ length: calls }, () => 'udf.f(c.n)').join()}] FROM c`;
    expect(refusal(sql(100), { userFunctions })).toMatchObject({ callsFunctions: true });
    expect(refusal(sql(101), { userFunctions })).toMatchObject({ code: 'SC3001' });
  });

  it('fails after too many calls for one document, however they arise', async () => {
    const list = Array.from({ length: 101 }, (_, index) => index);
    const within = of({ list: list.slice(1) }, { list: list.slice(1).map((n) => n + 100) });
    const sql = 'SELECT VALUE COUNT(udf.f(x, y)) FROM c JOIN x IN c.list JOIN y IN c.list';
    const host = () => Host.of({ f: () => true });
    expect(await called(sql, within, host())).toEqual([20_000]);
    await expect(called(sql, of({ list }), host())).rejects.toThrow(/more than 10000 times on one document/);
    // The results of documents before it are returned.
    const first = 'SELECT TOP 1 VALUE c.id FROM c WHERE EXISTS(SELECT VALUE 1 FROM x IN c.list WHERE udf.f(x))';
    expect(await called(first, of({ list }, { list }), host())).toEqual(['i0']);
  });

  it('fails on a result, or on results for one document, that are too large', async () => {
    const host = Host.of({ large: (length) => 'x'.repeat(length as number) });
    const megabytes = (count: number) => count * 1024 * 1024;
    const result = `SELECT VALUE LENGTH(udf.large(${megabytes(2) - 2}))`;
    expect(await called(result, [], host)).toEqual([megabytes(2) - 2]);
    await expect(called(`SELECT VALUE udf.large(${megabytes(2)})`, [], host)).rejects.toThrow(
      /'udf.large' returns more/,
    );
    const all = of({ list: Array.from({ length: 40 }, (_, index) => index) });
    const held = `SELECT VALUE LENGTH(udf.large(${megabytes(1)} + x)) FROM c JOIN x IN c.list`;
    await expect(called(held, all, host)).rejects.toThrow(/too much memory/);
  });

  it('fails on a result nested deeper than a document may be', async () => {
    const deep = (levels: number) =>
      called('SELECT VALUE IS_ARRAY(udf.f())', [], {
        names: new Set(['f']),
        call: async () => ['['.repeat(levels) + ']'.repeat(levels)],
      });
    expect(await deep(128)).toEqual([true]);
    await expect(deep(129)).rejects.toThrow(/'udf.f' is nested too deep/);
    await expect(deep(100_000)).rejects.toThrow(/'udf.f' is nested too deep/);
  });

  it('fails when a document takes too long to try, even if it would be quicker the next time', async () => {
    let nowMs = 0;
    const host = Host.of({ f: () => true });
    const sql = 'SELECT VALUE 1 FROM c JOIN x IN c.list WHERE udf.f(x)';
    const plan = planQuery(parseQuery(sql), [], { userFunctions: host.names });
    const context = { calls: new FunctionCalls(host), monotonicMs: () => (nowMs += 100), maxDocumentMs: 50 };
    const all = of({ list: Array.from({ length: 1_000 }, (_, index) => index) });
    const ready = tryDocuments(plan, context);
    while (ready(all, 0, 1) === 0) await context.calls.settle();
    nowMs = Number.NaN;
    expect(() => startEvaluation(plan, context).offer(all, 0)).toThrow(QueryError);
  });

  it('does not count the time of trying several documents or rows together against one document', async () => {
    const host = simple();
    const rowsOf = async (sql: string, all: readonly Json[], tickMs: number) => {
      let nowMs = 0;
      const plan = planQuery(parseQuery(sql), [], { userFunctions: host.names });
      const calls = new FunctionCalls(host);
      const context = { calls, monotonicMs: () => (nowMs += tickMs), maxDocumentMs: 50 };
      const ready = tryDocuments(plan, context);
      const evaluation = startEvaluation(plan, context);
      const found: Json[] = [];
      for (let from = 0; from < all.length;) {
        const to = ready(all, from, all.length);
        if (to === from) await calls.settle();
        for (; from < to; found.push(...evaluation.takeRows())) from = evaluation.offer(all.slice(0, to), from);
      }
      return found;
    };
    const list = Array.from({ length: 1_000 }, (_, index) => index);
    const long = 'SELECT VALUE COUNT(1) FROM x IN c.list WHERE udf.same(x) < 0';
    expect(
      await rowsOf(
        `SELECT VALUE (${long}) FROM c`,
        many(10, (n) => ({ list: list.map((one) => one + 1_000 * n) })),
        1,
      ),
    ).toEqual(Array(10).fill(0));
    const large = 'SELECT UPPER(c.text) AS text, udf.same(x) AS x FROM c JOIN x IN c.list';
    const text = 'x'.repeat(1024 * 1024);
    expect(await rowsOf(large, of({ text, list: list.slice(0, 40) }), 0)).toHaveLength(40);
  });

  it.each([
    ['large arguments', 20_000, 10],
    ['large results', 10, 50_000],
    ['both', 30_000, 30_000],
  ])(
    'holds no more of many documents than of a few, and does not call a function twice because of that: %s',
    async (_, text, result) => {
      const host = Host.of({ large: (__, n) => 'x'.repeat(result + (n as number)) });
      const sql = 'SELECT VALUE LENGTH(udf.large(c.text, c.n)) FROM c WHERE c.n < 150';
      const plan = planQuery(parseQuery(sql), [], { userFunctions: host.names });
      let nowMs = 0;
      const calls = new FunctionCalls(host, () => (nowMs += 0.1));
      const all = many(200, (n) => ({ n, text: 'y'.repeat(text) }));
      const ready = tryDocuments(plan, { calls });
      let [most, mostMissing] = [0, 0];
      const goThrough = async (some: readonly Json[]) => {
        for (let from = 0; from < some.length;) {
          const to = ready(some, from, some.length);
          most = Math.max(most, calls.heldBytes);
          if (to === from) {
            mostMissing = Math.max(mostMissing, calls.heldBytes);
            await calls.settle();
          }
          from = to;
        }
      };
      await goThrough(all);
      expect(host.calls).toHaveLength(150);
      // Arguments count as well.
      expect(mostMissing > 300 * 1024).toBe(text > 10);
      const { length } = host.asked;
      // Results that are not needed any more are not kept.
      await goThrough([...all]);
      expect(host.calls.length).toBeGreaterThan(250);
      expect(most).toBeLessThan(2 * 1024 * 1024);
      expect(length).toBeLessThan(75);
    },
  );
});
