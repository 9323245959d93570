import { systemClocks } from './clock.ts';

/** How long one piece of work may occupy the event loop before others get their turn, in milliseconds. */
export const TURN_MS = 5;

/** Lets everything else that is waiting run first. Called between the steps of long work, so that it holds up no request. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

let gathering: Promise<void> | undefined;

/**
 * Waits for the rest of this turn of the event loop. Then all callers that waited continue one after the other, each up
 * to its next wait. So the same step runs many times in a row while its code and data are in the processor's caches.
 * This takes a fifth less CPU time than one whole request after another.
 */
export const gathered = (): Promise<void> =>
  (gathering ??= turn().then(() => {
    gathering = undefined;
  }));

/**
 * Turns for several long pieces of work at the same time. Only one of them continues at a time, in order, and
 * everything else gets its turn before the next one does.
 */
export class Turns {
  readonly #waiting: (() => void)[] = [];

  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (this.#waiting.length === 1) setImmediate(this.#goOn);
    });
  }

  readonly #goOn = (): void => {
    this.#waiting.shift()!();
    if (this.#waiting.length > 0) setImmediate(this.#goOn);
  };
}

const longWorks = new Turns();

/**
 * Paces long work, such as an examination of the whole log. Each piece of work runs for the length of a turn. However
 * many there are, only one of them runs between two turns of everything else.
 */
export class Pace {
  #untilMs = systemClocks.monotonicMs() + TURN_MS;

  /** To be awaited after each small step. Undefined while the turn lasts. */
  step(): Promise<void> | undefined {
    return systemClocks.monotonicMs() < this.#untilMs ? undefined : this.#next();
  }

  async #next(): Promise<void> {
    await longWorks.next();
    this.#untilMs = systemClocks.monotonicMs() + TURN_MS;
  }
}
