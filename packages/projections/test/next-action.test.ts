import { expect, it } from 'vitest';
import { nextAction } from '../src/purge/next-action.ts';

it('the purge works on what there is, completes when nothing is left, and waits first of all while it may not work', () => {
  for (const overdue of [0, 1, 300]) {
    for (const erasable of [0, 1, 300]) {
      const isNothing = overdue + erasable === 0;
      expect(nextAction({ allowed: 'yes', overdue, erasable })).toBe(isNothing ? 'complete' : 'work');
      for (const allowed of ['paused', 'clock-held', 'stopping'] as const) {
        expect(nextAction({ allowed, overdue, erasable })).toBe('wait');
      }
    }
  }
});
