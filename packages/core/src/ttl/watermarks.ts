import type { PolicyTimeline } from './policy-timeline.ts';

/**
 * The two numbers into which a container's whole TTL history collapses. Both only grow with time, so what has
 * expired stays so whatever policy follows.
 */
export interface Watermarks {
  /** Milliseconds. An item without a `ttl` of its own is expired iff its `_ts` (in ms) is at or before it. */
  readonly defaultMs: number;
  /** Milliseconds. An item with `ttl` = m > 0 is expired iff `_ts` + m (in ms) is at or before it. */
  readonly itemMs: number;
}

/** What all policies but the last have come to, by the timeline: once that one has started it stays as it is. */
const ended = new WeakMap<PolicyTimeline, Watermarks>();

/**
 * The watermarks at an instant, over the policies that have started by then. O(number of policies), whatever
 * the container holds; O(1) from the second time on that a timeline is asked after its last policy has started.
 */
export function watermarks(timeline: PolicyTimeline, nowMs: number): Watermarks {
  const last = timeline.at(-1);
  if (last === undefined || last.fromMs > nowMs) return scanned(timeline, nowMs);
  let before = ended.get(timeline);
  if (before === undefined) ended.set(timeline, (before = scanned(timeline, last.fromMs - 1)));
  const { defaultTtl } = last;
  if (defaultTtl === null) return before;
  return {
    defaultMs: defaultTtl > 0 ? Math.max(before.defaultMs, nowMs - defaultTtl * 1000) : before.defaultMs,
    itemMs: Math.max(before.itemMs, nowMs),
  };
}

/** For an instant before the last policy starts: each that has started by then is followed by another. */
function scanned(timeline: PolicyTimeline, nowMs: number): Watermarks {
  let defaultMs = Number.NEGATIVE_INFINITY;
  let itemMs = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < timeline.length; index++) {
    const policy = timeline[index]!;
    if (policy.fromMs > nowMs) break;
    if (policy.defaultTtl === null) continue;
    // An interval's end is exclusive: at millisecond resolution its last instant is one millisecond before it.
    const lastMs = Math.min(nowMs, timeline[index + 1]!.fromMs - 1);
    itemMs = Math.max(itemMs, lastMs);
    if (policy.defaultTtl > 0) defaultMs = Math.max(defaultMs, lastMs - policy.defaultTtl * 1000);
  }
  return { defaultMs, itemMs };
}

/**
 * The watermarks in whole seconds, as read models keep `ts` and `ts + ttl`: an item at or before its bound is expired.
 * -1 stands for a watermark that no item is at or before.
 */
export function secondBounds({ defaultMs, itemMs }: Watermarks): [ts: number, due: number] {
  return [wholeSeconds(defaultMs), wholeSeconds(itemMs)];
}

function wholeSeconds(milliseconds: number): number {
  return milliseconds === Number.NEGATIVE_INFINITY ? -1 : Math.max(-1, Math.floor(milliseconds / 1000));
}

/** What expiry looks at in an item: `_ts` in seconds and the item's own readable `ttl`, null for none. */
export interface ItemTimes {
  readonly ts: number;
  readonly ttl: number | null;
}

/** The rule everybody uses: is an item expired under these watermarks? Two comparisons. */
export function isExpired(item: ItemTimes, marks: Watermarks): boolean {
  if (item.ttl === null) return item.ts * 1000 <= marks.defaultMs;
  return item.ttl > 0 && (item.ts + item.ttl) * 1000 <= marks.itemMs;
}
