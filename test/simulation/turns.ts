import { systemClocks } from '@epitaph/core/clock.ts';
import { Random } from './random.ts';

/** Milliseconds after which long work gives way to others. */
const LONG_MS = 10;
const SHORT_MS = 0.01;
/** Longer than any work. */
const APART_MS = 1e9;

/** When the next work begins: after all that others have left behind which goes by time, so that it is as for the first. */
let beginsMs = APART_MS;

/**
 * Does work whose turns come as a seed says: which of several things that wait goes on first, and after which of its steps
 * long work gives way. By the machine's own time they would come otherwise each time, and mostly in the same few ways.
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
