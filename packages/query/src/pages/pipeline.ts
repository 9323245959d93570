import { MAX_ROW_COUNT } from '../compile/compile.ts';
import type { QueryPlan } from '../compile/plan.ts';
import { queryError, type SourceLocation } from '../errors.ts';
import { aggregateTypes, isAggregate, type AggregateName } from '../functions/aggregates.ts';
import type { Expression, FromSource, Query, RowCount, SelectItem } from '../language/ast.ts';
import { hasAggregate, nameOf } from '../language/expression-facts.ts';
import { call, choice, isZero, member, NOWHERE, NULL, object, UNDEFINED, verbatim } from '../language/expressions.ts';
import { printExpression, printQuery } from '../language/print.ts';

/** The `queryInfo` of a query plan, in the form that client libraries read. */
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
  /** The query to send to each range; if empty, the original query. */
  readonly rewrittenQuery: string;
  readonly hasSelectValue: boolean;
  /** Set if the answer is the number of distinct rows. It has an alias unless the query selects a VALUE. */
  readonly dCountInfo: { readonly dCountAlias: string } | null;
  readonly hasNonStreamingOrderBy: boolean;
}

/** The client library that merges the results of a plan. */
export type PlanReader = 'dotNet' | 'olderDotNet' | 'documentDb' | 'java' | 'javaScript' | 'other';

const readsDotNetPlans = (reader: PlanReader): boolean => reader !== 'javaScript' && reader !== 'other';

/** For a query whose rows are the answer as they come: the client need not rewrite it, nor merge anything. */
export const PLAIN_PIPELINE: PipelineInfo = {
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

/** Prefix of a query that one range answers for all ranges. */
const OF_ALL = '/* of all ranges */ ';
/** The same prefix, if the client makes rows from groups. */
const OF_GROUPS = `${OF_ALL}/* of groups */ `;
/** Prefix of a query whose rows must all have different `_rid`s, also several rows of one document. */
const BY_ROW = '/* of rows */ ';
/** Prefix of a query whose first page must contain all of its rows. */
const IN_ONE_PAGE = '/* in one page */ ';
/** Clients replace this by a condition: `true`, or a comparison with the last row, to continue after it. */
const FILTER = '({documentdb-formattableorderbyquery-filter})';
/**
 * Whether the first range answers this query for all ranges. Plans for the JavaScript client and Microsoft.Azure.DocumentDB have such
 * queries; see {@link describeForPipeline}.
 */
export const isOfAllRanges = (sql: string): boolean => sql.startsWith(OF_ALL);

/**
 * Whether the rows of this query are groups for the JavaScript client. Once it has received some groups, the client takes the first page
 * without groups for the end: its answer then lacks the other groups, and its pages never end.
 *
 * @source `GroupByEndpointComponent` of `@azure/cosmos` 4.10.1
 */
export const isOfGroups = (sql: string): boolean => sql.startsWith(OF_GROUPS);

/**
 * Whether each row of this query must have its own `_rid`. If JOIN makes several rows of one document, the .NET client counts the ones
 * that it has already returned only from the last page on.
 *
 * @source `OrderByCrossPartitionQueryPipelineStage` of Microsoft.Azure.Cosmos
 */
export const isOfRows = (sql: string): boolean => sql.startsWith(BY_ROW);

/**
 * Whether the first page of this query must contain all rows, however long that takes. The .NET client expects the statistics of texts on
 * the first page, and fails if they come later.
 *
 * @source `HybridSearchCrossPartitionQueryPipelineStage` of Microsoft.Azure.Cosmos
 */
export const isInOnePage = (sql: string): boolean => sql.startsWith(IN_ONE_PAGE);

/** Makes a query that {@link isInOnePage}. */
export const inOnePage = (sql: string): string => `${IN_ONE_PAGE}${sql}`;

/** The alias for the documents if a query has none, as in `FROM x IN c.items`. */
const DOCUMENT = '_document';

/**
 * Describes how a client answers a query by asking several ranges: the query for each range, and how to merge the results. The rows of
 * each range then have the form that the client's pipeline reads: `{_rid, orderByItems, payload}` for ORDER BY, `[{item}]` for an
 * aggregate, `{groupByItems, payload}` for groups.
 *
 * @param plan the plan of a query without ORDER BY RANK; for those see `describeHybridSearch`
 * @param reader the client. The clients differ as follows:
 *   - The .NET client counts distinct rows itself. If a range has values that are not numbers, the client still needs the count of its
 *     average, to find that the whole has no average. The Java client gets the same: it fails if an average is missing.
 *   - The JavaScript client gets queries that are {@link isOfAllRanges}, except searches by vectors, for which it looks for a bound. By
 *     itself it drops distinct `0`, `false`, `""` and `null`, and the sums, averages, minima and maxima of groups of which one range has
 *     none. With a token it misses rows or repeats them, because it searches the token's parts among the ranges that it knows. This
 *     happens even for the simplest query, if several clients know the ranges of different times.
 *   - Microsoft.Azure.DocumentDB asks one range for everything. It counts no groups in the JavaScript client's form.
 * @throws QueryError if the results of the ranges can't be merged to the answer of the query
 * @source `OrderedDistinctEndpointComponent`, `GroupByEndpointComponent`, `ParallelQueryRangeStrategy`,
 *   `OrderByQueryRangeStrategy`, `RidSkipCountFilter` and `calculateOffsetLimitForPartitionRanges` of `@azure/cosmos` 4.10.1
 */
export function describeForPipeline(plan: QueryPlan, reader: PlanReader = 'other'): PipelineInfo {
  const { query } = plan;
  const plain: PipelineInfo = {
    ...PLAIN_PIPELINE,
    top: plan.top ?? null,
    offset: plan.offset ?? null,
    limit: plan.limit ?? null,
    hasSelectValue: query.selection.kind === 'value',
    hasNonStreamingOrderBy: plan.isVectorSearch,
  };
  const isOfAll = reader === 'documentDb' || (reader === 'javaScript' && !isGroupedByClient(plan));
  if (isOfAll && !plan.isVectorSearch) {
    return { ...PLAIN_PIPELINE, hasSelectValue: plain.hasSelectValue, rewrittenQuery: OF_ALL + printQuery(query) };
  }
  const counted = readsDotNetPlans(reader) ? distinctCount(plan) : undefined;
  if (counted !== undefined) return { ...plain, ...counted };
  if (plan.derivedFrom !== undefined && !plan.derivedFrom.streaming) {
    throw notMerged('FROM over a query that orders, groups or limits its rows');
  }
  // A query without FROM has one row, which every range returns. So one of them is enough.
  if (!plan.readsDocuments) return { ...plain, top: Math.min(plan.top ?? 1, 1) };
  if (plan.program.grouping !== undefined) return { ...plain, ...groups(plan, reader) };
  if (query.orderBy.length > 0) {
    const info = ordered(plan);
    const isOfSeveral = reader === 'dotNet' && plan.program.sources.length > 0 && !plan.isVectorSearch;
    return { ...plain, ...info, ...(isOfSeveral ? { rewrittenQuery: BY_ROW + info.rewrittenQuery } : {}) };
  }
  if (query.distinct) {
    return { ...plain, distinctType: 'Unordered', rewrittenQuery: printQuery({ ...query, ...NO_BOUNDS }) };
  }
  const first = firstRows(plan);
  return plan.offset === undefined
    ? plain
    : { ...plain, rewrittenQuery: printQuery({ ...query, ...NO_BOUNDS, top: first }) };
}

/**
 * Whether the JavaScript client should make the rows from groups, which it receives complete. It returns an undefined value of a group as a
 * property, and its users may expect that. It does not order groups, and does not compute with aggregates.
 */
function isGroupedByClient({ query, derivedFrom }: QueryPlan): boolean {
  const { selection, groupBy, orderBy, distinct } = query;
  if (groupBy.length === 0 || orderBy.length > 0 || distinct || derivedFrom?.streaming === false) return false;
  const selected = selection.kind === 'value' ? [selection] : selection.kind === 'list' ? selection.items : [];
  return selected.every(({ expression }) => isAggregateCall(expression) || !hasAggregate(expression));
}

/** `SELECT VALUE COUNT(1) FROM (SELECT DISTINCT …)`: each range returns its distinct rows, and the client counts. */
function distinctCount({ query, derivedFrom }: QueryPlan): Partial<PipelineInfo> | undefined {
  if (derivedFrom === undefined || !derivedFrom.query.distinct) return undefined;
  // Without FROM there is one row; every range has it, and the client drops all but one.
  if (derivedFrom.readsDocuments && !derivedFrom.asOffered) return undefined;
  if (derivedFrom.derivedFrom !== undefined || query.from.length > 1) return undefined;
  const { selection, where, distinct, groupBy, orderBy, orderByRank, top, offset, limit } = query;
  const clauses = [where, orderByRank, top, offset, limit, groupBy[0], orderBy[0]];
  if (distinct || clauses.some((clause) => clause !== undefined)) return undefined;
  const items =
    selection.kind === 'value'
      ? [{ name: '', expression: selection.expression }]
      : named(selection.kind === 'list' ? selection.items : []);
  const [item, ...others] = items;
  const aggregate = item === undefined || others.length > 0 ? undefined : aggregateOf(item.expression);
  const counts = aggregate?.argument;
  if (aggregate?.name !== 'COUNT' || counts?.kind !== 'literal' || counts.value === undefined) return undefined;
  return {
    distinctType: 'Unordered',
    dCountInfo: { dCountAlias: item!.name },
    rewrittenQuery: printQuery(derivedFrom.query),
  };
}

export const NO_BOUNDS = { top: undefined, offset: undefined, limit: undefined } as const;

export const notMerged = (what: string, at?: SourceLocation): Error =>
  queryError(
    'notSupported',
    `${what} can't be put together from several partition key ranges by a client. Run the query without a query plan, or over one partition key.`,
    at,
  );

/** The number of rows that each range must return so that none is missing in the merged answer. */
function firstRows(plan: QueryPlan): RowCount | undefined {
  const count = plan.top ?? (plan.limit === undefined ? undefined : (plan.offset ?? 0) + plan.limit);
  // The .NET client writes "skip 20" as `OFFSET 20 LIMIT 2147483647`, whose sum is more than the largest valid count of rows.
  return count === undefined ? undefined : { kind: 'literal', value: Math.min(count, MAX_ROW_COUNT), at: NOWHERE };
}

/** `SELECT c._rid, [{"item": c.f}] AS orderByItems, c AS payload FROM c WHERE (…) AND (…) ORDER BY c.f` */
function ordered(plan: QueryPlan): Partial<PipelineInfo> {
  const { query } = plan;
  const payload = payloadOf(query);
  // An undefined value makes no row. In a rewritten row its payload would only be missing, so such rows are excluded.
  const conditions = query.selection.kind === 'value' ? [call('IS_DEFINED', payload)] : [];
  const rewritten = rowsInOrder(plan, payload, conditions);
  return {
    ...orderOf(plan),
    distinctType: query.distinct ? (rowsFollowOrder(query) ? 'Ordered' : 'Unordered') : 'None',
    rewrittenQuery: printQuery({ ...rewritten, distinct: false, top: query.distinct ? undefined : firstRows(plan) }),
  };
}

const orderOf = ({ orderBy }: QueryPlan): Pick<PipelineInfo, 'orderBy' | 'orderByExpressions'> => ({
  orderBy: orderBy.map(({ descending }) => (descending ? 'Descending' : 'Ascending')),
  orderByExpressions: orderBy.map(({ expression }) => printExpression(expression)),
});

/** The query without its bounds, with rows in the form from which clients merge ordered results of several ranges. */
function rowsInOrder(
  { query, isVectorSearch, program }: QueryPlan,
  payload: Expression,
  conditions: readonly Expression[] = [],
): Query {
  const { alias, from } = documentAlias(query);
  const rid = member(verbatim(alias), '_rid');
  const items = query.orderBy.map(({ expression }) => object([['item', expression]]));
  const filters = [
    ...(query.where === undefined ? [] : [query.where]),
    // A client that sorts all rows itself never continues after one of them.
    ...(isVectorSearch ? [] : [verbatim(FILTER)]),
    ...conditions,
  ];
  return {
    ...query,
    ...NO_BOUNDS,
    selection: {
      kind: 'list',
      items: [
        // A group belongs to no single document, but clients need a `_rid`.
        program.grouping === undefined
          ? { expression: rid, alias: undefined }
          : { expression: call('MIN', rid), alias: '_rid' },
        { expression: { kind: 'array', items, at: NOWHERE }, alias: 'orderByItems' },
        { expression: payload, alias: 'payload' },
      ],
    },
    from,
    where: filters.length === 0 ? undefined : { kind: 'logical', operator: 'AND', operands: filters, at: NOWHERE },
  };
}

/** The alias of the documents, and a FROM clause that has it. */
export function documentAlias(query: Query): { readonly alias: string; readonly from: readonly FromSource[] } {
  const [first, ...joins] = query.from as readonly [FromSource, ...FromSource[]];
  const { collection, iterates } = first;
  if (collection.kind === 'query') throw notMerged('ORDER BY over a query in FROM', collection.at);
  if (collection.keys.length === 0 && !iterates) return { alias: first.alias ?? collection.root, from: query.from };
  const document: FromSource = {
    collection: { kind: 'path', root: DOCUMENT, keys: [], at: collection.at },
    alias: undefined,
    iterates: false,
  };
  return {
    alias: DOCUMENT,
    from: [document, { ...first, collection: { ...collection, root: DOCUMENT }, alias: aliasOf(first) }, ...joins],
  };
}

function aliasOf({ alias, collection }: FromSource): string {
  const last = collection.kind === 'path' ? (collection.keys.at(-1) ?? collection.root) : undefined;
  const name = alias ?? last;
  if (typeof name !== 'string') throw notMerged('ORDER BY over a source without a name', collection.at);
  return name;
}

/** A row of the query as one expression. */
export function payloadOf({ selection, from }: Query): Expression {
  if (selection.kind === 'value') return selection.expression;
  if (selection.kind === 'star') return verbatim(aliasOf(from[0]!));
  return object(named(selection.items).map(({ name, expression }) => [name, expression]));
}

/** Whether equal rows are next to each other, because rows contain only the values by which they are ordered. */
function rowsFollowOrder({ selection, orderBy }: Query): boolean {
  if (selection.kind === 'star') return false;
  const selected = selection.kind === 'value' ? [selection.expression] : selection.items.map((item) => item.expression);
  const keys = new Set(orderBy.map(({ expression }) => printExpression(expression)));
  const texts = new Set(selected.map(printExpression));
  return texts.size === keys.size && [...texts].every((text) => keys.has(text));
}

/**
 * Aggregates, with and without GROUP BY. If one range has no sum, minimum or maximum, the JavaScript client can't represent that the whole
 * has none. So it gets complete groups, which it need not merge.
 */
function groups(plan: QueryPlan, reader: PlanReader): Partial<PipelineInfo> {
  const { query } = plan;
  const { selection, groupBy } = query;
  const isGrouped = groupBy.length > 0;
  const inOrder = isGrouped && query.orderBy.length > 0;
  const byAggregate = query.orderBy.find(({ expression }) => hasAggregate(expression));
  if (inOrder && byAggregate !== undefined) {
    throw notMerged('ORDER BY an aggregate together with GROUP BY', byAggregate.expression.at);
  }
  if (inOrder && plan.isVectorSearch) throw notMerged('A vector search together with GROUP BY');
  if (isGrouped && query.distinct) throw notMerged('DISTINCT together with GROUP BY');
  const keys: Expression = { kind: 'array', items: groupBy.map((key) => object([['item', key]])), at: NOWHERE };
  const rewritten = (payload: Expression, isValue: boolean): Partial<PipelineInfo> => {
    // Clients order the rows first. So the group is the payload of an ordered row.
    if (inOrder) {
      const group = object([
        ['groupByItems', keys],
        ['payload', payload],
      ]);
      return { ...orderOf(plan), rewrittenQuery: printQuery(rowsInOrder(plan, group)) };
    }
    const items: SelectItem[] = [
      ...(isGrouped ? [{ expression: keys, alias: 'groupByItems' }] : []),
      { expression: payload, alias: 'payload' },
    ];
    const selected: Query['selection'] =
      isValue && !isGrouped ? { kind: 'value', expression: payload } : { kind: 'list', items };
    // Without groups the answer is one row, so DISTINCT has no effect on it. But it could drop partial results of the ranges.
    const text = printQuery({ ...query, ...NO_BOUNDS, distinct: false, orderBy: [], selection: selected });
    return { rewrittenQuery: reader === 'javaScript' ? (isGrouped ? OF_GROUPS : OF_ALL) + text : text };
  };
  const groupByExpressions = groupBy.map(printExpression);
  if (selection.kind === 'value') {
    const { expression } = selection;
    const aggregate = aggregateOf(expression);
    const payload = aggregate === undefined ? expression : valueOf(aggregate, reader);
    return {
      groupByExpressions,
      aggregates: aggregate === undefined ? [] : [aggregateTypes[aggregate.name]],
      ...rewritten(payload, true),
    };
  }
  const types: Record<string, string | null> = {};
  const groupByAliases: string[] = [];
  const properties: (readonly [string, Expression])[] = [];
  // If a name occurs twice, the last one counts, as in a row. The .NET client fails if it gets a name twice.
  const byName = new Map(
    named(selection.kind === 'list' ? selection.items : []).map(({ name, expression }) => [name, expression]),
  );
  for (const [name, expression] of byName) {
    const aggregate = aggregateOf(expression);
    const type = aggregate === undefined ? null : aggregateTypes[aggregate.name];
    Object.defineProperty(types, name, { value: type, enumerable: true, configurable: true, writable: true });
    groupByAliases.push(name);
    properties.push([name, aggregate === undefined ? expression : itemOf(aggregate, reader)]);
  }
  return {
    groupByExpressions,
    groupByAliases,
    groupByAliasToAggregateType: types,
    ...rewritten(object(properties), false),
  };
}

interface Aggregate {
  readonly name: AggregateName;
  readonly argument: Expression;
  readonly call: Expression;
}

const isAggregateCall = (
  expression: Expression,
): expression is Extract<Expression, { readonly kind: 'call' }> & { readonly name: AggregateName } =>
  expression.kind === 'call' && !expression.userDefined && isAggregate(expression.name);

/**
 * The aggregate that an expression consists of; undefined if the expression contains none.
 *
 * @throws QueryError if the expression computes with aggregates: no client can merge such results
 */
function aggregateOf(expression: Expression): Aggregate | undefined {
  if (isAggregateCall(expression)) {
    return { name: expression.name, argument: expression.args[0]!, call: expression };
  }
  if (hasAggregate(expression)) {
    const inTheirWords = 'Compositions of aggregates and other expressions are not allowed.';
    throw notMerged(`${inTheirWords} An expression around an aggregate`, expression.at);
  }
  return undefined;
}

/** `[{"item": …}]`, the form of a partial result of a VALUE query; `[{}]` means that the result is undefined. */
const valueOf = (aggregate: Aggregate, reader: PlanReader): Expression => ({
  kind: 'array',
  items: [itemOf(aggregate, reader)],
  at: NOWHERE,
});

/**
 * A partial result. Every range returns one, also if it has no documents: otherwise clients conclude that the whole is undefined, or wait
 * forever.
 */
function itemOf({ name, argument, call: whole }: Aggregate, reader: PlanReader): Expression {
  const count = call('COUNT', argument);
  const isEmpty = isZero(count);
  // The JavaScript client makes null of a partial result without properties, and then drops all other groups of a VALUE query.
  const itself: (readonly [string, Expression])[] = reader === 'javaScript' ? [['item2', NULL]] : [];
  switch (name) {
    case 'AVG': {
      const sum = call('SUM', argument);
      const parts = object([
        ['sum', sum],
        ['count', count],
      ]);
      // Without a sum there is no average, so other clients get an undefined item.
      const item = readsDotNetPlans(reader) ? parts : choice(call('IS_DEFINED', sum), parts, UNDEFINED);
      return object([['item', item], ...itself]);
    }
    case 'MIN':
    case 'MAX': {
      const parts = object([
        [name === 'MIN' ? 'min' : 'max', whole],
        ['count', count],
      ]);
      const isDecided: Expression = {
        kind: 'logical',
        operator: 'OR',
        operands: [call('IS_DEFINED', whole), isEmpty],
        at: NOWHERE,
      };
      // The JavaScript client fails if a minimum or maximum is missing, unless there is a count.
      return object([
        ['item', whole],
        ['item2', reader === 'javaScript' ? parts : choice(isDecided, parts, UNDEFINED)],
      ]);
    }
    default:
      return object([['item', whole], ...itself]);
  }
}

/** The items of a SELECT list with the names that they have in a row. */
function named(items: readonly SelectItem[]): { readonly name: string; readonly expression: Expression }[] {
  let unnamed = 0;
  return items.map(({ expression, alias }) => {
    const name = alias ?? nameOf(expression);
    if (name !== undefined) return { name, expression };
    unnamed += 1;
    return { name: `$${unnamed}`, expression };
  });
}
