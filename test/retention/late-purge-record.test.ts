import { expect, it, vi } from 'vitest';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { itemToWrite } from '../support/item.ts';
import { DEFINITION } from './definition.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it.for(['before the next pass looks for what is left', 'while the next pass looks at ended lives', 'after that'])(
  'a record of a purge that the log accepts late, after a fault was reported, and %s, leaves no writes behind',
  async (moment) => {
    const { store, storage } = await openInlineStore('late-purge-record');
    const { log } = storage;
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
    for (const id of ['a', 'b']) {
      await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
      await store.deleteItem(CALLER, container, id, '["p"]');
    }

    const append = log.append.bind(log);
    let late: (() => ReturnType<typeof append>) | undefined;
    log.append = async (...args) => {
      if (late !== undefined || args[0][0]!.events[0]!.type !== 'ItemPurged') return append(...args);
      late = () => append(...args);
      throw new StorageUnavailable('the log is away');
    };
    await expect(store.runPurge()).rejects.toThrow('the log is away');
    const comes = async () => {
      const result = await late!();
      expect(result.kind).toBe('appended');
      await vi.waitFor(() =>
        expect(store.headPosition()).toBeGreaterThanOrEqual((result as { position: number }).position),
      );
    };
    if (moment.startsWith('before')) await comes();
    else {
      // The start searches the log from the start of the run for what is left, and then examines the ended lives.
      const readAll = log.readAll.bind(log);
      vi.spyOn(log, 'readAll').mockImplementation(async (...args) => {
        const events = await readAll(...args);
        if (events.length === 0) {
          log.readAll = readAll;
          if (moment.startsWith('while')) void comes();
          else await comes();
        }
        return events;
      });
    }
    await store.runPurge();
    await vi.waitFor(async () =>
      expect(await store.explain(container, 'a', '["p"]')).toMatchObject({ state: 'purged' }),
    );
    // This would remove them as well.
    expect((await store.fsck()).problems).toEqual([]);
  },
);
