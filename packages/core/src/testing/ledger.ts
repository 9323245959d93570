import { invariant } from '../invariant.ts';
import type { Ledger } from '../item/events.ts';
import { LedgerBuilder, type LedgerEntry } from '../item/ledger.ts';
import type { GrowingDigest } from '../vault/body-sealer.ts';
import { sha256Base64url } from './sha256.ts';

/** A SHA-256 of a text that is added in a few pieces. As with Node.js's hash, it can be ended only once. */
export function growingSha256(): GrowingDigest {
  let whole: string | undefined = '';
  const taken = (): string => {
    invariant(whole !== undefined, 'a digest is ended once');
    return whole;
  };
  return {
    add(text) {
      whole = taken() + text;
    },
    end() {
      const digest = sha256Base64url(taken());
      whole = undefined;
      return digest;
    },
  };
}

/** The ledger of some writes. */
export function ledgerOf(entries: readonly LedgerEntry[], most?: number): Ledger {
  const builder = new LedgerBuilder(growingSha256);
  for (const entry of entries) builder.add(entry);
  return builder.encode(most);
}
