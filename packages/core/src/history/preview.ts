import type { PolicyTimeline } from '../ttl/policy-timeline.ts';
import type { DefaultTtl } from '../ttl/ttl-value.ts';
import { type ItemTimes, secondBounds, type Watermarks, watermarks } from '../ttl/watermarks.ts';

/** A TTL policy that a user considers. */
export interface ProposedPolicy {
  readonly defaultTtl: DefaultTtl;
  /** When it would take effect, in milliseconds: now, or later if it is to be scheduled. */
  readonly effectiveFromMs: number;
}

/**
 * The items whose time lies in a span, in whole seconds: after `after`, up to and including `upTo`. The time of an item
 * without a ttl of its own is `_ts`, that of another is `_ts + ttl`. Items whose own ttl is -1 are in no span.
 */
export interface TimeSpan {
  readonly by: 'default' | 'own';
  readonly after: number;
  readonly upTo: number;
  /** Only items whose last write is later than this `_ts`. */
  readonly writtenAfter?: number;
}

/** True for an item whose times lie in a span. */
export function isWithin({ ts, ttl }: ItemTimes, { by, after, upTo, writtenAfter = -1 }: TimeSpan): boolean {
  if ((by === 'default') !== (ttl === null) || ttl === -1 || ts <= writtenAfter) return false;
  const time = ts + (ttl ?? 0);
  return time > after && time <= upTo;
}

/** How far each bar of the preview's histogram reaches after the policy's start, in seconds. The last bar has no end. */
export const HISTOGRAM_SECONDS = [
  3_600,
  86_400,
  7 * 86_400,
  30 * 86_400,
  90 * 86_400,
  365 * 86_400,
  5 * 365 * 86_400,
  Number.POSITIVE_INFINITY,
] as const;

/** The spans of times that a proposed policy affects in different ways. The preview is the number of items in them. */
export interface PreviewSpans {
  /** Items that are visible when the policy takes effect, and that it makes expire at once. */
  readonly atOnce: readonly TimeSpan[];
  /** For each bar of {@link HISTOGRAM_SECONDS}, the items that would expire within it. */
  readonly later: readonly (readonly TimeSpan[])[];
  /** Items that would never expire under the policy, besides those whose own ttl is -1. */
  readonly never: readonly TimeSpan[];
  /** The watermarks when the policy takes effect: under the recorded policies, and under the proposed one. */
  readonly before: Watermarks;
  readonly after: Watermarks;
}

/**
 * What a proposed policy would do with items, by their times alone. It moves the two watermarks from where the recorded
 * policies put them to where it puts them itself, and items in between expire at once.
 *
 * The recorded policies end one millisecond before the proposed one starts. So for an item whose countdown ends exactly
 * at its start, the proposed policy decides.
 *
 * @param toldMs up to when clients were told what has expired, in milliseconds; no policy brings that back
 */
export function previewSpans(
  timeline: PolicyTimeline,
  { defaultTtl, effectiveFromMs }: ProposedPolicy,
  toldMs = Number.NEGATIVE_INFINITY,
): PreviewSpans {
  const before = watermarks(timeline, Math.max(effectiveFromMs - 1, toldMs));
  const kept = timeline.filter(({ fromMs }) => fromMs < effectiveFromMs);
  const version = (timeline.at(-1)?.version ?? 0) + 1;
  const proposed = watermarks([...kept, { fromMs: effectiveFromMs, defaultTtl, version }], effectiveFromMs);
  // Expired items stay expired: the millisecond between two policies must not seem to bring anything back.
  const after = {
    defaultMs: Math.max(before.defaultMs, proposed.defaultMs),
    itemMs: Math.max(before.itemMs, proposed.itemMs),
  };
  const [beforeDefault, beforeOwn] = secondBounds(before);
  const [afterDefault, afterOwn] = secondBounds(after);
  const later: TimeSpan[][] = HISTOGRAM_SECONDS.map(() => []);
  const never: TimeSpan[] = [];
  if (defaultTtl !== null) bars(later, 'own', afterOwn, 0, effectiveFromMs);
  else never.push({ by: 'own', after: afterOwn, upTo: Number.POSITIVE_INFINITY });
  if (defaultTtl !== null && defaultTtl > 0) bars(later, 'default', afterDefault, defaultTtl, effectiveFromMs);
  else never.push({ by: 'default', after: afterDefault, upTo: Number.POSITIVE_INFINITY });
  return {
    atOnce: [
      { by: 'default', after: beforeDefault, upTo: afterDefault },
      { by: 'own', after: beforeOwn, upTo: afterOwn },
    ],
    later,
    never,
    before,
    after,
  };
}

/** Divides everything after a watermark among the histogram's bars. */
function bars(later: TimeSpan[][], by: TimeSpan['by'], from: number, ttl: number, effectiveFromMs: number): void {
  let after = from;
  HISTOGRAM_SECONDS.forEach((bar, index) => {
    const upTo = Math.max(after, Math.floor(effectiveFromMs / 1000) + bar - ttl);
    later[index]!.push({ by, after, upTo });
    after = upTo;
  });
}
