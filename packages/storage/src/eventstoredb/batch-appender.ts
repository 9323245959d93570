import shared from '@eventstore/db-client/generated/shared_pb.js';
import streams from '@eventstore/db-client/generated/streams_pb.js';
import { systemClocks } from '@epitaph/core/clock.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { ExpectedRevision } from '@epitaph/core/log/event-log.ts';
import type { BatchCall, Connection } from './connection.ts';
import { exactNumber, streamIdentifier, uuidOf } from './event-coding.ts';
import { AppendFault } from './faults.ts';
import { after } from '../patience.ts';

export type AppendAnswer =
  | {
      readonly kind: 'appended';
      /** The position of the last event, if the server has told it. */
      readonly position: number | undefined;
      /** The revision of the last event. */
      readonly revision: number;
    }
  | { readonly kind: 'conflict'; readonly actualRevision: ExpectedRevision }
  /** This attempt reached the server after `notAfterMs`. An earlier attempt may have reached it in time, and its answer was lost. */
  | { readonly kind: 'late' };

/** One call to the server, and the appends that wait for an answer on it. */
interface Batch {
  readonly call: Promise<BatchCall>;
  readonly pending: Map<string, Pending>;
  ended: boolean;
}

interface Pending {
  readonly resolve: (response: streams.BatchAppendResp) => void;
  readonly reject: (error: unknown) => void;
}

/** How many appends may be under way at once. Others wait for their turn. */
const MAX_IN_FLIGHT = 256;
const MAX_IN_FLIGHT_BYTES = 32 * 1024 * 1024;
/** No server can be configured to accept more. It answers a larger message by ending the call, with all other appends in it. */
const MAX_APPEND_BYTES = 15 * 1024 * 1024;
/** How long to wait for an answer after the server's own deadline for a write. Later than that, no answer will come. */
const GRACE_MS = 1_000;
const ENDED = { kind: 'transient', reason: 'the event store has ended the call' } as const;

/**
 * Appends to streams over one call to the server. Each append is sent at once, up to a limit of concurrent ones. Answers are matched
 * to appends by correlation ids.
 */
export class BatchAppender {
  readonly #connection: Connection;
  readonly #beforeFirst: () => Promise<void>;
  /** Appends that wait for their turn, in order of arrival. */
  readonly #waiting: (() => void)[] = [];
  readonly #whenIdle: (() => void)[] = [];
  #batch: Batch | undefined;
  #inFlight = 0;
  #inFlightBytes = 0;

  /** @param beforeFirst awaited before anything is sent over a new call, which may lead to another server */
  constructor(connection: Connection, beforeFirst: () => Promise<void>) {
    this.#connection = connection;
    this.#beforeFirst = beforeFirst;
  }

  /**
   * Appends events, and repeats that while the outcome is unknown. A repeated append is not stored twice, since the server recognizes
   * it by the ids of its events.
   *
   * @param notAfterMs after this instant, by its own clock, the server refuses the append, wherever it was delayed
   * @throws {StreamDeleted} if another program has deleted the stream permanently
   * @throws {StorageUnavailable} if the outcome is still unknown after the connection's patience
   * @throws {Refusal} `too-large` if the server accepts no appends of this size
   */
  async append(
    stream: string,
    expectedRevision: ExpectedRevision,
    events: readonly streams.BatchAppendReq.ProposedMessage[],
    notAfterMs?: number,
  ): Promise<AppendAnswer> {
    const bytes = events.reduce((sum, event) => sum + event.getData_asU8().length, 0);
    if (bytes > MAX_APPEND_BYTES) throw tooLarge(`no server accepts more than ${MAX_APPEND_BYTES} bytes`);
    await this.#enter(bytes);
    try {
      return await this.#connection.patiently(async () => {
        try {
          return await this.#appendOnce(stream, expectedRevision, events, notAfterMs);
        } catch (error) {
          if (notAfterMs === undefined || !isTimeout(error)) throw error;
          if (systemClocks.wallMs() < notAfterMs) throw new AppendFault(TIMEOUT_OR_CLOCK);
          return { kind: 'late' };
        }
      });
    } finally {
      this.#leave(bytes);
    }
  }

  /** Resolves when no append is under way. */
  async idle(): Promise<void> {
    while (this.#inFlight > 0) {
      await new Promise<void>((resolve) => {
        this.#whenIdle.push(resolve);
      });
    }
  }

  async #enter(bytes: number): Promise<void> {
    while (!this.#hasRoomFor(bytes)) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    }
    this.#inFlight += 1;
    this.#inFlightBytes += bytes;
    // A large append may have made room for several others.
    if (this.#hasRoomFor(0)) this.#waiting.shift()?.();
  }

  #hasRoomFor(bytes: number): boolean {
    if (this.#inFlight === 0) return true;
    return this.#inFlight < MAX_IN_FLIGHT && this.#inFlightBytes + bytes <= MAX_IN_FLIGHT_BYTES;
  }

  #leave(bytes: number): void {
    this.#inFlight -= 1;
    this.#inFlightBytes -= bytes;
    this.#waiting.shift()?.();
    if (this.#inFlight === 0) for (const wake of this.#whenIdle.splice(0)) wake();
  }

  async #appendOnce(
    stream: string,
    expectedRevision: ExpectedRevision,
    events: readonly streams.BatchAppendReq.ProposedMessage[],
    notAfterMs: number | undefined,
  ): Promise<AppendAnswer> {
    const correlationId = crypto.randomUUID();
    const request = new streams.BatchAppendReq();
    request.setCorrelationId(uuidOf(correlationId));
    request.setOptions(optionsOf(stream, expectedRevision, notAfterMs));
    request.setProposedMessagesList([...events]);
    request.setIsFinal(true);
    const batch = this.#batch ?? this.#start();
    const call = await batch.call;
    if (batch.ended) throw new AppendFault(ENDED);
    const { promise, resolve, reject } = Promise.withResolvers<streams.BatchAppendResp>();
    batch.pending.set(correlationId, { resolve, reject });
    const stop = after(this.#connection.deadlineMs + GRACE_MS, () => {
      reject(new AppendFault({ kind: 'transient', reason: 'the event store did not answer in time' }));
      // A server that hangs answers no append. Ending the call makes every append in it try again, on another node.
      call.cancel();
    });
    try {
      // The data in flight is limited already, so there is no need to wait for the socket here.
      call.write(request);
      return answerOf(await promise);
    } finally {
      stop();
      batch.pending.delete(correlationId);
    }
  }

  #start(): Batch {
    const pending: Batch['pending'] = new Map();
    const end = (error: unknown): void => {
      batch.ended = true;
      if (this.#batch === batch) this.#batch = undefined;
      for (const { reject } of pending.values()) reject(error);
    };
    const open = async (): Promise<BatchCall> => {
      const call = await this.#connection.openBatch({
        onData: (response) => pending.get(response.getCorrelationId()?.getString() ?? '')?.resolve(response),
        onEnd: (error) => end(error ?? new AppendFault(ENDED)),
      });
      try {
        await this.#beforeFirst();
      } catch (error) {
        call.cancel();
        throw error;
      }
      return call;
    };
    const batch: Batch = { ended: false, pending, call: open() };
    batch.call.catch(end);
    this.#batch = batch;
    return batch;
  }
}

/** Options with a deadline in 1970, as bytes: the client library does not export the class of the deadline. */
const WITH_DEADLINE = Uint8Array.of(0x32, 0);

/**
 * @source EventStoreDB 23.10, `Streams.BatchAppend.cs`: an append that arrives after its deadline, by the server's clock, is answered
 *   with a timeout and not written
 */
function optionsOf(
  stream: string,
  expectedRevision: ExpectedRevision,
  notAfterMs: number | undefined,
): streams.BatchAppendReq.Options {
  const { Options } = streams.BatchAppendReq;
  const options = notAfterMs === undefined ? new Options() : Options.deserializeBinary(WITH_DEADLINE);
  if (notAfterMs !== undefined) {
    const seconds = Math.floor(notAfterMs / 1000);
    const deadline = options.getDeadline()!;
    deadline.setSeconds(seconds);
    deadline.setNanos(Math.floor((notAfterMs - seconds * 1000) * 1_000_000));
  }
  options.setStreamIdentifier(streamIdentifier(stream));
  if (expectedRevision === 'no-stream') options.setNoStream(new shared.Empty());
  else options.setStreamPosition(String(expectedRevision));
  return options;
}

function answerOf(response: streams.BatchAppendResp): AppendAnswer {
  const success = response.getSuccess();
  if (success !== undefined) {
    const position = success.getPosition()?.getCommitPosition();
    // The answer to a repeated append may have no position.
    const known = position !== undefined && /^[1-9]\d{0,18}$/.test(position);
    const revision = exactNumber(success.getCurrentRevision());
    return { kind: 'appended', position: known ? exactNumber(position) : undefined, revision };
  }
  const error = response.getError();
  const details = error?.getDetails();
  const reason = error?.getMessage() ?? 'an answer without a result';
  switch (details?.getTypeName()) {
    case 'event_store.client.WrongExpectedVersion': {
      const wrong = shared.WrongExpectedVersion.deserializeBinary(details.getValue_asU8());
      return {
        kind: 'conflict',
        actualRevision: wrong.hasCurrentStreamRevision() ? exactNumber(wrong.getCurrentStreamRevision()) : 'no-stream',
      };
    }
    case 'event_store.client.MaximumAppendSizeExceeded': {
      const { maxappendsize } = shared.MaximumAppendSizeExceeded.deserializeBinary(details.getValue_asU8()).toObject();
      throw tooLarge(`its MaxAppendSize is ${maxappendsize} bytes`);
    }
    case 'event_store.client.StreamDeleted':
      throw new AppendFault({ kind: 'stream-deleted', reason });
    case 'event_store.client.AccessDenied':
      throw new AppendFault({ kind: 'access-denied', reason: 'Access Denied' });
    case 'event_store.client.Timeout':
      throw new AppendFault(TIMEOUT);
    case 'google.protobuf.Empty':
      // The server is not ready or too busy; only the message says so.
      throw new AppendFault({ kind: 'transient', reason });
    default:
      throw new AppendFault({ kind: 'other', reason: `the event store refused an append: ${reason}` });
  }
}

const TIMEOUT = { kind: 'transient', reason: 'the event store did not commit in time' } as const;
const TIMEOUT_OR_CLOCK = {
  kind: 'transient',
  reason: `${TIMEOUT.reason}, or its machine's clock is ahead of this one's`,
} as const;
const isTimeout = (error: unknown): boolean => error instanceof AppendFault && error.fault === TIMEOUT;

const tooLarge = (most: string): Refusal =>
  new Refusal('too-large', `The document is larger than the event store accepts: ${most}.`);
