import { isoTime } from '@epitaph/core/clock.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import { UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import type { ContainerNumber, DisappearanceRow } from '../read-model-store.ts';
import { BODIES_AT_ONCE, type Examination } from './examination.ts';

/** How many rows of the read models are read at a time. */
const ROWS_AT_ONCE = 1_000;

/** Checks that the log has the lives that the read model lists as having left a container. Lists and certificates need both. */
export async function checkLeft({ number, state: { rid } }: CatalogContainer, examination: Examination): Promise<void> {
  const { store, report, pace, signal, onRowsChecked } = examination;
  const all = { fromMs: 0, toMs: Number.MAX_SAFE_INTEGER, cause: undefined, limit: ROWS_AT_ONCE };
  for (let after: DisappearanceRow | undefined; ;) {
    signal?.throwIfAborted();
    const rows = await store.disappearances(number, { ...all, after });
    for (let start = 0; start < rows.length; start += BODIES_AT_ONCE) {
      const some = rows.slice(start, start + BODIES_AT_ONCE);
      const streams = await Promise.all(some.map((row) => streamIfLost(row, rid, examination)));
      for (const stream of streams) {
        if (stream === undefined) continue;
        report('writes-missing', stream, 'it has left its container, but the log has no event of it any more');
      }
      await pace.step();
    }
    onRowsChecked(rows.length);
    after = rows.at(-1);
    if (rows.length < ROWS_AT_ONCE) break;
  }
  await checkUnrecorded(number, rid, examination);
}

/** The stream of a life that has left, if the log has nothing of it. */
async function streamIfLost(
  { position, partitionKey, id, life }: DisappearanceRow,
  rid: string,
  { log, naming, namesLost, upTo }: Examination,
): Promise<string | undefined> {
  if (position > upTo || (await log.readAt(position)) !== undefined) return undefined;
  // The stream's name can't be computed any more.
  if (position <= (namesLost.get(rid) ?? 0)) return undefined;
  try {
    // The row of a life that left with its partition key or its container has the position of a write, which the purge truncates.
    const stream = itemStream(await naming.itemStreamPrefix(rid, partitionKey, id), life);
    return (await log.readLast(stream)) === undefined ? stream : undefined;
  } catch (error) {
    // Reported for the container.
    if (error instanceof UnreadableSecret) return undefined;
    throw error;
  }
}

/**
 * Checks that the log has the last write of each item that left with its partition key and whose own stream does not
 * say so yet. Without that write its end could never be recorded.
 */
async function checkUnrecorded(
  container: ContainerNumber,
  rid: string,
  { log, store, report }: Examination,
): Promise<void> {
  // Lives whose end can't be recorded stay in this list, and gather at its beginning.
  const lost = new Set<number>();
  for (const { position } of await store.unrecordedEnds(container, ROWS_AT_ONCE)) {
    if ((await log.readAt(position)) === undefined) lost.add(position);
  }
  if (lost.size === 0) return;
  // The ends of others may have been recorded, and the lives erased, since they were looked up.
  for (const { position } of await store.unrecordedEnds(container, ROWS_AT_ONCE)) {
    if (!lost.has(position)) continue;
    report(
      'writes-missing',
      rid,
      `the log has nothing at ${position}, the last write of an item that left with its partition key`,
    );
  }
}

/**
 * Reports items that would be visible again in rebuilt read models, because the log has lost the delete by partition
 * key with which they left. Items whose end is recorded in their own streams stay hidden.
 */
export async function checkLostDeletes(rids: Iterable<string>, examination: Examination): Promise<void> {
  const { store, report, containerOf, numbers } = examination;
  for (const rid of rids) {
    const { lostDeletes } = await containerOf(rid);
    const number = numbers.get(rid);
    if (lostDeletes.length === 0 || number === undefined) continue;
    const ends = await store.unrecordedEnds(number, ROWS_AT_ONCE);
    for (const { partitionKey, position, atMs, by } of lostDeletes) {
      const lives = ends.filter((end) => end.partitionKey === partitionKey && end.position < position).length;
      // Their ends have been recorded since.
      if (lives === 0) continue;
      const atLeast = ends.length < ROWS_AT_ONCE ? '' : 'at least ';
      report(
        'unreadable-event',
        containerStream(rid),
        `only the read models record that ${by} deleted the partition key ${partitionKey} at ${isoTime(atMs)}. After a rebuild, ${atLeast}${lives} of its items, whose end is not recorded yet, would be shown again`,
      );
    }
  }
}
