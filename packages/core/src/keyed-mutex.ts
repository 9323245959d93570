/** A key that is taken or waited for. */
interface Hold {
  /** Resolves when all earlier holders of the key are done. Undefined if there are none. */
  readonly before: Promise<void> | undefined;
  readonly release: () => void;
}

/** Runs one piece of work at a time for each key, in order of arrival. A key that is not in use takes no memory. */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<void>>();

  async run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    const { before, release } = this.#take(key);
    if (before !== undefined) await before;
    try {
      return await work();
    } finally {
      release();
    }
  }

  /**
   * Runs work that needs several keys at once. Keys are taken in sorted order, so that two callers that need the same
   * keys can't deadlock.
   */
  async runAll<Result>(keys: Iterable<string>, work: () => Promise<Result>): Promise<Result> {
    const holds: Hold[] = [];
    try {
      for (const key of [...new Set(keys)].toSorted()) {
        const hold = this.#take(key);
        holds.push(hold);
        if (hold.before !== undefined) await hold.before;
      }
      return await work();
    } finally {
      for (const { release } of holds) release();
    }
  }

  #take(key: string): Hold {
    const before = this.#tails.get(key);
    const { promise: done, resolve } = Promise.withResolvers<void>();
    this.#tails.set(key, done);
    const release = (): void => {
      resolve();
      if (this.#tails.get(key) === done) this.#tails.delete(key);
    };
    return { before, release };
  }
}
