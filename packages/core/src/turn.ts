import { systemClocks } from './clock.ts';

/** How long one piece of work may keep the event loop before others get their turn, in milliseconds. */
export const TURN_MS = 5;

/** Lets everything else that waits go first: between the steps of long work, so that it holds no request. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

let gathering: Promise<void> | undefined;

/**
 * Waits for all that this turn of the event loop brings, and goes on side by side with everybody else who waited for it:
 * up to where each of them waits next, one after the other. What they do alike is then done many times in a row, while the
 * processor has its code and data at hand, which takes a fifth less of its time than one whole request after another.
 */
export const gathered = (): Promise<void> =>
  (gathering ??= turn().then(() => {
    gathering = undefined;
  }));

/**
 * A turn for several long works side by side: one of them goes on at a time, in order, and everything else has its
 * turn before the next does.
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
 * Paces long work, such as an examination of the whole log. Each goes on for the length of a turn; and however many
 * there are, only one of them goes on between two turns of everybody else.
 */
export class Pace {
  #untilMs = systemClocks.monotonicMs() + TURN_MS;

  /** To be awaited after each small step: undefined while the turn lasts. */
  step(): Promise<void> | undefined {
    return systemClocks.monotonicMs() < this.#untilMs ? undefined : this.#next();
  }

  async #next(): Promise<void> {
    await longWorks.next();
    this.#untilMs = systemClocks.monotonicMs() + TURN_MS;
  }
}
