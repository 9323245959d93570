/** An event as it is given to the log. */
export interface NewEvent {
  /** A UUID. Appending the same ids again at the same place is a retry and not a second fact. */
  readonly id: string;
  readonly type: string;
  /** Schema version of `data`, from 1. */
  readonly version: number;
  readonly data: Readonly<Record<string, unknown>>;
  /** A sealed body. The log keeps it as it is and can't read it. */
  readonly body?: Uint8Array;
  /** Milliseconds since the epoch, stamped once per command by the node that decided. */
  readonly occurredAtMs: number;
  /** Which key or which part of the system acted, for example `key:primary` or `system:purge`. */
  readonly actor: string;
  /** UUID shared by everything that one request led to. */
  readonly correlationId: string;
  /** UUID of the direct cause of this event: the request, or another event. */
  readonly causationId: string;
}

/** An event as the log returns it. If its `data` are damaged, reading the property throws an `UnreadableEvent`. */
export interface RecordedEvent extends NewEvent {
  readonly stream: string;
  /** Counts from 0 within the stream, without gaps; truncation keeps the numbers. */
  readonly revision: number;
  /** Grows through the whole log; gaps are possible. */
  readonly position: number;
  /** On the last event of a stream: another program has appended events after it, on a server that both use. */
  readonly othersBehind?: true;
}

/** The sealed body of a recorded event, with the place that the seal binds it to, and the id that tells versions apart. */
export interface RecordedBody extends Pick<RecordedEvent, 'id' | 'stream' | 'revision'> {
  readonly body: Uint8Array;
}
