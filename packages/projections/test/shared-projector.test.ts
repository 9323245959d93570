import { describe, expect, it, vi } from 'vitest';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { newEvent } from '@epitaph/core/handle-command.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { turns } from '@epitaph/core/testing/test-framework.ts';
import { PositionWaiters } from '../src/projection.ts';
import type { ReadModelStore } from '../src/read-model-store.ts';
import {
  ANYTHING,
  type ReadModelNews,
  SharedProjector,
  type SharedProjectorOptions,
  type SharedReadModels,
} from '../src/shared-projector.ts';

const context: CommandContext = {
  nowMs: 1_700_000_000_000,
  actor: 'system:test',
  correlationId: crypto.randomUUID(),
  newId: () => crypto.randomUUID(),
};

/** Read models that consist of a checkpoint only, shared by several nodes of which one writes. */
class Shared {
  readonly log = new MemoryEventLog();
  readonly checkpoints = new Map([[1, 0]]);
  /** The version in use. */
  used = 1;
  /** The version in use as of this node's last look. */
  seen = 1;
  /** Reads of a checkpoint wait for this. */
  asked: Promise<void> = Promise.resolve();
  /** Batches wait for this before they are applied. */
  applies: Promise<void> = Promise.resolve();
  /** How often the catalog was loaded. Loads wait for `loading`. */
  loads = 0;
  loading: Promise<void> = Promise.resolve();
  #onLost: (() => void) | undefined;
  #onNews: ((news: ReadModelNews) => void) | undefined;
  /** The news that the node has got. */
  readonly news: ReadModelNews[] = [];
  /** The batches that were applied: to which version, and up to which checkpoint. */
  readonly applied: { readonly version: number; readonly checkpoint: number }[] = [];
  readonly projector: SharedProjector;

  constructor(mayProject = true) {
    this.projector = new SharedProjector({
      log: this.log,
      readModels: this.#readModels(),
      mayProject,
      onApplied: () => {},
      onNews: (news: ReadModelNews) => this.news.push(news),
    } as unknown as SharedProjectorOptions);
  }

  /** True if the node has the right to write. */
  get isLed(): boolean {
    return this.#onLost !== undefined;
  }

  async append(): Promise<void> {
    const event = newEvent(context, { type: 'PurgePaused', data: {} }, 1);
    await this.log.append([{ stream: crypto.randomUUID(), expectedRevision: 'no-stream', events: [event] }]);
  }

  /** Breaks the connection that holds the right to write. */
  loseLead(): void {
    const onLost = this.#onLost!;
    this.#onLost = undefined;
    onLost();
  }

  /** Another node gets the right to write and applies something. The returned function tells this node that it has lost the right. */
  otherApplies(checkpoint: number, news: ReadModelNews): () => void {
    const onLost = this.#onLost!;
    this.#onLost = () => {};
    this.checkpoints.set(this.used, checkpoint);
    this.hears(news);
    return onLost;
  }

  hears(news: ReadModelNews): void {
    this.#onNews!(news);
  }

  #store(version: number): ReadModelStore {
    const store: Partial<ReadModelStore> = {
      databases: async () => {
        this.loads += 1;
        await this.loading;
        return [];
      },
      containers: () => [],
      catalogEntries: () => [],
      lastLogMark: () => undefined,
      checkpoint: async () => {
        await this.asked;
        return this.checkpoints.get(version)!;
      },
      apply: async (_changes, checkpoint, after) => {
        await this.applies;
        if (after !== this.checkpoints.get(version)) throw new StorageUnavailable('not where it stood');
        this.applied.push({ version, checkpoint });
        this.checkpoints.set(version, checkpoint);
      },
    };
    return store as ReadModelStore;
  }

  #readModels(): SharedReadModels {
    const current = () => ({ version: this.seen, store: this.#store(this.seen) });
    const readModels: Partial<SharedReadModels> = {
      get current() {
        return current();
      },
      lead: async (onLost) => {
        if (this.#onLost !== undefined) return undefined;
        this.#onLost = onLost;
        return { release: async () => (this.#onLost = undefined) };
      },
      listen: async (onNews) => {
        this.#onNews = onNews;
        return { close: async () => {} };
      },
      look: async () => {
        this.seen = this.used;
        return { version: this.used, position: this.checkpoints.get(this.used)!, catalogChanges: 0 };
      },
      catalogSince: async () => [],
    };
    return readModels as SharedReadModels;
  }
}

describe('a node that resumes projecting after a rebuild', () => {
  it('writes to the version in use, even if nobody has told it of the swap', async () => {
    const shared = new Shared();
    await shared.projector.start();
    await shared.projector.stop();
    shared.checkpoints.set(2, 0);
    shared.used = 2;
    await shared.projector.resume();
    await shared.append();
    await expect.poll(() => shared.applied).toEqual([{ version: 2, checkpoint: 1 }]);
    await shared.projector.close();
  });

  it.each([
    { what: 'a node that started has put others in their place', byRebuild: false },
    { what: 'a rebuild has', byRebuild: true },
  ])(
    'applies each event once, although it looks again before it resumes with new read models: $what',
    async ({ byRebuild }) => {
      const shared = new Shared();
      await shared.projector.start();
      try {
        if (byRebuild) await shared.projector.stop();
        const { promise, resolve: goOn } = Promise.withResolvers<void>();
        shared.asked = promise;
        shared.checkpoints.set(2, 0);
        shared.used = 2;
        const subscribe = vi.spyOn(shared.log, 'subscribe');
        const resumed = byRebuild ? shared.projector.resume() : undefined;
        // It looks each second.
        await new Promise((resolve) => setTimeout(resolve, 3_200));
        goOn();
        await resumed;
        await shared.append();
        await expect.poll(() => shared.applied).toEqual([{ version: 2, checkpoint: 1 }]);
        await shared.append();
        await expect.poll(() => shared.applied.at(-1)).toEqual({ version: 2, checkpoint: 2 });
        expect(shared.applied).toHaveLength(2);
        expect(subscribe).toHaveBeenCalledOnce();
      } finally {
        await shared.projector.close();
      }
    },
  );

  it.each([
    { what: 'of one that projects', mayProject: true },
    { what: 'of one that does not', mayProject: false },
  ])('reports no item as missing before the new read models have caught up: $what', async ({ mayProject }) => {
    const shared = new Shared(mayProject);
    await shared.append();
    if (!mayProject) shared.checkpoints.set(1, 1);
    await shared.projector.start();
    await expect.poll(() => shared.projector.position).toBe(1);
    const { promise, resolve: goOn } = Promise.withResolvers<void>();
    shared.asked = promise;
    shared.loading = promise;
    shared.checkpoints.set(2, 0);
    shared.used = 2;
    await expect.poll(() => shared.seen, { timeout: 3_000 }).toBe(2);
    await turns();
    // Readers use the new read models by now, and wait.
    expect(shared.projector.position).toBe(0);
    const waited = shared.projector.waitFor(1);
    goOn();
    if (!mayProject) {
      shared.checkpoints.set(2, 1);
      shared.hears(ANYTHING);
    }
    await waited;
    expect(shared.projector.position).toBe(1);
    await shared.projector.close();
  });

  it('stops when it is told to, also while it changes over to read models that another node has made', async () => {
    const shared = new Shared();
    await shared.projector.start();
    const { promise, resolve: goOn } = Promise.withResolvers<void>();
    shared.asked = promise;
    shared.checkpoints.set(2, 0);
    shared.used = 2;
    await expect.poll(() => shared.seen, { timeout: 3_000 }).toBe(2);
    await turns();
    const stopped = shared.projector.stop();
    goOn();
    await stopped;
    await turns();
    await shared.append();
    await turns();
    expect(shared.applied).toEqual([]);
    await shared.projector.resume();
    await expect.poll(() => shared.applied).toEqual([{ version: 2, checkpoint: 1 }]);
    await shared.projector.close();
  });

  it('applies each event once, although it loses the right to write at that moment and gets it back', async () => {
    const shared = new Shared();
    await shared.projector.start();
    await shared.projector.stop();
    const { promise, resolve } = Promise.withResolvers<void>();
    shared.asked = promise;
    const resumed = shared.projector.resume();
    await turns();
    shared.loseLead();
    resolve();
    await resumed;
    await expect.poll(() => shared.projector.projects).toBe(true);
    await shared.append();
    await expect.poll(() => shared.projector.position).toBe(1);
    await turns();
    expect(shared.applied).toEqual([{ version: 1, checkpoint: 1 }]);
    await shared.projector.close();
    await shared.append();
    await turns();
    expect(shared.applied).toHaveLength(1);
  });
});

describe('a node that has lost the right to write', () => {
  it('hears of what another node has projected before it noticed the loss', async () => {
    const shared = new Shared();
    await shared.projector.start();
    await shared.append();
    await expect.poll(() => shared.projector.position).toBe(1);
    shared.news.splice(0);
    const hears = shared.otherApplies(2, { containers: [7], databases: [], erased: [] });
    expect(shared.news).toEqual([]);
    hears();
    await expect.poll(() => shared.projector.position).toBe(2);
    await expect.poll(() => shared.news).toEqual([ANYTHING]);
    await shared.projector.close();
  });

  it('applies nothing any more', async () => {
    const shared = new Shared();
    await shared.projector.start();
    shared.otherApplies(0, { containers: [], databases: [], erased: [] })();
    await turns();
    expect(shared.projector.projects).toBe(false);
    await shared.append();
    await turns();
    expect(shared.applied).toEqual([]);
    await shared.projector.close();
  });
});

describe('a node that projects', () => {
  it('is told what others have erased, but nothing of what it has applied itself', async () => {
    const shared = new Shared();
    await shared.projector.start();
    shared.news.splice(0);
    shared.hears({ containers: [7], databases: ['Db1'], erased: [] });
    shared.hears({ containers: [7], databases: [], erased: [5] });
    expect(shared.news).toEqual([{ containers: [], databases: [], erased: [5] }]);
    await shared.projector.close();
  });

  it('is closed only once its subscription has ended', async () => {
    const shared = new Shared();
    const { promise, resolve: end } = Promise.withResolvers<void>();
    const subscribe = shared.log.subscribe.bind(shared.log);
    vi.spyOn(shared.log, 'subscribe').mockImplementation((...args) => {
      const subscription = subscribe(...args);
      return { unsubscribe: () => Promise.all([subscription.unsubscribe(), promise]).then(() => {}) };
    });
    await shared.projector.start();
    let isClosed = false;
    const closed = shared.projector.close().then(() => (isClosed = true));
    await turns();
    expect(isClosed).toBe(false);
    end();
    await closed;
  });
});

describe('a node that loses the right to write before it begins to project', () => {
  it('leaves projecting to the node that has the right', async () => {
    const shared = new Shared();
    const { promise, resolve: begin } = Promise.withResolvers<void>();
    shared.asked = promise;
    const started = shared.projector.start();
    await turns();
    shared.otherApplies(0, { containers: [], databases: [], erased: [] })();
    begin();
    await started;
    expect(shared.projector.projects).toBe(false);
    await shared.append();
    await turns();
    expect(shared.applied).toEqual([]);
    await shared.projector.close();
  });
});

describe('a node that loses the right to write in the middle of a batch', () => {
  it('does not report the batch as visible before it has loaded it, although the batch is applied', async () => {
    const shared = new Shared();
    await shared.projector.start();
    const { promise, resolve } = Promise.withResolvers<void>();
    shared.applies = promise;
    await shared.append();
    await turns();
    shared.loseLead();
    await expect.poll(() => shared.loads, { timeout: 5_000 }).toBe(2);
    const shown = shared.projector.waitFor(1);
    resolve();
    await shown;
    expect(shared.projector.position).toBe(1);
    await shared.projector.close();
  });
});

describe('a node that can’t reach the log', () => {
  it('gives up the right to write until it can', async () => {
    const shared = new Shared();
    await shared.projector.start();
    const head = vi.spyOn(shared.log, 'head').mockRejectedValue(new StorageUnavailable('the event store is away'));
    await expect.poll(() => shared.projector.projects, { timeout: 5_000 }).toBe(false);
    expect(shared.isLed).toBe(false);
    head.mockClear();
    await expect.poll(() => head.mock.calls.length, { timeout: 5_000 }).toBe(2);
    expect(shared.isLed).toBe(false);
    head.mockRestore();
    await expect.poll(() => shared.projector.projects, { timeout: 5_000 }).toBe(true);
    await shared.append();
    await expect.poll(() => shared.applied).toEqual([{ version: 1, checkpoint: 1 }]);
    await shared.projector.close();
  });

  it('keeps the right to write during a swap, and if only an operator can mend the fault', async () => {
    const shared = new Shared();
    await shared.projector.start();
    class OtherLog extends StorageUnavailable {
      override readonly isForOperator = true;
    }
    const head = vi.spyOn(shared.log, 'head').mockRejectedValue(new OtherLog('it is another log'));
    await expect.poll(() => head.mock.calls.length, { timeout: 5_000 }).toBe(2);
    expect(shared.projector.projects).toBe(true);
    await shared.projector.stop();
    head.mockClear().mockRejectedValue(new StorageUnavailable('the event store is away'));
    await expect.poll(() => head.mock.calls.length, { timeout: 5_000 }).toBe(2);
    expect(shared.projector.projects).toBe(true);
    await shared.projector.close();
  });
});

describe('a node whose read models have gone back because a standby replaced their server', () => {
  it('projects the lost events again', async () => {
    const shared = new Shared();
    await shared.projector.start();
    for (let position = 1; position <= 2; position++) {
      await shared.append();
      await expect.poll(() => shared.projector.position).toBe(position);
    }
    shared.checkpoints.set(1, 1);
    await shared.append();
    await expect.poll(() => shared.projector.position, { timeout: 5_000 }).toBe(3);
    expect(shared.checkpoints.get(1)).toBe(3);
    await shared.projector.close();
  });

  it('does not report lost events as visible if another node projects', async () => {
    const shared = new Shared();
    await shared.projector.start();
    shared.otherApplies(2, { containers: [], databases: [], erased: [] })();
    await expect.poll(() => shared.projector.position).toBe(2);
    shared.checkpoints.set(1, 1);
    await expect.poll(() => shared.projector.position, { timeout: 5_000 }).toBe(1);
    // Its connections broke. The number of catalog changes may be the same as before, although the changes are others.
    const { loads } = shared;
    shared.hears(ANYTHING);
    await expect.poll(() => shared.loads).toBe(loads + 1);
    await shared.projector.close();
  });
});

describe('a node that starts', () => {
  it('reports read models that can’t be reached as away and not as damaged', async () => {
    const shared = new Shared();
    shared.asked = Promise.reject(new StorageUnavailable('away'));
    shared.asked.catch(() => {});
    await expect(shared.projector.start()).rejects.toThrow(StorageUnavailable);
    // Another node may be able to reach them.
    expect(shared.isLed).toBe(false);
    await shared.projector.close();
  });

  it('no longer waits for a fault that only an operator can mend, while requests still wait for their usual time', async () => {
    const waiters = new PositionWaiters();
    const [start, request] = [waiters.wait(5, 'endless'), waiters.wait(5)];
    waiters.giveUp(new Error('damaged'));
    await expect(start).rejects.toThrow('damaged');
    waiters.reached(5);
    await request;
  });
});
