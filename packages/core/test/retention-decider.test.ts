import { describe, expect, it } from 'vitest';
import type { ContainerCommand } from '@epitaph/core/container/commands.ts';
import type { ContainerEvent } from '@epitaph/core/container/events.ts';
import { MAX_STANDING_HOLDS } from '@epitaph/core/retention/decide.ts';
import type { SettleErasure } from '@epitaph/core/retention/commands.ts';
import type { RecordedScope } from '@epitaph/core/retention/events.ts';
import { holdIdOf, vaultHoldId, vaultScope, withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { givenContainer } from '@epitaph/core/testing/given-when-then.ts';
import { covers } from '@epitaph/core/vault/key-vault.ts';

const NOW_MS = 1_763_722_800_123;
const created: ContainerEvent = {
  type: 'ContainerCreated',
  data: {
    databaseRid: 'Db1',
    name: 'carts',
    definition: {
      partitionKey: { paths: ['/tenant'], kind: 'Hash', version: 2 },
      indexingPolicy: { indexingMode: 'consistent' },
    },
    defaultTtl: 60,
    policyGraceSeconds: 0,
  },
};
const deleted: ContainerEvent = { type: 'ContainerDeleted', data: {} };
const placed = (holdId: string, scope: RecordedScope = { kind: 'container' }): ContainerEvent => ({
  type: 'HoldPlaced',
  data: { holdId, scope, reason: 'case 7', tooLateFor: 0 },
});
const released = (holdId: string): ContainerEvent => ({ type: 'HoldReleased', data: { holdId, reason: 'closed' } });
const place = (holdId: string, scope: RecordedScope = { kind: 'container' }): ContainerCommand => ({
  type: 'PlaceHold',
  holdId,
  scope,
  reason: 'case 7',
  tooLateFor: 0,
  nowMs: NOW_MS,
});
const release = (holdId: string): ContainerCommand => ({
  type: 'ReleaseHold',
  holdId,
  reason: 'closed',
  nowMs: NOW_MS,
});
describe('a hold', () => {
  it('is recorded once under its id', () => {
    givenContainer(created).when(place('a')).then(placed('a'));
    givenContainer(created, placed('a')).when(place('b')).then(placed('b'));
    givenContainer(created, placed('a')).when(place('a')).thenRefused('hold-exists');
  });

  it('that was released keeps its id for ever', () => {
    givenContainer(created, placed('a'), released('a')).when(place('a')).thenRefused('hold-exists');
  });

  it('is released once, and releasing it again changes nothing', () => {
    givenContainer(created, placed('a')).when(release('a')).then(released('a'));
    givenContainer(created, placed('a'), released('a')).when(release('a')).then();
    givenContainer(created).when(release('a')).thenRefused('hold-not-found');
  });

  it('can be placed on a deleted container, and released there', () => {
    givenContainer(created, deleted).when(place('a')).then(placed('a'));
    givenContainer(created, placed('a'), deleted).when(release('a')).then(released('a'));
    givenContainer().when(place('a')).thenRefused('not-found');
  });

  it('is refused if there are as many as possible; released ones do not count', () => {
    const standing = Array.from({ length: MAX_STANDING_HOLDS }, (_, index) => placed(`h${index}`));
    givenContainer(created, ...standing)
      .when(place('one more'))
      .thenRefused('too-many-holds');
    givenContainer(created, ...standing, released('h0'))
      .when(place('one more'))
      .then(placed('one more'));
  });
});

describe('a floor and a recovery window', () => {
  it('are recorded with their former values, and not if nothing changes', () => {
    const floor = (seconds: number): ContainerCommand => ({
      type: 'ChangeRetentionFloor',
      seconds,
      reason: 'tax law',
      nowMs: NOW_MS,
    });
    const changed = (fromSeconds: number, toSeconds: number): ContainerEvent => ({
      type: 'RetentionFloorChanged',
      data: { fromSeconds, toSeconds, reason: 'tax law' },
    });
    givenContainer(created).when(floor(10)).then(changed(0, 10));
    givenContainer(created, changed(0, 10)).when(floor(0)).then(changed(10, 0));
    givenContainer(created, changed(0, 10)).when(floor(10)).then();
    givenContainer(created)
      .when({ type: 'ChangeRecoveryWindow', seconds: 5, reason: 'operators', nowMs: NOW_MS })
      .then({ type: 'RecoveryWindowChanged', data: { fromSeconds: 0, toSeconds: 5, reason: 'operators' } });
    givenContainer(created)
      .when({ type: 'ChangeRecoveryWindow', seconds: 0, reason: 'operators', nowMs: NOW_MS })
      .then();
  });
});

describe('a recovery', () => {
  it('is recorded with what was to be recovered: one item, or everything that one policy expired', () => {
    for (const what of [{ item: 'hash' }, { policyVersion: 2 }]) {
      givenContainer(created)
        .when({ type: 'RequestRecovery', ...what, reason: 'a mistake', nowMs: NOW_MS })
        .then({ type: 'RecoveryRequested', data: { ...what, reason: 'a mistake' } });
    }
  });
});

describe('an erasure', () => {
  const requested: ContainerEvent = {
    type: 'ErasureRequested',
    data: { item: 'hash', requestedBy: 'desk 3', reason: 'article 17' },
  };
  /** Given events have positions from 1 on. */
  const position = 2;
  const settle = (kept?: SettleErasure['kept']): ContainerCommand => ({
    type: 'SettleErasure',
    position,
    erasedLives: 1,
    alreadyErasedLives: 2,
    kept,
    nowMs: NOW_MS,
  });
  const completed: ContainerEvent = {
    type: 'ErasureCompleted',
    data: { position, item: 'hash', erasedLives: 1, alreadyErasedLives: 2 },
  };

  it('is recorded when it is requested, and later with its outcome', () => {
    givenContainer(created)
      .when({ type: 'RequestErasure', item: 'hash', requestedBy: 'desk 3', reason: 'article 17', nowMs: NOW_MS })
      .then(requested);
    givenContainer(created, requested).when(settle()).then(completed);
    givenContainer(created, requested)
      .when(settle({ holds: ['a'], floorUntilMs: null }))
      .then({
        type: 'ErasureRefused',
        data: { position, item: 'hash', holds: ['a'], floorUntilMs: null, erasedLives: 1 },
      });
  });

  it('is not refused for a hold or floor that has ended meanwhile, but for one that the vault still has', () => {
    const floor = (toSeconds: number): ContainerEvent => ({
      type: 'RetentionFloorChanged',
      data: { fromSeconds: 60 - toSeconds, toSeconds, reason: 'law' },
    });
    const refused = (holds: string[], floorUntilMs: number | null): ContainerEvent => ({
      type: 'ErasureRefused',
      data: { position, item: 'hash', holds, floorUntilMs, erasedLives: 1 },
    });
    const byHold = { holds: ['a'], floorUntilMs: null };
    const byBoth = { holds: ['a'], floorUntilMs: NOW_MS + 1 };
    const over = [created, requested, placed('a'), released('a'), floor(60), floor(0)] as const;
    givenContainer(...over)
      .when(settle(byHold))
      .then();
    givenContainer(...over)
      .when(settle(byBoth))
      .then();
    givenContainer(...over)
      .when(settle({ ...byHold, isUnrecorded: true }))
      .then(refused(['a'], null));
    givenContainer(created, requested, placed('a'), placed('b'), released('a'))
      .when(settle({ holds: ['a', 'b'], floorUntilMs: null }))
      .then(refused(['a', 'b'], null));
    givenContainer(created, requested, placed('a'), released('a'), floor(60))
      .when(settle(byBoth))
      .then(refused(['a'], NOW_MS + 1));
    // A floor that is over for the life does not forbid it.
    givenContainer(created, requested, placed('a'), released('a'), floor(60)).when(settle(byHold)).then();
  });

  it('is settled once', () => {
    givenContainer(created, requested, completed).when(settle()).then();
  });
});

describe('the scope of a hold in the vault', () => {
  const rid = 'Rid==';
  it('covers what its record names, and nothing that only has the same prefix', () => {
    const items = vaultScope(rid, { kind: 'items', items: ['part1item1', 'part2item2'] });
    expect(
      ['part1item1.0', 'part2item2.17', 'part1item10.0', 'part1.0'].map((name) => covers(items, `item-${rid}.${name}`)),
    ).toEqual([true, true, false, false]);
    const partition = vaultScope(rid, { kind: 'partition-key', prefix: 'part1' });
    expect(covers(partition, `item-${rid}.part1item9.3`)).toBe(true);
    expect(covers(partition, 'item-Other.part1item9.3')).toBe(false);
    const lives = vaultScope(rid, { kind: 'query', lives: ['part1item1.1'] });
    expect([0, 1, 11].map((life) => covers(lives, `item-${rid}.part1item1.${life}`))).toEqual([false, true, false]);
  });

  it('and its id can be converted in both directions', () => {
    expect(withoutContainer(rid, `item-${rid}.part1item1.0`)).toBe('part1item1.0');
    expect(holdIdOf(rid, vaultHoldId(rid, 'case-7'))).toBe('case-7');
    expect(holdIdOf(rid, 'not of a container')).toBe('not of a container');
  });
});
