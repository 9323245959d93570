import type { MaybePromise } from '../maybe-promise.ts';
import type { NewEvent, RecordedBody, RecordedEvent } from './recorded-event.ts';

/** The revision a stream must have for an append: its last event's, or that it has never been written. */
export type ExpectedRevision = number | 'no-stream';

export interface StreamAppend {
  readonly stream: string;
  readonly expectedRevision: ExpectedRevision;
  /** At least one. */
  readonly events: readonly NewEvent[];
}

export type AppendResult =
  | {
      readonly kind: 'appended';
      /** Position of the last event of the append. */
      readonly position: number;
      /** Position of the first event of each stream append, in the order given. */
      readonly firstPositions: readonly number[];
    }
  | {
      readonly kind: 'conflict';
      readonly stream: string;
      readonly expectedRevision: ExpectedRevision;
      readonly actualRevision: ExpectedRevision;
    };

export interface AppendOptions {
  /** What must be durable first, such as the keys of lives that begin. */
  readonly after?: readonly Promise<unknown>[] | undefined;
  /** Nobody waits for this append: others may be written first. A hint, which an adapter may ignore. */
  readonly background?: boolean | undefined;
  /**
   * The last instant at which the log may take this, in milliseconds since the epoch. One that comes to the log later, by
   * the log's own clock, is not made, and fails with `DecidedTooLate`. Where nothing can come late, between one process
   * and itself, it has no meaning.
   */
  readonly notAfterMs?: number | undefined;
}

/** Which part of a stream is read: all of it by default. */
export interface StreamRead {
  readonly fromRevision?: number | undefined;
  readonly toRevision?: number | undefined;
  readonly withBodies?: boolean | undefined;
}

/** What a look through a part of the log has found. */
export interface LogScan {
  /** The events that matched, without bodies, in order of position. */
  readonly events: readonly RecordedEvent[];
  /**
   * Nothing at or before this position is left to find; the next look goes on from here. The same as the position
   * that was given when nothing stands behind it.
   */
  readonly position: number;
}

export interface LogListener {
  /**
   * Events in order of position, never empty, those of one append together: a reader must not see half of it. The log
   * waits for the returned promise before it sends more.
   */
  onEvents(events: readonly RecordedEvent[]): Promise<void>;
  /** Everything that the log held when it was asked has been delivered. May be called again after each wait. */
  onCaughtUp?(position: number): void;
  /** The subscription has ended by a fault. It is not called after `unsubscribe`. */
  onError?(error: unknown): void;
}

export interface LogSubscription {
  /** Ends the subscription; resolves when no call to the listener is under way any more. */
  unsubscribe(): Promise<void>;
}

/** For readers of everything who come to the same end with truncated events and without. */
export interface Leniency {
  /**
   * True for: truncated events may come, too, all of a stream or some, where telling them takes asking for each
   * stream. The last event of a stream comes always.
   */
  readonly mayBeTruncated?: boolean | undefined;
}

/** A run in which a server gives back the space of truncated events. */
export interface Scavenge {
  /** The server's name for the run. */
  readonly id: string;
  /** `unknown` where the server tells it to nobody, or no longer. */
  readonly state: 'running' | 'done' | 'failed' | 'unknown';
}

/** For logs that keep truncated events, out of everybody's reach, until they are told to give the space back. */
export interface Scavenging {
  /** Starts a run, and answers the server's name for it; or for the one that is under way. */
  start(): Promise<string>;
  find(id: string): Promise<Scavenge>;
}

/**
 * Where every fact is kept. This comment is the contract; `core/testing/event-log-contract.ts` tests it on every
 * adapter.
 *
 * An adapter MUST
 * - make an append durable, whole, before it answers `appended`, or change nothing and answer `conflict`;
 * - answer a conflict as a value, naming the first stream that did not have its expected revision;
 * - reject an append that names no stream, one stream twice, or no events for one (`assertWellFormed`);
 * - answer an append whose event ids already stand at the place given as `appended`, with the first positions;
 * - not let any part of an append become durable before `options.after` has resolved, and fail it if that fails;
 * - give every event a position greater than those of all earlier events, and deliver to every reader and
 *   subscriber in that order, never an event before one of a smaller position;
 * - keep a stream's revision after truncation, so that an ended stream never takes "no-stream" again.
 *
 * A caller MUST NOT assume
 * - that positions are without gaps, or that two logs number alike;
 * - that a rejected append wrote nothing: after a fault the outcome is unknown and is found by reading, where
 *   `mayAppendLate` is set not at once.
 */
export interface EventLog {
  /** True when an append may span several streams. Where it may not, such an append is rejected. */
  readonly spansStreams: boolean;

  /** Set where a server may still make an append a while after it has failed here. */
  readonly mayAppendLate?: true | undefined;

  append(appends: readonly StreamAppend[], options?: AppendOptions): Promise<AppendResult>;

  /**
   * Events of a stream that were not truncated, oldest first. Empty for an unknown stream.
   * `fromRevision` leaves out those before it, `toRevision` those behind it, `withBodies: false` the sealed bodies.
   */
  readStream(stream: string, options?: StreamRead): MaybePromise<RecordedEvent[]>;

  /** The last event of a stream without its body, or undefined if it has never been written. */
  readLast(stream: string): MaybePromise<RecordedEvent | undefined>;

  /**
   * True of a stream of which the log has lost the last event: {@link readLast} finds none, and what was written must not pass
   * for what never was. Absent where a log can't tell.
   */
  readonly hasLostEnd?: (stream: string) => MaybePromise<boolean>;
  /** All such streams that have lost what stood after a position. Absent where a log could only ask for each stream. */
  readonly lostEnds?: (afterPosition: number) => AsyncIterable<string>;

  /** The event before one in its stream, without its body; undefined for the first, or if it was truncated. */
  readBefore(event: Pick<RecordedEvent, 'stream' | 'revision' | 'position'>): MaybePromise<RecordedEvent | undefined>;

  /** The event at a position, or undefined if there is none or it was truncated. */
  readAt(position: number): MaybePromise<RecordedEvent | undefined>;

  /** The body of that event without its facts, which is what most reads are after; undefined also if it has none. */
  readBody(position: number): MaybePromise<RecordedBody | undefined>;

  /**
   * Up to `maxCount` events after a position (0 for the start), in order of position.
   * `withBodies: false` leaves the sealed bodies out, for readers of facts alone.
   */
  readAll(
    afterPosition: number,
    maxCount: number,
    options?: { readonly withBodies?: boolean } & Leniency,
  ): MaybePromise<RecordedEvent[]>;

  /**
   * Looks through a part of the log after a position, about `maxCount` events long, for those whose stream's name
   * begins with a prefix.
   */
  scan(afterPosition: number, maxCount: number, streamPrefix: string, options?: Leniency): MaybePromise<LogScan>;

  /** A stream whose name begins with a prefix, or undefined if there is none. Absent where names are not in order. */
  readonly findStream?: (prefix: string) => MaybePromise<string | undefined>;

  /** The highest position written, 0 for an empty log. */
  head(): MaybePromise<number>;

  /**
   * The highest position that is known here without asking anybody, of what was read of a stream among them. Absent where
   * {@link head} answers at once.
   */
  readonly knownHead?: number | undefined;

  /** How far apart the positions of two events are, about, for who tells events by positions. 1 where absent. */
  readonly positionsPerEvent?: number | undefined;

  /** Delivers everything after a position, then whatever is appended. Bodies may be left out. */
  subscribe(afterPosition: number, listener: LogListener, options?: Leniency): LogSubscription;

  /**
   * Removes the events of a stream before a revision. Their bytes are gone from the log's reach at once; when the
   * space comes back is the adapter's affair. Events before the revision that are gone already are no error, and nor is an unknown
   * stream. The last event always stays: a revision past it is rejected.
   */
  truncateStream(stream: string, beforeRevision: number): Promise<void>;

  /** Absent where truncating gives the space back by itself. */
  readonly scavenging?: Scavenging | undefined;

  /** Waits for what is under way and lets go of the files or connections. */
  close(): Promise<void>;
}
