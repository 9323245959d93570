import { isItemWrite } from '../item/events.ts';
import type { EventLog } from '../log/event-log.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { ContainerState, PartitionKeyDelete } from './state.ts';
import { containerEvents, type Between } from './read-stream.ts';

/**
 * The delete by partition key with which a life left whose last write stands at a position; undefined when none came
 * after it. Only deletes that are not on record in every life yet are known here, which is where it matters.
 */
export function partitionKeyDeleteAfter(
  { partitionKeyDeletes }: Pick<ContainerState, 'partitionKeyDeletes'>,
  partitionKey: string,
  position: number,
): PartitionKeyDelete | undefined {
  // Most containers have none under way, and every write asks.
  if (partitionKeyDeletes.length === 0) return undefined;
  return partitionKeyDeletes.find((pending) => pending.partitionKey === partitionKey && pending.position > position);
}

/**
 * The write that a life stands at, on a log that several nodes write to. One that does not know of a delete yet may append
 * to a life which left with its partition key: that changes nothing, and the life stands where it did when it left.
 *
 * @param last of the life's events, a write
 */
export async function lastBeforeItLeft(
  log: Pick<EventLog, 'readStream' | 'readBefore'>,
  { partitionKeyDeletes }: Pick<ContainerState, 'partitionKeyDeletes'>,
  partitionKey: string,
  last: RecordedEvent,
): Promise<RecordedEvent> {
  const earlier = partitionKeyDeletes.filter(
    (pending) => pending.partitionKey === partitionKey && pending.position < last.position,
  );
  if (earlier.length === 0 || last.revision === 0) return last;
  const [first] = await log.readStream(last.stream, { toRevision: 0, withBodies: false });
  const left = first && earlier.find(({ position }) => position > first.position);
  if (left === undefined) return last;
  let write: RecordedEvent | undefined = last;
  while (write !== undefined && write.position > left.position) write = await log.readBefore(write);
  return write ?? first!;
}

/**
 * The delete by partition key with which a life has left, by the last of its events; undefined where there is none, or its own
 * stream says so.
 */
export async function leftWithPartitionKey(
  log: Pick<EventLog, 'readStream' | 'readBefore'>,
  container: Pick<ContainerState, 'partitionKeyDeletes'>,
  partitionKey: string,
  last: RecordedEvent,
): Promise<PartitionKeyDelete | undefined> {
  const { position } = isItemWrite(last) ? await lastBeforeItLeft(log, container, partitionKey, last) : last;
  return partitionKeyDeleteAfter(container, partitionKey, position);
}

/** What a container's stream has between two positions, of the types that take items away; the last of it first. */
export async function* takenAway(
  log: Pick<EventLog, 'readLast' | 'readBefore'>,
  rid: string,
  between: Between,
): AsyncGenerator<RecordedEvent> {
  for await (const event of containerEvents(log, rid, between)) {
    if (event.type === 'PartitionKeyDeleted' || event.type === 'ContainerDeleted') yield event;
  }
}
