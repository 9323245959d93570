import { expect, it } from 'vitest';
import type { ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import { DEFINITION } from './definition.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('a delete by partition key that comes while a purge checks whether any are left is carried out by the next purge', async () => {
  const { store, storage } = await openInlineStore('partition-key-deletes');
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const container = store.container('d', 'c');
  const write = (id: string, pk: string) => {
    const document = { id, pk };
    const item = { id, partitionKey: JSON.stringify([pk]), document, json: JSON.stringify(document) };
    return store.writeItem(CALLER, container, 'upsert', item);
  };
  await write('first', 'a');
  await write('second', 'b');
  await store.deleteItem(CALLER, container, 'first', '["a"]');

  // The catalog knows of a change a moment before its rows are written.
  const rows: ReadModelStore = storage.readModels.current.store;
  const { apply, unrecordedEnds } = rows;
  const { promise: mayApply, resolve: goOn } = Promise.withResolvers<void>();
  const { promise: known, resolve: isKnown } = Promise.withResolvers<void>();
  rows.apply = async (changes, ...where) => {
    if (changes.some(({ kind }) => kind === 'partition-key-deleted')) {
      isKnown();
      await mayApply;
    }
    await apply.call(rows, changes, ...where);
  };
  let deleted: Promise<unknown> | undefined;
  const { endedLives } = rows;
  rows.endedLives = async (...args) => {
    const found = await endedLives.apply(rows, args);
    // All candidates of the run are erased.
    if (found.length > 0 || (await rows.countPurged()) === 0) return found;
    deleted ??= store.deletePartitionKey(CALLER, container, '["b"]');
    await known;
    return found;
  };
  rows.unrecordedEnds = async (...args) => {
    const found = await unrecordedEnds.apply(rows, args);
    if (deleted !== undefined && args[1] === 1) {
      goOn();
      await deleted;
    }
    return found;
  };
  await store.runPurge();
  goOn();
  await deleted;
  await write('second', 'b');
  expect(await store.readItem(container, 'second', '["b"]')).toMatchObject({ json: '{"id":"second","pk":"b"}' });
  await store.runPurge();
  expect((await store.fsck()).problems).toEqual([]);
});

/** A container with items of two partition keys, one of which was deleted. */
async function oneOfTwoKeysDeleted() {
  const { store, storage } = await openInlineStore('partition-key-deletes');
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const container = store.container('d', 'c');
  for (const pk of ['a', 'b']) {
    const document = { id: 'x', pk };
    const item = { id: 'x', partitionKey: JSON.stringify([pk]), document, json: JSON.stringify(document) };
    await store.writeItem(CALLER, container, 'upsert', item);
  }
  await store.deletePartitionKey(CALLER, container, '["a"]');
  return { store, storage, container };
}

it('a delete by partition key that comes while a purge looks up the ends left by others does not make it fail', async () => {
  const { store, storage, container } = await oneOfTwoKeysDeleted();
  await store.advanceClock(1_000);
  const rows: ReadModelStore = storage.readModels.current.store;
  const { overdueItems } = rows;
  let deleted: Promise<unknown> | undefined;
  rows.overdueItems = async (...args) => {
    const found = await overdueItems.apply(rows, args);
    // The first look only checks whether there is anything to do.
    if (args[2] > 1) await (deleted ??= store.deletePartitionKey(CALLER, container, '["b"]'));
    return found;
  };
  await store.runPurge();
  expect(deleted).toBeDefined();
  expect((await store.fsck()).problems).toEqual([]);
});

it('the caller who deleted a partition key is named, also if another deletes it again in the same millisecond', async () => {
  const { store } = await openInlineStore('partition-key-deletes');
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const container = store.container('d', 'c');
  for (const actor of ['key:primary', 'key:secondary']) {
    const document = { id: actor, pk: 'a' };
    const item = { id: actor, partitionKey: '["a"]', document, json: JSON.stringify(document) };
    await store.writeItem(CALLER, container, 'upsert', item);
    await store.deletePartitionKey({ ...CALLER, actor }, container, '["a"]');
  }
  await store.runPurge();
  for (const actor of ['key:primary', 'key:secondary']) {
    expect((await store.explain(container, actor, '["a"]')).sentence).toContain(
      `with all of its partition key by ${actor}`,
    );
  }
});

it('a delete by partition key is completed even if its container is deleted before', async () => {
  const { store, container } = await oneOfTwoKeysDeleted();
  await store.deleteContainer(CALLER, 'd', 'c');
  expect(await store.runPurge()).toMatchObject({ purged: 2 });
  expect(await store.runPurge()).toMatchObject({ purged: 0 });
  expect((await store.explain(container, 'x', '["a"]')).sentence).toContain('with all of its partition key');
});

it('the completion of a delete by partition key is recorded, also if the key had no items', async () => {
  const { store } = await openInlineStore('partition-key-deletes');
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const container = store.container('d', 'c');
  await store.deletePartitionKey(CALLER, container, '["a"]');
  await store.runPurge();
  const types = (await store.containerHistory(container)).map(({ type }) => type);
  expect(types.slice(-2)).toEqual(['PartitionKeyDeleted', 'PartitionKeyDeleteCompleted']);
});
