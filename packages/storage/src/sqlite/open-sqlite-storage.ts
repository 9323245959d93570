import type { BackupSource } from '@epitaph/core/backup/backup-source.ts';
import type { HighWaterMark } from '@epitaph/core/clock.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { InvariantViolation } from '@epitaph/core/invariant.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { whyUnreadable } from '@epitaph/core/upcast.ts';
import type { BodySealer, ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { ReadModelStore, ReadModelVersion, ReadModelVersions } from '@epitaph/projections/read-model-store.ts';
import type { CheckpointCryptography, CheckpointSigner } from '@epitaph/core/proof/checkpoint.ts';
import type { ProofStore } from '@epitaph/projections/proof/proof-store.ts';
import { checkpointCryptography } from '../crypto/proof-signer.ts';
import { SqliteProofStore } from './sqlite-proof-store.ts';
import { GcmBodySealer } from '../crypto/gcm-body-sealer.ts';
import { HashedItemNaming } from '../crypto/item-naming.ts';
import { lastEvents } from '../last-events.ts';
import { Opened } from '../opened.ts';
import { SqliteBackup } from './backup.ts';
import { DataFolder, type OpenLogElsewhere } from './data-folder.ts';
import { whenContradictory } from '../contradictory-log.ts';
import {
  hasClearValues,
  headIn,
  isOutdated,
  LOG_CACHE_KIB,
  nameOpeningIn,
  openForReading,
  UnusableFile,
  whenUnfit,
} from './database.ts';
import { LogWriterCore, type LogWriterOptions } from './log-writer-core.ts';
import type { StepHook } from './placed-crash.ts';
import { checkMasterKey } from './master-key.ts';
import { ReadModelWriterCore, type ReadModelWriterOptions } from './read-model-writer-core.ts';
import { JUDGED_EVENTS, READ_MODEL_SCHEMA_VERSION, VAULT_SCHEMA_VERSION } from './schema.ts';
import { SqliteEventLog } from './sqlite-event-log.ts';
import { SqliteKeyVault } from './sqlite-key-vault.ts';
import { SqliteReadModelStore } from './sqlite-read-model-store.ts';
import { type Lag, WriteBehindReadModelStore } from './write-behind.ts';
import { InlineWriter, type Writer } from './writer.ts';
import { ThreadWriter } from './thread-writer.ts';

export interface SqliteStorageOptions {
  readonly folder: string;
  readonly clock: 'system' | 'manual';
  /** 32 bytes in base64; by default the key in the folder's key file. */
  readonly masterKey?: string | undefined;
  /** The file of the purge ledger; by default in the folder. */
  readonly purgeLedger?: string | undefined;
  /**
   * `threads` (the default) writes on separate threads; `inline` on the calling thread, where a test can place a crash at each step.
   */
  readonly writers?: 'threads' | 'inline';
  /** How far the file of the read models may lag behind. By default not at all if they are written inline or the log is on a server. */
  readonly readModelLag?: Lag | undefined;
  /** False only for simulations: a crash of the machine may then lose acknowledged writes. */
  readonly durable?: boolean;
  readonly onStep?: StepHook;
  /** Called if a writer's thread has ended by itself. The store must then be restarted. */
  readonly onWriterLost?: ((error: Error) => void) | undefined;
  /** Called with a message if something is missing in a folder that was used before, but the store can open without it. */
  readonly onLoss?: ((what: string) => void) | undefined;
  /** True for the restore that makes the folder. Nobody else may open the folder before the restore is done. */
  readonly restoring?: boolean;
  /** True to read the keys of a folder whose event log, on a server, was restored from an older copy. */
  readonly logMayBeOlder?: boolean;
  /** The event log, if it is not in the folder. It is closed with the storage. */
  readonly logElsewhere?: OpenLogElsewhere | undefined;
}

export interface SqliteStorage {
  readonly log: EventLog;
  readonly vault: SqliteKeyVault;
  readonly sealer: BodySealer;
  readonly naming: ItemNaming;
  readonly readModels: ReadModelVersions;
  readonly highWaterMark: HighWaterMark;
  /** The tree of permanent facts, and the signer of its checkpoints. */
  readonly proof: {
    readonly store: ProofStore;
    readonly signer: CheckpointSigner;
    readonly cryptography: CheckpointCryptography;
  };
  readonly backupSource: BackupSource;
  close(): Promise<void>;
}

/**
 * A transaction of the read models costs as much as several dozen of their rows, so they are written in larger groups than the log.
 * Sending even more changes to the thread at once would block the event loop.
 */
const READ_MODEL_LAG: Lag = { changes: 256, forMs: 100 };

/** SQLite's name for a database in memory. The writer uses it for its log if the real log is on a server. */
const NO_FILE = ':memory:';

/**
 * Opens the storage in a folder: log, vault and the read models in use.
 *
 * @throws {FolderInUse | UnusableFile} with a message for the operator
 */
export async function openSqliteStorage(options: SqliteStorageOptions): Promise<SqliteStorage> {
  const { logElsewhere } = options;
  const folder = DataFolder.open(options.folder, options.clock, logElsewhere, options.restoring);
  const opened = new Opened();
  opened.add(() => folder.close());
  try {
    folder.assertWhole();
    const master = folder.masterKey(options.masterKey);
    const ledgerFile = folder.ledgerFile(options.purgeLedger);
    // The key is checked before the vault is migrated: older versions of the program can't open it afterwards.
    if (isOutdated(folder.file('vault.db'), VAULT_SCHEMA_VERSION)) checkMasterKey(folder.file('vault.db'), master);
    // At its start the writer destroys the spare keys that have no lives in the log. So the log must not be an older copy.
    if (logElsewhere === undefined && options.logMayBeOlder !== true) assertFolderNotBehind(folder);
    const writer = await startLogWriter(
      {
        logFile: logElsewhere === undefined ? folder.file('log.db') : NO_FILE,
        vaultFile: folder.file('vault.db'),
        masterKey: master,
        ledgerFile,
        storeId: folder.storeId,
        synchronous: options.durable === false ? 'OFF' : 'FULL',
      },
      options,
    );
    opened.add(
      () => folder.ledgerClosed(ledgerFile),
      () => writer.close(),
    );
    folder.ledgerBegun();
    const vault = await SqliteKeyVault.open(writer, openForReading(folder.file('vault.db'), { writer }), master, {
      keepsSpares: logElsewhere === undefined,
    });
    const log =
      logElsewhere?.log ??
      new SqliteEventLog(writer, vault, openForReading(folder.file('log.db'), { cacheKiB: LOG_CACHE_KIB, writer }));
    opened.add(
      () => log.close(),
      () => vault.close(),
    );
    if (logElsewhere === undefined) assertKeysOf(await lastOf(log), vault, folder);
    const readModels = await SqliteReadModels.open(folder, options, await log.head());
    opened.add(() => readModels.close());
    if (options.logMayBeOlder !== true) {
      await assertNotBehind(log, readModels.current, folder, logElsewhere?.name).catch((error: unknown) => {
        throw readModels.explained(error);
      });
      if (logElsewhere !== undefined) {
        await folder.claim(logElsewhere, options.restoring === true);
        assertKeysOf(await lastEvents(log, readModels.current.store), vault, folder);
      }
    }
    const hasEvents = (await log.head()) > 0;
    const signer = folder.proofSigner(hasEvents ? options.onLoss : undefined);
    const proofs = new SqliteProofStore(folder.file('proof.db'));
    opened.add(() => proofs.close());
    return {
      proof: { store: proofs, signer, cryptography: checkpointCryptography },
      log,
      vault,
      sealer: new GcmBodySealer(),
      naming: new HashedItemNaming(vault),
      readModels,
      highWaterMark: folder.highWaterMark(),
      backupSource: new SqliteBackup(folder, writer, vault, ledgerFile, options.onStep),
      close: () => opened.close(),
    };
  } catch (error) {
    await opened.close();
    throw error;
  }
}

/**
 * Refuses a log that is behind the read models. All projected events are in the log, unless it was restored from an older copy.
 * The positions that such a log gives to new events would count as projected already.
 */
async function assertNotBehind(
  log: EventLog,
  { version, store }: ReadModelVersions['current'],
  folder: DataFolder,
  logName: string | undefined,
): Promise<void> {
  refuseOlderLog(await log.head(), await store.checkpoint(), version, folder, logName);
}

/** Checks the same before any file is opened for writing, if the files can be read then. */
function assertFolderNotBehind(folder: DataFolder): void {
  const head = headIn(folder.file('log.db'));
  if (head !== undefined) refuseOlderLog(head, folder.projectedPosition(), folder.itemsVersion, folder, undefined);
}

function refuseOlderLog(
  head: number,
  position: number,
  version: number,
  folder: DataFolder,
  logName: string | undefined,
): void {
  if (position <= head) return;
  const [name, files] = logName === undefined ? [folder.file('log.db'), ' with its -wal file'] : [`on ${logName}`, ''];
  throw new UnusableFile(
    `The event log ${name} ends at ${head}, and the read models have events up to ${position}: it is an older copy. Put the newest in its place${files}, or restore the store from a backup. If there is none, delete ${folder.itemsFile(version)} with its -wal and -shm files: what was written since that copy is lost.`,
  );
}

const lastOf = async (log: EventLog): Promise<RecordedEvent[]> => {
  const last = await log.readAll(Math.max(0, (await log.head()) - JUDGED_EVENTS), JUDGED_EVENTS, { withBodies: false });
  // A damaged event tells nothing about keys. fsck reports it; it must not keep the store from opening.
  return last.filter((event) => whyUnreadable(event) === undefined);
};

/**
 * Refuses a vault that was restored from an older copy. It lacks the keys of later writes, would give out their ids again, and still
 * has keys that were destroyed since.
 */
function assertKeysOf(events: readonly RecordedEvent[], vault: SqliteKeyVault, folder: DataFolder): void {
  // The log has only the purge of a purged life.
  const purges = events.filter(({ type }) => type === 'ItemPurged');
  const writes = events.filter((event) => isItemWrite(event));
  const missing = [...writes, ...purges].some(({ data }) => Number(data['key']) > vault.lastKeyId);
  // Every purge is checked: a copy has only some of the destroyed keys, since it never had those of later lives.
  const isBack = purges.some(({ data, stream }) => vault.findKey(Number(data['key']), stream).status === 'there');
  if (!missing && !isBack) return;
  throw new UnusableFile(
    `The key vault ${folder.file('vault.db')} is an older copy than the event log: ${missing ? 'it lacks keys of later writes' : 'it has keys that were destroyed since'}. Replace it by the newest one with its -wal file, or restore the store from a backup.`,
  );
}

async function startLogWriter(
  data: LogWriterOptions,
  { writers, onStep, onWriterLost }: Pick<SqliteStorageOptions, 'writers' | 'onStep' | 'onWriterLost'>,
): Promise<Writer> {
  return writers === 'inline'
    ? new InlineWriter(new LogWriterCore(data, onStep))
    : ThreadWriter.start(new URL('./log-writer-thread.ts', import.meta.url), data, onWriterLost);
}

class SqliteReadModels implements ReadModelVersions {
  readonly shared = false;
  readonly #folder: DataFolder;
  readonly #options: SqliteStorageOptions;
  readonly #opening: string | undefined;
  #current: ReadModelVersion;
  /** Whether the read models in use were made at this opening. */
  readonly #isNew: boolean;
  readonly #building = new Map<number, ReadModelStore>();
  #unfinished: ReadModelVersions['unfinished'];

  private constructor(
    folder: DataFolder,
    options: SqliteStorageOptions,
    opening: string | undefined,
    current: ReadModelVersion,
    unfinished: ReadModelVersions['unfinished'],
  ) {
    this.#folder = folder;
    this.#options = options;
    this.#opening = opening;
    this.#current = current;
    this.#isNew = folder.checkpointOf(current.version)?.position === 0;
    this.#unfinished = unfinished;
  }

  readonly explained = (error: unknown): unknown => {
    // A syntax error means damaged JSON. Where no other error type is used, only the read models contain JSON.
    if (!(error instanceof InvariantViolation || error instanceof SyntaxError)) return error;
    const isOfThisLog = this.#isNew && error instanceof InvariantViolation;
    const remedy = isOfThisLog ? whenContradictory() : whenUnfit(this.#folder.itemsFile(this.#current.version));
    return new UnusableFile(`${error.message}: ${remedy}`);
  };

  static async open(folder: DataFolder, options: SqliteStorageOptions, head: number): Promise<SqliteReadModels> {
    const version = folder.itemsVersion;
    const former = folder.checkpointOf(version)?.opening ?? undefined;
    const isOwn = folder.isOwn(former);
    const unfinished = unfinishedIn(folder, head);
    for (const other of folder.itemsVersions()) {
      if (other !== version && other !== unfinished?.version) folder.removeItems(other);
    }
    const file = folder.itemsFile(version);
    if (!isOwn) {
      options.onLoss?.(`${file} was of another copy of the store: the read models are built again from the log.`);
    }
    // Read models of an older version of this program are built again from the log.
    if (!isOwn || isOutdated(file, READ_MODEL_SCHEMA_VERSION)) folder.removeItems(version);
    const opening = folder.nameOpening(isOwn ? former : undefined);
    if (unfinished !== undefined && opening !== undefined) {
      nameOpeningIn(folder.itemsFile(unfinished.version), opening);
    }
    const current = { version, store: await openVersion(folder, options, version, opening) };
    return new SqliteReadModels(folder, options, opening, current, unfinished);
  }

  get current(): ReadModelVersion {
    return this.#current;
  }

  get unfinished(): ReadModelVersions['unfinished'] {
    return this.#unfinished;
  }

  async openUnfinished(): Promise<ReadModelVersion | undefined> {
    if (this.#unfinished === undefined) return undefined;
    const { version } = this.#unfinished;
    this.#unfinished = undefined;
    const store = await openVersion(this.#folder, this.#options, version, this.#opening);
    this.#building.set(version, store);
    return { version, store };
  }

  async createNext(): Promise<ReadModelVersion> {
    this.#folder.assertInPlace();
    const version = Math.max(this.#current.version, ...this.#folder.itemsVersions()) + 1;
    this.#options.onStep?.('read model build: before');
    const store = await openVersion(this.#folder, this.#options, version, this.#opening);
    this.#options.onStep?.('read model build: begun');
    this.#building.set(version, store);
    return { version, store };
  }

  async swapTo(version: number): Promise<void> {
    const store = this.#building.get(version);
    if (store === undefined) throw new Error(`no read model of version ${version} was built`);
    const old = this.#current;
    this.#options.onStep?.('read model swap: before');
    this.#folder.useItemsVersion(version);
    this.#options.onStep?.('read model swap: after');
    this.#current = { version, store };
    this.#building.delete(version);
    await old.store.close();
    this.#folder.removeItems(old.version);
  }

  async discard(version: number): Promise<void> {
    // A swap may have failed only because it could not remove the former version; then the new version is in use.
    if (version === this.#current.version) return;
    if (this.#unfinished?.version === version) this.#unfinished = undefined;
    await this.#building.get(version)?.close();
    this.#building.delete(version);
    this.#folder.removeItems(version);
  }

  async close(): Promise<void> {
    for (const store of this.#building.values()) await store.close();
    await this.#current.store.close();
  }
}

/**
 * A version later than the one in use is an interrupted rebuild, if its file can be read. It is continued, with three exceptions:
 * one with values in clear, which no purge would remove until the rebuild is continued; one that is ahead of the log's head, since
 * the log was restored from an older copy and will give those positions to other events; and one of another copy of the folder.
 */
function unfinishedIn(folder: DataFolder, head: number): ReadModelVersions['unfinished'] {
  const version = Math.max(...folder.itemsVersions(), 0);
  if (version <= folder.itemsVersion) return undefined;
  const checkpoint = folder.checkpointOf(version);
  if (checkpoint === undefined || checkpoint.position > head || !folder.isOwn(checkpoint.opening ?? undefined)) {
    return undefined;
  }
  return hasClearValues(folder.itemsFile(version)) ? undefined : { version, position: checkpoint.position };
}

async function openVersion(
  folder: DataFolder,
  { writers, onStep, onWriterLost, durable, logElsewhere, readModelLag }: SqliteStorageOptions,
  version: number,
  opening: string | undefined,
): Promise<ReadModelStore> {
  const file = folder.itemsFile(version);
  const data: ReadModelWriterOptions = { file, synchronous: durable === false ? 'OFF' : 'NORMAL' };
  const writer =
    writers === 'inline'
      ? new InlineWriter(new ReadModelWriterCore(data, onStep))
      : await ThreadWriter.start(new URL('./read-model-writer-thread.ts', import.meta.url), data, onWriterLost);
  if (opening !== undefined) nameOpeningIn(file, opening);
  const store = new SqliteReadModelStore(writer, openForReading(file));
  // Reading a log during a scavenge may yield events that don't fit, which are then read again. Such a misfit must show at once.
  const lag = readModelLag ?? (writers === 'inline' || logElsewhere !== undefined ? undefined : READ_MODEL_LAG);
  return lag === undefined ? store : new WriteBehindReadModelStore(store, lag);
}
