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

/** What the candidates of a run are: items whose last write is at or before a position, and that are overdue at a time. */
export interface Freeze {
  readonly upToPosition: number;
  readonly effectiveNowMs: number;
}

interface RunPorts extends Pick<PurgePorts, 'log' | 'store' | 'projected' | 'newId'> {
  readonly clock: Clock;
  readonly monotonicMs: () => number;
  /** True where other nodes purge as well. */
  readonly othersControl: boolean;
}

/** After so long an open run of another node is taken to have been left by one that is gone, or stands still. */
const LEFT_AFTER_MS = 60_000;

/** The purge runs on record: which one is open, the start of one, its end. */
export class PurgeRuns {
  readonly #ports: RunPorts;
  /** The one that is worked on, or was when a fault came. */
  current: OpenRun | undefined;
  /** The one that only lives at fault keep open. */
  #keptOpen: string | undefined;
  /** The one that was opened here last. */
  #opened: OpenRun | undefined;
  /** Since when runs are known to be open, by the monotonic clock. */
  #openSinceMs = new Map<string, number>();

  constructor(ports: RunPorts) {
    this.#ports = ports;
  }

  /**
   * A run whose end is not in the log: a crash or a fault has cut it short. Of several nodes another may be at work on it.
   *
   * @param sinceMs only one that has been known to be open for so many milliseconds
   */
  async leftOpen(sinceMs = 0): Promise<OpenRun | undefined> {
    const runs = await this.#ports.store().openPurgeRuns();
    const nowMs = this.#ports.monotonicMs();
    this.#openSinceMs = new Map(runs.map(({ stream }) => [stream, this.#openSinceMs.get(stream) ?? nowMs]));
    const open = runs.find(({ stream }) => nowMs - this.#openSinceMs.get(stream)! >= sinceMs);
    return open === undefined ? undefined : { id: open.stream.slice(purgeRunStream('').length), ...open.state };
  }

  /**
   * The run to go on with. A run whose end is on record is not one, even if recording it ended in a fault here, or
   * another node recorded it: after a crash nobody looks for what is erased under a completed run.
   */
  async leftToDo(): Promise<OpenRun | undefined> {
    const run = this.current ?? (await this.leftOpen(this.#ports.othersControl ? LEFT_AFTER_MS : 0));
    return run !== undefined && (await this.#isCompleted(run)) ? undefined : run;
  }

  /**
   * True for a run that another node has opened, and may be at work in: who purges in it would count on that one's looking,
   * before it completes it, for what is left in the log.
   */
  isOthers(run: OpenRun): boolean {
    return this.#ports.othersControl && run.id !== this.#opened?.id;
  }

  /** True where another node took a run of this one for left, and has completed it. */
  async wasCompleted(run: OpenRun): Promise<boolean> {
    return this.#ports.othersControl && (await this.#isCompleted(run));
  }

  async #isCompleted(run: OpenRun): Promise<boolean> {
    return (await this.#ports.log.readLast(purgeRunStream(run.id)))?.type === 'PurgeRunCompleted';
  }

  /** All is done in a run but for lives at fault. It stays open: a run for each try would fill the log. */
  keepOpen({ id }: OpenRun): void {
    this.#keptOpen = id;
  }

  /** Whether that is so of a run, until now: what is done in it next may be cut short. */
  takeKeptOpen({ id }: OpenRun): boolean {
    const isKeptOpen = id === this.#keptOpen;
    this.#keptOpen = undefined;
    return isKeptOpen;
  }

  /** What is due now. */
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
    // A conflict means that another runner has closed it after a takeover: its end is on record all the same.
    if (result.kind === 'appended') await this.#ports.projected(result.position);
    if (this.current?.id === run.id) this.current = undefined;
  }
}

/** What a run has done, as its last event says. */
type PurgeCounts = Extract<PurgeRunEvent, { type: 'PurgeRunCompleted' }>['data'];

/** In whose name the purge acts when nobody has asked for it. */
export function purgeContext({ clock, newId }: Pick<PurgePorts, 'newId'> & { readonly clock: Clock }): CommandContext {
  return { nowMs: clock.now(), actor: 'system:purge', correlationId: newId(), newId };
}
