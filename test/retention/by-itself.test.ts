import { renameSync } from 'node:fs';
import { expect, it, onTestFinished, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { metricsText } from '@epitaph/api/metrics/metrics.ts';
import { SqliteKeyVault } from '@epitaph/storage/sqlite/sqlite-key-vault.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

/** A store with one container, closed after the test. */
async function newStore(onFault: (error: unknown) => void = () => {}) {
  const folder = newFolder('by-itself');
  const store = await openEmbeddedStore({ folder, clock: 'system', policyGraceSeconds: 0, durable: false, onFault });
  onTestFinished(async () => {
    vi.restoreAllMocks();
    await store.close();
    removeFolder(folder);
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  return { folder, store, container };
}

it('the purge erases by itself what a hold kept, once it is released, and what expired while the store was down', async () => {
  const folder = newFolder('by-itself');
  const open = () => openEmbeddedStore({ folder, clock: 'system', policyGraceSeconds: 0, durable: false });
  let store = await open();
  onTestFinished(async () => {
    await store.close();
    removeFolder(folder);
  });
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const container = () => store.container('d', 'c');
  const write = (id: string) => {
    const item = itemToWrite({ id, pk: 'p', ttl: 1 });
    return store.writeItem(CALLER, container(), 'create', item);
  };
  const purged = (id: string) =>
    expect
      .poll(async () => (await store.explain(container(), id, '["p"]')).state, { timeout: 10_000, interval: 100 })
      .toBe('purged');
  await write('held');
  const scope = { kind: 'items', items: [{ id: 'held', partitionKey: '["p"]' }] } as const;
  await store.placeHold(CALLER, container(), 'h', { scope, reason: 'case 7' });
  await write('free');
  await purged('free');
  await expect.poll(async () => (await store.purgeStatus()).heldBack).toBe(1);
  // Until then the purge leaves the item alone, and does not search for it at every look at the clock.
  const looking = vi.spyOn(SqliteReadModelStore.prototype, 'endedLives');
  const looksInASecond = async () => {
    looking.mockClear();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    return looking.mock.calls.length;
  };
  await expect.poll(looksInASecond).toBe(0);
  looking.mockRestore();
  await store.releaseHold(CALLER, container(), 'h', 'case 7 is closed');
  await purged('held');
  await write('late');
  await store.close();
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  store = await open();
  await purged('late');
}, 60_000);

it('the purge erases by itself what a floor kept, as soon as the floor is over', async () => {
  const { store, clock } = await openInlineStore('floor-passed', () => {}, { automaticPurge: true });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
  await store.setRetentionFloor(CALLER, container, 70, 'tax law');
  await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  clock.advance(61_000);
  await expect.poll(() => store.purgeStatus()).toMatchObject({ state: 'idle', heldBack: 1 });
  clock.advance(10_000);
  await expect
    .poll(() => store.explain(container, 'a', '["p"]'), { timeout: 4_000 })
    .toMatchObject({ state: 'purged' });
});

it('the purge erases at once what a hold kept, although it asked the vault once more between the record of the release and the release', async () => {
  const { store, container } = await newStore();
  const item = itemToWrite({ id: 'held', pk: 'p', ttl: 1 });
  await store.writeItem(CALLER, container, 'create', item);
  const scope = { kind: 'items', items: [{ id: 'held', partitionKey: '["p"]' }] } as const;
  await store.placeHold(CALLER, container, 'h', { scope, reason: 'case 7' });
  await expect.poll(async () => (await store.purgeStatus()).heldBack).toBe(1);
  const { releaseHold } = SqliteKeyVault.prototype;
  vi.spyOn(SqliteKeyVault.prototype, 'releaseHold').mockImplementationOnce(async function (
    this: SqliteKeyVault,
    holdId,
  ) {
    // The release is recorded, and makes the purge look again.
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    await releaseHold.call(this, holdId);
  });
  await store.releaseHold(CALLER, container, 'h', 'case 7 is closed');
  await expect
    .poll(async () => (await store.explain(container, 'held', '["p"]')).state, { timeout: 10_000, interval: 100 })
    .toBe('purged');
}, 60_000);

it('an automatic purge that fails reports that, pauses, and runs again', async () => {
  const faults: unknown[] = [];
  const { store, container } = await newStore((error) => void faults.push(error));
  const fault = new Error('the vault is away');
  const askedAtMs: number[] = [];
  const { destroyKeys } = SqliteKeyVault.prototype;
  vi.spyOn(SqliteKeyVault.prototype, 'destroyKeys').mockImplementation(async function (this: SqliteKeyVault, requests) {
    askedAtMs.push(performance.now());
    if (askedAtMs.length === 1) throw fault;
    return destroyKeys.call(this, requests);
  });
  const item = itemToWrite({ id: 'one', pk: 'p', ttl: 1 });
  await store.writeItem(CALLER, container, 'create', item);
  const explained = async () => (await store.explain(container, 'one', '["p"]')).state;
  await expect.poll(explained).toBe('purged');
  expect(faults).toEqual([fault]);
  expect(askedAtMs).toHaveLength(2);
  expect(askedAtMs[1]! - askedAtMs[0]!).toBeGreaterThan(1_900);
}, 60_000);

it('a purge that can’t erase reports that, even if nothing is overdue', async () => {
  const faults: unknown[] = [];
  const { folder, store, container } = await newStore((error) => void faults.push(error));
  const item = itemToWrite({ id: 'due', pk: 'p' });
  await store.writeItem(CALLER, container, 'create', item);
  expect(await metricsText(store)).toMatch(/^epitaph_purge_faults_total 0$/m);
  renameSync(`${folder}/purge-ledger.ndjson`, `${folder}/elsewhere`);
  await store.deleteItem(CALLER, container, 'due', '["p"]');
  await expect.poll(async () => (await store.purgeStatus()).faults).toBeGreaterThan(0);
  expect(await store.purgeStatus()).toMatchObject({ overdueItems: 0, awaitingErasure: 1, purgedTotal: 0 });
  expect(faults[0]).toMatchObject({ message: expect.stringContaining('purge-ledger.ndjson') as string });
  expect(await metricsText(store)).toMatch(/^epitaph_purge_faults_total [1-9]/m);
}, 60_000);
