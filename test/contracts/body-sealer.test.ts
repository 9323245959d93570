import { createSecretKey, randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import { GcmBodySealer, type SecretLifeKey } from '@epitaph/storage/crypto/gcm-body-sealer.ts';
import { gcmSeal } from '@epitaph/storage/crypto/aes-gcm.ts';

const STREAM = 'item-rid.hash.0';
const key: SecretLifeKey = { keyId: 1, secret: createSecretKey(randomBytes(32)) };
const sealer = new GcmBodySealer();
const large = JSON.stringify({
  rows: Array.from({ length: 40_000 }, (_, n) => ({ n, text: `ä row like the others ${n}` })),
});

const opened = (sealed: Uint8Array, stream = STREAM, revision = 3) =>
  Buffer.from(sealer.open(key, stream, revision, sealed)).toString('utf8');

describe('a sealed body', () => {
  test.each([
    ['small', '{"id":"a","text":"ü"}'],
    ['empty', ''],
    ['one byte short of being deflated', 'x'.repeat(256 * 1024 - 1)],
    ['just large enough to be deflated', 'x'.repeat(256 * 1024)],
    ['large', large],
  ])('that is %s opens unchanged, as text and as bytes', (_, plain) => {
    expect(opened(sealer.seal(key, STREAM, 3, plain))).toBe(plain);
    expect(opened(sealer.seal(key, STREAM, 3, Buffer.from(plain)))).toBe(plain);
  });

  test('takes a fraction of the space if it is large and repetitive', () => {
    expect(Buffer.byteLength(large)).toBeGreaterThan(1_500_000);
    expect(sealer.seal(key, STREAM, 3, large).length).toBeLessThan(500_000);
  });

  test('that can’t be compressed is kept as it is', () => {
    const noise = randomBytes(600_000);
    const sealed = sealer.seal(key, STREAM, 3, noise);
    expect([sealed[0], sealed.length]).toEqual([0, noise.length + 1 + 28]);
    expect(Buffer.compare(sealer.open(key, STREAM, 3, sealed), noise)).toBe(0);
  });

  test('of the first format, without compression, opens', () => {
    const sealed = gcmSeal(key.secret, Buffer.from(`${STREAM}@3`), large, 1);
    sealed[0] = 0;
    expect(opened(sealed)).toBe(large);
  });

  test.each([
    ['small', 'small'],
    ['large', large],
  ])('that is %s does not open elsewhere, in another format, with another key, or changed', (_, plain) => {
    const sealed = sealer.seal(key, STREAM, 3, plain);
    expect(() => opened(sealed, 'item-rid.hash.1')).toThrow(SealBroken);
    expect(() => opened(sealed, STREAM, 4)).toThrow(SealBroken);
    for (const format of [0, 1, 2, 255]) {
      if (format === sealed[0]) continue;
      const other = Uint8Array.from(sealed);
      other[0] = format;
      expect(() => opened(other)).toThrow(SealBroken);
    }
    const changed = Uint8Array.from(sealed);
    changed[changed.length - 1]! ^= 1;
    expect(() => opened(changed)).toThrow(SealBroken);
    const another: SecretLifeKey = { keyId: 2, secret: createSecretKey(randomBytes(32)) };
    expect(() => sealer.open(another, STREAM, 3, sealed)).toThrow(SealBroken);
    expect(() => opened(new Uint8Array(0))).toThrow(SealBroken);
  });
});
