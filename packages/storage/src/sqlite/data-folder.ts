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
  /** Layout of the folder, from 1. */
  readonly format: number;
  readonly clock: 'system' | 'manual';
  /** Version of the read models in use. */
  readonly items: number;
  /** Names the last time that the folder was opened, as its read models do: those of another copy name another one. */
  readonly opening?: string;
  /** The time before, which they may still name after a crash. */
  readonly openingBefore?: string | undefined;
  /** Names the store over all its copies, so that a log, keys and a ledger that don't go together are noticed. */
  readonly id?: string;
  /** True once there was a purge ledger: from then on it must be there. */
  readonly ledger?: boolean;
  /** How long the ledger was when the store was last stopped: it is only ever appended to. */
  readonly ledgerBytes?: number;
  /** Set while all keys are being wrapped anew: a hash of the master key to come. */
  readonly rotatingTo?: string | undefined;
  /** Set while a backup is being restored into it: what was erased since may be readable until that is done. */
  readonly restoring?: true | undefined;
  /** Id of the event log on a server that the folder goes with; absent where the log is in the folder. */
  readonly log?: string;
  /** What that log has on record as its owner, so that it knows this folder again; see `LogOwner`. */
  readonly owner?: string;
}

type IdentifiedFacts = FolderFacts & { readonly id: string };

/** An event log that is not in the folder. */
export interface LogElsewhere {
  readonly id: string;
  /** Where it is, for messages. */
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
/** Of who may call the store; it is the server's own to read. */
export const ACCESS_KEYS_FILE = 'keys.json';
/** In each part of a backup, and in no data folder. */
export const MANIFEST_FILE = 'backup.json';
const DATABASES = /^(?:log|vault|proof|items\.v\d+)\.db(?:-wal|-shm)?$/;
/** The end of the name of a folder that a restore is making. */
export const RESTORING_SUFFIX = '.restoring';

/** The folder of an embedded store: its files, its lock, and the few facts that concern the folder as a whole. */
export class DataFolder {
  readonly path: string;
  readonly #lock: DatabaseSync;
  /** Identity of the lock file: see {@link identityOf}. */
  readonly #locked: string | undefined;
  #facts: IdentifiedFacts;

  private constructor(path: string, lock: DatabaseSync, facts: IdentifiedFacts) {
    this.path = path;
    this.#lock = lock;
    this.#locked = identityOf(this.file(LOCK_FILE));
    this.#facts = facts;
  }

  /**
   * Makes the folder if it is not there, and takes it for this process until {@link close} or the process ends.
   *
   * @param restoring true for the restore itself, which alone may open what it has not finished
   * @throws {FolderInUse} when another process has it.
   * @throws {UnusableFile} for a folder of the other clock, of another event log, of a newer version, of a restore that
   *   was cut short, or without the rights needed.
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
          `A restore into ${path} was cut short, and what was erased after the backup may still be readable in it. Give the same epitaph restore command again; it begins anew.`,
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
            ? `The data folder ${path} was used with the manual clock: its times are not real ones, and it never opens on the system clock. Start with --clock manual, or with another folder.`
            : `The data folder ${path} belongs to the system clock: turning time forward by hand would erase what is in it. Start without --clock manual, or with another folder.`,
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
   * To be called before a file of the folder is written by its name: another process may have the folder of that name
   * by now.
   *
   * @throws {StorageFault} when it was moved, removed or replaced since it was opened, or can't be looked into
   */
  assertInPlace(): void {
    let fault = 'was moved, removed or replaced under the running store';
    try {
      if (identityOf(this.file(LOCK_FILE)) === this.#locked) return;
    } catch (error) {
      fault = `can't be looked into: ${(error as Error).message}`;
    }
    throw new StorageFault({
      fault: `the data folder ${this.path} ${fault}. Put it back as it was, or end this process and start another.`,
    });
  }

  itemsFile(version: number): string {
    return this.file(`items.v${version}.db`);
  }

  /** Names the store over all its copies. */
  get storeId(): string {
    return this.#facts.id;
  }

  /** Id of the event log on a server that the folder goes with; undefined where the log is in the folder. */
  get log(): string | undefined {
    return this.#facts.log;
  }

  /**
   * Makes a log on a server record that it is this folder's.
   *
   * @param takeOver true for the restore that makes the folder
   * @throws {UnusableFile} when it is another's
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
   * Where the ledger of destroyed keys is: in the folder unless another place is given.
   *
   * @throws {UnusableFile} when there was one before and it is missing, or is a copy from before the store was last
   *   stopped: the keys destroyed since would be missing from it for good, and a restore would bring them back.
   */
  ledgerFile(given: string | undefined): string {
    const file = given ?? this.file(LEDGER_FILE);
    if (this.#facts.ledger !== true) return file;
    const { ledgerBytes = 0 } = this.#facts;
    const size = (name: string) => statSync(name, { throwIfNoEntry: false })?.size;
    const bytes = size(file);
    const own = this.file(LEDGER_FILE);
    // A restore goes on with it in the folder, wherever it was before.
    if ((bytes ?? 0) < ledgerBytes && file !== own && (size(own) ?? 0) >= ledgerBytes) {
      throw new UnusableFile(
        `The purge ledger ${file} is ${bytes === undefined ? 'missing' : 'an older copy'}: the store went on with ${own}, as after a restore. Move that in its place, and start again; or start without --purge-ledger.`,
      );
    }
    if (bytes !== undefined && bytes < ledgerBytes) {
      throw new UnusableFile(
        `The purge ledger ${file} is an older copy, or another store's: it has ${bytes} bytes, and had ${ledgerBytes} when the store was stopped. Put the newest in its place. If there is none, remove this one and take "ledger" out of ${this.file(FACTS_FILE)}: a new one is begun, and backups taken until now can't be restored.`,
      );
    }
    if (bytes === undefined) {
      throw new UnusableFile(
        `The purge ledger ${file} is missing. Put it back, or copy it to there, before the store starts. If there is no copy of it any more, take "ledger" out of ${this.file(FACTS_FILE)}: a new one is begun, and backups taken until now can't be restored.`,
      );
    }
    return file;
  }

  /**
   * Makes sure that no new file is begun beside old ones that belong with a missing one.
   *
   * @throws {UnusableFile} for a vault that is missing beside its log, or a log that is missing beside its vault.
   */
  assertWhole(): void {
    const [log, vault] = [this.file('log.db'), this.file('vault.db')];
    const wasUsed = this.#facts.ledger === true;
    if (!existsSync(vault) && (wasUsed || existsSync(log))) {
      throw new UnusableFile(
        `The key vault ${vault} is missing, and without its keys nothing of the log can be read. Put it back with its -wal file, or restore the store from a backup.`,
      );
    }
    if (wasUsed && this.log === undefined && !existsSync(log)) {
      throw new UnusableFile(
        `The event log ${log} is missing, and it alone says what the store holds. Put it back with its -wal file, or restore the store from a backup.`,
      );
    }
  }

  /** From here on the ledger must be there at every start. */
  ledgerBegun(): void {
    if (this.#facts.ledger !== true) this.#change({ ledger: true, ledgerBytes: 0 });
  }

  /** Notes how long the ledger has become. If that fails, the next start knows a shorter length, which does no harm. */
  ledgerClosed(file: string): void {
    try {
      const ledgerBytes = statSync(file).size;
      if (ledgerBytes !== this.#facts.ledgerBytes) this.#change({ ledgerBytes });
    } catch {
      // The disk is full, or the folder was taken away.
    }
  }

  /** Set while all keys are being wrapped anew: a hash of the master key to come. */
  get rotatingTo(): string | undefined {
    return this.#facts.rotatingTo;
  }

  setRotatingTo(rotatingTo: string | undefined): void {
    this.#change({ rotatingTo });
  }

  /** Up to which position the read models in use have the log; 0 where their file is missing or does not tell. */
  projectedPosition(): number {
    return this.checkpointOf(this.itemsVersion)?.position ?? 0;
  }

  /** The checkpoint of a version of the read models; undefined where its file is missing or does not tell. */
  checkpointOf(version: number): ReadModelCheckpoint | undefined {
    const file = this.itemsFile(version);
    return existsSync(file) ? checkpointIn(file, READ_MODEL_SCHEMA_VERSION) : undefined;
  }

  get itemsVersion(): number {
    return this.#facts.items;
  }

  /** From here on, also after a crash, that version of the read models is the one in use. */
  useItemsVersion(version: number): void {
    this.#change({ items: version });
  }

  /** Whether read models that name an opening are the folder's own, as far as can be told. */
  isOwn(opening: string | undefined): boolean {
    const { opening: last, openingBefore } = this.#facts;
    return opening === undefined || last === undefined || opening === last || opening === openingBefore;
  }

  /**
   * Names this opening of the folder. Where there is no room for that, it goes by the name of the one before.
   *
   * @param former what the read models in use name
   */
  nameOpening(former: string | undefined): string | undefined {
    try {
      this.#change({ opening: randomUUID(), openingBefore: former });
    } catch (error) {
      if (!(error instanceof UnusableFile)) throw error;
    }
    return this.#facts.opening;
  }

  /** Versions of the read models that lie in the folder. */
  itemsVersions(): number[] {
    return readdirSync(this.path)
      .map((name) => /^items\.v(\d+)\.db$/.exec(name)?.[1])
      .filter((match) => match !== undefined)
      .map(Number);
  }

  removeItems(version: number): void {
    this.assertInPlace();
    // The file itself goes last: a journal that is left behind would be taken for that of the next file of the name.
    for (const suffix of ['-wal', '-shm', '']) rmSync(this.itemsFile(version) + suffix, { force: true });
  }

  /**
   * The master key that wraps all life keys: the one given (base64 of 32 bytes), or the folder's own key file,
   * made readable for its owner alone when there is none.
   */
  masterKey(given: string | undefined): KeyObject {
    if (this.rotatingTo !== undefined) {
      throw new UnusableFile(
        `The master key of ${this.path} is being changed, and that was cut short. Finish it: epitaph keys rotate-master --data ${this.path}`,
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
   * Signs checkpoints with the folder's own key, made readable for its owner alone when there is none.
   *
   * @param onLoss told when the key was missing and a new one was made
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

  /** The clock's high-water mark: a small file, written over where it stands and synced. */
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

/** What may be in a folder before there is a store in it: given to it, or left by a first start that was killed. */
const BEGUN_WITH: ReadonlySet<string> = new Set([
  LOCK_FILE,
  `${LOCK_FILE}-journal`,
  ACCESS_KEYS_FILE,
  CLOCK_FILE,
  ...[FACTS_FILE, ACCESS_KEYS_FILE, MASTER_KEY_FILE, PROOF_KEY_FILE, CLOCK_FILE].map((name) => `${name}.new`),
]);
/** What file systems and desktops keep in a folder, and certificates and keys, those of the store among them. */
const BESIDE_ANYTHING = /^\.|^lost\+found$|\.(?:pem|crt|cer|key)$/;
const NAMES_SHOWN = 3;

/**
 * Makes sure that no store is made among somebody's files, because a name was mistyped, nor among what is left of
 * another store. To be called before the folder is opened.
 *
 * @param besides paths of what the store is given, which may be in the folder
 * @throws {UnusableFile} for a folder with no store in it that is not as a new one may be
 */
export function assertNotForeign(path: string, besides: readonly string[]): void {
  // What is no folder, or can't be read, is told by who opens it; and what is missing of a store that has its log.
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) return;
  const names = readdirSync(path);
  if (names.includes(FACTS_FILE)) {
    const isLogPart = names.includes(MANIFEST_FILE) && names.includes('log.db') && !names.includes('vault.db');
    if (!isLogPart) return;
    throw new UnusableFile(
      `${path} is the log part of a backup, and no store: restore it (epitaph restore), and start what that makes. Nothing was changed.`,
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
    `There is no store in ${path} (it has no ${FACTS_FILE}), and what is in it is not for a new one: ${foreign.slice(0, NAMES_SHOWN).join(', ')}${more}. Name an empty folder, or one that is not there yet (--data); a store that was here is restored from a backup. Nothing was changed.`,
  );
}

export function readFacts(path: string): FolderFacts | undefined {
  const file = join(path, FACTS_FILE);
  if (!existsSync(file)) {
    if (existsSync(join(path, 'log.db'))) {
      throw new UnusableFile(
        `${file} is missing: ${path} holds a log, but not what says how it was made. Restore it from a backup.`,
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

/** Keys, read models and log go together: with another log's keys nothing opens, and its positions mean other events. */
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
 * Takes the lock of a folder that is no store yet.
 *
 * @returns what lets go of it
 * @throws {FolderInUse | UnusableFile}
 */
export function lockFolder(path: string): () => void {
  const lock = takeLock(path);
  return () => lock.close();
}

/** Replaces what the folder says of itself. */
export function writeFacts(path: string, facts: FolderFacts): void {
  writeDurably(join(path, FACTS_FILE), `${JSON.stringify(facts)}\n`);
}

/** A lock that the operating system lets go of when the process ends, however it ends: SQLite's own file lock. */
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
        `There is no space left on the disk of the data folder ${path}. Make room, and give the same command again.`,
      );
    }
    throw new UnusableFile(
      `The data folder ${path} can't be used: ${(error as Error).message}. Check its permissions and the disk.`,
    );
  }
}
