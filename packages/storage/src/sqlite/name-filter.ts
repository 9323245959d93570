import { BloomFilter } from 'bloomfilter';

/** Of the names that aren't there one in 400 seems to be, where there are as many as there is room for. */
const [BITS_A_NAME, HASHES] = [16, 4];
/** In names: 256 KiB at least, 32 MiB at most. Of more than these it tells less. */
const [LEAST_ROOM, MOST_ROOM] = [2 ** 17, 2 ** 24];

/** Names of rows, some at a time. */
export type NamesInPieces = Generator<readonly string[], void>;

/**
 * Tells of most names of which there is no row that there is none, without asking the database: a Bloom filter. Each new item
 * is looked for among those that have been there, and mostly it has not. SQLite, whose pages others change all the
 * time, takes a tenth of a create to say so.
 *
 * The names are read from the first question on, a few at each, and nothing is told before all are. Those that are gone stay
 * in it; once it is full it is read anew beside.
 */
export class NameFilter {
  readonly #read: () => NamesInPieces;
  readonly #leastRoom: number;
  #whole: Names | undefined;
  /** What is being read to take its place. */
  #next: { readonly names: Names; readonly pieces: NamesInPieces } | undefined;
  #isUnreadable = false;

  /** @param read begins to read the names of all rows; it may leave out any that are added from then on */
  constructor(read: () => NamesInPieces, leastRoom = LEAST_ROOM) {
    this.#read = read;
    this.#leastRoom = leastRoom;
  }

  /** True only where there is no row of that name. */
  isNew(name: string): boolean {
    this.#readOn();
    return this.#whole?.has(name) === false;
  }

  /** To be called before there is a row of that name. */
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
      // Whoever asks for the row itself is told what is the matter with the file.
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

  /** Half of the room is for those that come. */
  takeMore(): void {
    this.#most = this.#count + this.room / 2;
  }
}
