import { initialRetention } from '@epitaph/core/retention/state.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { Provisioning } from '@epitaph/core/throughput/provisioning.ts';
import { ceilingOf, NO_THROUGHPUT, type Throughput } from '@epitaph/core/throughput/throughput.ts';
import {
  evaluate,
  matches,
  parseCondition,
  parseQuery,
  planQuery,
  type Json,
  type QueryParameter,
} from '@epitaph/query';
import { applyPatch } from '@epitaph/api/store/items/patch.ts';
import { systemPropertiesOf } from '@epitaph/api/store/items/system-properties.ts';
import { Measurements } from '@epitaph/api/metrics/measurements.ts';
import { RequestUnits } from '@epitaph/api/request-units/request-units.ts';
import type { UpsertPrecondition } from '@epitaph/api/store/api/common.ts';
import type { BatchResult, FoundItem, ShownItem } from '@epitaph/api/store/api/items-api.ts';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';

/** The methods of the store that the data plane calls. */
export type EdgeStore = Pick<
  StoreApi,
  | 'listDatabases'
  | 'database'
  | 'databaseByRid'
  | 'createDatabase'
  | 'deleteDatabase'
  | 'settleNames'
  | 'whoHas'
  | 'listContainers'
  | 'container'
  | 'containerByRid'
  | 'deletedContainers'
  | 'createContainer'
  | 'replaceContainer'
  | 'deleteContainer'
  | 'writeItem'
  | 'patchItem'
  | 'deleteItem'
  | 'batchItems'
  | 'readItem'
  | 'itemByBirth'
  | 'listItems'
  | 'queryItems'
  | 'headPosition'
  | 'reaches'
  | 'nowMs'
  | 'requestUnits'
  | 'measurements'
  | 'countItems'
  | 'listScripts'
  | 'scriptToRun'
>;

/** A store of maps, as small as the tests of the data plane allow: without expiry and history. */
export function fakeStore(overrides: Partial<EdgeStore> = {}): StoreApi {
  let position = 0;
  const databases = new Map<string, DatabaseState>();
  const containers = new Map<string, ContainerState>();
  const items = new Map<string, Map<string, FoundItem>>();
  const atMs = Date.UTC(2026, 10, 21);

  const rid = (bytes: number): string => {
    const buffer = Buffer.alloc(bytes, 0xff);
    buffer.writeUInt32BE(position, bytes - 4);
    return buffer.toString('base64').replaceAll('/', '-');
  };
  const nextEtag = (): string => {
    position += 1;
    return `"0000-${position}"`;
  };
  const check = (etag: string | undefined, precondition: UpsertPrecondition | undefined): void => {
    const { ifMatch, ifNoneMatch } = precondition ?? {};
    if (etag === undefined) return;
    const failed =
      (ifMatch !== undefined && ifMatch !== '*' && ifMatch !== etag) || ifNoneMatch === '*' || ifNoneMatch === etag;
    if (failed) throw new Refusal('precondition-failed');
  };
  const itemsOf = (container: ContainerState): Map<string, FoundItem> => items.get(container.rid) ?? new Map();
  const provisioned = (throughput: Throughput = NO_THROUGHPUT, etag: string): Provisioning => ({
    throughput,
    highestThroughput: ceilingOf(throughput),
    throughputEtag: etag,
    throughputChangedAtMs: atMs,
  });
  const keyOf = (id: string, partitionKey: string): string => `${partitionKey}\n${id}`;
  const sorted = (container: ContainerState, partitionKey: string | undefined): ShownItem[] =>
    [...itemsOf(container).values()]
      .filter((item) => partitionKey === undefined || item.partitionKey === partitionKey)
      .sort((left, right) => left.birth - right.birth);

  const store: EdgeStore = {
    listDatabases: () => [...databases.values()],
    database: (name) => {
      const found = databases.get(name);
      if (found === undefined) throw new Refusal('database-not-found');
      return found;
    },
    databaseByRid: (wanted) => [...databases.values()].find((database) => database.rid === wanted),
    createDatabase: async (_caller, name, throughput) => {
      if (databases.has(name)) throw new Refusal('already-exists');
      const etag = nextEtag();
      const resource: DatabaseState = {
        status: 'live',
        rid: rid(4),
        name,
        etag,
        ...provisioned(throughput, etag),
        createdAtMs: atMs,
        deletedAtMs: null,
      };
      databases.set(name, resource);
      return { resource, position, created: true };
    },
    deleteDatabase: async (_caller, name, precondition) => {
      check(store.database(name).etag, precondition);
      databases.delete(name);
      nextEtag();
      return { position };
    },
    settleNames: () => undefined,
    whoHas: () => undefined,
    listContainers: (database) => {
      const { rid: databaseRid } = store.database(database);
      return [...containers.values()].filter((container) => container.databaseRid === databaseRid);
    },
    container: (database, name) => {
      const found = containers.get(`${store.database(database).rid}/${name}`);
      if (found === undefined) throw new Refusal('container-not-found');
      return found;
    },
    containerByRid: (wanted) => [...containers.values()].find((container) => container.rid === wanted),
    deletedContainers: () => [],
    createContainer: async (_caller, database, name, definition, defaultTtl, throughput) => {
      const { rid: databaseRid } = store.database(database);
      if (containers.has(`${databaseRid}/${name}`)) throw new Refusal('already-exists');
      const etag = nextEtag();
      const resource: ContainerState = {
        status: 'live',
        rid: rid(8),
        databaseRid,
        name,
        definition,
        timeline: [{ fromMs: atMs, defaultTtl, version: 1, setBy: 'key:primary', recordedAtMs: atMs }],
        policyGraceSeconds: 0,
        retention: initialRetention,
        partitionKeyDeletes: [],
        ...provisioned(throughput, etag),
        etag,
        createdAtMs: atMs,
        changedAtMs: atMs,
        deletedAtMs: null,
      };
      containers.set(`${databaseRid}/${name}`, resource);
      items.set(resource.rid, new Map());
      return { resource, position, created: true };
    },
    replaceContainer: async (_caller, database, name, definition, defaultTtl, precondition) => {
      const current = store.container(database, name);
      check(current.etag, precondition);
      if (JSON.stringify(current.definition.partitionKey) !== JSON.stringify(definition.partitionKey)) {
        throw new Refusal('bad-request', 'the partition key is fixed');
      }
      const policy = { fromMs: atMs, defaultTtl, version: 2, setBy: 'key:primary', recordedAtMs: atMs };
      const resource = { ...current, definition, etag: nextEtag(), timeline: [...current.timeline, policy] };
      containers.set(`${current.databaseRid}/${name}`, resource);
      return { resource, position, created: false };
    },
    deleteContainer: async (_caller, database, name, precondition) => {
      const container = store.container(database, name);
      check(container.etag, precondition);
      containers.delete(`${container.databaseRid}/${name}`);
      nextEtag();
      return { position };
    },
    writeItem: async (_caller, container, operation, item, precondition) => {
      const own = itemsOf(container);
      const key = keyOf(item.id, item.partitionKey);
      const current = own.get(key);
      if (operation === 'create' && current !== undefined) throw new Refusal('already-exists');
      if (operation === 'replace' && current === undefined) throw new Refusal('item-not-found');
      check(current?.etag, precondition);
      const { ttl } = item.document as { readonly ttl?: unknown };
      if (container.timeline.at(-1)!.defaultTtl !== null && Object.hasOwn(item.document, 'ttl')) {
        if (!Number.isInteger(ttl) || (ttl as number) < -1 || ttl === 0) {
          throw new Refusal('invalid-ttl', `The input ttl '${String(ttl)}' is invalid.`);
        }
      }
      const etag = nextEtag();
      const resource: FoundItem = {
        id: item.id,
        partitionKey: item.partitionKey,
        json: item.json,
        birth: current?.birth ?? position,
        position,
        ts: Math.floor(atMs / 1000),
        etag,
      };
      own.set(key, resource);
      return { resource, position, created: current === undefined };
    },
    patchItem: async (caller, container, id, partitionKey, patch, precondition) => {
      const current = await store.readItem(container, id, partitionKey);
      const document = JSON.parse(current.json) as Json;
      const whole = { ...(document as object), ...systemPropertiesOf(container, current) } as Json;
      if (patch.condition !== undefined && !matches(planQuery(parseCondition(patch.condition)), whole)) {
        throw new Refusal('patch-condition-not-met');
      }
      const patched = applyPatch(document as Readonly<Record<string, unknown>>, patch.operations);
      const json = JSON.stringify(patched);
      return store.writeItem(caller, container, 'replace', { id, partitionKey, document: patched, json }, precondition);
    },
    deleteItem: async (_caller, container, id, partitionKey, precondition) => {
      const { etag, json } = await store.readItem(container, id, partitionKey);
      check(etag, precondition);
      const bytes = json.length;
      itemsOf(container).delete(keyOf(id, partitionKey));
      nextEtag();
      return { position, bytes };
    },
    batchItems: async (caller, container, operations) => {
      const own = itemsOf(container);
      const before = [...own];
      const results: BatchResult[] = [];
      for (const [index, operation] of operations.entries()) {
        const { kind, precondition } = operation;
        try {
          if (kind === 'write') {
            const { item, operation: how } = operation;
            const { resource, created } = await store.writeItem(caller, container, how, item, precondition);
            results.push({ kind: 'written', item: resource, created });
          } else if (kind === 'delete') {
            const { id, partitionKey } = operation;
            const { bytes } = await store.deleteItem(caller, container, id, partitionKey, precondition);
            results.push({ kind: 'deleted', bytes });
          } else throw new Refusal('not-supported');
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          own.clear();
          for (const [key, item] of before) own.set(key, item);
          return { kind: 'refused', index, refusal: error };
        }
      }
      return { kind: 'done', results, position };
    },
    readItem: async (container, id, partitionKey) => {
      const found = itemsOf(container).get(keyOf(id, partitionKey));
      if (found === undefined) throw new Refusal('item-not-found');
      return found;
    },
    itemByBirth: async (container, birth) => sorted(container, undefined).find((item) => item.birth === birth),
    listItems: async (container, { partitionKey, maxItemCount, continuation }) => {
      const after = continuation?.kind === 'after' ? continuation.birth : 0;
      const rest = sorted(container, partitionKey).filter((item) => item.birth > after);
      const page = rest.slice(0, maxItemCount);
      const last = page.at(-1);
      return rest.length > page.length && last !== undefined
        ? { items: page, continuation: { kind: 'after', birth: last.birth } }
        : { items: page };
    },
    queryItems: async (container, request) => {
      const documents = sorted(container, request.partitionKey).map((item) => ({
        ...(JSON.parse(item.json) as object),
        ...systemPropertiesOf(container, item),
      }));
      const plan = planQuery(parseQuery(request.sql), request.parameters as readonly QueryParameter[]);
      const rows = [...evaluate(plan, documents)];
      const start = request.continuation?.kind === 'skip' ? request.continuation.rows : 0;
      const page = rows.slice(start, start + request.maxItemCount);
      const next = start + page.length;
      return {
        rows: page,
        texts: page.map((row) => JSON.stringify(row)),
        examined: documents.length,
        extraWork: 0,
        pushdown: plan.pushdown,
        metrics: { totalMs: 0, compileMs: 0, planMs: 0, lookupMs: 0, loadMs: 0 },
        ...(next < rows.length ? { continuation: { kind: 'skip' as const, rows: next } } : {}),
      };
    },
    nowMs: () => 1_763_722_800_000,
    headPosition: () => position,
    reaches: async (wanted) => wanted <= position,
    listScripts: () => [],
    scriptToRun: () => {
      throw new Refusal('script-not-found');
    },
    countItems: async (container) => itemsOf(container).size,
    measurements: new Measurements(),
    requestUnits: new RequestUnits({
      monotonicMs: () => 0,
      database: (wanted) => [...databases.values()].find((database) => database.rid === wanted),
    }),
    ...overrides,
  };
  // The data plane uses nothing else of the store. Using it anyway fails the test.
  return store as StoreApi;
}
