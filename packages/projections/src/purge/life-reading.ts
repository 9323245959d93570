import { invariant } from '@epitaph/core/invariant.ts';
import { isItemWrite, type ItemEvent, type Ledger } from '@epitaph/core/item/events.ts';
import { LedgerBuilder } from '@epitaph/core/item/ledger.ts';
import { readLife } from '@epitaph/core/item/read-life.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { BodySealer } from '@epitaph/core/vault/body-sealer.ts';
import { Pace } from '@epitaph/core/turn.ts';

/**
 * Documents with up to this many bytes in total are read at once. Those of a larger page are read one by one, because
 * they may not fit into memory.
 */
const BYTES_READ_AT_ONCE = 1024 * 1024;
/** Lives with up to this many events are read as a whole. */
const EVENTS_READ_WHOLE = 8;

type ItemWrite = Extract<ItemEvent, { readonly type: 'ItemUpserted' | 'ItemRecovered' }>;

/** An event as recorded, without its body, and as parsed. Parsing checks all of it, so it is done only once. */
export interface LifeEvent<Event extends ItemEvent = ItemEvent> {
  readonly recorded: RecordedEvent;
  readonly read: Event;
}

/** What a purge keeps of a life's events. Little of each, because a life may have millions, and a batch many such lives. */
export class LifeReading {
  readonly #ledger: LedgerBuilder;
  #first: LifeEvent | undefined;
  #last: LifeEvent | undefined;
  /** The last write, if it is still in the log. */
  lastWrite: LifeEvent<ItemWrite> | undefined;
  /** The first event that stays when the writes are truncated. */
  firstFact: RecordedEvent | undefined;
  readonly writePositions: number[] = [];
  /** The streams of all values of unique keys that the life ever had. */
  readonly uniqueKeys = new Set<string>();
  sealedBytes = 0;

  constructor(sealer: BodySealer) {
    this.#ledger = new LedgerBuilder(() => sealer.beginDigest());
  }

  /** @param sealed digest and size of a write's body */
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

  /** The ledger of its writes. If not all fit, with the times of at most `most` of them. */
  ledger(most: number): Ledger {
    return this.#ledger.encode(most);
  }
}

const readEvent = (recorded: RecordedEvent): LifeEvent => ({ recorded, read: readItemEvent(recorded) });

/** Reads a life without its bodies, and so without a ledger. Undefined for a life that was never written. */
export function readFacts(log: EventLog, sealer: BodySealer, stream: string): Promise<LifeReading | undefined> {
  return readLife(
    log,
    stream,
    () => new LifeReading(sealer),
    (reading, events) => events.forEach((event) => reading.take(readEvent(event), undefined)),
  );
}

/**
 * Reads a life with the digests of its bodies, of which only a few are in memory at a time. Undefined for a life that
 * was never written.
 */
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
