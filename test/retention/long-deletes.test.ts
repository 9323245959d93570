import { expect, it, onTestFinished, vi } from 'vitest';
import { SqliteEventLog } from '@epitaph/storage/sqlite/sqlite-event-log.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { itemToWrite } from '../support/item.ts';
import { DEFINITION } from './definition.ts';
import { holdBack } from './held-back.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const START_MS = Date.UTC(2026, 10, 28, 18);

it('a delete of a partition key with millions of items is answered when they have ended, and so are writes meanwhile', async () => {
  // given
  const folder = newFolder('long-deletes');
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const { store } = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  onTestFinished(async () => {
    vi.useRealTimers();
    await store.close();
    removeFolder(folder);
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  const { resource: other } = await store.createContainer(CALLER, 'd', 'other', DEFINITION, null);
  await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  const slow = holdBack(SqliteReadModelStore.prototype, 'apply', 'next');
  const recorded = vi.spyOn(SqliteEventLog.prototype, 'append');
  try {
    // when
    const deleting = store.deletePartitionKey(CALLER, container, '["p"]');
    await vi.waitFor(() => expect(slow.hasCome()).toBe(true));
    const writing = store.writeItem(CALLER, other, 'create', itemToWrite({ id: 'b', pk: 'p' }));
    await vi.waitFor(() => expect(recorded).toHaveResolvedTimes(2));
    vi.advanceTimersByTime(30_000);
    slow.goOn();
    // then
    await expect(deleting).resolves.toMatchObject({ position: expect.any(Number) as number });
    await expect(writing).resolves.toMatchObject({ created: true });
    expect(await store.countItems(container)).toBe(0);
  } finally {
    slow.goOn();
    slow.restore();
    recorded.mockRestore();
  }
});
