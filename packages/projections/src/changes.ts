import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { catalogChange } from './catalog/catalog-changes.ts';
import type { Catalog } from './catalog/catalog.ts';
import { itemChange, partitionKeyChange } from './items/item-changes.ts';
import { purgeRunChange } from './purge/run-changes.ts';
import type { ReadModelChange } from './read-model-store.ts';

/**
 * What events change in the read models, in order. The catalog is brought up to date on the way, because an
 * item's change needs its container's number.
 */
export function changesOf(events: readonly RecordedEvent[], catalog: Catalog): ReadModelChange[] {
  const changes: ReadModelChange[] = [];
  for (const event of events) {
    const ofItem = itemChange(event, catalog);
    if (ofItem !== undefined) {
      changes.push(ofItem);
      continue;
    }
    const ofCatalog = catalogChange(event, catalog);
    if (ofCatalog !== undefined) {
      catalog.put(ofCatalog);
      changes.push(ofCatalog);
      const ofPartition = partitionKeyChange(event, catalog);
      if (ofPartition !== undefined) changes.push(ofPartition);
      continue;
    }
    const ofRun = purgeRunChange(event);
    if (ofRun !== undefined) changes.push(ofRun);
  }
  return changes;
}
