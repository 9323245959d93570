import type { Clock } from '@epitaph/core/clock.ts';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { newEvent } from '@epitaph/core/handle-command.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { purgeEventVersions, type PurgeRunEvent, purgeRunStream } from './events.ts';
import type { PurgePorts } from './ports.ts';

export interface OpenRun extends Freeze {
  readonly id: string;
  readonly startedAtMs: number;
}

/** The candidates of a run: items whose last write is at or before a position, and that are overdue at a time. */
export interface Freeze {
  readonly upToPosition: number;
  readonly effectiveNowMs: number;
}

interface RunPorts extends Pick<PurgePorts, 'log' | 'store' | 'projected' | 'newId'> {
  readonly clock: Clock;
  readonly monotonicMs: () => number;
  /** True if other nodes purge, too. */
  readonly othersControl: boolean;
}

/** After this time, an open run of another node counts as left by a node that is gone or stopped. */
const LEFT_AFTER_MS = 60_000;

/** The recorded purge runs: finds the open one, starts a run, and completes it. */
export class PurgeRuns {
  readonly #ports: RunPorts;
  /** The run that is worked on, or was when a fault came. */
  current: OpenRun | undefined;
  /** The run that only lives at fault keep open. */
  #keptOpen: string | undefined;
  /** The run that this process opened last. */
  #opened: OpenRun | undefined;
  /** Since when runs are known to be open, by the monotonic clock. */
  #openSinceMs = new Map<string, number>();

  constructor(ports: RunPorts) {
    this.#ports = ports;
  }

  /**
   * A run whose end is not in the log, because a crash or a fault interrupted it. With several nodes another one may be
   * working on it.
   *
   * @param sinceMs only a run that has been known to be open for this many milliseconds
   */
  async leftOpen(sinceMs = 0): Promise<OpenRun | undefined> {
    const runs = await this.#ports.store().openPurgeRuns();
    const nowMs = this.#ports.monotonicMs();
    this.#openSinceMs = new Map(runs.map(({ stream }) => [stream, this.#openSinceMs.get(stream) ?? nowMs]));
    const open = runs.find(({ stream }) => nowMs - this.#openSinceMs.get(stream)! >= sinceMs);
    return open === undefined ? undefined : { id: open.stream.slice(purgeRunStream('').length), ...open.state };
  }

  /**
   * The run to continue. Not a run whose end is recorded, even if recording it failed with a fault here, or another
   * node recorded it: after a crash nobody looks for what was erased under a completed run.
   */
  async leftToDo(): Promise<OpenRun | undefined> {
    const run = this.current ?? (await this.leftOpen(this.#ports.othersControl ? LEFT_AFTER_MS : 0));
    return run !== undefined && (await this.#isCompleted(run)) ? undefined : run;
  }

  /**
   * True for a run that another node has opened and may be working on. A node that purges in it would rely on the other
   * one to look for what is left in the log before it completes the run.
   */
  isOthers(run: OpenRun): boolean {
    return this.#ports.othersControl && run.id !== this.#opened?.id;
  }

  /** True if another node took this node's run for left, and has completed it. */
  async wasCompleted(run: OpenRun): Promise<boolean> {
    return this.#ports.othersControl && (await this.#isCompleted(run));
  }

  async #isCompleted(run: OpenRun): Promise<boolean> {
    return (await this.#ports.log.readLast(purgeRunStream(run.id)))?.type === 'PurgeRunCompleted';
  }

  /** Everything in a run is done except lives at fault. It stays open, because a new run for each attempt would fill the log. */
  keepOpen({ id }: OpenRun): void {
    this.#keptOpen = id;
  }

  /** Whether {@link keepOpen} was called for a run. Resets it, because the next work in the run may be interrupted. */
  takeKeptOpen({ id }: OpenRun): boolean {
    const isKeptOpen = id === this.#keptOpen;
    this.#keptOpen = undefined;
    return isKeptOpen;
  }

  /** The candidates of a run that starts now. */
  async freeze(): Promise<Freeze> {
    return { upToPosition: await this.#ports.log.head(), effectiveNowMs: this.#ports.clock.now() };
  }

  async open(): Promise<OpenRun> {
    const { log, newId } = this.#ports;
    const context = purgeContext(this.#ports);
    const freeze = await this.freeze();
    const run: OpenRun = { id: newId(), startedAtMs: context.nowMs, ...freeze };
    const event: PurgeRunEvent = { type: 'PurgeRunStarted', data: freeze };
    const result = await log.append([
      {
        stream: purgeRunStream(run.id),
        expectedRevision: 'no-stream',
        events: [newEvent(context, event, purgeEventVersions[event.type])],
      },
    ]);
    invariant(result.kind === 'appended', 'a run has a stream of its own');
    await this.#ports.projected(result.position);
    this.#opened = run;
    this.current = run;
    return run;
  }

  async close(run: OpenRun, counts: PurgeCounts): Promise<void> {
    const event: PurgeRunEvent = {
      type: 'PurgeRunCompleted',
      data: counts,
    };
    const result = await this.#ports.log.append([
      {
        stream: purgeRunStream(run.id),
        expectedRevision: 0,
        events: [newEvent(purgeContext(this.#ports), event, purgeEventVersions[event.type])],
      },
    ]);
    // A conflict means that another runner has taken over the run and completed it. Its end is recorded in any case.
    if (result.kind === 'appended') await this.#ports.projected(result.position);
    if (this.current?.id === run.id) this.current = undefined;
  }
}

/** What a run has done, according to its last event. */
type PurgeCounts = Extract<PurgeRunEvent, { type: 'PurgeRunCompleted' }>['data'];

/** The context of what the purge does without a request. */
export function purgeContext({ clock, newId }: Pick<PurgePorts, 'newId'> & { readonly clock: Clock }): CommandContext {
  return { nowMs: clock.now(), actor: 'system:purge', correlationId: newId(), newId };
}
