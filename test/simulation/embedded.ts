import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ClockSources, GuardedClock, ManualClock } from '@epitaph/core/clock.ts';
import type { AppendOptions, AppendResult, EventLog, LogListener, StreamAppend } from '@epitaph/core/log/event-log.ts';
import { Store } from '@epitaph/api/store/store.ts';
import {
  openSqliteStorage,
  type SqliteStorage,
  type SqliteStorageOptions,
} from '@epitaph/storage/sqlite/open-sqlite-storage.ts';

/** Where tests put folders: in memory if the machine has such a place. */
const scratch = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

export function newFolder(purpose: string): string {
  return mkdtempSync(join(scratch, `epitaph-${purpose}-`));
}

export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
}

/**
 * Copies a data folder as it is at this instant. A killed process leaves the same behind: every file as the operating system has it,
 * including transactions in progress. Locks and shared memory end with the process.
 */
export function copyAsKilled(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(from)) {
    if (name === 'lock' || name.endsWith('-shm')) continue;
    copyFileSync(join(from, name), join(to, name));
  }
}

/** Thrown by a {@link FaultyLog}: the caller does not know whether the append was recorded. */
export class InjectedFault extends Error {
  override readonly name = 'InjectedFault';
}

/** A log that can be told to fail at a coming write, before it has done anything or after it has committed. */
export class FaultyLog implements EventLog {
  readonly spansStreams: boolean;
  readonly #log: EventLog;
  #armed: { writesLeft: number; readonly when: 'before' | 'after' } | undefined;

  constructor(log: EventLog) {
    this.#log = log;
    this.spansStreams = log.spansStreams;
  }

  failAt(write: number, when: 'before' | 'after'): void {
    this.#armed = { writesLeft: write, when };
  }

  /** @returns whether the fault was still to come */
  disarm(): boolean {
    const pending = this.#armed !== undefined;
    this.#armed = undefined;
    return pending;
  }

  append(appends: readonly StreamAppend[], options?: AppendOptions): Promise<AppendResult> {
    return this.#write(() => this.#log.append(appends, options));
  }

  truncateStream(stream: string, beforeRevision: number): Promise<void> {
    return this.#write(() => this.#log.truncateStream(stream, beforeRevision));
  }

  async #write<Result>(work: () => Promise<Result>): Promise<Result> {
    const armed = this.#armed;
    const fails = armed !== undefined && armed.writesLeft-- === 0;
    if (fails) this.#armed = undefined;
    if (fails && armed.when === 'before') throw new InjectedFault('the log failed before the write');
    const result = await work();
    if (fails) throw new InjectedFault('the log failed after the write');
    return result;
  }

  readStream(...args: Parameters<EventLog['readStream']>): ReturnType<EventLog['readStream']> {
    return this.#log.readStream(...args);
  }

  scan(...args: Parameters<EventLog['scan']>): ReturnType<EventLog['scan']> {
    return this.#log.scan(...args);
  }

  readBefore(event: Parameters<EventLog['readBefore']>[0]): ReturnType<EventLog['readBefore']> {
    return this.#log.readBefore(event);
  }

  readLast(stream: string): ReturnType<EventLog['readLast']> {
    return this.#log.readLast(stream);
  }

  hasLostEnd(stream: string): ReturnType<NonNullable<EventLog['hasLostEnd']>> {
    return this.#log.hasLostEnd?.(stream) ?? false;
  }

  async *lostEnds(afterPosition: number): AsyncGenerator<string> {
    if (this.#log.lostEnds !== undefined) yield* this.#log.lostEnds(afterPosition);
  }

  readAt(position: number): ReturnType<EventLog['readAt']> {
    return this.#log.readAt(position);
  }

  readBody(position: number): ReturnType<EventLog['readBody']> {
    return this.#log.readBody(position);
  }

  readAll(...args: Parameters<EventLog['readAll']>): ReturnType<EventLog['readAll']> {
    return this.#log.readAll(...args);
  }

  head(): ReturnType<EventLog['head']> {
    return this.#log.head();
  }

  subscribe(afterPosition: number, listener: LogListener): ReturnType<EventLog['subscribe']> {
    return this.#log.subscribe(afterPosition, listener);
  }

  close(): Promise<void> {
    return this.#log.close();
  }
}

export interface EmbeddedOptions {
  readonly folder: string;
  /** Where a manual clock starts, in milliseconds; or the sources of a guarded one. */
  readonly time: number | ClockSources;
  readonly newId: () => string;
  readonly onStep?: ((step: string) => void) | undefined;
  readonly policyGraceSeconds?: number;
  readonly readModelLag?: SqliteStorageOptions['readModelLag'];
}

export interface Embedded {
  readonly store: Store;
  readonly storage: SqliteStorage;
  readonly log: FaultyLog;
  readonly clock: ManualClock | GuardedClock;
}

/** The embedded store as it ships, but for writers on this thread, no fsync, no purge of its own accord, and a log that can fail. */
export async function openEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const { folder, time, newId } = options;
  const storage = await openSqliteStorage({
    folder,
    clock: typeof time === 'number' ? 'manual' : 'system',
    writers: 'inline',
    durable: false,
    readModelLag: options.readModelLag,
    ...(options.onStep === undefined ? {} : { onStep: options.onStep }),
  });
  const mark = storage.highWaterMark;
  const clock =
    typeof time === 'number'
      ? new ManualClock(mark.initialMs > 0 ? mark.initialMs : time, mark)
      : // Without marks that are saved meanwhile: when the disk has one would not replay.
        new GuardedClock({ sources: time, mark: { initialMs: mark.initialMs, save: mark.save } });
  const log = new FaultyLog(storage.log);
  try {
    const store = await Store.open({
      log,
      vault: storage.vault,
      sealer: storage.sealer,
      naming: storage.naming,
      readModels: storage.readModels,
      backup: { source: storage.backupSource, into: 'anywhere' },
      clock,
      closePorts: () => storage.close(),
      policyGraceSeconds: options.policyGraceSeconds ?? 3600,
      automaticPurge: false,
      newId,
    });
    return { store, storage, log, clock };
  } catch (error) {
    await storage.close();
    throw error;
  }
}
