import { aggregateTypes, isAggregate } from './aggregates.ts';
import type { Expression } from './ast.ts';
import { nameOf } from './compile.ts';
import type { QueryPlan } from './plan.ts';
import { printExpression } from './print.ts';

/** `queryInfo` of a query plan, as the client libraries read it. */
export interface PipelineInfo {
  readonly distinctType: 'None' | 'Ordered' | 'Unordered';
  readonly top: number | null;
  readonly offset: number | null;
  readonly limit: number | null;
  readonly orderBy: readonly ('Ascending' | 'Descending')[];
  readonly orderByExpressions: readonly string[];
  readonly groupByExpressions: readonly string[];
  readonly groupByAliases: readonly string[];
  readonly aggregates: readonly string[];
  readonly groupByAliasToAggregateType: Readonly<Record<string, string | null>>;
  /** Always empty: the query runs here as it was written, and clients take that for "not rewritten". */
  readonly rewrittenQuery: '';
  readonly hasSelectValue: boolean;
  readonly dCountInfo: null;
  readonly hasNonStreamingOrderBy: boolean;
}

function aggregateType(expression: Expression): string | null {
  return expression.kind === 'call' && isAggregate(expression.name) ? aggregateTypes[expression.name] : null;
}

/** What a query consists of, in the terms of a Cosmos DB query plan. */
export function describeForPipeline(plan: QueryPlan): PipelineInfo {
  const { query } = plan;
  const { selection } = query;
  const isGrouped = query.groupBy.length > 0;
  const items = selection.kind === 'list' ? selection.items : [];
  const aliasTypes: Record<string, string | null> = {};
  const groupByAliases: string[] = [];
  let unnamed = 0;
  for (const { expression, alias } of items) {
    let name = alias ?? nameOf(expression);
    if (name === undefined) {
      unnamed += 1;
      name = `$${unnamed}`;
    }
    const type = aggregateType(expression);
    if (isGrouped || plan.program.grouping !== undefined) {
      Object.defineProperty(aliasTypes, name, { value: type, enumerable: true, configurable: true, writable: true });
      if (type === null) groupByAliases.push(name);
    }
  }
  const valueAggregate = selection.kind === 'value' && !isGrouped ? aggregateType(selection.expression) : null;
  return {
    distinctType: query.distinct ? (query.orderBy.length > 0 ? 'Ordered' : 'Unordered') : 'None',
    top: plan.top ?? null,
    offset: plan.offset ?? null,
    limit: plan.limit ?? null,
    orderBy: plan.orderBy.map(({ descending }) => (descending ? 'Descending' : 'Ascending')),
    orderByExpressions: plan.orderBy.map(({ expression }) => printExpression(expression)),
    groupByExpressions: query.groupBy.map(printExpression),
    groupByAliases,
    aggregates: valueAggregate === null ? [] : [valueAggregate],
    groupByAliasToAggregateType: aliasTypes,
    rewrittenQuery: '',
    hasSelectValue: selection.kind === 'value',
    dCountInfo: null,
    hasNonStreamingOrderBy: plan.isVectorSearch,
  };
}
