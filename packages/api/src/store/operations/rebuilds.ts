import { Refusal } from '@epitaph/core/errors.ts';
import { turn } from '@epitaph/core/turn.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { rebuild, type RebuildDifference, type RebuildProgress } from '@epitaph/projections/rebuild.ts';
import { wait } from '../../wait.ts';
import type { DifferingPart, RebuildRequest, RebuildStatus } from '../api/operations-api.ts';
import type { StoreParts } from '../parts.ts';

/** The name under which the read models are rebuilt. They are one projection with one checkpoint. */
export const ITEMS_PROJECTION = 'items';

/** Builds new read models beside those in use, one rebuild at a time. */
export class Rebuilds {
  readonly #parts: StoreParts;
  readonly #purge: Pick<PurgeRunner, 'lookAgain'>;
  /** The rebuild under way, or the last one. */
  #current: { status: RebuildStatus; readonly abort: AbortController; readonly done: Promise<void> } | undefined;
  #putsOff = false;
  /** True while the remains of an interrupted rebuild are deleted. */
  #discarding = false;

  constructor(parts: StoreParts, purge: Pick<PurgeRunner, 'lookAgain'>) {
    this.#parts = parts;
    this.#purge = purge;
  }

  /** Begins a rebuild, or continues the one that a stop or a crash has cut short. */
  start(name: string, { eventsPerSecond }: RebuildRequest = {}): RebuildStatus {
    assertKnown(name);
    this.#parts.assertOpen();
    if (!this.#parts.projector.projects) {
      throw new Refusal(
        'not-supported',
        'Another node keeps these read models up to date; request the rebuild from that node.',
      );
    }
    const running = this.#current?.status;
    if (this.#discarding || running?.state === 'running' || running?.state === 'comparing') {
      throw new Refusal('already-exists', 'A rebuild of this projection is already running.');
    }
    const { log, vault, sealer, readModels, clock, monotonicMs } = this.#parts.ports;
    const abort = new AbortController();
    const startedMs = monotonicMs();
    const { version, position: resumedFrom } = readModels.unfinished ?? {
      version: readModels.current.version + 1,
      position: 0,
    };
    const status: RebuildStatus = {
      state: 'running',
      version,
      resumedFrom,
      position: resumedFrom,
      headPosition: this.#parts.projector.position,
      eventsPerSecond: 0,
      millisecondsLeft: null,
      startedAtMs: clock.now(),
    };
    const update = (change: Partial<RebuildStatus>) => {
      this.#current!.status = { ...this.#current!.status, ...change };
    };
    const onProgress = ({ phase, position, headPosition, ...of }: RebuildProgress) => {
      const rate = ((position - of.resumedFrom) * 1000) / Math.max(1, monotonicMs() - startedMs);
      update({
        ...of,
        state: phase === 'comparing' ? 'comparing' : 'running',
        position,
        headPosition,
        eventsPerSecond: Math.round(rate),
        millisecondsLeft: rate === 0 ? null : Math.ceil(((headPosition - position) / rate) * 1000),
      });
    };
    const work = async () => {
      // Begins one turn later, so that the caller gets the status before it changes.
      await turn();
      try {
        const { differences, version } = await rebuild({
          log,
          vault,
          sealer,
          versions: readModels,
          signal: abort.signal,
          keepsWhenAborted: () => this.#putsOff,
          eventsPerSecond,
          monotonicMs,
          wait,
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
        update({
          state: 'done',
          version,
          millisecondsLeft: 0,
          ...(differences === undefined
            ? {}
            : {
                differences: differences.count,
                differing: differences.named.map((difference) => this.#differing(difference)),
              }),
        });
      } catch (error) {
        if (abort.signal.aborted) {
          update({ state: this.#putsOff ? 'interrupted' : 'cancelled', millisecondsLeft: null });
        } else update({ state: 'failed', error: (error as Error).message, millisecondsLeft: null });
      }
    };
    this.#current = { status, abort, done: Promise.resolve() };
    this.#current = { ...this.#current, done: work() };
    return status;
  }

  status(name: string): RebuildStatus | null {
    assertKnown(name);
    if (this.#current !== undefined) return this.#current.status;
    const { unfinished } = this.#parts.ports.readModels;
    // Only the node that projects can continue it.
    if (unfinished === undefined || !this.#parts.projector.projects) return null;
    const { version, position } = unfinished;
    return {
      state: 'interrupted',
      version,
      resumedFrom: position,
      position,
      headPosition: this.#parts.headPosition(),
      eventsPerSecond: 0,
      millisecondsLeft: null,
      startedAtMs: null,
    };
  }

  /** Ends the rebuild under way, or gives up the interrupted one. What was built is deleted. */
  async cancel(name: string): Promise<void> {
    const status = this.status(name);
    if (this.#current === undefined && status !== null) {
      this.#discarding = true;
      try {
        await this.#parts.ports.readModels.discard(status.version);
      } finally {
        this.#discarding = false;
      }
      this.#current = {
        status: { ...status, state: 'cancelled' },
        abort: new AbortController(),
        done: Promise.resolve(),
      };
      return;
    }
    this.#current?.abort.abort();
    await this.#current?.done;
  }

  /** Ends the rebuild under way but keeps what was built, so that the next start of the store can continue it. */
  async putOff(): Promise<void> {
    this.#putsOff = true;
    this.#current?.abort.abort();
    await this.#current?.done;
  }

  #differing({ part, itemsBefore, itemsRebuilt }: RebuildDifference): DifferingPart {
    const state = part === 'catalog' ? undefined : this.#parts.catalog.containerByNumber(part)?.state;
    if (state === undefined) return { part: 'catalog', itemsBefore, itemsRebuilt };
    const database = this.#parts.catalog.databaseByRid(state.databaseRid)?.name ?? '';
    return { part: 'container', database, container: state.name, rid: state.rid, itemsBefore, itemsRebuilt };
  }
}

function assertKnown(name: string): void {
  if (name !== ITEMS_PROJECTION) {
    throw new Refusal(
      'not-supported',
      `There is no projection ${JSON.stringify(name)}; the only one is ${ITEMS_PROJECTION}.`,
    );
  }
}
