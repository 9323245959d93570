import { describe, expect, it } from 'vitest';
import { describeForPipeline, parseQuery, planQuery } from '../src/index.ts';

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
    ['SELECT VALUE 1', { hasSelectValue: true, top: 1 }],
    [
      'SELECT DISTINCT TOP 4 c.a FROM c',
      { distinctType: 'Unordered', top: 4, rewrittenQuery: 'SELECT DISTINCT c.a FROM c' },
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
      'SELECT VALUE SUM(c.a) FROM c',
      {
        aggregates: ['Sum'],
        hasSelectValue: true,
        rewrittenQuery: 'SELECT VALUE [{"item": ((COUNT(c.a) = 0) ? 0 : SUM(c.a))}] FROM c',
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
    'SELECT c.a FROM c GROUP BY c.a ORDER BY c.a',
    'SELECT VALUE COUNT(1) FROM (SELECT DISTINCT d.a FROM d) c',
    'SELECT c.a FROM (SELECT VALUE d FROM d) c ORDER BY c.a',
  ])('is refused where parts can not be merged: %s', (sql) => {
    expect(() => describeQuery(sql)).toThrow("can't be put together");
  });

  it('is of queries that this language reads', () => {
    for (const sql of [
      'SELECT VALUE MAX(c.a) FROM c',
      'SELECT AVG(c["or der"]) AS a FROM c',
      'SELECT c.value FROM c ORDER BY c["order"]',
    ]) {
      const { rewrittenQuery } = describeQuery(sql);
      expect(() => planQuery(parseQuery(rewrittenQuery.replace(FILTER, '(true)')))).not.toThrow();
    }
  });
});
