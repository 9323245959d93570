import { expect, it } from 'vitest';
import type { ContainerEvent } from '@epitaph/core/container/events.ts';
import { WithdrawnLater } from '@epitaph/core/container/withdrawn-later.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const ASKED_FOR_MS = 100;

/** The policy that was withdrawn after the given instant, from events and the time at which each was recorded. */
function withdrawnBy(...events: readonly (readonly [occurredAtMs: number, event: ContainerEvent])[]) {
  const later = new WithdrawnLater(ASKED_FOR_MS);
  for (const [occurredAtMs, event] of events) later.take(recordedEvent('container-Co1', event, { occurredAtMs }));
  return { isKnown: later.isKnown, version: later.policy?.version };
}

const scheduled = (policyVersion: number): ContainerEvent => ({
  type: 'ContainerTtlChanged',
  data: { from: null, to: 60, policyVersion, effectiveFromMs: 1_000, scheduled: true },
});
const withdrawn = (policyVersion: number): ContainerEvent => ({
  type: 'ContainerTtlWithdrawn',
  data: { policyVersion, effectiveFromMs: 1_000 },
});
const raised: ContainerEvent = {
  type: 'RetentionFloorChanged',
  data: { fromSeconds: 0, toSeconds: 60, reason: 'law' },
};

it('a policy scheduled at an instant counts as withdrawn later only by the record of its withdrawal', () => {
  const at = ASKED_FOR_MS;
  expect(withdrawnBy([at, scheduled(2)])).toEqual({ isKnown: false });
  expect(withdrawnBy([at, scheduled(2)], [at + 1, raised])).toEqual({ isKnown: false });
  expect(withdrawnBy([at, scheduled(2)], [at, raised], [at + 1, raised], [at + 1, withdrawn(2)])).toEqual({
    isKnown: true,
    version: 2,
  });
  expect(withdrawnBy([at - 1, scheduled(2)], [at, withdrawn(2)], [at + 1, raised])).toEqual({ isKnown: false });
  expect(
    withdrawnBy([at - 2, scheduled(2)], [at - 1, withdrawn(2)], [at, scheduled(3)], [at + 1, withdrawn(3)]),
  ).toEqual({
    isKnown: true,
    version: 3,
  });
  // Another policy can be scheduled only once this one is in force or withdrawn.
  expect(withdrawnBy([at, scheduled(2)], [at + 1_000, scheduled(3)], [at + 1_001, withdrawn(3)])).toEqual({
    isKnown: true,
  });
  expect(withdrawnBy([at + 1, scheduled(2)], [at + 2, withdrawn(2)])).toEqual({ isKnown: true });
  // What comes after the withdrawal doesn't matter.
  const asKnown = [
    [at, scheduled(2)],
    [at + 1, withdrawn(2)],
  ] as const;
  expect(withdrawnBy(...asKnown, [at + 2, scheduled(3)])).toEqual({ isKnown: true, version: 2 });
});
