import { Refusal } from '@epitaph/core/errors.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { DecidedTooLate } from '@epitaph/core/log/decided-too-late.ts';
import type {
  AppendOptions,
  AppendResult,
  EventLog,
  ExpectedRevision,
  Leniency,
  LogListener,
  LogScan,
  LogSubscription,
  Scavenging,
  StreamAppend,
  StreamRead,
} from '@epitaph/core/log/event-log.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { RecordedBody, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { assertWellFormed } from '@epitaph/core/log/well-formed.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import type { LogOwner } from '../log-owner.ts';
import { type AppendAnswer, BatchAppender } from './batch-appender.ts';
import { CatchUpSubscription, type Page, type PageOptions, type PageReader } from './catch-up-subscription.ts';
import type { Connection, ReadRequest } from './connection.ts';
import {
  decodeEvent,
  encodeAppend,
  encodeMetadata,
  exactNumber,
  isFollowed,
  parseJson,
  placeOf,
  type Place,
  type WireEvent,
} from './event-coding.ts';
import { StreamDeleted } from './faults.ts';

/** A stream that only has metadata, never events. */
const IDENTITY_STREAM = 'epitaph';

/** How many events are read at a time if another program has written after the store's last event of a stream. */
const OTHERS_AT_ONCE = 64;
/** How many streams' truncations are looked up concurrently. */
const LOOKUPS = 64;
/** For how many streams the last revision that this process appended is kept in memory. */
const RECENT_STREAMS = 20_000;

/** A part of one stream. */
type StreamPart = Omit<ReadRequest, 'from'> & Extract<ReadRequest['from'], { readonly stream: string }>;

/** A stream's truncation, the metadata that contain it, and their revision. */
interface Truncation {
  readonly before: number;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly revision: number | undefined;
}

const NOTHING_SAID: Truncation = { before: 0, metadata: {}, revision: undefined };
/** The truncation of a stream that another program has deleted permanently. */
const ALL_GONE: Truncation = { ...NOTHING_SAID, before: Number.POSITIVE_INFINITY };

const DELETED = 'has been deleted from the event store by another program';

/** The server was emptied, or restored from an older copy, while the store was running. The read models are ahead of it. */
class LogShrunk extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor(nodes: string, head: number, before: number) {
    super(
      `The event log on ${nodes} ends at ${head}, but had events up to ${before}. So it is another log, or an older copy. Stop all nodes and put the right log back, or run epitaph restore.`,
    );
  }
}

/** The server now has another log, or a restore has given this log to another store. An append to it would belong to neither store. */
class LogReplaced extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor(nodes: string) {
    super(
      `The event log on ${nodes} is not the one with which this store was started, or a restore has given it to other keys. Stop this store, and start it with the log that it belongs to.`,
    );
  }
}

/**
 * The event log on EventStoreDB or KurrentDB. A position is the commit position of an event. A stream is truncated by `$tb` in its
 * metadata, and a scavenge frees the space. Until that scavenge, a read of all events includes truncated ones; they are left out
 * here.
 */
export class EventStoreEventLog implements EventLog, PageReader {
  readonly spansStreams = false;
  readonly mayAppendLate = true;
  readonly #connection: Connection;
  readonly #appender: BatchAppender;
  readonly #subscriptions = new Set<CatchUpSubscription>();
  /** Revisions that recently used streams have at least. */
  readonly #revisions = new GenerationCache<string, number>(RECENT_STREAMS);
  #knownHead = 0;
  /** The ids of the log and of its owner, as they were read from the log. */
  #identity: { readonly logId?: string; readonly owner?: string } = {};

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#appender = new BatchAppender(connection, () => this.#assertNotReplaced());
  }

  get knownHead(): number {
    return this.#knownHead;
  }

  async append(appends: readonly StreamAppend[], options: AppendOptions = {}): Promise<AppendResult> {
    const before = this.#knownHead;
    const result = await this.#append(appends, options);
    if (result.kind === 'conflict') return result;
    // An append that was made before is answered with its old position. Any other answer must be after the known head.
    if (result.position <= before) await this.head();
    this.#knownHead = Math.max(this.#knownHead, result.position);
    return result;
  }

  async #append(appends: readonly StreamAppend[], options: AppendOptions): Promise<AppendResult> {
    assertWellFormed(appends);
    if (appends.length > 1) {
      throw new Refusal('not-supported', 'On this event log one request can write to only one item.');
    }
    const [append] = appends as [StreamAppend];
    // Encoded before the first await, since the caller may reuse its buffers afterwards.
    const encoded = encodeAppend(append);
    await Promise.all(options.after ?? []);
    const { stream, expectedRevision } = append;
    const answer = await this.#appendTo(stream, expectedRevision, encoded, options.notAfterMs);
    if (answer.kind === 'late') {
      // The server may have accepted an earlier attempt in time, and its answer was lost.
      const taken = await this.#recorded(append);
      if (taken === undefined) throw new DecidedTooLate();
      return taken;
    }
    if (answer.kind === 'appended') {
      const revision = revisionOf(expectedRevision) + append.events.length;
      if (answer.revision > revision && expectedRevision === 'no-stream') {
        return (await this.#recorded(append)) ?? this.#refuseRevived(append, answer.revision);
      }
      this.#revisions.set(append.stream, revision);
      if (append.events.length === 1 && answer.position !== undefined) {
        return { kind: 'appended', position: answer.position, firstPositions: [answer.position] };
      }
      const recorded = await this.#recorded(append);
      if (recorded !== undefined) return recorded;
      const last = await this.#lastPlace(stream);
      // A truncated stream always keeps its last event, so a stream without one was deleted.
      if (last === undefined) throw new UnreadableEvent(`${stream} ${DELETED}. ${WHEN_DAMAGED}`);
      invariant(last.revision > revision, `an append to ${stream} was answered, but is not there`);
      // The answer took long, and the stream was truncated meanwhile. A caller that tries again finds its current state.
      throw new StorageUnavailable(`what was appended to ${stream} has been truncated since`);
    }
    const { actualRevision } = answer;
    // The server recognizes a retry by the events' ids only for a while. The stream itself tells for sure.
    const mayBeThere = actualRevision !== 'no-stream' && actualRevision > revisionOf(expectedRevision);
    const recorded = mayBeThere ? await this.#recorded(append) : undefined;
    return recorded ?? { kind: 'conflict', stream, expectedRevision, actualRevision };
  }

  /** @throws {UnreadableEvent} if another program has deleted the stream permanently */
  async #appendTo(...[stream, ...rest]: Parameters<BatchAppender['append']>): Promise<AppendAnswer> {
    try {
      return await this.#appender.append(stream, ...rest);
    } catch (error) {
      if (!(error instanceof StreamDeleted)) throw error;
      throw new UnreadableEvent(`${stream} ${DELETED}. ${WHEN_DAMAGED}`, { cause: error });
    }
  }

  /**
   * Refuses an append to a stream that an operator has deleted. To the server the stream does not exist: it accepts the append as
   * that of a new stream, but with revisions after the deleted events. Readers of the store ignore such an event. It is truncated
   * too, so that a scavenge removes it.
   *
   * @source EventStoreDB's documentation, "Deleting streams and events": soft delete
   * @throws {UnreadableEvent} always
   */
  async #refuseRevived({ stream, events }: StreamAppend, revision: number): Promise<never> {
    await this.#hide(stream, revision + 1);
    throw new UnreadableEvent(`${stream} ${DELETED}, with ${revision + 1 - events.length} events. ${WHEN_DAMAGED}`);
  }

  /**
   * Finds an append in its stream. Returns undefined if its events are not there.
   *
   * @throws {UnreadableEvent} if the append is in a deleted stream, after the deleted events. The answer that showed this may have
   *   been lost
   */
  async #recorded(append: StreamAppend): Promise<AppendResult | undefined> {
    const { stream, expectedRevision, events } = append;
    const revision = revisionOf(expectedRevision) + 1;
    // For a deleted stream the server returns events from its new first revision on, not from the requested one.
    const found = await this.#readOf({ stream, revision, direction: 'forwards', maxCount: events.length }, (event) => ({
      id: event.getId()!.getString(),
      ...placeOf(event),
    }));
    const same = found.length === events.length && found.every(({ id }, index) => id === events[index]!.id);
    if (!same) return undefined;
    const [first, last] = [found[0]!, found.at(-1)!];
    if (expectedRevision === 'no-stream' && first.revision > revision) await this.#refuseRevived(append, last.revision);
    if (first.revision !== revision) return undefined;
    return { kind: 'appended', position: last.position, firstPositions: [first.position] };
  }

  async readStream(
    stream: string,
    { fromRevision = 0, toRevision = Number.MAX_SAFE_INTEGER, withBodies = true }: StreamRead = {},
  ): Promise<RecordedEvent[]> {
    const revision = fromRevision === 0 ? 'start' : fromRevision;
    const maxCount = Math.min(toRevision - fromRevision + 1, Number.MAX_SAFE_INTEGER);
    if (maxCount < 1) return [];
    const events = await this.#readOf({ stream, revision, direction: 'forwards', maxCount }, (event) =>
      decodeEvent(event, withBodies),
    );
    // For a truncated stream the server returns as many events from its first remaining one, which may be after `toRevision`.
    const found = events.filter((event) => event !== undefined && event.revision <= toRevision) as RecordedEvent[];
    this.#known(found.at(-1));
    return found;
  }

  async readLast(stream: string): Promise<RecordedEvent | undefined> {
    const last = await this.#lastOwn(stream);
    this.#known(last);
    return last;
  }

  /** A truncated stream always keeps its last event. So a truncated stream without one was deleted by another program. */
  async hasLostEnd(stream: string): Promise<boolean> {
    const { before } = await this.#truncation(stream);
    return before > 0 && (await this.#lastOwn(stream)) === undefined;
  }

  /** The last event written by the store itself. Events that another program has written after it are skipped. */
  async #lastOwn(stream: string): Promise<RecordedEvent | undefined> {
    let revision: number | 'end' = 'end';
    for (let maxCount = 1; ; maxCount = OTHERS_AT_ONCE) {
      const read: (RecordedEvent | Place)[] = await this.#readOf(
        { stream, revision, direction: 'backwards', maxCount },
        (event) => decodeEvent(event, false) ?? placeOf(event),
      );
      const own = read.find((event) => 'type' in event);
      if (own !== undefined) {
        const isLast = own === read[0] && revision === 'end';
        return isLast ? own : Object.assign(own, { othersBehind: true as const });
      }
      const earliest = read.at(-1);
      if (earliest === undefined || earliest.revision === 0) return undefined;
      revision = earliest.revision - 1;
    }
  }

  /** Records a position that was read. It may be an event of another node; a client that has seen it must not read an older state. */
  #known(event: RecordedEvent | undefined): void {
    this.#knownHead = Math.max(this.#knownHead, event?.position ?? 0);
  }

  async readBefore({
    stream,
    revision,
  }: Pick<RecordedEvent, 'stream' | 'revision'>): Promise<RecordedEvent | undefined> {
    if (revision === 0) return undefined;
    const [before] = await this.#readOf(
      { stream, revision: revision - 1, direction: 'forwards', maxCount: 1 },
      (event) => decodeEvent(event, false),
    );
    return before?.revision === revision - 1 ? before : undefined;
  }

  async readAt(position: number): Promise<RecordedEvent | undefined> {
    if (position === 0) return undefined;
    const [event] = await this.#connection.read(
      { from: { position }, direction: 'forwards', maxCount: 1 },
      (candidate) => (placeOf(candidate).position === position ? decodeEvent(candidate, true) : undefined),
    );
    if (event === undefined) return undefined;
    return event.revision < (await this.#truncation(event.stream)).before ? undefined : event;
  }

  async readBody(position: number): Promise<RecordedBody | undefined> {
    const event = await this.readAt(position);
    return event?.body === undefined ? undefined : { ...event, body: event.body };
  }

  async readAll(
    afterPosition: number,
    maxCount: number,
    { withBodies = true, mayBeTruncated }: { readonly withBodies?: boolean } & Leniency = {},
  ): Promise<RecordedEvent[]> {
    const events: RecordedEvent[] = [];
    for (let position = afterPosition; events.length < maxCount;) {
      const page = await this.readPage(position, maxCount - events.length, { withBodies, mayBeTruncated });
      events.push(...page.events);
      if (page.isLast) break;
      position = page.seen;
    }
    return events;
  }

  /** Reads up to `maxCount` events after a position, and returns those of wanted streams that are not truncated. */
  async readPage(
    afterPosition: number,
    maxCount: number,
    { withBodies, wanted = () => true, mayBeTruncated = false }: PageOptions,
  ): Promise<Page> {
    // The server includes the event at the given position, unless a scavenge has removed it. So one more is requested.
    const from = afterPosition === 0 ? 'start' : afterPosition;
    const asked = afterPosition === 0 ? maxCount : maxCount + 1;
    let seen = afterPosition;
    const followed = new Set<number>();
    const read = await this.#connection.read(
      { from: { position: from }, direction: 'forwards', maxCount: asked },
      (event) => {
        const { position, stream } = placeOf(event);
        if (position <= afterPosition) return undefined;
        seen = position;
        if (isFollowed(event)) followed.add(position);
        return wanted(stream) ? decodeEvent(event, withBodies) : undefined;
      },
    );
    const decoded = read.filter((event) => event !== undefined);
    const events = mayBeTruncated ? decoded : await this.#standing(decoded);
    // If the event at the position was gone, there may be one event too many.
    if (events.length > maxCount) {
      events.length = maxCount;
      seen = events.at(-1)!.position;
    }
    return { events, seen, isWhole: !followed.has(seen), isLast: read.length < asked };
  }

  /** The events that are not truncated. This takes one request to the server for each stream. */
  async #standing(events: RecordedEvent[]): Promise<RecordedEvent[]> {
    const streams = [...new Set(events.map((event) => event.stream))];
    const before = new Map<string, number>();
    const next = streams.values();
    await Promise.all(
      Array.from({ length: Math.min(LOOKUPS, streams.length) }, async () => {
        for (const stream of next) before.set(stream, (await this.#truncation(stream)).before);
      }),
    );
    return events.filter((event) => event.revision >= before.get(event.stream)!);
  }

  async scan(afterPosition: number, maxCount: number, streamPrefix: string, leniency: Leniency = {}): Promise<LogScan> {
    const wanted = (stream: string) => stream.startsWith(streamPrefix);
    const { events, seen } = await this.readPage(afterPosition, maxCount, { withBodies: false, wanted, ...leniency });
    return { events, position: seen };
  }

  async head(): Promise<number> {
    const before = this.#knownHead;
    const [last] = await this.#connection.read(
      { from: { position: 'end' }, direction: 'backwards', maxCount: 1 },
      (event) => placeOf(event).position,
    );
    const head = last ?? 0;
    // The last event of a stream is never truncated. So if the log now ends earlier than before, it is not the same log.
    if (head < before) throw new LogShrunk(this.nodes, head, before);
    this.#knownHead = Math.max(this.#knownHead, head);
    return head;
  }

  /** The id of this log. It is made at the first call, and stored in the metadata of a stream. */
  async id(): Promise<string> {
    for (;;) {
      const { metadata, revision } = await this.#truncation(IDENTITY_STREAM);
      const { logId } = metadata;
      if (typeof logId === 'string') {
        this.#identity = { ...this.#identity, logId };
        return logId;
      }
      const event = encodeMetadata({ ...metadata, logId: crypto.randomUUID() });
      await this.#appender.append(metadataStream(IDENTITY_STREAM), revision ?? 'no-stream', [event]);
    }
  }

  /** See `OwnedLog`. The owner is stored together with the id of the log. */
  async claim(owner: LogOwner, takeOver: boolean): Promise<LogOwner> {
    for (;;) {
      const { metadata, revision } = await this.#truncation(IDENTITY_STREAM);
      const found = metadata['owner'] as LogOwner | undefined;
      if (found?.id === owner.id) this.#identity = { ...this.#identity, owner: found.id };
      if (found !== undefined && (found.id === owner.id || !takeOver)) return found;
      const event = encodeMetadata({ ...metadata, owner });
      await this.#appender.append(metadataStream(IDENTITY_STREAM), revision ?? 'no-stream', [event]);
    }
  }

  async #assertNotReplaced(): Promise<void> {
    const { logId, owner } = this.#identity;
    if (logId === undefined && owner === undefined) return;
    const { metadata } = await this.#truncation(IDENTITY_STREAM);
    const isSame = logId === undefined || metadata['logId'] === logId;
    const isOurs = owner === undefined || (metadata['owner'] as LogOwner | undefined)?.id === owner;
    if (!isSame || !isOurs) throw new LogReplaced(this.nodes);
  }

  /** The server's nodes, for messages. */
  get nodes(): string {
    return this.#connection.nodes;
  }

  /** Positions are offsets in bytes in the server's log. */
  readonly positionsPerEvent = 1_000;

  readonly scavenging: Scavenging = {
    start: () => this.#connection.startScavenge(),
    find: async (id) => {
      // The server writes a stream for each scavenge, and keeps it for some weeks.
      const [last] = await this.#connection.read(
        { from: { stream: `$scavenges-${id}`, revision: 'end' }, direction: 'backwards', maxCount: 1 },
        (event) => ({
          type: event.getMetadataMap().get('type'),
          data: (parseJson(event) ?? {}) as { readonly error?: unknown },
        }),
      );
      if (last === undefined) return { id, state: 'unknown' };
      if (last.type !== '$scavengeCompleted') return { id, state: 'running' };
      const { error } = last.data;
      return { id, state: error === undefined || error === null || error === '' ? 'done' : 'failed' };
    },
  };

  subscribe(afterPosition: number, listener: LogListener, options: Leniency = {}): LogSubscription {
    const subscription = new CatchUpSubscription(this, this.#connection, {
      ...options,
      afterPosition,
      listener,
      onEnd: () => this.#subscriptions.delete(subscription),
    });
    this.#subscriptions.add(subscription);
    subscription.start();
    return subscription;
  }

  async truncateStream(stream: string, beforeRevision: number): Promise<void> {
    if (beforeRevision <= 0) return;
    if ((this.#revisions.get(stream) ?? -1) < beforeRevision) {
      const last = await this.#lastPlace(stream);
      if (last === undefined) return;
      invariant(beforeRevision <= last.revision, 'the last event of a stream is never truncated');
    }
    await this.#hide(stream, beforeRevision);
  }

  async #hide(stream: string, beforeRevision: number): Promise<void> {
    // Most streams have no metadata yet, so the first attempt assumes that.
    for (let found: Truncation = NOTHING_SAID; found.before < beforeRevision; found = await this.#truncation(stream)) {
      const { metadata, revision } = found;
      const event = encodeMetadata({ ...metadata, $tb: beforeRevision });
      try {
        const answer = await this.#appender.append(metadataStream(stream), revision ?? 'no-stream', [event]);
        if (answer.kind === 'appended') return;
      } catch (error) {
        if (!(error instanceof StreamDeleted)) throw error;
      }
    }
  }

  async #lastPlace(stream: string): Promise<Place | undefined> {
    const [last] = await this.#readOf({ stream, revision: 'end', direction: 'backwards', maxCount: 1 }, placeOf);
    return last;
  }

  /** Reads a part of a stream. The result is empty if another program has deleted the stream. */
  async #readOf<Taken>({ stream, revision, ...rest }: StreamPart, take: (event: WireEvent) => Taken): Promise<Taken[]> {
    try {
      return await this.#connection.read({ from: { stream, revision }, ...rest }, take);
    } catch (error) {
      if (error instanceof StreamDeleted) return [];
      throw error;
    }
  }

  async #truncation(stream: string): Promise<Truncation> {
    try {
      return (await this.#metadata(stream)) ?? NOTHING_SAID;
    } catch (error) {
      if (error instanceof StreamDeleted) return ALL_GONE;
      throw error;
    }
  }

  async #metadata(stream: string): Promise<Truncation | undefined> {
    const [last] = await this.#connection.read(
      { from: { stream: metadataStream(stream), revision: 'end' }, direction: 'backwards', maxCount: 1 },
      (event) => {
        // Metadata that are no JSON object count as none, as they do for the server.
        const parsed = parseJson(event);
        const metadata = typeof parsed === 'object' && parsed !== null ? (parsed as Truncation['metadata']) : {};
        const before = metadata['$tb'];
        return {
          before: typeof before === 'number' ? before : 0,
          metadata,
          revision: exactNumber(event.getStreamRevision()),
        };
      },
    );
    return last;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscriptions].map((subscription) => subscription.unsubscribe()));
    await this.#appender.idle();
    await this.#connection.close();
  }
}

function revisionOf(expected: ExpectedRevision): number {
  return expected === 'no-stream' ? -1 : expected;
}

function metadataStream(stream: string): string {
  return `$$${stream}`;
}
