import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { Row, Statements } from './database.ts';

/** Look-ups that one statement makes at most. */
const AT_ONCE = 256;

interface LookUp<Found> {
  readonly container: number;
  readonly digest: Uint8Array;
  readonly resolve: (row: Found | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Look-ups by the digest of a name. All that are asked for in one turn of the event loop are one statement: to ask the server
 * takes most of the time of a look-up, there and here.
 */
export class LookUps<Found extends Row> {
  readonly #database: Statements;
  readonly #one: string;
  readonly #many: string;
  #asked: LookUp<Found>[] = [];

  /**
   * @param one the statement for one look-up, of container and digest
   * @param many for several, of arrays of these; each row has in `index` of which it is, from 1 on
   */
  constructor(database: Statements, one: string, many: string) {
    this.#database = database;
    this.#one = one;
    this.#many = many;
  }

  find(container: number, digest: Uint8Array): Promise<Found | undefined> {
    return new Promise((resolve, reject) => {
      this.#asked.push({ container, digest, resolve, reject });
      // After all that goes on without waiting for anything.
      if (this.#asked.length === 1) process.nextTick(() => this.#ask());
    });
  }

  #ask(): void {
    const asked = this.#asked;
    this.#asked = [];
    for (let from = 0; from < asked.length; from += AT_ONCE) {
      const some = asked.slice(from, from + AT_ONCE);
      void (some.length === 1 ? this.#askOne(some[0]!) : this.#askMany(some));
    }
  }

  async #askOne({ container, digest, resolve, reject }: LookUp<Found>): Promise<void> {
    try {
      const [row] = await this.#database.query<Found>(this.#one, [container, digest]);
      resolve(row);
    } catch (error) {
      reject(error);
    }
  }

  async #askMany(asked: readonly LookUp<Found>[]): Promise<void> {
    try {
      const names = [asked.map(({ container }) => container), asked.map(({ digest }) => digest)];
      const rows = await this.#database.query<Found & { readonly index: number }>(this.#many, names);
      const found = new Map<number, Found>();
      for (const { index, ...row } of rows) found.set(index, row as unknown as Found);
      asked.forEach(({ resolve }, place) => resolve(found.get(place + 1)));
    } catch (error) {
      // Where something is damaged that some of them need, the others do without it.
      for (const one of asked) {
        if (error instanceof StorageUnavailable) one.reject(error);
        else void this.#askOne(one);
      }
    }
  }
}
