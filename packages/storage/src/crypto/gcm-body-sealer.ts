import { hash, type KeyObject } from 'node:crypto';
import { type BodySealer, SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import type { LifeKey } from '@epitaph/core/vault/key-vault.ts';
import { gcmOpen, gcmSeal } from './aes-gcm.ts';

/** A life's key as the vaults of this package hand it out. */
export interface SecretLifeKey extends LifeKey {
  readonly secret: KeyObject;
}

/** First byte of every sealed body: how the rest is coded. Others are for codings to come, such as compression. */
const FORMAT_PLAIN = 0;

/** AES-256-GCM under the life's key; stream and revision are the associated data. */
export class GcmBodySealer implements BodySealer {
  seal(key: LifeKey, stream: string, revision: number, plain: Uint8Array | string): Uint8Array {
    const sealed = gcmSeal((key as SecretLifeKey).secret, place(stream, revision), plain, 1);
    sealed[0] = FORMAT_PLAIN;
    return sealed;
  }

  open(key: LifeKey, stream: string, revision: number, sealed: Uint8Array): Uint8Array {
    const plain =
      sealed[0] === FORMAT_PLAIN
        ? gcmOpen((key as SecretLifeKey).secret, place(stream, revision), sealed.subarray(1))
        : undefined;
    if (plain === undefined) throw new SealBroken(`the body of ${stream} at revision ${revision} does not open`);
    return plain;
  }

  digest(sealed: Uint8Array): string {
    return hash('sha256', sealed, 'base64url');
  }
}

function place(stream: string, revision: number): Buffer {
  return Buffer.from(`${stream}@${revision}`, 'latin1');
}
