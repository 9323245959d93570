import { Places } from '@epitaph/core/places.ts';
import type { PostgresDatabase, Statements } from './database.ts';
import { LOCK_SPACE, locks } from './migrations.ts';

/**
 * How many transactions of this process may wait for the lock at once, each with a connection of the pool. The other connections
 * are left for the holder of the lock, which may need one to ask what is on record.
 */
const AT_THE_LOCK = 4;
const places = new WeakMap<PostgresDatabase, Places>();

/** Runs a transaction under the vault's lock: no node destroys keys, places or releases holds, or takes a block of ids meanwhile. */
export function aloneInVault<Result>(
  database: PostgresDatabase,
  work: (sql: Statements) => Promise<Result>,
): Promise<Result> {
  const atTheLock = places.get(database) ?? new Places(AT_THE_LOCK);
  places.set(database, atTheLock);
  return atTheLock.run(() =>
    database.transaction(async (sql) => {
      await takeVaultLock(sql);
      return work(sql);
    }),
  );
}

/** Waits for the vault's lock. It is held until the transaction ends. */
export async function takeVaultLock(sql: Statements): Promise<void> {
  await sql.query('SELECT pg_advisory_xact_lock($1, $2)', [LOCK_SPACE, locks.vault]);
}
