import type { CommandContext } from '@epitaph/core/command-context.ts';
import { isoTime } from '@epitaph/core/clock.ts';
import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import type { ContainerCommand, ExpiringAtOnce } from '@epitaph/core/container/commands.ts';
import type { ContainerDecision, ContainerRefusal } from '@epitaph/core/container/decide.ts';
import { handleContainer } from '@epitaph/core/container/handle.ts';
import { recordedByMs } from '@epitaph/core/container/recorded-by.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import type { DatabaseCommand } from '@epitaph/core/database/commands.ts';
import { decideDatabase, type DatabaseDecision, type DatabaseRefusal } from '@epitaph/core/database/decide.ts';
import { evolveDatabase } from '@epitaph/core/database/evolve.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { databaseEventVersions } from '@epitaph/core/database/upcast.ts';
import { type ErrorCode, Refusal } from '@epitaph/core/errors.ts';
import { handleCommand, MAX_ATTEMPTS, newEvents, TooMuchContention } from '@epitaph/core/handle-command.ts';
import type { ProposedPolicy } from '@epitaph/core/history/preview.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { DecidedTooLate } from '@epitaph/core/log/decided-too-late.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { ThroughputRefusal } from '@epitaph/core/throughput/provisioning.ts';
import type { Throughput } from '@epitaph/core/throughput/throughput.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import { hasUniqueKeys } from '@epitaph/core/unique-key/values.ts';
import type { CatalogContainer } from '@epitaph/projections/catalog/catalog.ts';
import { isLost } from '@epitaph/projections/catalog/lost-container.ts';
import type { ContainerNumber } from '@epitaph/projections/read-model-store.ts';
import type { CatalogApi } from '../api/catalog-api.ts';
import type { Caller, Written } from '../api/common.ts';
import type { FeedFloors } from '../change-feed/feed-floors.ts';
import type { StoreParts } from '../parts.ts';
import { assertNotPast, type Previews } from '../retention/previews.ts';
import { containerRid, databaseRid } from '../rids.ts';

export interface CatalogOptions {
  /** Policy grace of newly created containers, in seconds. */
  readonly policyGraceSeconds: number;
  /** Throughput of containers that are created without one, in a database that shares none. */
  readonly defaultThroughput: Throughput | undefined;
  /** If true, nothing has a throughput, and nothing can be given one. */
  readonly serverless: boolean;
}

/** Commands on databases and containers. */
export class CatalogCommands {
  readonly #parts: StoreParts;
  readonly #previews: Previews;
  readonly #floors: FeedFloors;
  readonly #options: CatalogOptions;

  constructor(parts: StoreParts, previews: Previews, floors: FeedFloors, options: CatalogOptions) {
    this.#parts = parts;
    this.#previews = previews;
    this.#floors = floors;
    this.#options = options;
  }

  readonly createDatabase: CatalogApi['createDatabase'] = async (caller, name, throughput) => {
    if (throughput !== undefined) this.#assertProvisioned();
    this.#assertDatabaseNotLost(name);
    // Each deleted database of that name has used up a number, so the log need not be asked about these.
    for (let incarnation = this.#parts.catalog.databasesGone(name); ; incarnation++) {
      const rid = databaseRid(name, incarnation);
      const { decision, state, position } = await this.#onDatabase(this.#parts.command(caller), rid, {
        type: 'CreateDatabase',
        name,
        throughput,
      });
      if (decision.kind === 'accepted') return { resource: state!, position, created: true };
      // The number was used up by an earlier incarnation, or by another name with the same hash.
      if (decision.refusal.reason !== 'rid-taken') throw databaseRefusal(decision.refusal);
    }
  };

  readonly deleteDatabase: CatalogApi['deleteDatabase'] = async (caller, name, { ifMatch } = {}) => {
    const database = this.database(name);
    const command = { type: 'DeleteDatabase', ifMatch } as const;
    if (decideDatabase(database, command).kind === 'accepted') {
      // For a container that lacks events, its own stream must record that its items end only now, with the container.
      for (const { rid, lacksEvents } of this.#parts.catalog.liveContainers(database.rid)) {
        if (lacksEvents === true) await this.#deleteByRid(caller, rid, undefined);
      }
    }
    const { position } = await this.#changeDatabase(caller, database.rid, command);
    return { position };
  };

  /** Changes the throughput that a database's containers share. */
  readonly changeDatabaseThroughput: CatalogApi['changeDatabaseThroughput'] = async (
    caller,
    rid,
    change,
    { ifMatch } = {},
  ) => {
    this.#assertProvisioned();
    const command = { type: 'ChangeThroughput', change, ifMatch } as const;
    const { state, position } = await this.#changeDatabase(caller, rid, command);
    return { resource: state!, position, created: false };
  };

  #assertProvisioned(): void {
    if (!this.#options.serverless) return;
    throw new Refusal(
      'bad-request',
      'Setting offer throughput or autopilot on container is not supported for serverless accounts.',
    );
  }

  /** Carries out a command on an existing database. */
  #changeDatabase(
    caller: Caller,
    rid: string,
    command: DatabaseCommand,
  ): Promise<Done<DatabaseState, DatabaseDecision>> {
    return this.#parts.containerOrder.run(rid, async () => {
      const isDeleted = command.type === 'DeleteDatabase';
      try {
        const done = await this.#inTime(this.#policyDelayMs, () => {
          const context = isDeleted
            ? this.#parts.policyCommand(caller, this.#containersOf(rid))
            : this.#parts.command(caller);
          return this.#onDatabase(context, rid, command);
        });
        if (done.decision.kind === 'refused') throw databaseRefusal(done.decision.refusal);
        // The containers that were deleted with the database have no feeds any more.
        if (isDeleted) await this.#floors.settleAll();
        return done;
      } catch (error) {
        if (isDeleted && !(error instanceof Refusal)) this.#floors.settleAllAfterFault();
        throw error;
      }
    });
  }

  /** Milliseconds from the time of a TTL change's command until it takes effect. */
  get #policyDelayMs(): number {
    return this.#parts.ports.nodes?.policyDelayMs ?? 0;
  }

  #containersOf(databaseRid: string): ContainerNumber[] {
    const all = this.#parts.catalog.allContainers().filter(({ state }) => state.databaseRid === databaseRid);
    return all.map(({ number }) => number);
  }

  database(name: string): DatabaseState {
    const found = this.#parts.catalog.databaseByName(name);
    if (found !== undefined) return found;
    this.#assertDatabaseNotLost(name);
    throw new Refusal('database-not-found');
  }

  /** @throws {UnreadableEvent} for a database that has containers but whose creation the log has lost */
  #assertDatabaseNotLost(name: string): void {
    const { catalog } = this.#parts;
    const rid = databaseRid(name, catalog.databasesGone(name));
    if (catalog.databaseByRid(rid) === undefined && catalog.liveContainers(rid).length > 0) {
      throw lostCreation(databaseStream(rid));
    }
  }

  container(database: string, name: string): ContainerState {
    const { rid } = this.database(database);
    const found = this.#parts.catalog.containerByName(rid, name)?.state ?? this.#lost(rid, name);
    if (found === undefined) throw new Refusal('container-not-found');
    if (isLost(found)) throw lostCreation(containerStream(found.rid));
    return found;
  }

  /** The container of a name whose creation the log has lost. Its rid is computed from the name. */
  #lost(databaseOf: string, name: string): ContainerState | undefined {
    const { catalog } = this.#parts;
    const rid = containerRid(databaseOf, name, catalog.containersGone(databaseOf, name));
    const state = catalog.containerByRid(rid)?.state;
    return state !== undefined && isLost(state) && state.status === 'live' ? state : undefined;
  }

  readonly createContainer: CatalogApi['createContainer'] = async (
    caller,
    database,
    name,
    definition,
    defaultTtl,
    throughput,
  ) => {
    if (throughput !== undefined) this.#assertProvisioned();
    const { rid: databaseOf, throughput: ofDatabase } = this.database(database);
    const lost = this.#lost(databaseOf, name);
    if (lost !== undefined) throw lostCreation(containerStream(lost.rid));
    const shared = ofDatabase.kind !== 'none';
    if (hasUniqueKeys(definition) && !this.#parts.ports.log.spansStreams) {
      throw new Refusal(
        'not-supported',
        'The event log of this store can not append to several streams at once, so unique keys are not supported.',
      );
    }
    for (let incarnation = this.#parts.catalog.containersGone(databaseOf, name); ; incarnation++) {
      const rid = containerRid(databaseOf, name, incarnation);
      // One command at a time for a rid: a command must not take the floor of a container that another is about to
      // create for its own.
      const { decision, state, position } = await this.#parts.containerOrder.run(rid, async () => {
        const context = this.#parts.command(caller);
        return this.#onContainer(context, rid, {
          type: 'CreateContainer',
          databaseRid: databaseOf,
          name,
          definition,
          defaultTtl,
          policyGraceSeconds: this.#options.policyGraceSeconds,
          throughput: throughput ?? (shared ? undefined : this.#options.defaultThroughput),
          nowMs: context.nowMs,
        });
      });
      if (decision.kind === 'accepted') return { resource: state!, position, created: true };
      if (decision.refusal.reason !== 'rid-taken') throw containerRefusal(decision.refusal);
    }
  };

  readonly replaceContainer: CatalogApi['replaceContainer'] = (
    caller,
    database,
    name,
    definition,
    defaultTtl,
    { ifMatch } = {},
  ) => {
    return this.#change(caller, database, name, async (container, nowMs) => ({
      type: 'ReplaceContainer',
      definition,
      defaultTtl,
      expiring: await this.#underBrake(container, { defaultTtl, effectiveFromMs: nowMs + this.#policyDelayMs }),
      ifMatch,
    }));
  };

  readonly changeTtl: CatalogApi['changeTtl'] = async (caller, database, name, change) => {
    if (change.confirmed && change.reason === undefined) {
      throw new Refusal('bad-request', 'A change that is confirmed in spite of the brake needs a reason.');
    }
    const { resource } = await this.#change(caller, database, name, async (container, nowMs) => {
      const { defaultTtl, effectiveFromMs = nowMs } = change;
      assertNotPast(effectiveFromMs, nowMs);
      const proposal = { defaultTtl, effectiveFromMs: Math.max(effectiveFromMs, nowMs + this.#policyDelayMs) };
      const expiring = await this.#previews.expiringAtOnce(container.number, container.state, proposal);
      return { type: 'ChangeTtl', ...change, expiring, afterLoss: container.state.lacksEvents };
    });
    return resource;
  };

  readonly withdrawTtl: CatalogApi['withdrawTtl'] = async (caller, database, name, reason) => {
    const { resource } = await this.#change(caller, database, name, () => ({ type: 'WithdrawTtl', reason }));
    return resource;
  };

  readonly setTtlBrake: CatalogApi['setTtlBrake'] = async (caller, database, name, brake, reason) => {
    const { resource } = await this.#change(caller, database, name, () => ({ type: 'ChangeTtlBrake', brake, reason }));
    return resource;
  };

  /**
   * What a TTL change would make expire at once. Counted only if there is a brake, or if another node may set one
   * before the change is recorded.
   */
  async #underBrake(
    { number, state }: CatalogContainer,
    proposal: ProposedPolicy,
  ): Promise<ExpiringAtOnce | undefined> {
    const mayBeBraked = state.brake !== undefined || this.#parts.ports.nodes !== undefined;
    return mayBeBraked ? this.#previews.expiringAtOnce(number, state, proposal) : undefined;
  }

  readonly deleteContainer: CatalogApi['deleteContainer'] = async (caller, database, name, { ifMatch } = {}) => {
    const { rid } = this.#lost(this.database(database).rid, name) ?? this.container(database, name);
    return this.#deleteByRid(caller, rid, ifMatch);
  };

  async #deleteByRid(caller: Caller, rid: string, ifMatch: string | undefined): Promise<{ position: number }> {
    const { position } = await this.#changeByRid(caller, rid, ({ state: { lacksEvents: afterLoss } }) => ({
      type: 'DeleteContainer',
      ifMatch,
      afterLoss,
    }));
    return { position };
  }

  readonly setPolicyGrace: CatalogApi['setPolicyGrace'] = async (caller, database, name, seconds, reason) => {
    const { resource } = await this.#change(caller, database, name, () => ({
      type: 'ChangePolicyGrace',
      seconds,
      reason,
    }));
    return resource;
  };

  readonly changeContainerThroughput: CatalogApi['changeContainerThroughput'] = async (
    caller,
    rid,
    change,
    { ifMatch } = {},
  ) => {
    this.#assertProvisioned();
    return this.#changeByRid(caller, rid, () => ({ type: 'ChangeThroughput', change, ifMatch }));
  };

  /** Deletes all items of a partition key at one instant, with one event. */
  async deletePartitionKey(caller: Caller, container: ContainerState, key: string): Promise<{ position: number }> {
    const partitionKey = await this.#parts.recordedPartitionKey(container, key);
    return this.#parts.containerOrder.run(container.rid, async () => {
      // A write that was decided without knowing of this delete must not come after it in the log.
      await this.#parts.writesDone(container);
      const policyDelayMs = this.#policyDelayMs;
      const { decision, position } = await this.#inTime(policyDelayMs, (isLate) => {
        const context = this.#parts.command(caller);
        const { nowMs } = context;
        // What has expired by now ended by its deadline, and the rest ends with the key. No later policy may change
        // that.
        this.#parts.expirySeen(this.#parts.catalog.containerByRid(container.rid)!.number, nowMs);
        const command = { type: 'DeletePartitionKey', partitionKey, nowMs, policyDelayMs } as const;
        return this.#onContainer(context, container.rid, command, isLate);
      });
      if (decision.kind === 'refused') throw containerRefusal(decision.refusal);
      return { position };
    });
  }

  /**
   * Carries out a command on an existing container. Writes and reads of its items wait meanwhile, so that no read uses
   * the old policy at an instant at which the new one is in force.
   */
  #change(caller: Caller, database: string, name: string, commandOf: CommandOf): Promise<Written<ContainerState>> {
    return this.#changeByRid(caller, this.container(database, name).rid, commandOf);
  }

  #changeByRid(caller: Caller, rid: string, commandOf: CommandOf): Promise<Written<ContainerState>> {
    return this.#parts.containerOrder.run(rid, async () => {
      // The items that a change makes expire are counted with the policies and the brake of all nodes, so the catalog must be current.
      await this.#parts.confirmCatalog(0);
      const container = this.#parts.catalog.containerByRid(rid)!;
      const policyDelayMs = this.#policyDelayMs;
      const atFirst = this.#parts.policyCommand(caller, [container.number]);
      const command = await commandOf(container, atFirst.nowMs);
      const { decision, state, position } = await this.#inTime(policyDelayMs, (isLate) => {
        // Making the command may have taken long.
        const context = policyDelayMs === 0 ? atFirst : this.#parts.policyCommand(caller, [container.number]);
        return this.#onContainer(context, rid, { ...command, nowMs: context.nowMs, policyDelayMs }, isLate);
      });
      if (decision.kind === 'refused') throw containerRefusal(decision.refusal);
      return { resource: state!, position, created: false };
    });
  }

  /**
   * A policy takes effect a fixed delay after the time of its command. If it were recorded too late, other nodes would
   * have answered by the policy before, and a delete would take writes that they made after its time. So a command that
   * is too late is repeated with a new time.
   */
  async #inTime<Result>(policyDelayMs: number, work: (isLate: () => boolean) => Promise<Result>): Promise<Result> {
    const { monotonicMs } = this.#parts.ports;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const untilMs = recordedByMs(monotonicMs(), policyDelayMs) ?? Number.POSITIVE_INFINITY;
      try {
        return await work(() => monotonicMs() > untilMs);
      } catch (error) {
        if (!(error instanceof DecidedTooLate)) throw error;
      }
    }
    throw new TooMuchContention(`${MAX_ATTEMPTS} attempts to change a container took too long`);
  }

  async #onDatabase(
    context: CommandContext,
    rid: string,
    command: DatabaseCommand,
  ): Promise<Done<DatabaseState, DatabaseDecision>> {
    const handled = await handleCommand<DatabaseState | undefined, DatabaseDecision>(this.#parts.ports.log, {
      stream: databaseStream(rid),
      load: 'all',
      initial: undefined,
      evolve: evolveDatabase,
      decide: (state) => decideDatabase(state, command),
      record: (decision) => {
        if (decision.kind !== 'accepted') return undefined;
        const events = newEvents(context, decision.events, databaseEventVersions);
        const isDeleted = command.type === 'DeleteDatabase';
        return { events, notAfterMs: isDeleted ? recordedByMs(context.nowMs, this.#policyDelayMs) : undefined };
      },
    });
    return { ...handled, position: await this.#parts.shown(handled.position) };
  }

  async #onContainer(
    context: CommandContext,
    rid: string,
    command: ContainerCommand,
    isLate?: () => boolean,
  ): Promise<Done<ContainerState, ContainerDecision>> {
    let mayNeedFloor = false;
    try {
      if ('definition' in command) {
        // Events that a feed promises to show must not be erased between the record of its policy and the floor in the
        // vault.
        await this.#floors.raise(rid, command.definition);
        mayNeedFloor = feedFloorSeconds(command.definition) > 0;
      }
      const handled = await handleContainer(
        this.#parts.ports.log,
        context,
        rid,
        command,
        this.#parts.knownContainer,
        isLate,
      );
      const position = await this.#parts.shown(handled.position);
      await this.#floors.settle(rid, { isRecorded: handled.position !== undefined });
      return { ...handled, position };
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof DecidedTooLate))
        this.#floors.settleAfterFault(rid, { isSafeNow: !mayNeedFloor });
      throw error;
    }
  }
}

interface Done<State, Decision> {
  readonly decision: Decision;
  /**
   * The state as the command left it; on several nodes another may have changed it since. Undefined if it never
   * existed.
   */
  readonly state: State | undefined;
  readonly position: number;
}

/** Makes a command when it is its turn, from the container as it is then and the time. */
type CommandOf = (
  container: CatalogContainer,
  nowMs: number,
) => MaybePromise<DistributiveOmit<ContainerCommand, 'nowMs' | 'policyDelayMs'>>;

type DistributiveOmit<Union, Key extends PropertyKey> = Union extends unknown ? Omit<Union, Key> : never;

type CommonReason = 'not-found' | 'already-exists' | 'precondition-failed' | 'rid-taken' | ThroughputRefusal['reason'];
type CommonRefusal = ThroughputRefusal | { readonly reason: Exclude<CommonReason, ThroughputRefusal['reason']> };

function databaseRefusal(refused: DatabaseRefusal): Refusal {
  // For clients, a database without throughput has no offer at all.
  if (refused.reason === 'no-throughput') return new Refusal('offer-not-found');
  return refusal(refused, 'database-not-found');
}

function containerRefusal(refused: ContainerRefusal): Refusal {
  switch (refused.reason) {
    case 'braked': {
      const { items, of, brake } = refused;
      const limits = [
        ...(brake.maxItems === undefined ? [] : [`${brake.maxItems}`]),
        ...(brake.maxShare === undefined ? [] : [`${Number((brake.maxShare * 100).toFixed(6))} %`]),
      ];
      return new Refusal(
        'ttl-change-braked',
        `The change would make ${items} of ${of} items expire at once; this container allows at most ${limits.join(' and ')} of them. To make the change anyway, confirm it with a reason: epitaph ttl … --confirm, or PUT /_epitaph/dbs/…/colls/…/ttl.`,
      );
    }
    case 'ttl-change-scheduled':
      return new Refusal(
        'ttl-change-scheduled',
        `A TTL change is scheduled for ${isoTime(refused.effectiveFromMs)}. Withdraw it first: epitaph ttl … --withdraw, or DELETE /_epitaph/dbs/…/colls/…/ttl/scheduled.`,
      );
    case 'nothing-scheduled':
      return new Refusal('no-ttl-change-scheduled');
    case 'partition-key-fixed':
      return new Refusal('bad-request', "A container's partition key can't be changed.");
    case 'unique-keys-fixed':
      return new Refusal('bad-request', "A container's unique keys can't be changed.");
    case 'client-encryption-fixed':
      return new Refusal(
        'bad-request',
        "'clientEncryptionPolicy' cannot be changed as part of collection replace operation.",
      );
    case 'pseudonymous-ids-fixed':
      return new Refusal(
        'bad-request',
        "A container's epitaph.pseudonymousIds can't be changed: recorded events are never rewritten.",
      );
    case 'clear-paths-fixed':
      return new Refusal(
        'bad-request',
        "A container's epitaph.clearPaths can't be changed: values are copied when items are written.",
      );
    case 'ttl-needs-indexing':
      return new Refusal(
        'bad-request',
        "A container with indexing mode 'none' can't have a defaultTtl, and none may be scheduled: time to live needs the index. Use another indexing mode, or no defaultTtl.",
      );
    case 'hold-exists':
    case 'hold-not-found':
    case 'too-many-holds':
      throw new Error('holds are placed and released elsewhere');
    default:
      return refusal(refused, 'container-not-found');
  }
}

/** The refusals that databases and containers share. */
function refusal(refused: CommonRefusal, notFound: ErrorCode): Refusal {
  switch (refused.reason) {
    case 'not-found':
      return new Refusal(notFound);
    case 'throughput-invalid':
      return new Refusal('bad-request', refused.problem);
    case 'throughput-kind-fixed':
      return new Refusal(
        'bad-request',
        `To change the throughput to ${refused.to}, send the header ${migrationHeaders[refused.to]}: true.`,
      );
    default:
      invariant(refused.reason !== 'rid-taken', 'only a creation meets a rid that is taken');
      return new Refusal(refused.reason);
  }
}

/** The headers by which clients ask for a change between manual and autoscale throughput. */
const migrationHeaders = {
  autoscale: 'x-ms-cosmos-migrate-offer-to-autopilot',
  manual: 'x-ms-cosmos-migrate-offer-to-manual-throughput',
} as const;

const lostCreation = (stream: string): UnreadableEvent =>
  new UnreadableEvent(`the event log is damaged: it has lost the creation of ${stream}. ${WHEN_DAMAGED}`);
