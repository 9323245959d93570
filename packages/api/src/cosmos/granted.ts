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

/** What every refusal of a token says that is valid, but not for this. */
const notGranted = (): WireError =>
  new WireError(
    'forbidden',
    'Insufficient permissions provided in the authorization header for the corresponding request. Please retry with another authorization header.',
  );

/**
 * Refuses targets that no token reaches: everything but the account, and the definition, ranges and documents of a
 * container. Which container, and what in it, the store of the token's holder looks at.
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
  // Its definition, whose partition key clients ask for first. No token changes or deletes a container.
  if (length === 4 && method === 'GET') return;
  if (length === 5 && segments[4] === 'pkranges' && method === 'GET') return;
  if (length === 6 && segments[4] === 'addresses') return;
  if (length === 5 && segments[4] === 'docs' && item === undefined) return;
  if (length === 6 && segments[4] === 'docs') return;
  if (isRunOfScript(method, segments) && item === undefined) return;
  throw notGranted();
}

/**
 * The store as a token's holder has it: what the permission covers, and nothing else. A method that is not named here
 * is refused, so that what the store learns to do is not open to tokens by oversight.
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
  // A feed that names the key gives no more than it, whatever range is asked for besides. The Python client names the
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
    // Whoever comes with a token spends what the container has, as everybody does.
    requestUnits: store.requestUnits,
    headPosition: () => store.headPosition(),
    reaches: (position) => store.reaches(position),
    nowMs: () => store.nowMs(),
    // Targets by rid are found in the list; the list itself no token reaches.
    listDatabases: () => store.listDatabases().filter(({ rid }) => rid === databaseRid),
    database: (name) => covered(databaseRid, name, () => store.database(name)),
    databaseByRid: (rid) => {
      if (rid !== databaseRid) throw notGranted();
      return store.databaseByRid(rid);
    },
    container: (database, name) => covered(target.containerRid, name, () => store.container(database, name)),
    // Plans go by what ranges earlier containers of the name had.
    deletedContainers: (database, name) => {
      covered(target.containerRid, name, () => store.container(database, name));
      return store.deletedContainers(database, name);
    },
    containerByRid: (rid) => {
      if (rid !== target.containerRid) throw notGranted();
      return store.containerByRid(rid);
    },
    // For the functions that queries call, and for links by rid. What scripts do, the rest of this store decides.
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
    readItem: async (container, id, partitionKey, atLeast) => {
      onItem(container, id, partitionKey);
      return store.readItem(container, id, partitionKey, atLeast);
    },
    itemByBirth: async (container, birth) => {
      inContainer(container);
      // A rid says where the log was, so whoever counts up would otherwise find where others' items began, and which are
      // left; by the time that it takes to open them, too.
      return store.itemByBirth(container, birth, isCovered);
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
 * The database or container that a token is for. Of any other its holder is not told whether it is there: names of
 * databases and containers may be those of customers.
 */
function covered<T extends { readonly rid: string }>(rid: string, name: string, find: () => T): T {
  try {
    const found = find();
    if (found.rid === rid) return found;
  } catch (error) {
    // A target may name it by its rid, which is looked for when there is nothing of that name.
    if (name === rid || !(error instanceof Refusal)) throw error;
  }
  throw notGranted();
}

/** A store of which nothing is to be had but what there is an answer for; whatever else is called throws. */
export function storeOf(store: StoreApi, find: (name: PropertyKey) => unknown, refusal: () => WireError): StoreApi {
  const refuse = () => {
    throw refusal();
  };
  return new Proxy(store, { get: (_store, name) => find(name) ?? refuse });
}

/** Whether nothing but one partition key lies in a range. */
function isRangeOf({ definition }: ContainerState, partitionKey: string, range: KeyRange | undefined): boolean {
  if (range === undefined) return false;
  const { min, max } = rangeOfKey(effectivePartitionKey(definition.partitionKey, partitionKey));
  return range.min >= min && range.max <= max;
}
