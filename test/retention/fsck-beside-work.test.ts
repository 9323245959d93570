import { setTimeout } from 'node:timers/promises';
import { afterEach, expect, it, vi } from 'vitest';
import { Store } from '@epitaph/api/store/store.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { SqliteEventLog } from '@epitaph/storage/sqlite/sqlite-event-log.ts';
import { SqliteKeyVault } from '@epitaph/storage/sqlite/sqlite-key-vault.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { holdBack } from './held-back.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

let close = async () => {};
afterEach(() => close());

/** The object, with one of its methods replaced. */
function withMethod<Target extends object, Name extends keyof Target>(
  object: Target,
  method: Name,
  other: Target[Name],
): Target {
  return new Proxy(object, {
    get(target, name) {
      if (name === method) return other;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** A store that calls `onPage` for every page read from its log, and that waits for `onDestroyed` after it has destroyed keys. */
async function open(
  onPage: (page: readonly RecordedEvent[]) => Promise<void> | void,
  onDestroyed: () => Promise<void> | void = () => {},
  onKeyAsked: (stream: string) => void = () => {},
): Promise<Store> {
  const folder = newFolder('fsck-beside-work');
  const storage = await openSqliteStorage({ folder, clock: 'manual', writers: 'inline', durable: false });
  const log = withMethod(storage.log, 'readAll', async (...args: Parameters<EventLog['readAll']>) => {
    const page = await storage.log.readAll(...args);
    await onPage(page);
    return page;
  });
  const asked = withMethod(storage.vault, 'findKey', (keyId: number, stream: string) => {
    onKeyAsked(stream);
    return storage.vault.findKey(keyId, stream);
  });
  const vault = withMethod(asked, 'destroyKeys', async (requests: Parameters<KeyVault['destroyKeys']>[0]) => {
    const outcomes = await storage.vault.destroyKeys(requests);
    await onDestroyed();
    return outcomes;
  });
  const store = await Store.open({
    ...storage,
    log,
    vault,
    clock: new ManualClock(START_MS, storage.highWaterMark),
    closePorts: () => storage.close(),
    policyGraceSeconds: 0,
    automaticPurge: false,
  });
  close = async () => {
    await store.close();
    removeFolder(folder);
  };
  return store;
}

interface Written {
  readonly id: string;
  readonly pk: string;
  readonly ttl?: number;
}

/** The same with a container and a function that writes to it. */
async function openWithContainer(...on: Parameters<typeof open>) {
  const store = await open(...on);
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const put = (document: Written) =>
    store.writeItem(CALLER, container, 'upsert', {
      id: document.id,
      partitionKey: JSON.stringify([document.pk]),
      document: { ...document },
      json: JSON.stringify(document),
    });
  return { store, container, put };
}

/** Work to be done once, after the next page is read. */
class Meanwhile {
  work: (() => Promise<void>) | undefined;

  readonly onPage = async (): Promise<void> => {
    const { work } = this;
    this.work = undefined;
    await work?.();
  };
}

it('holds only a few bodies, however many events it reads at a time', async () => {
  const pages: (readonly RecordedEvent[])[] = [];
  const { store, put } = await openWithContainer((page) => void pages.push(page));
  for (let index = 0; index < 40; index++) await put({ id: `${index}`, pk: 'p' });
  pages.length = 0;
  expect(await store.fsck()).toMatchObject({ events: 42, items: 40, problems: [] });
  expect(pages.flat().length).toBe(42);
  expect(pages.flat().filter(({ body }) => body !== undefined)).toEqual([]);
});

it('finishes the lives of a page before it reads the next, so that it never holds many', async () => {
  const lives = 1_100;
  const asked = new Map<string, number>();
  const askedAtPages: number[] = [];
  const { store, put } = await openWithContainer(
    () => void askedAtPages.push([...asked.values()].filter((times) => times > 1).length),
    undefined,
    (stream) => asked.set(stream, (asked.get(stream) ?? 0) + 1),
  );
  await Promise.all(Array.from({ length: lives }, (_, index) => put({ id: `${index}`, pk: 'p' })));
  askedAtPages.length = 0;
  asked.clear();
  expect(await store.fsck()).toMatchObject({ lives, problems: [] });
  // The key of each life is asked for twice: for its write and for the life.
  expect(askedAtPages).toEqual([0, 1_000 - 2, lives]);
});

it('reports its progress all the time, also while it reads the rows of the read models', async () => {
  const [present, gone] = [2_100, 1_100];
  const { store, container, put } = await openWithContainer(() => {});
  const putIn = (pk: string) => (_: unknown, index: number) => put({ id: `${index}`, pk });
  await Promise.all(Array.from({ length: present }, putIn('stays')));
  await Promise.all(Array.from({ length: gone }, putIn('leaves')));
  await store.deletePartitionKey(CALLER, container, '["leaves"]');
  const shares: number[] = [];
  await store.fsck((done, total) => void shares.push(done / total));
  expect(shares).toEqual(shares.toSorted((left, right) => left - right));
  expect(shares.at(-1)).toBe(1);
  // At most a thousand events, or a thousand rows, are between two reports. There are 3,200 of each, so that is about a sixth of the whole.
  const steps = shares.map((share, index) => share - (shares[index - 1] ?? 0));
  expect(Math.max(...steps)).toBeLessThan(0.2);
});

it('reports no problem with items that are written, end and are erased meanwhile', async () => {
  const meanwhile = new Meanwhile();
  const { store, container, put } = await openWithContainer(meanwhile.onPage);
  const write = (id: string, ttl = -1, pk = 'p') => put({ id, pk, ttl });
  for (const id of ['stays', 'written', 'deleted', 'erased']) await write(id);
  await write('of its partition', -1, 'q');
  await write('expires', 10);
  await write('had expired', 1);
  await store.advanceClock(1_000);
  await store.pausePurge(CALLER);

  const problems = async (work: () => Promise<void>) => {
    meanwhile.work = work;
    const found = (await store.fsck()).problems;
    expect(meanwhile.work).toBeUndefined();
    return found;
  };
  const found = await problems(async () => {
    await write('written');
    await write('new');
    await store.deleteItem(CALLER, container, 'deleted', '["p"]');
    await store.eraseItem(CALLER, container, 'erased', '["p"]', { reason: 'a test', requestedBy: 'somebody' });
    await store.deletePartitionKey(CALLER, container, '["q"]');
    await store.advanceClock(10_000);
  });
  expect(found).toEqual([]);
  await store.resumePurge(CALLER);
  expect(
    await problems(async () => {
      expect(await store.runPurge()).toMatchObject({ expired: 2, purged: 4 });
    }),
  ).toEqual([]);
  // The records of a run that has not ended, and what the next run erases and truncates.
  await write('short', 1);
  await store.advanceClock(1_000);
  await store.setRecoveryWindow(CALLER, container, 60, 'a test');
  await store.runPurge();
  expect(
    await problems(async () => {
      await store.setRecoveryWindow(CALLER, container, 0, 'a test');
      expect(await store.runPurge()).toMatchObject({ purged: 1 });
    }),
  ).toEqual([]);
});

/** From now on no change reaches the read models until fsck is done. */
const keepReadModelsBehind = () => holdBack(SqliteReadModelStore.prototype, 'apply', 'all');

it('reports no problem with an item that ends before its life is checked while the read models are behind', async () => {
  const { store, container, put } = await openWithContainer(() => {});
  for (let write = 0; write < 2; write++) await put({ id: 'a', pk: 'p' });
  // From this fsck on, the item's row is in the file.
  expect(await store.fsck()).toMatchObject({ items: 1, problems: [] });
  const behind = keepReadModelsBehind();
  const { readStream } = SqliteEventLog.prototype;
  let leaving: Promise<unknown> | undefined;
  const read = vi.spyOn(SqliteEventLog.prototype, 'readStream').mockImplementation(async function (
    this: unknown,
    ...of
  ) {
    const log = this as SqliteEventLog;
    const [stream] = of;
    if (leaving === undefined && stream.startsWith('item-')) {
      leaving = store.deleteItem(CALLER, container, 'a', '["p"]');
      while (log.readLast(stream)?.type !== 'ItemDeleted') await setTimeout(1);
    }
    return readStream.apply(log, of);
  });
  try {
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    behind.goOn();
    await leaving;
    behind.restore();
    read.mockRestore();
  }
  expect(leaving).toBeDefined();
  expect(await store.fsck()).toMatchObject({ items: 0, problems: [] });
});

it('reports no problem with a database that is deleted meanwhile while the read models are behind', async () => {
  const { store } = await openWithContainer(() => {});
  const behind = keepReadModelsBehind();
  const recorded = vi.spyOn(SqliteEventLog.prototype, 'append');
  const leaving = store.deleteDatabase(CALLER, 'd');
  try {
    await vi.waitFor(() => expect(recorded).toHaveResolved());
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    behind.goOn();
    await leaving;
    behind.restore();
    recorded.mockRestore();
  }
  expect(store.listDatabases()).toEqual([]);
  expect((await store.fsck()).problems).toEqual([]);
});

it('fails if the key vault is away for a moment, and reports no life as damaged', async () => {
  const away = new StorageUnavailable('the key vault is away');
  let asked = 0;
  const { store, put } = await openWithContainer(
    () => {},
    undefined,
    () => {
      asked += 1;
      if (asked === 1) throw away;
    },
  );
  for (const id of ['a', 'b']) await put({ id, pk: 'p' });
  asked = 0;
  await expect(store.fsck()).rejects.toBe(away);
  expect(await store.fsck()).toMatchObject({ lives: 2, problems: [] });
});

it('reports no problem with a hold that is released and a floor that is lowered meanwhile', async () => {
  const meanwhile = new Meanwhile();
  const { store, container } = await openWithContainer(meanwhile.onPage);
  await store.placeHold(CALLER, container, 'case', { scope: { kind: 'container' }, reason: 'a test' });
  await store.setRetentionFloor(CALLER, container, 100, 'a test');
  meanwhile.work = async () => {
    await store.releaseHold(CALLER, container, 'case', 'a test');
    await store.setRetentionFloor(CALLER, container, 50, 'a test');
  };
  expect((await store.fsck()).problems).toEqual([]);
  expect(meanwhile.work).toBeUndefined();
});

it('reports no problem with a hold that is released just before the vault is asked for it, time and again', async () => {
  const { store, container } = await openWithContainer(() => {});
  const cases = ['one', 'two', 'three'];
  for (const name of cases) {
    await store.placeHold(CALLER, container, name, { scope: { kind: 'container' }, reason: 'a test' });
  }
  const { holds } = SqliteKeyVault.prototype;
  const asked = vi.spyOn(SqliteKeyVault.prototype, 'holds').mockImplementation(function (this: SqliteKeyVault, ...of) {
    const name = cases.shift();
    const released = name === undefined ? undefined : store.releaseHold(CALLER, container, name, 'a test');
    // Answers later, like a vault on a server.
    return (async () => {
      await released;
      return holds.apply(this, of);
    })() as unknown as ReturnType<typeof holds>;
  });
  try {
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    asked.mockRestore();
  }
  expect(cases).toEqual([]);
});

it('reports no problem with a container that is changed before it is looked up in the catalog, and again after that', async () => {
  const { store, container } = await openWithContainer(() => {});
  const { containers } = SqliteReadModelStore.prototype;
  let looks = 0;
  const looked = vi.spyOn(SqliteReadModelStore.prototype, 'containers').mockImplementation(async function (
    this: SqliteReadModelStore,
  ) {
    // The first look comes before the log is read, so before the container's stream is met.
    const change = (looks += 1) === 2;
    if (change) await store.setRetentionFloor(CALLER, container, 100, 'a test');
    const rows = containers.call(this);
    if (change) await store.setRetentionFloor(CALLER, container, 200, 'a test');
    return rows;
  } as unknown as typeof containers);
  try {
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    looked.mockRestore();
  }
  expect(looks).toBeGreaterThan(1);
});

it('continues with the rebuilt read models if a rebuild swaps them in meanwhile', async () => {
  const meanwhile = new Meanwhile();
  const { store, put } = await openWithContainer(meanwhile.onPage);
  await put({ id: 'a', pk: 'p' });
  meanwhile.work = async () => {
    store.startRebuild('items');
    while (['running', 'comparing'].includes(store.rebuildStatus('items')!.state)) {
      await setTimeout(1);
    }
  };
  expect(await store.fsck()).toMatchObject({ ok: true, items: 1, problems: [] });
  expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' });
});

it('reports no problem with destroyed keys whose purge is not recorded yet', async () => {
  const found: unknown[] = [];
  const { store, container, put } = await openWithContainer(
    () => {},
    async () => {
      found.push(...(await store.fsck()).problems);
      looks += 1;
    },
  );
  let looks = 0;
  for (const id of ['erased', 'with its container']) await put({ id, pk: 'p' });
  await store.eraseItem(CALLER, container, 'erased', '["p"]', { reason: 'a test', requestedBy: 'somebody' });
  expect(looks).toBe(1);
  await store.deleteContainer(CALLER, 'd', 'c');
  await store.runPurge();
  expect(looks).toBe(2);
  const { resource: other } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const item = itemToWrite({ id: 'with its database', pk: 'p' });
  await store.writeItem(CALLER, other, 'create', item);
  await store.deleteDatabase(CALLER, 'd');
  await store.runPurge();
  expect(looks).toBe(3);
  expect(found).toEqual([]);
});

it('reports no problem with keys destroyed meanwhile, whose purge request came after it began', async () => {
  const meanwhile = new Meanwhile();
  const atKeys = Promise.withResolvers<void>();
  const examined = Promise.withResolvers<void>();
  let waits = 2;
  const { store, container, put } = await openWithContainer(meanwhile.onPage, async () => {
    waits -= 1;
    if (waits === 0) atKeys.resolve();
    await examined.promise;
  });
  const { resource: going } = await store.createContainer(CALLER, 'd', 'going', DEFINITION, -1);
  for (const id of ['stays', 'erased']) await put({ id, pk: 'p' });
  const item = itemToWrite({ id: 'with its container', pk: 'p' });
  await store.writeItem(CALLER, going, 'create', item);
  let done: Promise<unknown> = Promise.resolve();
  meanwhile.work = async () => {
    const why = { reason: 'a test', requestedBy: 'somebody' };
    await store.deleteContainer(CALLER, 'd', 'going');
    done = Promise.all([store.eraseItem(CALLER, container, 'erased', '["p"]', why), store.runPurge()]);
    await atKeys.promise;
  };
  const { problems } = await store.fsck();
  examined.resolve();
  await done;
  expect(problems).toEqual([]);
});

it('has sealed bodies removed that a purge has left in the log, once it has named them, unless the purge is paused', async () => {
  const { store, container, put } = await openWithContainer(() => {});
  await put({ id: 'a', pk: 'p' });
  await store.deleteItem(CALLER, container, 'a', '["p"]');
  // As if that node had died at this moment, and another had completed its run.
  const left = vi.spyOn(SqliteEventLog.prototype, 'truncateStream').mockResolvedValue();
  await store.runPurge();
  left.mockRestore();
  const found = async () => (await store.fsck()).problems.map(({ code }) => code);
  await store.pausePurge(CALLER);
  for (let look = 0; look < 2; look++) expect(await found()).toEqual(['writes-left-after-purge']);
  await store.resumePurge(CALLER);
  expect(await found()).toEqual(['writes-left-after-purge']);
  expect(await found()).toEqual([]);
});
