import { invariant } from '../invariant.ts';
import type { GrowingDigest } from '../vault/body-sealer.ts';
import { etagOf, type Ledger, type WriteOperation } from './events.ts';

/** The kind of a write: an operation of a client, or the recovery of the item. */
export type LedgerOperation = WriteOperation | 'recover';

const letters: Readonly<Record<LedgerOperation, string>> = {
  create: 'c',
  upsert: 'u',
  replace: 'r',
  patch: 'p',
  recover: 'b',
};
const operations = Object.keys(letters) as LedgerOperation[];

/** One write of a life, as the ledger keeps it: no content. */
export interface LedgerWrite {
  /** Milliseconds since the epoch; `_ts` is its floor in seconds. */
  readonly atMs: number;
  /** The document's own ttl in seconds, null for none. */
  readonly ttl: number | null;
  readonly operation?: LedgerOperation;
  readonly etag?: string;
  /** SHA-256 of the sealed body, base64url. */
  readonly digest?: string;
  /** How many writes between this one and the next in the list are left out. Nothing else is known of them. */
  readonly omittedAfter?: number;
}

/** One write with everything that goes into a ledger. */
export interface LedgerEntry {
  readonly atMs: number;
  readonly ttl: number | null;
  readonly operation: LedgerOperation;
  readonly eventId: string;
  readonly digest: string;
}

/** Up to this many writes the ledger keeps operation, etag and digest of each. */
export const LEDGER_DETAIL_LIMIT = 1_000;
/** A UUID in hexadecimal digits. */
const ETAG_LENGTH = 32;
/** A SHA-256 in base64url, without padding. */
const DIGEST_LENGTH = 43;

/**
 * Builds the ledger of a life from its writes, which are added oldest first. It keeps little of each, because there may
 * be millions.
 *
 * Times are coded as text: each write is its distance to the write before in milliseconds (for the first one, to the
 * epoch), followed by `t` and its ttl if that differs from the write before (`t-` for none; the code begins with none).
 * Writes are separated by blanks. A life of one write with ttl 60: `1763722800123t60`.
 */
export class LedgerBuilder {
  readonly #beginDigest: () => GrowingDigest;
  readonly #timesMs: number[] = [];
  readonly #ttls: (number | null)[] = [];
  /** The details of each write, as long as there are no more than {@link LEDGER_DETAIL_LIMIT}. */
  #details: Omit<LedgerEntry, 'atMs' | 'ttl'>[] = [];
  /** One digest over the details of all writes, once there are more. */
  #growing: GrowingDigest | undefined;
  #digest: string | undefined;

  constructor(beginDigest: () => GrowingDigest) {
    this.#beginDigest = beginDigest;
  }

  add({ atMs, ttl, operation, eventId, digest }: LedgerEntry): void {
    this.#timesMs.push(atMs);
    this.#ttls.push(ttl);
    const detail = { operation, eventId, digest };
    if (this.#growing !== undefined) {
      this.#growing.add(`\n${lineOf(detail)}`);
      return;
    }
    this.#details.push(detail);
    if (this.#details.length <= LEDGER_DETAIL_LIMIT) return;
    this.#growing = this.#beginDigest();
    this.#growing.add(this.#details.map(lineOf).join('\n'));
    this.#details = [];
  }

  /**
   * The ledger of the writes that were added. Nothing can be added after this.
   *
   * @param most how many times are listed at most, two or more: that of the first write, and those of the last ones
   */
  encode(most = Number.POSITIVE_INFINITY): Ledger {
    const writes = this.#timesMs.length;
    const omitted = Math.max(0, writes - most);
    const facts = { writes, times: this.#times(omitted), ...(omitted === 0 ? {} : { omitted }) };
    if (writes > LEDGER_DETAIL_LIMIT || omitted > 0) return { ...facts, digest: this.#endDigest() };
    return {
      ...facts,
      operations: this.#details.map(({ operation }) => letters[operation]).join(''),
      etags: this.#details.map(({ eventId }) => eventId.replaceAll('-', '')).join(''),
      digests: this.#details.map(({ digest }) => digest).join(''),
    };
  }

  #times(omitted: number): string {
    const times: string[] = [];
    let previousMs = 0;
    let previousTtl: number | null = null;
    for (let index = 0; index < this.#timesMs.length; index = index === 0 ? omitted + 1 : index + 1) {
      const atMs = this.#timesMs[index]!;
      const ttl = this.#ttls[index]!;
      times.push(`${atMs - previousMs}${ttl === previousTtl ? '' : `t${ttl ?? '-'}`}`);
      previousMs = atMs;
      previousTtl = ttl;
    }
    return times.join(' ');
  }

  #endDigest(): string {
    if (this.#digest !== undefined) return this.#digest;
    if (this.#growing === undefined) {
      this.#growing = this.#beginDigest();
      this.#growing.add(this.#details.map(lineOf).join('\n'));
    }
    return (this.#digest = this.#growing.end());
  }
}

const lineOf = ({ operation, eventId, digest }: Omit<LedgerEntry, 'atMs' | 'ttl'>): string =>
  `${operation} ${eventId} ${digest}`;

/** When the life began, in milliseconds. */
export const firstWriteMs = ({ times }: Ledger): number => Number.parseInt(times, 10);

/** The writes in a ledger, oldest first. A write with `omittedAfter` is followed by writes that were left out. */
export function decodeLedger(ledger: Ledger): LedgerWrite[] {
  const { etags, digests, omitted = 0 } = ledger;
  let atMs = 0;
  let ttl: number | null = null;
  const times = ledger.times === '' ? [] : ledger.times.split(' ');
  invariant(times.length === ledger.writes - omitted, 'a ledger has a time for each write that is not left out');
  return times.map((code, index) => {
    const [delta, newTtl] = code.split('t');
    atMs += Number(delta);
    if (newTtl !== undefined) ttl = newTtl === '-' ? null : Number(newTtl);
    const operation = operations.find((name) => letters[name] === ledger.operations?.[index]);
    return {
      atMs,
      ttl,
      ...(operation === undefined ? {} : { operation }),
      ...(etags === undefined ? {} : { etag: etagOf(dashed(piece(etags, index, ETAG_LENGTH))) }),
      ...(digests === undefined ? {} : { digest: piece(digests, index, DIGEST_LENGTH) }),
      ...(index === 0 && omitted > 0 ? { omittedAfter: omitted } : {}),
    };
  });
}

function piece(text: string, index: number, length: number): string {
  return text.slice(index * length, (index + 1) * length);
}

/** A UUID with dashes, from 32 hexadecimal digits. */
function dashed(hex: string): string {
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
