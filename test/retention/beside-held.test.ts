import { describe, expect, it } from 'vitest';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { BATCH_SIZE } from '@epitaph/projections/purge/executor.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

/**
 * A store with a container in which the item `held` is under a hold.
 *
 * @param onAsked called after each time that the vault was asked to destroy keys, with their number
 */
async function openWorld(name: string, onAsked: (keys: number) => unknown = () => {}) {
  const { store, clock } = await openInlineStore(name, ({ vault }) => {
    const destroyKeys = vault.destroyKeys.bind(vault);
    vault.destroyKeys = async (requests: Parameters<KeyVault['destroyKeys']>[0]) => {
      const outcomes = await destroyKeys(requests);
      await onAsked(requests.length);
      return outcomes;
    };
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
  const write = (id: string, ttl?: number) => {
    const item = itemToWrite({ id, pk: 'p', ...(ttl === undefined ? {} : { ttl }) });
    return store.writeItem(CALLER, container, 'create', item);
  };
  await write('held');
  await store.placeHold(CALLER, container, 'h', {
    scope: { kind: 'items', items: [{ id: 'held', partitionKey: PK }] },
    reason: 'case 7',
  });
  const end = (id: string) => store.deleteItem(CALLER, container, id, PK);
  const stateOf = async (id: string) => (await store.explain(container, id, PK)).state;
  return { store, clock, container, write, end, stateOf };
}

describe('a purge beside an item under a hold', () => {
  /** A pass first records the expiries of items without a ttl, so an end recorded late may be the earliest of all. */
  it('erases an item that ended before it and was recorded after it', async () => {
    const { store, write, stateOf } = await openWorld('ended-before-held');
    // There are so many items that the vault refuses the held one while others are still to be recorded.
    const others = Array.from({ length: BATCH_SIZE * 3 }, (_, index) => `i${index}`);
    await Promise.all(others.map((id) => write(id)));
    await write('first-to-end', 50);
    await store.advanceClock(200_000);
    expect(await store.runPurge()).toMatchObject({ purged: others.length + 1, heldBack: 1 });
    expect(await stateOf('first-to-end')).toBe('purged');
  });

  it('erases an item that ended between it and one that was erased with it, and was recorded after both', async () => {
    const { store, write, end, stateOf } = await openWorld('ended-behind-held');
    await write('late');
    await write('between', 15);
    await end('held');
    await store.advanceClock(20_000);
    await end('late');
    expect(await store.runPurge()).toMatchObject({ purged: 2, heldBack: 1 });
    expect(await stateOf('between')).toBe('purged');
  });

  it('erases an item behind it that a floor had kept, and does not ask about it again', async () => {
    const asked: number[] = [];
    const { store, clock, container, write, end, stateOf } = await openWorld('behind-held', async (keys) => {
      asked.push(keys);
      if (asked.length > 1) return;
      await end('behind');
      // The test's own clock is moved, because advancing the store's clock would make the purge look at everything again.
      clock.advance(10_000);
    });
    await store.setRetentionFloor(CALLER, container, 10, 'to be looked at');
    // As many lives as the purge remembers in one stretch.
    const before = Array.from({ length: 100 }, (_, index) => `i${index}`);
    await Promise.all([...before, 'behind'].map((id) => write(id)));
    await Promise.all(before.map(end));
    await store.advanceClock(1_000);
    await end('held');
    expect(await store.runPurge()).toMatchObject({ expired: 0, purged: 101, heldBack: 1 });
    expect(await stateOf('behind')).toBe('purged');
    expect(asked).toEqual([101, 101]);
  });
});
