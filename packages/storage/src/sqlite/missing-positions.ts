/** A range of positions of a log, with a bit for each position that has no event, because of damage or truncation. */
export class MissingPositions {
  readonly #after: number;
  readonly #bits: Uint8Array;
  #isEmpty = true;

  constructor(after: number, end: number) {
    this.#after = after;
    this.#bits = new Uint8Array(Math.ceil(Math.max(0, end - after) / 8));
  }

  get isEmpty(): boolean {
    return this.#isEmpty;
  }

  has(position: number): boolean {
    const index = position - this.#after - 1;
    return index >= 0 && ((this.#bits[index >>> 3] ?? 0) & (1 << (index & 7))) !== 0;
  }

  /** Adds the positions after `after` and up to `upTo`, except those in `there`. */
  add(after: number, upTo: number, there: readonly number[]): void {
    let next = 0;
    for (let position = after + 1; position <= upTo; position++) {
      if (there[next] === position) {
        next += 1;
        continue;
      }
      const index = position - this.#after - 1;
      this.#bits[index >>> 3]! |= 1 << (index & 7);
      this.#isEmpty = false;
    }
  }
}
