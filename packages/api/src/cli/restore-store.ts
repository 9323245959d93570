import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { SqliteStorageOptions } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { type PreparedRestore, prepareRestore, type RestoreOptions } from '@epitaph/storage/sqlite/restore.ts';
import { UnusableFile } from '@epitaph/storage/sqlite/database.ts';
import { StorageFault } from '@epitaph/storage/sqlite/writer.ts';
import { openEmbeddedStore } from '../compose.ts';
import type { FsckReport } from '../store/store-api.ts';

export interface RestoredStore extends Pick<PreparedRestore, 'log' | 'keysDestroyed'> {
  /** Lives that the restored log had as live and whose key is gone. */
  readonly livesEnded: number;
  readonly report: FsckReport;
}

/**
 * Makes a data folder from a backup, puts on record in it what was erased since, and examines it. Until all of that is
 * done no store opens the folder; cut short at any point, the same restore begins anew.
 *
 * @throws {UnusableFile | FolderInUse} with a message for whoever restores; then nothing is left in `to`
 */
export async function restoreStore(
  options: RestoreOptions & Pick<SqliteStorageOptions, 'writers'>,
): Promise<RestoredStore> {
  const { onProgress = () => {}, onStep, writers } = options;
  const prepared = await prepareRestore(options);
  const { log, vault, ledgerHead, keysDestroyed } = prepared;
  let livesEnded: number;
  let report: FsckReport;
  try {
    const store = await openEmbeddedStore({
      folder: prepared.folder,
      clock: prepared.clock,
      masterKey: options.masterKey,
      restoring: true,
      automaticPurge: false,
      ...(writers === undefined ? {} : { writers }),
      ...(onStep === undefined ? {} : { onStep }),
    });
    try {
      livesEnded = await store.settleRestored({
        logBackupId: log.id,
        vaultBackupId: vault.id,
        logPosition: log.logPosition,
        ledgerHead: formatLedgerHead(ledgerHead),
        ledger: prepared.ledger,
      });
      report = await store.fsck((done, total) => onProgress('fsck', done, total));
    } finally {
      await store.close();
    }
    prepared.finish();
  } catch (error) {
    prepared.discard();
    if (!(error instanceof StorageFault)) throw error;
    // Without the remedy, which is for a store that serves.
    const fault = error.fault.replace(/\.$/, '');
    throw new UnusableFile(`The restore met a fault: ${fault}. What was begun is removed.`, { cause: error });
  }
  return { log, keysDestroyed, livesEnded, report };
}
