import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { PURGE_CONTROL_STREAM, purgeEventVersions } from './events.ts';

export interface PurgeControlOptions {
  readonly log: EventLog;
  readonly monotonicMs: () => number;
  /** Resolves when readers see everything up to a position. */
  readonly projected: (position: number) => Promise<void>;
  /** True where other nodes may pause and resume the purge as well. */
  readonly othersControl: boolean;
}

/** Whether an operator has paused the purge: the last event of a stream says so. */
export class PurgeControl {
  readonly #options: PurgeControlOptions;
  /** Who has paused it; undefined while it is not. */
  #pausedBy: string | undefined;
  #isSuspended = false;
  /** When it was read last, by the monotonic clock; undefined before the first time. */
  #readMs: number | undefined;

  constructor(options: PurgeControlOptions) {
    this.#options = options;
  }

  /** As far as this node knows; of several nodes see {@link refresh}. */
  get isPaused(): boolean {
    return this.#pausedBy !== undefined || this.#isSuspended;
  }

  /** Who has put its pause on record; undefined where nobody has. */
  get pausedBy(): string | undefined {
    return this.#pausedBy;
  }

  /** From now on it counts as paused here, until a pause is on record, or the end of one. */
  suspend(): void {
    this.#isSuspended = true;
  }

  /** Reads it, if that was not done yet, or other nodes may have paused or resumed the purge since. */
  async refresh(maxAgeMs = 0): Promise<void> {
    const { monotonicMs, othersControl } = this.#options;
    const readMs = this.#readMs;
    if (readMs === undefined || (othersControl && monotonicMs() - readMs >= maxAgeMs)) await this.read();
  }

  async read(): Promise<void> {
    const control = await this.#options.log.readLast(PURGE_CONTROL_STREAM);
    this.#pausedBy = control?.type === 'PurgePaused' ? control.actor : undefined;
    this.#readMs = this.#options.monotonicMs();
  }

  /**
   * Records a pause, or its end, unless the log says that it is so already: another node may have been asked. A purge
   * that was never paused counts as resumed.
   */
  async record(context: CommandContext, type: 'PurgePaused' | 'PurgeResumed'): Promise<void> {
    const { log, projected } = this.#options;
    let by: string | undefined;
    const position = await appendNext(log, PURGE_CONTROL_STREAM, (last) => {
      const isSo = (last?.type ?? 'PurgeResumed') === type;
      by = isSo ? last?.actor : context.actor;
      return isSo ? undefined : newEvent(context, { type, data: {} }, purgeEventVersions[type]);
    });
    // It holds from its record on, whether or not readers see that yet.
    this.#pausedBy = type === 'PurgePaused' ? by : undefined;
    this.#isSuspended = false;
    if (position !== undefined) await projected(position);
  }
}
