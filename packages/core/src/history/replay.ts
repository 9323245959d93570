import { expiryOf } from '../ttl/expiry.ts';
import type { PolicyTimeline } from '../ttl/policy-timeline.ts';
import type { LifeFacts } from './life.ts';

/**
 * How a life would have ended under other policies, beside how it did: at the same instant (or not at all, both
 * times), earlier, later, never although it did, or also although it did not.
 */
export const replayVerdicts = ['same', 'earlier', 'later', 'never', 'also'] as const;
export type ReplayVerdict = (typeof replayVerdicts)[number];

export interface ReplayedLife {
  readonly verdict: ReplayVerdict;
  /** When it left, in milliseconds; null for a life that is there. */
  readonly leftAtMs: number | null;
  /** When it would have left; null for one that would be there. */
  readonly wouldLeaveAtMs: number | null;
}

export interface ReplayInput {
  readonly facts: LifeFacts;
  /** The policies on record. */
  readonly timeline: PolicyTimeline;
  /** The other policies, from the earliest on; before the first one time to live is off. */
  readonly instead: PolicyTimeline;
  /** When the container or its database was deleted, null while it is there. */
  readonly containerGoneAtMs: number | null;
  /** How far history goes. */
  readonly nowMs: number;
}

/**
 * Replays one life under other policies: its writes as they were, each followed by the countdown that the other
 * policies give. Each life stands for itself: what a client would have done had an item gone earlier, or had it still
 * been there, no history says.
 */
export function replayLife({ facts, timeline, instead, containerGoneAtMs, nowMs }: ReplayInput): ReplayedLife {
  const otherEndMs = minimum(
    facts.end?.kind === 'deleted' ? facts.end.atMs : null,
    facts.end === undefined && facts.purge?.cause === 'erasure' ? facts.purge.atMs : null,
    containerGoneAtMs,
  );
  // What is on record counts before what the timeline would say: it is what happened.
  const recorded = facts.end?.kind === 'expired' ? facts.end.atMs : undefined;
  // Up to its last write it was there, also where a policy began in the millisecond of one.
  const leftAtMs = recorded ?? firstExpiry(facts.writes.slice(-1), timeline, otherEndMs, nowMs) ?? otherEndMs;
  const wouldLeaveAtMs = firstExpiry(facts.writes, instead, otherEndMs, nowMs) ?? otherEndMs;
  return { verdict: verdictOf(leftAtMs, wouldLeaveAtMs), leftAtMs, wouldLeaveAtMs };
}

function verdictOf(left: number | null, would: number | null): ReplayVerdict {
  if (left === would) return 'same';
  if (left === null) return 'also';
  if (would === null) return 'never';
  return would < left ? 'earlier' : 'later';
}

/** The first deadline that came before whatever happened next to the life. */
function firstExpiry(
  writes: LifeFacts['writes'],
  timeline: PolicyTimeline,
  otherEndMs: number | null,
  nowMs: number,
): number | null {
  for (let index = 0; index < writes.length; index++) {
    const { atMs, ttl, omittedAfter } = writes[index]!;
    // When it was written next is not on record any more. It was, so it counts as there until what is.
    if (omittedAfter !== undefined) continue;
    const next = writes[index + 1];
    const nextMs = next?.atMs ?? otherEndMs ?? nowMs;
    const expiry = expiryOf({ ts: Math.floor(atMs / 1000), ttl }, timeline);
    // Where a policy begins in the millisecond of a write, nothing tells by which one the write was decided: by it, by the
    // one before, or by a third that was replaced within that millisecond. So it counts as there.
    const isUnknown = next !== undefined && timeline.some(({ fromMs }) => fromMs === nextMs);
    if (isUnknown && expiry?.expiredAtMs === nextMs) continue;
    if (expiry !== undefined && expiry.expiredAtMs <= nextMs) return expiry.expiredAtMs;
  }
  return null;
}

function minimum(...times: (number | null)[]): number | null {
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.min(...known);
}
