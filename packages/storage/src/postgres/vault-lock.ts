import type { PostgresDatabase, Statements } from './database.ts';
import { LOCK_SPACE, locks } from './migrations.ts';

/** Runs a transaction that no destruction, hold or new block runs beside, on any node. */
export function aloneInVault<Result>(
  database: PostgresDatabase,
  work: (sql: Statements) => Promise<Result>,
): Promise<Result> {
  return database.transaction(async (sql) => {
    await takeVaultLock(sql);
    return work(sql);
  });
}

/** Waits until nobody else has the vault, and has it until the transaction ends. */
export async function takeVaultLock(sql: Statements): Promise<void> {
  await sql.query('SELECT pg_advisory_xact_lock($1, $2)', [LOCK_SPACE, locks.vault]);
}
