import { leftWithPartitionKey } from '@epitaph/core/container/partition-key-deletes.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { GrowingLifeFacts, type LifeFacts, lifeFacts, withPartitionKeyEnd } from '@epitaph/core/history/life.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { lifeTail, readLife } from '@epitaph/core/item/read-life.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { ScanProgress } from './api/history-api.ts';

/** Events read at a time. */
const PAGE_EVENTS = 1_000;

/** One life of an item with all that is recorded of it. */
export interface ScannedLife {
  readonly id: string;
  readonly partitionKey: string;
  readonly facts: LifeFacts;
}

/**
 * Every life that a container has had up to the log's head, each once and in no order that means anything; those of
 * purged items by their ledgers. Reads the facts of the log from end to end and keeps nothing, so it takes as little
 * memory for a million lives as for ten. A life is told at its last event.
 */
export async function* livesOf(
  log: EventLog,
  container: ContainerState,
  onProgress: (progress: ScanProgress) => void = () => {},
  signal?: AbortSignal,
): AsyncGenerator<ScannedLife> {
  const headPosition = await log.head();
  const prefix = `item-${container.rid}.`;
  const pace = new Pace();
  let position = 0;
  while (position < headPosition) {
    signal?.throwIfAborted();
    const events = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
    if (events.length === 0) break;
    const lastHere = new Map<string, number>();
    for (const { stream, position } of events) if (position <= headPosition) lastHere.set(stream, position);
    for (const event of events) {
      if (event.position > headPosition) break;
      // What is truncated meanwhile can't be asked whether it went on; of a later page it is gone.
      if (!event.stream.startsWith(prefix) || lastHere.get(event.stream) !== event.position) continue;
      const life = await lifeThatEndsHere(log, event, headPosition);
      if (life !== undefined) {
        const left = await leftWithPartitionKey(log, container, life.partitionKey, event);
        yield { ...life, facts: withPartitionKeyEnd(life.facts, left, container.timeline) };
      }
      await pace.step();
    }
    position = events.at(-1)!.position;
    onProgress({ position: Math.min(position, headPosition), headPosition });
    await pace.step();
  }
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
  // A life of one write is told whole by it.
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
  // Purged and truncated since the scan began: the ledger has the writes, and this event was the last that counts.
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
