import { tooManyRows } from './aggregates.ts';
import type { OrderStep } from './program.ts';
import { compareValues } from './values.ts';
import type { Value } from './values.ts';

interface Entry<Row> {
  readonly keys: readonly Value[];
  /** Tells rows of equal keys apart: when they came in. */
  readonly sequence: number;
  readonly row: Row;
}

/**
 * Where the first key is descending, clients that merge ranges take equal rows to be ordered from the last document to the
 * first, as Cosmos DB has them that reads its index backwards. They go on from a page by that.
 */
export const isLastFirst = ({ orderBy }: { readonly orderBy: readonly OrderStep[] }): boolean =>
  orderBy[0]?.descending === true;

/** The order of two rows by what ORDER BY says of each, as far as both say it; keys behind those of ORDER BY go up. */
export function compareKeys(a: readonly Value[], b: readonly Value[], steps: readonly OrderStep[]): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index += 1) {
    const difference = compareValues(a[index], b[index]);
    if (difference !== 0) return steps[index]?.descending === true ? -difference : difference;
  }
  return 0;
}

/**
 * Collects rows for ORDER BY. With a capacity (TOP or OFFSET LIMIT) it is a heap with the last of the kept rows on
 * top, so that memory is bounded by the answer and not by the container.
 */
export class Sorter<Row> {
  readonly #steps: readonly OrderStep[];
  readonly #capacity: number;
  readonly #maxRows: number;
  readonly #lastFirst: boolean;
  readonly #entries: Entry<Row>[] = [];
  #sequence = 0;

  /** @param lastFirst rows of equal keys come in the reverse of the order they came in */
  constructor(steps: readonly OrderStep[], capacity: number, maxRows: number, lastFirst = false) {
    this.#lastFirst = lastFirst;
    this.#steps = steps;
    this.#capacity = capacity;
    this.#maxRows = maxRows;
  }

  /** Whether a row of these keys would be among the rows kept so far; asked before the row is made. */
  keeps(keys: readonly Value[]): boolean {
    if (this.#entries.length < this.#capacity) return true;
    const last = this.#entries[0];
    if (last === undefined) return false;
    const difference = compareKeys(keys, last.keys, this.#steps);
    return difference < 0 || (difference === 0 && this.#lastFirst);
  }

  add(keys: readonly Value[], row: Row): void {
    const entries = this.#entries;
    const entry = { keys, sequence: this.#sequence, row };
    this.#sequence += 1;
    if (entries.length >= this.#capacity) {
      entries[0] = entry;
      this.#siftDown();
      return;
    }
    if (entries.length >= this.#maxRows) throw tooManyRows(this.#maxRows);
    entries.push(entry);
    if (this.#capacity !== Number.POSITIVE_INFINITY) this.#siftUp();
  }

  /** The kept rows in order. The sorter is used up. */
  *sorted(): Generator<Row> {
    this.#entries.sort((a, b) => this.#compare(a, b));
    for (const { row } of this.#entries) yield row;
  }

  #compare(a: Entry<Row>, b: Entry<Row>): number {
    const bySequence = a.sequence - b.sequence;
    return compareKeys(a.keys, b.keys, this.#steps) || (this.#lastFirst ? -bySequence : bySequence);
  }

  #siftUp(): void {
    const entries = this.#entries;
    let index = entries.length - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!this.#swapIfAfter(index, parent)) return;
      index = parent;
    }
  }

  #siftDown(): void {
    const { length } = this.#entries;
    let index = 0;
    for (;;) {
      const left = 2 * index + 1;
      if (left >= length) return;
      const right = left + 1;
      const larger = right < length && this.#isAfter(right, left) ? right : left;
      if (!this.#swapIfAfter(larger, index)) return;
      index = larger;
    }
  }

  #isAfter(a: number, b: number): boolean {
    return this.#compare(this.#entries[a] as Entry<Row>, this.#entries[b] as Entry<Row>) > 0;
  }

  #swapIfAfter(child: number, parent: number): boolean {
    if (!this.#isAfter(child, parent)) return false;
    const entries = this.#entries;
    const moved = entries[child] as Entry<Row>;
    entries[child] = entries[parent] as Entry<Row>;
    entries[parent] = moved;
    return true;
  }
}
