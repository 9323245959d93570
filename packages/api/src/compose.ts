import { GuardedClock, ManualClock, systemClocks } from '@epitaph/core/clock.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { checkpointCryptography, ProofSigner } from '@epitaph/storage/crypto/proof-signer.ts';
import { lastEvents } from '@epitaph/storage/last-events.ts';
import { Opened } from '@epitaph/storage/opened.ts';
import { assertNotForeign, DataFolder, type OpenLogElsewhere } from '@epitaph/storage/sqlite/data-folder.ts';
import {
  openSqliteStorage,
  type SqliteStorage,
  type SqliteStorageOptions,
} from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { SqliteProofStore } from '@epitaph/storage/sqlite/sqlite-proof-store.ts';
import type { PostgresStorage } from '@epitaph/storage/postgres/open-postgres-storage.ts';
import { Destructions } from '@epitaph/projections/purge/destructions.ts';
import type { BackupParts } from './store/operations/backups.ts';
import type { SeveralNodes } from './store/parts.ts';
import { Store, type StoreOptions } from './store/store.ts';

export interface EmbeddedStoreOptions
  extends
    Omit<SqliteStorageOptions, 'logElsewhere'>,
    Pick<
      StoreOptions,
      | 'policyGraceSeconds'
      | 'readyLagEvents'
      | 'scavengeEverySeconds'
      | 'automaticPurge'
      | 'defaultThroughput'
      | 'serverless'
      | 'monotonicMs'
      | 'pageWaitMs'
      | 'onFault'
      | 'onUnreadable'
      | 'newId'
      | 'keysAsOf'
    > {
  /** Paths of files and folders given to the store that may be in the folder before it contains a store. */
  readonly besides?: readonly string[];
  /** Where backups may be written; nowhere when not given. */
  readonly backupsInto?: BackupParts['into'];
  /** The start of the manual clock in a new folder, in milliseconds; the system's time by default. */
  readonly startMs?: number | undefined;
  /**
   * How far the system clock may differ from the time last used in the folder, in seconds; see {@link GuardedClock}.
   */
  readonly maxDowntimeSeconds?: number | undefined;
  /** Connection string of the EventStoreDB or KurrentDB with the event log. Without it, the log is in the folder. */
  readonly eventStore?: string | undefined;
  /** Keys and read models on a server that several nodes share. Without it, they are in the folder. */
  readonly shared?: SharedStorageOptions | undefined;
}

export interface SharedStorageOptions extends Omit<SeveralNodes, 'readModels'> {
  /** URL of the PostgreSQL database. */
  readonly url: string;
  readonly copiesKeptSeconds?: number | undefined;
  /** True for the last step of a restore: log, keys and read models need not belong together yet. */
  readonly restoring?: boolean | undefined;
}

type Storage = Omit<SqliteStorage, 'vault' | 'readModels' | 'proof' | 'backupSource'> &
  Pick<StoreOptions, 'vault' | 'readModels' | 'nodes' | 'proof'> &
  Partial<Pick<SqliteStorage, 'backupSource'>> & { readonly ledgerHead?: BackupParts['ledgerHead'] };

/**
 * Opens the store of one folder. Log, vault and read models are SQLite files in it, except for those on a server.
 *
 * @throws {BadConnectionString | FolderInUse | UnusableFile | UnusableServer} with a message for the operator who
 *   starts the store
 * @throws {StorageUnavailable} when a server that it needs can't be reached
 */
export async function openEmbeddedStore(options: EmbeddedStoreOptions): Promise<Store> {
  const storage = await openStorage(options);
  try {
    const mark = storage.highWaterMark;
    const clock =
      options.clock === 'manual'
        ? new ManualClock(mark.initialMs > 0 ? mark.initialMs : (options.startMs ?? systemClocks.wallMs()), mark)
        : new GuardedClock({
            sources: systemClocks,
            mark,
            maxDowntimeMs: (options.maxDowntimeSeconds ?? Number.POSITIVE_INFINITY) * 1000,
            // The clocks of two nodes then differ by at most half of the delay, which is what policies allow for.
            ...(options.shared === undefined ? {} : { mayDifferMs: options.shared.policyDelayMs / 4 }),
          });
    return await Store.open({
      ...options,
      log: storage.log,
      vault: storage.vault,
      sealer: storage.sealer,
      naming: storage.naming,
      proof: storage.proof,
      readModels: storage.readModels,
      nodes: storage.nodes,
      backup: { source: storage.backupSource, ledgerHead: storage.ledgerHead, into: options.backupsInto },
      clock,
      closePorts: () => storage.close(),
    });
  } catch (error) {
    await storage.close();
    throw error;
  }
}

async function openStorage(options: EmbeddedStoreOptions): Promise<Storage> {
  assertNotForeign(options.folder, options.besides ?? []);
  if (options.eventStore === undefined) return openSqliteStorage(options);
  // Loaded only when it is used, because the client and its gRPC take a while to load.
  const { openLogElsewhere } = await import('@epitaph/storage/eventstoredb/open-event-store-log.ts');
  const logElsewhere = await openLogElsewhere(options.eventStore);
  try {
    return options.shared === undefined
      ? await openSqliteStorage({ ...options, logElsewhere })
      : await openSharedStorage(options, options.shared, logElsewhere);
  } catch (error) {
    await logElsewhere.log.close();
    throw error;
  }
}

/** The name in the vault, as if of a container, of the secret with which all nodes sign proofs. */
const PROOF_SECRET = 'proof';

/** Keys and read models in PostgreSQL. The node's own folder has only the clock's mark and the tree of proofs. */
async function openSharedStorage(
  options: EmbeddedStoreOptions,
  { url, copiesKeptSeconds, restoring, roles, policyDelayMs }: SharedStorageOptions,
  log: OpenLogElsewhere,
): Promise<Storage> {
  const { openPostgresStorage } = await import('@epitaph/storage/postgres/open-postgres-storage.ts');
  // For a new node of an old log, everything that it must know about the log is in PostgreSQL.
  const folder = DataFolder.open(options.folder, options.clock, { ...log, isEmpty: true });
  const opened = new Opened();
  opened.add(() => folder.close());
  try {
    const { masterKey } = options;
    const storage = await openPostgresStorage({ url, masterKey, copiesKeptSeconds, restoring, log });
    opened.add(() => storage.close());
    const destructions = new Destructions(log.log, storage.sealer);
    if (restoring !== true) await assertSameMoment(log.log, storage, destructions);
    // The same log gives the same tree on every node, and all nodes sign it with the same secret.
    const proofs = new SqliteProofStore(folder.file('proof.db'));
    opened.add(() => proofs.close());
    const hadKey = (await storage.vault.secretOf(PROOF_SECRET)) !== undefined;
    const signer = ProofSigner.fromSeed(await storage.vault.containerSecret(PROOF_SECRET));
    if (!hadKey && !log.isEmpty) {
      options.onLoss?.(
        `The key that proofs are signed with was missing among the keys in PostgreSQL: proofs are signed with a new key, "${signer.key.name}", from now on. Give auditors its public key (GET /_epitaph/proof/key); or restore the row "container ${PROOF_SECRET}" of epitaph_vault.secrets from a copy, and restart all nodes.`,
      );
    }
    return {
      ...storage,
      ledgerHead: () => destructions.head(),
      proof: { store: proofs, signer, cryptography: checkpointCryptography },
      log: log.log,
      nodes: { readModels: storage.readModels, roles, policyDelayMs, commonMs: () => storage.nowMs() },
      highWaterMark: folder.highWaterMark(),
      close: async () => {
        await log.log.close();
        await opened.close();
      },
    };
  } catch (error) {
    await opened.close();
    throw error;
  }
}

/**
 * If log, keys and read models were restored from copies of different moments, they would show what was erased, or hide
 * what exists. Whatever shows such a difference is checked before any request is served.
 */
async function assertSameMoment(
  log: EventLog,
  { vault, readModels }: Pick<PostgresStorage, 'vault' | 'readModels'>,
  destructions: Destructions,
): Promise<void> {
  const { UnusableServer } = await import('@epitaph/storage/postgres/database.ts');
  const isOlder = await destructions.areMissingIn(vault);
  // In this order, because other nodes are at work: they record before they project.
  const position = await readModels.current.store.checkpoint();
  const head = await log.head();
  const refuse = (what: string): never => {
    throw new UnusableServer(`${what}. Run epitaph restore first; docs/backup-and-restore.md says how.`);
  };
  if (isOlder) {
    refuse('The keys in PostgreSQL are an older copy than the event log: it has keys that were destroyed since');
  }
  if (position > head) {
    refuse('The read models in PostgreSQL are ahead of the event log, which is an older copy');
  }
  // A node stores a new key before it writes anything to the key's life.
  const written = (await lastEvents(log, readModels.current.store)).filter((event) => isItemWrite(event));
  if (await vault.lacks(written.map(({ stream, data }) => ({ keyId: Number(data['key']), stream })))) {
    refuse('The keys in PostgreSQL are an older copy than the event log: they lack keys of later writes');
  }
}
