import { invariant } from '@epitaph/core/invariant.ts';
import { isItemWrite, type ItemEvent, type Ledger } from '@epitaph/core/item/events.ts';
import { LedgerBuilder } from '@epitaph/core/item/ledger.ts';
import { readLife } from '@epitaph/core/item/read-life.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { BodySealer } from '@epitaph/core/vault/body-sealer.ts';
import { Pace } from '@epitaph/core/turn.ts';

/** Documents of so many bytes may be read at once, and those of a page with more one by one: they may not fit into memory. */
const BYTES_READ_AT_ONCE = 1024 * 1024;
/** Lives of so few events are read whole. */
const EVENTS_READ_WHOLE = 8;

type ItemWrite = Extract<ItemEvent, { readonly type: 'ItemUpserted' | 'ItemRecovered' }>;

/** An event as it is recorded, without its body, and read: reading one checks all of it, so that is done once. */
export interface LifeEvent<Event extends ItemEvent = ItemEvent> {
  readonly recorded: RecordedEvent;
  readonly read: Event;
}

/** What a purge takes down of a life's events: little of each, for there may be millions, and a batch of such lives. */
export class LifeReading {
  readonly #ledger: LedgerBuilder;
  #first: LifeEvent | undefined;
  #last: LifeEvent | undefined;
  /** The last write, where one is left. */
  lastWrite: LifeEvent<ItemWrite> | undefined;
  /** The first of those that stay when the writes go. */
  firstFact: RecordedEvent | undefined;
  readonly writePositions: number[] = [];
  /** Streams of all values of unique keys that it ever had. */
  readonly uniqueKeys = new Set<string>();
  sealedBytes = 0;

  constructor(sealer: BodySealer) {
    this.#ledger = new LedgerBuilder(() => sealer.beginDigest());
  }

  /** @param sealed what is to be said of the body of a write */
  take(event: LifeEvent, sealed: { readonly digest: string; readonly bytes: number } | undefined): void {
    const { recorded, read } = event;
    this.#last = event;
    this.#first ??= event;
    if (!isItemWrite(read)) {
      this.firstFact ??= recorded;
      return;
    }
    this.lastWrite = { recorded, read };
    this.writePositions.push(recorded.position);
    for (const stream of read.data.uniqueKeys ?? []) this.uniqueKeys.add(stream);
    if (sealed === undefined) return;
    this.sealedBytes += sealed.bytes;
    this.#ledger.add({
      atMs: recorded.occurredAtMs,
      ttl: read.data.ttl,
      operation: read.type === 'ItemRecovered' ? 'recover' : read.data.operation,
      eventId: recorded.id,
      digest: sealed.digest,
    });
  }

  get first(): LifeEvent {
    invariant(this.#first !== undefined, 'a life has events');
    return this.#first;
  }

  get last(): LifeEvent {
    invariant(this.#last !== undefined, 'a life has events');
    return this.#last;
  }

  /** What its writes were, for its record; of so many of them the times, if not of all. */
  ledger(most: number): Ledger {
    return this.#ledger.encode(most);
  }
}

const readEvent = (recorded: RecordedEvent): LifeEvent => ({ recorded, read: readItemEvent(recorded) });

/** A life without its bodies, and so without a ledger; undefined for one that never was. */
export function readFacts(log: EventLog, sealer: BodySealer, stream: string): Promise<LifeReading | undefined> {
  return readLife(
    log,
    stream,
    () => new LifeReading(sealer),
    (reading, events) => events.forEach((event) => reading.take(readEvent(event), undefined)),
  );
}

/** A life with what there is to say of its bodies, of which never many are in memory at a time; undefined for one that never was. */
export async function readWithBodies(
  log: EventLog,
  sealer: BodySealer,
  stream: string,
): Promise<LifeReading | undefined> {
  const sealed = (body: Uint8Array = new Uint8Array()) => ({ digest: sealer.digest(body), bytes: body.length });
  const begin = () => new LifeReading(sealer);
  const last = await log.readLast(stream);
  if (last === undefined) return undefined;
  if (last.revision < EVENTS_READ_WHOLE) {
    const reading = begin();
    for (const { body, ...event } of await log.readStream(stream)) reading.take(readEvent(event), sealed(body));
    return reading;
  }
  return readLife(log, stream, begin, async (reading, page) => {
    const events = page.map(readEvent);
    const bytes = events.reduce((sum, { read }) => sum + (isItemWrite(read) ? read.data.bytes : 0), 0);
    if (bytes <= BYTES_READ_AT_ONCE) {
      const part = { fromRevision: page[0]!.revision, toRevision: page.at(-1)!.revision };
      const full = await log.readStream(stream, part);
      const bodies = new Map(full.map(({ position, body }) => [position, body]));
      for (const event of events) reading.take(event, sealed(bodies.get(event.recorded.position)));
      return;
    }
    const pace = new Pace();
    for (const event of events) {
      const found = isItemWrite(event.read) ? await log.readBody(event.recorded.position) : undefined;
      reading.take(event, sealed(found?.body));
      await pace.step();
    }
  });
}
