import { initialRetention } from '@epitaph/core/retention/state.ts';
import { describe, expect, it } from 'vitest';
import { isoTime } from '@epitaph/core/clock.ts';
import { goneOf } from '@epitaph/core/container/gone.ts';
import type { ContainerState, RecordedPolicy } from '@epitaph/core/container/state.ts';
import { explainItem, type Explanation } from '@epitaph/core/history/explain.ts';
import type { LedgerWrite } from '@epitaph/core/item/ledger.ts';
import { lifeFacts, type LifeFacts, withErasureRequest, withPartitionKeyEnd } from '@epitaph/core/history/life.ts';
import { InvariantViolation } from '@epitaph/core/invariant.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import { ID, ItemWorld, PREFIX } from './item-world.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';
import { ledgerOf } from '@epitaph/core/testing/ledger.ts';
import { sha256Base64url } from '@epitaph/core/testing/sha256.ts';

const S = 1_763_722_800;
const T0 = S * 1000;

function policy(
  version: number,
  fromMs: number,
  defaultTtl: DefaultTtl,
  over: Partial<RecordedPolicy> = {},
): RecordedPolicy {
  return { version, fromMs, defaultTtl, setBy: `key:setter-${version}`, recordedAtMs: fromMs, ...over };
}

function container(timeline: readonly RecordedPolicy[], deletedAtMs: number | null = null): ContainerState {
  return {
    status: deletedAtMs === null ? 'live' : 'deleted',
    rid: 'Co1',
    databaseRid: 'Db1',
    name: 'carts',
    definition: { partitionKey: { paths: ['/tenant'], kind: 'Hash' }, indexingPolicy: { indexingMode: 'consistent' } },
    timeline,
    policyGraceSeconds: 0,
    retention: initialRetention,
    partitionKeyDeletes: [],
    throughput: { kind: 'none' },
    highestThroughput: 0,
    throughputEtag: '"e"',
    throughputChangedAtMs: timeline[0]!.fromMs,
    etag: '"e"',
    createdAtMs: timeline[0]!.fromMs,
    changedAtMs: timeline[0]!.fromMs,
    deletedAtMs,
    ...(deletedAtMs === null ? {} : { deletedBy: 'key:of-container' }),
  };
}

interface Case {
  readonly container: ContainerState;
  readonly lives: readonly LifeFacts[];
  readonly databaseDeletedAtMs?: number | null;
  readonly holds?: readonly string[];
}

function explainAt(
  { container: within, lives, databaseDeletedAtMs = null, holds = [] }: Case,
  atMs: number,
): Explanation {
  const gone = goneOf(within, { deletedAtMs: databaseDeletedAtMs, deletedBy: 'key:of-database' });
  return explainItem({ id: ID, partitionKey: '["ann"]', container: within, gone, lives, atMs, holds });
}

/** Every instant named in the case, one millisecond before it and one after. */
function edgesOf({ container: within, lives, databaseDeletedAtMs }: Case, ...more: readonly number[]): number[] {
  const edges = [...more, ...within.timeline.flatMap((one) => [one.fromMs, one.recordedAtMs])];
  for (const end of [within.deletedAtMs, databaseDeletedAtMs]) if (typeof end === 'number') edges.push(end);
  for (const { writes, end, purge } of lives) {
    for (const { atMs, ttl } of writes) {
      edges.push(atMs);
      for (const seconds of [ttl, ...within.timeline.map((one) => one.defaultTtl)]) {
        if (seconds !== null && seconds > 0) edges.push((Math.floor(atMs / 1000) + seconds) * 1000);
      }
    }
    if (end !== undefined) edges.push(end.atMs, end.recordedAtMs);
    if (purge !== undefined) edges.push(purge.atMs);
  }
  return [...new Set(edges.flatMap((edge) => [edge - 1, edge, edge + 1]))].toSorted((left, right) => left - right);
}

/** An explanation without the parts that a purge adds. */
function reasons({ state: _, purgedAtMs: __, sentence, ...rest }: Explanation) {
  return { ...rest, sentence: sentence.replace(/ Its content .*$/, '') };
}

/** State and life over the instants, one entry for each run of equal ones. */
function course(of: Case, instants: readonly number[]): string[] {
  const states = instants.map((atMs) => {
    const { state, life } = explainAt(of, atMs);
    return life === undefined ? state : `${state} ${life}`;
  });
  return states.filter((state, index) => state !== states[index - 1]);
}

const wholeStory = (explanation: Explanation) => JSON.stringify(explanation);

describe('explaining an item that nobody wrote', () => {
  it('says so at every instant', () => {
    const nothing: Case = { container: container([policy(1, T0, 60)]), lives: [] };
    for (const atMs of [0, T0 - 1, T0, T0 + 10 ** 9]) {
      expect(explainAt(nothing, atMs)).toEqual({
        state: 'never-existed',
        sentence: `Up to ${isoTime(atMs)} nothing was ever written as "cart 1" under partition key ["ann"] in container carts.`,
        atMs,
        holds: [],
      });
    }
  });

  it('says so up to the millisecond before its first write', async () => {
    const world = new ItemWorld(T0 + 500, [policy(1, T0, 60)]);
    await world.write('create');
    const one: Case = { container: container([policy(1, T0, 60)]), lives: world.facts() };
    expect(explainAt(one, T0 + 499)).toMatchObject({ state: 'never-existed' });
    expect(explainAt(one, T0 + 499).life).toBe(undefined);
    expect(explainAt(one, T0 + 500)).toMatchObject({ state: 'live', life: 0 });
  });
});

describe('explaining a life that expired', () => {
  /** Written twice; expired by the second write's own ttl or by the default; recorded late, and purged later. */
  const makeExpired = async (ttl: number | undefined, purged: boolean): Promise<Case> => {
    const timeline = [policy(1, T0, 60, { reason: 'carts are short-lived' })];
    const world = new ItemWorld(T0 + 1_500, timeline);
    await world.write('create', { ttl: 5 });
    world.nowMs = T0 + 4_200;
    await world.write('replace', ttl === undefined ? {} : { ttl });
    world.nowMs = T0 + 90_000;
    await world.recordExpiry(0);
    world.nowMs = T0 + 95_000;
    if (purged) await world.purge(0, 'expired');
    return { container: container(timeline), lives: world.facts(), holds: [] };
  };

  it.each([
    { ttl: 20, deadlineMs: T0 + 24_000, rule: 'item-ttl' },
    { ttl: undefined, deadlineMs: T0 + 64_000, rule: 'container-default' },
  ])(
    'by ttl $ttl tells deadline, rule, arithmetic, policy, lag and purge at each instant',
    async ({ ttl, deadlineMs, rule }) => {
      const expired = await makeExpired(ttl, true);
      for (const atMs of edgesOf(expired)) {
        const told = explainAt(expired, atMs);
        expect(told.atMs).toBe(atMs);
        if (atMs < T0 + 1_500) {
          expect(told.state).toBe('never-existed');
        } else if (atMs < T0 + 4_200) {
          // The effect of the second write was not known then.
          expect(told).toMatchObject({
            state: 'live',
            lastWrite: { atMs: T0 + 1_500, ts: S + 1, ttl: 5 },
            expiresAtMs: T0 + 6_000,
          });
        } else if (atMs < deadlineMs) {
          expect(told).toMatchObject({
            state: 'live',
            life: 0,
            lastWrite: { atMs: T0 + 4_200, ts: S + 4, ttl: ttl ?? null },
            expiresAtMs: deadlineMs,
            rule,
            policy: { version: 1, defaultTtl: 60, sinceMs: T0, setBy: 'key:setter-1', reason: 'carts are short-lived' },
          });
          expect(told.expiredAtMs).toBe(undefined);
          expect(told.recordedAtMs).toBe(undefined);
          expect(told.sentence).toContain(isoTime(deadlineMs));
        } else {
          expect(told).toMatchObject({
            state: atMs < T0 + 95_000 ? 'expired' : 'purged',
            expiredAtMs: deadlineMs,
            rule,
            policy: { version: 1, setBy: 'key:setter-1' },
            lastWrite: { ts: S + 4, ttl: ttl ?? null },
          });
          expect(told.expiresAtMs).toBe(undefined);
          expect(told.recordedAtMs).toBe(atMs < T0 + 90_000 ? undefined : T0 + 90_000);
          expect(told.lagMs).toBe(atMs < T0 + 90_000 ? undefined : T0 + 90_000 - deadlineMs);
          expect(told.purgedAtMs).toBe(atMs < T0 + 95_000 ? undefined : T0 + 95_000);
          expect(told.sentence).toContain(isoTime(deadlineMs));
          expect(told.sentence).toContain(
            rule === 'item-ttl' ? 'own ttl of 20 s' : 'default ttl of 60 s of container carts',
          );
          expect(told.sentence).toContain('policy version 1, set by key:setter-1');
          expect(told.sentence).toContain(told.arithmetic!);
          expect(told.sentence).toContain(
            atMs < T0 + 95_000
              ? 'Its content has not been erased yet.'
              : `Its content was erased at ${isoTime(T0 + 95_000)}.`,
          );
          const counted = ttl ?? 60;
          expect(told.arithmetic).toBe(
            `_ts ${S + 4} (${isoTime(T0 + 4_000)}) + ttl ${counted} s = ${S + 4 + counted} (${isoTime(deadlineMs)})`,
          );
        }
      }
      expect(course(expired, edgesOf(expired))).toEqual(['never-existed', 'live 0', 'expired 0', 'purged 0']);
    },
  );

  it.each([20, undefined])('by ttl %s gives the same reasons before and after the purge', async (ttl) => {
    const [before, after] = [await makeExpired(ttl, false), await makeExpired(ttl, true)];
    for (const atMs of edgesOf(after)) {
      const [one, other] = [explainAt(before, atMs), explainAt(after, atMs)];
      expect(reasons(other)).toEqual(reasons(one));
      if (atMs < T0 + 95_000) expect(other).toEqual(one);
      else
        expect([one.state, one.purgedAtMs, other.state, other.purgedAtMs]).toEqual([
          'expired',
          undefined,
          'purged',
          T0 + 95_000,
        ]);
    }
  });

  it('says that the item was replaced under another id, even if it is not known which', async () => {
    const timeline = [policy(1, T0, 60)];
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    const [life] = world.facts();
    const renamedTo = itemStream('item-Co1.other', 3);
    const end = { kind: 'deleted', atMs: T0 + 1, recordedAtMs: T0 + 1, recordedBy: 'key:primary', renamedTo } as const;
    const within = container(timeline);
    const input = { id: ID, partitionKey: '["ann"]', container: within, gone: undefined, atMs: T0 + 1, holds: [] };
    const lives = [{ ...life!, end }];
    const told = explainItem({ ...input, lives });
    expect(told.sentence).toContain(`"cart 1" was replaced under another id at ${isoTime(T0 + 1)} by key:primary.`);
    expect(told.renamedTo).toBeUndefined();
    const other = { id: 'cart 2', life: 3 };
    const renamed = new Map([[renamedTo, other]]);
    expect(explainItem({ ...input, lives, renamed }).renamedTo).toEqual(other);
  });

  it('gives the same reasons whether or not the expiry is recorded', async () => {
    const timeline = [policy(1, T0, 60)];
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    const unrecorded: Case = { container: container(timeline), lives: world.facts() };
    world.nowMs = T0 + 100_000;
    await world.recordExpiry(0);
    const recorded: Case = { container: container(timeline), lives: world.facts() };
    for (const atMs of edgesOf(recorded)) {
      const { recordedAtMs: _, lagMs: __, ...told } = explainAt(recorded, atMs);
      expect(told).toEqual(explainAt(unrecorded, atMs));
    }
    expect(explainAt(recorded, T0 + 100_000)).toMatchObject({ recordedAtMs: T0 + 100_000, lagMs: 40_000 });
  });

  it("by the start of a policy tells that start, who set the policy, and since when the item's time was up", async () => {
    const timeline = [policy(1, T0, null), policy(2, T0 + 100_123, 60)];
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    const late: Case = { container: container(timeline), lives: world.facts() };
    expect(course(late, edgesOf(late))).toEqual(['never-existed', 'live 0', 'expired 0']);
    expect(explainAt(late, T0 + 100_122)).toMatchObject({ state: 'live', policy: { version: 1, defaultTtl: null } });
    const told = explainAt(late, T0 + 100_123);
    expect(told).toMatchObject({
      state: 'expired',
      expiredAtMs: T0 + 100_123,
      policy: { version: 2, setBy: 'key:setter-2' },
    });
    expect(told.sentence).toContain('policy version 2, set by key:setter-2');
    expect(told.arithmetic).toBe(
      `_ts ${S} (${isoTime(T0)}) + ttl 60 s = ${S + 60} (${isoTime(T0 + 60_000)}), ` +
        `which was already past when the policy took effect at ${isoTime(T0 + 100_123)}`,
    );
  });

  it('is not undone by any later policy, and names the policy that was in force', async () => {
    for (const defaultTtl of [null, -1, 10_000, 1]) {
      const timeline = [policy(1, T0, 60), policy(2, T0 + 60_001, defaultTtl)];
      const world = new ItemWorld(T0, timeline);
      await world.write('create');
      const expired: Case = { container: container(timeline), lives: world.facts() };
      for (const atMs of [T0 + 60_000, T0 + 60_001, T0 + 10 ** 12]) {
        expect(explainAt(expired, atMs)).toMatchObject({
          state: 'expired',
          expiredAtMs: T0 + 60_000,
          policy: { version: 1 },
        });
      }
    }
  });

  it('follows the record of an expiry under a policy that was replaced within its own millisecond', async () => {
    const brief = policy(2, T0 + 90_000, 60);
    const world = new ItemWorld(T0, [policy(1, T0, null)]);
    await world.write('create');
    world.nowMs = T0 + 90_000;
    world.timeline = [policy(1, T0, null), brief];
    await world.recordExpiry(0);
    // The recorded timeline has lost version 2, but the life has ended.
    const after = [policy(1, T0, null), policy(3, T0 + 90_000, null)];
    for (const purged of [false, true]) {
      if (purged) await world.purge(0, 'expired');
      const ended: Case = { container: container(after), lives: world.facts() };
      expect(explainAt(ended, T0 + 89_999)).toMatchObject({ state: 'live' });
      const told = explainAt(ended, T0 + 90_000);
      expect(told).toMatchObject({
        state: purged ? 'purged' : 'expired',
        expiredAtMs: T0 + 90_000,
        rule: 'container-default',
      });
      expect(told.sentence).toContain('under policy version 2: ');
      expect(told.policy).toBe(undefined);
    }
  });

  it('names the holds that prevent the erasure', async () => {
    const expired = await makeExpired(20, false);
    const two = explainAt({ ...expired, holds: ['hold-1', 'hold-2'] }, T0 + 95_000);
    expect(two.holds).toEqual(['hold-1', 'hold-2']);
    expect(two.sentence).toMatch(/ not been erased yet\. It is kept by the legal holds "hold-1", "hold-2"\.$/);
    const one = explainAt({ ...expired, holds: ['hold-1'] }, T0 + 95_000);
    expect(one.sentence).toMatch(/ not been erased yet\. It is kept by the legal hold "hold-1"\.$/);
    expect(explainAt(expired, T0 + 95_000).sentence).toMatch(/ not been erased yet\.$/);
  });

  it('names no hold or floor for content that has been erased since', async () => {
    const purged = { ...(await makeExpired(20, true)), holds: ['hold-1'] };
    expect(explainAt(purged, T0 + 94_999).sentence).toMatch(/ not been erased yet\.$/);
  });

  it('names a recovery window only while it lasts and its container exists', async () => {
    const { lives, container: within } = await makeExpired(20, false);
    const windowed = { ...within, retention: { ...initialRetention, recoveryWindowSeconds: 600 } };
    const untilMs = T0 + 24_000 + 600_000;
    const about = { id: ID, partitionKey: '["ann"]', container: windowed, lives, atMs: T0 + 30_000, holds: [] };
    const kept = explainItem({ ...about, gone: undefined, nowMs: untilMs - 1 });
    expect(kept.keptUntilMs).toBe(untilMs);
    expect(kept.sentence).toContain(`It is kept by the recovery window until ${isoTime(untilMs)}.`);
    const gone = { atMs: T0 + 100_000, by: null };
    for (const over of [
      { gone: undefined, nowMs: untilMs },
      { gone, nowMs: untilMs - 1 },
    ]) {
      const told = explainItem({ ...about, ...over });
      expect(told.state).toBe('expired');
      expect(told.keptUntilMs).toBe(undefined);
      expect(told.sentence).not.toContain('It is kept');
    }
  });
});

describe('explaining a live item', () => {
  const written = async (timeline: readonly RecordedPolicy[], document: { readonly ttl?: unknown }): Promise<Case> => {
    const world = new ItemWorld(T0, timeline);
    await world.write('create', document);
    return { container: container(timeline), lives: world.facts() };
  };

  it('says why it does not expire', async () => {
    const off = [policy(1, T0, null)];
    const on = [policy(1, T0, -1)];
    const sentences = async (timeline: readonly RecordedPolicy[], document: { readonly ttl?: unknown }) => {
      const told = explainAt(await written(timeline, document), T0 + 10 ** 9);
      expect(told).toMatchObject({ state: 'live', policy: { version: 1 } });
      expect(told.expiresAtMs).toBe(undefined);
      return told.sentence;
    };
    expect(await sentences(off, {})).toContain('time to live is off');
    expect(await sentences(off, {})).not.toContain('own ttl');
    expect(await sentences(off, { ttl: 5 })).toContain('its own ttl does not count');
    expect(await sentences(on, { ttl: -1 })).toContain('own ttl of -1');
    expect(await sentences(on, {})).toContain('no default ttl');
  });

  it('foretells its deadline by the policies recorded at that instant, not by later ones', async () => {
    for (const later of [null, -1, 10, 100_000]) {
      const live = await written([policy(1, T0, 1_000), policy(2, T0 + 500_000, later)], {});
      for (const atMs of [T0, T0 + 100_000, T0 + 499_999]) {
        const told = explainAt(live, atMs);
        expect(told).toMatchObject({
          state: 'live',
          expiresAtMs: T0 + 1_000_000,
          policy: { version: 1, defaultTtl: 1_000 },
        });
        expect(told.sentence).toContain(`it expires at ${isoTime(T0 + 1_000_000)}`);
      }
    }
  });

  it('takes into account a recorded policy that has not started', async () => {
    const live = await written([policy(1, T0, null), policy(2, T0 + 5_000, 1, { recordedAtMs: T0 + 2_000 })], {});
    expect(explainAt(live, T0 + 1_999).expiresAtMs).toBe(undefined);
    expect(explainAt(live, T0 + 2_000)).toMatchObject({ state: 'live', expiresAtMs: T0 + 5_000 });
    expect(explainAt(live, T0 + 5_000)).toMatchObject({ state: 'expired', expiredAtMs: T0 + 5_000 });
  });

  it('says that a recorded policy which has not started will keep the item from expiring', async () => {
    const cases = [
      { first: -1, then: null, ttl: 10, under: 'time to live is off' },
      { first: 10, then: null, ttl: undefined, under: 'time to live is off' },
      { first: 10, then: -1, ttl: undefined, under: 'its container has no default ttl' },
    ] as const;
    for (const { first, then, ttl, under } of cases) {
      const timeline = [policy(1, T0, first), policy(2, T0 + 5_000, then, { recordedAtMs: T0 + 2_000 })];
      const live = await written(timeline, ttl === undefined ? {} : { ttl });
      expect(explainAt(live, T0 + 1_999)).toMatchObject({ state: 'live', expiresAtMs: T0 + 10_000 });
      for (const atMs of [T0 + 2_000, T0 + 4_999]) {
        const told = explainAt(live, atMs);
        expect(told.expiresAtMs).toBe(undefined);
        expect(told.sentence).toBe(
          `"cart 1" is visible: it would expire at ${isoTime(T0 + 10_000)}, but from ${isoTime(T0 + 5_000)} on, under policy version 2, ${under}, so it never expires unless it or the policy changes before.`,
        );
      }
      expect(explainAt(live, T0 + 5_000).sentence).not.toContain('would expire');
    }
  });
});

describe('explaining a life that was deleted', () => {
  const timeline = [policy(1, T0, 60)];
  const makeDeleted = async (purged: boolean): Promise<Case> => {
    const world = new ItemWorld(T0 + 100, timeline);
    await world.write('create', { ttl: 50 });
    world.nowMs = T0 + 30_000;
    await world.remove();
    world.nowMs = T0 + 45_000;
    if (purged) await world.purge(0, 'deleted');
    return { container: container(timeline), lives: world.facts() };
  };

  it('tells when and by whom it was deleted, and never that it expired, not even past its deadline', async () => {
    const deleted = await makeDeleted(true);
    for (const atMs of edgesOf(deleted).filter((edge) => edge >= T0 + 30_000)) {
      const told = explainAt(deleted, atMs);
      expect(told).toMatchObject({
        state: atMs < T0 + 45_000 ? 'deleted' : 'purged',
        deletedAtMs: T0 + 30_000,
        recordedAtMs: T0 + 30_000,
        lagMs: 0,
      });
      expect(told.sentence).toContain(`was deleted at ${isoTime(T0 + 30_000)} by key:primary`);
      expect(told.expiredAtMs).toBe(undefined);
    }
    expect(course(deleted, edgesOf(deleted))).toEqual(['never-existed', 'live 0', 'deleted 0', 'purged 0']);
  });

  it('says of a life that a restore has ended that its key was gone, so that nobody takes the restore for the reason', () => {
    const write = { atMs: T0, ttl: null };
    const end = {
      kind: 'deleted',
      atMs: T0 + 10_000,
      recordedAtMs: T0 + 10_000,
      recordedBy: 'system:restore',
    } as const;
    const lives = [{ life: 0, writes: [write], end }];
    expect(explainAt({ container: container(timeline), lives }, T0 + 20_000).sentence).toContain(
      `was deleted at ${isoTime(T0 + 10_000)} by system:restore, because its key was gone when the store was restored: ` +
        'destroyed by an erasure after the backup was made, or lost. ',
    );
  });

  it('gives the same reasons before and after the purge', async () => {
    const [before, after] = [await makeDeleted(false), await makeDeleted(true)];
    for (const atMs of edgesOf(after))
      expect(reasons(explainAt(after, atMs))).toEqual(reasons(explainAt(before, atMs)));
  });
});

describe('explaining an item that left with its container', () => {
  const timeline = [policy(1, T0, 60)];
  const makeGone = async (purged: boolean, by: 'container' | 'database'): Promise<Case> => {
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    world.nowMs = T0 + 45_000;
    if (purged) await world.purge(0, 'container-deleted');
    return {
      container: container(timeline, by === 'container' ? T0 + 30_000 : null),
      lives: world.facts(),
      ...(by === 'database' ? { databaseDeletedAtMs: T0 + 30_000 } : {}),
    };
  };

  it.each(['container', 'database'] as const)('says so at every instant after the delete of the %s', async (by) => {
    const gone = await makeGone(true, by);
    expect(course(gone, edgesOf(gone))).toEqual(['never-existed', 'live 0', 'deleted 0', 'purged 0']);
    for (const atMs of edgesOf(gone).filter((edge) => edge >= T0 + 30_000)) {
      const told = explainAt(gone, atMs);
      expect(told).toMatchObject({ containerDeletedAtMs: T0 + 30_000, deletedAtMs: T0 + 30_000 });
      expect(told.expiredAtMs).toBe(undefined);
      expect(told.sentence).toContain(
        `left with its container carts, which was deleted at ${isoTime(T0 + 30_000)} by key:of-${by}.`,
      );
      expect(told.purgedAtMs).toBe(told.atMs < T0 + 45_000 ? undefined : T0 + 45_000);
    }
    const before = await makeGone(false, by);
    for (const atMs of edgesOf(gone)) expect(reasons(explainAt(gone, atMs))).toEqual(reasons(explainAt(before, atMs)));
  });

  it('leaves out by whom it was deleted if that is not recorded', async () => {
    const { lives } = await makeGone(false, 'container');
    const { deletedBy: _, ...deleted } = container(timeline, T0 + 30_000);
    expect(explainAt({ container: deleted, lives }, T0 + 30_000).sentence).toContain(
      `which was deleted at ${isoTime(T0 + 30_000)}. Its content`,
    );
    expect(goneOf(container(timeline), undefined)).toBe(undefined);
    expect(goneOf(container(timeline), { deletedAtMs: T0 })).toEqual({ atMs: T0, by: null });
  });

  it('names the earlier of the two deletions if the database was deleted as well', async () => {
    const gone = { ...(await makeGone(false, 'container')), databaseDeletedAtMs: T0 + 20_000 };
    expect(explainAt(gone, T0 + 30_000)).toMatchObject({ containerDeletedAtMs: T0 + 20_000 });
    expect(explainAt({ ...gone, databaseDeletedAtMs: T0 + 40_000 }, T0 + 50_000)).toMatchObject({
      containerDeletedAtMs: T0 + 30_000,
    });
  });

  it('says "expired" if the expiry was recorded at the very instant at which the container was deleted', async () => {
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    world.nowMs = T0 + 60_000;
    await world.recordExpiry(0);
    const recorded: Case = { container: container(timeline, T0 + 60_000), lives: world.facts() };
    const told = explainAt(recorded, T0 + 60_000);
    expect(told).toMatchObject({ state: 'expired', expiredAtMs: T0 + 60_000, recordedAtMs: T0 + 60_000 });
    expect(told.containerDeletedAtMs).toBe(undefined);
  });

  it('says "expired" or "deleted" if the item had ended before the container', async () => {
    const expired = await makeGone(false, 'container');
    const later: Case = { ...expired, container: container(timeline, T0 + 60_001) };
    expect(explainAt(later, T0 + 70_000)).toMatchObject({ state: 'expired', expiredAtMs: T0 + 60_000 });
    const atOnce: Case = { ...expired, container: container(timeline, T0 + 60_000) };
    expect(explainAt(atOnce, T0 + 70_000)).toMatchObject({ state: 'deleted', containerDeletedAtMs: T0 + 60_000 });
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    world.nowMs = T0 + 10;
    await world.remove();
    const deleted: Case = { container: container(timeline, T0 + 20), lives: world.facts() };
    expect(explainAt(deleted, T0 + 30)).toMatchObject({ state: 'deleted', deletedAtMs: T0 + 10 });
    expect(explainAt(deleted, T0 + 30).containerDeletedAtMs).toBe(undefined);
  });
});

describe('explaining an instant to come', () => {
  it('says that it will be so if nothing changes', async () => {
    const world = new ItemWorld(T0, [policy(1, T0, 60)]);
    await world.write('create');
    const input = {
      id: ID,
      partitionKey: '["ann"]',
      container: container([policy(1, T0, 60)]),
      gone: undefined,
      lives: world.facts(),
      atMs: T0 + 60_000,
      holds: [],
    };
    const told = explainItem({ ...input, nowMs: T0 + 30_000 });
    expect(told.state).toBe('expired');
    expect(told.sentence).toMatch(
      new RegExp(`^If nothing changes from ${isoTime(T0 + 30_000)} to ${isoTime(T0 + 60_000)}, .*"cart 1" expired at`),
    );
    expect(explainItem({ ...input, nowMs: T0 + 60_000 }).sentence).toMatch(/^"cart 1" expired at/);
  });

  it('says what will keep the content then, and says so if nothing will', async () => {
    const world = new ItemWorld(T0, [policy(1, T0, 60)]);
    await world.write('create');
    const within = container([policy(1, T0, 60)]);
    const windowed = { ...within, retention: { ...initialRetention, recoveryWindowSeconds: 600 } };
    const input = { id: ID, partitionKey: '["ann"]', gone: undefined, lives: world.facts(), nowMs: T0 };
    const told = (atMs: number, over: { readonly holds?: readonly string[]; readonly container?: ContainerState }) =>
      explainItem({ ...input, container: within, holds: [], ...over, atMs }).sentence.replace(
        /^.*\)\. (?=Its|Nothing)/,
        '',
      );
    const overMs = T0 + 60_000 + 600_000;
    const window = `by the recovery window until ${isoTime(overMs)}`;
    expect(told(T0 + 60_000, {})).toBe('Nothing keeps its content from being erased by then.');
    expect(told(overMs - 1, { container: windowed })).toBe(`Its content will still be there. It is kept ${window}.`);
    expect(told(overMs, { container: windowed })).toBe(`Its content is kept ${window}, and by nothing after that.`);
    expect(told(overMs, { container: windowed, holds: ['h'] })).toBe(
      `Its content will still be there. It is kept by the legal hold "h" and ${window}.`,
    );
  });
});

describe('explaining what a change feed shows', () => {
  const FEED = { feedFloorSeconds: 120 };

  it('counts its time from the record of the end, which may come long after the deadline', async () => {
    const world = new ItemWorld(T0, [policy(1, T0, 60)]);
    await world.write('create');
    const about = {
      id: ID,
      partitionKey: '["ann"]',
      container: container([policy(1, T0, 60)]),
      gone: undefined,
      holds: [],
    };
    const told = (nowMs: number, over: { readonly endRecordedAtMs?: number; readonly atMs?: number } = {}) =>
      explainItem({ ...about, ...FEED, lives: world.facts(), atMs: nowMs, nowMs, ...over });
    // The record may come at the deadline at the earliest, and while it is missing, no earlier than now.
    for (const [nowMs, earliestMs] of [
      [T0 + 1_000, T0 + 180_000],
      [T0 + 500_000, T0 + 620_000],
    ] as const) {
      const unrecorded = told(nowMs, { atMs: Math.max(nowMs, T0 + 60_000) });
      expect(unrecorded.keptUntilMs).toBe(earliestMs);
      expect(unrecorded.sentence).toMatch(
        new RegExp(
          `for the change feed until ${isoTime(earliestMs)} at the earliest \\(its end is not on record yet\\)\\.$`,
        ),
      );
    }
    world.nowMs = T0 + 500_000;
    await world.recordExpiry(0);
    const recorded = told(T0 + 619_999, { endRecordedAtMs: T0 + 500_000 });
    expect(recorded.keptUntilMs).toBe(T0 + 620_000);
    expect(recorded.sentence).toMatch(new RegExp(`for the change feed until ${isoTime(T0 + 620_000)}\\.$`));
    expect(told(T0 + 620_000, { endRecordedAtMs: T0 + 500_000 }).keptUntilMs).toBe(undefined);
  });
});

describe('explaining an item that was erased on request', () => {
  const timeline = [policy(1, T0, 60)];
  const erased = async (over: Partial<Case> = {}): Promise<Case> => {
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    world.nowMs = T0 + 30_000;
    await world.purge(0, 'erasure');
    return { container: container(timeline), lives: world.facts(), ...over };
  };

  it('says so for ever, and neither that it expired nor that it left with its container later', async () => {
    const off = [policy(1, T0, null)];
    for (const over of [
      {},
      { container: container(timeline, T0 + 40_000) },
      { databaseDeletedAtMs: T0 + 90_000 },
      { container: container(off) },
      { container: container(off, T0 + 40_000) },
    ]) {
      const gone = await erased(over);
      expect(course(gone, edgesOf(gone))).toEqual(['never-existed', 'live 0', 'purged 0']);
      for (const atMs of edgesOf(gone).filter((edge) => edge >= T0 + 30_000)) {
        const told = explainAt(gone, atMs);
        expect(told).toMatchObject({ state: 'purged', purgedAtMs: T0 + 30_000 });
        expect(told.sentence).toBe(`"cart 1" was erased on request at ${isoTime(T0 + 30_000)} by system:purge.`);
        expect(told.expiredAtMs).toBe(undefined);
        expect(told.containerDeletedAtMs).toBe(undefined);
      }
    }
  });

  it('says who had requested it, and why', async () => {
    const request = { requestedAtMs: T0 + 30_000, requestedBy: 'request 41', reason: 'article 17' };
    const gone = await erased();
    const told = explainAt(
      { ...gone, lives: gone.lives.map((life) => withErasureRequest(life, request)) },
      T0 + 30_000,
    );
    expect(told.sentence).toBe(
      `"cart 1" was erased on request at ${isoTime(T0 + 30_000)} by system:purge. It was requested by "request 41", for the reason "article 17".`,
    );
    expect(told.erasure).toEqual(request);
    const { purge: _, ...live } = gone.lives[0]!;
    expect(withErasureRequest(live, request)).toBe(live);
  });

  it('after its expiry tells both', async () => {
    const world = new ItemWorld(T0, timeline);
    await world.write('create');
    world.nowMs = T0 + 70_000;
    await world.purge(0, 'erasure');
    const request = { requestedAtMs: T0 + 70_000, requestedBy: 'request 41', reason: 'article 17' };
    const lives = world.facts().map((life) => withErasureRequest(life, request));
    const told = explainAt({ container: container(timeline), lives }, T0 + 80_000);
    expect(told).toMatchObject({
      state: 'purged',
      expiredAtMs: T0 + 60_000,
      purgedAtMs: T0 + 70_000,
      erasure: request,
    });
    expect(told.sentence).toMatch(/^"cart 1" expired at /);
    const erased = `Its content was erased on request at ${isoTime(T0 + 70_000)} by system:purge.`;
    expect(told.sentence).toContain(`${erased} It was requested by "request 41", for the reason "article 17".`);
  });
});

describe('explaining several lives', () => {
  it('is about the last life at the given instant', async () => {
    const timeline = [policy(1, T0, 60)];
    const world = new ItemWorld(T0, timeline);
    await world.write('create', { ttl: 10 });
    world.nowMs = T0 + 20_000;
    await world.write('create', { ttl: -1 });
    world.nowMs = T0 + 30_000;
    await world.remove();
    world.nowMs = T0 + 40_000;
    await world.purge(0, 'expired');
    world.nowMs = T0 + 50_000;
    await world.write('upsert');
    const story: Case = { container: container(timeline), lives: world.facts() };
    expect(course(story, edgesOf(story, T0 + 200_000))).toEqual([
      'never-existed',
      'live 0',
      'expired 0',
      'live 1',
      'deleted 1',
      'live 2',
      'expired 2',
    ]);
    expect(explainAt(story, T0 + 20_000 - 1).lastWrite).toEqual({ atMs: T0, ts: S, ttl: 10 });
    expect(wholeStory(explainAt(story, T0 + 25_000))).not.toContain('expired');
  });
});

describe('the facts of a life', () => {
  it('are the same from its events, from events and ledger, and from the ledger alone', async () => {
    const world = new ItemWorld(T0 + 7, [policy(1, T0, 60)]);
    await world.write('create', { ttl: 9 });
    world.nowMs += 100;
    await world.write('patch', { ttl: 9 });
    world.nowMs += 100;
    await world.write('replace');
    await world.remove();
    const [before] = world.facts();
    await world.purge(0, 'deleted');
    const [after] = world.facts();
    expect(after!.writes).toEqual(before!.writes);
    expect(after!.end).toEqual(before!.end);
    expect(after!.purge).toEqual({
      atMs: world.nowMs,
      cause: 'deleted',
      recoverableUntilMs: null,
      recordedBy: 'system:purge',
    });
  });

  it('begin with a recovery if the life does, and end with what the purge has left', () => {
    const stream = itemStream(PREFIX, 1);
    const about = { id: ID, partitionKey: '["ann"]', ts: S, ttl: null };
    const recovered = recordedEvent(
      stream,
      { type: 'ItemRecovered', data: { ...about, policyVersion: 1, key: 2, bytes: 2, fromLife: 0 } },
      { occurredAtMs: T0 },
    );
    const writes = lifeFacts(1, [recovered]).writes;
    expect(writes).toEqual([{ atMs: T0, ttl: null }]);
    const left = { remains: { sealedBytes: 30, removedBy: 'scavenge' }, recoverableUntilMs: T0 + 86_400_000 } as const;
    const purged = recordedEvent(
      stream,
      {
        type: 'ItemPurged',
        data: {
          ...about,
          cause: 'erasure',
          erased: 'key-destroyed',
          key: 2,
          ledger: { writes: 1, times: `${T0}` },
          ...left,
        },
      },
      { occurredAtMs: T0 + 5_000, revision: 1, actor: 'system:purge' },
    );
    const facts = lifeFacts(1, [recovered, purged]);
    expect(facts.purge).toEqual({ atMs: T0 + 5_000, cause: 'erasure', recordedBy: 'system:purge', ...left });
    const told = explainAt({ container: container([policy(1, T0, null)]), lives: [facts] }, T0 + 5_000);
    expect(told).toMatchObject({ state: 'purged', ...left });
    expect(told.sentence).toBe(
      `"cart 1" was erased on request at ${isoTime(T0 + 5_000)} by system:purge; a copy of its key, made before, ` +
        `may be kept in backups until ${isoTime(T0 + 86_400_000)}; 30 sealed bytes, which nothing opens any more, ` +
        'stayed with the event store until its next scavenge.',
    );
  });

  it('say where the ledger leaves out the times of writes', () => {
    const entries = [0, 1, 2].map((write) => ({
      atMs: T0 + write,
      ttl: null,
      operation: 'upsert' as const,
      eventId: crypto.randomUUID(),
      digest: sha256Base64url(`${write}`),
    }));
    const about = { id: ID, partitionKey: '["ann"]', cause: 'deleted', erased: 'key-destroyed', key: 2 } as const;
    const data = { ...about, recoverableUntilMs: null, ledger: ledgerOf(entries, 2) };
    const purged = recordedEvent(itemStream(PREFIX, 0), { type: 'ItemPurged', data }, { occurredAtMs: T0 + 5_000 });
    expect(lifeFacts(0, [purged]).writes).toEqual([
      { atMs: T0, ttl: null, omittedAfter: 1 },
      { atMs: T0 + 2, ttl: null },
    ]);
  });

  it('end with the partition key from the instant of its deletion, whether or not the life’s own record of that exists', async () => {
    const timeline = [policy(1, T0, 60)];
    const left = { atMs: T0 + 30_250, by: 'key:primary' };
    const world = new ItemWorld(T0 + 7, timeline);
    await world.write('create');
    const [before] = world.facts();
    expect(withPartitionKeyEnd(before!, undefined, timeline)).toBe(before);
    const end = withPartitionKeyEnd(before!, left, timeline);
    expect(end).toEqual({
      ...before,
      end: { kind: 'deleted', atMs: left.atMs, recordedAtMs: left.atMs, recordedBy: left.by, withPartitionKey: true },
    });
    world.nowMs = T0 + 50_000;
    await world.onLife(0, {
      kind: 'command',
      command: { type: 'RecordPartitionKeyDelete', timeline, leftWithPartitionKey: left },
    });
    expect(world.facts()).toEqual([end]);
    expect(withPartitionKeyEnd(end, { ...left, atMs: T0 + 40_000 }, timeline)).toBe(end);
    expect(explainAt({ container: container(timeline), lives: [end] }, T0 + 60_000).sentence).toContain(
      `was deleted at ${isoTime(left.atMs)} with all of its partition key by key:primary.`,
    );
  });

  it('have as the last write the one before the partition key was deleted, not a later one by another node in vain', () => {
    const [first, last] = [T0, T0 + 10_000].map((atMs) => ({ atMs, ttl: null }));
    const end = { kind: 'deleted', atMs: last!.atMs, recordedAtMs: last!.atMs, recordedBy: 'key:primary' } as const;
    const writes = [first!, last!, { atMs: T0 + 20_000, ttl: 5 }];
    const told = (over: object, atMs: number) =>
      explainAt({ container: container([policy(1, T0, null)]), lives: [{ life: 0, writes, ...over }] }, atMs).lastWrite;
    const gone = { end: { ...end, withPartitionKey: true } };
    expect(told(gone, T0 + 30_000)).toEqual({ ...last, ts: S + 10 });
    expect(told(gone, T0 + 9_999)).toEqual({ ...first, ts: S });
    expect(told({}, T0 + 30_000)).toEqual({ atMs: T0 + 20_000, ttl: 5, ts: S + 20 });
  });

  it('do not end with the partition key if the life had ended before', async () => {
    const timeline = [policy(1, T0, 60)];
    const world = new ItemWorld(T0 + 999, timeline);
    await world.write('create', { ttl: 10 });
    const [live] = world.facts();
    const endAt = (atMs: number) => withPartitionKeyEnd(live!, { atMs, by: 'key:primary' }, timeline).end?.atMs;
    expect([endAt(T0 + 9_999), endAt(T0 + 10_000), endAt(T0 + 10_001)]).toEqual([T0 + 9_999, undefined, undefined]);
    await world.purge(0, 'erasure');
    const [erased] = world.facts();
    expect(withPartitionKeyEnd(erased!, { atMs: T0 + 5_000, by: 'key:primary' }, timeline)).toBe(erased);
  });

  it('tell only that the item existed for the time of writes for which its record has no room', () => {
    const timeline = [policy(1, T0, 10)];
    const write = (atMs: number, more: Partial<LedgerWrite> = {}): LedgerWrite => ({ atMs, ttl: null, ...more });
    const facts: LifeFacts = {
      life: 0,
      writes: [write(T0, { omittedAfter: 98 }), write(T0 + 60_000)],
      purge: { atMs: T0 + 80_000, cause: 'expired', recordedBy: 'system:purge', recoverableUntilMs: null },
    };
    const of = { container: container(timeline), lives: [facts] };
    for (const atMs of [T0, T0 + 30_000, T0 + 59_999]) {
      const told = explainAt(of, atMs);
      expect(told).toMatchObject({ state: 'live', life: 0, policy: { version: 1 } });
      expect(told.sentence).toBe(
        `"cart 1" is visible: between ${isoTime(T0)} and ${isoTime(T0 + 60_000)} it was written 98 times. The record of its erasure has no details of these writes.`,
      );
      expect([told.lastWrite, told.expiresAtMs]).toEqual([undefined, undefined]);
    }
    expect(explainAt(of, T0 + 60_000)).toMatchObject({ state: 'live', expiresAtMs: T0 + 70_000 });
    expect(explainAt(of, T0 + 70_000)).toMatchObject({ state: 'expired', expiredAtMs: T0 + 70_000 });
  });

  it('must begin with a write', () => {
    expect(() => lifeFacts(0, [])).toThrow(InvariantViolation);
  });
});
