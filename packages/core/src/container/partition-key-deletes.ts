import { isItemWrite } from '../item/events.ts';
import type { EventLog } from '../log/event-log.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { ContainerState, PartitionKeyDelete } from './state.ts';
import { containerEvents, type Between } from './read-stream.ts';

/**
 * The delete by partition key with which a life left, given the position of the life's last write. Undefined if no such
 * delete came after it. Only deletes that are not yet recorded in every life are known here, and only these matter.
 */
export function partitionKeyDeleteAfter(
  { partitionKeyDeletes }: Pick<ContainerState, 'partitionKeyDeletes'>,
  partitionKey: string,
  position: number,
): PartitionKeyDelete | undefined {
  // Every write asks, and most containers have no such delete in progress.
  if (partitionKeyDeletes.length === 0) return undefined;
  return partitionKeyDeletes.find((pending) => pending.partitionKey === partitionKey && pending.position > position);
}

/**
 * The last write of a life that counts, on a log that several nodes write to. A node that does not know of a delete by
 * partition key yet may append a write to a life that has left with it. Such a write changes nothing: the write before
 * the delete counts.
 *
 * @param last the last of the life's events, a write
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
 * The delete by partition key with which a life has left. Undefined if there is none, or if it is recorded in the
 * life's own stream.
 *
 * @param last the last of the life's events
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

/** The events of a container between two positions that take items away, last one first. */
export async function* takenAway(
  log: Pick<EventLog, 'readLast' | 'readBefore'>,
  rid: string,
  between: Between,
): AsyncGenerator<RecordedEvent> {
  for await (const event of containerEvents(log, rid, between)) {
    if (event.type === 'PartitionKeyDeleted' || event.type === 'ContainerDeleted') yield event;
  }
}
