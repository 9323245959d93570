import { type ClockJump, isoTime } from '@epitaph/core/clock.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { graceSeconds } from '@epitaph/core/retention/grace.ts';
import { firstExpiryMs } from '@epitaph/core/ttl/expiry.ts';
import { watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { containersToWorkOn } from '@epitaph/projections/catalog/containers-to-work-on.ts';
import { fsck, type FsckReport as Examined } from '@epitaph/projections/fsck/fsck.ts';
import { erasureDelayMs } from '@epitaph/projections/purge/due-book.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import type { ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { Measurements } from '../../metrics/measurements.ts';
import type { ContainerBacklog, FsckReport, ProjectionStatus, PurgeStatus } from '../api/operations-api.ts';
import type { StoreParts } from '../parts.ts';
import type { Backups } from './backups.ts';
import { DEFAULT_READY_LAG_EVENTS } from './ready-lag.ts';
import { ITEMS_PROJECTION, type Rebuilds } from './rebuilds.ts';
import type { Scavenging } from './scavenging.ts';

/**
 * What operators see: the state of the purge, its scavenges and the projections, the findings of fsck, and whether the
 * store is ready.
 */
export class Operations {
  readonly #parts: StoreParts;
  readonly #purge: PurgeRunner;
  readonly #rebuilds: Rebuilds;
  readonly #scavenging: Scavenging;
  readonly #backups: Backups;
  readonly #measurements: Measurements;
  readonly #readyLagEvents: number;

  constructor(
    parts: StoreParts,
    purge: PurgeRunner,
    rebuilds: Rebuilds,
    scavenging: Scavenging,
    backups: Backups,
    measurements: Measurements,
    { readyLagEvents = DEFAULT_READY_LAG_EVENTS }: { readonly readyLagEvents?: number | undefined } = {},
  ) {
    this.#parts = parts;
    this.#purge = purge;
    this.#rebuilds = rebuilds;
    this.#scavenging = scavenging;
    this.#backups = backups;
    this.#measurements = measurements;
    this.#readyLagEvents = readyLagEvents;
  }

  async purgeStatus(backlogs?: readonly ContainerBacklog[]): Promise<PurgeStatus> {
    const { ports } = this.#parts;
    let overdueItems = 0;
    let waitingForRequestUnits = 0;
    let oldestOverdueMs: number | null = null;
    let awaitingErasure = 0;
    let inGrace = 0;
    let heldBack = 0;
    for (const backlog of backlogs ?? (await this.purgeBacklogs())) {
      overdueItems += backlog.overdueItems;
      waitingForRequestUnits += backlog.waitingForRequestUnits;
      awaitingErasure += backlog.awaitingErasure;
      inGrace += backlog.heldBack.grace;
      heldBack += backlog.heldBack.hold + backlog.heldBack.floor + backlog.heldBack.feed;
      if (backlog.oldestOverdueMs !== null) oldestOverdueMs = Math.max(oldestOverdueMs ?? 0, backlog.oldestOverdueMs);
    }
    const work = overdueItems * 2 + awaitingErasure;
    const itemsPerSecond = this.#purge.itemsPerSecond;
    const run = this.#purge.run;
    const purgedTotal = await this.#parts.readModel.countPurged();
    return {
      // A held clock is reported first: it stops writes too, and an operator would not see it during a pause otherwise.
      state:
        ports.clockJump() !== undefined
          ? 'held-by-clock'
          : (await this.#purge.isPaused())
            ? 'paused'
            : this.#purge.busy
              ? 'running'
              : waitingForRequestUnits > 0
                ? 'waiting-for-request-units'
                : 'idle',
      byThisNode: ports.nodes?.roles.has('purge') ?? true,
      overdueItems,
      waitingForRequestUnits,
      oldestOverdueMs,
      awaitingErasure,
      inGrace,
      heldBack,
      itemsPerSecond,
      millisecondsToDrain: work === 0 ? 0 : itemsPerSecond === 0 ? null : Math.ceil((work / itemsPerSecond) * 1000),
      purgedTotal,
      faults: this.#measurements.purgeFaults,
      run: run === undefined ? null : { id: run.id, startedAtMs: run.startedAtMs, upToPosition: run.upToPosition },
      scavenge: await this.#scavenging.status(purgedTotal),
    };
  }

  async purgeBacklogs(): Promise<ContainerBacklog[]> {
    const { catalog, ports } = this.#parts;
    const nowMs = ports.clock.now();
    const backlogs: ContainerBacklog[] = [];
    const pace = new Pace();
    for (const { number, state } of await containersToWorkOn(() => catalog, this.#parts.readModel)) {
      await pace.step();
      const byPolicy = await this.#parts.readModel.countEnded(number, true, Number.MAX_SAFE_INTEGER);
      const byThemselves = await this.#parts.readModel.countEnded(number, false, Number.MAX_SAFE_INTEGER);
      const { hold, floor } = this.#purge.heldBackIn(number);
      if (catalog.goneAtMs(state) !== null) {
        const ended = byThemselves + byPolicy + (await this.#parts.readModel.countItems(number));
        if (ended === 0) continue;
        backlogs.push({
          container: state,
          overdueItems: 0,
          waitingForRequestUnits: 0,
          oldestOverdueMs: null,
          awaitingErasure: Math.max(0, ended - hold - floor),
          heldBack: { hold, floor, grace: 0, feed: 0 },
        });
        continue;
      }
      let graceOver = 0;
      let due = 0;
      // Only counts that can be above zero are queried: most containers have no ended lives, and there may be thousands
      // of containers. Two counts that must be equal are queried once: counting takes time in proportion to the lives,
      // and the purge goes on between two counts.
      for (const [byPolicyStart, ended] of [
        [false, byThemselves],
        [true, byPolicy],
      ] as const) {
        if (ended === 0) continue;
        const endedBy = (atMs: number) => this.#parts.readModel.countEnded(number, byPolicyStart, atMs);
        const graceMs = graceSeconds(state, byPolicyStart) * 1000;
        const delayMs = erasureDelayMs(state, byPolicyStart);
        const over = graceMs === 0 ? ended : await endedBy(nowMs - graceMs);
        graceOver += over;
        due += delayMs === graceMs ? over : await endedBy(nowMs - delayMs);
      }
      const overdue = await this.#parts.readModel.overdueStatistics(number, watermarks(state.timeline, nowMs));
      const oldestMs = firstExpiryMs(overdue, state.timeline);
      backlogs.push({
        container: state,
        overdueItems: overdue.count,
        waitingForRequestUnits: this.#purge.waitsForBudget(state) ? overdue.count : 0,
        oldestOverdueMs: oldestMs === null ? null : Math.max(0, nowMs - oldestMs),
        awaitingErasure: Math.max(0, due - hold - floor),
        heldBack: {
          // A window, a grace or a feed that was set after a pass met these lives counts them by now. Each life must be
          // counted once.
          hold: Math.min(hold, due),
          floor: Math.min(floor, Math.max(0, due - hold)),
          grace: Math.max(0, byPolicy + byThemselves - graceOver),
          feed: Math.max(0, graceOver - due),
        },
      });
    }
    return backlogs;
  }

  async projections(): Promise<ProjectionStatus[]> {
    const { projector, ports } = this.#parts;
    const headPosition = await ports.log.head();
    const { error, position } = projector;
    return [
      {
        name: ITEMS_PROJECTION,
        byThisNode: projector.projects,
        version: ports.readModels.current.version,
        position,
        headPosition,
        lagEvents: this.#eventsBetween(position, headPosition),
        state: error !== undefined ? 'failed' : position < headPosition ? 'catching-up' : 'live',
        ...(error === undefined ? {} : { error }),
        rebuild: this.#rebuilds.status(ITEMS_PROJECTION),
      },
    ];
  }

  async fsck(onProgress?: (done: number, total: number) => void, signal?: AbortSignal): Promise<FsckReport> {
    const { log, vault, sealer, naming, monotonicMs } = this.#parts.ports;
    const settled = () => this.#purge.settled();
    const startedMs = monotonicMs();
    const examine = async (store: ReadModelStore): Promise<Examined> => {
      try {
        return await fsck({ log, vault, sealer, naming, store, onProgress, signal, settled });
      } catch (error) {
        const now = this.#parts.readModel;
        if (now === store) throw error;
        // A rebuild has closed the read model and replaced it, so the new one must be examined.
        return examine(now);
      }
    };
    const report = await examine(this.#parts.readModel);
    const left = report.problems.filter(({ code }) => code === 'writes-left-after-purge');
    await this.#purge.finishTruncations(left.map(({ subject }) => subject));
    const problems = [...report.problems];
    const damage = await this.#backups.ledgerDamage(signal);
    if (damage !== undefined) problems.push({ code: 'ledger-damaged', subject: 'purge-ledger', message: damage });
    return { ok: problems.length === 0, ...report, problems, durationMs: Math.round(monotonicMs() - startedMs) };
  }

  #eventsBetween(position: number, headPosition: number): number {
    const { positionsPerEvent = 1 } = this.#parts.ports.log;
    return Math.max(0, Math.ceil((headPosition - position) / positionsPerEvent));
  }

  health(): { readonly ready: boolean; readonly reasons: readonly string[] } {
    const reasons: string[] = [];
    const { projector, closing } = this.#parts;
    if (closing) reasons.push('the store is closing');
    // Anyone may read this, and the fault may name streams, hosts and users of a database.
    if (projector.error !== undefined) reasons.push('the projection has failed: GET /_epitaph/projections says why');
    const lag = this.#eventsBetween(projector.position, this.#parts.headPosition());
    if (lag > this.#readyLagEvents) reasons.push(`the projection is ${lag} events behind`);
    try {
      const held = this.clockHeld();
      if (held !== undefined) reasons.push(`the clock is held: ${held}`);
    } catch (error) {
      if (!(error instanceof StorageUnavailable)) throw error;
      // The fault names folders.
      reasons.push("the time can't be stored on the disk of the data folder: the server's log says why");
    }
    return { ready: reasons.length === 0, reasons };
  }

  clockHeld(): string | undefined {
    const jump = this.#parts.ports.clockJump();
    if (jump === undefined) return undefined;
    return `the system clock says ${isoTime(jump.wallMs)}, ${expected[jump.reason]} ${isoTime(jump.expectedMs)} (${jump.reason}); if the system clock is right, confirm it: epitaph clock confirm, or POST /_epitaph/clock/confirm`;
  }
}

const expected: Readonly<Record<ClockJump['reason'], string>> = {
  'wall-clock-jumped': 'expected was',
  'recorded-time-ahead': 'and the store has used times up to',
  'stopped-for-long': 'and the store was last in use, longer ago than --max-downtime allows, at',
  'clocks-differ': "and PostgreSQL's clock, which all nodes have in common, said",
};
