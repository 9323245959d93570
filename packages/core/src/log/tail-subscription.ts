import type { EventLog, LogListener, LogSubscription } from './event-log.ts';
import type { RecordedEvent } from './recorded-event.ts';

const PAGE_SIZE = 1_000;
/** Appended events kept for a listener that is busy. When there are more, it reads them from the log instead. */
const TAIL_LIMIT = 4_096;
/** The most events that an append is assumed to have: ten thousand writes of a script, each with some values of unique keys. */
const LONGEST_APPEND = 50_000;

/**
 * A subscription for logs in this process. It reads pages until it has caught up, then takes appended events directly
 * from the writer, and reads pages again if the listener is too slow. The memory log and the SQLite log share it, so
 * that both deliver in the same way.
 */
export class TailSubscription implements LogSubscription {
  readonly #log: Pick<EventLog, 'readAll' | 'head'>;
  readonly #listener: LogListener;
  readonly #onEnd: () => void;
  #position: number;
  #tail: RecordedEvent[] = [];
  #tailOverflowed = true;
  #running: Promise<void> = Promise.resolve();
  #wake: (() => void) | undefined;
  #ended = false;

  constructor(
    log: Pick<EventLog, 'readAll' | 'head'>,
    afterPosition: number,
    listener: LogListener,
    onEnd: () => void,
  ) {
    this.#log = log;
    this.#position = afterPosition;
    this.#listener = listener;
    this.#onEnd = onEnd;
  }

  start(): void {
    this.#running = this.#run();
  }

  /** Called by the log with events that were just appended, in order of position. */
  deliver(events: readonly RecordedEvent[]): void {
    if (this.#ended) return;
    if (this.#tail.length + events.length > TAIL_LIMIT) {
      this.#tail = [];
      this.#tailOverflowed = true;
    } else if (!this.#tailOverflowed) {
      for (const event of events) this.#tail.push(event);
    }
    this.#wake?.();
  }

  async unsubscribe(): Promise<void> {
    this.#ended = true;
    this.#wake?.();
    this.#onEnd();
    await this.#running;
  }

  async #run(): Promise<void> {
    try {
      while (!this.#ended) {
        if (this.#tailOverflowed) await this.#catchUp();
        else if (this.#tail.length > 0) {
          const events = this.#tail;
          this.#tail = [];
          await this.#send(events);
        } else {
          this.#listener.onCaughtUp?.(this.#position);
          // The listener may have unsubscribed, or caused an append, before `#wake` was set.
          if (this.#ended || this.#tailOverflowed || this.#tail.length > 0) continue;
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
          this.#wake = undefined;
        }
      }
    } catch (error) {
      if (this.#ended) return;
      this.#ended = true;
      this.#onEnd();
      this.#listener.onError?.(error);
    }
  }

  async #catchUp(): Promise<void> {
    while (!this.#ended) {
      // From here on the writer may fill the tail. Events that arrive twice are dropped by their position.
      const head = await this.#log.head();
      this.#tailOverflowed = false;
      const events = await this.#log.readAll(this.#position, PAGE_SIZE, { withBodies: false });
      if (events.length > 0) {
        if (events.length === PAGE_SIZE) {
          this.#tail = [];
          this.#tailOverflowed = true;
        }
        await this.#send(events.length === PAGE_SIZE ? await this.#wholeAppends(events) : events);
      }
      if (!this.#tailOverflowed) {
        // Truncated events may be the last ones, so the head counts as reached although no event was read there.
        this.#position = Math.max(this.#position, events.length < PAGE_SIZE ? head : 0);
        return;
      }
    }
  }

  /**
   * A full page without its last append, which may continue after the page. The events of one append share their
   * correlation id. If the whole page may be one append, returns all of that append: a script can write more than a page.
   */
  async #wholeAppends(page: readonly RecordedEvent[]): Promise<readonly RecordedEvent[]> {
    const events = [...page];
    for (;;) {
      const { correlationId, position } = events.at(-1)!;
      const whole = events.findLastIndex((event) => event.correlationId !== correlationId) + 1;
      if (whole > 0) return events.slice(0, whole);
      const more = await this.#log.readAll(position, PAGE_SIZE, { withBodies: false });
      events.push(...more);
      if (more.length < PAGE_SIZE || events.length >= LONGEST_APPEND) return events;
    }
  }

  async #send(events: readonly RecordedEvent[]): Promise<void> {
    const fresh = events[0]!.position > this.#position ? events : events.filter((e) => e.position > this.#position);
    if (fresh.length === 0 || this.#ended) return;
    await this.#listener.onEvents(fresh);
    this.#position = fresh.at(-1)!.position;
  }
}
