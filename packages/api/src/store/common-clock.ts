import { type Clock, GuardedClock } from '@epitaph/core/clock.ts';
import { wait } from '../wait.ts';
import type { SeveralNodes } from './parts.ts';

/** How often this node's clock is held against the one that all nodes have in common. */
const LOOK_EVERY_MS = 1_000;

/**
 * Holds this node's clock against the one that all nodes have in common. Without that a node with a wrong clock would
 * hide and erase for all of them what is not due yet, or stamp what is new as long past.
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

  /** Looks once before anything goes by this node's clock, and from then on again and again. */
  async start(): Promise<void> {
    const { commonMs } = this.#nodes ?? {};
    if (commonMs === undefined || !(this.#clock instanceof GuardedClock)) return;
    const clock = this.#clock;
    await this.#look(clock, commonMs);
    void this.#run(clock, commonMs);
  }

  /** What a look that is under way brings counts for nothing any more. */
  stop(): void {
    this.#stopped.abort();
  }

  async #run(clock: GuardedClock, commonMs: () => Promise<number>): Promise<void> {
    const { signal } = this.#stopped;
    for (;;) {
      await wait(LOOK_EVERY_MS, signal);
      if (signal.aborted) return;
      // While its server is away nothing is said against this node's clock, and nothing can be erased either.
      await this.#look(clock, commonMs).catch(() => {});
    }
  }

  async #look(clock: GuardedClock, commonMs: () => Promise<number>): Promise<void> {
    const askedMs = this.#monotonicMs();
    const earliestMs = await commonMs();
    if (this.#stopped.signal.aborted) return;
    // It may have been read at once, or just before the answer came. A millisecond for what it rounds.
    clock.observeCommon({ earliestMs, latestMs: earliestMs + (this.#monotonicMs() - askedMs) + 1 });
  }
}
