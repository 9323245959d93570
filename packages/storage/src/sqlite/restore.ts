import { randomInt } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { isoTime } from '@epitaph/core/clock.ts';
import type { LogManifest, VaultManifest } from '@epitaph/core/backup/manifest.ts';
import {
  formatLedgerHead,
  type LedgerEntry,
  type LedgerHead,
  parseLedgerHead,
} from '@epitaph/core/backup/purge-ledger.ts';
import { ownerOf } from '../crypto/key-wrapping.ts';
import { copySynced, digestOf, readManifest } from './backup.ts';
import {
  CLOCK_FILE,
  FACTS_FILE,
  type FolderFacts,
  FolderInUse,
  LEDGER_FILE,
  LOCK_FILE,
  lockFolder,
  makeFolder,
  MASTER_KEY_FILE,
  readFacts,
  syncFolder,
  writeDurably,
  writeFacts,
} from './data-folder.ts';
import { emptyJournal, openForWriting, UnusableFile } from './database.ts';
import { isDiskFull, sqliteCodeOf, sqliteCodes } from './failures.ts';
import type { StepHook } from './log-writer-core.ts';
import { openVault } from './open-vault.ts';
import { checkMasterKey, readMasterKey } from './master-key.ts';
import { readPurgeLedger } from './purge-ledger.ts';
import { LOG_SCHEMA, LOG_SCHEMA_VERSION } from './schema.ts';

export interface RestoreOptions {
  /** The `log` part of a backup. */
  readonly log: string;
  /** The `vault` part of the same backup, or of a later one of the same store. */
  readonly vault: string;
  readonly ledger: string;
  /** Where the ledger must go at least: what says that it is whole. */
  readonly ledgerHead: LedgerHead;
  /** The new data folder; not there yet, or empty. */
  readonly to: string;
  /** 32 bytes in base64. */
  readonly masterKey: string;
  /** Puts the master key into the new folder, as a store has it that none is given to. */
  readonly keepMasterKey: boolean;
  readonly nowMs: number;
  /** Restores from a copy of the keys that should be gone by now. */
  readonly allowLapsed: boolean;
  readonly onProgress?: (what: string, done: number, total: number) => void;
  readonly onStep?: StepHook;
}

export interface PreparedRestore {
  /**
   * The folder as it is until {@link finish}: marked, so that no store opens it by mistake. The same restore again
   * begins anew where a crash has left one.
   */
  readonly folder: string;
  readonly clock: 'system' | 'manual';
  readonly log: LogManifest;
  readonly vault: VaultManifest;
  readonly ledgerHead: LedgerHead;
  /** Keys that the backup had and that were destroyed after it. */
  readonly keysDestroyed: number;
  readonly ledger: () => AsyncGenerator<LedgerEntry>;
  /** Puts the folder in its place. */
  readonly finish: () => void;
  readonly discard: () => void;
}

/** Keys destroyed in one transaction. */
const BATCH = 10_000;

/**
 * Makes a data folder from a backup, with every key destroyed that the ledger says was destroyed after it. What the
 * log has to say of that is for the store itself, before it serves.
 *
 * @throws {UnusableFile} for pieces that are missing, damaged or don't go together; then nothing is left in `to`.
 */
export async function prepareRestore(options: RestoreOptions): Promise<PreparedRestore> {
  const { onProgress = () => {}, onStep = () => {} } = options;
  const to = whereTo(options.to);
  const log = readManifest(options.log, 'log');
  const vault = readManifest(options.vault, 'vault');
  assertTogether(log, vault, options);
  const { head, lastMs } = await assertWhole(options, log, vault);
  await assertIntact(options.log, log.files, onProgress);
  await assertIntact(options.vault, vault.files, onProgress);
  checkMasterKey(join(options.vault, 'vault.db'), readMasterKey(options.masterKey));
  const facts = readFacts(options.log)!;

  const folder = `${to}.restoring`;
  const discard = () => rmSync(folder, { recursive: true, force: true });
  let unlock = () => {};
  try {
    if (existsSync(folder)) removeLeftOver(folder);
    makeFolder(folder);
    unlock = lockFolder(folder);
    onStep('restore folder: made');
    const { rotatingTo: _, ...kept } = facts;
    const restored: FolderFacts = { ...kept, id: log.store, items: 1, ledger: true };
    writeFacts(folder, { ...restored, restoring: true });
    onStep('restore folder: marked');
    for (const [part, { files }] of [
      [options.log, log],
      [options.vault, vault],
    ] as const) {
      for (const name of Object.keys(files)) {
        if (name === FACTS_FILE) continue;
        await copySynced(join(part, name), join(folder, name));
        onStep('restore copy: after');
      }
    }
    await copySynced(options.ledger, join(folder, LEDGER_FILE));
    onStep('restore copy: after');
    if (options.keepMasterKey) writeDurably(join(folder, MASTER_KEY_FILE), `${options.masterKey}\n`, 0o600);
    onStep('restore master key: after');
    raiseClock(folder, lastMs);
    onStep('restore clock: after');
    // Both are brought to this version's schema before anything is read from them.
    openForWriting({
      file: join(folder, 'log.db'),
      what: 'event log',
      schema: LOG_SCHEMA,
      schemaVersion: LOG_SCHEMA_VERSION,
      synchronous: 'FULL',
    }).close();
    const keysDestroyed = await destroyLater(folder, vault, onStep, (done) => onProgress('purges', done, head.lines));
    onStep('restore keys: after');
    unlock();
    return {
      folder,
      clock: facts.clock,
      log,
      vault,
      ledgerHead: head,
      keysDestroyed,
      ledger: () => entriesOf(join(folder, LEDGER_FILE)),
      finish: () => {
        syncFolder(folder);
        try {
          // Another restore may have been faster.
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
    // A folder that somebody else has is theirs.
    if (!(error instanceof FolderInUse || error instanceof ForeignFolder)) discard();
    else if (error instanceof FolderInUse) {
      throw new FolderInUse(`Another restore is making ${folder}. Wait for it, or restore into another folder.`);
    }
    throw explained(error, to);
  }
}

/**
 * The folder to make, by the name that it has itself: what a link leads to is replaced, not the link.
 *
 * @throws {UnusableFile} where none can be made
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
  new UnusableFile(`${to} is a mount point, in whose place no folder can be put. Restore into a folder below it.`);

/** @throws {UnusableFile} for a folder that holds something which somebody may have been served. */
function assertFree(to: string): void {
  if (!existsSync(to) || readdirSync(to).length === 0 || isLeftOver(to)) return;
  throw new UnusableFile(`${to} is not empty. Restore into a new folder; nothing is overwritten.`);
}

/** A folder in the way that no restore has made. */
class ForeignFolder extends UnusableFile {}

/** True for what a restore that was cut short has left: nobody was ever served from it. */
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
      `${folder} is in the way: a restore makes its folder there, and that one is no left-over of a restore. Move it away, or restore into another folder.`,
    );
  }
  // Refused while another restore is at it.
  lockFolder(folder)();
  rmSync(folder, { recursive: true });
}

function assertTogether(log: LogManifest, vault: VaultManifest, { nowMs, allowLapsed }: RestoreOptions): void {
  if (log.store !== vault.store) {
    throw new UnusableFile(
      `The two parts are of different stores (${log.store} and ${vault.store}): with the keys of one nothing of the other can be read.`,
    );
  }
  if (vault.logPosition < log.logPosition) {
    throw new UnusableFile(
      'The copy of the keys is older than that of the log: keys of what was written between the two are not in it. Take the vault part of the same backup, or of a later one.',
    );
  }
  if (vault.lapsesAtMs <= nowMs && !allowLapsed) {
    throw new UnusableFile(
      `The copy of the keys lapsed at ${isoTime(vault.lapsesAtMs)}: it was to be destroyed by then, and certificates say so. --allow-lapsed restores from it all the same.`,
    );
  }
}

/** Reads the ledger to its end: its chain must hold, and go over all the places that somebody remembers. */
async function assertWhole(
  { ledger, ledgerHead }: RestoreOptions,
  log: LogManifest,
  vault: VaultManifest,
): Promise<{ readonly head: LedgerHead; readonly lastMs: number }> {
  if (!existsSync(ledger)) {
    throw new UnusableFile(
      `There is no purge ledger at ${ledger}. Without it nobody can say what was erased after the backup, so nothing is restored.`,
    );
  }
  const expected = new Map(
    [formatLedgerHead(ledgerHead), log.ledgerHead, vault.ledgerHead].map((text) => [text, false]),
  );
  let head: LedgerHead | undefined;
  let lastMs = 0;
  for await (const line of readPurgeLedger(ledger)) {
    if (line.store !== log.store) {
      throw new UnusableFile(
        `${ledger} is the purge ledger of another store (${line.store}; the backup is of ${log.store}).`,
      );
    }
    head = line.head;
    lastMs = Math.max(lastMs, line.entry?.atMs ?? 0);
    const text = formatLedgerHead(head);
    if (expected.has(text)) expected.set(text, true);
  }
  if (expected.get(formatLedgerHead(ledgerHead)) !== true) {
    throw new UnusableFile(
      head !== undefined && head.lines < ledgerHead.lines
        ? `${ledger} is not whole: it has ${head.lines} lines, and the head that was given says ${ledgerHead.lines}. Restore with the ledger as it was last.`
        : `${ledger} does not go through the head that was given: it is not that ledger, or was changed.`,
    );
  }
  for (const [text, seen] of expected) {
    if (!seen) {
      throw new UnusableFile(
        `${ledger} does not go on from the ledger that the backup was taken with (${text}): it is an older copy, or another one that was begun since.`,
      );
    }
  }
  return { head: head!, lastMs };
}

async function assertIntact(
  part: string,
  files: LogManifest['files'],
  onProgress: NonNullable<RestoreOptions['onProgress']>,
): Promise<void> {
  for (const [name, { bytes, sha256 }] of Object.entries(files)) {
    const path = join(part, name);
    if (!existsSync(path)) throw new UnusableFile(`${path} is missing from the backup. Use another one.`);
    if ((await digestOf(path, (done) => onProgress(name, done, bytes))) !== sha256) {
      throw new UnusableFile(`${path} is not as it was written: the backup is damaged. Use another one.`);
    }
  }
}

/** Destroys what the ledger has after the copy of the keys was begun. Before that, the copy has them destroyed already. */
async function destroyLater(
  folder: string,
  { ledgerHead }: VaultManifest,
  onStep: StepHook,
  onProgress: (lines: number) => void,
): Promise<number> {
  const vault = openVault(join(folder, 'vault.db'));
  try {
    const after = parseLedgerHead(ledgerHead)!.lines;
    // In place and of the same length, as the vault itself does it.
    const overwrite = vault.prepare(
      'UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE id = ? AND owner = ? AND wrapped <> zeroblob(length(wrapped))',
    );
    let destroyed = 0;
    let pending = 0;
    vault.exec('BEGIN IMMEDIATE');
    for await (const { head, entry } of readPurgeLedger(join(folder, LEDGER_FILE))) {
      if (head.lines <= after || entry === undefined || !('keys' in entry)) continue;
      for (const [keyId, stream] of entry.keys) destroyed += Number(overwrite.run(keyId, ownerOf(stream)).changes);
      pending += entry.keys.length;
      if (pending < BATCH) continue;
      vault.exec('COMMIT; BEGIN IMMEDIATE');
      onStep('restore keys: batch');
      pending = 0;
      onProgress(head.lines);
    }
    numberApart(vault);
    onStep('restore keys: before commit');
    vault.exec('COMMIT');
    onStep('restore keys: after commit');
    emptyJournal(vault);
    return destroyed;
  } finally {
    vault.close();
  }
}

/**
 * Has the keys to come numbered from another place on. The ledger names keys by their numbers, and what is given up by
 * this restore may yet be restored: so no number of it may be given out again.
 */
function numberApart(vault: DatabaseSync): void {
  const { last } = vault.prepare('SELECT coalesce(max(id), 0) AS last FROM keys').get() as { last: number };
  // A key of nobody, destroyed from the beginning: keys are numbered from the last one on.
  vault
    .prepare('INSERT INTO keys (id, owner, wrapped) VALUES (?, zeroblob(1), zeroblob(1))')
    .run(last + randomInt(2 ** 40, 2 ** 44));
}

async function* entriesOf(ledger: string): AsyncGenerator<LedgerEntry> {
  for await (const { entry } of readPurgeLedger(ledger)) if (entry !== undefined) yield entry;
}

/** Time never goes back: not to before the last purge either. */
function raiseClock(folder: string, lastMs: number): void {
  const file = join(folder, CLOCK_FILE);
  const markMs = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0;
  if (lastMs > markMs) writeDurably(file, String(lastMs), 0o600);
}

function explained(error: unknown, to: string): unknown {
  const { code, message } = error as { code?: string; message: string };
  if (isDiskFull(error) || sqliteCodeOf(error) === sqliteCodes.ioError) {
    return new UnusableFile(
      `There is no space left to restore into ${dirname(to)}: ${message}. What was begun is removed.`,
    );
  }
  if (code === 'EBUSY' || code === 'EXDEV') return mountPoint(to);
  if (code !== undefined && ['EACCES', 'EROFS', 'EPERM', 'ENOTDIR', 'ENOENT'].includes(code)) {
    return new UnusableFile(`${to} can't be made: ${message}.`);
  }
  return error;
}
