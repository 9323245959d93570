import { describe, expect, it } from 'vitest';
import {
  compareValues,
  evaluate,
  isOfAllRanges,
  isOfRows,
  type Json,
  missingFeatures,
  parseQuery,
  planForClients,
  planQuery,
} from '../src/index.ts';
import { describeHybridSearch } from '../src/pages/hybrid-search.ts';
import { describeForPipeline } from '../src/pages/pipeline.ts';

const describeQuery = (sql: string) => describeForPipeline(planQuery(parseQuery(sql), [{ name: '@n', value: 3 }]));

const FILTER = '({documentdb-formattableorderbyquery-filter})';

const plain = {
  distinctType: 'None',
  top: null,
  offset: null,
  limit: null,
  orderBy: [],
  orderByExpressions: [],
  groupByExpressions: [],
  groupByAliases: [],
  aggregates: [],
  groupByAliasToAggregateType: {},
  rewrittenQuery: '',
  hasSelectValue: false,
  dCountInfo: null,
  hasNonStreamingOrderBy: false,
};

describe('the description for a query plan', () => {
  it.each([
    ['SELECT * FROM c', {}],
    ['SELECT VALUE c.a FROM c', { hasSelectValue: true }],
    ['SELECT TOP @n * FROM c', { top: 3 }],
    ['SELECT * FROM c OFFSET 2 LIMIT @n', { offset: 2, limit: 3, rewrittenQuery: 'SELECT TOP 5 * FROM c' }],
    [
      'SELECT * FROM c OFFSET 20 LIMIT 2147483647',
      { offset: 20, limit: 2_147_483_647, rewrittenQuery: 'SELECT TOP 2147483647 * FROM c' },
    ],
    ['SELECT VALUE 1', { hasSelectValue: true, top: 1 }],
    [
      'SELECT DISTINCT TOP 4 c.a FROM c',
      { distinctType: 'Unordered', top: 4, rewrittenQuery: 'SELECT DISTINCT c.a FROM c' },
    ],
    // Equal rows may be apart.
    [
      'SELECT DISTINCT c.a FROM c ORDER BY c.b',
      {
        distinctType: 'Unordered',
        orderBy: ['Ascending'],
        orderByExpressions: ['c.b'],
        rewrittenQuery: `SELECT c._rid, [{"item": c.b}] AS orderByItems, {"a": c.a} AS payload FROM c WHERE (${FILTER}) ORDER BY c.b`,
      },
    ],
    [
      'SELECT DISTINCT c.a FROM c ORDER BY c.a',
      {
        distinctType: 'Ordered',
        orderBy: ['Ascending'],
        orderByExpressions: ['c.a'],
        rewrittenQuery: `SELECT c._rid, [{"item": c.a}] AS orderByItems, {"a": c.a} AS payload FROM c WHERE (${FILTER}) ORDER BY c.a`,
      },
    ],
    [
      "SELECT TOP 9 * FROM c WHERE c.x ORDER BY c['a'] DESC, c['b c'], c.d[0]",
      {
        top: 9,
        orderBy: ['Descending', 'Ascending', 'Ascending'],
        orderByExpressions: ['c.a', 'c["b c"]', 'c.d[0]'],
        rewrittenQuery: `SELECT TOP 9 c._rid, [{"item": c.a}, {"item": c["b c"]}, {"item": c.d[0]}] AS orderByItems, c AS payload FROM c WHERE (c.x AND ${FILTER}) ORDER BY c.a DESC, c["b c"], c.d[0]`,
      },
    ],
    [
      'SELECT VALUE t FROM t IN c.tags ORDER BY t OFFSET 3 LIMIT 4',
      {
        hasSelectValue: true,
        offset: 3,
        limit: 4,
        orderBy: ['Ascending'],
        orderByExpressions: ['t'],
        rewrittenQuery: `SELECT TOP 7 _document._rid, [{"item": t}] AS orderByItems, t AS payload FROM _document JOIN t IN _document["tags"] WHERE (${FILTER} AND IS_DEFINED(t)) ORDER BY t`,
      },
    ],
    [
      'SELECT VALUE COUNT(1) FROM c',
      { aggregates: ['Count'], hasSelectValue: true, rewrittenQuery: 'SELECT VALUE [{"item": COUNT(1)}] FROM c' },
    ],
    [
      'SELECT DISTINCT VALUE COUNT(1) FROM c',
      { aggregates: ['Count'], hasSelectValue: true, rewrittenQuery: 'SELECT VALUE [{"item": COUNT(1)}] FROM c' },
    ],
    [
      'SELECT VALUE SUM(c.a) FROM c',
      {
        aggregates: ['Sum'],
        hasSelectValue: true,
        rewrittenQuery: 'SELECT VALUE [{"item": SUM(c.a)}] FROM c',
      },
    ],
    [
      'SELECT COUNT(1), c.b AS m FROM c GROUP BY c.b',
      {
        groupByExpressions: ['c.b'],
        groupByAliases: ['$1', 'm'],
        groupByAliasToAggregateType: { $1: 'Count', m: null },
        rewrittenQuery:
          'SELECT [{"item": c.b}] AS groupByItems, {"$1": {"item": COUNT(1)}, "m": c.b} AS payload FROM c GROUP BY c.b',
      },
    ],
    [
      'SELECT c.n, c.b, COUNT(1) AS n FROM c GROUP BY c.b, c.n',
      {
        groupByExpressions: ['c.b', 'c.n'],
        groupByAliases: ['n', 'b'],
        groupByAliasToAggregateType: { n: 'Count', b: null },
        rewrittenQuery:
          'SELECT [{"item": c.b}, {"item": c.n}] AS groupByItems, {"n": {"item": COUNT(1)}, "b": c.b} AS payload FROM c GROUP BY c.b, c.n',
      },
    ],
    [
      'SELECT TOP 3 VALUE SUM(c.n) FROM c WHERE c.x GROUP BY c.b ORDER BY c.b DESC',
      {
        top: 3,
        hasSelectValue: true,
        orderBy: ['Descending'],
        orderByExpressions: ['c.b'],
        groupByExpressions: ['c.b'],
        aggregates: ['Sum'],
        rewrittenQuery: `SELECT MIN(c._rid) AS _rid, [{"item": c.b}] AS orderByItems, {"groupByItems": [{"item": c.b}], "payload": [{"item": SUM(c.n)}]} AS payload FROM c WHERE (c.x AND ${FILTER}) GROUP BY c.b ORDER BY c.b DESC`,
      },
    ],
    [
      'SELECT TOP 2 c.id FROM c ORDER BY VectorDistance(c.v, [1, 2])',
      {
        top: 2,
        orderBy: ['Descending'],
        orderByExpressions: ['VECTORDISTANCE(c.v, [1, 2])'],
        hasNonStreamingOrderBy: true,
        rewrittenQuery: `SELECT TOP 2 c._rid, [{"item": VECTORDISTANCE(c.v, [1, 2])}] AS orderByItems, {"id": c.id} AS payload FROM c ORDER BY VECTORDISTANCE(c.v, [1, 2])`,
      },
    ],
  ])('%s', (sql, expected) => {
    expect(describeQuery(sql)).toEqual({ ...plain, ...expected });
  });

  it.each([
    'SELECT VALUE COUNT(1) + 1 FROM c',
    'SELECT VALUE {"n": COUNT(1)} FROM c',
    'SELECT DISTINCT c.a, COUNT(1) AS n FROM c GROUP BY c.a',
    'SELECT c.a FROM c GROUP BY c.a ORDER BY c.a, COUNT(1)',
    'SELECT c.v FROM c GROUP BY c.v ORDER BY VectorDistance(c.v, [1, 2])',
    'SELECT VALUE COUNT(1) FROM (SELECT DISTINCT d.a FROM d) c',
    'SELECT c.a FROM (SELECT VALUE d FROM d) c ORDER BY c.a',
  ])('is refused if parts can’t be merged: %s', (sql) => {
    expect(() => describeQuery(sql)).toThrow("can't be put together");
  });

  it('is refused with the service’s message if the query computes with aggregates', () => {
    const words = 'Compositions of aggregates and other expressions are not allowed.';
    expect(() => describeQuery('SELECT c.a, ABS(AVG(c.n)) AS n FROM c GROUP BY c.a')).toThrow(words);
  });

  it.each([
    'SELECT * FROM c',
    'SELECT VALUE SUM(c.a) FROM c GROUP BY c.b ORDER BY c.b',
    'SELECT c.b, (SUM(c.a) + 1) AS s FROM c GROUP BY c.b',
    'SELECT DISTINCT TOP 3 VALUE c.a FROM c',
    'SELECT c.a FROM c ORDER BY c.a, c.b DESC OFFSET 1 LIMIT @n',
    'SELECT t FROM c JOIN t IN c["tags"] ORDER BY c.a',
    'SELECT TOP @n c.a FROM c',
    'SELECT VALUE (COUNT(1) + 1) FROM c',
    'SELECT DISTINCT c.a, COUNT(1) AS n FROM c GROUP BY c.a',
    'SELECT c.a FROM (SELECT VALUE d FROM d) AS c ORDER BY c.a',
    'SELECT VALUE 1',
  ])('lets the JavaScript client ask one range for the whole result, and merge nothing: %s', (sql) => {
    const parameters = [{ name: '@n', value: 3 }];
    const plan = planQuery(parseQuery(sql), parameters);
    const rewrittenQuery = `/* of all ranges */ ${sql}`;
    const hasSelectValue = sql.includes(' VALUE ') && !sql.includes('(SELECT');
    expect(describeForPipeline(plan, 'javaScript')).toEqual({ ...plain, hasSelectValue, rewrittenQuery });
    expect(isOfAllRanges(rewrittenQuery)).toBe(true);
    expect(() => planQuery(parseQuery(rewrittenQuery), parameters)).not.toThrow();
  });

  it('lets the JavaScript client build rows from whole groups', () => {
    const plan = planQuery(parseQuery('SELECT c.b, SUM(c.a) AS s, MAX(c.a) AS m FROM c GROUP BY c.b OFFSET 1 LIMIT 2'));
    expect(describeForPipeline(plan, 'javaScript')).toEqual({
      ...plain,
      offset: 1,
      limit: 2,
      groupByExpressions: ['c.b'],
      groupByAliases: ['b', 's', 'm'],
      groupByAliasToAggregateType: { b: null, s: 'Sum', m: 'Max' },
      rewrittenQuery:
        '/* of all ranges */ /* of groups */ SELECT [{"item": c.b}] AS groupByItems, {"b": c.b, "s": {"item": SUM(c.a), "item2": null}, "m": {"item": MAX(c.a), "item2": {"max": MAX(c.a), "count": COUNT(c.a)}}} AS payload FROM c GROUP BY c.b',
    });
  });

  it.each(['SELECT c.a FROM c', 'SELECT TOP 2 c.id FROM c ORDER BY VectorDistance(c.v, [1, 2])'])(
    'lets other clients, and all clients in a vector search, ask each range: %s',
    (sql) => {
      const plan = planQuery(parseQuery(sql));
      const { rewrittenQuery } = describeForPipeline(plan);
      expect(isOfAllRanges(rewrittenQuery)).toBe(false);
      if (plan.isVectorSearch) expect(describeForPipeline(plan, 'javaScript').rewrittenQuery).toBe(rewrittenQuery);
    },
  );

  it('marks rows that a JOIN makes of one document for the .NET client alone, which counts them differently', () => {
    const plan = planQuery(parseQuery('SELECT t FROM c JOIN t IN c.tags ORDER BY c.a'));
    const { rewrittenQuery } = describeForPipeline(plan, 'java');
    expect(describeForPipeline(plan, 'olderDotNet').rewrittenQuery).toBe(rewrittenQuery);
    expect(describeForPipeline(plan, 'dotNet').rewrittenQuery).toBe(`/* of rows */ ${rewrittenQuery}`);
    expect([`/* of rows */ ${rewrittenQuery}`, rewrittenQuery].map(isOfRows)).toEqual([true, false]);
    const single = planQuery(parseQuery('SELECT c.a FROM c ORDER BY c.a'));
    expect(describeForPipeline(single, 'dotNet')).toEqual(describeForPipeline(single));
  });

  it('contains queries that this parser reads', () => {
    for (const sql of [
      'SELECT VALUE MAX(c.a) FROM c',
      'SELECT AVG(c["or der"]) AS a FROM c',
      'SELECT c.value FROM c ORDER BY c["order"]',
      'SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a ORDER BY c.a',
    ]) {
      const { rewrittenQuery } = describeQuery(sql);
      expect(() => planQuery(parseQuery(rewrittenQuery.replace(FILTER, '(true)')))).not.toThrow();
    }
  });
});

describe('MIN and MAX over several ranges', () => {
  type Part = { readonly item?: Json; readonly item2?: Json };

  /**
   * The value that the .NET client merges from the parts.
   *
   * @source `AggregateItem` and `MinMaxAggregator` of Microsoft.Azure.Cosmos/src/Query/Core/Pipeline/Aggregate/Aggregators in
   * https://github.com/Azure/azure-cosmos-dotnet-v3
   */
  function mergedByDotNet(parts: readonly Part[], sign: number): Json | undefined {
    let merged: { readonly value: Json | undefined } | undefined;
    for (const { item, item2 = item } of parts) {
      let value = item2;
      if (typeof value === 'object' && value !== null && 'count' in value) {
        if (value['count'] === 0) continue;
        value = 'min' in value ? value['min'] : value['max'];
      }
      if (value === undefined || (typeof value === 'object' && value !== null)) return undefined;
      if (merged === undefined || sign * compareValues(value, merged.value) > 0) merged = { value };
    }
    return merged?.value;
  }

  /**
   * The value that the Java client merges from the parts of a MIN, null for undefined. (For a MAX it always leaves out undefined parts.)
   *
   * @source `AggregateItem` and `MinAggregator` of sdk/cosmos/azure-cosmos/src/main/java/com/azure/cosmos/implementation/query in
   * https://github.com/Azure/azure-sdk-for-java
   */
  function leastByJava(parts: readonly Part[]): Json {
    let least: Json | undefined;
    for (const { item = null, item2 } of parts) {
      let value: Json | undefined = item2 ?? item;
      if (typeof value === 'object' && value !== null && 'count' in value) {
        if (value['count'] === 0) continue;
        value = value['min'];
        if (value === undefined) continue;
      } else if (value !== null) throw new Error(`Unexpected type: ${JSON.stringify(value)}`);
      if (least === undefined || compareValues(value, least) < 0) least = value;
    }
    return least ?? null;
  }

  const rowsOf = (sql: string, values: readonly Json[]): unknown[] => {
    const documents = values.map((a) => ({ a }));
    return [...evaluate(planQuery(parseQuery(sql)), [...documents, { b: 1 }])];
  };
  const RANGES: readonly (readonly Json[])[] = [
    [],
    [1],
    [3, 2],
    ['x', true],
    [null],
    [false, 'y'],
    [[0]],
    [{ b: 9 }],
    [1, [0]],
    [{ b: 9 }, 'z'],
  ];

  it.each([
    ['MIN', -1],
    ['MAX', 1],
  ])('are those of all ranges for the .NET client, whichever range has no value: %s', (name, sign) => {
    const value = `SELECT VALUE ${name}(c.a) FROM c`;
    const { rewrittenQuery } = describeForPipeline(planQuery(parseQuery(value)), 'dotNet');
    const list = `SELECT ${name}(c.a) AS v FROM c`;
    const { rewrittenQuery: rewrittenList } = describeForPipeline(planQuery(parseQuery(list)), 'dotNet');
    for (const one of RANGES) {
      for (const other of RANGES) {
        const [whole] = rowsOf(value, [...one, ...other]);
        const parts = [one, other].flatMap((range) => rowsOf(rewrittenQuery, range).flat()) as Part[];
        expect([one, other, mergedByDotNet(parts, sign)]).toEqual([one, other, whole]);
        const payloads = [one, other].flatMap((range) => rowsOf(rewrittenList, range));
        const listed = payloads.map((payload) => (payload as { payload: { v: Part } }).payload.v);
        expect(listed).toEqual(parts);
      }
    }
  });

  it('are those of all ranges for the Java client', () => {
    const sql = 'SELECT VALUE MIN(c.a) FROM c';
    const { rewrittenQuery } = describeForPipeline(planQuery(parseQuery(sql)), 'java');
    for (const one of RANGES) {
      for (const other of RANGES) {
        const [whole = null] = rowsOf(sql, [...one, ...other]);
        const parts = [one, other].flatMap((range) => rowsOf(rewrittenQuery, range).flat()) as Part[];
        expect([one, other, leastByJava(parts)]).toEqual([one, other, whole]);
      }
    }
  });
});

describe('the description of a ranked search', () => {
  const search = (sql: string) => describeHybridSearch(planQuery(parseQuery(sql)));
  const score = (text: number) =>
    `_FullTextScore(c.text, ["red", "fast car"], {documentdb-formattablehybridsearchquery-totaldocumentcount}, {documentdb-formattablehybridsearchquery-totalwordcount-${text}}, {documentdb-formattablehybridsearchquery-hitcountsarray-${text}})`;

  it('asks for the statistics of all documents, then for the best of the matching ones', () => {
    expect(
      search("SELECT TOP 10 * FROM c WHERE c.n > 1 ORDER BY RANK FullTextScore(c.text, 'Red', ['fast car'])"),
    ).toEqual({
      globalStatisticsQuery:
        '/* in one page */ SELECT COUNT(1) AS documentCount, [{"totalWordCount": (SUM(_FullTextWordCount(c.text)) ?? 0), "hitCounts": [COUNTIF(FullTextContains(c.text, "red")), COUNTIF(FullTextContains(c.text, "fast car"))]}] AS fullTextStatistics FROM c',
      componentQueryInfos: [
        {
          ...plain,
          top: 10,
          orderBy: ['Descending'],
          orderByExpressions: [score(0)],
          rewrittenQuery: `SELECT TOP 10 c._rid, [{"item": ${score(0)}}] AS orderByItems, {"payload": c, "componentScores": [${score(0)}]} AS payload FROM c WHERE (c.n > 1) ORDER BY ${score(0)} DESC`,
          hasNonStreamingOrderBy: true,
        },
      ],
      componentWeights: [1],
      skip: null,
      take: 10,
      requiresGlobalStatistics: true,
    });
  });

  it('has a query for each score, with all scores of its rows; rows without a score come last', () => {
    const found = search(
      "SELECT VALUE c.id FROM c ORDER BY RANK RRF(VectorDistance(c.v, [1]), FullTextScore(c.text, 'red', 'fast car'), [2, 1]) OFFSET 5 LIMIT 30",
    );
    expect(found).toMatchObject({ componentWeights: [2, 1], skip: 5, take: 30, requiresGlobalStatistics: true });
    expect(found?.componentQueryInfos.map(({ top, orderBy }) => [top, orderBy])).toEqual([
      [350, ['Descending']],
      [350, ['Descending']],
    ]);
    const vector = '(VECTORDISTANCE(c.v, [1]) ?? -1e+300)';
    expect(found?.componentQueryInfos[1]?.rewrittenQuery).toBe(
      `SELECT TOP 350 c._rid, [{"item": ${score(0)}}] AS orderByItems, {"payload": c.id, "componentScores": [${vector}, ${score(0)}]} AS payload FROM c ORDER BY ${score(0)} DESC`,
    );
  });

  it('numbers the statistics by the text scores alone, as the .NET client looks for them', () => {
    const text = (terms: string) => `FullTextScore(c.text, ${terms})`;
    const found = search(
      `SELECT TOP 1 * FROM c ORDER BY RANK RRF(${text("'red'")}, VectorDistance(c.v, [1]), ${text("'blue'")})`,
    );
    const numbers = found?.componentQueryInfos.map(({ rewrittenQuery }) => [
      ...new Set([...rewrittenQuery.matchAll(/totalwordcount-(\d+)/g)].map(([, number]) => number)),
    ]);
    expect(numbers?.map((ones) => ones.toSorted())).toEqual([
      ['0', '1'],
      ['0', '1'],
      ['0', '1'],
    ]);
  });

  it('does not exist for other queries', () => {
    expect(search('SELECT * FROM c ORDER BY c.n')).toBeUndefined();
  });
});

describe('the features that a client needs', () => {
  const missing = (sql: string, ...supported: string[]) =>
    missingFeatures(planForClients(planQuery(parseQuery(sql))), { supported: new Set(supported), isJava: false });

  it.each([
    ['SELECT * FROM c WHERE c.n > 1', []],
    ['SELECT VALUE COUNT(1) FROM c', ['Aggregate']],
    ['SELECT COUNT(1) AS n FROM c', ['NonValueAggregate']],
    ['SELECT COUNT(1) AS n, SUM(c.n) AS s FROM c', ['NonValueAggregate', 'MultipleAggregates']],
    ['SELECT VALUE COUNTIF(c.n > 1) FROM c', ['Aggregate', 'CountIf']],
    ['SELECT VALUE MAKELIST(c.n) FROM c', ['Aggregate', 'ListAndSetAggregate']],
    ['SELECT MAKESET(c.n) AS s FROM c', ['NonValueAggregate', 'ListAndSetAggregate']],
    ['SELECT c.n FROM c GROUP BY c.n', ['GroupBy']],
    ['SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n', ['NonValueAggregate', 'GroupBy']],
    ['SELECT DISTINCT c.n FROM c', ['Distinct']],
    ['SELECT TOP 3 * FROM c', ['Top']],
    ['SELECT * FROM c OFFSET 1 LIMIT 2', ['OffsetAndLimit']],
    ['SELECT * FROM c ORDER BY c.n', ['OrderBy']],
    ['SELECT * FROM c ORDER BY c.n, c.m', ['MultipleOrderBy']],
    ['SELECT TOP 3 * FROM c ORDER BY VectorDistance(c.v, [1])', ['Top', 'OrderBy', 'NonStreamingOrderBy']],
    ["SELECT TOP 3 * FROM c ORDER BY RANK FullTextScore(c.t, 'a')", ['HybridSearch']],
    [
      "SELECT TOP 3 * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'), FullTextScore(c.t, 'b'), [2, 1])",
      ['HybridSearch', 'WeightedRankFusion'],
    ],
  ])('for %s', (sql, needed) => {
    expect(missing(sql)).toEqual(needed);
    expect(missing(sql, ...needed)).toEqual([]);
    for (const name of needed) expect(missing(sql, ...needed.filter((one) => one !== name))).toEqual([name]);
  });

  it('tell apart .NET clients: those with DCount always read the count of an average, as the Java client does', () => {
    const average = (...supported: string[]) =>
      JSON.stringify(
        planForClients(planQuery(parseQuery('SELECT VALUE AVG(c.n) FROM c')), {
          supported: new Set(supported),
          isJava: supported.length === 0,
        }),
      );
    const parts = '[{\\"item\\": {\\"sum\\": SUM(c.n), \\"count\\": COUNT(c.n)}}]';
    expect(average('Aggregate', 'DCount')).toContain(parts);
    expect(average()).toContain(parts);
    expect(average('Aggregate')).toContain('IS_DEFINED(SUM(c.n))');
  });

  it('do not include building rows from groups for Microsoft.Azure.DocumentDB, although it announces that', () => {
    const plan = (isDotNet: boolean) =>
      planForClients(planQuery(parseQuery('SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g')), {
        supported: new Set(['GroupBy']),
        isJava: false,
        isDotNet,
      });
    const rewrittenQuery = '/* of all ranges */ SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g';
    expect(plan(true)).toEqual({ queryInfo: { ...plain, rewrittenQuery } });
    expect(plan(false)).toMatchObject({ queryInfo: { groupByExpressions: ['c.g'] } });
  });

  it('include DCount, which the .NET and Java clients have', () => {
    const plan = (sql: string, ...supported: string[]) =>
      planForClients(planQuery(parseQuery(sql)), { supported: new Set(supported), isJava: false }) as {
        queryInfo: object;
      };
    const sql = 'SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.n FROM c WHERE c.n > 1)';
    expect(plan(sql, 'DCount').queryInfo).toEqual({
      ...plain,
      distinctType: 'Unordered',
      hasSelectValue: true,
      dCountInfo: { dCountAlias: '' },
      rewrittenQuery: 'SELECT DISTINCT VALUE c.n FROM c WHERE (c.n > 1)',
    });
    expect(plan('SELECT COUNT(1) AS k FROM (SELECT DISTINCT c.n FROM c) d', 'DCount').queryInfo).toMatchObject({
      dCountInfo: { dCountAlias: 'k' },
      hasSelectValue: false,
    });
    expect(plan('SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE null)', 'DCount').queryInfo).toMatchObject({
      distinctType: 'Unordered',
      dCountInfo: { dCountAlias: '' },
      rewrittenQuery: 'SELECT DISTINCT VALUE null',
    });
    expect(() => plan(sql)).toThrow("can't be put together");
    for (const other of [
      'SELECT VALUE COUNT(d.n) FROM (SELECT DISTINCT c.n FROM c) d',
      'SELECT * FROM (SELECT DISTINCT c.n FROM c) d',
      'SELECT VALUE COUNT(1) FROM (SELECT DISTINCT TOP 5 c.n FROM c) d',
      'SELECT VALUE SUM(1) FROM (SELECT DISTINCT c.n FROM c) d',
      'SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE MAX(c.n) FROM c)',
      'SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.n FROM c) d WHERE d.n > 1',
    ]) {
      expect(() => plan(other, 'DCount')).toThrow("can't be put together");
    }
  });

  it('include merging lists, which the .NET client can do without announcing it', () => {
    expect(missing('SELECT VALUE MAKELIST(c.n) FROM c', 'Aggregate', 'DCount')).toEqual([]);
  });

  const missingOfJava = (sql: string, ...supported: string[]) => {
    const client = { supported: new Set(supported), isJava: true };
    return missingFeatures(planForClients(planQuery(parseQuery(sql)), client), client);
  };

  it('include merging lists, which the Java client can’t do', () => {
    expect(missingOfJava('SELECT VALUE MAKELIST(c.n) FROM c', 'Aggregate', 'DCount')).toEqual(['ListAndSetAggregate']);
  });

  it('include keeping the order of groups, which the Java client can’t do', () => {
    const can = ['GroupBy', 'OrderBy'];
    expect(missingOfJava('SELECT c.n FROM c GROUP BY c.n ORDER BY c.n', ...can)).toEqual(['OrderedGroupBy']);
    expect(missing('SELECT c.n FROM c GROUP BY c.n ORDER BY c.n', ...can)).toEqual([]);
    expect(missingOfJava('SELECT c.n FROM c GROUP BY c.n', ...can)).toEqual([]);
    expect(missingOfJava('SELECT c.n FROM c ORDER BY c.n', ...can)).toEqual([]);
  });
});
