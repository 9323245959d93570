import type { MaybePromise } from '../maybe-promise.ts';
import type { NewEvent, RecordedBody, RecordedEvent } from './recorded-event.ts';

/** The revision that a stream must be at for an append: that of its last event, or `no-stream` if it was never written. */
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
  /** What must be durable before the append, such as the keys of lives that begin. */
  readonly after?: readonly Promise<unknown>[] | undefined;
  /** Nobody waits for this append, so the log may write others first. A hint, which an adapter may ignore. */
  readonly background?: boolean | undefined;
  /**
   * The last instant, in milliseconds since the epoch, at which the log may take this append. If the append reaches the
   * log later, by the log's own clock, the log does not make it and the call fails with `DecidedTooLate`. A log inside
   * this process ignores this, because an append can't reach it late.
   */
  readonly notAfterMs?: number | undefined;
}

/** Which part of a stream is read: all of it by default. */
export interface StreamRead {
  readonly fromRevision?: number | undefined;
  readonly toRevision?: number | undefined;
  readonly withBodies?: boolean | undefined;
}

/** The result of a scan of a part of the log. */
export interface LogScan {
  /** The events that matched, without bodies, in order of position. */
  readonly events: readonly RecordedEvent[];
  /**
   * The position that the scan has reached: there is nothing left to find at or before it, and the next scan starts
   * from here. The same as the position that was given when there is nothing after that.
   */
  readonly position: number;
}

export interface LogListener {
  /**
   * Called with events in order of position, at least one. All events of one append come in the same call, because a
   * reader must not see half of it. The log waits for the returned promise before it sends more.
   */
  onEvents(events: readonly RecordedEvent[]): Promise<void>;
  /** Everything that was in the log when the log's head was read has been delivered. May be called again after each wait. */
  onCaughtUp?(position: number): void;
  /** The subscription has ended with an error. Not called after `unsubscribe`. */
  onError?(error: unknown): void;
}

export interface LogSubscription {
  /** Ends the subscription. Resolves when no call to the listener is running any more. */
  unsubscribe(): Promise<void>;
}

/** An option of readers of the whole log whose result is the same with truncated events and without them. */
export interface Leniency {
  /**
   * True allows the log to return truncated events too, some or all of a stream's, where it would have to ask for each
   * stream to tell which they are. The last event of a stream is always returned.
   */
  readonly mayBeTruncated?: boolean | undefined;
}

/** A run in which a server reclaims the space of truncated events. */
export interface Scavenge {
  /** The server's name for the run. */
  readonly id: string;
  /** `unknown` if the server does not, or no longer, say what became of the run. */
  readonly state: 'running' | 'done' | 'failed' | 'unknown';
}

/** For logs that keep truncated events, which nobody can read, until they are told to reclaim the space. */
export interface Scavenging {
  /** Starts a run and returns the server's name for it. If a run is in progress already, returns the name of that one. */
  start(): Promise<string>;
  find(id: string): Promise<Scavenge>;
}

/**
 * The store of all facts. This comment is the contract; `core/testing/event-log-contract.ts` tests it on every adapter.
 *
 * An adapter MUST
 * - make an append durable, whole, before it answers `appended`, or change nothing and answer `conflict`;
 * - answer a conflict as a value, naming the first stream that did not have its expected revision;
 * - reject an append that names no stream, or the same stream twice, or a stream without events (`assertWellFormed`);
 * - answer `appended`, with the first positions, if events with the same ids are already at the place of the append;
 * - let no part of an append become durable before `options.after` has resolved, and fail the append if that fails;
 * - give every event a position greater than those of all earlier events, and deliver events to every reader and
 *   subscriber in that order, never an event before one of a smaller position;
 * - keep a stream's revision after truncation, so that a stream that has ended never accepts "no-stream" again.
 *
 * A caller MUST NOT assume
 * - that positions have no gaps, or that two logs give the same positions;
 * - that a rejected append wrote nothing: after a fault the outcome is unknown, and is found by reading the log; if
 *   `mayAppendLate` is set, not by reading it at once.
 */
export interface EventLog {
  /** True when an append may span several streams. Otherwise such an append is rejected. */
  readonly spansStreams: boolean;

  /** Set if a server may still make an append some time after the append has failed here. */
  readonly mayAppendLate?: true | undefined;

  append(appends: readonly StreamAppend[], options?: AppendOptions): Promise<AppendResult>;

  /**
   * The events of a stream that were not truncated, oldest first. Empty for an unknown stream. `fromRevision` leaves
   * out earlier events, `toRevision` later ones, `withBodies: false` the sealed bodies.
   */
  readStream(stream: string, options?: StreamRead): MaybePromise<RecordedEvent[]>;

  /** The last event of a stream without its body, or undefined if it has never been written. */
  readLast(stream: string): MaybePromise<RecordedEvent | undefined>;

  /**
   * True if the log has lost the last event of a stream. {@link readLast} finds nothing then, and without this check a
   * stream that was written would look as if it had never been. Absent if a log can't tell.
   */
  readonly hasLostEnd?: (stream: string) => MaybePromise<boolean>;
  /** All streams that have lost an event after a position in this way. Absent if a log could only ask for each stream. */
  readonly lostEnds?: (afterPosition: number) => AsyncIterable<string>;

  /** The event before this one in its stream, without its body. Undefined if there is none or it was truncated. */
  readBefore(event: Pick<RecordedEvent, 'stream' | 'revision' | 'position'>): MaybePromise<RecordedEvent | undefined>;

  /** The event at a position, or undefined if there is none or it was truncated. */
  readAt(position: number): MaybePromise<RecordedEvent | undefined>;

  /**
   * The body of the event at a position, without its other fields, which most reads don't need. Undefined if there is
   * no body.
   */
  readBody(position: number): MaybePromise<RecordedBody | undefined>;

  /**
   * Up to `maxCount` events after a position (0 for the start), in order of position. `withBodies: false` leaves out
   * the sealed bodies.
   */
  readAll(
    afterPosition: number,
    maxCount: number,
    options?: { readonly withBodies?: boolean } & Leniency,
  ): MaybePromise<RecordedEvent[]>;

  /**
   * Scans a part of the log after a position, about `maxCount` events long, for events of streams whose name begins
   * with a prefix.
   */
  scan(afterPosition: number, maxCount: number, streamPrefix: string, options?: Leniency): MaybePromise<LogScan>;

  /** A stream whose name begins with a prefix, or undefined if there is none. Absent if the log has no index ordered by name. */
  readonly findStream?: (prefix: string) => MaybePromise<string | undefined>;

  /** The highest position written, 0 for an empty log. */
  head(): MaybePromise<number>;

  /**
   * The highest position that this process knows of without asking the server; reading a stream raises it too. Absent
   * where {@link head} answers at once.
   */
  readonly knownHead?: number | undefined;

  /** About how far apart the positions of two consecutive events are, for estimating numbers of events. 1 if absent. */
  readonly positionsPerEvent?: number | undefined;

  /** Delivers everything after a position, then whatever is appended. The bodies may be left out. */
  subscribe(afterPosition: number, listener: LogListener, options?: Leniency): LogSubscription;

  /**
   * Removes the events of a stream before a revision. Nobody can read them from the log any more; when their space is
   * reclaimed is up to the adapter. An unknown stream, or events that are already gone, is no error. The last event
   * always stays: a revision after it is rejected.
   */
  truncateStream(stream: string, beforeRevision: number): Promise<void>;

  /** Absent if truncation reclaims the space by itself. */
  readonly scavenging?: Scavenging | undefined;

  /** Waits for the operations in progress and releases files and connections. */
  close(): Promise<void>;
}
