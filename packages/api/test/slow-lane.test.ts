import { expect, it } from 'vitest';
import { SlowLane } from '@epitaph/api/store/slow-lane.ts';

it('runs one piece of work at a time, and pauses after it for as long as it took', async () => {
  const lane = new SlowLane(() => 0);
  await lane.begin();
  const order: string[] = [];
  const given = new AbortController();
  const third = lane.begin(given.signal).catch(() => order.push('given up'));
  const second = lane.begin().then(() => order.push('second'));
  given.abort();
  await third;
  const startedMs = performance.now();
  lane.ended(50);
  await second;
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(49);
  expect(order).toEqual(['given up', 'second']);
});
