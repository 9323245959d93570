import { describe, expect, it } from 'vitest';
import type { ClearSpan } from '@epitaph/projections/items/clear-values.ts';
import type { ItemRow, ItemScan } from '@epitaph/projections/read-model-store.ts';
import { clearBytes, type ClearIndex, fromClearBytes, scanByClear } from '@epitaph/storage/clear-scan.ts';

const births = (count: number, of: (index: number) => number) => Array.from({ length: count }, (_, index) => of(index));
const is = (value: string): ClearSpan => ({ path: 0, from: value, to: value });
const MARKS = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };

/** An index of items with one value each, of which every tenth is not visible. `named` is the number of items of each partition. */
function indexOf(values: Readonly<Record<string, readonly number[]>>, named = Number.POSITIVE_INFINITY) {
  const found = ({ from, to }: ClearSpan) =>
    Object.entries(values).flatMap(([value, births]) => (value >= from && value <= to ? births : []));
  const index: ClearIndex = {
    count: (condition, limit) => Math.min(limit, condition.flatMap(found).length),
    births: (condition, after) => condition.flatMap(found).filter((birth) => birth > after),
    firstBirths: (points, after, limit) =>
      points.map((point) =>
        found(point)
          .filter((birth) => birth > after)
          .slice(0, limit),
      ),
    countNamed: (_, limit) => Math.min(limit, named),
    among: (births, { limit }) =>
      births
        .filter((birth) => birth % 10 !== 0)
        .slice(0, limit)
        .map((birth) => ({ birth }) as ItemRow),
  };
  return async (scan: Partial<ItemScan>) => {
    const rows = await scanByClear(index, { afterBirth: 0, limit: 100_000, marks: MARKS, ...scan });
    return rows?.map(({ birth }) => birth);
  };
}

describe('a scan by values in clear', () => {
  // Each of the values alone is longer than what is read at a time, and one has all of its items after the other.
  const a = births(12_000, (index) => index + 1);
  const b = births(12_000, (index) => 10_000 + 2 * index);
  const c = births(5, (index) => 3 * index + 4);
  const visible = [...new Set([...a, ...b])].filter((birth) => birth % 10 !== 0).toSorted((one, other) => one - other);

  it('for single values that many items have returns each once, in order, up to the limit', async () => {
    const scan = indexOf({ a, b, c });
    const clear = [[is('a'), is('b')]];
    expect(await scan({ clear })).toEqual(visible);
    for (const limit of [1, 5_000, 10_000]) expect(await scan({ clear, limit })).toEqual(visible.slice(0, limit));
    expect(await scan({ clear, afterBirth: 11_000 })).toEqual(visible.filter((birth) => birth > 11_000));
  });

  it('goes by a condition that few items satisfy, whatever the others are', async () => {
    const few = c.filter((birth) => birth % 10 !== 0);
    expect(await indexOf({ a, b, c })({ clear: [[{ path: 0, from: 'a', to: 'b' }], [is('c')]] })).toEqual(few);
  });

  it('is not made if it would read more than the whole container, or than the partition', async () => {
    expect(await indexOf({ a, b })({ clear: [[{ path: 0, from: 'a', to: 'b' }]] })).toBe(undefined);
    for (const names of [{ partitionKey: '["p"]' }, { prefix: '["p"' }]) {
      expect(await indexOf({ a, b, c }, 4)({ clear: [[is('c')]], ...names })).toBe(undefined);
      expect(await indexOf({ a, b, c }, 5)({ clear: [[is('c')]], ...names })).toBeDefined();
    }
  });
});

it('values sort by their bytes as by their code units, and are read again from them', () => {
  const values = ['', '1', '5a', '5ab', '5ß', '5\u0100', '5\u01ff', '5\ud83d\ude00', '5\uffff'];
  expect(values.toReversed().map(clearBytes).toSorted(Buffer.compare).map(fromClearBytes)).toEqual(values);
});
