import { hash, type KeyObject } from 'node:crypto';
import { GCM_OVERHEAD_BYTES, gcmOpen, gcmSeal } from './aes-gcm.ts';

export const KEY_BYTES = 32;
export const OWNER_BYTES = 8;
export const WRAPPED_BYTES = KEY_BYTES + GCM_OVERHEAD_BYTES;

/** Wraps a life's key with the master key. The result is bound to the key's id and to the life's stream. */
export function wrapKey(master: KeyObject, keyId: number, stream: string, key: Uint8Array): Buffer {
  return gcmSeal(master, keyPlace(keyId, stream), key);
}

/** @returns undefined if the master key, the key's id or the life is another one */
export function unwrapKey(master: KeyObject, keyId: number, stream: string, wrapped: Uint8Array): Buffer | undefined {
  return gcmOpen(master, keyPlace(keyId, stream), wrapped);
}

/** A short hash of the stream that a key belongs to, without its name. It is enough to notice a vault that belongs to another log. */
export function ownerOf(stream: string): Buffer {
  return Buffer.from(hash('sha256', stream, 'hex').slice(0, 2 * OWNER_BYTES), 'hex');
}

function keyPlace(keyId: number, stream: string): Buffer {
  return Buffer.from(`${keyId} ${stream}`, 'latin1');
}
