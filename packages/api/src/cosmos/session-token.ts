import { badRequest } from './errors.ts';

/**
 * The token of a response: one range, with the log's position as its number. Clients only merge tokens of this form,
 * and the .NET clients can't read several in one header. A position is of the whole log, so a token is valid for any
 * range, and stays so after the range has split.
 */
export const sessionToken = (rangeId: string, position: number): string => `${rangeId}:-1#${position}`;

/**
 * The first version of the protocol whose clients read tokens of this form. Earlier clients only read `0:12`.
 *
 * @source `SessionContainer` of the npm package `documentdb`, which fails on a `#`
 */
const VECTORS_READ = '2018-06-18';

/** A response's token in the form that the client can read, given its version of the protocol. */
export const sessionTokenFor = (version: string | undefined, token: string): string =>
  version === undefined || version >= VECTORS_READ ? token : token.replace('-1#', '');

/**
 * The position in a request's session token: the highest of its parts. Accepts `0:-1#12` and the older `0:12`,
 * separated by commas for several ranges.
 *
 * @returns undefined when there is no token
 * @throws WireError 400 for an invalid token
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
