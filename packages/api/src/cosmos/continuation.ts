import type { KeyRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { Continuation } from '../store/store-api.ts';
import { badRequest } from './errors.ts';
import { isJsonObject } from './json.ts';
import { isRangeEnd } from './scope.ts';

/** Clients ask for tokens of at most 1 kB. */
const MAX_TOKEN_CHARACTERS = 1024;

/** A continuation as clients see it: opaque text. It names a place and no more, so nobody gains by forging one. */
export function encodeContinuation(continuation: Continuation): string {
  if (continuation.kind !== 'sorted') return encoded(continuation);
  const { range, ...sorted } = continuation;
  const token = encoded(sorted);
  if (token.length <= MAX_TOKEN_CHARACTERS) return token;
  // Values that don't fit leave their number: then what comes and goes between pages moves them.
  const { rows } = continuation;
  return encoded(range === undefined ? { kind: 'skip', rows } : { kind: 'skip', rows, range });
}

const encoded = (continuation: Continuation): string => Buffer.from(JSON.stringify(continuation)).toString('base64url');

/** @throws WireError for what this server has not given out */
export function decodeContinuation(token: string | undefined): Continuation | undefined {
  if (token === undefined || token === '') return undefined;
  const value = token.length > MAX_TOKEN_CHARACTERS ? undefined : parseToken(token);
  if (typeof value === 'object' && value !== null) {
    const { kind, keys, birth, inside, rows, range } = value as {
      readonly kind?: unknown;
      readonly keys?: unknown;
      readonly birth?: unknown;
      readonly inside?: unknown;
      readonly rows?: unknown;
      readonly range?: unknown;
    };
    if (kind === 'after' && isCount(birth) && isCountIfAny(inside) && isCountIfAny(rows)) {
      return { kind, birth, ...(inside === undefined ? {} : { inside }), ...(rows === undefined ? {} : { rows }) };
    }
    if (kind === 'skip' && isCount(rows)) {
      if (range === undefined) return { kind, rows };
      if (isRange(range)) return { kind, rows, range: { min: range.min, max: range.max } };
    }
    if (kind === 'sorted' && isKeys(keys) && isCount(birth) && isCount(rows)) return { kind, keys, birth, rows };
  }
  throw badRequest('Invalid Continuation Token');
}

const isKeys = (value: unknown): value is unknown[][] =>
  Array.isArray(value) && value.every((key) => Array.isArray(key) && key.length <= 1);
const isCountIfAny = (value: unknown): value is number | undefined => value === undefined || isCount(value);
const isRange = (value: unknown): value is KeyRange =>
  isJsonObject(value) && [value['min'], value['max']].every((end) => typeof end === 'string' && isRangeEnd(end));
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function parseToken(token: string): unknown {
  try {
    return JSON.parse(Buffer.from(token, 'base64url').toString());
  } catch {
    return undefined;
  }
}
