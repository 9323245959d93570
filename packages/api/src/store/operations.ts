import type { CommandContext } from '@epitaph/core/command-context.ts';
import { watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { fsck } from '@epitaph/projections/fsck/fsck.ts';
import { erasureDelayMs } from '@epitaph/projections/purge/due-book.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { Scavenges } from '@epitaph/projections/purge/scavenges.ts';
import { rebuild, type RebuildProgress } from '@epitaph/projections/rebuild.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { StoreParts } from './parts.ts';
import type { FsckReport, ProjectionStatus, PurgeStatus, RebuildStatus, ScavengeStatus } from './store-api.ts';

/** The name under which the read models are rebuilt: they are one projection, with one checkpoint. */
export const ITEMS_PROJECTION = 'items';
/** Events behind the log from which on the store says that it isn't ready. */
const READY_LAG_EVENTS = 10_000;

/** What operators see and start: the purge, the projections, and the examination of both. */
export class Operations {
  readonly #parts: StoreParts;
  readonly #purge: PurgeRunner;
  #rebuild: { status: RebuildStatus; readonly abort: AbortController; readonly done: Promise<void> } | undefined;

  constructor(parts: StoreParts, purge: PurgeRunner) {
    this.#parts = parts;
    this.#purge = purge;
  }

  async purgeStatus(): Promise<PurgeStatus> {
    const { catalog, readModel, ports } = this.#parts;
    const nowMs = ports.clock.now();
    let overdueItems = 0;
    let waitingForRequestUnits = 0;
    let oldestMs: number | null = null;
    let awaitingErasure = 0;
    let inGrace = 0;
    let keptForFeeds = 0;
    for (const { number, state } of catalog.allContainers()) {
      const gone = catalog.goneAtMs(state) !== null;
      const byPolicy = await readModel.countEnded(number, true, Number.MAX_SAFE_INTEGER);
      const byThemselves = await readModel.countEnded(number, false, Number.MAX_SAFE_INTEGER);
      if (gone) {
        awaitingErasure += byThemselves + byPolicy + (await readModel.countItems(number));
        continue;
      }
      const graceOver = await readModel.countEnded(number, true, nowMs - state.policyGraceSeconds * 1000);
      inGrace += byPolicy - graceOver;
      for (const [byPolicyStart, ended] of [
        [false, byThemselves],
        [true, graceOver],
      ] as const) {
        const due = await readModel.countEnded(number, byPolicyStart, nowMs - erasureDelayMs(state, byPolicyStart));
        awaitingErasure += due;
        keptForFeeds += ended - due;
      }
      const overdue = await readModel.overdueStatistics(number, watermarks(state.timeline, nowMs));
      overdueItems += overdue.count;
      if (this.#purge.waitsForBudget(state)) waitingForRequestUnits += overdue.count;
      if (overdue.oldestMs !== null) oldestMs = Math.min(oldestMs ?? overdue.oldestMs, overdue.oldestMs);
    }
    const heldBack = this.#purge.heldBack;
    const work = overdueItems * 2 + Math.max(0, awaitingErasure - heldBack);
    const itemsPerSecond = this.#purge.itemsPerSecond;
    const run = this.#purge.run;
    const purgedTotal = await readModel.countPurged();
    return {
      state: this.#purge.paused
        ? 'paused'
        : ports.clockJump() !== undefined
          ? 'held-by-clock'
          : this.#purge.busy
            ? 'running'
            : waitingForRequestUnits > 0
              ? 'waiting-for-request-units'
              : 'idle',
      overdueItems,
      waitingForRequestUnits,
      oldestOverdueMs: oldestMs === null ? null : Math.max(0, nowMs - oldestMs),
      awaitingErasure: Math.max(0, awaitingErasure - heldBack),
      inGrace,
      heldBack: heldBack + keptForFeeds,
      itemsPerSecond,
      millisecondsToDrain: work === 0 ? 0 : itemsPerSecond === 0 ? null : Math.ceil((work / itemsPerSecond) * 1000),
      purgedTotal,
      run: run === undefined ? null : { id: run.id, startedAtMs: run.startedAtMs, upToPosition: run.upToPosition },
      scavenge: await this.#scavengeStatus(purgedTotal),
    };
  }

  async #scavengeStatus(purgedTotal: number): Promise<ScavengeStatus | null> {
    const { log } = this.#parts.ports;
    if (log.scavenging === undefined) return null;
    const last = await new Scavenges(log).last();
    if (last === undefined) return { livesWaiting: purgedTotal, last: null };
    const { id, state, startedAtMs, purgedBefore } = last;
    return { livesWaiting: Math.max(0, purgedTotal - purgedBefore), last: { id, state, startedAtMs } };
  }

  async startScavenge(context: CommandContext): Promise<void> {
    const { log } = this.#parts.ports;
    if (log.scavenging === undefined) {
      throw new Refusal('not-supported', 'The event log is in the data folder; its space comes back by itself.');
    }
    // What was truncated before the run began is what it takes away.
    await this.#purge.settled();
    await new Scavenges(log).start(context, await this.#parts.readModel.countPurged());
  }

  async projections(): Promise<ProjectionStatus[]> {
    const { projector, ports } = this.#parts;
    const headPosition = await ports.log.head();
    const { error, position } = projector;
    return [
      {
        name: ITEMS_PROJECTION,
        version: ports.readModels.current.version,
        position,
        headPosition,
        lagEvents: Math.max(0, headPosition - position),
        state: error !== undefined ? 'failed' : position < headPosition ? 'catching-up' : 'live',
        ...(error === undefined ? {} : { error }),
        rebuild: this.rebuildStatus(ITEMS_PROJECTION),
      },
    ];
  }

  startRebuild(name: string): RebuildStatus {
    assertKnown(name);
    this.#parts.assertOpen();
    if (!this.#parts.projector.projects) {
      throw new Refusal('not-supported', 'Another node keeps these read models up; ask that one to rebuild them.');
    }
    const running = this.#rebuild?.status;
    if (running?.state === 'running' || running?.state === 'comparing') {
      throw new Refusal('already-exists', 'A rebuild of this projection is under way.');
    }
    const { log, readModels, clock, monotonicMs } = this.#parts.ports;
    const abort = new AbortController();
    const startedMs = monotonicMs();
    const status: RebuildStatus = {
      state: 'running',
      version: readModels.current.version + 1,
      position: 0,
      headPosition: this.#parts.projector.position,
      eventsPerSecond: 0,
      millisecondsLeft: null,
      startedAtMs: clock.now(),
    };
    const update = (change: Partial<RebuildStatus>) => {
      this.#rebuild!.status = { ...this.#rebuild!.status, ...change };
    };
    const onProgress = ({ phase, version, position, headPosition }: RebuildProgress) => {
      const rate = (position * 1000) / Math.max(1, monotonicMs() - startedMs);
      update({
        state: phase === 'comparing' ? 'comparing' : 'running',
        version,
        position,
        headPosition,
        eventsPerSecond: Math.round(rate),
        millisecondsLeft: rate === 0 ? null : Math.ceil(((headPosition - position) / rate) * 1000),
      });
    };
    const work = async () => {
      // A turn later, so that whoever asked has the status before it changes.
      await new Promise((resolve) => setImmediate(resolve));
      try {
        const { differences, version } = await rebuild({
          log,
          versions: readModels,
          signal: abort.signal,
          onProgress,
          whileProjectorStops: async (step) => {
            await this.#parts.projector.stop();
            try {
              await step();
            } finally {
              await this.#parts.projector.resume();
            }
          },
        });
        this.#purge.lookAgain();
        update({ state: 'done', version, differences: differences.length, millisecondsLeft: 0 });
      } catch (error) {
        if (abort.signal.aborted) update({ state: 'cancelled', millisecondsLeft: null });
        else update({ state: 'failed', error: (error as Error).message, millisecondsLeft: null });
      }
    };
    this.#rebuild = { status, abort, done: Promise.resolve() };
    this.#rebuild = { ...this.#rebuild, done: work() };
    return status;
  }

  rebuildStatus(name: string): RebuildStatus | null {
    assertKnown(name);
    return this.#rebuild?.status ?? null;
  }

  async cancelRebuild(name: string): Promise<void> {
    assertKnown(name);
    this.#rebuild?.abort.abort();
    await this.#rebuild?.done;
  }

  async fsck(onProgress?: (done: number, total: number) => void, signal?: AbortSignal): Promise<FsckReport> {
    const { log, vault, sealer, monotonicMs } = this.#parts.ports;
    const startedMs = monotonicMs();
    const report = await fsck({
      log,
      vault,
      sealer,
      store: this.#parts.readModel,
      onProgress,
      signal,
      settled: () => this.#purge.settled(),
    });
    return { ok: report.problems.length === 0, ...report, durationMs: Math.round(monotonicMs() - startedMs) };
  }

  health(): { readonly ready: boolean; readonly reasons: readonly string[] } {
    const reasons: string[] = [];
    const { projector, ports, closing } = this.#parts;
    if (closing) reasons.push('the store is closing');
    if (projector.error !== undefined) reasons.push(`the projection has failed: ${projector.error}`);
    const lag = this.#parts.headPosition() - projector.position;
    if (lag > READY_LAG_EVENTS) reasons.push(`the projection is ${lag} events behind`);
    const jump = ports.clockJump();
    if (jump !== undefined) {
      reasons.push(
        `the clock is held: the system clock says ${jump.wallMs}, expected was ${Math.floor(jump.expectedMs)} (${jump.reason})`,
      );
    }
    return { ready: reasons.length === 0, reasons };
  }
}

function assertKnown(name: string): void {
  if (name !== ITEMS_PROJECTION) {
    throw new Refusal(
      'not-supported',
      `There is no projection ${JSON.stringify(name)}; the one there is is called ${ITEMS_PROJECTION}.`,
    );
  }
}
