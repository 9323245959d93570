/** Pieces that are kept as they come. Each takes some 400 bytes beside its own, of which it may have one. */
const PIECES = 1_000;

/** A body as far as it has come. */
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
