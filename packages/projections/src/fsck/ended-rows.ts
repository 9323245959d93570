import type { CatalogContainer } from '../catalog/catalog.ts';
import { endedPages } from '../purge/ended-pages.ts';
import { END_LOST, type Examination } from './examination.ts';

/** Rows of the read models read at a time. */
const ROWS_AT_ONCE = 1_000;

/**
 * Checks that the log has something of each life that the read models have among what is to be erased: without it nothing
 * of that can be put on record, so the key stays. How such a life ended is compared where the log is walked through.
 */
export async function checkEndedRows(
  { number, state: { rid } }: CatalogContainer,
  { log, store, report, pace, signal }: Examination,
): Promise<void> {
  for (const byPolicyStart of [false, true]) {
    for await (const rows of endedPages(() => store, number, { byPolicyStart, limit: ROWS_AT_ONCE })) {
      for (const { stream } of rows) {
        signal?.throwIfAborted();
        await pace.step();
        if ((await log.readLast(stream)) === undefined) report('writes-missing', stream, END_LOST);
      }
    }
  }
  // Those that can't be put on record stay, and come to be the first.
  const lost = new Set<number>();
  for (const { position } of await store.unrecordedEnds(number, ROWS_AT_ONCE)) {
    if ((await log.readAt(position)) === undefined) lost.add(position);
  }
  if (lost.size === 0) return;
  // Others may have been put on record, and erased, since they were looked up.
  for (const { position } of await store.unrecordedEnds(number, ROWS_AT_ONCE)) {
    if (!lost.has(position)) continue;
    report(
      'writes-missing',
      rid,
      `the log has nothing at ${position}, the last write of an item that left with its partition key`,
    );
  }
}
