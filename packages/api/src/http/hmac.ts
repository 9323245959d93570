import { hash } from 'node:crypto';

const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;

/**
 * HMAC-SHA-256 of texts by one key, built from two hashes of the runtime. `createHmac` creates an object with a context
 * for each text, which takes three times as long as the hashes, and every request is signed.
 *
 * @source RFC 2104, section 2
 */
export class Hmac {
  /** The key with the inner padding, followed by room for a text. */
  #inner: Buffer;
  /** The key with the outer padding, followed by room for the inner digest. */
  readonly #outer: Buffer;
  /** The last text and its signature: writes to one container have the same text for a second. */
  #last: { readonly text: string; readonly signature: Buffer } | undefined;

  constructor(key: Uint8Array) {
    const block = Buffer.alloc(BLOCK_BYTES);
    block.set(key.length > BLOCK_BYTES ? hash('sha256', key, 'buffer') : key);
    this.#inner = Buffer.from(block.map((byte) => byte ^ 0x36));
    this.#outer = Buffer.concat([block.map((byte) => byte ^ 0x5c), Buffer.alloc(DIGEST_BYTES)]);
  }

  /** The signature of a text: 32 bytes, which callers must not change. */
  sign(text: string): Buffer {
    if (this.#last?.text !== text) this.#last = { text, signature: this.#sign(text) };
    return this.#last.signature;
  }

  #sign(text: string): Buffer {
    // A character of a text takes at most three bytes.
    const most = BLOCK_BYTES + 3 * text.length;
    if (this.#inner.length < most) this.#inner = Buffer.concat([this.#inner.subarray(0, BLOCK_BYTES)], 2 * most);
    const end = BLOCK_BYTES + this.#inner.write(text, BLOCK_BYTES);
    // Digests are faster as text than as bytes.
    this.#outer.write(hash('sha256', this.#inner.subarray(0, end), 'binary'), BLOCK_BYTES, 'binary');
    return Buffer.from(hash('sha256', this.#outer, 'base64'), 'base64');
  }
}
