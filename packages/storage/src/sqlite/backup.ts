import { createHash } from 'node:crypto';
import { constants, createReadStream, existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { chmod, copyFile, open, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { backup as copyPages, type DatabaseSync } from 'node:sqlite';
import {
  BackupFailed,
  BackupFolderTaken,
  type BackupSource,
  type CopyProgress,
  type FollowedCopy,
} from '@epitaph/core/backup/backup-source.ts';
import {
  type LogManifest,
  MANIFEST_FORMAT,
  readManifestOf,
  toWrite,
  type VaultManifest,
} from '@epitaph/core/backup/manifest.ts';
import { formatLedgerHead, type LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { Pace } from '@epitaph/core/turn.ts';
import {
  CLOCK_FILE,
  type DataFolder,
  FACTS_FILE,
  type FolderFacts,
  MANIFEST_FILE,
  PROOF_KEY_FILE,
  ACCESS_KEYS_FILE,
} from './data-folder.ts';
import { makeFolder } from './durable-files.ts';
import { openForReading, UnusableFile } from './database.ts';
import { isDiskFull, sqliteCodeOf, sqliteCodes } from './failures.ts';
import type { LedgerJob } from './log-writer-jobs.ts';
import type { StepHook } from './placed-crash.ts';
import { readPurgeLedger } from './purge-ledger.ts';
import type { SqliteKeyVault } from './sqlite-key-vault.ts';
import type { Writer } from './writer.ts';

/** How many pages are copied before others get a turn. */
const PAGES_PER_STEP = 128;

/** The files of each part. A restore makes no file of any other name, whatever a manifest says. */
const FILES = {
  log: { always: ['log.db', FACTS_FILE], maybe: [CLOCK_FILE] },
  vault: { always: ['vault.db'], maybe: [PROOF_KEY_FILE, ACCESS_KEYS_FILE] },
  /** The only part, if the log is on a server. */
  vaultAlone: { always: ['vault.db', FACTS_FILE], maybe: [CLOCK_FILE, PROOF_KEY_FILE, ACCESS_KEYS_FILE] },
} as const satisfies Record<string, { readonly always: readonly string[]; readonly maybe: readonly string[] }>;

type CopyLog = NonNullable<BackupSource['copyLog']>;

/** Copies log and keys from a data folder while the store is running. If the log is on a server, it only copies the keys. */
export class SqliteBackup implements BackupSource {
  readonly copyLog?: CopyLog;
  readonly #folder: DataFolder;
  readonly #writer: Writer;
  readonly #vault: SqliteKeyVault;
  readonly #ledgerFile: string;
  readonly #onStep: StepHook;

  constructor(
    folder: DataFolder,
    writer: Writer,
    vault: SqliteKeyVault,
    ledgerFile: string,
    onStep: StepHook = () => {},
  ) {
    this.#folder = folder;
    this.#writer = writer;
    this.#vault = vault;
    this.#ledgerFile = ledgerFile;
    this.#onStep = onStep;
    if (folder.log === undefined) this.copyLog = (...args) => this.#copyLog(...args);
  }

  get #parts(): readonly ('log' | 'vault')[] {
    return this.#folder.log === undefined ? ['log', 'vault'] : ['vault'];
  }

  ledgerHead(): Promise<LedgerHead> {
    return this.#ledger({ kind: 'ledger', atMs: 0 });
  }

  async ledgerDamage(signal?: AbortSignal): Promise<string | undefined> {
    const end = await this.ledgerHead();
    const pace = new Pace();
    try {
      for await (const { head } of readPurgeLedger(this.#ledgerFile)) {
        signal?.throwIfAborted();
        await pace.step();
        // Lines after it may be in the middle of being written.
        if (head.lines < end.lines) continue;
        return head.hash === end.hash
          ? undefined
          : `${this.#ledgerFile}: line ${head.lines + 1} is not what was written.`;
      }
    } catch (error) {
      if (error instanceof UnusableFile) return error.message;
      throw error;
    }
    return `${this.#ledgerFile} ends before its line ${end.lines + 1}.`;
  }

  record(atMs: number, backup: NonNullable<LedgerJob['backup']>): Promise<LedgerHead> {
    return this.#ledger({ kind: 'ledger', atMs, backup });
  }

  #ledger(job: LedgerJob): Promise<LedgerHead> {
    return this.#writer.submit<LedgerHead>(job);
  }

  async prepare(folder: string): Promise<void> {
    await explained(folder, async () => {
      assertOutsideBackups(folder);
      for (const part of this.#parts) {
        const path = join(folder, part);
        if (existsSync(path) && readdirSync(path).length > 0) {
          throw new BackupFolderTaken(`${path} is not empty. Name a folder that is new; a backup overwrites nothing.`);
        }
        makeFolder(path);
        this.#onStep(`backup ${part}: made`);
      }
    });
  }

  async #copyLog(
    folder: string,
    about: Parameters<CopyLog>[1],
    { onProgress, signal }: FollowedCopy = {},
  ): ReturnType<CopyLog> {
    const target = join(folder, 'log');
    return explained(target, async () => {
      const ledgerHead = await this.ledgerHead();
      const position = await copySnapshot(
        this.#folder.file('log.db'),
        join(target, 'log.db'),
        'log',
        onProgress,
        signal,
        (database) =>
          (database.prepare('SELECT coalesce(max(position), 0) AS head FROM events').get() as { head: number }).head,
      );
      this.#onStep('backup log: copied');
      await this.#copyFiles([FACTS_FILE, CLOCK_FILE], target);
      const { id, takenAtMs } = about;
      const files = await digests(target, onProgress, signal);
      const manifest: LogManifest = {
        part: 'log',
        format: MANIFEST_FORMAT,
        id,
        store: this.#folder.storeId,
        takenAtMs,
        logPosition: position,
        ledgerHead: formatLedgerHead(ledgerHead),
        files,
      };
      await writeManifest(target, manifest, this.#onStep);
      this.#onStep('backup log: whole');
      return { position, bytes: total(files) };
    });
  }

  async copyVault(
    folder: string,
    about: Parameters<BackupSource['copyVault']>[1],
    { onProgress, signal }: FollowedCopy = {},
  ): ReturnType<BackupSource['copyVault']> {
    const target = join(folder, 'vault');
    return explained(target, async () => {
      const ledgerHead = await this.ledgerHead();
      const { log } = this.#folder;
      // These come before the keys: after an interruption they show which store the keys belong to.
      if (log !== undefined) await this.#copyFiles([FACTS_FILE, CLOCK_FILE], target);
      // Destructions wait for the copy: while it reads the vault, destroyed keys could not be removed from the vault's journal.
      await this.#vault.whileCopying(() =>
        copySnapshot(this.#folder.file('vault.db'), join(target, 'vault.db'), 'vault', onProgress, signal, () => 0),
      );
      this.#onStep('backup vault: copied');
      await this.#copyFiles([PROOF_KEY_FILE, ACCESS_KEYS_FILE], target);
      const { id, takenAtMs, lapsesAtMs, logPosition } = about;
      const files = await digests(target, onProgress, signal);
      const manifest: VaultManifest = {
        part: 'vault',
        format: MANIFEST_FORMAT,
        id,
        store: this.#folder.storeId,
        takenAtMs,
        lapsesAtMs,
        ...(log === undefined ? {} : { log }),
        logPosition,
        ledgerHead: formatLedgerHead(ledgerHead),
        files,
      };
      await writeManifest(target, manifest, this.#onStep);
      this.#onStep('backup vault: whole');
      return { bytes: total(files) };
    });
  }

  /** Copies those of the files that exist. */
  async #copyFiles(names: readonly string[], target: string): Promise<void> {
    for (const name of names) {
      const file = this.#folder.file(name);
      if (existsSync(file)) await copySynced(file, join(target, name));
    }
  }

  async discard(folder: string): Promise<void> {
    // The keys are removed first: if a crash leaves some, the files beside them still show what they are.
    for (const part of this.#parts.toReversed()) {
      await rm(join(folder, part, 'vault.db'), { force: true });
      await rm(join(folder, part), { recursive: true, force: true });
      this.#onStep(`backup ${part}: discarded`);
    }
    if (existsSync(folder) && readdirSync(folder).length === 0) await rm(folder, { recursive: true, force: true });
  }

  async removeLapsed(root: string, nowMs: number): Promise<number> {
    let removed = 0;
    for (const entry of await readdir(root, { withFileTypes: true }).catch(ofNobody)) {
      if (entry.isFile()) continue;
      const folder = join(root, entry.name);
      if (await this.#removeIfLapsed(folder, nowMs)) removed += 1;
      // The name of a backup may be a path with several folders.
      if (entry.isDirectory()) removed += await this.removeLapsed(folder, nowMs);
    }
    return removed;
  }

  async #removeIfLapsed(folder: string, nowMs: number): Promise<boolean> {
    const path = join(folder, 'vault');
    const names: readonly string[] = await readdir(path).catch(ofNobody);
    const copied = names.includes(MANIFEST_FILE)
      ? readManifestOf('vault', readJson(join(path, MANIFEST_FILE)), digestOfText)
      : this.#cutShort(folder, names);
    if (copied?.store !== this.#folder.storeId || copied.lapsesAtMs > nowMs) return false;
    await rm(join(path, 'vault.db'), { force: true });
    await rm(path, { recursive: true, force: true });
    return true;
  }

  /** The store whose keys are in a backup that a crash has interrupted. Such keys have no recorded time at which they lapse. */
  #cutShort(folder: string, names: readonly string[]): Pick<VaultManifest, 'store' | 'lapsesAtMs'> | undefined {
    // The folder may also be a data folder.
    if (!names.includes('vault.db') || !names.every(isOfVaultPart)) return undefined;
    const store =
      readManifestOf('log', readJson(join(folder, 'log', MANIFEST_FILE)), digestOfText)?.store ??
      (readJson(join(folder, 'vault', FACTS_FILE)) as Partial<FolderFacts> | undefined)?.id;
    return store === undefined ? undefined : { store, lapsesAtMs: 0 };
  }
}

/**
 * Copies a database in its state at one moment. A read transaction is held until the end: without it, every write would make the copy
 * start again.
 */
async function copySnapshot<Seen>(
  source: string,
  target: string,
  phase: CopyProgress['phase'],
  onProgress: FollowedCopy['onProgress'],
  signal: AbortSignal | undefined,
  look: (database: DatabaseSync) => Seen,
): Promise<Seen> {
  signal?.throwIfAborted();
  const database = openForReading(source);
  try {
    database.exec('BEGIN');
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    const seen = look(database);
    // Made here with its permissions: SQLite would make a file that everybody can read, also after it is moved.
    await writeFile(target, '', { flag: 'wx', mode: 0o600 });
    await copyPages(database, target, {
      rate: PAGES_PER_STEP,
      progress: ({ totalPages, remainingPages }) => {
        signal?.throwIfAborted();
        onProgress?.({ phase, done: totalPages - remainingPages, total: totalPages });
      },
    });
    return seen;
  } finally {
    database.close();
  }
}

/** Handles an error: a folder that does not exist, or can't be read, such as `lost+found`, contains no backup. */
function ofNobody(error: NodeJS.ErrnoException): [] {
  if (['ENOENT', 'ENOTDIR', 'EACCES', 'EPERM'].includes(error.code ?? '')) return [];
  throw error;
}

/** Whether a vault part, complete or interrupted, may contain a file of this name. */
const isOfVaultPart = (name: string): boolean =>
  [...FILES.vaultAlone.always, ...FILES.vaultAlone.maybe].some((one) => one === name) ||
  /^(?:vault\.db-|backup\.json)/.test(name);

/** Refuses a folder inside a part of another backup: keys below its log part would be stored together with the log. */
function assertOutsideBackups(folder: string): void {
  for (let at = folder; dirname(at) !== at; at = dirname(at)) {
    if (['log', 'vault'].includes(basename(at)) && existsSync(join(at, MANIFEST_FILE))) {
      throw new BackupFolderTaken(`${at} is a part of another backup. Name a folder outside it.`);
    }
  }
}

/** Copies a file to a new path, readable for its owner only. Its name is durable only once its folder is synced. */
export async function copySynced(source: string, target: string): Promise<void> {
  await copyFile(source, target, constants.COPYFILE_EXCL);
  // The copy has the permissions of the source, which may be read-only, or open to others.
  await chmod(target, 0o600);
  await sync(target);
}

/** Reads all files of a part once more, so that the digests in the manifest are those of the bytes on the disk. */
async function digests(
  path: string,
  onProgress: FollowedCopy['onProgress'],
  signal: AbortSignal | undefined,
): Promise<LogManifest['files']> {
  const files: LogManifest['files'] = {};
  for (const name of readdirSync(path).toSorted()) {
    const { size } = statSync(join(path, name));
    files[name] = {
      bytes: size,
      sha256: await digestOf(join(path, name), (done) => onProgress?.({ phase: 'digest', done, total: size }), signal),
    };
  }
  return files;
}

/** The SHA-256 digest of a file, in hexadecimal. */
export async function digestOf(
  path: string,
  onProgress?: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<string> {
  const digest = createHash('sha256');
  let done = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 }) as AsyncIterable<Buffer>) {
    signal?.throwIfAborted();
    digest.update(chunk);
    done += chunk.length;
    onProgress?.(done);
  }
  return digest.digest('hex');
}

/**
 * Writes the manifest, at once as a whole, and after everything else: a folder without a manifest is no backup. The manifest of keys
 * also says until when they may be kept.
 */
async function writeManifest(path: string, manifest: LogManifest | VaultManifest, onStep: StepHook): Promise<void> {
  const temporary = join(path, `${MANIFEST_FILE}.new`);
  const text = JSON.stringify(toWrite(manifest, digestOfText), undefined, 2);
  await writeFile(temporary, `${text}\n`, { mode: 0o600, flush: true });
  onStep(`backup ${manifest.part}: described`);
  await rename(temporary, join(path, MANIFEST_FILE));
  await sync(path);
}

async function sync(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Reads the manifest of one part of a backup.
 *
 * @throws {UnusableFile} if there is no manifest, or it belongs to another part
 */
export function readManifest(path: string, part: 'log'): LogManifest;
export function readManifest(path: string, part: 'vault'): VaultManifest;
export function readManifest(path: string, part: 'log' | 'vault'): LogManifest | VaultManifest {
  const manifest = join(path, MANIFEST_FILE);
  if (!existsSync(manifest)) {
    throw new UnusableFile(
      `${path} contains no backup of the ${part}: it has no ${MANIFEST_FILE}. An interrupted backup has none.`,
    );
  }
  const found = readJson(manifest) as { readonly format?: unknown; readonly part?: unknown } | undefined;
  if (typeof found?.format === 'number' && found.format > MANIFEST_FORMAT) {
    throw new UnusableFile(
      `${path}: this backup was taken by a newer Epitaph (format ${found.format}). Restore it with that version, or a later one.`,
    );
  }
  if (found?.part !== undefined && found.part !== part) {
    throw new UnusableFile(
      `${path} is the ${String(found.part)} part of a backup, but the ${part} part is needed there.`,
    );
  }
  const read = readManifestOf(part, found, digestOfText);
  if (read === undefined || !isWhole(partOf(read), Object.keys(read.files))) {
    throw new UnusableFile(`${manifest} is damaged. Use another backup.`);
  }
  return read;
}

const digestOfText = (text: string): string => createHash('sha256').update(text).digest('hex');

function partOf(manifest: LogManifest | VaultManifest): keyof typeof FILES {
  if (manifest.part === 'log') return 'log';
  return manifest.log === undefined ? 'vault' : 'vaultAlone';
}

function isWhole(part: keyof typeof FILES, names: readonly string[]): boolean {
  const { always, maybe } = FILES[part];
  const known: readonly string[] = [...always, ...maybe];
  return always.every((name) => names.includes(name)) && names.every((name) => known.includes(name));
}

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}

const total = (files: LogManifest['files']): number => Object.values(files).reduce((sum, { bytes }) => sum + bytes, 0);

/** Turns the operating system's errors into messages for the operator. */
async function explained<Result>(path: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (isDiskFull(error)) {
      throw new BackupFailed(
        `There is no space left for the backup in ${path}. Free some space, or name another folder.`,
      );
    }
    const { code, message } = error as { code?: string; message: string };
    const sqliteCode = sqliteCodeOf(error);
    if (
      sqliteCode === sqliteCodes.readOnly ||
      sqliteCode === sqliteCodes.ioError ||
      sqliteCode === sqliteCodes.cantOpen ||
      (code !== undefined && /^E[A-Z]+$/.test(code) && !code.startsWith('ERR'))
    ) {
      throw new BackupFailed(
        `The backup can't be written to ${path}: ${message}. Check that the folder is there and may be written by the server.`,
      );
    }
    throw error;
  }
}
