import { createCipheriv, createDecipheriv, type KeyObject } from 'node:crypto';
import { RandomPool } from './random-pool.ts';

const IV_BYTES = 12;
const TAG_BYTES = 16;
export const GCM_OVERHEAD_BYTES = IV_BYTES + TAG_BYTES;

const pool = new RandomPool();

/** Seals with AES-256-GCM and a random 96-bit IV. The result is IV, tag and ciphertext, after `prefixBytes` of unused space. */
export function gcmSeal(key: KeyObject, associated: Buffer, plain: Uint8Array | string, prefixBytes = 0): Buffer {
  const iv = pool.take(IV_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key, iv);
  cipher.setAAD(associated);
  const body = typeof plain === 'string' ? cipher.update(plain, 'utf8') : cipher.update(plain);
  cipher.final(); // GCM has no padding: nothing comes out here.
  const sealed = Buffer.allocUnsafe(prefixBytes + GCM_OVERHEAD_BYTES + body.length);
  iv.copy(sealed, prefixBytes);
  cipher.getAuthTag().copy(sealed, prefixBytes + IV_BYTES);
  body.copy(sealed, prefixBytes + GCM_OVERHEAD_BYTES);
  return sealed;
}

/** Opens the result of {@link gcmSeal}; undefined if the key, the associated data or the bytes differ. */
export function gcmOpen(key: KeyObject, associated: Buffer, sealed: Uint8Array): Buffer | undefined {
  if (sealed.length < GCM_OVERHEAD_BYTES) return undefined;
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, IV_BYTES));
  decipher.setAAD(associated);
  decipher.setAuthTag(sealed.subarray(IV_BYTES, GCM_OVERHEAD_BYTES));
  const plain = decipher.update(sealed.subarray(GCM_OVERHEAD_BYTES));
  try {
    decipher.final();
  } catch {
    return undefined;
  }
  return plain;
}
