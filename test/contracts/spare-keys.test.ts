import { createSecretKey } from 'node:crypto';
import { copyFileSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { NewEvent } from '@epitaph/core/log/recorded-event.ts';
import type { SecretLifeKey } from '@epitaph/storage/crypto/gcm-body-sealer.ts';
import { unwrapKey } from '@epitaph/storage/crypto/key-wrapping.ts';
import { DataFolder } from '@epitaph/storage/sqlite/data-folder.ts';
import { rotateMasterKey } from '@epitaph/storage/sqlite/master-key.ts';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { SpareKeys } from '@epitaph/storage/sqlite/spare-keys.ts';
import { openVault } from '@epitaph/storage/sqlite/open-vault.ts';
import { VaultTables } from '@epitaph/storage/sqlite/vault-tables.ts';
import { isZero } from '../backup/setup.ts';
import { foundIn } from '../secrecy/search.ts';
import { copyAsKilled } from '../simulation/embedded.ts';
import { Random } from '../simulation/random.ts';
import { TestFolder } from './sqlite-folder.ts';

let folder: TestFolder;
let killed: TestFolder;
beforeEach(() => {
  folder = new TestFolder();
  killed = new TestFolder();
});
afterEach(async () => {
  await folder.dispose();
  await killed.dispose();
});

const streamOf = (name: string): string => `item-rid.${name}.0`;

interface Life {
  readonly name: string;
  readonly keyId: number;
  readonly secret: Buffer;
}

/** The first event of a life. */
const eventOf = ({ sealer }: SqliteStorage, name: string, key: SecretLifeKey): NewEvent => ({
  id: crypto.randomUUID(),
  type: 'ItemUpserted',
  version: 1,
  data: { id: name, key: key.keyId },
  body: sealer.seal(key, streamOf(name), 0, `about ${name}`),
  occurredAtMs: 1_000,
  actor: 'test',
  correlationId: '00000000-0000-4000-8000-000000000000',
  causationId: '00000000-0000-4000-8000-000000000000',
});

/** Writes the first event of a life as a command does: key, sealed body, append. */
async function live(storage: SqliteStorage, name: string): Promise<Life> {
  const { vault, log } = storage;
  const stream = streamOf(name);
  const { key, stored } = vault.createKey(stream);
  const event = eventOf(storage, name, key as SecretLifeKey);
  const appended = await log.append([{ stream, expectedRevision: 'no-stream', events: [event] }], { after: [stored] });
  expect(appended.kind).toBe('appended');
  return { name, keyId: key.keyId, secret: (key as SecretLifeKey).secret.export() };
}

/** Lives whose keys were stored in advance. The first life makes the vault create spare keys, and waits for a key of its own. */
async function spareLives(storage: SqliteStorage, count: number, name = 'life'): Promise<Life[]> {
  const first = await live(storage, `${name}-first`);
  const lives = await Promise.all(Array.from({ length: count }, (_, index) => live(storage, `${name}-${index}`)));
  expect(lives.every(({ keyId }) => keyId > first.keyId)).toBe(true);
  return lives;
}

async function opens({ vault, log, sealer }: SqliteStorage, { name, keyId }: Omit<Life, 'secret'>): Promise<string> {
  const stream = streamOf(name);
  const found = vault.findKey(keyId, stream);
  if (found.status !== 'there') return found.status;
  const [event] = await log.readStream(stream);
  return Buffer.from(sealer.open(found.key, stream, 0, event!.body!)).toString();
}

const destruction = ({ name, keyId }: Life) => ({
  keyId,
  stream: streamOf(name),
  lastWriteTs: 1,
  lastEventAtMs: 1_000,
  nowMs: 2_000,
});

/** Splits wrapped keys, as they are in a file, into pieces of 64 bytes. Something shorter is one piece. */
const piecesOf = (wrapped: readonly Buffer[]): Buffer[] =>
  wrapped.flatMap((bytes) =>
    Array.from({ length: Math.max(1, Math.floor(bytes.length / 64)) }, (_, at) =>
      bytes.subarray(at * 64, (at + 1) * 64),
    ),
  );

const masterKeyOf = (path: string) =>
  createSecretKey(Buffer.from(readFileSync(join(path, 'master.key'), 'utf8').trim(), 'base64'));

/** The contents of a vault's file: the numbers of the keys in rows, and all bytes of the spare keys. */
function vaultOf(path: string, master = masterKeyOf(path)) {
  const vault = new DatabaseSync(join(path, 'vault.db'), { readOnly: true });
  try {
    const rows = vault.prepare('SELECT id, wrapped FROM keys WHERE owner <> zeroblob(8)').all() as {
      id: number;
      wrapped: Uint8Array;
    }[];
    const slots = vault.prepare('SELECT slot, wrapped FROM spare_keys').all() as {
      slot: number;
      wrapped: Uint8Array;
    }[];
    const batches = slots.filter(({ wrapped }) => wrapped.some((byte) => byte !== 0));
    return {
      rows: rows.map(({ id }) => id),
      wrapped: [...rows, ...batches].map((row) => Buffer.from(row.wrapped)).filter((bytes) => !isZero(bytes)),
      spare: Buffer.concat(batches.map(({ slot, wrapped }) => unwrapKey(master, slot, 'spare keys', wrapped)!)),
    };
  } finally {
    vault.close();
  }
}

for (const writers of ['inline', 'threads'] as const) {
  describe(`spare keys (${writers})`, () => {
    it('make a life’s first write faster: its key gets a row of its own only later', async () => {
      const storage = await folder.open({ writers });
      const lives = await spareLives(storage, 20);
      const { rows, spare } = vaultOf(folder.path);
      for (const { keyId, secret } of lives) {
        expect(rows).not.toContain(keyId);
        expect(spare.includes(secret)).toBe(true);
      }
      storage.vault.forgetUnwrapped();
      for (const life of lives) expect(await opens(storage, life)).toBe(`about ${life.name}`);
    });

    it('are also known for lives that begin together with one whose key was stored before', async () => {
      const storage = await folder.open({ writers });
      await spareLives(storage, 1);
      const earlier = storage.vault.createKey(streamOf('earlier'));
      // The writer gets this one by itself.
      await new Promise(setImmediate);
      const later = storage.vault.createKey(streamOf('later'));
      const written = [
        { name: 'earlier', ...earlier },
        { name: 'later', ...later },
      ];
      const appended = await storage.log.append(
        written.map(({ name, key }) => ({
          stream: streamOf(name),
          expectedRevision: 'no-stream',
          events: [eventOf(storage, name, key as SecretLifeKey)],
        })),
        { after: written.map(({ stored }) => stored) },
      );
      expect(appended.kind).toBe('appended');
      await folder.close();
      const again = await folder.open({ writers });
      for (const { name, key } of written) {
        expect(await opens(again, { name, keyId: key.keyId })).toBe(`about ${name}`);
      }
    });

    it('are found after a kill by the lives in the log; unused ones are gone', async () => {
      const storage = await folder.open({ writers });
      const lives = await spareLives(storage, 20);
      copyAsKilled(folder.path, killed.path);
      const again = await killed.open({ writers });
      for (const life of lives) expect(await opens(again, life)).toBe(`about ${life.name}`);
      const { rows, spare } = vaultOf(killed.path);
      expect(rows).toEqual([expect.any(Number), ...lives.map(({ keyId }) => keyId)]);
      expect(spare.length).toBe(0);
      // No number is given out twice.
      const later = await live(again, 'later');
      expect(rows).not.toContain(later.keyId);
    });

    it('are found after a kill by the body that they have sealed, if the rest of the write is damaged', async () => {
      const storage = await folder.open({ writers });
      const lives = await spareLives(storage, 20);
      copyAsKilled(folder.path, killed.path);
      const log = new DatabaseSync(join(killed.path, 'log.db'));
      const damaged = ['life-3', 'life-19'].map((name) => ({
        name,
        ...(log.prepare('SELECT position, data FROM events WHERE stream = ?').get(streamOf(name)) as {
          position: number;
          data: string;
        }),
      }));
      const put = log.prepare('UPDATE events SET data = ? WHERE position = ?');
      for (const { position } of damaged) put.run('[', position);
      await killed.open({ writers });
      await killed.close();
      for (const { position, data } of damaged) put.run(data, position);
      log.close();
      const again = await killed.open({ writers });
      for (const life of lives) expect(await opens(again, life)).toBe(`about ${life.name}`);
    });

    it('stay readable and are in the file only once, however many lives follow and whenever the process is killed', async () => {
      const storage = await folder.open({ writers });
      const lives: Life[] = [];
      for (let round = 0; round < 16; round++) {
        const some = Array.from({ length: 100 }, (_, index) => live(storage, `${round}-${index}`));
        lives.push(...(await Promise.all(some)));
        if (round === 6) {
          // The rest of a used-up batch, which has not been replaced by a new batch yet.
          await storage.vault.destroyKeys([destruction(lives.pop()!)]);
          const { spare } = vaultOf(folder.path);
          expect(lives.filter(({ secret }) => spare.includes(secret))).toEqual([]);
        }
        if (round % 5 !== 0) continue;
        const copy = new TestFolder();
        try {
          copyAsKilled(folder.path, copy.path);
          const again = await copy.open({ writers });
          for (const life of lives) expect(await opens(again, life)).toBe(`about ${life.name}`);
        } finally {
          await copy.dispose();
        }
      }
      expect(new Set(lives.map(({ keyId }) => keyId)).size).toBe(lives.length);
      await folder.close();
      const again = await folder.open({ writers });
      for (const life of lives) expect(await opens(again, life)).toBe(`about ${life.name}`);
    });

    it('leave nothing of a destroyed key, and keep the others readable', async () => {
      const storage = await folder.open({ writers });
      const [gone, ...kept] = (await spareLives(storage, 5)) as [Life, ...Life[]];
      const pieces = piecesOf(vaultOf(folder.path).wrapped);
      expect(foundIn(folder.path, pieces).size).toBeGreaterThan(200);
      expect(await storage.vault.destroyKeys([destruction(gone)])).toEqual([{ kind: 'destroyed' }]);
      expect(await opens(storage, gone)).toBe('destroyed');
      // The first life's own key has not changed.
      expect(foundIn(folder.path, pieces).size).toBe(1);
      const { rows, spare } = vaultOf(folder.path);
      expect(spare.includes(gone.secret)).toBe(false);
      for (const life of kept) {
        expect(rows).toContain(life.keyId);
        expect(spare.includes(life.secret)).toBe(false);
      }
      const next = await live(storage, 'next');
      expect(vaultOf(folder.path).spare.includes(next.secret)).toBe(true);
      copyAsKilled(folder.path, killed.path);
      const again = await killed.open({ writers });
      expect(await opens(again, gone)).toBe('destroyed');
      for (const life of [...kept, next]) expect(await opens(again, life)).toBe(`about ${life.name}`);
    });

    it('leave no bytes in any page of a file, in whatever order they get rows and are destroyed', async () => {
      const storage = await folder.open({ writers });
      const random = new Random(7);
      const seen = new Map<string, Buffer>();
      const remember = () => {
        for (const piece of piecesOf(vaultOf(folder.path).wrapped)) seen.set(piece.toString('hex'), piece);
      };
      let lives: Life[] = [];
      const begun = (count: number) =>
        Promise.all(Array.from({ length: count }, () => live(storage, crypto.randomUUID())));
      for (let round = 0; round < 30; round++) {
        lives.push(...(await begun(random.int(1, 150))));
        remember();
        // Sometimes keys with rows of their own, whose numbers are higher than those of spare keys that still get rows.
        const [some] = await Promise.all([
          begun(random.int(1, 30)),
          ...(random.chance(0.3) ? [storage.vault.whileCopying(async () => lives.push(...(await begun(40))))] : []),
        ]);
        lives.push(...some);
        remember();
        if (!random.chance(0.5)) continue;
        const gone = lives.filter(() => random.chance(0.3));
        await storage.vault.destroyKeys(gone.map((life) => destruction(life)));
        lives = lives.filter((life) => !gone.includes(life));
        remember();
      }
      expect(seen.size).toBeGreaterThan(10_000);
      // when all lives are purged
      await storage.vault.destroyKeys(lives.map((life) => destruction(life)));
      const { wrapped } = vaultOf(folder.path);
      // then only keys that no life has are left
      const left = new Set(piecesOf(wrapped).map((piece) => piece.toString('hex')));
      const former = [...seen.values()].filter((piece) => !left.has(piece.toString('hex')));
      expect(foundIn(folder.path, former).size).toBe(0);
    }, 60_000);

    it('are all moved to rows when the store is closed', async () => {
      const storage = await folder.open({ writers });
      const lives = await spareLives(storage, 5);
      await folder.close();
      const { rows, spare } = vaultOf(folder.path);
      expect(spare.length).toBe(0);
      for (const { keyId } of lives) expect(rows).toContain(keyId);
    });

    it('are dropped from memory once they have rows, so a lost row is noticed', async () => {
      const storage = await folder.open({ writers });
      const [life] = await spareLives(storage, 1);
      await storage.vault.whileCopying(async () => {});
      storage.vault.forgetUnwrapped();
      const vault = new DatabaseSync(folder.file('vault.db'));
      vault.prepare('DELETE FROM keys WHERE id = ?').run(life!.keyId);
      vault.close();
      expect(await opens(storage, life!)).toBe('unknown');
    });

    it('are in no copy of the vault, so a copy opens nothing that begins later', async () => {
      const storage = await folder.open({ writers });
      const before = await spareLives(storage, 5);
      // Created while the copy begins.
      const beside = [live(storage, 'beside-1'), live(storage, 'beside-2')];
      await storage.vault.whileCopying(async () => {
        const { rows, spare } = vaultOf(folder.path);
        expect(spare.length).toBe(0);
        for (const { keyId } of [...before, ...(await Promise.all(beside))]) expect(rows).toContain(keyId);
        const during = await live(storage, 'during');
        expect(vaultOf(folder.path).rows).toContain(during.keyId);
      });
      await live(storage, 'after');
      const later = await live(storage, 'later');
      expect(vaultOf(folder.path).spare.includes(later.secret)).toBe(true);
    });

    it('are wrapped with a new master key even if the store was killed before', async () => {
      const storage = await folder.open({ writers });
      const lives = await spareLives(storage, 5);
      copyAsKilled(folder.path, killed.path);
      const opened = DataFolder.open(killed.path, 'manual');
      await rotateMasterKey(opened, {});
      opened.close();
      expect(vaultOf(killed.path).spare.length).toBe(0);
      const again = await killed.open({ writers });
      for (const life of lives) expect(await opens(again, life)).toBe(`about ${life.name}`);
    });

    it('are not lost by a start with a wrong master key', async () => {
      const storage = await folder.open({ writers });
      const lives = await spareLives(storage, 5);
      copyAsKilled(folder.path, killed.path);
      const wrong = Buffer.alloc(32, 3).toString('base64');
      await expect(killed.open({ writers, masterKey: wrong })).rejects.toThrow('master key is not the one');
      const again = await killed.open({ writers });
      for (const life of lives) expect(await opens(again, life)).toBe(`about ${life.name}`);
    });
  });
}

it('spare keys without a known owner are searched for in the last events of the log only', async () => {
  const master = createSecretKey(Buffer.alloc(32, 1));
  const vault = openVault(folder.file('vault.db'), 'OFF');
  const spare = new SpareKeys(vault, new VaultTables(vault, master), master);
  const settle = (position: number, work: () => void = () => {}) => {
    spare.settle(position);
    work();
    spare.committed(position);
  };
  const positions = () =>
    vault
      .prepare('SELECT wrapped FROM spare_keys WHERE slot = 0')
      .all()
      .map(({ wrapped }) => unwrapKey(master, 0, 'spare keys', wrapped as Uint8Array)!.readDoubleBE(8));
  settle(10, () => spare.add(1, new Uint8Array(16_384).fill(7), 10));
  expect(spare.isStale(200_000)).toBe(false);
  settle(200_000);
  expect(positions()).toEqual([10]);
  expect(spare.isStale(260_011)).toBe(true);
  settle(260_011);
  // The search begins where the previous one was, because the owner of a key may become known a little late.
  expect(positions()).toEqual([200_000]);
  expect(spare.isStale(260_012)).toBe(false);
  vault.close();
});

it.each(['a start', 'a change of the master key'])(
  'spare keys of a killed store are kept until the newest log is there, if %s finds an older one',
  async (what) => {
    const storage = await folder.open();
    await live(storage, 'first');
    const old = new TestFolder();
    copyAsKilled(folder.path, old.path);
    const lives = await Promise.all(['a', 'b', 'c'].map((name) => live(storage, name)));
    const { store } = storage.readModels.current;
    await store.apply([], await storage.log.head());
    copyAsKilled(folder.path, killed.path);
    const putLog = (from: TestFolder) => {
      for (const name of ['log.db', 'log.db-wal']) copyFileSync(from.file(name), killed.file(name));
      rmSync(killed.file('log.db-shm'), { force: true });
    };
    // given a log that is put back to an earlier moment
    putLog(old);
    await old.dispose();
    if (what === 'a start') await expect(killed.open()).rejects.toThrow('it is an older copy');
    else {
      const opened = DataFolder.open(killed.path, 'manual');
      await expect(rotateMasterKey(opened, {})).rejects.toThrow('Nothing was changed');
      opened.close();
    }
    // when the newest log is put in its place
    putLog(folder);
    const again = await killed.open();
    for (const life of lives) expect(await opens(again, life)).toBe(`about ${life.name}`);
  },
);

it('spare keys that could not be moved to rows because of a full disk are moved later', async () => {
  let isFull = false;
  const storage = await folder.open({
    onStep: (step) => {
      if (isFull && step === 'vault: before commit') throw new Error('database or disk is full');
    },
  });
  const lives: Life[] = [];
  for (let copy = 0; copy < 6; copy++) {
    lives.push(...(await spareLives(storage, 5, `copy-${copy}`)));
    isFull = true;
    await expect(storage.vault.whileCopying(async () => {})).rejects.toThrow('disk is full');
    isFull = false;
  }
  // when a life begins beside a change of a floor, and both are written together
  const [life] = await Promise.all([live(storage, 'beside'), storage.vault.setFloor('rid', 'retention', 60)]);
  expect(storage.vault.floors().get('rid')).toEqual({ retention: 60 });
  const spare = await live(storage, 'spare');
  expect(vaultOf(folder.path).spare.includes(spare.secret)).toBe(true);
  copyAsKilled(folder.path, killed.path);
  const again = await killed.open();
  for (const one of [...lives, life, spare]) expect(await opens(again, one)).toBe(`about ${one.name}`);
});

it('the row of a key is added after all others, or existed before, so that SQLite never moves a row and leaves its bytes behind', async () => {
  const master = createSecretKey(Buffer.alloc(32, 1));
  const vault = openVault(folder.file('vault.db'), 'OFF');
  const tables = new VaultTables(vault, master);
  const add = (id: number) => tables.addKey(id, streamOf(`${id}`), Buffer.alloc(32, id));
  const rows = () =>
    vault
      .prepare('SELECT id, owner <> zeroblob(8) AS has FROM keys')
      .all()
      .map(({ id, has }) => (has === 1 ? id : 'blank'));
  add(2);
  add(5);
  expect(rows()).toEqual(['blank', 2, 'blank', 'blank', 5]);
  add(3);
  expect(rows()).toEqual(['blank', 2, 3, 'blank', 5]);
  expect(() => add(3)).toThrow('UNIQUE');
  // After a restore, numbers continue in a range of their own.
  add(5 + 2 ** 40);
  expect(rows()).toEqual(['blank', 2, 3, 'blank', 5, 5 + 2 ** 40]);
  vault.close();
});
