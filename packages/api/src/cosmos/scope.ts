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

/** Longer than any effective partition key, with what a prefix range adds. */
const MAX_EPK_CHARACTERS = 256;
const RANGE_ID_HEADER = 'x-ms-documentdb-partitionkeyrangeid';
const EPK = /^[0-9A-Fa-f]*$/;
/** Behind a key, the end of the range of it alone. */
const ITSELF = '\u0000';

/**
 * The part of a container that a query, a feed or a change feed is about: one partition key or leading components of
 * it (`x-ms-documentdb-partitionkey`), one range (`x-ms-documentdb-partitionkeyrangeid`), a part of the space of
 * effective partition keys (`x-ms-start-epk`, `x-ms-end-epk`), or what those given have in common.
 *
 * @throws WireError 400 for what can't be read, 410 with substatus 1002 for a range that never was: clients then read
 *   the ranges again
 */
export function scopeOf(request: CosmosRequest, container: ContainerState): Scope {
  const { headers } = request;
  const given = readPartitionKeyHeader(container.definition, partitionKeyHeader(headers));
  const asked = askedRange(request);
  // A key says all by itself, and is not affected by ranges that split.
  if (given?.complete === true) return { partitionKey: given.key, range: asked };
  const range = overlap(rangeOfRequest(request, container) ?? WHOLE_RANGE, asked ?? WHOLE_RANGE);
  const isWhole = range.min === WHOLE_RANGE.min && range.max === WHOLE_RANGE.max;
  return { prefix: given?.key, range: isWhole ? undefined : range };
}

/** Whether a request says by itself which part of a container it is about, be it all of it. */
export function namesItsScope({ headers }: CosmosRequest): boolean {
  return (
    partitionKeyHeader(headers) !== undefined ||
    rangeIdOfRequest(headers) !== undefined ||
    headerText(headers, 'x-ms-start-epk') !== undefined ||
    headerText(headers, 'x-ms-end-epk') !== undefined
  );
}

/**
 * The range that a request names by its id, if it names one. A range that has split is answered for as long as
 * anybody asks for it: the answer is right, and a query that began before the split goes on. With the 410 that the
 * service gives, `@azure/cosmos` 4.10.1 asks again for ever, and a plan made for one range would be run on several.
 *
 * @throws WireError 400 for several ids, 410 with substatus 1002 when the container never had such a range
 */
export function rangeOfRequest(request: CosmosRequest, container: ContainerState): PartitionKeyRange | undefined {
  const id = rangeIdOfRequest(request.headers);
  if (id === undefined) return undefined;
  const range = rangeById(container, id);
  const isFormer = isGoneFor(request, container, id);
  if (range !== undefined && !isFormer) return range;
  // Without such an earlier container the id is of before those of version 1 were ids of their own: a lease may have kept it.
  const isAnswered = asksAgainForEver(request) || !hadKeysHashedOtherwise(request.store, container);
  const inPlace = isAnswered && !isFormer ? rangeInPlaceOf(container, id) : undefined;
  if (inPlace === undefined) {
    throw new WireError('rangeGone', `The requested partition key range '${id.slice(0, 100)}' is gone.`);
  }
  // Whoever names a part of it knows where its keys are hashed to.
  return askedRange(request) === undefined ? inPlace : undefined;
}

/**
 * Whether a request asks for all of a range that is not one of today's, and is to learn of it: in direct mode nothing else teaches
 * a client of a split. Who asks for a part of it would take the rows beside that, too: upon a 410 the .NET client asks for all that
 * the range had.
 */
const isGoneFor = (request: CosmosRequest, container: ContainerState, id: string): boolean =>
  request.isToldOfSplits && askedRange(request) === undefined && !rangesOf(container).some((known) => known.id === id);

/**
 * A query of a range that has split, for which that is gone. Upon the 410 clients put what the new ranges say one behind the other, if they
 * have planned it for the only range that there was. So what would have to be merged is answered by the range as it was.
 *
 * @param isMerged asked only where it matters
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
 * Whether the 410 for a range that is gone would come to whom it drives round for ever: `@azure/cosmos` 4.10.1, but for
 * its change feeds. They read the ranges again, and have to: they keep by the keys of each range how far they have come.
 */
function asksAgainForEver({ headers }: CosmosRequest): boolean {
  return isJavaScriptClient(headers) && headers['a-im'] === undefined;
}

/** The id of the range that a request names, if it names one. */
export function rangeIdOfRequest(headers: CosmosRequest['headers']): string | undefined {
  const text = headerText(headers, RANGE_ID_HEADER);
  if (text === undefined || text === '') return undefined;
  // Some clients put the container's rid before it. Those that name all ranges at once go on to ask for one after the
  // other when they are refused in these words.
  const comma = text.indexOf(',');
  if (comma !== text.lastIndexOf(',')) {
    throw badRequest(`${RANGE_ID_HEADER} header contains invalid value '${text.slice(0, 100)}'.`);
  }
  return text.slice(comma + 1).trim();
}

/**
 * A query of a container that has one range, asked of a range that an earlier container of its name had. Other clients
 * read the ranges again upon the 410; queries of `@azure/cosmos` 4.10.1 ask again for ever. Queries of one range are
 * passed through, and what the ranges say is put one behind the other: so the first of them answers for the whole.
 *
 * @returns the request as of the one range there is; undefined where another range has answered for it
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
 * The id of the range that an answer is from: the one that the request names, or that of the first key it is about, also
 * where a part is asked of a range that has split since. The .NET client reads the ranges again when an answer is from
 * another than it asked. One that only queries by leading components of a key would never do so otherwise. Given a token of
 * a client that knows today's ranges, it asks for what lies beside the token's range without those components, and takes
 * the rows of other keys for its own.
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

/** Whether a text is an end of a range as scopes have it. */
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
  // Nothing lies in both: an empty range.
  return min < max ? { min, max } : { min: WHOLE_RANGE.max, max: WHOLE_RANGE.max };
}
