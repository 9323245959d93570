import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, expect, it, vi } from 'vitest';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { DEFAULT_THROUGHPUT } from '@epitaph/core/throughput/throughput.ts';
import { turn } from '@epitaph/core/turn.ts';
import { BATCH_SIZE } from '@epitaph/projections/purge/executor.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { holdBack } from './held-back.ts';
import { openInlineStore, SlowWrite } from './inline-store.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

const folder = newFolder('failing-pass');
const other = newFolder('failing-pass');
const unseen = newFolder('failing-pass');
const paused = newFolder('failing-pass');
const kept = newFolder('failing-pass');
afterAll(() => {
  for (const each of [folder, other, unseen, paused, kept]) removeFolder(each);
});

/** One step of a pass records or erases many items at the same time, over several turns of the event loop. */
it('a pass of the purge that fails in the log ends only once all of its work has ended', async () => {
  const { store, log, storage } = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  try {
    await store.createDatabase(CALLER, 'd');
    // After the start of the run come the ends. Those of the second batch are recorded while the first is erased.
    for (const write of [1, BATCH_SIZE + 10]) {
      const { resource: container } = await store.createContainer(CALLER, 'd', `c${write}`, DEFINITION, 100);
      for (let index = 0; index < 2 * BATCH_SIZE; index++) {
        const item = itemToWrite({ id: `i${index}`, pk: 'p' });
        await store.writeItem(CALLER, container, 'create', item);
      }
      await store.advanceClock(200_000);
      log.failAt(write, 'before');
      await expect(store.runPurge()).rejects.toThrow('the log failed before the write');
      const head = await storage.log.head();
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(await storage.log.head()).toBe(head);
      await store.runPurge();
      expect(await store.explain(container, 'i500', '["p"]')).toMatchObject({ state: 'purged' });
    }
  } finally {
    await store.close();
  }
});

it('a run whose end is recorded, although recording it failed, is not continued', async () => {
  const { store, log, storage } = await openEmbedded({
    folder: other,
    time: START_MS,
    newId: () => crypto.randomUUID(),
  });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
    for (const [id, ttl] of [
      ['expires', 1],
      ['stays', -1],
    ] as const) {
      const item = itemToWrite({ id, pk: 'p', ttl });
      await store.writeItem(CALLER, container, 'create', item);
    }
    await store.advanceClock(200_000);
    // Started, expired, purged, truncated, and then the end of the run.
    log.failAt(4, 'after');
    await expect(store.runPurge()).rejects.toThrow('the log failed after the write');
    // The last write of this item is older than that run.
    await store.deleteItem(CALLER, container, 'stays', '["p"]');
    await store.runPurge();
    const events = await storage.log.readAll(0, 100, { withBodies: false });
    const purged = ['PurgeRunStarted', 'ItemPurged', 'PurgeRunCompleted'];
    expect(events.map(({ type }) => type).filter((type) => purged.includes(type))).toEqual([...purged, ...purged]);
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    await store.close();
  }
});

it('once its pause is recorded, the purge erases no more, even if the pause is not visible to readers in time', async () => {
  const newId = () => crypto.randomUUID();
  const { store, storage } = await openEmbedded({ folder: unseen, time: START_MS, newId });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
    const item = itemToWrite({ id: 'i', pk: 'p' });
    await store.writeItem(CALLER, container, 'create', item);
    await store.advanceClock(200_000);
    const readModel = storage.readModels.current.store;
    readModel.apply = () => Promise.reject(new StorageUnavailable('away'));
    await expect(store.pausePurge(CALLER)).rejects.toThrow('away');
    Reflect.deleteProperty(readModel, 'apply');
    expect(await store.purgeStatus()).toMatchObject({ state: 'paused' });
    expect(await store.runPurge()).toMatchObject({ expired: 0, purged: 0 });
  } finally {
    await store.close();
  }
}, 20_000);

it('a purge in progress does nothing more once a pause is acknowledged', async () => {
  const newId = () => crypto.randomUUID();
  const { store, storage } = await openEmbedded({ folder: paused, time: START_MS, newId });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
    for (let index = 0; index < 2 * BATCH_SIZE; index++) {
      const item = itemToWrite({ id: `i${index}`, pk: 'p' });
      await store.writeItem(CALLER, container, 'create', item);
    }
    await store.advanceClock(200_000);
    const before = await storage.log.head();
    const pass = store.runPurge();
    while ((await storage.log.head()) < before + 10) await turn();
    await store.pausePurge(CALLER);
    const head = await storage.log.head();
    expect(await pass).toMatchObject({ purged: 0 });
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await storage.log.head()).toBe(head);
    await store.resumePurge(CALLER);
    expect(await store.runPurge()).toMatchObject({ purged: 2 * BATCH_SIZE });
  } finally {
    await store.close();
  }
}, 20_000);

/** A store with overdue items. */
async function withOverdue(name: string, ids: readonly string[]) {
  const opened = await openInlineStore(name);
  const { store, clock } = opened;
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
  for (const id of ids) await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  clock.advance(61_000);
  return opened;
}

it('a pass that can’t remove erased bodies from the log reports that, and the next pass removes them', async () => {
  const { store, storage } = await withOverdue('left-in-log', ['a']);
  vi.spyOn(storage.log, 'truncateStream').mockRejectedValueOnce(new StorageUnavailable('the disk is away'));
  await expect(store.runPurge()).rejects.toThrow('the disk is away');
  expect((await store.purgeRuns(0, 10)).runs).toMatchObject([{ completedAtMs: null }]);
  await store.runPurge();
  expect((await store.fsck()).problems).toEqual([]);
});

it('a requested pass ends when the store closes: after the batch in progress, which is waited for', async () => {
  const { store, storage } = await withOverdue('closed-under-way', ['a', 'b']);
  const held = holdBack(storage.vault, 'destroyKeys', 'next');
  const pass = store.runPurge();
  while (!held.hasCome()) await turn();
  let isClosed = false;
  const closing = store.close().then(() => (isClosed = true));
  for (let turns = 0; turns < 50; turns++) await turn();
  expect(isClosed).toBe(false);
  held.goOn();
  expect(await pass).toMatchObject({ expired: 2, purged: 2 });
  await closing;
});

it('a cancelled pass ends after the batch in progress, and the next one does the rest', async () => {
  const { store, storage } = await withOverdue('called-off', ['a', 'b']);
  const slow = new SlowWrite(storage.log, 'ItemExpired');
  const isRecorded = slow.begin();
  const calledOff = new AbortController();
  const pass = store.runPurge({ signal: calledOff.signal });
  await isRecorded;
  calledOff.abort();
  slow.end();
  expect(await pass).toEqual({ expired: 2, purged: 0, heldBack: 0 });
  expect(await store.runPurge()).toEqual({ expired: 0, purged: 2, heldBack: 0 });
});

it('a pass no longer waits for request units when it is cancelled, the purge is paused, or the store closes', async () => {
  const { store, clock } = await openInlineStore('unpaid');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60, DEFAULT_THROUGHPUT);
  await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  store.requestUnits.admit(container, 'query').charge(1_000_000);
  clock.advance(61_000);
  const calledOff = new AbortController();
  const ends = [async () => calledOff.abort(), () => store.pausePurge(CALLER), () => store.close()];
  for (const end of ends) {
    const pass = store.runPurge(calledOff.signal.aborted ? {} : { signal: calledOff.signal });
    await expect.poll(async () => (await store.purgeStatus()).state).toBe('waiting-for-request-units');
    await end();
    expect(await Promise.race([pass, wait(2_000, 'it still waits')])).toMatchObject({ expired: 0, purged: 0 });
    if (end !== ends.at(-1)) await store.resumePurge(CALLER);
  }
});

it('an erasure whose record failed is recorded by the next pass, even if a recovery window set since would keep the item', async () => {
  const { store, log } = await openEmbedded({ folder: kept, time: START_MS, newId: () => crypto.randomUUID() });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'x', pk: 'p' }));
    await store.deleteItem(CALLER, container, 'x', '["p"]');
    await store.advanceClock(1_000);
    // After the start of the run.
    log.failAt(1, 'before');
    await expect(store.runPurge()).rejects.toThrow('the log failed before the write');
    await store.setRecoveryWindow(CALLER, container, 3_600, 'a test');
    await store.runPurge();
    expect((await store.explain(container, 'x', '["p"]')).state).toBe('purged');
  } finally {
    await store.close();
  }
});
