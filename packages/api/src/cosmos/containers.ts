import { containerEtag, currentPolicy } from '@epitaph/core/container/decide.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ScriptKind } from '@epitaph/core/script/events.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { charge } from '../request-units/charge.ts';
import { MAX_SCRIPTS } from '../store/api/scripts-api.ts';
import { containerSelf } from '../store/items/system-properties.ts';
import { readContainerBody } from './container-body.ts';
import { badRequest } from './errors.ts';
import { answerFeed } from './feed.ts';
import { readThroughput } from './offers.ts';
import { rangeIdOf } from './ranges.ts';
import {
  containerOf,
  databaseOf,
  headerFlag,
  headerText,
  ifNoneMatchOf,
  isFeed,
  jsonObjectOf,
  methodNotAllowed,
  owner,
  preconditionOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { sessionToken } from './session-token.ts';

/** The first version of the protocol in which a container must name its partition key. */
const PARTITION_KEYS_REQUIRED = '2018-12-31';

function knowsPartitionKeys({ headers }: CosmosRequest): boolean {
  const version = headerText(headers, 'x-ms-version');
  return version === undefined || version >= PARTITION_KEYS_REQUIRED;
}

/**
 * The container as its client knows containers: the system's partition key is hidden from clients older than partition
 * keys.
 */
function shown(request: CosmosRequest, container: ContainerState): Readonly<Record<string, unknown>> {
  const all = showContainer(container, request.store.nowMs());
  if (container.definition.partitionKey['systemKey'] !== true || knowsPartitionKeys(request)) return all;
  const { partitionKey: _, ...others } = all;
  return others;
}

/** @param nowMs selects the TTL policy that is in force: one that takes effect later isn't shown yet */
function showContainer(container: ContainerState, nowMs: number): Readonly<Record<string, unknown>> {
  const { defaultTtl } = currentPolicy(container, nowMs);
  return {
    id: container.name,
    ...container.definition,
    ...(defaultTtl === null ? {} : { defaultTtl }),
    _rid: container.rid,
    _ts: Math.floor(container.changedAtMs / 1000),
    _self: containerSelf(container),
    _etag: containerEtag(container, nowMs),
    _docs: 'docs/',
    _sprocs: 'sprocs/',
    _triggers: 'triggers/',
    _udfs: 'udfs/',
    _conflicts: 'conflicts/',
  };
}

/** `/dbs/{db}/colls` */
export async function answerContainers(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const database = owner(databaseOf, request);
  if (isFeed(request)) {
    return answerFeed(
      request,
      database.rid,
      'DocumentCollections',
      store.listContainers(database.name).map((container) => shown(request, container)),
    );
  }
  if (method !== 'POST') throw methodNotAllowed();
  const { name, definition, defaultTtl, encryptedWith } = readContainerBody(jsonObjectOf(request), {
    queryCharacters: request.limits.queryCharacters,
    legacy: !knowsPartitionKeys(request),
  });
  checkKeysOf(request, database.rid, encryptedWith);
  const written = await store.createContainer(
    caller,
    database.name,
    name,
    definition,
    defaultTtl,
    readThroughput(headers),
  );
  return answerContainerState(request, 201, database.name, written.resource, written.position);
}

/** @throws WireError 400 for a client encryption key that the database does not have */
function checkKeysOf({ store }: CosmosRequest, databaseRid: string, names: readonly string[]): void {
  if (names.length === 0) return;
  const known = new Set(store.listClientEncryptionKeys(databaseRid).map(({ name }) => name));
  const unknown = names.find((name) => !known.has(name));
  if (unknown === undefined) return;
  throw badRequest(`ClientEncryptionKey with id '[${unknown.slice(0, 255)}]' does not exist.`);
}

/** `/dbs/{db}/colls/{coll}` */
export async function answerContainer(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  let container: ContainerState;
  try {
    container = containerOf(request);
  } catch (error) {
    if (method !== 'DELETE' || !(error instanceof UnreadableEvent)) throw error;
    // The container's definition is lost, but it can be deleted all the same.
    const { name: database } = databaseOf(request);
    await store.deleteContainer(caller, database, request.segments[3]!, preconditionOf(headers));
    return { status: 204, body: null, charge: charge.metadata, headers: {} };
  }
  // A target may name its database by rid, but the store uses names.
  const database = databaseOf(request).name;
  switch (method) {
    case 'GET': {
      const state = answerContainerState(request, 200, database, container, store.headPosition());
      if (ifNoneMatchOf(headers) === state.headers?.['etag']) return { ...state, status: 304, body: null };
      const isAsked = headerFlag(headers, 'x-ms-documentdb-populatequotainfo');
      // Clients from before partition keys expect these headers without asking, for containers created without a key.
      const hasIndex = isAsked || container.definition.partitionKey['systemKey'] === true;
      const told = { ...state.headers, ...(hasIndex ? indexHeaders(container) : {}) };
      if (!isAsked) return { ...state, headers: told };
      return { ...state, headers: { ...told, ...quotaHeaders(store, container, await store.countItems(container)) } };
    }
    case 'PUT': {
      const { name, definition, defaultTtl } = readContainerBody(jsonObjectOf(request), {
        queryCharacters: request.limits.queryCharacters,
        current: container.definition,
        legacy: !knowsPartitionKeys(request),
      });
      if (name !== container.name) throw badRequest('The id in the body is not the one in the request target.');
      const written = await store.replaceContainer(
        caller,
        database,
        name,
        definition,
        defaultTtl,
        preconditionOf(headers),
      );
      return answerContainerState(request, 200, database, written.resource, written.position);
    }
    case 'DELETE': {
      const { position } = await store.deleteContainer(caller, database, container.name, preconditionOf(headers));
      const { headers: shown } = answerContainerState(request, 204, database, container, position);
      return { status: 204, body: null, charge: charge.metadata, headers: shown ?? {} };
    }
    default:
      throw methodNotAllowed();
  }
}

function answerContainerState(
  request: CosmosRequest,
  status: number,
  database: string,
  container: ContainerState,
  position: number,
): Answer {
  const resource = shown(request, container);
  return {
    status,
    body: JSON.stringify(resource),
    charge: charge.metadata,
    headers: {
      etag: String(resource['_etag']),
      ...containerHeaders(database, container, position),
      ...(sharesThroughput(request, container) ? { 'x-ms-share-throughput': 'true' } : {}),
      // The path of the parent: clients append the container's own link.
      'x-ms-content-path': container.databaseRid,
      'x-ms-alt-content-path': encodeURI(`dbs/${database}`),
    },
  };
}

/** Whether a container has no throughput of its own but its database has. */
const sharesThroughput = (request: CosmosRequest, { throughput }: ContainerState): boolean =>
  throughput.kind === 'none' && databaseOf(request).throughput.kind !== 'none';

/** Headers of every answer about a container and what is in it. Clients keep no session token without the path. */
export function containerHeaders(
  database: string,
  container: ContainerState,
  position: number,
  /** The range that the answer is from. Clients keep their list of ranges as long as it is one that they know. */
  rangeId: string = rangeIdOf(container),
): Readonly<Record<string, string>> {
  return {
    ...sessionHeaders(rangeId, position),
    'x-ms-content-path': container.rid,
    'x-ms-alt-content-path': namePath(database, container),
  };
}

/** The session token of the range that answered. */
export const sessionHeaders = (rangeId: string, position: number): Readonly<Record<string, string>> => ({
  'x-ms-session-token': sessionToken(rangeId, position),
  'x-ms-documentdb-partitionkeyrangeid': rangeId,
  lsn: String(position),
});

const namePaths = new WeakMap<ContainerState, { readonly database: string; readonly path: string }>();

/** A container's link by names, encoded once for each state of the container. */
function namePath(database: string, container: ContainerState): string {
  const known = namePaths.get(container);
  if (known?.database === database) return known.path;
  const path = encodeURI(`dbs/${database}/colls/${container.name}`);
  namePaths.set(container, { database, path });
  return path;
}

/**
 * Kilobytes and counts, as in the service's documentation; a count of -1 means no limit. The usage has the number of
 * scripts, and that of documents if it was counted. Sizes are not summed up here, and unknown values are left out.
 */
export function quotaHeaders(
  store: CosmosRequest['store'],
  container: ContainerState,
  documentsCount?: number,
): Readonly<Record<string, string>> {
  const count = (kind: ScriptKind): number => store.listScripts(container, kind).length;
  const scripts = `functions=${count('user-defined-function')};storedProcedures=${count('stored-procedure')};triggers=${count('trigger')};`;
  return {
    'x-ms-resource-quota': `functions=${MAX_SCRIPTS};storedProcedures=${MAX_SCRIPTS};triggers=${MAX_SCRIPTS};documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;`,
    'x-ms-resource-usage': documentsCount === undefined ? scripts : `${scripts}documentsCount=${documentsCount};`,
  };
}

/**
 * The index is never behind, so its transformation is always complete. Clients that ask for the mode `lazy` wait for a
 * header of its own.
 */
const indexHeaders = ({ definition }: ContainerState): Readonly<Record<string, string>> => ({
  'x-ms-documentdb-collection-index-transformation-progress': '100',
  ...(definition.indexingPolicy.indexingMode === 'lazy'
    ? { 'x-ms-documentdb-collection-lazy-indexing-progress': '100' }
    : {}),
});
