import { type Clock, type ClockJump, GuardedClock, ManualClock, systemClocks } from '@epitaph/core/clock.ts';
import { DEFAULT_POLICY_GRACE_SECONDS } from '@epitaph/core/container/upcast.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { Throughput } from '@epitaph/core/throughput/throughput.ts';
import type { UnreadableEvent } from '@epitaph/core/upcast.ts';
import type { Catalog } from '@epitaph/projections/catalog/catalog.ts';
import { recordAction } from '@epitaph/projections/operator-actions.ts';
import type { Projection } from '@epitaph/projections/projection.ts';
import { Projector, type ProjectorOptions } from '@epitaph/projections/projector.ts';
import { Destructions } from '@epitaph/projections/purge/destructions.ts';
import { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { VaultCopies } from '@epitaph/projections/purge/vault-copies.ts';
import {
  ANYTHING,
  type ReadModelNews,
  SharedProjector,
  type SharedProjectorOptions,
} from '@epitaph/projections/shared-projector.ts';
import { Measurements, type OperationKind } from '../metrics/measurements.ts';
import { RequestUnits } from '../request-units/request-units.ts';
import { type BackupParts, Backups, type RestoredFrom } from './operations/backups.ts';
import { CatalogCommands } from './catalog/catalog-commands.ts';
import { ChangeFeeds } from './change-feed/change-feed.ts';
import { ClientEncryptionKeys } from './catalog/client-encryption-keys.ts';
import { CommonClock } from './common-clock.ts';
import { Documents } from './items/documents.ts';
import { Erasures } from './retention/erasures.ts';
import { FeedFloors } from './change-feed/feed-floors.ts';
import { Histories } from './history/histories.ts';
import { Holds } from './retention/holds.ts';
import { ItemReads } from './items/item-reads.ts';
import { ItemWrites } from './items/item-writes.ts';
import { Observer } from './observer.ts';
import { Operations } from './operations/operations.ts';
import { StoreParts, type StorePorts } from './parts.ts';
import { ItemRows } from './item-rows.ts';
import { Previews } from './retention/previews.ts';
import { Queries } from './queries/queries.ts';
import { type ProofParts, Proofs } from './history/proofs.ts';
import { Rebuilds } from './operations/rebuilds.ts';
import { Recoveries } from './retention/recoveries.ts';
import { Replays } from './history/replays.ts';
import { ResourceTokens } from './catalog/resource-tokens.ts';
import { Retries } from './retries.ts';
import { Scavenging } from './operations/scavenging.ts';
import type { StoreApi } from './store-api.ts';
import { Scripts } from './catalog/scripts.ts';
import { Users } from './catalog/users.ts';

export interface StoreOptions extends Omit<StorePorts, 'clock' | 'clockJump' | 'monotonicMs' | 'newId'> {
  readonly clock: GuardedClock | ManualClock;
  /** Closes the resources behind the ports. Called last. */
  readonly closePorts: () => Promise<void>;
  /** Policy grace of newly created containers, in seconds; 24 hours by default. */
  readonly policyGraceSeconds?: number;
  /** If false, the purge runs only in {@link StoreApi.runPurge}. */
  readonly automaticPurge?: boolean;
  /** Number of events behind the log from which the store reports that it isn't ready; 10,000 by default. */
  readonly readyLagEvents?: number | undefined;
  readonly onFault?: (error: unknown) => void;
  /** Called once for each event that can't be read, when the read models come to it. */
  readonly onUnreadable?: (error: UnreadableEvent) => void;
  /** Seconds between scavenges, for a log that keeps what was truncated. By default the store starts none. */
  readonly scavengeEverySeconds?: number | undefined;
  /** What backups need. Without it, the store takes none. */
  readonly backup?: BackupParts | undefined;
  /** True for a restore, which erases nothing before {@link Store.settleRestored}. */
  readonly restoring?: boolean | undefined;
  /** Set for a restore: the log's head when the keys were copied, if that is known. */
  readonly keysAsOf?: number | undefined;
  /** What proofs need. Without it, the store proves nothing. */
  readonly proof?: ProofParts | undefined;
  /** Throughput of containers created without one, in a database that shares none; no throughput by default. */
  readonly defaultThroughput?: Throughput | undefined;
  /** If true, no container has a throughput: request units are metered but not limited. */
  readonly serverless?: boolean | undefined;
  readonly newId?: () => string;
  readonly monotonicMs?: () => number;
  /** Milliseconds that a request waits for a page of a query before it is answered without rows; 10,000 by default. */
  readonly pageWaitMs?: number;
}

interface OpenedParts {
  readonly parts: StoreParts;
  readonly purge: PurgeRunner;
  readonly documents: Documents;
  readonly queries: Queries;
  readonly floors: FeedFloors;
  readonly retries: Retries;
  readonly requestUnits: RequestUnits;
  readonly measurements: Measurements;
  readonly observer: Observer;
  readonly copies: VaultCopies;
  readonly commonClock: CommonClock;
}

/** The whole store behind one object; see {@link StoreApi} for what each method does. */
export class Store implements StoreApi {
  readonly measurements: Measurements;
  readonly requestUnits: RequestUnits;
  readonly #parts: StoreParts;
  readonly #clock: GuardedClock | ManualClock;
  readonly #purge: PurgeRunner;
  readonly #catalog: CatalogCommands;
  readonly #previews: Previews;
  readonly #users: Users;
  readonly #tokens: ResourceTokens;
  readonly #scripts: Scripts;
  readonly #encryptionKeys: ClientEncryptionKeys;
  readonly #reads: ItemReads;
  readonly #writes: ItemWrites;
  readonly #queries: Queries;
  readonly #changeFeeds: ChangeFeeds;
  readonly #histories: Histories;
  readonly #holds: Holds;
  readonly #erasures: Erasures;
  readonly #retries: Retries;
  readonly #recoveries: Recoveries;
  readonly #replays: Replays;
  readonly #proofs: Proofs;
  readonly #rebuilds: Rebuilds;
  readonly #operations: Operations;
  readonly #scavenging: Scavenging;
  readonly #observer: Observer;
  readonly #backups: Backups;
  readonly #commonClock: CommonClock;
  readonly #closePorts: () => Promise<void>;
  #underWay = 0;
  readonly #whenIdle: (() => void)[] = [];

  private constructor(options: StoreOptions, opened: OpenedParts) {
    const { onFault = () => {} } = options;
    const { parts, purge, documents, floors, retries, requestUnits, measurements } = opened;
    this.requestUnits = requestUnits;
    this.measurements = measurements;
    this.#observer = opened.observer;
    this.#parts = parts;
    this.#clock = options.clock;
    this.#purge = purge;
    this.#previews = new Previews(parts);
    this.#catalog = new CatalogCommands(parts, this.#previews, floors, {
      policyGraceSeconds: options.policyGraceSeconds ?? DEFAULT_POLICY_GRACE_SECONDS,
      defaultThroughput: options.defaultThroughput,
      serverless: requestUnits.serverless,
    });
    this.#users = new Users(parts);
    this.#tokens = new ResourceTokens(parts);
    this.#scripts = new Scripts(parts);
    this.#encryptionKeys = new ClientEncryptionKeys(parts);
    this.#reads = new ItemReads(parts, documents);
    this.#writes = new ItemWrites(parts, documents);
    this.#queries = opened.queries;
    this.#changeFeeds = new ChangeFeeds(parts, documents);
    this.#histories = new Histories(parts);
    this.#retries = retries;
    this.#holds = new Holds(parts, this.#queries, purge, retries);
    this.#erasures = new Erasures(parts, purge, retries);
    this.#recoveries = new Recoveries(parts, purge, this.#writes, documents, this.#erasures);
    this.#replays = new Replays(parts);
    this.#proofs = new Proofs(parts, options.proof, onFault);
    this.#rebuilds = new Rebuilds(parts, purge);
    this.#scavenging = new Scavenging(parts, purge, {
      everySeconds: options.scavengeEverySeconds ?? null,
      onFault,
    });
    this.#backups = new Backups(parts, opened.copies, options.backup ?? { source: undefined });
    this.#operations = new Operations(
      parts,
      purge,
      this.#rebuilds,
      this.#scavenging,
      this.#backups,
      measurements,
      options,
    );
    this.#commonClock = opened.commonClock;
    this.#closePorts = options.closePorts;
  }

  /** Catches up with the log, finishes what a crash left half done, and begins to purge. */
  static async open(options: StoreOptions): Promise<Store> {
    const { clock, onFault = () => {} } = options;
    const measurements = new Measurements();
    const monotonicMs = options.monotonicMs ?? systemClocks.monotonicMs;
    const observer = new Observer(measurements, monotonicMs);
    const ports: StorePorts = {
      log: observer.log(options.log),
      vault: options.vault,
      sealer: options.sealer,
      naming: options.naming,
      readModels: options.readModels,
      nodes: options.nodes,
      clock,
      clockJump: () => jumpOf(clock),
      monotonicMs,
      newId: options.newId ?? (() => crypto.randomUUID()),
    };
    await observeLast(ports.log, clock);
    const commonClock = new CommonClock(clock, ports.nodes, monotonicMs);
    const documents = new Documents(ports, measurements);
    const rows = new ItemRows(() => ports.readModels.current.store, ports.readModels);
    const projector = projectorOf(ports, {
      around: (events, apply) => observer.apply(events, apply),
      onApplying: (changes) => rows.applying(changes),
      onFailed: () => rows.failed(),
      onUnreadable: options.onUnreadable,
      onApplied: (changes) => {
        rows.applied(changes);
        purge.observe(changes);
        for (const change of changes) {
          if (change.kind === 'container') forgetGone({ containers: [change.number], databases: [] });
          else if (change.kind === 'database' && change.state.status === 'deleted') {
            forgetGone({ containers: [], databases: [change.state.rid] });
          }
        }
      },
      onNews: (news) => {
        const { containers, erased } = news;
        purge.touched(news);
        documents.evict(erased);
        if (containers === undefined) {
          documents.clear();
          queries.erased(undefined);
        } else if (erased.length > 0) queries.erased(erased);
        forgetGone(news);
      },
    });
    const requestUnits = new RequestUnits({
      monotonicMs: ports.monotonicMs,
      database: (rid) => projector.catalog.databaseByRid(rid),
      serverless: options.serverless ?? false,
    });
    const forgetGone = (changed: ChangedContainers) => {
      for (const rid of goneAmong(changed, projector.catalog)) requestUnits.forget(rid);
    };
    const parts = new StoreParts(ports, projector, rows);
    const queries = new Queries(parts, documents, requestUnits, options.pageWaitMs);
    const retries = new Retries(onFault, { mayAppendLate: ports.log.mayAppendLate ?? false });
    const copies = await VaultCopies.open(ports.log);
    const purge = new PurgeRunner({
      ...ports,
      store: () => ports.readModels.current.store,
      catalog: () => projector.catalog,
      projected: (position) => parts.projected(position),
      check: parts.catalogCheck,
      commandUnderWay: (container) => parts.busy(container),
      changeUnderWay: (container) => parts.changeUnderWay(container),
      onExpiriesRecorded: (container, atMs) => parts.expirySeen(container, atMs),
      onErased: (positions) => {
        documents.evict(positions);
        queries.erased(positions);
        rows.erased();
        // If this fails, other nodes keep the content in memory for a while, where no row leads to it any more.
        options.nodes?.readModels.tellErased(positions).catch(() => {});
      },
      othersControl: options.nodes !== undefined,
      ...(options.nodes === undefined ? {} : { confirmCatalog: (maxAgeMs) => parts.confirmCatalog(maxAgeMs) }),
      budget: requestUnits,
      copiesKeptUntilMs: () => copies.recoverableUntilMs(clock.now()),
      clockTrusted: () => jumpOf(clock) === undefined,
      onFault: (error) => {
        measurements.purgeFaults += 1;
        onFault(error);
      },
      around: (step, work) => observer.purgeStep(step, work),
    });
    try {
      await commonClock.start();
      await projector.start().catch((error: unknown) => {
        throw ports.readModels.explained?.(error) ?? error;
      });
      parts.opened();
      const floors = new FeedFloors({
        log: ports.log,
        vault: ports.vault,
        catalog: () => projector.catalog,
        othersRaise: options.nodes !== undefined,
        confirmCatalog: () => parts.recorded(),
        onLowered: () => purge.lookAgain(),
        retries,
      });
      await floors.settleAll();
      if (options.restoring !== true) ports.vault.onNewSecret?.((rid) => parts.assertNothingNamed(rid));
      const store = new Store(options, {
        parts,
        purge,
        documents,
        queries,
        floors,
        retries,
        requestUnits,
        measurements,
        observer,
        copies,
        commonClock,
      });
      await store.#begin(options, floors);
      return store;
    } catch (error) {
      // These run by themselves and would keep the process alive.
      commonClock.stop();
      await retries.stop();
      await purge.stop();
      await projector.close();
      throw error;
    }
  }

  /** Makes the vault keep what is recorded as kept, finishes what a crash left half done, and begins to purge. */
  async #begin(
    { nodes, restoring = false, keysAsOf, automaticPurge = true, scavengeEverySeconds }: StoreOptions,
    floors: FeedFloors,
  ): Promise<void> {
    const { log, vault, sealer, readModels } = this.#parts.ports;
    await this.#proofs.prepare();
    if (restoring) await this.#holds.recordUnknown(this.#backups.restoring(), keysAsOf);
    // Before anything is erased, the vault must have every recorded hold and floor.
    await this.#holds.settleAll();
    vault.onServerReplaced?.(async () => {
      await new Destructions(log, sealer).assertIn(vault);
      await this.#parts.confirmCatalog(0);
      await floors.settleAll();
      await this.#holds.settleAll();
    });
    // A restore does this later, when it knows all copies of the keys, which the records of the erasures must name.
    if (!restoring) await this.#erasures.resumeAll();
    const mayPurge = nodes?.roles.has('purge') ?? true;
    await this.#purge.start({ automatic: mayPurge && automaticPurge }).catch((error: unknown) => {
      // A syntax error means that the read models' record of an unfinished run is damaged.
      throw (error instanceof SyntaxError ? readModels.explained?.(error) : undefined) ?? error;
    });
    if (mayPurge && nodes !== undefined) this.#erasures.watchOthers();
    if (mayPurge && scavengeEverySeconds !== undefined) this.#scavenging.startSchedule();
    this.#proofs.start();
  }

  /** True while this node keeps the read models up to date. Of several nodes, one does. */
  get projects(): boolean {
    return this.#parts.projector.projects;
  }

  settleNames: StoreApi['settleNames'] = (database, container, isSure = false) => {
    if (this.#parts.ports.nodes === undefined) return undefined;
    const isKnown = container !== undefined && this.#ridOf(database, container) !== undefined;
    return isKnown && !isSure ? undefined : this.#parts.confirmCatalog(0);
  };

  whoHas: StoreApi['whoHas'] = (database, container) => {
    if (this.#parts.ports.nodes === undefined) return undefined;
    const before = this.#ridOf(database, container);
    return async () => {
      await this.#parts.confirmCatalog(0);
      return this.#ridOf(database, container) !== before;
    };
  };

  /** The rid of the container with a name; without a container name, the rid of the database. */
  #ridOf(database: string | undefined, container: string | undefined): string | undefined {
    const { catalog } = this.#parts;
    const rid = database === undefined ? undefined : catalog.databaseByName(database)?.rid;
    if (rid === undefined || container === undefined) return rid;
    return catalog.containerByName(rid, container)?.state.rid;
  }

  listDatabases: StoreApi['listDatabases'] = () => this.#parts.catalog.liveDatabases();
  database: StoreApi['database'] = (name) => this.#catalog.database(name);
  databaseByRid: StoreApi['databaseByRid'] = (rid) => this.#parts.catalog.databaseByRid(rid);
  createDatabase: StoreApi['createDatabase'] = (...args) => this.#finished(this.#catalog.createDatabase(...args));
  deleteDatabase: StoreApi['deleteDatabase'] = (...args) => this.#finished(this.#catalog.deleteDatabase(...args));

  changeDatabaseThroughput: StoreApi['changeDatabaseThroughput'] = (...args) =>
    this.#finished(this.#catalog.changeDatabaseThroughput(...args));

  listContainers: StoreApi['listContainers'] = (database) =>
    this.#parts.catalog.liveContainers(this.#catalog.database(database).rid);
  container: StoreApi['container'] = (database, name) => this.#catalog.container(database, name);
  containerByRid: StoreApi['containerByRid'] = (rid) => this.#parts.catalog.containerWithEnd(rid);
  deletedContainers: StoreApi['deletedContainers'] = (database, name) =>
    this.#parts.catalog.deletedContainers(database, name);
  createContainer: StoreApi['createContainer'] = (...args) => this.#finished(this.#catalog.createContainer(...args));
  replaceContainer: StoreApi['replaceContainer'] = (...args) => this.#finished(this.#catalog.replaceContainer(...args));
  deleteContainer: StoreApi['deleteContainer'] = (...args) => this.#finished(this.#catalog.deleteContainer(...args));
  changeContainerThroughput: StoreApi['changeContainerThroughput'] = (...args) =>
    this.#finished(this.#catalog.changeContainerThroughput(...args));
  previewTtl: StoreApi['previewTtl'] = (...args) => this.#previews.preview(...args);
  changeTtl: StoreApi['changeTtl'] = (...args) => this.#finished(this.#catalog.changeTtl(...args));
  withdrawTtl: StoreApi['withdrawTtl'] = (...args) => this.#finished(this.#catalog.withdrawTtl(...args));
  setTtlBrake: StoreApi['setTtlBrake'] = (...args) => this.#finished(this.#catalog.setTtlBrake(...args));
  setPolicyGrace: StoreApi['setPolicyGrace'] = (...args) =>
    this.#finished(
      this.#catalog.setPolicyGrace(...args).then(async (container) => {
        // Erasures that were due under the former grace and had been begun are finished before the answer. None of them comes after it.
        await this.#purge.keptFromNow();
        return container;
      }),
    );

  listUsers: StoreApi['listUsers'] = (databaseRid) => this.#users.list(databaseRid);
  user: StoreApi['user'] = (databaseRid, name) => this.#users.find(databaseRid, name);
  createUser: StoreApi['createUser'] = (...args) => this.#finished(this.#users.create(...args));
  renameUser: StoreApi['renameUser'] = (...args) => this.#finished(this.#users.rename(...args));
  deleteUser: StoreApi['deleteUser'] = (...args) => this.#finished(this.#users.delete(...args));
  writePermission: StoreApi['writePermission'] = (...args) => this.#finished(this.#users.writePermission(...args));
  replacePermission: StoreApi['replacePermission'] = (...args) =>
    this.#finished(this.#users.replacePermission(...args));
  deletePermission: StoreApi['deletePermission'] = (...args) => this.#finished(this.#users.deletePermission(...args));
  tokenSigner: StoreApi['tokenSigner'] = (databaseRid) => this.#finished(this.#tokens.signer(databaseRid));
  verifyResourceToken: StoreApi['verifyResourceToken'] = (token) => this.#finished(this.#tokens.verify(token));

  listClientEncryptionKeys: StoreApi['listClientEncryptionKeys'] = (databaseRid) =>
    this.#encryptionKeys.list(databaseRid);
  clientEncryptionKey: StoreApi['clientEncryptionKey'] = (databaseRid, name) =>
    this.#encryptionKeys.find(databaseRid, name);
  createClientEncryptionKey: StoreApi['createClientEncryptionKey'] = (...args) =>
    this.#finished(this.#encryptionKeys.create(...args));
  rewrapClientEncryptionKey: StoreApi['rewrapClientEncryptionKey'] = (...args) =>
    this.#finished(this.#encryptionKeys.rewrap(...args));

  listScripts: StoreApi['listScripts'] = (...args) => this.#scripts.list(...args);
  script: StoreApi['script'] = (...args) => this.#scripts.find(...args);
  scriptToRun: StoreApi['scriptToRun'] = (...args) => this.#scripts.find(...args);
  writeScript: StoreApi['writeScript'] = (...args) => this.#finished(this.#scripts.write(...args));
  replaceScript: StoreApi['replaceScript'] = (...args) => this.#finished(this.#scripts.replace(...args));
  deleteScript: StoreApi['deleteScript'] = (...args) => this.#finished(this.#scripts.delete(...args));

  writeItem: StoreApi['writeItem'] = (...args) => this.#measured(args[2], () => this.#writes.write(...args));
  patchItem: StoreApi['patchItem'] = (...args) => this.#measured('patch', () => this.#writes.patch(...args));
  deleteItem: StoreApi['deleteItem'] = (...args) => this.#measured('delete', () => this.#writes.delete(...args));
  batchItems: StoreApi['batchItems'] = (...args) => this.#measured('batch', () => this.#writes.batch(...args));
  deletePartitionKey: StoreApi['deletePartitionKey'] = (...args) =>
    this.#finished(this.#catalog.deletePartitionKey(...args));
  readItem: StoreApi['readItem'] = (...args) => this.#observer.operation('read', () => this.#reads.read(...args));
  itemByBirth: StoreApi['itemByBirth'] = (...args) => this.#finished(this.#reads.byBirth(...args));
  snapshotItems: StoreApi['snapshotItems'] = (container) => this.#reads.snapshot(container);
  countItems: StoreApi['countItems'] = (container) => this.#reads.count(container);
  listItems: StoreApi['listItems'] = (...args) => this.#measured('list', () => this.#reads.list(...args));
  queryItems: StoreApi['queryItems'] = (container, request) =>
    this.#measured('query', () => this.#queries.query(container, request));

  readChangeFeed: StoreApi['readChangeFeed'] = (...args) =>
    this.#measured('change-feed', () => this.#changeFeeds.read(...args));

  history: StoreApi['history'] = (...args) => this.#histories.history(...args);
  historyPage: StoreApi['historyPage'] = (...args) => this.#histories.historyPage(...args);
  containerHistory: StoreApi['containerHistory'] = (...args) => this.#histories.containerHistory(...args);
  deletionWithDatabase: StoreApi['deletionWithDatabase'] = (...args) => this.#histories.deletionWithDatabase(...args);
  explain: StoreApi['explain'] = (...args) =>
    this.#observer.operation('explain', () => this.#histories.explain(...args));
  contentAt: StoreApi['contentAt'] = (...args) => this.#reads.contentAt(...args);
  replay: StoreApi['replay'] = (...args) => this.#finished(this.#replays.replay(...args));
  asOf: StoreApi['asOf'] = (...args) => this.#finished(this.#replays.asOf(...args));
  disappearances: StoreApi['disappearances'] = (...args) => this.#histories.disappearances(...args);
  unrecordedExpiries: StoreApi['unrecordedExpiries'] = (...args) => this.#histories.unrecordedExpiries(...args);

  holds: StoreApi['holds'] = (...args) => this.#finished(this.#holds.list(...args));
  hold: StoreApi['hold'] = (...args) => this.#finished(this.#holds.find(...args));
  placeHold: StoreApi['placeHold'] = (...args) => this.#finished(this.#holds.place(...args));
  releaseHold: StoreApi['releaseHold'] = (...args) => this.#finished(this.#holds.release(...args));
  setRetentionFloor: StoreApi['setRetentionFloor'] = (...args) => this.#finished(this.#holds.setFloor(...args));
  setRecoveryWindow: StoreApi['setRecoveryWindow'] = (...args) =>
    this.#finished(this.#holds.setRecoveryWindow(...args));
  eraseItem: StoreApi['eraseItem'] = (...args) => this.#finished(this.#erasures.erase(...args));
  recoverItem: StoreApi['recoverItem'] = (...args) => this.#finished(this.#recoveries.recover(...args));
  recoverPolicy: StoreApi['recoverPolicy'] = (...args) => this.#finished(this.#recoveries.recoverPolicy(...args));
  heldContent: StoreApi['heldContent'] = (...args) => this.#finished(this.#recoveries.heldContent(...args));

  proofKey: StoreApi['proofKey'] = () => this.#proofs.publicKey();
  proofCheckpoint: StoreApi['proofCheckpoint'] = (size) => this.#proofs.checkpoint(size);
  proofConsistency: StoreApi['proofConsistency'] = (from, to) => this.#proofs.consistency(from, to);
  certificate: StoreApi['certificate'] = (...args) => this.#finished(this.#proofs.certificate(...args));
  proofTree: StoreApi['proofTree'] = () => this.#proofs.treeNow();
  certificates: StoreApi['certificates'] = (...args) => this.#proofs.certificates(...args);
  containerFacts: StoreApi['containerFacts'] = (...args) => this.#proofs.containerFacts(...args);
  purgeRuns: StoreApi['purgeRuns'] = (...args) => this.#finished(this.#proofs.purgeRuns(...args));
  runCertificates: StoreApi['runCertificates'] = (...args) => this.#proofs.runCertificates(...args);
  facts: StoreApi['facts'] = (signal) => this.#proofs.facts(signal);
  verifyLog: StoreApi['verifyLog'] = (onProgress = () => {}, signal) =>
    this.#finished(this.#proofs.verifyLog(onProgress, signal));

  purgeStatus: StoreApi['purgeStatus'] = (...args) => this.#operations.purgeStatus(...args);
  purgeBacklogs: StoreApi['purgeBacklogs'] = () => this.#operations.purgeBacklogs();
  runPurge: StoreApi['runPurge'] = (options) => this.#purge.passFromNow(options);
  pausePurge: StoreApi['pausePurge'] = (caller) => this.#purge.pause(this.#parts.command(caller));
  resumePurge: StoreApi['resumePurge'] = (caller) => this.#purge.resume(this.#parts.command(caller));
  backup: StoreApi['backup'] = (...args) => this.#finished(this.#backups.take(...args));
  backups: StoreApi['backups'] = () => this.#backups.list();
  purgeLedgerHead: StoreApi['purgeLedgerHead'] = () => this.#backups.ledgerHead();

  /**
   * For a store that was just restored: ends the lives that the ledger says were erased, and erases whatever is due.
   */
  async settleRestored(from: RestoredFrom): Promise<number> {
    await this.#finished(this.#backups.recordCopies(from.ledger()));
    const { lost = [], unfinished = [], pausesPurge = false } = from;
    // Pauses before anything is erased, so that an operator can place a lost hold again.
    if (pausesPurge) await this.#finished(this.#purge.pause(this.#backups.restoring()));
    // Lives without keys are found by their streams in the log. They are ended before the restore is recorded, because
    // the secret behind their names may be lost too.
    const first = await this.#finished(this.#backups.endKeyless(lost));
    await this.#finished(this.#erasures.resumeAll());
    if (lost.length > 0 || unfinished.length > 0) {
      await this.#purge.recordErasures([...first.abandoned, ...unfinished]);
    }
    // Most lives that are due ended by a deadline, or with their partition key or container, and the log itself says
    // so.
    await this.#purge.passFromNow();
    const { livesEnded, abandoned } = await this.#finished(this.#backups.settleRestored(from, first.livesEnded));
    await this.#purge.recordErasures(abandoned);
    await this.#purge.passFromNow();
    return livesEnded;
  }

  projections: StoreApi['projections'] = () => this.#operations.projections();
  startScavenge: StoreApi['startScavenge'] = (caller) =>
    this.#finished(this.#scavenging.start(this.#parts.command(caller)));
  startRebuild: StoreApi['startRebuild'] = (name, request) => this.#rebuilds.start(name, request);
  rebuildStatus: StoreApi['rebuildStatus'] = (name) => this.#rebuilds.status(name);
  cancelRebuild: StoreApi['cancelRebuild'] = (name) => this.#rebuilds.cancel(name);
  fsck: StoreApi['fsck'] = (...args) => this.#operations.fsck(...args);
  health: StoreApi['health'] = () => this.#operations.health();

  nowMs: StoreApi['nowMs'] = () => this.#clock.now();

  clockHeld: StoreApi['clockHeld'] = () => this.#operations.clockHeld();

  clockStandsStillMs(): number {
    return this.#clock instanceof GuardedClock ? this.#clock.standsStillMs() : 0;
  }

  get clockKind(): 'system' | 'manual' {
    return this.#clock instanceof ManualClock ? 'manual' : 'system';
  }

  async advanceClock(milliseconds: number): Promise<number> {
    if (!(this.#clock instanceof ManualClock)) {
      throw new Refusal(
        'not-supported',
        'The clock can be advanced only if the store was started with --clock manual.',
      );
    }
    const nowMs = this.#clock.advance(milliseconds);
    this.#purge.lookAgain();
    return nowMs;
  }

  confirmClock: StoreApi['confirmClock'] = async ({ pausePurge } = {}) => {
    const jump = jumpOf(this.#clock);
    // Nothing can be recorded while the clock is held, and afterwards the purge could run before the pause is recorded.
    // So the purge is suspended first.
    if (pausePurge !== undefined) this.#purge.suspend();
    if (this.#clock instanceof GuardedClock) this.#clock.confirm();
    if (pausePurge !== undefined) await this.#finished(this.pausePurge(pausePurge));
    // Erasures that a crash cut short could not be carried out at a start with a held clock.
    await this.#finished(this.#erasures.resumeAll());
    this.#purge.lookAgain();
    return jump;
  };

  recordAction: StoreApi['recordAction'] = (caller, action) =>
    this.#finished(recordAction(this.#parts.ports.log, this.#parts.command(caller), action));
  actionsOnStore: StoreApi['actionsOnStore'] = () => this.#finished(this.#histories.actionsOnStore());

  headPosition: StoreApi['headPosition'] = () => this.#parts.headPosition();
  reaches: StoreApi['reaches'] = (position) => this.#parts.reaches(position);

  async close(): Promise<void> {
    this.#parts.refuseNewWork();
    this.#backups.cancel();
    await this.#scavenging.stop();
    await this.#erasures.stop();
    await this.#retries.stop();
    await this.#purge.stop();
    await this.#rebuilds.putOff();
    // Every request that was let in gets its answer; a write gets it when it is projected.
    while (this.#underWay > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
    await this.#queries.stop();
    await this.#proofs.stop();
    this.#commonClock.stop();
    await this.#parts.projector.close();
    // Before the ports close, because the folder is still locked by this process then.
    if (this.#clock instanceof GuardedClock) this.#clock.close();
    await this.#closePorts();
  }

  #measured<Result>(kind: OperationKind, work: () => Promise<Result>): Promise<Result> {
    return this.#finished(this.#observer.operation(kind, work));
  }

  /** Counts work that is under way, so that closing can wait for it. */
  async #finished<Result>(work: Promise<Result>): Promise<Result> {
    this.#underWay += 1;
    try {
      return await work;
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
    }
  }
}

function projectorOf(
  { log, vault, sealer, readModels, nodes }: StorePorts,
  told: Pick<SharedProjectorOptions, 'onApplied' | 'onNews' | 'around' | 'onUnreadable'> &
    Required<Pick<ProjectorOptions, 'onApplying' | 'onFailed'>>,
): Projection {
  if (nodes === undefined) {
    const { onNews, ...options } = told;
    const onMissed = () => onNews(ANYTHING);
    return new Projector({ log, vault, sealer, store: () => readModels.current.store, onMissed, ...options });
  }
  const mayProject = nodes.roles.has('project');
  return new SharedProjector({ log, vault, sealer, readModels: nodes.readModels, mayProject, ...told });
}

/** Sets the clock to at least the time of the last event. */
async function observeLast(log: EventLog, clock: GuardedClock | ManualClock): Promise<void> {
  const last = await log.readAt(await log.head());
  if (last === undefined) return;
  if (clock instanceof GuardedClock) clock.observeRecorded(last.occurredAtMs);
  else clock.raise(last.occurredAtMs);
}

type ChangedContainers = Pick<ReadModelNews, 'containers' | 'databases'>;

/** The rids of deleted containers among those that changed, and of deleted databases. */
function goneAmong({ containers, databases }: ChangedContainers, catalog: Catalog): readonly string[] {
  // The news of a database does not name the containers that were deleted with it.
  const looked =
    containers === undefined || databases.length > 0
      ? catalog.allContainers()
      : containers.flatMap((number) => catalog.containerByNumber(number) ?? []);
  const gone = looked.filter(({ state }) => catalog.goneAtMs(state) !== null);
  return [...databases, ...gone.map(({ state }) => state.rid)];
}

function jumpOf(clock: Clock): ClockJump | undefined {
  return clock instanceof GuardedClock ? clock.jump() : undefined;
}
