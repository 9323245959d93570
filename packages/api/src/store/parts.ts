import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { Clock, ClockJump } from '@epitaph/core/clock.ts';
import type { KnownContainer } from '@epitaph/core/container/handle.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { hasPseudonymousIds, isPseudonym, type ItemName, NO_PARTITION } from '@epitaph/core/item/pseudonym.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { isInScope, type Scope } from '@epitaph/core/partition-key/scope.ts';
import { isExpired, type ItemTimes, type Watermarks, watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';
import type { BodySealer, ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import { type KeyVault, UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import type { Catalog, CatalogContainer } from '@epitaph/projections/catalog/catalog.ts';
import { CatalogCheck } from '@epitaph/projections/purge/catalog-check.ts';
import { namesLost } from '@epitaph/projections/purge/vault-copies.ts';
import { type Projection, ProjectionLag } from '@epitaph/projections/projection.ts';
import type {
  ContainerNumber,
  ItemsReader,
  ReadModelStore,
  ReadModelVersions,
} from '@epitaph/projections/read-model-store.ts';
import type { SharedReadModels } from '@epitaph/projections/shared-projector.ts';
import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import { CommandOrder } from './command-order.ts';
import type { ItemRows } from './item-rows.ts';
import { SlowLane } from './slow-lane.ts';
import type { AtLeast, Caller } from './api/common.ts';

export interface StorePorts {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
  readonly naming: ItemNaming;
  readonly readModels: ReadModelVersions;
  /** Set when other nodes use the same log, vault and read models. */
  readonly nodes?: SeveralNodes | undefined;
  readonly clock: Clock & { raise(atMs: number): void };
  /** Why the clock is held, or undefined while it can be trusted. */
  readonly clockJump: () => ClockJump | undefined;
  readonly monotonicMs: () => number;
  readonly newId: () => string;
}

/** How one of several nodes works together with the others. */
export interface SeveralNodes {
  /** The same read models as `StorePorts.readModels`, with the notices that nodes send each other. */
  readonly readModels: SharedReadModels;
  readonly roles: ReadonlySet<NodeRole>;
  /**
   * Milliseconds between the time of a command that changes a policy and the time at which the new policy takes effect.
   * The change is recorded within a quarter of this delay. No node decides with a container's state that is older than
   * another quarter. The remaining half is the allowed difference between the nodes' clocks.
   */
  readonly policyDelayMs: number;
  /** The time of a clock that all nodes can ask; see `GuardedClock.observeCommon`. */
  readonly commonMs?: () => Promise<number>;
}

/** What a node can do in addition to answering requests, which every node does. */
export const nodeRoles = ['project', 'purge'] as const;
export type NodeRole = (typeof nodeRoles)[number];

/**
 * What a read is answered from: a container, its items, the time, and the watermarks that say what has expired at that
 * time.
 */
export interface Moment {
  readonly within: CatalogContainer;
  readonly items: Items;
  readonly nowMs: number;
  readonly marks: Watermarks;
}

/**
 * Where items are looked up: in the read models, whatever they contain at the time of the look-up, or in a snapshot of
 * them.
 */
export interface Items {
  readonly readModel: ItemsReader;
  readonly rows: ItemRows;
  /** Called for an item whose content has been erased since its row was looked up. */
  readonly erased?: () => void;
}

/** A write to a life that is not finished yet, with the times of the write that it replaces. */
interface UnderWay {
  readonly times: ItemTimes;
  readonly done: Promise<unknown>;
}

/** What all parts of the store share: the ports, the live projector, and the order of commands. */
export class StoreParts {
  readonly ports: StorePorts;
  /** Runs one command at a time for each item: if two ran at once, one would lose the append and have to decide again. */
  readonly itemOrder = new KeyedMutex();
  /**
   * Runs a container's own commands. Items and readers wait for the command under way, so that no one sees it half
   * done.
   */
  readonly containerOrder = new CommandOrder();
  /**
   * Runs one command of a kind at a time on what a container retains or erases on request: if two ran at once, one would
   * lose the append and have to decide again.
   */
  readonly retentionOrder = new KeyedMutex();
  /** For queries and conditions that take long on a single document. */
  readonly slowLane: SlowLane;
  readonly projector: Projection;
  /** For the purge, and for writes and erasures that record the end of a life. */
  readonly catalogCheck: CatalogCheck;
  /** Looks up and scans item rows in the read model, and keeps some of them in memory. */
  readonly rows: ItemRows;
  readonly #expirySeenAtMs = new Map<ContainerNumber, number>();
  readonly #underWay = new Map<ContainerNumber, Set<UnderWay>>();
  /** Writes of items that were let in and are not recorded or refused yet, by the container's rid. */
  readonly #letIn = new Map<string, Set<Promise<unknown>>>();
  /** Containers whose command under way waits for the writes that were let in before it. */
  readonly #awaitingWrites = new Set<string>();
  #opened = { atMs: 0, position: 0 };
  #closing = false;
  /** When the log was last asked for its head, by the monotonic clock, with the catalog then caught up to that head. */
  #confirmedMs = Number.NEGATIVE_INFINITY;
  /** The head that the log returned. The catalog may be behind it later: after a rebuild, or on a standby that lags. */
  #confirmedUpTo = 0;
  #confirming: Promise<void> | undefined;

  constructor(ports: StorePorts, projector: Projection, rows: ItemRows) {
    this.ports = ports;
    this.rows = rows;
    this.projector = projector;
    this.slowLane = new SlowLane(ports.monotonicMs);
    this.catalogCheck = new CatalogCheck({
      log: ports.log,
      catalog: () => this.catalog,
      projected: (position) => this.projected(position),
    });
  }

  get catalog(): Catalog {
    return this.projector.catalog;
  }

  /**
   * The read models in use. Callers must get them again after each await, because a rebuild closes them once it has
   * replaced them.
   */
  get readModel(): ReadModelStore {
    return this.ports.readModels.current.store;
  }

  get closing(): boolean {
    return this.#closing;
  }

  /**
   * Must be called when the projections have caught up. This process does not know what its predecessors told readers,
   * so it assumes that they told everything up to this instant.
   */
  opened(): void {
    this.#opened = { atMs: this.ports.clock.now(), position: this.projector.position };
  }

  refuseNewWork(): void {
    this.#closing = true;
  }

  /**
   * A command's context. The time is read here, once.
   *
   * @throws {Refusal} clock-held while time can't be trusted, busy while the store closes
   */
  command(caller: Caller): CommandContext {
    this.assertOpen();
    const { clock, clockJump, newId } = this.ports;
    if (clockJump() !== undefined) throw new Refusal('clock-held');
    return { nowMs: clock.now(), actor: caller.actor, correlationId: caller.correlationId, newId };
  }

  /**
   * The context of a command that may change or end the policy of containers. If a reader was already told what has
   * expired in this very millisecond, the new policy begins with the next one: an item that has expired stays expired,
   * and the end of an interval is exclusive.
   */
  policyCommand(caller: Caller, containers: readonly ContainerNumber[]): CommandContext {
    const context = this.command(caller);
    const seenAtMs = (container: ContainerNumber): number | undefined =>
      this.#expirySeenAtMs.get(container) ?? (container <= this.#opened.position ? this.#opened.atMs : undefined);
    if (!containers.some((container) => seenAtMs(container) === context.nowMs)) return context;
    this.ports.clock.raise(context.nowMs + 1);
    return this.command(caller);
  }

  /** Must be called when a reader was told what had expired in a container at an instant, or when that was recorded. */
  expirySeen(container: ContainerNumber, atMs: number): void {
    // Calls may come out of order: a command that decided earlier may call later.
    this.#expirySeenAtMs.set(container, Math.max(atMs, this.#expirySeenAtMs.get(container) ?? 0));
  }

  assertOpen(): void {
    if (this.#closing) throw new Refusal('busy', 'The store is closing.');
  }

  /** The highest position that this node knows of. On a shared log another node may have written more. */
  headPosition(): number {
    const { log } = this.ports;
    const head = log.knownHead ?? log.head();
    return typeof head === 'number' ? Math.max(head, this.projector.position) : this.projector.position;
  }

  reaches(position: number): MaybePromise<boolean> {
    if (position <= this.headPosition()) return true;
    const head = this.ports.log.head();
    return head instanceof Promise ? head.then((known) => position <= known) : position <= head;
  }

  /** The container as it is once no command on it is under way. */
  current(container: ContainerState): MaybePromise<CatalogContainer> {
    const idle = this.#idle(container);
    return idle === undefined ? this.#found(container) : idle.then(() => this.#found(container));
  }

  /**
   * The container and the time for a read, taken together: no policy can begin between the two, or at an instant for
   * which a read was answered. If a write was decided before its item's deadline and is not recorded yet, this waits
   * for the write. Otherwise it would bring back an item that a reader has found gone.
   */
  moment(container: ContainerState): MaybePromise<Moment> {
    const idle = this.#idle(container);
    return idle === undefined ? this.#momentNow(container) : idle.then(() => this.#momentNow(container));
  }

  /**
   * Must not await before it returns the moment: the container, the time and the writes under way may change meanwhile.
   */
  #momentNow(container: ContainerState): MaybePromise<Moment> {
    if (this.busy(container) !== undefined) return this.moment(container);
    const within = this.#found(container);
    const nowMs = this.ports.clock.now();
    const marks = watermarks(within.state.timeline, nowMs);
    const late = this.#underWay
      .get(within.number)
      ?.values()
      .find(({ times }) => isExpired(times, marks));
    if (late !== undefined) return late.done.then(() => this.moment(container));
    this.expirySeen(within.number, nowMs);
    return { within, items: this, nowMs, marks };
  }

  /**
   * Carries out a write of items in the container as it is now. A command on the container that must not run in the
   * middle of a write waits for it. Writes that come after that command see the container as the command left it.
   *
   * @param write must not wait for the container again: the command that it would wait for is waiting for this write
   */
  async writeIn<Result>(
    container: ContainerState,
    write: (within: CatalogContainer) => Promise<Result>,
  ): Promise<Result> {
    do {
      const idle = this.#idle(container);
      if (idle !== undefined) await idle;
    } while (this.busy(container) !== undefined);
    const writing = write(this.#found(container));
    let writes = this.#letIn.get(container.rid);
    if (writes === undefined) this.#letIn.set(container.rid, (writes = new Set()));
    writes.add(writing);
    try {
      return await writing;
    } finally {
      writes.delete(writing);
      if (writes.size === 0 && this.#letIn.get(container.rid) === writes) this.#letIn.delete(container.rid);
    }
  }

  /** For a command on a container: resolves when every write that was let in so far is recorded or refused. */
  async writesDone({ rid }: Pick<ContainerState, 'rid'>): Promise<void> {
    const writes = this.#letIn.get(rid);
    if (writes === undefined) return;
    this.#awaitingWrites.add(rid);
    try {
      await Promise.allSettled(writes.values());
    } finally {
      this.#awaitingWrites.delete(rid);
    }
  }

  /**
   * For a write that was let into a container: resolves when the command that came after it is done. Undefined when
   * there is no such command, and when that command waits for this write, because it then changes nothing before the
   * write is done.
   */
  changeUnderWay(container: ContainerState): Promise<void> | undefined {
    return this.#awaitingWrites.has(container.rid) ? undefined : this.busy(container);
  }

  /** Resolves when the container's command under way is done; undefined when there is none. */
  busy(container: ContainerState): Promise<void> | undefined {
    return this.containerOrder.underWay(container.rid) ?? this.containerOrder.underWay(container.databaseRid);
  }

  /**
   * On one of several nodes: makes sure that the catalog has everything that any node had recorded `maxAgeMs` ago, so
   * that no node decides by a policy that another node has replaced.
   *
   * @throws {Refusal} busy when the log or the projection does not answer in time
   */
  async confirmCatalog(maxAgeMs = (this.ports.nodes?.policyDelayMs ?? 0) / 4): Promise<void> {
    const { nodes, monotonicMs, log } = this.ports;
    const sinceMs = monotonicMs() - maxAgeMs;
    if (nodes === undefined) return;
    // Callers share a question that is under way. If the log was asked too early for one of them, that caller asks
    // again.
    while (this.#confirmedMs < sinceMs || this.projector.position < this.#confirmedUpTo) {
      await (this.#confirming ??= this.#confirm(log, monotonicMs));
    }
  }

  /** Makes sure that the catalog has everything that is recorded by now. */
  async recorded(): Promise<void> {
    if (this.ports.nodes === undefined) await this.seen('head');
    else await this.confirmCatalog(0);
  }

  async #confirm(log: EventLog, monotonicMs: () => number): Promise<void> {
    try {
      const askedMs = monotonicMs();
      const head = await log.head();
      try {
        await this.projector.waitFor(head);
      } catch (error) {
        if (!(error instanceof ProjectionLag)) throw error;
        const message = "The catalog can't be confirmed: the projection is behind the log.";
        throw new Refusal('busy', message, undefined, { cause: error.cause });
      }
      this.#confirmedMs = Math.max(this.#confirmedMs, askedMs);
      this.#confirmedUpTo = head;
    } finally {
      this.#confirming = undefined;
    }
  }

  /**
   * Resolves when no command on the container is under way. Mostly there is nothing to wait for, and this is undefined.
   */
  #idle(container: ContainerState): Promise<void> | undefined {
    this.assertOpen();
    if (this.ports.nodes === undefined) return this.#settled(container);
    return this.confirmCatalog().then(() => this.#settled(container));
  }

  /** As {@link #idle}, without asking what other nodes have recorded. */
  #settled(container: ContainerState): Promise<void> | undefined {
    return this.busy(container)?.then(() => this.#settled(container));
  }

  #found(container: ContainerState): CatalogContainer {
    const found = this.catalog.containerByRid(container.rid);
    if (found === undefined || this.catalog.goneAtMs(found.state) !== null) throw new Refusal('container-not-found');
    return found;
  }

  /**
   * A container, which may be deleted, and the time, for answers about what is recorded. Both are taken together, as
   * for a read, so that no later policy contradicts the answer for this instant.
   */
  async told(container: ContainerState): Promise<{ readonly state: ContainerState; readonly nowMs: number }> {
    if (this.ports.nodes !== undefined) await this.confirmCatalog();
    await this.#settled(container);
    const found = this.catalog.containerByRid(container.rid);
    if (found === undefined) throw new Refusal('container-not-found');
    const nowMs = this.ports.clock.now();
    this.expirySeen(found.number, nowMs);
    return { state: found.state, nowMs };
  }

  /**
   * Registers a write that is about to replace the write with these times.
   *
   * @param decidedAtMs the time at which the write is decided
   * @returns false when the write must be decided again at a later time. Either the deadline has passed since
   *   `decidedAtMs`, and readers may know; or it had passed before, but another policy began since then, perhaps before
   *   the deadline
   */
  writing(container: CatalogContainer, times: ItemTimes, decidedAtMs: number, done: Promise<unknown>): boolean {
    // The latest policies: they may have changed since the write was let in.
    const { timeline } = this.catalog.containerByNumber(container.number)!.state;
    const nowMs = this.ports.clock.now();
    if (isExpired(times, watermarks(container.state.timeline, decidedAtMs))) {
      const hasChanged = timeline.at(-1)?.version !== container.state.timeline.at(-1)?.version;
      if (hasChanged || this.busy(container.state) !== undefined) return false;
      // No policy may begin at this instant any more, so that the expiry that is about to be recorded stays true.
      this.expirySeen(container.number, decidedAtMs);
    } else if (isExpired(times, watermarks(timeline, nowMs))) return false;
    const writes = this.#underWay.get(container.number) ?? new Set();
    this.#underWay.set(container.number, writes);
    const write = { times, done };
    writes.add(write);
    void done.finally(() => writes.delete(write));
    return true;
  }

  /**
   * Resolves when readers see a position, or everything that is in the log by now; undefined when they do already.
   *
   * @throws {Refusal} session-not-available for a position that this log does not have, or that is not projected in
   *   time
   */
  seen(atLeast: AtLeast | undefined): Promise<void> | undefined {
    const isSeen = atLeast === undefined || (atLeast !== 'head' && atLeast <= this.projector.position);
    return isSeen ? undefined : this.#caughtUp(atLeast);
  }

  async #caughtUp(atLeast: AtLeast): Promise<void> {
    if (atLeast === 'head') return this.projected(await this.ports.log.head());
    if (!(await this.reaches(atLeast))) throw new Refusal('session-not-available');
    await this.projected(atLeast);
  }

  /**
   * For a container without a secret. If an item is recorded and not purged, a secret that is now lost gave it its
   * name. A new secret would give the item a second name, so that it would exist twice.
   *
   * @throws {UnreadableSecret} when there is such an item that no restore has reported as lost
   */
  async assertNothingNamed(containerRid: string): Promise<void> {
    await this.confirmCatalog(0);
    const container = this.catalog.containerByRid(containerRid);
    if (container === undefined) return;
    // When the record of a restore can't be read, no reported loss is known, and every recorded item counts.
    const lost = await namesLost(this.ports.log).catch(unlessDamaged);
    const lostUpTo = lost?.get(containerRid) ?? 0;
    const { readModel } = this;
    const { number } = container;
    const [named] = await readModel.allItems(number, lostUpTo, 1);
    const countEnded = async (byPolicyStart: boolean) =>
      readModel.countEnded(number, byPolicyStart, Number.MAX_SAFE_INTEGER);
    const hasEnded = async () =>
      (await countEnded(false)) + (await countEnded(true)) + (await readModel.countErased(number)) > 0;
    if (named === undefined && (lostUpTo > 0 || !(await hasEnded()))) return;
    const secret = `the secret by which the items of container ${container.state.name} are named`;
    throw new UnreadableSecret(
      this.ports.nodes === undefined
        ? `vault.db is damaged, or an older copy: it lacks ${secret}. Put its newest copy in its place, or restore the store from a backup.`
        : `The keys in PostgreSQL are damaged, or an older copy than the event log: they lack ${secret}. A node that still has the secret writes it back when it gets a request for one of these items. If no node has it, stop all nodes and run epitaph restore; docs/backup-and-restore.md says how.`,
    );
  }

  /** The name of an item in events and read models: its own, or its pseudonym. */
  recordedName({ definition, rid }: ContainerState, name: ItemName): MaybePromise<ItemName> {
    return hasPseudonymousIds(definition) && !isPseudonym(name.partitionKey)
      ? this.ports.naming.pseudonym(rid, name)
      : name;
  }

  recordedPartitionKey({ definition, rid }: ContainerState, partitionKey: string): MaybePromise<string> {
    return hasPseudonymousIds(definition) ? this.ports.naming.partitionPseudonym(rid, partitionKey) : partitionKey;
  }

  /**
   * A scope in the names under which items are recorded.
   *
   * @throws {Refusal} bad-request for a range of effective partition keys when keys are recorded as pseudonyms: only
   *   the key itself says in which range it is
   */
  async recordedScope(container: ContainerState, { partitionKey, prefix, range }: Scope): Promise<Scope> {
    const { definition } = container;
    if (!hasPseudonymousIds(definition)) return { partitionKey, prefix, range };
    if (partitionKey !== undefined) {
      if (!isInScope(definition, { range }, partitionKey)) return { partitionKey: NO_PARTITION };
      return { partitionKey: await this.recordedPartitionKey(container, partitionKey) };
    }
    if (range === undefined) return {};
    throw new Refusal(
      'bad-request',
      'This container stores partition keys as pseudonyms, which belong to no range: read a single partition key, or the whole container.',
    );
  }

  /**
   * The position at which readers see the result of a command: the position of its event, or the log's head if it
   * recorded nothing.
   */
  async shown(recordedAt: number | undefined): Promise<number> {
    if (recordedAt === undefined) return this.ports.log.head();
    await this.projected(recordedAt);
    return recordedAt;
  }

  /** The state of a container in the read models once they have reached a position. */
  readonly knownContainer: KnownContainer = async (rid, position) => {
    await this.projected(position);
    return this.catalog.containerByRid(rid)?.state;
  };

  /** Waits until a position that was just written is projected. */
  async projected(position: number): Promise<void> {
    const reached = this.projector.waitFor(position);
    if (reached === undefined) return;
    try {
      await reached;
    } catch (error) {
      if (!(error instanceof ProjectionLag)) throw error;
      // If the read models can't be written, their disk or server is at fault, and the client is told so.
      if (error.cause instanceof StorageUnavailable) throw error.cause;
      throw new Refusal('session-not-available', error.message);
    }
  }
}
