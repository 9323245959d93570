import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { hash } from 'node:crypto';
import { leftWithPartitionKey } from '@epitaph/core/container/partition-key-deletes.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { GrowingLifeFacts, type LifeFacts, lifeFacts, withPartitionKeyEnd } from '@epitaph/core/history/life.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { lifeTail, readLife } from '@epitaph/core/item/read-life.ts';
import { containerPrefix, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { ScanProgress } from '../api/history-api.ts';

/** Events read at a time. */
const PAGE_EVENTS = 1_000;

/** One life of an item with everything recorded about it. */
export interface ScannedLife extends ItemName {
  readonly facts: LifeFacts;
}

/**
 * Every life that a container has had up to the log's head, each once and in no particular order; lives that were
 * purged are taken from their ledgers. This reads the log from end to end without bodies. It keeps a number for each
 * life that is not purged, which takes 8 MB for a million lives.
 *
 * A life is returned when its last event is read. If its events are purged and truncated before that, it is returned
 * when the scan reads the record of the purge behind the head.
 *
 * @param upToMs when the scan begins, in milliseconds; of lives found by such a record, nothing later than this is
 *   returned
 */
export async function* livesOf(
  log: EventLog,
  container: ContainerState,
  upToMs: number,
  onProgress: (progress: ScanProgress) => void = () => {},
  signal?: AbortSignal,
): AsyncGenerator<ScannedLife> {
  const headPosition = await log.head();
  const prefix = containerPrefix(container.rid);
  const pace = new Pace();
  const told: Float64Array[] = [];
  let position = 0;
  while (position < headPosition) {
    signal?.throwIfAborted();
    const events = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
    if (events.length === 0) break;
    const lastHere = new Map<string, number>();
    for (const { stream, position } of events) if (position <= headPosition) lastHere.set(stream, position);
    const toldHere: number[] = [];
    for (const event of events) {
      if (event.position > headPosition) break;
      // Only the last event of a stream in this page counts. A stream that is truncated meanwhile can't be asked
      // whether it goes on, and its events on later pages are gone.
      if (!event.stream.startsWith(prefix) || lastHere.get(event.stream) !== event.position) continue;
      const life = await lifeThatEndsHere(log, event, headPosition);
      if (life !== undefined) {
        if (life.facts.purge === undefined) toldHere.push(numberOf(event.stream));
        const left = await leftWithPartitionKey(log, container, life.partitionKey, event);
        yield { ...life, facts: withPartitionKeyEnd(life.facts, left, container.timeline) };
      }
      await pace.step();
    }
    told.push(Float64Array.from(toldHere));
    position = events.at(-1)!.position;
    onProgress({ position: Math.min(position, headPosition), headPosition });
    await pace.step();
  }
  yield* purgedMeanwhile(log, prefix, told, { headPosition, upToMs, signal });
}

/** The lives whose events were gone before the scan reached them. The events that purged them are behind the head. */
async function* purgedMeanwhile(
  log: EventLog,
  prefix: string,
  told: readonly Float64Array[],
  { headPosition, upToMs, signal }: { headPosition: number; upToMs: number; signal: AbortSignal | undefined },
): AsyncGenerator<ScannedLife> {
  const upToPosition = await log.head();
  const pace = new Pace();
  for (let position = headPosition; position < upToPosition;) {
    signal?.throwIfAborted();
    const events = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
    if (events.length === 0) return;
    const purged = events.filter(({ type, stream }) => type === 'ItemPurged' && stream.startsWith(prefix));
    const untold = new Map(purged.map((event) => [numberOf(event.stream), event]));
    for (const page of told) {
      if (untold.size === 0) break;
      for (const number of page) untold.delete(number);
      await pace.step();
    }
    for (const { stream, data } of untold.values()) {
      const { life } = parseItemStream(stream)!;
      const { end, ...facts } = lifeFacts(life, await lifeTail(log, stream));
      const writes = facts.writes.filter(({ atMs }) => atMs <= upToMs);
      // The life began and ended after the scan began.
      if (writes.length === 0) continue;
      const { id, partitionKey } = data as unknown as ItemName;
      const known = end !== undefined && end.atMs <= upToMs ? { end } : {};
      yield { id, partitionKey, facts: { life, writes, ...known } };
      await pace.step();
    }
    position = events.at(-1)!.position;
  }
}

/** A 53-bit number for a life, from a hash of its stream's name. */
function numberOf(stream: string): number {
  const bytes = hash('sha256', stream, 'buffer');
  return bytes.readUInt32BE(0) * 2 ** 21 + (bytes.readUInt32BE(4) >>> 11);
}

async function lifeThatEndsHere(
  log: EventLog,
  event: RecordedEvent,
  headPosition: number,
): Promise<ScannedLife | undefined> {
  const last = await log.readLast(event.stream);
  if (last === undefined || (last.position > event.position && last.position <= headPosition)) return undefined;
  const { life } = parseItemStream(event.stream)!;
  const { id, partitionKey } = readItemEvent(event).data;
  // A life with a single write needs no other event.
  if (last.position === event.position && event.revision === 0) {
    return { id, partitionKey, facts: lifeFacts(life, [event]) };
  }
  const begin = () => ({ known: new GrowingLifeFacts(life), upTo: 0, hasWrites: false });
  const read = await readLife(log, event.stream, begin, (reading, page) => {
    for (const recorded of page) {
      if (recorded.position > headPosition) return;
      reading.known.add(recorded);
      reading.upTo = recorded.position;
      reading.hasWrites ||= isItemWrite(recorded) || recorded.type === 'ItemPurged';
    }
  });
  if (read === undefined || read.upTo > event.position) return undefined;
  if (read.upTo === event.position && read.hasWrites) return { id, partitionKey, facts: read.known.soFar() };
  // The life was purged and truncated since the scan began. The ledger has its writes, and this event is the last that
  // counts.
  const facts = lifeFacts(life, await lifeTail(log, event.stream));
  if (!isItemWrite(event)) {
    const { purge: _, ...before } = facts;
    return { id, partitionKey, facts: before };
  }
  const { omittedAfter: omitted = 0 } = facts.writes[0]!;
  const isOmitted = event.revision > 0 && event.revision <= omitted;
  const count = event.revision === 0 || isOmitted ? 1 : event.revision + 1 - omitted;
  const writes = facts.writes.slice(0, count);
  if (isOmitted) writes.push(...lifeFacts(life, [event]).writes);
  return { id, partitionKey, facts: { life, writes } };
}
