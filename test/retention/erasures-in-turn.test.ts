import { expect, it, vi } from 'vitest';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore, SlowWrite } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const REQUEST = { reason: 'article 17', requestedBy: 'desk 3' };

/** A store with an item whose write is in progress until the test completes it. */
async function openWorld(name: string, change: (storage: SqliteStorage) => void = () => {}) {
  let slow!: SlowWrite;
  const { store } = await openInlineStore(name, (storage) => {
    change(storage);
    slow = new SlowWrite(storage.log);
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const item = itemToWrite({ id: 'a', pk: 'p' });
  const write = () => store.writeItem(CALLER, container, 'upsert', item);
  await write();
  const waits = slow.begin();
  const written: Promise<unknown>[] = [write()];
  await waits;
  const erase = () => store.eraseItem(CALLER, container, 'a', '["p"]', REQUEST);
  /** Waits until this many erasures are recorded as requested. */
  const requested = async (count: number) => {
    const isRequest = ({ type }: { readonly type: string }) => type === 'ErasureRequested';
    await expect.poll(async () => (await store.containerHistory(container)).filter(isRequest)).toHaveLength(count);
  };
  return { store, container, write, written, say: () => slow.end(), erase, requested };
}

it('an erasure that waits for writes is dated after them', async () => {
  const { store, container, write, written, say, erase, requested } = await openWorld('erasure-dated');
  const { ts } = await store.readItem(container, 'a', '["p"]');
  written.push(write());
  const erasing = erase();
  await requested(1);
  await store.advanceClock(10_000);
  say();
  await Promise.all(written);
  expect(await erasing).toMatchObject({ erasedLives: 1 });
  const history = await store.history(container, 'a', '["p"]');
  expect(history.map(({ occurredAtMs }) => occurredAtMs)).toEqual(
    history.map(({ occurredAtMs }) => occurredAtMs).toSorted((one, other) => one - other),
  );
  expect((await store.explain(container, 'a', '["p"]', (ts + 5) * 1000)).state).toBe('live');
});

it('the outcome of an erasure does not complete another one in progress', async () => {
  const { store, container, write, written, say, erase, requested } = await openWorld('erasure-under-way');
  const erasing = [erase()];
  await requested(1);
  written.push(write());
  erasing.push(erase());
  await requested(2);
  say();
  await Promise.all(written);
  expect(await Promise.all(erasing)).toMatchObject([{ erasedLives: 1 }, { erasedLives: 2 }]);
  const ends = (await store.containerHistory(container)).filter(({ type }) => type === 'ErasureCompleted');
  expect(ends.map(({ data }) => data)).toMatchObject([{ erasedLives: 1 }, { erasedLives: 2 }]);
});

it('an erasure interrupted by a fault records what it has destroyed, also of a life that began after its request', async () => {
  let failed = false;
  const { store, container, write, written, say, erase, requested } = await openWorld(
    'erasure-cut-short',
    ({ log }) => {
      const append = log.append.bind(log);
      log.append = (...[appends, options]: Parameters<typeof append>) => {
        const [{ stream, events }] = appends as [(typeof appends)[number]];
        if (failed || !stream.endsWith('.1') || events[0]!.type !== 'ItemPurged') return append(appends, options);
        failed = true;
        throw new Error('the log is away');
      };
    },
  );
  written.push(store.deleteItem(CALLER, container, 'a', '["p"]'), write());
  const erasing = erase();
  await requested(1);
  say();
  await Promise.all(written);
  await expect(erasing).rejects.toThrow('the log is away');
  const isOutcome = ({ type }: { readonly type: string }) => type === 'ErasureCompleted';
  await expect.poll(async () => (await store.containerHistory(container)).filter(isOutcome)).toHaveLength(1);
  expect((await store.fsck()).problems).toEqual([]);
  expect(await store.explain(container, 'a', '["p"]')).toMatchObject({ state: 'purged' });
  await write();
});

/** A deleted item that can be recovered. A fault of the vault interrupts its erasure before it destroys a key. */
async function openDeleted(name: string) {
  let slow!: SlowWrite;
  const { store } = await openInlineStore(name, ({ log, vault }) => {
    slow = new SlowWrite(log, 'ItemRecovered');
    vi.spyOn(vault, 'destroyKeys').mockRejectedValueOnce(new Error('the vault is away'));
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  await store.setRecoveryWindow(CALLER, container, 3_600, 'mistakes of an hour');
  const item = itemToWrite({ id: 'a', pk: 'p' });
  await store.writeItem(CALLER, container, 'upsert', item);
  await store.deleteItem(CALLER, container, 'a', '["p"]');
  const erase = () => expect(store.eraseItem(CALLER, container, 'a', '["p"]', REQUEST)).rejects.toThrow('away');
  const recover = () => store.recoverItem(CALLER, container, 'a', '["p"]', { reason: 'a mistake' });
  const types = async () => (await store.containerHistory(container)).map(({ type }) => type);
  const over = () => expect.poll(types).toContain('ErasureCompleted');
  const states = async () => {
    const history = await store.history(container, 'a', '["p"]');
    return [0, 1].map((life) => history.findLast((event) => event.life === life)?.type);
  };
  return { slow, erase, recover, types, over, states };
}

it('an item whose erasure was interrupted and is still to be carried out can’t be recovered', async () => {
  const { erase, recover, over, states } = await openDeleted('erasure-then-recovery');
  await erase();
  await expect(recover()).rejects.toMatchObject({ code: 'content-erased' });
  await over();
  expect(await states()).toEqual(['ItemPurged', undefined]);
});

it('an interrupted erasure erases what was recovered while it was requested', async () => {
  const { slow, erase, recover, types, over, states } = await openDeleted('erasure-beside-recovery');
  const waits = slow.begin();
  const recovering = recover();
  await waits;
  const erasing = erase();
  await expect.poll(types).toContain('ErasureRequested');
  slow.end();
  await recovering;
  await erasing;
  await over();
  expect(await states()).toEqual(['ItemPurged', 'ItemPurged']);
});

it('an erasure that can’t reach the vault reports that, and stays to be carried out', async () => {
  let comesToIt = false;
  const { store, container, written, say, erase } = await openWorld('erasure-busy', ({ vault }) => {
    const destroyKeys = vault.destroyKeys.bind(vault);
    vault.destroyKeys = (requests) =>
      comesToIt ? destroyKeys(requests) : Promise.resolve(requests.map(() => ({ kind: 'not-due' as const })));
  });
  say();
  await Promise.all(written);
  await expect(erase()).rejects.toMatchObject({ code: 'busy' });
  expect((await store.explain(container, 'a', '["p"]')).state).toBe('live');
  comesToIt = true;
  await expect.poll(async () => (await store.explain(container, 'a', '["p"]')).state).toBe('purged');
});
