import { afterAll, beforeAll } from 'vitest';
import { type EmbeddedStoreOptions, openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { Json } from '@epitaph/query';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';

export const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000000' };

/** A store with a database `db` for all tests of a file, opened before the first of them. */
export function withStore(
  purpose: string,
  give: (store: Store) => void,
  options: Pick<EmbeddedStoreOptions, 'monotonicMs' | 'pageWaitMs'> = {},
): void {
  const folder = newFolder(purpose);
  let store: Store;
  beforeAll(async () => {
    store = await openEmbeddedStore({ folder, clock: 'manual', automaticPurge: false, durable: false, ...options });
    await store.createDatabase(CALLER, 'db');
    give(store);
  });
  afterAll(async () => {
    await store.close();
    removeFolder(folder);
  });
}

/** Creates a container with this many items, one after the other. */
export async function stock(
  store: Store,
  name: string,
  count: number,
  fields: (n: number) => { readonly [name: string]: Json },
  definition: Parameters<Store['createContainer']>[3] = DEFINITION,
): Promise<void> {
  await store.createContainer(CALLER, 'db', name, definition, -1);
  await Promise.all(
    Array.from({ length: count }, (_, n) => {
      const item = itemToWrite({ id: `i${n}`, pk: 'p', ...fields(n) });
      return store.writeItem(CALLER, store.container('db', name), 'create', item);
    }),
  );
}
