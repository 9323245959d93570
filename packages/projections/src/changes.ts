import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { catalogChange } from './catalog/catalog-changes.ts';
import type { Catalog } from './catalog/catalog.ts';
import { itemChange, partitionKeyChange } from './items/item-changes.ts';
import { purgeRunChange } from './purge/run-changes.ts';
import type { ContainerNumber, ReadModelChange } from './read-model-store.ts';

/**
 * What events change in the read models, in order. The catalog is brought up to date on the way, because an
 * item's change needs its container's number.
 */
export function changesOf(events: readonly RecordedEvent[], catalog: Catalog): ReadModelChange[] {
  const changes: ReadModelChange[] = [];
  /** Where the change of each container is. */
  const places = new Map<ContainerNumber, number>();
  for (const event of events) {
    const ofItem = itemChange(event, catalog);
    if (ofItem !== undefined) {
      changes.push(ofItem);
      continue;
    }
    const ofCatalog = catalogChange(event, catalog);
    if (ofCatalog !== undefined) {
      catalog.put(ofCatalog);
      if (ofCatalog.kind === 'container') putContainer(ofCatalog, changes, places);
      else changes.push(ofCatalog);
      const ofPartition = partitionKeyChange(event, catalog);
      if (ofPartition !== undefined) changes.push(ofPartition);
      continue;
    }
    const ofRun = purgeRunChange(event);
    if (ofRun !== undefined) changes.push(ofRun);
  }
  return changes;
}

type ContainerChange = Extract<ReadModelChange, { kind: 'container' }>;

/** Several changes of a container are one, of what they come to: no other change looks at how it stands. */
function putContainer(change: ContainerChange, changes: ReadModelChange[], places: Map<ContainerNumber, number>): void {
  const { number } = change;
  const place = places.get(number);
  if (place === undefined) {
    places.set(number, changes.length);
    changes.push(change);
    return;
  }
  const { before } = changes[place] as ContainerChange;
  changes[place] = { ...change, before };
}
