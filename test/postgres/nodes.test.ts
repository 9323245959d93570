import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { systemClocks } from '@epitaph/core/clock.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import type { ScriptKind, Trigger } from '@epitaph/core/script/events.ts';
import type { Refusal } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { PURGE_CONTROL_STREAM } from '@epitaph/projections/purge/events.ts';
import type { CatalogChange } from '@epitaph/projections/read-model-store.ts';
import { describeError } from '@epitaph/api/cosmos/errors.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import { metricsText } from '@epitaph/api/metrics/metrics.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';
import { PostgresKeyVault } from '@epitaph/storage/postgres/postgres-key-vault.ts';
import { PostgresReadModels } from '@epitaph/storage/postgres/postgres-read-models.ts';
import { PostgresDatabase, UnusableServer } from '@epitaph/storage/postgres/database.ts';
import { PostgresReadModelStore } from '@epitaph/storage/postgres/postgres-read-model-store.ts';
import { keyHeader, raw } from '../e2e/support/raw.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { Proxy } from '../eventstoredb/proxy.ts';
import { formsOf, search } from '../secrecy/search.ts';
import { fakeMachine } from '../simulation/world.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { failsWith, succeeds } from '../support/outcome.ts';
import { Cluster, type Node, type NodeOptions } from './nodes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const PARTITION = '["p"]';

let server: TestServer;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
afterAll(() => server?.dispose());

async function inCluster(body: (cluster: Cluster) => Promise<void>, on = server): Promise<void> {
  const cluster = new Cluster(await on.newDatabase());
  try {
    await body(cluster);
  } finally {
    await cluster.dispose();
  }
}

interface LateNode {
  readonly one: Node;
  /** A node whose requests to the log pass through a proxy, which can delay them. */
  readonly late: Node;
  readonly log: EventLog;
  /**
   * When this node next appends to a stream whose name begins so, holds up that append and every later request of the node: for this many
   * milliseconds, or until the promise resolves. Resolves with the time at which the delay ends.
   */
  holdUp(stream: string, until: number | Promise<unknown>): Promise<number>;
  /** Cuts the late node off from the log until `mend` is called. */
  block(): void;
  mend(): void;
}

/** Two nodes on a stand-in for EventStoreDB. Neither purges by itself. */
async function withLateNode(body: (nodes: LateNode) => Promise<void>, deadlineMs = 10_000): Promise<void> {
  const double = await EventStoreDouble.start();
  const proxy = await Proxy.to(double.port);
  const log = await openEventStoreLog({ connectionString: double.connectionString });
  const lateLog = await openEventStoreLog({
    connectionString: `${proxy.connectionString}&defaultDeadline=${deadlineMs}`,
  });
  const cluster = new Cluster(await server.newDatabase(), log);
  try {
    const one = await cluster.start({ automaticPurge: false });
    const late = await cluster.start({ automaticPurge: false, log: lateLog });
    const holdUp = (stream: string, until: number | Promise<unknown>) =>
      new Promise<number>((over) => {
        const append = lateLog.append.bind(lateLog);
        const held = vi.spyOn(lateLog, 'append').mockImplementation((appends, options) => {
          if (appends[0]!.stream.startsWith(stream)) {
            held.mockRestore();
            proxy.block();
            const heldFor = typeof until === 'number' ? sleep(until) : until;
            void heldFor.then(() => {
              over(Date.now());
              proxy.mend();
            });
          }
          return append(appends, options);
        });
      });
    await body({ one, late, log, holdUp, block: () => proxy.block(), mend: () => proxy.mend() });
  } finally {
    proxy.mend();
    await cluster.dispose();
    await lateLog.close();
    await log.close();
    await proxy.close();
    double.stop();
  }
}

async function makeContainer(store: Store, defaultTtl: DefaultTtl = null) {
  await store.createDatabase(CALLER, 'db');
  const { resource } = await store.createContainer(CALLER, 'db', 'coll', DEFINITION, defaultTtl);
  return resource;
}

/** The container as this node knows it. The node may have to ask for it first. */
async function containerOn({ store }: Node) {
  await store.settleNames('db', 'coll');
  return store.container('db', 'coll');
}

async function write({ store }: Node, id: string, more: Record<string, unknown> = {}) {
  const document = { id, pk: 'p', ...more };
  return store.writeItem(CALLER, store.container('db', 'coll'), 'upsert', {
    id,
    partitionKey: PARTITION,
    document,
    json: JSON.stringify(document),
  });
}

/**
 * Two nodes with a long policy delay, so they decide by a catalog that they confirmed long ago. The one that projects has written an item.
 */
async function twoWithAnItem(cluster: Cluster, { policyDelayMs = 60_000 }: Pick<NodeOptions, 'policyDelayMs'> = {}) {
  const leader = await cluster.start({ policyDelayMs });
  const other = await cluster.start({ policyDelayMs });
  await makeContainer(leader.store);
  // `true`: confirms the catalog even if the node has heard of the container by itself.
  await other.store.settleNames('db', 'coll', true);
  const container = await containerOn(other);
  const { position } = await write(leader, 'item');
  return { leader, other, container, position };
}

/** Two nodes that purge only when told to, and a deleted item whose content has not been erased yet. */
async function twoWithAnEndedItem(cluster: Cluster, options: NodeOptions = {}) {
  const one = await cluster.start({ ...options, automaticPurge: false });
  const other = await cluster.start({ ...options, automaticPurge: false });
  const container = await makeContainer(one.store);
  const there = await containerOn(other);
  await write(one, 'a');
  await one.store.deleteItem(CALLER, container, 'a', PARTITION);
  return { one, other, container, there };
}

const ERASURE = { reason: 'asked for', requestedBy: 'the person' };
const HOLD = { scope: { kind: 'container' }, reason: 'case 7' } as const;

/** Two nodes, and an item under a hold. */
async function twoWithAHeldItem(cluster: Cluster) {
  const one = await cluster.start({ automaticPurge: false });
  const other = await cluster.start({ automaticPurge: false });
  const container = await makeContainer(one.store);
  await containerOn(other);
  await write(one, 'a');
  await one.store.placeHold(CALLER, container, 'case 7', HOLD);
  const release = () => one.store.releaseHold(CALLER, container, 'case 7', 'over');
  const outcomes = async () =>
    (await one.store.containerHistory(container))
      .map(({ type }) => type)
      .filter((type) => type === 'ErasureCompleted' || type === 'ErasureRefused');
  const expectThere = () => one.store.readItem(container, 'a', PARTITION, 'head');
  return { one, other, container, release, outcomes, expectThere };
}

async function expectKept({ store }: Node, container: ContainerState): Promise<void> {
  const held = await store.heldContent(CALLER, container, 'a', PARTITION, { reason: 'case 7' });
  expect(held).toMatchObject({ json: '{"id":"a","pk":"p"}' });
}

/**
 * A node that purges removes the sealed bodies from the log shortly after it records the purge. Until then fsck may report them; that is no
 * damage.
 */
const eventuallySound = ({ store }: Node): Promise<void> =>
  eventually('nothing is wrong', async () => (await store.fsck()).problems.length === 0);

/** A node over HTTP, with the management plane. */
async function serving({ store }: Node, body: (endpoint: string) => Promise<void>): Promise<void> {
  const keys = new KeyRing({ primary: EMULATOR_KEY });
  const app = buildServer({ store, keys, plugins: [(server) => registerManagement(server, { store, keys })] });
  const endpoint = await app.listen({ host: '127.0.0.1', port: 0 });
  try {
    await body(endpoint);
  } finally {
    await app.close();
  }
}

/** Keeps a node from hearing what others record, until the returned function is called. */
function deafen({ storage: { readModels } }: Node): () => void {
  const { promise: heard, resolve: hear } = Promise.withResolvers<void>();
  const look = readModels.look.bind(readModels);
  const catalogSince = readModels.catalogSince.bind(readModels);
  const deaf = [
    vi.spyOn(readModels, 'look').mockImplementation(async () => {
      await heard;
      return look();
    }),
    // A look that has begun already must not find anything new either.
    vi.spyOn(readModels, 'catalogSince').mockImplementation(async (...asked) => {
      await heard;
      return catalogSince(...asked);
    }),
  ];
  return () => {
    hear();
    for (const spy of deaf) spy.mockRestore();
  };
}

/** Wraps the log for one node, so that a spy on it does not affect the other nodes. */
const bound = (log: EventLog): EventLog =>
  new globalThis.Proxy({} as EventLog, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name) ?? Reflect.get(log, name, log);
      return typeof value === 'function' && !Object.hasOwn(target, name) ? value.bind(log) : value;
    },
    has: (_target, name) => name in log,
  });

/** The log for a node that is to die after it has purged something and before it removes the bodies from the log. */
function mortal(shared: EventLog) {
  const log = bound(shared);
  const { promise: purged, resolve } = Promise.withResolvers<void>();
  const { promise: died, reject } = Promise.withResolvers<never>();
  died.catch(() => {});
  vi.spyOn(log, 'truncateStream').mockImplementation(() => {
    resolve();
    return died;
  });
  return { log, purged, die: () => reject(new StorageUnavailable('it has died')) };
}

/** Holds up the node's next destruction of keys. */
function holdUpDestruction({ storage: { vault } }: Node) {
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const { promise: over, resolve: goOn } = Promise.withResolvers<void>();
  const destroyKeys = vault.destroyKeys.bind(vault);
  vi.spyOn(vault, 'destroyKeys').mockImplementationOnce(async (...asked) => {
    begin();
    await over;
    return destroyKeys(...asked);
  });
  return { begun, goOn };
}

/** Writes an item and deletes it at once. */
async function end(node: Node, id: string): Promise<void> {
  await write(node, id);
  await node.store.deleteItem(CALLER, node.store.container('db', 'coll'), id, PARTITION);
}

/** Replaces the server that the nodes are connected to by one that has the vault as it was at the time of the dump. */
const takeThePlace = ({ url }: Cluster, dump: string): Promise<void> => server.takePlace(url, 'epitaph_vault', dump);

const openRuns = async ({ storage }: Node): Promise<number> =>
  (await storage.readModels.current.store.openPurgeRuns()).length;

async function eventually(what: string, holds: () => Promise<boolean>, seconds = 15): Promise<void> {
  for (let tries = 0; tries < seconds * 20; tries++) {
    if (await holds()) return;
    await sleep(50);
  }
  throw new Error(`it did not come to pass that ${what}`);
}

const projecting = (nodes: readonly Node[]) => nodes.filter(({ store }) => store.projects);

describe.skipIf(whyNoPostgres !== undefined)(`several nodes on one log and one PostgreSQL${skipReason}`, () => {
  it('a container created on one node is known to the others at once, and a session token of one node is good for reads on another', () =>
    inCluster(async (cluster) => {
      const nodes = [await cluster.start(), await cluster.start(), await cluster.start({ roles: [] })];
      expect(projecting(nodes).length).toBe(1);
      await makeContainer(nodes[2]!.store);
      for (const node of nodes) await containerOn(node);
      for (let round = 0; round < 60; round++) {
        const [writer, reader] = [nodes[round % 3]!, nodes[(round + 1) % 3]!];
        const { position } = await write(writer, `item ${round % 7}`, { round });
        const container = reader.store.container('db', 'coll');
        const shown = await reader.store.readItem(container, `item ${round % 7}`, PARTITION, position);
        expect(JSON.parse(shown.json)).toMatchObject({ round });
        // Without a session token: a strong read returns what any node has acknowledged.
        expect((await nodes[(round + 2) % 3]!.store.readItem(container, shown.id, PARTITION, 'head')).json).toBe(
          shown.json,
        );
        const { items } = await reader.store.listItems(container, { maxItemCount: 100, atLeast: position });
        expect(items.find(({ id }) => id === `item ${round % 7}`)?.json).toBe(shown.json);
      }
    }));

  it('neither reads of what another node wrote nor checks that it still projects open new connections', () =>
    inCluster(async (cluster) => {
      const leader = await cluster.start({ automaticPurge: false });
      const others = [await cluster.start({ automaticPurge: false }), await cluster.start({ automaticPurge: false })];
      await makeContainer(leader.store);
      for (const other of others) await containerOn(other);
      const made = vi.spyOn(PostgresDatabase.prototype, 'dedicated');
      const asked = others.map(({ storage }) => vi.spyOn(storage.readModels, 'lead'));
      for (let round = 0; asked.some(({ mock }) => mock.calls.length < 2); round++) {
        const { position } = await write(leader, 'item', { round });
        for (const other of others) {
          const shown = await other.store.readItem(await containerOn(other), 'item', PARTITION, position);
          expect(JSON.parse(shown.json)).toMatchObject({ round });
        }
      }
      const connections = made.mock.calls.length;
      made.mockRestore();
      expect(connections).toBe(0);
    }));

  it('a node accepts writes to a container that was created by a node whose clock is ahead', () =>
    inCluster(async (cluster) => {
      const ahead = await cluster.start({ skewMs: 400 });
      const behind = await cluster.start();
      await makeContainer(ahead.store, 60);
      await containerOn(behind);
      await write(behind, 'x', { ttl: 30 });
      await write(behind, 'x');
      expect(await ahead.store.readItem(await containerOn(ahead), 'x', PARTITION, 'head')).toBeDefined();
      await expect(write(behind, 'y', { ttl: 0 })).rejects.toMatchObject({ code: 'invalid-ttl' });
      const { state, policy } = await behind.store.explain(await containerOn(behind), 'x', PARTITION);
      expect({ state, version: policy?.version }).toEqual({ state: 'live', version: 1 });
      for (const { store } of [ahead, behind]) expect((await store.fsck()).problems).toEqual([]);
    }));

  it('a node explains at once what a node whose clock is ahead has written or deleted', () =>
    inCluster(async (cluster) => {
      const ahead = await cluster.start({ skewMs: 400 });
      const behind = await cluster.start();
      await makeContainer(ahead.store, 60);
      const container = await containerOn(behind);
      const explained = async () => {
        // Every node hears of events in a container’s stream a moment later.
        await behind.store.readItem(container, 'x', PARTITION, 'head').catch(() => {});
        const { sentence, state } = await behind.store.explain(container, 'x', PARTITION);
        return { state, isToCome: sentence.startsWith('If nothing changes') };
      };
      await write(ahead, 'x');
      expect(await explained()).toEqual({ state: 'live', isToCome: false });
      await ahead.store.deleteItem(CALLER, container, 'x', PARTITION);
      expect(await explained()).toEqual({ state: 'deleted', isToCome: false });
      await write(ahead, 'x');
      await ahead.store.deletePartitionKey(CALLER, container, PARTITION);
      expect(await explained()).toEqual({ state: 'deleted', isToCome: false });
      await write(ahead, 'x');
      await ahead.store.deleteContainer(CALLER, 'db', 'coll');
      expect(await explained()).toEqual({ state: 'deleted', isToCome: false });
    }));

  it('a TTL preview counts what expires when the change takes effect, and a change is refused by a brake that another node has just set', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start(), await cluster.start()];
      await makeContainer(one.store, -1);
      await containerOn(other);
      await write(one, 'x');
      const { atOnce, effectiveFromMs } = await one.store.previewTtl(one.store.container('db', 'coll'), {
        defaultTtl: 1,
      });
      expect(atOnce.items).toBe(1);
      expect(effectiveFromMs).toBeGreaterThan(one.store.nowMs());
      for (let round = 0; round < 20; round++) {
        await one.store.setTtlBrake(CALLER, 'db', 'coll', null);
        await other.store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, -1);
        await one.store.setTtlBrake(CALLER, 'db', 'coll', { maxItems: 0 });
        const changed = other.store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, 1);
        await expect(changed).rejects.toMatchObject({ code: 'ttl-change-braked' });
      }
    }));

  it('a container’s replacement is refused by a brake that another node sets while it is under way', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start();
      const other = await cluster.start();
      const container = await makeContainer(one.store, -1);
      await containerOn(other);
      await write(one, 'item');
      await sleep(1_100);
      const floors = other.storage.vault.floors.bind(other.storage.vault);
      vi.spyOn(other.storage.vault, 'floors').mockImplementationOnce(async () => {
        await one.store.setTtlBrake(CALLER, 'db', 'coll', { maxItems: 0 });
        return floors();
      });
      await expect(other.store.replaceContainer(CALLER, 'db', 'coll', container.definition, 1)).rejects.toMatchObject({
        code: 'ttl-change-braked',
      });
    }));

  it('a change is answered with its own result and etag, although another node has changed the same thing since', () =>
    inCluster(async (cluster) => {
      const log = bound(cluster.log);
      const one = await cluster.start({ log, automaticPurge: false });
      const { store: other } = await cluster.start({ automaticPurge: false });
      const manual = (requestUnitsPerSecond: number) => ({ kind: 'manual', requestUnitsPerSecond }) as const;
      const { resource: database } = await one.store.createDatabase(CALLER, 'db', manual(400));
      const made = await one.store.createContainer(CALLER, 'db', 'coll', DEFINITION, -1, manual(400));
      const keyOf = (wrappedDataEncryptionKey: string) => ({
        encryptionAlgorithm: 'AEAD_AES_256_CBC_HMAC_SHA256',
        wrappedDataEncryptionKey,
        keyWrapMetadata: {},
      });
      await one.store.createClientEncryptionKey(CALLER, database.rid, 'key', keyOf('AAAA'));
      await other.settleNames('db', 'coll', true);
      /** Lets the other node make its change after this node’s change is recorded and before it is answered. */
      const followedBy = (change: () => Promise<unknown>) => {
        const append = log.append;
        vi.spyOn(log, 'append').mockImplementationOnce(async (...asked) => {
          const appended = await append(...asked);
          await change();
          await one.store.settleNames('db', undefined);
          return appended;
        });
      };
      const replaced = (store: Store, ttl: number, ifMatch?: string) =>
        store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, ttl, { ifMatch });
      followedBy(() => replaced(other, 77));
      const { resource: container } = await replaced(one.store, 55);
      expect(container.timeline.at(-1)).toMatchObject({ defaultTtl: 55 });
      // A client that goes on from that answer must not overwrite a change that the answer did not show.
      await expect(replaced(one.store, 66, container.etag)).rejects.toMatchObject({ code: 'precondition-failed' });

      const change = (amount: number) => ({ kind: 'set', throughput: manual(amount) }) as const;
      followedBy(() => other.changeContainerThroughput(CALLER, made.resource.rid, change(700)));
      const ofContainer = await one.store.changeContainerThroughput(CALLER, made.resource.rid, change(500));
      followedBy(() => other.changeDatabaseThroughput(CALLER, database.rid, change(700)));
      const ofDatabase = await one.store.changeDatabaseThroughput(CALLER, database.rid, change(500));
      for (const { resource } of [ofContainer, ofDatabase]) expect(resource.throughput).toEqual(manual(500));

      followedBy(() => other.rewrapClientEncryptionKey(CALLER, database.rid, 'key', keyOf('BBBB')));
      const rewrapped = await one.store.rewrapClientEncryptionKey(CALLER, database.rid, 'key', keyOf('CCCC'));
      expect(rewrapped.resource.wrappedKey).toEqual(keyOf('CCCC'));
    }));

  it('content kept by a retention floor is erased within minutes after the floor is lowered on a node that does not purge', () =>
    inCluster(async (cluster) => {
      const machine = fakeMachine(1_800_000_000_000);
      const writer = await cluster.start({ roles: ['project'], clocks: machine });
      const purging = await cluster.start({ roles: ['purge'], clocks: machine });
      const container = await makeContainer(writer.store, -1);
      await writer.store.setRetentionFloor(CALLER, container, 86_400, 'a year of records');
      await write(writer, 'i', { ttl: 1 });
      const pass = (seconds: number) => {
        machine.wall += seconds * 1_000;
        machine.monotonic += seconds * 1_000;
      };
      pass(2);
      await eventually('the floor keeps it', async () => (await purging.store.purgeStatus()).heldBack === 1);
      await writer.store.setRetentionFloor(CALLER, container, 0, 'no longer');
      const startMs = machine.wall;
      await eventually('it is erased', async () => {
        pass(1);
        return (await writer.store.explain(container, 'i', PARTITION)).state === 'purged';
      });
      expect(machine.wall - startMs).toBeLessThan(300_000);
    }));

  it('a node that leaves the purge to others reports that, and does not report that overdue items will never drain', () =>
    inCluster(async (cluster) => {
      const machine = fakeMachine(1_800_000_000_000);
      const purging = await cluster.start({ clocks: machine, automaticPurge: false });
      const other = await cluster.start({ roles: ['project'], clocks: machine });
      await makeContainer(purging.store, -1);
      const drains = async ({ store }: typeof other) =>
        /^epitaph_purge_time_to_drain_seconds (.*)$/m.exec(await metricsText(store))?.[1];
      expect([await drains(purging), await drains(other)]).toEqual(['0', undefined]);
      expect(await metricsText(purging.store)).toContain('\nepitaph_purge_by_this_node 1\n');
      expect(await metricsText(other.store)).toContain('\nepitaph_purge_by_this_node 0\n');
      await write(purging, 'i', { ttl: 1 });
      machine.wall += 2_000;
      machine.monotonic += 2_000;
      await eventually('both see it', async () => (await other.store.purgeStatus()).overdueItems === 1);
      expect([await drains(purging), await drains(other)]).toEqual(['+Inf', undefined]);
      expect(await purging.store.purgeStatus()).toMatchObject({ byThisNode: true, overdueItems: 1 });
      expect(await other.store.purgeStatus()).toMatchObject({ byThisNode: false, millisecondsToDrain: null });
    }));

  it('a node no longer counts an item as held back once another node has erased it', () =>
    inCluster(async (cluster) => {
      const machine = fakeMachine(1_800_000_000_000);
      const releasing = await cluster.start({ clocks: machine, automaticPurge: false });
      const counting = await cluster.start({ roles: ['purge'], clocks: machine });
      const container = await makeContainer(releasing.store, -1);
      await write(releasing, 'i', { ttl: 1 });
      const scope = { kind: 'items', items: [{ id: 'i', partitionKey: PARTITION }] } as const;
      await releasing.store.placeHold(CALLER, container, 'case 7', { scope, reason: 'case 7' });
      machine.wall += 2_000;
      machine.monotonic += 2_000;
      const heldBack = async () => (await counting.store.purgeStatus()).heldBack;
      await eventually('the hold keeps it', async () => (await heldBack()) === 1);
      await releasing.store.releaseHold(CALLER, container, 'case 7', 'settled');
      expect(await releasing.store.runPurge()).toMatchObject({ purged: 1 });
      await eventually('it is counted no more', async () => (await heldBack()) === 0);
    }));

  it('an overdue item is purged even if the answer of the transaction that projected it was lost', () =>
    inCluster(async (cluster) => {
      const machine = fakeMachine(1_800_000_000_000);
      const node = await cluster.start({ clocks: machine });
      const container = await makeContainer(node.store, -1);
      const isErased = async (id: string) => {
        machine.wall += 100;
        machine.monotonic += 100;
        return (await node.store.explain(container, id, PARTITION)).state === 'purged';
      };
      await write(node, 'before', { ttl: 1 });
      await eventually('what is due is erased', () => isErased('before'));
      // The purge has looked by now, and found nothing more to come.
      await sleep(1_500);
      const { store } = node.storage.readModels.current;
      const apply = store.apply.bind(store);
      vi.spyOn(store, 'apply').mockImplementationOnce(async (...changes) => {
        await apply(...changes);
        throw new StorageUnavailable('PostgreSQL: Connection terminated unexpectedly');
      });
      await write(node, 'then', { ttl: 1 });
      await eventually('what is due then is erased, too', () => isErased('then'));
    }));

  it('an erasure that stalls on the node that was asked for it is carried out by another node after a minute', () =>
    inCluster(async (cluster) => {
      const machine = fakeMachine(1_800_000_000_000);
      const asked = await cluster.start({ clocks: machine });
      const other = await cluster.start({ clocks: machine });
      const container = await makeContainer(asked.store);
      await write(asked, 'i');
      const { vault } = asked.storage;
      const goOn = Promise.withResolvers<void>();
      const holdsOn = vault.holdsOn.bind(vault);
      const begun = Promise.withResolvers<void>();
      vi.spyOn(vault, 'holdsOn').mockImplementationOnce(async (lives) => {
        begun.resolve();
        await goOn.promise;
        return holdsOn(lives);
      });
      const request = { reason: 'asked for it', requestedBy: 'who it is about' };
      const erased = asked.store.eraseItem(CALLER, container, 'i', PARTITION, request);
      await begun.promise;
      const startMs = machine.monotonic;
      const state = async () => (await other.store.explain(await containerOn(other), 'i', PARTITION)).state;
      await eventually('the other has erased it', async () => {
        if ((await state()) === 'purged') return true;
        machine.wall += 5_000;
        machine.monotonic += 5_000;
        return false;
      });
      expect(machine.monotonic - startMs).toBeGreaterThanOrEqual(60_000);
      goOn.resolve();
      await erased;
      const outcomes = (await asked.store.containerHistory(container)).filter(
        ({ type }) => type === 'ErasureCompleted' || type === 'ErasureRefused',
      );
      expect(outcomes.map(({ type }) => type)).toEqual(['ErasureCompleted']);
    }));

  it('a released hold stays released, although the node that placed it has not finished yet', () =>
    inCluster(async (cluster) => {
      const [placing, releasing] = [await cluster.start(), await cluster.start()];
      const container = await makeContainer(placing.store, -1);
      const { vault } = placing.storage;
      const placeHold = vault.placeHold.bind(vault);
      vi.spyOn(vault, 'placeHold')
        .mockImplementationOnce(placeHold)
        // The hold is on record by now, so any node that sees it there may release it.
        .mockImplementationOnce(async (hold) => {
          await releasing.store.releaseHold(CALLER, await containerOn(releasing), 'case 7', 'over');
          return placeHold(hold);
        });
      const request = { scope: { kind: 'container' }, reason: 'case 7' } as const;
      const { hold } = await placing.store.placeHold(CALLER, container, 'case 7', request);
      expect(hold.released?.reason).toBe('over');
      expect(await vault.holds()).toEqual([]);
    }));

  it('content under a hold is kept, although another node that was placing the same hold fails', () =>
    inCluster(async (cluster) => {
      const [failing, placing] = [await cluster.start(), await cluster.start()];
      const container = await makeContainer(failing.store, -1);
      const request = { scope: { kind: 'container' }, reason: 'case 7' } as const;
      const { current } = failing.storage.readModels;
      const away = new StorageUnavailable('PostgreSQL: Connection terminated unexpectedly');
      vi.spyOn(current.store, 'countErased').mockImplementationOnce(async () => {
        await placing.store.placeHold(CALLER, await containerOn(placing), 'case 7', request);
        throw away;
      });
      await expect(failing.store.placeHold(CALLER, container, 'case 7', request)).rejects.toThrow(away);
      expect((await failing.storage.vault.holds()).map(({ holdId }) => holdId)).toEqual([`${container.rid} case 7`]);
    }));

  it.each(['earlier', 'in the same millisecond'])(
    'content under a hold is kept, although another node withdraws the same hold, which it failed to place %s',
    (when) =>
      inCluster(async (cluster) => {
        const stopped = { ...systemClocks, wallMs: () => wallMs };
        let wallMs = Date.now();
        const clocks = when === 'earlier' ? systemClocks : stopped;
        const { one: failing, other: placing, container, there } = await twoWithAnEndedItem(cluster, { clocks });
        const request = { scope: { kind: 'container' }, reason: 'case 7' } as const;
        const away = new StorageUnavailable('PostgreSQL: Connection terminated unexpectedly');
        vi.spyOn(failing.storage.readModels.current.store, 'countErased').mockRejectedValueOnce(away);
        const { vault } = failing.storage;
        const releaseHold = vault.releaseHold.bind(vault);
        vi.spyOn(vault, 'releaseHold').mockImplementationOnce(async (...args) => {
          setTimeout(() => (wallMs += 1), 100);
          await placing.store.placeHold(CALLER, there, 'case 7', request);
          await releaseHold(...args);
          await placing.store.runPurge();
        });
        await expect(failing.store.placeHold(CALLER, container, 'case 7', request)).rejects.toThrow(away);
        await expectKept(placing, there);
        expect(await vault.holds()).toHaveLength(1);
      }),
  );

  it('a hold that two nodes are asked for at the same time is placed once', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start(), await cluster.start()];
      const container = await makeContainer(one.store);
      const there = await containerOn(other);
      const request = { scope: { kind: 'container' }, reason: 'case 7' } as const;
      const { vault } = other.storage;
      const placeHold = vault.placeHold.bind(vault);
      vi.spyOn(vault, 'placeHold').mockImplementationOnce(async (...args) => {
        const { placed } = await one.store.placeHold(CALLER, container, 'case 7', request);
        expect(placed).toBe(true);
        return placeHold(...args);
      });
      const again = await other.store.placeHold(CALLER, there, 'case 7', request);
      expect(again).toMatchObject({ placed: false, hold: { reason: 'case 7' } });
      expect(await vault.holds()).toHaveLength(1);
    }));

  it('content under an acknowledged hold is kept, although another node was about to place a hold of the same id on another item', () =>
    inCluster(async (cluster) => {
      const { one, other, container, there } = await twoWithAnEndedItem(cluster);
      await write(one, 'b');
      const requestFor = (id: string) =>
        ({ scope: { kind: 'items', items: [{ id, partitionKey: PARTITION }] }, reason: 'case 7' }) as const;
      const { vault } = other.storage;
      const placeHold = vault.placeHold.bind(vault);
      vi.spyOn(vault, 'placeHold').mockImplementationOnce(async (...args) => {
        await one.store.placeHold(CALLER, container, 'case 7', requestFor('a'));
        const placed = await placeHold(...args);
        await one.store.runPurge();
        return placed;
      });
      await expect(other.store.placeHold(CALLER, there, 'case 7', requestFor('b'))).rejects.toMatchObject({
        code: 'already-exists',
      });
      await expectKept(one, container);
    }));

  it('content under an acknowledged floor is kept, although another node was about to set a lower one', () =>
    inCluster(async (cluster) => {
      const { one, other, container, there } = await twoWithAnEndedItem(cluster);
      await sleep(1_100);
      const { vault } = other.storage;
      const setFloor = vault.setFloor.bind(vault);
      vi.spyOn(vault, 'setFloor').mockImplementationOnce(async (...args) => {
        await one.store.setRetentionFloor(CALLER, container, 3_600, 'an hour');
        await setFloor(...args);
        await one.store.runPurge();
      });
      await other.store.setRetentionFloor(CALLER, there, 1, 'a second');
      await expectKept(one, container);
    }));

  it('content under an acknowledged floor is kept, although another node is still removing the floor before it', () =>
    inCluster(async (cluster) => {
      const { one: raising, other: lowering, container, there } = await twoWithAnEndedItem(cluster);
      await raising.store.setRetentionFloor(CALLER, container, 3_600, 'an hour');
      const { vault } = lowering.storage;
      const setFloor = vault.setFloor.bind(vault);
      vi.spyOn(vault, 'setFloor').mockImplementationOnce(async (...args) => {
        await raising.store.setRetentionFloor(CALLER, container, 7_200, 'two hours');
        await setFloor(...args);
        await raising.store.runPurge();
      });
      await lowering.store.setRetentionFloor(CALLER, there, 0, 'none');
      await expectKept(raising, container);
      expect((await vault.floors()).get(container.rid)).toEqual({ retention: 7_200 });
    }));

  it('the vault has the floor that is on record, whichever of two concurrent changes reached it last', () =>
    inCluster(async (cluster) => {
      const [raising, lowering] = [await cluster.start(), await cluster.start()];
      const container = await makeContainer(raising.store, -1);
      const there = await containerOn(lowering);
      await raising.store.setRetentionFloor(CALLER, container, 100, 'a while');
      const { vault } = lowering.storage;
      const setFloor = vault.setFloor.bind(vault);
      vi.spyOn(vault, 'setFloor').mockImplementationOnce(async (...floor) => {
        await raising.store.setRetentionFloor(CALLER, container, 1_000, 'longer');
        await setFloor(...floor);
      });
      await lowering.store.setRetentionFloor(CALLER, there, 10, 'shorter');
      expect((await vault.floors()).get(container.rid)).toEqual({ retention: 1_000 });
      expect(lowering.store.containerByRid(container.rid)?.retention.floorSeconds).toBe(1_000);
    }));

  it('the vault has the floor of the change feed that is on record, whichever of two concurrent changes reached it last', () =>
    inCluster(async (cluster) => {
      const [raising, lowering] = [await cluster.start(), await cluster.start()];
      const container = await makeContainer(raising.store, -1);
      const feedOf = (minutes: number) => ({ ...DEFINITION, changeFeedPolicy: { retentionDuration: minutes } });
      await raising.store.replaceContainer(CALLER, 'db', 'coll', feedOf(10), -1);
      await containerOn(lowering);
      const { vault } = lowering.storage;
      const setFloor = vault.setFloor.bind(vault);
      vi.spyOn(vault, 'setFloor').mockImplementationOnce(async (...floor) => {
        await raising.store.replaceContainer(CALLER, 'db', 'coll', feedOf(20), -1);
        await setFloor(...floor);
      });
      await lowering.store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, -1);
      expect((await vault.floors()).get(container.rid)).toEqual({ 'change-feed': 21 * 60 });
    }));

  it('a node that starts does not restore a hold that another node releases meanwhile', () =>
    inCluster(async (cluster) => {
      const releasing = await cluster.start();
      const container = await makeContainer(releasing.store, -1);
      const request = { scope: { kind: 'container' }, reason: 'case 7' } as const;
      await releasing.store.placeHold(CALLER, container, 'case 7', request);
      const holds = vi.spyOn(PostgresKeyVault.prototype, 'holds').mockImplementationOnce(async function (
        this: KeyVault,
      ) {
        await releasing.store.releaseHold(CALLER, container, 'case 7', 'over');
        return this.holds();
      });
      try {
        await cluster.start();
        expect(await releasing.storage.vault.holds()).toEqual([]);
      } finally {
        holds.mockRestore();
      }
    }));

  it.each([
    { of: 'a container', asked: 2 },
    { of: 'a change feed', asked: 1 },
  ])('a node that starts does not restore a floor of $of that another node lowers meanwhile', ({ asked }) =>
    inCluster(async (cluster) => {
      const lowering = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(lowering.store, -1);
      const feed = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 10 } };
      await lowering.store.replaceContainer(CALLER, 'db', 'coll', feed, -1);
      await lowering.store.setRetentionFloor(CALLER, container, 3_600, 'case 7');
      const { promise: heard, resolve: hear } = Promise.withResolvers<void>();
      const { prototype } = PostgresReadModels;
      const real = PostgresKeyVault.prototype.floors;
      let times = 0;
      vi.spyOn(PostgresKeyVault.prototype, 'floors').mockImplementation(async function (this: KeyVault) {
        times += 1;
        if (times === asked) {
          const look = prototype.look;
          vi.spyOn(prototype, 'look').mockImplementation(async function (this: PostgresReadModels) {
            await heard;
            return look.call(this);
          });
          setTimeout(hear, 300);
          await lowering.store.setRetentionFloor(CALLER, container, 0, 'over');
          await lowering.store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, -1);
        }
        return real.call(this);
      });
      try {
        await cluster.start();
      } finally {
        vi.restoreAllMocks();
      }
      expect((await lowering.storage.vault.floors()).get(container.rid) ?? {}).toEqual({});
    }),
  );

  it('nodes see each other’s users, permissions and client encryption keys, and reject a token whose permission another node has deleted', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start(), await cluster.start({ roles: [] })];
      const { rid: containerRid, databaseRid } = await makeContainer(one.store);
      await containerOn(other);
      const wrappedKey = {
        encryptionAlgorithm: 'AEAD_AES_256_CBC_HMAC_SHA256',
        wrappedDataEncryptionKey: 'AAAA',
        keyWrapMetadata: {},
      };
      for (const [writer, reader, name] of [
        [one, other, 'ann'],
        [other, one, 'bob'],
      ] as const) {
        await writer.store.createUser(CALLER, databaseRid, name, 'create');
        await reader.store.settleNames('db', 'users');
        expect(reader.store.user(databaseRid, name).name).toBe(name);
        await writer.store.createClientEncryptionKey(CALLER, databaseRid, name, wrappedKey);
        await reader.store.settleNames('db', 'clientencryptionkeys');
        expect(reader.store.clientEncryptionKey(databaseRid, name)).toMatchObject({ name, wrappedKey });

        const user = writer.store.user(databaseRid, name);
        const target = {
          name: 'all',
          permissionMode: 'All',
          resource: 'dbs/db/colls/coll',
          target: { containerRid },
        } as const;
        const signer = await writer.store.tokenSigner(databaseRid);
        let token = '';
        // The other node must accept a token from the moment it is issued, not only after its next look.
        for (const mode of ['create', 'upsert', 'upsert', 'upsert', 'upsert'] as const) {
          const { resource: permission } = await writer.store.writePermission(CALLER, user, mode, target);
          token = signer(user, permission, 60);
          expect(await reader.store.verifyResourceToken(token)).toMatchObject({ ok: true });
        }
        await writer.store.deletePermission(CALLER, user, 'all');
        // A change by another node, such as a new policy, may take this long to be applied.
        await sleep(600);
        expect(await reader.store.verifyResourceToken(token)).toEqual({ ok: false, reason: 'revoked' });
      }
    }));

  it('nodes accept each other’s resource tokens, although a standby that lacks the secret known to one of them replaced the server', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start(), await cluster.start()];
      const { rid: containerRid, databaseRid } = await makeContainer(one.store);
      const { resource: user } = await one.store.createUser(CALLER, databaseRid, 'ann', 'create');
      const resource = 'dbs/db/colls/coll';
      const { resource: permission } = await one.store.writePermission(CALLER, user, 'create', {
        name: 'all',
        permissionMode: 'All',
        resource,
        target: { containerRid },
      });
      const standby = TestServer.dump(cluster.url, 'epitaph_vault');
      await one.store.tokenSigner(databaseRid);
      await takeThePlace(cluster, standby);
      await eventually('the other makes a secret', () => succeeds(other.store.tokenSigner(databaseRid)));
      await eventually('they take each other’s', async () => {
        const token = (await one.store.tokenSigner(databaseRid))(user, permission, 60);
        return (await other.store.verifyResourceToken(token)).ok;
      });
    }));

  it('a node reads only what has changed in the catalog, and reads all of it again after a swap to another version', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start(), await cluster.start({ roles: [] })];
      const { databaseRid } = await makeContainer(one.store);
      await containerOn(other);
      const asked = vi.spyOn(PostgresReadModelStore.prototype, 'catalogSince');
      const whole = vi.spyOn(PostgresReadModelStore.prototype, 'containers');
      const rows = async () =>
        (await Promise.all(asked.mock.results.map(({ value }) => value as Promise<unknown[]>))).flat().length;
      const seen = (what: string, holds: () => boolean) => eventually(what, () => Promise.resolve(holds()));
      try {
        const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
        for (const name of names) {
          await one.store.createContainer(CALLER, 'db', name, DEFINITION, null);
          await one.store.createUser(CALLER, databaseRid, name, 'create');
        }
        await seen('the last user is there', () => other.store.listUsers(databaseRid).length === names.length);
        let read = await rows();
        // Two looks may be under way at a time, and then read the same changes.
        const readSince = async () => -read + (read = await rows());
        expect(read).toBeGreaterThanOrEqual(2 * names.length);
        expect(read).toBeLessThanOrEqual(4 * names.length);
        await one.store.deleteContainer(CALLER, 'db', 'a');
        await one.store.deleteUser(CALLER, databaseRid, 'a');
        await seen('the user is gone', () => other.store.listUsers(databaseRid).length === names.length - 1);
        expect(other.store.listContainers('db').map(({ name }) => name)).toEqual(['coll', ...names.slice(1)]);
        expect(await readSince()).toBeLessThanOrEqual(4);
        await one.store.changeTtl(CALLER, 'db', 'b', { defaultTtl: 100, confirmed: false });
        await seen('the policy is there', () => other.store.container('db', 'b').timeline.length === 2);
        expect(other.store.container('db', 'b')).toEqual(one.store.container('db', 'b'));
        expect(await readSince()).toBeLessThanOrEqual(2);
        const held = one.store.container('db', 'b');
        const hold = { scope: { kind: 'container' }, reason: 'case' } as const;
        const holdsOn = ({ store }: Node) => store.container('db', 'b').retention.holds;
        for (let number = 0; number < 30; number++) {
          await one.store.placeHold(CALLER, held, `${number}`, hold);
          if (number % 3 > 0) await one.store.releaseHold(CALLER, held, `${number}`, 'closed');
        }
        await seen('the last hold is released', () => holdsOn(other).length === 30 && holdsOn(other).standing === 10);
        expect([...holdsOn(other)]).toEqual([...holdsOn(one)]);
        const shown = await other.store.holds(held, { after: 0 });
        expect(shown).toEqual(await one.store.holds(held, { after: 0 }));
        expect(shown.filter(({ released }) => released?.reason === 'closed').length).toBe(20);
        const changes = await Promise.all(asked.mock.results.map(({ value }) => value as Promise<CatalogChange[]>));
        const holdsRead = changes
          .flat()
          .reduce((sum, change) => sum + (change.kind === 'container' ? change.state.retention.holds.length : 0), 0);
        // Each hold is read once as placed and once as released, by at most two looks. The other holds of the container are not read again
        // with each event.
        expect(holdsRead).toBeLessThanOrEqual(2 * 50);
        expect(whole).not.toHaveBeenCalled();
        one.store.startRebuild('items');
        await eventually('the rebuild is done', async () => one.store.rebuildStatus('items')?.state === 'done');
        await one.store.createUser(CALLER, databaseRid, 'z', 'create');
        await seen('the user is there', () => other.store.listUsers(databaseRid).length === names.length);
        expect(other.storage.readModels.current.version).toBe(2);
        expect(whole.mock.contexts).toContain(other.storage.readModels.current.store);
        expect(other.store.listContainers('db').length).toBe(names.length);
      } finally {
        vi.restoreAllMocks();
      }
    }));

  it('items of a deleted database are purged and no longer metered, even if the node could not read the catalog when it was told of the deletion', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start({ roles: ['project'] }), await cluster.start({ roles: ['purge'] })];
      await makeContainer(one.store);
      const container = await containerOn(other);
      other.store.requestUnits.admit(container, 'read').charge(1);
      await write(other, 'item');
      expect(other.store.requestUnits.metered().length).toBe(1);
      const { readModels } = other.storage;
      const look = readModels.look.bind(readModels);
      let away = false;
      readModels.look = () => (away ? Promise.reject(new StorageUnavailable('away')) : look());
      away = true;
      await one.store.deleteDatabase(CALLER, 'db');
      // Longer than the purge takes to react to a notification.
      await sleep(700);
      away = false;
      await eventually('the item is purged', async () => (await one.store.purgeStatus()).purgedTotal === 1);
      expect(other.store.requestUnits.metered()).toEqual([]);
    }));

  it('nodes look for changes of the catalog themselves if no notification arrives', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start(), await cluster.start({ roles: [] })];
      const { databaseRid } = await makeContainer(one.store);
      await containerOn(other);
      await other.storage.readModels.close();
      await one.store.createUser(CALLER, databaseRid, 'ann', 'create');
      await one.store.deleteContainer(CALLER, 'db', 'coll');
      await eventually(
        'the container is gone',
        () => Promise.resolve(other.store.listContainers('db').length === 0),
        3,
      );
      expect(other.store.user(databaseRid, 'ann').name).toBe('ann');
    }));

  it('a purge pass does not examine items that a recovery window keeps, just because another node is in the middle of a run', () =>
    inCluster(async (cluster) => {
      const machine = fakeMachine(1_800_000_000_000);
      const options = { clocks: machine, automaticPurge: false };
      const one = await cluster.start(options);
      const other = await cluster.start(options);
      const container = await makeContainer(one.store, 1);
      await one.store.setRecoveryWindow(CALLER, container, 3_600, 'mistakes of the last hour');
      const ids = Array.from({ length: 20 }, (_, index) => `item ${index}`);
      for (const id of ids) {
        await write(one, id);
        await one.store.deleteItem(CALLER, container, id, PARTITION);
      }
      await write(one, 'due');
      machine.wall += 5_000;
      machine.monotonic += 5_000;
      await containerOn(other);
      // The record of an expiry takes long to be appended.
      const append = cluster.log.append.bind(cluster.log);
      const { promise: over, resolve: end } = Promise.withResolvers<void>();
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      const slow = vi.spyOn(cluster.log, 'append').mockImplementation(async (appends, more) => {
        if (appends[0]!.events[0]!.type !== 'ItemExpired') return append(appends, more);
        slow.mockRestore();
        begin();
        await over;
        return append(appends, more);
      });
      const pass = one.store.runPurge();
      await begun;
      const looks = vi.spyOn(other.storage.vault, 'findKey');
      const runs = async () =>
        (await cluster.log.readAll(0, 1_000)).filter(({ type }) => type === 'PurgeRunCompleted').length;
      await other.store.runPurge();
      const done = { looks: looks.mock.calls.length, runs: await runs() };
      end();
      await pass;
      expect(done).toEqual({ looks: 0, runs: 1 });
      expect(await runs()).toBe(2);
    }));

  it('a purge erases nothing kept by a recovery window that another node has just set', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ policyDelayMs: 60_000, automaticPurge: false });
      const container = await makeContainer(one.store);
      await containerOn(other);
      await write(one, 'before');
      await one.store.deleteItem(CALLER, container, 'before', PARTITION);
      // In the middle of its run the other node hears nothing for a moment.
      const readLast = cluster.log.readLast.bind(cluster.log);
      const asking = vi.spyOn(cluster.log, 'readLast').mockImplementation(async (stream) => {
        const isInRun = stream === PURGE_CONTROL_STREAM && (await other.store.purgeStatus()).run !== null;
        if (!isInRun) return readLast(stream);
        asking.mockRestore();
        const look = other.storage.readModels.look.bind(other.storage.readModels);
        vi.spyOn(other.storage.readModels, 'look').mockImplementation(async () => {
          await sleep(500);
          return look();
        });
        await one.store.setRecoveryWindow(CALLER, container, 3_600, 'mistakes of the last hour');
        await write(one, 'after');
        await one.store.deleteItem(CALLER, container, 'after', PARTITION);
        return readLast(stream);
      });
      await other.store.runPurge();
      const recovered = await one.store.recoverItem(CALLER, container, 'after', PARTITION, { reason: 'a mistake' });
      expect(recovered).toMatchObject({ fromLife: 0, life: 1 });
    }));

  it('a purge erases nothing kept by an acknowledged recovery window, however long it waits for the vault', () =>
    inCluster(async (cluster) => {
      const { one, other, container } = await twoWithAnEndedItem(cluster);
      const { vault } = other.storage;
      const destroyKeys = vault.destroyKeys.bind(vault);
      vi.spyOn(vault, 'destroyKeys').mockImplementationOnce(async (...destroyed) => {
        await one.store.setRecoveryWindow(CALLER, container, 3_600, 'mistakes of the last hour');
        return destroyKeys(...destroyed);
      });
      await other.store.runPurge();
      await one.store.recoverItem(CALLER, container, 'a', PARTITION, { reason: 'a mistake' });
      // Setting a recovery window or a grace waits for a destruction that has already asked what is due.
      const order: string[] = [];
      const { promise: set, resolve: isSet } = Promise.withResolvers<void>();
      const request = { keyId: 1, stream: 'no life', lastWriteTs: 0, lastEventAtMs: 0, nowMs: 0 };
      const destruction = destroyKeys([request], async () => {
        void one.store.setPolicyGrace(CALLER, 'db', 'coll', 60).then(() => {
          order.push('set');
          isSet();
        });
        await sleep(500);
        order.push('asked');
        return [true];
      });
      await Promise.all([destruction, set]);
      expect(order).toEqual(['asked', 'set']);
    }));

  it('a node waits for the vault only some seconds while a purging node that has its turn there is cut off from the log', () =>
    withLateNode(async ({ one, late, block, mend }) => {
      const container = await makeContainer(one.store);
      const there = await containerOn(late);
      await write(one, 'a');
      await one.store.deleteItem(CALLER, container, 'a', PARTITION);
      const { vault } = late.storage;
      const destroyKeys = vault.destroyKeys.bind(vault);
      const { promise: inTurn, resolve: begin } = Promise.withResolvers<void>();
      vi.spyOn(vault, 'destroyKeys').mockImplementationOnce((requests, areDue) =>
        destroyKeys(requests, () => {
          block();
          begin();
          return areDue!();
        }),
      );
      const purged = late.store.runPurge().catch((error: unknown) => error);
      await inTurn;
      const askedMs = performance.now();
      await one.store.placeHold(CALLER, container, 'case 7', HOLD);
      expect(performance.now() - askedMs).toBeLessThan(6_000);
      expect(await purged).toBeInstanceOf(StorageUnavailable);
      mend();
      await expectKept(late, there);
      expect((await one.store.fsck()).problems).toEqual([]);
    }));

  it('the time until which copies are kept is counted from when the key was destroyed, even if the purge had to wait for the vault', () =>
    inCluster(async (cluster) => {
      const node = await cluster.start({ automaticPurge: false, copiesKeptSeconds: 3_600 });
      const container = await makeContainer(node.store);
      await write(node, 'item');
      await node.store.deleteItem(CALLER, container, 'item', PARTITION);
      const { vault } = node.storage;
      const destroyKeys = vault.destroyKeys.bind(vault);
      let destroyedMs = 0;
      vi.spyOn(vault, 'destroyKeys').mockImplementationOnce(async (...destroyed) => {
        await sleep(300);
        destroyedMs = node.store.nowMs();
        return destroyKeys(...destroyed);
      });
      await node.store.runPurge();
      const purged = (await node.store.history(container, 'item', PARTITION)).at(-1)!;
      expect(purged.data['recoverableUntilMs']).toBeGreaterThanOrEqual(destroyedMs + 3_600_000);
    }));

  it('any node can pause and resume the purge for all of them, and all report its state', () =>
    inCluster(async (cluster) => {
      const nodes = [
        await cluster.start(),
        await cluster.start({ roles: [] }),
        await cluster.start({ roles: ['purge'] }),
      ];
      const states = async () =>
        (await Promise.all(nodes.map(({ store }) => store.purgeStatus()))).map((one) => one.state);
      const all = (state: string) =>
        eventually(`all say ${state}`, async () => (await states()).every((one) => one === state));
      for (let round = 0; round < 3; round++) {
        await nodes[round]!.store.pausePurge(CALLER);
        await all('paused');
        // Also on a node that does not purge, and on one that has not looked since the pause.
        await nodes[(round + 1) % 3]!.store.resumePurge(CALLER);
        await all('idle');
        await nodes[round]!.store.pausePurge(CALLER);
        await nodes[(round + 2) % 3]!.store.resumePurge(CALLER);
        await all('idle');
      }
      const controls = await cluster.log.readStream(PURGE_CONTROL_STREAM);
      expect(controls.map(({ type }) => type)).toEqual(
        Array.from({ length: 6 }, () => ['PurgePaused', 'PurgeResumed']).flat(),
      );
    }));

  it('pausing the purge on one node stops a run that is under way on another', () =>
    inCluster(async (cluster) => {
      const asked = await cluster.start({ automaticPurge: false });
      const purging = await cluster.start({ automaticPurge: false });
      await makeContainer(asked.store, 1);
      const ids = Array.from({ length: 600 }, (_, index) => `item ${index}`);
      await Promise.all(ids.map((id) => write(asked, id)));
      await containerOn(purging);
      await sleep(2_000);
      const destroyKeys = purging.storage.vault.destroyKeys.bind(purging.storage.vault);
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      const { promise: paused, resolve: goOn } = Promise.withResolvers<void>();
      let destroyed = 0;
      vi.spyOn(purging.storage.vault, 'destroyKeys').mockImplementation(async (requests) => {
        begin();
        await paused;
        destroyed += requests.length;
        return destroyKeys(requests);
      });
      const pass = purging.store.runPurge();
      await begun;
      await asked.store.pausePurge(CALLER);
      goOn();
      await pass;
      // Only the batch that was under way.
      expect(destroyed).toBe(256);
      await asked.store.resumePurge(CALLER);
      await purging.store.runPurge();
      expect(destroyed).toBe(600);
    }));

  it('any node can prove that a checkpoint of another node is consistent with its own', () =>
    inCluster(async (cluster) => {
      const folder = mkdtempSync(path.join(tmpdir(), 'epitaph-proofs-'));
      try {
        const one = await cluster.start({ proofFile: path.join(folder, 'one.db') });
        const other = await cluster.start({ proofFile: path.join(folder, 'other.db') });
        const sizeOf = (checkpoint: string) => Number(checkpoint.split('\n')[1]);
        await makeContainer(one.store);
        const from = sizeOf(await one.store.proofCheckpoint());
        await one.store.deleteContainer(CALLER, 'db', 'coll');
        const checkpoint = await one.store.proofCheckpoint();
        const to = sizeOf(checkpoint);
        expect(to).toBeGreaterThan(from);
        const hashes = await other.store.proofConsistency(from, to);
        expect(hashes).toEqual(await one.store.proofConsistency(from, to));
        expect(await other.store.proofCheckpoint(to)).toBe(checkpoint);
      } finally {
        await cluster.dispose();
        rmSync(folder, { recursive: true });
      }
    }));

  describe('on a server whose every file is searched', () => {
    // A server of its own: with the databases of the other tests in the same folder, each search read some 25,000 files.
    let own: TestServer;
    beforeAll(async () => {
      own = await TestServer.start();
    });
    afterAll(() => own.dispose());

    it('with pseudonymous ids, no id or partition key is in clear in any file, and the nodes serve each other’s items', () =>
      inCluster(async (cluster) => {
        const [one, other] = [await cluster.start(), await cluster.start({ roles: ['purge'] })];
        await one.store.createDatabase(CALLER, 'db');
        const definition = { ...DEFINITION, epitaph: { pseudonymousIds: true } };
        await one.store.createContainer(CALLER, 'db', 'coll', definition, 60);
        const container = await containerOn(other);
        const [id, pk] = ['Halvard-5-Ingrid', 'Saffron-6-Umbra'];
        const partitionKey = JSON.stringify([pk]);
        const document = { id, pk };
        const item = { id, partitionKey, document, json: JSON.stringify(document) };
        const { position } = await one.store.writeItem(CALLER, container, 'create', item);
        expect(await other.store.readItem(container, id, partitionKey, position)).toMatchObject({ id, partitionKey });
        const sql = `SELECT c.id FROM c WHERE c.id = '${id}'`;
        for (const scope of [{}, { partitionKey }]) {
          const { rows } = await other.store.queryItems(container, { sql, parameters: [], maxItemCount: 9, ...scope });
          expect(rows).toEqual([{ id }]);
        }
        await other.store.deleteItem(CALLER, container, id, partitionKey);
        await other.store.runPurge();
        expect((await one.store.explain(container, id, partitionKey)).state).toBe('purged');
        expect((await one.store.fsck()).problems).toEqual([]);
        // A server given by an environment variable may be on another machine.
        if (own.folder === undefined) return;
        await own.run('CHECKPOINT');
        for (const name of [id, pk]) expect(search(own.folder, formsOf(name))).toEqual([]);
        // In a container without pseudonyms the same search finds them.
        await one.store.createContainer(CALLER, 'db', 'plain', DEFINITION, 60);
        await one.store.writeItem(CALLER, one.store.container('db', 'plain'), 'create', item);
        await own.run('CHECKPOINT');
        for (const name of [id, pk]) expect(search(own.folder, formsOf(name))).not.toEqual([]);
      }, own));

    it('no content is in clear in any file of the server, be it live, held, recovered or purged, under load and after', async (context) => {
      // A server given by an environment variable: without its files there is nothing to check here.
      if (own.folder === undefined) return context.skip('the files of that server are out of reach');
      const { folder } = own;
      await inCluster(async (cluster) => {
        const nodes = [await cluster.start(), await cluster.start({ roles: ['purge'] })];
        await makeContainer(nodes[0]!.store, -1);
        for (const node of nodes) await containerOn(node);
        const [secret, name] = ['Kestrel-58-Brodowy-Xanthippe-17', 'Quill-9-Ottokar'];
        const isNowhere = () => expect(search(folder, formsOf(secret))).toEqual([]);
        for (let round = 0; round < 4; round++) {
          const writes = Array.from({ length: 60 }, (_, index) => {
            const ttl = index % 3 === 0 ? { ttl: 1 } : {};
            const text = `${secret} ${'x'.repeat((index * 37) % 900)} ${secret}`;
            return write(nodes[index % 2]!, `${name}-${index}`, {
              text,
              nested: { [secret]: [secret] },
              round,
              ...ttl,
            });
          });
          await Promise.all(writes.slice(30));
          isNowhere();
          await Promise.all(writes);
        }
        const { store } = nodes[0]!;
        const container = await containerOn(nodes[0]!);
        const held = {
          scope: { kind: 'items' as const, items: [{ id: `${name}-1`, partitionKey: PARTITION }] },
          reason: 'held',
        };
        await store.placeHold(CALLER, container, 'one', held);
        for (const index of [1, 2]) await store.deleteItem(CALLER, container, `${name}-${index}`, PARTITION);
        const sql = 'SELECT * FROM c WHERE CONTAINS(c.text, @s) ORDER BY c.text';
        await store.queryItems(container, { sql, parameters: [{ name: '@s', value: secret }], maxItemCount: 50 });
        await store.recoverItem(CALLER, container, `${name}-1`, PARTITION, { reason: 'wanted' });
        await sleep(2_000);
        await nodes[1]!.store.runPurge();
        expect((await store.explain(container, `${name}-0`, PARTITION)).state).toBe('purged');
        await own.run('CHECKPOINT');
        isNowhere();
        // Proof that the search finds something: ids are in clear.
        expect(search(folder, formsOf(name))).not.toEqual([]);
      }, own);
    });
  });

  it('another node goes on projecting when the one that projects is closed or its connection dies', () =>
    inCluster(async (cluster) => {
      const nodes = [await cluster.start(), await cluster.start(), await cluster.start({ roles: [] })];
      const api = nodes[2]!;
      await makeContainer(api.store);
      await write(api, 'first');
      // The server ends the session that holds the lock, as it would if the node were gone.
      const holder = async () => {
        const [row] = await server.run(
          "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 3 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
          cluster.url,
        );
        return row?.['pid'];
      };
      const before = await holder();
      await server.run(`SELECT pg_terminate_backend(${String(before)})`);
      await eventually('another session holds it', async () => ![before, undefined].includes(await holder()));
      await eventually('one projects', async () => projecting(nodes).length === 1);
      await write(api, 'second');
      const [now] = projecting(nodes);
      await now!.close();
      const { position } = await write(api, 'third');
      const left = nodes.filter((node) => node !== now);
      expect(projecting(left).length).toBe(1);
      for (const node of left) {
        const shown = await node.store.listItems(await containerOn(node), { maxItemCount: 10, atLeast: position });
        expect(shown.items.map(({ id }) => id)).toEqual(['first', 'second', 'third']);
      }
      expect((await left[0]!.store.fsck()).problems).toEqual([]);
    }));

  it('the node that takes over projecting knows a policy that its predecessor wrote to the read models at the last moment', () =>
    inCluster(async (cluster) => {
      const [before, next] = [await cluster.start(), await cluster.start()];
      await makeContainer(before.store);
      await containerOn(next);
      const { store: written } = before.storage.readModels.current;
      const apply = written.apply.bind(written);
      const [isApplying, goOn, isApplied] = [1, 2, 3].map(() => Promise.withResolvers<void>());
      vi.spyOn(written, 'apply').mockImplementationOnce(async (...batch) => {
        isApplying!.resolve();
        await goOn!.promise;
        await apply(...batch);
        isApplied!.resolve();
      });
      const { store: read } = next.storage.readModels.current;
      const containers = read.containers.bind(read);
      vi.spyOn(read, 'containers').mockImplementationOnce(async () => {
        const found = await containers();
        goOn!.resolve();
        await isApplied!.promise;
        return found;
      });
      const changed = before.store.changeTtl(CALLER, 'db', 'coll', { defaultTtl: 1_000, confirmed: false });
      await isApplying!.promise;
      before.storage.readModels.lead = () => Promise.resolve(undefined);
      await server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 3 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        cluster.url,
      );
      await eventually('the other one projects', async () => next.store.projects);
      await changed;
      const policiesOn = ({ store }: Node) =>
        store
          .container('db', 'coll')
          .timeline.map(({ defaultTtl }) => defaultTtl)
          .join();
      expect(policiesOn(next)).toBe(',1000');
      await next.store.changeTtl(CALLER, 'db', 'coll', { defaultTtl: 2_000, confirmed: false });
      await eventually('the other one knows all of them', async () => policiesOn(before) === ',1000,2000');
      expect((await next.store.fsck()).problems).toEqual([]);
    }));

  it('the node with the role purges, stops when any node pauses the purge, and forgets what was erased', () =>
    inCluster(async (cluster) => {
      const api = await cluster.start({ roles: ['project'] });
      const purger = await cluster.start({ roles: ['purge'] });
      await makeContainer(api.store, 1);
      await api.store.pausePurge(CALLER);
      await write(api, 'short');
      await sleep(3_000);
      expect((await api.store.purgeStatus()).overdueItems).toBe(1);
      expect((await api.store.purgeStatus()).purgedTotal).toBe(0);
      await api.store.resumePurge(CALLER);
      await eventually('the item is purged', async () => (await api.store.purgeStatus()).purgedTotal === 1);
      const last = await cluster.log.readLast(PURGE_CONTROL_STREAM);
      expect(last?.type).toBe('PurgeResumed');
      const history = await purger.store.history(await containerOn(purger), 'short', PARTITION);
      expect(history.at(-1)?.type).toBe('ItemPurged');
      await eventuallySound(api);
      expect(cluster.faults).toEqual([]);
    }));

  it('bodies purged by a node that died are removed from the log, if another node took over its run and completed it', () =>
    inCluster(async (cluster) => {
      const [log, otherLog] = [bound(cluster.log), bound(cluster.log)];
      const taken = Promise.withResolvers<void>();
      const purged = Promise.withResolvers<void>();
      const died = Promise.withResolvers<never>();
      died.promise.catch(() => {});
      const dying = await cluster.start({ automaticPurge: false, log });
      const container = await makeContainer(dying.store);
      await write(dying, 'a');
      await dying.store.deleteItem(CALLER, container, 'a', PARTITION);
      const destroying = Promise.withResolvers<void>();
      const { vault } = dying.storage;
      const destroyKeys = vault.destroyKeys.bind(vault);
      vi.spyOn(vault, 'destroyKeys').mockImplementation(async (...asked) => {
        destroying.resolve();
        await taken.promise;
        return destroyKeys(...asked);
      });
      vi.spyOn(log, 'truncateStream').mockImplementation(() => {
        purged.resolve();
        return died.promise;
      });
      const purge = dying.store.runPurge().catch(() => {});
      await destroying.promise;
      let hasStarted = false;
      const readAll = otherLog.readAll.bind(otherLog);
      vi.spyOn(otherLog, 'readAll').mockImplementation(async (...asked) => {
        const events = await readAll(...asked);
        if (hasStarted && asked[2]?.mayBeTruncated === true && events.length === 0) {
          taken.resolve();
          await purged.promise;
        }
        return events;
      });
      const other = await cluster.start({ log: otherLog });
      hasStarted = true;
      await purged.promise;
      const runs = async () => (await other.storage.readModels.current.store.openPurgeRuns()).length;
      await eventually('the run is completed', async () => (await runs()) === 0);
      died.reject(new StorageUnavailable('it has died'));
      await purge;
      await dying.close();
      await eventuallySound(other);
    }));

  it('bodies purged by a node that died are removed from the log, if another node had completed its run before', () =>
    inCluster(async (cluster) => {
      const { log, die, purged } = mortal(cluster.log);
      const dying = await cluster.start({ automaticPurge: false, log });
      await makeContainer(dying.store);
      await end(dying, 'a');
      const { begun, goOn } = holdUpDestruction(dying);
      const purge = dying.store.runPurge().catch(() => {});
      await begun;
      const completing = await cluster.start();
      await eventually('the run is completed', async () => (await openRuns(completing)) === 0);
      await completing.close();
      await end(dying, 'b');
      goOn();
      await purged;
      die();
      await purge;
      await dying.close();
      await eventuallySound(await cluster.start());
    }));

  it('bodies purged by a node that died are removed from the log, if the run was that of another node, which completed it', () =>
    inCluster(async (cluster) => {
      const { log, die, purged } = mortal(cluster.log);
      const opening = await cluster.start({ automaticPurge: false });
      await makeContainer(opening.store);
      await end(opening, 'a');
      const { begun, goOn } = holdUpDestruction(opening);
      const purge = opening.store.runPurge();
      await begun;
      await end(opening, 'b');
      const dying = await cluster.start({ log });
      await purged;
      die();
      await dying.close();
      goOn();
      await purge;
      await eventuallySound(await cluster.start());
    }));

  it('nodes whose clocks differ change over to a new policy together: none applies the old one once the new one is in force', () =>
    inCluster(async (cluster) => {
      const policyDelayMs = 1_600;
      const slow = await cluster.start({ skewMs: -400, policyDelayMs });
      const fast = await cluster.start({ skewMs: 400, policyDelayMs });
      await makeContainer(slow.store, -1);
      await containerOn(fast);
      await write(slow, 'item');
      await sleep(2_100);
      // The item expires as soon as the policy takes effect. Both nodes read all the while.
      const { resource } = await slow.store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, 1);
      const effectiveFromMs = resource.timeline.at(-1)!.fromMs;
      expect(effectiveFromMs).toBe(resource.timeline.at(-1)!.recordedAtMs + policyDelayMs);
      const seen: { node: string; atMs: number; visible: boolean }[] = [];
      const read = async (name: string, { store }: Node) => {
        const visible = await store
          .readItem(store.container('db', 'coll'), 'item', PARTITION)
          .then(() => true)
          .catch(() => false);
        seen.push({ node: name, atMs: store.nowMs(), visible });
      };
      await eventually('both have seen it expire', async () => {
        await Promise.all([read('slow', slow), read('fast', fast)]);
        return seen.slice(-2).every(({ visible }) => !visible);
      });
      // By each node's own clock the item is gone once the policy is in force, so each heard of it in time. The node whose clock is behind
      // may find it gone earlier, because the other, 800 ms ahead, has recorded the expiry.
      for (const { node, atMs, visible } of seen) {
        const latestClockMs = node === 'slow' ? atMs + 800 : atMs;
        if (visible) expect(atMs, node).toBeLessThan(effectiveFromMs + 50);
        else expect(latestClockMs + 50, node).toBeGreaterThanOrEqual(effectiveFromMs);
      }
      expect(seen.filter(({ visible }) => visible).length).toBeGreaterThan(2);
      await eventually('it is purged', async () => (await fast.store.purgeStatus()).purgedTotal === 1);
      await eventuallySound(slow);
    }));

  it('nodes whose clocks differ change over to a new policy together, although it was recorded late', () =>
    inCluster(async (cluster) => {
      const machine = fakeMachine(1_700_000_000_000);
      const pass = (milliseconds: number) => {
        machine.wall += milliseconds;
        machine.monotonic += milliseconds;
      };
      const options = { clocks: machine, policyDelayMs: 8_000, automaticPurge: false };
      const one = await cluster.start(options);
      const ahead = await cluster.start({ ...options, skewMs: 3_900 });
      const container = await makeContainer(one.store, -1);
      await containerOn(ahead);
      await write(one, 'item', { n: 1 });
      pass(5_000);
      const append = cluster.log.append.bind(cluster.log);
      vi.spyOn(cluster.log, 'append').mockImplementationOnce(async (...appended) => {
        pass(1_900);
        // The node that is ahead asks the log just before the policy is recorded, and hears nothing of it then.
        await ahead.store.settleNames('db', 'coll', true);
        return append(...appended);
      });
      const { promise: heard, resolve: hear } = Promise.withResolvers<void>();
      const changed = one.store.changeTtl(CALLER, 'db', 'coll', { defaultTtl: 1, confirmed: false });
      const look = ahead.storage.readModels.look.bind(ahead.storage.readModels);
      vi.spyOn(ahead.storage.readModels, 'look').mockImplementation(async () => {
        if (machine.monotonic > 5_000 + 1_900) await heard;
        return look();
      });
      const { timeline } = await changed;
      pass(3_900);
      expect(ahead.store.nowMs()).toBeGreaterThan(timeline.at(-1)!.fromMs);
      const written = write(ahead, 'item', { n: 2 });
      setTimeout(hear, 200);
      expect(await written).toMatchObject({ created: true });
      expect((await one.store.history(container, 'item', PARTITION)).map(({ type }) => type)).toEqual([
        'ItemUpserted',
        'ItemExpired',
        'ItemUpserted',
      ]);
    }));

  it('a node that does not know yet of a delete by partition key loses no write', async () => {
    const log = Object.assign(new MemoryEventLog(), { spansStreams: false });
    const cluster = new Cluster(await server.newDatabase(), log);
    try {
      const one = await cluster.start({ automaticPurge: false, policyDelayMs: 60_000 });
      const other = await cluster.start({ automaticPurge: false, policyDelayMs: 60_000 });
      await makeContainer(one.store);
      await containerOn(other);
      for (const id of ['upserted', 'replaced', 'patched', 'batched', 'created', 'deleted'])
        await write(one, id, { n: 1 });
      const container = other.store.container('db', 'coll');
      await other.store.readItem(container, 'created', PARTITION, 'head');
      // From here on the other node hears nothing.
      const hear = deafen(other);
      await one.store.deletePartitionKey(CALLER, one.store.container('db', 'coll'), PARTITION);
      const item = (id: string) => {
        const document = { id, pk: 'p', n: 2 };
        return { id, partitionKey: PARTITION, document, json: JSON.stringify(document) };
      };
      const { store } = other;
      const code = (error: unknown) => (error as { readonly code: string }).code;
      const answers = Promise.all([
        write(other, 'upserted', { n: 2 }),
        store.writeItem(CALLER, container, 'create', item('created')),
        store.batchItems(CALLER, container, [{ kind: 'write', operation: 'upsert', item: item('batched') }]),
        store.writeItem(CALLER, container, 'replace', item('replaced')).catch(code),
        store
          .patchItem(CALLER, container, 'patched', PARTITION, { operations: [{ op: 'set', path: '/n', value: 2 }] })
          .catch(code),
        store.deleteItem(CALLER, container, 'deleted', PARTITION).catch(code),
      ]);
      await eventually('four of them are in the log', () =>
        Promise.resolve(log.readAll(0, 100).filter(({ type }) => type === 'ItemUpserted').length >= 6 + 4),
      );
      // On the node that knows of the delete, too, a write to such an item begins the next life.
      await write(one, 'upserted', { n: 3 });
      hear();
      const [, created, batched, ...others] = await answers;
      expect(created.created).toBe(true);
      expect(batched).toMatchObject({ kind: 'done', results: [{ kind: 'written', created: true }] });
      expect(others).toEqual(['item-not-found', 'item-not-found', 'item-not-found']);
      for (const node of [one, other]) {
        const read = (id: string) =>
          node.store.readItem(node.store.container('db', 'coll'), id, PARTITION, 'head').then(({ json }) => json, code);
        expect(['{"id":"upserted","pk":"p","n":2}', '{"id":"upserted","pk":"p","n":3}']).toContain(
          await read('upserted'),
        );
        expect(await read('created')).toBe('{"id":"created","pk":"p","n":2}');
        expect(await read('batched')).toBe('{"id":"batched","pk":"p","n":2}');
        expect([await read('replaced'), await read('patched')]).toEqual(['item-not-found', 'item-not-found']);
        expect((await node.store.fsck()).problems).toEqual([]);
      }
      await one.store.runPurge();
      await one.store.runPurge();
      expect((await one.store.fsck()).problems).toEqual([]);
      expect((await one.store.purgeStatus()).purgedTotal).toBe(6);
      expect(cluster.faults).toEqual([]);
    } finally {
      await cluster.dispose();
    }
  });

  it('recovery brings back the content that a delete by partition key ended, not what another node wrote to that life in vain', () =>
    inCluster(async (cluster) => {
      const log = cluster.log as MemoryEventLog;
      const options = { automaticPurge: false, policyDelayMs: 60_000 };
      const [one, other] = [await cluster.start(options), await cluster.start(options)];
      const container = await makeContainer(one.store);
      await containerOn(other);
      for (const id of ['recorded', 'unrecorded']) await write(one, id, { n: 1 });
      await other.store.readItem(container, 'recorded', PARTITION, 'head');
      const hear = deafen(other);
      await one.store.deletePartitionKey(CALLER, container, PARTITION);
      const patch = (id: string) =>
        other.store
          .patchItem(CALLER, container, id, PARTITION, { operations: [{ op: 'set', path: '/n', value: 2 }] })
          .catch(({ code }: Refusal) => code);
      const patched = Promise.all(['recorded', 'unrecorded'].map(patch));
      const written = () => log.readAll(0, 100).filter(({ type }) => type === 'ItemUpserted');
      await eventually('both are in the log', () => Promise.resolve(written().length === 4));
      const request = { reason: 'a mistake' };
      const held = () => one.store.heldContent(CALLER, container, 'unrecorded', PARTITION, request);
      expect(JSON.parse((await held()).json)).toMatchObject({ n: 1 });
      const explained = await one.store.explain(container, 'unrecorded', PARTITION);
      const told = await one.store.history(container, 'unrecorded', PARTITION);
      await one.store.recoverItem(CALLER, container, 'unrecorded', PARTITION, request);
      hear();
      expect([explained.state, told.at(-1)!.type]).toEqual(['deleted', 'PartitionKeyDeleted']);
      expect(await patched).toEqual(['item-not-found', expect.anything()]);
      await one.store.recoverItem(CALLER, container, 'recorded', PARTITION, request);
      const { json } = await one.store.readItem(container, 'recorded', PARTITION, 'head');
      expect(JSON.parse(json)).toMatchObject({ n: 1 });
    }));

  it('an erasure records that the item was deleted with its partition key, although another node wrote to it in vain', () =>
    inCluster(async (cluster) => {
      const log = cluster.log as MemoryEventLog;
      const options = { automaticPurge: false, policyDelayMs: 60_000 };
      const [one, other] = [await cluster.start(options), await cluster.start(options)];
      const container = await makeContainer(one.store);
      await containerOn(other);
      await write(one, 'a', { n: 1 });
      await other.store.readItem(container, 'a', PARTITION, 'head');
      const hear = deafen(other);
      await one.store.deletePartitionKey(CALLER, container, PARTITION);
      const patch = { operations: [{ op: 'set', path: '/n', value: 2 }] } as const;
      const answer = other.store.patchItem(CALLER, container, 'a', PARTITION, patch).catch(({ code }: Refusal) => code);
      const written = () => log.readAll(0, 100).filter(({ type }) => type === 'ItemUpserted');
      await eventually('it is in the log', () => Promise.resolve(written().length === 2));
      await one.store.eraseItem(CALLER, container, 'a', PARTITION, ERASURE);
      hear();
      expect(await answer).toBe('item-not-found');
      const told = (await one.store.history(container, 'a', PARTITION)).filter(({ fromLedger }) => fromLedger !== true);
      expect(told.map(({ type }) => type)).toEqual(['ItemDeleted', 'ItemPurged']);
      expect(told[0]!.data['withPartitionKey']).toMatchObject({ by: 'key:primary' });
      await eventuallySound(one);
    }));

  it('all-versions feeds show the content that a delete by partition key ended, not what another node wrote to it in vain', () =>
    inCluster(async (cluster) => {
      const log = cluster.log as MemoryEventLog;
      const options = { automaticPurge: false, policyDelayMs: 60_000 };
      const [one, other] = [await cluster.start(options), await cluster.start(options)];
      await one.store.createDatabase(CALLER, 'db');
      const feeding = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 10 } };
      const { resource: container } = await one.store.createContainer(CALLER, 'db', 'coll', feeding, null);
      const from = log.head();
      const feed = async () => {
        const request = {
          mode: 'all-versions',
          scope: {},
          maxItemCount: 100,
          atLeast: 'head',
        } as const;
        const page = await one.store.readChangeFeed(container, {
          ...request,
          start: { kind: 'after', position: from },
        });
        return page.changes.map((change) => {
          if (change.kind === 'written')
            return `${change.item.id} ${change.created ? 'created' : 'written'} ${change.item.json}`;
          return `${change.id} deleted ${change.previous?.json}`;
        });
      };
      await containerOn(other);
      for (const id of ['patched', 'written']) await write(one, id, { n: 1 });
      for (const id of ['patched', 'written']) await other.store.readItem(container, id, PARTITION, 'head');
      const hear = deafen(other);
      await one.store.deletePartitionKey(CALLER, container, PARTITION);
      const patch = { operations: [{ op: 'set', path: '/n', value: 2 }] } as const;
      const answers = Promise.allSettled([
        other.store.patchItem(CALLER, container, 'patched', PARTITION, patch),
        write(other, 'written', { n: 2 }),
      ]);
      const written = () => log.readAll(0, 100).filter(({ type }) => type === 'ItemUpserted');
      await eventually('both are in the log', () => Promise.resolve(written().length === 4));
      const json = (id: string, n: number) => `{"id":"${id}","pk":"p","n":${n}}`;
      const before = ['patched', 'written'].map((id) => `${id} created ${json(id, 1)}`);
      const shown = await feed();
      hear();
      expect(shown).toEqual(before);
      expect(await answers).toMatchObject([{ reason: { code: 'item-not-found' } }, { status: 'fulfilled' }]);
      await one.store.runPurge();
      const after = ['patched', 'written'].map((id) => `${id} deleted ${json(id, 1)}`);
      expect((await feed()).toSorted()).toEqual(
        [...before, ...after, `written created ${json('written', 2)}`].toSorted(),
      );
    }));

  it('a node accepts no write into a container that another node has just deleted', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ policyDelayMs: 60_000 });
      const other = await cluster.start({ policyDelayMs: 60_000 });
      await makeContainer(one.store);
      await containerOn(other);
      await write(one, 'old', { n: 1 });
      await other.store.readItem(other.store.container('db', 'coll'), 'old', PARTITION, 'head');
      const hear = deafen(other);
      await one.store.deleteContainer(CALLER, 'db', 'coll');
      const answers = Promise.allSettled([write(other, 'old', { n: 2 }), write(other, 'new')]);
      setTimeout(hear, 200);
      for (const answer of await answers) expect(answer).toMatchObject({ reason: { code: 'container-not-found' } });
    }));

  it.each(['container', 'database'])(
    'held content of a deleted %s is what it was at the deletion, not what another node wrote to it in vain',
    (gone) =>
      inCluster(async (cluster) => {
        const log = cluster.log as MemoryEventLog;
        const options = { automaticPurge: false, policyDelayMs: 60_000 };
        const [one, other] = [await cluster.start(options), await cluster.start(options)];
        const container = await makeContainer(one.store);
        await containerOn(other);
        await write(one, 'a', { n: 1 });
        await one.store.placeHold(CALLER, container, 'case 7', HOLD);
        await other.store.readItem(container, 'a', PARTITION, 'head');
        const hear = deafen(other);
        await (gone === 'container'
          ? one.store.deleteContainer(CALLER, 'db', 'coll')
          : one.store.deleteDatabase(CALLER, 'db'));
        const answers = Promise.allSettled([2, 3].map((n) => write(other, 'a', { n })));
        const written = () => log.readAll(0, 100).filter(({ type }) => type === 'ItemUpserted');
        await eventually('they are in the log', () => Promise.resolve(written().length === 3));
        hear();
        for (const answer of await answers) expect(answer).toMatchObject({ status: 'rejected' });
        for (let reading = 0; reading < 2; reading++) {
          const held = await one.store.heldContent(CALLER, container, 'a', PARTITION, { reason: 'case 7' });
          expect(JSON.parse(held.json)).toMatchObject({ n: 1 });
        }
      }),
  );

  it('a node runs the current scripts after another node has just stored, replaced or deleted one', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start(), await cluster.start({ roles: [] })];
      const container = await makeContainer(one.store);
      await containerOn(other);
      await write(one, 'a');
      const store = async (kind: ScriptKind, body: string, trigger?: Trigger) => {
        const content = { body, ...(trigger && { trigger }) };
        await one.store.writeScript(CALLER, container, 'upsert', { kind, name: 's', content });
      };
      const remove = (kind: ScriptKind) => one.store.deleteScript(CALLER, one.store.script(container, kind, 's'));
      await serving(other, async (endpoint) => {
        const post = async (path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) => {
          const given = { headers: { ...keyHeader('p'), ...headers }, body: JSON.stringify(body) };
          const { status, text } = await raw(endpoint, 'POST', `/dbs/db/colls/coll/${path}`, given);
          return { status, text };
        };
        const run = () => post('sprocs/s', []);
        const create = () => post('docs', { id: 'b', pk: 'p' }, { 'x-ms-documentdb-pre-trigger-include': 's' });
        const query = (word: string) =>
          post(
            'docs',
            { query: `SELECT VALUE ${word}.s() FROM c`, parameters: [] },
            { 'x-ms-documentdb-isquery': 'True', 'content-type': 'application/query+json' },
          );
        const answering = (n: number) => `function () { getContext().getResponse().setBody(${n}); }`;
        await store('stored-procedure', answering(1));
        expect(await run()).toEqual({ status: 200, text: '1' });
        await store('stored-procedure', answering(2));
        expect(await run()).toEqual({ status: 200, text: '2' });
        await remove('stored-procedure');
        expect((await run()).status).toBe(404);
        await store('trigger', "function () { throw 'no'; }", { type: 'Pre', operation: 'All' });
        expect((await create()).text).toContain('Exception = no');
        await store('trigger', 'function () {}', { type: 'Pre', operation: 'All' });
        expect((await create()).status).toBe(201);
        await store('user-defined-function', '() => 1');
        expect((await query('udf')).text).toContain('"Documents":[1,1]');
        await store('user-defined-function', '() => 2');
        expect((await query('Udf')).text).toContain('"Documents":[2,2]');
      });
    }));

  it('a script reads the items as they were at one moment, whatever another node writes and deletes meanwhile', () =>
    inCluster(async (cluster) => {
      const [one, other] = [await cluster.start({ roles: [] }), await cluster.start()];
      const container = await makeContainer(other.store);
      await containerOn(one);
      for (const id of ['a', 'b', 'c']) await write(other, id, { n: 1 });
      const body = `function () {
        const c = getContext().getCollection();
        c.queryDocuments(c.getSelfLink(), 'SELECT VALUE SUM(c.n) FROM c', (error, [sum]) => {
          const told = [sum];
          for (const id of ['b', 'c']) {
            c.readDocument(c.getAltLink() + '/docs/' + id, (error, found) => {
              told.push(error ? error.number : found.n);
              getContext().getResponse().setBody(told);
            });
          }
        });
      }`;
      const script = { kind: 'stored-procedure', name: 's', content: { body } } as const;
      await other.store.writeScript(CALLER, container, 'upsert', script);
      const query = one.store.queryItems;
      vi.spyOn(one.store, 'queryItems').mockImplementationOnce(async (...asked) => {
        const page = await query(...asked);
        for (const id of ['a', 'b']) await write(other, id, { n: 2 });
        await other.store.deleteItem(CALLER, container, 'c', PARTITION);
        return page;
      });
      await serving(one, async (endpoint) => {
        const run = async () =>
          (await raw(endpoint, 'POST', '/dbs/db/colls/coll/sprocs/s', { headers: keyHeader('p'), body: '[]' })).text;
        expect(await run()).toBe('[3,1,1]');
        expect(await run()).toBe('[4,2,404]');
      });
    }));

  it('a node notices that another node has just deleted a container and created it again', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ policyDelayMs: 60_000 });
      const other = await cluster.start({ policyDelayMs: 60_000 });
      await serving(other, async (endpoint) => {
        await makeContainer(one.store);
        await containerOn(other);
        const coll = '/dbs/db/colls/coll';
        const authorization = `Bearer ${EMULATOR_KEY}`;
        const hold = () =>
          fetch(`${endpoint}/_epitaph${coll}/holds/h`, {
            method: 'PUT',
            headers: { authorization, 'content-type': 'application/json' },
            body: JSON.stringify({ container: true, reason: 'a case' }),
          });
        const batched = async (isAtomic: string, operation: unknown, token = '') => {
          const { text } = await raw(endpoint, 'POST', `${coll}/docs`, {
            headers: {
              ...keyHeader('p'),
              'x-ms-session-token': token,
              'x-ms-cosmos-is-batch-request': 'True',
              'x-ms-cosmos-batch-atomic': isAtomic,
              'x-ms-cosmos-batch-continue-on-error': 'True',
            },
            body: JSON.stringify([operation]),
          });
          return { status: (JSON.parse(text) as { statusCode: number }[])[0]!.statusCode };
        };
        const calls: Readonly<Record<string, (token: string) => Promise<{ readonly status: number }>>> = {
          write: () =>
            raw(endpoint, 'POST', `${coll}/docs`, { headers: keyHeader('p'), body: '{"id":"new","pk":"p"}' }),
          read: (token) =>
            raw(endpoint, 'GET', `${coll}/docs/made`, { headers: { ...keyHeader('p'), 'x-ms-session-token': token } }),
          batch: () => batched('True', { operationType: 'Upsert', resourceBody: { id: 'new', pk: 'p' } }),
          bulk: () => batched('False', { operationType: 'Upsert', resourceBody: { id: 'new', pk: 'p' } }),
          'read in bulk': (token) => batched('False', { operationType: 'Read', id: 'made' }, token),
          query: async (token) => {
            const { json } = await raw(endpoint, 'POST', `${coll}/docs`, {
              headers: {
                ...keyHeader('p'),
                'x-ms-session-token': token,
                'x-ms-documentdb-isquery': 'True',
                'content-type': 'application/query+json',
              },
              body: '{"query":"SELECT * FROM c"}',
            });
            return { status: json?.['_count'] === 1 ? 200 : 404 };
          },
          look: async () => {
            const { json } = await raw(endpoint, 'GET', coll);
            return { status: json?.['_rid'] === one.store.container('db', 'coll').rid ? 200 : 404 };
          },
          hold,
          delete: () => raw(endpoint, 'DELETE', coll),
        };
        const expected: Readonly<Record<string, number>> = {
          write: 201,
          read: 200,
          batch: 201,
          bulk: 201,
          'read in bulk': 200,
          query: 200,
          look: 200,
          hold: 201,
          delete: 204,
        };
        for (const [name, call] of Object.entries(calls)) {
          const hear = deafen(other);
          await one.store.deleteContainer(CALLER, 'db', 'coll');
          const { resource } = await one.store.createContainer(CALLER, 'db', 'coll', DEFINITION, null);
          const { position } = await write(one, 'made');
          const answer = call(`0:-1#${position}`);
          setTimeout(hear, 200);
          const { status } = await answer;
          expect.soft([name, status]).toEqual([name, expected[name]]);
          const { store: there } = one;
          if (name === 'hold') await expect.soft(there.hold(resource, 'h')).resolves.toBeDefined();
          if (['write', 'batch', 'bulk'].includes(name)) {
            await expect.soft(there.readItem(resource, 'new', PARTITION)).resolves.toBeDefined();
          }
        }
      });
    }));

  it('a node applies the new partition key and TTL of a container that another node has just created again', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ policyDelayMs: 60_000 });
      const other = await cluster.start({ policyDelayMs: 60_000 });
      await serving(other, async (endpoint) => {
        await makeContainer(one.store);
        await containerOn(other);
        const send = (body: string, headers = {}) =>
          raw(endpoint, 'POST', '/dbs/db/colls/coll/docs', { headers: { ...keyHeader('p'), ...headers }, body });
        const sendBatch = (isAtomic: string, body: string) =>
          send(`[{"operationType":"Create","resourceBody":${body}}]`, {
            'x-ms-cosmos-is-batch-request': 'True',
            'x-ms-cosmos-batch-atomic': isAtomic,
          });
        const sent: Readonly<Record<string, (body: string) => Promise<{ readonly text: string }>>> = {
          write: send,
          batch: (body) => sendBatch('True', body),
          bulk: (body) => sendBatch('False', body),
        };
        for (const [name, write] of Object.entries(sent)) {
          for (const body of ['{"id":"new","pk":"p"}', '{"id":"new","pk":"p","ttl":"a day"}']) {
            await one.store.deleteContainer(CALLER, 'db', 'coll');
            const isTtl = body.includes('ttl');
            const before = isTtl
              ? DEFINITION
              : { ...DEFINITION, partitionKey: { ...DEFINITION.partitionKey, paths: ['/id'] } };
            await one.store.createContainer(CALLER, 'db', 'coll', before, isTtl ? 60 : null);
            await other.store.settleNames('db', 'coll', true);
            const hear = deafen(other);
            await one.store.deleteContainer(CALLER, 'db', 'coll');
            const { resource } = await one.store.createContainer(CALLER, 'db', 'coll', DEFINITION, null);
            const answer = write(body);
            setTimeout(hear, 200);
            const { text } = await answer;
            const shown = one.store.readItem(resource, 'new', PARTITION, 'head');
            await expect.soft(shown, `${name} ${body}: ${text}`).resolves.toBeDefined();
          }
        }
      });
    }));

  it('a management call sees everything that another node has acknowledged, even if this node has not heard of it yet', () =>
    inCluster(async (cluster) => {
      const { leader, other, container } = await twoWithAnItem(cluster);
      await serving(other, async (endpoint) => {
        const coll = '/dbs/db/colls/coll';
        const { store } = leader;
        const asked = async (path: string): Promise<Record<string, unknown>> => {
          const authorization = `Bearer ${EMULATOR_KEY}`;
          const answer = await fetch(`${endpoint}/_epitaph${coll}${path}`, { headers: { authorization } });
          return (await answer.json()) as Record<string, unknown>;
        };
        const answered = async (acknowledged: () => Promise<unknown>, ask: () => Promise<unknown>) => {
          const hear = deafen(other);
          await acknowledged();
          const answer = ask();
          setTimeout(hear, 200);
          return answer;
        };
        const explained = () => asked(`/explain?id=item&partitionKey=${encodeURIComponent(PARTITION)}`);
        const place = () => store.placeHold(CALLER, container, 'h', { scope: { kind: 'container' }, reason: 'a case' });
        expect.soft(await answered(place, () => asked('/holds/h'))).toMatchObject({ state: 'standing' });
        const ttl = { defaultTtl: 100, confirmed: false };
        const changed = await answered(
          () => store.changeTtl(CALLER, 'db', 'coll', ttl),
          () => asked('/ttl'),
        );
        expect.soft(changed).toMatchObject({ current: { defaultTtl: 100 } });
        const deleted = await answered(() => store.deletePartitionKey(CALLER, container, PARTITION), explained);
        expect.soft(deleted).toMatchObject({ state: 'deleted' });
        const remake = async () => {
          await store.deleteContainer(CALLER, 'db', 'coll');
          await store.createContainer(CALLER, 'db', 'coll', DEFINITION, null);
        };
        expect.soft(await answered(remake, explained)).toMatchObject({ state: 'never-existed' });
        // A user with the same name as a container.
        const user = '/dbs/db/users/coll';
        await store.createUser(CALLER, container.databaseRid, 'coll', 'create');
        expect((await raw(endpoint, 'GET', user)).status).toBe(200);
        const forget = () => store.deleteUser(CALLER, container.databaseRid, 'coll');
        expect
          .soft(await answered(forget, () => raw(endpoint, 'GET', `${user}/permissions`)))
          .toMatchObject({ status: 404 });
      });
    }));

  it('an item is explained by the policy in force, although the node has not heard of it yet', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ automaticPurge: false });
      await makeContainer(one.store);
      const there = await containerOn(other);
      await write(one, 'item');
      await other.store.explain(there, 'item', PARTITION);
      const hear = deafen(other);
      await one.store.changeTtl(CALLER, 'db', 'coll', { defaultTtl: 1, confirmed: false });
      await sleep(1_100);
      const explained = other.store.explain(there, 'item', PARTITION);
      setTimeout(hear, 200);
      expect(await explained).toMatchObject({ state: 'expired', policy: { defaultTtl: 1 } });
    }));

  it('a write that was decided before an item expired does not bring it back, however late it arrives', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(one.store, -1);
      await containerOn(other);
      await write(one, 'item', { ttl: 1 });
      // The other node asks the vault for the key, and the answer takes longer than the item lives.
      const { promise: expired, resolve: expire } = Promise.withResolvers<void>();
      const findKey = other.storage.vault.findKey.bind(other.storage.vault);
      vi.spyOn(other.storage.vault, 'findKey').mockImplementation(async (...key) => {
        await expired;
        return findKey(...key);
      });
      const late = write(other, 'item', { n: 2 });
      const isGone = () => one.store.readItem(container, 'item', PARTITION, 'head').catch(({ code }: Refusal) => code);
      await eventually('it is gone', async () => (await isGone()) === 'item-not-found');
      expire();
      expect(await late).toMatchObject({ created: true });
      const history = await one.store.history(container, 'item', PARTITION);
      expect(history.map(({ type, life }) => [type, life])).toEqual([
        ['ItemUpserted', 0],
        ['ItemExpired', 0],
        ['ItemUpserted', 1],
      ]);
    }));

  it('a write to an item that another node is erasing waits until the erasure is on record', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start();
      const other = await cluster.start();
      await makeContainer(one.store);
      const container = await containerOn(other);
      const item = { pk: 'p', n: 1 };
      // The erasure is recorded only when the test lets it go on.
      const { promise: recorded, resolve: record } = Promise.withResolvers<void>();
      const destroyKeys = one.storage.vault.destroyKeys.bind(one.storage.vault);
      const { promise: destroyed, resolve: onDestroyed } = Promise.withResolvers<void>();
      vi.spyOn(one.storage.vault, 'destroyKeys').mockImplementation(async (...requests) => {
        const outcomes = await destroyKeys(...requests);
        onDestroyed();
        await recorded;
        return outcomes;
      });
      await write(one, 'item', item);
      const request = { reason: 'asked for', requestedBy: 'the person' };
      const erased = one.store.eraseItem(CALLER, container, 'item', PARTITION, request);
      await destroyed;
      // Writes that have waited for seconds are refused with "busy", so that the client retries.
      const operations = [{ op: 'set', path: '/n', value: 2 }] as const;
      const patch = () => other.store.patchItem(CALLER, container, 'item', PARTITION, { operations });
      const steps = [{ kind: 'patch', id: 'item', partitionKey: PARTITION, patch: { operations } }] as const;
      const { store } = other;
      await expect(store.readItem(container, 'item', PARTITION)).rejects.toMatchObject({ code: 'item-not-found' });
      const outcomes = await Promise.allSettled([
        write(other, 'item', item),
        patch(),
        store.deleteItem(CALLER, container, 'item', PARTITION),
        store.writeItem(CALLER, container, 'create', {
          id: 'item',
          partitionKey: PARTITION,
          document: item,
          json: JSON.stringify(item),
        }),
        other.store.batchItems(CALLER, container, steps),
      ]);
      setTimeout(record, 200);
      const waiting = await Promise.allSettled([patch()]);
      for (const outcome of outcomes) expect(outcome).toMatchObject({ reason: { code: 'busy' } });
      expect(waiting).toMatchObject([{ reason: { code: 'item-not-found' } }]);
      expect(await write(other, 'item', item)).toMatchObject({ created: true });
      expect(await erased).toMatchObject({ erasedLives: 1 });
    }));

  it('a late write does not bring back an item that expired by a policy of which its node had not heard', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ automaticPurge: false });
      await makeContainer(one.store, -1);
      await containerOn(other);
      await write(one, 'item');
      await sleep(2_000);
      // The other node waits for a key, and hears nothing.
      const { promise: heard, resolve: hear } = Promise.withResolvers<void>();
      const findKey = other.storage.vault.findKey.bind(other.storage.vault);
      vi.spyOn(other.storage.vault, 'findKey').mockImplementation(async (...key) => {
        await heard;
        return findKey(...key);
      });
      const look = other.storage.readModels.look.bind(other.storage.readModels);
      vi.spyOn(other.storage.readModels, 'look').mockImplementation(async () => {
        await heard;
        // It hears of the policy later than it gets the key.
        await sleep(200);
        return look();
      });
      const late = write(other, 'item', { n: 2 });
      await one.store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, 2);
      const isGone = () =>
        one.store
          .readItem(one.store.container('db', 'coll'), 'item', PARTITION, 'head')
          .catch(({ code }: Refusal) => code);
      await eventually('it is gone', async () => (await isGone()) === 'item-not-found');
      hear();
      expect(await late).toMatchObject({ created: true });
    }));

  it('no policy takes effect before it is on record, however long that takes', () =>
    inCluster(async (cluster) => {
      const policyDelayMs = 1_000;
      const { store } = await cluster.start({ policyDelayMs });
      await makeContainer(store, -1);
      const changeTtl = async (defaultTtl: DefaultTtl) => {
        const { timeline } = await store.changeTtl(CALLER, 'db', 'coll', { defaultTtl, confirmed: false });
        return timeline.at(-1)!.fromMs;
      };
      const lateMs = 2 * policyDelayMs;
      const late = () => sleep(lateMs);
      // Slow at first is the count for the brake, then the read of earlier decisions.
      const counting = vi.spyOn(PostgresReadModelStore.prototype, 'countByTimes').mockImplementationOnce(async () => {
        await late();
        return [{ items: 0, oldestTs: null }];
      });
      const beforeCountMs = store.nowMs();
      expect(await changeTtl(5)).toBeGreaterThanOrEqual(beforeCountMs + lateMs + policyDelayMs);
      expect(counting).toHaveBeenCalled();
      await sleep(policyDelayMs + 100);
      vi.spyOn(cluster.log, 'readStream').mockImplementationOnce(async () => {
        await late();
        return [];
      });
      const beforeReadMs = store.nowMs();
      expect(await changeTtl(6)).toBeGreaterThanOrEqual(beforeReadMs + lateMs + policyDelayMs);
    }));

  it('an erased item is gone for readers while the read models can’t be written, and its writes stay in the log until they can', () =>
    inCluster(async (cluster) => {
      // A node answers nothing once a quarter of the policy delay has passed without a confirmation of the catalog.
      const { leader, other, container, position } = await twoWithAnItem(cluster, { policyDelayMs: 600_000 });
      let isAway = true;
      const { store } = leader.storage.readModels.current;
      const apply = store.apply.bind(store);
      let refused = 0;
      vi.spyOn(store, 'apply').mockImplementation((changes, ...places) => {
        if (!isAway || !changes.some(({ kind }) => kind === 'item-purged')) return apply(changes, ...places);
        refused += 1;
        return Promise.reject(new StorageUnavailable('the disk is full'));
      });
      const request = { reason: 'asked for', requestedBy: 'x' };
      await expect(leader.store.eraseItem(CALLER, container, 'item', PARTITION, request)).rejects.toThrow(
        /disk is full/,
      );
      // By then another attempt has continued the erasure.
      const until = refused + 5;
      const answers = new Set<unknown>();
      await eventually('it was tried again', async () => {
        answers.add(await other.store.readItem(container, 'item', PARTITION).catch(({ code }: Refusal) => code));
        return refused > until;
      });
      expect([...answers]).toEqual(['item-not-found']);
      expect(await cluster.log.readBody(position)).toBeDefined();
      isAway = false;
      await eventually('it is truncated', async () => (await cluster.log.readBody(position)) === undefined);
      expect((await other.store.history(container, 'item', PARTITION)).at(-1)?.type).toBe('ItemPurged');
    }));

  it('an erasure continues at once after a long delay of its record on the way to the read models', () =>
    inCluster(async (cluster) => {
      const { store, storage } = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(store);
      const document = { id: 'item', pk: 'p' };
      const item = { id: 'item', partitionKey: PARTITION, document, json: JSON.stringify(document) };
      const { position } = await store.writeItem(CALLER, container, 'create', item);
      const readModel = storage.readModels.current.store;
      const apply = readModel.apply.bind(readModel);
      const { promise: over, resolve: end } = Promise.withResolvers<void>();
      vi.spyOn(readModel, 'apply').mockImplementation(async (changes, ...places) => {
        if (changes.some(({ kind }) => kind === 'item-purged')) await over;
        return apply(changes, ...places);
      });
      const request = { reason: 'asked for', requestedBy: 'x' };
      await expect(store.eraseItem(CALLER, container, 'item', PARTITION, request)).rejects.toMatchObject({
        code: 'session-not-available',
      });
      end();
      await eventually('it is truncated', async () => (await cluster.log.readBody(position)) === undefined);
      const types = async () => (await store.containerHistory(container)).map(({ type }) => type);
      await eventually('it has an outcome', async () => (await types()).at(-1) === 'ErasureCompleted');
    }));

  it('lives destroyed by an erasure that a fault cut short are recorded, although another node was asked for the same erasure', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(one.store);
      await containerOn(other);
      await write(one, 'item', { n: 1 });
      const request = { reason: 'asked for', requestedBy: 'the person' };
      // The other node learns late that its request is on record, and fails right after it has destroyed the keys.
      const hear = deafen(other);
      const { vault } = other.storage;
      const destroyKeys = vault.destroyKeys.bind(vault);
      vi.spyOn(vault, 'destroyKeys').mockImplementationOnce(async (requests) => {
        await destroyKeys(requests);
        throw new StorageUnavailable('the answer is lost');
      });
      const late = other.store.eraseItem(CALLER, container, 'item', PARTITION, request);
      await eventually('its request is on record', async () =>
        (await one.store.containerHistory(container)).some(({ type }) => type === 'ErasureRequested'),
      );
      await one.store.eraseItem(CALLER, container, 'item', PARTITION, request);
      await write(one, 'item', { n: 2 });
      hear();
      await expect(late).rejects.toThrow('the answer is lost');
      const outcomes = async () =>
        (await one.store.containerHistory(container)).filter(({ type }) => type === 'ErasureCompleted');
      await eventually('both have an outcome', async () => (await outcomes()).length === 2);
      expect((await one.store.fsck()).problems).toEqual([]);
      expect((await one.store.history(container, 'item', PARTITION)).map(({ type, life }) => [type, life])).toEqual([
        ['ItemUpserted', 0],
        ['ItemPurged', 0],
        ['ItemUpserted', 1],
        ['ItemPurged', 1],
      ]);
      await write(one, 'item', { n: 3 });
    }));

  it('an erasure leaves alone what was written after a newly started node has carried it out', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(one.store);
      await containerOn(other);
      await write(one, 'item', { n: 1 });
      const hear = deafen(other);
      const request = { reason: 'asked for', requestedBy: 'the person' };
      const late = other.store.eraseItem(CALLER, container, 'item', PARTITION, request);
      const types = async () => (await one.store.containerHistory(container)).map(({ type }) => type);
      await eventually('its request is on record', async () => (await types()).at(-1) === 'ErasureRequested');
      await cluster.start({ automaticPurge: false });
      expect((await types()).at(-1)).toBe('ErasureCompleted');
      await write(one, 'item', { n: 2 });
      hear();
      expect(await late).toMatchObject({ erasedLives: 1 });
      const { json } = await one.store.readItem(container, 'item', PARTITION, 'head');
      expect(json).toBe('{"id":"item","pk":"p","n":2}');
    }));

  it('an erasure that another node has refused on record is not carried out, even if the hold is released since', () =>
    inCluster(async (cluster) => {
      const { one, other, container, release, outcomes, expectThere } = await twoWithAHeldItem(cluster);
      const hear = deafen(other);
      const late = other.store.eraseItem(CALLER, container, 'a', PARTITION, ERASURE).catch((error: Refusal) => error);
      await eventually('its request is on record', async () =>
        (await one.store.containerHistory(container)).some(({ type }) => type === 'ErasureRequested'),
      );
      await cluster.start({ automaticPurge: false });
      await release();
      hear();
      expect(await late).toMatchObject({ code: 'held' });
      expect(await outcomes()).toEqual(['ErasureRefused']);
      await expectThere();
    }));

  it('an erasure that another node refused while this one waited for the vault is not carried out after the hold is released', () =>
    inCluster(async (cluster) => {
      const { one, container, release, outcomes, expectThere } = await twoWithAHeldItem(cluster);
      const { promise: released, resolve: goOn } = Promise.withResolvers<void>();
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      const { vault } = one.storage;
      const holdsOn = vault.holdsOn.bind(vault);
      let starting: Promise<Node> | undefined;
      vi.spyOn(vault, 'holdsOn').mockImplementationOnce(async (streams) => {
        const holds = await holdsOn(streams);
        const prototype = vi.spyOn(PostgresKeyVault.prototype, 'holdsOn');
        prototype.mockImplementationOnce(async function (this: PostgresKeyVault, lives) {
          begin();
          await released;
          return this.holdsOn(lives);
        });
        starting = cluster.start({ automaticPurge: false });
        await begun;
        return holds;
      });
      await expect(one.store.eraseItem(CALLER, container, 'a', PARTITION, ERASURE)).rejects.toMatchObject({
        code: 'held',
      });
      await release();
      goOn();
      await starting;
      expect(await outcomes()).toEqual(['ErasureRefused']);
      await expectThere();
    }));

  it('an erasure is not refused for a hold that has been released meanwhile, because another node may have carried it out', () =>
    inCluster(async (cluster) => {
      const { one, container, release, outcomes } = await twoWithAHeldItem(cluster);
      const append = cluster.log.append.bind(cluster.log);
      vi.spyOn(cluster.log, 'append').mockImplementation(async (appends, options) => {
        if (appends[0]!.events[0]!.type === 'ErasureRefused') {
          vi.mocked(cluster.log.append).mockRestore();
          await release();
          await cluster.start({ automaticPurge: false });
        }
        return append(appends, options);
      });
      const erased = await one.store.eraseItem(CALLER, container, 'a', PARTITION, ERASURE);
      expect(erased).toMatchObject({ erasedLives: 1 });
      expect(await outcomes()).toEqual(['ErasureCompleted']);
      expect(await one.store.explain(container, 'a', PARTITION)).toMatchObject({ state: 'purged' });
    }));

  it('an erasure is refused while the vault still has a hold whose release is on record, because the releasing node died', () =>
    inCluster(async (cluster) => {
      const { one, other, container, release, outcomes, expectThere } = await twoWithAHeldItem(cluster);
      vi.spyOn(one.storage.vault, 'releaseHold').mockRejectedValue(new StorageUnavailable('it is dead'));
      await expect(release()).rejects.toThrow('it is dead');
      await expect(other.store.eraseItem(CALLER, container, 'a', PARTITION, ERASURE)).rejects.toMatchObject({
        code: 'held',
      });
      expect(await outcomes()).toEqual(['ErasureRefused']);
      await expectThere();
    }));

  it('a recovery is refused if another node was asked to erase the item meanwhile', () =>
    inCluster(async (cluster) => {
      const { one, other, container } = await twoWithAnEndedItem(cluster);
      const { promise: erased, resolve: erase } = Promise.withResolvers<void>();
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      const createKey = other.storage.vault.createKey.bind(other.storage.vault);
      vi.spyOn(other.storage.vault, 'createKey').mockImplementation(async (stream) => {
        begin();
        await erased;
        return createKey(stream);
      });
      const back = other.store.recoverItem(CALLER, container, 'a', PARTITION, { reason: 'a mistake' });
      const recovered = back.catch(({ code }: Refusal) => code);
      await begun;
      const request = { reason: 'asked for', requestedBy: 'the person' };
      expect(await one.store.eraseItem(CALLER, container, 'a', PARTITION, request)).toMatchObject({
        erasedLives: 1,
      });
      erase();
      expect(await recovered).toBe('content-erased');
      const history = await one.store.history(container, 'a', PARTITION);
      expect(history.map(({ type, life }) => [type, life])).toEqual([
        ['ItemUpserted', 0],
        ['ItemDeleted', 0],
        ['ItemPurged', 0],
        ['ItemRecovered', 1],
        ['ItemPurged', 1],
      ]);
      const requests = (await one.store.containerHistory(container)).filter(({ type }) => type === 'ErasureRequested');
      expect(requests.map(({ data }) => data)).toMatchObject([request, request]);
      expect((await one.store.fsck()).problems).toEqual([]);
    }));

  it('a recovered item is erased if another node was asked to erase it meanwhile and the recovering node does not know its own outcome', () =>
    inCluster(async (cluster) => {
      const { one, other, container } = await twoWithAnEndedItem(cluster);
      const createKey = other.storage.vault.createKey.bind(other.storage.vault);
      vi.spyOn(other.storage.vault, 'createKey').mockImplementationOnce(async (stream) => {
        const request = { reason: 'asked for', requestedBy: 'the person' };
        await one.store.eraseItem(CALLER, container, 'a', PARTITION, request);
        const append = cluster.log.append.bind(cluster.log);
        vi.spyOn(cluster.log, 'append').mockImplementationOnce(async (...appends) => {
          await append(...appends);
          throw new StorageUnavailable('the answer is lost');
        });
        return createKey(stream);
      });
      const back = other.store.recoverItem(CALLER, container, 'a', PARTITION, { reason: 'a mistake' });
      await expect(back).rejects.toThrow('the answer is lost');
      const explained = () => one.store.explain(container, 'a', PARTITION);
      await eventually('what came back is erased', async () => (await explained()).state === 'purged');
      expect(await explained()).toMatchObject({ life: 1, erasure: { requestedBy: 'the person' } });
      expect((await one.store.fsck()).problems).toEqual([]);
    }));

  it('a recovered life that began after the erasure is left alone', () =>
    inCluster(async (cluster) => {
      const { one, container } = await twoWithAnEndedItem(cluster);
      await one.store.eraseItem(CALLER, container, 'a', PARTITION, ERASURE);
      await write(one, 'a', { n: 2 });
      await one.store.deleteItem(CALLER, container, 'a', PARTITION);
      await one.store.recoverItem(CALLER, container, 'a', PARTITION, { reason: 'a mistake' });
      await one.store.runPurge();
      expect(await one.store.explain(container, 'a', PARTITION)).toMatchObject({ state: 'live', life: 2 });
      // The node that carried out the erasure looks for recovered content once the policy delay is over.
      await sleep(2_000);
      const { json } = await one.store.readItem(container, 'a', PARTITION, 'head');
      expect(json).toBe('{"id":"a","pk":"p","n":2}');
    }));

  it('a recovery that is delayed on its way to the log does not bring back an item that another node has erased meanwhile', () =>
    withLateNode(async ({ one, late, log, holdUp }) => {
      const container = await makeContainer(one.store);
      const there = await containerOn(late);
      await write(one, 'item', { n: 1 });
      await one.store.deleteItem(CALLER, container, 'item', PARTITION);
      const arrives = holdUp('item-', 8_000);
      const back = late.store.recoverItem(CALLER, there, 'item', PARTITION, { reason: 'a mistake' });
      const answer = back.catch((error: unknown) => error);
      await sleep(500);
      await one.store.eraseItem(CALLER, container, 'item', PARTITION, {
        reason: 'asked for',
        requestedBy: 'the person',
      });
      expect(await answer).toBeInstanceOf(StorageUnavailable);
      await arrives;
      await sleep(1_000);
      const types = (await log.readAll(0, 1_000)).map(({ type }) => type);
      expect(types).not.toContain('ItemRecovered');
      expect(await one.store.explain(container, 'item', PARTITION)).toMatchObject({ state: 'purged', life: 0 });
      // Without an erasure in the way, a recovery brings the item back.
      await write(one, 'other', { n: 1 });
      await one.store.deleteItem(CALLER, container, 'other', PARTITION);
      await late.store.recoverItem(CALLER, there, 'other', PARTITION, { reason: 'a mistake' });
    }, 2_000));

  it('a write that is delayed on its way to the log past the item’s deadline begins a new life', () =>
    withLateNode(async ({ one, late, holdUp }) => {
      const container = await makeContainer(one.store, -1);
      await containerOn(late);
      const item = (id: string) => {
        const document = { id, pk: 'p', n: 2 };
        return { id, partitionKey: PARTITION, document, json: JSON.stringify(document) };
      };
      const writes = {
        single: () => write(late, 'single', { n: 2 }).then(({ created }) => created),
        batched: async () => {
          const outcome = await late.store.batchItems(CALLER, container, [
            { kind: 'write', operation: 'upsert', item: item('batched') },
          ]);
          return outcome.kind === 'done' && outcome.results[0]!.kind === 'written' && outcome.results[0]!.created;
        },
      };
      for (const [id, change] of Object.entries(writes)) {
        await write(one, id, { ttl: 1 });
        const heldUp = holdUp('item-', 2_500);
        const created = change();
        const isGone = () => one.store.readItem(container, id, PARTITION, 'head').catch(({ code }: Refusal) => code);
        await eventually('it is gone', async () => (await isGone()) === 'item-not-found');
        await heldUp;
        expect([id, await created]).toEqual([id, true]);
        const history = await one.store.history(container, id, PARTITION);
        expect(history.map(({ type, life }) => [type, life])).toEqual([
          ['ItemUpserted', 0],
          ['ItemExpired', 0],
          ['ItemUpserted', 1],
        ]);
      }
    }));

  it.each(['a hold', 'a floor'] as const)(
    'content under %s is kept, although a standby that had not heard of it replaced the server',
    (what) =>
      inCluster(async (cluster) => {
        const { one, other, container, there } = await twoWithAnEndedItem(cluster);
        const standby = TestServer.dump(cluster.url, 'epitaph_vault');
        if (what === 'a hold') await one.store.placeHold(CALLER, container, 'case 7', HOLD);
        else await one.store.setRetentionFloor(CALLER, container, 3_600, 'case 7');
        await takeThePlace(cluster, standby);
        for (const { store } of [other, one]) {
          await eventually('it purges again', () => succeeds(store.runPurge()));
        }
        await expectKept(other, there);
        expect((await one.store.explain(container, 'a', PARTITION)).state).toBe('deleted');
      }),
  );

  it('nothing more is erased on a standby that replaced the server and has keys again that were destroyed', () =>
    inCluster(async (cluster) => {
      const { one, other, there } = await twoWithAnEndedItem(cluster);
      await end(one, 'b');
      const standby = TestServer.dump(cluster.url, 'epitaph_vault');
      await one.store.eraseItem(CALLER, one.store.container('db', 'coll'), 'b', PARTITION, ERASURE);
      await takeThePlace(cluster, standby);
      for (const { store } of [one, other]) {
        await eventually('it says so', () =>
          failsWith(store.runPurge(), /older copy than the event log.*epitaph restore/),
        );
      }
      await expectKept(other, there);
    }));

  it('destroyed keys that are back are noticed, although the standby replaced the server before their destruction was on record', () =>
    inCluster(async (cluster) => {
      const { one, other } = await twoWithAnEndedItem(cluster, { copiesKeptSeconds: 60 });
      const standby = TestServer.dump(cluster.url, 'epitaph_vault');
      const { vault } = one.storage;
      const destroyKeys = vault.destroyKeys.bind(vault);
      vi.spyOn(vault, 'destroyKeys').mockImplementationOnce(async (...asked) => {
        const outcomes = await destroyKeys(...asked);
        await takeThePlace(cluster, standby);
        return outcomes;
      });
      await one.store.runPurge().catch(() => {});
      await end(one, 'b');
      for (const { store } of [one, other]) {
        await eventually('it says so', () =>
          failsWith(store.runPurge(), /older copy than the event log.*epitaph restore/),
        );
      }
    }));

  it('no item gets a second name on a standby that replaced the server and lacks the secret of the container', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ automaticPurge: false });
      await makeContainer(one.store);
      await containerOn(other);
      const standby = TestServer.dump(cluster.url, 'epitaph_vault');
      await write(one, 'a');
      await takeThePlace(cluster, standby);
      await eventually('it says so', () =>
        failsWith(write(other, 'a'), /older copy than the event log.*secret.*epitaph restore/),
      );
      await eventually('the one that has it writes', () => succeeds(write(one, 'b')));
      expect((await write(other, 'b')).created).toBe(false);
    }));

  it('a node does not start on read models with an unreadable row, and says that they may be dropped', () =>
    inCluster(async (cluster) => {
      const before = await cluster.start({ automaticPurge: false });
      await makeContainer(before.store);
      await before.close();
      await server.run('UPDATE epitaph_items_v1.containers SET state = substr(state, 1, 40)', cluster.url);
      const refused = cluster.start({ automaticPurge: false });
      await expect(refused).rejects.toThrow(UnusableServer);
      await expect(refused).rejects.toThrow('DROP SCHEMA epitaph_items_v1 CASCADE');
      await server.run('DROP SCHEMA epitaph_items_v1 CASCADE', cluster.url);
      const { store } = await cluster.start({ automaticPurge: false });
      expect(store.container('db', 'coll').name).toBe('coll');
    }));

  it('an item whose sealed copy in the read models is damaged is read from the log', () =>
    inCluster(async (cluster) => {
      const before = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(before.store);
      for (const id of ['a', 'b']) await write(before, id);
      const { version } = before.storage.readModels.current;
      await before.close();
      const damage = `UPDATE epitaph_items_v${version}.items SET body = substr(body, 1, 20) WHERE id = 'a'`;
      await server.run(damage, cluster.url);
      const { store } = await cluster.start({ automaticPurge: false });
      const { items } = await store.listItems(container, { maxItemCount: 10 });
      expect(items.map(({ id }) => id)).toEqual(['a', 'b']);
      expect(await store.readItem(container, 'a', PARTITION)).toMatchObject({ id: 'a' });
    }));

  it('a hold that is unreadable in the vault is restored from its record; one that contradicts it is extended to the container', () =>
    inCluster(async (cluster) => {
      const before = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(before.store);
      const scope = { kind: 'partition-key', partitionKey: PARTITION } as const;
      await before.store.placeHold(CALLER, container, 'case 7', { reason: 'a test', scope });
      const placed = await before.storage.vault.holds();
      await before.close();
      const holdsAfter = async (damage: string) => {
        await server.run(`UPDATE epitaph_vault.holds SET ${damage}`, cluster.url);
        const node = await cluster.start({ automaticPurge: false });
        const holds = await node.storage.vault.holds();
        await node.close();
        return holds;
      };
      expect(await holdsAfter('scope = substr(scope, 1, 20)')).toEqual(placed);
      expect(await holdsAfter("scope = replace(scope, 'item-', 'other-')")).toMatchObject([
        { scope: { kind: 'container', containerRid: container.rid } },
      ]);
    }));

  it('the advice to drop the read models is not given if the log itself contradicts itself', () =>
    inCluster(async (cluster) => {
      const before = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(before.store);
      await before.store.changeTtl(CALLER, 'db', 'coll', { defaultTtl: 60, confirmed: false });
      await before.close();
      const log = cluster.log as MemoryEventLog;
      const twice = log.readLast(containerStream(container.rid))!;
      const stream = { stream: twice.stream, expectedRevision: twice.revision };
      await log.append([{ ...stream, events: [{ ...twice, id: crypto.randomUUID() }] }]);
      await server.run('DROP SCHEMA epitaph_items_v1 CASCADE', cluster.url);
      await expect(cluster.start({ automaticPurge: false })).rejects.toThrow(
        /policy versions count up: the event log is damaged/,
      );
    }));

  it('if the secret of one container is lost, all other containers are still purged and checked by fsck', () =>
    inCluster(async (cluster) => {
      const before = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(before.store, -1);
      const next = await before.store.createContainer(CALLER, 'db', 'next', DEFINITION, -1);
      for (const each of [container, next.resource]) {
        const item = itemToWrite({ id: 'a', pk: 'p', ttl: 1 });
        await before.store.writeItem(CALLER, each, 'create', item);
      }
      await before.close();
      await server.run(`DELETE FROM epitaph_vault.secrets WHERE name = 'container ${container.rid}'`, cluster.url);

      const { store } = await cluster.start({ automaticPurge: false });
      const stateInNext = async () => (await store.explain(store.container('db', 'next'), 'a', PARTITION)).state;
      await eventually('it has expired', async () => (await stateInNext()) === 'expired');
      await eventually('it says so', () => failsWith(store.runPurge(), /they lack the secret/));
      expect(await stateInNext()).toBe('purged');
      const { problems } = await store.fsck();
      expect(problems.map(({ code, subject }) => [code, subject])).toContainEqual([
        'key-missing',
        containerStream(container.rid),
      ]);
    }));

  it('nodes name items by the same secret, although a standby replaced the server after one of them had made another', () =>
    inCluster(async (cluster) => {
      const one = await cluster.start({ automaticPurge: false });
      const other = await cluster.start({ automaticPurge: false });
      const container = await makeContainer(one.store);
      await containerOn(other);
      const standby = TestServer.dump(cluster.url, 'epitaph_vault');
      expect((await one.store.explain(container, 'a', PARTITION)).state).toBe('never-existed');
      await takeThePlace(cluster, standby);
      await eventually('the other writes', () => succeeds(write(other, 'a')));
      await eventually('it writes, too', () => succeeds(write(one, 'a')));
      const history = await other.store.history(container, 'a', PARTITION);
      expect(history.map(({ type, life }) => [type, life])).toEqual([
        ['ItemUpserted', 0],
        ['ItemUpserted', 0],
      ]);
    }));

  it('no policy that is delayed on its way to the log is recorded after the time at which it takes effect', () =>
    withLateNode(async ({ one, late, log, holdUp }) => {
      const { rid } = await makeContainer(one.store, -1);
      await containerOn(late);
      const heldUp = holdUp('container-', 1_500);
      const changed = await late.store.changeTtl(CALLER, 'db', 'coll', { defaultTtl: 60, confirmed: false });
      const overAtMs = await heldUp;
      expect(changed.timeline.at(-1)!.fromMs).toBeGreaterThan(overAtMs);
      const recorded = await log.readStream(containerStream(rid));
      expect(recorded.map(({ type }) => type)).toEqual(['ContainerCreated', 'ContainerTtlChanged']);
    }));

  it.each([
    { of: 'a partition key', stream: 'container-', remove: 'deletePartitionKey' },
    { of: 'a container', stream: 'container-', remove: 'deleteContainer' },
    { of: 'a database', stream: 'database-', remove: 'deleteDatabase' },
  ] as const)(
    'a delete of $of that is delayed on its way to the log is not recorded with a time before a write that came first',
    (deleted) =>
      withLateNode(async ({ one, late, holdUp }) => {
        const container = await makeContainer(one.store, -1);
        const there = await containerOn(late);
        const { promise: written, resolve: letGo } = Promise.withResolvers<void>();
        const over = holdUp(deleted.stream, written);
        const { store } = late;
        const removed = {
          deletePartitionKey: () => store.deletePartitionKey(CALLER, there, PARTITION),
          deleteContainer: () => store.deleteContainer(CALLER, 'db', 'coll'),
          deleteDatabase: () => store.deleteDatabase(CALLER, 'db'),
        }[deleted.remove]();
        await sleep(1_000);
        await write(one, 'written meanwhile');
        letGo();
        await over;
        await removed;
        await one.store.settleNames('db', 'coll', true);
        const gone = one.store.containerByRid(container.rid)!;
        const { lastWrite, deletedAtMs } = (await one.store.explain(gone, 'written meanwhile', PARTITION)) as {
          readonly lastWrite: { readonly atMs: number };
          readonly deletedAtMs: number;
        };
        expect(deletedAtMs).toBeGreaterThanOrEqual(lastWrite.atMs);
      }),
  );

  it('a feed’s floor is removed even if the request that turned the feed off got no answer from the log', () =>
    inCluster(async (cluster) => {
      const log = bound(cluster.log);
      const { store, storage } = await cluster.start({ log });
      const { rid } = await makeContainer(store, -1);
      const feeding = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 10 } };
      await store.replaceContainer(CALLER, 'db', 'coll', feeding, -1);
      const append = log.append;
      vi.spyOn(log, 'append').mockImplementationOnce(async (...asked) => {
        await append(...asked);
        throw new StorageUnavailable('its answer was lost');
      });
      const replaced = () => store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, -1);
      await expect(replaced()).rejects.toThrow('its answer was lost');
      await replaced();
      await eventually('the floor is gone', async () => (await storage.vault.floors()).get(rid) === undefined, 5);
    }));

  it('a node leaves a feed’s floor alone that another node has raised for a policy that is not on record yet', async () => {
    const log = new MemoryEventLog();
    const cluster = new Cluster(await server.newDatabase(), log);
    const record = Promise.withResolvers<void>();
    try {
      const node = await cluster.start();
      const container = await makeContainer(node.store);
      const append = log.append.bind(log);
      const asked = Promise.withResolvers<void>();
      log.append = async (...args) => {
        if (args[0].some(({ events }) => events.some(({ type }) => type === 'ContainerReplaced'))) {
          asked.resolve();
          await record.promise;
        }
        return append(...args);
      };
      const definition = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 10 } };
      const change = node.store.replaceContainer(CALLER, 'db', 'coll', definition, null);
      await asked.promise;
      const floor = async () => (await node.storage.vault.floors()).get(container.rid)?.['change-feed'];
      expect(await floor()).toBe(11 * 60);

      const other = await cluster.start();
      await other.store.createDatabase(CALLER, 'another');
      await other.store.deleteDatabase(CALLER, 'another');
      expect(await floor()).toBe(11 * 60);

      record.resolve();
      await change;
      expect(await floor()).toBe(11 * 60);
      await containerOn(other);
      await other.store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, null);
      expect(await floor()).toBe(undefined);
    } finally {
      record.resolve();
      await cluster.dispose();
    }
  });

  it('all nodes swap to a rebuilt read model together', () =>
    inCluster(async (cluster) => {
      const nodes = [await cluster.start(), await cluster.start()];
      await makeContainer(nodes[0]!.store);
      for (let index = 0; index < 20; index++) await write(nodes[0]!, `item ${index}`);
      const [leader] = projecting(nodes);
      const other = nodes.find((node) => node !== leader)!;
      expect(() => other.store.startRebuild('items')).toThrow(/Another node keeps these read models up/);
      const whose = await Promise.all([leader!, other].map(({ store }) => store.projections()));
      expect(whose.flat().map(({ byThisNode }) => byThisNode)).toEqual([true, false]);
      leader!.store.startRebuild('items');
      await eventually('the rebuild is done', async () => leader!.store.rebuildStatus('items')?.state === 'done');
      expect(leader!.store.rebuildStatus('items')?.differences).toBe(0);
      const { position } = await write(other, 'after');
      for (const { store } of nodes) {
        const { items } = await store.listItems(store.container('db', 'coll'), {
          maxItemCount: 100,
          atLeast: position,
        });
        expect(items.length).toBe(21);
      }
      expect(leader!.storage.readModels.current.version).toBe(2);
      expect(other.storage.readModels.current.version).toBe(2);
    }));

  it.each([
    'DROP SCHEMA epitaph_items_v1 CASCADE',
    'DELETE FROM epitaph_read_models.in_use',
    'DROP SCHEMA epitaph_read_models CASCADE',
  ])(
    'all nodes go on with the read models that a newly started node has made after those in use were gone: %s',
    (damage) =>
      inCluster(async (cluster) => {
        const { leader, other } = await twoWithAnItem(cluster);
        await server.run(damage, cluster.url);
        const third = await cluster.start();
        for (const [index, node] of [leader, other, third].entries()) {
          await eventually('it writes', () =>
            write(node, `item ${index}`).then(
              () => true,
              () => false,
            ),
          );
          const { json } = await node.store.readItem(await containerOn(node), 'item', PARTITION);
          expect(JSON.parse(json)).toMatchObject({ id: 'item' });
        }
        const versions = [leader, other, third].map(({ storage }) => storage.readModels.current.version);
        expect(new Set(versions)).toEqual(new Set([2]));
        await eventuallySound(leader);
      }),
  );

  it('a write beside a long delete by partition key is answered once the delete is done, on each node', () =>
    inCluster(async (cluster) => {
      vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
      const haveLeft = Promise.withResolvers<void>();
      const isBegun = Promise.withResolvers<void>();
      const { apply } = PostgresReadModelStore.prototype;
      const slow = vi.spyOn(PostgresReadModelStore.prototype, 'apply').mockImplementation(async function (
        this: PostgresReadModelStore,
        changes,
        ...where
      ) {
        if (changes.some(({ kind }) => kind === 'partition-key-deleted')) {
          isBegun.resolve();
          await haveLeft.promise;
        }
        return apply.call(this, changes, ...where);
      });
      try {
        const { leader, other, container } = await twoWithAnItem(cluster);
        const deleting = leader.store.deletePartitionKey(CALLER, container, '["other"]');
        await isBegun.promise;
        const writing = write(other, 'meanwhile').then(() => 'written', String);
        for (let second = 0; second < 15; second++) {
          vi.advanceTimersByTime(1_000);
          // Notifications come from the server, so they take real time.
          await sleep(20);
        }
        haveLeft.resolve();
        await deleting;
        expect(await writing).toBe('written');
      } finally {
        haveLeft.resolve();
        slow.mockRestore();
        vi.useRealTimers();
      }
    }));

  it('no item is reported as not found while the read models in use are rebuilt from the log', () =>
    inCluster(async (cluster) => {
      const { leader, other, container } = await twoWithAnItem(cluster);
      const { promise: held, resolve: goOn } = Promise.withResolvers<void>();
      const subscribe = cluster.log.subscribe.bind(cluster.log);
      vi.spyOn(cluster.log, 'subscribe').mockImplementationOnce((after, listener, options) =>
        subscribe(after, { ...listener, onEvents: (events) => held.then(() => listener.onEvents(events)) }, options),
      );
      await server.run('DROP SCHEMA epitaph_items_v1 CASCADE', cluster.url);
      const third = cluster.start();
      try {
        await eventually('both go on with others', () =>
          Promise.resolve([leader, other].every(({ storage }) => storage.readModels.current.version === 2)),
        );
        for (const { store } of [leader, other]) {
          await expect(store.readItem(container, 'item', PARTITION)).rejects.toMatchObject({ code: 'busy' });
        }
      } finally {
        goOn();
        await third;
      }
      for (const { store } of [leader, other]) {
        expect(JSON.parse((await store.readItem(container, 'item', PARTITION)).json)).toMatchObject({ id: 'item' });
      }
    }));

  it('an item erased after a swap is gone on a node that has not heard of the swap yet', () =>
    inCluster(async (cluster) => {
      const { leader, other, container, position } = await twoWithAnItem(cluster);
      await other.store.readItem(container, 'item', PARTITION, position);
      const written = await cluster.log.readAt(position);
      let isDeaf = true;
      const look = other.storage.readModels.look.bind(other.storage.readModels);
      vi.spyOn(other.storage.readModels, 'look').mockImplementation(() =>
        isDeaf ? Promise.reject(new StorageUnavailable('it hears nothing')) : look(),
      );
      leader.store.startRebuild('items');
      await eventually('the rebuild is done', async () => leader.store.rebuildStatus('items')?.state === 'done');
      await leader.store.eraseItem(CALLER, container, 'item', PARTITION, { reason: 'asked for', requestedBy: 'x' });
      // The node hears of the erasure, and then, while it reads, of the swap.
      const isGone = async () =>
        (await other.storage.vault.findKey(Number(written!.data['key']), written!.stream)).status === 'destroyed';
      await eventually('the key is gone there, too', isGone);
      const readBody = cluster.log.readBody.bind(cluster.log);
      vi.spyOn(cluster.log, 'readBody').mockImplementation((at) => {
        isDeaf = false;
        return readBody(at);
      });
      expect(other.storage.readModels.current.version).toBe(1);
      const answer = () =>
        other.store.readItem(container, 'item', PARTITION).then(
          () => 'found',
          ({ code }: Refusal) => code,
        );
      let answered = await answer();
      // A slow machine may answer "busy" until it has confirmed what other nodes have done.
      while (answered === 'busy') answered = await answer();
      expect(answered).toBe('item-not-found');
    }));

  it('the version in use is kept when the node that rebuilds loses the right to write', () =>
    inCluster(async (cluster) => {
      const nodes = [await cluster.start(), await cluster.start()];
      const [former, next] = [nodes[0]!, nodes[1]!];
      expect(projecting(nodes)).toEqual([former]);
      await makeContainer(former.store);
      await containerOn(next);
      for (let index = 0; index < 20; index++) await write(former, `item ${index}`);
      // Ten events a second, so the rebuild takes some seconds.
      former.store.startRebuild('items', { eventsPerSecond: 10 });
      former.storage.readModels.lead = () => Promise.resolve(undefined);
      await server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 3 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        cluster.url,
      );
      await eventually('the other one projects', async () => next.store.projects);
      await eventually('the rebuild ends', async () => former.store.rebuildStatus('items')?.state === 'failed');
      for (const node of nodes) {
        const { position } = await write(node, 'after');
        for (const { store } of nodes) {
          const page = { maxItemCount: 100, atLeast: position };
          expect((await store.listItems(store.container('db', 'coll'), page)).items.length).toBe(21);
        }
      }
      expect(nodes.map(({ storage }) => storage.readModels.current.version)).toEqual([1, 1]);
    }));

  it('a node goes on projecting if PostgreSQL fails at the moment at which a rebuild is done', () =>
    inCluster(async (cluster) => {
      const node = await cluster.start();
      await makeContainer(node.store);
      await write(node, 'before');
      const { store: current } = node.storage.readModels.current;
      const databases = current.databases.bind(current);
      current.databases = () => {
        current.databases = databases;
        return Promise.reject(new StorageUnavailable('PostgreSQL: the database system is starting up'));
      };
      node.store.startRebuild('items');
      await eventually('the rebuild ends', async () => node.store.rebuildStatus('items')?.state === 'done');
      await eventually('it projects', async () => node.store.projects);
      await write(node, 'after');
      expect((await node.store.fsck()).problems).toEqual([]);
    }));

  it.skipIf(process.env['EPITAPH_TEST_POSTGRES'] !== undefined)(
    'nodes answer that the storage is not available while PostgreSQL is down, and go on by themselves when it is back',
    () =>
      inCluster(async (cluster) => {
        const nodes = [await cluster.start(), await cluster.start()];
        await makeContainer(nodes[0]!.store);
        await containerOn(nodes[1]!);
        const acknowledged: string[] = ['before'];
        await write(nodes[0]!, 'before');
        server.stop('immediate');
        for (const node of nodes) {
          const container = node.store.container('db', 'coll');
          // The HTTP layer answers this error with 503 and Retry-After.
          for (const attempt of [
            () => node.store.readItem(container, 'before', PARTITION),
            () => write(node, 'meanwhile'),
          ]) {
            const error = await attempt().then(
              () => undefined,
              (refused: unknown) => refused,
            );
            expect(describeError(error)?.shape).toMatchObject({ status: 503, retryAfterSeconds: expect.any(Number) });
          }
        }
        server.startAgain();
        for (const [index, node] of nodes.entries()) {
          await eventually('it writes again', () => succeeds(write(node, `after ${index}`)));
          acknowledged.push(`after ${index}`);
        }
        expect(projecting(nodes).length).toBe(1);
        for (const { store } of nodes) {
          const container = store.container('db', 'coll');
          const atLeast = await cluster.log.head();
          const { items } = await store.listItems(container, { maxItemCount: 100, atLeast });
          expect(items.map(({ id }) => id).toSorted()).toEqual(acknowledged.toSorted());
          await eventually('it is ready', async () => store.health().ready);
        }
        expect((await nodes[0]!.store.fsck()).problems).toEqual([]);
      }),
    // The test may wait for the catalog twice, and a killed server first syncs all its files.
    120_000,
  );
});
