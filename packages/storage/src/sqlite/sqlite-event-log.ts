import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { invariant } from '@epitaph/core/invariant.ts';
import type {
  AppendOptions,
  AppendResult,
  EventLog,
  LogListener,
  LogSubscription,
  StreamAppend,
} from '@epitaph/core/log/event-log.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { TailSubscription } from '@epitaph/core/log/tail-subscription.ts';
import type { AppendJob, EventRow, TruncateJob } from './log-writer-core.ts';
import { uuidBytes, uuidText } from './uuid-bytes.ts';
import type { Writer } from './writer.ts';

interface EventColumns {
  readonly position: number;
  readonly stream: string;
  readonly revision: number;
  readonly previous: number;
  readonly type: string;
  readonly version: number;
  readonly at: number;
  readonly id: Uint8Array;
  readonly actor: string;
  readonly correlation: Uint8Array;
  readonly causation: Uint8Array | null;
  readonly data: string;
  readonly body?: Uint8Array | null;
}

const FACTS = 'position, stream, revision, previous, type, version, at, id, actor, correlation, causation, data';

/** Tells promises of jobs that stand in the very group which the writer is gathering now. */
export interface WriterOrder {
  isQueued(promise: Promise<unknown>): boolean;
}

/** The event log in one SQLite file: written by the writer's thread, read from this one. */
export class SqliteEventLog implements EventLog {
  readonly spansStreams = true;
  readonly #writer: Writer;
  readonly #order: WriterOrder;
  readonly #database: DatabaseSync;
  readonly #read: ReturnType<typeof prepare>;
  readonly #subscriptions = new Set<TailSubscription>();
  #head: number;

  constructor(writer: Writer, order: WriterOrder, database: DatabaseSync) {
    this.#writer = writer;
    this.#order = order;
    this.#database = database;
    this.#read = prepare(database);
    this.#head = (this.#read.head.get() as { head: number }).head;
  }

  async append(appends: readonly StreamAppend[], options: AppendOptions = {}): Promise<AppendResult> {
    invariant(appends.length > 0, 'an append has at least one stream');
    const streams = new Set(appends.map((append) => append.stream));
    invariant(streams.size === appends.length, 'an append names each stream once');
    for (const append of appends) invariant(append.events.length > 0, 'a stream append has at least one event');
    // Within one group keys are committed before events, and a key that fails makes the events fail.
    if (options.after !== undefined && !this.#order.isQueued(options.after)) await options.after;
    const job: AppendJob = {
      kind: 'append',
      appends: appends.map(({ stream, expectedRevision, events }) => ({
        stream,
        expected: expectedRevision === 'no-stream' ? -1 : expectedRevision,
        events: events.map(toRow),
      })),
    };
    const result = await this.#writer.submit<AppendResult>(job);
    // Whoever was answered earlier was written earlier, so subscribers get events in order.
    if (result.kind === 'appended' && result.position > this.#head) {
      this.#head = result.position;
      if (this.#subscriptions.size > 0) {
        const recorded = toRecorded(appends, result.firstPositions);
        for (const subscription of this.#subscriptions) subscription.deliver(recorded);
      }
    }
    return result;
  }

  readStream(stream: string): RecordedEvent[] {
    const events: RecordedEvent[] = [];
    let position = (this.#read.stream.get(stream) as { last: number } | undefined)?.last ?? 0;
    while (position !== 0) {
      const row = this.#read.at.get(position) as EventColumns | undefined;
      if (row === undefined) break;
      events.push(fromRow(row));
      position = row.previous;
    }
    return events.reverse();
  }

  readLast(stream: string): RecordedEvent | undefined {
    const found = this.#read.stream.get(stream) as { last: number } | undefined;
    return found === undefined ? undefined : this.readAt(found.last);
  }

  readAt(position: number): RecordedEvent | undefined {
    const row = this.#read.at.get(position) as EventColumns | undefined;
    return row === undefined ? undefined : fromRow(row);
  }

  readAll(
    afterPosition: number,
    maxCount: number,
    { withBodies = true }: { readonly withBodies?: boolean } = {},
  ): RecordedEvent[] {
    const statement = withBodies ? this.#read.page : this.#read.factsPage;
    return (statement.all(afterPosition, maxCount) as unknown as EventColumns[]).map(fromRow);
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
    const job: TruncateJob = { kind: 'truncate', stream, before: beforeRevision };
    await this.#writer.submit(job);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscriptions].map((subscription) => subscription.unsubscribe()));
    // Readers first: the writer is then the last to close, and tidies its journal away.
    await this.#writer.idle();
    this.#database.close();
    await this.#writer.close();
  }
}

function prepare(database: DatabaseSync) {
  return {
    head: database.prepare('SELECT coalesce(max(position), 0) AS head FROM events'),
    stream: database.prepare('SELECT last FROM streams WHERE name = ?'),
    at: database.prepare(`SELECT ${FACTS}, body FROM events WHERE position = ?`),
    page: database.prepare(`SELECT ${FACTS}, body FROM events WHERE position > ? ORDER BY position LIMIT ?`),
    factsPage: database.prepare(`SELECT ${FACTS} FROM events WHERE position > ? ORDER BY position LIMIT ?`),
  } satisfies Record<string, StatementSync>;
}

function toRow(event: NewEvent): EventRow {
  return {
    id: uuidBytes(event.id),
    type: event.type,
    version: event.version,
    at: event.occurredAtMs,
    actor: event.actor,
    correlation: uuidBytes(event.correlationId),
    causation: event.causationId === event.correlationId ? null : uuidBytes(event.causationId),
    data: JSON.stringify(event.data),
    body: event.body ?? null,
  };
}

function fromRow(row: EventColumns): RecordedEvent {
  const correlationId = uuidText(row.correlation);
  return {
    id: uuidText(row.id),
    type: row.type,
    version: row.version,
    data: JSON.parse(row.data) as Record<string, unknown>,
    ...(row.body === undefined || row.body === null ? {} : { body: row.body }),
    occurredAtMs: row.at,
    actor: row.actor,
    correlationId,
    causationId: row.causation === null ? correlationId : uuidText(row.causation),
    stream: row.stream,
    revision: row.revision,
    position: row.position,
  };
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
