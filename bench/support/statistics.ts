/** The median of some figures; for an even number of figures, the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** The value that a fraction of the figures does not exceed, by the nearest-rank method. */
export function percentile(values: readonly number[], fraction: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(sorted.length * fraction) - 1)] ?? Number.NaN;
}

export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/**
 * The ratio of the medians of two series, with the smallest and the largest ratio of a single round. The sides take
 * turns within a round, so other load on the machine affects both.
 */
export function ratioOf(ours: readonly number[], peer: readonly number[]): Spread {
  const byRound = ours.slice(0, peer.length).map((value, round) => value / peer[round]!);
  return { median: median(ours) / median(peer), min: Math.min(...byRound), max: Math.max(...byRound) };
}
