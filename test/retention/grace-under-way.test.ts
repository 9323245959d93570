import { expect, it } from 'vitest';
import type { Store } from '@epitaph/api/store/store.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

/** Makes a step of the purge wait, once, when it is reached. */
class Gate {
  readonly #reached = Promise.withResolvers<void>();
  readonly #opened = Promise.withResolvers<void>();
  isShut = false;
  readonly reached = this.#reached.promise;

  async pass(): Promise<void> {
    if (!this.isShut) return;
    this.#reached.resolve();
    await this.#opened.promise;
  }

  open(): void {
    this.isShut = false;
    this.#opened.resolve();
  }
}

/** A store with an expired item, and a purge that has reached the gate. */
async function purging(
  change: (storage: SqliteStorage, gate: Gate) => void,
  options: { readonly byPolicyStart: boolean; readonly floorSeconds?: number } = { byPolicyStart: false },
) {
  const gate = new Gate();
  const { store } = await openInlineStore('grace-under-way', (storage) => change(storage, gate));
  await store.createDatabase(CALLER, 'd');
  const defaultTtl = options.byPolicyStart ? null : 10;
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, defaultTtl);
  const item = itemToWrite({ id: 'x', pk: 'p' });
  await store.writeItem(CALLER, container, 'create', item);
  if (options.floorSeconds !== undefined)
    await store.setRetentionFloor(CALLER, container, options.floorSeconds, 'a while');
  await store.advanceClock(11_000);
  if (options.byPolicyStart) await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 10, confirmed: false });
  gate.isShut = true;
  const purged = store.runPurge();
  await gate.reached;
  return { store, container, gate, purged };
}

const slowReads = ({ log }: SqliteStorage, gate: Gate): void => {
  const readStream = log.readStream.bind(log);
  log.readStream = async (stream, part) => {
    const events = await readStream(stream, part);
    if (stream.startsWith('item-')) await gate.pass();
    return events;
  };
};

const slowDestruction = ({ vault }: SqliteStorage, gate: Gate): void => {
  const destroyKeys = vault.destroyKeys.bind(vault);
  vault.destroyKeys = async (requests) => {
    await gate.pass();
    return destroyKeys(requests);
  };
};

const setWindow = (store: Store, container: ContainerState) =>
  store.setRecoveryWindow(CALLER, container, 3_600, 'something goes wrong');
const windowOf = (store: Store, { rid }: ContainerState) => store.containerByRid(rid)?.retention.recoveryWindowSeconds;

it('a purge that is about to erase an item leaves it if a recovery window is set meanwhile', async () => {
  const { store, container, gate, purged } = await purging(slowReads);
  const set = setWindow(store, container);
  await expect.poll(() => windowOf(store, container)).toBe(3_600);
  gate.open();
  await set;
  await purged;
  await store.recoverItem(CALLER, container, 'x', '["p"]', { reason: 'it was needed' });
  await expect(store.readItem(container, 'x', '["p"]')).resolves.toBeDefined();
});

it('the same goes for a policy grace, and the item is erased when the grace is over', async () => {
  const { store, container, gate, purged } = await purging(slowReads, { byPolicyStart: true });
  const set = store.setPolicyGrace(CALLER, 'd', 'c', 3_600, 'something goes wrong');
  await expect.poll(() => store.containerByRid(container.rid)?.policyGraceSeconds).toBe(3_600);
  gate.open();
  await set;
  await purged;
  expect((await store.explain(container, 'x', '["p"]')).state).toBe('expired');
  await store.advanceClock(3_600_000);
  await store.runPurge();
  expect((await store.explain(container, 'x', '["p"]')).state).toBe('purged');
});

it('setting a recovery window is answered only when erasures that began before are done', async () => {
  const { store, container, gate, purged } = await purging(slowDestruction);
  let isAnswered = false;
  const set = setWindow(store, container).then(() => (isAnswered = true));
  await expect.poll(() => windowOf(store, container)).toBe(3_600);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(isAnswered).toBe(false);
  gate.open();
  await set;
  expect((await store.explain(container, 'x', '["p"]')).state).toBe('purged');
  await purged;
});

it('a certificate states the checks that applied when the key was destroyed, even if they have changed since the purge began', async () => {
  const { store, container, gate, purged } = await purging(slowDestruction, { byPolicyStart: false, floorSeconds: 60 });
  await store.setRetentionFloor(CALLER, container, 5, 'less is enough');
  const set = setWindow(store, container);
  await expect.poll(() => windowOf(store, container)).toBe(3_600);
  gate.open();
  await set;
  await purged;
  const { statement } = await store.certificate(container, 'x', '["p"]');
  expect(statement.checks).toEqual({ holds: 0, floorSeconds: 5, graceSeconds: 0 });
});

it('an erasure on request that waits for a backup of the keys is dated when the content was erased, not when it was requested', async () => {
  const { store, storage, clock } = await openInlineStore('waiting-erasure');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (const document of [
    { id: 'stays', pk: 'p' },
    { id: 'expires', pk: 'p', ttl: 5 },
  ]) {
    const item = { id: document.id, partitionKey: '["p"]', document, json: JSON.stringify(document) };
    await store.writeItem(CALLER, container, 'create', item);
  }
  const copied = Promise.withResolvers<void>();
  const copying = storage.vault.whileCopying(() => copied.promise);
  const why = { reason: 'asked for it', requestedBy: 'a person' };
  const erased = ['stays', 'expires'].map((id) => store.eraseItem(CALLER, container, id, '["p"]', why));
  await expect.poll(() => store.containerByRid(container.rid)?.retention.erasures).toHaveLength(2);
  await new Promise((resolve) => setTimeout(resolve, 50));
  const shownAtMs = clock.advance(3_000);
  for (const id of ['stays', 'expires']) await store.readItem(container, id, '["p"]');
  const expiredAtMs = clock.advance(2_000);
  await expect(store.readItem(container, 'expires', '["p"]')).rejects.toMatchObject({ code: 'item-not-found' });
  clock.advance(5_000);
  copied.resolve();
  await copying;
  await Promise.all(erased);

  const stateAt = async (id: string, atMs: number) => (await store.explain(container, id, '["p"]', atMs)).state;
  expect([await stateAt('stays', shownAtMs), await stateAt('stays', clock.now())]).toEqual(['live', 'purged']);
  expect([await stateAt('expires', shownAtMs), await stateAt('expires', expiredAtMs)]).toEqual(['live', 'expired']);
  const statementOf = async (id: string) => (await store.certificate(container, id, '["p"]')).statement;
  const erasedAtMs = clock.now();
  expect(await statementOf('stays')).toMatchObject({ erasedAtMs, endedAtMs: erasedAtMs });
  expect(await statementOf('expires')).toMatchObject({ erasedAtMs, endedAtMs: expiredAtMs });
  expect((await store.fsck()).problems).toEqual([]);
});
