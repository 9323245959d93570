/** Entries that are worked on between two pauses, a power of two. */
export const BETWEEN_PAUSES = 1024;

/** Puts entries in order, equal ones as they came, and pauses now and then: of very many it takes long. */
export function* sorting<T>(
  entries: readonly T[],
  compare: (a: T, b: T) => number,
): Generator<undefined, readonly T[], undefined> {
  let runs: T[][] = [];
  for (let start = 0; start < entries.length; start += BETWEEN_PAUSES) {
    if (start > 0) yield;
    runs.push(entries.slice(start, start + BETWEEN_PAUSES).sort(compare));
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let pair = 0; pair < runs.length; pair += 2) {
      merged.push(yield* merging(runs[pair]!, runs[pair + 1] ?? [], compare));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

function* merging<T>(
  a: readonly T[],
  b: readonly T[],
  compare: (a: T, b: T) => number,
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
    if ((merged.length & (BETWEEN_PAUSES - 1)) === 0) yield;
  }
  return merged;
}
