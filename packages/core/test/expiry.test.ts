import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InvariantViolation } from '@epitaph/core/invariant.ts';
import { expiryOf, firstExpiryMs } from '@epitaph/core/ttl/expiry.ts';
import { policyAt, withPolicy, type PolicyStart, type PolicyTimeline } from '@epitaph/core/ttl/policy-timeline.ts';
import { isExpired, watermarks, type ItemTimes } from '@epitaph/core/ttl/watermarks.ts';

const seed = Number(process.env['EPITAPH_SEED'] ?? 20_261_121);

function timelineOf(policies: readonly (readonly [fromMs: number, defaultTtl: number | null])[]): PolicyTimeline {
  return policies.reduce<PolicyTimeline>(
    (timeline, [fromMs, defaultTtl], index) => withPolicy(timeline, { fromMs, defaultTtl, version: index + 1 }),
    [],
  );
}

/**
 * The definition, applied instant by instant: an item is expired from the first instant at which `_ts + ttl` has passed under the policy in
 * force at that instant. Slow, and shares only `policyAt` with the code that it judges.
 */
function expiredByDefinition(
  item: ItemTimes,
  timeline: PolicyTimeline,
  instants: readonly number[],
  nowMs: number,
): boolean {
  return instants.some((instant) => {
    const policy = instant <= nowMs ? policyAt(timeline, instant) : undefined;
    if (policy === undefined || policy.defaultTtl === null) return false;
    const ttl = item.ttl ?? policy.defaultTtl;
    return ttl !== -1 && (item.ts + ttl) * 1000 <= instant;
  });
}

/** Every instant at which anything can change, one millisecond before it and one after. */
function edgesOf(item: ItemTimes, timeline: PolicyTimeline): number[] {
  const edges = [item.ts * 1000, ...timeline.map((policy) => policy.fromMs)];
  for (const ttl of [item.ttl, ...timeline.map((policy) => policy.defaultTtl)]) {
    if (ttl !== null && ttl > 0) edges.push((item.ts + ttl) * 1000);
  }
  return edges.flatMap((edge) => [edge - 1, edge, edge + 1]).toSorted((left, right) => left - right);
}

/** The first error in the answers about an item, or undefined. */
function disagreement(item: ItemTimes, timeline: PolicyTimeline): string | undefined {
  const edges = edgesOf(item, timeline);
  const expiry = expiryOf(item, timeline);
  const tell = (nowMs: number, what: string) => `${what} ${JSON.stringify({ item, timeline, nowMs, expiry })}`;
  let before = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };
  for (const nowMs of edges) {
    const marks = watermarks(timeline, nowMs);
    const byMarks = isExpired(item, marks);
    const byScan = expiry !== undefined && expiry.expiredAtMs <= nowMs;
    if (byMarks !== byScan) return tell(nowMs, `watermarks say ${byMarks}, the scan ${byScan}:`);
    const byDefinition = expiredByDefinition(item, timeline, edges, nowMs);
    if (byScan !== byDefinition) return tell(nowMs, `the scan says ${byScan}, the definition ${byDefinition}:`);
    if (marks.defaultMs < before.defaultMs || marks.itemMs < before.itemMs) return tell(nowMs, 'a watermark fell:');
    before = marks;
  }
  if (expiry !== undefined) {
    const countdownMs = (item.ts + expiry.ttl) * 1000;
    const policy = timeline.find((candidate) => candidate.version === expiry.policyVersion);
    const sound =
      policyAt(timeline, expiry.expiredAtMs) === policy &&
      expiry.ttl === (item.ttl ?? policy?.defaultTtl) &&
      expiry.rule === (item.ttl === null ? 'container-default' : 'item-ttl') &&
      expiry.byPolicyStart === expiry.expiredAtMs > countdownMs &&
      expiry.expiredAtMs === Math.max(countdownMs, policy?.fromMs ?? Number.NaN);
    if (!sound) return tell(expiry.expiredAtMs, 'the explanation of the expiry is not sound:');
  }
  return undefined;
}

describe('expiry', () => {
  it('is the same by watermarks, by the scan and by definition, for every small timeline and every edge', () => {
    const defaults = [null, -1, 1, 2, 3] as const;
    const starts = [0, 1, 999, 1_000, 1_500, 2_000, 3_001] as const;
    const items = [null, -1, 1, 2, 3].flatMap((ttl) => [0, 1, 2].map((ts) => ({ ts, ttl })));
    let judged = 0;
    const judge = (timeline: PolicyTimeline) => {
      for (const item of items) {
        const wrong = disagreement(item, timeline);
        if (wrong !== undefined) expect.fail(wrong);
        judged += 1;
      }
    };
    for (const first of defaults) {
      judge(timelineOf([[0, first]]));
      for (const second of defaults) {
        for (const [at, secondMs] of starts.entries()) {
          judge(
            timelineOf([
              [0, first],
              [secondMs, second],
            ]),
          );
          for (const third of defaults) {
            for (const thirdMs of starts.slice(at)) {
              judge(
                timelineOf([
                  [0, first],
                  [secondMs, second],
                  [thirdMs, third],
                ]),
              );
            }
          }
        }
      }
    }
    expect(judged).toBe(15 * (5 + 25 * 7 + 125 * 28));
  });

  const defaultTtl = fc.oneof(
    fc.constant(null),
    fc.constant(-1),
    fc.integer({ min: 1, max: 20 }),
    fc.integer({ min: 1, max: 2_147_483_647 }),
  );
  const ownTtl = fc.oneof(
    fc.constant(null),
    fc.constant(-1),
    fc.integer({ min: 1, max: 20 }),
    fc.integer({ min: 1, max: 2_147_483_647 }),
  );
  const gapMs = fc.oneof(
    fc.constant(0),
    fc.constant(1),
    fc.integer({ min: 0, max: 999 }),
    fc.integer({ min: 0, max: 30 }).map((seconds) => seconds * 1000),
    fc.integer({ min: 0, max: 30_000 }),
    fc.integer({ min: 0, max: 2 ** 41 }),
  );
  const ORIGIN_MS = 1_763_722_800_000;
  const policies = fc.array(fc.tuple(gapMs, defaultTtl), { minLength: 1, maxLength: 12 });
  const startingAt = (fromMs: number, gaps: readonly (readonly [number, number | null])[]) => {
    let atMs = fromMs;
    return gaps.map(([gap, ttl]) => [(atMs += gap), ttl] as const);
  };
  /** Written before, during or after the timeline. */
  const item = fc.record({
    ts: fc.integer({ min: -30, max: 60 }).map((seconds) => ORIGIN_MS / 1000 + seconds),
    ttl: ownTtl,
  });

  it(`is the same by watermarks, by the scan and by definition, for random timelines (seed ${seed})`, () => {
    fc.assert(
      fc.property(policies, item, (gaps, times) => {
        const wrong = disagreement(times, timelineOf(startingAt(ORIGIN_MS, gaps)));
        if (wrong !== undefined) throw new Error(wrong);
      }),
      { seed, numRuns: 20_000 },
    );
  });

  it(`is final: no later policy brings an item back, or changes its expiry or the explanation (seed ${seed})`, () => {
    let expired = 0;
    fc.assert(
      fc.property(policies, policies, item, gapMs, (past, future, times, waitMs) => {
        const starts = startingAt(ORIGIN_MS, past);
        const before = timelineOf(starts);
        const nowMs = starts.at(-1)![0] + waitMs;
        if (!isExpired(times, watermarks(before, nowMs))) return;
        expired += 1;
        // Later policies take effect after this instant.
        const after = timelineOf([...starts, ...startingAt(nowMs + 1, future)]);
        expect(expiryOf(times, after)).toEqual(expiryOf(times, before));
        for (const laterMs of [nowMs, ...edgesOf(times, after).filter((edge) => edge > nowMs), 2 ** 52]) {
          expect(isExpired(times, watermarks(after, laterMs))).toBe(true);
        }
      }),
      { seed, numRuns: 10_000 },
    );
    expect(expired).toBeGreaterThan(1_000);
  });

  it(`came first, of several items, to the one written first or the one whose own ttl ended first (seed ${seed})`, () => {
    fc.assert(
      fc.property(policies, fc.array(item, { maxLength: 6 }), gapMs, (gaps, items, waitMs) => {
        const starts = startingAt(ORIGIN_MS, gaps);
        const timeline = timelineOf(starts);
        const marks = watermarks(timeline, starts.at(-1)![0] + waitMs);
        const expired = items.filter((times) => isExpired(times, marks));
        const least = (times: readonly number[]) => (times.length === 0 ? null : Math.min(...times));
        const first = {
          oldestTs: least(expired.flatMap(({ ts, ttl }) => (ttl === null ? ts : []))),
          oldestDue: least(expired.flatMap(({ ts, ttl }) => (ttl === null ? [] : ts + ttl))),
        };
        const expiries = expired.map((times) => expiryOf(times, timeline)!.expiredAtMs);
        expect(firstExpiryMs(first, timeline)).toBe(least(expiries));
      }),
      { seed, numRuns: 10_000 },
    );
  });

  it('does not depend on policies that have not started', () => {
    const timeline = timelineOf([
      [0, null],
      [5_000, 1],
    ]);
    expect(watermarks(timeline, 4_999)).toEqual({ defaultMs: -Infinity, itemMs: -Infinity });
    expect(watermarks(timeline, 5_000)).toEqual({ defaultMs: 4_000, itemMs: 5_000 });
    expect(watermarks(timeline, -1)).toEqual({ defaultMs: -Infinity, itemMs: -Infinity });
  });

  it('comes to an item whose countdown ended while the TTL was off at the instant at which the TTL is turned on again', () => {
    const timeline = timelineOf([
      [0, 10],
      [5_000, null],
      [60_500, -1],
      [70_000, 10],
    ]);
    expect(expiryOf({ ts: 0, ttl: 20 }, timeline)).toMatchObject({
      expiredAtMs: 60_500,
      policyVersion: 3,
      byPolicyStart: true,
    });
    expect(expiryOf({ ts: 0, ttl: null }, timeline)).toMatchObject({
      expiredAtMs: 70_000,
      policyVersion: 4,
      byPolicyStart: true,
    });
  });

  it('by a policy is possible until one millisecond before the next begins', () => {
    const early: ItemTimes = { ts: 0, ttl: null };
    expect(
      expiryOf(
        early,
        timelineOf([
          [0, 10],
          [10_000, null],
        ]),
      ),
    ).toBe(undefined);
    expect(
      isExpired(
        early,
        watermarks(
          timelineOf([
            [0, 10],
            [10_000, null],
          ]),
          20_000,
        ),
      ),
    ).toBe(false);
    expect(
      expiryOf(
        early,
        timelineOf([
          [0, 10],
          [10_001, null],
        ]),
      )?.expiredAtMs,
    ).toBe(10_000);
    expect(
      isExpired(
        early,
        watermarks(
          timelineOf([
            [0, 10],
            [10_001, null],
          ]),
          20_000,
        ),
      ),
    ).toBe(true);
  });

  it('is exact for an item written at the latest second with the longest ttl', () => {
    const late: ItemTimes = { ts: 253_402_300_799, ttl: 2_147_483_647 };
    const timeline = timelineOf([[0, -1]]);
    const deadlineMs = 255_549_784_446_000;
    expect(expiryOf(late, timeline)?.expiredAtMs).toBe(deadlineMs);
    expect(isExpired(late, watermarks(timeline, deadlineMs - 1))).toBe(false);
    expect(isExpired(late, watermarks(timeline, deadlineMs))).toBe(true);
  });
});

describe('a timeline of thousands of policies', () => {
  const policies = Array.from({ length: 4_000 }, (_, index) => [index * 1_000, 60 + (index % 7)] as const);
  /** A timeline, and a function that tells how many of its policies were read since its last call. */
  function watched(): { readonly timeline: PolicyTimeline; readonly looks: () => number } {
    let count = 0;
    const timeline = new Proxy(timelineOf(policies), {
      get(target, name): unknown {
        if (typeof name === 'string' && /^\d+$/.test(name)) count += 1;
        return Reflect.get(target, name);
      },
    });
    return {
      timeline,
      looks: () => {
        const looked = count;
        count = 0;
        return looked;
      },
    };
  }

  it('is not read again for the watermarks of each reader', () => {
    const { timeline, looks } = watched();
    watermarks(timeline, 5_000_000);
    looks();
    for (let nowMs = 5_000_000; nowMs < 5_000_100; nowMs++) watermarks(timeline, nowMs);
    expect(looks()).toBeLessThanOrEqual(200);
  });

  it('is read from the time of the write on to find an item’s expiry', () => {
    const { timeline, looks } = watched();
    expect(expiryOf({ ts: 3_800, ttl: null }, timeline)?.expiredAtMs).toBe(3_864_000);
    expect(looks()).toBeLessThan(300);
  });
});

describe('a policy timeline', () => {
  const first: PolicyStart = { fromMs: 5, defaultTtl: 1, version: 1 };
  it('leaves out a policy that was replaced within its own millisecond', () => {
    expect(withPolicy([first], { fromMs: 5, defaultTtl: null, version: 2 })).toEqual([
      { fromMs: 5, defaultTtl: null, version: 2 },
    ]);
  });
  it('accepts policies only in order', () => {
    expect(() => withPolicy([first], { fromMs: 4, defaultTtl: null, version: 2 })).toThrow(InvariantViolation);
    expect(() => withPolicy([first], { fromMs: 6, defaultTtl: null, version: 1 })).toThrow(InvariantViolation);
  });
  it('tells which policy is in force at an instant, from its first millisecond on', () => {
    const second: PolicyStart = { fromMs: 10, defaultTtl: null, version: 2 };
    expect([4, 5, 9, 10, 11].map((atMs) => policyAt([first, second], atMs)?.version)).toEqual([undefined, 1, 1, 2, 2]);
  });
});
