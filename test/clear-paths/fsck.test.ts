import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { CALLER, CLEAR_PATHS, definition, play } from './histories.ts';

let folder: string;
let store: Store;
const open = () =>
  openEmbeddedStore({ folder, clock: 'manual', automaticPurge: false, policyGraceSeconds: 0, durable: false });

beforeEach(async () => {
  folder = newFolder('clear-paths-fsck');
  store = await open();
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'one', definition(CLEAR_PATHS), -1);
  for (const id of ['a', 'b', 'c'] as const) {
    const item = { id, pk: 'p' as const, fields: { status: `of ${id}`, n: 1, address: {} }, ttl: undefined };
    await play(store, container(), { kind: 'upsert', item });
  }
});
afterEach(async () => {
  await store.close();
  removeFolder(folder);
});

const container = () => store.container('db', 'one');
const problems = async () => (await store.fsck()).problems.map(({ code, subject }) => [code, subject]);

/** Writes to the read model's file while the store is closed. */
async function damage(...statements: readonly string[]): Promise<void> {
  await store.close();
  const database = new DatabaseSync(join(folder, 'items.v1.db'));
  for (const sql of statements) database.exec(sql);
  database.close();
  store = await open();
}

const BIRTH_OF_B = "(SELECT birth FROM items WHERE id = 'b')";

describe('fsck of values in clear', () => {
  it('reports nothing about what the projection keeps, whether or not items have ended', async () => {
    expect(await problems()).toEqual([]);
    await play(store, container(), { kind: 'patch', id: 'b', pk: 'p', path: '/n', value: 2 });
    await play(store, container(), { kind: 'delete', id: 'a', pk: 'p' });
    await play(store, container(), { kind: 'erase', id: 'c', pk: 'p' });
    expect(await problems()).toEqual([]);
    const { rid } = container();
    await store.deleteContainer(CALLER, 'db', 'one');
    expect(store.containerByRid(rid)?.status).toBe('deleted');
    expect(await problems()).toEqual([]);
    await store.runPurge();
    expect(await problems()).toEqual([]);
  });

  it.each([
    ['is missing', `DELETE FROM item_clear WHERE path = 0 AND birth = ${BIRTH_OF_B}`],
    [
      'is another',
      `UPDATE item_clear SET value = (SELECT max(value) FROM item_clear WHERE path = 0) WHERE path = 0 AND birth = ${BIRTH_OF_B}`,
    ],
    ['is at another path', `UPDATE item_clear SET path = 1 WHERE path = 0 AND birth = ${BIRTH_OF_B}`],
    [
      'is there though the document has none',
      `INSERT INTO item_clear SELECT birth, 3, container, value FROM item_clear WHERE path = 0 AND birth = ${BIRTH_OF_B}`,
    ],
  ])('reports a live item whose copy %s, and no other', async (_, sql) => {
    await damage(sql);
    expect(await problems()).toEqual([['clear-copies-differ', container().rid]]);
  });

  it('reports what is left of an ended item', async () => {
    await damage('CREATE TABLE kept AS SELECT * FROM item_clear');
    await play(store, container(), { kind: 'delete', id: 'a', pk: 'p' });
    await play(store, container(), { kind: 'erase', id: 'b', pk: 'p' });
    await damage('INSERT OR IGNORE INTO item_clear SELECT * FROM kept', 'DROP TABLE kept');
    const left = ['clear-copies-left', container().rid];
    expect(await problems()).toEqual([left, left]);
  });
});
