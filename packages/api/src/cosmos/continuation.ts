import { z } from 'zod';
import { jsonText, MAX_NEIGHBOURS, parseJson } from '@epitaph/query';
import type { Continuation } from '../store/api/queries-api.ts';
import { tokenDigest } from '../store/queries/token-digest.ts';
import { badRequest, type WireError } from './errors.ts';
import { isJsonObject, type JsonObject } from './json.ts';
import { isRangeEnd } from './scope.ts';

/** Clients request tokens of at most 1 kB. */
const MAX_TOKEN_CHARACTERS = 1024;

/** The id of the only range, in a container that has one. */
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

/** The store's id of a page. */
const page = z.string().max(16);

/** A place in a list of resources that are not items, of which there are few. */
const listPlace = z.object({
  kind: z.literal('skip'),
  rows: count,
  near: z.exactOptional(z.object({ before: neighbours, after: neighbours })),
});
export type ListPlace = z.infer<typeof listPlace>;

/** What a place in a list belongs to. */
export interface ListWhereabouts {
  /** The list. */
  readonly of: string;
  /** The order of the list, if a query gives one. */
  readonly order: string | undefined;
}

/** The next page: it begins at a place, or without one at the beginning. */
export interface Next {
  readonly continuation?: Continuation | undefined;
  /** Set for a page that was not ready when it was requested. */
  readonly pageId?: string | undefined;
}

/** Marks a page that is not ready and begins at the beginning. */
const START = 'start';

/** What a place belongs to. */
export interface Whereabouts {
  /** The rid of the container. */
  readonly of: string;
  /** The only partition key that was queried, or the prefix of keys, if there was one: canonical text. */
  readonly key: string | undefined;
  /** The id of the range that was asked for everything, if one was. */
  readonly all?: string | undefined;
  /** Whether the range was asked for everything and the client passes the rows on as they come, without merging. */
  readonly passedThrough?: boolean | undefined;
}

/**
 * A continuation as clients see it: opaque text. It names a place, and perhaps a page that only its own request can
 * get, so forging one gains nothing.
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
  // Births that don't fit are replaced by their number. Documents that are added or removed between pages then move the
  // place.
  const { births: _, ...counted } = continuation;
  return encoded({ ...counted, kind: 'skip', ...where });
}

/**
 * Whether the rest is all remaining rows in document order, so that the answers of several ranges can be concatenated.
 */
const isAnyRow = (place: Continuation | undefined): boolean => place?.kind === 'after' && place.rows === undefined;

/**
 * Whether a token is of a query that a client passes through, in an order or up to a number of rows. Tokens of earlier
 * versions do not say so.
 *
 * @throws WireError for a token that this server has not issued
 */
export function isPassedThrough(token: string | undefined): boolean {
  const value = parseToken(token);
  return isJsonObject(value) && value['whole'] === true;
}

export const encodeListPlace = (place: ListPlace, { of, order }: ListWhereabouts): string =>
  encoded({ ...place, of, by: digestOrNone(order) });

/** Empty for no text: a token without this field is one of an earlier version. */
const digestOrNone = (text: string | undefined): string => (text === undefined ? '' : tokenDigest(text));

const encoded = (place: object): string => Buffer.from(jsonText(place)).toString('base64url');

/**
 * Reads a token. In another container, or at another partition key, it would be another place, and the rows before that
 * would silently be missing. And `@azure/cosmos` looks up the token's range among those that it knows. If they are from
 * another time, it also asks other ranges or leaves some out.
 *
 * @throws WireError for a token that this server has not issued, or has issued for another container, key or range
 */
export function decodeContinuation(token: string | undefined, { of, key, all }: Whereabouts): Next {
  const value = parseToken(token);
  if (!isJsonObject(value)) return { continuation: checked(continuation, value) };
  if (isOfElse(value, of)) throw invalid();
  if (value['key'] !== undefined && value['key'] !== digestOrNone(key)) {
    throw badRequest('Invalid Continuation Token: it belongs to another partition key.');
  }
  if (all !== undefined && (value['all'] ?? WHOLE) !== all) throw ofOtherRanges();
  const pageId = checked(page, value['page']);
  if (pageId !== undefined && value['kind'] === START) return { pageId };
  return { continuation: checked(continuation, value), pageId };
}

/** @throws WireError for a token that this server has not issued for this list in this order */
export function decodeListPlace(token: string | undefined, { of, order }: ListWhereabouts): ListPlace | undefined {
  const value = parseToken(token);
  if (isJsonObject(value)) {
    if (isOfElse(value, of)) throw badRequest('Invalid Continuation Token: it belongs to another list.');
    if (value['by'] !== undefined && value['by'] !== digestOrNone(order)) {
      throw badRequest('Invalid Continuation Token: it belongs to a query with another ORDER BY.');
    }
  }
  return checked(listPlace, value);
}

/** Whether a token says that it is of another list. Tokens of earlier versions do not say. */
const isOfElse = (token: JsonObject, of: string): boolean => token['of'] !== undefined && token['of'] !== of;

const invalid = (): WireError => badRequest('Invalid Continuation Token');

export const ofOtherRanges = (): WireError =>
  badRequest(
    'Invalid Continuation Token: it was issued for other partition key ranges than those of this client. Start the query again, with a new client.',
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

/** Undefined for text that is not JSON. */
function jsonIn(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
