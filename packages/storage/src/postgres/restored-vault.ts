import type { KeyObject } from 'node:crypto';
import type { KeysOfLives } from '@epitaph/core/backup/purge-ledger.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import {
  lostKeys,
  LostNames,
  type RestoredKey,
  type RestoredKeys,
  type SettledKeys,
  settleKeys,
} from '../restored-keys.ts';
import { openDatabase, type PostgresDatabase, UnusableServer } from './database.ts';
import { PostgresKeyVault } from './postgres-key-vault.ts';
import { withoutNodes } from './rotate-master-key.ts';

export interface RestoredVaultOptions {
  readonly url: string;
  readonly master: KeyObject;
  readonly copiesKeptSeconds?: number | undefined;
  /** The current log. The vault is made to match what it says about keys. */
  readonly log: EventLog;
  readonly logId: string;
  /** The last count of destructions that is recorded in the log. */
  readonly recordedDestructions: number;
  /** Whether the log has all events up to the position that was noted elsewhere. */
  readonly logReachesHead: boolean;
  /** The count of destructions that was noted elsewhere. */
  readonly notedDestructions: number;
  /** Continue although the keys of writes after the copy of the vault are lost for good. */
  readonly acceptLost: boolean;
  readonly onProgress?: (what: string, done: number, total: number) => void;
}

export interface RestoredVault extends Pick<SettledKeys, 'keysDestroyed' | 'unrecorded' | 'unfinished'> {
  /** Keys of lives in the log that the copy lacked. */
  readonly lost: KeysOfLives;
  /** Containers with items in the log whose secret, from which the items' stream names are made, the copy lacked. */
  readonly namesLost: readonly string[];
}

/**
 * Makes a vault that was restored from a copy match the log. It destroys again the keys that were destroyed since, records the keys
 * that the copy lacks as destroyed, and makes sure that no key id is used twice. The read models are dropped. No node can open the
 * vault until {@link finishRestoredVault}. After an interruption, it must be called again.
 *
 * @throws {UnusableServer} without any change: if nodes are running, if the vault belongs to another log, if neither log nor vault
 *   reach what was noted, or if keys are lost and that was not accepted
 */
export async function prepareRestoredVault(options: RestoredVaultOptions): Promise<RestoredVault> {
  const { url, master, copiesKeptSeconds, log, onProgress = () => {} } = options;
  return withoutNodes(url, [master], async (database) => {
    const vault = await PostgresKeyVault.open({ database, master, copiesKeptSeconds, restoring: 'alone' });
    try {
      await assertItsLog(database, options.logId);
      if (!options.logReachesHead && (await vault.destructions()) < options.notedDestructions) {
        throw new UnusableServer(
          'Keys were destroyed after the copy of the log and the copy of the keys were made. Neither says which keys, so these would come back. Use a newer copy of the log or of the keys. Nothing was changed.',
        );
      }
      const head = await log.head();
      const names = await LostNames.of(log, vault);
      const nameless = new Nameless(vault, names);
      const lost = await lostKeys(nameless, log, (position) => onProgress('looking', position, head));
      if (nameless.containers > 0) {
        throw new UnusableServer(
          `The copy of the keys has keys of items in ${nameless.containers} containers, but the secrets with which these items are named are missing or damaged, so the items could not be found any more. Restore a copy of all tables of the key vault from the same moment. Nothing was changed.`,
        );
      }
      if (lost.length > 0 && !options.acceptLost) {
        throw new UnusableServer(
          `The copy of the keys is older than the log, or damaged: it lacks ${lost.length} keys, and what was written with them can't be read any more. Restore PostgreSQL to a later moment, or accept the loss (--accept-lost). Nothing was changed.`,
        );
      }
      await database.query('INSERT INTO epitaph_vault.restoring (one) VALUES (1) ON CONFLICT (one) DO NOTHING');
      // The original of the copy may still exist, and must not own the log any more.
      await database.query('UPDATE epitaph_vault.log SET owner = gen_random_uuid()');
      const { keysDestroyed, unrecorded, unfinished, highest } = await settleKeys(vault, log, (position) =>
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

/** Records that the vault matches its log again, so that nodes can open it. */
export async function finishRestoredVault(url: string): Promise<void> {
  const database = await openDatabase(url);
  try {
    await database.query('DELETE FROM epitaph_vault.restoring');
  } finally {
    await database.close();
  }
}

/** Finds containers of which a copy has the key of an item that is not purged, but lacks the secret for the items' stream names. */
class Nameless implements Pick<RestoredKeys, 'unknownOf'> {
  readonly #copy: PostgresKeyVault;
  readonly #names: LostNames;
  /** Streams of lives by their keys. */
  readonly #there = new Map<number, string>();

  constructor(copy: PostgresKeyVault, names: LostNames) {
    this.#copy = copy;
    this.#names = names;
  }

  async unknownOf(keys: readonly RestoredKey[]): Promise<RestoredKey[]> {
    await this.#names.look(keys);
    const lost = new Set(this.#names.rids);
    for (const { keyId, stream, isDestroyed } of keys) {
      if (isDestroyed) this.#there.delete(keyId);
      else if (lost.has(parseItemStream(stream)!.containerRid)) {
        const { status } = await this.#copy.findKey(keyId, stream);
        if (status === 'there') this.#there.set(keyId, stream);
      }
    }
    return this.#copy.unknownOf(keys);
  }

  get containers(): number {
    return new Set([...this.#there.values()].map((stream) => parseItemStream(stream)!.containerRid)).size;
  }
}

async function assertItsLog(database: PostgresDatabase, logId: string): Promise<void> {
  const [known] = await database.query<{ id: string; name: string }>('SELECT id, name FROM epitaph_vault.log');
  if (known === undefined || known.id === logId) return;
  throw new UnusableServer(
    `The keys in PostgreSQL belong to another event log, first used on ${known.name}. Nothing was changed.`,
  );
}

/** Drops the read models: they are of another moment than the restored vault, and are built again from the log. */
async function dropReadModels(database: PostgresDatabase): Promise<void> {
  const schemas = await database.query<{ name: string }>(
    "SELECT nspname AS name FROM pg_namespace WHERE nspname ~ '^epitaph_items_v[0-9]+$' OR nspname = 'epitaph_read_models'",
  );
  for (const { name } of schemas) await database.query(`DROP SCHEMA ${name} CASCADE`);
}
