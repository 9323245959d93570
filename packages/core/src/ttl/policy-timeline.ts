import { invariant } from '../invariant.ts';
import type { DefaultTtl } from './ttl-value.ts';

/** One TTL policy of a container and when it came into force. */
export interface PolicyStart {
  /** Milliseconds since the epoch, inclusive. */
  readonly fromMs: number;
  readonly defaultTtl: DefaultTtl;
  /** 1 for the policy that the container was created with, then counting up. */
  readonly version: number;
}

/** A policy with the interval in which it was in force: `[startMs, endMs)`. The last one has no end. */
export interface PolicyInterval {
  readonly startMs: number;
  readonly endMs: number;
  readonly defaultTtl: DefaultTtl;
  readonly version: number;
}

/** A container's TTL history, oldest first. Never empty, and no two policies start together. */
export type PolicyTimeline = readonly PolicyStart[];

/**
 * The timeline with one more policy. A policy that is replaced within its own millisecond was never in force, so it is
 * taken out of the timeline (its event stays on record).
 */
export function withPolicy<Policy extends PolicyStart>(timeline: readonly Policy[], policy: Policy): readonly Policy[] {
  const last = timeline.at(-1);
  if (last === undefined) return [policy];
  invariant(policy.fromMs >= last.fromMs, 'policies are recorded in the order in which they take effect');
  invariant(policy.version > last.version, 'policy versions count up');
  return last.fromMs === policy.fromMs ? [...timeline.slice(0, -1), policy] : [...timeline, policy];
}

/** The intervals of a timeline that end after an instant, in order; the last one ends at infinity. */
export function* policyIntervals(timeline: PolicyTimeline, afterMs: number): Generator<PolicyInterval> {
  let index = 0;
  for (let past = timeline.length - 1; index < past;) {
    const middle = (index + past) >>> 1;
    if (timeline[middle + 1]!.fromMs > afterMs) past = middle;
    else index = middle + 1;
  }
  for (; index < timeline.length; index++) {
    const { fromMs: startMs, defaultTtl, version } = timeline[index]!;
    yield { startMs, endMs: timeline[index + 1]?.fromMs ?? Number.POSITIVE_INFINITY, defaultTtl, version };
  }
}

/** The policy in force at an instant. Undefined before the container was created. */
export function policyAt<Policy extends PolicyStart>(timeline: readonly Policy[], atMs: number): Policy | undefined {
  for (let index = timeline.length - 1; index >= 0; index--) {
    const policy = timeline[index]!;
    if (policy.fromMs <= atMs) return policy;
  }
  return undefined;
}

/**
 * The policy to decide by at an instant, in a container that exists. A node's clock may be behind that of the node
 * which created the container: then it is the first policy.
 */
export function policyToDecideBy<Policy extends PolicyStart>(timeline: readonly Policy[], nowMs: number): Policy {
  const policy = policyAt(timeline, nowMs) ?? timeline[0];
  invariant(policy !== undefined, 'a container has a policy from its creation on');
  return policy;
}

/** True when a container's TTL is on, with or without a default. */
export function isTtlOn(defaultTtl: DefaultTtl): boolean {
  return defaultTtl !== null;
}
