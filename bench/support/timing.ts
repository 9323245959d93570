/** A contender's measurements: named numbers, which can be sent between processes. */
export type Figures = Readonly<Record<string, number>>;

/** A measured period, in microseconds of the monotonic clock, which CPU profiles use too. */
export interface MeasuredWindow {
  readonly work: string;
  readonly operations: number;
  readonly startUs: number;
  readonly endUs: number;
}

/** All measured periods of this process. Profiles are evaluated only within these, so without the seeding. */
export const measuredWindows: MeasuredWindow[] = [];

let currentWork = '';

/** Names the work to which the following measurements belong. */
export function beginWork(work: string): void {
  currentWork = work;
}

/** Measures the time of some work that returns its number of operations. */
export async function timed(
  work: () => Promise<number> | number,
): Promise<{ operations: number; milliseconds: number }> {
  const startUs = monotonicUs();
  const operations = await work();
  const endUs = monotonicUs();
  measuredWindows.push({ work: currentWork, operations, startUs, endUs });
  return { operations, milliseconds: (endUs - startUs) / 1000 };
}

function monotonicUs(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

/** Executes a number of operations, `concurrency` at a time: each of so many loops takes the next one when it is free. */
export async function concurrently(
  count: number,
  concurrency: number,
  operation: (index: number) => Promise<unknown>,
): Promise<number> {
  let next = 0;
  const loop = async () => {
    while (next < count) await operation(next++);
  };
  await Promise.all(Array.from({ length: concurrency }, loop));
  return count;
}

/** Waits for one turn of the event loop, as a request from a socket does. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
