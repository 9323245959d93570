import { GuardedClock, ManualClock, systemClocks } from '@epitaph/core/clock.ts';
import {
  openSqliteStorage,
  type SqliteStorage,
  type SqliteStorageOptions,
} from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { Store, type StoreOptions } from './store/store.ts';

export interface EmbeddedStoreOptions
  extends
    Omit<SqliteStorageOptions, 'logElsewhere'>,
    Pick<
      StoreOptions,
      'policyGraceSeconds' | 'automaticPurge' | 'defaultThroughput' | 'serverless' | 'monotonicMs' | 'onFault' | 'newId'
    > {
  /** Where the manual clock of a new folder starts, in milliseconds; the system's time by default. */
  readonly startMs?: number | undefined;
  /** Connection string of the EventStoreDB or KurrentDB that has the event log; in the folder when not given. */
  readonly eventStore?: string | undefined;
}

/**
 * The store on one folder: vault and read models in SQLite files of it, and the log too, unless that is on a server.
 *
 * @throws {BadConnectionString | FolderInUse | UnusableFile} with a message for whoever starts the store
 */
export async function openEmbeddedStore(options: EmbeddedStoreOptions): Promise<Store> {
  const storage = await openStorage(options);
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
      proof: storage.proof,
      readModels: storage.readModels,
      clock,
      closePorts: () => storage.close(),
    });
  } catch (error) {
    await storage.close();
    throw error;
  }
}

async function openStorage(options: EmbeddedStoreOptions): Promise<SqliteStorage> {
  if (options.eventStore === undefined) return openSqliteStorage(options);
  // Loaded only where it is used: the client and its gRPC take a while.
  const { openEventStoreLog } = await import('@epitaph/storage/eventstoredb/open-event-store-log.ts');
  const log = await openEventStoreLog({ connectionString: options.eventStore });
  try {
    const logElsewhere = { log, id: await log.id(), name: log.nodes, isEmpty: (await log.head()) === 0 };
    return await openSqliteStorage({ ...options, logElsewhere });
  } catch (error) {
    await log.close();
    throw error;
  }
}
