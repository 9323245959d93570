import type { ContainerState } from '@epitaph/core/container/state.ts';
import { type KeyRange, WHOLE_RANGE } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { PartitionKeyRange } from '@epitaph/core/partition-key/ranges.ts';
import { type Scope, startOf } from '@epitaph/core/partition-key/scope.ts';
import { badRequest, WireError } from './errors.ts';
import { readPartitionKeyHeader } from './partition-key.ts';
import {
  hadKeysHashedOtherwise,
  rangeById,
  rangeIdAt,
  rangeIdOf,
  rangeInPlaceOf,
  rangeOfEarlier,
  rangesOf,
} from './ranges.ts';
import { headerText, isJavaScriptClient, partitionKeyHeader, type CosmosRequest } from './request.ts';

/** Longer than any effective partition key with what a prefix range adds. */
const MAX_EPK_CHARACTERS = 256;
const RANGE_ID_HEADER = 'x-ms-documentdb-partitionkeyrangeid';
const EPK = /^[0-9A-Fa-f]*$/;
/** Appended to a key, it gives the end of the range of that key alone. */
const ITSELF = '\u0000';

/**
 * The part of a container that a query, a feed or a change feed covers: one partition key or leading components of it
 * (`x-ms-documentdb-partitionkey`), one range (`x-ms-documentdb-partitionkeyrangeid`), a part of the space of effective
 * partition keys (`x-ms-start-epk`, `x-ms-end-epk`), or the intersection of those given.
 *
 * @throws WireError 400 for invalid headers, 410 with substatus 1002 for a range that never existed: clients then read
 *   the ranges again
 */
export function scopeOf(request: CosmosRequest, container: ContainerState): Scope {
  const { headers } = request;
  const given = readPartitionKeyHeader(container.definition, partitionKeyHeader(headers));
  const asked = askedRange(request);
  // A complete key is enough by itself, and is not affected by ranges that split.
  if (given?.complete === true) return { partitionKey: given.key, range: asked };
  const range = overlap(rangeOfRequest(request, container) ?? WHOLE_RANGE, asked ?? WHOLE_RANGE);
  const isWhole = range.min === WHOLE_RANGE.min && range.max === WHOLE_RANGE.max;
  return { prefix: given?.key, range: isWhole ? undefined : range };
}

/** Whether a request itself names the part of a container that it covers, even if that is all of it. */
export function namesItsScope({ headers }: CosmosRequest): boolean {
  return (
    partitionKeyHeader(headers) !== undefined ||
    rangeIdOfRequest(headers) !== undefined ||
    headerText(headers, 'x-ms-start-epk') !== undefined ||
    headerText(headers, 'x-ms-end-epk') !== undefined
  );
}

/**
 * The range that a request names by its id, if it names one. A range that has split is still answered: the answer is
 * right, and a query that began before the split can go on. With the 410 of the service, `@azure/cosmos` 4.10.1 repeats
 * the request for ever, and a plan made for one range would be run on several.
 *
 * @throws WireError 400 for several ids, 410 with substatus 1002 when the container never had such a range
 */
export function rangeOfRequest(request: CosmosRequest, container: ContainerState): PartitionKeyRange | undefined {
  const id = rangeIdOfRequest(request.headers);
  if (id === undefined) return undefined;
  const range = rangeById(container, id);
  const isFormer = isGoneFor(request, container, id);
  if (range !== undefined && !isFormer) return range;
  // Without an earlier container of that kind, the id comes from a time before version 1 had ids of its own. A lease may have kept it.
  const isAnswered = asksAgainForEver(request) || !hadKeysHashedOtherwise(request.store, container);
  const inPlace = isAnswered && !isFormer ? rangeInPlaceOf(container, id) : undefined;
  if (inPlace === undefined) {
    throw new WireError('rangeGone', `The requested partition key range '${id.slice(0, 100)}' is gone.`);
  }
  // A client that names a part of the range knows the hashes of its keys.
  return askedRange(request) === undefined ? inPlace : undefined;
}

/**
 * Whether a request asks for all of a range that has split since, and must be told so: in direct mode nothing else
 * informs a client of a split. A request for a part of the range is answered, because upon a 410 the .NET client would
 * ask for all that the range had, and take the rows beside its part too.
 */
const isGoneFor = (request: CosmosRequest, container: ContainerState, id: string): boolean =>
  request.isToldOfSplits && askedRange(request) === undefined && !rangesOf(container).some((known) => known.id === id);

/**
 * A query of a range that has split and counts as gone. Upon the 410, clients that planned the query for a single range
 * concatenate the answers of the new ranges. So a query whose answers must be merged is answered by the former range.
 *
 * @param isMerged called only when it matters
 */
export function withFormerRange(
  request: CosmosRequest,
  container: ContainerState,
  isMerged: () => boolean,
): CosmosRequest {
  const id = rangeIdOfRequest(request.headers);
  const isFormer = id !== undefined && isGoneFor(request, container, id) && rangeById(container, id) !== undefined;
  return isFormer && isMerged() ? { ...request, isToldOfSplits: false } : request;
}

/**
 * Whether a 410 for a split range would make the client repeat its request for ever: `@azure/cosmos` 4.10.1, except in
 * its change feeds. Those read the ranges again, and must do so, because they keep their progress by the keys of each
 * range.
 */
function asksAgainForEver({ headers }: CosmosRequest): boolean {
  return isJavaScriptClient(headers) && headers['a-im'] === undefined;
}

/** The id of the range that a request names, if it names one. */
export function rangeIdOfRequest(headers: CosmosRequest['headers']): string | undefined {
  const text = headerText(headers, RANGE_ID_HEADER);
  if (text === undefined || text === '') return undefined;
  // Some clients put the container's rid before it. Clients that name all ranges at once ask for one after the other
  // when they are refused with this text.
  const comma = text.indexOf(',');
  if (comma !== text.lastIndexOf(',')) {
    throw badRequest(`${RANGE_ID_HEADER} header contains invalid value '${text.slice(0, 100)}'.`);
  }
  return text.slice(comma + 1).trim();
}

/**
 * A query in a container with one range, sent to a range that an earlier container of its name had. Upon a 410 other
 * clients read the ranges again, but queries of `@azure/cosmos` 4.10.1 repeat the request for ever. A query planned for
 * one range is passed through, and the ranges' answers are concatenated. So the first of the former ranges answers for
 * the whole container.
 *
 * @returns the request for the one range; undefined when another range has answered for it
 */
export function withoutEarlierRange(request: CosmosRequest, container: ContainerState): CosmosRequest | undefined {
  const { headers } = request;
  if (!asksAgainForEver(request) || askedRange(request) !== undefined) return request;
  const id = rangeIdOfRequest(headers);
  const earlier = id === undefined ? undefined : rangeOfEarlier(container, id);
  if (earlier === undefined) return request;
  if (earlier.min !== WHOLE_RANGE.min) return undefined;
  return { ...request, headers: { ...headers, [RANGE_ID_HEADER]: rangeIdOf(container) } };
}

/**
 * The id of the range that an answer is from: the range that the request names, or the one of the first key that it
 * covers, also when a part of a split range was requested. The .NET client reads the ranges again when an answer is
 * from another range than it asked. A client that only queries by leading components of a key would not do so
 * otherwise. With a token of a client that knows today's ranges, it would then ask for the rest beside the token's
 * range without those components, and take rows of other keys for its own.
 *
 * @source `RefreshRoutingCacheIfPartitionMovedAsync` of the .NET client
 */
export function answeringRangeId(request: CosmosRequest, container: ContainerState, scope: Scope): string {
  const named = rangeOfRequest(request, container);
  if (named !== undefined && askedRange(request) === undefined) return named.id;
  return scope.partitionKey === undefined
    ? rangeIdAt(rangesOf(container), startOf(container.definition, scope))
    : rangeIdOf(container, scope.partitionKey);
}

function askedRange({ headers }: CosmosRequest): KeyRange | undefined {
  const start = headerText(headers, 'x-ms-start-epk');
  const end = headerText(headers, 'x-ms-end-epk');
  if (start === undefined && end === undefined) return undefined;
  const min = readEpk(start ?? WHOLE_RANGE.min);
  const max = readEpk(end ?? WHOLE_RANGE.max);
  if (min > max) throw badRequest('The range of effective partition keys ends before it starts.');
  if (min === WHOLE_RANGE.min && max === WHOLE_RANGE.max) return undefined;
  // A range from a key to itself means that key.
  return min === max ? { min, max: min + ITSELF } : { min, max };
}

const isEpk = (text: string): boolean => text.length <= MAX_EPK_CHARACTERS && EPK.test(text);

/** Whether a text is a valid end of a range. */
export const isRangeEnd = (text: string): boolean =>
  text === text.toUpperCase() && isEpk(text.endsWith(ITSELF) ? text.slice(0, -1) : text);

function readEpk(text: string): string {
  if (!isEpk(text)) {
    throw badRequest(`The effective partition key '${text.slice(0, 100)}' is invalid.`);
  }
  return text.toUpperCase();
}

function overlap(left: KeyRange, right: KeyRange): KeyRange {
  const min = left.min > right.min ? left.min : right.min;
  const max = left.max < right.max ? left.max : right.max;
  // The intersection is empty, so an empty range is returned.
  return min < max ? { min, max } : { min: WHOLE_RANGE.max, max: WHOLE_RANGE.max };
}
