import { createHash, hash, type KeyObject } from 'node:crypto';
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import { type BodySealer, type GrowingDigest, SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import type { LifeKey } from '@epitaph/core/vault/key-vault.ts';
import { gcmOpen, gcmSeal } from './aes-gcm.ts';

/** A life's key as the vaults of this package return it. */
export interface SecretLifeKey extends LifeKey {
  readonly secret: KeyObject;
}

/** The first byte of every sealed body is its format. */
const FORMAT_PLAIN = 0;
/** The body was deflated before it was sealed. */
const FORMAT_DEFLATED = 1;

/** Bodies of at least this size, in bytes, are deflated if that makes them smaller: event stores limit the size of an append. */
const DEFLATE_FROM = 256 * 1024;
/** A body is stored deflated only if its size is less than this share: otherwise inflating it at each read is not worthwhile. */
const WORTHWHILE = 0.9;
/** Larger than any document. It limits what a few damaged bytes can be inflated to. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

/** Seals with AES-256-GCM and the life's key. The associated data are stream, revision and format. */
export class GcmBodySealer implements BodySealer {
  seal(key: LifeKey, stream: string, revision: number, plain: Uint8Array | string): Uint8Array {
    const deflated = plain.length < DEFLATE_FROM ? undefined : deflate(plain);
    const format = deflated === undefined ? FORMAT_PLAIN : FORMAT_DEFLATED;
    const sealed = gcmSeal((key as SecretLifeKey).secret, place(stream, revision, format), deflated ?? plain, 1);
    sealed[0] = format;
    return sealed;
  }

  open(key: LifeKey, stream: string, revision: number, sealed: Uint8Array): Uint8Array {
    const format = sealed[0];
    const opened =
      format === FORMAT_PLAIN || format === FORMAT_DEFLATED
        ? gcmOpen((key as SecretLifeKey).secret, place(stream, revision, format), sealed.subarray(1))
        : undefined;
    if (opened === undefined) throw new SealBroken(`the body of ${stream} at revision ${revision} does not open`);
    return format === FORMAT_DEFLATED ? inflateRawSync(opened, { maxOutputLength: MAX_BODY_BYTES }) : opened;
  }

  digest(sealed: Uint8Array): string {
    return hash('sha256', sealed, 'base64url');
  }

  beginDigest(): GrowingDigest {
    const digest = createHash('sha256');
    return { add: (text) => void digest.update(text), end: () => digest.digest('base64url') };
  }
}

function deflate(plain: Uint8Array | string): Buffer | undefined {
  const bytes = typeof plain === 'string' ? Buffer.from(plain, 'utf8') : plain;
  const deflated = deflateRawSync(bytes, { level: 1 });
  return deflated.length < bytes.length * WORTHWHILE ? deflated : undefined;
}

/** The associated data of a body. They don't name the plain format, which is older than the other one. */
function place(stream: string, revision: number, format: number): Buffer {
  return Buffer.from(format === FORMAT_PLAIN ? `${stream}@${revision}` : `${stream}@${revision}#${format}`, 'latin1');
}
