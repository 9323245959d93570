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

/** By number: most containers have as many ranges as others of their kind of key. */
const known = new Map<string, readonly PartitionKeyRange[]>();

/** Keys that are on record as pseudonyms alone have no place among others, so all lie in one range. */
const rangeCountOf = ({ definition, highestThroughput }: ContainerState): number =>
  hasPseudonymousIds(definition) ? 1 : rangeCount(highestThroughput);

/**
 * The ranges of a container, in the order of their keys. They follow from the highest throughput of its own that it
 * ever had; one that shares its database's has one.
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

/** Ranges that a container has at most. */
const MOST_RANGES = rangeCount(MOST_THROUGHPUT);

/**
 * A range of a container, or one that has split since, by its id. A container of several ranges is asked for others too,
 * by clients that know those of an earlier container of its name: an id means the same part of the keys in each that has
 * it, so they are answered rightly, and all of them together have every item once. With one range queries are planned otherwise, and
 * their answers for parts of it could not be put together.
 */
export function rangeById(container: ContainerState, id: string): PartitionKeyRange | undefined {
  const count = rangeCountOf(container) === 1 ? 1 : MOST_RANGES;
  return partitionKeyRange(container.definition.partitionKey, count, id);
}

/**
 * A range that only an earlier container of the name can have had: of a container that has one range itself.
 */
export function rangeOfEarlier(container: ContainerState, id: string): PartitionKeyRange | undefined {
  if (rangeCountOf(container) > 1 || rangeById(container, id) !== undefined) return undefined;
  const { partitionKey } = container.definition;
  return partitionKeyRange(partitionKey, MOST_RANGES, id) ?? rangeOfOtherVersion(partitionKey, MOST_RANGES, id);
}

/**
 * For the id of a range of an earlier container of the name, which hashed its keys otherwise: the range here of as large a
 * part of all hashes. Each is about other keys, but all of them together have every item once. Undefined where there is
 * one range.
 */
export function rangeInPlaceOf(container: ContainerState, id: string): PartitionKeyRange | undefined {
  if (rangeCountOf(container) === 1) return undefined;
  return rangeOfOtherVersion(container.definition.partitionKey, MOST_RANGES, id);
}

/** Of containers: none gets an earlier one after it is there. */
const otherwiseHashed = new WeakMap<ContainerState, boolean>();

/**
 * Whether an earlier container of the name had several ranges of keys that were hashed otherwise. Clients that know its
 * ranges look among them for the hashes of today, and would ask a range for keys that are in another.
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

/** Where the half of all hashes is among the keys; undefined where there is one range. */
const firstSplitOf = (container: ContainerState): string | undefined =>
  (rangeById(container, '1') ?? rangeInPlaceOf(container, '1'))?.max;

/** The id of the range that a canonical partition key belongs to; without one, that of the container's first. */
export function rangeIdOf(container: ContainerState, partitionKey?: string): string {
  const ranges = rangesOf(container);
  if (ranges.length === 1 || partitionKey === undefined) return ranges[0]!.id;
  return rangeIdAt(ranges, rememberedEffectivePartitionKey(container.definition.partitionKey, partitionKey));
}

/**
 * The id of the range that a key belongs to or a part of the keys begins in. Nothing lies behind the last range, which
 * therefore answers for what would.
 */
export const rangeIdAt = (ranges: readonly PartitionKeyRange[], key: EffectivePartitionKey): string =>
  (ranges.find((range) => isInRange(key, range)) ?? ranges.at(-1)!).id;

/**
 * `/dbs/{db}/colls/{coll}/pkranges`. They come all at once, whatever size of a page is asked for: a client that has a page
 * of before a split and one of behind it has ranges that leave keys out, and can't go on.
 */
export function answerPartitionKeyRanges(request: CosmosRequest): Answer {
  if (request.method !== 'GET') throw methodNotAllowed();
  const container = owner(containerOf, request);
  const ranges = rangesOf(container);
  // Nothing but their number tells the ranges of one time from those of another.
  const etag = `"${container.rid}-${ranges.length}"`;
  const headers = { etag, 'x-ms-item-count': String(ranges.length) };
  // Clients poll the ranges as a feed of changes: "not changed" is how it ends.
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
