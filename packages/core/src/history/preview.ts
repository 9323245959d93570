import type { PolicyTimeline } from '../ttl/policy-timeline.ts';
import type { DefaultTtl } from '../ttl/ttl-value.ts';
import { type ItemTimes, secondBounds, type Watermarks, watermarks } from '../ttl/watermarks.ts';

/** A TTL policy that somebody thinks of. */
export interface ProposedPolicy {
  readonly defaultTtl: DefaultTtl;
  /** When it would take effect, in milliseconds: now, or later for one that is to be scheduled. */
  readonly effectiveFromMs: number;
}

/**
 * Items within a span of times, whole seconds: those without a ttl of their own by `_ts`, the others by `_ts + ttl`.
 * After `after`, up to and with `upTo`. Items whose own ttl is -1 are in none.
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

/** Until when after the policy's start a bar of the preview's histogram reaches, in seconds. The last has no end. */
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

/** Which spans of times a proposed policy would do what with. Counting them is the preview. */
export interface PreviewSpans {
  /** Visible when the policy takes effect, and expired by it at once. */
  readonly atOnce: readonly TimeSpan[];
  /** For each bar of {@link HISTOGRAM_SECONDS} what would expire within it. */
  readonly later: readonly (readonly TimeSpan[])[];
  /** What would never expire under the policy, besides items whose own ttl is -1. */
  readonly never: readonly TimeSpan[];
  /** The watermarks under the policies on record and under the proposed one, when it takes effect. */
  readonly before: Watermarks;
  readonly after: Watermarks;
}

/**
 * What a proposed policy would do with items by their times alone: the two watermarks move from where the policies
 * on record have them to where the proposed one puts them, and what lies between expires at once.
 *
 * The policies on record end one millisecond before the proposed one starts: whose countdown ends just when it does is
 * its to keep or to take.
 *
 * @param toldMs up to when somebody was told what has expired, in milliseconds; no policy brings that back
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
  // What has expired stays so: a millisecond at the edge between two policies must not seem to bring anything back.
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

/** Cuts everything after a watermark into the histogram's bars. */
function bars(later: TimeSpan[][], by: TimeSpan['by'], from: number, ttl: number, effectiveFromMs: number): void {
  let after = from;
  HISTOGRAM_SECONDS.forEach((bar, index) => {
    const upTo = Math.max(after, Math.floor(effectiveFromMs / 1000) + bar - ttl);
    later[index]!.push({ by, after, upTo });
    after = upTo;
  });
}
