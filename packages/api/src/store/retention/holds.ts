import { allDone } from '@epitaph/core/all-done.ts';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { isPseudonym } from '@epitaph/core/item/pseudonym.ts';
import { lifeTail } from '@epitaph/core/item/read-life.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { streamPages } from '@epitaph/core/log/stream-pages.ts';
import { MAX_STANDING_HOLDS } from '@epitaph/core/retention/decide.ts';
import type { RecordedScope, RetentionEvent } from '@epitaph/core/retention/events.ts';
import {
  containerOfHold,
  holdIdOf,
  recordedScope,
  vaultHoldId,
  vaultScope,
  withContainer,
  withoutContainer,
} from '@epitaph/core/retention/hold-names.ts';
import { placedHold } from '@epitaph/core/retention/evolve.ts';
import {
  isStanding,
  type KnownHold,
  type RecordedHold,
  type StandingHold,
} from '@epitaph/core/retention/hold-register.ts';
import { scopeOfHold } from '@epitaph/core/retention/scope-of-hold.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { sameJson } from '@epitaph/core/same-json.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';
import { floorKinds, type HoldScope, type VaultHold, widened } from '@epitaph/core/vault/key-vault.ts';
import { isoTime } from '@epitaph/core/clock.ts';
import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import { wait } from '../../wait.ts';
import type { Caller } from '../api/common.ts';
import type { HoldRequest, PlacedHold, RetentionApi, ShownHold } from '../api/retention-api.ts';
import { isErased, type ItemLife, livesOfItem } from '../items/item-lives.ts';
import type { StoreParts } from '../parts.ts';
import type { Queries } from '../queries/queries.ts';
import { ABANDONED_MS, type Retries } from '../retries.ts';
import { RetentionInLog } from './retention-in-log.ts';
import { recordRetention, tooManyHolds } from './retention-record.ts';

/**
 * The most lives that a hold on a query's result can name. They are recorded in one event, which every log must accept.
 */
const MAX_LIVES_OF_A_HOLD = 10_000;
/** How often to check whether another node's hold of the same id is recorded, and how long to wait after each check. */
const OTHER_HOLD_LOOKS = 40;
const OTHER_HOLD_LOOK_MS = 50;
const floorKey = (rid: string): string => `floor of ${rid}`;

const isDone = (work: Promise<void>): Promise<boolean> =>
  work.then(
    () => true,
    () => false,
  );

/** Released holds that are read from the log at the same time. */
const READ_AT_ONCE = 32;

/** Rows of ended lives that are read at a time. */
const ROWS_AT_ONCE = 1_000;

const byPlacing = (left: VaultHold, right: VaultHold): number =>
  left.placedAtMs - right.placedAtMs || (left.holdId < right.holdId ? -1 : 1);

/** The recorded reason of a hold or floor whose own record is lost. */
const REASON_LOST = 'In the keys, without a record in the log, which was restored from an older copy.';

/**
 * Legal holds and retention floors. A hold or floor is in the vault before it is recorded, and leaves the vault after
 * its end is recorded. So wherever a crash comes, the vault keeps at least what the record says. The next start makes
 * the two agree; after a fault this is done in the background. See docs/adr/0022-holds-in-the-vault-first.md.
 */
export class Holds {
  readonly #parts: StoreParts;
  readonly #queries: Queries;
  readonly #purge: Pick<PurgeRunner, 'recorded' | 'keptFromNow' | 'lookAgain'>;
  readonly #retries: Retries;
  readonly #order = new KeyedMutex();

  constructor(
    parts: StoreParts,
    queries: Queries,
    purge: Pick<PurgeRunner, 'recorded' | 'keptFromNow' | 'lookAgain'>,
    retries: Retries,
  ) {
    this.#parts = parts;
    this.#queries = queries;
    this.#purge = purge;
    this.#retries = retries;
  }

  /**
   * Makes the vault keep what the containers' streams say is kept. Must be called before anything is erased.
   *
   * A hold that is in the vault but in no stream was never acknowledged: its client got no answer and will ask again,
   * so the hold is released. With other nodes, one of them may be about to record it, so it stays until that is no
   * longer possible. For the same reason a floor that is too high then stays until it is set again.
   *
   * A hold or floor leaves the vault only when the log itself says so: the read models may be damaged, and what is
   * erased because of them is lost.
   */
  async settleAll(): Promise<void> {
    const { vault } = this.#parts.ports;
    const holds = await vault.holds();
    const inVault = new Map(holds.map((hold) => [hold.holdId, hold]));
    const byContainer = Map.groupBy(holds, containerOfHold);
    const floors = await vault.floors();
    const isAlone = this.#parts.ports.nodes === undefined;
    const abandonedMs = this.#parts.ports.clock.now() - ABANDONED_MS;
    for (const { state } of this.#parts.catalog.allContainers()) {
      const { rid } = state;
      const inLog = new RetentionInLog(this.#parts.ports.log, rid);
      const known = new Set<string>();
      for (const hold of state.retention.holds) {
        const holdId = vaultHoldId(rid, hold.holdId);
        known.add(holdId);
        if (isStanding(hold)) await this.#keep(state, hold, inVault.get(holdId), inLog);
        else if (inVault.has(holdId) && (await inLog.lets(hold.holdId))) await vault.releaseHold(holdId);
      }
      for (const { holdId, placedAtMs } of byContainer.get(rid) ?? []) {
        if (known.has(holdId) || !(isAlone || placedAtMs < abandonedMs)) continue;
        if (await inLog.lets(holdIdOf(rid, holdId))) await vault.releaseHold(holdId, { placedAtMs });
      }
      const { floorSeconds } = state.retention;
      const inForce = floors.get(rid)?.retention ?? 0;
      const isTooHigh = isAlone && inForce > floorSeconds && (await inLog.floorSeconds()) === floorSeconds;
      if (inForce < floorSeconds || isTooHigh) await this.#settleFloor(state);
    }
  }

  /**
   * Makes the vault keep what a standing hold covers.
   *
   * @param held the hold as the vault has it
   */
  async #keep(
    state: ContainerState,
    hold: StandingHold,
    held: VaultHold | undefined,
    inLog: RetentionInLog,
  ): Promise<void> {
    const { vault } = this.#parts.ports;
    const { rid } = state;
    const wanted = await this.#inVault(rid, hold).catch(unlessDamaged);
    if (wanted === undefined) {
      // The scope of the hold is lost. Unless the vault has it, the whole container is kept.
      const { placedAtMs } = hold;
      const scope = { kind: 'container', containerRid: rid } as const;
      if (held === undefined)
        await vault.placeHold({ holdId: vaultHoldId(rid, hold.holdId), containerRid: rid, scope, placedAtMs });
      return;
    }
    const isHeld = (scope: HoldScope) => rid === held?.containerRid && sameJson(scope, held.scope);
    if (isHeld(wanted.scope)) return;
    const recorded = await inLog.standing(hold.holdId);
    if (held === undefined && (recorded === undefined || sameJson(recorded, hold))) {
      await this.#settle(state, hold.holdId);
      return;
    }
    const placed = recorded === undefined ? wanted : await this.#inVault(rid, recorded);
    // An id belongs to one hold for ever, so one of the two records is damaged. It is unknown which, so what either
    // covers is kept.
    const isKnown = held !== undefined && held.isDamaged !== true;
    const scope = isKnown ? widened(placed.scope, held.scope, rid) : placed.scope;
    if (!isHeld(scope)) await vault.placeHold({ ...placed, scope });
  }

  /**
   * For a restore, before {@link settleAll}: records the holds and floors that the vault has and the log, an older
   * copy, does not. Who placed them and why is lost with the log, but they go on keeping content. Those of containers
   * that are lost too have nothing to keep. They are removed, because they must not apply to the next container of that
   * name.
   *
   * @param keysAsOf the log's head when the keys were copied, if that is known
   */
  async recordUnknown(context: CommandContext, keysAsOf: number | undefined): Promise<void> {
    const { vault } = this.#parts.ports;
    const holds = await vault.holds();
    const byContainer = Map.groupBy(holds, containerOfHold);
    const floors = await vault.floors();
    const isLost = (rid: string): boolean => this.#parts.catalog.containerByRid(rid) === undefined;
    for (const hold of holds) {
      if (isLost(containerOfHold(hold))) await vault.releaseHold(hold.holdId);
    }
    for (const rid of [...floors.keys()].filter(isLost)) {
      for (const kind of floorKinds) await vault.setFloor(rid, kind, 0);
    }
    for (const { state } of this.#parts.catalog.allContainers()) {
      const { rid } = state;
      for (const hold of (byContainer.get(rid) ?? []).toSorted(byPlacing)) {
        const holdId = holdIdOf(rid, hold.holdId);
        if (this.#known(state, holdId) !== undefined) continue;
        const scope = recordedScope(rid, hold.scope);
        const tooLateFor = await this.#tooLateFor(state, scope);
        const what = { type: 'PlaceHold', holdId, scope, tooLateFor } as const;
        await recordRetention(this.#parts, context, rid, { ...what, reason: REASON_LOST });
      }
      const seconds = floors.get(rid)?.retention ?? 0;
      if (seconds <= state.retention.floorSeconds || (await this.#wasLowered(rid, seconds, keysAsOf))) continue;
      await recordRetention(this.#parts, context, rid, { type: 'ChangeRetentionFloor', seconds, reason: REASON_LOST });
    }
  }

  /**
   * Whether a floor in the vault, which is higher than the recorded one, was lowered after the keys were copied. If it
   * is unknown when they were copied, the floor counts as lowered if it was recorded at that height before.
   */
  async #wasLowered(rid: string, seconds: number, keysAsOf: number | undefined): Promise<boolean> {
    for await (const page of streamPages(this.#parts.ports.log, containerStream(rid))) {
      for (const recorded of page) {
        if (recorded.type !== 'RetentionFloorChanged') continue;
        const event = readContainerEvent(recorded);
        if (event.type !== 'RetentionFloorChanged') continue;
        if (keysAsOf === undefined ? event.data.toSeconds === seconds : recorded.position > keysAsOf) return true;
      }
    }
    return false;
  }

  readonly list: RetentionApi['holds'] = async (container, { after, limit = Number.POSITIVE_INFINITY }) => {
    const known: KnownHold[] = [];
    for (const hold of this.#state(container).retention.holds.after(after)) {
      if (known.length === limit) break;
      known.push(hold);
    }
    const holds: RecordedHold[] = [];
    for (let from = 0; from < known.length; from += READ_AT_ONCE) {
      holds.push(...(await allDone(known.slice(from, from + READ_AT_ONCE).map((hold) => this.#recorded(hold)))));
    }
    return holds;
  };

  /** @throws Refusal hold-not-found */
  async find(container: ContainerState, holdId: string): Promise<ShownHold> {
    const known = this.#known(container, holdId);
    if (known === undefined) throw new Refusal('hold-not-found');
    const hold = await this.#recorded(known);
    return { ...hold, scope: await scopeOfHold(this.#parts.ports.log, hold) };
  }

  async place(caller: Caller, container: ContainerState, holdId: string, request: HoldRequest): Promise<PlacedHold> {
    const { rid } = container;
    return this.#order.run(vaultHoldId(rid, holdId), async () => {
      await this.#parts.confirmCatalog(0);
      const known = this.#known(container, holdId);
      if (known !== undefined) return { hold: await this.#again(container, known, request), placed: false };
      if (this.#state(container).retention.holds.standing >= MAX_STANDING_HOLDS) throw tooManyHolds();
      const scope = await this.#resolve(container, request);
      let context = this.#parts.command(caller);
      const newHold = (): VaultHold => {
        context = this.#parts.command(caller);
        return {
          holdId: vaultHoldId(rid, holdId),
          containerRid: rid,
          scope: vaultScope(rid, scope),
          placedAtMs: context.nowMs,
        };
      };
      let mayBeOnRecord = false;
      try {
        const other = await this.#placeNew(container, holdId, newHold);
        if (other !== undefined) return { hold: await this.#again(container, other, request), placed: false };
        const { scope: asked, reason } = request;
        const partitionKey = asked.kind === 'partition-key' ? asked.partitionKey : undefined;
        const tooLateFor = await this.#tooLateFor(container, scope, partitionKey);
        mayBeOnRecord = true;
        await recordRetention(this.#parts, context, rid, { type: 'PlaceHold', holdId, scope, reason, tooLateFor });
        // Acknowledged only when the vault has the hold: if recording took long, another node may have released it
        // meanwhile.
        await this.#settle(container, holdId);
      } catch (error) {
        // Nothing of this request is recorded, so no record would say why the vault keeps its content. But the same
        // request, sent again to another node, or another hold of that id, may be recorded.
        const isKnown = !mayBeOnRecord || error instanceof Refusal;
        const placedAtMs = context.nowMs;
        const isSettled = isKnown && (await isDone(this.#settle(container, holdId, placedAtMs)));
        if (!isSettled) this.#settleAfterFault(container, holdId, { isSafeNow: isKnown, placedAtMs });
        // Another node may have got the same request at the same time.
        const isTaken = isSettled && error instanceof Refusal && error.code === 'already-exists';
        const now = isTaken ? this.#known(container, holdId) : undefined;
        if (now === undefined) throw error;
        return { hold: await this.#again(container, now, request), placed: false };
      }
      return { hold: await this.find(container, holdId), placed: true };
    });
  }

  /**
   * Puts a hold into the vault that is not recorded yet. Another node may be placing a hold of that id on something
   * else, which must not be released, because it may be acknowledged by now. Or it may be placing the same hold at the
   * same time: if it then failed, it would remove this one as its own.
   *
   * @param newHold makes the hold with the time at which it is called
   * @returns the other node's hold once it is recorded
   */
  async #placeNew(container: ContainerState, holdId: string, newHold: () => VaultHold): Promise<KnownHold | undefined> {
    const { vault, nodes } = this.#parts.ports;
    const most = nodes === undefined ? 0 : OTHER_HOLD_LOOKS;
    for (let looks = 0; looks < most; looks++) {
      if (await vault.placeHold(newHold(), { isNew: true })) return undefined;
      await this.#parts.confirmCatalog(0);
      const known = this.#known(container, holdId);
      if (known !== undefined) return known;
      await wait(OTHER_HOLD_LOOK_MS);
    }
    // A request that failed has left a hold that was never acknowledged. It is replaced.
    await vault.placeHold(newHold());
    return undefined;
  }

  /** @throws Refusal hold-not-found */
  async release(caller: Caller, container: ContainerState, holdId: string, reason: string): Promise<ShownHold> {
    const { rid } = container;
    return this.#order.run(vaultHoldId(rid, holdId), async () => {
      try {
        await recordRetention(this.#parts, this.#parts.command(caller), rid, { type: 'ReleaseHold', holdId, reason });
        await this.#parts.ports.vault.releaseHold(vaultHoldId(rid, holdId));
      } catch (error) {
        if (!(error instanceof Refusal)) this.#settleAfterFault(container, holdId, { isSafeNow: true });
        throw error;
      }
      this.#lookAgain(container);
      return this.find(container, holdId);
    });
  }

  /** Sets how many seconds after the last write no content of the container is erased; 0 for none. */
  async setFloor(caller: Caller, container: ContainerState, seconds: number, reason: string): Promise<ContainerState> {
    const { rid } = container;
    return this.#order.run(rid, async () => {
      const { vault } = this.#parts.ports;
      const context = this.#parts.command(caller);
      await this.#parts.confirmCatalog(0);
      const before = await this.#floorInVault(rid);
      let mayBeOnRecord = false;
      try {
        // Another node may have raised the floor further since it was read. A floor is lowered only after that is
        // recorded.
        if (seconds > before) await vault.setFloor(rid, 'retention', seconds, { mayLower: false });
        mayBeOnRecord = true;
        await recordRetention(this.#parts, context, rid, { type: 'ChangeRetentionFloor', seconds, reason });
        this.#retries.close(floorKey(rid));
        await this.#settleFloor(container);
      } catch (error) {
        const isSafeNow = seconds < before || !mayBeOnRecord || error instanceof Refusal;
        this.#retries.settle(floorKey(rid), () => this.#settleFloorInTurn(container), { isSafeNow });
        throw error;
      }
      return this.#state(container);
    });
  }

  readonly setRecoveryWindow: RetentionApi['setRecoveryWindow'] = async (caller, container, seconds, reason) => {
    await recordRetention(this.#parts, this.#parts.command(caller), container.rid, {
      type: 'ChangeRecoveryWindow',
      seconds,
      reason,
    });
    // Erasures that were due without the window and had been begun are finished before the answer. None of them comes after it.
    await this.#purge.keptFromNow();
    return this.#state(container);
  };

  /**
   * Makes the vault agree with what is recorded about a hold by now. Other nodes do so too, each after its own record.
   * This node may have overwritten what one of them changed in the vault, so the record is read again. A hold that is
   * not recorded, but may still be, stays in the vault.
   *
   * @param placedAtMs the time of an unrecorded hold that was placed here; one that another node has placed since stays
   */
  async #settle(container: ContainerState, holdId: string, placedAtMs?: number): Promise<void> {
    const { vault } = this.#parts.ports;
    const name = vaultHoldId(container.rid, holdId);
    const mayCome = (): boolean => this.#known(container, holdId) === undefined && this.#retries.isOpen(name);
    const standing = async (): Promise<StandingHold | undefined> => {
      await this.#parts.recorded();
      const known = this.#known(container, holdId);
      return known !== undefined && isStanding(known) ? known : undefined;
    };
    let hold = await standing();
    for (;;) {
      if (hold === undefined) {
        if (mayCome()) return;
        const wasOnRecord = this.#known(container, holdId) !== undefined;
        await vault.releaseHold(name, wasOnRecord ? {} : { placedAtMs });
        this.#lookAgain(container);
      } else await vault.placeHold(await this.#inVault(container.rid, hold));
      const now = await standing();
      // An id belongs to one hold for ever, so nothing else about the hold can have changed.
      if ((now === undefined) === (hold === undefined)) return;
      hold = now;
    }
  }

  #settleAfterFault(
    container: ContainerState,
    holdId: string,
    when: { readonly isSafeNow: boolean; readonly placedAtMs?: number },
  ): void {
    const name = vaultHoldId(container.rid, holdId);
    const settle = () => this.#order.run(name, () => this.#settle(container, holdId, when.placedAtMs));
    this.#retries.settle(name, settle, when);
  }

  /** Makes the vault's floor agree with what is recorded by now, as {@link #settle} does for a hold. */
  async #settleFloor(container: ContainerState): Promise<void> {
    const { rid } = container;
    for (;;) {
      const { floorSeconds } = this.#state(container).retention;
      const inForce = await this.#floorInVault(rid);
      const mayCome = inForce > floorSeconds && this.#retries.isOpen(floorKey(rid));
      const isRight = inForce === floorSeconds || mayCome;
      // The floor is only set if it is still the one that was read: one that another node has set since may be acknowledged by now.
      if (!isRight) await this.#parts.ports.vault.setFloor(rid, 'retention', floorSeconds, { from: inForce });
      if (!isRight && floorSeconds < inForce) this.#lookAgain(container);
      await this.#parts.confirmCatalog(0);
      if (isRight && this.#state(container).retention.floorSeconds === floorSeconds) return;
    }
  }

  async #settleFloorInTurn(container: ContainerState): Promise<void> {
    await this.#order.run(container.rid, async () => {
      await this.#parts.recorded();
      await this.#settleFloor(container);
    });
  }

  /**
   * Lives that were kept may not be kept any more: the purge asks about them again, and counts none as kept until it
   * has.
   */
  #lookAgain({ rid }: ContainerState): void {
    this.#purge.lookAgain(this.#parts.catalog.containerByRid(rid)?.number);
  }

  async #floorInVault(rid: string): Promise<number> {
    return (await this.#parts.ports.vault.floors()).get(rid)?.retention ?? 0;
  }

  /** The answer for a hold that is placed again: the same hold is a retry, a different one is a mistake. */
  async #again(container: ContainerState, hold: KnownHold, request: HoldRequest): Promise<ShownHold> {
    const known = await this.#recorded(hold);
    const since = `${isoTime(known.placedAtMs)} by ${known.placedBy}`;
    if (known.released !== undefined) {
      throw new Refusal(
        'already-exists',
        `A hold of that id was placed at ${since} and has been released. It stays on record: a new hold has a new id.`,
      );
    }
    const isSame =
      request.scope.kind !== 'query' &&
      known.reason === request.reason &&
      sameJson(known.scope, await this.#resolve(container, request));
    if (isSame) return this.find(container, known.holdId);
    throw new Refusal('already-exists', `A hold of that id was placed at ${since}; it can't be changed.`);
  }

  /** The scope of a request in names of streams. */
  async #resolve(container: ContainerState, { scope }: HoldRequest): Promise<RecordedScope> {
    const { naming } = this.#parts.ports;
    const { rid } = container;
    switch (scope.kind) {
      case 'container':
        return { kind: 'container' };
      case 'partition-key': {
        const prefix = await naming.partitionStreamPrefix(rid, scope.partitionKey);
        return { kind: 'partition-key', prefix: withoutContainer(rid, prefix) };
      }
      case 'items': {
        const names = new Set<string>();
        for (const { id, partitionKey } of scope.items) {
          names.add(withoutContainer(rid, await naming.itemStreamPrefix(rid, partitionKey, id)));
        }
        return { kind: 'items', items: [...names].toSorted() };
      }
      case 'query': {
        const rows = await this.#queries.rowsOf(container, scope, MAX_LIVES_OF_A_HOLD);
        if (rows === undefined) {
          throw new Refusal(
            'hold-too-wide',
            `The query finds more than ${MAX_LIVES_OF_A_HOLD} items, which one hold can't name. Narrow it, or hold a partition key or the container.`,
          );
        }
        const lives: string[] = [];
        const pace = new Pace();
        for (const { partitionKey, id, life } of rows) {
          await pace.step();
          const prefix = await naming.itemStreamPrefix(rid, partitionKey, id);
          lives.push(withoutContainer(rid, itemStream(prefix, life)));
        }
        return { kind: 'query', lives: lives.toSorted() };
      }
    }
  }

  /**
   * How many lives in a scope were erased before the vault had the hold, as far as the log says.
   *
   * @param partitionKey the key of a partition-key scope, if it is known; otherwise all the container's lives must be
   *   searched for the hash in its name
   */
  async #tooLateFor(container: ContainerState, scope: RecordedScope, partitionKey?: string): Promise<number> {
    const { log } = this.#parts.ports;
    const { rid } = container;
    let count = 0;
    switch (scope.kind) {
      case 'items':
        for (const item of scope.items) {
          try {
            for await (const life of livesOfItem(log, withContainer(rid, item))) {
              if (await this.#isKnownErased(life)) count += 1;
            }
          } catch (error) {
            unlessDamaged(error);
          }
        }
        return count;
      case 'query': {
        const pace = new Pace();
        for (const life of scope.lives) {
          await pace.step();
          const stream = withContainer(rid, life);
          if (await this.#isKnownErased({ stream, events: await lifeTail(log, stream) })) count += 1;
        }
        return count;
      }
      case 'container':
        return this.#erasedIn(container);
      case 'partition-key':
        return partitionKey === undefined
          ? this.#erasedBehind(container, withContainer(rid, scope.prefix))
          : this.#erasedIn(container, partitionKey);
    }
  }

  /** False for a life whose events are damaged: it must be kept like all others, and especially then. */
  async #isKnownErased(life: Pick<ItemLife, 'stream' | 'events'>): Promise<boolean> {
    try {
      return life.events.length > 0 && (await isErased(this.#parts.ports.vault, life));
    } catch (error) {
      unlessDamaged(error);
      return false;
    }
  }

  /**
   * Counts by what is recorded. Waits for erasures that this node had begun when the vault got the hold; none of what
   * the hold covers has begun since. Erasures of other nodes may be recorded only after this.
   */
  async #erasedIn(container: ContainerState, partitionKey?: string): Promise<number> {
    await this.#purge.recorded();
    const { number } = this.#parts.catalog.containerByRid(container.rid)!;
    if (partitionKey === undefined) return this.#parts.readModel.countErased(number);
    const recorded = isPseudonym(partitionKey)
      ? partitionKey
      : await this.#parts.recordedPartitionKey(container, partitionKey);
    return this.#parts.readModel.countErased(number, recorded);
  }

  /** Counts the recorded erasures whose streams' names begin with a prefix. */
  async #erasedBehind(container: ContainerState, prefix: string): Promise<number> {
    const { number } = this.#parts.catalog.containerByRid(container.rid)!;
    let count = 0;
    let after: { readonly atMs: number; readonly position: number } | undefined;
    for (;;) {
      const page = { fromMs: 0, toMs: Number.MAX_SAFE_INTEGER, cause: undefined, after, limit: ROWS_AT_ONCE };
      const rows = await this.#parts.readModel.disappearances(number, page);
      for (const { partitionKey, id, purgedAtMs } of rows) {
        if (purgedAtMs === null) continue;
        const name = await this.#parts.ports.naming.itemStreamPrefix(container.rid, partitionKey, id);
        if (name.startsWith(prefix)) count += 1;
      }
      after = rows.at(-1);
      if (rows.length < ROWS_AT_ONCE) return count;
    }
  }

  async #inVault(rid: string, hold: StandingHold): Promise<VaultHold> {
    const scope = vaultScope(rid, await scopeOfHold(this.#parts.ports.log, hold));
    return { holdId: vaultHoldId(rid, hold.holdId), containerRid: rid, scope, placedAtMs: hold.placedAtMs };
  }

  /** What is recorded about a hold. A released one is read from the log. */
  async #recorded(hold: KnownHold): Promise<RecordedHold> {
    if (isStanding(hold)) return hold;
    const placed = await this.#readAt(hold.position, 'HoldPlaced');
    const { event, recorded } = await this.#readAt(hold.releasePosition, 'HoldReleased');
    const released = { by: recorded.actor, atMs: recorded.occurredAtMs, reason: event.data.reason };
    return { ...placedHold(placed.event.data, placed.recorded), released };
  }

  async #readAt<Type extends 'HoldPlaced' | 'HoldReleased'>(
    position: number,
    type: Type,
  ): Promise<{ readonly event: Extract<RetentionEvent, { type: Type }>; readonly recorded: RecordedEvent }> {
    const recorded = await this.#parts.ports.log.readAt(position);
    invariant(recorded !== undefined, 'the record of a hold is never truncated');
    const event = readContainerEvent(recorded);
    invariant(event.type === type, 'a hold has the positions of its records');
    return { event: event as Extract<RetentionEvent, { type: Type }>, recorded };
  }

  #known(container: ContainerState, holdId: string): KnownHold | undefined {
    return this.#state(container).retention.holds.find(holdId);
  }

  #state({ rid }: ContainerState): ContainerState {
    const found = this.#parts.catalog.containerByRid(rid);
    if (found === undefined) throw new Refusal('container-not-found');
    return found.state;
  }
}
