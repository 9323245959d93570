import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ShownItem, Written } from '../store/store-api.ts';
import { answerBatch } from './batch.ts';
import { charge } from './charge.ts';
import { containerHeaders } from './containers.ts';
import { decodeContinuation } from './continuation.ts';
import { badRequest, WireError } from './errors.ts';
import { answerQueryPlan, continuationHeader, readQueryBody } from './feed.ts';
import { checkItemId, readItemBody, type ItemBody } from './item-body.ts';
import { readPartitionKeyHeader } from './partition-key.ts';
import { readPatch } from './patch.ts';
import {
  atLeastOf,
  byRid,
  containerOf,
  headerFlag,
  headerText,
  isQuery,
  isQueryPlan,
  jsonOf,
  methodNotAllowed,
  owner,
  pageSizeOf,
  preconditionOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { birthOfItemRid } from './rids.ts';
import { withSystemProperties } from './system-properties.ts';

const PARTITION_KEY = 'x-ms-documentdb-partitionkey';
const MISMATCH = "PartitionKey extracted from document doesn't match the one specified in the header";

/** `/dbs/{db}/colls/{coll}/docs` */
export async function answerItems(request: CosmosRequest): Promise<Answer> {
  const { method, headers } = request;
  const container = owner(containerOf, request);
  if (method === 'GET') {
    if (headers['a-im'] !== undefined) throw badRequest('The change feed is not supported yet.');
    return listItems(request, container);
  }
  if (method !== 'POST') throw methodNotAllowed();
  if (headerFlag(headers, 'x-ms-cosmos-is-batch-request')) return answerBatch(request, container);
  if (isQueryPlan(headers)) return answerQueryPlan(readQueryBody(request), request.limits);
  if (isQuery(headers)) return queryItems(request, container);
  const operation = headerFlag(headers, 'x-ms-documentdb-is-upsert') ? 'upsert' : 'create';
  const item = readItem(request, container);
  const written = await request.store.writeItem(request.caller, container, operation, item, preconditionOf(headers));
  return answerWritten(request, container, written, written.created ? 201 : 200, item);
}

/** `/dbs/{db}/colls/{coll}/docs/{id}` */
export async function answerItem(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const container = owner(containerOf, request);
  const { id, partitionKey } = await itemAddress(request, container);
  switch (method) {
    case 'GET': {
      const item = await store.readItem(container, id, partitionKey, atLeastOf(request));
      const shown = { etag: item.etag, ...answerHeaders(request, container, store.headPosition()) };
      const ifNoneMatch = headers['if-none-match'];
      if (ifNoneMatch !== undefined && (ifNoneMatch === item.etag || ifNoneMatch === '*')) {
        return { status: 304, body: null, charge: charge.metadata, headers: shown };
      }
      const body = withSystemProperties(container, item);
      return { status: 200, body, charge: charge.pointRead(body.length), headers: shown };
    }
    case 'PUT': {
      const item = readItem(request, container);
      if (item.id !== id) throw badRequest('The id in the body is not the one in the request target.');
      if (item.partitionKey !== partitionKey) throw new WireError('partitionKeyMismatch', MISMATCH);
      const written = await store.writeItem(caller, container, 'replace', item, preconditionOf(headers));
      return answerWritten(request, container, written, 200, item);
    }
    case 'PATCH': {
      const patch = readPatch(jsonOf(request.body, request.limits), container);
      const written = await store.patchItem(caller, container, id, partitionKey, patch, preconditionOf(headers));
      return answerWritten(request, container, written, 200);
    }
    case 'DELETE': {
      const { position } = await store.deleteItem(caller, container, id, partitionKey, preconditionOf(headers));
      return {
        status: 204,
        body: null,
        charge: charge.write(0),
        headers: answerHeaders(request, container, position),
      };
    }
    default:
      throw methodNotAllowed();
  }
}

/** The document of a create, upsert or replace, held against the key in the header. */
function readItem(request: CosmosRequest, container: ContainerState): ItemBody {
  const { definition } = container;
  const given = readPartitionKeyHeader(definition, headerText(request.headers, PARTITION_KEY));
  const item = readItemBody(definition, request.body, request.limits);
  if (given !== undefined && given.key !== item.partitionKey) throw new WireError('partitionKeyMismatch', MISMATCH);
  return item;
}

/** Which item a target means: by id and the key in the header, or by rid. */
async function itemAddress(
  request: CosmosRequest,
  container: ContainerState,
): Promise<{ readonly id: string; readonly partitionKey: string }> {
  const name = request.segments[5]!;
  if (byRid(request, container)) {
    const found = await findByRid(request, container, name);
    if (found !== undefined) return found;
  }
  const given = readPartitionKeyHeader(container.definition, headerText(request.headers, PARTITION_KEY));
  if (given === undefined) throw badRequest('PartitionKey value must be supplied for this operation.');
  if (!given.complete) {
    throw badRequest(
      'Partition key provided either does not correspond to definition in the collection or is partial.',
    );
  }
  return { id: checkItemId(name), partitionKey: given.key };
}

/** `_self` links name an item by its rid, which tells where its life began; the feed finds it there in one step. */
async function findByRid(
  { store }: CosmosRequest,
  container: ContainerState,
  rid: string,
): Promise<ShownItem | undefined> {
  const birth = birthOfItemRid(container.rid, rid);
  if (birth === undefined || birth < 1) return undefined;
  const { items } = await store.listItems(container, {
    maxItemCount: 1,
    continuation: { kind: 'after', birth: birth - 1 },
  });
  return items.find((item) => item.birth === birth);
}

function answerWritten(
  request: CosmosRequest,
  container: ContainerState,
  { resource, position }: Written<ShownItem>,
  status: number,
  sent?: ItemBody,
): Answer {
  const size = sent === undefined ? resource.json.length : sent.json.length;
  const headers = { etag: resource.etag, ...answerHeaders(request, container, position) };
  if (request.headers['prefer'] === 'return=minimal') {
    // An empty body is no error for clients as long as the status says that there is none.
    return { status, body: null, charge: charge.write(size), headers };
  }
  return { status, body: withSystemProperties(container, resource), charge: charge.write(size), headers };
}

const answerHeaders = ({ segments }: CosmosRequest, container: ContainerState, position: number) =>
  containerHeaders(segments[1]!, container, position);

/** The scope of a feed or query: one partition key, or undefined for the whole container. */
function scopeOf(request: CosmosRequest, container: ContainerState): string | undefined {
  const start = headerText(request.headers, 'x-ms-start-epk') ?? '';
  const end = headerText(request.headers, 'x-ms-end-epk') ?? 'FF';
  // A wider answer than was asked for would be a wrong one.
  if (start !== '' || end !== 'FF') throw badRequest('Ranges of effective partition keys are not supported yet.');
  const given = readPartitionKeyHeader(container.definition, headerText(request.headers, PARTITION_KEY));
  if (given === undefined) return undefined;
  if (!given.complete) throw badRequest('Queries over a prefix of a hierarchical partition key are not supported yet.');
  return given.key;
}

async function listItems(request: CosmosRequest, container: ContainerState): Promise<Answer> {
  const { store, headers } = request;
  const position = store.headPosition();
  const continuation = decodeContinuation(headerText(headers, 'x-ms-continuation'));
  if (continuation !== undefined && continuation.kind !== 'after') throw badRequest('Invalid Continuation Token');
  const page = await store.listItems(container, {
    partitionKey: scopeOf(request, container),
    maxItemCount: pageSizeOf(request),
    continuation,
    atLeast: atLeastOf(request),
  });
  const documents = page.items.map((item) => withSystemProperties(container, item)).join(',');
  const body = `{"_rid":"${container.rid}","Documents":[${documents}],"_count":${page.items.length}}`;
  return {
    status: 200,
    body,
    charge: charge.query(page.items.length, body.length),
    headers: {
      'x-ms-item-count': String(page.items.length),
      ...continuationHeader(page.continuation),
      ...answerHeaders(request, container, position),
    },
  };
}

async function queryItems(request: CosmosRequest, container: ContainerState): Promise<Answer> {
  const { store, headers } = request;
  const { sql, parameters } = readQueryBody(request);
  const position = store.headPosition();
  const page = await store.queryItems(container, {
    sql,
    parameters,
    partitionKey: scopeOf(request, container),
    maxItemCount: pageSizeOf(request),
    continuation: decodeContinuation(headerText(headers, 'x-ms-continuation')),
    atLeast: atLeastOf(request),
    signal: request.signal(),
  });
  const rows = JSON.stringify(page.rows);
  const body = `{"_rid":"${container.rid}","Documents":${rows},"_count":${page.rows.length}}`;
  const units = charge.query(page.examined, body.length);
  return {
    status: 200,
    body,
    charge: units,
    headers: {
      'x-ms-item-count': String(page.rows.length),
      ...continuationHeader(page.continuation),
      ...answerHeaders(request, container, position),
      ...queryMetricsHeader(headers, page, body.length),
    },
  };
}

/** Without a `;` at the end, over which the JavaScript client throws. Times are not measured: 0. */
function queryMetricsHeader(
  headers: CosmosRequest['headers'],
  page: { readonly rows: readonly unknown[]; readonly examined: number },
  bytes: number,
): Readonly<Record<string, string>> {
  if (!headerFlag(headers, 'x-ms-documentdb-populatequerymetrics')) return {};
  const metrics = {
    totalExecutionTimeInMs: '0.00',
    queryCompileTimeInMs: '0.00',
    queryLogicalPlanBuildTimeInMs: '0.00',
    queryPhysicalPlanBuildTimeInMs: '0.00',
    queryOptimizationTimeInMs: '0.00',
    VMExecutionTimeInMs: '0.00',
    indexLookupTimeInMs: '0.00',
    documentLoadTimeInMs: '0.00',
    systemFunctionExecuteTimeInMs: '0.00',
    userFunctionExecuteTimeInMs: '0.00',
    retrievedDocumentCount: page.examined,
    retrievedDocumentSize: bytes,
    outputDocumentCount: page.rows.length,
    outputDocumentSize: bytes,
    writeOutputTimeInMs: '0.00',
    indexUtilizationRatio: '1.00',
  };
  const text = Object.entries(metrics)
    .map(([name, value]) => `${name}=${value}`)
    .join(';');
  return { 'x-ms-documentdb-query-metrics': text };
}
