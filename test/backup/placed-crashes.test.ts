import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { restoreStore } from '@epitaph/api/cli/restore-store.ts';
import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { FolderInUse, lockFolder } from '@epitaph/storage/sqlite/data-folder.ts';
import { foundIn } from '../secrecy/search.ts';
import { DEFINITION } from '../support/definition.ts';
import { Wreckage } from '../support/wreckage.ts';
import { CALLER, isZero, Place, readable, wrappedKeys, write } from './setup.ts';

const KEPT_SECONDS = 30 * 86_400;
const place = new Place();
const data = place.file('data');
const backup = place.file('backup');
const ledger = place.file('data', 'purge-ledger.ndjson');

/** Copies folders as they are at this instant. What a process has of them in memory, and its locks, is lost. */
function wrecked(wreckage: Wreckage, name: string, folders: readonly string[]): (step: string) => void {
  let copies = 0;
  return (step) => {
    const path = place.file(`${name}-${copies++}`);
    mkdirSync(path);
    const filter = (file: string) => basename(file) !== 'lock' && !file.endsWith('-shm');
    for (const folder of folders) {
      if (existsSync(folder)) cpSync(folder, join(path, basename(folder)), { recursive: true, filter });
    }
    wreckage.keep(step, path, undefined);
  };
}

afterAll(() => place.dispose());

describe('a crash while a backup is taken', () => {
  const wreckage = new Wreckage();

  beforeAll(async () => {
    const onStep = wrecked(wreckage, 'taking', [data, backup]);
    let isTaking = false;
    const store = await place.open({ writers: 'inline', onStep: (step) => isTaking && onStep(step) });
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    for (const id of ['stays', 'deleted', 'early']) await write(store, 'c', id);
    await write(store, 'c', 'expires', { ttl: 100 });
    await store.deleteItem(CALLER, store.container('db', 'c'), 'early', '["p"]');
    await store.runPurge();
    isTaking = true;
    await store.backup(CALLER, { folder: backup, vaultKeptSeconds: KEPT_SECONDS });
    isTaking = false;
    onStep('taken');
    await place.close();
  }, 60_000);

  it('at any step leaves a store that goes on, and that knows of every copy of its keys that was begun', async () => {
    expect(new Set(wreckage.steps)).toEqual(
      new Set([
        ...['log', 'vault'].flatMap((part) =>
          ['made', 'copied', 'described', 'whole'].map((done) => `backup ${part}: ${done}`),
        ),
        // The vault's transaction moves the spare keys to rows of the file that is copied.
        ...['log', 'vault', 'read model'].flatMap((name) => [
          `${name}: before`,
          `${name}: before commit`,
          `${name}: after commit`,
        ]),
        'purge ledger: after',
        'taken',
      ]),
    );
    await wreckage.each(async ({ steps, path }) => {
      for (const part of ['log', 'vault'].filter((name) => steps.includes(`backup ${name}: described`))) {
        expect(existsSync(join(path, 'backup', part, 'backup.json'))).toBe(false);
      }
      const store = await place.open({ folder: join(path, 'data'), writers: 'inline' });
      const copied = existsSync(join(path, 'backup', 'vault', 'vault.db'));
      const known = store.backups().map(({ vaultLapsesAtMs }) => vaultLapsesAtMs);
      if (copied) expect(known).toEqual([store.nowMs() + KEPT_SECONDS * 1000]);
      const container = store.container('db', 'c');
      await store.deleteItem(CALLER, container, 'deleted', '["p"]');
      await store.runPurge();
      const { statement } = await store.certificate(container, 'deleted', '["p"]');
      expect(statement.recoverableUntilMs).toBe(known[0] ?? null);
      const again = { folder: join(path, 'again'), vaultKeptSeconds: 60 };
      await store.backup(CALLER, again);
      expect((await store.fsck()).problems).toEqual([]);
      expect((await store.verifyLog()).problems).toEqual([]);
      const ledgerHead = await store.purgeLedgerHead();
      await place.close();

      // The interrupted backup is either refused or complete.
      const restoring = restored(path, join(path, 'backup'), ledgerHead, join(path, 'data', 'purge-ledger.ndjson'));
      const isWhole = ['log', 'vault'].every((part) => existsSync(join(path, 'backup', part, 'backup.json')));
      if (isWhole) expect((await restoring).report.problems).toEqual([]);
      else await expect(restoring).rejects.toThrow('An interrupted backup has none.');
    });
  }, 120_000);
});

function restored(
  path: string,
  from: string,
  ledgerHead: LedgerHead,
  ledgerFile: string,
  onStep?: (step: string) => void,
) {
  return restoreStore({
    log: join(from, 'log'),
    vault: join(from, 'vault'),
    ledger: ledgerFile,
    ledgerHead,
    to: join(path, 'restored'),
    masterKey: readFileSync(join(data, 'master.key'), 'utf8').trim(),
    keepMasterKey: true,
    nowMs: 0,
    allowLapsed: false,
    writers: 'inline',
    ...(onStep === undefined ? {} : { onStep }),
  });
}

describe('a crash while a backup is restored', () => {
  const wreckage = new Wreckage();
  const target = place.file('target');
  let head: LedgerHead;
  let erased: Buffer[];

  beforeAll(async () => {
    const before = wrappedKeys(join(backup, 'vault'));
    const store = await place.open({ writers: 'inline' });
    const container = store.container('db', 'c');
    await store.deleteItem(CALLER, container, 'deleted', '["p"]');
    await store.advanceClock(200_000);
    await store.runPurge();
    head = await store.purgeLedgerHead();
    await place.close();
    const now = wrappedKeys(data);
    erased = [...before].filter(([id, wrapped]) => !isZero(wrapped) && isZero(now.get(id)!)).map(([, key]) => key);
    expect(erased).toHaveLength(2);
    mkdirSync(target);
    const folders = [join(target, 'restored'), join(target, 'restored.restoring')];
    await restored(target, backup, head, ledger, wrecked(wreckage, 'restoring', folders));
  }, 60_000);

  /** Checks the purpose of a restore. */
  async function isRight(path: string): Promise<void> {
    expect(readdirSync(path)).toEqual(['restored']);
    expect(foundIn(join(path, 'restored'), erased).size).toBe(0);
    const store = await place.open({ folder: join(path, 'restored'), writers: 'inline' });
    expect(await readable(store, 'c', 'stays')).toBe(true);
    for (const id of ['deleted', 'early', 'expires']) expect(await readable(store, 'c', id), id).toBe(false);
    expect((await store.fsck()).problems).toEqual([]);
    expect((await store.verifyLog()).problems).toEqual([]);
    await place.close();
  }

  it.each([
    ['restore keys: before commit', 'There is no space left, or the disk fails, under'],
    ['log: before commit', 'The restore failed'],
  ])(
    'a fault of its storage is reported in full, without advice that only a running store can use: %s',
    async (at, words) => {
      const path = place.file('faulty');
      mkdirSync(path);
      const failing = restored(path, backup, head, ledger, (step) => {
        if (step === at) throw Object.assign(new Error('EIO: i/o error, write'), { errcode: 10 });
      });
      const where = at.startsWith('restore') ? ` ${path}` : '';
      await expect(failing).rejects.toMatchObject({
        name: 'UnusableFile',
        message: `${words}${where}: EIO: i/o error, write. The unfinished store was removed.`,
      });
      expect(readdirSync(path)).toEqual([]);
      rmSync(path, { recursive: true });
    },
  );

  it('was placed at every step: of the copies, the keys, the record of what was erased, and the swap', () => {
    expect(new Set(wreckage.steps)).toEqual(
      new Set([
        'restore folder: made',
        'restore folder: marked',
        'restore copy: after',
        'restore master key: after',
        'restore clock: after',
        'restore keys: before commit',
        'restore keys: after commit',
        'restore keys: after',
        ...['vault', 'log', 'read model'].flatMap((name) => [
          `${name}: before`,
          `${name}: before commit`,
          `${name}: after commit`,
        ]),
        'vault checkpoint: before',
        'vault checkpoint: after',
        'purge ledger: after',
        'restore place: cleared',
        'restore place: taken',
        'restore mark: removed',
      ]),
    );
  });

  it('at any step leaves nothing that a store opens before the restore is complete, and the same command completes it', async () => {
    await wreckage.each(async ({ steps, path }) => {
      if (steps.includes('restore mark: removed')) {
        await expect(restored(path, backup, head, ledger)).rejects.toThrow('is not empty');
        return isRight(path);
      }
      for (const name of readdirSync(path)) {
        if (!existsSync(join(path, name, 'epitaph.json'))) continue;
        await expect(place.open({ folder: join(path, name), writers: 'inline' })).rejects.toThrow(
          'Run the same epitaph restore command',
        );
      }
      await restored(path, backup, head, ledger);
      await isRight(path);
    });
  }, 240_000);

  it('is told from a restore that is still running, and from a folder that somebody else has put there', async () => {
    const path = place.file('another');
    mkdirSync(path);
    mkdirSync(join(path, 'restored.restoring'));
    const unlock = lockFolder(join(path, 'restored.restoring'));
    await expect(restored(path, backup, head, ledger)).rejects.toThrow('Another restore is making');
    unlock();
    // A restore that was killed while it marked its folder.
    writeFileSync(join(path, 'restored.restoring', 'epitaph.json.new'), '{"form');
    await restored(path, backup, head, ledger);
    await isRight(path);
    rmSync(join(path, 'restored'), { recursive: true });
    // A running restore locks its folder.
    const restoring = join(path, 'restored.restoring');
    const kept: string[] = [];
    await restored(path, backup, head, ledger, (step) => {
      if (!/^restore (?:folder|copy|keys):/.test(step)) return;
      expect(() => lockFolder(restoring), step).toThrow(FolderInUse);
      kept.push(step);
    });
    expect(kept).toEqual(expect.arrayContaining(['restore folder: marked', 'restore keys: after']));
    rmSync(join(path, 'restored'), { recursive: true });
    cpSync(data, join(path, 'restored.restoring'), { recursive: true });
    await expect(restored(path, backup, head, ledger)).rejects.toThrow('was not left by a restore');
    expect(existsSync(join(path, 'restored.restoring', 'log.db'))).toBe(true);
    rmSync(join(path, 'restored.restoring'), { recursive: true });
    // Another restore or store has taken the folder since the first look.
    const meanwhile = (step: string) =>
      step === 'restore keys: after' && cpSync(data, join(path, 'restored'), { recursive: true });
    await expect(restored(path, backup, head, ledger, meanwhile)).rejects.toThrow('is not empty');
    expect(readdirSync(path)).toEqual(['restored']);
    expect(wrappedKeys(join(path, 'restored'))).toEqual(wrappedKeys(data));
  });
});
