import { aggregateTypes, isAggregate } from './aggregates.ts';
import type { Expression, SelectItem } from './ast.ts';
import { nameOf } from './compile.ts';
import type { QueryPlan } from './plan.ts';
import { printExpression, printQuery } from './print.ts';

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
  /** Empty when the query runs here as it was written, which clients take for "not rewritten". */
  readonly rewrittenQuery: string;
  readonly hasSelectValue: boolean;
  readonly dCountInfo: null;
  readonly hasNonStreamingOrderBy: boolean;
}

function aggregateType(expression: Expression): string | null {
  return expression.kind === 'call' && isAggregate(expression.name) ? aggregateTypes[expression.name] : null;
}

/**
 * A vector search as clients want it that sort its rows themselves: each row with what it is sorted by. They drop
 * doubles and skip the offset, too, so no row before it may be missing.
 */
function rewriteVectorSearch({ query, top, offset, limit }: QueryPlan): string {
  const at = { start: 0, end: 0 };
  const { selection } = query;
  const [source] = query.from;
  const root = source?.alias ?? (source?.collection.kind === 'path' ? source.collection.root : '');
  const document: Expression = { kind: 'identifier', name: root, at };
  const object = (properties: readonly { readonly name: string; readonly value: Expression }[]): Expression => ({
    kind: 'object',
    properties,
    at,
  });
  const payload = (): Expression => {
    if (selection.kind === 'star') return document;
    if (selection.kind === 'value') return selection.expression;
    return object(named(selection.items).map(({ name, expression }) => ({ name, value: expression })));
  };
  const rid: Expression = { kind: 'member', object: document, key: { kind: 'literal', value: '_rid', at }, at };
  const items = query.orderBy.map(({ expression }) => object([{ name: 'item', value: expression }]));
  const wanted = top ?? (limit === undefined ? undefined : (offset ?? 0) + limit);
  return printQuery({
    ...query,
    distinct: false,
    top: wanted === undefined || query.distinct ? undefined : { kind: 'literal', value: wanted, at },
    offset: undefined,
    limit: undefined,
    selection: {
      kind: 'list',
      items: [
        { expression: rid, alias: '_rid' },
        { expression: { kind: 'array', items, at }, alias: 'orderByItems' },
        { expression: payload(), alias: 'payload' },
      ],
    },
  });
}

/** The items of a SELECT list with the names that their values get. */
function named(items: readonly SelectItem[]): { readonly name: string; readonly expression: Expression }[] {
  let unnamed = 0;
  return items.map(({ expression, alias }) => {
    const name = alias ?? nameOf(expression);
    if (name !== undefined) return { name, expression };
    unnamed += 1;
    return { name: `$${unnamed}`, expression };
  });
}

/** What a query consists of, in the terms of a Cosmos DB query plan. */
export function describeForPipeline(plan: QueryPlan): PipelineInfo {
  const { query } = plan;
  const { selection } = query;
  const isGrouped = query.groupBy.length > 0;
  const items = selection.kind === 'list' ? selection.items : [];
  const aliasTypes: Record<string, string | null> = {};
  const groupByAliases: string[] = [];
  for (const { name, expression } of named(items)) {
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
    rewrittenQuery: plan.isVectorSearch ? rewriteVectorSearch(plan) : '',
    hasSelectValue: selection.kind === 'value',
    dCountInfo: null,
    hasNonStreamingOrderBy: plan.isVectorSearch,
  };
}
