import { z } from 'zod';
import { jsonText, MAX_NEIGHBOURS, parseJson } from '@epitaph/query';
import type { Continuation } from '../store/api/queries-api.ts';
import { tokenDigest } from '../store/queries/token-digest.ts';
import { badRequest, type WireError } from './errors.ts';
import { isJsonObject, type JsonObject } from './json.ts';
import { isRangeEnd } from './scope.ts';

/** Clients ask for tokens of at most 1 kB. */
const MAX_TOKEN_CHARACTERS = 1024;

/** The id of the range of everything, in a container that has but one. */
const WHOLE = '0';

const count = z.int().nonnegative();
const range = z.object({ min: z.string().refine(isRangeEnd), max: z.string().refine(isRangeEnd) });
const neighbours = z.array(z.string()).max(MAX_NEIGHBOURS);
const digest = z.string().max(16);
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
    by: z.exactOptional(digest),
  }),
  z.object({
    kind: z.literal('ranked'),
    births: z.array(count),
    rows: count,
    range: z.exactOptional(range),
    by: z.exactOptional(digest),
  }),
  z.object({ kind: z.literal('skip'), rows: count, range: z.exactOptional(range), by: z.exactOptional(digest) }),
]);

/** As the store calls a page. */
const page = z.string().max(16);

/** Where a list of the few resources that are not items goes on. */
const listPlace = z.object({
  kind: z.literal('skip'),
  rows: count,
  near: z.exactOptional(z.object({ before: neighbours, after: neighbours })),
});
export type ListPlace = z.infer<typeof listPlace>;

/** What a place in a list is in. */
export interface ListWhereabouts {
  /** The list. */
  readonly of: string;
  /** What a query has put it in the order of. */
  readonly order: string | undefined;
}

/** What page comes next: it begins at a place, or without one at the beginning. */
export interface Next {
  readonly continuation?: Continuation | undefined;
  /** Set for a page that was not ready when it was asked for. */
  readonly pageId?: string | undefined;
}

/** Says that a page that is not ready begins at the beginning. */
const START = 'start';

/** What a place is in. */
export interface Whereabouts {
  /** The rid of the container. */
  readonly of: string;
  /** The partition key that alone was asked for, or the beginning of one, if either was: canonical text. */
  readonly key: string | undefined;
  /** The id of the range that was asked for all there is, if one was. */
  readonly all?: string | undefined;
  /** Whether it is all there is, and the client gives on what it gets as it comes: it merges nothing. */
  readonly passedThrough?: boolean | undefined;
}

/**
 * A continuation as clients see it: opaque text. It names a place, and maybe a page that its own request alone gets, so
 * nobody gains by forging one.
 */
export function encodeContinuation(
  { continuation, pageId }: Next,
  { of, key, all, passedThrough }: Whereabouts,
): string {
  const where = {
    of,
    key: digestOrNone(key),
    ...(all === undefined || all === WHOLE ? {} : { all }),
    ...(passedThrough === true && !isAnyRow(continuation) ? { whole: true } : {}),
    ...(pageId && { page: pageId }),
  };
  const token = encoded({ ...(continuation ?? { kind: START }), ...where });
  if (continuation?.kind !== 'ranked' || token.length <= MAX_TOKEN_CHARACTERS) return token;
  // Documents that don't fit leave their number: then what comes and goes between pages moves them.
  const { births: _, ...counted } = continuation;
  return encoded({ ...counted, kind: 'skip', ...where });
}

/** Whether what is left are all the rows there are, in no order of a query: those of several ranges may come one after the other. */
const isAnyRow = (place: Continuation | undefined): boolean => place?.kind === 'after' && place.rows === undefined;

/**
 * Whether a token is of what a client passes through, in an order or up to a number of rows. Tokens of before do not say.
 *
 * @throws WireError for what this server has not given out
 */
export function isPassedThrough(token: string | undefined): boolean {
  const value = parseToken(token);
  return isJsonObject(value) && value['whole'] === true;
}

export const encodeListPlace = (place: ListPlace, { of, order }: ListWhereabouts): string =>
  encoded({ ...place, of, by: digestOrNone(order) });

/** Empty for none: a token that says nothing is one from before. */
const digestOrNone = (text: string | undefined): string => (text === undefined ? '' : tokenDigest(text));

const encoded = (place: object): string => Buffer.from(jsonText(place)).toString('base64url');

/**
 * In another container, or at another partition key, places are others, and what lies before one of them would be missed
 * without a word. And `@azure/cosmos` looks for the range that a token is from among those that it knows: if they are of
 * another time, it asks for others beside it or leaves some out.
 *
 * @throws WireError for what this server has not given out, and for what it has for another container, key or range
 */
export function decodeContinuation(token: string | undefined, { of, key, all }: Whereabouts): Next {
  const value = parseToken(token);
  if (!isJsonObject(value)) return { continuation: checked(continuation, value) };
  if (isOfElse(value, of)) throw invalid();
  if (value['key'] !== undefined && value['key'] !== digestOrNone(key)) {
    throw badRequest('Invalid Continuation Token: it is of another partition key.');
  }
  if (all !== undefined && (value['all'] ?? WHOLE) !== all) throw ofOtherRanges();
  const pageId = checked(page, value['page']);
  if (pageId !== undefined && value['kind'] === START) return { pageId };
  return { continuation: checked(continuation, value), pageId };
}

/** @throws WireError for what this server has not given out for this list in this order */
export function decodeListPlace(token: string | undefined, { of, order }: ListWhereabouts): ListPlace | undefined {
  const value = parseToken(token);
  if (isJsonObject(value)) {
    if (isOfElse(value, of)) throw badRequest('Invalid Continuation Token: it is of another list.');
    if (value['by'] !== undefined && value['by'] !== digestOrNone(order)) {
      throw badRequest('Invalid Continuation Token: it is of a query in another order.');
    }
  }
  return checked(listPlace, value);
}

/** Whether a token says that it is of something else. Those of before did not say. */
const isOfElse = (token: JsonObject, of: string): boolean => token['of'] !== undefined && token['of'] !== of;

const invalid = (): WireError => badRequest('Invalid Continuation Token');

export const ofOtherRanges = (): WireError =>
  badRequest(
    'Invalid Continuation Token: it is from a client that knew other partition key ranges than this one. Begin the query again, with a new client.',
  );

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
