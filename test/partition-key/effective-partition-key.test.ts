import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  effectivePartitionKey,
  isInRange,
  prefixRange,
  rememberedEffectivePartitionKey,
  WHOLE_RANGE,
} from '@epitaph/core/partition-key/effective-partition-key.ts';

// The client's own function, from inside its package. Client and server must place keys alike.
const { hashPartitionKey } = (await import(
  new URL('./utils/hashing/hash.js', import.meta.resolve('@azure/cosmos')).href
)) as { readonly hashPartitionKey: (key: readonly unknown[], definition: object) => string };

const V1 = { paths: ['/a'], kind: 'Hash' } as const;
const V1_NAMED = { paths: ['/a'], kind: 'Hash', version: 1 } as const;
const V2 = { paths: ['/a'], kind: 'Hash', version: 2 } as const;
const HIERARCHICAL = { paths: ['/a', '/b', '/c'], kind: 'MultiHash', version: 2 } as const;

const EDGES = [
  '',
  'a',
  'a'.repeat(99),
  'a'.repeat(100),
  'a'.repeat(101),
  'x'.repeat(2000),
  'ü'.repeat(60),
  'ü'.repeat(120),
  `${'a'.repeat(99)}😀tail`,
  '\u0000',
  '\uFFFF',
  '\uD800',
  'Ω≈ç√∫˜µ≤≥÷',
  ...Array.from({ length: 40 }, (_, length) => '0123456789abcdefghijklmnopqrstuvwxyzABCD'.slice(0, length)),
  0,
  1,
  -1,
  2,
  0.5,
  131_072,
  -131_072,
  0.1,
  1e21,
  1e-7,
  Number.MAX_SAFE_INTEGER,
  Number.MIN_SAFE_INTEGER,
  Number.MAX_VALUE,
  -Number.MAX_VALUE,
  Number.MIN_VALUE,
  -Number.MIN_VALUE,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  true,
  false,
  null,
  {},
] as const;

const component = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.string({ maxLength: 130 }),
  fc.string({ unit: fc.constantFrom('a', 'é', '字', '😀', '\uDC00'), maxLength: 130 }),
  // A key is identified by its JSON, which has no negative zero.
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => (value === 0 ? 0 : value)),
  fc.integer(),
  fc.boolean(),
  fc.constantFrom(null, {}),
);

/**
 * Expects the result of the JavaScript client or, in version 1, of the other clients: a number may have one more zero byte, and a text of
 * more than 100 bytes counts only with its first 101, without the zero byte at its end.
 */
function expectClients(found: string, value: unknown, definition: Parameters<typeof hashPartitionKey>[1]): void {
  const clients = hashPartitionKey([value], definition);
  const isVersion1 = definition !== V2 && definition !== HIERARCHICAL;
  const mayHaveMore = isVersion1 && typeof value === 'number';
  const bytes = isVersion1 && typeof value === 'string' ? Buffer.byteLength(value.slice(0, 100)) : 0;
  expect(mayHaveMore && found === `${clients}00` ? clients : found, JSON.stringify(value)).toBe(
    bytes > 100 ? clients.slice(0, -2 * (bytes + 1 - 101)) : clients,
  );
}

describe('the effective partition key', () => {
  it.each([
    ['version 1', V1],
    ['version 1 by name', V1_NAMED],
    ['version 2', V2],
    ['a hierarchical key', HIERARCHICAL],
  ])('is that of the client for the edges of %s', (_, definition) => {
    for (const value of EDGES) {
      expectClients(effectivePartitionKey(definition, JSON.stringify([value])), value, definition);
    }
  });

  it('is that of the client for generated keys of one component', () => {
    fc.assert(
      fc.property(component, fc.constantFrom(V1, V2), (value, definition) => {
        expectClients(effectivePartitionKey(definition, JSON.stringify([value])), value, definition);
      }),
      { numRuns: 2000 },
    );
  });

  it('is that of the client for generated hierarchical keys, whole and leading components alone', () => {
    fc.assert(
      fc.property(fc.array(component, { minLength: 1, maxLength: 3 }), (key) => {
        expect(effectivePartitionKey(HIERARCHICAL, JSON.stringify(key))).toBe(hashPartitionKey(key, HIERARCHICAL));
      }),
      { numRuns: 1000 },
    );
  });

  it('of numbers in version 1 that need one byte only ends as in the Python client', () => {
    expect(effectivePartitionKey(V1, '[0]')).toBe('05C1BF6DA11560058000');
  });

  // Computed by Microsoft.Azure.Cosmos 3.64.0. The Java and Python clients agree.
  it.each([
    [`${'a'.repeat(97)}字`, `05C1A19B81AD8008${'62'.repeat(97)}E6AE9800`],
    [`${'a'.repeat(98)}字`, `05C1D38FABAB9008${'62'.repeat(98)}E6AE98`],
    ['ü'.repeat(51), `05C1C509812FD808${'C4BD'.repeat(50)}C4`],
    ['ü'.repeat(120), `05C1E18709FB6408${'C4BD'.repeat(50)}C4`],
    ['字'.repeat(101), `05C1CB3B2B912008${'E6AE98'.repeat(33)}E6AE`],
  ])('of texts in version 1 ends after 101 bytes, as in the .NET client: %#', (key, expected) => {
    expect(effectivePartitionKey(V1, JSON.stringify([key]))).toBe(expected);
  });

  it('is the same when cached, for each definition', () => {
    for (const definition of [V1, V2, HIERARCHICAL, V1, V2, HIERARCHICAL]) {
      for (const key of ['["a"]', '[1]', '[{}]']) {
        expect(rememberedEffectivePartitionKey(definition, key)).toBe(effectivePartitionKey(definition, key));
      }
    }
  });

  it('lies within the whole range, for every key', () => {
    fc.assert(
      fc.property(component, fc.constantFrom(V1, V2, HIERARCHICAL), (value, definition) => {
        expect(isInRange(effectivePartitionKey(definition, JSON.stringify([value])), WHOLE_RANGE)).toBe(true);
      }),
    );
  });

  it('lies within the range of each of its prefixes, and not within that of another', () => {
    fc.assert(
      fc.property(fc.array(component, { minLength: 3, maxLength: 3 }), component, fc.nat(2), (key, other, at) => {
        fc.pre(JSON.stringify(other) !== JSON.stringify(key[at]));
        const whole = effectivePartitionKey(HIERARCHICAL, JSON.stringify(key));
        const leading = key.slice(0, at + 1);
        const strange = leading.with(at, other);
        const rangeOf = (prefix: readonly unknown[]) =>
          prefixRange(effectivePartitionKey(HIERARCHICAL, JSON.stringify(prefix)));
        expect(isInRange(whole, rangeOf(leading))).toBe(true);
        expect(isInRange(whole, rangeOf(strange))).toBe(false);
      }),
    );
  });
});
