import { invariant } from '../../invariant.ts';
import type {
  AppendOptions,
  AppendResult,
  EventLog,
  LogListener,
  LogScan,
  LogSubscription,
  StreamAppend,
  StreamRead,
} from '../event-log.ts';
import type { RecordedBody, RecordedEvent } from '../recorded-event.ts';
import { TailSubscription } from '../tail-subscription.ts';
import { assertWellFormed } from '../well-formed.ts';

/** The log in memory, for tests. Also the simplest implementation of the contract. Nothing survives the process. */
export class MemoryEventLog implements EventLog {
  readonly spansStreams = true;
  readonly #all: (RecordedEvent | undefined)[] = [];
  readonly #streams = new Map<string, RecordedEvent[]>();
  readonly #revisions = new Map<string, number>();
  readonly #subscriptions = new Set<TailSubscription>();

  async append(appends: readonly StreamAppend[], options: AppendOptions = {}): Promise<AppendResult> {
    assertWellFormed(appends);
    await Promise.all(options.after ?? []);
    const retried = appends.map((append) => this.#positionOfRetry(append));
    if (retried.every((first) => first !== undefined)) {
      const last = appends.at(-1)!;
      return {
        kind: 'appended',
        position: retried.at(-1)! + last.events.length - 1,
        firstPositions: retried,
      };
    }
    for (const { stream, expectedRevision } of appends) {
      const actualRevision = this.#revisions.get(stream) ?? 'no-stream';
      if (actualRevision !== expectedRevision) {
        return { kind: 'conflict', stream, expectedRevision, actualRevision };
      }
    }
    const recorded: RecordedEvent[] = [];
    const firstPositions: number[] = [];
    for (const { stream, events } of appends) {
      firstPositions.push(this.#all.length + 1);
      for (const event of events) {
        const revision = (this.#revisions.get(stream) ?? -1) + 1;
        const place = { stream, revision, position: this.#all.length + 1 };
        // The caller may reuse its buffer, so the log copies the bytes.
        const entry = { ...event, ...(event.body === undefined ? {} : { body: event.body.slice() }), ...place };
        this.#all.push(entry);
        this.#revisions.set(stream, revision);
        const list = this.#streams.get(stream);
        if (list === undefined) this.#streams.set(stream, [entry]);
        else list.push(entry);
        recorded.push(entry);
      }
    }
    for (const subscription of this.#subscriptions) subscription.deliver(recorded);
    return { kind: 'appended', position: this.#all.length, firstPositions };
  }

  #positionOfRetry({ stream, expectedRevision, events }: StreamAppend): number | undefined {
    const firstRevision = expectedRevision === 'no-stream' ? 0 : expectedRevision + 1;
    const list = this.#streams.get(stream) ?? [];
    const start = list.findIndex((event) => event.revision === firstRevision);
    if (start < 0) return undefined;
    const same = events.every((event, index) => list[start + index]?.id === event.id);
    return same ? list[start]!.position : undefined;
  }

  readStream(
    stream: string,
    { fromRevision = 0, toRevision = Number.POSITIVE_INFINITY, withBodies = true }: StreamRead = {},
  ): RecordedEvent[] {
    const events = (this.#streams.get(stream) ?? []).filter(
      ({ revision }) => revision >= fromRevision && revision <= toRevision,
    );
    return withBodies ? events : events.map(withoutBody);
  }

  readLast(stream: string): RecordedEvent | undefined {
    const last = this.#streams.get(stream)?.at(-1);
    return last === undefined ? undefined : withoutBody(last);
  }

  readBefore({ stream, revision }: Pick<RecordedEvent, 'stream' | 'revision'>): RecordedEvent | undefined {
    const before = this.#streams.get(stream)?.find((event) => event.revision === revision - 1);
    return before === undefined ? undefined : withoutBody(before);
  }

  readAt(position: number): RecordedEvent | undefined {
    return this.#all[position - 1];
  }

  readBody(position: number): RecordedBody | undefined {
    const event = this.readAt(position);
    return event?.body === undefined ? undefined : { ...event, body: event.body };
  }

  readAll(
    afterPosition: number,
    maxCount: number,
    { withBodies = true }: { readonly withBodies?: boolean } = {},
  ): RecordedEvent[] {
    const found: RecordedEvent[] = [];
    for (let index = afterPosition; index < this.#all.length && found.length < maxCount; index++) {
      const event = this.#all[index];
      if (event !== undefined) found.push(withBodies ? event : withoutBody(event));
    }
    return found;
  }

  scan(afterPosition: number, maxCount: number, streamPrefix: string): LogScan {
    const events = this.readAll(afterPosition, maxCount, { withBodies: false });
    return {
      events: events.filter((event) => event.stream.startsWith(streamPrefix)),
      position: events.at(-1)?.position ?? afterPosition,
    };
  }

  findStream(prefix: string): string | undefined {
    return this.#streams.keys().find((stream) => stream.startsWith(prefix));
  }

  head(): number {
    return this.#all.length;
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
    const list = this.#streams.get(stream);
    if (list === undefined) return;
    invariant(beforeRevision <= list.at(-1)!.revision, 'the last event of a stream is never truncated');
    for (const event of list) if (event.revision < beforeRevision) this.#all[event.position - 1] = undefined;
    this.#streams.set(
      stream,
      list.filter((event) => event.revision >= beforeRevision),
    );
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscriptions].map((subscription) => subscription.unsubscribe()));
  }
}

function withoutBody(event: RecordedEvent): RecordedEvent {
  const { body: _, ...facts } = event;
  return facts;
}
