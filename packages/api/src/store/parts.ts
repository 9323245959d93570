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
import type { ContainerNumber, ReadModelStore, ReadModelVersions } from '@epitaph/projections/read-model-store.ts';
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
  /** Set where other nodes work on the same log, vault and read models. */
  readonly nodes?: SeveralNodes | undefined;
  readonly clock: Clock & { raise(atMs: number): void };
  /** What holds the clock, or undefined while it can be trusted. */
  readonly clockJump: () => ClockJump | undefined;
  readonly monotonicMs: () => number;
  readonly newId: () => string;
}

/** What one of several nodes knows of the others. */
export interface SeveralNodes {
  /** The read models again, with what nodes tell each other. */
  readonly readModels: SharedReadModels;
  readonly roles: ReadonlySet<NodeRole>;
  /**
   * How long after the time of its command a change of policy takes effect, in milliseconds. It is on record within a
   * quarter of that, no node decides with a container's state that it has not confirmed within another quarter, and
   * clocks may differ by the other half.
   */
  readonly policyDelayMs: number;
  /** What a clock says that all nodes can ask; see `GuardedClock.observeCommon`. */
  readonly commonMs?: () => Promise<number>;
}

/** What a node does besides answering requests, which every node does. */
export const nodeRoles = ['project', 'purge'] as const;
export type NodeRole = (typeof nodeRoles)[number];

/** What a reader is answered by: a container, the time, and what has expired in it by then. */
export interface Moment {
  readonly within: CatalogContainer;
  readonly nowMs: number;
  readonly marks: Watermarks;
}

/** A write that is being carried out on a life, with the times of what it replaces. */
interface UnderWay {
  readonly times: ItemTimes;
  readonly done: Promise<unknown>;
}

/** What every part of the store works with: the ports, the live projector, and the order of commands. */
export class StoreParts {
  readonly ports: StorePorts;
  /** One command at a time for each item: a loser would only decide again. */
  readonly itemOrder = new KeyedMutex();
  /** A container's own commands; items and readers wait for the one under way, so that no one sees it half done. */
  readonly containerOrder = new CommandOrder();
  /**
   * One command of a kind at a time on what a container keeps or erases on request: a loser would only decide again.
   */
  readonly retentionOrder = new KeyedMutex();
  /** For queries and conditions that work long on one document. */
  readonly slowLane: SlowLane;
  readonly projector: Projection;
  /** For the purge, and for writes and erasures that put an end on record. */
  readonly catalogCheck: CatalogCheck;
  /** Where rows are looked up and scans go: the read model, with what is kept of it in memory. */
  readonly rows: ItemRows;
  readonly #expirySeenAtMs = new Map<ContainerNumber, number>();
  readonly #underWay = new Map<ContainerNumber, Set<UnderWay>>();
  /** Writes of items between being let in and being on record, by the container's rid. */
  readonly #letIn = new Map<string, Set<Promise<unknown>>>();
  /** Containers whose command under way waits for the writes that were let in before it. */
  readonly #awaitingWrites = new Set<string>();
  #opened = { atMs: 0, position: 0 };
  #closing = false;
  /** When, by the monotonic clock, the log was asked for the last head that the catalog was found to have reached. */
  #confirmedMs = Number.NEGATIVE_INFINITY;
  /** Read models may come to have less than that: made again, or of a standby that lags. */
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

  /** The read models in use. To be asked for anew after each await: a rebuild closes them when it has put others in their place. */
  get readModel(): ReadModelStore {
    return this.ports.readModels.current.store;
  }

  get closing(): boolean {
    return this.#closing;
  }

  /**
   * To be called when the projections have caught up. Nobody here remembers what was told before, so all up to this
   * instant counts as told.
   */
  opened(): void {
    this.#opened = { atMs: this.ports.clock.now(), position: this.projector.position };
  }

  refuseNewWork(): void {
    this.#closing = true;
  }

  /**
   * A command's context: the time is read here, once.
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
   * The context of a command that may change the policy of containers, or end it. If somebody was already told what
   * has expired at this very millisecond, the new policy begins with the next one: expired is for ever, and an
   * interval's end is exclusive.
   */
  policyCommand(caller: Caller, containers: readonly ContainerNumber[]): CommandContext {
    const context = this.command(caller);
    const seenAtMs = (container: ContainerNumber): number | undefined =>
      this.#expirySeenAtMs.get(container) ?? (container <= this.#opened.position ? this.#opened.atMs : undefined);
    if (!containers.some((container) => seenAtMs(container) === context.nowMs)) return context;
    this.ports.clock.raise(context.nowMs + 1);
    return this.command(caller);
  }

  /** To be called when somebody was told, or it was recorded, what had expired in a container at an instant. */
  expirySeen(container: ContainerNumber, atMs: number): void {
    // These calls may come out of order: whoever decided earlier may call later.
    this.#expirySeenAtMs.set(container, Math.max(atMs, this.#expirySeenAtMs.get(container) ?? 0));
  }

  assertOpen(): void {
    if (this.#closing) throw new Refusal('busy', 'The store is closing.');
  }

  /** Highest position that is known here; on a shared log another node may have written more. */
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

  /** The container as it is now, after whatever command on it is under way. */
  current(container: ContainerState): MaybePromise<CatalogContainer> {
    const idle = this.#idle(container);
    return idle === undefined ? this.#found(container) : idle.then(() => this.#found(container));
  }

  /**
   * Container and time for a reader, taken together: no policy can begin between the two, or at an instant that was
   * answered for. A write that was decided before its item's deadline and is still on its way is waited for, so that
   * it doesn't bring an item back which a reader has found gone.
   */
  moment(container: ContainerState): MaybePromise<Moment> {
    const idle = this.#idle(container);
    return idle === undefined ? this.#momentNow(container) : idle.then(() => this.#momentNow(container));
  }

  /** All in one go: after an await, what was true may not be any more. */
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
    return { within, nowMs, marks };
  }

  /**
   * Carries a write of items out by the container as it is now. A command on the container that must not fall in the
   * middle of one waits for it, and those that come after that command are let in by the container as it left it.
   *
   * @param write must not wait for the container anew: the command that it would wait for is waiting for this write
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

  /** For a command on a container: resolves when every write that was let in by now is on record or refused. */
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
   * For a write that was let into a container: resolves when the command that came after it is done; undefined when there
   * is none, and when it waits for this write, before which it changes nothing.
   */
  changeUnderWay(container: ContainerState): Promise<void> | undefined {
    return this.#awaitingWrites.has(container.rid) ? undefined : this.busy(container);
  }

  /** Resolves when the command on a container that is under way is done; undefined when there is none. */
  busy(container: ContainerState): Promise<void> | undefined {
    return this.containerOrder.underWay(container.rid) ?? this.containerOrder.underWay(container.databaseRid);
  }

  /**
   * Makes sure that the catalog has what any node had recorded a moment ago, where there are others: no node decides
   * under a policy that another has replaced.
   *
   * @throws {Refusal} busy when the log or the projection can't be had in time
   */
  async confirmCatalog(maxAgeMs = (this.ports.nodes?.policyDelayMs ?? 0) / 4): Promise<void> {
    const { nodes, monotonicMs, log } = this.ports;
    const sinceMs = monotonicMs() - maxAgeMs;
    if (nodes === undefined) return;
    // A question under way serves whoever comes meanwhile only if the log was asked late enough; otherwise it is asked
    // again.
    while (this.#confirmedMs < sinceMs || this.projector.position < this.#confirmedUpTo) {
      await (this.#confirming ??= this.#confirm(log, monotonicMs));
    }
  }

  /** Makes sure that the catalog has all that is on record by now. */
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

  /** Resolves when no command on a container is under way; undefined, as mostly, when there is nothing to wait for. */
  #idle(container: ContainerState): Promise<void> | undefined {
    this.assertOpen();
    if (this.ports.nodes === undefined) return this.#settled(container);
    return this.confirmCatalog().then(() => this.#settled(container));
  }

  /** The same of this node alone. */
  #settled(container: ContainerState): Promise<void> | undefined {
    return this.busy(container)?.then(() => this.#settled(container));
  }

  #found(container: ContainerState): CatalogContainer {
    const found = this.catalog.containerByRid(container.rid);
    if (found === undefined || this.catalog.goneAtMs(found.state) !== null) throw new Refusal('container-not-found');
    return found;
  }

  /**
   * A container, also a deleted one, and the time, for answers about what is on record. Both are taken together, as for
   * any reader, so that no later policy contradicts what was told of this instant.
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
   * Says that a write is about to replace what has these times.
   *
   * @param decidedAtMs the time by which the write is decided
   * @returns false when the deadline came since then: readers may know, so the write must be decided by a new time; also
   *   when it came before, but another policy began since then, maybe just before the deadline
   */
  writing(container: CatalogContainer, times: ItemTimes, decidedAtMs: number, done: Promise<unknown>): boolean {
    // Its newest policies: they may have changed since the write was let in.
    const { timeline } = this.catalog.containerByNumber(container.number)!.state;
    const nowMs = this.ports.clock.now();
    if (isExpired(times, watermarks(container.state.timeline, decidedAtMs))) {
      const hasChanged = timeline.at(-1)?.version !== container.state.timeline.at(-1)?.version;
      if (hasChanged || this.busy(container.state) !== undefined) return false;
      // What is about to be recorded stays true: no policy begins at this instant any more.
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
   * @throws {Refusal} session-not-available for a position that this log has not, or not projected in time
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
   * Of a container without a secret: an item that is on record, and not purged, was named by one that is lost. Another secret
   * would give it a second name, and it would be there twice.
   *
   * @throws {UnreadableSecret} where there is such an item, but for those of before a restore that has told of the loss
   */
  async assertNothingNamed(containerRid: string): Promise<void> {
    await this.confirmCatalog(0);
    const container = this.catalog.containerByRid(containerRid);
    if (container === undefined) return;
    // Of a restore whose record can't be read none is known to have told: a container with items does without them.
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
        ? `vault.db is damaged, or an older copy: it lacks ${secret}. Put the newest in its place, or restore the store from a backup.`
        : `The keys in PostgreSQL are damaged, or an older copy than the event log: they lack ${secret}. A node that still has it puts it back when it is asked for one of them. Where none has, stop all nodes and call epitaph restore; docs/backup-and-restore.md says how.`,
    );
  }

  /** The name that an item goes by in events and read models: its own, or its pseudonym. */
  recordedName({ definition, rid }: ContainerState, name: ItemName): MaybePromise<ItemName> {
    return hasPseudonymousIds(definition) && !isPseudonym(name.partitionKey)
      ? this.ports.naming.pseudonym(rid, name)
      : name;
  }

  recordedPartitionKey({ definition, rid }: ContainerState, partitionKey: string): MaybePromise<string> {
    return hasPseudonymousIds(definition) ? this.ports.naming.partitionPseudonym(rid, partitionKey) : partitionKey;
  }

  /**
   * A scope in terms of what is on record.
   *
   * @throws {Refusal} bad-request for a range of effective partition keys where keys are on record as pseudonyms: only
   *   the key itself tells in which range it lies
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
      'This container keeps partition keys as pseudonyms, which have no place in a range: ask for a partition key or for the whole container.',
    );
  }

  /** Where readers see what a command has come to: at what it has recorded, or at the log's end if that is nothing. */
  async shown(recordedAt: number | undefined): Promise<number> {
    if (recordedAt === undefined) return this.ports.log.head();
    await this.projected(recordedAt);
    return recordedAt;
  }

  /** What the read models have of a container once they have come to a position. */
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
      // Where the read models can't be written, the fault is their disk's or server's, and the client is told that.
      if (error.cause instanceof StorageUnavailable) throw error.cause;
      throw new Refusal('session-not-available', error.message);
    }
  }
}
