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

  /**
   * The same for several keys at once. They are taken in their order, so that two who want the same ones never wait
   * for each other.
   */
  runAll<Result>(keys: Iterable<string>, work: () => Promise<Result>): Promise<Result> {
    let run = work;
    for (const key of [...new Set(keys)].toSorted().toReversed()) {
      const inner = run;
      run = () => this.run(key, inner);
    }
    return run();
  }
}
