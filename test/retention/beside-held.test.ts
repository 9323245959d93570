import { afterAll, expect, it } from 'vitest';
import { BATCH_SIZE } from '@epitaph/projections/purge/executor.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

const folder = newFolder('beside-held');
afterAll(() => removeFolder(folder));

/** A pass records what has no ttl first, so an end that it records late may be the earliest of all. */
it('a purge erases what ended before something that is held and was recorded after it', async () => {
  const { store } = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
    const write = (id: string, ttl?: number) => {
      const document = { id, pk: 'p', ...(ttl === undefined ? {} : { ttl }) };
      const item = { id, partitionKey: PK, document, json: JSON.stringify(document) };
      return store.writeItem(CALLER, container, 'create', item);
    };
    await write('held');
    await store.placeHold(CALLER, container, 'h', {
      scope: { kind: 'items', items: [{ id: 'held', partitionKey: PK }] },
      reason: 'case 7',
    });
    // So many that the held one is refused by the vault while others are still to be recorded.
    const others = Array.from({ length: BATCH_SIZE * 3 }, (_, index) => `i${index}`);
    await Promise.all(others.map((id) => write(id)));
    await write('first-to-end', 50);

    await store.advanceClock(CALLER, 200_000);
    expect(await store.runPurge(CALLER)).toMatchObject({ purged: others.length + 1, heldBack: 1 });
    expect(await store.explain(container, 'first-to-end', PK)).toMatchObject({ state: 'purged' });
  } finally {
    await store.close();
  }
});
