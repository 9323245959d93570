import type { KeyObject } from 'node:crypto';
import type { KeysOfLives } from '@epitaph/core/backup/purge-ledger.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { lostKeys, LostNames, type RestoredKeys, type SettledKeys, settleKeys } from '../restored-keys.ts';
import { openDatabase, type PostgresDatabase, UnusableServer } from './database.ts';
import { PostgresKeyVault } from './postgres-key-vault.ts';
import { withoutNodes } from './rotate-master-key.ts';

export interface RestoredVaultOptions {
  readonly url: string;
  readonly master: KeyObject;
  readonly copiesKeptSeconds?: number | undefined;
  /** The log as it is: what it says of keys is done in the vault. */
  readonly log: EventLog;
  readonly logId: string;
  /** The last count of destructions that the log has on record, and whether it goes as far as was noted elsewhere. */
  readonly recordedDestructions: number;
  readonly logReachesHead: boolean;
  /** The count that was noted elsewhere. */
  readonly notedDestructions: number;
  /** Goes on although keys of what was written after the copy of the vault are lost for good. */
  readonly acceptLost: boolean;
  readonly onProgress?: (what: string, done: number, total: number) => void;
}

export interface RestoredVault extends Pick<SettledKeys, 'keysDestroyed' | 'unrecorded' | 'unfinished'> {
  /** Keys of lives in the log that the copy had not. */
  readonly lost: KeysOfLives;
  /** Containers with items in the log that were named with a secret which the copy had not. */
  readonly namesLost: readonly string[];
}

/**
 * Brings a vault that was put back from a copy to what the log says: destroys again what was destroyed since, notes as
 * destroyed what the copy does not have, and gives out no key's number a second time. The read models are dropped. Until
 * {@link finishRestoredVault} no node opens the vault. Cut short, it is called again.
 *
 * @throws {UnusableServer} with nothing changed: when nodes are at work, when the vault is of another log, when neither
 * log nor vault go as far as was noted, and when keys are lost and that was not accepted
 */
export async function prepareRestoredVault(options: RestoredVaultOptions): Promise<RestoredVault> {
  const { url, master, copiesKeptSeconds, log, onProgress = () => {} } = options;
  return withoutNodes(url, async (database) => {
    const vault = await PostgresKeyVault.open({ database, master, copiesKeptSeconds, restoring: 'alone' });
    try {
      await assertItsLog(database, options.logId);
      if (!options.logReachesHead && (await vault.destructions()) < options.notedDestructions) {
        throw new UnusableServer(
          'Keys were destroyed after both copies were made, the one of the log and the one of the keys: nothing says which, so they would come back. Take a newer copy of either. Nothing was changed.',
        );
      }
      const head = await log.head();
      const lost = await lostKeys(vault, log, (position) => onProgress('looking', position, head));
      if (lost.length > 0 && !options.acceptLost) {
        throw new UnusableServer(
          `The copy of the keys is older than the log, or damaged: ${lost.length} keys of what was written are not in it, and that content can't be read again. Restore PostgreSQL to a later moment, or give it up (--accept-lost). Nothing was changed.`,
        );
      }
      await database.query('INSERT INTO epitaph_vault.restoring (one) VALUES (1) ON CONFLICT (one) DO NOTHING');
      // What the copy was made of may still be there, and is not to have the log any more.
      await database.query('UPDATE epitaph_vault.log SET owner = gen_random_uuid()');
      const names = await LostNames.of(log, vault);
      const restored: RestoredKeys = {
        unknownOf: (keys) => vault.unknownOf(keys),
        settleRestored: async (keys) => {
          await names.look(keys);
          return vault.settleRestored(keys);
        },
      };
      const { keysDestroyed, unrecorded, unfinished, highest } = await settleKeys(restored, log, (position) =>
        onProgress('applying', position, head),
      );
      await vault.goOnAfter({ keyId: highest, destructions: options.recordedDestructions });
      await dropReadModels(database);
      return { keysDestroyed, lost, namesLost: names.rids, unrecorded, unfinished };
    } finally {
      await vault.close();
    }
  });
}

/** The vault goes with its log again: nodes may open it. */
export async function finishRestoredVault(url: string): Promise<void> {
  const database = await openDatabase(url);
  try {
    await database.query('DELETE FROM epitaph_vault.restoring');
  } finally {
    await database.close();
  }
}

async function assertItsLog(database: PostgresDatabase, logId: string): Promise<void> {
  const [known] = await database.query<{ id: string; name: string }>('SELECT id, name FROM epitaph_vault.log');
  if (known === undefined || known.id === logId) return;
  throw new UnusableServer(
    `The keys in PostgreSQL belong to another event log, first used on ${known.name}. Nothing was changed.`,
  );
}

/** They are of another moment than what was put back, and are projected anew. */
async function dropReadModels(database: PostgresDatabase): Promise<void> {
  const schemas = await database.query<{ name: string }>(
    "SELECT nspname AS name FROM pg_namespace WHERE nspname ~ '^epitaph_items_v[0-9]+$' OR nspname = 'epitaph_read_models'",
  );
  for (const { name } of schemas) await database.query(`DROP SCHEMA ${name} CASCADE`);
}
