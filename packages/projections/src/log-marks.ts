import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { LogMark, ReadModelChange, ReadModelStore } from './read-model-store.ts';

/** Two marks are at least this many events apart, or this many milliseconds. */
const EVENTS_APART = 1_000;
const MS_APART = 60_000;

/**
 * Notes from time to time which time the log had reached at which position, so that a reader who is given a time finds
 * a position to begin at. This is needed because no log is ordered by time, and not every log can be read from any
 * position.
 */
export class LogMarks {
  #latestMs: number;
  #markedMs: number;
  #events = 0;

  constructor(last?: LogMark) {
    this.#markedMs = last?.atMs ?? 0;
    this.#latestMs = this.#markedMs;
  }

  static async load(store: Pick<ReadModelStore, 'lastLogMark'>): Promise<LogMarks> {
    return new LogMarks(await store.lastLogMark());
  }

  /** A mark at the end of the events, if one is due. The events follow those of the call before. */
  after(events: readonly RecordedEvent[]): ReadModelChange[] {
    this.#events += events.length;
    for (const { occurredAtMs } of events) this.#latestMs = Math.max(this.#latestMs, occurredAtMs);
    const isDue = this.#events >= EVENTS_APART || this.#latestMs - this.#markedMs >= MS_APART;
    if (events.length === 0 || !isDue) return [];
    this.#events = 0;
    this.#markedMs = this.#latestMs;
    return [{ kind: 'log-mark', position: events.at(-1)!.position, atMs: this.#latestMs }];
  }
}
