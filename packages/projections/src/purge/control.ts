import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { PURGE_CONTROL_STREAM, type PurgeControlEvent, purgeEventVersions } from './events.ts';

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
  #isPaused = false;
  #readMs = 0;

  constructor(options: PurgeControlOptions) {
    this.#options = options;
  }

  /** As far as this node knows; of several nodes see {@link refresh}. */
  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** Looks again, where other nodes may have paused it or gone on. */
  async refresh(maxAgeMs = 0): Promise<void> {
    const { monotonicMs, othersControl } = this.#options;
    if (othersControl && monotonicMs() - this.#readMs >= maxAgeMs) await this.read();
  }

  async read(): Promise<void> {
    const control = await this.#options.log.readLast(PURGE_CONTROL_STREAM);
    this.#isPaused = control?.type === 'PurgePaused';
    this.#readMs = this.#options.monotonicMs();
  }

  /** Nothing is recorded of what is so already: by the log, for another node may have been asked. One never paused goes on. */
  async record(context: CommandContext, type: PurgeControlEvent['type']): Promise<void> {
    const { log, projected } = this.#options;
    const position = await appendNext(log, PURGE_CONTROL_STREAM, (last) =>
      (last?.type ?? 'PurgeResumed') === type
        ? undefined
        : newEvent(context, { type, data: {} }, purgeEventVersions[type]),
    );
    // It is so from its record on, whoever sees that.
    this.#isPaused = type === 'PurgePaused';
    if (position !== undefined) await projected(position);
  }
}
