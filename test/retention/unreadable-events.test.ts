import type { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, vi } from 'vitest';
import type { Store } from '@epitaph/api/store/store.ts';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { CALLER, DamagedFolder, PK } from './damaged-folder.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const CUT = 'UPDATE events SET data = substr(data, 1, 1) WHERE stream LIKE ? AND revision = ?';
const NEWER = 'UPDATE events SET version = 99 WHERE stream LIKE ? AND revision = ?';
const LOST = 'DELETE FROM events WHERE stream LIKE ? AND revision = ?';

/**
 * A store with two containers of the same items. The log of the first one is damaged, and the read models are then made again from the log.
 */
async function madeAnew(damage: (log: DatabaseSync, rid: string) => void) {
  const folder = new DamagedFolder('unreadable-events');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
  const { resource: next } = await store.createContainer(CALLER, 'd', 'next', DEFINITION, 100);
  const write = (into: typeof container, id: string, pk = 'p') =>
    store.writeItem(CALLER, into, 'upsert', itemToWrite({ id, pk }));
  for (const into of [container, next]) {
    await write(into, 'once');
    await write(into, 'twice');
    await write(into, 'twice');
    await write(into, 'again');
    await store.deleteItem(CALLER, into, 'again', PK);
    await write(into, 'again');
    await write(into, 'elsewhere', 'q');
  }
  await store.setRecoveryWindow(CALLER, container, 60, 'a test');
  await store.close();
  folder.change('log.db', (log) => log.exec('CREATE TABLE whole AS SELECT * FROM events'));
  folder.change('log.db', (log) => damage(log, container.rid));
  const faults: unknown[] = [];
  const open = async () => {
    store = await openEmbeddedStore({
      folder: folder.path,
      clock: 'manual',
      durable: false,
      automaticPurge: false,
      onUnreadable: (error) => faults.push(error),
    });
    return store;
  };
  folder.remove('items.v1.db');
  await open();
  const heal = async () => {
    await store.close();
    folder.change('log.db', (log) => log.exec('DELETE FROM events; INSERT INTO events SELECT * FROM whole'));
    await open();
    store.startRebuild('items');
    await vi.waitFor(() => expect(store.rebuildStatus('items')?.state).toMatch(/done|failed/), 10_000);
    expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' });
    return store;
  };
  return { store, container, next, faults, heal, folder };
}

const read = async (store: Store, container: Parameters<Store['readItem']>[0], id: string) =>
  store.readItem(container, id, PK).then(
    () => 'there',
    (error: Error) => error.name,
  );
const listed = async (store: Store, container: Parameters<Store['listItems']>[0]) =>
  (await store.listItems(container, { maxItemCount: 10 })).items.map(({ id }) => id);
const damageItem = (log: DatabaseSync, rid: string, { sql, nth, life, revision }: Damage) => {
  const streams = log
    .prepare('SELECT stream FROM events WHERE stream LIKE ? GROUP BY stream ORDER BY min(position)')
    .all(`item-${rid}.%.${life}`) as { stream: string }[];
  expect(log.prepare(sql).run(streams[nth]!.stream, revision).changes).toBe(1);
};
interface Damage {
  readonly sql: string;
  readonly nth: number;
  readonly life: number;
  readonly revision: number;
}

const ALL = ['once', 'twice', 'again', 'elsewhere'];

describe('when the read models are made again, an unreadable event of an item affects only that item', () => {
  const cases: (Damage & { readonly what: string; readonly item: string; readonly isWhole?: true })[] = [
    { what: 'the only write, cut short', sql: CUT, nth: 0, life: 0, revision: 0, item: 'once' },
    { what: 'the last write', sql: CUT, nth: 1, life: 0, revision: 1, item: 'twice' },
    { what: 'the last write, lost', sql: LOST, nth: 1, life: 0, revision: 1, item: 'twice' },
    { what: 'the first of two writes', sql: CUT, nth: 1, life: 0, revision: 0, item: 'twice', isWhole: true },
    { what: 'the first of two writes, lost', sql: LOST, nth: 1, life: 0, revision: 0, item: 'twice', isWhole: true },
    { what: 'the end of a former life', sql: CUT, nth: 2, life: 0, revision: 1, item: 'again', isWhole: true },
    { what: 'the end of a former life, lost', sql: LOST, nth: 2, life: 0, revision: 1, item: 'again', isWhole: true },
    { what: 'the write of a later life', sql: CUT, nth: 0, life: 1, revision: 0, item: 'again' },
  ];
  it.each(cases)('$what', async ({ item, isWhole, ...damage }) => {
    const { store, container, next, faults } = await madeAnew((log, rid) => damageItem(log, rid, damage));
    try {
      expect(await listed(store, next)).toEqual(ALL);
      for (const id of ['once', 'twice', 'again']) {
        const isThere = isWhole === true || id !== item;
        expect([id, await read(store, container, id)]).toEqual([id, isThere ? 'there' : 'UnreadableEvent']);
      }
      if (isWhole === true) expect((await listed(store, container)).toSorted()).toEqual(ALL.toSorted());
      else {
        await expect(listed(store, container)).rejects.toThrow('can not be read');
        const ids = { sql: 'SELECT VALUE c.id FROM c', parameters: [], maxItemCount: 10 };
        await expect(store.queryItems(container, ids)).rejects.toThrow('can not be read');
        // It can't be created again, because nothing is known of its state.
        const create = store.writeItem(CALLER, container, 'create', itemToWrite({ id: item, pk: 'p' }));
        await expect(create).rejects.toThrow('is damaged');
        const told = damage.sql === LOST ? 'the event log has lost the last event of item-' : 'Item';
        expect(faults.map(String)).toEqual([expect.stringContaining(`UnreadableEvent: ${told}`)]);
      }
      await store.advanceClock(200_000);
      await store.runPurge().catch(() => {});
      expect((await store.explain(next, item, PK)).state).toBe('purged');
      expect((await store.explain(container, 'elsewhere', '["q"]')).state).toBe('purged');
      if (isWhole !== true) {
        // Nothing tells that it has expired.
        expect(await read(store, container, item)).toBe('UnreadableEvent');
        await expect(store.explain(container, item, PK)).rejects.toThrow('damaged');
      }
      expect((await store.fsck()).problems.map(({ code }) => code)).toEqual(
        expect.arrayContaining([damage.sql === LOST ? 'writes-missing' : 'unreadable-event']),
      );
    } finally {
      await store.close();
    }
  });
});

it('an item whose name is lost makes queries for its possible partition key or id fail, and can be excluded from them', async () => {
  const damage = { sql: CUT, nth: 0, life: 0, revision: 0 };
  const { store, container, heal } = await madeAnew((log, rid) => damageItem(log, rid, damage));
  let healed: Store | undefined;
  try {
    const ask = async (of: Store, sql: string, partitionKey?: string) => {
      const { rows } = await of.queryItems(container, { sql, parameters: [], maxItemCount: 10, partitionKey });
      return rows;
    };
    const within = ask(store, 'SELECT VALUE c.id FROM c', PK);
    const told = await within.catch(({ message }: Error) => message);
    const [, stream] = /c\.id != ("[^"]+")/.exec(String(told)) ?? [];
    expect(stream).toBeDefined();
    await expect(ask(store, 'SELECT VALUE c.id FROM c WHERE c.id = "once"')).rejects.toThrow('can not be read');
    await expect(ask(store, 'SELECT * FROM c WHERE c.pk = "q"')).rejects.toThrow('can not be read');
    // The name and partition key of another item can't belong to it.
    expect(await ask(store, 'SELECT VALUE c.id FROM c WHERE c.id = "twice"', PK)).toEqual(['twice']);
    await expect(ask(store, 'SELECT VALUE c.id FROM c WHERE c.id = "once"', PK)).rejects.toThrow('can not be read');
    const others = `SELECT VALUE c.id FROM c WHERE c.id != ${stream}`;
    expect(await ask(store, others)).toEqual(['twice', 'again', 'elsewhere']);
    expect(await ask(store, others, PK)).toEqual(['twice', 'again']);
    const failed = await rebuilt(store);
    expect(failed).toMatchObject({ state: 'failed', error: expect.stringContaining('is damaged') });
    healed = await heal();
    expect(await listed(healed, container)).toEqual(ALL);
    expect((await healed.fsck()).problems).toEqual([]);
  } finally {
    await (healed ?? store).close();
  }
});

describe.each([
  { what: 'cut short', sql: CUT },
  { what: 'lost', sql: LOST },
])('when the creation is $what', ({ sql }) => {
  it('of a container, the container is reported as damaged by its name, can’t be created again, and can be deleted', async () => {
    const { store, container, next } = await madeAnew((log, rid) => {
      expect(log.prepare(sql).run(`container-${rid}`, 0).changes).toBe(1);
    });
    try {
      expect(await listed(store, next)).toEqual(ALL);
      const lost = 'the event log is damaged: it has lost the creation of container-';
      expect(() => store.container('d', 'c')).toThrow(lost);
      expect(() => store.container('d', `?${container.rid}`)).toThrow(lost);
      expect(store.listContainers('d').map(({ name }) => name)).toContain(`?${container.rid}`);
      expect(() => store.container('d', 'none')).toThrow('No container');
      await expect(store.createContainer(CALLER, 'd', 'c', DEFINITION, null)).rejects.toThrow(lost);
      await store.advanceClock(200_000);
      await expect(store.runPurge()).rejects.toThrow('the event log had lost events of container-');
      expect((await store.explain(next, 'once', PK)).state).toBe('purged');
      expect((await store.history(container, 'once', PK)).map(({ type }) => type)).toEqual(['ItemUpserted']);
      expect(await rebuilt(store)).toMatchObject({ state: 'failed' });
      await store.deleteContainer(CALLER, 'd', 'c');
      await store.runPurge();
      expect((await store.history(container, 'once', PK)).map(({ type }) => type)).toContain('ItemPurged');
      const { resource } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
      expect(await listed(store, resource)).toEqual([]);
    } finally {
      await store.close();
    }
  });

  it('of a container, mending the log mends the container', async () => {
    const { container, heal } = await madeAnew((log, rid) => {
      expect(log.prepare(sql).run(`container-${rid}`, 0).changes).toBe(1);
    });
    const store = await heal();
    try {
      const { retention: _, ...as } = container;
      expect(store.container('d', 'c')).toMatchObject(as);
      expect(await listed(store, container)).toEqual(ALL);
    } finally {
      await store.close();
    }
  });

  it('of a database with containers, the database is reported as damaged by its name, and can’t be created again', async () => {
    const { store } = await madeAnew((log) => {
      log.prepare("UPDATE events SET data = '[\"d\" ]' WHERE stream LIKE 'database-%'").run();
      expect(log.prepare(sql).run('database-%', 0).changes).toBe(1);
    });
    try {
      const lost = 'the event log is damaged: it has lost the creation of database-';
      expect(() => store.container('d', 'c')).toThrow(lost);
      await expect(store.createDatabase(CALLER, 'd')).rejects.toThrow(lost);
      await store.createDatabase(CALLER, 'other');
      expect(store.listDatabases().map(({ name }) => name)).toEqual(['other']);
    } finally {
      await store.close();
    }
  });
});

it.each([
  { what: 'can not be read', sql: CUT },
  { what: 'is lost', sql: LOST },
])(
  'nothing in a container with an event that $what is erased after the read models are made again, until its policy is confirmed',
  async ({ sql }) => {
    const { store, container } = await madeAnew((log, rid) => {
      // A later event, which reveals the loss.
      expect(log.prepare(sql).run(`container-${rid}`, 1).changes).toBe(1);
    });
    try {
      await store.advanceClock(200_000);
      if (sql === CUT) {
        await expect(store.runPurge()).rejects.toThrow('until you set the policy of c again');
        expect(await rebuilt(store)).toMatchObject({ state: 'failed' });
        await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 100, confirmed: true, reason: 'a test' });
        expect(await rebuilt(store)).toMatchObject({ state: 'done', differences: 0 });
      } else await expect(store.runPurge()).rejects.toThrow('between the read models and the event log');
      expect((await store.history(container, 'once', PK)).map(({ type }) => type)).toEqual(['ItemUpserted']);
    } finally {
      await store.close();
    }
  },
);

async function rebuilt(store: Store) {
  store.startRebuild('items');
  await vi.waitFor(() => expect(store.rebuildStatus('items')?.state).toMatch(/done|failed/), 10_000);
  return store.rebuildStatus('items');
}

it.each(['item-%', 'container-%', 'user-%'])(
  'an event of %s by a newer version is not skipped: nothing of it is lost',
  async (streams) => {
    const folder = new DamagedFolder('unreadable-events');
    const store = await folder.open();
    const { rid } = (await store.createDatabase(CALLER, 'd')).resource;
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    await store.createUser(CALLER, rid, 'u', 'create');
    await store.close();
    expect(folder.change('log.db', (log) => log.prepare(NEWER).run(streams, 0).changes)).toBe(1);
    folder.remove('items.v1.db');
    await expect(folder.open()).rejects.toThrow('written by a newer Epitaph');
  },
);

describe('when events of a user are lost or unreadable, permissions that were withdrawn do not come back', () => {
  /** A user with two permissions, of which the first has been withdrawn. */
  async function withUser(damage: string, revision: number, readModels: 'kept' | 'made anew') {
    const folder = new DamagedFolder('unreadable-events');
    let store = await folder.open();
    const { rid } = (await store.createDatabase(CALLER, 'd')).resource;
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    const { resource: user } = await store.createUser(CALLER, rid, 'u', 'create');
    const grant = (name: string, permissionMode: string) =>
      store.writePermission(CALLER, user, 'create', {
        name,
        permissionMode,
        resource: 'dbs/d/colls/c',
        target: { containerRid: container.rid, partitionKey: JSON.stringify([name]) },
      });
    await grant('taken', 'All');
    await grant('left', 'Read');
    await store.deletePermission(CALLER, user, 'taken');
    await grant('last', 'Read');
    await store.createDatabase(CALLER, 'other');
    await store.close();
    const change = (log: DatabaseSync) => log.prepare(damage).run(`user-${user.rid}`, revision).changes;
    expect(folder.change('log.db', change)).toBe(1);
    if (readModels === 'made anew') folder.remove('items.v1.db');
    store = await folder.open();
    const names = () => store.user(rid, 'u').permissions.map(({ name }) => name);
    return { store, rid, names };
  }

  it.each([
    { what: 'cut short', sql: CUT },
    { what: 'lost', sql: LOST },
  ])('$what: no permission of before is left after the read models are made again', async ({ sql }) => {
    const { store, names } = await withUser(sql, 3, 'made anew');
    try {
      expect(names()).toEqual(['last']);
    } finally {
      await store.close();
    }
  });

  it.each([
    { what: 'cut short', sql: CUT, revision: 2 },
    { what: 'lost', sql: LOST, revision: 2 },
    { what: 'lost at the end', sql: LOST, revision: 4 },
  ])('$what: the permission can be withdrawn, and the user can be deleted', async ({ sql, revision }) => {
    const { store, rid, names } = await withUser(sql, revision, 'kept');
    try {
      expect(names()).toEqual(['left', 'last']);
      for (const name of ['left', 'last']) await store.deletePermission(CALLER, store.user(rid, 'u'), name);
      expect(names()).toEqual([]);
      await store.deleteUser(CALLER, rid, 'u');
      expect(() => store.user(rid, 'u')).toThrow('No user');
    } finally {
      await store.close();
    }
  });
});
