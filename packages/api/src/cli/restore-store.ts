import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import type { OpenLogElsewhere } from '@epitaph/storage/sqlite/data-folder.ts';
import type { SqliteStorageOptions } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { type PreparedRestore, prepareRestore } from '@epitaph/storage/sqlite/restore.ts';
import type { RestoreOptions } from '@epitaph/storage/sqlite/restore-options.ts';
import { UnusableFile } from '@epitaph/storage/sqlite/database.ts';
import { StorageFault } from '@epitaph/storage/sqlite/writer.ts';
import { openEmbeddedStore } from '../compose.ts';
import type { FsckReport } from '../store/api/operations-api.ts';

export interface RestoreStoreOptions extends Omit<RestoreOptions, 'log'>, Pick<SqliteStorageOptions, 'writers'> {
  /** The `log` part of a backup, or the connection string of the server with the event log. */
  readonly log: string | { readonly eventStore: string };
  readonly pausesPurge?: boolean;
}

export interface RestoredStore extends Pick<
  PreparedRestore,
  'takenAtMs' | 'logPosition' | 'keysDestroyed' | 'lost' | 'namesLost'
> {
  /** Lives that were live in the log and whose key is destroyed. */
  readonly livesEnded: number;
  readonly report: FsckReport;
}

/**
 * Creates a data folder from a backup, records in it what was erased since, and checks it. No store opens the folder
 * before all of that is done. If it is cut short at any point, the same restore begins again.
 *
 * @throws {UnusableFile | FolderInUse} with a message for the operator; then nothing is left in `to`
 * @throws {StorageUnavailable} with such a message when the event log's server went away or is not up yet
 */
export async function restoreStore(options: RestoreStoreOptions): Promise<RestoredStore> {
  const { log, onProgress = () => {}, onStep, writers } = options;
  const eventStore = typeof log === 'string' ? undefined : log.eventStore;
  const source = typeof log === 'string' ? log : await openedOn(log.eventStore);
  let prepared: PreparedRestore | undefined;
  try {
    prepared = await prepare({ ...options, log: source });
    const { vaultBackupId, logBackupId, ledgerHead, takenAtMs, logPosition, keysDestroyed, lost, namesLost } = prepared;
    const { keysAsOf } = prepared;
    let livesEnded: number;
    let report: FsckReport;
    const store = await openEmbeddedStore({
      folder: prepared.folder,
      clock: prepared.clock,
      masterKey: options.masterKey,
      eventStore,
      restoring: true,
      keysAsOf,
      automaticPurge: false,
      // No requests are served, so the purge need not leave request units to users.
      serverless: true,
      ...(writers === undefined ? {} : { writers }),
      ...(onStep === undefined ? {} : { onStep }),
    });
    try {
      livesEnded = await store.settleRestored({
        logBackupId,
        vaultBackupId,
        logPosition,
        ledgerHead: formatLedgerHead(ledgerHead),
        ledger: prepared.ledger,
        lost,
        namesLost,
        unfinished: prepared.unfinished,
        pausesPurge: options.pausesPurge,
      });
      report = await store.fsck((done, total) => onProgress('fsck', done, total));
    } finally {
      await store.close();
    }
    prepared.finish();
    return { takenAtMs, logPosition, keysDestroyed, lost, namesLost, livesEnded, report };
  } catch (error) {
    prepared?.discard();
    if (error instanceof UnreadableEvent) {
      const fault = error.message.replace(` ${WHEN_DAMAGED}`, '');
      throw new UnusableFile(
        `The restore failed, because the event log can't be read: ${fault} The unfinished store was removed. An older copy of the log may be undamaged.`,
        { cause: error },
      );
    }
    if (!(error instanceof StorageUnavailable)) throw error;
    // The message's advice is for a running store, so only the fault itself is shown.
    const fault = (error instanceof StorageFault ? error.fault : error.message).replace(/\.$/, '');
    const [message, cause] = [`The restore failed: ${fault}. The unfinished store was removed.`, { cause: error }];
    throw error.isForOperator ? new UnusableFile(message, cause) : new StorageUnavailable(message, cause);
  }
}

async function openedOn(connectionString: string): Promise<OpenLogElsewhere> {
  const { openLogElsewhere } = await import('@epitaph/storage/eventstoredb/open-event-store-log.ts');
  return openLogElsewhere(connectionString);
}

async function prepare(options: RestoreOptions): Promise<PreparedRestore> {
  try {
    return await prepareRestore(options);
  } finally {
    if (typeof options.log !== 'string') await options.log.log.close();
  }
}
