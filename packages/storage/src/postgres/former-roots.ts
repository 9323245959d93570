import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { PostgresDatabase, Statements } from './database.ts';

/** Settings by which the server may keep copies of written data. */
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
  // These exist only if the extension is loaded, and the last one only from PostgreSQL 16 on.
  'auto_explain.log_min_duration',
  'auto_explain.log_verbose',
  'auto_explain.log_parameter_max_length',
] as const;

/** The reasons why a former key can't be erased from the server's files, each as a sentence with its remedy. */
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

/** The settings by which the server keeps written data, in the same form. */
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
  const inLog = (setting: string) =>
    found.push(`values of statements may be written to the server's log (set ${setting})`);
  if (isLogged && settings.log_parameter_max_length !== '0') inLog('log_parameter_max_length to 0');
  if (settings.log_parameter_max_length_on_error !== '0') inLog('log_parameter_max_length_on_error to 0');
  // A plan made for particular parameters contains their values.
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

/**
 * Something keeps old WAL files (a replica that is behind, a replication slot, a running backup), or a setting of the server would
 * keep copies of a root.
 */
export class FormerRootsKept extends StorageUnavailable {
  override readonly name = 'FormerRootsKept';
}

/**
 * Must be called before a root is written. The server's settings may have changed since the start. With a copy of this root that they
 * keep, keys that are destroyed later could be read.
 *
 * @throws {FormerRootsKept}
 */
export async function assertErasable(sql: Statements): Promise<void> {
  const obstacles = await settingsThatKeep(sql);
  if (obstacles.length === 0) return;
  throw new FormerRootsKept(
    `Nothing can be erased, because this PostgreSQL server would keep copies of the keys: ${obstacles.join('; ')}. Change that; a running store then continues by itself.`,
  );
}

/**
 * Erases former roots from the server's files. The old file of a truncated table is emptied at the commit, and removed at the next
 * checkpoint. The WAL written so far is removed by the checkpoint too, once a new WAL file was begun.
 *
 * @throws {FormerRootsKept} if older WAL is still there
 */
export async function eraseFormerRoots(database: PostgresDatabase): Promise<void> {
  const [ended] = await database.query<{ file: string }>('SELECT pg_walfile_name(pg_switch_wal()) AS file');
  await database.query('CHECKPOINT');
  // WAL files sort by name, except for the first eight digits, which are the timeline.
  const [left] = await database.query<{ count: number }>(
    "SELECT count(*) AS count FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$' AND substr(name, 9) <= substr($1, 9)",
    [ended!.file],
  );
  if (left!.count > 0) {
    throw new FormerRootsKept(
      `${left!.count} old WAL files are still on the PostgreSQL server, kept by a replication slot, a replica or a backup: destroyed keys could be read from them. Check pg_replication_slots.`,
    );
  }
}
