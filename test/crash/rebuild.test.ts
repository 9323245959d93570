import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';
import type { RebuildRequest } from '@epitaph/api/store/api/operations-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { EventLog, LogListener } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { turn } from '@epitaph/core/turn.ts';
import { TailSubscription } from '@epitaph/core/log/tail-subscription.ts';
import { Projector } from '@epitaph/projections/projector.ts';
import { rebuild, type RebuildOptions } from '@epitaph/projections/rebuild.ts';
import type { ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import { openSqliteStorage, type SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { StorageFault } from '@epitaph/storage/sqlite/writer.ts';
import { copyAsKilled, newFolder, removeFolder } from '../simulation/embedded.ts';
import { zeroTable } from '../support/damage.ts';
import { openInlineStore } from '../retention/inline-store.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';

const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000001' };
/** More items than two batches of a rebuild hold. */
const ITEMS = 4_800;

const openStore = (folder: string) =>
  openEmbeddedStore({ folder, clock: 'manual', writers: 'inline', durable: false, policyGraceSeconds: 0 });
const openStorage = (folder: string, onStep?: (step: string) => void) =>
  openSqliteStorage({ folder, clock: 'manual', writers: 'inline', durable: false, ...(onStep && { onStep }) });

function write(store: Store, container: ReturnType<Store['container']>, id: string) {
  return store.writeItem(CALLER, container, 'upsert', itemToWrite({ id, pk: 'p' }));
}

/**
 * Two containers with items that exist, items that were replaced, and items that have ended.
 *
 * @param unpurged the folder that gets a copy of the state before the purge
 */
async function fill(folder: string, unpurged: string): Promise<void> {
  const store = await openStore(folder);
  await store.createDatabase(CALLER, 'db');
  for (const name of ['one', 'two']) {
    const { resource } = await store.createContainer(CALLER, 'db', name, DEFINITION, null);
    const ids = Array.from({ length: ITEMS / 2 }, (_, index) => `item ${index}`);
    await Promise.all(ids.map((id) => write(store, resource, id)));
    await Promise.all(ids.filter((_, index) => index % 2 === 0).map((id) => write(store, resource, id)));
    await Promise.all(
      ids.filter((_, index) => index % 5 === 0).map((id) => store.deleteItem(CALLER, resource, id, '["p"]')),
    );
  }
  copyAsKilled(folder, unpurged);
  await store.runPurge();
  await store.close();
}

/** A view of the target in which some members are replaced. */
function otherwise<Target extends object>(target: Target, members: Partial<Target>): Target {
  return new Proxy(target, {
    get(_, name) {
      if (name in members) return members[name as keyof Target];
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

const run = (storage: SqliteStorage, options: Partial<RebuildOptions> = {}) =>
  rebuild({
    ...storage,
    versions: storage.readModels,
    signal: new AbortController().signal,
    keepsWhenAborted: () => false,
    monotonicMs: () => performance.now(),
    wait: () => Promise.resolve(),
    onProgress: () => {},
    whileProjectorStops: (step) => step(),
    ...options,
  });

async function digestsOf(store: ReadModelStore) {
  const snapshot = await store.snapshot();
  try {
    return await snapshot.digests();
  } finally {
    await snapshot.close();
  }
}

/** A log that notes the positions from which it is read. */
function watched(log: EventLog, from: number[]): EventLog {
  return new Proxy(log, {
    get: (target, name) => {
      if (name === 'readAll') {
        return (...args: Parameters<EventLog['readAll']>) => {
          from.push(args[0]);
          return target.readAll(...args);
        };
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/**
 * A log that still has truncated events, as a server's log has until it is scavenged. Reads that do not accept truncated events don't get
 * them.
 */
function unscavenged(log: EventLog, left: readonly RecordedEvent[], strictReads: number[]): EventLog {
  const readAll: EventLog['readAll'] = async (after, maxCount, options = {}) => {
    const standing = await log.readAll(after, maxCount, options);
    if (options.mayBeTruncated !== true) {
      strictReads.push(after);
      return standing;
    }
    const positions = new Set(standing.map(({ position }) => position));
    const more = left.filter(({ position }) => position > after && !positions.has(position));
    const all = [...standing, ...more].toSorted((one, other) => one.position - other.position);
    return all.slice(0, maxCount);
  };
  return new Proxy(log, {
    get: (target, name) => {
      if (name === 'readAll') return readAll;
      if (name === 'subscribe') {
        return (after: number, listener: LogListener, options: object) => {
          const reader = {
            readAll: (...[from, count]: Parameters<EventLog['readAll']>) => readAll(from, count, options),
            head: () => target.head(),
          };
          const subscription = new TailSubscription(reader, after, listener, () => {});
          subscription.start();
          return subscription;
        };
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** All events of a log, without bodies. */
async function everythingIn(folder: string): Promise<readonly RecordedEvent[]> {
  const storage = await openStorage(folder);
  const events = await storage.log.readAll(0, Number.MAX_SAFE_INTEGER, { withBodies: false });
  await storage.close();
  return events;
}

async function rebuilt(store: Store, request?: RebuildRequest) {
  store.startRebuild('items', request);
  for (;;) {
    const status = store.rebuildStatus('items')!;
    if (status.state !== 'running' && status.state !== 'comparing') return status;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

const source = newFolder('rebuild-source');
const unpurged = newFolder('rebuild-unpurged');
let folder: string;

beforeAll(() => fill(source, unpurged), 60_000);
afterAll(() => [source, unpurged].forEach(removeFolder));
beforeEach(() => {
  folder = newFolder('rebuild');
  copyAsKilled(source, folder);
});
afterEach(() => removeFolder(folder));

describe('a crash at any step of a rebuild', () => {
  it('leaves a store that converges, and the next rebuild continues from where the crashed one had got', async () => {
    const wrecks: { readonly folder: string; readonly step: string }[] = [];
    const wreckage = newFolder('rebuild-wrecks');
    try {
      const storage = await openStorage(folder, (step) => {
        const wreck = join(wreckage, String(wrecks.length));
        copyAsKilled(folder, wreck);
        wrecks.push({ folder: wreck, step });
      });
      const contents = await digestsOf(storage.readModels.current.store);
      await run(storage);
      await storage.close();
      const resumedFrom = new Set<number>();
      for (const { folder: wreck, step } of wrecks) {
        const recovered = await openStorage(wreck);
        const { unfinished, current } = recovered.readModels;
        expect(await digestsOf(current.store), step).toEqual(contents);
        const from: number[] = [];
        const { differences } = await run(recovered, { log: watched(recovered.log, from) });
        expect(differences, step).toEqual({ count: 0, named: [] });
        if (unfinished !== undefined) {
          // The next rebuild starts neither from the beginning nor after a gap.
          expect(from.every((position) => position >= unfinished.position)).toBe(true);
          resumedFrom.add(unfinished.position);
        }
        expect(await digestsOf(recovered.readModels.current.store), step).toEqual(contents);
        await recovered.close();
      }
      // The five are: nothing built, one batch, two, three, and everything.
      expect(resumedFrom.size).toBe(5);
      expect(wrecks.some(({ step }) => step === 'read model swap: after')).toBe(true);
    } finally {
      removeFolder(wreckage);
    }
  }, 60_000);

  it('also when it hits the rebuild that continues after a crash', async () => {
    const [first, second] = [newFolder('rebuild-first'), newFolder('rebuild-second')];
    const killAt = async (at: string, to: string, number: number) => {
      let seen = 0;
      const storage = await openStorage(at, (step) => {
        if (step === 'read model: after commit') seen += 1;
        if (seen === number) copyAsKilled(at, to);
        if (seen === number) seen += 1;
      });
      await run(storage);
      await storage.close();
    };
    await killAt(folder, first, 1);
    await killAt(first, second, 1);
    const storage = await openStorage(second);
    expect(storage.readModels.unfinished!.position).toBeGreaterThan(4_000);
    expect((await run(storage)).differences).toEqual({ count: 0, named: [] });
    await storage.close();
    for (const used of [first, second]) removeFolder(used);
  });

  it('is reported by the store, in which the rebuild can be continued or cancelled', async () => {
    const killed = newFolder('rebuild-killed');
    const storage = await openStorage(folder, (step) => {
      if (step === 'read model swap: before') copyAsKilled(folder, killed);
    });
    await run(storage);
    await storage.close();
    const given = newFolder('rebuild-given-up');
    copyAsKilled(killed, given);
    try {
      const store = await openStore(killed);
      const interrupted = store.rebuildStatus('items')!;
      expect(interrupted).toMatchObject({ state: 'interrupted', version: 2, startedAtMs: null });
      expect(interrupted.position).toBe(interrupted.headPosition);
      const status = await rebuilt(store);
      expect(status).toMatchObject({ state: 'done', version: 2, differences: 0, resumedFrom: interrupted.position });
      expect((await store.fsck()).problems).toEqual([]);
      await store.close();
      const other = await openStore(given);
      const cancelled = other.cancelRebuild('items');
      expect(() => other.startRebuild('items')).toThrow('already running');
      await cancelled;
      expect(other.rebuildStatus('items')).toMatchObject({ state: 'cancelled' });
      expect(await rebuilt(other)).toMatchObject({ state: 'done', resumedFrom: 0, differences: 0 });
      await other.close();
    } finally {
      for (const used of [killed, given]) removeFolder(used);
    }
  });
});

describe('a rebuild', () => {
  it('names the containers whose contents differed from the log', async () => {
    const database = new DatabaseSync(join(folder, 'items.v1.db'));
    const [, second] = database.prepare('SELECT number FROM containers ORDER BY number').all() as { number: number }[];
    database.prepare("UPDATE items SET ts = ts + 1 WHERE container = ? AND id = 'item 599'").run(second!.number);
    database.close();
    const store = await openStore(folder);
    const status = await rebuilt(store);
    expect(status).toMatchObject({ state: 'done', differences: 1 });
    expect(status.differing).toEqual([
      {
        part: 'container',
        database: 'db',
        container: 'two',
        rid: expect.any(String),
        itemsBefore: 1_920,
        itemsRebuilt: 1_920,
      },
    ]);
    expect(await rebuilt(store)).toMatchObject({ state: 'done', version: 3, differences: 0, differing: [] });
    await store.close();
  });

  it('names no container because of a difference in another', async () => {
    const database = new DatabaseSync(join(folder, 'items.v1.db'));
    const [first] = database.prepare('SELECT number FROM containers ORDER BY number').all() as { number: number }[];
    database.prepare("DELETE FROM items WHERE container = ? AND id = 'item 1'").run(first!.number);
    database.close();
    const store = await openStore(folder);
    const { differing } = await rebuilt(store);
    expect(differing).toMatchObject([{ container: 'one', itemsBefore: 1_919, itemsRebuilt: 1_920 }]);
    await store.close();
  });

  it('names the catalog if that differed from the log', async () => {
    const database = new DatabaseSync(join(folder, 'items.v1.db'));
    database.exec(`UPDATE databases SET state = json_set(state, '$.etag', 'tampered')`);
    database.close();
    const store = await openStore(folder);
    const { differing } = await rebuilt(store);
    expect(differing).toEqual([{ part: 'catalog', itemsBefore: 0, itemsRebuilt: 0 }]);
    await store.close();
  });

  it('names nothing if the purge erases items of a deleted container during the comparison', async () => {
    // Given read models that apply no purge until the rebuild stops their projector
    let holdsPurges = true;
    const { store } = await openInlineStore('rebuild-container-gone', ({ log }) => {
      const subscribe = log.subscribe.bind(log);
      log.subscribe = (after, listener, ...rest) => {
        const ended = Promise.withResolvers<void>();
        const onEvents = async (events: readonly RecordedEvent[]) => {
          if (holdsPurges && events.some(({ type }) => type === 'ItemPurged')) await ended.promise;
          else await listener.onEvents(events);
        };
        const subscription = subscribe(after, { ...listener, onEvents }, ...rest);
        return {
          unsubscribe: () => {
            ended.resolve();
            return subscription.unsubscribe();
          },
        };
      };
    });
    await store.createDatabase(CALLER, 'db');
    const { resource } = await store.createContainer(CALLER, 'db', 'c', DEFINITION, null);
    for (const id of ['a', 'b', 'c']) await write(store, resource, id);
    await store.deleteContainer(CALLER, 'db', 'c');
    // When the purge has recorded the erasures
    const before = store.headPosition();
    const purged = store.runPurge();
    while (store.headPosition() < before + 4) await turn();
    for (let turns = 0; turns < 20; turns++) await turn();
    // Then the rebuilt version is equal to the one in use
    expect(await rebuilt(store)).toMatchObject({ state: 'done', differences: 0 });
    holdsPurges = false;
    await purged;
    expect((await store.fsck()).problems).toEqual([]);
  });

  it('reads no more events a second than it is told to, and includes writes that come meanwhile', async () => {
    const store = await openStore(folder);
    const container = store.container('db', 'one');
    const startedMs = performance.now();
    const done = rebuilt(store, { eventsPerSecond: 20_000 });
    await write(store, container, 'meanwhile');
    expect((await store.readItem(container, 'meanwhile', '["p"]')).etag).not.toBe('');
    const { position } = await done.then((status) => {
      expect(status).toMatchObject({ state: 'done', differences: 0 });
      return status;
    });
    // The rebuild has waited after each page but the last. A truncated event is a position without an event.
    expect(performance.now() - startedMs).toBeGreaterThan((0.8 * (position - 500)) / 20);
    expect((await store.readItem(container, 'meanwhile', '["p"]')).etag).not.toBe('');
    expect((await store.fsck()).problems).toEqual([]);
    await store.close();
  });

  it('is swapped in while queries scan, and none of them fails or misses an item', async () => {
    const store = await openStore(folder);
    const container = store.container('db', 'one');
    const query = {
      partitionKey: '["p"]',
      sql: 'SELECT VALUE COUNT(1) FROM c WHERE c.id >= ""',
      parameters: [],
      maxItemCount: 1_000,
    };
    const over = new AbortController();
    const answers = new Set<string>();
    const ask = async () => {
      while (!over.signal.aborted) {
        for (let continuation: Continuation | undefined; ;) {
          const page = await store.queryItems(container, { ...query, continuation });
          for (const row of page.rows) answers.add(JSON.stringify(row));
          continuation = page.continuation;
          if (continuation === undefined) break;
        }
        // Between turns, as with requests. Otherwise a fast machine would answer all of them before anything else runs.
        await turn();
      }
    };
    const asking = Promise.all([ask(), ask(), ask()]);
    asking.catch(() => {});
    for (let round = 0; round < 3; round++) expect((await rebuilt(store)).state).toBe('done');
    over.abort();
    await asking;
    expect([...answers]).toEqual([`${(ITEMS / 2 / 5) * 4}`]);
    await store.close();
  }, 60_000);

  describe('from a log that shows truncated events', () => {
    /** The events of purged lives that a scavenge may have left. */
    const LEFT = [
      { of: 'all', is: () => true, isStrict: false },
      { of: 'the first', is: ({ revision }: RecordedEvent) => revision === 0, isStrict: false },
      { of: 'the later', is: ({ revision }: RecordedEvent) => revision > 0, isStrict: true },
    ];

    it.each(LEFT)('has the same result with $of of them', async ({ is, isStrict }) => {
      const left = (await everythingIn(unpurged)).filter(is);
      const storage = await openStorage(folder);
      const contents = await digestsOf(storage.readModels.current.store);
      const strictReads: number[] = [];
      const { differences } = await run(storage, { log: unscavenged(storage.log, left, strictReads) });
      expect(differences).toEqual({ count: 0, named: [] });
      expect(await digestsOf(storage.readModels.current.store)).toEqual(contents);
      // To tell that the first event is missing takes a strict read for each stream.
      expect(strictReads.length > 0).toBe(isStrict);
      await storage.close();
    });

    it.each(LEFT)('and so has a projector, with $of of them', async ({ is, isStrict }) => {
      const left = (await everythingIn(unpurged)).filter(is);
      const storage = await openStorage(folder);
      const contents = await digestsOf(storage.readModels.current.store);
      const strictReads: number[] = [];
      const { store } = await storage.readModels.createNext();
      const log = unscavenged(storage.log, left, strictReads);
      const projector = new Projector({ ...storage, log, store: () => store });
      await projector.start();
      expect(await digestsOf(store)).toEqual(contents);
      expect(strictReads.length > 0).toBe(isStrict);
      await projector.close();
      await storage.close();
    });
  });

  describe('whose log fails, or which is cancelled, while a batch is being applied', () => {
    /** A storage in which applying the first batch to the next version takes time. */
    async function slow() {
      const storage = await openStorage(folder);
      const steps: string[] = [];
      const begun = Promise.withResolvers<void>();
      const { readModels } = storage;
      const createNext = async () => {
        const next = await readModels.createNext();
        const store = otherwise(next.store, {
          apply: async (...args: Parameters<ReadModelStore['apply']>) => {
            begun.resolve();
            if (steps.length === 0) await new Promise((resolve) => setTimeout(resolve, 100));
            await next.store.apply(...args);
            steps.push(`applied to ${args[1]}`);
          },
          checkpoint: async () => {
            steps.push('asked');
            return next.store.checkpoint();
          },
        });
        return { ...next, store };
      };
      const discard = async (version: number) => {
        steps.push('discarded');
        await readModels.discard(version);
      };
      return { storage, steps, begun: begun.promise, versions: otherwise(readModels, { createNext, discard }) };
    }

    it('discards nothing before the batch is applied', async () => {
      const { storage, steps, begun, versions } = await slow();
      const calledOff = new AbortController();
      const running = run(storage, { versions, signal: calledOff.signal });
      void begun.then(() => calledOff.abort());
      await expect(running).rejects.toThrow('abort');
      expect(steps).toEqual([expect.stringMatching(/^applied to/), 'discarded']);
      await storage.close();
    });

    it('goes on after that batch', async () => {
      const { storage, steps, begun, versions } = await slow();
      let hasBegun = false;
      let hasFailed = false;
      void begun.then(() => (hasBegun = true));
      const log = otherwise(storage.log, {
        readAll: async (...args: Parameters<EventLog['readAll']>) => {
          if (hasBegun && !hasFailed) {
            hasFailed = true;
            throw new StorageUnavailable('for a moment');
          }
          return storage.log.readAll(...args);
        },
      });
      expect((await run(storage, { versions, log })).differences).toEqual({ count: 0, named: [] });
      expect(hasFailed).toBe(true);
      expect(steps.slice(0, 2)).toEqual([expect.stringMatching(/^applied to/), 'asked']);
      await storage.close();
    });
  });

  it('that is cancelled while it waits for the projector to stop does not swap', async () => {
    const storage = await openStorage(folder);
    const calledOff = new AbortController();
    let waits = 0;
    const whileProjectorStops = async (step: () => Promise<void>): Promise<void> => {
      waits += 1;
      if (waits === 2) calledOff.abort(new Error('called off'));
      await step();
    };
    await expect(run(storage, { signal: calledOff.signal, whileProjectorStops })).rejects.toThrow('called off');
    expect([waits, storage.readModels.current.version, storage.readModels.unfinished]).toEqual([2, 1, undefined]);
    await storage.close();
  });

  it('starts over if the log was restored and is shorter than what was built from the former log', async () => {
    const storage = await openStorage(folder);
    const next = await storage.readModels.createNext();
    await next.store.apply([], 1_000_000);
    await storage.close();
    const again = await openStorage(folder);
    expect(again.readModels.unfinished).toBe(undefined);
    expect(existsSync(join(folder, 'items.v2.db'))).toBe(false);
    expect((await run(again)).differences).toEqual({ count: 0, named: [] });
    await again.close();
  });

  it('starts over if the unfinished version lacks the table of values in clear', async () => {
    const storage = await openStorage(folder);
    const { version, store } = await storage.readModels.createNext();
    await store.apply([], 1_000);
    await storage.close();
    const file = new DatabaseSync(join(folder, `items.v${version}.db`));
    file.exec('DROP TABLE item_clear');
    file.close();
    const again = await openStorage(folder);
    expect(again.readModels.unfinished).toBe(undefined);
    expect((await run(again)).differences).toEqual({ count: 0, named: [] });
    await again.close();
  });

  it('that has swapped stays in use, even if the former version can’t be removed', async () => {
    const obstacle = join(folder, 'items.v1.db-shm');
    const storage = await openStorage(folder, (step) => {
      if (step !== 'read model swap: after') return;
      rmSync(obstacle);
      mkdirSync(obstacle);
    });
    await expect(run(storage)).rejects.toThrow('items.v1.db-shm');
    const contents = await digestsOf(storage.readModels.current.store);
    await storage.close();
    rmSync(obstacle, { recursive: true });
    const again = await openStorage(folder);
    expect(again.readModels.current.version).toBe(2);
    expect(await again.readModels.current.store.checkpoint()).toBe(await again.log.head());
    expect(await digestsOf(again.readModels.current.store)).toEqual(contents);
    await again.close();
  });

  it('closes the snapshot of the version in use if it can’t get one of its own', async () => {
    const storage = await openStorage(folder);
    const { readModels } = storage;
    let closed = 0;
    const held = async () => ({ digests: async () => new Map<never, never>(), close: async () => void (closed += 1) });
    const failing = () => Promise.reject(new Error('too many files are open'));
    const { version, store } = readModels.current;
    const current = { version, store: otherwise(store, { snapshot: held }) };
    const versions = otherwise(readModels, {
      current,
      createNext: async () => {
        const next = await readModels.createNext();
        return { ...next, store: otherwise(next.store, { snapshot: failing }) };
      },
    });
    await expect(run(storage, { versions })).rejects.toThrow('too many files are open');
    expect(closed).toBe(1);
    await storage.close();
  });

  it('takes the place of a damaged version without a comparison', async () => {
    zeroTable(join(folder, 'items.v1.db'), 'items');
    const storage = await openStorage(folder);
    expect(await run(storage)).toEqual({ version: 2, differences: undefined });
    await storage.close();
  });

  it('is not compared with a version whose checkpoint is behind what was built', async () => {
    const storage = await openStorage(folder);
    const abort = new AbortController();
    const cutShort = run(storage, {
      signal: abort.signal,
      keepsWhenAborted: () => true,
      onProgress: ({ phase }) => {
        if (phase === 'comparing') abort.abort(new Error('cut short'));
      },
    });
    await expect(cutShort).rejects.toThrow('cut short');
    await storage.close();
    const database = new DatabaseSync(join(folder, 'items.v1.db'));
    database.exec('UPDATE checkpoint SET position = 7');
    database.close();
    const again = await openStorage(folder);
    expect(await run(again)).toEqual({ version: 2, differences: undefined });
    await again.close();
  });
});

describe('a projector that starts', () => {
  /** Starts a projector on read models that fail to apply this many batches. Resolves with "started" or the error's message. */
  async function started(failures: number, error: Error): Promise<string> {
    const storage = await openStorage(folder);
    const { store } = await storage.readModels.createNext();
    let left = failures;
    const apply: ReadModelStore['apply'] = (...args) => (left-- > 0 ? Promise.reject(error) : store.apply(...args));
    const failing = otherwise(store, { apply });
    const projector = new Projector({ ...storage, store: () => failing });
    const outcome = await projector.start().then(
      () => 'started',
      (fault: Error) => fault.message,
    );
    await projector.close();
    await storage.close();
    return outcome;
  }

  it('waits for a server that is away, but not for ever for a fault that only an operator can mend', async () => {
    expect(await started(Number.POSITIVE_INFINITY, new StorageFault({ fault: 'the disk is full' }))).toBe(
      'the disk is full',
    );
    expect(await started(Number.POSITIVE_INFINITY, new Error('a defect'))).toBe('a defect');
    expect(await started(2, new StorageUnavailable('the server is away'))).toBe('started');
  });
});

describe('stopping a projector', () => {
  async function append({ log }: SqliteStorage, stream: string, type: string, data = {}): Promise<void> {
    const { correlationId } = CALLER;
    const facts = { type, version: 1, data, occurredAtMs: 0, actor: 'test', correlationId, causationId: correlationId };
    await log.append([{ stream, expectedRevision: 'no-stream', events: [{ id: crypto.randomUUID(), ...facts }] }]);
  }

  it('waits for a look-up after a fault, whose result would be too old for what is projected next', async () => {
    const storage = await openStorage(folder);
    const { store } = await storage.readModels.createNext();
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    const looked = Promise.withResolvers<void>();
    let [isAway, isSlow] = [false, false];
    const projector = new Projector({
      ...storage,
      store: () =>
        otherwise(store, {
          apply: (...batch) =>
            isAway ? Promise.reject(new StorageUnavailable('the server is away')) : store.apply(...batch),
          databases: async () => {
            const found = await store.databases();
            if (!isSlow) return found;
            looked.resolve();
            await answered;
            return found;
          },
        }),
    });
    await projector.start();
    [isAway, isSlow] = [true, true];
    await append(storage, 'purge-control', 'PurgePaused');
    await looked.promise;
    [isAway, isSlow] = [false, false];
    const stoppedAndOn = projector.stop().then(async () => {
      await projector.resume();
      await append(storage, 'database-later', 'DatabaseCreated', { name: 'later' });
      await projector.waitFor(await storage.log.head());
    });
    await new Promise((resolve) => setTimeout(resolve, 100));
    answer();
    await stoppedAndOn;
    await new Promise((resolve) => setImmediate(resolve));
    expect(projector.catalog.databaseByName('later')?.rid).toBe('later');
    await projector.close();
    await storage.close();
  });

  it('waits for the batch that is being applied', async () => {
    const storage = await openStorage(folder);
    const { store } = await storage.readModels.createNext();
    const begun = Promise.withResolvers<void>();
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    let isSlow = false;
    const slow = otherwise(store, {
      apply: async (...batch) => {
        if (isSlow) {
          begun.resolve();
          await answered;
        }
        await store.apply(...batch);
      },
    });
    const projector = new Projector({ ...storage, store: () => slow });
    await projector.start();
    isSlow = true;
    await append(storage, 'purge-control', 'PurgePaused');
    await begun.promise;
    let isStopped = false;
    const stopped = projector.stop().then(() => (isStopped = true));
    for (let turns = 0; turns < 20; turns++) await turn();
    expect(isStopped).toBe(false);
    answer();
    await stopped;
    expect(await store.checkpoint()).toBe(await storage.log.head());
    await storage.close();
  });

  /** A log that delivers an event right after it has said that the reader has caught up to a position. */
  const quick = (log: EventLog): EventLog =>
    otherwise(log, {
      subscribe: (afterPosition, listener) => {
        listener.onCaughtUp?.(afterPosition + 1);
        const running = (async () => listener.onEvents(await log.readAll(0, 1, { withBodies: false })))();
        return { unsubscribe: () => running };
      },
    });

  it('losses of events are accepted while a projector applies the whole log at its first start, and not later', async () => {
    const storage = await openStorage(folder);
    const { store } = await storage.readModels.createNext();
    const despite: unknown[] = [];
    let failures = 0;
    const failing = otherwise(store, {
      apply: (...args) => {
        despite.push(args[3]);
        return failures-- > 0
          ? Promise.reject(new StorageUnavailable('the first attempt fails'))
          : store.apply(...args);
      },
    });
    const attempts = async (work: () => Promise<unknown>) => {
      despite.length = 0;
      failures = 1;
      await work();
      return despite.slice(0, 2);
    };
    const projector = new Projector({ ...storage, store: () => failing });
    const appended = async () => {
      const head = await storage.log.head();
      await append(storage, crypto.randomUUID(), 'PurgePaused');
      await projector.waitFor(head + 1);
    };
    expect(await attempts(() => projector.start())).toEqual([false, true]);
    expect(await attempts(appended)).toEqual([false, false]);
    await projector.stop();
    await append(storage, crypto.randomUUID(), 'PurgePaused');
    const next = new Projector({ ...storage, store: () => failing });
    expect(await attempts(() => next.start())).toEqual([false, false]);
    await next.close();
    await storage.close();
  });

  it('waits for a batch that waits behind an update of the checkpoint', async () => {
    const storage = await openStorage(folder);
    const { store } = await storage.readModels.createNext();
    const { promise: applied, resolve: letGo } = Promise.withResolvers<void>();
    const slow = otherwise(store, { apply: () => applied });
    const projector = new Projector({
      ...storage,
      log: quick(storage.log),
      store: () => slow,
      recordsIdleProgress: true,
    });
    await projector.resume();
    await new Promise((resolve) => setImmediate(resolve));
    const stopped = projector.stop();
    letGo();
    await stopped;
    await storage.close();
  });

  it('a projector resumes as soon as the read models can be read again', async () => {
    const storage = await openStorage(folder);
    const { store } = await storage.readModels.createNext();
    let isReadable = true;
    const databases = () =>
      isReadable ? store.databases() : Promise.reject(new StorageFault({ fault: 'the disk is full' }));
    const unreadable = otherwise(store, { databases });
    const projector = new Projector({ ...storage, store: () => unreadable });
    await projector.start();
    await projector.stop();
    isReadable = false;
    await projector.resume();
    expect(projector.error).toBe('the disk is full');
    const head = await storage.log.head();
    await append(storage, 'purge-control', 'PurgePaused');
    isReadable = true;
    await projector.waitFor(head + 1);
    expect(projector.error).toBe(undefined);
    // The error also goes away if no further event comes.
    await projector.stop();
    isReadable = false;
    await projector.resume();
    expect(projector.error).toBe('the disk is full');
    isReadable = true;
    await expect.poll(() => projector.error).toBe(undefined);
    await projector.close();
    await storage.close();
  });
});
