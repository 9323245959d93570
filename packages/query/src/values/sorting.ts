/** How many entries are processed between two pauses. A power of two. */
export const BETWEEN_PAUSES = 1024;
/** Limit for the bytes of these entries, unless a single entry has more. */
const BYTES_BETWEEN_PAUSES = 1024 * 1024;

/**
 * Sorts entries; equal ones keep their order. Pauses from time to time, since sorting very many or large entries takes long.
 *
 * @param bytes the size of all entries together, if the time of comparisons depends on it
 */
export function* sorting<T>(
  entries: readonly T[],
  compare: (a: T, b: T) => number,
  bytes = 0,
): Generator<undefined, readonly T[], undefined> {
  const fitting = Math.floor((BYTES_BETWEEN_PAUSES * entries.length) / Math.max(1, bytes));
  const between = Math.max(1, Math.min(BETWEEN_PAUSES, fitting));
  let runs: T[][] = [];
  for (let start = 0; start < entries.length; start += between) {
    if (start > 0) yield;
    runs.push(entries.slice(start, start + between).sort(compare));
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let pair = 0; pair < runs.length; pair += 2) {
      merged.push(yield* merging(runs[pair]!, runs[pair + 1] ?? [], compare, between));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

function* merging<T>(
  a: readonly T[],
  b: readonly T[],
  compare: (a: T, b: T) => number,
  between: number,
): Generator<undefined, T[], undefined> {
  const merged: T[] = [];
  let inA = 0;
  let inB = 0;
  while (inA < a.length || inB < b.length) {
    if (inA === a.length || (inB < b.length && compare(b[inB]!, a[inA]!) < 0)) {
      merged.push(b[inB]!);
      inB += 1;
    } else {
      merged.push(a[inA]!);
      inA += 1;
    }
    if (merged.length % between === 0) yield;
  }
  return merged;
}
