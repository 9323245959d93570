import { expect, it } from 'vitest';
import type { Store } from '@epitaph/api/store/store.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore, SlowWrite } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

/** Long enough for everything that does not wait for something else. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 50));

/** A store with an item whose ttl of ten seconds is over in one, and with appends of one type of event that can be delayed. */
async function nineSecondsOn(type: string, change: (storage: SqliteStorage) => void = () => {}) {
  let slow!: SlowWrite;
  const { store } = await openInlineStore('policy-under-way', (storage) => {
    slow = new SlowWrite(storage.log, type);
    change(storage);
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 10);
  await write(store, container, 'create');
  await store.advanceClock(9_000);
  return { store, container, slow };
}

function write(store: Store, container: ContainerState, operation: 'create' | 'upsert', id = 'x') {
  const item = itemToWrite({ id, pk: 'p' });
  return store.writeItem(CALLER, container, operation, item);
}

async function problemsOf(store: Store): Promise<readonly unknown[]> {
  const { problems } = await store.fsck();
  return problems;
}

/** Begins a purge at the deadline, while the append of an earlier command is still delayed. */
async function purgedDuring(type: string, command: (store: Store, container: ContainerState) => Promise<unknown>) {
  const { store, container, slow } = await nineSecondsOn(type);
  const waits = slow.begin();
  const commanded = command(store, container);
  await waits;
  await store.advanceClock(1_000);
  const purged = store.runPurge();
  await settled();
  slow.end();
  await commanded;
  await purged;
  return { store, container };
}

/** Turns the TTL off at the deadline, while the expiry that a command records is still delayed. */
async function switchedOffDuring(command: (store: Store, container: ContainerState) => Promise<unknown>) {
  const { store, container, slow } = await nineSecondsOn('ItemExpired');
  await store.advanceClock(1_000);
  const waits = slow.begin();
  const commanded = command(store, container);
  await waits;
  await switchOff(store);
  slow.end();
  await commanded;
  return store;
}

const switchOff = (store: Store) => store.changeTtl(CALLER, 'd', 'c', { defaultTtl: null, confirmed: false });

it('the purge records no expiry under a policy that ended before it, although the append of its end was delayed', async () => {
  const { store, container } = await purgedDuring('ContainerTtlChanged', switchOff);
  await expect(store.readItem(container, 'x', '["p"]')).resolves.toBeDefined();
  expect(await problemsOf(store)).toEqual([]);
});

it('the purge records no expiry in a container that was deleted before it, although the append of that was delayed', async () => {
  const { store, container } = await purgedDuring('ContainerDeleted', (of) => of.deleteContainer(CALLER, 'd', 'c'));
  await store.runPurge();
  const { rows } = await store.disappearances(container, { limit: 10 });
  expect(rows).toMatchObject([{ id: 'x', cause: 'container-deleted' }]);
});

it('a purge run during which the container is deleted still records items as expired that had expired by then', async () => {
  const { store, container, slow } = await nineSecondsOn('ItemPurged');
  await write(store, container, 'create', 'y');
  await store.advanceClock(1_000);
  const waits = slow.begin();
  const purged = store.runPurge();
  await waits;
  await store.advanceClock(10_000);
  await write(store, container, 'create', 'z');
  await store.deleteContainer(CALLER, 'd', 'c');
  slow.end();
  await purged;
  await store.runPurge();
  const { rows } = await store.disappearances(container, { limit: 10 });
  expect(rows.map(({ id, cause }) => [id, cause])).toEqual([
    ['x', 'expired'],
    ['y', 'expired'],
    ['z', 'container-deleted'],
  ]);
  expect(await problemsOf(store)).toEqual([]);
});

it('the purge reports no fault if a container is deleted while it records the completion of a delete by partition key', async () => {
  const { store, container, slow } = await nineSecondsOn('PartitionKeyDeleteCompleted');
  await store.deletePartitionKey(CALLER, container, '["p"]');
  const waits = slow.begin();
  const purged = store.runPurge();
  await waits;
  await store.deleteContainer(CALLER, 'd', 'c');
  slow.end();
  expect(await purged).toMatchObject({ purged: 1 });
  expect(await store.purgeStatus()).toMatchObject({ faults: 0, awaitingErasure: 0 });
  expect(await problemsOf(store)).toEqual([]);
});

it('the purge records no expiry of an item that was deleted with its partition key before, although the append of that was delayed', async () => {
  const { store, container } = await purgedDuring('PartitionKeyDeleted', (of, within) =>
    of.deletePartitionKey(CALLER, within, '["p"]'),
  );
  await store.runPurge();
  const { rows } = await store.disappearances(container, { limit: 10 });
  expect(rows).toMatchObject([{ id: 'x', cause: 'deleted' }]);
  expect(await problemsOf(store)).toEqual([]);
});

it('a write records no expiry at the instant at which another policy takes effect', async () => {
  const store = await switchedOffDuring((of, container) => write(of, container, 'upsert'));
  expect(await problemsOf(store)).toEqual([]);
});

it('an erasure on request records no expiry at the instant at which another policy takes effect', async () => {
  const request = { reason: 'asked for', requestedBy: 'somebody' };
  const store = await switchedOffDuring((of, container) => of.eraseItem(CALLER, container, 'x', '["p"]', request));
  expect(await problemsOf(store)).toEqual([]);
});

/** The same store, and an erasure of the item on request, whose key is destroyed when the test lets it go on. */
async function erasing(type: string) {
  const asked = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const { store, container, slow } = await nineSecondsOn(type, ({ vault }) => {
    const destroyKeys = vault.destroyKeys.bind(vault);
    vault.destroyKeys = async (requests) => {
      asked.resolve();
      await gate.promise;
      return destroyKeys(requests);
    };
  });
  const erased = store.eraseItem(CALLER, container, 'x', '["p"]', { reason: 'asked for', requestedBy: 'somebody' });
  await asked.promise;
  return { store, container, slow, erased, letGo: gate.resolve };
}

it('an erasure that waited for the vault records no expiry under a policy that ended before it, although the append of that end was delayed', async () => {
  const { store, container, slow, erased, letGo } = await erasing('ContainerTtlChanged');
  const waits = slow.begin();
  const switched = switchOff(store);
  await waits;
  await store.advanceClock(1_000);
  letGo();
  await settled();
  slow.end();
  await switched;
  await erased;
  expect(await problemsOf(store)).toEqual([]);
  const { rows } = await store.disappearances(container, { limit: 10 });
  expect(rows).toMatchObject([{ id: 'x', cause: 'erasure' }]);
});

it('such an erasure does not wait for a delete of the item’s partition key, which waits for the erasure', async () => {
  const { store, container, erased, letGo } = await erasing('PartitionKeyDeleted');
  const deleted = store.deletePartitionKey(CALLER, container, '["p"]');
  await settled();
  const switched = switchOff(store);
  await store.advanceClock(1_000);
  letGo();
  await Promise.all([erased, deleted, switched]);
  expect(await problemsOf(store)).toEqual([]);
  const { rows } = await store.disappearances(container, { limit: 10 });
  expect(rows).toMatchObject([{ id: 'x', cause: 'expired' }]);
});

it('an erasure that waited for the vault records of an item whose container was deleted meanwhile that it ended with the container', async () => {
  const { store, container, erased, letGo } = await erasing('ContainerDeleted');
  await store.advanceClock(500);
  await store.deleteContainer(CALLER, 'd', 'c');
  const goneAtMs = store.containerByRid(container.rid)!.deletedAtMs!;
  await store.advanceClock(500);
  letGo();
  await erased;
  const { rows } = await store.disappearances(container, { limit: 10 });
  expect(rows).toMatchObject([{ id: 'x', cause: 'container-deleted', atMs: goneAtMs, purgedAtMs: store.nowMs() }]);
  const told = await store.explain(container, 'x', '["p"]');
  expect(told).toMatchObject({ state: 'purged', containerDeletedAtMs: goneAtMs, erasure: { requestedBy: 'somebody' } });
  expect((await store.certificate(container, 'x', '["p"]')).statement.cause).toBe('container-deleted');
  expect(await problemsOf(store)).toEqual([]);
});

it('an erasure on request is not dated before the end of the item, if the purge has recorded the end before it', async () => {
  const { store, container, slow } = await nineSecondsOn('ItemPurged');
  // The purge records the end then, and erases nothing.
  await store.setRecoveryWindow(CALLER, container, 3_600, 'mistakes');
  const waits = slow.begin();
  const erased = store.eraseItem(CALLER, container, 'x', '["p"]', { reason: 'asked for', requestedBy: 'somebody' });
  await waits;
  await store.advanceClock(1_000);
  const purged = store.runPurge();
  await expect.poll(async () => (await store.disappearances(container, { limit: 10 })).rows).toHaveLength(1);
  slow.end();
  await Promise.all([erased, purged]);
  const { rows } = await store.disappearances(container, { limit: 10 });
  expect(rows).toMatchObject([{ id: 'x', cause: 'expired', atMs: store.nowMs(), purgedAtMs: store.nowMs() }]);
  const { statement } = await store.certificate(container, 'x', '["p"]');
  expect(statement.erasedAtMs).toBe(statement.endedAtMs);
  expect(await problemsOf(store)).toEqual([]);
});
