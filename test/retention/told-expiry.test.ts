import { expect, it } from 'vitest';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore, SlowWrite } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('an expiry that a reader was told of stays, although a write decided before it is answered later', async () => {
  let slow!: SlowWrite;
  const { store } = await openInlineStore('told-expiry', ({ log }) => (slow = new SlowWrite(log)));
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 20);
  const write = (id: string) => store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  await write('old');
  await write('renewed');
  await store.deleteItem(CALLER, container, 'renewed', '["p"]');
  await store.advanceClock(10_000);
  const waits = slow.begin();
  const written = write('renewed');
  await waits;
  await store.advanceClock(10_000);
  await expect(store.readItem(container, 'old', '["p"]')).rejects.toMatchObject({ code: 'item-not-found' });
  slow.end();
  await written;
  await store.replaceContainer(CALLER, 'd', 'c', DEFINITION, null);
  await expect(store.readItem(container, 'old', '["p"]')).rejects.toMatchObject({ code: 'item-not-found' });
});

it('an item is found by its rid until its deadline, and not by another rid', async () => {
  const { store } = await openInlineStore('told-expiry');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 20);
  const { resource: item } = await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  expect(await store.itemByBirth(container, item.birth)).toMatchObject({ id: 'a' });
  expect(await store.itemByBirth(container, item.birth - 1)).toBe(undefined);
  await store.advanceClock(20_000);
  expect(await store.itemByBirth(container, item.birth)).toBe(undefined);
});

it('a past state of an item is read from its ledger if the item is purged at that moment', async () => {
  const { store, storage } = await openInlineStore('told-expiry');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 20);
  const write = () => store.writeItem(CALLER, container, 'upsert', itemToWrite({ id: 'a', pk: 'p' }));
  await write();
  const atMs = store.nowMs();
  await store.advanceClock(1_000);
  await write();
  const { log } = storage;
  const readStream = log.readStream.bind(log);
  log.readStream = async (stream, part) => {
    // The first write is read, which shows that the life had begun by then.
    if (stream.startsWith('item-') && part?.toRevision === 0) {
      log.readStream = readStream;
      await store.advanceClock(30_000);
      await store.runPurge();
    }
    return readStream(stream, part);
  };
  expect((await store.explain(container, 'a', '["p"]', atMs)).state).toBe('live');
  expect((await store.explain(container, 'a', '["p"]')).state).toBe('purged');
});

it('an item whose deadline is the instant of its container’s deletion ended with the container, and did not expire', async () => {
  const { store, storage, clock } = await openInlineStore('same-instant');
  await store.createDatabase(CALLER, 'd');
  const endsAfter = async (milliseconds: number) => {
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    clock.advance(milliseconds);
    await store.deleteContainer(CALLER, 'd', 'c');
    const head = await storage.log.head();
    await store.runPurge();
    const events = await storage.log.readAll(head, 100, { withBodies: false });
    return events.filter(({ stream }) => stream.startsWith('item-')).map(({ type, data }) => data['cause'] ?? type);
  };
  expect(await endsAfter(60_000)).toEqual(['container-deleted']);
  expect(await endsAfter(60_001)).toEqual(['ItemExpired', 'expired']);
});
