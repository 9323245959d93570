/** Lets a few in at a time, in order of arrival. */
export class Places {
  readonly #atOnce: number;
  readonly #waiting = new Set<() => void>();
  #taken = 0;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** Takes a place, to be given back with {@link giveBack}, if one is free. */
  takeIfFree(): boolean {
    if (this.#taken >= this.#atOnce) return false;
    this.#taken += 1;
    return true;
  }

  /**
   * Waits for a place, to be given back with {@link giveBack}.
   *
   * @throws what the signal is aborted with, once it is
   */
  async take(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.takeIfFree()) return;
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

  /** Does some work in a place. It begins at once where one is free, so that works keep the order in which they came. */
  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (!this.takeIfFree()) await this.take();
    try {
      return await work();
    } finally {
      this.giveBack();
    }
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
