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
  /** Paths of files and folders that the store is given, which may be in the folder before there is a store in it. */
  readonly besides?: readonly string[];
  /** Where backups may be written; nowhere when not given. */
  readonly backupsInto?: BackupParts['into'];
  /** Where the manual clock of a new folder starts, in milliseconds; the system's time by default. */
  readonly startMs?: number | undefined;
  /** How far the system clock may be from the time last used in the folder, in seconds; see {@link GuardedClock}. */
  readonly maxDowntimeSeconds?: number | undefined;
  /** Connection string of the EventStoreDB or KurrentDB that has the event log; in the folder when not given. */
  readonly eventStore?: string | undefined;
  /** Keys and read models on a server, shared by several nodes; in the folder when not given. */
  readonly shared?: SharedStorageOptions | undefined;
}

export interface SharedStorageOptions extends Omit<SeveralNodes, 'readModels'> {
  /** URL of the PostgreSQL database. */
  readonly url: string;
  readonly copiesKeptSeconds?: number | undefined;
  /** True for who ends a restore: the parts need not go together yet. */
  readonly restoring?: boolean | undefined;
}

type Storage = Omit<SqliteStorage, 'vault' | 'readModels' | 'proof' | 'backupSource'> &
  Pick<StoreOptions, 'vault' | 'readModels' | 'nodes' | 'proof'> &
  Partial<Pick<SqliteStorage, 'backupSource'>> & { readonly ledgerHead?: BackupParts['ledgerHead'] };

/**
 * The store on one folder: log, vault and read models in SQLite files of it, each unless it is on a server.
 *
 * @throws {BadConnectionString | FolderInUse | UnusableFile | UnusableServer} with a message for whoever starts the store
 * @throws {StorageUnavailable} where a server that it needs can't be reached
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
            // Two nodes are then within half of the delay, by which policies allow for clocks that differ.
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
  // Loaded only where it is used: the client and its gRPC take a while.
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

/** What all nodes sign proofs with is a secret of the vault under this name, as if of a container. */
const PROOF_SECRET = 'proof';

/** Keys and read models in PostgreSQL; of this node's own there is only the clock's mark, in its folder. */
async function openSharedStorage(
  options: EmbeddedStoreOptions,
  { url, copiesKeptSeconds, restoring, roles, policyDelayMs }: SharedStorageOptions,
  log: OpenLogElsewhere,
): Promise<Storage> {
  const { openPostgresStorage } = await import('@epitaph/storage/postgres/open-postgres-storage.ts');
  // A new node of an old log: what it has to know of that is in PostgreSQL.
  const folder = DataFolder.open(options.folder, options.clock, { ...log, isEmpty: true });
  const opened = new Opened();
  opened.add(() => folder.close());
  try {
    const { masterKey } = options;
    const storage = await openPostgresStorage({ url, masterKey, copiesKeptSeconds, restoring, log });
    opened.add(() => storage.close());
    const destructions = new Destructions(log.log, storage.sealer);
    if (restoring !== true) await assertSameMoment(log.log, storage, destructions);
    // The same log makes the same tree on every node; what they sign it with is the same secret.
    const proofs = new SqliteProofStore(folder.file('proof.db'));
    opened.add(() => proofs.close());
    const hadKey = (await storage.vault.secretOf(PROOF_SECRET)) !== undefined;
    const signer = ProofSigner.fromSeed(await storage.vault.containerSecret(PROOF_SECRET));
    if (!hadKey && !log.isEmpty) {
      options.onLoss?.(
        `The key that proofs are signed with was missing among the keys in PostgreSQL: they are signed with a new key, "${signer.key.name}", from now on. Give auditors its public key (GET /_epitaph/proof/key); or put back the row "container ${PROOF_SECRET}" of epitaph_vault.secrets from a copy, and start all nodes again.`,
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
 * Log, keys and read models that were put back from copies of different moments would show what was erased, or hide
 * what is there. What can be told of that is told before anything is served.
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
    throw new UnusableServer(`${what}. Call epitaph restore first; docs/backup-and-restore.md says how.`);
  };
  if (isOlder) {
    refuse('The keys in PostgreSQL are an older copy than the event log: it has keys that were destroyed since');
  }
  if (position > head) {
    refuse('The read models in PostgreSQL are ahead of the event log, which is an older copy');
  }
  // Whoever makes a key has it stored before anything of its life is written.
  const written = (await lastEvents(log, readModels.current.store)).filter((event) => isItemWrite(event));
  if (await vault.lacks(written.map(({ stream, data }) => ({ keyId: Number(data['key']), stream })))) {
    refuse('The keys in PostgreSQL are an older copy than the event log: keys of what was written since are not in it');
  }
}
