import { afterAll, beforeAll } from 'vitest';
import { type EmbeddedStoreOptions, openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

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
