import { expect, it, onTestFinished, vi } from 'vitest';
import { SqliteEventLog } from '@epitaph/storage/sqlite/sqlite-event-log.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { itemToWrite } from '../support/item.ts';
import { DEFINITION } from './definition.ts';
import { holdBack } from './held-back.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const START_MS = Date.UTC(2026, 10, 21, 10);

it.each([
  { what: 'ended that', isBegunAnew: false },
  { what: 'ended that and begun the next', isBegunAnew: true },
])(
  'a write after a restart is answered with the birth of its life, even if another has $what by then',
  async ({ isBegunAnew }) => {
    const folder = newFolder('answered-births');
    const open = () => openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
    let { store } = await open();
    onTestFinished(async () => {
      await store.close();
      removeFolder(folder);
    });
    await store.createDatabase(CALLER, 'd');
    await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    const write = (operation: 'create' | 'replace', id = 'a') =>
      store.writeItem(CALLER, store.container('d', 'c'), operation, itemToWrite({ id, pk: 'p' }));
    const { resource: created } = await write('create');
    // A restart, because the births of recently written lives are cached.
    await store.close();
    ({ store } = await open());
    const slow = holdBack(SqliteReadModelStore.prototype, 'apply', 'next');
    const recorded = vi.spyOn(SqliteEventLog.prototype, 'append');
    try {
      const other = write('create', 'b');
      await vi.waitFor(() => expect(slow.hasCome()).toBe(true));
      // From now on, recorded events are projected at once.
      const replacing = write('replace');
      await vi.waitFor(() => expect(recorded).toHaveResolvedTimes(2));
      const deleting = store.deleteItem(CALLER, store.container('d', 'c'), 'a', '["p"]');
      await vi.waitFor(() => expect(recorded).toHaveResolvedTimes(3));
      const beginning = isBegunAnew ? write('create') : undefined;
      // Sent for the first life as well, of which the log has more events.
      if (isBegunAnew) await vi.waitFor(() => expect(recorded).toHaveResolvedTimes(5));
      slow.goOn();
      const [{ resource: replaced }] = await Promise.all([replacing, deleting, other, beginning]);
      expect(replaced.birth).toBe(created.birth);
    } finally {
      slow.goOn();
      slow.restore();
      recorded.mockRestore();
    }
  },
);
