import { z } from 'zod';
import { jsonText, MAX_NEIGHBOURS, parseJson } from '@epitaph/query';
import type { Continuation } from '../store/store-api.ts';
import { badRequest } from './errors.ts';
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

/** A continuation as clients see it: opaque text. It names a place and no more, so nobody gains by forging one. */
export function encodeContinuation(continuation: Continuation): string {
  const token = encoded(continuation);
  if (continuation.kind !== 'ranked' || token.length <= MAX_TOKEN_CHARACTERS) return token;
  // Documents that don't fit leave their number: then what comes and goes between pages moves them.
  const { births: _, ...counted } = continuation;
  return encoded({ ...counted, kind: 'skip' });
}

export const encodeListPlace = (place: ListPlace): string => encoded(place);

const encoded = (place: Continuation | ListPlace): string => Buffer.from(jsonText(place)).toString('base64url');

/** @throws WireError for what this server has not given out */
export const decodeContinuation = (token: string | undefined): Continuation | undefined => decoded(continuation, token);

/** @throws WireError for what this server has not given out for a list */
export const decodeListPlace = (token: string | undefined): ListPlace | undefined => decoded(listPlace, token);

function decoded<Place>(schema: z.ZodType<Place>, token: string | undefined): Place | undefined {
  if (token === undefined || token === '') return undefined;
  const value = token.length > MAX_TOKEN_CHARACTERS ? undefined : parseToken(token);
  const { data } = schema.safeParse(value);
  if (data === undefined) throw badRequest('Invalid Continuation Token');
  return data;
}

function parseToken(token: string): unknown {
  try {
    return parseJson(Buffer.from(token, 'base64url').toString());
  } catch {
    return undefined;
  }
}
