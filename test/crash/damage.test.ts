import { copyFileSync, cpSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { verifyCertificate } from '@epitaph/core/proof/certificate.ts';
import { readVerifierKey } from '@epitaph/core/proof/checkpoint.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { checkpointCryptography } from '@epitaph/storage/crypto/proof-signer.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { zeroTable } from '../support/damage.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';

const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000000' };
const IDS = ['a', 'b'];

let folder: string;
let store: Store;
/** The messages about files that were missing in the folder. */
let told: string[];
const open = () =>
  openEmbeddedStore({
    folder,
    clock: 'manual',
    automaticPurge: false,
    durable: false,
    onLoss: (what) => told.push(what),
  });
const read = (id: string) => store.readItem(store.container('db', 'c'), id, '["p"]');

beforeEach(async () => {
  folder = newFolder('damage');
  told = [];
  store = await open();
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
  for (const id of IDS) {
    await store.writeItem(CALLER, store.container('db', 'c'), 'create', itemToWrite({ id, pk: 'p' }));
  }
});
afterEach(async () => {
  await store.close();
  removeFolder(folder);
});

function run(file: string, sql: string): void {
  const database = new DatabaseSync(file);
  database.exec(sql);
  database.close();
}

/** Changes the files while the store is closed. */
async function whileClosed(work: () => void): Promise<void> {
  await store.close();
  work();
  store = await open();
}

describe('a file that is damaged', () => {
  const named = (told: RegExp) => ({
    name: 'UnreadableFile',
    isForOperator: true,
    message: expect.stringMatching(told) as unknown,
  });

  it('is named to the operator by the read that finds it', async () => {
    await whileClosed(() => zeroTable(join(folder, 'items.v1.db'), 'items'));
    await expect(read('a')).rejects.toMatchObject(named(/items\.v1\.db can't be read.*rebuild the read models/));
    expect(await read('a').catch((error: unknown) => error)).toBeInstanceOf(StorageUnavailable);
  });

  it('can be deleted instead of restored if a writer finds the damage and the file can be built from the log', async () => {
    await whileClosed(() => zeroTable(join(folder, 'items.v1.db'), 'disappearances'));
    // The delete waits for the read model, which reports the damage.
    const deleting = store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
    deleting.catch(() => {});
    await vi.waitFor(async () => {
      const [{ error } = {}] = await store.projections();
      expect(error).toMatch(/damaged.*delete .*items\.v1\.db, with its -wal and -shm files: it is built again/);
    });
    await whileClosed(() =>
      ['', '-wal', '-shm'].forEach((end) => rmSync(join(folder, `items.v1.db${end}`), { force: true })),
    );
    await expect(read('a')).rejects.toMatchObject({ code: 'item-not-found' });
    expect((await read('b')).id).toBe('b');
  });

  it.each([
    { what: 'the state of a container is cut short', sql: 'UPDATE containers SET state = substr(state, 1, 20)' },
    { what: 'that of a run of the purge is damaged', sql: "UPDATE purge_runs SET state = 'x'" },
    { what: 'how far it has come is lost', sql: 'DELETE FROM checkpoint' },
  ])('is reported at the start with advice if $what', async ({ sql }) => {
    await store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
    await store.runPurge();
    const file = join(folder, 'items.v1.db');
    const starting = whileClosed(() => {
      const database = new DatabaseSync(file);
      database.exec(sql);
      database.close();
    });
    await expect(starting).rejects.toMatchObject({
      name: 'UnusableFile',
      message: expect.stringMatching(/items\.v1\.db.*elete.* with its -wal and -shm files/) as unknown,
    });
    for (const end of ['', '-wal', '-shm']) rmSync(`${file}${end}`, { force: true });
    store = await open();
    expect((await store.fsck()).problems).toEqual([]);
  });

  it.each([
    { what: 'how far it has come is lost', damage: (file: string) => run(file, 'DELETE FROM proof') },
    { what: 'a table of it is lost', damage: (file: string) => run(file, 'DROP TABLE tiles') },
    { what: 'a page of it is', damage: (file: string) => zeroTable(file, 'tiles') },
  ])('is reported with advice if it is the proof tree and $what', async ({ damage }) => {
    const file = join(folder, 'proof.db');
    await expect(whileClosed(() => damage(file))).rejects.toMatchObject({
      name: 'UnusableFile',
      message: expect.stringMatching(
        /proof\.db: the proof tree is damaged .*elete.* with its -wal and -shm/,
      ) as unknown,
    });
    for (const end of ['', '-wal', '-shm']) rmSync(`${file}${end}`, { force: true });
    store = await open();
    expect((await store.verifyLog()).problems).toEqual([]);
  });

  it.each(['DELETE FROM tiles', 'UPDATE tiles SET hashes = substr(hashes, 1, 32)'])(
    'is built again if it is the proof tree and leaves of it are lost: %s',
    async (sql) => {
      await whileClosed(() => run(join(folder, 'proof.db'), sql));
      await store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
      expect(await store.verifyLog()).toMatchObject({ ok: true, problems: [] });
    },
  );

  it('is named at the start if the start reads it', async () => {
    const starting = whileClosed(() => zeroTable(join(folder, 'vault.db'), 'keys'));
    await expect(starting).rejects.toMatchObject(named(/vault\.db can't be read.*restore it from a backup/));
  });

  it('is named at the start also if it is read only after a kill', async () => {
    const starting = whileClosed(() => zeroTable(join(folder, 'vault.db'), 'spare_keys'));
    await expect(starting).rejects.toThrow(/vault\.db: the key vault.*is damaged.*Restore it from a backup/);
  });

  it('is refused if it is an older copy of the log, because later events would be missing without a trace', async () => {
    const files = (of: string) => readdirSync(of).filter((name) => name.startsWith('log.db'));
    const copy = newFolder('older-log');
    await whileClosed(() => files(folder).forEach((name) => copyFileSync(join(folder, name), join(copy, name))));
    await store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
    const starting = whileClosed(() => {
      for (const name of files(folder)) rmSync(join(folder, name));
      for (const name of files(copy)) copyFileSync(join(copy, name), join(folder, name));
    });
    await expect(starting).rejects.toThrow(
      /log\.db ends at 4, and the read models have events up to 5: it is an older copy/,
    );
    removeFolder(copy);
    // As the message advises if there is no newer copy.
    for (const end of ['', '-wal', '-shm']) rmSync(join(folder, `items.v1.db${end}`), { force: true });
    store = await open();
    for (const id of IDS) expect((await read(id)).id).toBe(id);
    expect((await store.fsck()).problems).toEqual([]);
    // Later events get the positions of the lost ones, and can be proven like any others.
    await store.deleteItem(CALLER, store.container('db', 'c'), 'b', '["p"]');
    await store.runPurge();
    const certificate = await store.certificate(store.container('db', 'c'), 'b', '["p"]');
    const key = readVerifierKey(store.proofKey(), checkpointCryptography)!;
    expect(verifyCertificate(certificate, key, checkpointCryptography)).toMatchObject({ ok: true });
    expect((await store.verifyLog()).problems).toEqual([]);
  });

  describe('that is of another copy of the store', () => {
    const items = () => join(folder, 'items.v1.db');
    const makeItem = async (id: string) => {
      const item = itemToWrite({ id, pk: 'p' });
      await store.writeItem(CALLER, store.container('db', 'c'), 'upsert', item);
    };

    /** Continues with one copy, and then puts the resulting read models beside the other copy, with which the test continues. */
    async function partWays(work: () => Promise<unknown>): Promise<void> {
      const before = newFolder('before');
      await whileClosed(() => cpSync(folder, before, { recursive: true }));
      await work();
      await whileClosed(() => {
        copyFileSync(items(), join(before, 'other-items'));
        removeFolder(folder);
        renameSync(before, folder);
      });
    }
    const takeOther = () => renameSync(join(folder, 'other-items'), items());

    it('is reported, and built again from the log, even if the log has enough events for it', async () => {
      await partWays(() => makeItem('a'));
      await makeItem('b');
      await makeItem('c');
      await whileClosed(takeOther);
      expect(told).toEqual([expect.stringMatching(/items\.v1\.db was of another copy of the store/)]);
      expect((await store.fsck()).problems).toEqual([]);
    });

    it('is not suspected after interrupted starts or after a rebuild', async () => {
      // The folder's file gets the mark of the next opening before the read models do.
      for (let times = 0; times < 2; times++) {
        const former = join(folder, 'former-items');
        await whileClosed(() => copyFileSync(items(), former));
        await whileClosed(() => renameSync(former, items()));
      }
      store.startRebuild('items');
      await vi.waitFor(() => expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' }), 60_000);
      await whileClosed(() => {});
      expect(told).toEqual([]);
    });

    it.each(['the same item', 'the same container'])(
      'is reported with advice if the folder has no mark of its opening, and %s was created in both',
      async (what) => {
        const make = () =>
          what === 'the same item' ? makeItem('c') : store.createContainer(CALLER, 'db', 'other', DEFINITION, -1);
        await partWays(make);
        await store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
        await make();
        const starting = whileClosed(() => {
          takeOther();
          const facts = join(folder, 'epitaph.json');
          const { opening: _, ...older } = JSON.parse(readFileSync(facts, 'utf8')) as { opening?: string };
          writeFileSync(facts, JSON.stringify(older));
        });
        await expect(starting).rejects.toThrow(/items\.v1\.db does not match the event log.*delete the file/);
        rmSync(items());
        store = await open();
        expect((await store.fsck()).problems).toEqual([]);
      },
    );
  });

  it.each([
    {
      what: 'has one item twice',
      sql: 'UPDATE events SET data = replace(data, \'"b"\', \'"a"\') WHERE position = 4',
      says: /the event log is damaged: the event at 4 contradicts earlier ones\. Restore/,
    },
    {
      what: 'has one change of a policy twice',
      sql: `INSERT INTO events SELECT 6, stream, 2, position, type, version, at, id, actor, correlation, causation, shape, data, body
        FROM events WHERE position = 5`,
      says: /policy versions count up: the event log is damaged: .*Restore/,
    },
  ])('is reported as the log, and not as a file made from it, if the log $what', async ({ sql, says }) => {
    await store.changeTtl(CALLER, 'db', 'c', { defaultTtl: 60, confirmed: false });
    const damage = (file: string) => {
      const log = new DatabaseSync(join(folder, file));
      expect(log.prepare(sql).run().changes).toBe(1);
      log.close();
    };
    const starting = whileClosed(() => {
      damage('log.db');
      for (const name of readdirSync(folder).filter((each) => each.startsWith('items.'))) rmSync(join(folder, name));
    });
    await expect(starting).rejects.toThrow(says);
    await expect(starting).rejects.not.toThrow('delete');
  });

  describe('is refused where it is an older copy of the keys', () => {
    const older = async (work: () => Promise<void>, { closed = true } = {}) => {
      const files = (of: string) => readdirSync(of).filter((name) => name.startsWith('vault.db'));
      const copy = newFolder('older-vault');
      const take = () => files(folder).forEach((name) => copyFileSync(join(folder, name), join(copy, name)));
      if (closed) await whileClosed(take);
      else take();
      await work();
      const starting = whileClosed(() => {
        for (const name of files(folder)) rmSync(join(folder, name));
        for (const name of files(copy)) copyFileSync(join(copy, name), join(folder, name));
      });
      await expect(starting).rejects.toThrow(/vault\.db is an older copy.*Replace it by the newest/);
      removeFolder(copy);
    };

    const create = async (id: string) => {
      const item = itemToWrite({ id, pk: 'p' });
      await store.writeItem(CALLER, store.container('db', 'c'), 'create', item);
    };
    const purge = async (id: string) => {
      await store.deleteItem(CALLER, store.container('db', 'c'), id, '["p"]');
      await store.runPurge();
    };

    it('from before a write: its content would be lost, and the number of its key would be given out again', () =>
      older(() => create('later')));

    it('from before a purge: content recorded as erased could be read again', () => older(() => purge('a')));

    it('from before a write that was purged later: the number of its key would be given out again', () =>
      older(async () => {
        await create('later');
        await purge('later');
      }));

    it('from before earlier purges than the last, of keys that the copy has', () =>
      older(
        async () => {
          // One of the two keys has a row of its own in the copy, and the other is among the spare keys.
          await purge('a');
          await purge('b');
        },
        { closed: false },
      ));
  });

  it('is reported by fsck, which checks the rest, if it is an event of a container', async () => {
    await store.changeTtl(CALLER, 'db', 'c', { defaultTtl: 60, confirmed: false });
    await whileClosed(() => {
      const log = new DatabaseSync(join(folder, 'log.db'));
      const { changes } = log
        .prepare("UPDATE events SET data = '[]' WHERE stream LIKE 'container-%' AND revision = 1")
        .run();
      log.close();
      expect(changes).toBe(1);
    });
    const { problems, lives } = await store.fsck();
    expect(problems).toContainEqual({
      code: 'unreadable-event',
      subject: expect.stringMatching(/^container-/) as unknown,
      message: expect.any(String) as unknown,
    });
    expect(lives).toBe(IDS.length);
  });

  it('is reported by fsck, which checks the rest, if it is an event of a unique key', async () => {
    await store.createContainer(
      CALLER,
      'db',
      'u',
      { ...DEFINITION, uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/email'] }] } },
      -1,
    );
    await store.writeItem(
      CALLER,
      store.container('db', 'u'),
      'create',
      itemToWrite({ id: 'a', pk: 'p', email: 'a@b' }),
    );
    await whileClosed(() => {
      const log = new DatabaseSync(join(folder, 'log.db'));
      log.exec("UPDATE events SET version = 99 WHERE stream LIKE 'unique-%'");
      log.close();
    });
    expect((await store.fsck()).problems).toEqual([
      {
        code: 'unreadable-event',
        subject: expect.stringMatching(/^unique-/) as unknown,
        message: expect.stringContaining('newer') as unknown,
      },
    ]);
  });

  it.each([
    { what: 'whose data are cut short', set: 'data = substr(data, 1, 20)', says: /ItemUpserted at 3 is damaged/ },
    { what: 'of which a word is lost', set: 'shape = 9999', says: /ItemUpserted at 3 is damaged: word 9999/ },
  ])(
    'does not prevent the start of the store, and is reported by everything that needs it, if it is an event $what',
    async ({ set, says }) => {
      await whileClosed(() => {
        const log = new DatabaseSync(join(folder, 'log.db'));
        log.exec(`UPDATE events SET ${set} WHERE position = 3`);
        log.close();
      });
      expect((await read('b')).id).toBe('b');
      expect((await store.explain(store.container('db', 'c'), 'b', '["p"]')).state).toBe('live');
      await expect(store.explain(store.container('db', 'c'), 'a', '["p"]')).rejects.toThrow(says);
      await store.deleteItem(CALLER, store.container('db', 'c'), 'b', '["p"]');
      await store.runPurge();
      expect((await store.explain(store.container('db', 'c'), 'b', '["p"]')).state).toBe('purged');
      const stream = expect.stringMatching(/^item-/) as unknown;
      const message = expect.stringMatching(says) as unknown;
      expect((await store.fsck()).problems).toEqual([{ code: 'unreadable-event', subject: stream, message }]);
      expect((await store.verifyLog()).problems).toEqual([{ code: 'fact-differs', subject: stream, message }]);
    },
  );

  it('is the only one that the check of the log names if it is one fact among others', async () => {
    await store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
    await whileClosed(() =>
      run(join(folder, 'log.db'), "UPDATE events SET data = substr(data, 1, 5) WHERE stream LIKE 'container-%'"),
    );
    const { problems } = await store.verifyLog();
    expect(problems.map(({ code, subject }) => [code, subject.split('-')[0]])).toEqual([['fact-differs', 'container']]);
  });

  it('is reported by fsck, which checks the rest, if it is an event with an impossible version', async () => {
    await whileClosed(() => {
      const log = new DatabaseSync(join(folder, 'log.db'));
      log.exec('UPDATE events SET version = 0 WHERE position = 3');
      log.close();
    });
    const message = expect.stringMatching(/ItemUpserted at 3 is damaged: there is no version 0/) as unknown;
    expect((await store.fsck()).problems).toMatchObject([{ code: 'unreadable-event', message }]);
    await expect(store.explain(store.container('db', 'c'), 'a', '["p"]')).rejects.toThrow(UnreadableEvent);
  });

  it.each([
    { what: 'the time of a write is none', find: '"times":"', replace: '"times":"x' },
    { what: 'a write is missing', find: '"writes":1', replace: '"writes":2' },
  ])(
    'in the ledger of a purged item ($what) does not make the item look as if it had never existed',
    async ({ find, replace }) => {
      await store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
      await store.runPurge();
      await whileClosed(() => {
        const log = new DatabaseSync(join(folder, 'log.db'));
        const purged = "type = (SELECT number FROM words WHERE text = 'ItemPurged')";
        expect(
          log.prepare(`UPDATE events SET data = replace(data, ?, ?) WHERE ${purged}`).run(find, replace).changes,
        ).toBe(1);
        log.close();
      });
      const container = store.container('db', 'c');
      await expect(store.explain(container, 'a', '["p"]')).rejects.toThrow(
        /ItemPurged at \d+ is damaged: ledger: times/,
      );
      await expect(store.history(container, 'a', '["p"]')).rejects.toThrow(UnreadableEvent);
      expect((await store.fsck()).problems).toMatchObject([{ code: 'unreadable-event' }]);
    },
  );

  it.each([
    { what: 'the end of its stream is said to be', sql: 'UPDATE streams SET last = 3 WHERE last = 4' },
    { what: 'the event before its own is said to be', sql: 'UPDATE events SET previous = 3 WHERE position = 5' },
  ])('does not let events of another item show up if $what that one’s', async ({ sql }) => {
    const document = { id: 'b', pk: 'p', n: 2 };
    const item = { id: 'b', partitionKey: '["p"]', document, json: JSON.stringify(document) };
    if (sql.includes('previous')) await store.writeItem(CALLER, store.container('db', 'c'), 'upsert', item);
    await whileClosed(() => {
      const log = new DatabaseSync(join(folder, 'log.db'));
      expect(log.prepare(sql).run().changes).toBe(1);
      log.close();
    });
    const container = store.container('db', 'c');
    const history = store.history(container, 'b', '["p"]');
    if (sql.includes('previous')) expect((await history).map(({ position }) => position)).not.toContain(3);
    else await expect(history).rejects.toThrow('lost the last event');
    await expect(store.contentAt(container, 'b', '["p"]', { revision: 0 })).rejects.toThrow('no such write');
    expect((await store.fsck()).problems.map(({ code }) => code)).toContain('writes-missing');
  });

  it('does not make an item look deleted if the log has lost the content of its write', async () => {
    await whileClosed(() => {
      const log = new DatabaseSync(join(folder, 'log.db'));
      log.exec('UPDATE events SET body = NULL WHERE position = (SELECT max(position) FROM events)');
      log.close();
    });
    await expect(read('b')).rejects.toThrow('because its data in the store is damaged');
    expect((await read('a')).id).toBe('a');
  });
});
