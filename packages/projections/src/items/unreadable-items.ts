import { isPseudonym, type ItemName } from '@epitaph/core/item/pseudonym.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { whyUnreadable } from '@epitaph/core/upcast.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { ContainerNumber, ItemRow, ReadModelChange } from '../read-model-store.ts';
import type { ItemWritten } from './row.ts';

/** In place of the key of an item whose last event can't be read. No life has this key. */
export const NO_KEY = -1;
/**
 * In place of the partition key of an item whose name the log does not contain any more. No real key is without
 * components. The item's id is then the life's stream.
 */
export const NAMELESS_PARTITION = '[]';

/** True for an item whose last event in the log can't be read. */
export const isUnreadable = ({ key }: Pick<ItemRow, 'key'>): boolean => key === NO_KEY;

/** True for such an item if its name is nowhere else in the log either. */
export const isNameless = ({ partitionKey }: Pick<ItemName, 'partitionKey'>): boolean =>
  partitionKey === NAMELESS_PARTITION;

/**
 * The change for an item's event that can't be read. Until a later event says what the item is, it is neither as
 * before, nor gone, and never overdue.
 */
export function unreadableWrite(
  { stream, revision, position, occurredAtMs }: RecordedEvent,
  life: number,
  container: ContainerNumber,
): ItemWritten {
  return {
    kind: 'item-written',
    container,
    partitionKey: NAMELESS_PARTITION,
    id: stream,
    life,
    revision,
    position,
    ts: Math.floor(occurredAtMs / 1000),
    ttl: -1,
    key: NO_KEY,
    unreadableTtl: false,
    isUnreadable: true,
  };
}

/**
 * The change for a write after which the log has lost the life's last event, because that may have said that the item
 * has left.
 */
export function withoutEnd({ sealed: _, ...write }: ItemWritten): ItemWritten {
  return { ...write, ttl: -1, key: NO_KEY, unreadableTtl: false, isUnreadable: true };
}

/**
 * Adds names to the changes for events that can't be read, if they are elsewhere in the log, and notes which containers
 * have items without a name.
 */
export async function named(
  log: Pick<EventLog, 'readLast' | 'readBefore'>,
  changes: readonly ReadModelChange[],
  catalog: Catalog,
): Promise<ReadModelChange[]> {
  const withNames: ReadModelChange[] = [];
  const nameless = new Set<ContainerNumber>();
  for (const change of changes) {
    if (change.kind !== 'item-written' || change.isUnreadable !== true || !isNameless(change)) {
      withNames.push(change);
      continue;
    }
    const name = await nameIn(log, change.id);
    withNames.push({ ...change, ...name });
    if (name === undefined) nameless.add(change.container);
  }
  for (const number of nameless) {
    const { state: before } = catalog.containerByNumber(number)!;
    if (before.hasNameless === true) continue;
    const change = { kind: 'container', number, before, state: { ...before, hasNameless: true } } as const;
    catalog.put(change);
    withNames.push(change);
  }
  return withNames;
}

/** The item's name from any event of the life, or of the lives before and after it. */
async function nameIn(log: Pick<EventLog, 'readLast' | 'readBefore'>, stream: string): Promise<ItemName | undefined> {
  const { prefix, life } = parseItemStream(stream)!;
  for (const number of [life, life - 1, life + 1]) {
    let event = number < 0 ? undefined : await log.readLast(itemStream(prefix, number));
    for (; event !== undefined; event = await log.readBefore(event)) {
      if (whyUnreadable(event) !== undefined) continue;
      const { id, partitionKey } = event.data;
      if (typeof id !== 'string' || typeof partitionKey !== 'string') continue;
      if (partitionKey.startsWith('[') || isPseudonym(partitionKey)) return { id, partitionKey };
    }
  }
  return undefined;
}
