import { expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { TURN_MS } from '@epitaph/core/turn.ts';
import { BATCH_SIZE } from '@epitaph/projections/purge/executor.ts';
import { SqliteEventLog } from '@epitaph/storage/sqlite/sqlite-event-log.ts';
import { SqliteKeyVault } from '@epitaph/storage/sqlite/sqlite-key-vault.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('a store that closes waits for the container that the purge is looking at, and lets it look at no more', async () => {
  const folder = newFolder('many-containers');
  const faults: unknown[] = [];
  const store = await openEmbeddedStore({ folder, clock: 'system', onFault: (error) => faults.push(error) });
  let underWay = 0;
  const looked = vi.spyOn(SqliteReadModelStore.prototype, 'nextDeadlines').mockImplementation(
    (() =>
      new Promise((resolve) => {
        underWay += 1;
        setTimeout(() => {
          underWay -= 1;
          resolve({ ts: null, due: null });
        }, 20);
      })) as never,
  );
  try {
    await store.createDatabase(CALLER, 'd');
    for (let number = 0; number < 30; number++) {
      await store.createContainer(CALLER, 'd', `c${number}`, DEFINITION, 3600);
    }
    await expect.poll(() => looked.mock.calls.length, { interval: 1 }).toBeGreaterThan(0);
    await store.close();
    const looks = looked.mock.calls.length;
    expect([looks < 30, underWay]).toEqual([true, 0]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([looked.mock.calls.length, faults]).toEqual([looks, []]);
  } finally {
    vi.restoreAllMocks();
    await store.close();
    removeFolder(folder);
  }
});

it('the purge looks for overdue items only in containers that may have some', async () => {
  const folder = newFolder('many-containers');
  const store = await openEmbeddedStore({ folder, clock: 'system', policyGraceSeconds: 0 });
  const looked = vi.spyOn(SqliteReadModelStore.prototype, 'nextDeadlines');
  const asked = vi.spyOn(SqliteReadModelStore.prototype, 'overdueItems');
  const containersOf = ({ mock }: { readonly mock: { readonly calls: readonly (readonly unknown[])[] } }) =>
    new Set(mock.calls.map(([container]) => container)).size;
  try {
    await store.createDatabase(CALLER, 'd');
    for (let number = 0; number < 30; number++) {
      await store.createContainer(CALLER, 'd', `c${number}`, DEFINITION, 3600);
    }
    await expect.poll(() => containersOf(looked)).toBe(30);
    looked.mockClear();
    const container = store.container('d', 'c7');
    const item = itemToWrite({ id: 'i', pk: 'p', ttl: 1 });
    await store.writeItem(CALLER, container, 'create', item);
    const explained = () => store.explain(container, 'i', '["p"]');
    await expect.poll(async () => (await explained()).state).toBe('purged');
    expect([containersOf(looked), containersOf(asked)]).toEqual([1, 1]);
  } finally {
    vi.restoreAllMocks();
    await store.close();
    removeFolder(folder);
  }
});

/**
 * A store with containers of this many items each, all overdue.
 *
 * @param onAsked called each time the vault is asked to destroy keys, with the containers of their lives
 */
async function overdueIn(containers: readonly number[], onAsked: (rids: readonly string[]) => unknown) {
  const { store } = await openInlineStore('many-containers', ({ vault }) => {
    const destroyKeys = vault.destroyKeys.bind(vault);
    vault.destroyKeys = (requests, ...more) => {
      onAsked(requests.map(({ stream }) => parseItemStream(stream)!.containerRid));
      return destroyKeys(requests, ...more);
    };
  });
  await store.createDatabase(CALLER, 'd');
  const rids: string[] = [];
  for (const [number, items] of containers.entries()) {
    const { resource: container } = await store.createContainer(CALLER, 'd', `c${number}`, DEFINITION, 10);
    rids.push(container.rid);
    const writes = Array.from({ length: items }, (_, index) => {
      const item = itemToWrite({ id: `i${index}`, pk: 'p' });
      return store.writeItem(CALLER, container, 'create', item);
    });
    await Promise.all(writes);
  }
  await store.advanceClock(10_000);
  return { store, rids };
}

it('overdue items in many containers, a few in each, are purged together', async () => {
  const asked: number[] = [];
  const { store } = await overdueIn(
    Array.from({ length: 40 }, () => 1),
    (rids) => asked.push(rids.length),
  );
  expect(await store.runPurge()).toEqual({ expired: 40, purged: 40, heldBack: 0 });
  expect(asked.reduce((sum, lives) => sum + lives)).toBe(40);
  expect(asked.length).toBeLessThan(5);
});

it('a container with many overdue items does not delay others', async () => {
  const asked: string[] = [];
  const { store, rids } = await overdueIn([BATCH_SIZE * 3, 1], (some) => asked.push(...some));
  await store.runPurge();
  expect(asked).toHaveLength(BATCH_SIZE * 3 + 1);
  expect(asked.indexOf(rids[1]!)).toBeLessThan(BATCH_SIZE * 2);
});

it('fsck gives other work turns between containers, even if these are empty', async () => {
  const { store } = await openInlineStore('many-containers');
  await store.createDatabase(CALLER, 'd');
  for (let number = 0; number < 30; number++) await store.createContainer(CALLER, 'd', `c${number}`, DEFINITION, null);
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  const turnsBetween = async (work: { readonly prototype: object; readonly method: string }) => {
    const original = Reflect.get(work.prototype, work.method) as (...args: unknown[]) => unknown;
    const seen = new Set<number>();
    const spied = vi.spyOn(work.prototype as Record<string, () => unknown>, work.method as never);
    spied.mockImplementation(function (this: unknown, ...args: unknown[]) {
      seen.add(turns);
      const untilMs = performance.now() + TURN_MS + 1;
      while (performance.now() < untilMs);
      return original.apply(this, args);
    });
    isOver = false;
    setImmediate(count);
    expect(await store.fsck()).toMatchObject({ ok: true });
    isOver = true;
    spied.mockRestore();
    return seen.size;
  };
  // Reads for each container: its rows, its unrecorded ends, and its holds in the vault.
  expect(await turnsBetween({ prototype: SqliteReadModelStore.prototype, method: 'allItems' })).toBe(30);
  expect(await turnsBetween({ prototype: SqliteReadModelStore.prototype, method: 'unrecordedEnds' })).toBe(30);
  expect(await turnsBetween({ prototype: SqliteKeyVault.prototype, method: 'holds' })).toBe(30);
});

it('deleted containers without content take no time of the purge, the metrics or the start', async () => {
  const folder = newFolder('many-containers');
  let store = await openEmbeddedStore({ folder, clock: 'system', automaticPurge: false });
  try {
    await store.createDatabase(CALLER, 'd');
    for (const [name, items] of Object.entries({ gone: 0, purged: 1, kept: 0 })) {
      for (let number = 0; number < 5; number++) {
        await store.createContainer(CALLER, 'd', `${name}${number}`, DEFINITION, 3600);
        const item = itemToWrite({ id: 'i', pk: 'p' });
        const container = store.container('d', `${name}${number}`);
        if (items > 0) await store.writeItem(CALLER, container, 'create', item);
        if (name !== 'kept') await store.deleteContainer(CALLER, 'd', `${name}${number}`);
      }
    }
    expect(await store.runPurge()).toMatchObject({ purged: 5 });
    const kept = store.listContainers('d').map(({ rid }) => rid);
    const looked = new Set<unknown>();
    const { prototype } = SqliteReadModelStore;
    for (const method of ['endedLives', 'allItems', 'overdueItems', 'countEnded', 'countItems'] as const) {
      const original = prototype[method] as (...args: unknown[]) => never;
      vi.spyOn(prototype, method).mockImplementation(function (this: unknown, ...args: unknown[]) {
        looked.add(args[0]);
        return original.apply(this, args);
      });
    }
    const lookedAt = async (work: () => Promise<unknown>): Promise<number> => {
      looked.clear();
      await work();
      return looked.size;
    };
    expect(await lookedAt(() => store.runPurge())).toBe(5);
    expect(await lookedAt(() => store.purgeBacklogs())).toBe(5);
    expect((await store.purgeBacklogs()).map(({ container }) => container.rid)).toEqual(kept);
    await store.close();
    looked.clear();
    store = await openEmbeddedStore({ folder, clock: 'system' });
    await expect.poll(() => looked.size).toBe(5);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(looked.size).toBe(5);
  } finally {
    vi.restoreAllMocks();
    await store.close();
    removeFolder(folder);
  }
});

it('creating a container under a name that was used before does not read the events of the former containers', async () => {
  const folder = newFolder('many-containers');
  const store = await openEmbeddedStore({ folder, clock: 'system', automaticPurge: false });
  try {
    const rids = new Set<string>();
    for (let number = 0; number < 10; number++) {
      const { resource } = await store.createDatabase(CALLER, 'd');
      rids.add(resource.rid);
      for (let incarnation = 0; incarnation < 10; incarnation++) {
        rids.add((await store.createContainer(CALLER, 'd', 'c', DEFINITION, 3600)).resource.rid);
        await expect(store.createContainer(CALLER, 'd', 'c', DEFINITION, 3600)).rejects.toMatchObject({
          code: 'already-exists',
        });
        await store.deleteContainer(CALLER, 'd', 'c');
      }
      await expect(store.createDatabase(CALLER, 'd')).rejects.toMatchObject({ code: 'already-exists' });
      if (number < 9) await store.deleteDatabase(CALLER, 'd');
    }
    expect(rids.size).toBe(110);
    const read = vi.spyOn(SqliteEventLog.prototype, 'readStream');
    await store.createContainer(CALLER, 'd', 'c', DEFINITION, 3600);
    expect(read).toHaveBeenCalledTimes(1);
    await store.deleteDatabase(CALLER, 'd');
    read.mockClear();
    await store.createDatabase(CALLER, 'd');
    expect(read).toHaveBeenCalledTimes(1);
  } finally {
    vi.restoreAllMocks();
    await store.close();
    removeFolder(folder);
  }
});

it('items erased while they are counted are not reported as in grace if there is no grace', async () => {
  const { store } = await openInlineStore('many-containers');
  // Those that ended by a policy's start, the others, and the same again.
  const counts = [0, 10, 4, 4];
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    vi.spyOn(SqliteReadModelStore.prototype, 'countEnded').mockImplementation(() => counts.shift()!);
    expect(await store.purgeStatus()).toMatchObject({ awaitingErasure: 10, inGrace: 0, heldBack: 0 });
  } finally {
    vi.restoreAllMocks();
    await store.close();
  }
});
