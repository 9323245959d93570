import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { CommonClock } from '@epitaph/api/store/common-clock.ts';
import type { SeveralNodes } from '@epitaph/api/store/parts.ts';
import { GuardedClock } from '@epitaph/core/clock.ts';

const START_MS = 1_763_722_800_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A node whose clock is ahead of the common clock, which takes a while to answer. */
async function started({ tookMs = 0, aheadMs = 0 } = {}) {
  const machine = { aheadMs, monotonic: 0, isAway: false, looks: 0, answers: Promise.resolve() };
  const pass = (ms: number) => {
    machine.monotonic += ms;
  };
  const commonMs = () => START_MS + machine.monotonic;
  const clock = new GuardedClock({
    sources: { wallMs: () => commonMs() + machine.aheadMs, monotonicMs: () => machine.monotonic },
    mark: { initialMs: 0, save: () => {} },
    mayDifferMs: 500,
  });
  const ask = async () => {
    machine.looks += 1;
    if (machine.isAway) throw new Error('PostgreSQL is away');
    const answer = commonMs();
    pass(tookMs);
    await machine.answers;
    return answer;
  };
  const common = new CommonClock(clock, { commonMs: ask } as unknown as SeveralNodes, () => machine.monotonic);
  await common.start();
  const second = async () => {
    pass(1_000);
    await vi.advanceTimersByTimeAsync(1_000);
  };
  return { machine, clock, common, second };
}

it("a node's clock is compared with the common one again and again, also after that was away", async () => {
  const { machine, clock, common, second } = await started();
  expect(clock.jump()).toBe(undefined);
  machine.aheadMs = 3_000;
  machine.isAway = true;
  for (let times = 0; times < 3; times++) await second();
  expect(clock.jump(), 'nothing is said against it').toBe(undefined);
  machine.isAway = false;
  await second();
  expect(clock.jump()?.reason).toBe('clocks-differ');
  machine.aheadMs = 0;
  await second();
  expect(clock.jump()).toBe(undefined);
  common.stop();
});

it('a right clock is not held however long the answer takes, and one with a larger difference is', async () => {
  const right = await started({ tookMs: 4_000 });
  expect(right.clock.jump()).toBe(undefined);
  right.common.stop();
  const wrong = await started({ tookMs: 4_000, aheadMs: 600 });
  expect(wrong.clock.jump()?.reason).toBe('clocks-differ');
  wrong.common.stop();
});

it('after a stop nobody looks any more, and a look in progress has no effect', async () => {
  const { machine, clock, common, second } = await started();
  const { promise, resolve: answer } = Promise.withResolvers<void>();
  machine.answers = promise;
  machine.aheadMs = 3_000;
  await second();
  expect(machine.looks).toBe(2);
  common.stop();
  answer();
  await second();
  expect(machine.looks).toBe(2);
  expect(clock.jump()).toBe(undefined);
});
