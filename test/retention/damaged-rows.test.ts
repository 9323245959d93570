import type { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, vi } from 'vitest';
import { itemToWrite } from '../support/item.ts';
import { CALLER, DamagedFolder, PK } from './damaged-folder.ts';
import { DEFINITION } from './definition.ts';

it('a purge records why a life ended as the log tells it, whatever is left of that in the read models', async () => {
  const folder = new DamagedFolder('damaged-rows');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  await store.deleteItem(CALLER, container, 'a', PK);
  await store.close();
  const { changes } = folder.change('items.v1.db', (rows) => rows.prepare("UPDATE ended SET cause = 'delated'").run());
  expect(changes).toBe(1);
  store = await folder.open();
  try {
    await store.runPurge();
    expect(await store.explain(container, 'a', PK)).toMatchObject({ state: 'purged' });
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    await store.close();
  }
});

it.each([
  {
    what: 'a policy',
    damage: "UPDATE container_entries SET state = json_set(state, '$.defaultTtl', 1) WHERE list = 'policies'",
  },
  {
    what: 'a delete by partition key',
    damage: `UPDATE containers SET state = json_set(state, '$.partitionKeyDeletes',
      json('[{"partitionKey":"[\\"p\\"]","atMs":1,"position":1000,"by":"key:primary"}]'))`,
  },
])('neither a write nor an erasure ends a life by $what that only the read models have', async ({ damage }) => {
  const folder = new DamagedFolder('damaged-rows');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const definition = { ...DEFINITION, uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/email'] }] } };
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, 100_000);
  const { resource: plain } = await store.createContainer(CALLER, 'd', 'plain', DEFINITION, 100_000);
  for (const within of [container, plain]) {
    await store.writeItem(CALLER, within, 'create', itemToWrite({ id: 'a', pk: 'p', email: 'a' }));
  }
  await store.writeItem(CALLER, plain, 'create', itemToWrite({ id: 'e', pk: 'p' }));
  await store.advanceClock(10_000);
  await store.close();
  folder.change('items.v1.db', (rows) => rows.exec(damage));
  store = await folder.open();
  try {
    const again = itemToWrite({ id: 'a', pk: 'p', n: 2 });
    const itsEmail = itemToWrite({ id: 'c', pk: 'p', email: 'a' });
    const erase = () => store.eraseItem(CALLER, plain, 'e', PK, { reason: 'a test', requestedBy: 'Ann' });
    for (const ending of [
      () => store.writeItem(CALLER, plain, 'create', again),
      () => store.deleteItem(CALLER, plain, 'a', PK),
      () => store.writeItem(CALLER, container, 'create', again),
      () => store.writeItem(CALLER, container, 'create', itsEmail),
      erase,
    ]) {
      await expect(ending()).rejects.toThrow(/no expiry is recorded and nothing is erased in it/);
    }
    // Writes that end no life succeed.
    const other = itemToWrite({ id: 'b', pk: 'q' });
    for (let n = 0; n < 2; n += 1) await store.writeItem(CALLER, plain, 'upsert', other);
    store.startRebuild('items');
    await vi.waitFor(() => expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' }));
    await expect(store.writeItem(CALLER, plain, 'create', again)).rejects.toThrow(/exists already/);
    await expect(store.writeItem(CALLER, container, 'create', itsEmail)).rejects.toMatchObject({
      code: 'unique-key-taken',
    });
    expect(await store.readItem(container, 'a', PK)).toMatchObject({ id: 'a' });
    await erase();
    expect((await store.history(plain, 'e', PK)).map(({ type }) => type)).toEqual(['ItemUpserted', 'ItemPurged']);
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    await store.close();
  }
});

const TIME = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`;

/** A folder of a closed store with a live item, a deleted one and an erased one. */
async function aStore(): Promise<DamagedFolder> {
  const folder = new DamagedFolder('damaged-rows');
  const store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (const id of ['erased', 'live', 'deleted']) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
    if (id === 'erased') await store.deleteItem(CALLER, container, id, PK);
    if (id === 'erased') await store.runPurge();
  }
  await store.writeItem(CALLER, container, 'upsert', itemToWrite({ id: 'live', pk: 'p', n: 2 }));
  await store.deleteItem(CALLER, container, 'deleted', PK);
  await store.setRecoveryWindow(CALLER, container, 1_000, 'a test');
  await store.advanceClock(1_000);
  await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 1_000, confirmed: false });
  for (const name of ['empty', 'last']) await store.createDatabase(CALLER, name);
  await store.close();
  return folder;
}

describe('fsck names what is damaged', () => {
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
    { what: 'when an item is due', sql: 'UPDATE items SET due = 9007199254740990', code: 'row-differs' },
    { what: 'what is to be erased', sql: 'DELETE FROM ended', code: 'end-differs' },
    { what: 'why it is to be erased', sql: "UPDATE ended SET cause = 'expired'", code: 'end-differs' },
    {
      what: 'the stream of what is to be erased',
      sql: "UPDATE ended SET stream = stream || '0'",
      code: 'end-differs',
    },
    {
      what: 'why it left',
      sql: "UPDATE disappearances SET cause = 'expired' WHERE id = 'deleted'",
      code: 'end-differs',
    },
    { what: 'what left', sql: "DELETE FROM disappearances WHERE id = 'deleted'", code: 'end-differs' },
    { what: 'what was erased', sql: "DELETE FROM disappearances WHERE id = 'erased'", code: 'end-differs' },
    {
      what: 'who deleted it',
      sql: "UPDATE disappearances SET actor = 'key:secondary' WHERE id = 'deleted'",
      code: 'end-differs',
    },
    {
      what: 'by which rule it left',
      sql: "UPDATE disappearances SET rule = 'item-ttl' WHERE id = 'deleted'",
      code: 'end-differs',
    },
    {
      what: 'after how long it left',
      sql: "UPDATE disappearances SET ttl = 5 WHERE id = 'deleted'",
      code: 'end-differs',
    },
    {
      what: 'by which policy it left',
      sql: "UPDATE disappearances SET policy_version = 1 WHERE id = 'deleted'",
      code: 'end-differs',
    },
    {
      what: 'when it was erased',
      sql: "UPDATE disappearances SET purged_at = 5 WHERE id = 'erased'",
      code: 'end-differs',
    },
  ])('in the read models: $what', async ({ sql, code }) => {
    const folder = await aStore();
    expect(folder.change('items.v1.db', (database) => database.prepare(sql).run()).changes).toBeGreaterThan(0);
    const store = await folder.open();
    try {
      expect((await store.fsck()).problems.map((problem) => problem.code)).toContain(code);
      store.startRebuild('items');
      await vi.waitFor(() => expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' }));
      expect((await store.fsck()).problems).toEqual([]);
    } finally {
      await store.close();
    }
  });

  it('in the read models: a database as it was before the last change', async () => {
    const folder = new DamagedFolder('damaged-rows');
    let store = await folder.open();
    const throughput = (requestUnitsPerSecond: number) => ({ kind: 'manual', requestUnitsPerSecond }) as const;
    const { resource: database } = await store.createDatabase(CALLER, 'd', throughput(400));
    await store.close();
    const [former] = folder.change('items.v1.db', (rows) => rows.prepare('SELECT state FROM databases').all());
    store = await folder.open();
    await store.changeDatabaseThroughput(CALLER, database.rid, { kind: 'set', throughput: throughput(500) });
    await store.close();
    folder.change('items.v1.db', (rows) => rows.prepare('UPDATE databases SET state = ?').run(former!['state']!));
    store = await folder.open();
    try {
      expect((await store.fsck()).problems.map(({ code }) => code)).toEqual(['entry-differs']);
    } finally {
      await store.close();
    }
  });

  it.each([
    {
      what: 'the end of an item that is erased is lost',
      sql: "DELETE FROM events WHERE stream LIKE 'item-%' AND revision = 1 AND body IS NULL AND position < 7",
      code: 'writes-missing',
    },
    {
      what: 'the creation of a database is lost',
      sql: 'DELETE FROM events WHERE position = 1',
      code: 'unreadable-event',
    },
    {
      what: 'the last event of a container is lost',
      sql: "DELETE FROM events WHERE stream LIKE 'container-%' AND revision = 2",
      code: 'unreadable-event',
    },
    {
      what: 'the last write of an item is lost',
      sql: "DELETE FROM events WHERE stream LIKE 'item-%' AND revision = 1 AND body IS NOT NULL",
      code: 'writes-missing',
    },
    {
      what: 'the creation of a database in which there is nothing is lost',
      sql: 'DELETE FROM events WHERE position = (SELECT max(position) - 1 FROM events)',
      code: 'entry-without-reason',
    },
    {
      what: 'all of a container is lost',
      sql: "DELETE FROM events WHERE stream LIKE 'container-%'",
      code: 'unreadable-event',
    },
    {
      what: 'all of a container is lost, and that there was such a stream',
      sql: `DELETE FROM events WHERE stream LIKE 'container-%';
            DELETE FROM streams WHERE name LIKE 'container-%'`,
      code: 'entry-without-reason',
    },
    {
      what: 'all of an item that is to be erased is lost',
      sql: `DELETE FROM events WHERE stream = (SELECT stream FROM events WHERE stream LIKE 'item-%' AND body IS NULL ORDER BY position DESC LIMIT 1)`,
      code: 'writes-missing',
    },
    {
      what: 'a run of the purge has no version',
      sql: "UPDATE events SET version = 0 WHERE stream LIKE 'purge-%'",
      code: 'unreadable-event',
    },
  ])('in the log: $what', async ({ sql, code }) => {
    const folder = await aStore();
    const count = 'SELECT count(*) AS count FROM events';
    const counts = folder.change('log.db', (database) => {
      const before = database.prepare(count).get();
      database.exec(sql);
      return [before, database.prepare(count).get()];
    });
    if (sql.startsWith('DELETE')) expect(counts[1]).not.toEqual(counts[0]);
    const store = await folder.open();
    try {
      expect((await store.fsck()).problems.map((problem) => problem.code)).toContain(code);
    } finally {
      await store.close();
    }
  });

  it.each([
    {
      what: 'a user is missing',
      file: 'items.v1.db',
      sql: "DELETE FROM catalog_entries WHERE state LIKE '%ann%'",
      code: 'entry-differs',
    },
    {
      what: 'a user has another name',
      file: 'items.v1.db',
      sql: "UPDATE catalog_entries SET state = replace(state, 'ann', 'eve')",
      code: 'entry-differs',
    },
    {
      what: 'all of a user is lost',
      file: 'log.db',
      sql: "DELETE FROM events WHERE stream LIKE 'user-%'",
      code: 'entry-without-reason',
    },
    {
      what: 'an expiry is recorded a second late',
      file: 'log.db',
      sql: "UPDATE events SET data = replace(data, (ts + 5) || '000', (ts + 6) || '000') FROM (SELECT at / 1000 AS ts FROM events WHERE position = 1) WHERE data LIKE '%item-ttl%'",
      code: 'wrong-deadline',
    },
    {
      what: 'a value of a unique key that an item has is free',
      file: 'log.db',
      sql: "DELETE FROM events WHERE stream LIKE 'unique-%' AND data LIKE '%' || (SELECT stream FROM events WHERE data LIKE '%live%') || '%'",
      code: 'unique-key-not-held',
    },
    {
      what: 'the key of what is on record as erased is there',
      file: 'vault.db',
      sql: 'UPDATE keys SET wrapped = (SELECT wrapped FROM keys WHERE id = 2) WHERE id = 1',
      code: 'key-not-destroyed',
    },
  ])('an event or key that contradicts the records: $what', async ({ file, sql, code }) => {
    const folder = new DamagedFolder('damaged-rows');
    let store = await folder.open();
    const { resource: database } = await store.createDatabase(CALLER, 'd');
    const definition = { ...DEFINITION, uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/id'] }] } };
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, -1);
    await store.createUser(CALLER, database.rid, 'ann', 'create');
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'erased', pk: 'p' }));
    await store.deleteItem(CALLER, container, 'erased', PK);
    await store.runPurge();
    await store.setRecoveryWindow(CALLER, container, 1_000, 'a test');
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'live', pk: 'p' }));
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'expired', pk: 'p', ttl: 5 }));
    await store.advanceClock(10_000);
    await store.runPurge();
    await store.createDatabase(CALLER, 'last');
    await store.close();
    expect(folder.change(file, (damaged) => damaged.prepare(sql).run()).changes).toBeGreaterThan(0);
    store = await folder.open();
    try {
      expect((await store.fsck()).problems.map((problem) => problem.code)).toContain(code);
    } finally {
      await store.close();
    }
  });

  it.each(['container', 'database', 'user', 'purge-run'])(
    'a lost event of a %s, although the rest can be read',
    async (kind) => {
      const folder = await aStore();
      const lost = `DELETE FROM events WHERE revision = (SELECT max(revision) FROM events WHERE stream LIKE '${kind}-%') - 1 AND stream LIKE '${kind}-%'`;
      if (kind === 'database') {
        const store = await folder.open();
        await store.deleteDatabase(CALLER, 'empty');
        await store.close();
      }
      if (kind === 'user') {
        const store = await folder.open();
        const { rid } = store.database('empty');
        await store.createUser(CALLER, rid, 'u', 'create');
        await store.deleteUser(CALLER, rid, 'u');
        await store.close();
      }
      folder.change('log.db', (database) => database.exec(lost));
      const store = await folder.open();
      try {
        const { problems } = await store.fsck();
        const [revision, from] = kind === 'container' ? [1, ` from ${TIME}`] : [0, ''];
        expect(problems).toContainEqual({
          code: 'unreadable-event',
          subject: expect.stringMatching(`^${kind}-`),
          message: expect.stringMatching(
            `^the log does not have its event of revision ${revision} any more, recorded${from} to ${TIME}$`,
          ),
        });
      } finally {
        await store.close();
      }
    },
  );

  it.each([0, 1, 2])('only the event of a container that it can’t read (%i)', async (revision) => {
    const folder = await aStore();
    const cutShort = (log: DatabaseSync) =>
      log
        .prepare("UPDATE events SET data = substr(data, 1, 5) WHERE stream LIKE 'container-%' AND revision = ?")
        .run(revision);
    folder.change('log.db', cutShort);
    const examined = async () => {
      const store = await folder.open();
      try {
        return new Set((await store.fsck()).problems.map((problem) => problem.code));
      } finally {
        await store.close();
      }
    };
    expect([...(await examined())]).toEqual(['unreadable-event']);
    // Everything else is still checked, as far as possible without that event.
    folder.change('vault.db', (vault) =>
      vault.exec('UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE id = 2'),
    );
    expect((await examined()).has('key-missing')).toBe(revision > 0);
  });
});

describe('read models that contradict the log erase nothing before its time', () => {
  it.each([
    {
      what: 'a policy of a container',
      sql: "UPDATE container_entries SET state = json_set(state, '$.defaultTtl', 1) WHERE list = 'policies'",
    },
    {
      what: 'the recovery window of a container',
      sql: "UPDATE containers SET state = json_set(state, '$.retention.recoveryWindowSeconds', 0)",
    },
    {
      what: 'that a container is there',
      sql: "UPDATE containers SET state = json_set(state, '$.status', 'deleted', '$.deletedAtMs', 1700000000000)",
    },
    {
      what: 'that a database is there',
      sql: "UPDATE databases SET state = json_set(state, '$.status', 'deleted', '$.deletedAtMs', 1700000000000)",
    },
    { what: 'when an item ended', sql: "UPDATE ended SET ended_at = 5 WHERE id = 'deleted'" },
    { what: 'when an item was written', sql: "UPDATE items SET ts = 5 WHERE id = 'live'" },
    { what: 'when an item is due', sql: "UPDATE items SET ttl = 5, due = 5 WHERE id = 'live'" },
  ])('$what', async ({ sql }) => {
    const folder = await aStore();
    expect(folder.change('items.v1.db', (database) => database.prepare(sql).run()).changes).toBeGreaterThan(0);
    const store = await folder.open();
    try {
      const { length: before } = (await store.purgeRuns(0, 10)).runs;
      for (let passes = 0; passes < 2; passes++)
        await expect(store.runPurge()).rejects.toThrow(/between the read models and the event log/v);
      // The fault recurs in each pass. One recorded run for each pass would fill the log.
      expect((await store.purgeRuns(0, 10)).runs.length).toBe(before + 1);
      store.startRebuild('items');
      await vi.waitFor(() => expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' }));
      await store.runPurge();
      const container = store.container('d', 'c');
      const stateOf = async (id: string) => (await store.explain(container, id, PK)).state;
      expect([await stateOf('live'), await stateOf('deleted')]).toEqual(['live', 'deleted']);
      await store.advanceClock(1_001_000);
      await store.runPurge();
      expect([await stateOf('live'), await stateOf('deleted')]).toEqual(['expired', 'purged']);
    } finally {
      await store.close();
    }
  });
});

it('recovering what a policy expired records no end by a policy that contradicts the log', async () => {
  const folder = await aStore();
  const damage = "UPDATE container_entries SET state = json_set(state, '$.defaultTtl', 1) WHERE list = 'policies'";
  folder.change('items.v1.db', (database) => database.prepare(damage).run());
  const store = await folder.open();
  try {
    const container = store.container('d', 'c');
    await store.advanceClock(5_000);
    const recovery = store.recoverPolicy(CALLER, container, 2, { reason: 'mistyped' });
    await expect(recovery).rejects.toThrow(/between the read models and the event log/v);
    store.startRebuild('items');
    await vi.waitFor(() => expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' }));
    expect(await store.explain(container, 'live', PK)).toMatchObject({ state: 'live' });
  } finally {
    await store.close();
  }
});
