/** Limits how many callers work at the same time, in order of arrival. */
export class Places {
  readonly #atOnce: number;
  readonly #waiting = new Set<() => void>();
  #taken = 0;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** Takes a place if one is free. The caller gives it back with {@link giveBack}. */
  takeIfFree(): boolean {
    if (this.#taken >= this.#atOnce) return false;
    this.#taken += 1;
    return true;
  }

  /**
   * Waits for a place. The caller gives it back with {@link giveBack}.
   *
   * @throws the signal's reason when the signal is aborted
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

  /** Runs work in a place. It starts synchronously if a place is free, so that callers keep their order. */
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
