import { randomFillSync } from 'node:crypto';

/** Gets random bytes from the operating system in large pieces: getting twelve at a time would take longer than the cipher. */
export class RandomPool {
  readonly #buffer = Buffer.allocUnsafe(16_384);
  #offset = this.#buffer.length;

  /** A copy of `count` fresh random bytes; no byte is handed out twice. */
  take(count: number): Buffer {
    if (this.#offset + count > this.#buffer.length) {
      randomFillSync(this.#buffer);
      this.#offset = 0;
    }
    const bytes = Buffer.from(this.#buffer.subarray(this.#offset, this.#offset + count));
    this.#buffer.fill(0, this.#offset, this.#offset + count);
    this.#offset += count;
    return bytes;
  }
}
