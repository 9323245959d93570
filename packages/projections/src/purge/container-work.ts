import type { Clock } from '@epitaph/core/clock.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import type { ContainerNumber, EndedRow, ItemRow, UnrecordedEnd } from '../read-model-store.ts';
import type { CatalogCheck } from './catalog-check.ts';
import { erasureDelayMs } from './due-book.ts';
import type { EndRecorder } from './end-recorder.ts';
import type { Candidate, PurgeExecutor, RefusedLife } from './executor.ts';
import { despiteFaults, FAULT_RETRY_MS, type PurgeFault } from './faults.ts';
import {
  type AskedLife,
  BEGINNING,
  type HeldKind,
  type HeldLives,
  isBehind,
  livesOf,
  type Look,
  type Place,
} from './held-lives.ts';
import { isGone, type PurgePorts, streamOf } from './ports.ts';
import type { Freeze } from './runs.ts';

/**
 * For how long the vault is not asked again about lives that a hold keeps (with several nodes also those that a floor
 * keeps), and about lives at fault. A container with nothing else left to erase is not looked through for as long.
 */
const HELD_RETRY_MS = FAULT_RETRY_MS;
/** The wait is at least this long for each such life. Asking about one takes a tenth of it, and there is other work to do. */
const HELD_RETRY_MS_EACH = 1;

/** A life to erase, with its place and that of the life before it, in the order in which lives are looked through. */
interface Found<Row> {
  readonly row: Row;
  readonly kind: HeldKind;
  readonly place: Place;
  readonly after: Place;
}

export interface Work {
  readonly container: CatalogContainer;
  readonly overdue: readonly ItemRow[];
  /** Lives that left with their partition key and whose end is not recorded. */
  readonly unrecorded: readonly UnrecordedEnd[];
  readonly ended: readonly Found<EndedRow>[];
  /** Items that left with their container. */
  readonly abandoned: readonly Found<ItemRow>[];
  /** Taken before the lives were looked up. */
  readonly look: Look;
}

/** What became of the lives to erase in a container. */
export interface Erased {
  readonly purged: number;
  /** Number of lives that the vault keeps. */
  readonly refused: number;
  readonly atFault: number;
}

/** What became of one life. */
type Outcome = 'erased' | 'left' | 'at-fault' | RefusedLife;

export interface ContainerWorkOptions extends Pick<PurgePorts, 'store' | 'catalog' | 'naming'> {
  readonly clock: Clock;
  readonly ends: EndRecorder;
  readonly executor: PurgeExecutor;
  readonly held: HeldLives;
  readonly check: CatalogCheck;
  /** True if other nodes may lower floors, too. */
  readonly othersControl: boolean;
}

/** Finds what is to be recorded and erased in a container, leaving out lives that are known to be kept, and erases it. */
export class ContainerWork {
  readonly #options: ContainerWorkOptions;
  /** Containers in which overdue items were left because there were no request units for them. */
  readonly unpaid = new Set<ContainerNumber>();
  /** Until when nothing is done in a container whose state in the catalog differs from the log. */
  readonly #differing = new Map<ContainerNumber, number>();

  constructor(options: ContainerWorkOptions) {
    this.#options = options;
  }

  async anythingDue(containers: readonly CatalogContainer[]): Promise<boolean> {
    const probe = { effectiveNowMs: this.#options.clock.now(), upToPosition: Number.MAX_SAFE_INTEGER };
    const pace = new Pace();
    for (const container of containers) {
      await pace.step();
      const { overdue, unrecorded, ended, abandoned } = await this.workIn(container, probe, 1);
      if (overdue.length + unrecorded.length + ended.length + abandoned.length > 0) return true;
      if (this.#options.ends.hasUnfinishedDeletes(container, this.#options.clock.now())) return true;
    }
    return false;
  }

  /** What is to be done in a container, at most `limit` of each kind. */
  async workIn(container: CatalogContainer, run: Freeze, limit: number): Promise<Work> {
    const { look } = this.#options.held;
    if ((this.#differing.get(container.number) ?? 0) > this.#options.clock.now())
      return { container, overdue: [], unrecorded: [], ended: [], abandoned: [], look };
    const gone = this.isGone(container);
    // A deleted container does not change any more, and everything in it is erased: nothing is left for a later run. An
    // item that has expired since the run began must not be recorded as gone with its container.
    const upToPosition = gone ? Number.MAX_SAFE_INTEGER : run.upToPosition;
    const dueAtMs = gone ? Math.max(run.effectiveNowMs, this.#options.clock.now()) : run.effectiveNowMs;
    const overdue = await this.#payable(container, { effectiveNowMs: dueAtMs, upToPosition }, limit);
    // Only looked up if there can be any, because most containers have no such deletes.
    const unrecorded =
      container.state.partitionKeyDeletes.length === 0
        ? []
        : await this.#options.ends.unrecorded(container.number, limit, this.#options.clock.now());
    const ended = await this.#erasableEnded(container, gone, run, limit);
    // Lives that had ended before the container was deleted are recorded as such first. Only the remaining ones are
    // recorded as gone with it.
    const last = gone && overdue.length + unrecorded.length + ended.length === 0;
    return {
      container,
      overdue,
      unrecorded,
      ended,
      abandoned: last ? await this.#abandonedItems(container, limit) : [],
      look,
    };
  }

  /**
   * Checks that the log agrees with the catalog's state of a container, by which everything that is to be done in it
   * was found.
   *
   * @returns the fault if it does not; then nothing is done in the container for a while
   */
  whyNot(container: CatalogContainer): Promise<PurgeFault | undefined> {
    return despiteFaults(
      [container],
      ({ state }) => this.#options.check.assertAgrees(state.rid),
      ({ number }) => this.#differing.set(number, this.#options.clock.now() + FAULT_RETRY_MS),
    );
  }

  /** All containers, or one, are checked again. */
  forgetFaults(container?: ContainerNumber): void {
    if (container === undefined) this.#differing.clear();
    else this.#differing.delete(container);
  }

  isGone(container: CatalogContainer): boolean {
    return isGone(this.#options, container);
  }

  /**
   * The overdue items whose expiry can be recorded now. If clients leave no request units for any, notes that some are
   * waiting.
   */
  async #payable(container: CatalogContainer, candidates: Freeze, limit: number): Promise<readonly ItemRow[]> {
    const affordable = this.#options.ends.affordable(container);
    const wanted = Math.max(1, Math.min(limit, affordable));
    const rows = await this.#options.ends.overdue(container, candidates, wanted, this.#options.clock.now());
    if (affordable > 0 || rows.length === 0) return rows;
    this.unpaid.add(container.number);
    return [];
  }

  /** Erases what is to be erased in some containers, as one batch. */
  async erase(works: readonly Work[]): Promise<{
    /** The result in each container, in the given order. */
    readonly erased: readonly Erased[];
    readonly fault: PurgeFault | undefined;
  }> {
    const nowMs = () => this.#options.clock.now();
    const candidates: Candidate[] = [];
    /** The index of each candidate among all lives that were found. */
    const places: number[] = [];
    const outcomes = new Map<number, Outcome>();
    let unnamed: PurgeFault | undefined;
    let place = 0;
    for (const { container, ended, abandoned } of works) {
      const add = (candidate: Candidate, at: number) => {
        candidates.push(candidate);
        places.push(at);
      };
      for (const { row } of ended) add(row, place++);
      const rows = abandoned.map(({ row }) => ({ row, at: place++ }));
      const fault = await despiteFaults(
        rows,
        async ({ row, at }) =>
          add({ stream: await streamOf(this.#options, container, row), cause: 'container-deleted' }, at),
        ({ at }) => outcomes.set(at, 'at-fault'),
      );
      unnamed ??= fault;
    }
    const { refused, left, atFault, fault = unnamed } = await this.#options.executor.erase(candidates, nowMs);
    for (const index of left) outcomes.set(places[index]!, 'left');
    for (const index of atFault) outcomes.set(places[index]!, 'at-fault');
    for (const life of refused) outcomes.set(places[life.index]!, life);
    let first = 0;
    const erased = works.map((work) => {
      const found = [...work.ended, ...work.abandoned];
      const ofWork = found.map((_, index): Outcome => outcomes.get(first + index) ?? 'erased');
      first += found.length;
      this.#heed(work, found, ofWork);
      return {
        purged: ofWork.filter((outcome) => outcome === 'erased').length,
        refused: ofWork.filter((outcome) => typeof outcome === 'object').length,
        atFault: ofWork.filter((outcome) => outcome === 'at-fault').length,
      };
    });
    return { erased, fault };
  }

  /**
   * Remembers which lives of a container the vault keeps or can't be erased, and until when the vault need not be asked
   * about them.
   */
  #heed({ container, look }: Work, found: readonly Found<unknown>[], outcomes: readonly Outcome[]): void {
    const { clock, held, othersControl } = this.#options;
    const retryAtMs = clock.now() + this.retryMs(container.number);
    const outcomeOf = (outcome: Outcome): AskedLife['outcome'] => {
      if (outcome === 'at-fault') return { by: 'fault', untilMs: retryAtMs };
      if (typeof outcome === 'string') return outcome;
      const { untilMs } = outcome;
      if (untilMs === null) return { by: 'hold', untilMs: retryAtMs };
      // Another node does not report that it lowers a floor.
      return { by: 'floor', untilMs: othersControl ? Math.min(untilMs, retryAtMs) : untilMs };
    };
    const asked = Map.groupBy(
      found.map(({ kind, place, after }, index) => ({ kind, ...place, after, outcome: outcomeOf(outcomes[index]!) })),
      ({ kind }) => kind,
    );
    for (const [kind, lives] of asked) held.asked(container.number, kind, lives, look);
  }

  retryMs(container: ContainerNumber): number {
    const { hold, floor, fault } = this.#options.held.countIn(container);
    const asked = hold + fault + (this.#options.othersControl ? floor : 0);
    return Math.max(HELD_RETRY_MS, asked * HELD_RETRY_MS_EACH);
  }

  /** Ended lives whose grace is over and that nothing is known to keep. */
  async #erasableEnded(
    container: CatalogContainer,
    gone: boolean,
    run: Pick<Freeze, 'effectiveNowMs'>,
    limit: number,
  ): Promise<Found<EndedRow>[]> {
    const nowMs = this.#options.clock.now();
    const found: Found<EndedRow>[] = [];
    for (const byPolicyStart of [false, true]) {
      const delayMs = gone ? 0 : erasureDelayMs(container.state, byPolicyStart);
      const endedAtOrBeforeMs = Math.max(run.effectiveNowMs, nowMs) - delayMs;
      const rowsAfter = (after: Place, count: number) =>
        this.#options.store().endedLives(container.number, { byPolicyStart, endedAtOrBeforeMs, after, limit: count });
      const kind = kindOf(byPolicyStart);
      found.push(...(await this.#notHeld(container.number, kind, placeOfEnded, rowsAfter, limit - found.length)));
    }
    return found;
  }

  /** The first lives of a kind, leaving out those that are known to be kept. */
  async #notHeld<Row>(
    container: ContainerNumber,
    kind: HeldKind,
    placeOf: (row: Row) => Place,
    rowsAfter: (place: Place, count: number) => MaybePromise<readonly Row[]>,
    limit: number,
  ): Promise<Found<Row>[]> {
    const found: Found<Row>[] = [];
    const pace = new Pace();
    let at = BEGINNING;
    while (found.length < limit) {
      await pace.step();
      const { after, upTo, stretch } = this.#options.held.next(container, kind, at, this.#options.clock.now());
      const wanted = stretch === undefined ? limit - found.length : livesOf(stretch) + 1;
      const rows = await rowsAfter(after, wanted);
      const within = upTo === undefined ? rows : rows.filter((row) => !isBehind(placeOf(row), upTo));
      if (stretch !== undefined) {
        const isHeld = this.#options.held.isAsBefore(container, kind, stretch, within.map(placeOf));
        at = isHeld ? stretch.upTo : after;
        continue;
      }
      at = after;
      for (const row of within) {
        const place = placeOf(row);
        found.push({ row, kind, place, after: at });
        at = place;
      }
      if (upTo === undefined) break;
      at = upTo;
    }
    return found;
  }

  /** Items that are left in a deleted container. */
  #abandonedItems({ number }: CatalogContainer, limit: number): Promise<Found<ItemRow>[]> {
    const rowsAfter = ({ position }: Place, count: number) => this.#options.store().allItems(number, position, count);
    return this.#notHeld(number, 'items', ({ birth }) => ({ endedAtMs: 0, position: birth }), rowsAfter, limit);
  }
}

export const kindOf = (byPolicyStart: boolean): HeldKind => (byPolicyStart ? 'ended-by-policy-start' : 'ended');

const placeOfEnded = ({ endedAtMs, position }: EndedRow): Place => ({ endedAtMs, position });
