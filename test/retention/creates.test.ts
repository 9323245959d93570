import { expect, it, onTestFinished, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { SqliteEventLog } from '@epitaph/storage/sqlite/sqlite-event-log.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('creates, and upserts of new items, do not read the log, except for a hundred after one of an existing item', async () => {
  const folder = newFolder('creates');
  const store = await openEmbeddedStore({ folder, clock: 'system', automaticPurge: false, durable: false });
  const looks = vi.spyOn(SqliteEventLog.prototype, 'readLast');
  onTestFinished(async () => {
    looks.mockRestore();
    await store.close();
    removeFolder(folder);
  });
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  const write = (operation: 'create' | 'upsert') => (id: string) =>
    store.writeItem(CALLER, store.container('d', 'c'), operation, itemToWrite({ id, pk: 'p' }));
  const [create, upsert] = [write('create'), write('upsert')];
  const looksOf = async (creates: () => Promise<unknown>[]) => {
    looks.mockClear();
    await Promise.allSettled(creates());
    return looks.mock.calls.filter(([stream]) => stream.startsWith('item-')).length;
  };
  const some = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => `item ${from + index}`);
  expect(await looksOf(() => some(0, 20).map(create))).toBe(0);
  // The read models have that item. So the log is asked whether it has lost the item or its next life, and then for the item.
  expect(await looksOf(() => [expect(create('item 3')).rejects.toMatchObject({ reason: 'already-exists' })])).toBe(3);
  expect(await looksOf(() => some(20, 119).map(create))).toBe(99);
  expect(await looksOf(() => [expect(create('item 7')).rejects.toMatchObject({ reason: 'already-exists' })])).toBe(1);
  expect(await looksOf(() => some(119, 130).map(create))).toBe(0);

  expect(await looksOf(() => some(130, 150).map(upsert))).toBe(0);
  expect(await looksOf(() => some(130, 135).map(upsert))).toBe(5);
});

it('concurrent writes of an item are carried out in the order in which they came, whatever their kind', async () => {
  const folder = newFolder('writes-in-order');
  const store = await openEmbeddedStore({ folder, clock: 'system', automaticPurge: false, durable: false });
  onTestFinished(async () => {
    await store.close();
    removeFolder(folder);
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  const item = itemToWrite({ id: 'a', pk: 'p' });
  await store.writeItem(CALLER, container, 'create', item);
  await Promise.all([
    store.batchItems(CALLER, container, [{ kind: 'write', operation: 'replace', item, precondition: undefined }]),
    store.patchItem(CALLER, container, 'a', '["p"]', { operations: [{ op: 'add', path: '/n', value: 1 }] }, undefined),
    store.deleteItem(CALLER, container, 'a', '["p"]'),
    store.writeItem(CALLER, container, 'create', item),
    store.deleteItem(CALLER, container, 'a', '["p"]'),
    store.writeItem(CALLER, container, 'upsert', item),
  ]);
  const history = await store.history(container, 'a', '["p"]');
  expect(history.map(({ life, type, data }) => `${life} ${String(data['operation'] ?? type)}`)).toEqual([
    '0 create',
    '0 replace',
    '0 patch',
    '0 ItemDeleted',
    '1 create',
    '1 ItemDeleted',
    '2 upsert',
  ]);
});
