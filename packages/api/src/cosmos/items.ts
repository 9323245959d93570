import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { WHOLE_RANGE } from '@epitaph/core/partition-key/effective-partition-key.ts';
import { isWhole, type Scope } from '@epitaph/core/partition-key/scope.ts';
import { isInOnePage, isOfAllRanges, isOfGroups, isOfRows } from '@epitaph/query';
import { charge, chargeOfWrite, workOfText } from '../request-units/charge.ts';
import type { Written } from '../store/api/common.ts';
import type { ItemToWrite, ShownItem } from '../store/api/items-api.ts';
import type { QueryPage, QueryRequest } from '../store/api/queries-api.ts';
import { birthOfItemRid, placeOfRid, rowRid } from '../store/rids.ts';
import { withSystemProperties } from '../store/items/system-properties.ts';
import { answerBatch } from './batch.ts';
import { answerChangeFeed, isChangeFeed } from './change-feed.ts';
import { containerHeaders } from './containers.ts';
import { decodeContinuation, isPassedThrough, ofOtherRanges } from './continuation.ts';
import { badRequest, WireError } from './errors.ts';
import {
  answerQueryPlan,
  continuationHeader,
  isMerged,
  isOfOneKey,
  planToRunBy,
  readQueryBody,
  type QueryBody,
} from './feed.ts';
import { checkItemId, readItemBody } from './item-body.ts';
import { namedKey, otherKey, readPartitionKeyHeader, wholeKeyOf } from './partition-key.ts';
import { parseExactJson } from './json.ts';
import { afterReading } from './long-texts.ts';
import { readPatch } from './patch.ts';
import {
  atLeastOf,
  byRid,
  checkContinuationLimit,
  containerOf,
  headerFlag,
  headerText,
  ifNoneMatchOf,
  isBatch,
  isDotNetClient,
  isFeed,
  isQuery,
  isQueryPlan,
  jsonOf,
  methodNotAllowed,
  owner,
  pageSizeOf,
  partitionKeyHeader,
  preconditionOf,
  upsertPreconditionOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { rangeIdOf, rangesOf } from './ranges.ts';
import { functionsFor } from './scripts/functions.ts';
import { namesTriggers, type Outcome, refuseTriggers, withTriggers } from './scripts/triggers.ts';
import { positionIn } from './session-token.ts';
import { renameItem } from './rename.ts';
import {
  answeringRangeId,
  namesItsScope,
  rangeIdOfRequest,
  rangeOfRequest,
  scopeOf,
  withFormerRange,
  withoutEarlierRange,
} from './scope.ts';
import { indexMetricsHeader } from './index-metrics.ts';

/** `/dbs/{db}/colls/{coll}/docs` */
export async function answerItems(request: CosmosRequest): Promise<Answer> {
  const { method, headers } = request;
  const container = intendedContainer(request);
  if (method === 'GET') {
    return inTurn(request, () =>
      isChangeFeed(request) ? answerChangeFeed(request, container) : listItems(request, container),
    );
  }
  if (method !== 'POST') throw methodNotAllowed();
  if (isBatch(headers)) {
    refuseTriggers(request, 'batches');
    return answerBatch(request, container);
  }
  if (isQueryPlan(headers)) return afterReading(request, () => answerQueryPlan(request, container));
  // A client would take the items that the query finds for changes.
  if (isQuery(headers) && isChangeFeed(request))
    throw badRequest('This server does not support a change feed that is filtered by a query.');
  if (isQuery(headers)) {
    return inTurn(request, async (standAside) =>
      afterReading(request, () => queryItems(request, container, standAside), standAside),
    );
  }
  const operation = headerFlag(headers, 'x-ms-documentdb-is-upsert') ? 'upsert' : 'create';
  const item = readItem(request, container);
  const precondition = operation === 'upsert' ? upsertPreconditionOf(headers) : undefined;
  if (namesTriggers(request)) {
    if (precondition?.ifNoneMatch !== undefined) refuseTriggers(request, 'an upsert with If-None-Match');
    const done = await withTriggers(request, container, { operation, item, ifMatch: precondition?.ifMatch });
    return answerLeft(request, container, done, done.created ? 201 : 200);
  }
  const written = await request.store.writeItem(request.caller, container, operation, item, precondition);
  return answerWritten(request, container, written, written.created ? 201 : 200, item);
}

/**
 * Makes a page when it is its turn. Makes none for a client that has left by then, because those still waiting would
 * wait for it.
 */
const inTurn = (request: CosmosRequest, page: Parameters<typeof request.pages.make<Answer>>[0]): Promise<Answer> =>
  request.pages.make(async (standAside) => {
    request.signal().throwIfAborted();
    return page(standAside);
  });

/** `/dbs/{db}/colls/{coll}/docs/{id}` */
export async function answerItem(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const container = intendedContainer(request);
  const address = itemAddress(request, container);
  const { id, partitionKey } = address instanceof Promise ? await address : address;
  switch (method) {
    case 'GET': {
      const reached = atLeastOf(request);
      const atLeast = reached instanceof Promise ? await reached : reached;
      const item = await store.readItem(container, id, partitionKey, atLeast);
      const shown = {
        etag: item.etag,
        'x-ms-item-lsn': String(item.position),
        ...answerHeaders(request, container, store.headPosition(), partitionKey),
      };
      const ifNoneMatch = ifNoneMatchOf(headers);
      if (ifNoneMatch !== undefined && (ifNoneMatch === item.etag || ifNoneMatch === '*')) {
        return { status: 304, body: null, charge: charge.refusedRead, headers: shown };
      }
      const body = withSystemProperties(container, item);
      return { status: 200, body, charge: charge.pointRead(Buffer.byteLength(body)), headers: shown };
    }
    case 'PUT': {
      const item = readDocument(request, container);
      if (!isOfKeyInHeader(request, container, item) || item.partitionKey !== partitionKey) {
        // An item that does not exist can't have another key, so 404 takes precedence, as with Cosmos DB.
        await store.readItem(container, id, partitionKey, await atLeastOf(request));
        throw otherKey();
      }
      const precondition = preconditionOf(headers);
      if (namesTriggers(request)) {
        const { ifMatch } = precondition ?? {};
        const done = await withTriggers(request, container, { operation: 'replace', id, item, ifMatch });
        return answerLeft(request, container, done, 200);
      }
      const written =
        item.id === id
          ? await store.writeItem(caller, container, 'replace', item, precondition)
          : await renameItem(request, container, { kind: 'rename', id, item, precondition });
      return answerWritten(request, container, written, 200, item);
    }
    case 'PATCH': {
      refuseTriggers(request, 'patches');
      const patch = readPatch(jsonOf(request.body, request.limits, parseExactJson), container);
      const written = await store.patchItem(caller, container, id, partitionKey, patch, preconditionOf(headers));
      return answerWritten(request, container, written, 200);
    }
    case 'DELETE': {
      const precondition = preconditionOf(headers);
      const answer = (position: number, units: number): Answer => ({
        status: 204,
        body: null,
        charge: units,
        headers: answerHeaders(request, container, position, partitionKey),
      });
      if (namesTriggers(request)) {
        const asked = { operation: 'delete', id, partitionKey, ...precondition } as const;
        const done = await withTriggers(request, container, asked);
        return answer(done.position, done.charge);
      }
      const { position, bytes } = await store.deleteItem(caller, container, id, partitionKey, precondition);
      return answer(position, charge.delete(bytes));
    }
    default:
      throw methodNotAllowed();
  }
}

/** `/dbs/{db}/colls/{coll}/operations/partitionkeydelete` */
export async function answerPartitionKeyDelete(request: CosmosRequest): Promise<Answer> {
  // With a read-only key, a client could otherwise declare this to be a query.
  if (request.method !== 'POST' || isFeed(request)) throw methodNotAllowed();
  const container = intendedContainer(request);
  const partitionKey = wholeKey(request, container);
  const { position } = await request.store.deletePartitionKey(request.caller, container, partitionKey);
  const headers = answerHeaders(request, container, position, partitionKey);
  return { status: 200, body: null, charge: charge.delete(0), headers };
}

/**
 * The container of a target. Clients that encrypt name it by its rid as well: a container that was created again under
 * the name may encrypt other paths.
 *
 * @throws WireError 400 with substatus 1024; clients then read its policy again
 */
function intendedContainer(request: CosmosRequest): ContainerState {
  const container = owner(containerOf, request);
  const intended = headerText(request.headers, 'x-ms-cosmos-intended-collection-rid');
  if (intended !== undefined && intended !== '' && intended !== container.rid) {
    throw new WireError('otherContainer', 'The container is not the one that the request is intended for.');
  }
  // A write does not need its session token, but an invalid one is refused as for a read.
  positionIn(headerText(request.headers, 'x-ms-session-token'));
  return container;
}

/** The document of a create or upsert, checked against the key in the header. */
function readItem(request: CosmosRequest, container: ContainerState): ItemToWrite {
  const item = readDocument(request, container);
  if (!isOfKeyInHeader(request, container, item)) throw otherKey();
  return item;
}

const readDocument = ({ body, limits }: CosmosRequest, { definition }: ContainerState): ItemToWrite =>
  readItemBody(definition, body, limits);

/** Whether a document has the key in the header. True also for a header without a key. */
function isOfKeyInHeader(
  { headers }: CosmosRequest,
  { definition }: ContainerState,
  item: { readonly partitionKey: string },
): boolean {
  const given = readPartitionKeyHeader(definition, partitionKeyHeader(headers));
  return given === undefined || given.key === item.partitionKey;
}

/** The item that a target names: by id and the key in the header, or by rid. */
function itemAddress(request: CosmosRequest, container: ContainerState): MaybePromise<ItemName> {
  const name = request.segments[5]!;
  if (!byRid(request, container)) return namedItem(request, container, name);
  return findByRid(request, container, name).then((found) =>
    found !== undefined && isOfKeyInHeader(request, container, found) ? found : namedItem(request, container, name),
  );
}

function namedItem(request: CosmosRequest, container: ContainerState, name: string): ItemName {
  const id = checkItemId(name);
  return { id, partitionKey: namedKey(container.definition, partitionKeyHeader(request.headers)) };
}

/** The partition key that the header names, with all of its components. */
const wholeKey = ({ headers }: CosmosRequest, { definition }: ContainerState): string =>
  wholeKeyOf(readPartitionKeyHeader(definition, partitionKeyHeader(headers)));

/** Finds an item by its rid, as `_self` links name it. The rid says where its life began. */
export async function findByRid(
  { store }: Pick<CosmosRequest, 'store'>,
  container: ContainerState,
  rid: string,
): Promise<ShownItem | undefined> {
  const birth = birthOfItemRid(container.rid, rid);
  return birth === undefined || birth < 1 ? undefined : store.itemByBirth(container, birth);
}

function answerWritten(
  request: CosmosRequest,
  container: ContainerState,
  { resource: item, position }: Written<ShownItem>,
  status: number,
  sent?: ItemToWrite,
): Answer {
  const units = chargeOfWrite(container.definition, item.json, sent?.document);
  return answerLeft(request, container, { item, position, charge: units, body: undefined }, status);
}

/** The answer to a write that left an item. A trigger may have replaced its body. */
function answerLeft(
  request: CosmosRequest,
  container: ContainerState,
  { item, body, position, charge: units }: Pick<Outcome, 'item' | 'body' | 'position' | 'charge'>,
  status: number,
): Answer {
  const headers = { etag: item.etag, ...answerHeaders(request, container, position, item.partitionKey) };
  if (request.headers['prefer'] === 'return=minimal') {
    // Clients accept an empty body if the status says that there is none.
    return { status, body: null, charge: units, headers };
  }
  return { status, body: body ?? withSystemProperties(container, item), charge: units, headers };
}

const answerHeaders = (
  { segments }: CosmosRequest,
  container: ContainerState,
  position: number,
  partitionKey: string,
) => containerHeaders(segments[1]!, container, position, rangeIdOf(container, partitionKey));

const feedHeaders = (request: CosmosRequest, container: ContainerState, position: number, scope: Scope) =>
  containerHeaders(request.segments[1]!, container, position, answeringRangeId(request, container, scope));

async function listItems(request: CosmosRequest, container: ContainerState): Promise<Answer> {
  const { store, headers } = request;
  const position = store.headPosition();
  const scope = scopeOf(request, container);
  const where = { of: container.rid, key: scope.partitionKey ?? scope.prefix };
  const { continuation } = decodeContinuation(headerText(headers, 'x-ms-continuation'), where);
  if (continuation !== undefined && continuation.kind !== 'after') throw badRequest('Invalid Continuation Token');
  const page = await store.listItems(container, {
    ...scope,
    maxItemCount: pageSizeOf(request),
    continuation,
    atLeast: await atLeastOf(request),
  });
  const documents = page.items.map((item) => withSystemProperties(container, item)).join(',');
  const body = `{"_rid":"${container.rid}","Documents":[${documents}],"_count":${page.items.length}}`;
  return {
    status: 200,
    body,
    charge: charge.query(page.items.length, Buffer.byteLength(body)),
    headers: {
      'x-ms-item-count': String(page.items.length),
      ...continuationHeader(page, where),
      ...feedHeaders(request, container, position, scope),
    },
  };
}

/**
 * Sends clients that did not ask for a plan to run a query by its plan, in the cases in which Cosmos DB does so too.
 * For a vector search the plan has what the clients check. Groups over several ranges are merged by the client, also
 * those whose key is undefined. A client that does not state its capabilities may not be able to merge groups, so the
 * server merges them for it.
 *
 * @throws WireError 400 with substatus 1004, and the plan
 */
function refuseUnplanned(query: QueryBody, request: CosmosRequest, container: ContainerState): void {
  const canGroup = request.headers['x-ms-cosmos-sdk-supportedcapabilities'] !== undefined;
  const plan = planToRunBy(query, request, container, canGroup);
  if (plan === undefined) return;
  throw new WireError(
    'crossPartitionNotServable',
    "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates. This query over several partition keys needs a query plan.",
    { additionalErrorInfo: plan },
  );
}

/**
 * Refuses a query over several partition keys that the client has not allowed. Callers rely on that: a query that was
 * meant for one key, which the caller forgot to name, would otherwise be answered over all keys. In containers from
 * before partition keys there is no key to name.
 *
 * @throws WireError 400
 */
function refuseUnallowed(query: QueryBody, request: CosmosRequest, container: ContainerState): void {
  if (headerFlag(request.headers, 'x-ms-documentdb-query-enablecrosspartition') || namesItsScope(request)) return;
  if (container.definition.partitionKey['systemKey'] === true || isOfOneKey(query, request, container)) return;
  throw badRequest(
    'Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.',
  );
}

async function queryItems(
  asked: CosmosRequest,
  container: ContainerState,
  standAside: QueryRequest['standAside'],
): Promise<Answer> {
  const current = withoutEarlierRange(asked, container);
  if (current === undefined) return nothingOf(container);
  checkContinuationLimit(current);
  const { sql, parameters, resume } = readQueryBody(current);
  const request = withFormerRange(current, container, () => isMerged({ sql, parameters }, current, container));
  const { store, headers } = request;
  refuseUnallowed({ sql, parameters }, request, container);
  const position = store.headPosition();
  const named = scopeOf(request, container);
  const token = headerText(headers, 'x-ms-continuation');
  // A .NET client that learns of the first split continues a passed-through query at each range, and concatenates their
  // answers.
  const isOneForAll = resume === undefined && isDotNetClient(headers) && isPassedThrough(token);
  const scope = isOneForAll || isOfAllRanges(sql) ? scopeOfAll(named) : named;
  if (scope === undefined) {
    if (token === undefined || isOneForAll) return nothingOf(container);
    throw ofOtherRanges();
  }
  // Also when the only range of a container is asked for everything.
  const all = isWhole(scope) && !isOneForAll ? rangeIdOfRequest(asked.headers) : undefined;
  // A query that began without a plan goes on without one, even if the container has several ranges by now: a client
  // that gets its plan in the middle can't read its token.
  const isBegun = token !== undefined;
  // With its plan, `@azure/cosmos` would run a query of some keys, or of a part of the container, over all of it,
  // because it does not name the part then.
  if (!isBegun && isWhole(scope) && rangeOfRequest(request, container) === undefined) {
    refuseUnplanned({ sql, parameters }, request, container);
  }
  const passedThrough = isOneForAll || (isDotNetClient(headers) && isWhole(scope) && rangesOf(container).length === 1);
  const where = { of: container.rid, key: scope.partitionKey ?? scope.prefix, all, passedThrough };
  const next = decodeContinuation(token, where);
  const page = await store.queryItems(container, {
    sql,
    parameters,
    ...scope,
    resume: resume && {
      keys: resume.keys,
      ...(resume.rid === undefined ? undefined : placeOfRid(container.rid, resume.rid)),
      exclude: resume.exclude,
    },
    userFunctions: functionsFor(request, container, sql),
    rowRid: isOfRows(sql) ? (birth, inside) => rowRid(container.rid, birth, inside) : undefined,
    // Groups that the client merges are returned in as large a page as fits, and the client waits for the rest.
    maxItemCount: isOfGroups(sql) ? Number.MAX_SAFE_INTEGER : pageSizeOf(request),
    isAwaited: isInOnePage(sql) || (isOfGroups(sql) && next.continuation !== undefined),
    ...next,
    atLeast: await atLeastOf(request),
    signal: request.signal(),
    standAside,
  });
  const rows = page.texts.join(',');
  const body = `{"_rid":"${container.rid}","Documents":[${rows}],"_count":${page.rows.length}}`;
  const bytes = Buffer.byteLength(body);
  const units = charge.query(page.examined, bytes, page.extraWork + workOfText(sql));
  return {
    status: 200,
    body,
    charge: units,
    headers: {
      'x-ms-item-count': String(page.rows.length),
      ...continuationHeader(page, where),
      ...feedHeaders(request, container, position, scope),
      ...queryMetricsHeader(headers, page, bytes),
      ...indexMetricsHeader(headers, page.pushdown, container.definition, scope.partitionKey !== undefined),
    },
  };
}

/**
 * The scope of a query for which a plan asks one range for everything: the first range answers for all, and others,
 * which come from its split, for nothing.
 */
const scopeOfAll = ({ range, ...keys }: Scope): Scope | undefined =>
  range === undefined || range.min === WHOLE_RANGE.min ? keys : undefined;

function nothingOf({ rid }: ContainerState): Answer {
  const body = `{"_rid":"${rid}","Documents":[],"_count":0}`;
  return { status: 200, body, charge: charge.query(0, body.length), headers: { 'x-ms-item-count': '0' } };
}

const milliseconds = (value: number): string => Math.max(0, value).toFixed(2);

/** For steps that may have taken less than the unit shown: 0 would say that the step wasn't done. */
const millisecondsTaken = (value: number): string => milliseconds(value > 0 ? Math.max(0.01, value) : 0);

/**
 * The header with the metrics of a query. It does not end with `;`, because the JavaScript client throws an error then.
 * Times that are not measured separately are 0: evaluating and writing the answer are part of executing.
 */
function queryMetricsHeader(
  headers: CosmosRequest['headers'],
  { rows, examined, metrics }: QueryPage,
  bytes: number,
): Readonly<Record<string, string>> {
  if (!headerFlag(headers, 'x-ms-documentdb-populatequerymetrics')) return {};
  const { totalMs, compileMs, planMs, lookupMs, loadMs } = metrics;
  const values = {
    totalExecutionTimeInMs: millisecondsTaken(totalMs),
    queryCompileTimeInMs: millisecondsTaken(compileMs),
    queryLogicalPlanBuildTimeInMs: millisecondsTaken(planMs),
    queryPhysicalPlanBuildTimeInMs: milliseconds(0),
    queryOptimizationTimeInMs: milliseconds(0),
    // Includes looking up and loading; clients subtract these to get the time of the engine itself.
    VMExecutionTimeInMs: millisecondsTaken(totalMs - compileMs - planMs),
    indexLookupTimeInMs: milliseconds(lookupMs),
    documentLoadTimeInMs: milliseconds(examined > 0 ? Math.max(0.01, loadMs) : loadMs),
    systemFunctionExecuteTimeInMs: milliseconds(0),
    userFunctionExecuteTimeInMs: milliseconds(0),
    retrievedDocumentCount: examined,
    retrievedDocumentSize: bytes,
    outputDocumentCount: rows.length,
    outputDocumentSize: bytes,
    writeOutputTimeInMs: milliseconds(0),
    indexUtilizationRatio: (examined === 0 ? 1 : Math.min(1, rows.length / examined)).toFixed(2),
  };
  const text = Object.entries(values)
    .map(([name, value]) => `${name}=${value}`)
    .join(';');
  return { 'x-ms-documentdb-query-metrics': text };
}
