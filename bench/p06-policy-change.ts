/**
 * P6: changing a container's TTL, and the preview of a policy under which every item would be gone, in a small
 * container and in a large one. There are holds on some items and on a partition key, which the preview counts. Neither may
 * take longer with more items.
 */
import { type Bench, closeAll, rowOf } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker } from './support/documents.ts';
import { caller, changeTtl, openStore, SEEDED_TTL_SECONDS, seededFolder } from './support/epitaph.ts';
import { median } from './support/statistics.ts';
import { timed } from './support/timing.ts';

const CHANGES = 20;
const COUNTS = 5;
const HELD_ITEMS = 200;
const documents = new DocumentMaker();

export async function epitaph({ folder, items }: ContenderOptions): Promise<Contender> {
  await seededFolder(String(folder), Number(items));
  const { store, container } = await openStore({ folder: String(folder), clock: 'manual' });
  const held = Array.from({ length: HELD_ITEMS }, (_, index) => documents.make(index * 7));
  await store.placeHold(caller, container, 'of-items', { scope: { kind: 'items', items: held }, reason: 'a case' });
  const { partitionKey } = documents.make(1);
  await store.placeHold(caller, container, 'of-a-partition-key', {
    scope: { kind: 'partition-key', partitionKey },
    reason: 'another case',
  });
  let changes = 0;
  return {
    works: {
      /** The median time of a change, in milliseconds. */
      change: async (count) => {
        const times: number[] = [];
        for (let done = 0; done < count; done++) {
          const { milliseconds } = await timed(async () => {
            // The TTL is so long that nothing expires.
            await changeTtl(store, container, SEEDED_TTL_SECONDS + (++changes % 2));
            return 1;
          });
          times.push(milliseconds);
        }
        return { milliseconds: median(times) };
      },
      preview: async (count) => {
        const effectiveFromMs = store.nowMs() + SEEDED_TTL_SECONDS * 500;
        const times: number[] = [];
        let counted = 0;
        for (let done = 0; done < count; done++) {
          const { milliseconds } = await timed(async () => {
            const { atOnce, kept } = await store.previewTtl(container, { defaultTtl: 1, effectiveFromMs });
            if (kept.byHolds.atLeast < HELD_ITEMS) throw new Error('the preview lost a hold');
            counted = atOnce.items;
            return 1;
          });
          times.push(milliseconds);
        }
        if (counted !== Number(items)) throw new Error(`the preview counted ${counted} of ${items} items`);
        return { milliseconds: median(times) };
      },
    },
    close: () => store.close(),
  };
}

const sizes = (full: boolean) => [1_000, full ? 1_000_000 : 50_000] as const;

export const bench: Bench = {
  id: 'P6',
  title: "Change of a container's TTL and a preview's range count",
  seeds: sizes,
  async run(context) {
    const [few, many] = sizes(context.full);
    const [small, large] = [
      await context.ours(import.meta.url, 'epitaph', { folder: context.scratch('small'), items: few }),
      await context.ours(import.meta.url, 'epitaph', { folder: context.scratch('large'), items: many }),
    ];
    const figures = { small: [] as number[], large: [] as number[], preview: [] as number[] };
    for (let round = -1; round < context.rounds; round++) {
      const atSmall = (await small.call('change', CHANGES))['milliseconds']!;
      const atLarge = (await large.call('change', CHANGES))['milliseconds']!;
      const preview = (await large.call('preview', COUNTS))['milliseconds']!;
      if (round < 0) continue;
      figures.small.push(atSmall);
      figures.large.push(atLarge);
      figures.preview.push(preview);
    }
    await closeAll([small, large]);
    const judged = context.full;
    const size = many.toLocaleString('en');
    return [
      rowOf({
        bench: 'P6',
        work: `TTL change of a container of ${size} items`,
        unit: 'ms',
        ours: figures.large,
        peer: { name: 'itself at 1,000 items', rounds: figures.small },
        target: { of: 'ratio', is: 'at-most', limit: 1.5 },
        judged,
      }),
      rowOf({
        bench: 'P6',
        work: `preview over ${size} items, with holds`,
        unit: 'ms',
        ours: figures.preview,
        target: { of: 'ours', is: 'at-most', limit: 50 },
        judged,
      }),
    ];
  },
};
