import { Places } from '@epitaph/core/places.ts';
import type { PostgresDatabase, Statements } from './database.ts';
import { LOCK_SPACE, locks } from './migrations.ts';

/**
 * So many at once stand at the lock, each with a connection of the pool: the rest of these are for whoever has the vault, and
 * asks for what is on record before it goes on.
 */
const AT_THE_LOCK = 4;
const places = new WeakMap<PostgresDatabase, Places>();

/** Runs a transaction that no destruction, hold or new block runs beside, on any node. */
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

/** Waits until nobody else has the vault, and has it until the transaction ends. */
export async function takeVaultLock(sql: Statements): Promise<void> {
  await sql.query('SELECT pg_advisory_xact_lock($1, $2)', [LOCK_SPACE, locks.vault]);
}
