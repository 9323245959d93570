/** What a contender measured: named numbers, so that they pass between processes as they are. */
export type Figures = Readonly<Record<string, number>>;

/** A stretch of time that was measured, in microseconds of the monotonic clock, which CPU profiles use too. */
export interface MeasuredWindow {
  readonly work: string;
  readonly operations: number;
  readonly startUs: number;
  readonly endUs: number;
}

/** Every stretch measured in this process. A profile is read within these alone: seeding is not in it. */
export const measuredWindows: MeasuredWindow[] = [];

let currentWork = '';

/** Names the work that what is timed from now on belongs to. */
export function beginWork(work: string): void {
  currentWork = work;
}

/** Times some work that answers how many operations it did. */
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

/** Does a number of operations, so many at a time: each of `concurrency` loops takes the next one when it is free. */
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

/** A turn of the event loop, as a request that comes from a socket takes one. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
