import { expect, test } from 'vitest';
import { Pace, TURN_MS, Turns } from '@epitaph/core/turn.ts';

test('long works side by side go on one at a time, in order, with everything else in between', async () => {
  const turns = new Turns();
  const steps: string[] = [];
  const work = async (name: string) => {
    for (let step = 0; step < 3; step += 1) {
      await turns.next();
      steps.push(name);
    }
  };
  let isRunning = true;
  const other = (): void => {
    steps.push('-');
    if (isRunning) setImmediate(other);
  };
  setImmediate(other);
  await Promise.all([work('a'), work('b'), work('c')]);
  isRunning = false;
  const order = steps.filter((step) => step !== '-');
  expect(order.join('')).toBe('abcabcabc');
  // Between two of them there was always a turn of the event loop.
  expect(steps.join('')).not.toMatch(/[abc]{2}/);
});

test('a paced work goes on while its turn lasts, and two of them never without everybody else in between', async () => {
  const spend = (milliseconds: number) => {
    const untilMs = performance.now() + milliseconds;
    while (performance.now() < untilMs);
  };
  const pace = new Pace();
  expect(pace.step()).toBe(undefined);
  let others = 0;
  const other = setInterval(() => (others += 1), 0);
  const work = async () => {
    const own = new Pace();
    for (let step = 0; step < 5; step += 1) {
      spend(TURN_MS + 1);
      const before = others;
      await own.step();
      expect(others).toBeGreaterThan(before);
    }
  };
  await Promise.all([work(), work()]);
  clearInterval(other);
});
