/**
 * SHA-256 in plain TypeScript, because core imports no `node:crypto` and the Web Cryptography API is asynchronous.
 * Slow; for tests and simulations. Source: FIPS 180-4.
 */
export function sha256(bytes: Uint8Array): Uint8Array {
  const padded = new Uint8Array(((bytes.length + 72) >> 6) << 6);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 0x2000_0000));
  view.setUint32(padded.length - 4, bytes.length << 3);
  const hash = Uint32Array.from(INITIAL);
  const words = new Uint32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let index = 0; index < 16; index++) words[index] = view.getUint32(block + index * 4);
    for (let index = 16; index < 64; index++) {
      const [early, late] = [words[index - 15]!, words[index - 2]!];
      const sigma0 = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
      const sigma1 = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
      words[index] = words[index - 16]! + sigma0 + words[index - 7]! + sigma1;
    }
    let [a, b, c, d, e, f, g, h] = hash as unknown as [number, number, number, number, number, number, number, number];
    for (let index = 0; index < 64; index++) {
      const sum1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
      const first = (h + sum1 + ((e & f) ^ (~e & g)) + ROUNDS[index]! + words[index]!) | 0;
      const sum0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
      const second = (sum0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    for (const [index, value] of [a, b, c, d, e, f, g, h].entries()) hash[index]! += value;
  }
  const digest = new Uint8Array(32);
  const out = new DataView(digest.buffer);
  for (const [index, word] of hash.entries()) out.setUint32(index * 4, word);
  return digest;
}

/** SHA-256 of bytes, or of a text in UTF-8, as base64url. */
export function sha256Base64url(content: Uint8Array | string): string {
  const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content;
  return btoa(String.fromCharCode(...sha256(bytes)))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');
}

function rotated(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}

const PRIMES = ((): number[] => {
  const primes: number[] = [];
  for (let candidate = 2; primes.length < 64; candidate++) {
    if (primes.every((prime) => candidate % prime !== 0)) primes.push(candidate);
  }
  return primes;
})();
/** The first 32 bits of a number's fractional part. */
const fraction = (value: number): number => Math.floor((value - Math.floor(value)) * 0x1_0000_0000) >>> 0;
const INITIAL = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUNDS = PRIMES.map((prime) => fraction(Math.cbrt(prime)));
