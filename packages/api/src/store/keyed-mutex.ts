/** Lets one at a time through for each key, in order of arrival. Keys that nobody wants take no memory. */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<void>>();

  async run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#tails.get(key);
    const { promise: done, resolve: release } = Promise.withResolvers<void>();
    this.#tails.set(key, done);
    if (before !== undefined) await before;
    try {
      return await work();
    } finally {
      release();
      if (this.#tails.get(key) === done) this.#tails.delete(key);
    }
  }

  /** Resolves when nobody is at work under a key, at once in the common case. */
  idle(key: string): Promise<void> | undefined {
    return this.#tails.get(key);
  }
}
