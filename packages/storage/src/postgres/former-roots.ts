import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { PostgresDatabase, Statements } from './database.ts';

/** Settings that decide what the server keeps of what is written. */
const SETTINGS = [
  'wal_recycle',
  'archive_mode',
  'wal_keep_size',
  'log_statement',
  'log_min_duration_statement',
  'log_min_duration_sample',
  'log_transaction_sample_rate',
  'log_parameter_max_length',
  'log_parameter_max_length_on_error',
  'debug_print_plan',
  // Not there where the extension is not loaded, and the last one before PostgreSQL 16.
  'auto_explain.log_min_duration',
  'auto_explain.log_verbose',
  'auto_explain.log_parameter_max_length',
] as const;

/** What stands in the way of erasing a former key from the server's files, each as a sentence with its remedy. */
export async function obstaclesToErasing(sql: Statements): Promise<string[]> {
  const [may] = await sql.query<{ checkpoint: boolean; switch_wal: boolean; list_wal: boolean }>(
    `SELECT pg_has_role('pg_checkpoint', 'USAGE') AS checkpoint,
            has_function_privilege('pg_switch_wal()', 'EXECUTE') AS switch_wal,
            has_function_privilege('pg_ls_waldir()', 'EXECUTE') AS list_wal`,
  );
  const found = await settingsThatKeep(sql);
  if (!may!.checkpoint) found.push('the user may not ask for a checkpoint (GRANT pg_checkpoint)');
  if (!may!.switch_wal) found.push('the user may not end a WAL file (GRANT EXECUTE ON FUNCTION pg_switch_wal)');
  if (!may!.list_wal) found.push('the user may not see which WAL files there are (GRANT pg_monitor)');
  return found;
}

/** Settings by which the server keeps what is written, the same way. */
async function settingsThatKeep(sql: Statements): Promise<string[]> {
  const [server] = await sql.query<{
    settings: Readonly<Partial<Record<(typeof SETTINGS)[number], string>>>;
    audits_parameters: string | null;
  }>(
    `SELECT (SELECT json_object_agg(name, setting) FROM pg_settings WHERE name = ANY ($1::text[])) AS settings,
            current_setting('pgaudit.log_parameter', true) AS audits_parameters`,
    [SETTINGS],
  );
  const { settings, audits_parameters } = server!;
  const found: string[] = [];
  if (settings.wal_recycle !== 'off') {
    found.push('wal_recycle is on: old WAL files are kept for reuse (set it to off)');
  }
  if (settings.archive_mode !== 'off') found.push('WAL is archived (archive_mode)');
  if (settings.wal_keep_size !== '0') found.push('old WAL files are kept (wal_keep_size; set it to 0)');
  const isLogged =
    settings.log_statement === 'all' ||
    settings.log_statement === 'mod' ||
    settings.log_min_duration_statement !== '-1' ||
    settings.log_min_duration_sample !== '-1' ||
    Number(settings.log_transaction_sample_rate) > 0;
  const inLog = (setting: string) => found.push(`statements' values may stand in the server's log (set ${setting})`);
  if (isLogged && settings.log_parameter_max_length !== '0') inLog('log_parameter_max_length to 0');
  if (settings.log_parameter_max_length_on_error !== '0') inLog('log_parameter_max_length_on_error to 0');
  // A plan that is made for the values has them in it.
  if (settings.debug_print_plan === 'on') inLog('debug_print_plan to off');
  if ((settings['auto_explain.log_min_duration'] ?? '-1') !== '-1') {
    if (settings['auto_explain.log_verbose'] === 'on') inLog('auto_explain.log_verbose to off');
    if ((settings['auto_explain.log_parameter_max_length'] ?? '0') !== '0') {
      inLog('auto_explain.log_parameter_max_length to 0');
    }
  }
  if (audits_parameters === 'on') inLog('pgaudit.log_parameter to off');
  return found;
}

/** Something keeps old WAL files (a replica that is behind, a replication slot, a backup under way), or would keep a root. */
export class FormerRootsKept extends StorageUnavailable {
  override readonly name = 'FormerRootsKept';
}

/**
 * To be called before a root is written. The server may be set otherwise since the start: what is destroyed later could then be read
 * by what it keeps of this root.
 *
 * @throws {FormerRootsKept}
 */
export async function assertErasable(sql: Statements): Promise<void> {
  const obstacles = await settingsThatKeep(sql);
  if (obstacles.length === 0) return;
  throw new FormerRootsKept(
    `Nothing can be erased, for this PostgreSQL server would keep what opens it: ${obstacles.join('; ')}. Change that: a store that runs goes on by itself then.`,
  );
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
