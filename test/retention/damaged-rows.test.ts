import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

const folder = newFolder('damaged-rows');
const folders = [folder];
afterAll(() => folders.forEach((each) => removeFolder(each)));

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

/** A store that is closed, with an item that is live, one that was deleted and one that is erased. */
async function aStore(of: string) {
  const open = async () => (await openEmbedded({ folder: of, time: START_MS, newId: () => crypto.randomUUID() })).store;
  const store = await open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (const id of ['erased', 'live', 'deleted']) {
    const document = { id, pk: 'p' };
    const item = { id, partitionKey: PK, document, json: JSON.stringify(document) };
    await store.writeItem(CALLER, container, 'create', item);
    if (id === 'erased') await store.deleteItem(CALLER, container, id, PK);
    if (id === 'erased') await store.runPurge();
  }
  await store.writeItem(CALLER, container, 'upsert', {
    id: 'live',
    partitionKey: PK,
    document: { id: 'live', pk: 'p', n: 2 },
    json: '{"id":"live","pk":"p","n":2}',
  });
  await store.deleteItem(CALLER, container, 'deleted', PK);
  await store.setRecoveryWindow(CALLER, container, 1_000, 'a test');
  await store.advanceClock(1_000);
  await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 1_000, confirmed: false });
  await store.createDatabase(CALLER, 'last');
  await store.close();
  return { open, container };
}

describe('an examination names what is damaged', () => {
  it.each([
    { what: 'a database', sql: 'DELETE FROM databases WHERE number = 1', code: 'entry-differs' },
    {
      what: 'the state of a database',
      sql: "UPDATE databases SET state = json_set(state, '$.name', 'e')",
      code: 'entry-differs',
    },
    { what: 'a container', sql: 'DELETE FROM containers', code: 'entry-differs' },
    {
      what: 'the recovery window of a container',
      sql: "UPDATE containers SET state = json_set(state, '$.retention.recoveryWindowSeconds', 1)",
      code: 'entry-differs',
    },
    {
      what: 'a policy',
      sql: "DELETE FROM container_entries WHERE list = 'policies' AND place = 1",
      code: 'entry-differs',
    },
    { what: 'the key of an item', sql: 'UPDATE items SET key = key + 1', code: 'row-differs' },
    { what: 'what is to be erased', sql: 'DELETE FROM ended', code: 'end-differs' },
    { what: 'why it is to be erased', sql: "UPDATE ended SET cause = 'expired'", code: 'end-differs' },
    { what: 'what left', sql: "DELETE FROM disappearances WHERE id = 'deleted'", code: 'end-differs' },
    { what: 'what was erased', sql: "DELETE FROM disappearances WHERE id = 'erased'", code: 'end-differs' },
    {
      what: 'when it was erased',
      sql: "UPDATE disappearances SET purged_at = 5 WHERE id = 'erased'",
      code: 'end-differs',
    },
  ])('in the read models: $what', async ({ sql, code }) => {
    const of = newFolder('damaged-rows');
    folders.push(of);
    const { open } = await aStore(of);
    const database = new DatabaseSync(join(of, 'items.v1.db'));
    expect(database.prepare(sql).run().changes).toBeGreaterThan(0);
    database.close();
    const store = await open();
    try {
      expect((await store.fsck()).problems.map((problem) => problem.code)).toContain(code);
      store.startRebuild('items');
      await vi.waitFor(() => expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' }));
      expect((await store.fsck()).problems).toEqual([]);
    } finally {
      await store.close();
    }
  });

  it.each([
    {
      what: 'the end of an item that is erased',
      where: "stream LIKE 'item-%' AND revision = 1 AND body IS NULL AND position < 7",
      code: 'writes-missing',
    },
    { what: 'the creation of a database', where: 'position = 1', code: 'unreadable-event' },
    {
      what: 'the last event of a container',
      where: "stream LIKE 'container-%' AND revision = 2",
      code: 'unreadable-event',
    },
    {
      what: 'the last write of an item',
      where: "stream LIKE 'item-%' AND revision = 1 AND body IS NOT NULL",
      code: 'writes-missing',
    },
  ])('in the log: $what is not there', async ({ where, code }) => {
    const of = newFolder('damaged-rows');
    folders.push(of);
    const { open } = await aStore(of);
    const log = new DatabaseSync(join(of, 'log.db'));
    expect(log.prepare(`DELETE FROM events WHERE ${where}`).run().changes).toBe(1);
    log.close();
    const store = await open();
    try {
      expect((await store.fsck()).problems.map((problem) => problem.code)).toContain(code);
    } finally {
      await store.close();
    }
  });
});
