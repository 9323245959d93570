import { TURN_MS } from '@epitaph/core/turn.ts';
import { wait } from '../wait.ts';
import { Places } from '@epitaph/core/places.ts';

/**
 * Milliseconds that a query may work on one document beside others. A few functions that take longer by themselves go on
 * to their end.
 */
export const SWIFT_MS = 2 * TURN_MS;

/** What works longer has changed nothing, and is to be run anew in the lane of those that do. */
export class IsSlow extends Error {
  override readonly name = 'IsSlow';
}

/**
 * Work that holds the thread for long: one piece at a time, and none for as long after it as it has taken, so that half of
 * the time is for others.
 */
export class SlowLane {
  readonly #place = new Places(1);
  readonly #monotonicMs: () => number;

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** Waits until a piece may begin, whose end is to be told in any case. */
  begin(signal?: AbortSignal): Promise<void> {
    return this.#place.take(signal);
  }

  ended(tookMs: number): void {
    void wait(tookMs).then(() => this.#place.giveBack());
  }

  /** Does a piece that may begin, and ends it. */
  work<Result>(piece: () => Result): Result {
    const startedMs = this.#monotonicMs();
    try {
      return piece();
    } finally {
      this.ended(this.#monotonicMs() - startedMs);
    }
  }
}
