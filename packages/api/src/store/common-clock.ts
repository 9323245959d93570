import { type Clock, GuardedClock } from '@epitaph/core/clock.ts';
import { wait } from '../wait.ts';
import type { SeveralNodes } from './parts.ts';

/** How often this node's clock is compared with the one that all nodes can ask. */
const LOOK_EVERY_MS = 1_000;

/**
 * Compares this node's clock with the one that all nodes can ask. Otherwise a node with a wrong clock would hide and
 * erase, for all of them, what is not due yet, or stamp new writes as long past.
 */
export class CommonClock {
  readonly #clock: Clock;
  readonly #nodes: SeveralNodes | undefined;
  readonly #monotonicMs: () => number;
  readonly #stopped = new AbortController();

  constructor(clock: Clock, nodes: SeveralNodes | undefined, monotonicMs: () => number) {
    this.#clock = clock;
    this.#nodes = nodes;
    this.#monotonicMs = monotonicMs;
  }

  /** Compares once before anything depends on this node's clock, and from then on repeatedly. */
  async start(): Promise<void> {
    const { commonMs } = this.#nodes ?? {};
    if (commonMs === undefined || !(this.#clock instanceof GuardedClock)) return;
    const clock = this.#clock;
    await this.#look(clock, commonMs);
    void this.#run(clock, commonMs);
  }

  /** The result of a comparison under way is ignored from now on. */
  stop(): void {
    this.#stopped.abort();
  }

  async #run(clock: GuardedClock, commonMs: () => Promise<number>): Promise<void> {
    const { signal } = this.#stopped;
    for (;;) {
      await wait(LOOK_EVERY_MS, signal);
      if (signal.aborted) return;
      // While the clock's server is away, nothing contradicts this node's clock, and nothing can be erased either.
      await this.#look(clock, commonMs).catch(() => {});
    }
  }

  async #look(clock: GuardedClock, commonMs: () => Promise<number>): Promise<void> {
    const askedMs = this.#monotonicMs();
    const earliestMs = await commonMs();
    if (this.#stopped.signal.aborted) return;
    // The clock may have been read at once, or just before the answer came. The extra millisecond is for rounding.
    clock.observeCommon({ earliestMs, latestMs: earliestMs + (this.#monotonicMs() - askedMs) + 1 });
  }
}
