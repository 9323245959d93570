import { onTestFinished } from 'vitest';
import { Store } from '@epitaph/api/store/store.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import { openSqliteStorage, type SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/**
 * A store of one test, without threads and with a purge on demand alone, and the storage under it, for a test that has that
 * do something at another moment.
 *
 * @param change told of the storage before the store begins with it
 */
export async function openInlineStore(
  name: string,
  change: (storage: SqliteStorage) => void = () => {},
): Promise<{ readonly store: Store; readonly storage: SqliteStorage }> {
  const folder = newFolder(name);
  const storage = await openSqliteStorage({ folder, clock: 'manual', writers: 'inline', durable: false });
  change(storage);
  const store = await Store.open({
    ...storage,
    backup: undefined,
    clock: new ManualClock(1_700_000_000_000),
    automaticPurge: false,
    policyGraceSeconds: 0,
    closePorts: () => storage.close(),
  });
  onTestFinished(async () => {
    await store.close();
    removeFolder(folder);
  });
  return { store, storage };
}
