import { expect, test } from 'vitest';
import { gathered, Pace, turn, TURN_MS, Turns } from '@epitaph/core/turn.ts';

test('concurrent long operations continue one at a time, in order, with all other work in between', async () => {
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
  // A turn of the event loop came between any two of them.
  expect(steps.join('')).not.toMatch(/[abc]{2}/);
});

test('operations begun in one turn of the event loop continue together, and later ones in the next turn', async () => {
  const steps: string[] = [];
  const work = async (name: string) => {
    steps.push(`${name} came`);
    await gathered();
    steps.push(`${name} 1`);
    await Promise.resolve();
    steps.push(`${name} 2`);
  };
  const first = work('a');
  // In the same turn, but a step later.
  await Promise.resolve();
  const second = work('b');
  await Promise.all([first, second, turn().then(() => work('c'))]);
  expect(steps).toEqual(['a came', 'b came', 'a 1', 'b 1', 'a 2', 'b 2', 'c came', 'c 1', 'c 2']);
});

test('paced work continues while its turn lasts, and all other work gets a turn in between, even with two of them', async () => {
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
