import type { ContainerDefinition } from '../container/definition.ts';
import { encodedHashV1, type KeyRange, WHOLE_RANGE } from './effective-partition-key.ts';

/** Request units per second of one range. A container with more has more ranges. */
const UNITS_PER_RANGE = 6000;

/**
 * Added to the ids of ranges of version 1, except 0, so that they are beyond any id of version 2. So an id never means
 * other keys when a container is created again under its name with another version.
 */
const VERSION_1_IDS = 1000;

type Hashing = Pick<ContainerDefinition['partitionKey'], 'kind' | 'version'>;

/** One of the ranges that a container's keys are divided into. */
export interface PartitionKeyRange extends KeyRange {
  readonly id: string;
  /** The ranges that this one came from by splits, oldest first. */
  readonly parents: readonly string[];
}

/**
 * How many ranges a container has. Ranges split and never merge, so this depends on the highest throughput there ever
 * was.
 *
 * @param highestThroughput request units per second; 0 for a container without throughput of its own
 */
export const rangeCount = (highestThroughput: number): number =>
  Math.max(1, Math.ceil(highestThroughput / UNITS_PER_RANGE));

/**
 * The ranges in the order of their keys. They are the leaves of a binary tree whose nodes are numbered level by level:
 * 0 splits into 1 and 2, then 1 into 3 and 4, then 2 into 5 and 6. So the number of ranges determines which ranges
 * there are, which there were, and which came from which. In version 1 all ids but 0, which is the whole space, are
 * higher by {@link VERSION_1_IDS}.
 */
export function partitionKeyRanges(partitionKey: Hashing, count: number): readonly PartitionKeyRange[] {
  const ranges: PartitionKeyRange[] = [];
  for (let node = count - 1; node <= 2 * count - 2; node += 1) ranges.push(rangeOf(partitionKey, node));
  return ranges.toSorted((left, right) => (left.min < right.min ? -1 : 1));
}

/**
 * A range by its id. Undefined for one that never existed. Ranges that have split are found, too, because clients may
 * still ask for them.
 */
export function partitionKeyRange(partitionKey: Hashing, count: number, id: string): PartitionKeyRange | undefined {
  const number = /^\d{1,9}$/.test(id) ? Number(id) : Number.NaN;
  const node = isVersion1(partitionKey) && number !== 0 ? number - VERSION_1_IDS : number;
  return node >= 0 && node <= 2 * count - 2 && idOf(partitionKey, node) === id
    ? rangeOf(partitionKey, node)
    : undefined;
}

/** The range that covers the same part of the space of hashes as the range with this id does in the other version. */
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

/** The effective partition key at a point of the space of hashes, given in units of 2^-32 of the space. */
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
