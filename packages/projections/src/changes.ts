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
 * What events change in the read models, in order. The catalog is brought up to date on the way, because an
 * item's change needs its container's number.
 *
 * @param onUnreadable given where an event that can't be read, or goes on from what is not there, is to cost its own item or container
 *   alone, and told what it was: what stands for it then is still to be {@link named}. Otherwise that is thrown, unless the
 *   container's state says it.
 * @param lostEnds lives of which the log has lost the last event: whether they have left is not known
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

/** What is known of an event all the same that can't be read, or whose container isn't known. */
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

/** Where a container's change is among the others, and the holds that it says something of. */
interface Place {
  readonly index: number;
  readonly holds: KnownHold[];
}

/** Several changes of a container are one, of what they come to: no other change looks at how it stands. */
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
