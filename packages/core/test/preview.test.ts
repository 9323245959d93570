import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HISTOGRAM_SECONDS, isWithin, previewSpans, type TimeSpan } from '@epitaph/core/history/preview.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import { withPolicy, type PolicyStart } from '@epitaph/core/ttl/policy-timeline.ts';
import type { ItemTimes } from '@epitaph/core/ttl/watermarks.ts';

const seed = Number(process.env['EPITAPH_SEED'] ?? 20_261_121);

const ttl = fc.oneof(fc.constant(null), fc.constant(-1), fc.integer({ min: 1, max: 20 }), fc.constant(100_000));
const item: fc.Arbitrary<ItemTimes> = fc.record({ ts: fc.integer({ min: 0, max: 60 }), ttl });
/** Often whole seconds, like deadlines. */
const spanMs = (max: number) =>
  fc.oneof(
    fc.integer({ min: 1, max }),
    fc.integer({ min: 1, max: max / 1000 }).map((seconds) => seconds * 1000),
  );
const timeline = fc
  .array(fc.record({ afterMs: spanMs(20_000), defaultTtl: ttl }), { minLength: 1, maxLength: 5 })
  .map((policies) => {
    let fromMs = 0;
    return policies.reduce<readonly PolicyStart[]>((before, { afterMs, defaultTtl }, index) => {
      const next = withPolicy(before, { fromMs, defaultTtl, version: index + 1 });
      fromMs += afterMs;
      return next;
    }, []);
  });

const within = ({ ts, ttl: own }: ItemTimes, { by, after, upTo }: TimeSpan): boolean => {
  const time = by === 'default' ? (own === null ? ts : undefined) : own !== null && own > 0 ? ts + own : undefined;
  return time !== undefined && time > after && time <= upTo;
};

describe('the preview of a TTL policy', () => {
  it('predicts for every item what the policy will do with it', () => {
    fc.assert(
      fc.property(timeline, item, ttl, spanMs(40_000), fc.boolean(), (policies, times, defaultTtl, laterMs, isTold) => {
        const effectiveFromMs = policies.at(-1)!.fromMs + laterMs;
        fc.pre(times.ts * 1000 <= effectiveFromMs);
        const toldMs = isTold ? effectiveFromMs : effectiveFromMs - 1;
        const spans = previewSpans(policies, { defaultTtl, effectiveFromMs }, toldMs);
        const before = expiryOf(times, policies);
        const then = withPolicy(policies, { fromMs: effectiveFromMs, defaultTtl, version: 99 });
        const after = expiryOf(times, then);
        const gone = before !== undefined && before.expiredAtMs <= toldMs;
        const atOnce = !gone && after !== undefined && after.expiredAtMs <= effectiveFromMs;
        expect(spans.atOnce.some((span) => within(times, span))).toBe(atOnce);
        const bar = spans.later.findIndex((parts) => parts.some((span) => within(times, span)));
        expect(spans.later.filter((parts) => parts.some((span) => within(times, span))).length).toBe(bar < 0 ? 0 : 1);
        const never = spans.never.some((span) => within(times, span));
        if (gone || atOnce) {
          expect([bar, never]).toEqual([-1, false]);
        } else if (after === undefined) {
          expect(bar).toBe(-1);
          // An own ttl of -1 is within no span.
          expect(never).toBe(times.ttl !== -1);
        } else {
          const seconds = (after.expiredAtMs - Math.floor(effectiveFromMs / 1000) * 1000) / 1000;
          expect(bar).toBe(HISTOGRAM_SECONDS.findIndex((end) => seconds <= end));
          expect(never).toBe(false);
        }
      }),
      { seed, numRuns: 5_000 },
    );
  });

  it('has in each bar the items that expire up to its last second', () => {
    const second = 1_000_000;
    const barOf = (defaultTtl: number, times: ItemTimes, effectiveFromMs: number) =>
      previewSpans([{ fromMs: 0, defaultTtl: null, version: 1 }], { defaultTtl, effectiveFromMs }).later.findIndex(
        (spans) => spans.some((span) => within(times, span)),
      );
    for (const effectiveFromMs of [second * 1000, second * 1000 + 500]) {
      expect(barOf(1, { ts: second, ttl: null }, effectiveFromMs)).toBe(0);
      HISTOGRAM_SECONDS.slice(0, -1).forEach((end, bar) => {
        for (const [defaultTtl, own] of [
          [end, null],
          [-1, end],
        ] as const) {
          expect(barOf(defaultTtl, { ts: second, ttl: own }, effectiveFromMs)).toBe(bar);
        }
        expect(barOf(end + 1, { ts: second, ttl: null }, effectiveFromMs)).toBe(bar + 1);
        expect(barOf(-1, { ts: second, ttl: end + 1 }, effectiveFromMs)).toBe(bar + 1);
      });
    }
  });

  it('judges single items as it counts them, and leaves out those written too early', () => {
    const spans = (['default', 'own'] as const).flatMap((by) =>
      [-1, 0, 1, 2, 3].flatMap((after) => [0, 1, 2, 3, Infinity].map((upTo) => ({ by, after, upTo }))),
    );
    for (const own of [null, -1, 1, 2]) {
      for (const ts of [0, 1, 2]) {
        for (const span of spans) {
          const judged = { ts, ttl: own };
          expect(isWithin(judged, span)).toBe(within(judged, span));
          expect(isWithin(judged, { ...span, writtenAfter: ts - 1 })).toBe(within(judged, span));
          expect(isWithin(judged, { ...span, writtenAfter: ts })).toBe(false);
        }
      }
    }
  });
});
