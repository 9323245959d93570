import { copyFileSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from '../support/definition.ts';
import { formsOf, search } from './search.ts';

/** These occur in ids and partition keys, and nowhere else. */
const ID = 'Quill-8-Ottokar';
const KEY = 'Marguerite-3-Zoltan';
const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const ITEMS = 60;

const definition = (pseudonymousIds: boolean) => ({
  ...DEFINITION,
  epitaph: { pseudonymousIds },
});

/** Does everything that can be done to items, in a new container. */
async function use(store: Store, pseudonymousIds: boolean): Promise<void> {
  const name = pseudonymousIds ? 'pseudonymous' : 'plain';
  const { resource: container } = await store.createContainer(CALLER, 'db', name, definition(pseudonymousIds), -1);
  const named = (index: number) => ({ id: `${ID}-${index}`, partitionKey: JSON.stringify([`${KEY}-${index % 5}`]) });
  const itemOf = (index: number, more: object = {}) => {
    const document = { id: named(index).id, pk: `${KEY}-${index % 5}`, ...more };
    return { ...named(index), document, json: JSON.stringify(document) };
  };
  for (let index = 0; index < ITEMS; index++) {
    const { id, partitionKey } = named(index);
    await store.writeItem(CALLER, container, 'create', itemOf(index, index % 2 === 0 ? {} : { ttl: 60 }));
    if (index % 3 === 0) await store.writeItem(CALLER, container, 'replace', itemOf(index, { ttl: 60 }));
    if (index % 7 === 0) {
      const operations = [{ op: 'set' as const, path: '/more', value: index }];
      await store.patchItem(CALLER, container, id, partitionKey, { operations });
    }
    if (index % 11 === 0) await store.deleteItem(CALLER, container, id, partitionKey);
  }
  await store.batchItems(CALLER, container, [
    { kind: 'write', operation: 'upsert', item: itemOf(100) },
    { kind: 'write', operation: 'upsert', item: itemOf(105) },
    { kind: 'delete', ...named(100) },
  ]);
  const { partitionKey } = named(3);
  const parameters = [{ name: '@id', value: `${ID}-13` }];
  const sql = 'SELECT c.id FROM c WHERE c.id = @id';
  expect((await store.queryItems(container, { sql, parameters, maxItemCount: 9 })).rows).toHaveLength(1);
  expect((await store.readItem(container, `${ID}-13`, partitionKey)).id).toBe(`${ID}-13`);
  await store.deletePartitionKey(CALLER, container, named(4).partitionKey);
}

describe('a folder with a container of pseudonymous ids', () => {
  const folder = newFolder('pseudonyms');
  const copies = newFolder('pseudonyms-copies');
  const places: string[] = [];
  let store: Store;
  let prefixesFit = true;

  /** Copies the folder while it is in use, including journals and shared memory. */
  function copyNow(name: string): void {
    const to = join(copies, name);
    mkdirSync(to);
    for (const file of readdirSync(folder)) if (file !== 'lock') copyFileSync(join(folder, file), join(to, file));
    places.push(to);
  }

  beforeAll(async () => {
    const options = { folder, clock: 'manual', automaticPurge: false, policyGraceSeconds: 0, durable: false } as const;
    store = await openEmbeddedStore(options);
    await store.createDatabase(CALLER, 'db');
    await use(store, true);
    copyNow('in use');
    await store.advanceClock(61_000);
    await store.runPurge();
    copyNow('after a purge');
    store.startRebuild('items');
    while (store.rebuildStatus('items')?.state !== 'done') await new Promise((resolve) => setTimeout(resolve, 5));
    copyNow('after a rebuild');
    await store.deleteContainer(CALLER, 'db', 'pseudonymous');
    await store.runPurge();
    copyNow('after the container was deleted');
    await store.close();
    const storage = await openSqliteStorage({ folder, clock: 'manual' });
    for (const { stream, data } of await storage.log.readAll(0, 100_000)) {
      if (!stream.startsWith('item-')) continue;
      const { id, partitionKey } = data as { id: string; partitionKey: string };
      prefixesFit &&= stream.includes(`.${partitionKey.slice(1, 9)}${id}.`);
    }
    await storage.close();
    store = await openEmbeddedStore(options);
  }, 60_000);

  afterAll(async () => {
    await store.close();
    removeFolder(folder);
    removeFolder(copies);
  });

  it('has no id and no partition key in clear in any file, while items live and after they have gone', () => {
    expect(places).toHaveLength(4);
    for (const place of [...places, folder]) {
      expect(search(place, formsOf(ID)), place).toEqual([]);
      expect(search(place, formsOf(KEY)), place).toEqual([]);
    }
  });

  it('reveals in its events nothing that the names of their streams do not', () => {
    expect(prefixesFit).toBe(true);
  });

  it('proof of the search: in a container without pseudonyms it finds them', async () => {
    await use(store, false);
    expect(search(folder, formsOf(ID)).length).toBeGreaterThan(0);
    expect(search(folder, formsOf(KEY)).length).toBeGreaterThan(0);
  });
});
