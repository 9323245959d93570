import { type PolicyTimeline, policyIntervals } from './policy-timeline.ts';
import type { ItemTimes } from './watermarks.ts';

/** When and by which rule an item expires. */
export interface Expiry {
  /** The first instant at which the item is expired, in milliseconds since the epoch. */
  readonly expiredAtMs: number;
  readonly rule: 'container-default' | 'item-ttl';
  /** The TTL that applied, in seconds: the item's own or the container's default. */
  readonly ttl: number;
  readonly policyVersion: number;
  /**
   * True if the item expired by the start of the policy and not by its own countdown: its TTL had run out before the
   * policy came into force. Such an item is hidden at once and erased only after the policy grace.
   */
  readonly byPolicyStart: boolean;
}

/**
 * When the first of some items expires, in milliseconds. Null if none ever does. It is enough to look at the oldest
 * ones: an item that was written later, or whose own ttl runs out later, never expires earlier.
 *
 * @param oldestTs smallest `_ts` of the items without a ttl of their own, in seconds; null if there are none
 * @param oldestDue smallest `_ts + ttl` of the items with one; null if there are none
 */
export function firstExpiryMs(
  { oldestTs, oldestDue }: { readonly oldestTs: number | null; readonly oldestDue: number | null },
  timeline: PolicyTimeline,
): number | null {
  const first = [
    ...(oldestTs === null ? [] : [{ ts: oldestTs, ttl: null }]),
    // Only the sum matters, so any ttl will do.
    ...(oldestDue === null ? [] : [{ ts: oldestDue - 1, ttl: 1 }]),
  ].flatMap((times) => expiryOf(times, timeline)?.expiredAtMs ?? []);
  return first.length === 0 ? null : Math.min(...first);
}

/**
 * The definition of expiry: the earliest instant, over all intervals of the container's TTL history, at which the
 * countdown from the last write had run out while a TTL was in force. Undefined if that never happens under the
 * recorded policies.
 *
 * Explanations and history use this scan, and tests check the {@link watermarks} against it.
 */
export function expiryOf(item: ItemTimes, timeline: PolicyTimeline): Expiry | undefined {
  // Intervals that ended before the item was written can't have made it expire.
  for (const interval of policyIntervals(timeline, item.ts * 1000)) {
    if (interval.defaultTtl === null) continue;
    const ttl = item.ttl ?? interval.defaultTtl;
    if (ttl <= 0) continue;
    const countdownMs = (item.ts + ttl) * 1000;
    const expiredAtMs = Math.max(interval.startMs, countdownMs);
    // The intervals are in order, so the first one with an expiry has the earliest.
    if (expiredAtMs < interval.endMs) {
      return {
        expiredAtMs,
        rule: item.ttl === null ? 'container-default' : 'item-ttl',
        ttl,
        policyVersion: interval.version,
        byPolicyStart: interval.startMs > countdownMs,
      };
    }
  }
  return undefined;
}
