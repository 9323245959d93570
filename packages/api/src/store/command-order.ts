import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import { turn } from '@epitaph/core/turn.ts';

/**
 * Runs one command at a time for each key, in order of arrival. Items and readers wait for the command under way and
 * have their turn before the next, so however many commands queue up, they wait for one at most.
 */
export class CommandOrder {
  readonly #queue = new KeyedMutex();
  readonly #underWay = new Map<string, Promise<void>>();

  run<Result>(key: string, command: () => Promise<Result>): Promise<Result> {
    return this.#queue.run(key, async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#underWay.set(key, promise);
      try {
        return await command();
      } finally {
        this.#underWay.delete(key);
        resolve();
        await turn();
      }
    });
  }

  /** Resolves when the command of a key that is under way is done; undefined when there is none. */
  underWay(key: string): Promise<void> | undefined {
    return this.#underWay.get(key);
  }
}
