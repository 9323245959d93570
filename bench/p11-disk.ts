/**
 * P11: the bytes on disk of a live item of 1 KB, and of a purged one: in the log, the vault and the read models together,
 * after compaction (a VACUUM copy of each file), minus the size of an empty store.
 */
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Bench, rowOf } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { openStore, seed } from './support/epitaph.ts';

const FILES = ['log.db', 'vault.db', 'items.v1.db'];
const ITEMS = 50_000;
const TTL_SECONDS = 100;

/** Each work opens the store, does its part, closes it, and returns the bytes of each file. */
export async function epitaph({ folder }: ContenderOptions): Promise<Contender> {
  const path = String(folder);
  const withStore = async (work: (opened: Awaited<ReturnType<typeof openStore>>) => Promise<unknown>) => {
    const opened = await openStore({ folder: path, clock: 'manual', defaultTtl: TTL_SECONDS, automaticPurge: false });
    await work(opened);
    await opened.store.close();
    return compactedBytes(path);
  };
  return {
    works: {
      empty: () => withStore(async () => {}),
      live: (count) => withStore(({ store, container }) => seed(store, container, 0, count)),
      purged: () =>
        withStore(async ({ store }) => {
          await store.advanceClock((TTL_SECONDS + 1) * 1000);
          await store.runPurge();
        }),
    },
    close: () => {},
  };
}

function compactedBytes(folder: string): Record<string, number> {
  return Object.fromEntries(
    FILES.map((file) => {
      const copy = join(folder, `${file}.compacted`);
      const database = new DatabaseSync(join(folder, file));
      database.exec(`VACUUM INTO '${copy}'`);
      database.close();
      const { size } = statSync(copy);
      rmSync(copy);
      return [file, size];
    }),
  );
}

export const bench: Bench = {
  id: 'P11',
  title: 'Disk of a live and of a purged item',
  async run(context) {
    const ours = await context.ours(import.meta.url, 'epitaph', { folder: context.scratch('epitaph') });
    const empty = await ours.call('empty');
    const live = await ours.call('live', ITEMS);
    const purged = await ours.call('purged');
    await ours.close();
    const row = (work: string, bytes: Readonly<Record<string, number>>, limit: number) => {
      const each = FILES.map((file) => (bytes[file]! - empty[file]!) / ITEMS);
      return rowOf({
        bench: 'P11',
        work,
        unit: 'KB',
        ours: [each.reduce((sum, part) => sum + part, 0) / 1000],
        target: { of: 'ours', is: 'at-most', limit },
        note: `bytes an item: ${FILES.map((file, index) => `${file} ${each[index]!.toFixed(0)}`).join(', ')}`,
      });
    };
    return [row('a live item of 1 KB', live, 1.6), row('a purged item', purged, 1)];
  },
};
