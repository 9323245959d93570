import { badRequest } from './errors.ts';

/**
 * The token of a response: one range, whose number is the log's position. Clients merge tokens of this one shape
 * only, and the .NET ones can't read several in one header. A position holds for the whole log, so a token is good for
 * any range, and one of a range that has split still is.
 */
export const sessionToken = (rangeId: string, position: number): string => `${rangeId}:-1#${position}`;

/**
 * The first version of the protocol whose clients read tokens of that shape; those before read `0:12` alone.
 *
 * @source `SessionContainer` of the npm package `documentdb`, which fails over a `#`
 */
const VECTORS_READ = '2018-06-18';

/** A response's token as a client reads it whose request is of a version of the protocol. */
export const sessionTokenFor = (version: string | undefined, token: string): string =>
  version === undefined || version >= VECTORS_READ ? token : token.replace('-1#', '');

/**
 * The position that a request's session token asks for: the highest of its parts. `0:-1#12` and the older `0:12`
 * are understood, comma-joined for several ranges.
 *
 * @returns undefined when there is no token
 * @throws WireError 400 for junk
 */
export function positionIn(token: string | undefined): number | undefined {
  if (token === undefined || token === '') return undefined;
  let highest = 0;
  for (const part of token.split(',')) {
    const colon = part.indexOf(':');
    const [vector, position] = part.slice(colon + 1).split('#');
    const text = position ?? vector ?? '';
    const value = Number(text);
    if (colon < 0 || text === '' || text.trim() !== text || !Number.isSafeInteger(value) || value < -1) {
      throw badRequest(`The session token provided '${token.slice(0, 200)}' is invalid.`);
    }
    highest = Math.max(highest, value);
  }
  return highest;
}
