import { AsyncLocalStorage } from 'node:async_hooks';
import { turn } from '@epitaph/core/turn.ts';
import type { ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import type { Random } from './random.ts';

/** After this many turns of the event loop without a new waiting step, all works are considered to be waiting. */
const CALM_TURNS = 4;
/** At this many of the first {@link CHANGED_STEPS} steps, the running work is moved to the end of the order. */
const CHANGES = 3;
const CHANGED_STEPS = 30;

interface Waiting {
  readonly work: string;
  readonly goOn: () => void;
}

/**
 * Executes several works step by step, in an order that is derived from a seed. Mostly the same work continues as long as
 * it has steps, and only at a few steps another one does. Nearly all concurrency bugs need only a few such changes, and a
 * random choice at each step would find them less often.
 */
export class Order {
  readonly #random: Random;
  readonly #works = new AsyncLocalStorage<string>();
  readonly #waiting: Waiting[] = [];
  readonly #ranks = new Map<string, number>();
  readonly #changes: ReadonlySet<number>;
  #steps = 0;
  #newcomers = 0;
  #isOn = false;

  constructor(random: Random) {
    this.#random = random;
    this.#changes = new Set(Array.from({ length: CHANGES }, () => random.int(1, CHANGED_STEPS)));
  }

  /** Wraps a work so that it waits for its turn before it begins, and again before its result is returned. */
  stepwise<Args extends readonly unknown[], Result>(work: (...args: Args) => Promise<Result>, name?: string) {
    return async (...args: Args): Promise<Result> => {
      await this.#turnOf(name);
      try {
        return await work(...args);
      } finally {
        await this.#turnOf(name);
      }
    };
  }

  /** Makes the operations that change the log, the vault and the read models wait for their turns. */
  rule({ log, vault, readModels }: SqliteStorage): void {
    log.append = this.stepwise(log.append.bind(log));
    log.truncateStream = this.stepwise(log.truncateStream.bind(log));
    vault.destroyKeys = this.stepwise(vault.destroyKeys.bind(vault));
    vault.placeHold = this.stepwise(vault.placeHold.bind(vault));
    vault.releaseHold = this.stepwise(vault.releaseHold.bind(vault));
    vault.setFloor = this.stepwise(vault.setFloor.bind(vault));
    const ruled = (store: ReadModelStore, name?: string): void => {
      store.apply = this.stepwise(store.apply.bind(store), name);
    };
    ruled(readModels.current.store, 'projector');
    const createNext = readModels.createNext.bind(readModels);
    readModels.createNext = async () => {
      const next = await createNext();
      ruled(next.store);
      return next;
    };
    readModels.swapTo = this.stepwise(readModels.swapTo.bind(readModels));
  }

  /** Runs the works, and resolves when all have ended. The order also decides which begins first. */
  async run(works: readonly (() => Promise<unknown>)[]): Promise<void> {
    this.#isOn = true;
    const underWay = new Set<string>();
    for (const [index, work] of works.entries()) {
      const name = `${index}`;
      underWay.add(name);
      const ended = this.#works.run(name, () => this.stepwise(work)());
      void ended.catch(() => {}).finally(() => underWay.delete(name));
    }
    while (underWay.size > 0) {
      await this.#calm();
      this.#next()?.goOn();
    }
    this.#isOn = false;
    for (const { goOn } of this.#waiting.splice(0)) goOn();
  }

  #turnOf(name: string | undefined): Promise<void> | undefined {
    if (!this.#isOn) return undefined;
    this.#newcomers += 1;
    const work = name ?? this.#works.getStore() ?? 'others';
    return new Promise((goOn) => this.#waiting.push({ work, goOn }));
  }

  async #calm(): Promise<void> {
    for (let turns = 0; turns < CALM_TURNS; turns++) {
      const before = this.#newcomers;
      await turn();
      if (this.#newcomers > before) turns = -1;
    }
  }

  #next(): Waiting | undefined {
    if (this.#waiting.length === 0) return undefined;
    this.#steps += 1;
    let first = this.#first();
    if (this.#changes.has(this.#steps)) {
      this.#ranks.set(first.work, -this.#steps);
      first = this.#first();
    }
    this.#waiting.splice(this.#waiting.indexOf(first), 1);
    return first;
  }

  #first(): Waiting {
    return this.#waiting.reduce((first, other) => (this.#rankOf(other) > this.#rankOf(first) ? other : first));
  }

  #rankOf({ work }: Waiting): number {
    const rank = this.#ranks.get(work) ?? this.#random.next();
    this.#ranks.set(work, rank);
    return rank;
  }
}
