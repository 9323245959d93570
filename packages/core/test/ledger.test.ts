import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InvariantViolation } from '@epitaph/core/invariant.ts';
import { ledgerSchema, writeOperations } from '@epitaph/core/item/events.ts';
import { decodeLedger, LEDGER_DETAIL_LIMIT, LedgerBuilder, type LedgerEntry } from '@epitaph/core/item/ledger.ts';
import { growingSha256, ledgerOf } from '@epitaph/core/testing/ledger.ts';
import { sha256Base64url } from '@epitaph/core/testing/sha256.ts';

const seed = Number(process.env['EPITAPH_SEED'] ?? 20_261_121);

const entry = (index: number): LedgerEntry => ({
  atMs: 1_763_722_800_123 + index * 7,
  ttl: [null, 60, 60, -1][index % 4]!,
  operation: writeOperations[index % 4]!,
  eventId: `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`,
  digest: sha256Base64url(`body ${index}`),
});
const whole = (one: LedgerEntry) => ({
  atMs: one.atMs,
  ttl: one.ttl,
  operation: one.operation,
  etag: `"${one.eventId}"`,
  digest: one.digest,
});
const timesOnly = ({ atMs, ttl }: LedgerEntry) => ({ atMs, ttl });

describe('the ledger of a life', () => {
  it.each([1, 2, 999, LEDGER_DETAIL_LIMIT])('of %i writes contains all details of each', (count) => {
    const entries = Array.from({ length: count }, (_, index) => entry(index));
    const ledger = ledgerOf(entries);
    expect(ledgerSchema.parse(structuredClone(ledger))).toEqual(ledger);
    expect(ledger.digest).toBe(undefined);
    expect(decodeLedger(ledger)).toEqual(entries.map(whole));
  });

  it.each([LEDGER_DETAIL_LIMIT + 1, 2_500])(
    'of %i writes contains times and ttls of each, and one digest of the rest',
    (count) => {
      const entries = Array.from({ length: count }, (_, index) => entry(index));
      const ledger = ledgerOf(entries);
      expect(decodeLedger(ledger)).toEqual(entries.map(timesOnly));
      expect(Object.keys(ledger).toSorted()).toEqual(['digest', 'times', 'writes']);
      const lines = entries.map(({ operation, eventId, digest }) => `${operation} ${eventId} ${digest}`);
      expect(ledger.digest).toBe(sha256Base64url(lines.join('\n')));
      const changed = entries.map((one, index) => (index === 700 ? { ...one, digest: sha256Base64url('other') } : one));
      expect(ledgerOf(entries)).toEqual(ledger);
      expect(ledgerOf(changed).digest).not.toBe(ledger.digest);
    },
  );

  it.each([2, 3, 400])(
    'that may list only %i writes contains the first one, the last ones, and the number of all',
    (most) => {
      const entries = Array.from({ length: 900 }, (_, index) => entry(index));
      const ledger = ledgerOf(entries, most);
      expect(ledgerSchema.parse(structuredClone(ledger))).toEqual(ledger);
      expect(ledger).toMatchObject({ writes: 900, omitted: 900 - most });
      const [first, ...last] = decodeLedger(ledger);
      expect(first).toEqual({ ...timesOnly(entries[0]!), omittedAfter: 900 - most });
      expect(last).toEqual(entries.slice(-(most - 1)).map(timesOnly));
      const changed = entries.map((one, index) => (index === 450 ? { ...one, digest: sha256Base64url('other') } : one));
      expect(ledgerOf(changed, most).digest).not.toBe(ledger.digest);
      expect(ledgerOf(entries, 900)).toEqual(ledgerOf(entries));
    },
  );

  it('is encoded with fewer and fewer writes until the log accepts it', () => {
    for (const count of [900, LEDGER_DETAIL_LIMIT + 1]) {
      const entries = Array.from({ length: count }, (_, index) => entry(index));
      const builder = new LedgerBuilder(growingSha256);
      for (const one of entries) builder.add(one);
      for (const most of [undefined, 450, 225, 2]) expect(builder.encode(most)).toEqual(ledgerOf(entries, most));
    }
  });

  it('of one write has the form that its comment describes', () => {
    expect(ledgerOf([{ ...entry(0), atMs: 1_763_722_800_123, ttl: 60 }]).times).toBe('1763722800123t60');
    expect(ledgerOf([entry(0), entry(1), entry(2), entry(3), entry(4)]).times).toBe('1763722800123 7t60 7 7t-1 7t-');
  });

  it(`of any writes can be decoded, also of writes in one millisecond (seed ${seed})`, () => {
    const writes = fc.array(
      fc.record({
        gapMs: fc.oneof(fc.constant(0), fc.nat(10), fc.integer({ min: 0, max: 2 ** 40 })),
        ttl: fc.oneof(fc.constant(null), fc.constant(-1), fc.integer({ min: 1, max: 2_147_483_647 })),
        operation: fc.constantFrom(...writeOperations),
        eventId: fc.uuid(),
        body: fc.string(),
      }),
      { minLength: 1, maxLength: 30 },
    );
    fc.assert(
      fc.property(writes, (made) => {
        let atMs = 0;
        const entries = made.map(({ gapMs, body, ...rest }) => ({
          ...rest,
          atMs: (atMs += gapMs),
          digest: sha256Base64url(body),
        }));
        expect(decodeLedger(ledgerOf(entries))).toEqual(entries.map(whole));
      }),
      { seed, numRuns: 500 },
    );
  });

  it.each([
    { what: 'with another number of times than writes', writes: 2, times: '5' },
    { what: 'whose first time is none', writes: 1, times: 'x' },
    { what: 'one of whose times is cut short', writes: 2, times: '1795255200000t60 17t' },
    { what: 'with no write at all', writes: 0, times: '' },
  ])('$what is reported as damaged', ({ writes, times }) => {
    expect(ledgerSchema.safeParse({ writes, times }).success).toBe(false);
  });

  it('with a wrong number of times is reported as a defect', () => {
    expect(() => decodeLedger({ writes: 2, times: '5' })).toThrow(InvariantViolation);
    expect(() => decodeLedger({ writes: 1, times: '' })).toThrow(InvariantViolation);
    expect(decodeLedger({ writes: 0, times: '' })).toEqual([]);
  });
});
