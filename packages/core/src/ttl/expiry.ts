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
