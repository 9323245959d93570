import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { PURGE_CONTROL_STREAM, purgeEventVersions } from './events.ts';

export interface PurgeControlOptions {
  readonly log: EventLog;
  readonly monotonicMs: () => number;
  /** Resolves when readers see everything up to a position. */
  readonly projected: (position: number) => Promise<void>;
  /** True if other nodes may pause and resume the purge, too. */
  readonly othersControl: boolean;
}

/** Whether an operator has paused the purge. The last event of a stream says so. */
export class PurgeControl {
  readonly #options: PurgeControlOptions;
  /** Who has paused the purge. Undefined while it is not paused. */
  #pausedBy: string | undefined;
  #isSuspended = false;
  /** When the stream was read last, by the monotonic clock. Undefined before the first time. */
  #readMs: number | undefined;

  constructor(options: PurgeControlOptions) {
    this.#options = options;
  }

  /** As far as this node knows. With several nodes, see {@link refresh}. */
  get isPaused(): boolean {
    return this.#pausedBy !== undefined || this.#isSuspended;
  }

  /** Who recorded the pause. Undefined if nobody did. */
  get pausedBy(): string | undefined {
    return this.#pausedBy;
  }

  /** From now on this node counts the purge as paused, until a pause or a resumption is recorded. */
  suspend(): void {
    this.#isSuspended = true;
  }

  /** Reads the stream if that was not done yet, or if other nodes may have paused or resumed the purge since. */
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
   * Records a pause or a resumption, unless the last event says the same already: another node may have been asked. A
   * purge that was never paused counts as resumed.
   */
  async record(context: CommandContext, type: 'PurgePaused' | 'PurgeResumed'): Promise<void> {
    const { log, projected } = this.#options;
    let by: string | undefined;
    const position = await appendNext(log, PURGE_CONTROL_STREAM, (last) => {
      const isSo = (last?.type ?? 'PurgeResumed') === type;
      by = isSo ? last?.actor : context.actor;
      return isSo ? undefined : newEvent(context, { type, data: {} }, purgeEventVersions[type]);
    });
    // It takes effect with its record, whether or not readers see that yet.
    this.#pausedBy = type === 'PurgePaused' ? by : undefined;
    this.#isSuspended = false;
    if (position !== undefined) await projected(position);
  }
}
