import { isPseudonym, type ItemName } from '@epitaph/core/item/pseudonym.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { whyUnreadable } from '@epitaph/core/upcast.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { ContainerNumber, ItemRow, ReadModelChange } from '../read-model-store.ts';
import type { ItemWritten } from './row.ts';

/** In the place of the key of an item whose last event can't be read: no life has it. */
export const NO_KEY = -1;
/**
 * In the place of the partition key of an item of which the log can't say what it is called: no key is without components. Its id is the
 * life's stream then.
 */
export const NAMELESS_PARTITION = '[]';

/** True for an item of which the log has an event that can't be read, and nothing after it. */
export const isUnreadable = ({ key }: Pick<ItemRow, 'key'>): boolean => key === NO_KEY;

/** True for such an item whose name nothing else in the log says. */
export const isNameless = ({ partitionKey }: Pick<ItemName, 'partitionKey'>): boolean =>
  partitionKey === NAMELESS_PARTITION;

/**
 * What stands for an item's event that can't be read: the item is neither as it was before, nor gone, nor ever due, until a later
 * event says what it is.
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

/** The same for a write behind which the log has lost the last event of the life: it may have said that the item has left. */
export function withoutEnd({ sealed: _, ...write }: ItemWritten): ItemWritten {
  return { ...write, ttl: -1, key: NO_KEY, unreadableTtl: false, isUnreadable: true };
}

/**
 * Puts names into what stands for events that can't be read, as far as the rest of the log says them, and notes which containers have
 * items without.
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

/** The item's name by any event of the life, or of those beside it. */
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
