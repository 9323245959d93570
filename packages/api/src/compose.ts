import { GuardedClock, ManualClock, systemClocks } from '@epitaph/core/clock.ts';
import { openSqliteStorage, type SqliteStorageOptions } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { Store, type StoreOptions } from './store/store.ts';

export interface EmbeddedStoreOptions
  extends SqliteStorageOptions, Pick<StoreOptions, 'policyGraceSeconds' | 'automaticPurge' | 'onFault' | 'newId'> {
  /** Where the manual clock of a new folder starts, in milliseconds; the system's time by default. */
  readonly startMs?: number | undefined;
}

/** The store on its embedded default: log, vault and read models in SQLite files of one folder. */
export async function openEmbeddedStore(options: EmbeddedStoreOptions): Promise<Store> {
  const storage = await openSqliteStorage(options);
  try {
    const mark = storage.highWaterMark;
    const clock =
      options.clock === 'manual'
        ? new ManualClock(mark.initialMs > 0 ? mark.initialMs : (options.startMs ?? systemClocks.wallMs()), mark)
        : new GuardedClock({ sources: systemClocks, mark });
    return await Store.open({
      ...options,
      log: storage.log,
      vault: storage.vault,
      sealer: storage.sealer,
      naming: storage.naming,
      readModels: storage.readModels,
      clock,
      closePorts: () => storage.close(),
    });
  } catch (error) {
    await storage.close();
    throw error;
  }
}
