import { describe, expect, it } from 'vitest';
import { describeForPipeline, parseQuery, planQuery } from '../src/index.ts';

const describeQuery = (sql: string) => describeForPipeline(planQuery(parseQuery(sql), [{ name: '@n', value: 3 }]));

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
    ['SELECT * FROM c OFFSET 2 LIMIT @n', { offset: 2, limit: 3 }],
    ['SELECT DISTINCT c.a FROM c', { distinctType: 'Unordered' }],
    [
      'SELECT DISTINCT c.a FROM c ORDER BY c.a',
      { distinctType: 'Ordered', orderBy: ['Ascending'], orderByExpressions: ['c.a'] },
    ],
    [
      "SELECT * FROM c ORDER BY c['a'] DESC, c['b c'], c.d[0]",
      { orderBy: ['Descending', 'Ascending', 'Ascending'], orderByExpressions: ['c.a', 'c["b c"]', 'c.d[0]'] },
    ],
    ['SELECT VALUE COUNT(1) FROM c', { aggregates: ['Count'], hasSelectValue: true }],
    ['SELECT VALUE AVG(c.a) FROM c', { aggregates: ['Average'], hasSelectValue: true }],
    ['SELECT COUNT(1), MAX(c.a) AS m FROM c', { groupByAliasToAggregateType: { $1: 'Count', m: 'Max' } }],
    [
      'SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team',
      {
        groupByExpressions: ['c.team'],
        groupByAliases: ['team'],
        groupByAliasToAggregateType: { team: null, n: 'Count' },
      },
    ],
    [
      'SELECT TOP 2 c.id FROM c ORDER BY VectorDistance(c.v, [1, 2])',
      {
        top: 2,
        orderBy: ['Descending'],
        orderByExpressions: ['VECTORDISTANCE(c.v, [1, 2])'],
        hasNonStreamingOrderBy: true,
        rewrittenQuery:
          'SELECT TOP 2 c._rid AS _rid, [{"item": VECTORDISTANCE(c.v, [1, 2])}] AS orderByItems, {"id": c.id} AS payload FROM c ORDER BY VECTORDISTANCE(c.v, [1, 2])',
      },
    ],
  ])('%s', (sql, expected) => {
    expect(describeQuery(sql)).toEqual({ ...plain, ...expected });
  });
});
