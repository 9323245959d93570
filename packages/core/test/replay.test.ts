import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LifeFacts } from '@epitaph/core/history/life.ts';
import { replayLife } from '@epitaph/core/history/replay.ts';
import { policyAt, withPolicy, type PolicyStart, type PolicyTimeline } from '@epitaph/core/ttl/policy-timeline.ts';

const seed = Number(process.env['EPITAPH_SEED'] ?? 20_261_121);
const NOW_MS = 60_000;

const timelineOf = (policies: readonly (readonly [fromMs: number, defaultTtl: number | null])[]): PolicyTimeline =>
  policies.reduce<readonly PolicyStart[]>(
    (before, [fromMs, defaultTtl], index) => withPolicy(before, { fromMs, defaultTtl, version: index + 1 }),
    [],
  );

/** A life with writes at these times, in milliseconds, with these ttls. */
const life = (...writes: readonly (readonly [atMs: number, ttl: number | null])[]): LifeFacts => ({
  life: 0,
  writes: writes.map(([atMs, ttl]) => ({ atMs, ttl })),
});
const deleted = (atMs: number) => ({ kind: 'deleted' as const, atMs, recordedAtMs: atMs, recordedBy: 'key:primary' });
const never = timelineOf([[0, null]]);
const replay = (facts: LifeFacts, timeline: PolicyTimeline, instead: PolicyTimeline, goneAtMs: number | null = null) =>
  replayLife({ facts, timeline, instead, containerGoneAtMs: goneAtMs, nowMs: NOW_MS });

describe('a life replayed under other policies', () => {
  it('ends earlier, later, never, or also', () => {
    const ten = timelineOf([[0, 10]]);
    const one = life([1_000, null]);
    expect(replay(one, ten, timelineOf([[0, 5]]))).toEqual({
      verdict: 'earlier',
      leftAtMs: 11_000,
      wouldLeaveAtMs: 6_000,
    });
    expect(replay(one, ten, timelineOf([[0, 20]]))).toMatchObject({ verdict: 'later', wouldLeaveAtMs: 21_000 });
    expect(replay(one, ten, never)).toEqual({ verdict: 'never', leftAtMs: 11_000, wouldLeaveAtMs: null });
    expect(replay(one, never, ten)).toEqual({ verdict: 'also', leftAtMs: null, wouldLeaveAtMs: 11_000 });
    expect(replay(one, never, timelineOf([[0, 1_000]]))).toMatchObject({ verdict: 'same', wouldLeaveAtMs: null });
  });

  it('ends at the first countdown that was over before the next write', () => {
    const often = life([0, null], [4_000, null], [20_000, null]);
    expect(replay(often, never, timelineOf([[0, 5]]))).toMatchObject({ wouldLeaveAtMs: 9_000 });
    expect(replay(often, never, timelineOf([[0, 16]]))).toMatchObject({ wouldLeaveAtMs: 20_000 });
    expect(replay(often, never, timelineOf([[0, 17]]))).toMatchObject({ wouldLeaveAtMs: 37_000 });
  });

  it('counts as existing during writes of which nothing else is known', () => {
    const often = life([0, null], [30_000, null]);
    const omitting = { ...often, writes: [{ ...often.writes[0]!, omittedAfter: 7 }, often.writes[1]!] };
    expect(replay(omitting, never, timelineOf([[0, 5]]))).toMatchObject({ wouldLeaveAtMs: 35_000 });
  });

  it('keeps an end by something else than a policy, unless a policy would have ended it before', () => {
    const gone = { ...life([0, null]), end: deleted(30_000) };
    expect(replay(gone, never, timelineOf([[0, 40]]))).toMatchObject({ verdict: 'same', wouldLeaveAtMs: 30_000 });
    expect(replay(gone, never, timelineOf([[0, 30]]))).toMatchObject({ verdict: 'same', wouldLeaveAtMs: 30_000 });
    expect(replay(gone, never, timelineOf([[0, 29]]))).toMatchObject({ verdict: 'earlier', wouldLeaveAtMs: 29_000 });
    expect(replay(life([0, null]), never, timelineOf([[0, 29]]), 20_000)).toMatchObject({
      verdict: 'same',
      leftAtMs: 20_000,
    });
  });

  it('ends with an erasure on request, unless it had ended before', () => {
    const purge = (atMs: number) => ({
      atMs,
      cause: 'erasure' as const,
      recordedBy: 'system:purge',
      recoverableUntilMs: null,
    });
    const erased = { ...life([0, null]), purge: purge(20_000) };
    for (const goneAtMs of [null, 25_000]) {
      const at = { leftAtMs: 20_000, wouldLeaveAtMs: 20_000 };
      expect(replay(erased, never, timelineOf([[0, 30]]), goneAtMs)).toEqual({ verdict: 'same', ...at });
    }
    const expired = { kind: 'expired' as const, atMs: 7_000, recordedAtMs: 7_000, recordedBy: 'system:purge' };
    expect(replay({ ...erased, end: expired }, timelineOf([[0, 7]]), never)).toMatchObject({
      verdict: 'never',
      wouldLeaveAtMs: null,
    });
  });

  it('takes the recorded end as what happened, whatever the timeline says', () => {
    const facts: LifeFacts = {
      ...life([0, null]),
      end: { kind: 'expired', atMs: 7_000, recordedAtMs: 9_000, recordedBy: 'system:purge' },
    };
    expect(replay(facts, never, never)).toEqual({ verdict: 'never', leftAtMs: 7_000, wouldLeaveAtMs: null });
  });

  it('has not ended if it was written in the millisecond in which a policy began', () => {
    const facts = life([0, 5], [20_000, -1]);
    const begun = timelineOf([
      [0, null],
      [20_000, -1],
    ]);
    expect(replay(facts, begun, never)).toMatchObject({ verdict: 'same', leftAtMs: null });
    expect(replay(facts, begun, begun)).toMatchObject({ verdict: 'same', wouldLeaveAtMs: null });
    // A policy that began a millisecond earlier was in force before the write.
    const earlier = timelineOf([
      [0, null],
      [19_999, -1],
    ]);
    expect(replay(facts, begun, earlier)).toMatchObject({ verdict: 'also', wouldLeaveAtMs: 19_999 });
    // Nor if the policy before would have ended it at that very instant: that policy was over when the item was written.
    const counted = life([0, null], [20_000, null]);
    const ended = timelineOf([
      [0, 20],
      [20_000, -1],
    ]);
    expect(replay(counted, ended, ended)).toMatchObject({ verdict: 'same', wouldLeaveAtMs: null });
    // Nor if both would: a third policy may have been replaced within that millisecond, which no timeline shows.
    const both = timelineOf([
      [0, 20],
      [20_000, 19],
    ]);
    expect(replay(counted, both, both)).toMatchObject({ verdict: 'same', wouldLeaveAtMs: 39_000 });
  });

  it('ends when an observer of every millisecond would have seen it end', () => {
    const ttl = fc.oneof(fc.constant(null), fc.constant(-1), fc.integer({ min: 1, max: 4 }));
    const times = (most: number) =>
      fc.uniqueArray(fc.integer({ min: 0, max: 8_000 }), { minLength: 1, maxLength: most });
    const policies = fc
      .tuple(times(4), fc.array(ttl, { minLength: 4, maxLength: 4 }))
      .map(([starts, ttls]) =>
        timelineOf(starts.toSorted((a, b) => a - b).map((fromMs, index) => [fromMs, ttls[index]!])),
      );
    const lives = fc
      .tuple(times(4), fc.array(ttl, { minLength: 4, maxLength: 4 }))
      .map(([starts, ttls]) =>
        life(...starts.toSorted((a, b) => a - b).map((atMs, index) => [atMs, ttls[index]!] as const)),
      );
    fc.assert(
      fc.property(lives, policies, (facts, instead) => {
        const nowMs = 9_000;
        let seen: number | null = null;
        for (let atMs = facts.writes[0]!.atMs; atMs <= nowMs && seen === null; atMs++) {
          // At the instant of a write, the countdown of the write before may still end.
          const write = facts.writes.findLast((candidate) => candidate.atMs < atMs) ?? facts.writes[0]!;
          const isWritten = facts.writes.some((candidate) => candidate.atMs === atMs && candidate !== write);
          const policy = policyAt(instead, atMs);
          // If a policy began in that millisecond, nobody can tell under which policy the write was made.
          if (policy === undefined || policy.defaultTtl === null || (isWritten && policy.fromMs === atMs)) continue;
          const seconds = write.ttl ?? policy.defaultTtl;
          if (seconds > 0 && (Math.floor(write.atMs / 1000) + seconds) * 1000 <= atMs) seen = atMs;
        }
        const told = replayLife({ facts, timeline: never, instead, containerGoneAtMs: null, nowMs });
        expect(told.wouldLeaveAtMs).toBe(seen);
      }),
      { seed, numRuns: 300 },
    );
  });
});
