import type { ContainerDefinition } from '../container/definition.ts';
import { encodedHashV1, type KeyRange, WHOLE_RANGE } from './effective-partition-key.ts';

/** Request units a second that one range takes part in; with more, a container has more ranges. */
const UNITS_PER_RANGE = 6000;

/**
 * Lies between the ids of ranges of hashes of version 1 and those of the same parts of all hashes in version 2, beyond any
 * id of either: so no id means other keys in a container that is made anew under its name with another version.
 */
const VERSION_1_IDS = 1000;

type Hashing = Pick<ContainerDefinition['partitionKey'], 'kind' | 'version'>;

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
 * which there were, and what came from what. In version 1 the ids of all but 0, which is everything, are higher.
 */
export function partitionKeyRanges(partitionKey: Hashing, count: number): readonly PartitionKeyRange[] {
  const ranges: PartitionKeyRange[] = [];
  for (let node = count - 1; node <= 2 * count - 2; node += 1) ranges.push(rangeOf(partitionKey, node));
  return ranges.toSorted((left, right) => (left.min < right.min ? -1 : 1));
}

/**
 * A range by its id, undefined for one that never was. One that has split is found too: what it covered is still
 * known, so whoever still asks for it can be answered.
 */
export function partitionKeyRange(partitionKey: Hashing, count: number, id: string): PartitionKeyRange | undefined {
  const number = /^\d{1,9}$/.test(id) ? Number(id) : Number.NaN;
  const node = isVersion1(partitionKey) && number !== 0 ? number - VERSION_1_IDS : number;
  return node >= 0 && node <= 2 * count - 2 && idOf(partitionKey, node) === id
    ? rangeOf(partitionKey, node)
    : undefined;
}

/**
 * The range of a container that is the same part of all hashes as one of the other version is, by the id of that one.
 */
export function rangeOfOtherVersion(partitionKey: Hashing, count: number, id: string): PartitionKeyRange | undefined {
  const other: Hashing = { kind: 'Hash', version: isVersion1(partitionKey) ? 2 : 1 };
  const isThere = partitionKeyRange(other, count, id) !== undefined;
  return isThere ? rangeOf(partitionKey, Number(id) % VERSION_1_IDS) : undefined;
}

const isVersion1 = ({ kind, version }: Hashing): boolean => kind === 'Hash' && version !== 2;

const idOf = (partitionKey: Hashing, node: number): string =>
  String(node !== 0 && isVersion1(partitionKey) ? node + VERSION_1_IDS : node);

function rangeOf(partitionKey: Hashing, node: number): PartitionKeyRange {
  const level = 31 - Math.clz32(node + 1);
  const width = 2 ** (32 - level);
  const from = (node + 1 - 2 ** level) * width;
  const parents: string[] = [];
  for (let parent = node; parent > 0;) {
    parent = (parent - 1) >> 1;
    parents.unshift(idOf(partitionKey, parent));
  }
  return {
    id: idOf(partitionKey, node),
    min: boundary(partitionKey, from),
    max: boundary(partitionKey, from + width),
    parents,
  };
}

/** The effective partition key at a part of the space of hashes, given in units of 2^-32 of it. */
function boundary(partitionKey: Hashing, at: number): string {
  if (at === 0) return WHOLE_RANGE.min;
  if (at === 2 ** 32) return WHOLE_RANGE.max;
  if (isVersion1(partitionKey)) return encodedHashV1(at);
  // Hashes of version 2 have 126 bits.
  return Math.floor(at / 4)
    .toString(16)
    .toUpperCase()
    .padStart(8, '0')
    .padEnd(32, '0');
}
