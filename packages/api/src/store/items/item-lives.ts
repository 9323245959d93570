import type { CommandContext } from '@epitaph/core/command-context.ts';
import { lastBeforeItLeft } from '@epitaph/core/container/partition-key-deletes.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { handleLife } from '@epitaph/core/item/handle.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { assertEndNotLost, isWritten, lastLife, lifeTail, writesLost } from '@epitaph/core/item/read-life.ts';
import { recordOfEnd } from '@epitaph/core/item/record-of-end.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import type { ContainerNumber } from '@epitaph/projections/read-model-store.ts';
import { type ContainerFloors, floorUntil, type KeyVault } from '@epitaph/core/vault/key-vault.ts';
import type { StoreParts } from '../parts.ts';

/** A life with its last events: see {@link lifeTail}. */
export interface ItemLife {
  readonly life: number;
  readonly stream: string;
  readonly events: readonly RecordedEvent[];
}

/** A life of an item, read from the log; undefined if there never was such a life. */
export async function itemLife(log: EventLog, prefix: string, life: number): Promise<ItemLife | undefined> {
  const stream = itemStream(prefix, life);
  const events = await lifeTail(log, stream);
  if (events.length > 0) return { life, stream, events };
  await assertEndNotLost(log, stream);
  return undefined;
}

/**
 * The last life of an item, found by a search, because an item may have had a million lives: a lock that is taken again
 * and again, for instance.
 *
 * @param known the number of a life that is known to exist; the log may have lost one of those before it
 */
export async function lastLifeOf(log: EventLog, prefix: string, known = 0): Promise<ItemLife | undefined> {
  if (!(await isWritten(log, prefix, known))) return undefined;
  return itemLife(log, prefix, await lastLife(log, prefix, known));
}

/** The last life of an item that is recorded as erased, or its first life if none is. */
export async function lastErasedLife(log: EventLog, prefix: string): Promise<ItemLife | undefined> {
  let found = await lastLifeOf(log, prefix);
  while (found !== undefined && found.life > 0 && !isPurged(found)) {
    const { life } = found;
    found = await itemLife(log, prefix, life - 1);
    if (found === undefined) throw lifeLost(prefix, life - 1);
  }
  return found;
}

/** All lives of an item, oldest first. */
export async function* livesOfItem(log: EventLog, prefix: string): AsyncGenerator<ItemLife> {
  const pace = new Pace();
  for (let number = 0; ; number++) {
    const life = await itemLife(log, prefix, number);
    if (life === undefined) return;
    yield life;
    await pace.step();
  }
}

/**
 * The last life of an item that the read models know. Such an item is live, or has ended and is not erased. So it has
 * been written, even if the log has lost every event of it.
 *
 * @returns the life and the last event of its stream; undefined if the read models know none
 * @throws {UnreadableEvent} when the log has no event of that life, so that it is not taken for one that never was
 */
export async function lastKnownLife(
  { readModel, ports }: Pick<StoreParts, 'readModel' | 'ports'>,
  container: ContainerNumber,
  { partitionKey, id }: ItemName,
  prefix: string,
): Promise<{ readonly life: number; readonly last: RecordedEvent } | undefined> {
  const life = await readModel.lastLife(container, partitionKey, id);
  if (life === undefined) return undefined;
  // The life may have been written just now, so the log decides.
  const stream = itemStream(prefix, life);
  const last = await ports.log.readLast(stream);
  if (last !== undefined) return { life, last };
  await assertEndNotLost(ports.log, stream);
  throw new UnreadableEvent(`${prefix}, an item that has content, has no event left in the log. ${WHEN_DAMAGED}`);
}

/**
 * Makes sure that an item has no life from `life` on, when the log has no such life: lives are numbered without gaps.
 *
 * @throws {UnreadableEvent} when the log or the read models have a later life, so that the lost ones are not taken for
 *   none
 */
export async function assertNoneBehind(
  parts: Pick<StoreParts, 'readModel' | 'ports'>,
  container: ContainerNumber,
  name: ItemName,
  prefix: string,
  life: number,
): Promise<void> {
  const { log } = parts.ports;
  const known = await lastKnownLife(parts, container, name, prefix);
  const isFollowed = (known !== undefined && known.life > life) || (await isWritten(log, prefix, life + 1));
  // The life may have begun just now.
  if (isFollowed && (await log.readLast(itemStream(prefix, life))) === undefined) throw lifeLost(prefix, life);
  // A life with later lives has ended. If it still ends with a write, the log had lost it, and it was begun again.
  if (known === undefined || known.life >= life - 1 || !isItemWrite(known.last)) return;
  if (await isWritten(log, prefix, life - 1))
    throw new UnreadableEvent(
      `the event log has no end of ${known.last.stream}, but has later lives of the item. ${WHEN_DAMAGED}`,
    );
}

/** The error for a life of which the log has lost every event. */
export const lifeLost = (prefix: string, life: number): UnreadableEvent =>
  new UnreadableEvent(
    `the event log has nothing of ${itemStream(prefix, life)}, but has later lives of the item. ${WHEN_DAMAGED}`,
  );

/**
 * Records the end of a life that is live by its own stream, but has passed its deadline or left with its partition key.
 *
 * @returns the position of the record; undefined when the life has not ended
 */
export async function endWhatIsOver(
  parts: Pick<StoreParts, 'catalog' | 'ports' | 'expirySeen'>,
  context: CommandContext,
  container: ContainerState,
  { stream, life, write }: Pick<ItemLife, 'stream' | 'life'> & { readonly write: RecordedEvent },
): Promise<number | undefined> {
  const { catalog, ports } = parts;
  const { partitionKey } = readItemEvent(write).data;
  const goneAtMs = catalog.goneAtMs(container);
  const dueBy = goneAtMs === null ? context.nowMs : goneAtMs - 1;
  const { position } = await lastBeforeItLeft(ports.log, container, partitionKey, write);
  const command = recordOfEnd(container, { partitionKey, position }, dueBy);
  const handled = await handleLife(ports, context, stream, life, () => ({ kind: 'command', command }));
  // A later change of the container must begin after this millisecond. Otherwise it could give another reason for the end.
  if (handled.position !== undefined) parts.expirySeen(catalog.containerByRid(container.rid)!.number, context.nowMs);
  return handled.position;
}

/**
 * The last write of an ended life, whose content can be recovered; undefined when it is erased. On several nodes, a
 * node that did not know of a delete by partition key may have written to the life after that delete. Such a write had
 * no effect and is passed over.
 */
export async function lastWriteOf(
  log: EventLog,
  container: Pick<ContainerState, 'partitionKeyDeletes'>,
  { events }: Pick<ItemLife, 'events'>,
): Promise<RecordedEvent | undefined> {
  const last = events.findLast(isItemWrite);
  if (last === undefined) return undefined;
  const [end] = events.filter(({ type }) => type === 'ItemDeleted').map(readItemEvent);
  const position = end?.type === 'ItemDeleted' ? end.data.withPartitionKey?.position : undefined;
  if (position === undefined) return lastBeforeItLeft(log, container, readItemEvent(last).data.partitionKey, last);
  return position === last.position ? last : log.readAt(position);
}

/**
 * As {@link lastWriteOf}, for a life whose remaining events have been read.
 *
 * @throws {UnreadableEvent} when the life is not erased but its writes are lost: a backup may bring them back, so they
 *   must not pass for erased
 */
export async function contentOf(
  log: EventLog,
  container: Pick<ContainerState, 'partitionKeyDeletes'>,
  life: Pick<ItemLife, 'events'>,
): Promise<RecordedEvent | undefined> {
  const write = await lastWriteOf(log, container, life);
  const end = life.events.at(-1);
  if (write === undefined && end !== undefined && end.type !== 'ItemPurged') throw writesLost(end);
  return write;
}

/** Whether a life is recorded as erased. */
export const isPurged = ({ events }: Pick<ItemLife, 'events'>): boolean => events.at(-1)!.type === 'ItemPurged';

/** Whether a life's content is gone, recorded or not. */
export async function isErased(
  vault: Pick<KeyVault, 'findKey'>,
  { stream, events }: Pick<ItemLife, 'stream' | 'events'>,
): Promise<boolean> {
  const write = events.findLast(isItemWrite);
  if (write === undefined || events.at(-1)!.type === 'ItemPurged') return true;
  const event = readItemEvent(write);
  invariant(isItemWrite(event), 'a write is read as one');
  return (await vault.findKey(event.data.key, stream)).status === 'destroyed';
}

/** The time at which no retention floor keeps the life any more, in milliseconds; null when none keeps it now. */
export function retentionUntil(floors: ContainerFloors, life: ItemLife, nowMs: number): number | null {
  // Asked as for an erasure on request, which the floor of a change feed does not prevent.
  return floorUntil(floors, { ...timesOf(life), nowMs, onDemand: true });
}

function timesOf({ events }: ItemLife): { readonly lastWriteTs: number; readonly lastEventAtMs: number } {
  return {
    lastWriteTs: Math.floor((events.findLast(isItemWrite)?.occurredAtMs ?? 0) / 1000),
    lastEventAtMs: events.at(-1)!.occurredAtMs,
  };
}
