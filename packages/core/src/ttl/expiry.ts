import { type PolicyTimeline, policyIntervals } from './policy-timeline.ts';
import type { ItemTimes } from './watermarks.ts';

/** When and by which rule an item expires. */
export interface Expiry {
  /** The first instant at which the item is expired, in milliseconds since the epoch. */
  readonly expiredAtMs: number;
  readonly rule: 'container-default' | 'item-ttl';
  /** The TTL that won, in seconds: the item's own or the container's default. */
  readonly ttl: number;
  readonly policyVersion: number;
  /**
   * True when the policy's start made the item expire and not the item's own countdown: its TTL had run out
   * before the policy came into force. Such an item is hidden at once and erased only after the policy grace.
   */
  readonly byPolicyStart: boolean;
}

/**
 * When the first of some items expired, in milliseconds; null for none that ever does. Who was written later never
 * expires earlier, nor does one whose own ttl runs out later.
 *
 * @param oldestTs smallest `_ts` of those without a ttl of their own, in seconds; null for none
 * @param oldestDue smallest `_ts + ttl` of those with one
 */
export function firstExpiryMs(
  { oldestTs, oldestDue }: { readonly oldestTs: number | null; readonly oldestDue: number | null },
  timeline: PolicyTimeline,
): number | null {
  const first = [
    ...(oldestTs === null ? [] : [{ ts: oldestTs, ttl: null }]),
    // Any ttl that runs out then.
    ...(oldestDue === null ? [] : [{ ts: oldestDue - 1, ttl: 1 }]),
  ].flatMap((times) => expiryOf(times, timeline)?.expiredAtMs ?? []);
  return first.length === 0 ? null : Math.min(...first);
}

/**
 * The definition of expiry: the earliest instant, over all intervals of the container's TTL history, at which
 * the countdown from the last write had run out while a TTL was in force. Returns undefined when that never happens
 * under the policies on record.
 *
 * This scan is what history answers with, and the oracle by which the {@link watermarks} are judged.
 */
export function expiryOf(item: ItemTimes, timeline: PolicyTimeline): Expiry | undefined {
  // One that had ended when the item was written can't have been there when a countdown ran out.
  for (const interval of policyIntervals(timeline, item.ts * 1000)) {
    if (interval.defaultTtl === null) continue;
    const ttl = item.ttl ?? interval.defaultTtl;
    if (ttl <= 0) continue;
    const countdownMs = (item.ts + ttl) * 1000;
    const expiredAtMs = Math.max(interval.startMs, countdownMs);
    // The intervals are in order, so the first that answers has the smallest instant.
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
