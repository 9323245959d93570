/**
 * How many pieces are kept separately. Each takes about 400 bytes in addition to its own, which may be a single one.
 */
const PIECES = 1_000;

/** The part of a body that has arrived. */
export class Pieces {
  readonly #joined: Buffer[] = [];
  #pieces: Buffer[] = [];

  push(piece: Buffer): void {
    if (this.#pieces.push(piece) < PIECES) return;
    this.#joined.push(Buffer.concat(this.#pieces));
    this.#pieces = [];
  }

  whole(): Buffer {
    const all = [...this.#joined, ...this.#pieces];
    return all.length === 1 ? all[0]! : Buffer.concat(all);
  }
}
