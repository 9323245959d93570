import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { itemToWrite } from '../support/item.ts';
import { CALLER, DamagedFolder, PK } from './damaged-folder.ts';
import { DEFINITION } from './definition.ts';

const IDS = ['in-a-key', 'of-a-list', 'of-a-query', 'free'];

const LOSE_HOLDS = "DELETE FROM container_entries WHERE list = 'holds'";
const ON_SOMETHING_ELSE =
  "UPDATE container_entries SET state = json_replace(state, '$.scope.prefix', 'x', '$.scope.items[0]', 'x') WHERE list = 'holds'";
const EMPTY_VAULT = 'DELETE FROM holds; DELETE FROM held_prefixes; DELETE FROM held_lives';

it.each([
  { what: 'the read models have lost', damage: { 'items.v1.db': LOSE_HOLDS } },
  {
    what: 'the read models have lost and the log can’t be read of',
    damage: {
      'items.v1.db': LOSE_HOLDS,
      'log.db': 'UPDATE events SET data = substr(data, 1, 20) WHERE data LIKE \'["query"%\'',
    },
  },
  {
    what: 'the read models have as released',
    damage: {
      'items.v1.db': `UPDATE container_entries SET state = json_object('holdId', state ->> '$.holdId', 'position', place, 'releasePosition', place)
      WHERE list = 'holds'`,
    },
  },
  { what: 'the read models have on something else', damage: { 'items.v1.db': ON_SOMETHING_ELSE } },
  {
    what: 'the vault has lost, and the read models have on something else,',
    damage: { 'vault.db': EMPTY_VAULT, 'items.v1.db': ON_SOMETHING_ELSE },
  },
  { what: 'the vault has without the names that it covers', damage: { 'vault.db': 'DELETE FROM held_prefixes' } },
  { what: 'the vault has without the lives that it covers', damage: { 'vault.db': 'DELETE FROM held_lives' } },
  { what: 'the vault has lost', damage: { 'vault.db': EMPTY_VAULT } },
  {
    what: 'the log has lost the record of',
    damage: { 'log.db': 'DELETE FROM events WHERE data LIKE \'["query"%\'' },
  },
  {
    what: 'the vault and the log have lost',
    damage: {
      'vault.db': EMPTY_VAULT,
      'log.db': 'DELETE FROM events WHERE data LIKE \'["key"%\' OR data LIKE \'["list"%\'',
    },
  },
  {
    what: 'the vault has lost, and the log the lives that it covers,',
    damage: { 'vault.db': EMPTY_VAULT, 'log.db': 'DELETE FROM events WHERE data LIKE \'["query"%\'' },
    free: 'expired',
  },
  {
    what: 'the vault has with a scope that is cut short',
    damage: { 'vault.db': 'UPDATE holds SET scope = substr(scope, 1, 12)' },
  },
  {
    what: 'the log has on other names, from which read models are made',
    damage: {
      'log.db': `UPDATE events SET data = json_replace(data,
          '$[1].lives[0]', 'AAAAAAAAAAAAAAAAAAAAAAAAAAAA.0', '$[1].items[0]', 'AAAAAAAAAAAAAAAAAAAAAAAAAAAA')
        WHERE json_extract(data, '$[0]') IN ('query', 'list')`,
    },
    lost: 'items.v1.db',
  },
])('holds that $what keep what they cover by their records, also after a start', async (given) => {
  const { damage, free = 'purged', lost } = given;
  const folder = new DamagedFolder('damaged-holds');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
  const partitionKeyOf = (id: string) => (id === 'in-a-key' ? '["k"]' : PK);
  for (const id of IDS) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: id === 'in-a-key' ? 'k' : 'p' }));
  }
  const reason = 'a test';
  const place = (holdId: string, scope: Parameters<typeof store.placeHold>[3]['scope']) =>
    store.placeHold(CALLER, container, holdId, { scope, reason });
  await place('key', { kind: 'partition-key', partitionKey: '["k"]' });
  await place('list', { kind: 'items', items: [{ id: 'of-a-list', partitionKey: PK }] });
  await place('query', { kind: 'query', sql: "SELECT * FROM c WHERE c.id = 'of-a-query'", parameters: [] });
  await store.setRetentionFloor(CALLER, container, 150, reason);
  await store.close();
  for (const [file, sql] of Object.entries(damage)) folder.change(file, (database) => database.exec(sql));
  if (lost !== undefined) rmSync(join(folder.path, lost));
  store = await folder.open();
  try {
    await store.advanceClock(200_000);
    await store.runPurge();
    const states = IDS.map(async (id) => [id, (await store.explain(container, id, partitionKeyOf(id))).state]);
    expect(Object.fromEntries(await Promise.all(states))).toEqual({
      'in-a-key': 'expired',
      'of-a-list': 'expired',
      'of-a-query': 'expired',
      free,
    });
  } finally {
    await store.close();
  }
});

it.each([
  { what: 'another container', of: (rid: string) => rid },
  { what: 'none that there is', of: () => 'x' },
])('a hold that the vault has under $what keeps what it covers, and is repaired by the start', async ({ of }) => {
  const folder = new DamagedFolder('damaged-holds');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
  const { resource: other } = await store.createContainer(CALLER, 'd', 'other', DEFINITION, 100);
  await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  await store.placeHold(CALLER, container, 'case', { scope: { kind: 'container' }, reason: 'a test' });
  await store.close();
  folder.change('vault.db', (vault) => vault.prepare('UPDATE holds SET container = ?').run(of(other.rid)));
  store = await folder.open();
  try {
    await store.advanceClock(200_000);
    await store.runPurge();
    expect((await store.explain(container, 'a', PK)).state).toBe('expired');
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    await store.close();
  }
});

const LOSE_FLOOR = "UPDATE containers SET state = json_set(state, '$.retention.floorSeconds', 0)";
const LOSE_FEED = "UPDATE containers SET state = json_remove(state, '$.definition.changeFeedPolicy')";
const CUT_SHORT = "UPDATE events SET data = substr(data, 1, 20) WHERE stream LIKE 'container-%' AND revision = 0";

it.each([
  { of: 'a container', that: 'that the read models have lost', damage: { 'items.v1.db': LOSE_FLOOR } },
  { of: 'a change feed', that: 'that the read models have lost', damage: { 'items.v1.db': LOSE_FEED } },
  {
    of: 'a container',
    that: 'that the read models have lost and the log can’t be read of',
    damage: { 'items.v1.db': LOSE_FLOOR, 'log.db': CUT_SHORT },
  },
  {
    of: 'a change feed',
    that: 'that the read models have lost and the log can’t be read of',
    damage: { 'items.v1.db': LOSE_FEED, 'log.db': CUT_SHORT },
  },
])('a floor of $of $that keeps what its record says, also after a start', async ({ of, damage }) => {
  const folder = new DamagedFolder('damaged-holds');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const feed = of === 'a change feed' ? { changeFeedPolicy: { retentionDuration: 60 } } : {};
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', { ...DEFINITION, ...feed }, 100);
  await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  if (of === 'a container') await store.setRetentionFloor(CALLER, container, 1_000, 'a test');
  await store.close();
  for (const [file, sql] of Object.entries(damage)) folder.change(file, (database) => database.exec(sql));
  store = await folder.open();
  try {
    await store.advanceClock(200_000);
    await store.runPurge();
    expect((await store.explain(container, 'a', PK)).state).toBe('expired');
  } finally {
    await store.close();
  }
});

it.each(['container', 'database'])(
  'a floor of a change feed that a crash has left behind when its %s was deleted is removed by the next start',
  async (deleted) => {
    const folder = new DamagedFolder('damaged-holds');
    let store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const definition = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 60 } };
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, -1);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    await (deleted === 'container' ? store.deleteContainer(CALLER, 'd', 'c') : store.deleteDatabase(CALLER, 'd'));
    await store.close();
    folder.change('vault.db', (vault) => vault.prepare('REPLACE INTO feed_floors VALUES (?, 3660)').run(container.rid));
    store = await folder.open();
    try {
      await store.runPurge();
      expect((await store.explain(container, 'a', PK)).state).toBe('purged');
    } finally {
      await store.close();
    }
  },
);

it.each([
  {
    what: 'of which the keys have lost an item',
    file: 'vault.db',
    sql: 'DELETE FROM held_prefixes',
    says: 'protect less than the log says',
  },
  { what: 'that the keys have lost', file: 'vault.db', sql: 'DELETE FROM holds', says: 'do not have it' },
  {
    what: 'of which the keys have a lower floor',
    file: 'vault.db',
    sql: 'DELETE FROM floors',
    says: 'the retention floor: it is lower in the keys',
  },
  {
    what: 'of which the keys have a lower floor for a feed',
    file: 'vault.db',
    sql: 'DELETE FROM feed_floors',
    says: 'the change-feed floor: it is lower in the keys',
  },
  { what: 'of which the keys have a higher floor', file: 'vault.db', sql: 'UPDATE floors SET seconds = 151' },
  {
    what: 'of which the log can’t say what is held',
    file: 'log.db',
    sql: "UPDATE events SET data = substr(data, 1, 12) WHERE type = (SELECT number FROM words WHERE text = 'HoldReleased')",
  },
  {
    what: 'of which the log has lost an item',
    file: 'log.db',
    sql: "UPDATE events SET data = json_remove(data, '$[1].items[0]') WHERE data LIKE '[\"list\"%'",
    says: 'protect more than the log says',
  },
])('fsck checks whether content is kept $what: $says', async ({ file, sql, says }) => {
  const folder = new DamagedFolder('damaged-holds');
  const store = await folder.open();
  try {
    await store.createDatabase(CALLER, 'd');
    const definition = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 60 } };
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, -1);
    const scope = { kind: 'items', items: ['a', 'b'].map((id) => ({ id, partitionKey: PK })) } as const;
    for (const id of ['gone', 'list']) await store.placeHold(CALLER, container, id, { scope, reason: 'a test' });
    await store.releaseHold(CALLER, container, 'gone', 'a test');
    for (const id of ['a', 'b']) {
      await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p', tags: ['one', 'two'] }));
    }
    const found = { kind: 'query', sql: 'SELECT VALUE t FROM c JOIN t IN c.tags', parameters: [] } as const;
    await store.placeHold(CALLER, container, 'query', { scope: found, reason: 'a test' });
    await store.setRetentionFloor(CALLER, container, 150, 'a test');
    // Their feeds keep nothing any more.
    await store.createContainer(CALLER, 'd', 'deleted', definition, -1);
    await store.deleteContainer(CALLER, 'd', 'deleted');
    await store.createDatabase(CALLER, 'e');
    await store.createContainer(CALLER, 'e', 'of a deleted one', definition, -1);
    await store.deleteDatabase(CALLER, 'e');
    expect((await store.fsck()).problems).toEqual([]);
    folder.change(file, (database) => database.exec(sql));
    const differing = (await store.fsck()).problems.filter(({ code }) => code === 'retention-differs');
    if (says === undefined) expect(differing).toEqual([]);
    else expect(differing.map(({ message }) => message).join()).toContain(says);
  } finally {
    await store.close();
  }
});
