import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { KnownHold } from '@epitaph/core/retention/hold-register.ts';
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
  const places = new Map<ContainerNumber, Place>();
  for (const event of events) {
    const ofItem = itemChange(event, catalog);
    if (ofItem !== undefined) {
      changes.push(ofItem);
      continue;
    }
    const change = catalogChange(event, catalog);
    if (change !== undefined) {
      catalog.put(change);
      if (change.kind === 'container') putContainer(change, changes, places);
      else changes.push(change);
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
