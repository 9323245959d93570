import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

const folder = newFolder('damaged-rows');
afterAll(() => removeFolder(folder));

it('a purge records why a life ended as the log has it, whatever is left of that in the read models', async () => {
  const open = async () => (await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() })).store;
  let store = await open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const document = { id: 'a', pk: 'p' };
  const item = { id: 'a', partitionKey: PK, document, json: JSON.stringify(document) };
  await store.writeItem(CALLER, container, 'create', item);
  await store.deleteItem(CALLER, container, 'a', PK);
  await store.close();
  const database = new DatabaseSync(join(folder, 'items.v1.db'));
  expect(database.prepare("UPDATE ended SET cause = 'delated'").run().changes).toBe(1);
  database.close();
  store = await open();
  try {
    await store.runPurge();
    expect(await store.explain(container, 'a', PK)).toMatchObject({ state: 'purged' });
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    await store.close();
  }
});
