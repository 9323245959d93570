import { MAX_ROW_COUNT } from '../compile/compile.ts';
import type { QueryPlan } from '../compile/plan.ts';
import { queryError, type SourceLocation } from '../errors.ts';
import { aggregateTypes, isAggregate, type AggregateName } from '../functions/aggregates.ts';
import type { Expression, FromSource, Query, RowCount, SelectItem } from '../language/ast.ts';
import { hasAggregate, nameOf } from '../language/expression-facts.ts';
import { call, choice, isZero, member, NOWHERE, NULL, object, UNDEFINED, verbatim } from '../language/expressions.ts';
import { printExpression, printQuery } from '../language/print.ts';

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
  /** What to ask each range; empty: the query as it is. */
  readonly rewrittenQuery: string;
  readonly hasSelectValue: boolean;
  /** The answer is how many distinct rows there are, under a name unless the query is one for a VALUE. */
  readonly dCountInfo: { readonly dCountAlias: string } | null;
  readonly hasNonStreamingOrderBy: boolean;
}

/** Whose way of merging a plan is for. */
export type PlanReader = 'dotNet' | 'olderDotNet' | 'documentDb' | 'java' | 'javaScript' | 'other';

const readsDotNetPlans = (reader: PlanReader): boolean => reader !== 'javaScript' && reader !== 'other';

/** Of a query whose rows are its answer as they come: a client has nothing to ask otherwise and nothing to merge. */
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

/** Begins a query that one range answers for all of them. */
const OF_ALL = '/* of all ranges */ ';
/** Goes on so where the client makes rows of groups. */
const OF_GROUPS = `${OF_ALL}/* of groups */ `;
/** Begins a query whose rows are told apart by their `_rid`, also where a document has several. */
const BY_ROW = '/* of rows */ ';
/** Begins a query whose first page is to have all of its rows. */
const IN_ONE_PAGE = '/* in one page */ ';
/** Clients put a condition in its place: `true`, or, to go on where they left off, a comparison with the last row. */
const FILTER = '({documentdb-formattableorderbyquery-filter})';
/**
 * Whether a plan has a client ask this of the first range alone, which answers for all of them: the JavaScript client and
 * Microsoft.Azure.DocumentDB, as {@link describeForPipeline} says.
 */
export const isOfAllRanges = (sql: string): boolean => sql.startsWith(OF_ALL);

/**
 * Whether the rows of this are groups for the JavaScript client, which takes the first page without any, once it has had
 * some, for the end of them: the answer is then without the others, and its pages never end.
 *
 * @source `GroupByEndpointComponent` of `@azure/cosmos` 4.10.1
 */
export const isOfGroups = (sql: string): boolean => sql.startsWith(OF_GROUPS);

/**
 * Whether the rows of this are to have each a `_rid` of its own: of those that JOIN makes of a document the .NET client counts
 * the ones that it has given from the last page on alone.
 *
 * @source `OrderByCrossPartitionQueryPipelineStage` of Microsoft.Azure.Cosmos
 */
export const isOfRows = (sql: string): boolean => sql.startsWith(BY_ROW);

/**
 * Whether the first page of this is to have its rows, however long that takes: the .NET client looks for the statistics of
 * texts there, and fails where they come later.
 *
 * @source `HybridSearchCrossPartitionQueryPipelineStage` of Microsoft.Azure.Cosmos
 */
export const isInOnePage = (sql: string): boolean => sql.startsWith(IN_ONE_PAGE);

/** Of a query that {@link isInOnePage}. */
export const inOnePage = (sql: string): string => `${IN_ONE_PAGE}${sql}`;

/** An alias for the documents where a query has none, as in `FROM x IN c.items`. */
const DOCUMENT = '_document';

/**
 * How a client answers a query by asking several ranges: what to ask each of them, and how to merge what they say.
 * Each range's rows are then those that the client's pipeline reads: `{_rid, orderByItems, payload}` for ORDER BY,
 * `[{item}]` for an aggregate, `{groupByItems, payload}` for groups.
 *
 * @param plan not of a query with ORDER BY RANK, of which `describeHybridSearch` tells
 * @param reader the .NET client counts what is distinct, and needs of a range with something else than numbers the count
 *   of its average all the same to tell that the whole has none. The Java client is given the same: it fails over an average
 *   that isn't there. The JavaScript client asks {@link isOfAllRanges} but for what is near a vector, where it looks for a
 *   bound. It drops distinct `0`, `false`, `""` and `null`, and the sums, averages, least and greatest values of groups that one
 *   range has none of; with a token it misses rows or gives them again, where several clients know the ranges of different
 *   times also those of the plainest query, for it looks for the parts that a token is about among the ranges it knows.
 *   Microsoft.Azure.DocumentDB asks one range for everything: of groups in the JavaScript client's form it counts none.
 * @throws QueryError for a query whose parts can't be merged into its answer
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
  // Without FROM there is one row; every range has it.
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
 * Whether the JavaScript client is to make rows of groups, which come whole to it: it gives what is undefined in one as a
 * property, and its users may look for that. It puts none in order, and computes nothing with aggregates.
 */
function isGroupedByClient({ query, derivedFrom }: QueryPlan): boolean {
  const { selection, groupBy, orderBy, distinct } = query;
  if (groupBy.length === 0 || orderBy.length > 0 || distinct || derivedFrom?.streaming === false) return false;
  const selected = selection.kind === 'value' ? [selection] : selection.kind === 'list' ? selection.items : [];
  return selected.every(({ expression }) => isAggregateCall(expression) || !hasAggregate(expression));
}

/** `SELECT VALUE COUNT(1) FROM (SELECT DISTINCT …)`: each range gives what is distinct in it. */
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

/** The rows that each range has to give so that none is missing in the whole. */
function firstRows(plan: QueryPlan): RowCount | undefined {
  const count = plan.top ?? (plan.limit === undefined ? undefined : (plan.offset ?? 0) + plan.limit);
  // "Skip 20" is `OFFSET 20 LIMIT 2147483647` to the .NET client: their sum is no count of rows any more.
  return count === undefined ? undefined : { kind: 'literal', value: Math.min(count, MAX_ROW_COUNT), at: NOWHERE };
}

/** `SELECT c._rid, [{"item": c.f}] AS orderByItems, c AS payload FROM c WHERE (…) AND (…) ORDER BY c.f` */
function ordered(plan: QueryPlan): Partial<PipelineInfo> {
  const { query } = plan;
  const payload = payloadOf(query);
  // A row that is undefined is none, which a payload that is left out would not say.
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

/** The query without its bounds, with rows as clients read and merge them that order what several ranges say. */
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
    // Who sorts all rows anew never goes on from one of them.
    ...(isVectorSearch ? [] : [verbatim(FILTER)]),
    ...conditions,
  ];
  return {
    ...query,
    ...NO_BOUNDS,
    selection: {
      kind: 'list',
      items: [
        // A group is of no one document, but clients look for one.
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

/** The alias of the documents, and the FROM clause that has one. */
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

/** What a row of the query is, as one expression. */
export function payloadOf({ selection, from }: Query): Expression {
  if (selection.kind === 'value') return selection.expression;
  if (selection.kind === 'star') return verbatim(aliasOf(from[0]!));
  return object(named(selection.items).map(({ name, expression }) => [name, expression]));
}

/** Whether equal rows are next to each other: the rows are made of what they are ordered by. */
function rowsFollowOrder({ selection, orderBy }: Query): boolean {
  if (selection.kind === 'star') return false;
  const selected = selection.kind === 'value' ? [selection.expression] : selection.items.map((item) => item.expression);
  const keys = new Set(orderBy.map(({ expression }) => printExpression(expression)));
  const texts = new Set(selected.map(printExpression));
  return texts.size === keys.size && [...texts].every((text) => keys.has(text));
}

/**
 * Aggregates, with and without GROUP BY. The JavaScript client has no way to tell that a whole has no sum, and no least or
 * greatest value, where one range has none: it is given whole groups, to which it has nothing to add.
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
    // Clients put the rows in order first: what they group is then the payload of that.
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
    // Without groups there is one row, which is distinct; the parts of it that ranges give needn't be.
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
  // Of a name that is given twice the last counts, as in a row; the .NET client fails over one that is told twice.
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
 * The aggregate that an expression is; undefined for one that has none in it.
 *
 * @throws QueryError for one that computes with aggregates: no client can merge what it gives
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

/** `[{"item": …}]`, which clients read the partial result of a VALUE query from; `[{}]` tells them that it is undefined. */
const valueOf = (aggregate: Aggregate, reader: PlanReader): Expression => ({
  kind: 'array',
  items: [itemOf(aggregate, reader)],
  at: NOWHERE,
});

/**
 * A partial result. Every range gives one, also where it has nothing to work on: of one that says nothing, clients
 * conclude that the whole is undefined, or wait for it for ever.
 */
function itemOf({ name, argument, call: whole }: Aggregate, reader: PlanReader): Expression {
  const count = call('COUNT', argument);
  const isEmpty = isZero(count);
  // Of one without any property the JavaScript client makes null, and upon that of a VALUE query drops all other groups.
  const itself: (readonly [string, Expression])[] = reader === 'javaScript' ? [['item2', NULL]] : [];
  switch (name) {
    case 'AVG': {
      const sum = call('SUM', argument);
      const parts = object([
        ['sum', sum],
        ['count', count],
      ]);
      // Without a sum there is no average to merge.
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
      // The JavaScript client fails over a least or greatest value that isn't there, unless the count is.
      return object([
        ['item', whole],
        ['item2', reader === 'javaScript' ? parts : choice(isDecided, parts, UNDEFINED)],
      ]);
    }
    default:
      return object([['item', whole], ...itself]);
  }
}

/** The items of a SELECT list under the names that they have in a row. */
function named(items: readonly SelectItem[]): { readonly name: string; readonly expression: Expression }[] {
  let unnamed = 0;
  return items.map(({ expression, alias }) => {
    const name = alias ?? nameOf(expression);
    if (name !== undefined) return { name, expression };
    unnamed += 1;
    return { name: `$${unnamed}`, expression };
  });
}
