import type { ReadModelStore } from '../read-model-store.ts';
import type { Catalog, CatalogContainer } from './catalog.ts';

/**
 * The containers that are there, and of those that are gone the ones that content is left of. All others are done with:
 * over the years they become the most by far, and to ask of each would take as long as there were any.
 *
 * @param catalog asked after the store is: of what comes in between its changes tell
 */
export async function containersToWorkOn(
  catalog: () => Catalog,
  store: Pick<ReadModelStore, 'containersWithContent'>,
): Promise<CatalogContainer[]> {
  const withContent = new Set(await store.containersWithContent());
  const now = catalog();
  return now.allContainers().filter(({ number, state }) => now.goneAtMs(state) === null || withContent.has(number));
}
