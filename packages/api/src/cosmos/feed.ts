import { isDeepStrictEqual } from 'node:util';
import { systemClocks } from '@epitaph/core/clock.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import {
  effectivePartitionKey,
  prefixRange,
  WHOLE_RANGE,
} from '@epitaph/core/partition-key/effective-partition-key.ts';
import {
  type ClientPlan,
  isOfAllRanges,
  type Json,
  jsonText,
  type MergingClient,
  missingFeatures,
  orderText,
  parseQuery,
  PLAIN_PIPELINE,
  planForClients,
  type PlanOptions,
  planQuery,
  QueryError,
  type QueryParameter,
  type QueryPlan,
  startEvaluation,
  UNASKED,
} from '@epitaph/query';
import type { Limits } from '../http/limits.ts';
import { partitionKeysIn } from '../store/queries/named-in-filter.ts';
import { planOptionsOf } from '../store/plan-options.ts';
import type { StoreApi } from '../store/store-api.ts';
import { charge } from '../request-units/charge.ts';
import { decodeListPlace, encodeContinuation, encodeListPlace, type Next, type Whereabouts } from './continuation.ts';
import { badRequest, WireError } from './errors.ts';
import { isJsonObject, parseExactJson, type JsonObject } from './json.ts';
import { functionNames } from './scripts/functions.ts';
import { pageOfList } from './list-pages.ts';
import { hadKeysHashedOtherwise, rangesOf } from './ranges.ts';
import {
  headerText,
  isDotNetClient,
  isQuery,
  isQueryPlan,
  jsonObjectOf,
  pageSizeOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';

/** A query as clients send it. */
export interface QueryBody {
  readonly sql: string;
  readonly parameters: readonly { readonly name: string; readonly value?: Json }[];
  /** The `resumeFilter` with which the .NET client resumes an ordered query. */
  readonly resume?: { readonly keys: readonly unknown[]; readonly rid: string | undefined; readonly exclude: boolean };
}

/** @throws WireError 400 for a body that is no query; errors of the query language are thrown later */
export function readQueryBody(request: CosmosRequest): QueryBody {
  const { query, parameters, resumeFilter } = jsonObjectOf(request, parseExactJson);
  if (typeof query !== 'string') throw badRequest('The request body has no query.');
  const resume = resumeFilter === undefined || resumeFilter === null ? {} : { resume: readResumeFilter(resumeFilter) };
  if (parameters === undefined || parameters === null) return { sql: query, parameters: [], ...resume };
  if (!Array.isArray(parameters) || !parameters.every(isParameter)) {
    throw badRequest("The query's parameters are not an array of objects with a name that begins with '@'.");
  }
  return { sql: query, parameters, ...resume };
}

/**
 * `{"value": […], "rid": "…", "exclude": true}`. Undefined comes as `[]`. For arrays and objects only a hash comes,
 * which says nothing about their order.
 */
function readResumeFilter(filter: unknown): NonNullable<QueryBody['resume']> {
  const { value, rid, exclude } = isJsonObject(filter) ? filter : {};
  if (!Array.isArray(value) || (rid !== undefined && typeof rid !== 'string') || typeof exclude !== 'boolean') {
    throw badRequest('The resume filter of the query is invalid.');
  }
  const keys = value.map((key: unknown) => {
    if (Array.isArray(key) && key.length === 0) return undefined;
    if (typeof key === 'object' && key !== null) {
      throw badRequest("The query can't be continued after a row whose ORDER BY value is an array or an object.");
    }
    return key;
  });
  return { keys, rid, exclude };
}

function isParameter(value: unknown): value is QueryParameter {
  const name = typeof value === 'object' && value !== null ? (value as { readonly name?: unknown }).name : undefined;
  return typeof name === 'string' && name.startsWith('@');
}

/** The continuation header, if another page follows. */
export const continuationHeader = (next: Next, where: Whereabouts): Readonly<Record<string, string>> =>
  next.continuation === undefined && next.pageId === undefined
    ? {}
    : { 'x-ms-continuation': encodeContinuation(next, where) };

/**
 * A feed of a kind of resource of which there are few: a page of all of them, or of what a query over them finds.
 *
 * @param key the property of the answer that holds them: `Databases`, `DocumentCollections`, …
 */
export function answerFeed(request: CosmosRequest, rid: string, key: string, resources: readonly JsonObject[]): Answer {
  const { headers, method } = request;
  if (method === 'POST' && isQueryPlan(headers)) return answerQueryPlan(request);
  // The older .NET client sends the query header with a GET without a query.
  const found: Found =
    method === 'POST' && isQuery(headers) ? runQuery(request, resources as readonly Json[]) : { rows: resources };
  const { rows, order } = found;
  const list = { of: `${rid}/${key}`, order };
  const place = decodeListPlace(headerText(headers, 'x-ms-continuation'), list);
  const { page, next } = pageOfList(rows, place, pageSizeOf(request));
  const body = `{"_rid":${JSON.stringify(rid)},"${key}":${jsonText(page)},"_count":${page.length}}`;
  return {
    status: 200,
    body,
    charge: charge.metadata,
    headers: {
      'x-ms-item-count': String(page.length),
      ...(next === undefined ? {} : { 'x-ms-continuation': encodeListPlace(next, list) }),
    },
  };
}

/**
 * Milliseconds that a query may work on one resource, and on all of them: no other request has a turn meanwhile.
 * Measured by the thread's own time, because the query must not be blamed when other work has the machine.
 */
const MAX_RESOURCE_MS = 50;
const MAX_RESOURCES_MS = 250;

interface Found {
  readonly rows: readonly unknown[];
  /** The order of the rows, if the query has one. */
  readonly order?: string | undefined;
}

function runQuery(request: CosmosRequest, resources: readonly Json[]): Found {
  const { sql, parameters } = readQueryBody(request);
  const { workedMs } = systemClocks;
  const plan = planQuery(parseQuery(sql, { maxLength: request.limits.queryCharacters }), parameters);
  const evaluation = startEvaluation(plan, {
    nowMs: request.store.nowMs(),
    monotonicMs: workedMs,
    maxDocumentMs: MAX_RESOURCE_MS,
  });
  const untilMs = workedMs() + MAX_RESOURCES_MS;
  const rows: Json[] = [];
  const take = (): void => {
    for (const row of evaluation.takeRows()) rows.push(row);
    if (workedMs() > untilMs) throw badRequest('The query takes too long. Narrow it with a filter.');
  };
  for (let next = 0; next < resources.length && evaluation.wantsDocuments; take()) {
    next = evaluation.offer(resources, next);
  }
  for (const _ of evaluation.finishing()) take();
  take();
  return { rows, order: orderText(plan, parameters) };
}

/** A plan for clients: what their pipelines must do, and which keys the query covers. */
function planText(plan: ClientPlan, ranges: readonly QueryRange[]): string {
  const isOfAll = 'queryInfo' in plan && isOfAllRanges(plan.queryInfo.rewrittenQuery);
  const queryRanges = isOfAll ? IN_FIRST_RANGE : ranges;
  return jsonText({ partitionedQueryExecutionInfoVersion: 2, ...plan, queryRanges });
}

interface QueryRange {
  readonly min: string;
  readonly max: string;
  readonly isMinInclusive: boolean;
  readonly isMaxInclusive: boolean;
}

const EVERYWHERE: readonly QueryRange[] = [{ ...WHOLE_RANGE, isMinInclusive: true, isMaxInclusive: false }];
/** The least of all keys. It belongs to the first range, whatever ranges there are. */
const IN_FIRST_RANGE: readonly QueryRange[] = [{ min: '', max: '', isMinInclusive: true, isMaxInclusive: true }];

/** The plan with which clients pass a query through: the server has already done what their own pipeline would do. */
const PASS_THROUGH_PLAN = planText({ queryInfo: PLAIN_PIPELINE }, EVERYWHERE);

/** The options for planning a query over a container. */
const optionsFor = (request: CosmosRequest, container: ContainerState, sql: string): PlanOptions => ({
  ...planOptionsOf(container.definition),
  userFunctions: functionNames(request, container, sql),
});

/**
 * Texts of queries that were parsed recently without an error. Every query comes twice, once for its plan, and most are
 * repeated.
 */
const goodQueries = new Set<string>();
const MAX_GOOD_QUERIES = 1000;
const MAX_KEPT_CHARACTERS = 4096;

/**
 * The plan of a query that is a vector search; undefined for any other.
 *
 * @throws QueryError for a text that is no query
 */
function vectorSearchOf({ sql, parameters }: QueryBody, limits: Limits, options: PlanOptions): QueryPlan | undefined {
  const query = parseQuery(sql, { maxLength: limits.queryCharacters });
  if (query.orderBy.length === 0 || !/VectorDistance/i.test(sql)) return undefined;
  const plan = planQuery(query, parameters, options);
  return plan.isVectorSearch ? plan : undefined;
}

/**
 * The plan by which clients must run a query over several partition keys themselves: a vector search, or groups over
 * several ranges whose rows they make. With a plan and a page size of -1, `@azure/cosmos` 4.10.1 returns empty pages
 * for ever. So for that size only queries that it refuses for lack of a bound get a plan.
 *
 * @throws QueryError for a text that is no query
 */
export function planToRunBy(
  { sql, parameters }: QueryBody,
  request: CosmosRequest,
  container: ContainerState,
  canGroup: boolean,
): string | undefined {
  const { store, limits, headers } = request;
  const canEnd = headerText(headers, 'x-ms-max-item-count') !== '-1';
  const mayGroup = canGroup && canEnd && /\bGROUP\s+BY\b/i.test(sql) && rangesOf(container).length > 1;
  if (!mayGroup && !/VectorDistance/i.test(sql)) return undefined;
  const query = parseQuery(sql, { maxLength: limits.queryCharacters });
  if (query.groupBy.length === 0 && query.orderBy.length === 0) return undefined;
  const plan = planQuery(query, parameters, optionsFor(request, container, sql));
  if (!plan.isVectorSearch && !mayGroup) return undefined;
  if (!canEnd && (plan.top ?? plan.limit) !== undefined) return undefined;
  const forClients = planForClients(plan, UNASKED);
  const isGrouped = 'queryInfo' in forClients && forClients.queryInfo.groupByExpressions.length > 0;
  return plan.isVectorSearch || isGrouped ? planText(forClients, rangesOfQuery(plan, store, container)) : undefined;
}

/**
 * Whether a query can find items at one partition key only, as far as its filter shows. Any other query needs a header
 * that allows it, however many ranges there are.
 *
 * @throws QueryError for a text that is no query
 * @source `GetProvidedPartitionKeyRanges` in Microsoft.Azure.Cosmos/src/Routing/PartitionRoutingHelper.cs of
 *   https://github.com/Azure/azure-cosmos-dotnet-v3
 */
export function isOfOneKey({ sql, parameters }: QueryBody, request: CosmosRequest, container: ContainerState): boolean {
  const { definition } = container;
  const query = parseQuery(sql, { maxLength: request.limits.queryCharacters });
  const plan = planQuery(query, parameters, optionsFor(request, container, sql));
  const keys = partitionKeysIn(plan.pushdown, definition);
  return keys.length <= 1 && keys.every(({ length }) => length === definition.partitionKey.paths.length);
}

/**
 * Whether the answers of several ranges must be merged into the answer to a query, because concatenating them would
 * give another answer.
 *
 * @throws QueryError for a text that is no query
 */
export function isMerged({ sql, parameters }: QueryBody, request: CosmosRequest, container: ContainerState): boolean {
  const query = parseQuery(sql, { maxLength: request.limits.queryCharacters });
  try {
    const plan = planForClients(planQuery(query, parameters, optionsFor(request, container, sql)));
    return !('queryInfo' in plan) || !isDeepStrictEqual({ ...plan.queryInfo, hasSelectValue: false }, PLAIN_PIPELINE);
  } catch (error) {
    // No client can merge the answers.
    if (error instanceof QueryError) return true;
    throw error;
  }
}

/**
 * Tells a client how to run a query. With one range the client passes it through; with several it asks each and merges
 * the answers. A vector search always has a plan: clients refuse one without a bound, or with a bound that is too large
 * for them, and look for the description of the search before that.
 *
 * @param container undefined for a feed of other resources, which has one range
 * @throws QueryError for a text that is no query, and for a query that clients can't merge
 * @throws WireError 400 for a query that this client can't merge
 */
export function answerQueryPlan(request: CosmosRequest, container?: ContainerState): Answer {
  const body = readQueryBody(request);
  const { sql, parameters } = body;
  const { limits } = request;
  const options = container === undefined ? {} : optionsFor(request, container, sql);
  const client = mergingClient(request);
  const hasSeveralRanges = container !== undefined && rangesOf(container).length > 1;
  if (container !== undefined && (hasSeveralRanges || keepsKindOfPlan(client))) {
    const query = planQuery(parseQuery(sql, { maxLength: limits.queryCharacters }), parameters, options);
    const plan = hasSeveralRanges ? planFor(client, query) : planIfMerged(client, query);
    if (plan !== undefined) return planAnswer(plan, rangesOfQuery(query, request.store, container));
  }
  if (!goodQueries.has(sql)) {
    const vectorSearch = vectorSearchOf(body, limits, options);
    if (vectorSearch !== undefined) return planAnswer(planFor(client, vectorSearch), EVERYWHERE);
    if (sql.length <= MAX_KEPT_CHARACTERS) {
      if (goodQueries.size >= MAX_GOOD_QUERIES) goodQueries.clear();
      goodQueries.add(sql);
    }
  }
  return { status: 200, body: PASS_THROUGH_PLAN, charge: charge.metadata };
}

function mergingClient({ headers }: CosmosRequest): MergingClient {
  const features = headerText(headers, 'x-ms-cosmos-supported-query-features') ?? '';
  return {
    supported: new Set(features.split(',').map((name) => name.trim())),
    isJava: headers['user-agent']?.startsWith('azsdk-java-cosmos') === true,
    isDotNet: isDotNetClient(headers),
  };
}

/**
 * Whether this is the Rust client, which merges rows but no aggregates. The state that it keeps of a query depends on
 * the kind of its plan. So it gets its own kind of plan before the first split too; otherwise it would apply the bounds
 * of a `TOP` twice after the split.
 */
const keepsKindOfPlan = ({ supported }: MergingClient): boolean =>
  supported.has('OrderBy') && !supported.has('Aggregate');

/**
 * @throws QueryError for a query that clients can't merge
 * @throws WireError 400 for one that this client can't merge
 */
function planFor(client: MergingClient, query: QueryPlan): ClientPlan {
  const plan = planForClients(query, client);
  const missing = missingFeatures(plan, client);
  if (missing.length > 0) {
    throw badRequest(
      `Query contains the following features, which the calling client does not support: ${missing.join(' ')}`,
    );
  }
  return plan;
}

/** As {@link planFor}; undefined for a query that the client can't merge. */
function planIfMerged(client: MergingClient, query: QueryPlan): ClientPlan | undefined {
  try {
    return planFor(client, query);
  } catch (error) {
    if (error instanceof QueryError || error instanceof WireError) return undefined;
    throw error;
  }
}

const planAnswer = (plan: ClientPlan, queryRanges: readonly QueryRange[]): Answer => ({
  status: 200,
  body: planText(plan, queryRanges),
  charge: charge.metadata,
});

/** The most keys that a plan names one by one. */
const MAX_QUERY_RANGES = 100;

/**
 * The keys at which a query can find items, as far as its filter shows, in order and without overlaps. All keys when a
 * client might look for them in the wrong ranges.
 */
function rangesOfQuery({ pushdown }: QueryPlan, store: StoreApi, container: ContainerState): readonly QueryRange[] {
  const { definition } = container;
  if (hadKeysHashedOtherwise(store, container)) return EVERYWHERE;
  const keys = partitionKeysIn(pushdown, definition);
  // Clients have no plan for a query that finds nothing.
  if (keys.length === 0 || keys.length > MAX_QUERY_RANGES || keys.some(({ length }) => length === 0)) return EVERYWHERE;
  const { length } = definition.partitionKey.paths;
  const ranges = keys.map((components): QueryRange => {
    const key = effectivePartitionKey(definition.partitionKey, JSON.stringify(components));
    return components.length === length
      ? { min: key, max: key, isMinInclusive: true, isMaxInclusive: true }
      : { ...prefixRange(key), isMinInclusive: true, isMaxInclusive: false };
  });
  const apart: QueryRange[] = [];
  for (const range of ranges.toSorted((one, other) => (one.min < other.min ? -1 : one.min > other.min ? 1 : 0))) {
    const last = apart.at(-1);
    // Several keys may have the same hash, for which one range is enough.
    if (last === undefined || range.min > last.max) apart.push(range);
  }
  return apart;
}
