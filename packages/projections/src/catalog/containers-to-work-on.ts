import type { ReadModelStore } from '../read-model-store.ts';
import type { Catalog, CatalogContainer } from './catalog.ts';

/**
 * The existing containers, and those deleted ones that still have content. All others need no more work. Over the years
 * they become by far the most, so looking at each of them would take longer and longer.
 *
 * @param catalog called after the store was asked: changes report what comes in between
 */
export async function containersToWorkOn(
  catalog: () => Catalog,
  store: Pick<ReadModelStore, 'containersWithContent'>,
): Promise<CatalogContainer[]> {
  const withContent = new Set(await store.containersWithContent());
  const now = catalog();
  return now.allContainers().filter(({ number, state }) => now.goneAtMs(state) === null || withContent.has(number));
}
