import { describe, expect, it } from 'vitest';
import type { ContainerCommand, CreateContainer, ReplaceContainer } from '@epitaph/core/container/commands.ts';
import { decideContainer } from '@epitaph/core/container/decide.ts';
import type { ContainerEvent } from '@epitaph/core/container/events.ts';
import { evolveContainer, foldContainer } from '@epitaph/core/container/evolve.ts';
import { partitionKeyDeleteAfter } from '@epitaph/core/container/partition-key-deletes.ts';
import { containerStream, parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { InvariantViolation } from '@epitaph/core/invariant.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { initialRetention } from '@epitaph/core/retention/state.ts';
import { etagOfGiven, givenContainer } from '@epitaph/core/testing/given-when-then.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const NOW_MS = 1_763_722_800_123;
const definition = {
  partitionKey: { paths: ['/tenant'], kind: 'Hash' as const, version: 2 as const },
  indexingPolicy: { indexingMode: 'consistent' as const },
};
const unindexed = { ...definition, indexingPolicy: { indexingMode: 'none' as const } };

const facts = { databaseRid: 'Db1', name: 'carts', definition, defaultTtl: 60, policyGraceSeconds: 86_400 };
const created = (over: Partial<typeof facts> | { defaultTtl: DefaultTtl } = {}): ContainerEvent => ({
  type: 'ContainerCreated',
  data: { ...facts, ...over },
});
const deleted: ContainerEvent = { type: 'ContainerDeleted', data: {} };
const ttlChanged = (
  from: DefaultTtl,
  to: DefaultTtl,
  policyVersion: number,
  effectiveFromMs = NOW_MS,
): ContainerEvent => ({
  type: 'ContainerTtlChanged',
  data: { from, to, policyVersion, effectiveFromMs },
});

const create = (over: Partial<CreateContainer> = {}): ContainerCommand => ({
  type: 'CreateContainer',
  nowMs: NOW_MS,
  ...facts,
  ...over,
});
const replace = (over: Partial<ReplaceContainer> = {}): ContainerCommand => ({
  type: 'ReplaceContainer',
  nowMs: NOW_MS,
  definition,
  defaultTtl: 60,
  ...over,
});

describe('creating a container', () => {
  it('under an unused rid is recorded with everything that defines it', () => {
    givenContainer().when(create()).then(created());
    givenContainer()
      .when(create({ defaultTtl: null }))
      .then(created({ defaultTtl: null }));
  });
  it('that exists in the same database is refused', () => {
    givenContainer(created())
      .when(create({ defaultTtl: 5 }))
      .thenRefused('already-exists');
  });
  it('under a rid that another name, another database or an earlier container of the name uses is refused as taken', () => {
    givenContainer(created())
      .when(create({ name: 'orders' }))
      .thenRefused('rid-taken');
    givenContainer(created())
      .when(create({ databaseRid: 'Db2' }))
      .thenRefused('rid-taken');
    givenContainer(created(), deleted).when(create()).thenRefused('rid-taken');
  });
  it('with any TTL and no index is refused; without a TTL it is accepted', () => {
    for (const defaultTtl of [-1, 1, 60] as const) {
      givenContainer()
        .when(create({ definition: unindexed, defaultTtl }))
        .thenRefused('ttl-needs-indexing');
    }
    givenContainer()
      .when(create({ definition: unindexed, defaultTtl: null }))
      .then({ type: 'ContainerCreated', data: { ...facts, definition: unindexed, defaultTtl: null } });
  });
  it('accepts a lazy index with a TTL', () => {
    const lazy = { ...definition, indexingPolicy: { indexingMode: 'lazy' as const } };
    givenContainer()
      .when(create({ definition: lazy }))
      .then({ type: 'ContainerCreated', data: { ...facts, definition: lazy } });
  });
});

describe('replacing a container', () => {
  it('by an equal definition changes nothing, whatever the order of the properties', () => {
    givenContainer(created()).when(replace()).then();
    const { partitionKey, indexingPolicy } = definition;
    const { paths, kind, version } = partitionKey;
    givenContainer(created())
      .when(replace({ definition: { indexingPolicy, partitionKey: { version, kind, paths } } }))
      .then();
  });
  it('with another TTL records the change, with the old and new value and the next version, from now on', () => {
    for (const [from, to] of [
      [60, null],
      [null, 60],
      [null, -1],
      [-1, 60],
      [60, 61],
    ] as const) {
      givenContainer({ event: created({ defaultTtl: from }), atMs: 5 })
        .when(replace({ defaultTtl: to }))
        .then(ttlChanged(from, to, 2));
    }
    givenContainer({ event: created(), atMs: 5 }, ttlChanged(60, -1, 2, 10), ttlChanged(-1, null, 3, 20))
      .when(replace({ defaultTtl: 7 }))
      .then(ttlChanged(null, 7, 4));
  });
  it('never dates a policy before the previous one', () => {
    givenContainer({ event: created(), atMs: 5 }, ttlChanged(60, -1, 2, NOW_MS + 3_000))
      .when(replace({ defaultTtl: 7 }))
      .then(ttlChanged(-1, 7, 3, NOW_MS + 3_000));
  });
  it('with another definition records that before a TTL change in the same request', () => {
    const changed = { ...definition, indexingPolicy: { indexingMode: 'lazy' as const, automatic: true } };
    const replaced: ContainerEvent = { type: 'ContainerReplaced', data: { definition: changed } };
    givenContainer(created())
      .when(replace({ definition: changed }))
      .then(replaced);
    givenContainer(created())
      .when(replace({ definition: changed, defaultTtl: null }))
      .then(replaced, ttlChanged(60, null, 2));
  });
  it('can’t change the partition key', () => {
    for (const partitionKey of [
      { ...definition.partitionKey, paths: ['/other'] },
      { ...definition.partitionKey, paths: ['/tenant', '/user'] },
      { paths: ['/tenant'], kind: 'Hash' as const },
      { ...definition.partitionKey, kind: 'MultiHash' as const },
    ]) {
      givenContainer(created())
        .when(replace({ definition: { ...definition, partitionKey } }))
        .thenRefused('partition-key-fixed');
    }
  });
  it('can’t turn pseudonymous ids on or off', () => {
    const pseudonymous = { ...definition, epitaph: { pseudonymousIds: true } };
    givenContainer(created())
      .when(replace({ definition: pseudonymous }))
      .thenRefused('pseudonymous-ids-fixed');
    const data = { ...facts, definition: pseudonymous, defaultTtl: 60 };
    const begun = { event: { type: 'ContainerCreated', data }, atMs: 1 } as const;
    givenContainer(begun).when(replace({ definition })).thenRefused('pseudonymous-ids-fixed');
    givenContainer(begun)
      .when(replace({ definition: { ...pseudonymous, other: 1 } }))
      .then({ type: 'ContainerReplaced', data: { definition: { ...pseudonymous, other: 1 } } });
  });
  it('can’t change, add or remove unique keys or client encryption', () => {
    const uniqueKeyPolicy = (path: string) => ({ uniqueKeyPolicy: { uniqueKeys: [{ paths: [path] }] } });
    const clientEncryptionPolicy = (path: string) => ({
      clientEncryptionPolicy: { policyFormatVersion: 1, includedPaths: [{ path }] },
    });
    for (const [policy, reason] of [
      [uniqueKeyPolicy, 'unique-keys-fixed'],
      [clientEncryptionPolicy, 'client-encryption-fixed'],
    ] as const) {
      const [one, other] = ['/a', '/b'].map((path) => ({ ...definition, ...policy(path) }));
      const given = (with_: typeof definition) =>
        givenContainer({ event: { type: 'ContainerCreated', data: { ...facts, definition: with_ } }, atMs: 1 });
      given(one!)
        .when(replace({ definition: one! }))
        .then();
      given(one!)
        .when(replace({ definition: other! }))
        .thenRefused(reason);
      given(one!).when(replace()).thenRefused(reason);
      given(definition)
        .when(replace({ definition: one! }))
        .thenRefused(reason);
    }
  });
  it('can’t change, add or remove clear paths', () => {
    const begun = (clearPaths?: string[]) => {
      const data = {
        ...facts,
        definition: clearPaths === undefined ? definition : { ...definition, epitaph: { clearPaths } },
      };
      return givenContainer({ event: { type: 'ContainerCreated', data: { ...data, defaultTtl: 60 } }, atMs: 1 });
    };
    const clear = (...clearPaths: string[]) => replace({ definition: { ...definition, epitaph: { clearPaths } } });
    begun(['/a']).when(clear('/b')).thenRefused('clear-paths-fixed');
    begun(['/a', '/b']).when(clear('/b', '/a')).thenRefused('clear-paths-fixed');
    begun(['/a']).when(replace()).thenRefused('clear-paths-fixed');
    begun().when(clear('/a')).thenRefused('clear-paths-fixed');
    begun()
      .when(clear())
      .then({ type: 'ContainerReplaced', data: { definition: { ...definition, epitaph: { clearPaths: [] } } } });
  });
  it('can’t have a TTL without an index, whichever of the two changes', () => {
    givenContainer({
      event: { type: 'ContainerCreated', data: { ...facts, definition: unindexed, defaultTtl: null } },
      atMs: 1,
    })
      .when({ type: 'ChangeTtl', nowMs: NOW_MS, defaultTtl: 60, expiring: { items: 0, of: 0 }, confirmed: false })
      .thenRefused('ttl-needs-indexing');
    givenContainer(created())
      .when(replace({ definition: unindexed }))
      .thenRefused('ttl-needs-indexing');
    givenContainer({
      event: { type: 'ContainerCreated', data: { ...facts, definition: unindexed, defaultTtl: null } },
      atMs: 1,
    })
      .when(replace({ definition: unindexed, defaultTtl: -1 }))
      .thenRefused('ttl-needs-indexing');
    givenContainer(created())
      .when(replace({ definition: unindexed, defaultTtl: null }))
      .then({ type: 'ContainerReplaced', data: { definition: unindexed } }, ttlChanged(60, null, 2));
  });
  it('with an etag needs the current one: that of the last change', () => {
    const past = [{ event: created(), atMs: 5 }, ttlChanged(60, null, 2, 10)] as const;
    givenContainer(...past)
      .when(replace({ ifMatch: etagOfGiven(1) }))
      .then(ttlChanged(null, 60, 3));
    givenContainer(...past)
      .when(replace({ ifMatch: '*' }))
      .then(ttlChanged(null, 60, 3));
    givenContainer(...past)
      .when(replace({ ifMatch: etagOfGiven(0) }))
      .thenRefused('precondition-failed');
  });
  it('that does not exist is refused', () => {
    givenContainer().when(replace()).thenRefused('not-found');
    givenContainer(created(), deleted).when(replace()).thenRefused('not-found');
  });
});

describe('changing the policy grace', () => {
  it('is recorded, with the old and new value and its reason', () => {
    givenContainer(created())
      .when({ type: 'ChangePolicyGrace', nowMs: NOW_MS, seconds: 0, reason: 'tests' })
      .then({ type: 'PolicyGraceChanged', data: { fromSeconds: 86_400, toSeconds: 0, reason: 'tests' } });
    givenContainer(created())
      .when({ type: 'ChangePolicyGrace', nowMs: NOW_MS, seconds: 5 })
      .then({ type: 'PolicyGraceChanged', data: { fromSeconds: 86_400, toSeconds: 5 } });
  });
  it('to the current value changes nothing, and is refused without a container', () => {
    givenContainer(created()).when({ type: 'ChangePolicyGrace', nowMs: NOW_MS, seconds: 86_400 }).then();
    givenContainer().when({ type: 'ChangePolicyGrace', nowMs: NOW_MS, seconds: 1 }).thenRefused('not-found');
  });
});

describe('deleting a partition key', () => {
  const partitionKeyDeleted: ContainerEvent = { type: 'PartitionKeyDeleted', data: { partitionKey: '["a"]' } };

  it('is recorded as one fact each time it is requested', () => {
    const command = { type: 'DeletePartitionKey', nowMs: NOW_MS, partitionKey: '["a"]' } as const;
    givenContainer(created()).when(command).then(partitionKeyDeleted);
    givenContainer(created(), partitionKeyDeleted).when(command).then(partitionKeyDeleted);
    givenContainer().when(command).thenRefused('not-found');
    givenContainer(created(), deleted).when(command).thenRefused('not-found');
  });
  it('is pending until it is completed, which is recorded once', () => {
    const events = [created(), partitionKeyDeleted, partitionKeyDeleted];
    const recorded = events.map((event, revision) =>
      recordedEvent(containerStream('Co1'), event, {
        revision,
        position: 10 + revision,
        occurredAtMs: 100 * revision,
        actor: 'key:primary',
      }),
    );
    const state = foldContainer(recorded)!;
    const [first, second] = state.partitionKeyDeletes;
    expect([first, second]).toMatchObject([
      { partitionKey: '["a"]', atMs: 100, by: 'key:primary' },
      { partitionKey: '["a"]', atMs: 200, by: 'key:primary' },
    ]);
    const { position } = recorded[1]!;
    expect(partitionKeyDeleteAfter(state, '["a"]', position - 1)).toBe(first);
    expect(partitionKeyDeleteAfter(state, '["a"]', position)).toBe(second);
    expect(partitionKeyDeleteAfter(state, '["a"]', recorded[2]!.position)).toBeUndefined();
    expect(partitionKeyDeleteAfter(state, '["b"]', 0)).toBeUndefined();
    const completed: ContainerEvent = {
      type: 'PartitionKeyDeleteCompleted',
      data: { partitionKey: '["a"]', position },
    };
    const command = { type: 'CompletePartitionKeyDelete', nowMs: NOW_MS, position } as const;
    expect(decideContainer(state, command)).toEqual({ kind: 'accepted', events: [completed] });
    const after = foldContainer([
      ...recorded,
      recordedEvent(containerStream('Co1'), completed, { revision: 3, occurredAtMs: 300, actor: 'system:purge' }),
    ])!;
    expect(after.partitionKeyDeletes).toEqual([second]);
    expect(after.changedAtMs).toBe(0);
    expect(after.etag).toBe(state.etag);
    expect(decideContainer(after, command)).toEqual({ kind: 'accepted', events: [] });
  });
});

describe('deleting a container', () => {
  it('is recorded, without a condition or with the current etag', () => {
    for (const ifMatch of [undefined, '*', etagOfGiven(0)]) {
      givenContainer(created()).when({ type: 'DeleteContainer', nowMs: NOW_MS, ifMatch }).then(deleted);
    }
  });
  it('with an outdated etag, or that does not exist, is refused', () => {
    givenContainer(created())
      .when({ type: 'DeleteContainer', nowMs: NOW_MS, ifMatch: '"other"' })
      .thenRefused('precondition-failed');
    givenContainer().when({ type: 'DeleteContainer', nowMs: NOW_MS }).thenRefused('not-found');
    givenContainer(created(), deleted).when({ type: 'DeleteContainer', nowMs: NOW_MS }).thenRefused('not-found');
  });
});

describe('in a container of which the log has lost events', () => {
  const afterLoss = (from: DefaultTtl, to: DefaultTtl, policyVersion: number, counted = {}): ContainerEvent => ({
    type: 'ContainerTtlChanged',
    data: { from, to, policyVersion, effectiveFromMs: NOW_MS, ...counted, afterLoss: true },
  });
  const change = (over: object = {}): ContainerCommand => ({
    type: 'ChangeTtl',
    nowMs: NOW_MS,
    defaultTtl: 60,
    expiring: { items: 0, of: 0 },
    confirmed: true,
    afterLoss: true,
    ...over,
  });

  it('a confirmed TTL is recorded even if it is the same, unless it is for later', () => {
    givenContainer(created())
      .when(change())
      .then(afterLoss(60, 60, 2, { expiringAtOnce: { items: 0, of: 0 } }));
    for (const over of [{ confirmed: false }, { afterLoss: false }, { effectiveFromMs: NOW_MS + 1 }]) {
      givenContainer(created()).when(change(over)).then();
    }
  });
  it('it then stands for all earlier policies, and nothing is lacking any more', () => {
    const stream = containerStream('Co1');
    const at = (revision: number) => ({ id: `id-${revision}`, revision, occurredAtMs: NOW_MS });
    const before = { ...foldContainer([recordedEvent(stream, created(), at(0))])!, lacksEvents: true as const };
    const after = evolveContainer(before, recordedEvent(stream, afterLoss(60, 5, 2), at(1)));
    expect(after.timeline).toMatchObject([{ fromMs: NOW_MS, defaultTtl: 5, version: 2 }]);
    expect(after.lacksEvents).toBe(undefined);
    expect(evolveContainer(before, recordedEvent(stream, ttlChanged(60, 5, 2), at(1))).lacksEvents).toBe(true);
  });
  it('a delete records the policy again first, so that it alone ends the items', () => {
    const remove = { type: 'DeleteContainer', nowMs: NOW_MS, afterLoss: true } as const;
    givenContainer(created(), ttlChanged(60, 5, 2, 10))
      .when(remove)
      .then(afterLoss(5, 5, 3), deleted);
  });
});

describe("a container's state", () => {
  const stream = containerStream('Co1');
  const record = (event: ContainerEvent, revision: number, occurredAtMs: number, actor = 'key:primary') =>
    recordedEvent(stream, event, { id: `id-${revision}`, revision, occurredAtMs, actor });

  it('keeps who set each policy, when and why; a policy replaced within its own millisecond is left out of the timeline', () => {
    const state = foldContainer([
      record(created(), 0, 100),
      record(ttlChanged(60, 5, 2, 200), 1, 200, 'key:secondary'),
      record(ttlChanged(5, null, 3, 200), 2, 200, 'key:other'),
      record(
        {
          type: 'ContainerTtlChanged',
          data: { from: null, to: -1, policyVersion: 4, effectiveFromMs: 350, reason: 'why' },
        },
        3,
        300,
      ),
      record({ type: 'PolicyGraceChanged', data: { fromSeconds: 86_400, toSeconds: 0 } }, 4, 400),
      record({ type: 'ContainerReplaced', data: { definition: unindexed } }, 5, 500),
      record(deleted, 6, 600),
    ]);
    expect(state).toEqual({
      status: 'deleted',
      rid: 'Co1',
      databaseRid: 'Db1',
      name: 'carts',
      definition: unindexed,
      timeline: [
        { fromMs: 100, defaultTtl: 60, version: 1, setBy: 'key:primary', recordedAtMs: 100 },
        { fromMs: 200, defaultTtl: null, version: 3, setBy: 'key:other', recordedAtMs: 200 },
        { fromMs: 350, defaultTtl: -1, version: 4, setBy: 'key:primary', recordedAtMs: 300, reason: 'why' },
      ],
      policyGraceSeconds: 0,
      partitionKeyDeletes: [],
      retention: initialRetention,
      throughput: { kind: 'none' },
      highestThroughput: 0,
      throughputEtag: '"id-0"',
      throughputChangedAtMs: 100,
      etag: '"id-5"',
      createdAtMs: 100,
      changedAtMs: 500,
      deletedAtMs: 600,
      deletedBy: 'key:primary',
    });
  });

  it('begins with a creation only, has only one, and accepts no events of another stream', () => {
    expect(foldContainer([])).toBe(undefined);
    expect(() => foldContainer([record(deleted, 0, 1)])).toThrow(UnreadableEvent);
    expect(() => foldContainer([record(created(), 0, 1), record(created(), 1, 2)])).toThrow(InvariantViolation);
    expect(() => foldContainer([recordedEvent('database-Co1', created())])).toThrow(InvariantViolation);
    expect(parseContainerStream(stream)).toBe('Co1');
    expect(parseContainerStream('item-Co1.hash.0')).toBe(undefined);
  });
});

describe('changing the TTL under a brake', () => {
  const brake = (to: { maxItems?: number; maxShare?: number } | null): ContainerEvent => ({
    type: 'TtlBrakeChanged',
    data: { from: null, to },
  });
  const changeTtl = (over: object = {}): ContainerCommand => ({
    type: 'ChangeTtl',
    nowMs: NOW_MS,
    defaultTtl: 30,
    expiring: { items: 11, of: 100 },
    confirmed: false,
    ...over,
  });

  it('is refused above either limit, with the counts, on both planes', () => {
    for (const limits of [{ maxItems: 10 }, { maxShare: 0.1 }, { maxItems: 10, maxShare: 1 }]) {
      const refused = { brake: limits, items: 11, of: 100 };
      givenContainer(created(), brake(limits)).when(changeTtl()).thenRefused('braked', refused);
      givenContainer(created(), brake(limits))
        .when(replace({ defaultTtl: 30, expiring: { items: 11, of: 100 } }))
        .thenRefused('braked', refused);
    }
  });
  it('is accepted at the limit, and above it if confirmed, which is recorded', () => {
    const counted = { expiringAtOnce: { items: 11, of: 100 } };
    const changed = (over: object): ContainerEvent => ({
      type: 'ContainerTtlChanged',
      data: { from: 60, to: 30, policyVersion: 2, effectiveFromMs: NOW_MS, ...counted, ...over },
    });
    givenContainer(created(), brake({ maxItems: 11, maxShare: 0.11 }))
      .when(changeTtl())
      .then(changed({}));
    givenContainer(created(), brake({ maxItems: 10 }))
      .when(changeTtl({ confirmed: true, reason: 'ticket 7' }))
      .then(changed({ confirmed: true, reason: 'ticket 7' }));
  });
  it('is accepted up to the limit, at every whole percentage, and refused above it', () => {
    for (let percent = 0; percent < 100; percent++) {
      const limits = brake({ maxShare: percent / 100 });
      const at = { items: percent, of: 100 };
      givenContainer(created(), limits)
        .when(changeTtl({ expiring: at }))
        .then({
          type: 'ContainerTtlChanged',
          data: { from: 60, to: 30, policyVersion: 2, effectiveFromMs: NOW_MS, expiringAtOnce: at },
        });
      const above = { items: percent + 1, of: 100 };
      givenContainer(created(), limits)
        .when(changeTtl({ expiring: above }))
        .thenRefused('braked', { brake: { maxShare: percent / 100 }, ...above });
    }
  });
  it('does not limit a replace that leaves the TTL unchanged, or changes after the brake was removed', () => {
    givenContainer(created(), brake({ maxItems: 0 }))
      .when(replace())
      .then();
    givenContainer(created(), brake({ maxItems: 0 }), {
      type: 'TtlBrakeChanged',
      data: { from: { maxItems: 0 }, to: null },
    })
      .when(replace({ defaultTtl: 30 }))
      .then(ttlChanged(60, 30, 2));
  });
  it('records setting, changing and removing the brake, and nothing if it is the same', () => {
    const changeBrake = (to: { maxItems: number } | null): ContainerCommand => ({
      type: 'ChangeTtlBrake',
      nowMs: NOW_MS,
      brake: to,
    });
    for (const to of [{ maxItems: 6 }, null]) {
      givenContainer(created(), brake({ maxItems: 5 }))
        .when(changeBrake(to))
        .then({ type: 'TtlBrakeChanged', data: { from: { maxItems: 5 }, to } });
    }
    givenContainer(created()).when(changeBrake(null)).then();
    givenContainer(created())
      .when({ type: 'ChangeTtlBrake', nowMs: NOW_MS, brake: { maxItems: 5 }, reason: 'after the incident' })
      .then({
        type: 'TtlBrakeChanged',
        data: { from: null, to: { maxItems: 5 }, reason: 'after the incident' },
      });
    givenContainer(created(), brake({ maxItems: 5 }))
      .when({ type: 'ChangeTtlBrake', nowMs: NOW_MS, brake: { maxItems: 5 } })
      .then();
  });
});

describe('a scheduled TTL change', () => {
  const LATER_MS = NOW_MS + 3_600_000;
  const schedule = (over: object = {}): ContainerCommand => ({
    type: 'ChangeTtl',
    nowMs: NOW_MS,
    defaultTtl: 30,
    effectiveFromMs: LATER_MS,
    expiring: { items: 0, of: 0 },
    confirmed: false,
    ...over,
  });
  const scheduled: ContainerEvent = {
    type: 'ContainerTtlChanged',
    data: { from: 60, to: 30, policyVersion: 2, effectiveFromMs: LATER_MS, scheduled: true },
  };

  it('is recorded with its time', () => {
    givenContainer(created())
      .when(schedule())
      .then({
        type: 'ContainerTtlChanged',
        data: {
          from: 60,
          to: 30,
          policyVersion: 2,
          effectiveFromMs: LATER_MS,
          scheduled: true,
          expiringAtOnce: { items: 0, of: 0 },
        },
      });
  });
  it('forbids any other TTL change, but not a replace that leaves the TTL unchanged', () => {
    const waits = { effectiveFromMs: LATER_MS };
    givenContainer(created(), scheduled)
      .when(schedule({ defaultTtl: 5, effectiveFromMs: undefined }))
      .thenRefused('ttl-change-scheduled', waits);
    givenContainer(created(), scheduled)
      .when(replace({ defaultTtl: 5 }))
      .thenRefused('ttl-change-scheduled', waits);
    givenContainer(created(), scheduled).when(replace()).then();
  });
  it('forbids the removal of the index that it will need', () => {
    const off = created({ defaultTtl: null });
    givenContainer(off, scheduled)
      .when(replace({ definition: unindexed, defaultTtl: null }))
      .thenRefused('ttl-needs-indexing');
    givenContainer(off, { ...scheduled, data: { ...scheduled.data, to: null } })
      .when(replace({ definition: unindexed, defaultTtl: null }))
      .then({ type: 'ContainerReplaced', data: { definition: unindexed } });
  });
  it('can be withdrawn before it takes effect, and not after', () => {
    const withdraw = (nowMs: number): ContainerCommand => ({ type: 'WithdrawTtl', nowMs, reason: 'not yet' });
    givenContainer(created(), scheduled)
      .when(withdraw(LATER_MS - 1))
      .then({
        type: 'ContainerTtlWithdrawn',
        data: { policyVersion: 2, effectiveFromMs: LATER_MS, reason: 'not yet' },
      });
    givenContainer(created(), scheduled).when(withdraw(LATER_MS)).thenRefused('nothing-scheduled');
    givenContainer(created()).when(withdraw(NOW_MS)).thenRefused('nothing-scheduled');
  });
  it('is in force from its time on, and can then be followed by another', () => {
    for (const nowMs of [LATER_MS, LATER_MS + 1]) {
      givenContainer(created(), scheduled)
        .when({ ...replace({ defaultTtl: 5 }), nowMs })
        .then(ttlChanged(30, 5, 3, nowMs));
      givenContainer(created(), scheduled)
        .when({ ...replace({ defaultTtl: 30 }), nowMs })
        .then();
    }
  });
  it('changes the container’s etag when it takes effect', () => {
    const replaceAt = (nowMs: number, ifMatch: string) => ({ ...replace({ ifMatch, defaultTtl: 30 }), nowMs });
    const etag = etagOfGiven(1);
    givenContainer(created(), scheduled).when(replaceAt(LATER_MS, etag)).thenRefused('precondition-failed');
    givenContainer(created(), scheduled)
      .when(replaceAt(LATER_MS, etag.replace(/"$/, '.2"')))
      .then();
    givenContainer(created(), scheduled)
      .when({ ...replace({ ifMatch: etag }), nowMs: LATER_MS - 1 })
      .then();
    // A change since then has an etag of its own.
    givenContainer(created(), scheduled, { event: { type: 'ContainerReplaced', data: { definition } }, atMs: LATER_MS })
      .when(replaceAt(LATER_MS, etagOfGiven(2)))
      .then();
  });
  it('for a past time takes effect now', () => {
    for (const effectiveFromMs of [NOW_MS, NOW_MS - 1]) {
      givenContainer({ event: created(), atMs: 5 })
        .when(schedule({ effectiveFromMs, expiring: undefined }))
        .then(ttlChanged(60, 30, 2));
    }
  });
  it('that was withdrawn has changed the container’s etag', () => {
    const withdrawn = [
      created(),
      scheduled,
      { type: 'ContainerTtlWithdrawn', data: { policyVersion: 2, effectiveFromMs: LATER_MS } },
    ] as const;
    givenContainer(...withdrawn)
      .when(replace({ ifMatch: etagOfGiven(2) }))
      .then();
    givenContainer(...withdrawn)
      .when(replace({ ifMatch: etagOfGiven(1) }))
      .thenRefused('precondition-failed');
  });
  it('that was withdrawn does not free its version number', () => {
    givenContainer(created(), scheduled, {
      type: 'ContainerTtlWithdrawn',
      data: { policyVersion: 2, effectiveFromMs: LATER_MS },
    })
      .when(replace({ defaultTtl: 5 }))
      .then(ttlChanged(60, 5, 3));
  });
});

describe('changing the TTL with a policy delay, because other nodes hear of it later', () => {
  const delayed = { policyDelayMs: 500 } as const;
  it('takes effect once all nodes have heard', () => {
    givenContainer({ event: created(), atMs: 5 })
      .when({ ...replace({ defaultTtl: 30 }), ...delayed })
      .then(ttlChanged(60, 30, 2, NOW_MS + 500));
  });
  it('can be withdrawn only while there is time for all nodes to hear of it', () => {
    const begins = NOW_MS + 3_600_000;
    const scheduled: ContainerEvent = {
      type: 'ContainerTtlChanged',
      data: { from: 60, to: 30, policyVersion: 2, effectiveFromMs: begins, scheduled: true },
    };
    givenContainer(created(), scheduled)
      .when({ type: 'WithdrawTtl', nowMs: begins - 501, ...delayed })
      .then({ type: 'ContainerTtlWithdrawn', data: { policyVersion: 2, effectiveFromMs: begins } });
    givenContainer(created(), scheduled)
      .when({ type: 'WithdrawTtl', nowMs: begins - 500, ...delayed })
      .thenRefused('nothing-scheduled');
  });
});
