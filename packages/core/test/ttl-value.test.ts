import { describe, expect, it } from 'vitest';
import { MAX_TTL_SECONDS, readDefaultTtl, readOwnTtl } from '@epitaph/core/ttl/ttl-value.ts';

const valid = [-1, 1, 2, 60, 86_400, MAX_TTL_SECONDS - 1, MAX_TTL_SECONDS];
const invalid = [
  0,
  -0,
  -2,
  -2_147_483_648,
  MAX_TTL_SECONDS + 1,
  2 ** 53,
  1.5,
  0.999,
  -1.5,
  Number.NaN,
  Infinity,
  -Infinity,
  '10',
  '-1',
  '',
  'never',
  true,
  false,
  {},
  { ttl: 1 },
  [],
  [10],
];

describe("a document's ttl", () => {
  it('is a value if it is -1 or an integer number of seconds from 1 to 2^31 - 1', () => {
    for (const ttl of valid) expect(readOwnTtl({ ttl })).toEqual({ kind: 'value', seconds: ttl });
  });
  it('is absent if the document has none', () => {
    expect(readOwnTtl({})).toEqual({ kind: 'absent' });
    expect(readOwnTtl({ ttl: undefined })).toEqual({ kind: 'absent' });
    expect(readOwnTtl(Object.create({ ttl: 5 }) as { ttl?: unknown })).toEqual({ kind: 'absent' });
  });
  it('is unreadable if it is anything else, including null', () => {
    for (const ttl of [null, ...invalid]) expect(readOwnTtl({ ttl })).toEqual({ kind: 'unreadable', value: ttl });
  });
});

describe("a container's defaultTtl", () => {
  it('is accepted if it is -1 or an integer number of seconds from 1 to 2^31 - 1', () => {
    for (const value of valid) expect(readDefaultTtl(value)).toEqual({ defaultTtl: value });
  });
  it('is off if it is absent or null', () => {
    expect(readDefaultTtl(undefined)).toEqual({ defaultTtl: null });
    expect(readDefaultTtl(null)).toEqual({ defaultTtl: null });
  });
  it('is refused if it is anything else', () => {
    for (const value of invalid) expect(readDefaultTtl(value)).toBe(undefined);
  });
});
