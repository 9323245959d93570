import { BloomFilter } from 'bloomfilter';

/** If the filter is full, about one in 400 unknown names wrongly seems to be known. */
const [BITS_A_NAME, HASHES] = [16, 4];
/** The least and the largest number of names that there is room for: 256 KiB to 32 MiB. With more names, more of them seem known. */
const [LEAST_ROOM, MOST_ROOM] = [2 ** 17, 2 ** 24];

/** Yields the names of rows, some at a time. */
export type NamesInPieces = Generator<readonly string[], void>;

/**
 * A Bloom filter of the names of all rows. For most names without a row, it tells so without asking the database. The creation of an
 * item must check whether there was one of the same name before, and mostly there was not. SQLite takes a tenth of the whole creation
 * for that answer, since the writer changes its pages all the time.
 *
 * The names are read bit by bit, some with each question, beginning with the first. Before all are read, no name counts as new. Names
 * of removed rows stay in the filter. Once it is full, the names are read again into a new filter, while the old one is used.
 */
export class NameFilter {
  readonly #read: () => NamesInPieces;
  readonly #leastRoom: number;
  #whole: Names | undefined;
  /** The filter that is being filled, which will replace it. */
  #next: { readonly names: Names; readonly pieces: NamesInPieces } | undefined;
  #isUnreadable = false;

  /** @param read begins to read the names of all rows. It may leave out names that are added from then on */
  constructor(read: () => NamesInPieces, leastRoom = LEAST_ROOM) {
    this.#read = read;
    this.#leastRoom = leastRoom;
  }

  /** True only if there is no row of this name. It may be false although there is none. */
  isNew(name: string): boolean {
    this.#readOn();
    return this.#whole?.has(name) === false;
  }

  /** Must be called before a row of this name is written. */
  add(name: string): void {
    this.#whole?.add(name);
    this.#next?.names.add(name);
  }

  #begin(room: number): { readonly names: Names; readonly pieces: NamesInPieces } {
    return { names: new Names(room), pieces: this.#read() };
  }

  #readOn(): void {
    if (this.#isUnreadable || (this.#next === undefined && this.#whole?.isFull() === false)) return;
    try {
      this.#next ??= this.#begin(this.#leastRoom);
      const { names, pieces } = this.#next;
      const piece = pieces.next();
      for (const name of piece.value ?? []) names.add(name);
      if (piece.done === true) {
        names.takeMore();
        this.#whole = names;
        this.#next = undefined;
      } else if (names.isFull() && names.room < MOST_ROOM) {
        this.#next = this.#begin(Math.min(names.room * 4, MOST_ROOM));
      }
    } catch {
      // The read of the row itself will report what is wrong with the file.
      this.#isUnreadable = true;
      this.#next = undefined;
    }
  }
}

class Names {
  readonly room: number;
  readonly #filter: BloomFilter;
  #count = 0;
  #most: number;

  constructor(room: number) {
    this.room = room;
    this.#filter = new BloomFilter(room * BITS_A_NAME, HASHES);
    this.#most = room / 2;
  }

  has(name: string): boolean {
    return this.#filter.test(name);
  }

  add(name: string): void {
    if (this.has(name)) return;
    this.#filter.add(name);
    this.#count++;
  }

  isFull(): boolean {
    return this.#count >= this.#most;
  }

  /** Allows as many further names as half of the room. */
  takeMore(): void {
    this.#most = this.#count + this.room / 2;
  }
}
