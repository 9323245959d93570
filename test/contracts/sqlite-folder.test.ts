import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { NewEvent } from '@epitaph/core/log/recorded-event.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { DestroyRequest, HoldScope } from '@epitaph/core/vault/key-vault.ts';
import type { EndedRow, ItemRow, ReadModelChange, ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import { DataFolder, FolderInUse } from '@epitaph/storage/sqlite/data-folder.ts';
import { UnusableFile } from '@epitaph/storage/sqlite/database.ts';
import { giveToFolderOwner } from '@epitaph/storage/sqlite/file-owner.ts';
import { rotateMasterKey } from '@epitaph/storage/sqlite/master-key.ts';
import { PlacedCrash } from '@epitaph/storage/sqlite/placed-crash.ts';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { HOLDS_ON_STREAM } from '@epitaph/storage/sqlite/schema.ts';
import { StorageFault } from '@epitaph/storage/sqlite/writer.ts';
import { TestFolder } from './sqlite-folder.ts';

/** SQL that turns a vault back into one of schema version 2. */
const VERSION_2 =
  'DROP TABLE spare_keys; DROP TABLE held_prefixes; DROP INDEX held_lives_by_hold; DROP INDEX holds_by_container; PRAGMA user_version = 2';

let folder: TestFolder;
beforeEach(() => {
  folder = new TestFolder();
});
afterEach(() => folder.dispose());

function event(body?: Uint8Array): NewEvent {
  const correlationId = crypto.randomUUID();
  return {
    id: crypto.randomUUID(),
    type: 'Tested',
    version: 1,
    data: { some: 'fact' },
    ...(body === undefined ? {} : { body }),
    occurredAtMs: 1_700_000_000_000,
    actor: 'test',
    correlationId,
    causationId: correlationId,
  };
}

/** A closed folder with an event and a key in it. */
async function filledAndClosed(options: Parameters<TestFolder['open']>[0] = {}): Promise<{ keyId: number }> {
  const storage = await folder.open(options);
  const { keyId } = await writeLife(storage, 'item-rid.life.0');
  await folder.close();
  return { keyId };
}

async function writeLife({ vault, log, sealer }: SqliteStorage, stream: string) {
  const { key, stored } = vault.createKey(stream);
  const body = sealer.seal(key, stream, 0, 'what the life is about');
  const result = await log.append([{ stream, expectedRevision: 'no-stream', events: [event(body)] }], {
    after: [stored],
  });
  expect(result.kind).toBe('appended');
  return { keyId: key.keyId, body };
}

async function refusal(options: Parameters<TestFolder['open']>[0] = {}): Promise<Error> {
  try {
    await folder.open(options);
  } catch (error) {
    return error as Error;
  }
  throw new Error('the folder was opened');
}

/** Changes a file of a closed folder by SQL. */
function tamper(name: string, sql: string): void {
  const database = new DatabaseSync(folder.file(name));
  database.exec(sql);
  database.close();
}

describe('a data folder', () => {
  it('that is open is refused to a second opener of the same process, with a helpful message', async () => {
    await folder.open();
    const error = await refusal();
    expect(error).toBeInstanceOf(FolderInUse);
    expect(error.message).toContain(folder.path);
    expect(error.message).toContain('in use');
  });

  it('that is open is refused to another process, and free again when it is closed', async () => {
    const storage = new URL('../../packages/storage/src/sqlite/open-sqlite-storage.ts', import.meta.url).href;
    const script = `
      const { openSqliteStorage } = await import(${JSON.stringify(storage)});
      try {
        const opened = await openSqliteStorage({ folder: ${JSON.stringify(folder.path)}, clock: 'manual', writers: 'inline' });
        await opened.close();
        process.stdout.write('opened');
      } catch (error) { process.stdout.write(error.name); }`;
    const other = () =>
      spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8', cwd: import.meta.dirname })
        .stdout;
    await folder.open();
    expect(other()).toBe('FolderInUse');
    await folder.close();
    expect(other()).toBe('opened');
    await folder.open();
  });

  it('leaves no journal and no unexpected file behind when it is closed', async () => {
    await filledAndClosed();
    expect(
      readdirSync(folder.path)
        .filter((name) => name !== 'clock')
        .toSorted(),
    ).toEqual([
      'epitaph.json',
      'items.v1.db',
      'lock',
      'log.db',
      'master.key',
      'proof.db',
      'proof.key',
      'purge-ledger.ndjson',
      'vault.db',
    ]);
  });

  it('uses write-ahead logging: while it is open, its databases have journals', async () => {
    const storage = await folder.open();
    await writeLife(storage, 'item-rid.life.0');
    for (const name of ['log.db', 'vault.db', 'items.v1.db']) {
      expect(existsSync(folder.file(`${name}-wal`)), name).toBe(true);
      const reader = new DatabaseSync(folder.file(name), { readOnly: true });
      expect(reader.prepare('PRAGMA journal_mode').get()).toEqual({ journal_mode: 'wal' });
      reader.close();
    }
  });

  it('makes its key and its facts readable for its owner only', async () => {
    await filledAndClosed();
    for (const name of ['master.key', 'epitaph.json', 'purge-ledger.ndjson'])
      expect(statSync(folder.file(name)).mode & 0o077, name).toBe(0);
  });

  it('of the manual clock is refused to the system clock, and the other way round', async () => {
    await filledAndClosed({ clock: 'manual' });
    const manual = await refusal({ clock: 'system' });
    expect(manual).toBeInstanceOf(UnusableFile);
    expect(manual.message).toContain('manual clock');
    const other = new TestFolder();
    try {
      await other.open({ clock: 'system' });
      await other.close();
      await expect(other.open({ clock: 'manual' })).rejects.toThrow('is used with the system clock');
    } finally {
      await other.dispose();
    }
  });

  it('of a newer format is refused', async () => {
    await filledAndClosed();
    const facts = JSON.parse(readFileSync(folder.file('epitaph.json'), 'utf8')) as object;
    writeFileSync(folder.file('epitaph.json'), JSON.stringify({ ...facts, format: 2 }));
    const error = await refusal();
    expect(error).toBeInstanceOf(UnusableFile);
    expect(error.message).toContain('newer');
  });

  it('whose facts are missing or damaged is refused rather than taken for a new one', async () => {
    await filledAndClosed();
    writeFileSync(folder.file('epitaph.json'), '{"format":');
    expect((await refusal()).message).toContain('damaged');
    rmSync(folder.file('epitaph.json'));
    expect((await refusal()).message).toContain('is missing');
  });

  for (const [file, what] of [
    ['vault.db', 'key vault'],
    ['log.db', 'event log'],
    ['purge-ledger.ndjson', 'purge ledger'],
  ] as const) {
    it(`whose ${file} is missing is refused with advice, and no new one is created`, async () => {
      await filledAndClosed();
      copyFileSync(folder.file(file), folder.file('kept'));
      rmSync(folder.file(file));
      const error = await refusal();
      expect(error).toBeInstanceOf(UnusableFile);
      expect(error.message).toMatch(new RegExp(`${what} .*${file} is missing.*Put it back`));
      expect(existsSync(folder.file(file))).toBe(false);
      copyFileSync(folder.file('kept'), folder.file(file));
      await folder.open();
    });
  }

  it('whose proof tree or read models are missing rebuilds them from the log', async () => {
    await filledAndClosed();
    for (const file of ['proof.db', 'items.v1.db']) rmSync(folder.file(file));
    const { proof, readModels } = await folder.open();
    expect([proof.store.state().size, await readModels.current.store.checkpoint()]).toEqual([0, 0]);
  });

  it('whose log was replaced by an older copy does not continue a rebuild of the newer log', async () => {
    const append = (storage: SqliteStorage, count: number) =>
      storage.log.append(
        Array.from({ length: count }, () => ({
          stream: `tested-${crypto.randomUUID()}`,
          expectedRevision: 'no-stream' as const,
          events: [event()],
        })),
      );
    await append(await folder.open(), 2);
    await folder.close();
    copyFileSync(folder.file('log.db'), folder.file('older.db'));
    const storage = await folder.open();
    await append(storage, 2);
    await storage.readModels.current.store.apply([], 4);
    await (await storage.readModels.createNext()).store.apply([], 3);
    await folder.close();
    copyFileSync(folder.file('older.db'), folder.file('log.db'));
    const told = await refusal();
    expect(told.message).toMatch(/ends at 2, and the read models have events up to 4.*delete .*items\.v1\.db/);
    rmSync(folder.file('items.v1.db'));

    // By the time of the next rebuild the log has other events at those positions.
    const again = await folder.open();
    const { readModels } = again;
    await append(again, 5);
    expect([readModels.unfinished, await readModels.openUnfinished()]).toEqual([undefined, undefined]);
    expect(existsSync(folder.file('items.v2.db'))).toBe(false);
  });

  it('whose purge ledger was changed at its end, or is of another store, is refused', async () => {
    await filledAndClosed();
    const ledger = readFileSync(folder.file('purge-ledger.ndjson'), 'utf8');
    writeFileSync(folder.file('purge-ledger.ndjson'), `${ledger}{"n":7,"previous":"x"}\n`);
    expect((await refusal()).message).toContain('purge-ledger.ndjson');
    writeFileSync(
      folder.file('purge-ledger.ndjson'),
      ledger.replace(/"store":"[^"]+"/, `"store":"${crypto.randomUUID()}"`),
    );
    expect((await refusal()).message).toContain('of another store');
    // A last line that a crash has cut short was never acknowledged.
    writeFileSync(folder.file('purge-ledger.ndjson'), `${ledger}{"n":1,"prev`);
    await folder.open();
    expect(readFileSync(folder.file('purge-ledger.ndjson'), 'utf8')).toBe(ledger);
  });

  it('whose purge ledger is a copy from before keys were destroyed is refused, and begins another one when it is told to', async () => {
    const { keyId } = await filledAndClosed();
    const [ledger, facts] = [folder.file('purge-ledger.ndjson'), folder.file('epitaph.json')];
    const older = readFileSync(ledger, 'utf8');
    const request = { keyId, stream: 'item-rid.life.0', lastWriteTs: 0, lastEventAtMs: 0, nowMs: 1_700_000_000_000 };
    await (await folder.open()).vault.destroyKeys([request]);
    await folder.close();
    const newest = readFileSync(ledger, 'utf8');
    writeFileSync(ledger, older);
    expect((await refusal()).message).toMatch(/is an older copy.*Replace it by the newest/);
    writeFileSync(ledger, newest);
    await folder.open();
    await folder.close();
    rmSync(ledger);
    writeFileSync(facts, readFileSync(facts, 'utf8').replace('"ledger":true,', ''));
    await folder.open();
    await folder.close();
    expect(readFileSync(ledger, 'utf8')).toBe(older);
    await folder.open();
  });

  it('whose proof key is damaged is refused with advice', async () => {
    await filledAndClosed();
    writeFileSync(folder.file('proof.key'), 'no key');
    expect((await refusal()).message).toContain('Restore it from a backup, or move it away');
  });

  it('whose proof key is gone opens with a new one and reports it; a new folder reports no loss', async () => {
    const told: string[] = [];
    const onLoss = (what: string) => told.push(what);
    await folder.open({ onLoss });
    await folder.close();
    await filledAndClosed();
    expect(told).toEqual([]);
    rmSync(folder.file('proof.key'));
    await folder.open({ onLoss });
    expect(told).toEqual([expect.stringContaining(`${folder.file('proof.key')} was missing`)]);
  });

  it('whose clock file is damaged is refused, because time must not begin anew', async () => {
    await filledAndClosed();
    writeFileSync(folder.file('clock'), 'yesterday');
    expect(await refusal()).toBeInstanceOf(UnusableFile);
  });

  it('with read models of an older schema gets new ones, which are projected from the log', async () => {
    const storage = await folder.open();
    await storage.readModels.current.store.apply([], 7);
    await folder.close();
    tamper('items.v1.db', 'PRAGMA user_version = 1');
    const opened = await folder.open();
    expect(await opened.readModels.current.store.checkpoint()).toBe(0);
  });

  it('with a vault from before there were two kinds of floors opens and keeps its floors', async () => {
    await filledAndClosed();
    tamper(
      'vault.db',
      `${VERSION_2}; DROP TABLE feed_floors; INSERT INTO floors VALUES ('rid', 60); PRAGMA user_version = 1`,
    );
    const { vault } = await folder.open({ writers: 'threads' });
    await vault.setFloor('rid', 'change-feed', 30);
    expect(vault.floors().get('rid')).toEqual({ retention: 60, 'change-feed': 30 });
  });

  it('with a vault from before holds were indexed by their scope opens, and its holds are effective', async () => {
    const scopes: HoldScope[] = [
      { kind: 'container', containerRid: 'whole' },
      { kind: 'stream-prefix', prefix: 'item-r.abc' },
      { kind: 'stream-prefixes', prefixes: ['item-r.def1.', 'item-r.def2.'] },
      { kind: 'lives', streams: ['item-r.ghi.0', 'item-r.ghi.1'] },
    ];
    const storage = await folder.open();
    for (const [index, scope] of scopes.entries()) {
      await storage.vault.placeHold({ holdId: `${index}`, containerRid: 'r', scope, placedAtMs: index });
    }
    await folder.close();
    tamper('vault.db', VERSION_2);
    const { vault } = await folder.open();
    expect(vault.holds().map(({ scope }) => scope)).toEqual(scopes);
    const held = ['item-whole.x.0', 'item-r.abc1.0', 'item-r.def1.7', 'item-r.def2.0', 'item-r.ghi.1'];
    expect(vault.holdsOn([...held, 'item-wholex.0', 'item-r.ab.0', 'item-r.def12.0', 'item-r.ghi.10'])).toEqual([
      ...['0', '1', '2', '2', '3'].map((holdId) => [holdId]),
      [],
      [],
      [],
      [],
    ]);
  });

  it('finds the holds on a life, and the lives under a hold, by indexes', async () => {
    await filledAndClosed();
    const database = new DatabaseSync(folder.file('vault.db'));
    for (const sql of [
      HOLDS_ON_STREAM,
      'SELECT stream FROM held_lives WHERE hold_id = ? ORDER BY stream',
      'DELETE FROM held_lives WHERE hold_id = ?',
      'DELETE FROM held_prefixes WHERE hold_id = ?',
    ]) {
      const plan = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
      const searched = plan.map(({ detail }) => detail).filter((detail) => detail.includes('held_'));
      expect(searched).not.toEqual([]);
      for (const detail of searched) expect(detail).toContain('SEARCH');
    }
    database.close();
  });

  for (const file of ['log.db', 'vault.db', 'items.v1.db', 'proof.db']) {
    it(`with a ${file} of a newer schema is refused, and not changed`, async () => {
      await filledAndClosed();
      tamper(file, 'PRAGMA user_version = 99');
      const error = await refusal({ writers: 'threads' });
      expect(error).toBeInstanceOf(UnusableFile);
      expect(error.message).toContain('newer');
      const database = new DatabaseSync(folder.file(file));
      expect(database.prepare('PRAGMA user_version').get()).toEqual({ user_version: 99 });
      database.close();
    });

    it(`with a ${file} of another program is refused`, async () => {
      await filledAndClosed();
      tamper(file, 'PRAGMA application_id = 7');
      expect(await refusal({ writers: 'threads' })).toBeInstanceOf(UnusableFile);
    });

    it(`with a ${file} that is no database is refused with advice`, async () => {
      await filledAndClosed();
      writeFileSync(folder.file(file), 'this is not a database, however long one looks at it'.repeat(200));
      const error = await refusal({ writers: 'threads' });
      expect(error).toBeInstanceOf(UnusableFile);
      expect(error.message).toContain(folder.file(file));
    });
  }

  it('is refused without its master key file, and creates no new one', async () => {
    await filledAndClosed();
    copyFileSync(folder.file('master.key'), folder.file('kept'));
    rmSync(folder.file('master.key'));
    const error = await refusal();
    expect(error).toBeInstanceOf(UnusableFile);
    expect(error.message).toContain('master key');
    expect(existsSync(folder.file('master.key'))).toBe(false);
    copyFileSync(folder.file('kept'), folder.file('master.key'));
    await folder.open();
  });

  it('is refused with a wrong master key, from the file or an option, and nothing is changed', async () => {
    const { keyId } = await filledAndClosed();
    const right = readFileSync(folder.file('master.key'), 'utf8').trim();
    const wrong = Buffer.alloc(32, 3).toString('base64');
    expect((await refusal({ masterKey: wrong })).message).toContain('master key is not the one');
    expect((await refusal({ masterKey: 'short' })).message).toContain('32 bytes');
    const storage = await folder.open({ masterKey: right });
    expect(storage.vault.findKey(keyId, 'item-rid.life.0').status).toBe('there');
  });

  it('of an older version is refused with a wrong master key, before an upgrade that would make it unreadable for the right one', async () => {
    await filledAndClosed();
    tamper('vault.db', VERSION_2);
    const error = await refusal({ masterKey: Buffer.alloc(32, 3).toString('base64') });
    expect(error).toBeInstanceOf(UnusableFile);
    expect(error.message).toContain('master key does not open');
    const [current, next] = [3, 4].map((byte) => Buffer.alloc(32, byte).toString('base64'));
    const opened = DataFolder.open(folder.path, 'manual');
    await expect(rotateMasterKey(opened, { current, next })).rejects.toThrow('master key does not open');
    opened.close();
    const vault = new DatabaseSync(folder.file('vault.db'));
    expect(vault.prepare('PRAGMA user_version').get()).toEqual({ user_version: 2 });
    vault.close();
    await folder.open();
  });

  it('that was refused is unlocked, and opens as soon as the reason is gone', async () => {
    await filledAndClosed();
    const right = readFileSync(folder.file('master.key'), 'utf8').trim();
    expect(await refusal({ masterKey: Buffer.alloc(32, 3).toString('base64'), writers: 'inline' })).toBeInstanceOf(
      UnusableFile,
    );
    expect(await refusal({ clock: 'system' })).toBeInstanceOf(UnusableFile);
    await folder.open({ masterKey: right });
  });

  it('whose path is a file is refused', async () => {
    const { openSqliteStorage } = await import('@epitaph/storage/sqlite/open-sqlite-storage.ts');
    writeFileSync(folder.file('file'), '');
    await expect(openSqliteStorage({ folder: folder.file('file'), clock: 'manual' })).rejects.toThrow(UnusableFile);
  });

  const isRoot = process.getuid?.() === 0;
  const skipped = isRoot ? ' (skipped: root may do all; run it as another user)' : '';
  it.skipIf(isRoot)(`without the right to write is refused${skipped}`, async () => {
    chmodSync(folder.path, 0o500);
    expect(await refusal()).toBeInstanceOf(UnusableFile);
    chmodSync(folder.path, 0o700);
  });

  it.skipIf(!isRoot)(
    `of another user stays that user's when root works on it${isRoot ? '' : ' (skipped: run it as root)'}`,
    async () => {
      const [uid, gid] = [65_534, 65_534];
      const files = () => readdirSync(folder.path).map((name) => folder.file(name));
      const owners = () => new Set(files().map((file) => `${statSync(file).uid} ${statSync(file).gid}`));
      await filledAndClosed();
      for (const file of [folder.path, ...files()]) chownSync(file, uid, gid);
      rmSync(folder.file('items.v1.db'));
      const { readModels } = await folder.open();
      const { version } = await readModels.createNext();
      await readModels.swapTo(version);
      expect(owners()).toEqual(new Set([`${uid} ${gid}`]));
      await folder.close();
      const opened = DataFolder.open(folder.path, 'manual');
      await rotateMasterKey(opened, {});
      opened.close();
      expect(owners()).toEqual(new Set([`${uid} ${gid}`]));
    },
  );

  it.skipIf(!isRoot)(
    `of another user does not give that user a file of root's to which it has a link${isRoot ? '' : ' (skipped: run it as root)'}`,
    () => {
      const ofRoot = folder.file('of-root');
      const inside = folder.file('of-another');
      mkdirSync(inside, { recursive: true });
      writeFileSync(ofRoot, 'x');
      chownSync(inside, 65_534, 65_534);
      symlinkSync(ofRoot, `${inside}/by-name`);
      linkSync(ofRoot, `${inside}/itself`);
      for (const link of ['by-name', 'itself']) giveToFolderOwner(`${inside}/${link}`);
      expect(statSync(ofRoot).uid).toBe(0);
      rmSync(ofRoot);
      giveToFolderOwner(`${inside}/itself`);
      expect(statSync(`${inside}/itself`).uid).toBe(65_534);
    },
  );

  it('keeps the latest read model that an interrupted rebuild has left', async () => {
    await filledAndClosed();
    for (const version of [2, 3]) copyFileSync(folder.file('items.v1.db'), folder.file(`items.v${version}.db`));
    const { readModels } = await folder.open();
    expect(readModels.current.version).toBe(1);
    expect(readModels.unfinished?.version).toBe(3);
    expect(existsSync(folder.file('items.v2.db'))).toBe(false);
    expect((await readModels.openUnfinished())?.version).toBe(3);
    expect(await readModels.openUnfinished()).toBe(undefined);
  });

  it.each([
    ['of an older schema', 'PRAGMA user_version = 1'],
    ['of a later schema', 'PRAGMA user_version = 99'],
    ['without a checkpoint', 'DELETE FROM checkpoint'],
  ])('throws away an unfinished read model %s', async (_, statements) => {
    await filledAndClosed();
    copyFileSync(folder.file('items.v1.db'), folder.file('items.v2.db'));
    tamper('items.v2.db', statements);
    const { readModels } = await folder.open();
    expect(readModels.unfinished).toBe(undefined);
    expect(existsSync(folder.file('items.v2.db'))).toBe(false);
  });

  it('throws away an unfinished read model that is damaged or empty', async () => {
    await filledAndClosed();
    for (const bytes of ['', 'not a database at all, but text'.repeat(100)]) {
      writeFileSync(folder.file('items.v2.db'), bytes);
      const { readModels } = await folder.open();
      expect(readModels.unfinished).toBe(undefined);
      expect(existsSync(folder.file('items.v2.db'))).toBe(false);
      await folder.close();
    }
  });

  it('throws away a read model of an older schema, and projects it from the log again', async () => {
    await filledAndClosed();
    tamper('items.v1.db', 'PRAGMA user_version = 1; UPDATE checkpoint SET position = 7');
    const { readModels } = await folder.open({ writers: 'threads' });
    expect(await readModels.current.store.checkpoint()).toBe(0);
  });

  it('can be closed twice', async () => {
    const storage = await folder.open();
    await storage.close();
    await storage.close();
  });
});

describe('a log whose pages are damaged', () => {
  it('reports the damage when it is read, and returns only whole events', async () => {
    const storage = await folder.open();
    for (let life = 0; life < 400; life++) await writeLife(storage, `item-rid.life${life}.0`);
    await folder.close();
    const bytes = readFileSync(folder.file('log.db'));
    // Page 1 stays, so that the file opens. Later pages are overwritten.
    bytes.fill(0xa5, 8192 * 2, Math.min(bytes.length, 8192 * 12));
    writeFileSync(folder.file('log.db'), bytes);
    await expect(
      (async () => {
        const damaged = await folder.open();
        for (let position = 0; ;) {
          const events = await damaged.log.readAll(position, 100);
          if (events.length === 0) return;
          position = events.at(-1)!.position;
        }
      })(),
    ).rejects.toThrow(/malformed|damaged/);
  });

  it('that was cut short reports it when it is opened or read', async () => {
    const storage = await folder.open();
    for (let life = 0; life < 400; life++) await writeLife(storage, `item-rid.life${life}.0`);
    await folder.close();
    truncateSync(folder.file('log.db'), 8192 * 5);
    await expect(
      (async () => {
        const damaged = await folder.open();
        for (let position = 0; ;) {
          const events = await damaged.log.readAll(position, 100);
          if (events.length === 0) return;
          position = events.at(-1)!.position;
        }
      })(),
    ).rejects.toThrow(/malformed|damaged/);
  });
});

describe('a vault that another program reads for a long time', () => {
  it('delays writes only for a moment, and reports keys as destroyed only once its journal no longer has them', async () => {
    const storage = await folder.open();
    const stream = 'item-rid.gone.0';
    const { keyId } = await writeLife(storage, stream);
    const entered = () => readFileSync(folder.file('purge-ledger.ndjson'), 'utf8').includes(stream);
    const reader = new DatabaseSync(folder.file('vault.db'), { readOnly: true });
    reader.exec('BEGIN');
    reader.prepare('SELECT count(*) FROM keys').get();
    const request: DestroyRequest = { keyId, stream, lastWriteTs: 1, lastEventAtMs: 1000, nowMs: 2000 };
    const beganMs = performance.now();
    const destroyed = storage.vault.destroyKeys([request]);
    await Promise.all([
      expect(destroyed).rejects.toThrow('nothing can be erased while another program reads vault.db'),
      writeLife(storage, 'item-rid.beside.0'),
    ]);
    expect(performance.now() - beganMs).toBeLessThan(5_000);
    expect(entered()).toBe(false);
    reader.close();
    expect(await storage.vault.destroyKeys([request])).toMatchObject([{ kind: 'already-destroyed' }]);
    expect(statSync(folder.file('vault.db-wal')).size).toBe(0);
    expect(entered()).toBe(true);
  });
});

for (const writers of ['inline', 'threads'] as const) {
  describe(`a group of writes (${writers})`, () => {
    it('whose key can’t be stored fails with it, and leaves nothing in the log or the vault', async () => {
      const storage = await folder.open({ writers });
      await writeLife(storage, 'item-rid.before.0');
      const head = await storage.log.head();
      // Another connection has taken the number of the next key, so storing that key fails. There are no spare keys while the vault is
      // copied.
      const intruder = new DatabaseSync(folder.file('vault.db'));
      const taken = await storage.vault.whileCopying(async () => storage.vault.createKey('item-rid.probe.0'));
      await taken.stored;
      const numbers = [1, 2, 3].map((more) => taken.key.keyId + more);
      const take = intruder.prepare('INSERT INTO keys (id, owner, wrapped) VALUES (?, ?, ?)');
      for (const number of numbers) take.run(number, new Uint8Array(8).fill(1), new Uint8Array(60));
      // A key that no write takes along is stored by itself. Its caller is told of the failure, and the key is not in memory afterwards.
      const alone = await storage.vault.whileCopying(async () => {
        // Nobody waits for this key.
        storage.vault.createKey('item-rid.left.0');
        return storage.vault.createKey('item-rid.alone.0');
      });
      await expect(alone.stored).rejects.toThrow(StorageFault);
      expect(storage.vault.findKey(alone.key.keyId, 'item-rid.alone.0').status).toBe('unknown');
      const streams = ['item-rid.x.0', 'item-rid.y.0', 'item-rid.z.0'];
      const keyless = { stream: 'keyless', expectedRevision: 'no-stream', events: [event()] } as const;
      const [beside, ...outcomes] = await storage.vault.whileCopying(() =>
        Promise.allSettled([storage.log.append([keyless]), ...streams.map((stream) => writeLife(storage, stream))]),
      );
      expect(beside).toMatchObject({ status: 'rejected', reason: expect.any(StorageFault) as unknown });
      const sameGroup = outcomes.filter((outcome) => outcome.status === 'rejected');
      expect(sameGroup.length).toBeGreaterThanOrEqual(1);
      expect((sameGroup[0] as PromiseRejectedResult).reason).toBeInstanceOf(StorageFault);
      for (const [index, stream] of streams.entries()) {
        const there = (await storage.log.readStream(stream)).length;
        expect(there, stream).toBe(outcomes[index]!.status === 'fulfilled' ? 1 : 0);
      }
      expect(await storage.log.readStream('item-rid.x.0')).toEqual([]);
      if (outcomes.every((outcome) => outcome.status === 'rejected')) expect(await storage.log.head()).toBe(head);
      for (const number of numbers) intruder.prepare('DELETE FROM keys WHERE id = ?').run(number);
      intruder.close();
      // The storage goes on as before.
      for (const stream of streams) {
        if ((await storage.log.readStream(stream)).length === 0) await writeLife(storage, stream);
      }
      await folder.close();
      const again = await folder.open({ writers });
      for (const stream of streams) {
        const [written] = await again.log.readStream(stream);
        const rows = new DatabaseSync(folder.file('vault.db'), { readOnly: true });
        const ids = (rows.prepare('SELECT id FROM keys').all() as { id: number }[]).map((row) => row.id);
        rows.close();
        const opened = ids.flatMap((keyId) => {
          const found = again.vault.findKey(keyId, stream);
          if (found.status !== 'there') return [];
          try {
            return [Buffer.from(again.sealer.open(found.key, stream, 0, written!.body!)).toString()];
          } catch {
            return [];
          }
        });
        expect(opened).toEqual(['what the life is about']);
      }
    });

    it('that fails in the log is rolled back completely, and later positions have no gap', async () => {
      const storage = await folder.open({ writers });
      await writeLife(storage, 'item-rid.a.0');
      const rare = () => ({ ...event(), type: 'Rare' });
      const intruder = new DatabaseSync(folder.file('log.db'));
      const next = (await storage.log.head()) + 2;
      const row = intruder.prepare('SELECT * FROM events LIMIT 1').get() as Record<string, SQLInputValue>;
      const columns = Object.keys(row);
      intruder
        .prepare(`INSERT INTO events (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`)
        .run(...columns.map((column) => (column === 'position' ? next : row[column]!)));
      const outcomes = await Promise.allSettled(
        ['p', 'q', 'r'].map((name) =>
          storage.log.append([{ stream: name, expectedRevision: 'no-stream', events: [rare()] }]),
        ),
      );
      intruder.prepare('DELETE FROM events WHERE position = ?').run(next);
      intruder.close();
      for (const [index, name] of ['p', 'q', 'r'].entries()) {
        expect((await storage.log.readStream(name)).length).toBe(outcomes[index]!.status === 'fulfilled' ? 1 : 0);
      }
      expect(outcomes.map(({ status }) => status)).toContain('rejected');
      for (const [index, stream] of ['p', 'q', 'r', 's'].entries()) {
        if (outcomes[index]?.status === 'fulfilled') continue;
        const result = await storage.log.append([{ stream, expectedRevision: 'no-stream', events: [rare()] }]);
        expect(result.kind).toBe('appended');
      }
      const written = (await storage.log.readAll(1, 10)).map(({ type, stream }) => [type, stream]);
      expect(written.toSorted()).toEqual(['p', 'q', 'r', 's'].map((stream) => ['Rare', stream]));
      expect((await storage.log.readLast('s'))?.position).toBe(await storage.log.head());
    });
  });
}

describe('the query plans of the statements that run on every tick and preview', () => {
  /** SQLite's plans of those statements of the store on the read models that `isMeant` selects. */
  async function plansOf(isMeant: (sql: string) => boolean): Promise<readonly { sql: string; plan: string }[]> {
    const prepare = vi.spyOn(DatabaseSync.prototype, 'prepare');
    await filledAndClosed();
    const statements = new Set(prepare.mock.calls.map(([sql]) => sql.replaceAll(/\s+/g, ' ')).filter(isMeant));
    prepare.mockRestore();
    const database = new DatabaseSync(folder.file('items.v1.db'), { readOnly: true });
    const plans = Array.from(statements, (sql) => {
      const rows = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
      return { sql, plan: rows.map(({ detail }) => detail).join('\n') };
    });
    database.close();
    return plans;
  }

  it('count items by their times, and find the next deadline, by ranges of a covering index', async () => {
    const plans = await plansOf(
      (sql) =>
        /(?:count|min)\(.* FROM items WHERE container = \?1? AND due/.test(sql) && !sql.includes('unreadable_ttl'),
    );
    expect(plans.length).toBeGreaterThanOrEqual(5);
    for (const { sql, plan } of plans) {
      const looks = plan.split('\n').filter((line) => line.startsWith('SEARCH'));
      expect(looks.length, sql).toBeGreaterThan(0);
      for (const look of looks)
        expect(look, sql).toContain('items USING COVERING INDEX items_by_time (container=? AND due');
      expect(plan, sql).not.toMatch(/SCAN (?!CONSTANT)|TEMP B-TREE/);
    }
  });

  it('find items by their times, and ended lives and disappearances, in the order of an index, without a sort', async () => {
    const plans = await plansOf((sql) =>
      /FROM (?:items|ended|disappearances) .*ORDER BY (?:ts|due|(?:(?:ended_|purged_)?at, )?position) LIMIT/.test(sql),
    );
    expect(plans.length).toBeGreaterThanOrEqual(8);
    for (const { sql, plan } of plans) {
      expect(plan, sql).toMatch(/^SEARCH/);
      expect(plan, sql).not.toMatch(/SCAN|TEMP B-TREE/);
    }
  });

  it('continue lists by time and position, even in the middle of an instant at which a million items left', async () => {
    const plans = await plansOf((sql) => /FROM (?:ended|disappearances) .*position\)? > /.test(sql));
    expect(plans.length).toBe(4);
    for (const { sql, plan } of plans)
      expect(plan, sql).toMatch(/at=\? AND position>\?|\(ended_at,position\)>\(\?,\?\)/);
  });
});

describe('read models of many items', () => {
  const NONE = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };

  /** Read models with items of one partition key for each entry: from a birth on, a constant distance apart. */
  async function filled(
    containers: readonly { container: number; partitionKey: string; from: number; items: number; apart?: number }[],
  ): Promise<ReadModelStore> {
    const { store } = (await folder.open({ writers: 'inline', logMayBeOlder: true })).readModels.current;
    const changes = containers.flatMap(({ container, partitionKey, from, items, apart = 1 }) =>
      Array.from({ length: items }, (_, index) => {
        const position = from + index * apart;
        const item = { container, partitionKey, id: `${position}`, life: 0, revision: 0 };
        return {
          kind: 'item-written',
          ...item,
          position,
          ts: 1,
          ttl: null,
          key: position,
          unreadableTtl: false,
        } as const;
      }),
    );
    await store.apply(changes, Math.max(...changes.map(({ position }) => position)));
    return store;
  }

  it("a search in a container far from others' items gives other work turns, and looks for the container's beginning only once", async () => {
    // given: the container is between two groups of items of another container, each a million births away
    const other = { container: 2, partitionKey: '["a"]' };
    const store = await filled([
      { ...other, from: 3, items: 10 },
      { container: 7, partitionKey: '["a"]', from: 1_000_001, items: 12_000 },
      { ...other, from: 2_000_001, items: 10 },
    ]);
    const pages = {
      scan: (afterBirth: number) => store.scanItems(7, { afterBirth, limit: 1, marks: NONE }),
      all: (afterBirth: number) => store.allItems(7, afterBirth, 1),
    };
    const birthsOf = async (rows: MaybePromise<readonly ItemRow[]>) => (await rows).map(({ birth }) => birth);
    // when
    const atFirst = pages.scan(0);
    // then: the search gives other work turns on the way
    expect(atFirst).toBeInstanceOf(Promise);
    expect(await birthsOf(atFirst)).toEqual([1_000_001]);
    for (const page of Object.values(pages)) {
      const again = page(0);
      expect(again).not.toBeInstanceOf(Promise);
      expect(await birthsOf(again)).toEqual([1_000_001]);
      const behind = page(1_012_000);
      expect(behind).toBeInstanceOf(Promise);
      expect(await birthsOf(behind)).toEqual([]);
    }
    // A single birth is looked up directly. Clients name items by their birth, even long after these have left.
    for (const [birth, births] of [
      [500, []],
      [1_000_003, [1_000_003]],
      [1_500_000, []],
    ] as const) {
      const one = store.allItems(7, birth - 1, 1, birth);
      expect(one).not.toBeInstanceOf(Promise);
      expect(await birthsOf(one)).toEqual(births);
    }
    expect(store.dueOtherwise(7, 1_000_001, 2_000_010)).toBeInstanceOf(Promise);
    expect(store.dueOtherwise(2, 0, 2_000_010)).not.toBeInstanceOf(Promise);
  });

  it.each([
    { what: 'all of it', scan: { where: { minTs: 2 } }, births: [] },
    { what: 'one of its ids', scan: { where: { ids: ['401000001'] } }, births: [401_000_001] },
  ])(
    'a large container is searched in few steps even if its births lie far apart, as in a log whose positions are bytes: $what',
    async ({ scan, births }) => {
      const [container, apart] = [7, 20_000];
      const store = await filled([
        { container: 2, partitionKey: '["a"]', from: 3, items: 10, apart },
        { container, partitionKey: '["a"]', from: 1_000_001, items: 21_000, apart },
      ]);
      const turns = vi.spyOn(globalThis, 'setImmediate');
      const found = await store.scanItems(container, { afterBirth: 0, limit: 10, marks: NONE, ...scan });
      expect(found.map(({ birth }) => birth)).toEqual(births);
      expect(turns.mock.calls.length).toBeLessThan(10);
      turns.mockRestore();
    },
  );

  it('a page of a store with few items is found at once, however far apart they lie', async () => {
    const store = await filled([{ container: 2, partitionKey: '["a"]', from: 3, items: 100, apart: 50_000_000 }]);
    for (const part of [{}, { partitionKey: '["a"]' }]) {
      const page = store.scanItems(2, { ...part, afterBirth: 0, limit: 10, marks: NONE });
      expect(page).not.toBeInstanceOf(Promise);
      expect(await page).toHaveLength(10);
    }
  });

  it('a page of a large partition key is found in order of birth, also where births lie far apart', async () => {
    const partitionKey = '["a"]';
    const part = { container: 2, partitionKey };
    const store = await filled([{ ...part, from: 3, items: 20_000, apart: 20_000 }]);
    const page = await store.scanItems(2, { partitionKey, afterBirth: 100_000_000, limit: 10, marks: NONE });
    expect(page.map(({ birth }) => birth)).toEqual(
      Array.from({ length: 10 }, (_, index) => 100_000_003 + index * 20_000),
    );
    // A page in order of id needs a sort of all items.
    expect(store.scanItems(2, { partitionKey, afterBirth: 100_000_000, limit: 10, marks: NONE })).toBeInstanceOf(
      Promise,
    );
  });

  it('ended lives behind many that left with their partition key are searched for in turns with other work', async () => {
    const AT_MS = 5_000;
    const [left, own] = [
      { container: 2, partitionKey: '["left"]' },
      { container: 2, partitionKey: '["own"]' },
    ];
    const store = await filled([
      { ...own, from: 3, items: 2 },
      { ...left, from: 10, items: 12_000 },
      { ...own, from: 20_000, items: 2 },
    ]);
    const ended = (position: number, endedAtMs: number): ReadModelChange => {
      const life = { ...own, id: `${position}`, life: 0, position, cause: 'deleted' } as const;
      const none = { purgedAtMs: null, actor: null, rule: null, ttl: null, policyVersion: null };
      return {
        kind: 'item-ended',
        row: { ...life, stream: `item-r.${position}.0`, endedAtMs, byPolicyStart: false },
        disappearance: { ...life, ...none, atMs: endedAtMs, recordedAtMs: endedAtMs },
      };
    };
    const find = (limit: number, after?: { endedAtMs: number; position: number }, endedAtOrBeforeMs = AT_MS + 1) =>
      store.endedLives(2, { byPolicyStart: false, endedAtOrBeforeMs, after, limit });
    const positionsOf = async (rows: MaybePromise<readonly EndedRow[]>) => (await rows).map(({ position }) => position);
    const deletion = { ...left, atMs: AT_MS, actor: 'key:primary', marks: NONE };
    // given: two lives ended before all the others, one at the same instant as these but behind them, and one after
    const others = [ended(3, AT_MS - 1), ended(4, AT_MS), ended(20_000, AT_MS), ended(20_001, AT_MS + 1)];
    await store.apply([...others, { kind: 'partition-key-deleted', ...deletion }], 30_000);
    // then: the first ones are found at once
    const first = find(2);
    expect(first).not.toBeInstanceOf(Promise);
    expect(await positionsOf(first)).toEqual([3, 4]);
    // and those behind are found in turns
    for (const [limit, after, positions] of [
      [9, undefined, [3, 4, 20_000, 20_001]],
      [1, { endedAtMs: AT_MS, position: 4 }, [20_000]],
      [9, { endedAtMs: AT_MS, position: 2_000 }, [20_000, 20_001]],
      // The position is at the end of a piece of the search.
      [9, { endedAtMs: AT_MS, position: 7_010 }, [20_000, 20_001]],
    ] as const) {
      const found = find(limit, after);
      expect(found).toBeInstanceOf(Promise);
      expect(await positionsOf(found)).toEqual(positions);
    }
    expect(await positionsOf(find(9, undefined, AT_MS))).toEqual([3, 4, 20_000]);
    expect(await positionsOf(find(9, { endedAtMs: AT_MS, position: 20_000 }))).toEqual([20_001]);
    expect(
      await store.endedLives(2, { byPolicyStart: true, endedAtOrBeforeMs: AT_MS, after: undefined, limit: 9 }),
    ).toEqual([]);
  });

  it(
    'a page of a partition key does not take longer if the partition key has many items',
    { timeout: 60_000 },
    async () => {
      const [many, few] = ['["many"]', '["few"]'] as const;
      const store = await filled([
        { container: 2, partitionKey: few, from: 3, items: 300 },
        { container: 2, partitionKey: many, from: 1_000, items: 60_000 },
      ]);
      const times: Record<string, number[]> = { [few]: [], [many]: [] };
      // Alternately, so that other load on the machine affects both.
      for (let round = 0; round < 31; round++) {
        for (const partitionKey of [few, many]) {
          const startedMs = performance.now();
          const rows = await store.scanItems(2, { partitionKey, afterBirth: 0, limit: 100, marks: NONE });
          times[partitionKey]!.push(performance.now() - startedMs);
          expect(rows.length).toBe(100);
        }
      }
      const median = (numbers: readonly number[]) => numbers.toSorted((left, right) => left - right)[15]!;
      expect(median(times[many]!)).toBeLessThan(median(times[few]!) * 5);
    },
  );
});

describe('while a store is running', () => {
  it.each(['threads', 'inline'] as const)(
    'a scan by values in clear completes although other read models are put to use meanwhile (%s)',
    async (writers) => {
      const { readModels } = await folder.open({ writers });
      const clear = Array.from({ length: 12 }, (_, path) => [{ path, from: 'a', to: 'b' }]);
      const marks = { defaultMs: 0, itemMs: 0 };
      // The swap comes at each of the scan's steps.
      for (let steps = 0; steps < 20; steps++) {
        const { version } = await readModels.createNext();
        const scan = readModels.current.store.scanItems(1, { afterBirth: 0, limit: 10, marks, clear });
        for (let step = 0; step < steps; step++) await Promise.resolve();
        const swapped = readModels.swapTo(version);
        expect(await scan).toEqual([]);
        await swapped;
      }
    },
  );

  it('nothing more is written to a folder that was moved, because its path may belong to another folder by then', async () => {
    const { highWaterMark, readModels } = await folder.open({ clock: 'system' });
    highWaterMark.save(1_700_000_000_000);
    const { version } = await readModels.createNext();
    const moved = `${folder.path}-moved`;
    renameSync(folder.path, moved);
    symlinkSync(folder.path, folder.path);
    expect(() => highWaterMark.save(1_700_000_001_000)).toThrow(/can't be read/);
    rmSync(folder.path);
    const another = await folder.open({ clock: 'system' });
    another.highWaterMark.save(1_600_000_000_000);
    const files = () => readdirSync(folder.path).toSorted();
    const before = [files(), readFileSync(folder.file('epitaph.json'), 'utf8')];

    expect(() => highWaterMark.save(1_700_000_001_000)).toThrow(StorageFault);
    expect(() => highWaterMark.save(1_700_000_001_000)).toThrow(/moved, removed or replaced/);
    await expect(highWaterMark.saveSoon!(1_700_000_001_000)).rejects.toThrow(/moved, removed or replaced/);
    await expect(readModels.swapTo(version)).rejects.toThrow(StorageFault);
    await expect(readModels.createNext()).rejects.toThrow(StorageFault);
    await expect(readModels.discard(version)).rejects.toThrow(StorageFault);
    expect(readFileSync(folder.file('clock'), 'utf8')).toBe('1600000000000');
    expect([files(), readFileSync(folder.file('epitaph.json'), 'utf8')]).toEqual(before);

    await folder.close();
    rmSync(folder.path, { recursive: true });
    renameSync(moved, folder.path);
    highWaterMark.save(1_700_000_002_000);
    expect(readFileSync(folder.file('clock'), 'utf8')).toBe('1700000002000');
  });

  it('a clock mark that is saved in the background is written at once, so it does not overwrite a later one', async () => {
    const { highWaterMark } = await folder.open({ clock: 'system' });
    highWaterMark.save(1_700_000_000_000);
    const soon = highWaterMark.saveSoon!(1_700_000_001_000);
    expect(readFileSync(folder.file('clock'), 'utf8')).toBe('1700000001000');
    highWaterMark.save(1_700_000_002_000);
    await soon;
    expect(readFileSync(folder.file('clock'), 'utf8')).toBe('1700000002000');
    await Promise.all([1_700_000_003_000, 1_700_000_004_000].map((markMs) => highWaterMark.saveSoon!(markMs)));
    expect(readFileSync(folder.file('clock'), 'utf8')).toBe('1700000004000');
  });

  it('no key is recorded as destroyed while its purge ledger is missing', async () => {
    const { keyId } = await filledAndClosed();
    const stream = 'item-rid.life.0';
    const open = await folder.open();
    copyFileSync(folder.file('purge-ledger.ndjson'), folder.file('copy'));
    rmSync(folder.file('purge-ledger.ndjson'));
    const request = { keyId, stream, lastWriteTs: 0, lastEventAtMs: 0, nowMs: 1_700_000_000_000 };
    const taken = /purge-ledger.ndjson.*moved, removed or replaced/;
    await expect(open.vault.destroyKeys([request])).rejects.toThrow(taken);
    await expect(open.backupSource.record(0, { id: 'b1', vaultLapsesAtMs: 1 })).rejects.toThrow(taken);
    copyFileSync(folder.file('copy'), folder.file('purge-ledger.ndjson'));
    await folder.close();
    expect(await (await folder.open()).vault.destroyKeys([request])).toEqual([{ kind: 'already-destroyed' }]);
    expect(readFileSync(folder.file('purge-ledger.ndjson'), 'utf8')).toContain(stream);
  });

  it('the purge ledger lists the destroyed keys and no others, with the time of the last', async () => {
    const { vault } = await folder.open();
    const requests = ['a', 'b', 'c'].map((life, index) => {
      const stream = `item-rid.${life}.0`;
      const { keyId } = vault.createKey(stream).key;
      return { keyId, stream, lastWriteTs: 0, lastEventAtMs: 0, nowMs: 3_000 - index };
    });
    const lines = () => readFileSync(folder.file('purge-ledger.ndjson'), 'utf8').trimEnd().split('\n').slice(1);
    const [a, b, c] = requests as [DestroyRequest, DestroyRequest, DestroyRequest];
    const scope = { kind: 'lives', streams: [a.stream] } as const;
    await vault.placeHold({ holdId: 'h', containerRid: 'rid', scope, placedAtMs: 0 });
    await vault.destroyKeys([a]);
    expect(lines()).toEqual([]);
    await vault.destroyKeys(requests);
    const destroyed = [b, c].map(({ keyId, stream }) => [keyId, stream]);
    expect(lines().map((line) => JSON.parse(line) as unknown)).toMatchObject([{ atMs: 2_999, keys: destroyed }]);
  });

  it('no file has the bytes of a destroyed key, not even after a crash before the journal was emptied, once the folder is opened again', async () => {
    let crash = false;
    const onStep = (step: string): void => {
      if (crash && step === 'vault checkpoint: before') throw new PlacedCrash(step);
    };
    const storage = await folder.open({ onStep });
    const streams = ['item-rid.a.0', 'item-rid.b.0'];
    const keyIds = await Promise.all(streams.map(async (stream) => (await writeLife(storage, stream)).keyId));
    const reader = new DatabaseSync(folder.file('vault.db'), { readOnly: true });
    const wrapped = keyIds.map(
      (keyId) =>
        (reader.prepare('SELECT wrapped FROM keys WHERE id = ?').get(keyId) as { wrapped: Uint8Array }).wrapped,
    );
    reader.close();
    const filesWith = (bytes: Uint8Array, of = folder) =>
      readdirSync(of.path).filter((name) => readFileSync(of.file(name)).includes(Buffer.from(bytes)));
    const destroy = (index: number) => {
      const request = { keyId: keyIds[index]!, stream: streams[index]!, lastWriteTs: 0, lastEventAtMs: 0, nowMs: 1 };
      return storage.vault.destroyKeys([request]);
    };
    expect(wrapped.map((bytes) => filesWith(bytes))).toEqual([['vault.db-wal'], ['vault.db-wal']]);
    await destroy(0);
    expect(filesWith(wrapped[0]!)).toEqual([]);
    await storage.vault.createKey('item-rid.c.0').stored;
    crash = true;
    await expect(destroy(1)).rejects.toThrow(PlacedCrash);
    const crashed = new TestFolder();
    try {
      cpSync(folder.path, crashed.path, { recursive: true });
      await crashed.open();
      expect(filesWith(wrapped[1]!, crashed)).toEqual([]);
    } finally {
      await crashed.dispose();
    }
  });
});
