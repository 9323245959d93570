import { createSecretKey } from 'node:crypto';
import type { BodySealer, ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import { GcmBodySealer } from '../crypto/gcm-body-sealer.ts';
import { HashedItemNaming } from '../crypto/item-naming.ts';
import { type OwnedLog, refusalOfLog } from '../log-owner.ts';
import { Opened } from '../opened.ts';
import { openDatabase, placeOf, type PostgresDatabase, UnusableServer } from './database.ts';
import { PostgresKeyVault } from './postgres-key-vault.ts';
import { PostgresReadModels } from './postgres-read-models.ts';

export interface PostgresStorageOptions {
  /** `postgresql://user:password@host:port/database`. */
  readonly url: string;
  /** 32 bytes in base64, the same on every node. */
  readonly masterKey: string | undefined;
  /** See `PostgresKeyVaultOptions`. */
  readonly copiesKeptSeconds?: number | undefined;
  /** True for the node that completes a restore. */
  readonly restoring?: boolean | undefined;
  /** The event log that the database belongs to, and whether it had no events before. */
  readonly log: OwnedLog & { readonly id: string; readonly isEmpty: boolean };
}

export interface PostgresStorage {
  readonly vault: PostgresKeyVault;
  readonly sealer: BodySealer;
  readonly naming: ItemNaming;
  readonly readModels: PostgresReadModels;
  /** The time by the server's clock, in milliseconds. */
  nowMs(): Promise<number>;
  close(): Promise<void>;
}

/**
 * Opens the key vault and the read models in a PostgreSQL database, which any number of nodes may share.
 *
 * @throws {UnusableServer} with a message for the operator
 */
export async function openPostgresStorage(options: PostgresStorageOptions): Promise<PostgresStorage> {
  const bytes = Buffer.from(options.masterKey ?? '', 'base64');
  if (options.masterKey === undefined) {
    throw new UnusableServer('With --postgres the master key must be given (EPITAPH_MASTER_KEY): every node needs it.');
  }
  if (bytes.length !== 32) throw new UnusableServer('The master key must be 32 bytes in base64.');
  const opened = new Opened();
  try {
    const database = await openDatabase(options.url);
    opened.add(() => database.close());
    const vault = await PostgresKeyVault.open({
      database,
      master: createSecretKey(bytes),
      copiesKeptSeconds: options.copiesKeptSeconds,
      restoring: options.restoring === true ? 'node' : undefined,
    });
    // The vault's listening connection is not one of the pool, and holds a lock. So the vault must be closed too.
    opened.add(() => vault.close());
    await assertSameLog(database, options);
    const readModels = await PostgresReadModels.open(database);
    opened.add(() => readModels.close());
    const naming = new HashedItemNaming(vault);
    vault.onConnectionLost(() => naming.forget());
    const close = () => opened.close();
    return { vault, sealer: new GcmBodySealer(), naming, readModels, nowMs: () => nowMs(database), close };
  } catch (error) {
    await opened.close();
    throw error;
  }
}

async function nowMs(database: PostgresDatabase): Promise<number> {
  // clock_timestamp() is the time of this call; now() would be the begin of the transaction.
  const [row] = await database.query<{ now_ms: number }>(
    'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms',
  );
  return row!.now_ms;
}

/** Keys, read models and log belong together: keys of another log open nothing, and positions in it are those of other events. */
async function assertSameLog(
  database: PostgresDatabase,
  { log, url, restoring }: PostgresStorageOptions,
): Promise<void> {
  // The first node that uses a log claims it for the database, before it writes an event.
  if (log.isEmpty || restoring === true) {
    await database.query(
      'INSERT INTO epitaph_vault.log (one, id, name) VALUES (1, $1, $2) ON CONFLICT (one) DO NOTHING',
      [log.id, log.name],
    );
  }
  const [known] = await database.query<{ id: string; name: string; owner: string }>(
    'SELECT id, name, owner FROM epitaph_vault.log',
  );
  if (known === undefined) {
    throw new UnusableServer(
      `The PostgreSQL database at ${placeOf(url)} is new, but the event log on ${log.name} has events, whose keys are in another place. Start with the database that belongs to that log, or with an empty log.`,
    );
  }
  if (known.id !== log.id) {
    throw new UnusableServer(
      `The PostgreSQL database at ${placeOf(url)} belongs to another event log, first used on ${known.name}. Start with that one, or with another database.`,
    );
  }
  const owner = { id: known.owner, name: `the PostgreSQL database at ${placeOf(url)}` };
  const refusal = await refusalOfLog(log, owner, restoring === true);
  if (refusal !== undefined) throw new UnusableServer(refusal);
}
