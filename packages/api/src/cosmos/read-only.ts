import type { StoreApi } from '../store/store-api.ts';
import { WireError } from './errors.ts';
import { storeOf } from './granted.ts';

export const notForWrites = (): WireError => new WireError('forbidden', "The read-only key can't be used for writes.");

const reads: ReadonlySet<PropertyKey> = new Set<keyof StoreApi>([
  'requestUnits',
  'headPosition',
  'reaches',
  'nowMs',
  'listDatabases',
  'database',
  'databaseByRid',
  'listContainers',
  'container',
  'containerByRid',
  'deletedContainers',
  'listUsers',
  'user',
  'listScripts',
  'script',
  'listClientEncryptionKeys',
  'clientEncryptionKey',
  'readItem',
  'itemByBirth',
  'snapshotItems',
  'countItems',
  'listItems',
  'queryItems',
  'readChangeFeed',
]);

/**
 * The store for the holder of the read-only key. Anything that is not named here is refused. Requests are classified as
 * reads or writes by verb and headers before; so no combination of those can reach a write that was overlooked.
 */
export function readOnlyStore(store: StoreApi): StoreApi {
  const find = (name: PropertyKey): unknown => {
    if (!reads.has(name)) return undefined;
    const member: unknown = Reflect.get(store, name);
    return typeof member === 'function' ? (member.bind(store) as unknown) : member;
  };
  return storeOf(store, find, notForWrites);
}
