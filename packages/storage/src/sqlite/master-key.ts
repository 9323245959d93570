import { createSecretKey, hash, type KeyObject, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { gcmOpen, gcmSeal } from '../crypto/aes-gcm.ts';
import { ownerOf, unwrapKey, wrapKey } from '../crypto/key-wrapping.ts';
import { keysOf } from '../restored-keys.ts';
import { type DataFolder, MANIFEST_FILE, MASTER_KEY_FILE } from './data-folder.ts';
import { syncFolder, writeDurably } from './durable-files.ts';
import { emptyJournal, headIn, isOutdated, openForReading, UnusableFile } from './database.ts';
import { openVault } from './open-vault.ts';
import { MASTER_KEY_CHECK } from './sqlite-key-vault.ts';
import { isDiskFull, sqliteCodeOf, sqliteCodes } from './failures.ts';
import type { StepHook } from './placed-crash.ts';
import { JUDGED_EVENTS, LAST_KEY_ID, VAULT_SCHEMA_VERSION } from './schema.ts';
import { lastSpareKey, recoverSpareKeys } from './spare-keys.ts';
import { VaultTables } from './vault-tables.ts';
import { lastKeysIn, livesIn, type WrittenLife } from './written-lives.ts';

/** The new master key during a change, if the folder has a key file of its own. */
const NEXT_KEY_FILE = 'master.key.next';
/** How many keys are rewrapped in one transaction. */
const BATCH = 5_000;

/** The message for a new master key that is the current one. */
export const SAME_KEY = 'The new master key is the one in force. Nothing was changed; give another one.';

/** @throws {UnusableFile} if the text is no master key */
export function readMasterKey(text: string): KeyObject {
  const bytes = Buffer.from(text.trim(), 'base64');
  if (bytes.length !== 32) throw new UnusableFile('The master key must be 32 bytes in base64.');
  return createSecretKey(bytes);
}

/**
 * Checks that a master key opens a vault, and does not change the vault.
 *
 * @throws {UnusableFile} if it does not
 */
export function checkMasterKey(vaultFile: string, master: KeyObject): void {
  if (!existsSync(vaultFile)) {
    throw new UnusableFile(
      `There is no key vault at ${vaultFile}. Name the data folder, or the vault part of a backup.`,
    );
  }
  let opens: boolean;
  try {
    opens = opensCheckOf(vaultFile, master, existsSync(join(dirname(vaultFile), MANIFEST_FILE)));
  } catch (error) {
    if (isRefusedToOpen(error)) {
      throw new UnusableFile(
        `${vaultFile} can't be opened: ${(error as Error).message}. Check its permissions${isClosed(vaultFile) ? '' : '. It was not closed properly, so files must be written beside it: run this as the user who runs the store'}.`,
      );
    }
    const isOfDisk = isDiskFull(error) || sqliteCodeOf(error) === sqliteCodes.ioError;
    throw new UnusableFile(
      `${vaultFile} can't be read as a key vault: ${(error as Error).message}.${isOfDisk ? ' Its disk is full or fails; check it.' : ''}`,
    );
  }
  if (!opens)
    throw new UnusableFile(
      `This master key does not open ${vaultFile}. Nothing in it can be read without the right one.`,
    );
}

/** If SQLite can't make files beside the vault, as on a read-only disk, a vault that was closed is opened like a copy. */
function opensCheckOf(vaultFile: string, master: KeyObject, isCopy: boolean): boolean {
  try {
    const vault = openForReading(vaultFile, { isCopy });
    try {
      return opensCheck(vault, master);
    } finally {
      vault.close();
    }
  } catch (error) {
    if (isCopy || !isClosed(vaultFile) || !isRefusedToOpen(error)) throw error;
    return opensCheckOf(vaultFile, master, true);
  }
}

/** True if SQLite can't make the files that it needs beside a database, or may not open the database itself. */
function isRefusedToOpen(error: unknown): boolean {
  const code = sqliteCodeOf(error);
  return code === sqliteCodes.readOnly || code === sqliteCodes.cantOpen;
}

/** True for a vault that was closed properly: all of its content is in one file. */
const isClosed = (vaultFile: string): boolean =>
  (statSync(`${vaultFile}-wal`, { throwIfNoEntry: false })?.size ?? 0) === 0;

export interface Rotation {
  /** The current key, base64; by default the one in the folder's key file. */
  readonly current?: string | undefined;
  /** The new key, base64. If the folder has its own key file and no key is given, a new one is made. */
  readonly next?: string | undefined;
  /** The event log, if the folder's log is on a server. */
  readonly log?: EventLog | undefined;
  readonly onProgress?: (done: number, total: number) => void;
  readonly onStep?: StepHook;
}

/**
 * Rewraps everything in the vault with another master key. Rows keep their length, so that they are overwritten in place and
 * nothing of the old wrapping remains. After an interruption at any point, another call continues.
 *
 * The caller must have locked the folder, which must contain a vault.
 *
 * @returns how many keys and secrets were rewrapped
 * @throws {UnusableFile} for a wrong key; then nothing was changed
 */
export async function rotateMasterKey(
  folder: DataFolder,
  { current, next, log, onProgress, onStep = () => {} }: Rotation,
): Promise<number> {
  const keyFile = folder.file(MASTER_KEY_FILE);
  const nextFile = folder.file(NEXT_KEY_FILE);
  const isOwn = current === undefined;
  if (isOwn && !existsSync(keyFile)) {
    throw new UnusableFile(`${keyFile} is missing. Put it back, or give the master key in EPITAPH_MASTER_KEY.`);
  }
  if (!isOwn && next === undefined) {
    throw new UnusableFile(
      'The master key is not in the folder, so the new one must be given too, in EPITAPH_NEW_MASTER_KEY.',
    );
  }
  const old = readMasterKey(current ?? readFileSync(keyFile, 'utf8'));
  const isResumed = isOwn && existsSync(nextFile);
  const text = isResumed ? readFileSync(nextFile, 'utf8').trim() : (next ?? randomBytes(32).toString('base64'));
  if (isResumed && next !== undefined && next !== text) {
    throw new UnusableFile(
      `A change to another master key was interrupted; its key is in ${nextFile}. Finish that change first: run the command without giving a new key.`,
    );
  }
  const fresh = readMasterKey(text);
  const file = folder.file('vault.db');
  if (log === undefined && !existsSync(folder.file('log.db'))) {
    throw new UnusableFile(
      `There is no event log in ${folder.path}, and only it says which lives the keys belong to. Put it back, or restore the store from a backup.`,
    );
  }
  assertReachesReadModels(log === undefined ? headIn(folder.file('log.db')) : await log.head(), folder);
  // The key is checked before the vault is migrated: older versions of the program can't open it afterwards.
  if (folder.rotatingTo === undefined && isOutdated(file, VAULT_SCHEMA_VERSION)) checkMasterKey(file, old);
  const vault = openVault(file);
  let logFile: DatabaseSync | undefined;
  try {
    const { rotatingTo } = folder;
    // An earlier call was interrupted after it had swapped the key files: only the mark in the folder's facts is left to remove.
    if (isOwn && !isResumed && rotatingTo === fingerprint(old) && opensCheck(vault, old)) {
      folder.setRotatingTo(undefined);
      return 0;
    }
    if (rotatingTo === undefined && fingerprint(old) === fingerprint(fresh)) throw new UnusableFile(SAME_KEY);
    if (rotatingTo !== undefined && rotatingTo !== fingerprint(fresh)) {
      throw new UnusableFile(
        `A change to another master key was interrupted, and some keys are already wrapped by that key. Continue with it${isOwn ? `: it was in ${nextFile}` : ' as the new one'}.`,
      );
    }
    // After an interrupted change, the vault may be under either key.
    if (!opensCheck(vault, old) && !(rotatingTo !== undefined && opensCheck(vault, fresh))) {
      throw new UnusableFile('The master key is not the one in force for this key vault. Nothing was changed.');
    }
    if (log === undefined) {
      logFile = openForReading(folder.file('log.db'));
      // If a change was begun before, the vault was checked then.
      if (rotatingTo === undefined) assertNewest({ vault, log: logFile }, old, file);
    }
    if (isOwn && !isResumed) writeDurably(nextFile, `${text}\n`);
    onStep('next key: after');
    folder.setRotatingTo(fingerprint(fresh));
    onStep('mark: after');
    let lives: Iterable<WrittenLife> | AsyncIterable<WrittenLife>;
    if (logFile !== undefined) {
      // A killed store leaves spare keys that have lives, but no rows of their own yet. They would stay wrapped with the old key.
      recoverSpareKeys({ log: logFile, vault }, new VaultTables(vault, old), old, onStep);
      lives = livesIn(logFile);
    } else lives = livesOf(log!);
    const rewrapped = await rewrapAll(vault, lives, { old, fresh, onProgress, onStep });
    emptyJournal(vault);
    onStep('journal: after');
    if (isOwn) {
      renameSync(nextFile, keyFile);
      syncFolder(folder.path);
      onStep('swap: after');
    }
    folder.setRotatingTo(undefined);
    return rewrapped;
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    throw new UnusableFile(
      `There is no space left on the disk of ${folder.path}. Free some space, and run the same command again. The store does not start before that has succeeded.`,
    );
  } finally {
    logFile?.close();
    vault.close();
  }
}

/**
 * A wrapped key is bound to the name of its life's stream. Only the log has these names. A key without a life in the log was made
 * for a write that then failed: it opens nothing, and is overwritten.
 */
async function rewrapAll(
  vault: DatabaseSync,
  lives: Iterable<WrittenLife> | AsyncIterable<WrittenLife>,
  { old, fresh, onProgress, onStep }: Rewrap,
): Promise<number> {
  const ids = keyNumbers(vault);
  const seen = new Uint8Array(ids.length);
  const find = vault.prepare('SELECT owner, wrapped FROM keys WHERE id = ?');
  const findOwned = vault.prepare('SELECT id FROM keys WHERE owner = ?');
  const put = vault.prepare('UPDATE keys SET wrapped = ? WHERE id = ?');
  const rewrapped = new Batches(vault, onStep);
  for await (const { keyId: known, stream, position, head } of lives) {
    // If the event is damaged, the key is found by the owner that the vault has stored with it.
    const keyId = known ?? (findOwned.get(ownerOf(stream)) as { id: number } | undefined)?.id;
    if (keyId === undefined) continue;
    const index = indexIn(ids, keyId);
    if (index === undefined || seen[index] === 1) continue;
    const { owner, wrapped } = find.get(keyId) as { owner: Uint8Array; wrapped: Uint8Array };
    // Another life has this key id: it was given out again from an older copy of the vault, and this life's key is lost.
    if (!ownerOf(stream).equals(owner)) continue;
    seen[index] = 1;
    const key = unwrapKey(old, keyId, stream, wrapped);
    // The key was destroyed, or was rewrapped before an interruption.
    if (key === undefined) continue;
    rewrapped.write(() => put.run(wrapKey(fresh, keyId, stream, key), keyId));
    key.fill(0);
    onProgress?.(position, head);
  }
  const destroy = vault.prepare('UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE id = ?');
  for (const [index, id] of ids.entries()) if (seen[index] !== 1) rewrapped.write(() => destroy.run(id));
  const secrets = vault.prepare('SELECT name, wrapped FROM secrets').all() as { name: string; wrapped: Uint8Array }[];
  const putSecret = vault.prepare('UPDATE secrets SET wrapped = ? WHERE name = ?');
  // The value that identifies the master key is written last: until then the old key is the current one.
  const isCheck = ({ name }: { readonly name: string }) => name === MASTER_KEY_CHECK;
  for (const { name, wrapped } of [...secrets.filter((one) => !isCheck(one)), ...secrets.filter(isCheck)]) {
    const place = Buffer.from(name);
    const secret = gcmOpen(old, place, wrapped);
    if (secret !== undefined) rewrapped.write(() => putSecret.run(gcmSeal(fresh, place, secret), name));
  }
  rewrapped.end();
  return rewrapped.count;
}

interface Rewrap {
  readonly old: KeyObject;
  readonly fresh: KeyObject;
  readonly onProgress: Rotation['onProgress'];
  readonly onStep: StepHook;
}

/** Writes to the vault in transactions of {@link BATCH} writes each. */
class Batches {
  readonly #vault: DatabaseSync;
  readonly #onStep: StepHook;
  count = 0;

  constructor(vault: DatabaseSync, onStep: StepHook) {
    this.#vault = vault;
    this.#onStep = onStep;
    vault.exec('BEGIN IMMEDIATE');
  }

  write(work: () => unknown): void {
    work();
    this.count += 1;
    if (this.count % BATCH !== 0) return;
    this.end();
    this.#vault.exec('BEGIN IMMEDIATE');
  }

  end(): void {
    this.#onStep('batch: before commit');
    this.#vault.exec('COMMIT');
    this.#onStep('batch: after commit');
  }
}

/** The ids of all keys, ascending. They have gaps: a restored store continues at a higher id. */
function keyNumbers(vault: DatabaseSync): Float64Array {
  const { count } = vault.prepare('SELECT count(*) AS count FROM keys').get() as { count: number };
  const ids = new Float64Array(count);
  let index = 0;
  for (const { id } of vault.prepare('SELECT id FROM keys ORDER BY id').iterate() as Iterable<{ id: number }>) {
    ids[index++] = id;
  }
  return ids;
}

/** The index of a number in an ascending array. */
function indexIn(ascending: Float64Array, wanted: number): number | undefined {
  let [low, high] = [0, ascending.length - 1];
  while (low <= high) {
    const middle = (low + high) >>> 1;
    const found = ascending[middle]!;
    if (found === wanted) return middle;
    if (found < wanted) low = middle + 1;
    else high = middle - 1;
  }
  return undefined;
}

/** Every life in a log on a server, once for each of its writes. Truncated writes may be included. */
async function* livesOf(log: EventLog): AsyncGenerator<WrittenLife> {
  const head = await log.head();
  // Other events are skipped, so it does not matter here whether they are damaged.
  for await (const { keys } of keysOf(log, { mayBeTruncated: true }, isItemWrite)) {
    for (const { keyId, stream, position } of keys) yield { keyId, stream, position, head };
  }
}

/**
 * Refuses a log that was restored from an older copy: keys without a life in the log are destroyed, and such a log lacks lives.
 *
 * @throws {UnusableFile}
 */
function assertReachesReadModels(head: number | undefined, folder: DataFolder): void {
  const projected = folder.projectedPosition();
  if (head === undefined || projected <= head) return;
  throw new UnusableFile(
    `The event log ends at position ${head}, but the read models in ${folder.path} have its events up to ${projected}. So it is an older copy, or another log. Nothing was changed.`,
  );
}

/**
 * Refuses a vault that was restored from an older copy. The newest keys, which it lacks, would stay under the old master key, and
 * the folder does not keep that key.
 *
 * @throws {UnusableFile} if the vault is older than the log
 */
function assertNewest(
  { vault, log }: { readonly vault: DatabaseSync; readonly log: DatabaseSync },
  master: KeyObject,
  file: string,
): void {
  const { last } = vault.prepare(LAST_KEY_ID).get() as { last: number };
  const highest = Math.max(last, lastSpareKey(vault, master));
  const find = vault.prepare('SELECT wrapped FROM keys WHERE id = ?');
  for (const { keyId, stream, isDestroyed } of lastKeysIn(log, JUDGED_EVENTS)) {
    if (keyId === undefined) continue;
    const row = isDestroyed ? (find.get(keyId) as { wrapped: Uint8Array } | undefined) : undefined;
    const isBack = row !== undefined && unwrapKey(master, keyId, stream, row.wrapped) !== undefined;
    if (keyId > highest || isBack) {
      throw new UnusableFile(
        `The key vault ${file} is an older copy than the event log. Replace it by the newest one with its -wal file, or restore the store from a backup. Nothing was changed.`,
      );
    }
  }
}

/** Identifies a master key. A hash of 32 random bytes reveals nothing about them. */
function fingerprint(master: KeyObject): string {
  return hash('sha256', master.export(), 'hex');
}

function opensCheck(vault: DatabaseSync, master: KeyObject): boolean {
  const row = vault.prepare('SELECT wrapped FROM secrets WHERE name = ?').get(MASTER_KEY_CHECK) as
    | { wrapped: Uint8Array }
    | undefined;
  return row !== undefined && gcmOpen(master, Buffer.from(MASTER_KEY_CHECK), row.wrapped) !== undefined;
}
