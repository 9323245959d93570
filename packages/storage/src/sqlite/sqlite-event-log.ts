import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { whyUnreadable } from '@epitaph/core/upcast.ts';
import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import type {
  AppendOptions,
  AppendResult,
  EventLog,
  LogListener,
  LogScan,
  LogSubscription,
  StreamAppend,
  StreamRead,
} from '@epitaph/core/log/event-log.ts';
import type { RecordedBody, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { TailSubscription } from '@epitaph/core/log/tail-subscription.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { Pace, turn } from '@epitaph/core/turn.ts';
import { assertWellFormed } from '@epitaph/core/log/well-formed.ts';
import { type EventColumns, FACTS, fromRow, toRow, Words } from './event-rows.ts';
import type { AddKeyJob, AppendJob, AppendOutcome, GiveKeyJob, KeyOfLife, TruncateJob } from './log-writer-jobs.ts';
import { MissingPositions } from './missing-positions.ts';
import { uuidOfHex } from './uuid-bytes.ts';
import type { Writer } from './writer.ts';

type LinkColumns = readonly [revision: number, previous: number];

type BodyColumns = readonly [id: string, stream: string, revision: number, body: Uint8Array | null];

/** How many events of a stream are read before others get a turn. */
const READ_AT_ONCE = 1_000;

/** A stream that is being read from its end towards its start. */
interface Backwards {
  /** The events read so far, the last one of the stream first. */
  readonly events: RecordedEvent[];
  readonly stream: string;
  readonly fromRevision: number;
  readonly toRevision: number;
  readonly statement: StatementSync;
  /** The position of the stream's last event when reading began. */
  end: number;
  /** The position of the next event to read; 0 for none. */
  position: number;
  /** True while the next event is known to be after the wanted ones, so that it is skipped. */
  isBehind: boolean;
}

/** A read that skips events leaves a signpost at every so many revisions. Signposts are kept for so many streams. */
const SIGNPOST_REVISIONS = 256;
const SIGNPOSTED_STREAMS = 100;

/** How many positions, or ends of streams, are checked before others get a turn. This takes a millisecond. */
const ROWS_AT_ONCE = 5_000;

/** The signposts of a stream. */
interface Signposts {
  /** Positions of events by their revisions. */
  readonly positions: Map<number, number>;
  highest: number;
}

/** How many streams' last events are kept in memory. Large ones count as several; those of scripts contain the script's text. */
const LAST_EVENTS = 40_000;
/** An event counts once more for every {@link LARGE_TEXT} characters of its text. Most events have fewer. */
const LARGE_TEXT = 512;

/** A stream's last event, without its body. */
interface LastEvent {
  readonly event: RecordedEvent;
  readonly hasBody: boolean;
  /** The position of the event before it, 0 for none; undefined if it is not known. */
  readonly previous: number | undefined;
}

function weightOf({ event }: LastEvent): number {
  const { body } = whyUnreadable(event) === undefined ? event.data : {};
  return typeof body === 'string' ? 1 + Math.floor(body.length / LARGE_TEXT) : 1;
}

/** Keys that were not submitted to the writer yet. Each is identified by the promise that resolves when it is stored. */
export interface PendingKeys {
  /** Hands keys to an append, which stores them too. Undefined if one of them or more are stored by jobs of their own. */
  claim(stored: readonly Promise<unknown>[]): readonly PendingKey[] | undefined;
}

export interface PendingKey {
  readonly job: AddKeyJob | GiveKeyJob;
  /** Must be called when the job is done, with the error if it failed. */
  readonly settle: (error?: unknown) => void;
}

/** The event log in one SQLite file. The writer's thread writes it, this thread reads it. */
export class SqliteEventLog implements EventLog {
  readonly spansStreams = true;
  readonly #writer: Writer;
  readonly #keys: PendingKeys;
  readonly #database: DatabaseSync;
  readonly #read: ReturnType<typeof prepare>;
  readonly #longReads = new KeyedMutex();
  /**
   * Positions of some events of long streams. A stream is read from its end backwards. Without signposts, reading it in pages,
   * oldest first, would go back over all later events for each page.
   */
  readonly #signposts = new GenerationCache<string, Signposts>(SIGNPOSTED_STREAMS);
  readonly #subscriptions = new Set<TailSubscription>();
  readonly #words: Words;
  /** The last events of recently used streams. They stay valid, since only this object writes the log. */
  readonly #lastEvents = new GenerationCache<string, LastEvent>(LAST_EVENTS, weightOf);
  /** Positions of the last events of streams that are not in the table of streams yet; see `LogWriterCore`. */
  readonly #recent = new Map<string, number>();
  #streamsAsOf: number;
  #head: number;

  constructor(writer: Writer, keys: PendingKeys, database: DatabaseSync) {
    this.#writer = writer;
    this.#keys = keys;
    this.#database = database;
    this.#read = prepare(database);
    this.#words = new Words(this.#read.words);
    this.#head = (this.#read.head.get() as { head: number }).head;
    this.#streamsAsOf = (this.#read.streamsAsOf.get() as { position: number }).position;
    for (const { stream, position } of this.#read.tail.iterate(this.#streamsAsOf) as Iterable<{
      stream: string;
      position: number;
    }>) {
      this.#recent.set(stream, position);
    }
  }

  async append(appends: readonly StreamAppend[], options: AppendOptions = {}): Promise<AppendResult> {
    assertWellFormed(appends);
    const { after = [] } = options;
    const claimed = this.#keys.claim(after);
    if (claimed === undefined) await Promise.all(after);
    const blobs: Uint8Array[] = [];
    const job: AppendJob = {
      kind: 'append',
      ...keysOf(claimed ?? [], blobs),
      streams: appends.map(({ stream, expectedRevision }) => [
        stream,
        expectedRevision === 'no-stream' ? -1 : expectedRevision,
      ]),
      events: appends.map(({ events }) => events.map((event) => toRow(event, blobs, this.#words))),
      blobs,
    };
    const written = this.#writer.submit<AppendOutcome>(job, { background: options.background });
    for (const { settle } of claimed ?? []) written.then(() => settle(), settle);
    const { result, streamsAsOf } = await written;
    // Answers come in the order of the writes, so subscribers get events in order.
    if (result.kind === 'appended' && result.position > this.#head) {
      this.#head = result.position;
      this.#words.learn();
      this.#rememberEnds(appends, result.firstPositions, streamsAsOf);
      if (this.#subscriptions.size > 0) {
        const recorded = toRecorded(appends, result.firstPositions);
        for (const subscription of this.#subscriptions) subscription.deliver(recorded);
      }
    }
    return result;
  }

  /** The position of a stream's last event, 0 for none. */
  #end(stream: string): number {
    return this.#recent.get(stream) ?? (this.#read.stream.get(stream) as { last: number } | undefined)?.last ?? 0;
  }

  #rememberEnds(appends: readonly StreamAppend[], firstPositions: readonly number[], streamsAsOf: number): void {
    for (let index = 0; index < appends.length; index++) {
      const { stream, expectedRevision, events } = appends[index]!;
      const position = firstPositions[index]! + events.length - 1;
      this.#recent.set(stream, position);
      // A read since this write may have cached its last event already, found by the table of streams. It is not the one before.
      const known = this.#lastEvents.get(stream)?.event;
      const before =
        expectedRevision === 'no-stream' ? 0 : known?.revision === expectedRevision ? known.position : undefined;
      const previous = events.length > 1 ? position - 1 : before;
      const revision = (expectedRevision === 'no-stream' ? -1 : expectedRevision) + events.length;
      const { body, ...facts } = events.at(-1)!;
      const event = { ...facts, stream, revision, position };
      this.#lastEvents.set(stream, { event, hasBody: body !== undefined, previous });
    }
    if (streamsAsOf === this.#streamsAsOf) return;
    this.#streamsAsOf = streamsAsOf;
    for (const [stream, end] of this.#recent) if (end <= streamsAsOf) this.#recent.delete(stream);
  }

  readStream(
    stream: string,
    { fromRevision = 0, toRevision = Number.MAX_SAFE_INTEGER, withBodies = true }: StreamRead = {},
  ): MaybePromise<RecordedEvent[]> {
    const events: RecordedEvent[] = [];
    const last = this.#lastEvents.get(stream);
    const end = last?.event.position ?? this.#end(stream);
    const statement = withBodies ? this.#read.at : this.#read.facts;
    const backwards = { events, stream, fromRevision, toRevision, statement, end, position: end, isBehind: false };
    if (last?.previous !== undefined && !(withBodies && last.hasBody)) {
      if (last.event.revision < fromRevision) return events;
      if (last.event.revision <= toRevision) events.push(last.event);
      backwards.position = last.previous;
      backwards.isBehind = last.event.revision - 1 > toRevision;
    }
    this.#toSignpost(backwards);
    this.#readBackwards(backwards);
    if (backwards.position === 0) return events.reverse();
    // Only one long stream is read at a time, and the read yields to other work in between.
    return this.#longReads.run('', () => this.#readToTheStart(backwards));
  }

  /** Reads the rest of a stream, and returns all events, oldest first. */
  async #readToTheStart(backwards: Backwards): Promise<RecordedEvent[]> {
    const { events, stream } = backwards;
    // While this call waited, another read may have left signposts.
    this.#toSignpost(backwards);
    while (backwards.position !== 0) {
      await turn();
      this.#readBackwards(backwards);
      const first = events.at(-1);
      if (backwards.position === 0 && first !== undefined && first.revision > backwards.fromRevision) {
        // The stream was truncated meanwhile, and a new last event says why. So the stream is read once more.
        const now = this.readLast(stream);
        if (now !== undefined && now.position > backwards.end) {
          events.length = 0;
          backwards.end = backwards.position = this.#end(stream);
          backwards.isBehind = false;
        }
      }
    }
    return events.reverse();
  }

  /** If nothing is read yet, moves to the nearest signpost at or after the last wanted event, if there is one. */
  #toSignpost(backwards: Backwards): void {
    const { stream, events, toRevision } = backwards;
    if (events.length > 0 || backwards.position === 0) return;
    const signposts = this.#signposts.get(stream);
    if (signposts === undefined) return;
    let revision = Math.ceil(toRevision / SIGNPOST_REVISIONS) * SIGNPOST_REVISIONS;
    while (revision < signposts.highest && !signposts.positions.has(revision)) revision += SIGNPOST_REVISIONS;
    const position = signposts.positions.get(revision);
    // The event of a signpost may have been truncated since.
    if (position === undefined || this.#read.link.get(position) === undefined) return;
    backwards.position = position;
    backwards.isBehind = revision > toRevision;
  }

  /** Reads up to READ_AT_ONCE events backwards from the position. Sets the position to 0 when nothing is left to read. */
  #readBackwards(backwards: Backwards): void {
    const { events, stream, fromRevision, toRevision, statement } = backwards;
    for (let count = 0; backwards.position !== 0 && count < READ_AT_ONCE; count += 1) {
      const { position } = backwards;
      if (backwards.isBehind) {
        const link = this.#read.link.get(position) as unknown as LinkColumns | undefined;
        const [revision, previous] = link ?? [0, 0];
        if (revision % SIGNPOST_REVISIONS === 0 && link !== undefined) this.#setSignpost(stream, revision, position);
        backwards.position = previous;
        backwards.isBehind = revision - 1 > toRevision;
        continue;
      }
      const row = statement.get(position) as unknown as EventColumns | undefined;
      // If the link to the previous event is damaged, an event of another stream is not taken for one of this stream.
      const isThere = row !== undefined && row[1] === stream && row[2] >= fromRevision;
      if (isThere && row[2] <= toRevision) events.push(fromRow(row, this.#words));
      backwards.position = isThere ? row[3] : 0;
      backwards.isBehind = isThere && row[2] - 1 > toRevision;
    }
  }

  #setSignpost(stream: string, revision: number, position: number): void {
    const signposts = this.#signposts.get(stream) ?? { positions: new Map<number, number>(), highest: revision };
    if (signposts.positions.size === 0) this.#signposts.set(stream, signposts);
    signposts.positions.set(revision, position);
    signposts.highest = Math.max(signposts.highest, revision);
  }

  readLast(stream: string): RecordedEvent | undefined {
    const cached = this.#lastEvents.get(stream);
    if (cached !== undefined) return cached.event;
    const end = this.#end(stream);
    const row = end === 0 ? undefined : (this.#read.facts.get(end) as unknown as EventColumns | undefined);
    if (row === undefined || row[1] !== stream) return undefined;
    const event = fromRow(row, this.#words);
    // The query does not tell whether the event has a body, so it is assumed to have one.
    this.#lastEvents.set(stream, { event, hasBody: true, previous: row[3] });
    return event;
  }

  hasLostEnd(stream: string): boolean {
    return this.#end(stream) > 0 && this.readLast(stream) === undefined;
  }

  /** Finds missing positions first: reading each stream's last event, at random places, would take half as long as a rebuild. */
  async *lostEnds(afterPosition: number): AsyncGenerator<string> {
    const pace = new Pace();
    const missing = await this.#missingAfter(afterPosition, pace);
    if (missing.isEmpty) return;
    for (let name = ''; ;) {
      const page = this.#read.ends.get(name, ROWS_AT_ONCE) as { ends: string; last: string | null };
      if (page.last === null) return;
      if ((JSON.parse(page.ends) as number[]).some((end) => missing.has(end))) {
        for (const row of this.#read.streams.all(name, page.last) as { name: string; last: number }[]) {
          // The table may have an earlier end of the stream, which was truncated since. Then nothing is lost.
          if (missing.has(row.last) && this.hasLostEnd(row.name)) yield row.name;
        }
      }
      name = page.last;
      await pace.step();
    }
  }

  async #missingAfter(afterPosition: number, pace: Pace): Promise<MissingPositions> {
    // The last events of the log may be lost as well, so the end may be higher than the head.
    const end = Math.max(this.#head, this.#streamsAsOf);
    const missing = new MissingPositions(afterPosition, end);
    for (let after = afterPosition; after < end; after += ROWS_AT_ONCE) {
      const upTo = Math.min(after + ROWS_AT_ONCE, end);
      const { count } = this.#read.count.get(after, upTo) as { count: number };
      if (count < upTo - after) {
        const { positions } = this.#read.positions.get(after, upTo) as { positions: string };
        missing.add(after, upTo, JSON.parse(positions) as number[]);
      }
      await pace.step();
    }
    return missing;
  }

  readBefore({ position }: Pick<RecordedEvent, 'position'>): RecordedEvent | undefined {
    const row = this.#read.facts.get(position) as unknown as EventColumns | undefined;
    if (row === undefined || row[3] === 0) return undefined;
    const before = this.#read.facts.get(row[3]) as unknown as EventColumns | undefined;
    return before === undefined || before[1] !== row[1] ? undefined : fromRow(before, this.#words);
  }

  readAt(position: number): RecordedEvent | undefined {
    const row = this.#read.at.get(position) as unknown as EventColumns | undefined;
    return row === undefined ? undefined : fromRow(row, this.#words);
  }

  readBody(position: number): RecordedBody | undefined {
    const row = this.#read.body.get(position) as unknown as BodyColumns | undefined;
    if (row === undefined) return undefined;
    const [id, stream, revision, body] = row;
    return body === null ? undefined : { id: uuidOfHex(id, 0), stream, revision, body };
  }

  readAll(
    afterPosition: number,
    maxCount: number,
    { withBodies = true }: { readonly withBodies?: boolean } = {},
  ): RecordedEvent[] {
    const statement = withBodies ? this.#read.page : this.#read.factsPage;
    // The file may already contain events whose appends are not acknowledged yet. No reader may be ahead of the head.
    const rows = statement.all(afterPosition, this.#head, maxCount) as unknown as EventColumns[];
    return rows.map((row) => fromRow(row, this.#words));
  }

  scan(afterPosition: number, maxCount: number, streamPrefix: string): LogScan {
    const head = this.#head;
    if (afterPosition >= head) return { events: [], position: afterPosition };
    // `maxCount` limits positions rather than events, so that skipping truncated events costs nothing.
    const position = Math.min(head, afterPosition + maxCount);
    const rows = this.#read.scan.all(
      afterPosition,
      position,
      streamPrefix,
      afterPrefix(streamPrefix),
    ) as unknown as EventColumns[];
    return { events: rows.map((row) => fromRow(row, this.#words)), position };
  }

  findStream(prefix: string): string | undefined {
    const found = this.#read.streamFrom.get(prefix, afterPrefix(prefix)) as { name: string } | undefined;
    return found?.name ?? this.#recent.keys().find((stream) => stream.startsWith(prefix));
  }

  head(): number {
    return this.#head;
  }

  subscribe(afterPosition: number, listener: LogListener): LogSubscription {
    const subscription = new TailSubscription(this, afterPosition, listener, () =>
      this.#subscriptions.delete(subscription),
    );
    this.#subscriptions.add(subscription);
    subscription.start();
    return subscription;
  }

  async truncateStream(stream: string, beforeRevision: number): Promise<void> {
    const last = this.readLast(stream);
    invariant(last === undefined || beforeRevision <= last.revision, 'the last event of a stream is never truncated');
    const job: TruncateJob = { kind: 'truncate', stream, before: beforeRevision };
    await this.#writer.submit(job, { background: true });
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscriptions].map((subscription) => subscription.unsubscribe()));
    // The reading connection is closed first: SQLite removes the journal when the last connection is closed, the writer's.
    await this.#writer.idle();
    if (this.#database.isOpen) this.#database.close();
    await this.#writer.close();
  }
}

/** @param blobs the bytes of keys that are not stored yet are added to it */
function keysOf(claimed: readonly PendingKey[], blobs: Uint8Array[]): Pick<AppendJob, 'keys' | 'spareKeys'> {
  if (claimed.length === 0) return {};
  const keys: KeyOfLife[] = [];
  const spareKeys: KeyOfLife[] = [];
  for (const { job } of claimed) {
    if (job.kind === 'add-key') blobs.push(...job.blobs);
    (job.kind === 'add-key' ? keys : spareKeys).push([job.id, job.stream]);
  }
  return { ...(keys.length > 0 && { keys }), ...(spareKeys.length > 0 && { spareKeys }) };
}

function prepare(database: DatabaseSync) {
  const events = (columns: string, where: string) => {
    const statement = database.prepare(`SELECT ${columns} FROM events WHERE ${where}`);
    statement.setReturnArrays(true);
    return statement;
  };
  const withBody = `${FACTS}, body`;
  const page = 'position > ? AND position <= ? ORDER BY position LIMIT ?';
  return {
    head: database.prepare('SELECT coalesce(max(position), 0) AS head FROM events'),
    stream: database.prepare('SELECT last FROM streams WHERE name = ?'),
    streamFrom: database.prepare('SELECT name FROM streams WHERE name >= ? AND name < ? LIMIT 1'),
    // Many ends are returned in one row, since each row costs time.
    ends: database.prepare(
      `SELECT json_group_array(last) AS ends, max(name) AS last
         FROM (SELECT name, last FROM streams WHERE name > ? ORDER BY name LIMIT ?)`,
    ),
    streams: database.prepare('SELECT name, last FROM streams WHERE name > ? AND name <= ? ORDER BY name'),
    count: database.prepare('SELECT count(*) AS count FROM events WHERE position > ? AND position <= ?'),
    positions: database.prepare(
      `SELECT json_group_array(position) AS positions
         FROM (SELECT position FROM events WHERE position > ? AND position <= ? ORDER BY position)`,
    ),
    facts: events(FACTS, 'position = ?'),
    streamsAsOf: database.prepare('SELECT position FROM streams_as_of'),
    tail: database.prepare('SELECT stream, position FROM events WHERE position > ? ORDER BY position'),
    at: events(withBody, 'position = ?'),
    link: events('revision, previous', 'position = ?'),
    body: events('lower(hex(id)), stream, revision, body', 'position = ?'),
    words: database.prepare('SELECT number, text FROM words'),
    page: events(withBody, page),
    factsPage: events(FACTS, page),
    scan: events(FACTS, 'position > ? AND position <= ? AND stream >= ? AND stream < ? ORDER BY position'),
  } satisfies Record<string, StatementSync>;
}

/** A text that sorts after all texts that begin with the prefix, by code points, as SQLite compares. */
function afterPrefix(prefix: string): string {
  return `${prefix}\u{10FFFF}`;
}

function toRecorded(appends: readonly StreamAppend[], firstPositions: readonly number[]): RecordedEvent[] {
  const recorded: RecordedEvent[] = [];
  for (let index = 0; index < appends.length; index++) {
    const { stream, expectedRevision, events } = appends[index]!;
    const firstRevision = expectedRevision === 'no-stream' ? 0 : expectedRevision + 1;
    for (let offset = 0; offset < events.length; offset++) {
      recorded.push({
        ...events[offset]!,
        stream,
        revision: firstRevision + offset,
        position: firstPositions[index]! + offset,
      });
    }
  }
  return recorded;
}
