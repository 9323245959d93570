import type { Leniency, LogListener, LogSubscription } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { Connection, ReadCall } from './connection.ts';
import { decodeEvent, isFollowed, placeOf } from './event-coding.ts';
import { AppendFault, faultOf } from './faults.ts';
import { pause } from '../patience.ts';

const PAGE_SIZE = 500;
/** How many events are buffered while the listener is busy. Beyond that, no more are taken from the server. */
const BUFFER_LIMIT = 2_000;
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 2_000;

/** A page of all events, without truncated ones. */
export interface Page {
  readonly events: RecordedEvent[];
  /** The position of the last event that was read, whether it is in `events` or not. */
  readonly seen: number;
  /** False if the page ends in the middle of an append. */
  readonly isWhole: boolean;
  readonly isLast: boolean;
}

export interface PageOptions extends Leniency {
  readonly withBodies: boolean;
  /** Says whether a stream's events are wanted; by default all are. */
  readonly wanted?: (stream: string) => boolean;
}

export interface PageReader {
  readPage(afterPosition: number, maxCount: number, options: PageOptions): Promise<Page>;
}

export interface CatchUpOptions extends Leniency {
  readonly afterPosition: number;
  readonly listener: LogListener;
  readonly onEnd: () => void;
}

/**
 * A subscription that survives lost connections. It first reads pages up to the end of the log, then receives new events from the
 * server. If the connection is lost, it begins again after the last event that its listener has processed, so no event is missed or
 * repeated.
 *
 * The server's subscriptions could catch up by themselves. But they would include truncated events, and would skip an event if the
 * one to begin after was scavenged.
 */
export class CatchUpSubscription implements LogSubscription {
  readonly #log: PageReader;
  readonly #connection: Connection;
  readonly #listener: LogListener;
  readonly #onEnd: () => void;
  readonly #mayBeTruncated: boolean | undefined;
  /** The position of the last event seen. The listener has processed everything up to it. */
  #position: number;
  #running: Promise<void> = Promise.resolve();
  #ended = false;
  readonly #whenEnded = Promise.withResolvers<void>();
  #live: LiveEvents | undefined;

  constructor(log: PageReader, connection: Connection, options: CatchUpOptions) {
    this.#log = log;
    this.#connection = connection;
    this.#position = options.afterPosition;
    this.#listener = options.listener;
    this.#onEnd = options.onEnd;
    this.#mayBeTruncated = options.mayBeTruncated;
  }

  start(): void {
    this.#running = this.#run();
  }

  async unsubscribe(): Promise<void> {
    this.#end();
    await this.#running;
  }

  #end(): void {
    this.#ended = true;
    this.#whenEnded.resolve();
    this.#live?.stop();
    this.#onEnd();
  }

  async #run(): Promise<void> {
    let backoffMs = MIN_BACKOFF_MS;
    while (!this.#ended) {
      const before = this.#position;
      try {
        await this.#catchUp();
        await this.#follow();
      } catch (error) {
        // oxlint-disable-next-line typescript/no-unnecessary-condition -- it may have been ended while it waited.
        if (this.#ended) return;
        if (!(error instanceof ListenerFault) && faultOf(error).kind === 'transient') {
          if (this.#position > before) backoffMs = MIN_BACKOFF_MS;
          await Promise.race([pause(backoffMs), this.#whenEnded.promise]);
          backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS);
          continue;
        }
        this.#end();
        this.#listener.onError?.(error instanceof ListenerFault ? error.cause : error);
      }
    }
  }

  async #catchUp(): Promise<void> {
    let read: RecordedEvent[] = [];
    let position = this.#position;
    while (!this.#ended) {
      const options = { withBodies: false, mayBeTruncated: this.#mayBeTruncated };
      const { events, seen, isWhole, isLast } = await this.#log.readPage(position, PAGE_SIZE, options);
      read.push(...events);
      position = seen;
      if (!isWhole && !isLast) continue;
      await this.#send(read, seen);
      read = [];
      if (isLast) break;
    }
    this.#caughtUp();
  }

  /** Passes on what the server sends, until the connection is lost. */
  async #follow(): Promise<void> {
    if (this.#ended) return;
    this.#live = await LiveEvents.open(this.#connection, this.#position);
    try {
      // The subscription may have been ended while the call was being opened.
      while (!this.#ended) {
        const { events, seen } = await this.#live.next();
        if (seen === undefined) return;
        await this.#send(events, seen);
        if (this.#live.isEmpty) this.#caughtUp();
      }
    } finally {
      this.#live.stop();
      this.#live = undefined;
    }
  }

  async #send(events: readonly RecordedEvent[], seen: number): Promise<void> {
    if (this.#ended) return;
    try {
      if (events.length > 0) await this.#listener.onEvents(events);
    } catch (error) {
      throw new ListenerFault(error);
    }
    this.#position = Math.max(this.#position, seen);
  }

  #caughtUp(): void {
    if (this.#ended) return;
    try {
      this.#listener.onCaughtUp?.(this.#position);
    } catch (error) {
      throw new ListenerFault(error);
    }
  }
}

/** An error thrown by the listener. It ends the subscription, even if it looks like a transient fault. */
class ListenerFault extends Error {
  constructor(cause: unknown) {
    super('the listener has failed', { cause });
  }
}

/** Collects the events that the server sends, and returns them in batches. */
class LiveEvents {
  #events: RecordedEvent[] = [];
  #seen: number | undefined;
  /** False while an append has been received only in part. */
  #isWhole = true;
  #fault: unknown;
  #stopped = false;
  #paused = false;
  #wake: (() => void) | undefined;
  #call!: ReadCall;

  static async open(connection: Connection, afterPosition: number): Promise<LiveEvents> {
    const live = new LiveEvents();
    live.#call = await connection.openSubscription(afterPosition, {
      onData: (response) => {
        const event = response.getEvent()?.getEvent();
        // After an event that can't be read, no further ones are taken.
        if (event === undefined || live.#fault !== undefined) return;
        try {
          const decoded = decodeEvent(event, false);
          live.#seen = placeOf(event).position;
          live.#isWhole = !isFollowed(event);
          if (decoded !== undefined) live.#events.push(decoded);
        } catch (error) {
          // An error thrown from this callback would end the process.
          live.#fault = error;
        }
        if (live.#events.length >= BUFFER_LIMIT && !live.#paused) {
          live.#paused = true;
          live.#call.pause();
        }
        live.#wake?.();
      },
      onEnd: (error) => {
        live.#fault ??= error ?? new AppendFault({ kind: 'transient', reason: 'the event store has ended the call' });
        live.#wake?.();
      },
    });
    return live;
  }

  get isEmpty(): boolean {
    return this.#seen === undefined;
  }

  /** Waits for new events, and returns all that were received, in whole appends. `seen` is undefined once this was stopped. */
  async next(): Promise<{ readonly events: RecordedEvent[]; readonly seen: number | undefined }> {
    while ((this.#seen === undefined || !this.#isWhole) && !this.#stopped) {
      // An append that was received only in part is then read again as a whole.
      if (this.#fault !== undefined) throw this.#fault;
      this.#goOn();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const taken = { events: this.#events, seen: this.#stopped ? undefined : this.#seen };
    this.#events = [];
    this.#seen = undefined;
    this.#goOn();
    return taken;
  }

  #goOn(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#call.resume();
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#call.cancel();
    this.#wake?.();
  }
}
