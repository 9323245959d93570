import type { ReadModelChange } from '@epitaph/projections/read-model-store.ts';

const nameOf = (id: string, life: number) => ({ container: 1, partitionKey: '["p"]', id, life }) as const;

/** The change by which an item of container 1 is written, in partition p. */
export const written = (
  id: string,
  position: number,
  revision = 0,
  life = 1,
): Extract<ReadModelChange, { kind: 'item-written' }> => ({
  ...nameOf(id, life),
  kind: 'item-written',
  revision,
  position,
  ts: position,
  ttl: null,
  key: 7,
  unreadableTtl: false,
});

/** The change by which it is deleted. */
export const ended = (id: string, position: number, life = 1): ReadModelChange => ({
  kind: 'item-ended',
  row: {
    ...nameOf(id, life),
    position,
    stream: `item-${id}`,
    cause: 'deleted',
    endedAtMs: 1_000,
    byPolicyStart: false,
  },
  disappearance: {
    ...nameOf(id, life),
    position,
    cause: 'deleted',
    atMs: 1_000,
    recordedAtMs: 1_000,
    purgedAtMs: null,
    actor: 'key:primary',
    rule: null,
    ttl: null,
    policyVersion: null,
  },
});
