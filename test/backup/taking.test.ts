import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { DEFINITION } from '../support/definition.ts';
import { Disk } from '../support/disk.ts';
import { CALLER, epitaph, ledgerLines, Place, write } from './setup.ts';

let place: Place;
let store: Store;
let below: string;
beforeEach(async () => {
  place = new Place();
  below = place.file('backups');
  mkdirSync(below);
  store = await place.open({ backupsInto: { below } });
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
  // More pages than are copied at a time.
  for (let index = 0; index < 60; index++) await write(store, 'c', `item-${index}`, { text: 'x'.repeat(50_000) });
});
afterEach(() => place.dispose());

const take = (folder: string) => store.backup(CALLER, { folder, vaultKeptSeconds: 60 });

describe('a backup', () => {
  it('goes only below the backup folder, whatever its name or links, and overwrites nothing', async () => {
    for (const folder of ['../out', '/tmp/out', 'a/../../out', '.hidden', 'a//b', '']) {
      await expect(take(folder), folder).rejects.toMatchObject({ code: 'bad-request' });
    }
    symlinkSync(place.path, join(below, 'link'));
    for (const folder of ['link/out', 'link']) {
      await expect(take(folder)).rejects.toMatchObject({ code: 'bad-request' });
    }
    expect(existsSync(join(place.path, 'vault'))).toBe(false);
    await take('first');
    for (const folder of ['first/log', 'first/log/a/b', 'first/vault/a']) {
      await expect(take(folder)).rejects.toMatchObject({
        code: 'already-exists',
        message: expect.stringContaining('a part of another backup'),
      });
    }
    expect(readdirSync(join(below, 'first', 'log'))).not.toContain('a');
    await expect(take('first')).rejects.toMatchObject({
      code: 'already-exists',
      message: expect.stringContaining('not empty'),
    });
    expect(existsSync(join(below, 'first', 'vault', 'backup.json'))).toBe(true);
  });

  it('is not a store, and a start on one of its parts leaves nothing in it', async () => {
    await take('b');
    for (const [part, why] of [
      ['log', /is the log part of a backup, not a store\. Restore it/],
      ['vault', /There is no store in/],
    ] as const) {
      const folder = join(below, 'b', part);
      const names = readdirSync(folder);
      await expect(openEmbeddedStore({ folder, clock: 'manual' })).rejects.toThrow(why);
      expect(readdirSync(folder)).toEqual(names);
    }
  });

  it('has the log of one moment, and tells its position, however much is written meanwhile', async () => {
    for (let index = 0; index < 20; index++) await write(store, 'c', `large-${index}`, { text: 'x'.repeat(1_000_000) });
    const writes: Promise<void>[] = [];
    const onProgress = ({ phase }: { phase: string }) => {
      if (phase === 'log') writes.push(write(store, 'c', `during-${writes.length}`));
    };
    const taken = await store.backup(CALLER, { folder: 'b', vaultKeptSeconds: 60 }, { onProgress });
    await Promise.all(writes);
    expect(writes.length).toBeGreaterThan(1);
    expect(taken.logPosition).toBeLessThan(store.headPosition());
    const log = new DatabaseSync(join(below, 'b', 'log', 'log.db'), { readOnly: true });
    expect(log.prepare('SELECT max(position) AS head FROM events').get()).toEqual({ head: taken.logPosition });
    log.close();
  });

  it('that is cancelled leaves nothing behind, and the next one works', async () => {
    const cancel = new AbortController();
    const taking = store.backup(
      CALLER,
      { folder: 'b', vaultKeptSeconds: 60 },
      { signal: cancel.signal, onProgress: () => cancel.abort() },
    );
    await expect(taking).rejects.toMatchObject({
      code: 'backup-failed',
      message: expect.stringContaining('cancelled'),
    });
    expect(readdirSync(below)).toEqual([]);
    await take('b');
  });

  it('that is cancelled while keys are copied still counts as a copy of the keys, because they were on a disk', async () => {
    const cancel = new AbortController();
    const onProgress = ({ phase }: { phase: string }) => {
      if (phase === 'digest' && store.backups().length > 0) cancel.abort();
    };
    const taking = store.backup(CALLER, { folder: 'b', vaultKeptSeconds: 60 }, { signal: cancel.signal, onProgress });
    await expect(taking).rejects.toMatchObject({ code: 'backup-failed' });
    expect(store.backups()).toMatchObject([{ state: 'cancelled', vaultLapsesAtMs: store.nowMs() + 60_000 }]);
  });

  it('on a full disk reports that, removes what it began, and the store goes on', async (context) => {
    const disk = new Disk(join(below, 'disk'));
    mkdirSync(disk.path);
    disk.mountOrSkip(context, 1);
    try {
      await expect(take('disk/b')).rejects.toMatchObject({
        code: 'backup-failed',
        message: expect.stringContaining('no space left'),
      });
      expect(readdirSync(disk.path)).toEqual([]);
      await write(store, 'c', 'after');
      expect((await store.fsck()).problems).toEqual([]);
    } finally {
      disk.unmount();
    }
  });

  it('without its disk, or without a backup folder, is refused', async () => {
    rmSync(below, { recursive: true });
    await expect(take('b')).rejects.toMatchObject({ code: 'backup-failed' });
    await place.close();
    store = await place.open({ backupsInto: undefined });
    await expect(take('b')).rejects.toMatchObject({ code: 'not-supported' });
  });

  it('removes lapsed copies of keys where they still are, and nothing else', async () => {
    await take('old');
    await store.advanceClock(60_000);
    await take('new');
    expect(readdirSync(join(below, 'old'))).toEqual(['log']);
    expect(readdirSync(join(below, 'new')).toSorted()).toEqual(['log', 'vault']);
  });

  it('removes such copies also of a backup with folders in its name, and follows no link', async () => {
    for (const name of ['2026/11/old', '2026/11/cut', '2026/12/linked']) await take(name);
    rmSync(join(below, '2026/11/cut/vault/backup.json'));
    renameSync(join(below, '2026/12'), place.file('elsewhere'));
    symlinkSync(place.file('elsewhere'), join(below, '2026/12'));
    await store.advanceClock(60_000);
    await take('2026/11/new');
    const parts = ['old', 'cut', 'new'].map((name) => readdirSync(join(below, '2026/11', name)).toSorted());
    expect(parts).toEqual([['log'], ['log'], ['log', 'vault']]);
    expect(readdirSync(join(place.file('elsewhere'), 'linked')).toSorted()).toEqual(['log', 'vault']);
  });

  it('removes the keys of an interrupted backup, which has no date, and not those of another store', async () => {
    for (const name of ['cut', 'foreign']) {
      await take(name);
      rmSync(join(below, name, 'vault', 'backup.json'));
    }
    const manifest = join(below, 'foreign', 'log', 'backup.json');
    // The first format has no digest of itself.
    const { sha256: _, ...found } = JSON.parse(readFileSync(manifest, 'utf8')) as { readonly sha256: string };
    writeFileSync(manifest, JSON.stringify({ ...found, format: 1, store: 'another' }));
    await take('new');
    const parts = ['cut', 'foreign', 'new'].map((name) => readdirSync(join(below, name)).toSorted());
    expect(parts).toEqual([['log'], ['log', 'vault'], ['log', 'vault']]);
  });

  it('does not mistake a data folder for keys left by a crash, wherever it is and whatever its name', async () => {
    await place.close();
    renameSync(place.file('data'), place.file('aside'));
    mkdirSync(join(below, 'here'));
    renameSync(place.file('aside'), join(below, 'here', 'vault'));
    symlinkSync(join(below, 'here', 'vault'), place.file('data'));
    store = await place.open({ backupsInto: { below } });
    await take('new');
    expect(readdirSync(join(below, 'here', 'vault'))).toEqual(expect.arrayContaining(['log.db', 'master.key']));
    expect(store.container('db', 'c').name).toBe('c');
  });

  it('removes the keys of a cancelled backup even if a crash has interrupted the cancellation', async () => {
    const cut = new Place();
    let wreck: string | undefined;
    const onStep = (step: string) => {
      if (step === 'backup vault: copied') throw new Error('given up');
      if (!/^backup (?:log|vault): discarded$/.test(step) || wreck !== undefined) return;
      wreck = join(below, 'wreck');
      cpSync(join(below, 'given-up'), wreck, { recursive: true });
    };
    const given = await cut.open({ backupsInto: { below }, onStep });
    await given.createDatabase(CALLER, 'db');
    await expect(given.backup(CALLER, { folder: 'given-up', vaultKeptSeconds: 60 })).rejects.toThrow('given up');
    await cut.close();
    const again = await cut.open({ backupsInto: { below } });
    await again.backup(CALLER, { folder: 'new', vaultKeptSeconds: 60 });
    expect(existsSync(join(wreck!, 'vault'))).toBe(false);
    await cut.dispose();
  });

  it('can be taken of a stopped store by the command line, in files for their owner only, and is entered in the ledger', async () => {
    await place.close();
    const { code, out } = await epitaph(['backup', place.file('offline'), '--data', place.file('data')]);
    expect([code, out]).toEqual([0, expect.stringContaining('store it apart')]);
    expect(ledgerLines(place.file('data', 'purge-ledger.ndjson')).at(-1)).toHaveProperty('backup');
    for (const part of ['log', 'vault']) {
      for (const name of readdirSync(place.file('offline', part))) {
        expect([name, statSync(place.file('offline', part, name)).mode & 0o077]).toEqual([name, 0]);
      }
    }
  });

  it('can’t be restored with a ledger that is damaged in the middle, which fsck reports while there are copies of it', async () => {
    for (let index = 0; index < 5; index++) {
      await store.deleteItem(CALLER, store.container('db', 'c'), `item-${index}`, '["p"]');
      await store.runPurge();
    }
    expect((await store.fsck()).problems).toEqual([]);
    await place.close();
    const file = place.file('data', 'purge-ledger.ndjson');
    const whole = readFileSync(file, 'utf8');
    const lines = whole.split('\n');
    const changed = (line: number, text: string) => lines.map((old, at) => (at === line ? text : old)).join('\n');
    for (const damaged of [changed(2, lines[2]!.replace('item-', 'itex-')), changed(3, lines[2]!), changed(2, '')]) {
      writeFileSync(file, damaged.padEnd(whole.length));
      store = await place.open();
      const { problems } = await store.fsck();
      expect(problems).toMatchObject([{ code: 'ledger-damaged', message: expect.stringContaining('does not follow') }]);
      await place.close();
    }
    writeFileSync(file, whole);
    store = await place.open();
    expect((await store.fsck()).ok).toBe(true);
    // While the ledger is open, the store knows its end.
    const last = lines.length - 2;
    for (const [damaged, says] of [
      [changed(last, lines[last]!.replace('item-', 'itex-')), 'is not what was written'],
      [lines.slice(0, last).join('\n') + '\n', 'ends before its line'],
    ] as const) {
      writeFileSync(file, damaged);
      const problems = [{ code: 'ledger-damaged', message: expect.stringContaining(says) as unknown }];
      expect(await store.fsck()).toMatchObject({ ok: false, problems });
    }
    writeFileSync(file, whole);
    expect((await store.fsck()).ok).toBe(true);
  });
});
