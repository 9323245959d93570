import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { BATCH_SIZE } from '@epitaph/projections/purge/executor.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DamagedFolder } from './damaged-folder.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

const folder = newFolder('damaged-vault');
const other = newFolder('damaged-vault');
const folders = [folder, other];
afterAll(() => folders.forEach((each) => removeFolder(each)));

const open = (of = folder) => openEmbedded({ folder: of, time: START_MS, newId: () => crypto.randomUUID() });

it('a purge reports a life whose key the vault has lost, and purges all others', async () => {
  const ids = ['first', 'lost', 'last'];
  const { store: before } = await open();
  await before.createDatabase(CALLER, 'd');
  for (const name of ['c', 'next']) {
    const { resource: container } = await before.createContainer(CALLER, 'd', name, DEFINITION, 100);
    for (const id of ids) {
      const item = itemToWrite({ id, pk: 'p' });
      await before.writeItem(CALLER, container, 'create', item);
    }
  }
  await before.close();
  const vault = new DatabaseSync(join(folder, 'vault.db'));
  // The numbers of keys ascend in the order in which the items were created.
  vault.exec('DELETE FROM keys WHERE id = (SELECT id FROM keys ORDER BY id LIMIT 1 OFFSET 1)');
  vault.close();

  const { store } = await open();
  try {
    await store.advanceClock(200_000);
    await expect(store.runPurge()).rejects.toThrow('the vault does not know the key');
    const statesIn = (name: string) =>
      Promise.all(ids.map(async (id) => (await store.explain(store.container('d', name), id, PK)).state));
    expect(await statesIn('c')).toEqual(['purged', 'expired', 'purged']);
    expect(await statesIn('next')).toEqual(['purged', 'purged', 'purged']);
    const { problems } = await store.fsck();
    expect(problems.map(({ code }) => code)).toEqual(['key-missing']);
  } finally {
    await store.close();
  }
});

it('later expiries are purged as well, before and after a restart, in the run that stays open', async () => {
  for (const id of ['later', 'after a restart']) {
    const { store } = await open();
    try {
      const container = store.container('d', 'next');
      const item = itemToWrite({ id, pk: 'p' });
      await store.writeItem(CALLER, container, 'create', item);
      await store.advanceClock(200_000);
      for (let pass = 0; pass < 2; pass++) {
        await expect(store.runPurge()).rejects.toThrow('the vault does not know the key');
      }
      expect((await store.explain(container, id, PK)).state).toBe('purged');
      expect((await store.purgeRuns(0, 10)).runs.length).toBe(1);
    } finally {
      await store.close();
    }
  }
});

it('lives behind those with lost keys are erased, even if these are more than a pass takes at a time', async () => {
  const lost = 2 * BATCH_SIZE;
  const { store: before } = await open(other);
  await before.createDatabase(CALLER, 'd');
  const { resource: container } = await before.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
  for (let index = 0; index < lost + 10; index++) {
    const item = itemToWrite({ id: `i${index}`, pk: 'p' });
    await before.writeItem(CALLER, container, 'create', item);
  }
  await before.close();
  const vault = new DatabaseSync(join(other, 'vault.db'));
  vault.exec(`DELETE FROM keys WHERE id IN (SELECT id FROM keys ORDER BY id LIMIT ${lost})`);
  vault.close();

  const { store } = await open(other);
  try {
    await store.advanceClock(200_000);
    // Each requested purge reports the fault.
    for (let pass = 0; pass < 2; pass++) {
      await expect(store.runPurge()).rejects.toThrow('the vault does not know the key');
      expect(await store.purgeStatus()).toMatchObject({ purgedTotal: 10, awaitingErasure: lost, heldBack: 0 });
    }
  } finally {
    await store.close();
  }
});

it.each(['floors', 'feed_floors'])(
  'an impossibly long floor among the %s does not prevent a start, and is replaced by the recorded one',
  async (table) => {
    const of = newFolder('damaged-floor');
    folders.push(of);
    const { store: before } = await open(of);
    await before.createDatabase(CALLER, 'd');
    const feed = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 10 } };
    const { resource: container } = await before.createContainer(CALLER, 'd', 'c', feed, 100);
    await before.setRetentionFloor(CALLER, container, 10, 'a while');
    await before.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    await before.close();
    const vault = new DatabaseSync(join(of, 'vault.db'));
    expect(vault.prepare(`UPDATE ${table} SET seconds = 9223372036854775807`).run().changes).toBe(1);
    vault.close();
    const { store, storage } = await open(of);
    try {
      expect(storage.vault.floors().get(container.rid)).toEqual({ retention: 10, 'change-feed': 660 });
      for (let pass = 0; pass < 2; pass++) {
        await store.advanceClock(700_000);
        await store.runPurge();
      }
      expect((await store.explain(container, 'a', PK)).state).toBe('purged');
    } finally {
      await store.close();
    }
  },
);

it.each([
  { what: 'is damaged', damage: 'wrapped = zeroblob(length(wrapped))', says: 'does not open with the master key' },
  { what: 'is lost', damage: undefined, says: 'lacks the secret' },
])(
  'a container whose secret $what gets no other secret, is reported, and does not prevent other purges',
  async ({ damage, says }) => {
    const of = newFolder('damaged-secret');
    folders.push(of);
    const { store: before } = await open(of);
    await before.createDatabase(CALLER, 'd');
    const make = (id: string) => itemToWrite({ id, pk: 'p' });
    const names = ['overdue', 'gone', 'purged', 'next'];
    for (const name of names) {
      const { resource: container } = await before.createContainer(CALLER, 'd', name, DEFINITION, 100);
      await before.writeItem(CALLER, container, 'create', make('a'));
    }
    const [overdue, gone, purged, next] = names.map((name) => before.container('d', name));
    await before.deleteItem(CALLER, purged!, 'a', PK);
    await before.runPurge();
    await before.deleteContainer(CALLER, 'd', 'gone');
    await before.close();
    const vault = new DatabaseSync(join(of, 'vault.db'));
    const secrets = `secrets WHERE name IN ('container ${overdue!.rid}', 'container ${gone!.rid}', 'container ${purged!.rid}')`;
    vault.exec(
      damage === undefined ? `DELETE FROM ${secrets}` : `UPDATE ${secrets.replace('WHERE', `SET ${damage} WHERE`)}`,
    );
    vault.close();

    const { store } = await open(of);
    try {
      await store.advanceClock(200_000);
      for (let pass = 0; pass < 2; pass++) await expect(store.runPurge()).rejects.toThrow(says);
      expect((await store.explain(next!, 'a', PK)).state).toBe('purged');
      for (const container of [overdue!, purged!]) {
        await expect(store.explain(container, 'a', PK)).rejects.toThrow(says);
        await expect(store.writeItem(CALLER, container, 'create', make('b'))).rejects.toThrow(says);
      }
      const message = expect.stringContaining(says) as unknown;
      const problems = [overdue!, purged!].map(({ rid }) => ({
        code: 'key-missing',
        subject: `container-${rid}`,
        message,
      }));
      expect((await store.fsck()).problems).toEqual(expect.arrayContaining(problems));
    } finally {
      await store.close();
    }

    const checked = await openEmbeddedStore({ folder: of, clock: 'manual', automaticPurge: false, durable: false });
    try {
      const subjects = [overdue!, purged!].map(({ rid }) => `container-${rid}`);
      const { problems } = await checked.verifyLog();
      expect(problems.filter(({ code }) => code === 'name-differs').map(({ subject }) => subject)).toEqual(
        expect.arrayContaining(subjects),
      );
    } finally {
      await checked.close();
    }
  },
);

it('items of a deleted container with a lost secret are reported, and are not mistaken for lives under a hold in another container', async () => {
  const of = newFolder('damaged-secret');
  folders.push(of);
  const { store: before } = await open(of);
  await before.createDatabase(CALLER, 'd');
  const names = ['unnamed', 'held', 'free'];
  for (const name of names) {
    const { resource: container } = await before.createContainer(CALLER, 'd', name, DEFINITION, -1);
    await before.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  }
  const [unnamed, held] = names.map((name) => before.container('d', name));
  await before.placeHold(CALLER, held!, 'h', { scope: { kind: 'container' }, reason: 'case 7' });
  for (const name of names) await before.deleteContainer(CALLER, 'd', name);
  await before.close();
  const vault = new DatabaseSync(join(of, 'vault.db'));
  vault.exec(`DELETE FROM secrets WHERE name = 'container ${unnamed!.rid}'`);
  vault.close();

  const { store } = await open(of);
  try {
    await expect(store.runPurge()).rejects.toThrow('lacks the secret');
    const backlogs = await store.purgeBacklogs();
    expect(backlogs.map(({ container, heldBack }) => [container.name, heldBack.hold])).toEqual([
      ['unnamed', 0],
      ['held', 1],
    ]);
    await store.releaseHold(CALLER, held!, 'h', 'case 7 is closed');
    await expect(store.runPurge()).rejects.toThrow('lacks the secret');
    expect((await store.purgeBacklogs()).map(({ container }) => container.name)).toEqual(['unnamed']);
  } finally {
    await store.close();
  }
});

it.each([
  {
    what: 'the key',
    file: 'vault.db',
    damage: 'DELETE FROM keys WHERE id = (SELECT min(id) FROM keys)',
    cause: 'the vault does not know its key',
    canBeDeleted: true,
  },
  {
    what: 'the content',
    file: 'log.db',
    damage:
      'UPDATE events SET body = substr(body, 1, 20) WHERE position = (SELECT min(position) FROM events WHERE body IS NOT NULL)',
    cause: 'does not open',
    canBeDeleted: true,
  },
  {
    what: 'the last write',
    file: 'log.db',
    damage: 'UPDATE events SET body = NULL WHERE position = (SELECT min(position) FROM events WHERE body IS NOT NULL)',
    cause: 'the last write of a visible item',
    canBeDeleted: false,
  },
])(
  'an item of which $what is lost is named to its readers, and can be deleted if that helps',
  async ({ file, damage, cause, canBeDeleted }) => {
    const damaged = new DamagedFolder('damaged-vault');
    let store = await damaged.open();
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    for (const id of ['lost', 'whole']) {
      await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
    }
    await store.close();
    expect(damaged.change(file, (database) => database.prepare(damage).run().changes)).toBe(1);
    store = await damaged.open();
    try {
      const reads = [
        () => store.readItem(container, 'lost', PK),
        () => store.listItems(container, { maxItemCount: 10 }),
      ];
      for (const read of reads) {
        await expect(read()).rejects.toMatchObject({
          message: expect.stringMatching(/^The item "lost" with the partition key \["p"\] can not be read/),
          cause: { message: expect.stringContaining(cause) },
        });
        const told = await read().then(String, String);
        expect(told.includes('If you delete it, all other items can be read again.')).toBe(canBeDeleted);
        expect(told).toContain('Queries that leave it out are answered: c.id != "lost".');
      }
      const query = (sql: string) =>
        store.queryItems(container, { sql, parameters: [{ name: '@lost', value: 'lost' }], maxItemCount: 10 });
      for (const filter of [
        'c.id != "lost"',
        'c.pk = "p" AND NOT (c.id IN (@lost))',
        'NOT STARTSWITH(c.id, "l") ORDER BY c.pk',
      ]) {
        expect((await query(`SELECT VALUE c.pk FROM c WHERE ${filter}`)).rows).toEqual(['p']);
      }
      for (const filter of ['c.id != "whole"', 'c.pk != "p"', 'c.pk != "p" OR c.id != "lost"']) {
        await expect(query(`SELECT VALUE c.pk FROM c WHERE ${filter}`)).rejects.toThrow('The item "lost"');
      }
      if (!canBeDeleted) return;
      await store.deleteItem(CALLER, container, 'lost', PK);
      expect((await store.listItems(container, { maxItemCount: 10 })).items.map(({ id }) => id)).toEqual(['whole']);
    } finally {
      await store.close();
    }
  },
);

it('a page that ends before a damaged item is answered', async () => {
  const damaged = new DamagedFolder('damaged-page');
  let store = await damaged.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  for (const id of ['one', 'two', 'lost']) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  }
  await store.close();
  const cut = 'UPDATE events SET body = substr(body, 1, 20) WHERE position = (SELECT max(position) FROM events)';
  expect(damaged.change('log.db', (log) => log.prepare(cut).run().changes)).toBe(1);
  store = await damaged.open();
  try {
    const sql = 'SELECT VALUE c.id FROM c WHERE c.pk = "p"';
    const page = { parameters: [], maxItemCount: 1 };
    const first = await store.queryItems(container, { ...page, sql });
    const second = await store.queryItems(container, { ...page, sql, continuation: first.continuation! });
    expect([first.rows, second.rows]).toEqual([['one'], ['two']]);
    const third = store.queryItems(container, { ...page, sql, continuation: second.continuation! });
    await expect(third).rejects.toThrow('The item "lost"');
    await expect(store.queryItems(container, { ...page, sql: `${sql} ORDER BY c.pk` })).rejects.toThrow('"lost"');
    expect((await store.listItems(container, { maxItemCount: 2 })).items.map(({ id }) => id)).toEqual(['one', 'two']);
  } finally {
    await store.close();
  }
});

it('an item whose id is in its content only is not excluded by id if the content is lost', async () => {
  const damaged = new DamagedFolder('damaged-pseudonym');
  let store = await damaged.open();
  await store.createDatabase(CALLER, 'd');
  const definition = { ...DEFINITION, epitaph: { pseudonymousIds: true } };
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, null);
  for (const id of ['lost', 'whole']) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  }
  await store.close();
  damaged.change('vault.db', (vault) => vault.exec('DELETE FROM keys WHERE id = (SELECT min(id) FROM keys)'));
  store = await damaged.open();
  try {
    const sql = 'SELECT VALUE c.pk FROM c WHERE c.id != "lost"';
    const told = await store.queryItems(container, { sql, parameters: [], maxItemCount: 10 }).then(String, String);
    expect(told).toContain(
      'can not be read, because its data in the store is damaged. If you delete it, all other items',
    );
  } finally {
    await store.close();
  }
});
