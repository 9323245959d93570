import { bytesOf, type Memory } from '../values/memory.ts';
import { sorting } from '../values/sorting.ts';
import { compareValues } from '../values/values.ts';
import type { Json, Value } from '../values/values.ts';
import type { OrderStep } from './program.ts';

interface Entry<Row> {
  readonly keys: readonly Value[];
  /** The order in which rows were added, which orders rows with equal keys. */
  readonly sequence: number;
  readonly row: Row;
  readonly bytes: number;
}

/** A limit for rows of which only the first that fit into a page are wanted. */
export interface Room {
  readonly bytes: number;
  /** This many rows are kept, however large they are. */
  readonly leastRows: number;
}

/**
 * Whether rows with equal keys are ordered from the last document to the first. If the first key is descending, clients that merge ranges
 * expect this order, and rely on it when they continue after a page: Cosmos DB reads its index backwards.
 */
export const isLastFirst = ({ orderBy }: { readonly orderBy: readonly OrderStep[] }): boolean =>
  orderBy[0]?.descending === true;

/** Compares two rows by their keys, as far as both have them. Keys after those of ORDER BY are ascending. */
export function compareKeys(a: readonly Value[], b: readonly Value[], steps: readonly OrderStep[]): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index += 1) {
    const difference = compareValues(a[index], b[index]);
    if (difference !== 0) return steps[index]?.descending === true ? -difference : difference;
  }
  return 0;
}

/**
 * Collects rows for ORDER BY. With a capacity (TOP, OFFSET LIMIT or a page) it is a heap with the last of the kept rows on top, so that the
 * memory depends on the size of the answer, not on the container.
 */
export class Sorter<Row> {
  readonly #steps: readonly OrderStep[];
  readonly #memory: Memory;
  readonly #lastFirst: boolean;
  readonly #room: Room | undefined;
  readonly #entries: Entry<Row>[] = [];
  #capacity: number;
  #bytes = 0;
  #sequence = 0;
  #isCut = false;

  /**
   * @param lastFirst whether rows with equal keys are returned in the reverse of the order in which they were added
   * @param room only with a finite capacity: rows at the end that exceed it are dropped
   */
  constructor(steps: readonly OrderStep[], capacity: number, memory: Memory, lastFirst = false, room?: Room) {
    this.#lastFirst = lastFirst;
    this.#steps = steps;
    this.#capacity = capacity;
    this.#memory = memory;
    this.#room = room;
  }

  /** Whether rows were dropped because of the room, although the capacity was not reached. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Whether a row with these keys would be kept at present. Called before the row is made. */
  keeps(keys: readonly Value[]): boolean {
    if (this.#entries.length < this.#capacity) return true;
    const last = this.#entries[0];
    if (last === undefined) return false;
    const difference = compareKeys(keys, last.keys, this.#steps);
    return difference < 0 || (difference === 0 && this.#lastFirst);
  }

  /**
   * @param rowBytes that the row takes
   * @returns the bytes that it is kept as
   */
  add(keys: readonly Value[], row: Row, rowBytes: number): number {
    const entries = this.#entries;
    const bytes = this.#memory.hold(bytesOf(keys as Json[]) + rowBytes);
    const entry = { keys, sequence: this.#sequence, row, bytes };
    this.#sequence += 1;
    this.#bytes += bytes;
    if (entries.length >= this.#capacity) {
      this.#forget(entries[0]!);
      entries[0] = entry;
      this.#siftDown();
    } else {
      entries.push(entry);
      if (this.#capacity !== Number.POSITIVE_INFINITY) this.#siftUp();
    }
    if (this.#room !== undefined) this.#makeRoom(this.#room);
    return bytes;
  }

  /** The kept rows in order, with pauses on the way there. */
  *sorted(): Generator<void, readonly Row[], undefined> {
    const entries = yield* sorting(this.#entries, (a, b) => this.#compare(a, b), this.#bytes);
    return entries.map(({ row }) => row);
  }

  #makeRoom({ bytes, leastRows }: Room): void {
    const entries = this.#entries;
    while (this.#bytes > bytes && entries.length > leastRows) {
      this.#forget(entries[0]!);
      entries[0] = entries.at(-1)!;
      entries.pop();
      this.#siftDown();
      this.#capacity = entries.length;
      this.#isCut = true;
    }
  }

  #forget({ bytes }: Entry<Row>): void {
    this.#bytes -= bytes;
    this.#memory.release(bytes);
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
