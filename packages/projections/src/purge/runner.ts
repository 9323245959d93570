import { allDone } from '@epitaph/core/all-done.ts';
import type { Clock } from '@epitaph/core/clock.ts';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import { containersToWorkOn } from '../catalog/containers-to-work-on.ts';
import type { ContainerNumber, ReadModelChange } from '../read-model-store.ts';
import type { ReadModelNews } from '../shared-projector.ts';
import type { CatalogCheck } from './catalog-check.ts';
import { ContainerWork, type Erased, kindOf, type Work } from './container-work.ts';
import { PurgeControl } from './control.ts';
import { DueBook, erasureDelayMs } from './due-book.ts';
import { EndRecorder } from './end-recorder.ts';
import { endedPages } from './ended-pages.ts';
import { BATCH_SIZE, type DemandedErasure, type ErasedBatch, PurgeExecutor } from './executor.ts';
import type { PurgeFault } from './faults.ts';
import { HeldLives } from './held-lives.ts';
import { nextAction, type PurgeSituation } from './next-action.ts';
import type { PurgePorts } from './ports.ts';
import { RecentRate } from './recent-rate.ts';
import { type Freeze, type OpenRun, purgeContext, PurgeRuns } from './runs.ts';

/**
 * How many containers are worked on at the same time, at most. Each waits for the disk as often as a batch of one
 * container alone.
 */
const CONTAINERS_AT_ONCE = 32;
/** How often the runner compares the clock with the next deadline. */
const TICK_MS = 200;
/** How long the runner rests after a fault. */
const FAULT_REST_MS = 2_000;
/** How long a start waits until what a crash left is truncated: after a run of millions of lives that takes minutes. */
const START_WAIT_MS = 2_000;
/** For how long a pause that was read from the log is believed, if other nodes may have changed it since. */
const CONTROL_AGE_MS = 1_000;

export interface PurgeRunnerOptions extends PurgePorts {
  readonly clock: Clock;
  /** False while time can't be trusted. Nothing is recorded or erased then. */
  readonly clockTrusted: () => boolean;
  /** Monotonic clock in milliseconds, for rates. */
  readonly monotonicMs: () => number;
  /** Called for each fault in the runner's own work. What is due waits until there is no fault any more. */
  readonly onFault: (error: unknown) => void;
  /** Wraps each batch of work, for measurements. */
  readonly around?: (<Result>(step: 'record' | 'erase', work: () => Promise<Result>) => Promise<Result>) | undefined;
  /** True if other nodes may pause and resume the purge and lower floors, too, so the runner has to look whether they did. */
  readonly othersControl?: boolean;
  readonly check: CatalogCheck;
}

export interface PassResult {
  readonly expired: number;
  readonly purged: number;
  readonly heldBack: number;
}

/** Which containers a pass looks at: all of them, or those that are known to have something due. */
type Scope = 'all' | 'due';

/**
 * The process manager that carries expired, deleted and abandoned lives to their end. It has the only timer: it wakes
 * when the next deadline has passed, works in batches until nothing is due, and sleeps again. Two runners at the same
 * time do no harm, because expected revisions decide between them.
 */
export class PurgeRunner {
  readonly #options: PurgeRunnerOptions;
  readonly #ends: EndRecorder;
  readonly #executor: PurgeExecutor;
  readonly #control: PurgeControl;
  readonly #runs: PurgeRuns;
  readonly #check: CatalogCheck;
  readonly #work: ContainerWork;
  readonly #around: NonNullable<PurgeRunnerOptions['around']>;
  readonly #book = new DueBook();
  readonly #held = new HeldLives();
  readonly #rate: RecentRate;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The last check of the clock, which may be in progress. It never rejects. */
  #ticking: Promise<void> = Promise.resolve();
  #stopping = false;
  #pass: Promise<PassResult> | undefined;
  #restUntilMs = 0;
  /** Finishes what a crash left half done. It never rejects: the pass that continues the run tries again. */
  #finishing: Promise<void> = Promise.resolve();
  #isFinishing = false;

  constructor(options: PurgeRunnerOptions) {
    this.#options = options;
    this.#rate = new RecentRate(options.monotonicMs);
    this.#ends = new EndRecorder(options);
    this.#executor = new PurgeExecutor(options);
    const { othersControl = false } = options;
    this.#control = new PurgeControl({ ...options, othersControl });
    this.#runs = new PurgeRuns({ ...options, othersControl });
    this.#check = options.check;
    this.#work = new ContainerWork({
      ...options,
      othersControl,
      ends: this.#ends,
      executor: this.#executor,
      held: this.#held,
    });
    this.#around = options.around ?? ((_step, work) => work());
  }

  /**
   * Whether an operator has paused the purge. With several nodes this may be on any of them, and this node may learn it
   * some seconds late.
   */
  async isPaused(): Promise<boolean> {
    await this.#control.refresh(CONTROL_AGE_MS);
    return this.#control.isPaused;
  }

  /** Who recorded the pause, as of {@link isPaused}. Undefined if nobody did. */
  async pausedBy(): Promise<string | undefined> {
    await this.#control.refresh(CONTROL_AGE_MS);
    return this.#control.pausedBy;
  }

  get run(): OpenRun | undefined {
    return this.#runs.current;
  }

  get busy(): boolean {
    return this.#pass !== undefined || this.#isFinishing;
  }

  /** Number of lives that a hold or floor keeps, as far as they were met lately. */
  get heldBack(): number {
    return this.#held.count;
  }

  /** The same for one container, counted by what keeps the lives. */
  heldBackIn(container: ContainerNumber): { readonly hold: number; readonly floor: number } {
    return this.#held.countIn(container);
  }

  /** Lives recorded or erased per second over the last minute. */
  get itemsPerSecond(): number {
    return this.#rate.perSecond;
  }

  /** True while clients leave no request units for the container's overdue items. */
  waitsForBudget(container: ContainerState): boolean {
    return this.#options.budget.affordable(container) === 0;
  }

  /**
   * Finds out whether an operator had paused the purge, finishes what a crash left half done, and begins to watch the
   * clock. If the finishing takes long, it continues beside requests, and nothing is purged before it is done.
   */
  async start({ automatic }: { readonly automatic: boolean }): Promise<void> {
    await this.#control.read();
    // With several nodes, one that does not purge leaves it to the others to finish what their crashes have left.
    if (!automatic && this.#options.othersControl === true) return;
    this.#runs.current = await this.#runs.leftOpen();
    if (this.#runs.current !== undefined) await this.#finishLeft(this.#runs.current);
    this.#book.markAll();
    if (automatic) this.#schedule();
  }

  async #finishLeft({ upToPosition }: OpenRun): Promise<void> {
    const { truncations } = this.#executor;
    const finished = truncations.finish(upToPosition, this.#options.clock.now(), () => this.#stopping);
    let isLong = false;
    this.#isFinishing = true;
    this.#finishing = finished
      .catch((error: unknown) => {
        if (isLong) this.#options.onFault(error);
      })
      .finally(() => {
        this.#isFinishing = false;
      });
    const waited = Promise.withResolvers<void>();
    const timer = setTimeout(waited.resolve, START_WAIT_MS);
    await Promise.race([finished, waited.promise]).finally(() => clearTimeout(timer));
    isLong = true;
  }

  /** Called with every change that was projected. */
  observe(changes: readonly ReadModelChange[]): void {
    this.#book.observe(changes, this.#options.catalog());
    for (const change of changes) {
      if (change.kind !== 'item-ended') continue;
      const { container, byPolicyStart, ...place } = change.row;
      this.#held.changed(container, kindOf(byPolicyStart), place);
    }
  }

  /** Called with what another node has projected. */
  touched({ containers, databases }: Pick<ReadModelNews, 'containers' | 'databases'>): void {
    if (containers === undefined) return this.lookAgain();
    this.#book.mark(containers);
    for (const number of containers) this.#held.changed(number);
    for (const rid of databases) this.#book.databaseGone(rid, this.#options.catalog());
  }

  /** A hold or floor was removed, or a clock was moved: looks again at everything, or at one container. */
  lookAgain(container?: ContainerNumber): void {
    this.#held.forget(container);
    this.#ends.forgetFaults(container);
    this.#work.forgetFaults(container);
    if (container === undefined) this.#book.markAll();
    else this.#book.lookAgain(container);
  }

  /**
   * Starts a new pass. A pass in progress has frozen its candidates earlier, so its end is waited for first.
   *
   * @param waitMs for how long to try again items that there are no request units for, in milliseconds; without end by
   *   default
   */
  async passFromNow({
    waitMs = Number.POSITIVE_INFINITY,
    signal,
  }: { readonly waitMs?: number; readonly signal?: AbortSignal } = {}): Promise<PassResult> {
    await this.#finishing;
    while (this.#pass !== undefined) await this.#pass.catch(() => {});
    // The caller is to be told of everything that can't be done.
    this.lookAgain();
    const totals = { expired: 0, purged: 0 };
    const untilMs = this.#options.monotonicMs() + waitMs;
    for (;;) {
      const { expired, purged, heldBack } = await this.#passNow('all', signal);
      totals.expired += expired;
      totals.purged += purged;
      // Items that clients leave no request units for are still due. They are tried again as often as the clock is checked.
      const isOver = this.#options.monotonicMs() >= untilMs || signal?.aborted === true;
      if (isOver || this.#work.unpaid.size === 0 || this.#control.isPaused || this.#stopping)
        return { ...totals, heldBack };
      await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
  }

  /**
   * Records the erasure of ended lives whose keys are gone, in a store that was restored. The purge ledger may have
   * destroyed the key of any life, also of one that no pass looks at, because a grace or a window keeps it, the purge
   * is paused, or the clock is held.
   *
   * @param abandoned lives that left with their container, whose keys are gone, too
   */
  async recordErasures(abandoned: readonly string[]): Promise<void> {
    const { catalog, clock } = this.#options;
    for (let done = 0; done < abandoned.length; done += BATCH_SIZE) {
      const streams = abandoned.slice(done, done + BATCH_SIZE);
      const lives = streams.map((stream) => ({ stream, cause: 'container-deleted' as const }));
      await this.#executor.eraseOnDemand({ lives, context: purgeContext(this.#options) }, () => clock.now());
    }
    let fault: PurgeFault | undefined;
    for (const container of catalog().allContainers()) {
      const met = await this.#finishErasures(container);
      fault ??= met;
    }
    await this.#executor.truncations.done();
    if (fault !== undefined) throw fault;
  }

  /** Starts a pass, or joins the one in progress. Resolves when nothing due is left in the containers that it looks at. */
  #passNow(scope: Scope, signal?: AbortSignal): Promise<PassResult> {
    this.#pass ??= this.#passed(scope, signal);
    return this.#pass;
  }

  async #passed(scope: Scope, signal: AbortSignal | undefined): Promise<PassResult> {
    try {
      return await this.#workOff(scope, signal);
    } catch (error) {
      // No work of the pass may still be running after a fault either. Errors of truncations are reported to nobody
      // here, because the pass has failed anyway, and the next pass truncates again.
      await this.#executor.truncations.done().catch(() => {});
      throw error;
    } finally {
      this.#pass = undefined;
    }
  }

  /**
   * Records every expiry that is due in a container, and erases nothing. For a recovery, which must see everything that
   * a policy took and can't wait for the next pass.
   *
   * @returns how many can't be recorded, because the log's events of these items can't be read
   * @throws {PurgeFault} when the catalog's state of the container differs from the log's
   */
  async recordOverdue(container: CatalogContainer): Promise<number> {
    const { clock } = this.#options;
    const nowMs = () => clock.now();
    await this.#check.assertAgrees(container.state.rid);
    this.#ends.forgetFaults(container.number);
    // By position, because a long loop meets the same lives again.
    const unreadable = new Set<number>();
    for (;;) {
      const candidates = { effectiveNowMs: nowMs(), upToPosition: Number.MAX_SAFE_INTEGER };
      const rows = await this.#ends.overdue(container, candidates, BATCH_SIZE, nowMs());
      const { recorded, atFault } = await this.#ends.recordExpiries(container, rows, nowMs);
      for (const place of atFault) unreadable.add(place);
      if (recorded + atFault.length === 0) return unreadable.size;
    }
  }

  /** Erases lives because of an explicit request. */
  eraseOnDemand(erasure: DemandedErasure): Promise<ErasedBatch> {
    return this.#executor.eraseOnDemand(erasure, () => this.#options.clock.now());
  }

  /** Resolves when every erasure begun so far is recorded, or has failed. */
  recorded(): Promise<void> {
    return this.#executor.recorded();
  }

  /** Resolves when no node erases anything any more that is due only by what was recorded before now. */
  keptFromNow(): Promise<void> {
    return this.#executor.keptFromNow();
  }

  /** Resolves when everything that is recorded as purged is truncated, too. */
  async settled(): Promise<void> {
    await this.#finishing;
    return this.#executor.truncations.settled();
  }

  /**
   * Truncates what is left in the log of lives that are recorded as purged. For a caller that has found such lives,
   * which may not belong to any open run. Does nothing while the purge is paused or the clock is held.
   */
  async finishTruncations(streams: readonly string[]): Promise<void> {
    const { clock, clockTrusted } = this.#options;
    if (streams.length === 0 || !clockTrusted() || (await this.isPaused())) return;
    for (const stream of streams) await this.#executor.truncations.finishLife(stream, clock.now());
  }

  /** From now on nothing is recorded or erased until a {@link pause} or {@link resume} has succeeded. */
  suspend(): void {
    this.#control.suspend();
  }

  async pause(context: CommandContext): Promise<void> {
    await this.#control.record(context, 'PurgePaused');
    await this.#pass?.catch(() => {});
  }

  async resume(context: CommandContext): Promise<void> {
    await this.#control.record(context, 'PurgeResumed');
    this.lookAgain();
  }

  /** Stops after the batch in progress. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#timer);
    await this.#ticking;
    await this.#pass?.catch(() => {});
    await this.#finishing;
  }

  #schedule(): void {
    if (this.#stopping) return;
    this.#timer = setTimeout(() => {
      this.#ticking = this.#tick().finally(() => this.#schedule());
    }, TICK_MS);
    this.#timer.unref();
  }

  async #tick(): Promise<void> {
    const { clock, monotonicMs } = this.#options;
    // Not in a pass, because a pause waits for the end of the pass.
    await this.#finishing;
    if (this.#stopping || monotonicMs() < this.#restUntilMs) return;
    try {
      if (await this.isPaused()) return;
      const nowMs = clock.now();
      if (this.#runs.current === undefined && (await this.#nextDueMs(nowMs)) > nowMs) return;
      await this.#passNow('due');
    } catch (error) {
      this.#restUntilMs = monotonicMs() + FAULT_REST_MS;
      this.#options.onFault(error);
    }
  }

  async #nextDueMs(nowMs: number): Promise<number> {
    const { store, catalog } = this.#options;
    const nextMs = await this.#book.nextDueMs(store, catalog, nowMs, {
      paidFor: (container) => this.#ends.affordable(container) > 0,
      isOver: () => this.#stopping,
    });
    // No pass may ever look again at lives that another node has erased, so they are forgotten here.
    for (const number of this.#held.containers) if (!this.#book.mayHaveEnded(number)) this.#held.forget(number);
    return nextMs;
  }

  async #workOff(scope: Scope, signal: AbortSignal | undefined): Promise<PassResult> {
    const totals = { expired: 0, purged: 0 };
    // A run that was left open froze its candidates long ago. After it, what is due by now is still to be done.
    for (let again = true; again;) {
      const { expired, purged, resumed } = await this.#workOnce(scope, signal);
      totals.expired += expired;
      totals.purged += purged;
      again = resumed;
    }
    return { ...totals, heldBack: this.heldBack };
  }

  async #workOnce(
    scope: Scope,
    signal: AbortSignal | undefined,
  ): Promise<{ readonly expired: number; readonly purged: number; readonly resumed: boolean }> {
    const totals = { expired: 0, purged: 0, resumed: false };
    const { clock, catalog } = this.#options;
    const nowMs = () => clock.now();
    const allowed = (): PurgeSituation['allowed'] => {
      if (this.#stopping) return 'stopping';
      if (this.#control.isPaused || signal?.aborted === true) return 'paused';
      return this.#options.clockTrusted() ? 'yes' : 'clock-held';
    };
    await this.#control.refresh();
    if (allowed() !== 'yes') return totals;
    this.#work.unpaid.clear();
    const left = await this.#runs.leftToDo();
    const due = this.#book.takeDue(clock.now());
    const containers =
      scope === 'all' || left !== undefined
        ? await containersToWorkOn(catalog, this.#options.store())
        : due.flatMap((number) => catalog().containerByNumber(number) ?? []);
    this.#runs.current = left;
    if (left === undefined && !(await this.#work.anythingDue(containers))) {
      for (const { number } of containers) this.#settle(number);
      return totals;
    }
    const takenUp = left !== undefined && this.#runs.isOthers(left) ? left : undefined;
    let run = left === undefined || takenUp !== undefined ? await this.#runs.open() : left;
    // A run that lasting damage keeps open would otherwise hold up everything that becomes due after it.
    const isKeptOpen = this.#runs.takeKeptOpen(run);
    let candidates = isKeptOpen ? await this.#runs.freeze() : run;
    let fault: PurgeFault | undefined;
    if (left !== undefined && !isKeptOpen) {
      // A fault may have come between the record of a purge and the truncation.
      await this.#executor.truncations.finish(left.upToPosition, nowMs());
      // Or it came before the record, and a grace or a window keeps the life by now. All other lives come up by themselves.
      for (const container of containers) {
        if (this.#work.isGone(container)) continue;
        const met = await this.#finishErasures(container, Math.max(left.effectiveNowMs, nowMs()));
        fault ??= met;
      }
    }
    if (takenUp !== undefined) await this.#runs.close(takenUp, { expired: 0, purged: 0, heldBack: this.heldBack });
    // In turns, so that a large backlog in one container does not hold up the others.
    const waiting = new Set(containers.map(({ number }) => number));
    while (waiting.size > 0) {
      await this.#options.confirmCatalog?.();
      // A large backlog takes hours, so this is read again in each round.
      const [, isCompleted] = await allDone([this.#control.refresh(), this.#runs.wasCompleted(run)]);
      // Nobody looks for the log's remains of lives that were purged under a completed run.
      if (isCompleted) {
        await this.#executor.truncations.done();
        candidates = run = await this.#runs.open();
      }
      const round = await this.#takeRound(waiting, candidates, allowed);
      if (round === undefined) {
        await this.#executor.truncations.done();
        return totals;
      }
      const done = await this.#workRound(round.works);
      // A life that can't be purged does not keep others from being erased. Its fault is thrown when the others are done.
      fault ??= round.fault ?? done.fault;
      for (const [index, { container }] of round.works.entries()) {
        const { expired, ended, purged, refused, atFault } = done.each[index]!;
        totals.expired += expired;
        totals.purged += purged;
        this.#rate.add(expired + ended + purged);
        // If the log agreed with none of the rows, they are left to the next pass, so that this one does not go on for ever.
        if (expired + ended + purged + refused + atFault > 0) waiting.add(container.number);
        else {
          const met = await this.#leave(container.number);
          fault ??= met;
        }
      }
    }
    const late = await this.#executor.truncations.finishInDoubt(nowMs());
    fault ??= late;
    await this.#executor.truncations.done();
    // The run stays open, because not everything in it is done.
    if (fault !== undefined) {
      this.#runs.keepOpen(run);
      throw fault;
    }
    // The node that opened the run may have been purging a batch when the run was completed, and have died then.
    if (takenUp !== undefined) await this.#executor.truncations.finish(takenUp.upToPosition, nowMs());
    await this.#runs.close(run, { expired: totals.expired, purged: totals.purged, heldBack: this.heldBack });
    return { ...totals, resumed: left !== undefined };
  }

  /**
   * The next work in the containers whose turn it is, a batch in total: much in one container, or a little in each of
   * several. Containers with nothing left to do are taken out of `waiting`, too.
   *
   * @returns undefined when nothing may be done now
   */
  async #takeRound(
    waiting: Set<ContainerNumber>,
    candidates: Freeze,
    allowed: () => PurgeSituation['allowed'],
  ): Promise<{ readonly works: readonly Work[]; readonly fault: PurgeFault | undefined } | undefined> {
    const works: Work[] = [];
    let fault: PurgeFault | undefined;
    let room = BATCH_SIZE;
    const pace = new Pace();
    for (const number of waiting) {
      if (room <= 0 || works.length === CONTAINERS_AT_ONCE) break;
      await pace.step();
      // Looked up again each time, because its policy or its existence may have changed since the last round.
      const work = await this.#work.workIn(this.#options.catalog().containerByNumber(number)!, candidates, room);
      const overdue = work.overdue.length + work.unrecorded.length;
      const erasable = work.ended.length + work.abandoned.length;
      const action = nextAction({ allowed: allowed(), overdue, erasable });
      if (action === 'wait') return undefined;
      waiting.delete(number);
      if (action === 'complete') {
        const met = await this.#leave(number);
        fault ??= met;
        continue;
      }
      const differs = await this.#work.whyNot(work.container);
      if (differs !== undefined) {
        fault ??= differs;
        continue;
      }
      works.push(work);
      room -= Math.max(overdue, erasable);
    }
    return { works, fault };
  }

  /** Does the work of several containers concurrently. What it erases was recorded in an earlier round. */
  async #workRound(round: readonly Work[]): Promise<{
    readonly each: readonly (Erased & { readonly expired: number; readonly ended: number })[];
    readonly fault: PurgeFault | undefined;
  }> {
    const nowMs = () => this.#options.clock.now();
    const ends = this.#ends;
    const record = () => allDone(round.map(({ container, overdue }) => ends.recordExpiries(container, overdue, nowMs)));
    const erase = () => this.#work.erase(round);
    const isAnyOverdue = round.some(({ overdue }) => overdue.length > 0);
    const isAnyErasable = round.some(({ ended, abandoned }) => ended.length + abandoned.length > 0);
    const steps = [
      isAnyOverdue ? this.#around('record', record) : record(),
      allDone(round.map(({ container, unrecorded }) => ends.recordPartitionKeyDeletes(container, unrecorded, nowMs))),
      isAnyErasable ? this.#around('erase', erase) : erase(),
    ] as const;
    // All steps are waited for even if one fails, so that nothing continues after the failure was reported.
    const [expired, ended, { erased, fault }] = await allDone(steps);
    const each = round.map((_, index) => ({
      expired: expired[index]!.recorded,
      ended: ended[index]!.recorded,
      ...erased[index]!,
      atFault: expired[index]!.atFault.length + ended[index]!.atFault.length + erased[index]!.atFault,
    }));
    return { each, fault: [...expired, ...ended].find((met) => met.fault !== undefined)?.fault ?? fault };
  }

  /**
   * Called when nothing is left to do in a container, or the log does not agree with what seemed to be due.
   *
   * @returns the fault that was met
   */
  async #leave(container: ContainerNumber): Promise<PurgeFault | undefined> {
    const fault = await this.#completePartitionKeyDeletes(container);
    this.#settle(container);
    return fault;
  }

  async #completePartitionKeyDeletes(number: ContainerNumber): Promise<PurgeFault | undefined> {
    const container = this.#options.catalog().containerByNumber(number)!;
    const nowMs = () => this.#options.clock.now();
    if (!this.#ends.hasUnfinishedDeletes(container, nowMs())) return undefined;
    // The checkpoint is read first. The catalog knows of a delete before the ends of its lives are in the store, and
    // these may arrive at any moment.
    const upToPosition = await this.#options.store().checkpoint();
    if ((await this.#options.store().unrecordedEnds(number, 1)).length > 0) return undefined;
    return this.#ends.completePartitionKeyDeletes(container, upToPosition, nowMs);
  }

  /**
   * Records the erasure of ended lives of a container whose keys are gone already.
   *
   * @param keptAtMs only lives that a grace or a window keeps at that time, in milliseconds
   * @returns the first fault that was met
   */
  async #finishErasures({ number, state }: CatalogContainer, keptAtMs?: number): Promise<PurgeFault | undefined> {
    const { clock, store } = this.#options;
    let fault: PurgeFault | undefined;
    for (const byPolicyStart of [false, true]) {
      const delayMs = erasureDelayMs(state, byPolicyStart);
      if (keptAtMs !== undefined && delayMs === 0) continue;
      const afterMs = keptAtMs === undefined ? undefined : keptAtMs - delayMs;
      for await (const rows of endedPages(store, number, { byPolicyStart, afterMs, limit: BATCH_SIZE })) {
        const met = await this.#executor.finishErasures(rows, () => clock.now());
        fault ??= met;
      }
    }
    return fault;
  }

  /**
   * Called when everything that was to be erased in a container is erased, or kept by the vault. The vault is asked
   * again when the first of the kept lives may be erased.
   */
  #settle(container: ContainerNumber): void {
    const untilMs = this.#held.untilMs(container);
    if (untilMs === undefined) return;
    this.#book.holdBack(container, Math.min(untilMs, this.#options.clock.now() + this.#work.retryMs(container)));
  }
}
