import { isInScope, type Scope } from '@epitaph/core/partition-key/scope.ts';
import type { ItemRow, ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import type { Moment } from './parts.ts';

/** Rows handed on at a time; between two such batches others get their turn. */
const BATCH = 256;
/** Rows fetched at a time at most, where fetching costs the same for few and many. */
const LARGEST_FETCH = 4096;

/** A piece of a scan. */
export interface Scanned {
  readonly rows: readonly ItemRow[];
  /** Rows that were looked at for them. */
  readonly scanned: number;
  /** The birth up to which everything has been looked at. */
  readonly through: number;
  /** No piece follows. */
  readonly isLast: boolean;
}

/** The visible items of a scope in order of birth, in batches that may be empty; ends after the last. */
export async function* scanScope(
  readModel: ReadModelStore,
  { within, marks }: Moment,
  scope: Scope,
  afterBirth: number,
  signal?: AbortSignal,
  /** How many rows are wanted, when that is known. */
  wanted: number = BATCH,
): AsyncGenerator<Scanned> {
  const { partitionKey, prefix, range } = scope;
  const byName = partitionKey !== undefined || prefix !== undefined;
  // One row more says whether another follows.
  let size = range === undefined ? Math.min(wanted + 1, LARGEST_FETCH) : BATCH;
  for (let after = afterBirth; ;) {
    signal?.throwIfAborted();
    const fetched = await readModel.scanItems(within.number, {
      partitionKey,
      prefix,
      afterBirth: after,
      limit: size,
      marks,
    });
    for (let start = 0; start < fetched.length; start += BATCH) {
      const batch = fetched.slice(start, start + BATCH);
      const rows =
        range === undefined
          ? batch
          : batch.filter((row) => isInScope(within.state.definition, { range }, row.partitionKey));
      const isLast = start + BATCH >= fetched.length && fetched.length < size;
      yield { rows, scanned: batch.length, through: batch.at(-1)!.birth, isLast };
      if (isLast) return;
      // Long scans give way, so that they hold no other request.
      await new Promise((resolve) => setImmediate(resolve));
      signal?.throwIfAborted();
    }
    if (fetched.length < size) return;
    after = fetched.at(-1)!.birth;
    size = byName ? Math.min(Math.max(size, BATCH) * 4, LARGEST_FETCH) : BATCH;
  }
}
