import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { type Assignment, isDataRole, type Principal } from '../http/identities.ts';
import { isRid } from '../store/rids.ts';
import type { Caller } from '../store/api/common.ts';
import type { StoreApi } from '../store/store-api.ts';
import { WireError } from './errors.ts';
import { storeOf } from './granted.ts';
import { isRunOfScript } from './request.ts';

/** @source the service's own words, by which tools tell that a role is missing: https://github.com/microsoft/vscode-cosmosdb/pull/2289 */
const blocked = (kind: 'notAssigned' | 'notForIdentities', why: string): WireError =>
  new WireError(kind, `Request blocked by Auth epitaph : ${why} Learn more: https://aka.ms/cosmos-native-rbac.`);

const METADATA = 'readMetadata';
const ITEMS = 'sqlDatabases/containers/items';

/** The refusal for lack of an assignment. */
const notAssigned = ({ id }: Pick<Principal, 'id'>, action: string, resource: string): WireError =>
  blocked(
    'notAssigned',
    `Request is blocked because principal [${id}] does not have required RBAC permissions to perform action [Microsoft.DocumentDB/databaseAccounts/${action}] on resource [${resource}].`,
  );

/** What the data roles of a principal cover. */
function reachOf({ assignments }: Principal) {
  const ofData = assignments.filter(({ role }: Assignment) => isDataRole(role));
  return {
    hasAny: ofData.length > 0,
    isEverywhere: ofData.some(({ scope }) => scope.database === undefined),
    covers: (database: string, container: string, writes = false): boolean =>
      ofData.some(
        ({ role, scope }) =>
          (scope.database ?? database) === database &&
          (scope.container ?? container) === container &&
          (!writes || role === 'contributor'),
      ),
    // A principal that may see a container may see its database.
    reaches: (database: string): boolean => ofData.some(({ scope }) => (scope.database ?? database) === database),
  };
}

const notReached = (principal: Principal, action: string, ...names: readonly string[]): WireError =>
  notAssigned(principal, action, `dbs/${names.join('/colls/')}`);

/**
 * Refuses targets that data roles never reach: users, permissions and throughput, and creating, changing and deleting
 * databases and containers. Refuses databases and containers, by name, that the principal's roles are not for. This
 * comes before other nodes would be asked for an unknown name, because the time of that would show that the name is
 * unknown.
 *
 * @throws WireError 403 with substatus 5300, or 5301 for a principal without any data role
 */
export function checkTargetAssigned(
  principal: Principal,
  {
    segments,
    method,
    isRead,
  }: { readonly segments: readonly string[]; readonly method: string; readonly isRead: boolean },
): void {
  const { hasAny, reaches, covers } = reachOf(principal);
  if (!hasAny) throw notAssigned(principal, METADATA, '/');
  const isOfItems =
    segments[2] === 'colls' &&
    (segments[4] === 'docs' || segments[4] === 'operations' || isRunOfScript(method, segments));
  const isMetadata = segments[0] !== 'offers' && segments[2] !== 'users';
  if (isRead ? isMetadata : isOfItems) {
    const [root, database, kind, container] = segments;
    // Targets by rid are checked by the principal's store.
    if (root !== 'dbs' || database === undefined || isRid(database)) return;
    if (!reaches(database)) throw notReached(principal, METADATA, database);
    if (kind !== 'colls' || container === undefined || isRid(container) || covers(database, container)) return;
    throw notReached(principal, METADATA, database, container);
  }
  const target = `/${segments.join('/')}`.slice(0, 200);
  throw blocked(
    'notForIdentities',
    `The given request [${method} ${target}] cannot be authorized by AAD token in data plane.`,
  );
}

/**
 * The store for the holder of an identity token, limited by the assignments of its data roles. A method that is not
 * named here is refused, so that new methods of the store are not open to such holders by oversight.
 */
export function assignedStore(store: StoreApi, principal: Principal): StoreApi {
  const { covers, reaches, isEverywhere } = reachOf(principal);
  const refuse = (action: string, ...names: string[]) => notReached(principal, action, ...names);
  const check = (container: ContainerState, action: string, writes = false): void => {
    const { name: database } = store.databaseByRid(container.databaseRid)!;
    if (!covers(database, container.name, writes)) throw refuse(action, database, container.name);
  };
  const reading =
    <Rest extends unknown[], Answer>(read: (container: ContainerState, ...rest: Rest) => Promise<Answer>) =>
    async (container: ContainerState, ...rest: Rest): Promise<Answer> => {
      check(container, `${ITEMS}/read`);
      return read(container, ...rest);
    };
  const writing =
    <Rest extends unknown[], Answer>(
      write: (caller: Caller, container: ContainerState, ...rest: Rest) => Promise<Answer>,
    ) =>
    async (caller: Caller, container: ContainerState, ...rest: Rest): Promise<Answer> => {
      check(container, `${ITEMS}/*`, true);
      return write(caller, container, ...rest);
    };
  const assigned: Partial<StoreApi> = {
    requestUnits: store.requestUnits,
    headPosition: () => store.headPosition(),
    reaches: (position) => store.reaches(position),
    nowMs: () => store.nowMs(),
    listDatabases: () => store.listDatabases().filter(({ name }) => reaches(name)),
    database: (name) => {
      if (reaches(name)) return store.database(name);
      // A target may name the database by its rid, which is looked up when nothing has that name.
      throw isRid(name) ? new Refusal('database-not-found') : refuse(METADATA, name);
    },
    databaseByRid: (rid) => {
      const found = store.databaseByRid(rid);
      if (found === undefined ? !isEverywhere : !reaches(found.name)) throw refuse(METADATA, rid);
      return found;
    },
    listContainers: (database) => {
      if (!reaches(database)) throw refuse(METADATA, database);
      return store.listContainers(database).filter(({ name }) => covers(database, name));
    },
    container: (database, name) => {
      if (covers(database, name)) return store.container(database, name);
      throw isRid(database) || isRid(name) ? new Refusal('container-not-found') : refuse(METADATA, database, name);
    },
    containerByRid: (rid) => {
      const found = store.containerByRid(rid);
      const database = found && store.databaseByRid(found.databaseRid)!.name;
      // A rid is computed from names. The answer for an unknown rid is the same as for a container that is not for this
      // principal, so that it can't be used to try out names.
      if (found === undefined ? isEverywhere : covers(database!, found.name)) return found;
      throw notAssigned(principal, METADATA, `dbs/colls/${rid}`);
    },
    deletedContainers: (database, name) => {
      if (!covers(database, name)) throw refuse(METADATA, database, name);
      return store.deletedContainers(database, name);
    },
    listClientEncryptionKeys: (databaseRid) => {
      assigned.databaseByRid!(databaseRid);
      return store.listClientEncryptionKeys(databaseRid);
    },
    clientEncryptionKey: (databaseRid, name) => {
      assigned.databaseByRid!(databaseRid);
      return store.clientEncryptionKey(databaseRid, name);
    },
    listScripts: (container, kind) => {
      check(container, METADATA);
      return store.listScripts(container, kind);
    },
    script: (container, kind, name) => {
      check(container, METADATA);
      return store.script(container, kind, name);
    },
    scriptToRun: (container, kind, name) => {
      check(container, 'sqlDatabases/containers/executeStoredProcedure', true);
      return store.scriptToRun(container, kind, name);
    },
    readItem: reading((...asked: Parameters<StoreApi['readItem']>) => store.readItem(...asked)),
    itemByBirth: reading((...asked: Parameters<StoreApi['itemByBirth']>) => store.itemByBirth(...asked)),
    snapshotItems: reading((container: ContainerState) => store.snapshotItems(container)),
    countItems: reading((...asked: Parameters<StoreApi['countItems']>) => store.countItems(...asked)),
    listItems: reading((...asked: Parameters<StoreApi['listItems']>) => store.listItems(...asked)),
    queryItems: reading((...asked: Parameters<StoreApi['queryItems']>) => store.queryItems(...asked)),
    readChangeFeed: reading((...asked: Parameters<StoreApi['readChangeFeed']>) => store.readChangeFeed(...asked)),
    batchItems: async (caller, container, operations, options) => {
      const writes = operations.some(({ kind }) => kind !== 'read');
      check(container, `${ITEMS}/${writes ? '*' : 'read'}`, writes);
      return store.batchItems(caller, container, operations, options);
    },
    writeItem: writing((...asked: Parameters<StoreApi['writeItem']>) => store.writeItem(...asked)),
    patchItem: writing((...asked: Parameters<StoreApi['patchItem']>) => store.patchItem(...asked)),
    deleteItem: writing((...asked: Parameters<StoreApi['deleteItem']>) => store.deleteItem(...asked)),
    deletePartitionKey: writing((...asked: Parameters<StoreApi['deletePartitionKey']>) =>
      store.deletePartitionKey(...asked),
    ),
  };
  return storeOf(
    store,
    (name) => Reflect.get(assigned, name),
    () => refuse('*', ''),
  );
}
