import fc from 'fast-check';
import { expect, it } from 'vitest';
import { sorting } from '../src/sorting.ts';

it('very many entries come in order, equal ones as they came, with pauses on the way', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 5_000 }), fc.integer({ min: 1, max: 3_000 }), (count, factor) => {
      const entries = Array.from({ length: count }, (_, index) => ({ index, key: (index * factor) % 1_009 }));
      const compare = (a: { readonly key: number }, b: { readonly key: number }) => a.key - b.key;
      const steps = sorting(entries, compare);
      let pauses = 0;
      let step = steps.next();
      for (; step.done !== true; step = steps.next()) pauses += 1;
      expect(step.value).toEqual(entries.toSorted(compare));
      expect(pauses).toBeGreaterThanOrEqual(Math.floor(Math.max(0, count - 1) / 1_024));
    }),
    { numRuns: 50 },
  );
});
