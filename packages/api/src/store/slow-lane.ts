import { TURN_MS } from '@epitaph/core/turn.ts';
import { wait } from '../wait.ts';
import { Places } from '@epitaph/core/places.ts';

/**
 * Milliseconds that a query may work on one document beside other queries. A few functions that take longer by
 * themselves run to their end.
 */
export const SWIFT_MS = 2 * TURN_MS;

/** Thrown when work takes longer than that. It has changed nothing, and must be run again in the slow lane. */
export class IsSlow extends Error {
  override readonly name = 'IsSlow';
}

/**
 * Runs work that holds the thread for long, one piece at a time. After each piece the lane pauses for as long as the
 * piece took, so that half of the time is left for other work.
 */
export class SlowLane {
  readonly #place = new Places(1);
  readonly #monotonicMs: () => number;

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** Waits until a piece may begin. The caller must report its end in any case. */
  begin(signal?: AbortSignal): Promise<void> {
    return this.#place.take(signal);
  }

  ended(tookMs: number): void {
    void wait(tookMs).then(() => this.#place.giveBack());
  }

  /** Does a piece that may begin, and reports its end. */
  work<Result>(piece: () => Result): Result {
    const startedMs = this.#monotonicMs();
    try {
      return piece();
    } finally {
      this.ended(this.#monotonicMs() - startedMs);
    }
  }
}
