import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DataFolder } from '@epitaph/storage/sqlite/data-folder.ts';
import { PlacedCrash } from '@epitaph/storage/sqlite/placed-crash.ts';
import { rotateMasterKey } from '@epitaph/storage/sqlite/master-key.ts';
import { foundIn } from '../secrecy/search.ts';
import { DoubleLog } from '../eventstoredb/double-log.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { DEFINITION } from '../support/definition.ts';
import { Disk } from '../support/disk.ts';
import { CALLER, epitaph, isZero, Place, readable, wrappedKeys, write } from './setup.ts';

let place: Place;
let data: string;
beforeEach(async () => {
  place = new Place();
  data = place.file('data');
  const store = await place.open();
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
  for (let index = 0; index < 40; index++) await write(store, 'c', `item-${index}`);
  // Two writes of one life, and one life that is erased.
  await write(store, 'c', 'item-1', { v: 2 });
  await store.deleteItem(CALLER, store.container('db', 'c'), 'item-0', '["p"]');
  await store.runPurge();
  await place.close();
});
afterEach(() => place.dispose());

async function opensWhole(masterKey?: string): Promise<void> {
  const store = await place.open({ masterKey });
  for (let index = 1; index < 40; index++) expect(await readable(store, 'c', `item-${index}`)).toBe(true);
  expect(await readable(store, 'c', 'item-0')).toBe(false);
  expect((await store.fsck()).problems).toEqual([]);
  await place.close();
}

describe('changing the master key', () => {
  it('wraps all keys anew, and leaves nothing of the old wrapping or the old key in any file', async () => {
    const before = [...wrappedKeys(data).values()].filter((wrapped) => !isZero(wrapped));
    const old = readFileSync(join(data, 'master.key'), 'utf8').trim();
    const oldFile = place.file('old.key');
    writeFileSync(oldFile, old);
    expect(foundIn(data, before).size).toBe(before.length);
    const { code, out } = await epitaph(['keys', 'rotate-master', '--data', data]);
    expect([code, out]).toEqual([0, expect.stringContaining('opens nothing')]);
    expect(foundIn(data, [...before, Buffer.from(old)]).size).toBe(0);
    expect((await epitaph(['keys', 'verify-master', oldFile, '--data', data])).code).toBe(2);
    await opensWhole();
    await expect(place.open({ masterKey: old })).rejects.toThrow('not the one');
  });

  it('keeps a key whose number the log also has for another life, whose own key is lost with a newer copy of the keys', async () => {
    const log = new DatabaseSync(join(data, 'log.db'));
    const events = log
      .prepare("SELECT position, shape, data FROM events WHERE body IS NOT NULL AND data LIKE '%item-_\"%'")
      .all() as { position: number; shape: number; data: string }[];
    const nameOf = log.prepare('SELECT text FROM words WHERE number = ?');
    const change = log.prepare('UPDATE events SET data = ? WHERE position = ?');
    const keyOf = (event: (typeof events)[number]) => {
      const { text } = nameOf.get(event.shape) as { text: string };
      const at = (JSON.parse(text) as string[]).indexOf('key');
      return { at, values: JSON.parse(event.data) as unknown[] };
    };
    const [earlier, later] = ['item-2', 'item-3'].map((id) => events.find(({ data: of }) => of.includes(`"${id}"`))!);
    const { at, values } = keyOf(earlier!);
    values[at] = keyOf(later!).values[at];
    change.run(JSON.stringify(values), earlier!.position);
    log.close();
    expect((await epitaph(['keys', 'rotate-master', '--data', data])).code).toBe(0);
    const store = await place.open();
    expect(await readable(store, 'c', 'item-3')).toBe(true);
    await place.close();
  });

  it.each([
    { what: 'whose data are cut short', damage: 'data = substr(data, 1, 20)' },
    { what: 'whose data are another value', damage: "data = 'null'" },
    { what: 'of which a word is lost', damage: 'shape = 9999' },
    { what: 'of which a word is damaged', damage: "shape = (SELECT number FROM words WHERE text = 'key:primary')" },
  ])('keeps the key of a life of which the log has only a damaged write, $what', async ({ damage }) => {
    const log = new DatabaseSync(join(data, 'log.db'));
    const [event] = log
      .prepare("SELECT position, shape, data FROM events WHERE body IS NOT NULL AND data LIKE '%item-2\"%'")
      .all() as { position: number; shape: number; data: string }[];
    const { position, shape, data: whole } = event!;
    log.prepare(`UPDATE events SET ${damage} WHERE position = ?`).run(position);
    expect(await epitaph(['keys', 'rotate-master', '--data', data])).toMatchObject({ code: 0 });
    log.prepare('UPDATE events SET shape = ?, data = ? WHERE position = ?').run(shape, whole, position);
    log.close();
    await opensWhole();
  });

  it('works if the last recorded erasure is damaged', async () => {
    const log = new DatabaseSync(join(data, 'log.db'));
    const type = "(SELECT number FROM words WHERE text = 'ItemPurged')";
    expect(log.prepare(`UPDATE events SET data = 'x' WHERE type = ${type}`).run().changes).toBe(1);
    log.close();
    expect(await epitaph(['keys', 'rotate-master', '--data', data])).toMatchObject({ code: 0 });
  });

  it('interrupted at any step continues from there, and the store does not open until it is done', async () => {
    const given = {
      current: readFileSync(join(data, 'master.key'), 'utf8').trim(),
      next: Buffer.alloc(32, 9).toString('base64'),
    };
    for (const keys of [{}, given]) {
      const crashes = new Set<string>();
      for (let crashAt = 1; ; crashAt++) {
        let steps = 0;
        const folder = DataFolder.open(data, 'manual');
        const rotation = () =>
          rotateMasterKey(folder, {
            ...keys,
            onStep: (step) => {
              steps += 1;
              if (steps === crashAt) throw new PlacedCrash(step);
            },
          });
        let crashed = false;
        try {
          await rotation();
        } catch (error) {
          if (!(error instanceof PlacedCrash)) throw error;
          crashed = true;
          crashes.add(error.message);
        } finally {
          folder.close();
        }
        if (!crashed) break;
        const marked = JSON.parse(readFileSync(join(data, 'epitaph.json'), 'utf8')) as { rotatingTo?: string };
        if (marked.rotatingTo !== undefined) await expect(place.open()).rejects.toThrow('keys rotate-master');
      }
      // Without a key file in the folder there is none to swap.
      expect(crashes.size).toBe(keys === given ? 5 : 6);
      expect(existsSync(join(data, 'master.key.next'))).toBe(false);
      if (keys === given) await opensWhole(given.next);
      else {
        await opensWhole();
        given.current = readFileSync(join(data, 'master.key'), 'utf8').trim();
      }
    }
  });

  it('can also continue between two transactions, if there are more keys than one transaction wraps', async () => {
    const vault = new DatabaseSync(join(data, 'vault.db'));
    // Keys for writes that then failed, so the log has no lives for them.
    vault.exec(
      `INSERT INTO keys (id, owner, wrapped)
       WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
       SELECT i + (SELECT max(id) FROM keys), randomblob(8), randomblob(60) FROM n`,
    );
    vault.close();
    const rotated = (onStep: (step: string) => void) => {
      const folder = DataFolder.open(data, 'manual');
      return rotateMasterKey(folder, { onStep }).finally(() => folder.close());
    };
    const cut = rotated((step) => {
      if (step === 'batch: after commit') throw new PlacedCrash(step);
    });
    await expect(cut).rejects.toThrow(PlacedCrash);
    // The value that identifies the master key is written last.
    const next = place.file('next.key');
    copyFileSync(join(data, 'master.key.next'), next);
    expect((await epitaph(['keys', 'verify-master', next, '--data', data])).code).toBe(2);
    await rotated(() => {});
    await opensWhole();
  });

  it('that was interrupted continues only with the same new key', async () => {
    const current = readFileSync(join(data, 'master.key'), 'utf8').trim();
    const next = Buffer.alloc(32, 9).toString('base64');
    const folder = DataFolder.open(data, 'manual');
    const onStep = (step: string) => {
      if (step === 'batch: after commit') throw new PlacedCrash(step);
    };
    await expect(rotateMasterKey(folder, { current, next, onStep })).rejects.toThrow(PlacedCrash);
    folder.close();
    const other = Buffer.alloc(32, 8).toString('base64');
    const refused = await epitaph(['keys', 'rotate-master', '--data', data], {
      EPITAPH_MASTER_KEY: current,
      EPITAPH_NEW_MASTER_KEY: other,
    });
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('Continue with it')]);
    const done = await epitaph(['keys', 'rotate-master', '--data', data], {
      EPITAPH_MASTER_KEY: current,
      EPITAPH_NEW_MASTER_KEY: next,
    });
    expect([done.code, done.out]).toEqual([
      0,
      expect.stringContaining('master.key is not the current master key any more'),
    ]);
    await opensWhole(next);
  });

  it('to a given key uses that key, also in a folder with a key file, and after an interruption', async () => {
    const keyFile = join(data, 'master.key');
    const [next, other] = [9, 8].map((byte) => Buffer.alloc(32, byte).toString('base64')) as [string, string];
    const folder = DataFolder.open(data, 'manual');
    const onStep = (step: string) => {
      if (step === 'next key: after') throw new PlacedCrash(step);
    };
    await expect(rotateMasterKey(folder, { next, onStep })).rejects.toThrow(PlacedCrash);
    folder.close();
    const rotated = (key: string) =>
      epitaph(['keys', 'rotate-master', '--data', data], { EPITAPH_NEW_MASTER_KEY: key });
    const refused = await rotated(other);
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('Finish that change first')]);
    expect(await rotated(next)).toMatchObject({ code: 0 });
    expect(readFileSync(keyFile, 'utf8').trim()).toBe(next);
    await opensWhole(next);
  });

  it.each(['a write', 'a purge'])(
    'refuses a copy of the keys from before %s, because the newest copy would stay under the old master key',
    async (what) => {
      const names = () => readdirSync(data).filter((name) => name.startsWith('vault.db'));
      const take = (to: string) => {
        mkdirSync(place.file(to));
        for (const name of names()) copyFileSync(join(data, name), place.file(to, name));
      };
      const put = (from: string) => {
        for (const name of names()) rmSync(join(data, name));
        for (const name of readdirSync(place.file(from))) copyFileSync(place.file(from, name), join(data, name));
      };
      take('older');
      const store = await place.open();
      if (what === 'a write') await write(store, 'c', 'later');
      else {
        await store.deleteItem(CALLER, store.container('db', 'c'), 'item-39', '["p"]');
        await store.runPurge();
      }
      await place.close();
      take('newest');
      put('older');
      const { code, err } = await epitaph(['keys', 'rotate-master', '--data', data]);
      expect([code, err]).toEqual([2, expect.stringMatching(/older copy than the event log.*Nothing was changed/)]);
      // The advice in the message works.
      put('newest');
      const again = await place.open();
      expect(await readable(again, 'c', what === 'a write' ? 'later' : 'item-38')).toBe(true);
      expect((await again.fsck()).problems).toEqual([]);
      await place.close();
    },
  );

  it('refuses a wrong master key, and changes nothing', async () => {
    const before = readFileSync(join(data, 'vault.db'));
    const { code, err } = await epitaph(['keys', 'rotate-master', '--data', data], {
      EPITAPH_MASTER_KEY: Buffer.alloc(32, 1).toString('base64'),
      EPITAPH_NEW_MASTER_KEY: Buffer.alloc(32, 2).toString('base64'),
    });
    expect([code, err]).toEqual([2, expect.stringContaining('Nothing was changed')]);
    expect(readFileSync(join(data, 'vault.db')).equals(before)).toBe(true);
    await opensWhole();
  });

  it('refuses the key in use, because that would be no change', async () => {
    const current = readFileSync(join(data, 'master.key'), 'utf8').trim();
    for (const given of [{}, { EPITAPH_MASTER_KEY: current }]) {
      const { code, err } = await epitaph(['keys', 'rotate-master', '--data', data], {
        ...given,
        EPITAPH_NEW_MASTER_KEY: current,
      });
      expect([code, err]).toEqual([2, expect.stringContaining('is the one in force')]);
    }
    await opensWhole();
  });

  it('refuses a copy of the keys, and a store without its keys or its log, and leaves them as they are', async () => {
    const given = {
      EPITAPH_MASTER_KEY: readFileSync(join(data, 'master.key'), 'utf8').trim(),
      EPITAPH_NEW_MASTER_KEY: Buffer.alloc(32, 7).toString('base64'),
    };
    const copy = place.file('vault');
    mkdirSync(copy);
    copyFileSync(join(data, 'vault.db'), join(copy, 'vault.db'));
    const rotated = await epitaph(['keys', 'rotate-master', '--data', copy], given);
    expect([rotated.code, rotated.err]).toEqual([2, expect.stringContaining('There is no store in')]);
    expect(readdirSync(copy)).toEqual(['vault.db']);
    rmSync(join(data, 'vault.db'));
    const keyless = await epitaph(['keys', 'rotate-master', '--data', data], given);
    expect([keyless.code, keyless.err]).toEqual([2, expect.stringContaining('There is no key vault in')]);
    expect(existsSync(join(data, 'vault.db'))).toBe(false);
    copyFileSync(join(copy, 'vault.db'), join(data, 'vault.db'));
    rmSync(join(data, 'log.db'));
    for (const name of readdirSync(data)) if (name.startsWith('items')) rmSync(join(data, name));
    const { code, err } = await epitaph(['keys', 'rotate-master', '--data', data], given);
    expect([code, err]).toEqual([2, expect.stringContaining('There is no event log in')]);
  });

  it('does not wait for a running store, which has locked the folder', async () => {
    await place.open();
    const { code, err } = await epitaph(['keys', 'rotate-master', '--data', data]);
    expect([code, err]).toEqual([2, expect.stringContaining('in use by another process')]);
  });
});

describe('escrow', () => {
  it('writes the master key to a file for its owner only, which opens the keys; it overwrites nothing', async () => {
    const file = place.file('escrow.key');
    expect((await epitaph(['keys', 'export-master', file, '--data', data])).code).toBe(0);
    expect(statSync(file).mode & 0o077).toBe(0);
    const verified = await epitaph(['keys', 'verify-master', file, '--data', data]);
    expect([verified.code, verified.out]).toEqual([0, expect.stringContaining('good')]);
    expect((await epitaph(['keys', 'export-master', file, '--data', data])).code).toBe(2);
  });

  it('exports and verifies on a read-only disk, if the folder was closed; otherwise it says why not', async (context) => {
    const disk = new Disk(place.file('read-only'));
    mkdirSync(disk.path);
    disk.mountOrSkip(context, 16);
    try {
      const [closed, killed] = [join(disk.path, 'closed'), join(disk.path, 'killed')];
      cpSync(data, closed, { recursive: true });
      await write(await place.open(), 'c', 'item-40');
      cpSync(data, killed, { recursive: true, filter: (file) => !file.endsWith('-shm') });
      await place.close();
      disk.remount('ro');
      const file = place.file('escrow.key');
      expect(await epitaph(['keys', 'export-master', file, '--data', closed])).toMatchObject({ code: 0 });
      expect(await epitaph(['keys', 'verify-master', file, '--data', closed])).toMatchObject({ code: 0 });
      const refused = await epitaph(['keys', 'verify-master', file, '--data', killed]);
      expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('must be written beside it')]);
    } finally {
      disk.unmount();
    }
  });

  it('exports no key that opens nothing, and does not create a mistyped folder', async () => {
    writeFileSync(join(data, 'master.key'), Buffer.alloc(32, 3).toString('base64'));
    const wrong = await epitaph(['keys', 'export-master', place.file('x'), '--data', data]);
    expect([wrong.code, wrong.err]).toEqual([2, expect.stringContaining('does not open')]);
    const nowhere = await epitaph(['keys', 'export-master', place.file('x'), '--data', place.file('nowhere')]);
    expect([nowhere.code, nowhere.err]).toEqual([2, expect.stringContaining('no key vault')]);
    expect(existsSync(place.file('nowhere'))).toBe(false);
  });
});

describe('changing the master key of a folder whose event log is on a server', () => {
  it('asks the server for the lives, wraps their keys anew, and destroys none that it has', async () => {
    const double = await EventStoreDouble.start();
    try {
      const other = new Place();
      const folder = other.file('data');
      const eventStore = `esdb://127.0.0.1:${double.port}?tls=false`;
      const store = await other.open({ eventStore });
      await store.createDatabase(CALLER, 'db');
      await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
      for (let index = 0; index < 5; index++) await write(store, 'c', `item-${index}`);
      const earlier = double.log.copy();
      // A recovered item has a life and a key that no client's write has made.
      await store.setRecoveryWindow(CALLER, store.container('db', 'c'), 60, 'in case');
      await store.deleteItem(CALLER, store.container('db', 'c'), 'item-2', '["p"]');
      await store.recoverItem(CALLER, store.container('db', 'c'), 'item-2', '["p"]', { reason: 'needed' });
      await write(store, 'c', 'item-1', { v: 2 });
      await store.deleteItem(CALLER, store.container('db', 'c'), 'item-0', '["p"]');
      await store.runPurge();
      await other.close();
      const before = wrappedKeys(folder);

      const without = await epitaph(['keys', 'rotate-master', '--data', folder]);
      expect([without.code, without.err]).toEqual([2, expect.stringContaining('--event-store')]);
      const command = ['keys', 'rotate-master', '--data', folder, '--event-store', eventStore];

      const log = double.log;
      for (const [wrong, told] of [
        [new DoubleLog(), 'belongs to another event log'],
        [earlier, 'older copy, or another log'],
      ] as const) {
        double.log = wrong;
        const { code, err } = await epitaph(command);
        expect([code, err]).toEqual([2, expect.stringContaining(told)]);
      }
      double.log = log;
      expect(wrappedKeys(folder)).toEqual(before);
      // A life without a key may only be damaged.
      const end = log.readBackwards().find(({ type }) => type === 'ItemDeleted')!;
      const whole = end.data.slice();
      end.data.fill(0x78);

      expect(await epitaph(command)).toMatchObject({ code: 0, out: expect.stringContaining('opens nothing') });
      for (const [id, wrapped] of wrappedKeys(folder)) {
        expect(isZero(wrapped)).toBe(isZero(before.get(id)!));
        if (!isZero(wrapped)) expect(wrapped).not.toEqual(before.get(id));
      }
      end.data.set(whole);
      const again = await other.open({ eventStore });
      for (let index = 1; index < 5; index++) expect(await readable(again, 'c', `item-${index}`)).toBe(true);
      expect((await again.fsck()).problems).toEqual([]);
      await other.dispose();
    } finally {
      double.stop();
    }
  });
});
