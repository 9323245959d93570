import type { ContainerState } from '@epitaph/core/container/state.ts';
import { hasPseudonymousIds } from '@epitaph/core/item/pseudonym.ts';
import {
  type EffectivePartitionKey,
  isInRange,
  rememberedEffectivePartitionKey,
} from '@epitaph/core/partition-key/effective-partition-key.ts';
import {
  type PartitionKeyRange,
  partitionKeyRange,
  partitionKeyRanges,
  rangeCount,
  rangeOfOtherVersion,
} from '@epitaph/core/partition-key/ranges.ts';
import { MOST_THROUGHPUT } from '@epitaph/core/throughput/throughput.ts';
import type { StoreApi } from '../store/store-api.ts';
import { charge } from '../request-units/charge.ts';
import { containerSelf } from '../store/items/system-properties.ts';
import { containerOf, ifNoneMatchOf, methodNotAllowed, owner, type Answer, type CosmosRequest } from './request.ts';

/** Lists of ranges by kind of key and number: most containers share theirs with others. */
const known = new Map<string, readonly PartitionKeyRange[]>();

/** Keys that are recorded only as pseudonyms have no place in the order of keys, so all are in one range. */
const rangeCountOf = ({ definition, highestThroughput }: ContainerState): number =>
  hasPseudonymousIds(definition) ? 1 : rangeCount(highestThroughput);

/**
 * The ranges of a container, in the order of their keys. Their number depends on the highest throughput that the
 * container itself ever had. A container that shares its database's throughput has one range.
 */
export function rangesOf(container: ContainerState): readonly PartitionKeyRange[] {
  const { partitionKey } = container.definition;
  const count = rangeCountOf(container);
  const name = `${partitionKey.kind} ${partitionKey.version ?? 1} ${count}`;
  let ranges = known.get(name);
  if (ranges === undefined) {
    ranges = partitionKeyRanges(partitionKey, count);
    known.set(name, ranges);
  }
  return ranges;
}

/** The most ranges that a container can have. */
const MOST_RANGES = rangeCount(MOST_THROUGHPUT);

/**
 * A range of a container, or one that has split since, by its id.
 *
 * Clients that know the ranges of an earlier container of the name ask a container with several ranges for others too.
 * An id means the same part of the keys in every container that has it. So they get the right answers, and all of them
 * together have every item once. In a container with one range, queries are planned in another way, and answers for
 * parts of the range could not be put together.
 */
export function rangeById(container: ContainerState, id: string): PartitionKeyRange | undefined {
  const count = rangeCountOf(container) === 1 ? 1 : MOST_RANGES;
  return partitionKeyRange(container.definition.partitionKey, count, id);
}

/** A range that only an earlier container of the name can have had. Only for a container that has one range itself. */
export function rangeOfEarlier(container: ContainerState, id: string): PartitionKeyRange | undefined {
  if (rangeCountOf(container) > 1 || rangeById(container, id) !== undefined) return undefined;
  const { partitionKey } = container.definition;
  return partitionKeyRange(partitionKey, MOST_RANGES, id) ?? rangeOfOtherVersion(partitionKey, MOST_RANGES, id);
}

/**
 * The range for the id of a range of an earlier container of the name, which hashed its keys in another way. It is the
 * range here with an equal part of all hashes. It has other keys, but all of these ranges together have every item
 * once. Undefined when there is one range.
 */
export function rangeInPlaceOf(container: ContainerState, id: string): PartitionKeyRange | undefined {
  if (rangeCountOf(container) === 1) return undefined;
  return rangeOfOtherVersion(container.definition.partitionKey, MOST_RANGES, id);
}

/** Cached by container, because no earlier container of its name can be added while it exists. */
const otherwiseHashed = new WeakMap<ContainerState, boolean>();

/**
 * Whether an earlier container of the name had several ranges of keys with other hashes. Clients that know its ranges
 * look up today's hashes in them, and would ask the wrong range for a key.
 */
export function hadKeysHashedOtherwise(store: StoreApi, container: ContainerState): boolean {
  let had = otherwiseHashed.get(container);
  if (had === undefined) {
    const database = store.databaseByRid(container.databaseRid)?.name ?? '';
    const split = firstSplitOf(container);
    had = store.deletedContainers(database, container.name).some((earlier) => {
      const theirs = firstSplitOf(earlier);
      return theirs !== undefined && theirs !== split;
    });
    otherwiseHashed.set(container, had);
  }
  return had;
}

/** The key at half of all hashes; undefined when there is one range. */
const firstSplitOf = (container: ContainerState): string | undefined =>
  (rangeById(container, '1') ?? rangeInPlaceOf(container, '1'))?.max;

/**
 * The id of the range that a canonical partition key belongs to. Without a key, the id of the container's first range.
 */
export function rangeIdOf(container: ContainerState, partitionKey?: string): string {
  const ranges = rangesOf(container);
  if (ranges.length === 1 || partitionKey === undefined) return ranges[0]!.id;
  return rangeIdAt(ranges, rememberedEffectivePartitionKey(container.definition.partitionKey, partitionKey));
}

/**
 * The id of the range that a key belongs to, or in which a part of the keys begins. No range follows the last, so that
 * one also answers for what lies behind it.
 */
export const rangeIdAt = (ranges: readonly PartitionKeyRange[], key: EffectivePartitionKey): string =>
  (ranges.find((range) => isInRange(key, range)) ?? ranges.at(-1)!).id;

/**
 * `/dbs/{db}/colls/{coll}/pkranges`. All ranges are in one page, whatever size is requested: a client with one page
 * from before a split and one from after it would have ranges that leave keys out, and could not go on.
 */
export function answerPartitionKeyRanges(request: CosmosRequest): Answer {
  if (request.method !== 'GET') throw methodNotAllowed();
  const container = owner(containerOf, request);
  const ranges = rangesOf(container);
  // The ranges of different times differ only in their number.
  const etag = `"${container.rid}-${ranges.length}"`;
  const headers = { etag, 'x-ms-item-count': String(ranges.length) };
  // Clients poll the ranges like a change feed, whose end is "not changed".
  if (ifNoneMatchOf(request.headers) === etag) {
    return { status: 304, body: null, charge: charge.metadata, headers };
  }
  const body = {
    _rid: container.rid,
    PartitionKeyRanges: ranges.map(({ id, min, max, parents }) => ({
      _rid: container.rid,
      id,
      _etag: etag,
      minInclusive: min,
      maxExclusive: max,
      ridPrefix: Number(id),
      _self: `${containerSelf(container)}pkranges/${id}/`,
      throughputFraction: 1 / ranges.length,
      status: 'online',
      parents,
      _ts: Math.floor(container.createdAtMs / 1000),
    })),
    _count: ranges.length,
  };
  return { status: 200, body: JSON.stringify(body), charge: charge.metadata, headers };
}
