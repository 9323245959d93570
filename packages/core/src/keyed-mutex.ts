/** A key that was taken, or is waited for. */
interface Hold {
  /** Over when those are done that came before. */
  readonly before: Promise<void> | undefined;
  readonly release: () => void;
}

/** Lets one at a time through for each key, in order of arrival. Keys that nobody wants take no memory. */
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
   * The same for several keys at once. They are taken in their order, so that two who want the same ones never wait
   * for each other.
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
