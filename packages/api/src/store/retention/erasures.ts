import type { CommandContext } from '@epitaph/core/command-context.ts';
import { isoTime } from '@epitaph/core/clock.ts';
import { containerEvents } from '@epitaph/core/container/read-stream.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { invariant, InvariantViolation } from '@epitaph/core/invariant.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { foldItem } from '@epitaph/core/item/handle.ts';
import { holdIdOf, withContainer, withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { isStanding } from '@epitaph/core/retention/hold-register.ts';
import type { RetentionEvent } from '@epitaph/core/retention/events.ts';
import type { PendingErasure } from '@epitaph/core/retention/state.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';
import { wait } from '../../wait.ts';
import type { Caller } from '../api/common.ts';
import type { ErasureOutcome, RetentionApi } from '../api/retention-api.ts';
import {
  assertNoneBehind,
  endWhatIsOver,
  isErased,
  isPurged,
  type ItemLife,
  lastLifeOf,
  itemLife,
  lifeLost,
  livesOfItem,
  retentionUntil,
} from '../items/item-lives.ts';
import { ERASURE_LOOK_MS, ERASURE_LOOKS } from '../items/item-writes.ts';
import { RESTORE } from '../operations/backups.ts';
import type { StoreParts } from '../parts.ts';
import type { Retries } from '../retries.ts';
import { recordRetention } from './retention-record.ts';

/** What prevents an erasure: holds or a floor. */
interface Kept {
  /** Ids by which the container knows the holds. */
  readonly holds: readonly string[];
  readonly floorUntilMs: number | null;
}

/** The result of one turn at an erasure. */
interface Destroyed {
  readonly kept: Kept | undefined;
  /** True if the outcome of the request is already recorded. */
  readonly isOnRecord: boolean;
  /** The highest number of a life that existed; -1 if unknown. */
  readonly lastLife: number;
  readonly erasedLives: number;
  readonly alreadyErasedLives: number;
}

type SettledErasure = Extract<RetentionEvent, { readonly type: 'ErasureCompleted' | 'ErasureRefused' }>;

/**
 * How many of the holds that prevent an erasure, which may be thousands, a refusal names in its text, and how many it
 * describes in full.
 */
const HOLDS_IN_WORDS = 10;
const HOLDS_IN_FULL = 100;
/** How often a held clock is checked while erasures wait for it. */
const LOOK_EVERY_MS = 200;
/** With several nodes: after this time without an outcome, an erasure is taken to be left by a node that is gone. */
const UNFINISHED_MS = 60_000;
/** How often erasures without an outcome are looked for. */
const LOOK_FOR_UNFINISHED_MS = 1_000;
/** The key under which resuming erasures is retried. */
const RESUME = 'erasures';

/**
 * Erases one item with all its lives on request. The request is recorded before anything is destroyed, and its outcome
 * afterwards.
 *
 * So an erasure that a crash has cut short is carried out at the next start, or as soon as the clock is trusted then.
 * One that a fault has cut short is carried out when the fault is over, and one left by a node that never starts again
 * by another node. If the item was written again meanwhile, that life came after the request and stays, unless its key
 * has been destroyed before this is noticed; then that is recorded too.
 */
export class Erasures {
  readonly #parts: StoreParts;
  readonly #purge: PurgeRunner;
  readonly #retries: Retries;
  /** Positions of the requests that are being carried out. */
  readonly #underWay = new Set<number>();
  readonly #stopped = new AbortController();
  #watching: Promise<void> | undefined;

  constructor(parts: StoreParts, purge: PurgeRunner, retries: Retries) {
    this.#parts = parts;
    this.#purge = purge;
    this.#retries = retries;
  }

  /** @throws Refusal item-not-found for an item that never existed, held with what keeps the item */
  readonly erase: RetentionApi['eraseItem'] = async (caller, container, id, partitionKey, { reason, requestedBy }) => {
    const { log, naming } = this.#parts.ports;
    const prefix = await naming.itemStreamPrefix(container.rid, partitionKey, id);
    if ((await itemLife(log, prefix, 0)) === undefined) {
      const name = await this.#parts.recordedName(container, { id, partitionKey });
      await this.#assertNoneBehind(container.rid, name, prefix, 0);
      throw new Refusal('item-not-found', 'Nothing was ever written under that id and partition key.');
    }
    const item = withoutContainer(container.rid, prefix);
    const context = this.#parts.command(caller);
    try {
      const position = await recordRetention(this.#parts, context, container.rid, {
        type: 'RequestErasure',
        item,
        requestedBy,
        reason,
      });
      invariant(position !== undefined, 'a request is put on record');
      return await this.#carryOut(context, container, { position, item, by: caller.actor });
    } catch (error) {
      // The request may be recorded, and keys may be destroyed.
      if (!isOutcome(error)) this.#resumeLater();
      throw error;
    }
  };

  /**
   * Carries out the erasures that a crash or a fault has left without an outcome. They wait while the clock is held. An
   * erasure that is refused now is recorded as refused.
   */
  resumeAll(): Promise<void> {
    return this.#retries.begin(RESUME, () => this.#resumeAll());
  }

  #resumeLater(waitMs?: number): void {
    this.#retries.again(RESUME, () => this.#resumeAll(), waitMs);
  }

  /** From now on also carries out the erasures that other nodes have left, which may never start again. */
  watchOthers(): void {
    this.#watching ??= this.#watch();
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stopped;
    const { monotonicMs } = this.#parts.ports;
    let seen = new Map<number, number>();
    for (;;) {
      await wait(LOOK_FOR_UNFINISHED_MS, signal);
      if (signal.aborted) return;
      const nowMs = monotonicMs();
      const pending = this.#parts.catalog.allContainers().flatMap(({ state }) => state.retention.erasures);
      const others = pending.filter(({ position }) => !this.#underWay.has(position));
      seen = new Map(others.map(({ position }) => [position, seen.get(position) ?? nowMs]));
      if (![...seen.values()].some((sinceMs) => nowMs - sinceMs >= UNFINISHED_MS)) continue;
      seen.clear();
      this.#resumeLater(0);
    }
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#watching;
  }

  /** An erasure that can't be carried out must not prevent the others. */
  async #resumeAll(): Promise<void> {
    const { catalog, ports } = this.#parts;
    const faults: unknown[] = [];
    let waits = false;
    for (const { state } of catalog.allContainers()) {
      for (const pending of state.retention.erasures) {
        const { erasures } = catalog.containerByRid(state.rid)!.state.retention;
        // The erasure may have been carried out since this began, and the item written again.
        if (this.#underWay.has(pending.position) || !erasures.some(({ position }) => position === pending.position)) {
          continue;
        }
        try {
          // After a restore the purge is paused, so that holds which were lost with the log can be placed again before
          // this erases what they kept.
          if ((await this.#purge.pausedBy()) === RESTORE.actor && !(await this.#isDone(state.rid, pending))) {
            waits = true;
            continue;
          }
          // The clock may be confirmed by an operator, or agree again by itself.
          if (ports.clockJump() !== undefined) return this.#resumeLater(LOOK_EVERY_MS);
          const caller = { actor: pending.by, correlationId: ports.newId() };
          await this.#carryOut(this.#parts.command(caller), state, pending, { isLate: true });
        } catch (error) {
          if (error instanceof Refusal && error.code === 'clock-held') return this.#resumeLater(LOOK_EVERY_MS);
          if (!isOutcome(error)) faults.push(error);
        }
      }
    }
    if (waits) this.#resumeLater(LOOK_FOR_UNFINISHED_MS);
    if (faults.length === 1) throw faults[0];
    if (faults.length > 1) throw new AggregateError(faults, faults.map((fault) => (fault as Error).message).join('; '));
  }

  /** Whether a late erasure has nothing left to destroy and only has to be recorded. */
  async #isDone(rid: string, { item, position }: PendingErasure): Promise<boolean> {
    const { log, vault } = this.#parts.ports;
    for await (const life of livesOfItem(log, withContainer(rid, item))) {
      if (isPurged(life) || (await isErased(vault, life))) continue;
      return hasBegunAfter(log, life, position, Number.POSITIVE_INFINITY);
    }
    return true;
  }

  async #carryOut(
    context: CommandContext,
    container: ContainerState,
    pending: PendingErasure,
    when: { readonly isLate: boolean } = { isLate: false },
  ): Promise<ErasureOutcome> {
    this.#underWay.add(pending.position);
    try {
      return await this.#carryOutAlone(context, container, pending, when);
    } finally {
      this.#underWay.delete(pending.position);
    }
  }

  async #carryOutAlone(
    context: CommandContext,
    { rid }: ContainerState,
    { position, item }: PendingErasure,
    when: { readonly isLate: boolean },
  ): Promise<ErasureOutcome> {
    const prefix = withContainer(rid, item);
    const isAmongOthers = this.#parts.ports.nodes !== undefined;
    for (let looks = 0; ; looks++) {
      const done = await this.#inTurn(rid, prefix, () =>
        this.#destroy(this.#now(context), rid, prefix, position, when),
      );
      if (done === undefined) {
        // Another node or the purge is working on the item. The result is recorded by the next look.
        if (looks === ERASURE_LOOKS) throw new Refusal('busy', 'The item is still being erased; it goes on by itself.');
        await wait(ERASURE_LOOK_MS);
        continue;
      }
      const { kept, isOnRecord, lastLife, ...outcome } = done;
      const { state } = this.#parts.catalog.containerByRid(rid)!;
      if (kept !== undefined && isOnRecord) throw refusedBy(kept, state, outcome.erasedLives);
      let isSettled = kept === undefined;
      // Left-over requests for the same item get the same outcome. A request that is under way records its own; for
      // other nodes' requests it is unknown whether they are under way.
      for (const pending of state.retention.erasures) {
        if (pending.item !== item) continue;
        if (pending.position !== position && (isAmongOthers || this.#underWay.has(pending.position))) continue;
        const recordedAt = await recordRetention(this.#parts, this.#now(context), rid, {
          type: 'SettleErasure',
          ...outcome,
          position: pending.position,
          // If a node died after it recorded the release of a hold, the hold is in the vault until that node starts
          // again.
          kept: kept && { ...kept, isUnrecorded: looks >= ERASURE_LOOKS },
        });
        if (pending.position === position && recordedAt !== undefined) isSettled = true;
      }
      if (!isSettled) {
        await wait(ERASURE_LOOK_MS);
        continue;
      }
      if (kept !== undefined) throw refusedBy(kept, state, outcome.erasedLives);
      if (isAmongOthers) this.#lookForRecovered(context, rid, prefix, { position, lastLife });
      return { position, ...outcome };
    }
  }

  /**
   * Looks later whether another node has recovered the item meanwhile. That node checks for an earlier erasure itself,
   * but it may be gone by then, or may not know that what it sent was recorded.
   */
  #lookForRecovered(
    { actor, correlationId }: Caller,
    rid: string,
    prefix: string,
    { position, lastLife }: { readonly position: number; readonly lastLife: number },
  ): void {
    const { log, nodes } = this.#parts.ports;
    const look = async (): Promise<void> => {
      const last = await lastLifeOf(log, prefix);
      if (last === undefined || isPurged(last)) return;
      const context = this.#parts.command({ actor, correlationId });
      await this.#inTurn(rid, prefix, () => this.#destroy(context, rid, prefix, position, { isLate: true, lastLife }));
    };
    this.#retries.again(`recoveries of ${prefix}`, look, nodes?.policyDelayMs);
  }

  #inTurn<Result>(rid: string, prefix: string, work: () => Promise<Result>): Promise<Result> {
    return this.#parts.itemOrder.run(prefix, () => this.#undisturbed(rid, work));
  }

  /** The context with the time of its turn: an erasure must not be dated before the events that it waited for. */
  #now(context: CommandContext): CommandContext {
    return { ...context, nowMs: this.#parts.ports.clock.now() };
  }

  /**
   * Makes a delete by partition key wait, so that it can't come between reading the item's state and the end of the
   * erasure.
   */
  async #undisturbed<Result>(rid: string, work: () => Promise<Result>): Promise<Result> {
    const { catalog } = this.#parts;
    const { state } = catalog.containerByRid(rid)!;
    let hasBegun = false;
    const begin = () => {
      hasBegun = true;
      return work();
    };
    if (catalog.goneAtMs(state) !== null) return work();
    try {
      return await this.#parts.writeIn(state, begin);
    } catch (error) {
      // The container was deleted before the work was let in.
      if (!hasBegun && error instanceof Refusal && error.code === 'container-not-found') return work();
      throw error;
    }
  }

  async #destroy(
    context: CommandContext,
    rid: string,
    prefix: string,
    requestedAt: number,
    when: { readonly isLate: boolean; readonly lastLife?: number },
  ): Promise<Destroyed | undefined> {
    const settled = await this.#settled(rid, requestedAt);
    if (settled?.type === 'ErasureRefused') {
      const { holds, floorUntilMs, erasedLives } = settled.data;
      return { kept: { holds, floorUntilMs }, isOnRecord: true, lastLife: -1, erasedLives, alreadyErasedLives: 0 };
    }
    const isOnRecord = settled !== undefined;
    const isLate = when.isLate || isOnRecord;
    // While a request has no outcome, only a node that does not know of the request can recover the item.
    const lastBefore = when.lastLife ?? (isOnRecord ? -1 : Number.POSITIVE_INFINITY);
    let lastLife = -1;
    // The catalog alone must not decide that a life has ended, because the record of that would stay.
    await this.#parts.catalogCheck.assertAgrees(rid);
    // Whether the item has expired is decided by the policy of this instant, so no other policy may begin at it.
    this.#parts.expirySeen(this.#parts.catalog.containerByRid(rid)!.number, context.nowMs);
    await this.#endWhatIsOver(context, rid, prefix);
    const left: ItemLife[] = [];
    /** Lives that are recorded as purged and whose writes a crash has left in the log. */
    const untruncated: ItemLife[] = [];
    let alreadyErasedLives = 0;
    // Lives that this request erased before it was interrupted.
    let erasedBefore = 0;
    const { log, vault } = this.#parts.ports;
    let last: ItemLife | undefined;
    let isLookedThrough = true;
    for await (const life of livesOfItem(log, prefix)) {
      last = life;
      // Turns are ordered only while requests wait. For a late request, another node may have carried it out by now,
      // and the item may have been written again. Lives that were destroyed in its turn must still be recorded.
      const isLeft = isLate && !isPurged(life) && !(await isErased(vault, life));
      if (isLeft && (await hasBegunAfter(log, life, requestedAt, lastBefore))) {
        isLookedThrough = false;
        break;
      }
      if (!isOnRecord) lastLife = life.life;
      if (!isPurged(life)) left.push(life);
      else if (life.events.at(-1)!.position < requestedAt) alreadyErasedLives += 1;
      else erasedBefore += 1;
      if (isPurged(life) && life.events.some(isItemWrite)) untruncated.push(life);
    }
    // If the log has lost a life, it is unknown which keys to destroy. An erasure that leaves the life must not pass
    // for done.
    if (last === undefined) throw lifeLost(prefix, 0);
    const name = nameIn(last);
    if (isLookedThrough && name !== undefined) await this.#assertNoneBehind(rid, name, prefix, last.life + 1);
    const standing = await this.#standing(context, rid, left);
    if (standing !== undefined)
      return { kept: standing, isOnRecord, lastLife, erasedLives: erasedBefore, alreadyErasedLives };
    const { state } = this.#parts.catalog.containerByRid(rid)!;
    const withContainer = this.#parts.catalog.goneAtMs(state) !== null;
    const batch = await this.#purge.eraseOnDemand({
      // If a life had ended before its container was deleted, its recorded reason is another.
      lives: [...untruncated, ...left].map(({ stream, events }) => ({
        stream,
        cause: withContainer && foldItem(events.slice(-1)).status === 'live' ? 'container-deleted' : 'erasure',
      })),
      context,
      // If another node has refused the request, that stays, even if the reason is over by the time of this node's
      // turn.
      ...(this.#parts.ports.nodes && {
        isWanted: async () => (await this.#settled(rid, requestedAt))?.type !== 'ErasureRefused',
      }),
    });
    if (batch.left.some((index) => index >= untruncated.length)) return undefined;
    // The vault decides: a hold may have been placed since it was asked.
    const kept = keptBy(rid, batch.refused);
    return { kept, isOnRecord, lastLife, erasedLives: erasedBefore + batch.purged, alreadyErasedLives };
  }

  #assertNoneBehind(rid: string, name: ItemName, prefix: string, life: number): Promise<void> {
    return assertNoneBehind(this.#parts, this.#parts.catalog.containerByRid(rid)!.number, name, prefix, life);
  }

  /**
   * The outcome of a request, if it is recorded. Another node, for instance one that has just started, may have carried
   * the request out while it waited here.
   */
  async #settled(rid: string, requestedAt: number): Promise<SettledErasure | undefined> {
    await this.#parts.confirmCatalog(0);
    const { erasures } = this.#parts.catalog.containerByRid(rid)!.state.retention;
    if (erasures.some(({ position }) => position === requestedAt)) return undefined;
    const since = { after: requestedAt, before: Number.MAX_SAFE_INTEGER };
    for await (const recorded of containerEvents(this.#parts.ports.log, rid, since)) {
      if (recorded.type !== 'ErasureCompleted' && recorded.type !== 'ErasureRefused') continue;
      const event = readContainerEvent(recorded);
      const isSettlement = event.type === 'ErasureCompleted' || event.type === 'ErasureRefused';
      if (isSettlement && event.data.position === requestedAt) return event;
    }
    throw new InvariantViolation(`of the erasure requested at ${requestedAt} it is on record what became of it`);
  }

  /**
   * Records how the item's last life ended, if it has ended: an erasure must not be recorded as the end of a life that
   * had another.
   */
  async #endWhatIsOver(context: CommandContext, rid: string, prefix: string): Promise<void> {
    const { log } = this.#parts.ports;
    const { state } = this.#parts.catalog.containerByRid(rid)!;
    const last = await lastLifeOf(log, prefix);
    if (last === undefined || foldItem(last.events.slice(-1)).status !== 'live') return;
    const position = await endWhatIsOver(this.#parts, context, state, { ...last, write: last.events.at(-1)! });
    if (position !== undefined) await this.#parts.projected(position);
  }

  /**
   * What prevents an erasure now. This is checked before anything is destroyed, so that either all lives are erased or
   * none.
   */
  async #standing(context: CommandContext, rid: string, lives: readonly ItemLife[]): Promise<Kept | undefined> {
    const { vault } = this.#parts.ports;
    const holds = await vault.holdsOn(lives.map(({ stream }) => stream));
    const floors = (await vault.floors()).get(rid) ?? {};
    const { nowMs } = context;
    const kept: Kept[] = [];
    for (const [index, life] of lives.entries()) {
      const over = {
        holds: holds[index]!,
        floorUntilMs: retentionUntil(floors, life, nowMs),
      };
      const isKept = over.holds.length > 0 || over.floorUntilMs !== null;
      // A purge may have destroyed the key of a life and been cut short by a fault before it could record that.
      if (isKept && !(await isErased(vault, life))) kept.push(over);
    }
    return keptBy(rid, kept);
  }
}

/**
 * Whether an error means that the erasure is settled, or was never requested. All others, such as a lagging projection,
 * only postpone it.
 */
const isOutcome = (error: unknown): boolean =>
  error instanceof Refusal && (error.code === 'held' || error.code === 'item-not-found');

/** The name of a life's item, from its last event; undefined when that is damaged. */
function nameIn({ events }: ItemLife): ItemName | undefined {
  try {
    return readItemEvent(events.at(-1)!).data;
  } catch (error) {
    return unlessDamaged(error);
  }
}

/**
 * Whether a life was written again after a request. The life must not be purged, and its first write must exist. A life
 * recovered from one that had begun before the request is what the request was about, so it does not count.
 *
 * @param lastBefore if a recovered life's source is no longer in the log, the source counts as begun before when its
 *   number is not higher than this
 */
async function hasBegunAfter(
  log: EventLog,
  { stream, events }: ItemLife,
  position: number,
  lastBefore: number,
): Promise<boolean> {
  if (events.at(-1)!.position < position) return false;
  const { prefix } = parseItemStream(stream)!;
  let from: number | undefined;
  for (;;) {
    const source = from === undefined ? stream : itemStream(prefix, from);
    const [first] = await log.readStream(source, { toRevision: 0, withBodies: false });
    if (first === undefined) return from !== undefined && from > lastBefore;
    if (first.position < position) return false;
    const event = readItemEvent(first);
    if (event.type !== 'ItemRecovered') return true;
    from = event.data.fromLife;
  }
}

function keptBy(rid: string, lives: readonly Kept[]): Kept | undefined {
  const holds = [...new Set(lives.flatMap((life) => life.holds))].map((hold) => holdIdOf(rid, hold)).toSorted();
  const floors = lives.flatMap(({ floorUntilMs }) => (floorUntilMs === null ? [] : [floorUntilMs]));
  if (holds.length === 0 && floors.length === 0) return undefined;
  return { holds, floorUntilMs: floors.length === 0 ? null : Math.max(...floors) };
}

function refusedBy({ holds, floorUntilMs }: Kept, { retention }: ContainerState, erasedLives: number): Refusal {
  const floor = floorUntilMs === null ? null : isoTime(floorUntilMs);
  const possibleFrom = holds.length > 0 ? null : floor;
  const names = holds.slice(0, HOLDS_IN_WORDS).map((hold) => JSON.stringify(hold));
  const others = holds.length > names.length ? ` and ${holds.length - names.length} more` : '';
  const reasons = [
    ...(holds.length === 0 ? [] : [`held by ${names.join(', ')}${others}`]),
    ...(floor === null ? [] : [`kept by the retention floor until ${floor}`]),
  ];
  const when =
    possibleFrom === null
      ? 'The erasure is possible when the holds are released'
      : `The erasure is possible from ${possibleFrom} on`;
  const some = erasedLives === 0 ? '' : ` ${erasedLives} of its lives were erased before the hold was placed.`;
  const standing = holds
    .flatMap((id) => retention.holds.find(id) ?? [])
    // A hold that was released since does not prevent the erasure any more.
    .filter(isStanding)
    .toSorted((left, right) => left.position - right.position);
  return new Refusal('held', `The content is ${reasons.join(' and ')}. ${when}; the request is on record.${some}`, {
    holds: standing.slice(0, HOLDS_IN_FULL).map(({ holdId, reason, placedBy, placedAtMs }) => ({
      id: holdId,
      reason,
      placedBy,
      placedAt: isoTime(placedAtMs),
    })),
    holdCount: standing.length,
    floorUntil: floor,
    possibleFrom,
    erasedLives,
  });
}
