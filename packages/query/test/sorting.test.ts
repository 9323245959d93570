import fc from 'fast-check';
import { expect, it } from 'vitest';
import { sorting } from '../src/values/sorting.ts';
import { compareValues, type Json, type JsonObject } from '../src/values/values.ts';

it('very many entries are sorted stably, with pauses on the way', () => {
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

it('large entries are sorted with a pause between any two', () => {
  const entries = Array.from({ length: 40 }, (_, index) => (index * 7) % 40);
  const steps = sorting(entries, (a, b) => a - b, entries.length * 2_000_000);
  let pauses = 0;
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) pauses += 1;
  expect(step.value).toEqual(entries.toSorted((a, b) => a - b));
  expect(pauses).toBeGreaterThanOrEqual(39 * 5);
});

it('objects are compared property by property, in order of name', () => {
  const byProperty = (a: JsonObject, b: JsonObject): number => {
    const [ofA, ofB] = [a, b].map((of) => Object.entries(of).toSorted(([one], [other]) => (one < other ? -1 : 1)));
    for (const [index, [name, value]] of ofA!.entries()) {
      const [otherName, other] = ofB![index] ?? [];
      if (otherName === undefined) return 1;
      if (name !== otherName) return name < otherName ? -1 : 1;
      const difference = compareValues(value, other);
      if (difference !== 0) return difference;
    }
    return ofA!.length - ofB!.length;
  };
  const value = fc.constantFrom<Json>(1, 2, 'a', { b: 1 }, { b: 2, a: 1 });
  const object = fc.dictionary(fc.constantFrom('a', 'b', 'c', '9', '__proto__', 'B'), value, { maxKeys: 5 });
  fc.assert(
    fc.property(object, object, (a, b) => {
      expect(Math.sign(compareValues(a, b))).toBe(Math.sign(byProperty(a, b)));
    }),
    { numRuns: 2_000 },
  );
});
