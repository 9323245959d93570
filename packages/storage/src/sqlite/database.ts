import { accessSync, constants, existsSync } from 'node:fs';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { sqliteCodeOf, sqliteCodes } from './failures.ts';
import { giveToFolderOwner } from './file-owner.ts';
import type { Writer } from './writer.ts';

/** A file of the store can't be used: for example it is damaged, or was made by a newer version or another program. */
export class UnusableFile extends Error {
  override readonly name = 'UnusableFile';
}

export interface OpenOptions {
  readonly file: string;
  /** What the file is, for messages: "event log", "key vault", … */
  readonly what: string;
  /** The schema version that this code writes. */
  readonly schemaVersion: number;
  /** A sentence that says what to do if the file is damaged; by default, to restore it from a backup. */
  readonly remedy?: string;
  readonly schema: string;
  /** Statements that migrate each older version to the next one, from version 1 on. */
  readonly migrations?: readonly string[];
  readonly synchronous: 'FULL' | 'NORMAL' | 'OFF';
  readonly secureDelete?: boolean;
  /** Memory for pages, in KiB; {@link CACHE_KIB} by default. */
  readonly cacheKiB?: number;
}

/**
 * Memory for the pages of a connection, in KiB. There are about ten connections. Other pages are read from the operating system's
 * cache, so a larger value would mainly make memory grow with the amount of data.
 */
const CACHE_KIB = 16_384;
/** The same for the log, by far the largest file. */
export const LOG_CACHE_KIB = 65_536;

/** How long a connection waits for a lock of another one, in milliseconds. */
export const BUSY_MS = 5_000;
/** How long emptying a journal waits for readers, in milliseconds. Writes wait meanwhile. */
export const EMPTYING_MS = 250;

/** The application_id in the header of the store's SQLite files: "EPIT". */
const APPLICATION_ID = 0x45504954;

/**
 * Opens a file, after a check of its permissions: SQLite opens a read-only file without an error, and fails at the first write.
 *
 * @throws {UnusableFile} if the user may not read and write the file
 */
function connect(file: string): DatabaseSync {
  try {
    if (existsSync(file)) accessSync(file, constants.R_OK | constants.W_OK);
    return new DatabaseSync(file, { timeout: BUSY_MS });
  } catch (error) {
    throw new UnusableFile(
      `${file} can't be opened for writing: ${(error as Error).message}. Check its owner, its permissions, and the disk.`,
    );
  }
}

/** Opens a file for writing, in WAL mode, and creates its schema if it is new. */
export function openForWriting(options: OpenOptions): DatabaseSync {
  const isNew = !existsSync(options.file);
  const database = connect(options.file);
  try {
    if (isNew) {
      // SQLite gives the journal the same owner as the file.
      giveToFolderOwner(options.file);
      database.exec('PRAGMA page_size = 8192');
    }
    database.exec('PRAGMA journal_mode = WAL');
    database.exec(`PRAGMA synchronous = ${options.synchronous}`);
    // A checkpoint every 64 MiB: more frequent ones would write the most used pages again and again.
    database.exec('PRAGMA wal_autocheckpoint = 8000');
    database.exec(`PRAGMA cache_size = -${options.cacheKiB ?? CACHE_KIB}`);
    // Sorts and VACUUM must not leave copies in a temporary folder.
    database.exec('PRAGMA temp_store = MEMORY');
    if (options.secureDelete === true) database.exec('PRAGMA secure_delete = ON');
    const version = pragma(database, 'user_version');
    if (version === 0 && pragma(database, 'application_id') === 0) {
      database.exec(`BEGIN; ${options.schema};
        PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${options.schemaVersion}; COMMIT`);
    } else {
      checkVersion(database, options);
      migrate(database, options);
    }
    return database;
  } catch (error) {
    database.close();
    throw explained(error, options);
  }
}

export interface ReadingOptions {
  readonly cacheKiB?: number;
  /** True if nobody writes to the file. Then SQLite makes no files beside it, so that its folder may be read-only. */
  readonly isCopy?: boolean;
  /** The only writer of the file. If it is given, look-ups of one turn of the event loop share a transaction. */
  readonly writer?: Pick<Writer, 'onGroup'>;
}

/** Opens a file that {@link openForWriting} has made, for a connection that only reads. */
export function openForReading(
  file: string,
  { cacheKiB = CACHE_KIB, isCopy = false, writer }: ReadingOptions = {},
): DatabaseSync {
  const database = new ReadingConnection(file, isCopy);
  database.exec(`PRAGMA cache_size = -${cacheKiB}; PRAGMA temp_store = MEMORY`);
  if (writer !== undefined) database.shareTransactions(writer);
  return database;
}

/** Reading a file of the store failed: the file or its disk is damaged. */
export class UnreadableFile extends StorageUnavailable {
  override readonly name = 'UnreadableFile';
  override readonly isForOperator = true;
}

/** At most this many look-ups share a transaction: while it lasts, the writer can't restart its journal from the beginning. */
const SHARED_LOOK_UPS = 64;

/** Names the file in errors of failed reads, since the remedy depends on it. */
class ReadingConnection extends DatabaseSync {
  readonly #file: string;
  #shares = false;
  /** The number of look-ups in this turn of the event loop, or since the last shared transaction ended. */
  #lookUps = 0;
  #endsWithTurn = false;

  constructor(file: string, isCopy: boolean) {
    super(isCopy ? new URL(`${pathToFileURL(file).href}?immutable=1`) : file, { readOnly: true, timeout: BUSY_MS });
    this.#file = file;
  }

  /**
   * Makes the look-ups of one turn share a read transaction, from the second one on: to begin and end a transaction takes twice as
   * long as to find a row. The transaction ends before the results of a group of writes are announced, so that a caller who knows of
   * a write also reads it.
   */
  shareTransactions(writer: Pick<Writer, 'onGroup'>): void {
    writer.onGroup((needsReadersGone) => {
      this.#endShared();
      this.#shares = !needsReadersGone;
    });
    this.#shares = true;
  }

  #beginShared(): void {
    if (this.#lookUps === SHARED_LOOK_UPS) this.#endShared();
    this.#lookUps += 1;
    if (this.#lookUps === 2) this.exec('BEGIN');
    if (this.#endsWithTurn) return;
    this.#endsWithTurn = true;
    setImmediate(() => {
      this.#endsWithTurn = false;
      this.#endShared();
    });
  }

  #endShared(): void {
    const shared = this.#lookUps > 1 && this.isOpen && this.isTransaction;
    this.#lookUps = 0;
    if (!shared) return;
    try {
      this.exec('COMMIT');
    } catch {
      // SQLite refuses it after a look-up that met damage. The caller of that look-up got an error already.
      if (this.isTransaction) this.exec('ROLLBACK');
    }
  }

  override prepare(sql: string): StatementSync {
    const statement = super.prepare(sql);
    const get = statement.get.bind(statement) as (...parameters: SQLInputValue[]) => unknown;
    const all = statement.all.bind(statement) as (...parameters: SQLInputValue[]) => unknown[];
    const iterate = statement.iterate.bind(statement) as (...parameters: SQLInputValue[]) => NodeJS.Iterator<unknown>;
    const toObject = shapeOf(statement);
    let shape: typeof toObject | undefined = toObject;
    statement.setReturnArrays(true);
    const told =
      <Args extends unknown[], Result>(read: (...args: Args) => Result) =>
      (...args: Args): Result => {
        try {
          return read(...args);
        } catch (error) {
          throw unreadable(error, this.#file);
        }
      };
    return Object.assign(statement, {
      get: told((...parameters: SQLInputValue[]) => {
        if (this.#shares) this.#beginShared();
        const row = get(...parameters);
        return row === undefined || shape === undefined ? row : shape(row);
      }),
      all: told((...parameters: SQLInputValue[]) => {
        const rows = all(...parameters);
        return shape === undefined ? rows : rows.map(shape);
      }),
      iterate: (...parameters: SQLInputValue[]) => {
        const rows = iterate(...parameters);
        return shape === undefined ? rows : rows.map(shape);
      },
      setReturnArrays: (enabled: boolean) => {
        shape = enabled ? undefined : toObject;
      },
    });
  }
}

/**
 * Converts a statement's rows from arrays to objects. The objects of node:sqlite itself are in V8's dictionary mode: they take one
 * and a half times as long to make, thirty times as long to read from, and three times the memory.
 */
function shapeOf(statement: StatementSync): (row: unknown) => Record<string, unknown> {
  let names: readonly string[] | undefined;
  return (row) => {
    names ??= statement.columns().map(({ name }) => name);
    const object: Record<string, unknown> = {};
    for (let index = 0; index < names.length; index++) object[names[index]!] = (row as unknown[])[index];
    return object;
  };
}

function unreadable(error: unknown, file: string): unknown {
  const code = sqliteCodeOf(error);
  if (code !== sqliteCodes.corrupt && code !== sqliteCodes.notADatabase && code !== sqliteCodes.ioError) return error;
  const remedy = /items\.v\d+\.db$/.test(file)
    ? 'rebuild the read models, or stop the store and delete the file with its -wal and -shm: it is built again from the log'
    : 'check its disk; if that is sound, the file is damaged: stop the store, and restore it from a backup';
  return new UnreadableFile(`${file} can't be read (${(error as Error).message}): ${remedy}.`, { cause: error });
}

/** Reads something from a file. For a damaged file the result is `otherwise`: the damage is reported when the file is opened for use. */
function lookInto<Told>(file: string, look: (database: DatabaseSync) => Told, otherwise: Told): Told {
  const database = connect(file);
  try {
    return look(database);
  } catch {
    return otherwise;
  } finally {
    database.close();
  }
}

/** True for a file of the store whose schema is older than the one that this code writes. */
export function isOutdated(file: string, schemaVersion: number): boolean {
  if (!existsSync(file)) return false;
  return lookInto(file, (database) => isOurs(database) && pragma(database, 'user_version') < schemaVersion, false);
}

export interface ReadModelCheckpoint {
  readonly position: number;
  /** See `FolderFacts.opening`. */
  readonly opening: string | null;
}

/** The checkpoint of a read model; undefined if the file has another schema or is damaged. */
export function checkpointIn(file: string, schemaVersion: number): ReadModelCheckpoint | undefined {
  const look = (database: DatabaseSync) =>
    isOurs(database) && pragma(database, 'user_version') === schemaVersion
      ? (database.prepare('SELECT position, opening FROM checkpoint').get() as ReadModelCheckpoint | undefined)
      : undefined;
  return lookInto(file, look, undefined);
}

/** True if a read model has values in clear, or is damaged so that this can't be read. */
export function hasClearValues(file: string): boolean {
  return lookInto(file, (database) => database.prepare('SELECT 1 FROM item_clear LIMIT 1').get() !== undefined, true);
}

/** Records an opening of the folder in a read model, durably. */
export function nameOpeningIn(file: string, opening: string): void {
  const database = connect(file);
  try {
    database.prepare('UPDATE checkpoint SET opening = ?').run(opening);
  } catch {
    // The disk may be full. The read model then keeps the opening before, which the folder also knows.
  } finally {
    database.close();
  }
}

/** The last position of the event log in a file; undefined if it can't be read. The file and its journal are not changed. */
export function headIn(file: string): number | undefined {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { timeout: BUSY_MS, readOnly: true });
    return (database.prepare('SELECT coalesce(max(position), 0) AS head FROM events').get() as { head: number }).head;
  } catch {
    return undefined;
  } finally {
    database?.close();
  }
}

/** A message for read models to which the events of the log can't be applied. */
export const whenUnfit = (file: string): string =>
  `${file} does not match the event log: it is from another copy of the store, or damaged. Stop the store, and delete the file, with its -wal and -shm files: it is built again from the log at the next start.`;

/**
 * Moves everything from a database's journal into its file. Until then overwritten bytes are still in one of the two.
 *
 * @throws {UnusableFile} while another process reads the database
 */
export function emptyJournal(vault: DatabaseSync): void {
  const { busy } = vault.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get() as { busy: number };
  if (busy !== 0) throw new UnusableFile('The database is being read by another process. Stop that one and try again.');
}

function pragma(database: DatabaseSync, name: string): number {
  const row = database.prepare(`PRAGMA ${name}`).get() as Record<string, number>;
  return Object.values(row)[0]!;
}

const isOurs = (database: DatabaseSync): boolean => pragma(database, 'application_id') === APPLICATION_ID;

function migrate(database: DatabaseSync, { migrations = [], schemaVersion }: OpenOptions): void {
  for (let version = pragma(database, 'user_version'); version < schemaVersion; version++) {
    database.exec(`BEGIN; ${migrations[version - 1]!}; PRAGMA user_version = ${version + 1}; COMMIT`);
  }
}

function checkVersion(database: DatabaseSync, { file, what, schemaVersion, migrations = [] }: OpenOptions): void {
  if (!isOurs(database)) {
    throw new UnusableFile(`${file} is not an Epitaph ${what}.`);
  }
  const version = pragma(database, 'user_version');
  if (version > schemaVersion) {
    throw new UnusableFile(
      `${file}: this ${what} was written by a newer Epitaph (schema ${version}; this one knows up to ${schemaVersion}). Start that version, or a later one.`,
    );
  }
  if (version < schemaVersion && (version < 1 || migrations.length < schemaVersion - 1)) {
    throw new UnusableFile(
      `${file}: this ${what} has schema ${version}, and no migration to ${schemaVersion} is known.`,
    );
  }
}

/** Turns an error of SQLite or the disk into one that says what is wrong with the file and what to do, if that is known. */
export function explained(
  error: unknown,
  { file, what, remedy = 'Restore it from a backup.' }: Pick<OpenOptions, 'file' | 'what' | 'remedy'>,
): unknown {
  const { message } = error as { message?: string };
  const code = sqliteCodeOf(error);
  if (code === sqliteCodes.corrupt || code === sqliteCodes.notADatabase) {
    return new UnusableFile(`${file}: the ${what} is damaged (${message}). ${remedy}`);
  }
  if (code === sqliteCodes.readOnly || code === sqliteCodes.cantOpen) {
    return new UnusableFile(
      `${file}: the ${what} can't be opened for writing (${message}). Check the permissions of the folder, of the file and of its -wal and -shm, and how many files may be open (ulimit -n).`,
    );
  }
  if (code === sqliteCodes.full) return new UnusableFile(`${file}: no space left on the disk for the ${what}.`);
  if (code === sqliteCodes.ioError) {
    return new UnusableFile(`${file}: the ${what} can't be opened (${message}). Its disk is full or fails; check it.`);
  }
  return error;
}
