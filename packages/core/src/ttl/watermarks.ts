import type { PolicyTimeline } from './policy-timeline.ts';

/**
 * The two numbers that a container's whole TTL history comes down to. Both only grow with time, so an expired item
 * stays expired whatever policy follows.
 */
export interface Watermarks {
  /** Milliseconds. An item without a `ttl` of its own is expired iff its `_ts` (in ms) is at or before it. */
  readonly defaultMs: number;
  /** Milliseconds. An item with `ttl` = m > 0 is expired iff `_ts` + m (in ms) is at or before it. */
  readonly itemMs: number;
}

/** The watermarks just before the last policy, for each timeline. They don't change any more once the last policy has started. */
const ended = new WeakMap<PolicyTimeline, Watermarks>();

/**
 * The watermarks at an instant, over the policies that have started by then. O(number of policies), however many items
 * there are. O(1) from the second call on, once the timeline's last policy has started.
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

/** For an instant before the last policy starts, so that every policy that has started is followed by another. */
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
 * The watermarks in whole seconds, like `ts` and `ts + ttl` in the read models: an item at or before its bound is
 * expired. -1 stands for a watermark that no item is at or before.
 */
export function secondBounds({ defaultMs, itemMs }: Watermarks): [ts: number, due: number] {
  return [wholeSeconds(defaultMs), wholeSeconds(itemMs)];
}

function wholeSeconds(milliseconds: number): number {
  return milliseconds === Number.NEGATIVE_INFINITY ? -1 : Math.max(-1, Math.floor(milliseconds / 1000));
}

/** The properties of an item that expiry depends on: `_ts` in seconds, and the item's own readable `ttl`, null for none. */
export interface ItemTimes {
  readonly ts: number;
  readonly ttl: number | null;
}

/** Whether an item is expired under these watermarks. All reads use this rule, which takes two comparisons. */
export function isExpired(item: ItemTimes, marks: Watermarks): boolean {
  if (item.ttl === null) return item.ts * 1000 <= marks.defaultMs;
  return item.ttl > 0 && (item.ts + item.ttl) * 1000 <= marks.itemMs;
}
