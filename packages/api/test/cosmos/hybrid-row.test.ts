import { describe, expect, test } from 'vitest';
import { crc32 } from 'node:zlib';
import { decodeOperations, encodeResults, isHybridRow } from '@epitaph/api/cosmos/hybrid-row.ts';

const header = (schema: number) => {
  const bytes = Buffer.alloc(5, 0x81);
  bytes.writeInt32LE(schema, 1);
  return bytes;
};
const int = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const text = (value: string) => Buffer.concat([Buffer.of(Buffer.byteLength(value)), Buffer.from(value)]);
const segment = Buffer.concat([header(2_147_473_648), Buffer.of(1), int(10)]);
const record = (row: Buffer) => Buffer.concat([header(2_147_473_649), int(row.length), int(crc32(row)), row]);

/** A replace with an id, a body, an etag to match, and the wish for a minimal answer. */
const replace = Buffer.concat([
  header(2_145_473_648),
  Buffer.of(0b1010011),
  int(5),
  int(2),
  text('cart é'),
  text('{"id":"cart"}'),
  Buffer.of(20, 9),
  text('"etag"'),
  Buffer.of(3, 12),
]);

describe('the stream of a batch’s operations', () => {
  test('is read by the names of its fields', () => {
    expect(isHybridRow(segment)).toBe(true);
    expect(isHybridRow(Buffer.from('[]'))).toBe(false);
    const [row, ...rest] = decodeOperations(Buffer.concat([segment, record(replace)]));
    expect(rest).toEqual([]);
    expect(Object.fromEntries(row!)).toEqual({
      operationType: 5,
      resourceType: 2,
      id: Buffer.from('cart é'),
      resourceBody: Buffer.from('{"id":"cart"}'),
      ifMatch: Buffer.from('"etag"'),
      minimalReturnPreference: true,
    });
  });

  test('accepts names that the schema does not have, and segments with more in them', () => {
    const named = Buffer.concat([replace, Buffer.of(7, 13 + 5), Buffer.from('extra'), int(77)]);
    const commented = Buffer.concat([header(2_147_473_648), Buffer.of(1), int(14), Buffer.from('abcd')]);
    const rows = decodeOperations(Buffer.concat([segment, record(replace), commented, record(named)]));
    expect(rows).toHaveLength(2);
    expect(rows[1]!.get('extra')).toBe(77);
  });

  test('is refused if it is cut short anywhere, or any byte of a record is changed', () => {
    const whole = Buffer.concat([segment, record(replace)]);
    for (let length = 1; length < whole.length; length += 1) {
      if (length === segment.length) continue;
      expect(() => decodeOperations(whole.subarray(0, length)), `${length} bytes`).toThrow(/not a HybridRow stream/);
    }
    for (let at = segment.length + 13; at < whole.length; at += 1) {
      const damaged = Buffer.from(whole);
      damaged[at]! ^= 0x40;
      expect(() => decodeOperations(damaged), `byte ${at}`).toThrow(/checksum/);
    }
    // Also with a correct check sum: a document may claim to be longer than it is.
    const ends = [replace.indexOf(Buffer.of(20, 9)), replace.length - 2];
    for (let length = 0; length < replace.length; length += 1) {
      if (ends.includes(length)) continue;
      const cut = Buffer.concat([segment, record(replace.subarray(0, length))]);
      expect(() => decodeOperations(cut), `a row of ${length} bytes`).toThrow(/not a HybridRow stream/);
    }
  });

  test('is either read or refused, whatever its bytes', () => {
    let seed = 7;
    const random = () => (seed = (seed * 1_103_515_245 + 12_345) % 0x8000_0000) / 0x8000_0000;
    for (let round = 0; round < 2_000; round += 1) {
      const row = Buffer.from(replace);
      for (let change = 0; change < 3; change += 1) row[5 + Math.floor(random() * (row.length - 5))] = random() * 256;
      try {
        decodeOperations(Buffer.concat([segment, record(row)]));
      } catch (error) {
        expect((error as Error).message).toMatch(/not a HybridRow stream/);
      }
    }
  });
});

test('results are written in the form that the .NET client reads', () => {
  const body = `{"text":"${'x'.repeat(200)}"}`;
  const stream = encodeResults([
    { statusCode: 201, eTag: '"e"', resourceBody: body, requestCharge: 5.5 },
    { statusCode: 429, subStatusCode: 3200, retryAfterMilliseconds: 1000, requestCharge: 0 },
  ]);
  const float = (value: number) => {
    const bytes = Buffer.alloc(8);
    bytes.writeDoubleLE(value);
    return bytes;
  };
  const first = Buffer.concat([
    header(2_145_473_649),
    Buffer.of(0b1111),
    int(201),
    int(0),
    text('"e"'),
    Buffer.of((body.length & 0x7f) | 0x80, body.length >> 7),
    Buffer.from(body),
    Buffer.of(16, 6),
    float(5.5),
  ]);
  const second = Buffer.concat([
    header(2_145_473_649),
    Buffer.of(0b0011),
    int(429),
    int(3200),
    Buffer.of(11, 5),
    int(1000),
    Buffer.of(16, 6),
    float(0),
  ]);
  expect(stream).toEqual(Buffer.concat([segment, record(first), record(second)]));
});
