import { randomBytes } from 'node:crypto';
import { KEY_BYTES } from '../crypto/key-wrapping.ts';
import type { AddSpareKeysJob, RemoveSpareKeysJob } from './log-writer-jobs.ts';
import { SPARE_KEYS } from './schema.ts';
import type { Writer } from './writer.ts';

/** Keys with numbers that follow each other. */
interface SpareBatch {
  readonly first: number;
  /** One after the other; those that were taken are overwritten. */
  readonly keys: Buffer;
  left: number;
}

interface SpareStockOptions {
  readonly writer: Writer;
  /** Takes so many numbers of keys for good, and answers the first. */
  readonly takeNumbers: (count: number) => number;
  /** Told of spare keys that were taken and have rows of their own now, by their numbers. */
  readonly onSettled: (keyIds: readonly number[]) => void;
}

/** Keys that are stored and have no lives yet. */
export class SpareStock {
  readonly #options: SpareStockOptions;
  /** The one in use first. */
  readonly #batches: SpareBatch[] = [];
  /** What asks for a batch, and gets it unless all were given up meanwhile. */
  #coming: object | undefined;

  constructor(options: SpareStockOptions) {
    this.#options = options;
  }

  /** A key, whose bytes are to be overwritten once it is made of them; undefined where none is left. */
  take(): { readonly keyId: number; readonly bytes: Buffer } | undefined {
    if (this.#batches[0]?.left === 0) this.#batches.shift();
    const [batch] = this.#batches;
    if (batch === undefined) return undefined;
    const at = SPARE_KEYS - batch.left--;
    return { keyId: batch.first + at, bytes: batch.keys.subarray(at * KEY_BYTES, (at + 1) * KEY_BYTES) };
  }

  /** Has more stored when half a batch is left. */
  restock(): void {
    const left = this.#batches.reduce((sum, batch) => sum + batch.left, 0);
    if (this.#coming !== undefined || left > SPARE_KEYS / 2) return;
    const { writer, takeNumbers, onSettled } = this.#options;
    const first = takeNumbers(SPARE_KEYS);
    const keys = randomBytes(SPARE_KEYS * KEY_BYTES);
    const job: AddSpareKeysJob = { kind: 'add-spare-keys', first, blobs: [keys] };
    const asked = {};
    this.#coming = asked;
    const end = (isStored: boolean) => {
      if (isStored && this.#coming === asked) this.#batches.push({ first, keys, left: SPARE_KEYS });
      else keys.fill(0);
      if (this.#coming === asked) this.#coming = undefined;
    };
    writer.submit<number[]>(job).then(
      (settled) => {
        onSettled(settled);
        end(true);
      },
      // A key that is made meanwhile is stored alone, and whoever needs it is told why that fails.
      () => end(false),
    );
  }

  /**
   * Gives all of them up, in the file too.
   *
   * @param tellWhoseTheyAre hands over to the writer whose those are that were taken
   */
  async remove(tellWhoseTheyAre: () => void): Promise<void> {
    this.wipe();
    this.#coming = undefined;
    tellWhoseTheyAre();
    const job: RemoveSpareKeysJob = { kind: 'remove-spare-keys' };
    this.#options.onSettled(await this.#options.writer.submit<number[]>(job));
  }

  /** Overwrites in memory those that are left. */
  wipe(): void {
    for (const { keys } of this.#batches.splice(0)) keys.fill(0);
  }
}
