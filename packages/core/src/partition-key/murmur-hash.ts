/**
 * MurmurHash3 with seed 0, in the two variants that Cosmos DB's clients use to place partition keys. Source:
 * https://github.com/aappleby/smhasher (public domain).
 */

/** The 32-bit hash (`x86_32`), as an unsigned number. */
export function murmurHash32(bytes: Uint8Array): number {
  const { length } = bytes;
  const tail = length - (length % 4);
  let hash = 0;
  for (let at = 0; at < tail; at += 4) {
    hash ^= mixed32(readWord(bytes, at));
    hash = Math.imul(rotate32(hash, 13), 5) + 0xe6546b64;
  }
  if (tail < length) hash ^= mixed32(readWord(bytes, tail));
  hash ^= length;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

const mixed32 = (word: number): number => Math.imul(rotate32(Math.imul(word, 0xcc9e2d51), 15), 0x1b873593);
const rotate32 = (word: number, by: number): number => (word << by) | (word >>> (32 - by));

/** Four bytes, little-endian. Bytes after the end count as zero. */
const readWord = (bytes: Uint8Array, at: number): number =>
  (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8) | ((bytes[at + 2] ?? 0) << 16) | ((bytes[at + 3] ?? 0) << 24);

/** 64 bits in two halves, because a BigInt for each step is several times as slow. */
interface Long {
  readonly high: number;
  readonly low: number;
}

const FACTOR_1: Long = { high: 0x87c37b91, low: 0x114253d5 };
const FACTOR_2: Long = { high: 0x4cf5ad43, low: 0x2745937f };
const FINAL_1: Long = { high: 0xff51afd7, low: 0xed558ccd };
const FINAL_2: Long = { high: 0xc4ceb9fe, low: 0x1a85ec53 };
const FIVE: Long = { high: 0, low: 5 };

/** The 128-bit hash (`x64_128`): its second half, then its first, each as 16 hex digits in upper case. */
export function murmurHash128SecondHalfFirst(bytes: Uint8Array): string {
  const { length } = bytes;
  const tail = length - (length % 16);
  let first: Long = { high: 0, low: 0 };
  let second = first;
  for (let at = 0; at < tail; at += 16) {
    first = add(rotate(xor(first, mixedFirst(readLong(bytes, at))), 27), second);
    first = add(multiply(first, FIVE), { high: 0, low: 0x52dce729 });
    second = add(rotate(xor(second, mixedSecond(readLong(bytes, at + 8))), 31), first);
    second = add(multiply(second, FIVE), { high: 0, low: 0x38495ab5 });
  }
  if (tail < length) {
    first = xor(first, mixedFirst(readLong(bytes, tail)));
    second = xor(second, mixedSecond(readLong(bytes, tail + 8)));
  }
  first = xor(first, { high: 0, low: length });
  second = xor(second, { high: 0, low: length });
  first = add(first, second);
  second = add(second, first);
  first = final(first);
  second = final(second);
  first = add(first, second);
  second = add(second, first);
  return hex(second.high) + hex(second.low) + hex(first.high) + hex(first.low);
}

const mixedFirst = (word: Long): Long => multiply(rotate(multiply(word, FACTOR_1), 31), FACTOR_2);
const mixedSecond = (word: Long): Long => multiply(rotate(multiply(word, FACTOR_2), 33), FACTOR_1);

function final(word: Long): Long {
  let result = multiply(shiftedIn(word), FINAL_1);
  result = multiply(shiftedIn(result), FINAL_2);
  return shiftedIn(result);
}

/** `word ^ (word >>> 33)` */
const shiftedIn = ({ high, low }: Long): Long => ({ high, low: low ^ (high >>> 1) });

const readLong = (bytes: Uint8Array, at: number): Long => ({ high: readWord(bytes, at + 4), low: readWord(bytes, at) });

const xor = (a: Long, b: Long): Long => ({ high: a.high ^ b.high, low: a.low ^ b.low });

function add(a: Long, b: Long): Long {
  const low = (a.low >>> 0) + (b.low >>> 0);
  return { high: (a.high + b.high + (low > 0xffffffff ? 1 : 0)) | 0, low: low | 0 };
}

function multiply(a: Long, b: Long): Long {
  const [aHigh, aLow, bHigh, bLow] = [a.low >>> 16, a.low & 0xffff, b.low >>> 16, b.low & 0xffff];
  const bottom = aLow * bLow;
  const middle = aHigh * bLow + (bottom >>> 16);
  const cross = aLow * bHigh + (middle & 0xffff);
  const carried = aHigh * bHigh + Math.floor(middle / 0x10000) + (cross >>> 16);
  return {
    high: (carried + Math.imul(a.high, b.low) + Math.imul(a.low, b.high)) | 0,
    low: (cross << 16) | (bottom & 0xffff),
  };
}

/** @param by less than 64 and not 32 */
function rotate({ high, low }: Long, by: number): Long {
  if (by > 32) return rotate({ high: low, low: high }, by - 32);
  return { high: (high << by) | (low >>> (32 - by)), low: (low << by) | (high >>> (32 - by)) };
}

const hex = (word: number): string => (word >>> 0).toString(16).toUpperCase().padStart(8, '0');
