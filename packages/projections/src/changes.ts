import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { KnownHold } from '@epitaph/core/retention/hold-register.ts';
import { assertLost, type UnreadableEvent } from '@epitaph/core/upcast.ts';
import { catalogChange } from './catalog/catalog-changes.ts';
import type { Catalog } from './catalog/catalog.ts';
import { lostContainer } from './catalog/lost-container.ts';
import { itemChange, partitionKeyChange } from './items/item-changes.ts';
import { unreadableWrite, withoutEnd } from './items/unreadable-items.ts';
import { purgeRunChange } from './purge/run-changes.ts';
import type { ContainerNumber, ReadModelChange } from './read-model-store.ts';

/**
 * The changes that events make in the read models, in order. The catalog is updated along the way, because an item's
 * change needs its container's number.
 *
 * @param onUnreadable if given, an event that can't be read, or that follows events which are missing, affects only its
 *   own item or container. It is called with the error, and the changes that stand for such events must still be
 *   {@link named}. If not given, the error is thrown, unless the container's state can express it
 * @param lostEnds lives whose last event the log has lost, so that it is not known whether they have left
 */
export function changesOf(
  events: readonly RecordedEvent[],
  catalog: Catalog,
  onUnreadable?: (error: UnreadableEvent) => void,
  lostEnds?: ReadonlySet<string>,
): ReadModelChange[] {
  const changes: ReadModelChange[] = [];
  const places = new Map<ContainerNumber, Place>();
  const put = (change: ContainerChange) => {
    catalog.put(change);
    putContainer(change, changes, places);
  };
  for (const event of events) {
    try {
      addChanges(event, catalog, changes, put, lostEnds);
    } catch (error) {
      if (onUnreadable === undefined) throw error;
      assertLost(error);
      onUnreadable(error);
      addDespite(event, catalog, changes, put);
    }
  }
  return changes;
}

function addChanges(
  event: RecordedEvent,
  catalog: Catalog,
  changes: ReadModelChange[],
  put: (change: ContainerChange) => void,
  lostEnds?: ReadonlySet<string>,
): void {
  const ofItem = itemChange(event, catalog);
  if (ofItem !== undefined) {
    const isCut = ofItem.kind === 'item-written' && lostEnds?.has(event.stream) === true;
    changes.push(isCut ? withoutEnd(ofItem) : ofItem);
    return;
  }
  const change = catalogChange(event, catalog);
  if (change !== undefined) {
    if (change.kind === 'container') put(change);
    else {
      catalog.put(change);
      changes.push(change);
    }
    const ofPartition = partitionKeyChange(event, catalog);
    if (ofPartition !== undefined) changes.push(ofPartition);
    return;
  }
  const ofRun = purgeRunChange(event);
  if (ofRun !== undefined) changes.push(ofRun);
}

/** The changes that can be made for an event although it can't be read, or its container isn't known. */
function addDespite(
  event: RecordedEvent,
  catalog: Catalog,
  changes: ReadModelChange[],
  put: (change: ContainerChange) => void,
): void {
  const item = parseItemStream(event.stream);
  if (item === undefined) return;
  const known = catalog.containerByRid(item.containerRid);
  if (known === undefined) {
    put({ kind: 'container', number: event.position, state: lostContainer(item.containerRid, event) });
    const ofItem = readableItemChange(event, catalog);
    if (ofItem !== undefined) {
      changes.push(ofItem);
      return;
    }
  }
  const { number } = catalog.containerByRid(item.containerRid)!;
  changes.push(unreadableWrite(event, item.life, number));
}

function readableItemChange(event: RecordedEvent, catalog: Catalog): ReadModelChange | undefined {
  try {
    return itemChange(event, catalog);
  } catch (error) {
    assertLost(error);
    return undefined;
  }
}

type ContainerChange = Extract<ReadModelChange, { kind: 'container' }>;

/** The index of a container's change among the others, and the holds that it changes. */
interface Place {
  readonly index: number;
  readonly holds: KnownHold[];
}

/**
 * Combines several changes of a container into one with the last state, because no other change depends on the states
 * in between.
 */
function putContainer(change: ContainerChange, changes: ReadModelChange[], places: Map<ContainerNumber, Place>): void {
  const { number, holds = [] } = change;
  const place = places.get(number);
  if (place === undefined) {
    const first = { index: changes.length, holds: [...holds] };
    places.set(number, first);
    changes.push({ ...change, holds: first.holds });
    return;
  }
  const { before } = changes[place.index] as ContainerChange;
  place.holds.push(...holds);
  changes[place.index] = { ...change, before, holds: place.holds };
}
