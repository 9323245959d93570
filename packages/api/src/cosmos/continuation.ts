import { z } from 'zod';
import { WHOLE_RANGE } from '@epitaph/core/partition-key/effective-partition-key.ts';
import { jsonText, MAX_NEIGHBOURS, parseJson } from '@epitaph/query';
import type { Continuation } from '../store/api/queries-api.ts';
import { badRequest, type WireError } from './errors.ts';
import { isJsonObject } from './json.ts';
import { isRangeEnd } from './scope.ts';

/** Clients ask for tokens of at most 1 kB. */
const MAX_TOKEN_CHARACTERS = 1024;

const count = z.int().nonnegative();
const range = z.object({ min: z.string().refine(isRangeEnd), max: z.string().refine(isRangeEnd) });
const neighbours = z.array(z.string()).max(MAX_NEIGHBOURS);
const continuation = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('after'),
    birth: count,
    inside: z.exactOptional(count),
    rows: z.exactOptional(count),
  }),
  z.object({
    kind: z.literal('sorted'),
    keys: z.array(z.array(z.unknown()).max(1)),
    birth: z.exactOptional(count),
    inside: z.exactOptional(count),
    include: z.exactOptional(z.literal(true)),
    near: z.exactOptional(z.object({ before: neighbours, after: neighbours })),
    rows: count,
  }),
  z.object({ kind: z.literal('ranked'), births: z.array(count), rows: count, range: z.exactOptional(range) }),
  z.object({ kind: z.literal('skip'), rows: count, range: z.exactOptional(range) }),
]);

/** Where a list of the few resources that are not items goes on. */
const listPlace = z.object({
  kind: z.literal('skip'),
  rows: count,
  near: z.exactOptional(z.object({ before: neighbours, after: neighbours })),
});
export type ListPlace = z.infer<typeof listPlace>;

/**
 * A continuation as clients see it: opaque text. It names a place and no more, so nobody gains by forging one.
 *
 * @param of the rid of the container that the place is in
 */
export function encodeContinuation(continuation: Continuation, of: string): string {
  const token = encoded({ ...continuation, of });
  if (continuation.kind !== 'ranked' || token.length <= MAX_TOKEN_CHARACTERS) return token;
  // Documents that don't fit leave their number: then what comes and goes between pages moves them.
  const { births: _, ...counted } = continuation;
  return encoded({ ...counted, kind: 'skip', of });
}

export const encodeListPlace = (place: ListPlace): string => encoded(place);

const encoded = (place: object): string => Buffer.from(jsonText(place)).toString('base64url');

/**
 * @param of the rid of the container that is read: in another, places are others, and what lies before one of them would
 *   be missed without a word
 * @throws WireError for what this server has not given out, and for what it has for another container
 */
export function decodeContinuation(token: string | undefined, of: string): Continuation | undefined {
  const value = parseToken(token);
  // Tokens of before did not say.
  if (isJsonObject(value) && value['of'] !== undefined && value['of'] !== of) throw invalid();
  return checked(continuation, value);
}

/** @throws WireError for what this server has not given out for a list */
export const decodeListPlace = (token: string | undefined): ListPlace | undefined =>
  checked(listPlace, parseToken(token));

const invalid = (): WireError => badRequest('Invalid Continuation Token');

function checked<Place>(schema: z.ZodType<Place>, value: unknown): Place | undefined {
  if (value === undefined) return undefined;
  const { data } = schema.safeParse(value);
  if (data === undefined) throw invalid();
  return data;
}

/** Undefined for no token. */
function parseToken(token: string | undefined): unknown {
  if (token === undefined || token === '') return undefined;
  if (token.length > MAX_TOKEN_CHARACTERS) throw invalid();
  const value = jsonIn(Buffer.from(token, 'base64url').toString());
  if (value === undefined) throw invalid();
  return value;
}

/** Undefined for what is no JSON. */
function jsonIn(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

/** Of a client that was passed its query through. One that counts itself says how many rows are left. */
const passedThrough = z.object({
  limit: z.undefined().optional(),
  rangeMappings: z.tuple([
    z.object({
      queryRange: z.object({ min: z.literal(WHOLE_RANGE.min), max: z.literal(WHOLE_RANGE.max) }),
      continuationToken: z.string(),
    }),
  ]),
});

const counted = z.object({ limit: z.number(), rangeMappings: z.array(z.unknown()) });

/**
 * The place in a token that the client has made around the one of its query's only range.
 *
 * @param of the rid of the container that is read
 * @returns undefined for any other token
 * @throws WireError for a place that this server has not given out
 * @source `CompositeQueryContinuationToken` of `@azure/cosmos`, which comes with the request for a plan
 */
export function placeOfOneRange(clientToken: string | undefined, of: string): Continuation | undefined {
  if (clientToken?.startsWith('{') !== true) return undefined;
  const { data } = passedThrough.safeParse(jsonIn(clientToken));
  return data === undefined ? undefined : decodeContinuation(data.rangeMappings[0].continuationToken, of);
}

/** Whether a token of a client's own says how many rows are left to give. */
export const countsRows = (clientToken: string | undefined): boolean =>
  clientToken?.startsWith('{') === true && counted.safeParse(jsonIn(clientToken)).success;
