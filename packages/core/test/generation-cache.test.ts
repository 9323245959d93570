import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';

const seed = Number(process.env['EPITAPH_SEED'] ?? 20_261_125);

const key = fc.integer({ min: 0, max: 7 });
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant('set' as const), key, weight: fc.integer({ min: 0, max: 5 }) }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('get' as const), key }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('delete' as const), key }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('clear' as const) }) },
);

describe('a cache of two generations', () => {
  it(`returns the last value for a key or nothing, and never a removed one (seed ${seed})`, () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), fc.boolean(), (steps, isWeighed) => {
        const cache = isWeighed
          ? new GenerationCache<number, { readonly weight: number }>(12, ({ weight }) => weight)
          : new GenerationCache<number, { readonly weight: number }>(6);
        const last = new Map<number, object>();
        for (const one of steps) {
          if (one.kind === 'set') {
            const value = { weight: one.weight };
            cache.set(one.key, value);
            last.set(one.key, value);
          } else if (one.kind === 'get') {
            const found = cache.get(one.key);
            if (found !== undefined) expect(found).toBe(last.get(one.key));
          } else if (one.kind === 'delete') {
            cache.delete(one.key);
            last.delete(one.key);
          } else {
            cache.clear();
            last.clear();
          }
        }
      }),
      { seed, numRuns: 2_000 },
    );
  });

  it('keeps entries that are used, and drops others', () => {
    const cache = new GenerationCache<number, string>(10);
    cache.set(0, 'used');
    cache.set(1, 'forgotten');
    for (let number = 2; number < 100; number++) {
      cache.set(number, 'new');
      expect(cache.get(0)).toBe('used');
    }
    expect(cache.get(1)).toBe(undefined);
    expect(cache.get(99)).toBe('new');
  });

  it('holds no more than its limit by weight, and counts a replaced entry once', () => {
    const cache = new GenerationCache<number, string>(100, (text) => text.length);
    const kept = () =>
      Array.from({ length: 50 }, (_, number) => cache.get(number)).filter((text) => text !== undefined);
    for (let time = 0; time < 20; time++) cache.set(1, 'x'.repeat(10));
    for (let number = 2; number < 6; number++) cache.set(number, 'x'.repeat(10));
    expect(kept()).toHaveLength(5);
    for (let number = 0; number < 50; number++) cache.set(number, 'x'.repeat(10));
    expect(kept().length).toBeLessThanOrEqual(11);
    expect(kept().length).toBeGreaterThanOrEqual(5);
  });
});
