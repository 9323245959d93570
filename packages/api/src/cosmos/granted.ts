import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import {
  effectivePartitionKey,
  type KeyRange,
  rangeOfKey,
} from '@epitaph/core/partition-key/effective-partition-key.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { Grant } from '../store/api/users-api.ts';
import type { StoreApi } from '../store/store-api.ts';
import { WireError } from './errors.ts';
import { isRunOfScript } from './request.ts';

/** The refusal for a valid token that does not cover the request. */
const notGranted = (): WireError =>
  new WireError(
    'forbidden',
    'Insufficient permissions provided in the authorization header for the corresponding request. Please retry with another authorization header.',
  );

/**
 * Refuses targets that no token reaches: everything but the account, and the definition, ranges and documents of a
 * container. The store of the token's holder checks which container it is, and what in it.
 *
 * @throws WireError 403
 */
export function checkTargetGranted(
  { target: { item }, writes }: Grant,
  {
    segments,
    method,
    isRead,
  }: { readonly segments: readonly string[]; readonly method: string; readonly isRead: boolean },
): void {
  if (!isRead && !writes) throw notGranted();
  const { length } = segments;
  if (length === 0 && method === 'GET') return;
  if (segments[0] !== 'dbs' || segments[2] !== 'colls') throw notGranted();
  // A container's definition, with the partition key that clients request first. No token allows changing or deleting a
  // container.
  if (length === 4 && method === 'GET') return;
  if (length === 5 && segments[4] === 'pkranges' && method === 'GET') return;
  if (length === 6 && segments[4] === 'addresses') return;
  if (length === 5 && segments[4] === 'docs' && item === undefined) return;
  if (length === 6 && segments[4] === 'docs') return;
  if (isRunOfScript(method, segments) && item === undefined) return;
  throw notGranted();
}

/**
 * The store for the holder of a token: what the permission covers, and nothing else. A method that is not named here is
 * refused, so that new methods of the store are not open to tokens by oversight.
 */
export function grantedStore(store: StoreApi, grant: Grant): StoreApi {
  const { target, writes, databaseRid } = grant;
  const { item } = target;
  const inContainer = (container: ContainerState): void => {
    if (container.rid !== target.containerRid) throw notGranted();
  };
  const isCovered = ({ id, partitionKey }: ItemName): boolean =>
    [target.partitionKey, item?.partitionKey].every((key) => key === undefined || key === partitionKey) &&
    (item === undefined || item.id === id);
  const onItem = (container: ContainerState, id: string, partitionKey: string): void => {
    inContainer(container);
    if (!isCovered({ id, partitionKey })) throw notGranted();
  };
  const toWrite = (): void => {
    if (!writes) throw notGranted();
  };
  // A feed that names the key returns only its items, whatever range is given in addition. The Python client names the
  // range of the key instead.
  const onFeed = <T extends Scope>(container: ContainerState, scope: T): T => {
    inContainer(container);
    if (item !== undefined) throw notGranted();
    const { partitionKey } = target;
    if (partitionKey === undefined || partitionKey === scope.partitionKey) return scope;
    if (scope.partitionKey !== undefined || !isRangeOf(container, partitionKey, scope.range)) throw notGranted();
    return { ...scope, partitionKey };
  };
  const granted: Partial<StoreApi> = {
    // The holder of a token spends the container's budget, as everyone does.
    requestUnits: store.requestUnits,
    headPosition: () => store.headPosition(),
    reaches: (position) => store.reaches(position),
    nowMs: () => store.nowMs(),
    // Targets by rid are looked up in the list. No token reaches the list itself.
    listDatabases: () => store.listDatabases().filter(({ rid }) => rid === databaseRid),
    database: (name) => covered(databaseRid, name, () => store.database(name)),
    databaseByRid: (rid) => {
      if (rid !== databaseRid) throw notGranted();
      return store.databaseByRid(rid);
    },
    container: (database, name) => covered(target.containerRid, name, () => store.container(database, name)),
    // Plans depend on the ranges of earlier containers of the name.
    deletedContainers: (database, name) => {
      covered(target.containerRid, name, () => store.container(database, name));
      return store.deletedContainers(database, name);
    },
    containerByRid: (rid) => {
      if (rid !== target.containerRid) throw notGranted();
      return store.containerByRid(rid);
    },
    // For the functions that queries call, and for links by rid. What scripts may do is decided by the rest of this
    // store.
    listScripts: (container, kind) => {
      inContainer(container);
      if (item !== undefined) throw notGranted();
      return store.listScripts(container, kind);
    },
    scriptToRun: (container, kind, name) => {
      inContainer(container);
      if (item !== undefined) throw notGranted();
      toWrite();
      return store.scriptToRun(container, kind, name);
    },
    readItem: async (container, id, partitionKey, from) => {
      onItem(container, id, partitionKey);
      return store.readItem(container, id, partitionKey, from);
    },
    itemByBirth: async (container, birth, _isWanted, snapshot) => {
      inContainer(container);
      // Rids contain log positions. A holder that counts up could otherwise find out where other items began and which
      // still exist, also from the time that opening them takes.
      return store.itemByBirth(container, birth, isCovered, snapshot);
    },
    // Reads from the snapshot are checked like all others.
    snapshotItems: async (container) => {
      inContainer(container);
      return store.snapshotItems(container);
    },
    countItems: async (container) => {
      onFeed(container, {});
      return store.countItems(container);
    },
    listItems: async (container, page) => store.listItems(container, onFeed(container, page)),
    queryItems: async (container, request) =>
      store.queryItems(container, { ...onFeed(container, request), apart: target.partitionKey !== undefined }),
    readChangeFeed: async (container, request) =>
      store.readChangeFeed(container, { ...request, scope: onFeed(container, request.scope) }),
    batchItems: async (caller, container, operations, options) => {
      for (const operation of operations) {
        const { id, partitionKey } = operation.kind === 'write' ? operation.item : operation;
        onItem(container, id, partitionKey);
        if (item !== undefined) throw notGranted();
        if (operation.kind !== 'read') toWrite();
      }
      return store.batchItems(caller, container, operations, options);
    },
    writeItem: async (caller, container, operation, document, precondition) => {
      toWrite();
      onItem(container, document.id, document.partitionKey);
      if (item !== undefined && operation !== 'replace') throw notGranted();
      return store.writeItem(caller, container, operation, document, precondition);
    },
    patchItem: async (caller, container, id, partitionKey, patch, precondition) => {
      toWrite();
      onItem(container, id, partitionKey);
      return store.patchItem(caller, container, id, partitionKey, patch, precondition);
    },
    deleteItem: async (caller, container, id, partitionKey, precondition) => {
      toWrite();
      onItem(container, id, partitionKey);
      return store.deleteItem(caller, container, id, partitionKey, precondition);
    },
  };
  return storeOf(store, (name) => Reflect.get(granted, name), notGranted);
}

/**
 * The database or container that a token is for. For any other, the holder does not learn whether it exists, because
 * names may be those of customers.
 */
function covered<T extends { readonly rid: string }>(rid: string, name: string, find: () => T): T {
  try {
    const found = find();
    if (found.rid === rid) return found;
  } catch (error) {
    // A target may use the rid, which is looked up when nothing has that name.
    if (name === rid || !(error instanceof Refusal)) throw error;
  }
  throw notGranted();
}

/** A store with only those properties that `find` returns. Every other method throws. */
export function storeOf(store: StoreApi, find: (name: PropertyKey) => unknown, refusal: () => WireError): StoreApi {
  const refuse = () => {
    throw refusal();
  };
  return new Proxy(store, { get: (_store, name) => find(name) ?? refuse });
}

/** Whether a range contains nothing but one partition key. */
function isRangeOf({ definition }: ContainerState, partitionKey: string, range: KeyRange | undefined): boolean {
  if (range === undefined) return false;
  const { min, max } = rangeOfKey(effectivePartitionKey(definition.partitionKey, partitionKey));
  return range.min >= min && range.max <= max;
}
