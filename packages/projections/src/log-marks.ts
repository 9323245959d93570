import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { LogMark, ReadModelChange, ReadModelStore } from './read-model-store.ts';

/** Between two marks are so many events at least, or so many milliseconds. */
const EVENTS_APART = 1_000;
const MS_APART = 60_000;

/**
 * Notes now and then how late it was where in the log, so that a reader who comes with a time finds a place to begin:
 * no log is in order of time, and not every log can be read from any number.
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

  /** A mark at the end of the events, when one is due. They follow those that were given before. */
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
