import { existsSync, readdirSync, readFileSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { KeysOfLives, LedgerEntry, LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { copySynced, readManifest } from './backup.ts';
import {
  CLOCK_FILE,
  FACTS_FILE,
  type FolderFacts,
  FolderInUse,
  LEDGER_FILE,
  LOCK_FILE,
  lockFolder,
  MASTER_KEY_FILE,
  readFacts,
  RESTORING_SUFFIX,
  writeFacts,
} from './data-folder.ts';
import { emptyJournal, openForWriting, UnusableFile } from './database.ts';
import { makeFolder, syncFolder, writeDurably } from './durable-files.ts';
import { isDiskFull, sqliteCodeOf, sqliteCodes } from './failures.ts';
import { checkMasterKey, readMasterKey } from './master-key.ts';
import { openVault } from './open-vault.ts';
import { readPurgeLedger } from './purge-ledger.ts';
import { assertIntact, assertNotLapsed, assertTogether, assertWhole, isOnServer } from './restore-checks.ts';
import { destroyLater, lostOf, numberApart, settleByLog } from './restore-keys.ts';
import type { RestoreOptions } from './restore-options.ts';
import { LOG_SCHEMA, LOG_SCHEMA_VERSION } from './schema.ts';

export interface PreparedRestore {
  /**
   * The folder in which the store is made, until {@link finish}. It is marked, so that no store opens it by mistake. If a crash has left
   * such a folder, the same restore starts again from the beginning.
   */
  readonly folder: string;
  readonly clock: 'system' | 'manual';
  /** The time, in milliseconds, at which the log was copied; or the keys, if the log was not copied. */
  readonly takenAtMs: number;
  readonly logBackupId: string;
  readonly vaultBackupId: string;
  /** The position of the last event in the log when the keys were copied. */
  readonly keysAsOf: number;
  /** The position of the last event in the restored log. */
  readonly logPosition: number;
  readonly ledgerHead: LedgerHead;
  /** How many keys of the backup were destroyed, since the ledger says that they were destroyed after it. */
  readonly keysDestroyed: number;
  /** Keys of content in the log that the copy of the keys lacks. */
  readonly lost: KeysOfLives;
  /** Containers with items in the log whose secret, from which the items' stream names are made, the copy of the keys lacks. */
  readonly namesLost: readonly string[];
  /** Streams of lives whose purge is recorded, but whose writes a crash has left in the log. */
  readonly unfinished: readonly string[];
  /** Destroyed keys, whose destruction the log may not record; and all backups. */
  readonly ledger: () => AsyncIterable<LedgerEntry>;
  /** Moves the folder to its final path. */
  readonly finish: () => void;
  readonly discard: () => void;
}

/**
 * Makes a data folder from a backup, and destroys every key that the ledger says was destroyed after the backup. The store itself
 * records that in the log, before it serves requests.
 *
 * @throws {UnusableFile} if parts are missing, damaged or don't belong together; then nothing is left in `to`
 */
export async function prepareRestore(options: RestoreOptions): Promise<PreparedRestore> {
  const { onProgress = () => {}, onStep = () => {} } = options;
  const to = whereTo(options.to);
  const log =
    typeof options.log === 'string' ? { ...readManifest(options.log, 'log'), folder: options.log } : options.log;
  const vault = { ...readManifest(options.vault, 'vault'), folder: options.vault };
  assertTogether(log, vault);
  const server = isOnServer(log) ? log : undefined;
  const parts = isOnServer(log) ? [vault] : [log, vault];
  const first = parts[0]!;
  const { head, lastMs, listed } = await assertWhole(options, parts);
  assertNotLapsed(vault, first, Math.max(vault.takenAtMs, lastMs), options);
  for (const part of parts) await assertIntact(part, onProgress);
  checkMasterKey(join(options.vault, 'vault.db'), readMasterKey(options.masterKey));
  const facts = readFacts(first.folder)!;
  const logPosition = server === undefined ? first.logPosition : await server.log.head();
  const lost = server === undefined ? [] : await lostOf(server, logPosition, options);

  const folder = `${to}${RESTORING_SUFFIX}`;
  const discard = () => rmSync(folder, { recursive: true, force: true });
  let unlock = () => {};
  try {
    if (existsSync(folder)) removeLeftOver(folder);
    makeFolder(folder);
    unlock = lockFolder(folder);
    onStep('restore folder: made');
    // The log will belong to this folder, and no longer to the one that the backup was taken from.
    const { rotatingTo: _, owner: _former, ...kept } = facts;
    const restored: FolderFacts = { ...kept, id: vault.store, items: 1, ledger: true };
    writeFacts(folder, { ...restored, restoring: true });
    onStep('restore folder: marked');
    for (const { folder: part, files } of parts) {
      for (const name of Object.keys(files)) {
        if (name === FACTS_FILE) continue;
        await copySynced(join(part, name), join(folder, name));
        onStep('restore copy: after');
      }
    }
    await copySynced(options.ledger, join(folder, LEDGER_FILE));
    onStep('restore copy: after');
    if (options.keepMasterKey) writeDurably(join(folder, MASTER_KEY_FILE), `${options.masterKey}\n`);
    onStep('restore master key: after');
    raiseClock(folder, lastMs);
    onStep('restore clock: after');
    // Both are migrated to this version's schema before anything is read from them.
    if (server === undefined) {
      openForWriting({
        file: join(folder, 'log.db'),
        what: 'event log',
        schema: LOG_SCHEMA,
        schemaVersion: LOG_SCHEMA_VERSION,
        synchronous: 'FULL',
      }).close();
    }
    const keys = openVault(join(folder, 'vault.db'));
    let keysDestroyed: number;
    let settled: Awaited<ReturnType<typeof settleByLog>> | undefined;
    try {
      const onLine = (done: number) => onProgress('purges', done, head.lines);
      keysDestroyed = await destroyLater(keys, folder, vault, onStep, onLine);
      if (server !== undefined) {
        const known = { store: vault.store, listed, lastMs, master: readMasterKey(options.masterKey) };
        const onPosition = (done: number) => onProgress('applying', done, logPosition);
        settled = await settleByLog(keys, folder, server, known, onStep, onPosition);
        keysDestroyed += settled.keysDestroyed;
        raiseClock(folder, settled.lastMs);
      }
      numberApart(keys);
      emptyJournal(keys);
    } finally {
      keys.close();
    }
    onStep('restore keys: after');
    unlock();
    return {
      folder,
      clock: facts.clock,
      takenAtMs: first.takenAtMs,
      logBackupId: server === undefined ? first.id : 'event-store',
      vaultBackupId: vault.id,
      keysAsOf: vault.logPosition,
      logPosition,
      ledgerHead: head,
      keysDestroyed,
      lost,
      namesLost: settled?.namesLost ?? [],
      unfinished: settled?.unfinished ?? [],
      ledger: () => entriesOf(join(folder, LEDGER_FILE), settled?.unrecorded),
      finish: () => {
        syncFolder(folder);
        try {
          // Another restore may have finished first.
          assertFree(to);
          if (existsSync(to)) rmSync(to, { recursive: true });
          onStep('restore place: cleared');
          renameSync(folder, to);
        } catch (error) {
          throw explained(error, to);
        }
        syncFolder(dirname(to));
        onStep('restore place: taken');
        writeFacts(to, { ...readFacts(to)!, restoring: undefined });
        onStep('restore mark: removed');
      },
      discard,
    };
  } catch (error) {
    unlock();
    // A folder of another restore, or one that no restore has made, is not removed.
    if (!(error instanceof FolderInUse || error instanceof ForeignFolder)) discard();
    else if (error instanceof FolderInUse) {
      throw new FolderInUse(`Another restore is making ${folder}. Wait for it, or restore into another folder.`);
    }
    throw explained(error, to);
  }
}

/**
 * The real path of the folder to make: if the given path is a link, its target is replaced, not the link.
 *
 * @throws {UnusableFile} if no folder can be made there
 */
function whereTo(path: string): string {
  const to = existsSync(path) ? realpathSync(path) : resolve(path);
  try {
    assertFree(to);
    if (existsSync(to) && statSync(to).dev !== statSync(dirname(to)).dev) throw mountPoint(to);
    return to;
  } catch (error) {
    throw explained(error, to);
  }
}

const mountPoint = (to: string): UnusableFile =>
  new UnusableFile(`${to} is a mount point, which a folder can't replace. Restore into a folder below it.`);

/** @throws {UnusableFile} if the folder is not empty, except for one that an interrupted restore has left */
function assertFree(to: string): void {
  if (!existsSync(to) || readdirSync(to).length === 0 || isLeftOver(to)) return;
  throw new UnusableFile(`${to} is not empty. Restore into a new folder; nothing is overwritten.`);
}

/** A folder that no restore has made is where the restore would work. */
class ForeignFolder extends UnusableFile {}

/** True for a folder that an interrupted restore has left: no store was ever opened in it. */
function isLeftOver(folder: string): boolean {
  try {
    return readFacts(folder)?.restoring === true;
  } catch {
    return false;
  }
}

function removeLeftOver(folder: string): void {
  const isBare = readdirSync(folder).every((name) => name.startsWith(FACTS_FILE + '.') || name.startsWith(LOCK_FILE));
  if (!isBare && !isLeftOver(folder)) {
    throw new ForeignFolder(
      `${folder} is in the way: a restore makes its folder there, and the existing one was not left by a restore. Move it away, or restore into another folder.`,
    );
  }
  // This throws while another restore is working on the folder.
  lockFolder(folder)();
  rmSync(folder, { recursive: true });
}

/**
 * The entries of the ledger. If it is known which destroyed keys the log does not record, only these keys are returned, in one entry,
 * and the backups.
 */
async function* entriesOf(ledger: string, unrecorded?: KeysOfLives): AsyncGenerator<LedgerEntry> {
  let atMs = 0;
  for await (const { entry } of readPurgeLedger(ledger)) {
    if (entry === undefined) continue;
    ({ atMs } = entry);
    if (unrecorded === undefined || 'backup' in entry) yield entry;
  }
  if (unrecorded !== undefined) yield { atMs, keys: unrecorded };
}

/** Raises the clock's high-water mark, so that time does not go back to before the last purge. */
function raiseClock(folder: string, lastMs: number): void {
  const file = join(folder, CLOCK_FILE);
  const markMs = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0;
  if (lastMs > markMs) writeDurably(file, String(lastMs));
}

function explained(error: unknown, to: string): unknown {
  const { code, message } = error as { code?: string; message: string };
  const isFull = isDiskFull(error);
  if (isFull || sqliteCodeOf(error) === sqliteCodes.ioError) {
    // SQLite also reports a full disk as an I/O error, if it could not enlarge one of its files.
    const cause = isFull
      ? 'There is no space left to restore into'
      : 'There is no space left, or the disk fails, under';
    return new UnusableFile(`${cause} ${dirname(to)}: ${message}. The unfinished store was removed.`);
  }
  if (code === 'EBUSY' || code === 'EXDEV') return mountPoint(to);
  if (code !== undefined && ['EACCES', 'EROFS', 'EPERM', 'ENOTDIR', 'ENOENT'].includes(code)) {
    return new UnusableFile(`${to} can't be made: ${message}.`);
  }
  return error;
}
