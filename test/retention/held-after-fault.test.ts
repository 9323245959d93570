import { expect, it, vi } from 'vitest';
import { DEFINITION } from './definition.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('a hold whose release was interrupted by a fault is removed from the vault when the release is requested again', async () => {
  let failsOnce = true;
  const { store, storage } = await openInlineStore('release', ({ vault }) => {
    const releaseHold = vault.releaseHold.bind(vault);
    vault.releaseHold = (holdId) => {
      if (!failsOnce) return releaseHold(holdId);
      failsOnce = false;
      return Promise.reject(new Error('the disk is full'));
    };
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const scope = { kind: 'container' } as const;
  await store.placeHold(CALLER, container, 'h', { scope, reason: 'case 7' });
  const release = (holdId: string) => store.releaseHold(CALLER, container, holdId, 'settled');
  await expect(release('h')).rejects.toThrow('the disk is full');
  expect(storage.vault.holds()).toHaveLength(1);
  await release('h');
  expect(storage.vault.holds()).toEqual([]);
  await expect(release('none')).rejects.toMatchObject({ code: 'hold-not-found' });
});

it('what a floor keeps is counted as held back all the time, also while a fault in raising the floor is repaired', async () => {
  let fails = false;
  const { store, storage, clock } = await openInlineStore('raise', ({ log }) => {
    const append = log.append.bind(log);
    log.append = async (...args) => {
      const result = await append(...args);
      if (!fails) return result;
      fails = false;
      throw new Error('the disk is full');
    };
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const document = { id: 'kept', pk: 'p', ttl: 1 };
  await store.writeItem(CALLER, container, 'create', {
    id: 'kept',
    partitionKey: '["p"]',
    document,
    json: JSON.stringify(document),
  });
  fails = true;
  await expect(store.setRetentionFloor(CALLER, container, 600, 'tax law')).rejects.toThrow('the disk is full');
  clock.advance(60_000);
  expect(await store.runPurge()).toMatchObject({ expired: 1, heldBack: 1 });
  const floors = vi.spyOn(storage.vault, 'floors');
  await vi.waitFor(() => expect(floors).toHaveBeenCalled());
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(await store.purgeStatus()).toMatchObject({ heldBack: 1, awaitingErasure: 0 });
  await store.setRetentionFloor(CALLER, container, 0, 'repealed');
  expect(await store.purgeStatus()).toMatchObject({ heldBack: 0, awaitingErasure: 1 });
});
