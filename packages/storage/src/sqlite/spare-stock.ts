import { randomBytes } from 'node:crypto';
import { KEY_BYTES } from '../crypto/key-wrapping.ts';
import type { AddSpareKeysJob, RemoveSpareKeysJob } from './log-writer-jobs.ts';
import { SPARE_KEYS } from './schema.ts';
import type { Writer } from './writer.ts';

/** Spare keys with consecutive ids. */
interface SpareBatch {
  readonly first: number;
  /** The keys, one after the other. Those that were taken are overwritten. */
  readonly keys: Buffer;
  left: number;
}

interface SpareStockOptions {
  readonly writer: Writer;
  /** Reserves this many consecutive key ids, and returns the first. */
  readonly takeNumbers: (count: number) => number;
  /** Called with the ids of spare keys that were taken and have rows of their own now. */
  readonly onSettled: (keyIds: readonly number[]) => void;
}

/** The spare keys in memory: they are stored, but have no lives yet. */
export class SpareStock {
  readonly #options: SpareStockOptions;
  /** The first batch is the one in use. */
  readonly #batches: SpareBatch[] = [];
  /** Identifies the request for a batch that is under way. Its batch is not used if {@link remove} was called meanwhile. */
  #coming: object | undefined;

  constructor(options: SpareStockOptions) {
    this.#options = options;
  }

  /** Takes a key; undefined if none is left. The caller must overwrite the bytes after use. */
  take(): { readonly keyId: number; readonly bytes: Buffer } | undefined {
    if (this.#batches[0]?.left === 0) this.#batches.shift();
    const [batch] = this.#batches;
    if (batch === undefined) return undefined;
    const at = SPARE_KEYS - batch.left--;
    return { keyId: batch.first + at, bytes: batch.keys.subarray(at * KEY_BYTES, (at + 1) * KEY_BYTES) };
  }

  /** Requests another batch if less than half a batch is left. */
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
      // Until there are spare keys again, each key is stored by itself, and that reports the error to its caller.
      () => end(false),
    );
  }

  /**
   * Removes all spare keys, also from the file.
   *
   * @param tellWhoseTheyAre must tell the writer which lives the taken keys belong to
   */
  async remove(tellWhoseTheyAre: () => void): Promise<void> {
    this.wipe();
    this.#coming = undefined;
    tellWhoseTheyAre();
    const job: RemoveSpareKeysJob = { kind: 'remove-spare-keys' };
    this.#options.onSettled(await this.#options.writer.submit<number[]>(job));
  }

  /** Overwrites the remaining keys in memory. */
  wipe(): void {
    for (const { keys } of this.#batches.splice(0)) keys.fill(0);
  }
}
