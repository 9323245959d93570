import { createSecretKey, type KeyObject, randomBytes, randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { HighWaterMark } from '@epitaph/core/clock.ts';
import { ProofSigner } from '../crypto/proof-signer.ts';
import { type OwnedLog, refusalOfLog } from '../log-owner.ts';
import { checkpointIn, type ReadModelCheckpoint, UnusableFile } from './database.ts';
import { identityOf, makeFolder, overwriteDurably, overwriteSoon, writeDurably } from './durable-files.ts';
import { isDiskFull, sqliteCodeOf, sqliteCodes } from './failures.ts';
import { keepFromOthers } from './file-owner.ts';
import { READ_MODEL_SCHEMA_VERSION } from './schema.ts';
import { StorageFault } from './writer.ts';

/** Another process has the data folder open. */
export class FolderInUse extends Error {
  override readonly name = 'FolderInUse';
}

export interface FolderFacts {
  /** The version of the folder's layout, from 1. */
  readonly format: number;
  readonly clock: 'system' | 'manual';
  /** The version of the read models in use. */
  readonly items: number;
  /** Id of the last opening of the folder. The read models record it too, so those of another copy of the folder are recognized. */
  readonly opening?: string;
  /** Id of the opening before, which the read models may still have after a crash. */
  readonly openingBefore?: string | undefined;
  /** Id of the store, the same in all its copies. It shows when a log, keys and a ledger don't belong together. */
  readonly id?: string;
  /** True once a purge ledger was begun: from then on it must exist. */
  readonly ledger?: boolean;
  /** Length of the ledger when the store was last stopped. A shorter ledger is an older copy, since it only grows. */
  readonly ledgerBytes?: number;
  /** Set while all keys are being wrapped with a new master key: a hash of that key. */
  readonly rotatingTo?: string | undefined;
  /** Set while a backup is being restored into the folder: until that is done, content erased after the backup may be readable. */
  readonly restoring?: true | undefined;
  /** Id of the event log on a server that the folder belongs to; absent if the log is in the folder. */
  readonly log?: string;
  /** The id that this log has recorded for its owner, by which it recognizes the folder; see `LogOwner`. */
  readonly owner?: string;
}

type IdentifiedFacts = FolderFacts & { readonly id: string };

/** An event log that is not in the folder. */
export interface LogElsewhere {
  readonly id: string;
  /** The server's address, for messages. */
  readonly name: string;
  readonly isEmpty: boolean;
}

export interface OpenLogElsewhere extends LogElsewhere, OwnedLog {
  readonly log: EventLog;
}

const FOLDER_FORMAT = 1;
export const FACTS_FILE = 'epitaph.json';
export const CLOCK_FILE = 'clock';
export const LEDGER_FILE = 'purge-ledger.ndjson';
export const LOCK_FILE = 'lock';
export const MASTER_KEY_FILE = 'master.key';
export const PROOF_KEY_FILE = 'proof.key';
/** The access keys of the HTTP interface. Only the server reads this file. */
export const ACCESS_KEYS_FILE = 'keys.json';
/** Each part of a backup has this file; a data folder never has it. */
export const MANIFEST_FILE = 'backup.json';
const DATABASES = /^(?:log|vault|proof|items\.v\d+)\.db(?:-wal|-shm)?$/;
/** Suffix of the name of a folder that a restore is still making. */
export const RESTORING_SUFFIX = '.restoring';

/** The data folder of a store: its files, its lock, and the few facts about the folder as a whole. */
export class DataFolder {
  readonly path: string;
  readonly #lock: DatabaseSync;
  /** The identity of the lock file: see {@link identityOf}. */
  readonly #locked: string | undefined;
  #facts: IdentifiedFacts;

  private constructor(path: string, lock: DatabaseSync, facts: IdentifiedFacts) {
    this.path = path;
    this.#lock = lock;
    this.#locked = identityOf(this.file(LOCK_FILE));
    this.#facts = facts;
  }

  /**
   * Makes the folder if it does not exist, and locks it until {@link close} or the end of the process.
   *
   * @param restoring true for the restore itself: only it may open a folder whose restore is not finished
   * @throws {FolderInUse} if another process has locked it
   * @throws {UnusableFile} if the folder belongs to the other clock, to another event log or to a newer version, if its restore was
   *   interrupted, or if the process lacks the file permissions
   */
  static open(path: string, clock: 'system' | 'manual', log?: LogElsewhere, restoring = false): DataFolder {
    try {
      makeFolder(path);
    } catch (error) {
      throw new UnusableFile(`The data folder ${path} can't be made: ${(error as Error).message}`);
    }
    if (!statSync(path).isDirectory()) throw new UnusableFile(`The data folder ${path} is a file. Name a folder.`);
    const lock = takeLock(path);
    try {
      const found = readFacts(path);
      if (found?.restoring === true && !restoring) {
        throw new UnusableFile(
          `A restore into ${path} was interrupted, and what was erased after the backup may still be readable in it. Run the same epitaph restore command again; it begins anew.`,
        );
      }
      assertSameLog(path, found, log);
      const known = found ?? { format: FOLDER_FORMAT, clock, items: 1, ...(log === undefined ? {} : { log: log.id }) };
      const facts = { ...known, id: known.id ?? randomUUID() };
      if (facts.format > FOLDER_FORMAT) {
        throw new UnusableFile(
          `The data folder ${path} was made by a newer Epitaph (format ${facts.format}). Start that version, or a later one.`,
        );
      }
      if (facts.clock !== clock) {
        throw new UnusableFile(
          facts.clock === 'manual'
            ? `The data folder ${path} was used with the manual clock. Its times are not real, so it can't be opened with the system clock. Start with --clock manual, or with another folder.`
            : `The data folder ${path} is used with the system clock. With the manual clock, advancing the time would erase what is in it. Start without --clock manual, or with another folder.`,
        );
      }
      const folder = new DataFolder(path, lock, facts);
      for (const name of readdirSync(path)) if (DATABASES.test(name)) keepFromOthers(folder.file(name));
      if (found?.id === undefined) writeFacts(path, facts);
      return folder;
    } catch (error) {
      lock.close();
      throw error;
    }
  }

  file(name: string): string {
    return join(this.path, name);
  }

  /**
   * Must be called before a file of the folder is written by its path: by now the path may lead to a folder of another process.
   *
   * @throws {StorageFault} if the folder was moved, removed or replaced since it was opened, or can't be read
   */
  assertInPlace(): void {
    let fault = 'was moved, removed or replaced under the running store';
    try {
      if (identityOf(this.file(LOCK_FILE)) === this.#locked) return;
    } catch (error) {
      fault = `can't be read: ${(error as Error).message}`;
    }
    throw new StorageFault({
      fault: `the data folder ${this.path} ${fault}. Put it back as it was, or end this process and start another.`,
    });
  }

  itemsFile(version: number): string {
    return this.file(`items.v${version}.db`);
  }

  /** Id of the store, the same in all its copies. */
  get storeId(): string {
    return this.#facts.id;
  }

  /** Id of the event log on a server that the folder belongs to; undefined if the log is in the folder. */
  get log(): string | undefined {
    return this.#facts.log;
  }

  /**
   * Makes a log on a server record this folder as its owner.
   *
   * @param takeOver true for the restore that makes the folder, which replaces a former owner
   * @throws {UnusableFile} if the log belongs to another folder
   */
  async claim(log: OwnedLog, takeOver: boolean): Promise<void> {
    const owner = this.#facts.owner ?? randomUUID();
    if (this.#facts.owner === undefined) this.#change({ owner });
    const path = resolve(this.path);
    const name = `${join(dirname(path), basename(path, RESTORING_SUFFIX))} at ${hostname()}`;
    const refusal = await refusalOfLog(log, { id: owner, name }, takeOver);
    if (refusal !== undefined) throw new UnusableFile(refusal);
  }

  /**
   * The file of the purge ledger: in the folder, unless another path is given.
   *
   * @throws {UnusableFile} if there was a ledger before and it is missing, or is a copy from before the store was last stopped. Such
   *   a ledger would lack the keys destroyed since, and a restore would bring them back.
   */
  ledgerFile(given: string | undefined): string {
    const file = given ?? this.file(LEDGER_FILE);
    if (this.#facts.ledger !== true) return file;
    const { ledgerBytes = 0 } = this.#facts;
    const size = (name: string) => statSync(name, { throwIfNoEntry: false })?.size;
    const bytes = size(file);
    const own = this.file(LEDGER_FILE);
    // After a restore the ledger is in the folder, wherever it was before.
    if ((bytes ?? 0) < ledgerBytes && file !== own && (size(own) ?? 0) >= ledgerBytes) {
      throw new UnusableFile(
        `The purge ledger ${file} is ${bytes === undefined ? 'missing' : 'an older copy'}: the store has continued with ${own}, as after a restore. Move that file to its place, and start again; or start without --purge-ledger.`,
      );
    }
    if (bytes !== undefined && bytes < ledgerBytes) {
      throw new UnusableFile(
        `The purge ledger ${file} is an older copy, or another store's: it has ${bytes} bytes, but had ${ledgerBytes} when the store was stopped. Replace it by the newest one. If there is none, remove this one, and remove "ledger" from ${this.file(FACTS_FILE)}: a new one is begun, and backups taken until now can't be restored.`,
      );
    }
    if (bytes === undefined) {
      throw new UnusableFile(
        `The purge ledger ${file} is missing. Put it back before the store starts. If there is no copy of it any more, remove "ledger" from ${this.file(FACTS_FILE)}: a new one is begun, and backups taken until now can't be restored.`,
      );
    }
    return file;
  }

  /**
   * Makes sure that log and vault are both there, so that the store makes no new one to replace a missing one.
   *
   * @throws {UnusableFile} if the vault or the log is missing
   */
  assertWhole(): void {
    const [log, vault] = [this.file('log.db'), this.file('vault.db')];
    const wasUsed = this.#facts.ledger === true;
    if (!existsSync(vault) && (wasUsed || existsSync(log))) {
      throw new UnusableFile(
        `The key vault ${vault} is missing, and without its keys nothing in the log can be read. Put it back with its -wal file, or restore the store from a backup.`,
      );
    }
    if (wasUsed && this.log === undefined && !existsSync(log)) {
      throw new UnusableFile(
        `The event log ${log} is missing, and nothing else says what the store contains. Put it back with its -wal file, or restore the store from a backup.`,
      );
    }
  }

  /** Records that there is a ledger: from now on it must exist at every start. */
  ledgerBegun(): void {
    if (this.#facts.ledger !== true) this.#change({ ledger: true, ledgerBytes: 0 });
  }

  /** Records the length of the ledger when the store stops. If that fails, the earlier, shorter length stays, which does no harm. */
  ledgerClosed(file: string): void {
    try {
      const ledgerBytes = statSync(file).size;
      if (ledgerBytes !== this.#facts.ledgerBytes) this.#change({ ledgerBytes });
    } catch {
      // The disk may be full, or the folder may have been removed.
    }
  }

  /** Set while all keys are being wrapped with a new master key: a hash of that key. */
  get rotatingTo(): string | undefined {
    return this.#facts.rotatingTo;
  }

  setRotatingTo(rotatingTo: string | undefined): void {
    this.#change({ rotatingTo });
  }

  /** The log position up to which the read models in use are current; 0 if their file is missing or does not have it. */
  projectedPosition(): number {
    return this.checkpointOf(this.itemsVersion)?.position ?? 0;
  }

  /** The checkpoint of a version of the read models; undefined if its file is missing or has none. */
  checkpointOf(version: number): ReadModelCheckpoint | undefined {
    const file = this.itemsFile(version);
    return existsSync(file) ? checkpointIn(file, READ_MODEL_SCHEMA_VERSION) : undefined;
  }

  get itemsVersion(): number {
    return this.#facts.items;
  }

  /** Makes a version of the read models the one in use. This is durable. */
  useItemsVersion(version: number): void {
    this.#change({ items: version });
  }

  /** Whether read models that were last used in this opening are the folder's own, as far as that is known. */
  isOwn(opening: string | undefined): boolean {
    const { opening: last, openingBefore } = this.#facts;
    return opening === undefined || last === undefined || opening === last || opening === openingBefore;
  }

  /**
   * Records a new id for this opening of the folder and returns it. If the disk has no room, the former id stays.
   *
   * @param former the opening that the read models in use have recorded
   */
  nameOpening(former: string | undefined): string | undefined {
    try {
      this.#change({ opening: randomUUID(), openingBefore: former });
    } catch (error) {
      if (!(error instanceof UnusableFile)) throw error;
    }
    return this.#facts.opening;
  }

  /** The versions of the read models whose files are in the folder. */
  itemsVersions(): number[] {
    return readdirSync(this.path)
      .map((name) => /^items\.v(\d+)\.db$/.exec(name)?.[1])
      .filter((match) => match !== undefined)
      .map(Number);
  }

  removeItems(version: number): void {
    this.assertInPlace();
    // The database file is removed last: a journal left behind would be applied to the next database of the same name.
    for (const suffix of ['-wal', '-shm', '']) rmSync(this.itemsFile(version) + suffix, { force: true });
  }

  /**
   * The master key that wraps all life keys: the given one (base64 of 32 bytes), or the one in the folder's key file. If there is
   * no key file, it is made, readable for its owner only.
   */
  masterKey(given: string | undefined): KeyObject {
    if (this.rotatingTo !== undefined) {
      throw new UnusableFile(
        `A change of the master key of ${this.path} was interrupted. Finish it: epitaph keys rotate-master --data ${this.path}`,
      );
    }
    const file = this.file(MASTER_KEY_FILE);
    let text = given;
    if (text === undefined) {
      if (!existsSync(file)) {
        if (existsSync(this.file('vault.db'))) {
          throw new UnusableFile(
            `${file} is missing, and without the master key nothing in ${this.path} can be read. Put the key file back, or give the key in EPITAPH_MASTER_KEY.`,
          );
        }
        writeDurably(file, `${randomBytes(32).toString('base64')}\n`);
      }
      text = readFileSync(file, 'utf8').trim();
    }
    const bytes = Buffer.from(text, 'base64');
    if (bytes.length !== 32) throw new UnusableFile('The master key must be 32 bytes in base64.');
    return createSecretKey(bytes);
  }

  /**
   * Returns a signer of checkpoints with the folder's own key. If there is no key, it is made, readable for its owner only.
   *
   * @param onLoss called with a message if the key was missing and a new one was made
   */
  proofSigner(onLoss?: (what: string) => void): ProofSigner {
    const file = this.file(PROOF_KEY_FILE);
    if (!existsSync(file)) {
      const { signer, text } = ProofSigner.make();
      writeDurably(file, text);
      onLoss?.(
        `${file} was missing: proofs are signed with a new key, "${signer.key.name}", from now on. Give auditors its public key (GET /_epitaph/proof/key), or put the old file back and start again.`,
      );
      return signer;
    }
    const signer = ProofSigner.read(readFileSync(file, 'utf8'));
    if (signer === undefined) {
      throw new UnusableFile(
        `${file} holds no signing key; it is damaged. Restore it from a backup, or move it away to sign with a new key from now on.`,
      );
    }
    return signer;
  }

  /** The clock's high-water mark: a small file that is overwritten in place and synced. */
  highWaterMark(): HighWaterMark {
    const file = this.file(CLOCK_FILE);
    const text = existsSync(file) ? readFileSync(file, 'utf8') : '0';
    const initialMs = Number(text);
    if (!Number.isSafeInteger(initialMs) || initialMs < 0) {
      throw new UnusableFile(
        `${file} should hold a time in milliseconds; it is damaged. Put back the number, or the latest time you trust.`,
      );
    }
    return {
      initialMs,
      save: (markMs) => {
        this.assertInPlace();
        overwriteDurably(file, String(markMs));
      },
      saveSoon: async (markMs) => {
        this.assertInPlace();
        await overwriteSoon(file, String(markMs));
      },
    };
  }

  close(): void {
    this.#lock.close();
  }

  #change(change: Partial<FolderFacts>): void {
    this.assertInPlace();
    const facts = { ...this.#facts, ...change };
    writeFacts(this.path, facts);
    this.#facts = facts;
  }
}

/** Files that a folder may contain before there is a store in it: given by the operator, or left by a first start that was killed. */
const BEGUN_WITH: ReadonlySet<string> = new Set([
  LOCK_FILE,
  `${LOCK_FILE}-journal`,
  ACCESS_KEYS_FILE,
  CLOCK_FILE,
  ...[FACTS_FILE, ACCESS_KEYS_FILE, MASTER_KEY_FILE, PROOF_KEY_FILE, CLOCK_FILE].map((name) => `${name}.new`),
]);
/** Files that file systems and desktops put into folders, and certificates and keys, including those of the store. */
const BESIDE_ANYTHING = /^\.|^lost\+found$|\.(?:pem|crt|cer|key)$/;
const NAMES_SHOWN = 3;

/**
 * Makes sure that no store is made among other files, for example because a path was mistyped, or among the remains of another
 * store. Must be called before the folder is opened.
 *
 * @param besides paths of files given to the store by its options, which may be in the folder
 * @throws {UnusableFile} if the folder has no store and contains other files than a new folder may
 */
export function assertNotForeign(path: string, besides: readonly string[]): void {
  // A path that is no folder is reported when the folder is opened. If a log has no facts beside it, `readFacts` reports that.
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) return;
  const names = readdirSync(path);
  if (names.includes(FACTS_FILE)) {
    const isLogPart = names.includes(MANIFEST_FILE) && names.includes('log.db') && !names.includes('vault.db');
    if (!isLogPart) return;
    throw new UnusableFile(
      `${path} is the log part of a backup, not a store. Restore it (epitaph restore), and start the restored store. Nothing was changed.`,
    );
  }
  if (names.includes('log.db')) return void readFacts(path);
  const given = new Set(besides.map((file) => relative(resolve(path), resolve(file)).split(sep)[0]));
  const foreign = names
    .filter((name) => !BEGUN_WITH.has(name) && !BESIDE_ANYTHING.test(name) && !given.has(name))
    .toSorted();
  if (foreign.length === 0) return;
  const more = foreign.length > NAMES_SHOWN ? ` and ${foreign.length - NAMES_SHOWN} more` : '';
  throw new UnusableFile(
    `There is no store in ${path} (it has no ${FACTS_FILE}), and it contains files that do not belong to a new one: ${foreign.slice(0, NAMES_SHOWN).join(', ')}${more}. Name an empty folder, or one that does not exist yet (--data). If a store was here, restore it from a backup. Nothing was changed.`,
  );
}

export function readFacts(path: string): FolderFacts | undefined {
  const file = join(path, FACTS_FILE);
  if (!existsSync(file)) {
    if (existsSync(join(path, 'log.db'))) {
      throw new UnusableFile(
        `${file} is missing: ${path} contains a log, but not the file that describes the folder. Restore that file from a backup.`,
      );
    }
    return undefined;
  }
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new UnusableFile(`${file} can't be read: ${(error as Error).message}. Check its permissions and the disk.`);
  }
  try {
    return JSON.parse(text) as FolderFacts;
  } catch {
    throw new UnusableFile(`${file} is damaged. Restore it from a backup.`);
  }
}

/** Keys, read models and log belong together: keys of another log open nothing, and positions in it are those of other events. */
function assertSameLog(path: string, facts: FolderFacts | undefined, log: LogElsewhere | undefined): void {
  if (facts === undefined) {
    if (log === undefined || log.isEmpty) return;
    throw new UnusableFile(
      `The event log on ${log.name} holds events, and their keys are not in ${path}, which is new. Start with the data folder that the log was used with.`,
    );
  }
  if (facts.log === log?.id) return;
  if (log === undefined) {
    throw new UnusableFile(
      `The event log of the data folder ${path} is on a server. Start with its --event-store, or with another folder.`,
    );
  }
  throw new UnusableFile(
    facts.log === undefined
      ? `The data folder ${path} holds an event log of its own. Start without --event-store, or with another folder.`
      : `The data folder ${path} belongs to another event log than the one on ${log.name}. Start with that one, or with another folder.`,
  );
}

/**
 * Locks a folder that is no store yet.
 *
 * @returns a function that releases the lock
 * @throws {FolderInUse | UnusableFile}
 */
export function lockFolder(path: string): () => void {
  const lock = takeLock(path);
  return () => lock.close();
}

/** Replaces the facts of a folder durably. */
export function writeFacts(path: string, facts: FolderFacts): void {
  writeDurably(join(path, FACTS_FILE), `${JSON.stringify(facts)}\n`);
}

/** Takes SQLite's own file lock, which the operating system releases when the process ends, however it ends. */
function takeLock(path: string): DatabaseSync {
  let lock: DatabaseSync | undefined;
  try {
    lock = new DatabaseSync(join(path, LOCK_FILE), { timeout: 0 });
    lock.exec('PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE');
    return lock;
  } catch (error) {
    lock?.close();
    if (sqliteCodeOf(error) === sqliteCodes.busy) {
      throw new FolderInUse(
        `The data folder ${path} is in use by another process. Stop that one, or start with another folder (--data).`,
      );
    }
    if (isDiskFull(error)) {
      throw new UnusableFile(
        `There is no space left on the disk of the data folder ${path}. Free some space, and run the same command again.`,
      );
    }
    throw new UnusableFile(
      `The data folder ${path} can't be used: ${(error as Error).message}. Check its permissions and the disk.`,
    );
  }
}
