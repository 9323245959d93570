import { type KeyObject, randomBytes, randomInt } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { isoTime } from '@epitaph/core/clock.ts';
import type { LogManifest, VaultManifest } from '@epitaph/core/backup/manifest.ts';
import {
  formatLedgerHead,
  type KeysOfLives,
  type LedgerEntry,
  type LedgerHead,
  parseLedgerHead,
} from '@epitaph/core/backup/purge-ledger.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { namesLost } from '@epitaph/projections/purge/vault-copies.ts';
import { gcmOpen } from '../crypto/aes-gcm.ts';
import { HashedItemNaming } from '../crypto/item-naming.ts';
import { ownerOf } from '../crypto/key-wrapping.ts';
import { lostKeys, type RestoredKey, type RestoredKeys, type SettledKeys, settleKeys } from '../restored-keys.ts';
import { copySynced, digestOf, readManifest } from './backup.ts';
import {
  CLOCK_FILE,
  FACTS_FILE,
  type FolderFacts,
  FolderInUse,
  LEDGER_FILE,
  LOCK_FILE,
  lockFolder,
  type OpenLogElsewhere,
  MASTER_KEY_FILE,
  readFacts,
  RESTORING_SUFFIX,
  writeFacts,
} from './data-folder.ts';
import { makeFolder, syncFolder, writeDurably } from './durable-files.ts';
import { emptyJournal, openForReading, openForWriting, UnusableFile } from './database.ts';
import { isDiskFull, sqliteCodeOf, sqliteCodes } from './failures.ts';
import type { StepHook } from './placed-crash.ts';
import { openVault } from './open-vault.ts';
import { checkMasterKey, readMasterKey } from './master-key.ts';
import { PurgeLedger, readPurgeLedger } from './purge-ledger.ts';
import { LOG_SCHEMA, LOG_SCHEMA_VERSION } from './schema.ts';
import { secretNameOf } from './sqlite-key-vault.ts';

export interface RestoreOptions {
  /** The `log` part of a backup, or the event log itself where it is on a server. */
  readonly log: string | ServerLog;
  /** The `vault` part of the same backup, or of a later one of the same store. */
  readonly vault: string;
  readonly ledger: string;
  /** A head that the ledger must reach at least: by it the ledger is known to be whole. */
  readonly ledgerHead: LedgerHead;
  /** The new data folder; not there yet, or empty. */
  readonly to: string;
  /** 32 bytes in base64. */
  readonly masterKey: string;
  /** Puts the master key into the new folder, as in a store that is started without giving one. */
  readonly keepMasterKey: boolean;
  readonly nowMs: number;
  /** Restores from a copy of the keys that should be gone by now. */
  readonly allowLapsed: boolean;
  /**
   * Goes on although keys are lost for good: those of what was written after the keys were copied. That can be only
   * with a log on a server.
   */
  readonly acceptLost?: boolean;
  readonly onProgress?: (what: string, done: number, total: number) => void;
  readonly onStep?: StepHook;
}

/** An event log that no backup has, because it is on a server. */
type ServerLog = Pick<OpenLogElsewhere, 'id' | 'name' | 'log'>;

export interface PreparedRestore {
  /**
   * The folder until {@link finish}. It is marked, so that no store opens it by mistake. Where a crash has left one,
   * the same restore begins anew.
   */
  readonly folder: string;
  readonly clock: 'system' | 'manual';
  /** When the log was copied, or the keys where that was not. */
  readonly takenAtMs: number;
  readonly logBackupId: string;
  readonly vaultBackupId: string;
  /** Position of the last event that the store is restored with. */
  readonly logPosition: number;
  readonly ledgerHead: LedgerHead;
  /** Keys that the backup had and that were destroyed after it. */
  readonly keysDestroyed: number;
  /** Keys of content in the log that the copy of the keys does not have. */
  readonly lost: KeysOfLives;
  /** Containers with items in the log that were named with a secret which the copy of the keys does not have. */
  readonly namesLost: readonly string[];
  /** Streams of lives that are purged on record, and whose writes a crash has left in the log. */
  readonly unfinished: readonly string[];
  /** Keys that are gone although the log may not say so, and all backups that there were. */
  readonly ledger: () => AsyncIterable<LedgerEntry>;
  /** Puts the folder in its place. */
  readonly finish: () => void;
  readonly discard: () => void;
}

/** Keys destroyed in one transaction. */
const BATCH = 10_000;
/** In place and of the same length, as the vault itself does it. */
const OVERWRITE =
  'UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE id = ? AND owner = ? AND wrapped <> zeroblob(length(wrapped))';

/**
 * Makes a data folder from a backup, and destroys every key that the ledger says was destroyed after it. To record that
 * in the log is left to the store itself, before it serves.
 *
 * @throws {UnusableFile} for pieces that are missing, damaged or don't go together; then nothing is left in `to`.
 */
export async function prepareRestore(options: RestoreOptions): Promise<PreparedRestore> {
  const { onProgress = () => {}, onStep = () => {} } = options;
  const to = whereTo(options.to);
  const log =
    typeof options.log === 'string' ? { ...readManifest(options.log, 'log'), folder: options.log } : options.log;
  const vault = { ...readManifest(options.vault, 'vault'), folder: options.vault };
  assertTogether(log, vault, options);
  const server = isOnServer(log) ? log : undefined;
  const parts = isOnServer(log) ? [vault] : [log, vault];
  const { head, lastMs, listed } = await assertWhole(options, parts);
  for (const part of parts) await assertIntact(part, onProgress);
  checkMasterKey(join(options.vault, 'vault.db'), readMasterKey(options.masterKey));
  const first = parts[0]!;
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
    // The log will be this folder's, and no longer that of the folder which the backup was taken of.
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
    if (options.keepMasterKey) writeDurably(join(folder, MASTER_KEY_FILE), `${options.masterKey}\n`, 0o600);
    onStep('restore master key: after');
    raiseClock(folder, lastMs);
    onStep('restore clock: after');
    // Both are brought to this version's schema before anything is read from them.
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
    // A folder that belongs to somebody else is not removed.
    if (!(error instanceof FolderInUse || error instanceof ForeignFolder)) discard();
    else if (error instanceof FolderInUse) {
      throw new FolderInUse(`Another restore is making ${folder}. Wait for it, or restore into another folder.`);
    }
    throw explained(error, to);
  }
}

/**
 * The folder to make, by its real name: what a link leads to is replaced, not the link.
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

/** True for a folder that a restore left when it was cut short: nobody was ever served from it. */
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

const isOnServer = (log: LogManifest | ServerLog): log is ServerLog => 'name' in log;

function assertTogether(
  log: LogManifest | ServerLog,
  vault: VaultManifest,
  { nowMs, allowLapsed }: RestoreOptions,
): void {
  if (isOnServer(log)) assertItsLog(log, vault);
  else assertSameStore(log, vault);
  if (vault.lapsesAtMs <= nowMs && !allowLapsed) {
    throw new UnusableFile(
      `The copy of the keys lapsed at ${isoTime(vault.lapsesAtMs)}: it was to be destroyed by then, and certificates say so. --allow-lapsed restores from it all the same.`,
    );
  }
}

function assertSameStore(log: LogManifest, vault: VaultManifest): void {
  if (vault.log !== undefined) {
    throw new UnusableFile(
      'The log of these keys is on a server, and no part of a backup. Give --event-store, and no --log.',
    );
  }
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
}

function assertItsLog({ id, name }: ServerLog, vault: VaultManifest): void {
  if (vault.log === id) return;
  throw new UnusableFile(
    vault.log === undefined
      ? 'The log of these keys is in the backup, too, and on no server. Give --log, and no --event-store.'
      : `The keys are of another event log than the one on ${name}: with them nothing of it can be read.`,
  );
}

/**
 * Reads the ledger to its end. Its chain must hold, and pass through every head that the operator or the backup
 * remembers.
 */
async function assertWhole(
  { ledger, ledgerHead }: RestoreOptions,
  parts: readonly (LogManifest | VaultManifest)[],
): Promise<{ readonly head: LedgerHead; readonly lastMs: number; readonly listed: ReadonlySet<number> }> {
  const { store } = parts[0]!;
  if (!existsSync(ledger)) {
    throw new UnusableFile(
      `There is no purge ledger at ${ledger}. Without it nobody can say what was erased after the backup, so nothing is restored.`,
    );
  }
  const expected = new Map(
    [formatLedgerHead(ledgerHead), ...parts.map((part) => part.ledgerHead)].map((text) => [text, false]),
  );
  const listed = new Set<number>();
  let head: LedgerHead | undefined;
  let lastMs = 0;
  for await (const line of readPurgeLedger(ledger)) {
    if (line.store !== store) {
      throw new UnusableFile(
        `${ledger} is the purge ledger of another store (${line.store}; the backup is of ${store}).`,
      );
    }
    head = line.head;
    lastMs = Math.max(lastMs, line.entry?.atMs ?? 0);
    if (line.entry !== undefined && 'keys' in line.entry) for (const [keyId] of line.entry.keys) listed.add(keyId);
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
  return { head: head!, lastMs, listed };
}

async function assertIntact(
  { folder, files }: Pick<LogManifest, 'files'> & { readonly folder: string },
  onProgress: NonNullable<RestoreOptions['onProgress']>,
): Promise<void> {
  for (const [name, { bytes, sha256 }] of Object.entries(files)) {
    const path = join(folder, name);
    if (!existsSync(path)) throw new UnusableFile(`${path} is missing from the backup. Use another one.`);
    if ((await digestOf(path, (done) => onProgress(name, done, bytes))) !== sha256) {
      throw new UnusableFile(`${path} is not as it was written: the backup is damaged. Use another one.`);
    }
  }
}

/**
 * Destroys the keys that the ledger has after the copy of the keys was begun; those before are destroyed in the copy
 * already.
 */
async function destroyLater(
  vault: DatabaseSync,
  folder: string,
  { ledgerHead }: VaultManifest,
  onStep: StepHook,
  onProgress: (lines: number) => void,
): Promise<number> {
  const after = parseLedgerHead(ledgerHead)!.lines;
  const overwrite = vault.prepare(OVERWRITE);
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
  onStep('restore keys: before commit');
  vault.exec('COMMIT');
  onStep('restore keys: after commit');
  return destroyed;
}

/**
 * The keys of content in the log that the copy does not have.
 *
 * @throws {UnusableFile} when there is some, and that was not accepted
 */
async function lostOf(
  { log }: ServerLog,
  head: number,
  { vault, acceptLost, onProgress = () => {} }: RestoreOptions,
): Promise<KeysOfLives> {
  const copy = openForReading(join(vault, 'vault.db'), { isCopy: true });
  try {
    const lost = await lostKeys(new CopiedKeys(copy), log, (position) => onProgress('looking', position, head));
    if (lost.length === 0 || acceptLost === true) return lost;
    throw new UnusableFile(
      `The copy of the keys is older than the log: ${lost.length} keys of what was written since are not in it, and that content can't be read again. Take the vault part of a later backup, or give it up (--accept-lost).`,
    );
  } finally {
    copy.close();
  }
}

/**
 * Destroys the keys of what the log has on record as purged. A ledger that is not the newest lacks some of them, as it
 * lacks what a restore purged that was cut short. They are entered, so that the ledger never has less than the log.
 */
async function settleByLog(
  vault: DatabaseSync,
  folder: string,
  { log }: ServerLog,
  known: {
    readonly store: string;
    readonly listed: ReadonlySet<number>;
    readonly lastMs: number;
    readonly master: KeyObject;
  },
  onStep: StepHook,
  onProgress: (position: number) => void,
): Promise<SettledKeys & { readonly namesLost: readonly string[] }> {
  const copied = new CopiedKeys(vault);
  const naming = new HashedItemNaming(copiedSecrets(vault, known.master));
  const lostBefore = await namesLost(log);
  const lost = new Set<string>();
  const ledger = PurgeLedger.open(join(folder, LEDGER_FILE), { store: known.store, durable: true });
  try {
    const restored: RestoredKeys = {
      unknownOf: (keys) => copied.unknownOf(keys),
      settleRestored: async (keys) => {
        for (const { stream, position, item } of keys) {
          const { containerRid, prefix } = parseItemStream(stream)!;
          if (lost.has(containerRid) || position <= (lostBefore.get(containerRid) ?? 0)) continue;
          const named = await naming.itemStreamPrefix(containerRid, item.partitionKey, item.id);
          if (named !== prefix) lost.add(containerRid);
        }
        const settled = copied.settleRestored(keys);
        onStep('restore keys: by the log');
        const unlisted = keys.filter(({ keyId, isDestroyed }) => isDestroyed && !known.listed.has(keyId));
        if (unlisted.length > 0) {
          ledger.append([{ atMs: known.lastMs, keys: unlisted.map(({ keyId, stream }) => [keyId, stream] as const) }]);
          onStep('restore ledger: after');
        }
        return settled;
      },
    };
    const settled = await settleKeys(restored, log, onProgress);
    return { ...settled, namesLost: [...lost] };
  } finally {
    ledger.close();
  }
}

/** The containers' secrets in a copy; a random one for a secret that is not there. */
function copiedSecrets(vault: DatabaseSync, master: KeyObject): Pick<KeyVault, 'containerSecret'> {
  const find = vault.prepare('SELECT wrapped FROM secrets WHERE name = ?');
  return {
    containerSecret: async (rid) => {
      const name = secretNameOf(rid);
      const row = find.get(name) as { readonly wrapped: Uint8Array } | undefined;
      return (row && gcmOpen(master, Buffer.from(name), row.wrapped)) ?? randomBytes(32);
    },
  };
}

/** The keys in a file that was put back from a copy. */
class CopiedKeys implements RestoredKeys {
  readonly #vault: DatabaseSync;
  readonly #find: StatementSync;

  constructor(vault: DatabaseSync) {
    this.#vault = vault;
    this.#find = vault.prepare('SELECT owner, wrapped = zeroblob(length(wrapped)) AS gone FROM keys WHERE id = ?');
  }

  unknownOf(keys: readonly RestoredKey[]): RestoredKey[] {
    return keys.filter((key) => this.#stateOf(key) === 'unknown');
  }

  settleRestored(keys: readonly RestoredKey[]): { readonly destroyed: number; readonly gone: ReadonlySet<number> } {
    const overwrite = this.#vault.prepare(OVERWRITE);
    // A number that another life has stays that life's.
    const putGone = this.#vault.prepare('INSERT OR IGNORE INTO keys (id, owner, wrapped) VALUES (?, ?, zeroblob(1))');
    const gone = new Set<number>();
    let destroyed = 0;
    this.#vault.exec('BEGIN IMMEDIATE');
    for (const key of keys) {
      const { keyId, stream, isDestroyed } = key;
      const state = this.#stateOf(key);
      if (state === 'unknown') putGone.run(keyId, ownerOf(stream));
      else if (isDestroyed) destroyed += Number(overwrite.run(keyId, ownerOf(stream)).changes);
      if (state !== 'there' || isDestroyed) gone.add(keyId);
    }
    this.#vault.exec('COMMIT');
    return { destroyed, gone };
  }

  #stateOf({ keyId, stream }: RestoredKey): 'there' | 'destroyed' | 'unknown' {
    const row = this.#find.get(keyId) as { readonly owner: Uint8Array; readonly gone: number } | undefined;
    if (row === undefined || !ownerOf(stream).equals(row.owner)) return 'unknown';
    return row.gone === 1 ? 'destroyed' : 'there';
  }
}

/**
 * Makes the keys to come be numbered from a place far off. The ledger names keys by their numbers, and what this
 * restore gives up may yet be restored by another: so none of those numbers may be given out again.
 */
function numberApart(vault: DatabaseSync): void {
  const { last } = vault.prepare('SELECT coalesce(max(id), 0) AS last FROM keys').get() as { last: number };
  // A key that is nobody's, and destroyed from the beginning: keys are numbered from the last one on.
  vault
    .prepare('INSERT INTO keys (id, owner, wrapped) VALUES (?, zeroblob(1), zeroblob(1))')
    .run(last + randomInt(2 ** 40, 2 ** 44));
}

/**
 * The entries of the ledger. If it is known which destroyed keys the log does not record, only these are given, in one
 * entry, beside the backups.
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

/** Time never goes back, not even to before the last purge. */
function raiseClock(folder: string, lastMs: number): void {
  const file = join(folder, CLOCK_FILE);
  const markMs = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0;
  if (lastMs > markMs) writeDurably(file, String(lastMs), 0o600);
}

function explained(error: unknown, to: string): unknown {
  const { code, message } = error as { code?: string; message: string };
  const isFull = isDiskFull(error);
  if (isFull || sqliteCodeOf(error) === sqliteCodes.ioError) {
    // Of a disk that is full SQLite says this, too, where it could not make one of its files larger.
    const cause = isFull
      ? 'There is no space left to restore into'
      : 'There is no space left, or the disk fails, under';
    return new UnusableFile(`${cause} ${dirname(to)}: ${message}. What was begun is removed.`);
  }
  if (code === 'EBUSY' || code === 'EXDEV') return mountPoint(to);
  if (code !== undefined && ['EACCES', 'EROFS', 'EPERM', 'ENOTDIR', 'ENOENT'].includes(code)) {
    return new UnusableFile(`${to} can't be made: ${message}.`);
  }
  return error;
}
