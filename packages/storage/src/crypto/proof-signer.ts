import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  verify,
} from 'node:crypto';
import type { CheckpointCryptography, CheckpointSigner, VerifierKey } from '@epitaph/core/proof/checkpoint.ts';
import { sha256 } from '@epitaph/projections/proof/proof-tree.ts';

/** The DER form of an Ed25519 public key is this prefix and the 32 bytes of the key. Source: RFC 8410, section 4. */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');

/** The DER form of an Ed25519 private key is this prefix and the 32 bytes of the key. Source: RFC 8410, section 7. */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');

/** Hashes and verifies signatures with `node:crypto`. */
export const checkpointCryptography: CheckpointCryptography = {
  sha256,
  verify: (publicKey, text, signature) => {
    const key = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, publicKey]), format: 'der', type: 'spki' });
    return verify(null, text, key, signature);
  },
};

/** Signs checkpoints of the proof tree with the store's own Ed25519 key. */
export class ProofSigner implements CheckpointSigner {
  readonly key: VerifierKey;
  readonly #private: KeyObject;

  private constructor(name: string, key: KeyObject) {
    this.#private = key;
    const der = createPublicKey(key).export({ format: 'der', type: 'spki' });
    this.key = { name, publicKey: der.subarray(SPKI_PREFIX.length) };
  }

  /** Makes a new key, with a name that no other store has. */
  static make(): { readonly signer: ProofSigner; readonly text: string } {
    const { privateKey } = generateKeyPairSync('ed25519');
    const name = `epitaph-${randomBytes(4).toString('hex')}`;
    const secret = privateKey.export({ format: 'der', type: 'pkcs8' }).toString('base64');
    return { signer: new ProofSigner(name, privateKey), text: `${JSON.stringify({ name, privateKey: secret })}\n` };
  }

  /** Makes the key from 32 secret bytes, for nodes that share these bytes and nothing else. */
  static fromSeed(seed: Uint8Array): ProofSigner {
    const key = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, seed]), format: 'der', type: 'pkcs8' });
    const name = Buffer.from(sha256(new ProofSigner('', key).key.publicKey)).toString('hex', 0, 4);
    return new ProofSigner(`epitaph-${name}`, key);
  }

  /** @returns undefined if the text is not one that {@link make} has returned */
  static read(text: string): ProofSigner | undefined {
    try {
      const { name, privateKey } = JSON.parse(text) as { name: string; privateKey: string };
      const key = createPrivateKey({ key: Buffer.from(privateKey, 'base64'), format: 'der', type: 'pkcs8' });
      return typeof name === 'string' && key.asymmetricKeyType === 'ed25519' ? new ProofSigner(name, key) : undefined;
    } catch {
      return undefined;
    }
  }

  sign(text: string): Uint8Array {
    return sign(null, Buffer.from(text), this.#private);
  }
}
