import type { Continuation } from '../store/store-api.ts';
import { badRequest } from './errors.ts';

/** Clients ask for tokens of at most 1 kB. */
const MAX_TOKEN_CHARACTERS = 1024;

/** A continuation as clients see it: opaque text. It names a place and no more, so nobody gains by forging one. */
export function encodeContinuation(continuation: Continuation): string {
  const token = Buffer.from(JSON.stringify(continuation)).toString('base64url');
  // Values that don't fit leave their number: then what comes and goes between pages moves them.
  return continuation.kind === 'sorted' && token.length > MAX_TOKEN_CHARACTERS
    ? encodeContinuation({ kind: 'skip', rows: continuation.rows })
    : token;
}

/** @throws WireError for what this server has not given out */
export function decodeContinuation(token: string | undefined): Continuation | undefined {
  if (token === undefined || token === '') return undefined;
  const value = token.length > MAX_TOKEN_CHARACTERS ? undefined : parseToken(token);
  if (typeof value === 'object' && value !== null) {
    const { kind, keys, birth, rows } = value as {
      readonly kind?: unknown;
      readonly keys?: unknown;
      readonly birth?: unknown;
      readonly rows?: unknown;
    };
    if (kind === 'after' && isCount(birth)) return { kind, birth };
    if (kind === 'skip' && isCount(rows)) return { kind, rows };
    if (kind === 'sorted' && isKeys(keys) && isCount(birth) && isCount(rows)) return { kind, keys, birth, rows };
  }
  throw badRequest('Invalid Continuation Token');
}

const isKeys = (value: unknown): value is unknown[][] =>
  Array.isArray(value) && value.every((key) => Array.isArray(key) && key.length <= 1);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function parseToken(token: string): unknown {
  try {
    return JSON.parse(Buffer.from(token, 'base64url').toString());
  } catch {
    return undefined;
  }
}
