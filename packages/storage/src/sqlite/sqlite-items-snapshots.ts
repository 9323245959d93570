import type { DatabaseSync } from 'node:sqlite';
import { systemClocks } from '@epitaph/core/clock.ts';
import type { ItemsSnapshot } from '@epitaph/projections/read-model-store.ts';
import { after } from '../patience.ts';
import { openForReading } from './database.ts';
import { SqliteItemsReader } from './sqlite-items-reader.ts';

/** How many connections are kept for the next snapshots: as many as there usually are at once. */
const KEPT = 2;
/** The page cache of a connection. SQLite fills it only as far as pages are read. */
const CACHE_KIB = 8_192;
/** How long none is opened in a gap. Within this time the writer ends a group, and can start its journal from the beginning. */
const GAP_MS = 25;

interface Gaps {
  /** After snapshots have been open for so long without a gap, the next one waits for a gap; in milliseconds. */
  readonly afterMs: number;
  /** How long it waits at most, in milliseconds. Single snapshots may be open for seconds. */
  readonly maxWaitMs: number;
}

/**
 * Opens snapshots of the items: read transactions, each on a connection of its own.
 *
 * While there is one, SQLite can't start its journal from the beginning, and remnants of deleted values can't be erased from it. If
 * snapshots overlapped all the time, the journal would grow for ever. So gaps are made between them, and none is opened while the
 * writer erases.
 */
export class SqliteItemsSnapshots {
  readonly #file: string;
  readonly #kept: Snapshot[] = [];
  readonly #gaps: Gaps;
  readonly #emptyJournal: () => Promise<void>;
  #open = 0;
  /** Since when there has been at least one, by the monotonic clock. */
  #sinceMs = 0;
  /** Called when the last one has been closed. */
  #lastClosed: (() => void) | undefined;
  #gap: Promise<void> | undefined;
  /** The writer's erasure in progress. */
  #erasing: Promise<void> | undefined;
  /** Whether a snapshot that is still open may have kept the writer from erasing everything. */
  #isJournalLeft = false;
  #closed = false;

  /** @param emptyJournal makes the writer empty its journal */
  constructor(file: string, emptyJournal: () => Promise<void>, gaps: Gaps = { afterMs: 10_000, maxWaitMs: 2_000 }) {
    this.#file = file;
    this.#emptyJournal = emptyJournal;
    this.#gaps = gaps;
  }

  async open(): Promise<ItemsSnapshot> {
    const { monotonicMs } = systemClocks;
    if (this.#open > 0 && monotonicMs() - this.#sinceMs >= this.#gaps.afterMs) this.#gap ??= this.#makeGap();
    await this.#gap;
    await this.#erasing;
    // Another erasing may have begun meanwhile.
    this.#isJournalLeft ||= this.#erasing !== undefined;
    const snapshot =
      this.#kept.pop() ??
      new Snapshot(openForReading(this.#file, { cacheKiB: CACHE_KIB }), (closed) => this.#takeBack(closed));
    snapshot.begin();
    if (this.#open === 0) this.#sinceMs = monotonicMs();
    this.#open += 1;
    return snapshot;
  }

  /**
   * Lets the writer erase, and opens no snapshot meanwhile. If one is open already, the journal is emptied when the last one has been
   * closed.
   */
  async whileErasing(erase: () => Promise<void>): Promise<void> {
    // Known from the start, since the last snapshot may be closed after the writer has tried, and before it has said so.
    this.#isJournalLeft ||= this.#open > 0;
    const done = erase();
    const erasing = done.catch(() => {});
    this.#erasing = erasing;
    try {
      await done;
    } finally {
      if (this.#erasing === erasing) this.#erasing = undefined;
    }
  }

  /** Snapshots that are open stay so until they are closed. */
  close(): void {
    this.#closed = true;
    for (const snapshot of this.#kept.splice(0)) snapshot.disconnect();
  }

  /** Resolves after a gap. If the open snapshots are not closed in time, there is none, and the next opening tries again. */
  #makeGap(): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        this.#lastClosed = undefined;
        this.#gap = undefined;
        resolve();
      };
      const giveUp = after(this.#gaps.maxWaitMs, end);
      this.#lastClosed = () => {
        giveUp();
        after(GAP_MS, end);
      };
    });
  }

  #takeBack(snapshot: Snapshot): void {
    this.#open -= 1;
    if (!this.#closed && this.#kept.length < KEPT && snapshot.end()) this.#kept.push(snapshot);
    else snapshot.disconnect();
    if (this.#open > 0) return;
    this.#lastClosed?.();
    if (!this.#isJournalLeft || this.#closed) return;
    this.#isJournalLeft = false;
    // If this fails, the writer tries again with its next group.
    this.whileErasing(this.#emptyJournal).catch(() => {});
  }
}

class Snapshot extends SqliteItemsReader implements ItemsSnapshot {
  readonly #giveBack: (snapshot: Snapshot) => void;
  #isOpen = false;

  constructor(database: DatabaseSync, giveBack: (snapshot: Snapshot) => void) {
    super(database);
    this.#giveBack = giveBack;
  }

  begin(): void {
    try {
      // SQLite takes the snapshot at the first read.
      this.database.exec('BEGIN; SELECT position FROM checkpoint');
    } catch (error) {
      this.disconnect();
      throw error;
    }
    this.#isOpen = true;
  }

  /** @returns false if the connection can't be used any more */
  end(): boolean {
    try {
      this.database.exec('COMMIT');
      return true;
    } catch {
      return false;
    }
  }

  disconnect(): void {
    this.database.close();
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    // Scans of several steps would go on in the next transaction.
    await this.scansDone();
    this.#giveBack(this);
  }
}
