/**
 * P9: the peak resident memory of a process that rebuilds the read models, or that purges everything, with few items and
 * with many. Each is measured in a process of its own. The peak is the one that the system reports (ru_maxrss).
 */
import { type Bench, type BenchContext, type Row, rowOf } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { openStore, rebuildNow, SEEDED_TTL_SECONDS, seededFolder } from './support/epitaph.ts';
import { timed } from './support/timing.ts';

export async function epitaph({ folder, items }: ContenderOptions): Promise<Contender> {
  await seededFolder(String(folder), Number(items));
  const { store } = await openStore({ folder: String(folder), clock: 'manual', automaticPurge: false });
  const peak = () => ({ peakBytes: process.resourceUsage().maxRSS * 1024 });
  return {
    works: {
      rebuild: async () => {
        await timed(async () => {
          await rebuildNow(store);
          return 1;
        });
        return peak();
      },
      purge: async (items) => {
        await store.advanceClock((SEEDED_TTL_SECONDS + 1) * 1000);
        await timed(async () => {
          const { purged } = await store.runPurge();
          if (purged !== items) throw new Error(`${purged} of ${items} items were purged`);
          return purged;
        });
        return peak();
      },
    },
    close: () => store.close(),
  };
}

async function peakOf(context: BenchContext, work: string, items: number): Promise<number> {
  const folder = context.scratch(`${work}-${items}`);
  const ours = await context.ours(import.meta.url, 'epitaph', { folder, items });
  const { peakBytes } = await ours.call(work, items);
  await ours.close();
  return peakBytes! / 2 ** 20;
}

const sizes = (full: boolean) => (full ? ([100_000, 1_000_000] as const) : ([5_000, 20_000] as const));

export const bench: Bench = {
  id: 'P9',
  title: 'Memory of rebuild and purge',
  seeds: sizes,
  async run(context) {
    const [few, many] = sizes(context.full);
    const rounds = context.full ? 1 : Math.min(2, context.rounds);
    const rows: Row[] = [];
    for (const work of ['rebuild', 'purge']) {
      const figures = { few: [] as number[], many: [] as number[] };
      for (let round = 0; round < rounds; round++) {
        figures.few.push(await peakOf(context, work, few));
        figures.many.push(await peakOf(context, work, many));
      }
      rows.push(
        rowOf({
          bench: 'P9',
          work: `peak memory of ${work === 'rebuild' ? 'a rebuild' : 'a purge'} of ${many.toLocaleString('en')} items`,
          unit: 'MiB',
          ours: figures.many,
          peer: { name: `itself at ${few.toLocaleString('en')} items`, rounds: figures.few },
          target: { of: 'ratio', is: 'at-most', limit: 1.3 },
          judged: context.full,
        }),
      );
    }
    return rows;
  },
};
