/** P10: explaining one item, picked at random, in a log of few events and in one of many. */
import { type Bench, closeAll, rowOf } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker, seeded } from './support/documents.ts';
import { openStore, seededFolder } from './support/epitaph.ts';
import { percentile } from './support/statistics.ts';
import { timed, turn } from './support/timing.ts';

const EXPLANATIONS = 2_000;

export async function epitaph({ folder, items }: ContenderOptions): Promise<Contender> {
  await seededFolder(String(folder), Number(items));
  const { store, container } = await openStore({ folder: String(folder), clock: 'manual' });
  const documents = new DocumentMaker();
  const random = seeded(10);
  return {
    works: {
      explain: async (count) => {
        const times: number[] = [];
        await timed(async () => {
          for (let done = 0; done < count; done++) {
            const { id, partitionKey } = documents.make(Math.floor(random() * Number(items)));
            await turn();
            const startedMs = performance.now();
            await store.explain(container, id, partitionKey);
            times.push(performance.now() - startedMs);
          }
          return count;
        });
        return { p50: percentile(times, 0.5), p99: percentile(times, 0.99) };
      },
    },
    close: () => store.close(),
  };
}

const sizes = (full: boolean) => (full ? ([10_000, 1_000_000] as const) : ([1_000, 50_000] as const));

export const bench: Bench = {
  id: 'P10',
  title: 'Explaining one item',
  seeds: sizes,
  async run(context) {
    const [few, many] = sizes(context.full);
    const start = (items: number) =>
      context.ours(import.meta.url, 'epitaph', { folder: context.scratch(`${items}`), items });
    const [small, large] = [await start(few), await start(many)];
    const figures = { small: [] as number[], large: [] as number[] };
    for (let round = -1; round < context.rounds; round++) {
      const atSmall = (await small.call('explain', EXPLANATIONS))['p99']!;
      const atLarge = (await large.call('explain', EXPLANATIONS))['p99']!;
      if (round < 0) continue;
      figures.small.push(atSmall);
      figures.large.push(atLarge);
    }
    await closeAll([small, large]);
    return [
      rowOf({
        bench: 'P10',
        work: `p99 of explaining an item in a log of ${many.toLocaleString('en')} events`,
        unit: 'ms',
        ours: figures.large,
        peer: { name: `itself at ${few.toLocaleString('en')} events`, rounds: figures.small },
        target: { of: 'ours', is: 'at-most', limit: 5 },
        judged: context.full,
      }),
    ];
  },
};
