import { Refusal } from '@epitaph/core/errors.ts';

/** Lets a few in at a time, in order of arrival, and some more wait for that. */
export class Places {
  readonly #atOnce: number;
  readonly #mostWaiting: number;
  readonly #waiting = new Set<() => void>();
  #taken = 0;

  constructor(atOnce: number, mostWaiting: number) {
    this.#atOnce = atOnce;
    this.#mostWaiting = mostWaiting;
  }

  /**
   * Waits for a place, to be given back with {@link giveBack}.
   *
   * @throws Refusal busy when too many wait already; what the signal is aborted with, once it is
   */
  async take(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.#taken < this.#atOnce) {
      this.#taken += 1;
      return;
    }
    if (this.#waiting.size >= this.#mostWaiting) {
      throw new Refusal('busy', 'Too many queries that hold much in memory are under way; try again.');
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const giveUp = (): void => {
      this.#waiting.delete(resolve);
      reject(signal!.reason as Error);
    };
    this.#waiting.add(resolve);
    signal?.addEventListener('abort', giveUp, { once: true });
    await promise;
    signal?.removeEventListener('abort', giveUp);
  }

  giveBack(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#taken -= 1;
    else {
      this.#waiting.delete(next);
      next();
    }
  }
}
