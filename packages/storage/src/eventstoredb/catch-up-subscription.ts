import type { Leniency, LogListener, LogSubscription } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { Connection, ReadCall } from './connection.ts';
import { decodeEvent, isFollowed, placeOf } from './event-coding.ts';
import { AppendFault, faultOf } from './faults.ts';
import { pause } from '../patience.ts';

const PAGE_SIZE = 500;
/** Events taken from the server for a listener that is busy; past this the server has to wait too. */
const BUFFER_LIMIT = 2_000;
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 2_000;

/** A page of everything, as far as it still stands. */
export interface Page {
  readonly events: RecordedEvent[];
  /** Position of the last event looked at, whether it is among them or not. */
  readonly seen: number;
  /** False where it ends in the middle of an append. */
  readonly isWhole: boolean;
  readonly isLast: boolean;
}

export interface PageOptions extends Leniency {
  readonly withBodies: boolean;
  /** Streams whose events are wanted; all when not given. */
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
 * A subscription that outlives connections. It reads pages up to the end, then is sent what is appended; when the
 * connection drops it begins again after the last event that its listener has taken, so nothing is missed or repeated.
 *
 * The first part is not left to the server's own catching up: that would bring truncated events, and would skip an
 * event where the one to begin after was scavenged.
 */
export class CatchUpSubscription implements LogSubscription {
  readonly #log: PageReader;
  readonly #connection: Connection;
  readonly #listener: LogListener;
  readonly #onEnd: () => void;
  readonly #mayBeTruncated: boolean | undefined;
  /** The last event seen; the listener has taken everything up to it. */
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

  /** Takes what the server sends, until the connection drops. */
  async #follow(): Promise<void> {
    if (this.#ended) return;
    this.#live = await LiveEvents.open(this.#connection, this.#position);
    try {
      // It may have been ended before there was anything to stop.
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

/** What a listener threw: it ends the subscription, whatever it looks like. */
class ListenerFault extends Error {
  constructor(cause: unknown) {
    super('the listener has failed', { cause });
  }
}

/** Events as the server sends them, taken in batches. */
class LiveEvents {
  #events: RecordedEvent[] = [];
  #seen: number | undefined;
  /** False while events of an append have come, and the last of it has not. */
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
        // Nothing is taken behind an event that can't be read.
        if (event === undefined || live.#fault !== undefined) return;
        try {
          const decoded = decodeEvent(event, false);
          live.#seen = placeOf(event).position;
          live.#isWhole = !isFollowed(event);
          if (decoded !== undefined) live.#events.push(decoded);
        } catch (error) {
          // Thrown from here, it would end the process.
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

  /** What has come since, in whole appends; waits for something to come. Without `seen` it was stopped. */
  async next(): Promise<{ readonly events: RecordedEvent[]; readonly seen: number | undefined }> {
    while ((this.#seen === undefined || !this.#isWhole) && !this.#stopped) {
      // What has come of an append then is read again, whole.
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
