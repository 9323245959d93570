import { expiryOf } from '../ttl/expiry.ts';
import type { PolicyTimeline } from '../ttl/policy-timeline.ts';
import type { LifeFacts } from './life.ts';

/**
 * How a life would have ended under other policies, compared with how it did: at the same instant (or in neither case),
 * earlier, later, never although it did end, or also although it did not end.
 */
export const replayVerdicts = ['same', 'earlier', 'later', 'never', 'also'] as const;
export type ReplayVerdict = (typeof replayVerdicts)[number];

export interface ReplayedLife {
  readonly verdict: ReplayVerdict;
  /** When the life ended, in milliseconds. Null for a life that still exists. */
  readonly leftAtMs: number | null;
  /** When it would have ended. Null if it would still exist. */
  readonly wouldLeaveAtMs: number | null;
}

export interface ReplayInput {
  readonly facts: LifeFacts;
  /** The policies on record. */
  readonly timeline: PolicyTimeline;
  /** The other policies, oldest first. Before the first one time to live is off. */
  readonly instead: PolicyTimeline;
  /** When the container or its database was deleted. Null if they exist. */
  readonly containerGoneAtMs: number | null;
  /** The present time, at which history ends. */
  readonly nowMs: number;
}

/**
 * Replays one life under other policies: with the same writes, each followed by the countdown that the other policies
 * give. Each life is replayed alone: no history tells what a client would have done if an item had gone earlier, or had
 * still existed.
 */
export function replayLife({ facts, timeline, instead, containerGoneAtMs, nowMs }: ReplayInput): ReplayedLife {
  const otherEndMs = minimum(
    facts.end?.kind === 'deleted' ? facts.end.atMs : null,
    facts.end === undefined && facts.purge?.cause === 'erasure' ? facts.purge.atMs : null,
    containerGoneAtMs,
  );
  // A recorded end is what happened, so it counts before what follows from the timeline.
  const recorded = facts.end?.kind === 'expired' ? facts.end.atMs : undefined;
  // The life existed up to its last write, even if a policy began in the same millisecond as one of its writes.
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

/** The first deadline that came before the next thing that happened to the life. */
function firstExpiry(
  writes: LifeFacts['writes'],
  timeline: PolicyTimeline,
  otherEndMs: number | null,
  nowMs: number,
): number | null {
  for (let index = 0; index < writes.length; index++) {
    const { atMs, ttl, omittedAfter } = writes[index]!;
    // The time of the next write is left out of the ledger. There was one, so the life counts as existing until the
    // next write that is listed.
    if (omittedAfter !== undefined) continue;
    const next = writes[index + 1];
    const nextMs = next?.atMs ?? otherEndMs ?? nowMs;
    const expiry = expiryOf({ ts: Math.floor(atMs / 1000), ttl }, timeline);
    // If a policy begins in the millisecond of a write, it can't be known under which policy the write was decided:
    // this one, the one before, or a third one that was replaced within that millisecond. So the item counts as
    // existing at the write.
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
