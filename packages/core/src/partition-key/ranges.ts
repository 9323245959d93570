import type { ContainerDefinition } from '../container/definition.ts';
import { encodedHashV1, type KeyRange, WHOLE_RANGE } from './effective-partition-key.ts';

/** Request units a second that one range takes part in; with more, a container has more ranges. */
const UNITS_PER_RANGE = 6000;

/** One of the ranges that a container's keys are divided into. */
export interface PartitionKeyRange extends KeyRange {
  readonly id: string;
  /** The ranges it came from, oldest first; they have split. */
  readonly parents: readonly string[];
}

/**
 * How many ranges a container has. Ranges split and never merge, so this goes by the highest throughput there ever was.
 *
 * @param highestThroughput request units a second; 0 for a container that has none of its own
 */
export const rangeCount = (highestThroughput: number): number =>
  Math.max(1, Math.ceil(highestThroughput / UNITS_PER_RANGE));

/**
 * The ranges in the order of their keys. They are the leaves of a binary tree whose nodes are numbered level by
 * level: 0 splits into 1 and 2, then 1 into 3 and 4, then 2 into 5 and 6. So their number says all: which there are,
 * which there were, and what came from what.
 */
export function partitionKeyRanges(
  partitionKey: Pick<ContainerDefinition['partitionKey'], 'kind' | 'version'>,
  count: number,
): readonly PartitionKeyRange[] {
  const ranges: PartitionKeyRange[] = [];
  for (let node = count - 1; node <= 2 * count - 2; node += 1) ranges.push(rangeOf(partitionKey, node));
  return ranges.toSorted((left, right) => (left.min < right.min ? -1 : 1));
}

/**
 * A range by its id, undefined for one that never was. One that has split is found too: what it covered is still
 * known, so whoever still asks for it can be answered.
 */
export function partitionKeyRange(
  partitionKey: Parameters<typeof partitionKeyRanges>[0],
  count: number,
  id: string,
): PartitionKeyRange | undefined {
  const node = /^\d{1,9}$/.test(id) ? Number(id) : Number.NaN;
  return String(node) === id && node <= 2 * count - 2 ? rangeOf(partitionKey, node) : undefined;
}

function rangeOf(partitionKey: Parameters<typeof partitionKeyRanges>[0], node: number): PartitionKeyRange {
  const level = 31 - Math.clz32(node + 1);
  const width = 2 ** (32 - level);
  const from = (node + 1 - 2 ** level) * width;
  const parents: string[] = [];
  for (let parent = node; parent > 0;) {
    parent = (parent - 1) >> 1;
    parents.unshift(String(parent));
  }
  return { id: String(node), min: boundary(partitionKey, from), max: boundary(partitionKey, from + width), parents };
}

/** The effective partition key at a part of the space of hashes, given in units of 2^-32 of it. */
function boundary({ kind, version }: Parameters<typeof partitionKeyRanges>[0], at: number): string {
  if (at === 0) return WHOLE_RANGE.min;
  if (at === 2 ** 32) return WHOLE_RANGE.max;
  if (kind === 'Hash' && version !== 2) return encodedHashV1(at);
  // Hashes of version 2 have 126 bits.
  return Math.floor(at / 4)
    .toString(16)
    .toUpperCase()
    .padStart(8, '0')
    .padEnd(32, '0');
}
