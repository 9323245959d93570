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

/** A life of an item, from the log itself; undefined for one that never was. */
export async function itemLife(log: EventLog, prefix: string, life: number): Promise<ItemLife | undefined> {
  const stream = itemStream(prefix, life);
  const events = await lifeTail(log, stream);
  if (events.length > 0) return { life, stream, events };
  await assertEndNotLost(log, stream);
  return undefined;
}

/**
 * The last life of an item. It is searched for, since an item may have had a million, like a lock that is taken again
 * and again.
 *
 * @param known one of its lives: of those before it the log may have lost one
 */
export async function lastLifeOf(log: EventLog, prefix: string, known = 0): Promise<ItemLife | undefined> {
  if (!(await isWritten(log, prefix, known))) return undefined;
  return itemLife(log, prefix, await lastLife(log, prefix, known));
}

/** The last life of an item that is on record as erased; if there is none, its first. */
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
 * An item that is there, or that has left and is not erased, has been written, though the log may have nothing of that any
 * more.
 *
 * @returns its last life that the read models know, and the last event of that
 * @throws {UnreadableEvent} for one that must not pass for none, or for one that has left
 */
export async function lastKnownLife(
  { readModel, ports }: Pick<StoreParts, 'readModel' | 'ports'>,
  container: ContainerNumber,
  { partitionKey, id }: ItemName,
  prefix: string,
): Promise<{ readonly life: number; readonly last: RecordedEvent } | undefined> {
  const life = await readModel.lastLife(container, partitionKey, id);
  if (life === undefined) return undefined;
  // It may have been written just now.
  const stream = itemStream(prefix, life);
  const last = await ports.log.readLast(stream);
  if (last !== undefined) return { life, last };
  await assertEndNotLost(ports.log, stream);
  throw new UnreadableEvent(
    `${prefix}, an item of which there is content, has no event left in the log. ${WHEN_DAMAGED}`,
  );
}

/**
 * That the lives of an item before one that the log does not have are all that it had: lives are numbered without gaps.
 *
 * @throws {UnreadableEvent} where there are later ones, or the read models know a later one: they must not pass for none
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
  // It may have begun just now.
  if (isFollowed && (await log.readLast(itemStream(prefix, life))) === undefined) throw lifeLost(prefix, life);
  // A life that others come after has ended: what is written otherwise is one that the log had lost, and that was begun anew.
  if (known === undefined || known.life >= life - 1 || !isItemWrite(known.last)) return;
  if (await isWritten(log, prefix, life - 1))
    throw new UnreadableEvent(
      `the event log has no end of ${known.last.stream}, and later lives of the item. ${WHEN_DAMAGED}`,
    );
}

/** What is to be told of a life of which the log has lost every event. */
export const lifeLost = (prefix: string, life: number): UnreadableEvent =>
  new UnreadableEvent(
    `the event log has nothing of ${itemStream(prefix, life)}, and later lives of the item. ${WHEN_DAMAGED}`,
  );

/**
 * Records how a life ended that is live by its own stream, if it has ended by its deadline or with its partition key.
 *
 * @returns the position of the record; undefined when there is no such end
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
  // A change of the container in the same millisecond must not give another reason for it.
  if (handled.position !== undefined) parts.expirySeen(catalog.containerByRid(container.rid)!.number, context.nowMs);
  return handled.position;
}

/**
 * The write with which a life has ended, whose content can be brought back; undefined where it is erased. Of several nodes one
 * that did not know yet of a delete by partition key may have written to the life after it had left, which changed nothing.
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
 * The same of a life by all that is left of it.
 *
 * @throws {UnreadableEvent} where it is not erased, and its writes are lost: what a backup may bring back must not pass for gone
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

/** True of a life that is on record as erased. */
export const isPurged = ({ events }: Pick<ItemLife, 'events'>): boolean => events.at(-1)!.type === 'ItemPurged';

/** True when a life's content is gone, whether or not that is on record yet. */
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

/** When the retention floor over a life will have passed, in milliseconds; null when none is in the way. */
export function retentionUntil(floors: ContainerFloors, life: ItemLife, nowMs: number): number | null {
  // Asked as for an erasure on demand: a change feed's floor does not stand against that.
  return floorUntil(floors, { ...timesOf(life), nowMs, onDemand: true });
}

function timesOf({ events }: ItemLife): { readonly lastWriteTs: number; readonly lastEventAtMs: number } {
  return {
    lastWriteTs: Math.floor((events.findLast(isItemWrite)?.occurredAtMs ?? 0) / 1000),
    lastEventAtMs: events.at(-1)!.occurredAtMs,
  };
}
