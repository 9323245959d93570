import type { ContainerState } from '@epitaph/core/container/state.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { ItemsSnapshot } from '@epitaph/projections/read-model-store.ts';
import type { ItemSnapshot } from '../api/common.ts';
import { ItemRows } from '../item-rows.ts';
import type { Moment, StoreParts } from '../parts.ts';

/** The items as they are now, with everything that is recorded. */
export async function snapshotOf(parts: StoreParts, container: ContainerState): Promise<ItemSnapshot> {
  await parts.seen('head');
  // The moment comes first. An item that is written between the two is in the snapshot, and visible at the moment. The
  // other way round, an item that was written again just before its deadline would still have that deadline in the
  // snapshot, and would be hidden if the moment is after it.
  const moment = await parts.moment(container);
  for (;;) {
    const { readModel } = parts;
    try {
      return new Snapshot(moment, await readModel.itemsSnapshot(moment.within.number));
    } catch (error) {
      // A rebuild may have replaced the read models.
      if (parts.readModel === readModel) throw error;
    }
  }
}

/** What a read is answered from: a snapshot if there is one, otherwise the items as they are now. */
export function momentOf(
  parts: StoreParts,
  container: ContainerState,
  snapshot: ItemSnapshot | undefined,
): MaybePromise<Moment> {
  if (snapshot === undefined) return parts.moment(container);
  invariant(snapshot instanceof Snapshot, 'a snapshot is one of this store');
  return snapshot.moment;
}

/** The rows of one moment. Content is read from the log when it is needed, and may have been erased by then. */
class Snapshot implements ItemSnapshot {
  readonly moment: Moment;
  readonly #items: ItemsSnapshot;
  #isWhole = true;

  constructor(moment: Moment, items: ItemsSnapshot) {
    this.#items = items;
    const rows = new ItemRows(() => items, { shared: true });
    this.moment = { ...moment, items: { readModel: items, rows, erased: () => (this.#isWhole = false) } };
  }

  get isWhole(): boolean {
    return this.#isWhole;
  }

  close(): Promise<void> {
    return this.#items.close();
  }
}
