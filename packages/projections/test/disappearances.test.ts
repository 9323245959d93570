import { expect, it } from 'vitest';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { deletion, expiry, withoutOwnEnd } from '../src/disappearances/disappearance.ts';

const item = { container: 1, partitionKey: '["p"]', id: 'a', life: 0 };
const named = { id: 'a', partitionKey: '["p"]', ts: 1 };
/** Recorded by the purge, some time after what it records. */
const recorded = { position: 9, occurredAtMs: 9_000, actor: 'system:purge' } as RecordedEvent;
const base = { ...item, purgedAtMs: null, rule: null, ttl: null, policyVersion: null };

it('an item that left with its partition key left when that was deleted, and by whom, whenever it was recorded', () => {
  const withPartitionKey = { atMs: 5_000, by: 'key:primary', position: 4 };
  const left = { ...base, cause: 'deleted', position: 4, atMs: 5_000, recordedAtMs: 5_000, actor: 'key:primary' };
  expect(deletion(item, recorded, { ...named, withPartitionKey })).toEqual(left);
  const alone = { position: 9, atMs: 9_000, recordedAtMs: 9_000, actor: 'system:purge' };
  expect(deletion(item, recorded, named)).toEqual({ ...left, ...alone });
});

it('an expired item left at its deadline, and nobody did it', () => {
  const rule = { rule: 'item-ttl', ttl: 3, policyVersion: 2 } as const;
  expect(expiry(item, recorded, { ...named, ...rule, expiredAtMs: 4_000, byPolicyStart: false })).toEqual({
    ...base,
    ...rule,
    cause: 'expired',
    position: 9,
    atMs: 4_000,
    recordedAtMs: 9_000,
    actor: null,
  });
});

it('an item without an end of its own left with its container, or by its erasure', () => {
  const purge = (cause: string, firstPosition?: number) =>
    ({ cause, firstPosition }) as Parameters<typeof withoutOwnEnd>[2];
  const gone = { atMs: 5_000, by: 'key:primary' };
  const purged = { ...base, cause: 'container-deleted', purgedAtMs: 9_000 };
  const left = { ...purged, position: 3, atMs: 5_000, recordedAtMs: 5_000, actor: 'key:primary' };
  expect(withoutOwnEnd(item, recorded, purge('container-deleted', 3), gone)).toEqual(left);
  const unknown = { ...purged, position: 9, atMs: 9_000, recordedAtMs: 9_000, actor: null };
  expect(withoutOwnEnd(item, recorded, purge('container-deleted'), undefined)).toEqual(unknown);
  const erased = { ...unknown, cause: 'erasure', actor: 'system:purge' };
  expect(withoutOwnEnd(item, recorded, purge('erasure', 3), gone)).toEqual(erased);
});
