import { describe, expect, it } from 'vitest';
import { simulate } from './simulation.ts';

/** Seeds of the run in CI; 10,000 others before a release: `npm run simulate -- --seed 1 --count 10000`. */
const SEEDS = 200;
const PER_TEST = 25;

describe('the store agrees with the model', () => {
  for (let first = 1; first <= SEEDS; first += PER_TEST) {
    const last = first + PER_TEST - 1;
    it(`through random commands, crashes, faults and leaping clocks of the seeds ${first} to ${last}`, async () => {
      for (let seed = first; seed <= last; seed++) await simulate(seed);
    }, 120_000);
  }

  it('repeats itself: the same seed does the same', async () => {
    const [one, two] = [await simulate(7), await simulate(7)];
    expect(two).toEqual(one);
  });
});
