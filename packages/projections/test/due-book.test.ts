import { describe, expect, it } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { initialRetention } from '@epitaph/core/retention/state.ts';
import { Catalog } from '../src/catalog/catalog.ts';
import { DueBook } from '../src/purge/due-book.ts';
import type { EndedRow, ReadModelChange, ReadModelStore } from '../src/read-model-store.ts';

const NOW_MS = 1_700_000_000_000;

function stateOf(number: number, more: Partial<ContainerState> = {}): ContainerState {
  return {
    status: 'live',
    rid: `rid ${number}`,
    databaseRid: `database ${number % 2}`,
    name: `${number}`,
    definition: {},
    timeline: [{ fromMs: 0, defaultTtl: 100, version: 1, setBy: 'key:primary', recordedAtMs: 0 }],
    policyGraceSeconds: 0,
    partitionKeyDeletes: [],
    retention: initialRetention,
    deletedAtMs: null,
    ...more,
  } as unknown as ContainerState;
}

/** Read models that have only ended lives. Tests can act in the middle of a look at a container. */
class Rows {
  readonly catalog = new Catalog();
  readonly ended = new Set<number>();
  readonly looks: number[] = [];
  deadlines: { readonly ts: number | null; readonly due: number | null } = { ts: null, due: null };
  items: readonly unknown[] = [];
  unrecorded: readonly unknown[] = [];
  /** Whether expiries can be paid for now. */
  paid = true;
  isOver = false;
  /** The number of questions asked. */
  asked = 0;
  onLook: (container: number) => Promise<void> | void = () => {};

  store = {
    nextDeadlines: () => {
      this.asked += 1;
      return this.deadlines;
    },
    allItems: () => this.items,
    unrecordedEnds: () => this.unrecorded,
    containersWithContent: () => [...this.ended],
    endedLives: async (container: number, { byPolicyStart }: { byPolicyStart: boolean }) => {
      this.asked += 1;
      if (byPolicyStart) return [];
      this.looks.push(container);
      const found = this.ended.has(container) ? [{ endedAtMs: NOW_MS - 1, position: 1 } as EndedRow] : [];
      await this.onLook(container);
      return found;
    },
  } as unknown as ReadModelStore;

  constructor(containers: number) {
    for (let number = 1; number <= containers; number++) this.change(number, {});
  }

  change(number: number, more: Partial<ContainerState>): void {
    this.catalog.put({ kind: 'container', number, state: stateOf(number, more) });
  }

  next(book: DueBook, nowMs = NOW_MS): Promise<number> {
    return book.nextDueMs(
      () => this.store,
      () => this.catalog,
      nowMs,
      { paidFor: () => this.paid, isOver: () => this.isOver },
    );
  }
}

describe('the book of what is due for the purge', () => {
  it('looks again at a container that changed while it, or one after it, was being looked at', async () => {
    for (const during of [1, 2]) {
      const rows = new Rows(2);
      const book = new DueBook();
      book.markAll();
      rows.onLook = (container) => {
        if (container !== during || rows.ended.size > 0) return;
        rows.ended.add(1);
        book.mark([1]);
      };
      await rows.next(book);
      expect(await rows.next(book)).toBe(NOW_MS - 1);
      expect(book.takeDue(NOW_MS)).toEqual([1]);
    }
  });

  it('looks once at a container that changes during each look, and also serves the others', async () => {
    const rows = new Rows(3);
    const book = new DueBook();
    book.markAll();
    rows.ended.add(3);
    rows.onLook = (container) => {
      if (container === 1 && rows.looks.length < 100) book.mark([1]);
    };
    expect(await rows.next(book)).toBe(NOW_MS - 1);
    expect(rows.looks).toEqual([1, 2, 3]);
  });

  it('looks at the read models in use, although they are swapped during a look', async () => {
    const rows = new Rows(3);
    const before = rows.store;
    const book = new DueBook();
    book.markAll();
    for (const number of [1, 2, 3]) rows.ended.add(number);
    rows.onLook = (container) => {
      if (container !== 2) return;
      rows.store = { ...before };
      // As a rebuild leaves them.
      before.endedLives = before.nextDeadlines = () => {
        throw new Error('closed');
      };
    };
    expect(await rows.next(book)).toBe(NOW_MS - 1);
    expect(book.takeDue(NOW_MS)).toEqual([1, 2, 3]);
  });

  it('looks again at a container for which the look failed', async () => {
    const rows = new Rows(1);
    const book = new DueBook();
    book.markAll();
    rows.ended.add(1);
    rows.onLook = () => Promise.reject(new Error('away'));
    await expect(rows.next(book)).rejects.toThrow('away');
    rows.onLook = () => {};
    expect(await rows.next(book)).toBe(NOW_MS - 1);
  });

  it('names the containers in which something is due, and looks only at those again', async () => {
    const rows = new Rows(50);
    const book = new DueBook();
    book.markAll();
    rows.ended.add(7);
    await rows.next(book);
    expect(rows.looks.length).toBe(50);
    expect(book.takeDue(NOW_MS)).toEqual([7]);
    rows.ended.clear();
    expect(await rows.next(book)).toBe(Number.POSITIVE_INFINITY);
    expect(rows.looks.slice(50)).toEqual([7]);
    expect(book.takeDue(NOW_MS)).toEqual([]);
  });

  it('comes back to a kept life when the vault must be asked again, or as soon as the reason to keep it may be gone', async () => {
    const rows = new Rows(2);
    const book = new DueBook();
    rows.ended.add(1);
    const ended = { kind: 'item-ended', row: { container: 1 } } as ReadModelChange;
    const changed = { kind: 'container', number: 1, state: stateOf(1) } as ReadModelChange;
    const mayGo: readonly (() => void)[] = [
      () => book.markAll(),
      () => book.lookAgain(1),
      () => book.observe([ended], rows.catalog),
      () => book.observe([changed], rows.catalog),
      () => book.databaseGone('database 1', rows.catalog),
    ];
    for (const happens of mayGo) {
      book.markAll();
      expect(await rows.next(book)).toBe(NOW_MS - 1);
      book.holdBack(1, NOW_MS + 1_000);
      book.lookAgain(2);
      expect(await rows.next(book)).toBe(NOW_MS + 1_000);
      expect(book.takeDue(NOW_MS + 999)).toEqual([]);
      expect(book.takeDue(NOW_MS + 1_000)).toEqual([1]);
      happens();
      expect(await rows.next(book)).toBe(NOW_MS - 1);
      expect(book.takeDue(NOW_MS)).toEqual([1]);
    }
  });

  it('has nothing due any more once a policy has started that expires nothing', async () => {
    const rows = new Rows(1);
    const book = new DueBook();
    const [first] = stateOf(1).timeline;
    const timeline = [first!, { ...first!, fromMs: NOW_MS + 1_000, version: 2 }];
    rows.catalog.put({ kind: 'container', number: 1, state: stateOf(1, { timeline }) });
    book.markAll();
    expect(await rows.next(book)).toBe(NOW_MS + 1_000);
    expect(book.takeDue(NOW_MS + 1_000)).toEqual([1]);
    expect(await rows.next(book, NOW_MS + 1_000)).toBe(Number.POSITIVE_INFINITY);
  });

  it('looks at no deleted container without content, and only once more at one whose content goes', async () => {
    const rows = new Rows(50);
    for (let number = 1; number <= 40; number++) {
      rows.catalog.put({ kind: 'container', number, state: stateOf(number, { status: 'deleted', deletedAtMs: 1 }) });
    }
    rows.ended.add(7);
    const book = new DueBook();
    book.markAll();
    expect(await rows.next(book)).toBe(NOW_MS - 1);
    expect(rows.looks).toEqual([7, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50]);
    rows.ended.clear();
    expect(book.takeDue(NOW_MS)).toEqual([7]);
    book.markAll();
    expect(await rows.next(book)).toBe(Number.POSITIVE_INFINITY);
    expect(rows.looks.slice(11)).toEqual([7, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50]);
    book.markAll();
    await rows.next(book);
    expect(rows.looks.slice(22)).toEqual([41, 42, 43, 44, 45, 46, 47, 48, 49, 50]);
  });

  it('looks at all containers the next time if it could not find out which exist', async () => {
    const rows = new Rows(2);
    const book = new DueBook();
    book.markAll();
    const { containersWithContent } = rows.store;
    rows.store.containersWithContent = () => Promise.reject(new Error('away'));
    await expect(rows.next(book)).rejects.toThrow('away');
    rows.store.containersWithContent = containersWithContent;
    await rows.next(book);
    expect(rows.looks).toEqual([1, 2]);
  });

  it('looks at the containers that were deleted with their database, and at no others', async () => {
    const rows = new Rows(50);
    const book = new DueBook();
    book.markAll();
    await rows.next(book);
    rows.looks.length = 0;
    const state = { status: 'deleted', rid: 'database 1', name: 'd', deletedAtMs: NOW_MS } as unknown as DatabaseState;
    const change = { kind: 'database', number: 99, state } as const;
    rows.catalog.put(change);
    book.observe([change], rows.catalog);
    await rows.next(book);
    expect(rows.looks).toEqual(Array.from({ length: 25 }, (_, index) => 2 * index + 1));
    book.observe([{ kind: 'database', number: 99, state: { ...state, status: 'live' } }], rows.catalog);
    await rows.next(book);
    expect(rows.looks.length).toBe(25);
  });

  it.each([
    // In seconds, with a policy of 100 seconds, relative to the time of the test.
    [{ ts: -100, due: null }, 0],
    [{ ts: -99, due: null }, 1],
    [{ ts: null, due: 0 }, 0],
    [{ ts: null, due: 1 }, 1],
    [{ ts: -90, due: 20 }, 10],
    [{ ts: -90, due: 5 }, 5],
    [{ ts: -90, due: -5 }, 0],
    [{ ts: -200, due: 5 }, 0],
    [{ ts: null, due: null }, Number.POSITIVE_INFINITY],
  ])('finds the time of the next expiry with one look at the deadlines: %j', async (deadlines, afterSeconds) => {
    const rows = new Rows(1);
    const from = (seconds: number | null) => (seconds === null ? null : NOW_MS / 1000 + seconds);
    rows.deadlines = { ts: from(deadlines.ts), due: from(deadlines.due) };
    const book = new DueBook();
    book.markAll();
    expect(await rows.next(book)).toBe(NOW_MS + afterSeconds * 1000);
    expect(rows.asked).toBe(3);
  });

  it.each([
    // An item without a ttl that expired, or did not, before the policy of 100 seconds ended 10 seconds ago.
    [null, { ts: -111, due: null }, 0],
    [null, { ts: -110, due: null }, Number.POSITIVE_INFINITY],
    [null, { ts: null, due: -11 }, 0],
    [null, { ts: null, due: -10 }, Number.POSITIVE_INFINITY],
    [-1, { ts: -50, due: null }, Number.POSITIVE_INFINITY],
    [-1, { ts: -50, due: 7 }, 7],
  ] as const)(
    'has due what an earlier policy has expired, with %s now: %j',
    async (defaultTtl, deadlines, afterSeconds) => {
      const rows = new Rows(1);
      const [first] = stateOf(1).timeline;
      rows.change(1, { timeline: [first!, { ...first!, fromMs: NOW_MS - 10_000, defaultTtl, version: 2 }] });
      const from = (seconds: number | null) => (seconds === null ? null : NOW_MS / 1000 + seconds);
      rows.deadlines = { ts: from(deadlines.ts), due: from(deadlines.due) };
      const book = new DueBook();
      book.markAll();
      expect(await rows.next(book)).toBe(NOW_MS + afterSeconds * 1000);
    },
  );

  it('leaves overdue expiries until they are paid for, but not those that are still to come', async () => {
    const rows = new Rows(1);
    const book = new DueBook();
    rows.paid = false;
    for (const [due, next] of [
      [-1, Number.POSITIVE_INFINITY],
      [1, NOW_MS + 1_000],
    ] as const) {
      rows.deadlines = { ts: null, due: NOW_MS / 1000 + due };
      book.markAll();
      expect(await rows.next(book)).toBe(next);
    }
  });

  it('keeps ended lives for the longest of recovery, feed and grace, and those of a deleted container for none', async () => {
    const feed = { changeFeedPolicy: { retentionDuration: 5 } } as unknown as ContainerState['definition'];
    const retention = (recoveryWindowSeconds: number) => ({ ...initialRetention, recoveryWindowSeconds });
    const gone = { status: 'deleted', deletedAtMs: NOW_MS } as const;
    for (const [more, seconds] of [
      [{ retention: retention(10) }, 10],
      [{ definition: feed, retention: retention(10) }, 360],
      [{ definition: feed, retention: retention(1_000) }, 1_000],
      // Nothing has ended by the start of a policy.
      [{ policyGraceSeconds: 50 }, 0],
      [{ ...gone, definition: feed, retention: retention(1_000) }, 0],
    ] as const) {
      const rows = new Rows(1);
      rows.change(1, more);
      rows.ended.add(1);
      const book = new DueBook();
      book.markAll();
      expect(await rows.next(book)).toBe(NOW_MS - 1 + seconds * 1000);
    }
  });

  it('has a deleted container due while it has items, and a delete by partition key while it is not completed', async () => {
    const rows = new Rows(1);
    const book = new DueBook();
    const next = () => {
      book.mark([1]);
      return rows.next(book);
    };
    const partitionKeyDeletes = [{}] as unknown as ContainerState['partitionKeyDeletes'];
    rows.change(1, { partitionKeyDeletes });
    expect(await next()).toBe(NOW_MS);
    rows.change(1, { partitionKeyDeletes, status: 'deleted', deletedAtMs: NOW_MS });
    expect(await next()).toBe(Number.POSITIVE_INFINITY);
    rows.unrecorded = [{}];
    expect(await next()).toBe(NOW_MS);
    rows.items = [{}];
    expect(await next()).toBe(0);
  });

  it('forgets what was due in a container that has no content any more', async () => {
    const rows = new Rows(1);
    rows.change(1, { status: 'deleted', deletedAtMs: 1 });
    rows.ended.add(1);
    const book = new DueBook();
    book.markAll();
    expect(await rows.next(book)).toBe(NOW_MS - 1);
    rows.ended.clear();
    book.markAll();
    expect(await rows.next(book)).toBe(Number.POSITIVE_INFINITY);
  });

  it('may have ended lives in a container until a look has found none', async () => {
    const rows = new Rows(1);
    const book = new DueBook();
    book.mark([1]);
    expect(book.mayHaveEnded(1)).toBe(true);
    await rows.next(book);
    expect(book.mayHaveEnded(1)).toBe(false);
    rows.ended.add(1);
    book.mark([1]);
    await rows.next(book);
    expect(book.mayHaveEnded(1)).toBe(true);
  });

  it('stops looking when the answer is no longer needed', async () => {
    const rows = new Rows(40);
    const book = new DueBook();
    book.markAll();
    rows.onLook = (container) => {
      rows.isOver = container === 5;
    };
    expect(await rows.next(book)).toBe(Number.POSITIVE_INFINITY);
    expect(rows.looks).toEqual([1, 2, 3, 4, 5]);
  });

  it('gives other work turns while it looks at many containers', async () => {
    const rows = new Rows(40);
    const book = new DueBook();
    book.markAll();
    rows.onLook = () => {
      for (const untilMs = performance.now() + 1; performance.now() < untilMs;);
    };
    let seen: number | undefined;
    setImmediate(() => (seen = rows.looks.length));
    await rows.next(book);
    expect(seen).toBeLessThan(40);
  });
});
