import { describe, expect, it } from 'vitest';
import { RecentRate } from '../src/purge/recent-rate.ts';

describe('a recent rate', () => {
  it('is that of the last minute, and of no less than a second', () => {
    let nowMs = 5_000;
    const rate = new RecentRate(() => nowMs);
    expect(rate.perSecond).toBe(0);
    rate.add(500);
    expect(rate.perSecond).toBe(500);
    nowMs += 500;
    rate.add(500);
    nowMs += 9_500;
    expect(rate.perSecond).toBe(100);
    nowMs += 50_000;
    rate.add(30);
    expect(rate.perSecond).toBe(1_030 / 60);
    nowMs += 1;
    expect(rate.perSecond).toBe(30);
    nowMs += 60_001;
    expect(rate.perSecond).toBe(0);
  });

  it('keeps one count a second, even if nobody asks for years', () => {
    let nowMs = 0;
    const rate = new RecentRate(() => nowMs);
    for (let times = 0; times < 100_000; times += 1) {
      nowMs += 150;
      rate.add(1);
    }
    expect(rate.size).toBeLessThanOrEqual(61);
    expect(rate.perSecond).toBeCloseTo(1_000 / 150, 0);
  });
});
