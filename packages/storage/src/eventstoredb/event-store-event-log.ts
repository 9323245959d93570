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

/** Never has events, only metadata. */
const IDENTITY_STREAM = 'epitaph';

/** Events that are looked at together, where another program has written behind the last one of the store. */
const OTHERS_AT_ONCE = 64;
/** Streams whose truncation is looked up at once. */
const LOOKUPS = 64;
/** Streams whose end is kept in memory, as it was appended here. */
const RECENT_STREAMS = 20_000;

/** A part of one stream. */
type StreamPart = Omit<ReadRequest, 'from'> & Extract<ReadRequest['from'], { readonly stream: string }>;

/** What a stream's metadata say of its truncation, and at which revision they stand. */
interface Truncation {
  readonly before: number;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly revision: number | undefined;
}

const NOTHING_SAID: Truncation = { before: 0, metadata: {}, revision: undefined };
/** Of a stream that another program has deleted for good. */
const ALL_GONE: Truncation = { ...NOTHING_SAID, before: Number.POSITIVE_INFINITY };

const DELETED = 'has been deleted from the event store by another program';

/** The server was emptied, or was given an older copy, under a store that is at work: its read models are ahead of it. */
class LogShrunk extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor(nodes: string, head: number, before: number) {
    super(
      `The event log on ${nodes} ends at ${head}, and has had events up to ${before}: it is another one, or an older copy. Stop all nodes and put the right one back, or call epitaph restore.`,
    );
  }
}

/** The server has another log by now, or a restore has given this one to others: what was appended would be lost to both. */
class LogReplaced extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor(nodes: string) {
    super(
      `The event log on ${nodes} is another one than when this store was started, or was given to other keys by a restore. Stop this store; start it on the log that it belongs to.`,
    );
  }
}

/**
 * The event log on EventStoreDB or KurrentDB. A position is the commit position of an event; a stream is truncated by
 * `$tb` in its metadata, and a scavenge gives the space back. Reading everything, the server shows truncated events
 * until that scavenge, so they are left out here.
 */
export class EventStoreEventLog implements EventLog, PageReader {
  readonly spansStreams = false;
  readonly mayAppendLate = true;
  readonly #connection: Connection;
  readonly #appender: BatchAppender;
  readonly #subscriptions = new Set<CatchUpSubscription>();
  /** That streams were appended to lately have at least. */
  readonly #revisions = new GenerationCache<string, number>(RECENT_STREAMS);
  #knownHead = 0;
  /** What the log has said of itself. */
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
    // An append that was made before is answered with its old place; any other comes after all that was known.
    if (result.position <= before) await this.head();
    this.#knownHead = Math.max(this.#knownHead, result.position);
    return result;
  }

  async #append(appends: readonly StreamAppend[], options: AppendOptions): Promise<AppendResult> {
    assertWellFormed(appends);
    if (appends.length > 1) {
      throw new Refusal('not-supported', 'On this event log one request can write to one item alone.');
    }
    const [append] = appends as [StreamAppend];
    // Encoded before anything is waited for: the giver may go on to use its buffers.
    const encoded = encodeAppend(append);
    await Promise.all(options.after ?? []);
    const { stream, expectedRevision } = append;
    const answer = await this.#appendTo(stream, expectedRevision, encoded, options.notAfterMs);
    if (answer.kind === 'late') {
      // The server may have taken it in time, and its answer was lost.
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
      // What is truncated has an end that stays.
      if (last === undefined) throw new UnreadableEvent(`${stream} ${DELETED}. ${WHEN_DAMAGED}`);
      invariant(last.revision > revision, `an append to ${stream} was answered, but is not there`);
      // Its answer was long in coming, and the stream has been truncated since. Whoever asks again finds what there is now.
      throw new StorageUnavailable(`what was appended to ${stream} has been truncated since`);
    }
    const { actualRevision } = answer;
    // The server knows retries by their ids as long as it remembers them; what is in the stream is beyond doubt.
    const mayBeThere = actualRevision !== 'no-stream' && actualRevision > revisionOf(expectedRevision);
    const recorded = mayBeThere ? await this.#recorded(append) : undefined;
    return recorded ?? { kind: 'conflict', stream, expectedRevision, actualRevision };
  }

  /** @throws {UnreadableEvent} for a stream that another program has deleted for good */
  async #appendTo(...[stream, ...rest]: Parameters<BatchAppender['append']>): Promise<AppendAnswer> {
    try {
      return await this.#appender.append(stream, ...rest);
    } catch (error) {
      if (!(error instanceof StreamDeleted)) throw error;
      throw new UnreadableEvent(`${stream} ${DELETED}. ${WHEN_DAMAGED}`, { cause: error });
    }
  }

  /**
   * A stream that an operator has deleted is none to the server, which then numbers what is appended behind what was there. No reader takes
   * such an event for one of the store's. It is hidden as the others are, so that a scavenge takes what it holds.
   *
   * @source EventStoreDB's documentation, "Deleting streams and events": soft delete
   * @throws {UnreadableEvent} for such a stream
   */
  async #refuseRevived({ stream, events }: StreamAppend, revision: number): Promise<never> {
    await this.#hide(stream, revision + 1);
    throw new UnreadableEvent(`${stream} ${DELETED}, with ${revision + 1 - events.length} events. ${WHEN_DAMAGED}`);
  }

  /**
   * The append as it stands in its stream, or undefined if something else, or nothing, stands there.
   *
   * @throws {UnreadableEvent} where it stands behind what a deleted stream had: of its answer, which told so, nobody may know
   */
  async #recorded(append: StreamAppend): Promise<AppendResult | undefined> {
    const { stream, expectedRevision, events } = append;
    const revision = revisionOf(expectedRevision) + 1;
    // Of a stream that was deleted the server gives so many from where it begins now.
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
    // Of a stream that was truncated the server gives so many from where it begins.
    const found = events.filter((event) => event !== undefined && event.revision <= toRevision) as RecordedEvent[];
    this.#known(found.at(-1));
    return found;
  }

  async readLast(stream: string): Promise<RecordedEvent | undefined> {
    const last = await this.#lastOwn(stream);
    this.#known(last);
    return last;
  }

  /** What has been truncated has an end that stays, so a stream that was and has none was deleted by another program. */
  async hasLostEnd(stream: string): Promise<boolean> {
    const { before } = await this.#truncation(stream);
    return before > 0 && (await this.#lastOwn(stream)) === undefined;
  }

  /** The last event that is the store's own: another program may have written behind it, which makes nothing of it untrue. */
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

  /** Whoever is answered by an event of another node's goes on from there: its session is of what was read. */
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

  /** Up to `maxCount` events after a position, of those the ones of wanted streams that were not truncated. */
  async readPage(
    afterPosition: number,
    maxCount: number,
    { withBodies, wanted = () => true, mayBeTruncated = false }: PageOptions,
  ): Promise<Page> {
    // The server reads from a position on: the event there comes along, unless a scavenge has taken it.
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
    // One more than was wanted may have come, where the event at the position was gone.
    if (events.length > maxCount) {
      events.length = maxCount;
      seen = events.at(-1)!.position;
    }
    return { events, seen, isWhole: !followed.has(seen), isLast: read.length < asked };
  }

  /** The events that were not truncated: a question to the server for each stream. */
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
    // The last event of a stream is never truncated, so a log that ends before where it ended is not the one it was.
    if (head < before) throw new LogShrunk(this.nodes, head, before);
    this.#knownHead = Math.max(this.#knownHead, head);
    return head;
  }

  /** What tells this log from all others: made up when it is asked for first, and kept in the metadata of a stream. */
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

  /** See `OwnedLog`. It is kept beside what tells the log from others. */
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

  /** Positions are bytes of the server's log. */
  readonly positionsPerEvent = 1_000;

  readonly scavenging: Scavenging = {
    start: () => this.#connection.startScavenge(),
    find: async (id) => {
      // The server keeps a stream for each run, for some weeks.
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
    // Most streams have no metadata yet, so that is not asked first.
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

  /** What of a stream the server shows: nothing of one that another program has deleted. */
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
        // The server takes what is no object for none, and so does whoever reads it here.
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
