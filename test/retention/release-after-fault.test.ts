import { expect, it } from 'vitest';
import { DEFINITION } from './definition.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('a hold whose release a fault has cut short is let go by the vault, too, when its release is asked for again', async () => {
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
