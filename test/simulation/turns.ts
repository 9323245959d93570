import { systemClocks } from '@epitaph/core/clock.ts';
import { Random } from './random.ts';

/** How long a piece of work may run before it lets others run, in milliseconds. */
const LONG_MS = 10;
const SHORT_MS = 0.01;
/** Longer than any work. */
const APART_MS = 1e9;

/** The time at which the next work begins. It is later than all timestamps that earlier works have left, so that they don't matter. */
let beginsMs = APART_MS;

/**
 * Executes some work with a scheduling that is derived from a seed: which of several waiting works continues first, and after
 * which of its steps a long work lets others run. With the machine's own time, the scheduling would differ in each run, and
 * still be one of the same few most of the time.
 */
export async function withTurnsOf<Result>(seed: number, work: () => Promise<Result>): Promise<Result> {
  const random = new Random(seed);
  const { setImmediate } = globalThis;
  const { monotonicMs } = systemClocks;
  let nowMs = beginsMs;
  beginsMs += APART_MS;
  const later = (callback: () => void, ...values: []): NodeJS.Immediate => {
    const wait = (left: number): NodeJS.Immediate =>
      setImmediate(() => (left === 0 ? callback(...values) : void wait(left - 1)));
    return wait(random.chance(0.3) ? random.int(1, 4) : 0);
  };
  globalThis.setImmediate = Object.assign(later, setImmediate);
  systemClocks.monotonicMs = () => (nowMs += random.chance(0.3) ? LONG_MS : SHORT_MS);
  try {
    return await work();
  } finally {
    globalThis.setImmediate = setImmediate;
    systemClocks.monotonicMs = monotonicMs;
  }
}
