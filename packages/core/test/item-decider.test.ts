import { describe, expect, it } from 'vitest';
import type { DeleteItem, ItemCommand, RecordPurge, WriteItem } from '@epitaph/core/item/commands.ts';
import { NEW_KEY } from '@epitaph/core/item/decide.ts';
import { purgeCauses, writeOperations, type ItemEvent, type ItemUpserted } from '@epitaph/core/item/events.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { etagOfGiven, givenItem } from '@epitaph/core/testing/given-when-then.ts';
import type { PolicyStart } from '@epitaph/core/ttl/policy-timeline.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { InvariantViolation } from '@epitaph/core/invariant.ts';

const TS = 1_763_722_800;
/** Half a second into the second that `_ts` says. */
const NOW_MS = TS * 1000 + 500;
const identity = { id: 'cart', partitionKey: '["tenant"]' };
const etag = etagOfGiven(0);

const timeline = (defaultTtl: DefaultTtl): PolicyStart[] => [{ fromMs: 0, defaultTtl, version: 1 }];
const upserted = (over: Partial<ItemUpserted> = {}): ItemEvent => ({
  type: 'ItemUpserted',
  data: { ...identity, operation: 'create', ts: TS, ttl: null, policyVersion: 1, key: 7, bytes: 100, ...over },
});
const deleted: ItemEvent = { type: 'ItemDeleted', data: { ...identity, ts: TS } };
const expired: ItemEvent = {
  type: 'ItemExpired',
  data: {
    ...identity,
    expiredAtMs: (TS + 60) * 1000,
    rule: 'container-default',
    ts: TS,
    ttl: 60,
    policyVersion: 1,
    byPolicyStart: false,
  },
};
const ledger = { writes: 1, times: `${NOW_MS}` };
const purgeFacts = { ...identity, cause: 'expired', key: 7, recoverableUntilMs: null, ledger } as const;
const purged: ItemEvent = { type: 'ItemPurged', data: { ...purgeFacts, erased: 'key-destroyed' } };

const write = (over: Partial<WriteItem> = {}): ItemCommand => ({
  type: 'WriteItem',
  operation: 'upsert',
  ...identity,
  ttl: { kind: 'absent' },
  bytes: 42,
  nowMs: NOW_MS,
  timeline: timeline(60),
  ...over,
});
const remove = (over: Partial<DeleteItem> = {}): ItemCommand => ({
  type: 'DeleteItem',
  nowMs: NOW_MS,
  timeline: timeline(60),
  ...over,
});
const purge = (over: Partial<RecordPurge> = {}): ItemCommand => ({ type: 'RecordPurge', ...purgeFacts, ...over });

describe('writing an item that does not exist', () => {
  it('with create or upsert begins the life, with a key still to be made and _ts rounded down to the second', () => {
    for (const operation of ['create', 'upsert'] as const) {
      givenItem()
        .when(write({ operation }))
        .then(upserted({ operation, key: NEW_KEY, bytes: 42 }));
      givenItem()
        .when(write({ operation, nowMs: TS * 1000 + 999 }))
        .then(upserted({ operation, key: NEW_KEY, bytes: 42 }));
    }
  });
  it('with replace or patch is refused, with or without a condition', () => {
    for (const operation of ['replace', 'patch'] as const) {
      for (const ifMatch of [undefined, '*', etag]) {
        givenItem().when(write({ operation, ifMatch })).thenRefused('not-found');
      }
    }
  });
  it('with If-Match is accepted, because there is no etag to differ', () => {
    for (const operation of ['create', 'upsert'] as const) {
      for (const ifMatch of ['*', etag]) {
        givenItem()
          .when(write({ operation, ifMatch }))
          .then(upserted({ operation, key: NEW_KEY, bytes: 42 }));
      }
    }
  });
  it('with If-None-Match is accepted', () => {
    for (const ifNoneMatch of ['*', etag]) {
      givenItem()
        .when(write({ ifNoneMatch }))
        .then(upserted({ operation: 'upsert', key: NEW_KEY, bytes: 42 }));
    }
  });
});

describe('writing an item that exists', () => {
  it('with create is refused', () => {
    givenItem(upserted())
      .when(write({ operation: 'create' }))
      .thenRefused('already-exists');
    givenItem(upserted())
      .when(write({ operation: 'create', ifMatch: '"other"' }))
      .thenRefused('already-exists');
  });
  it('with upsert, replace or patch gives it a new _ts and keeps the key of its life', () => {
    for (const operation of ['upsert', 'replace', 'patch'] as const) {
      givenItem(upserted())
        .when(write({ operation, nowMs: NOW_MS + 30_000 }))
        .then(upserted({ operation, ts: TS + 30, bytes: 42 }));
    }
  });
  it('without a ttl removes an earlier one', () => {
    givenItem(upserted({ ttl: 10 }))
      .when(write({ operation: 'replace' }))
      .then(upserted({ operation: 'replace', bytes: 42, ttl: null }));
  });
  it('with the current etag, or any, is accepted; with another it is refused', () => {
    for (const operation of ['upsert', 'replace', 'patch'] as const) {
      for (const ifMatch of [etag, '*']) {
        givenItem(upserted())
          .when(write({ operation, ifMatch }))
          .then(upserted({ operation, bytes: 42 }));
      }
      givenItem(upserted())
        .when(write({ operation, ifMatch: '"other"' }))
        .thenRefused('precondition-failed');
      givenItem(upserted(), upserted())
        .when(write({ operation, ifMatch: etag }))
        .thenRefused('precondition-failed');
    }
  });
  it('on the condition that it does not exist, or not in this version, is refused', () => {
    for (const ifNoneMatch of ['*', etag]) {
      givenItem(upserted()).when(write({ ifNoneMatch })).thenRefused('precondition-failed');
    }
    givenItem(upserted())
      .when(write({ ifNoneMatch: '"other"' }))
      .then(upserted({ operation: 'upsert', bytes: 42 }));
  });
  it('records the policy under which it was decided', () => {
    const policies = [
      ...timeline(60),
      { fromMs: NOW_MS, defaultTtl: null, version: 2 },
      { fromMs: NOW_MS + 1, defaultTtl: 5, version: 3 },
    ];
    givenItem()
      .when(write({ timeline: policies }))
      .then(upserted({ operation: 'upsert', key: NEW_KEY, bytes: 42, policyVersion: 2 }));
  });
  it('by a clock behind the one that created the container is decided under the container’s first policy', () => {
    const policies = [
      { fromMs: NOW_MS + 1, defaultTtl: 5, version: 1 },
      { fromMs: NOW_MS + 2, defaultTtl: null, version: 2 },
    ];
    givenItem()
      .when(write({ timeline: policies }))
      .then(upserted({ operation: 'upsert', key: NEW_KEY, bytes: 42, policyVersion: 1 }));
    givenItem()
      .when(write({ timeline: policies, ttl: { kind: 'unreadable', value: 0 } }))
      .thenRefused('invalid-ttl', { value: 0 });
  });
  it('in a container without any policy is reported as a defect', () => {
    expect(() => givenItem().when(write({ timeline: [] }))).toThrow(InvariantViolation);
  });
});

describe("an item's own ttl", () => {
  it('is recorded unchanged, with the TTL on or off', () => {
    for (const defaultTtl of [null, -1, 60] as const) {
      for (const seconds of [-1, 1, 2_147_483_647]) {
        givenItem()
          .when(write({ timeline: timeline(defaultTtl), ttl: { kind: 'value', seconds } }))
          .then(upserted({ operation: 'upsert', key: NEW_KEY, bytes: 42, ttl: seconds }));
      }
    }
  });
  it('if invalid, is refused for every write while the TTL is on, before anything else is checked', () => {
    for (const operation of writeOperations) {
      for (const defaultTtl of [-1, 60] as const) {
        const command = write({
          operation,
          timeline: timeline(defaultTtl),
          ttl: { kind: 'unreadable', value: 'soon' },
        });
        givenItem().when(command).thenRefused('invalid-ttl', { value: 'soon' });
        givenItem(upserted()).when(command).thenRefused('invalid-ttl', { value: 'soon' });
      }
    }
  });
  it('if invalid, counts as absent while the TTL is off, and is marked', () => {
    givenItem()
      .when(write({ timeline: timeline(null), ttl: { kind: 'unreadable', value: 0 } }))
      .then(upserted({ operation: 'upsert', key: NEW_KEY, bytes: 42, unreadableTtl: true }));
  });
});

describe('deleting an item', () => {
  it('that exists is recorded, without a condition or with the current etag', () => {
    for (const ifMatch of [undefined, '*', etag]) {
      givenItem(upserted()).when(remove({ ifMatch })).then(deleted);
    }
  });
  it('with another etag is refused', () => {
    givenItem(upserted())
      .when(remove({ ifMatch: '"other"' }))
      .thenRefused('precondition-failed');
  });
  it('that does not exist is refused', () => {
    givenItem().when(remove()).thenRefused('not-found');
    givenItem()
      .when(remove({ ifMatch: etag }))
      .thenRefused('not-found');
  });
});

describe('a deadline', () => {
  const deadlineMs = (TS + 60) * 1000;
  it('one millisecond before it, every command finds the item', () => {
    const nowMs = deadlineMs - 1;
    givenItem(upserted())
      .when(write({ nowMs }))
      .then(upserted({ operation: 'upsert', ts: TS + 59, bytes: 42 }));
    givenItem(upserted()).when(remove({ nowMs })).then(deleted);
    givenItem(upserted())
      .when({ type: 'RecordExpiry', nowMs, timeline: timeline(60) })
      .thenRefused('not-due');
  });
  it('from it on, every command of a client first records the end, whatever its conditions', () => {
    for (const nowMs of [deadlineMs, deadlineMs + 1, deadlineMs + 1_000_000_000]) {
      for (const operation of writeOperations) {
        givenItem(upserted())
          .when(write({ operation, nowMs, ifMatch: '"other"' }))
          .thenEndsFirst(expired);
      }
      givenItem(upserted()).when(remove({ nowMs })).thenEndsFirst(expired);
      givenItem(upserted())
        .when({ type: 'RecordExpiry', nowMs, timeline: timeline(60) })
        .then(expired);
    }
  });
  it("by the item's own ttl is recorded with that rule", () => {
    givenItem(upserted({ ttl: 5 }))
      .when({ type: 'RecordExpiry', nowMs: NOW_MS + 10_000, timeline: timeline(60) })
      .then({
        type: 'ItemExpired',
        data: {
          ...identity,
          expiredAtMs: (TS + 5) * 1000,
          rule: 'item-ttl',
          ts: TS,
          ttl: 5,
          policyVersion: 1,
          byPolicyStart: false,
        },
      });
  });
  it('that the start of a policy brought about is recorded as such, at that start', () => {
    const startMs = deadlineMs + 123;
    givenItem(upserted())
      .when({
        type: 'RecordExpiry',
        nowMs: startMs + 5,
        timeline: [...timeline(null), { fromMs: startMs, defaultTtl: 60, version: 2 }],
      })
      .then({
        type: 'ItemExpired',
        data: {
          ...identity,
          expiredAtMs: startMs,
          rule: 'container-default',
          ts: TS,
          ttl: 60,
          policyVersion: 2,
          byPolicyStart: true,
        },
      });
  });
  it('does not exist without a TTL', () => {
    givenItem(upserted({ ttl: 5 }))
      .when({ type: 'RecordExpiry', nowMs: 253_402_300_799_999, timeline: timeline(null) })
      .thenRefused('not-due');
  });
  it('is recorded once', () => {
    for (const past of [[], [upserted(), expired], [upserted(), deleted], [upserted(), expired, purged]]) {
      givenItem(...past)
        .when({ type: 'RecordExpiry', nowMs: deadlineMs + 5, timeline: timeline(60) })
        .thenRefused('not-due');
    }
  });
});

describe('a life that has ended', () => {
  it('sends every command of a client to the next life', () => {
    for (const past of [
      [upserted(), expired],
      [upserted(), deleted],
      [upserted(), expired, purged],
      [upserted(), deleted, purged],
      [upserted(), purged],
    ]) {
      for (const operation of writeOperations)
        givenItem(...past)
          .when(write({ operation }))
          .thenGoesToNextLife();
      givenItem(...past)
        .when(remove())
        .thenGoesToNextLife();
    }
  });
});

describe('recording a purge', () => {
  it('of an expired or deleted life is accepted once', () => {
    for (const end of [expired, deleted]) {
      for (const cause of purgeCauses) {
        givenItem(upserted(), end)
          .when(purge({ cause }))
          .then({ type: 'ItemPurged', data: { ...purgeFacts, cause, erased: 'key-destroyed' } });
        givenItem(upserted(), end, purged).when(purge({ cause })).thenRefused('not-due');
      }
    }
  });
  it('of a live item is accepted only if its container is deleted or its erasure was requested', () => {
    for (const cause of ['container-deleted', 'erasure'] as const) {
      givenItem(upserted())
        .when(purge({ cause }))
        .then({ type: 'ItemPurged', data: { ...purgeFacts, cause, erased: 'key-destroyed' } });
    }
    for (const cause of ['expired', 'deleted'] as const) {
      givenItem(upserted()).when(purge({ cause })).thenRefused('not-due');
    }
  });
  it('of a life that never existed is refused', () => {
    for (const cause of purgeCauses) givenItem().when(purge({ cause })).thenRefused('not-due');
  });
});

describe('stream names', () => {
  it('of lives can be parsed', () => {
    expect(parseItemStream(itemStream('item-Co1.hash', 12))).toEqual({
      prefix: 'item-Co1.hash',
      containerRid: 'Co1',
      life: 12,
    });
    expect(parseItemStream('container-Co1')).toBe(undefined);
    expect(() => parseItemStream('item-Co1')).toThrow(InvariantViolation);
    expect(() => parseItemStream('item-Co1.hash')).toThrow(InvariantViolation);
  });
});

describe('a life that was deleted with its partition key', () => {
  const left = { atMs: (TS + 30) * 1000, by: 'key:secondary' };
  const gone: ItemEvent = { type: 'ItemDeleted', data: { ...identity, ts: TS, withPartitionKey: left } };
  const nowMs = (TS + 90) * 1000;

  it('gets its end recorded before the next write or delete is decided, even if its deadline has passed since', () => {
    for (const command of [
      write({ nowMs, leftWithPartitionKey: left }),
      remove({ nowMs, leftWithPartitionKey: left }),
    ]) {
      givenItem(upserted()).when(command).thenEndsFirst(gone);
    }
  });
  it('is recorded with the position of its last write, if that is known', () => {
    const placed = { ...left, position: 41 };
    givenItem(upserted())
      .when(write({ nowMs, leftWithPartitionKey: placed }))
      .thenEndsFirst({ type: 'ItemDeleted', data: { ...identity, ts: TS, withPartitionKey: placed } });
  });
  it('and that had expired before ends by its deadline', () => {
    const late = { ...left, atMs: (TS + 60) * 1000 };
    givenItem(upserted())
      .when(write({ nowMs, leftWithPartitionKey: late }))
      .thenEndsFirst(expired);
  });
  it('is ended by the purge once', () => {
    const command = { type: 'RecordPartitionKeyDelete', timeline: timeline(60), leftWithPartitionKey: left } as const;
    givenItem(upserted()).when(command).then(gone);
    givenItem().when(command).thenRefused('not-due');
    for (const end of [gone, deleted, expired, purged]) {
      givenItem(upserted(), end).when(command).thenRefused('not-due');
    }
  });
  it('has ended for the next command', () => {
    givenItem(upserted(), gone).when(write({ nowMs })).thenGoesToNextLife();
  });
});
