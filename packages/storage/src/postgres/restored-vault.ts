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
  return withoutNodes(url, [master], async (database) => {
    const vault = await PostgresKeyVault.open({ database, master, copiesKeptSeconds, restoring: 'alone' });
    try {
      await assertItsLog(database, options.logId);
      if (!options.logReachesHead && (await vault.destructions()) < options.notedDestructions) {
        throw new UnusableServer(
          'Keys were destroyed after both copies were made, the one of the log and the one of the keys: nothing says which, so they would come back. Take a newer copy of either. Nothing was changed.',
        );
      }
      const head = await log.head();
      const names = await LostNames.of(log, vault);
      const nameless = new Nameless(vault, names);
      const lost = await lostKeys(nameless, log, (position) => onProgress('looking', position, head));
      if (nameless.containers > 0) {
        throw new UnusableServer(
          `The copy of the keys has keys of items in ${nameless.containers} containers, and not the secrets that these items are named with, or damaged ones: nobody would find them any more. Put back a copy of all tables of the key vault, of one moment. Nothing was changed.`,
        );
      }
      if (lost.length > 0 && !options.acceptLost) {
        throw new UnusableServer(
          `The copy of the keys is older than the log, or damaged: ${lost.length} keys of what was written are not in it, and that content can't be read again. Restore PostgreSQL to a later moment, or give it up (--accept-lost). Nothing was changed.`,
        );
      }
      await database.query('INSERT INTO epitaph_vault.restoring (one) VALUES (1) ON CONFLICT (one) DO NOTHING');
      // What the copy was made of may still be there, and is not to have the log any more.
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

/** The vault goes with its log again: nodes may open it. */
export async function finishRestoredVault(url: string): Promise<void> {
  const database = await openDatabase(url);
  try {
    await database.query('DELETE FROM epitaph_vault.restoring');
  } finally {
    await database.close();
  }
}

/** Looks for containers of which a copy has the key of an item that is not purged, but not the secret that it is named with. */
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

/** They are of another moment than what was put back, and are projected anew. */
async function dropReadModels(database: PostgresDatabase): Promise<void> {
  const schemas = await database.query<{ name: string }>(
    "SELECT nspname AS name FROM pg_namespace WHERE nspname ~ '^epitaph_items_v[0-9]+$' OR nspname = 'epitaph_read_models'",
  );
  for (const { name } of schemas) await database.query(`DROP SCHEMA ${name} CASCADE`);
}
