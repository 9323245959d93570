import type { Continuation } from '../store/store-api.ts';
import { badRequest } from './errors.ts';

/** Clients ask for tokens of at most 1 kB. */
const MAX_TOKEN_CHARACTERS = 1024;

/** A continuation as clients see it: opaque text. It names a place and no more, so nobody gains by forging one. */
export function encodeContinuation(continuation: Continuation): string {
  return Buffer.from(JSON.stringify(continuation)).toString('base64url');
}

/** @throws WireError for what this server has not given out */
export function decodeContinuation(token: string | undefined): Continuation | undefined {
  if (token === undefined || token === '') return undefined;
  const value = token.length > MAX_TOKEN_CHARACTERS ? undefined : parseToken(token);
  if (typeof value === 'object' && value !== null) {
    const { kind, birth, rows } = value as {
      readonly kind?: unknown;
      readonly birth?: unknown;
      readonly rows?: unknown;
    };
    if (kind === 'after' && isCount(birth)) return { kind, birth };
    if (kind === 'skip' && isCount(rows)) return { kind, rows };
  }
  throw badRequest('Invalid Continuation Token');
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function parseToken(token: string): unknown {
  try {
    return JSON.parse(Buffer.from(token, 'base64url').toString());
  } catch {
    return undefined;
  }
}
