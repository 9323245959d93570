import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { PostgresDatabase } from './database.ts';

/** What stands in the way of erasing a former key from the server's files, each as a sentence with its remedy. */
export async function obstaclesToErasing(database: PostgresDatabase): Promise<string[]> {
  const [server] = await database.query<{
    recycle: string;
    archive: string;
    keep: string;
    checkpoint: boolean;
    switch_wal: boolean;
    list_wal: boolean;
    log_statement: string;
    log_duration: string;
    log_samples: string;
    log_transactions: string;
    log_parameters: string;
    log_parameters_on_error: string;
    prints_plans: string;
    explained: string | null;
    explained_verbose: string | null;
    explained_parameters: string | null;
    audited_parameters: string | null;
  }>(`
    SELECT current_setting('wal_recycle') AS recycle,
           current_setting('archive_mode') AS archive,
           (SELECT setting FROM pg_settings WHERE name = 'wal_keep_size') AS keep,
           pg_has_role('pg_checkpoint', 'USAGE') AS checkpoint,
           has_function_privilege('pg_switch_wal()', 'EXECUTE') AS switch_wal,
           has_function_privilege('pg_ls_waldir()', 'EXECUTE') AS list_wal,
           current_setting('log_statement') AS log_statement,
           (SELECT setting FROM pg_settings WHERE name = 'log_min_duration_statement') AS log_duration,
           (SELECT setting FROM pg_settings WHERE name = 'log_min_duration_sample') AS log_samples,
           (SELECT setting FROM pg_settings WHERE name = 'log_transaction_sample_rate') AS log_transactions,
           (SELECT setting FROM pg_settings WHERE name = 'log_parameter_max_length') AS log_parameters,
           (SELECT setting FROM pg_settings WHERE name = 'log_parameter_max_length_on_error') AS log_parameters_on_error,
           current_setting('debug_print_plan') AS prints_plans,
           (SELECT setting FROM pg_settings WHERE name = 'auto_explain.log_min_duration') AS explained,
           (SELECT setting FROM pg_settings WHERE name = 'auto_explain.log_verbose') AS explained_verbose,
           (SELECT setting FROM pg_settings WHERE name = 'auto_explain.log_parameter_max_length') AS explained_parameters,
           current_setting('pgaudit.log_parameter', true) AS audited_parameters`);
  const found: string[] = [];
  const { recycle, archive, keep, checkpoint, switch_wal, list_wal } = server!;
  if (recycle !== 'off') found.push('wal_recycle is on: old WAL files are kept for reuse (set it to off)');
  if (archive !== 'off') found.push('WAL is archived (archive_mode)');
  if (keep !== '0') found.push('old WAL files are kept (wal_keep_size; set it to 0)');
  if (!checkpoint) found.push('the user may not ask for a checkpoint (GRANT pg_checkpoint)');
  if (!switch_wal) found.push('the user may not end a WAL file (GRANT EXECUTE ON FUNCTION pg_switch_wal)');
  if (!list_wal) found.push('the user may not see which WAL files there are (GRANT pg_monitor)');
  const { log_statement, log_duration, log_samples, log_transactions } = server!;
  const isLogged =
    log_statement === 'all' ||
    log_statement === 'mod' ||
    log_duration !== '-1' ||
    log_samples !== '-1' ||
    Number(log_transactions) > 0;
  const inLog = (setting: string) => found.push(`statements' values may stand in the server's log (set ${setting})`);
  if (isLogged && server!.log_parameters !== '0') inLog('log_parameter_max_length to 0');
  if (server!.log_parameters_on_error !== '0') inLog('log_parameter_max_length_on_error to 0');
  // A plan that is made for the values has them in it.
  if (server!.prints_plans === 'on') inLog('debug_print_plan to off');
  // Null where the extension is not loaded.
  const { explained, explained_verbose, explained_parameters, audited_parameters } = server!;
  if (explained !== null && explained !== '-1') {
    if (explained_verbose === 'on') inLog('auto_explain.log_verbose to off');
    // From PostgreSQL 16 on.
    if (explained_parameters !== null && explained_parameters !== '0') {
      inLog('auto_explain.log_parameter_max_length to 0');
    }
  }
  if (audited_parameters === 'on') inLog('pgaudit.log_parameter to off');
  return found;
}

/** Something keeps old WAL files: a replica that is behind, a replication slot, a backup under way. */
export class FormerRootsKept extends StorageUnavailable {
  override readonly name = 'FormerRootsKept';
}

/**
 * Erases from the server's files what was there before: the file of an emptied table is cut to nothing when the
 * transaction commits and goes with the next checkpoint; the WAL up to now goes with the checkpoint too, once a
 * new WAL file has been begun.
 *
 * @throws {FormerRootsKept} when WAL from before is still there
 */
export async function eraseFormerRoots(database: PostgresDatabase): Promise<void> {
  const [ended] = await database.query<{ file: string }>('SELECT pg_walfile_name(pg_switch_wal()) AS file');
  await database.query('CHECKPOINT');
  // Names sort in order, but for the first eight digits, which count the server's timelines.
  const [left] = await database.query<{ count: number }>(
    "SELECT count(*) AS count FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$' AND substr(name, 9) <= substr($1, 9)",
    [ended!.file],
  );
  if (left!.count > 0) {
    throw new FormerRootsKept(
      `${left!.count} old WAL files are still on the PostgreSQL server, kept by a replication slot, a replica or a backup: destroyed keys could be read from them. Look at pg_replication_slots.`,
    );
  }
}
