import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { hash } from 'node:crypto';
import { basename, dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { run } from '@epitaph/api/cli/main.ts';
import type { TakenBackup } from '@epitaph/api/store/api/operations-api.ts';
import type { HoldRequest } from '@epitaph/api/store/api/retention-api.ts';
import { isoTime } from '@epitaph/core/clock.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { foundIn } from '../secrecy/search.ts';
import { DEFINITION } from '../support/definition.ts';
import { Disk } from '../support/disk.ts';
import {
  CALLER,
  epitaph,
  isZero,
  itemOf,
  ledgerLines,
  Place,
  readable,
  START_MS,
  wrappedKeys,
  write,
} from './setup.ts';

const DAY_MS = 86_400_000;
const place = new Place();
const backup = place.file('backups', 'first');
const ledger = place.file('apart', 'purge-ledger.ndjson');
const masterKey = place.file('escrow.key');
let taken: TakenBackup;
let head: string;
let wrappedThen: Map<number, Buffer>;
let wrappedAtLast: Map<number, Buffer>;

/**
 * A backup, and then everything that can happen after one. Items expire, are deleted by themselves, with their partition key or with their
 * container, or expire by a policy that the backup does not know. Others are written, and the purge erases what has ended.
 */
beforeAll(async () => {
  mkdirSync(dirname(ledger));
  let store = await place.open({ purgeLedger: ledger });
  await store.createDatabase(CALLER, 'db');
  for (const name of ['kept', 'policy', 'partition', 'dropped']) {
    await store.createContainer(CALLER, 'db', name, DEFINITION, -1);
  }
  for (const id of ['stays', 'deleted', 'rewritten', 'early']) await write(store, 'kept', id, { v: 1 });
  await write(store, 'kept', 'expires', { ttl: 100 });
  for (const name of ['policy', 'partition', 'dropped']) await write(store, name, 'one');
  await store.deleteItem(CALLER, store.container('db', 'kept'), 'early', '["p"]');
  await store.runPurge();
  // Writes continue while the log and the keys are copied.
  const writing = (async () => {
    for (let index = 0; index < 50; index++) await write(store, 'kept', `during-${index}`);
  })();
  taken = await store.backup(CALLER, { folder: backup, vaultKeptSeconds: 30 * 86_400 });
  await writing;
  wrappedThen = wrappedKeys(join(backup, 'vault'));

  const kept = store.container('db', 'kept');
  await store.deleteItem(CALLER, kept, 'deleted', '["p"]');
  await write(store, 'kept', 'rewritten', { v: 2 });
  await write(store, 'kept', 'lost', {});
  await store.deleteItem(CALLER, kept, 'lost', '["p"]');
  await store.changeTtl(CALLER, 'db', 'policy', { defaultTtl: 5, confirmed: false });
  await store.deletePartitionKey(CALLER, store.container('db', 'partition'), '["p"]');
  await store.deleteContainer(CALLER, 'db', 'dropped');
  await store.advanceClock(200_000);
  await store.runPurge();
  head = formatLedgerHead(await store.purgeLedgerHead());
  await place.close();
  wrappedAtLast = wrappedKeys(place.file('data'));
  expect((await epitaph(['keys', 'export-master', masterKey, '--data', place.file('data')])).code).toBe(0);
  rmSync(place.file('data'), { recursive: true });
  store = undefined as never;
}, 60_000);

afterAll(() => place.dispose());

const restoreArguments = (change: Readonly<Record<string, string | undefined>> = {}): string[] => {
  const flags = {
    log: join(backup, 'log'),
    vault: join(backup, 'vault'),
    ledger,
    'ledger-head': head,
    'master-key-file': masterKey,
    to: place.file('restored'),
    ...change,
  };
  return [
    'restore',
    '--resume-purge',
    ...Object.entries(flags).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, value])),
  ];
};

/** A copy of one part of the backup, which a test may damage. */
function spoilt(part: 'log' | 'vault', spoil: (folder: string) => void): string {
  const to = place.file(`spoilt-${crypto.randomUUID()}`);
  mkdirSync(to);
  for (const name of readdirSync(join(backup, part))) copyFileSync(join(backup, part, name), join(to, name));
  spoil(to);
  return to;
}

/** Writes the manifest in the first format, which has no digest of itself, so that it can be changed. */
function changeManifest(folder: string, change: Readonly<Record<string, unknown>>): void {
  const file = join(folder, 'backup.json');
  const { sha256: _, ...manifest } = JSON.parse(readFileSync(file, 'utf8')) as { readonly sha256?: string };
  writeFileSync(file, JSON.stringify({ ...manifest, format: 1, ...change }));
}

function ledgerWith(text: (lines: string[]) => string): string {
  const file = place.file(`ledger-${crypto.randomUUID()}`);
  writeFileSync(file, text(readFileSync(ledger, 'utf8').trimEnd().split('\n')));
  return file;
}

async function refused(change: Readonly<Record<string, string | undefined>>): Promise<string> {
  const { code, out, err } = await epitaph(restoreArguments(change));
  expect(out).toBe('');
  expect(code, err).toBe(2);
  expect(existsSync(place.file('restored'))).toBe(false);
  expect(existsSync(place.file('restored.restoring'))).toBe(false);
  return err;
}

/** Arguments to restore a backup with the ledger and the master key of the data folder that it was taken from. */
const restoring = (from: {
  readonly backup: string;
  readonly data: string;
  readonly last: string;
  readonly to: string;
}) =>
  restoreArguments({
    log: join(from.backup, 'log'),
    vault: join(from.backup, 'vault'),
    ledger: join(from.data, 'purge-ledger.ndjson'),
    'ledger-head': from.last,
    'master-key-file': join(from.data, 'master.key'),
    to: from.to,
  }).concat('--allow-lapsed');

describe('a restore refuses, leaves nothing behind, and says what is missing', () => {
  it.each([
    ['log', '--log is needed'],
    ['vault', '--vault is needed'],
    ['ledger', 'what was erased after the backup would come back'],
    ['ledger-head', '--ledger-head is needed'],
    ['to', '--to is needed'],
    ['master-key-file', 'backups do not contain it'],
  ])('without --%s', async (flag, message) => {
    expect(await refused({ [flag]: undefined })).toContain(message);
  });

  it('when the ledger is not there', async () => {
    expect(await refused({ ledger: place.file('nowhere') })).toContain('There is no purge ledger at');
  });

  it('when the ledger was cut short', async () => {
    const short = ledgerWith((lines) => `${lines.slice(0, -1).join('\n')}\n`);
    expect(await refused({ ledger: short })).toContain('is incomplete');
  });

  it('when the last line of the ledger was only half written', async () => {
    const half = ledgerWith((lines) => lines.join('\n').slice(0, -5));
    expect(await refused({ ledger: half })).toContain('is incomplete');
  });

  it('when a line of the ledger was changed', async () => {
    const changed = ledgerWith(
      (lines) =>
        `${lines.map((line, index) => (index === 1 ? line.replace('"keys":[[', '"keys":[[9') : line)).join('\n')}\n`,
    );
    expect(await refused({ ledger: changed })).toContain('does not follow from the line before');
  });

  it('when the head is of another ledger', async () => {
    const [lines] = head.split(':');
    expect(await refused({ 'ledger-head': `${lines}:${'A'.repeat(43)}` })).toContain('does not contain the given head');
    expect(await refused({ 'ledger-head': 'the last one' })).toContain('nor a ledger head (lines:hash)');
  });

  it('in a single line, whatever characters the manifest or the ledger contains', async () => {
    const words = 'x\u001b[2J\u009b31m\nepitaph: Restored.';
    const log = spoilt('log', (folder) => changeManifest(folder, { part: words }));
    const strange = ledgerWith(([first, ...lines]) => {
      const theirs = { ...(JSON.parse(first!) as object), store: words };
      return `${[JSON.stringify(theirs), ...lines].join('\n')}\n`;
    });
    for (const change of [{ log }, { ledger: strange }]) {
      const said = await refused(change);
      expect(said).toContain('x\\u001b[2J\\u009b31m\\u000aepitaph: Restored.');
      expect(said.replace(/\n$/, '')).not.toMatch(/\p{Cc}/u);
    }
  });

  it('when the ledger is older than the backup, even if its own head matches', async () => {
    const older = ledgerWith((lines) => `${lines[0]}\n`);
    const { out } = await epitaph(['ledger', older]);
    expect(await refused({ ledger: older, 'ledger-head': out.trim() })).toContain('does not continue the ledger');
  });

  it('when the parts are of different stores', async () => {
    const other = spoilt('vault', (folder) => changeManifest(folder, { store: crypto.randomUUID() }));
    expect(await refused({ vault: other })).toContain('different stores');
  });

  it('when the keys are older than the log', async () => {
    const older = spoilt('vault', (folder) => changeManifest(folder, { logPosition: 1 }));
    expect(await refused({ vault: older })).toContain('older than the copy of the log');
  });

  it('when the copy of the keys has lapsed, unless it is allowed', async () => {
    const lapsed = spoilt('vault', (folder) => changeManifest(folder, { lapsesAtMs: 1_000 }));
    expect(await refused({ vault: lapsed })).toContain('lapsed at 1970-01-01T00:00:01.000Z');
    // The time of lapsing is compared with the store's own time. With the manual clock that is not the real time.
    const before = spoilt('vault', (folder) => changeManifest(folder, { lapsesAtMs: START_MS + 200_000 }));
    expect(await refused({ vault: before })).toContain('lapsed at');
    const { code, err } = await epitaph(
      restoreArguments({
        vault: spoilt('vault', (folder) => changeManifest(folder, { lapsesAtMs: START_MS + 3_600_000 })),
        to: place.file('not lapsed'),
      }),
    );
    expect(code, err).toBe(0);
  });

  it('when a part is of a newer version, is not a backup, or was swapped with the other', async () => {
    const newer = spoilt('log', (folder) => changeManifest(folder, { format: 99 }));
    expect(await refused({ log: newer })).toContain('newer Epitaph');
    const bare = spoilt('vault', (folder) => rmSync(join(folder, 'backup.json')));
    expect(await refused({ vault: bare })).toContain('no backup.json');
    expect(await refused({ log: join(backup, 'vault') })).toContain('is the vault part');
  });

  it('on a line of its own on a terminal, below the progress bar', async () => {
    const vault = spoilt('vault', (folder) => appendFileSync(join(folder, 'vault.db'), 'x'));
    let shown = '';
    const stderr = { isTTY: true, write: (text: string) => (shown += text) };
    expect(await run(restoreArguments({ vault }), {}, { print: () => {}, stderr })).toBe(2);
    expect(shown).toMatch(/\[[#.]+\] restore [^\n]*\nepitaph: .*not as it was written.*\n$/);
  });

  it('when a byte has changed, or a file is missing', async () => {
    const damaged = spoilt('log', (folder) => appendFileSync(join(folder, 'log.db'), 'x'));
    expect(await refused({ log: damaged })).toContain('not as it was written');
    const missing = spoilt('vault', (folder) => rmSync(join(folder, 'vault.db')));
    expect(await refused({ vault: missing })).toContain('is missing from the backup');
    const otherTime = spoilt('vault', (folder) => {
      const file = join(folder, 'backup.json');
      writeFileSync(file, readFileSync(file, 'utf8').replace(/("lapsesAtMs": \d+)\d/, '$19'));
    });
    expect(await refused({ vault: otherTime })).toContain('backup.json is damaged');
  });

  it('when the log was damaged before it was copied', async () => {
    const log = spoilt('log', (folder) => {
      const file = join(folder, 'log.db');
      const database = new DatabaseSync(file);
      database.exec("UPDATE events SET data = substr(data, 1, 20) WHERE stream LIKE 'item-%'");
      database.close();
      const copied = readFileSync(file);
      const { files } = JSON.parse(readFileSync(join(folder, 'backup.json'), 'utf8')) as { readonly files: object };
      changeManifest(folder, {
        files: { ...files, 'log.db': { bytes: copied.length, sha256: hash('sha256', copied) } },
      });
    });
    const message = await refused({ log });
    expect(message).toMatch(
      /can't be read: Item\w+ at \d+ is damaged: .* An older copy of the log may be undamaged\.$/m,
    );
    expect(message).not.toContain('    at ');
  });

  it('when a manifest names a file that no backup has, or lacks one that every backup has', async () => {
    const { files } = JSON.parse(readFileSync(join(backup, 'log', 'backup.json'), 'utf8')) as {
      files: Record<string, unknown>;
    };
    const { 'log.db': log, ...others } = files;
    for (const named of [{ ...files, '../../elsewhere': log }, { ...files, 'items.v1.db': log }, others]) {
      const changed = spoilt('log', (folder) => {
        changeManifest(folder, { files: named });
        copyFileSync(join(folder, 'log.db'), join(folder, 'items.v1.db'));
        copyFileSync(join(folder, 'log.db'), join(folder, '..', '..', 'elsewhere'));
      });
      expect(await refused({ log: changed })).toContain('backup.json is damaged');
    }
    rmSync(join(place.path, '..', 'elsewhere'));
  });

  it('when the master key is another one', async () => {
    const wrong = place.file('wrong.key');
    writeFileSync(wrong, Buffer.alloc(32, 7).toString('base64'));
    expect(await refused({ 'master-key-file': wrong })).toContain('does not open');
  });

  it('when the target holds something', async () => {
    const { code, err } = await epitaph(restoreArguments({ to: place.file('backups') }));
    expect([code, err]).toEqual([2, expect.stringContaining('is not empty')]);
  });

  it('when the target can’t be created', async () => {
    for (const [to, message] of [
      ['/proc/epitaph/restored', "can't be made"],
      ['/proc', 'is not empty'],
      [masterKey, "can't be made"],
      [join(masterKey, 'below'), "can't be made"],
    ] as const) {
      const { code, err } = await epitaph(restoreArguments({ to }));
      expect([code, err], to).toEqual([2, expect.stringContaining(message)]);
    }
  });

  it('when the target is the mount point of another disk', async (context) => {
    const disk = new Disk(place.file('mounted'));
    mkdirSync(disk.path);
    disk.mountOrSkip(context, 1);
    try {
      expect(await refused({ to: disk.path })).toContain('is a mount point');
    } finally {
      disk.unmount();
    }
  });
});

describe('a restore', () => {
  it('does not write to the backup, which may be on a read-only disk', async (context) => {
    const disk = new Disk(place.file('read-only'));
    mkdirSync(disk.path);
    disk.mountOrSkip(context, 16);
    try {
      // Journals are left out: other tests leave some when they open the copies.
      const filter = (file: string) => !/-(?:wal|shm)$/.test(file);
      for (const part of ['log', 'vault']) {
        cpSync(join(backup, part), join(disk.path, part), { recursive: true, filter });
      }
      disk.remount('ro');
      const [log, vault] = [join(disk.path, 'log'), join(disk.path, 'vault')];
      const { code, err } = await epitaph(restoreArguments({ log, vault, to: place.file('from-read-only') }));
      expect(code, err).toBe(0);
      expect((await epitaph(['keys', 'verify-master', masterKey, '--data', vault])).code).toBe(0);
    } finally {
      disk.unmount();
    }
  });

  it.each([0o444, 0o644])(
    'makes its files readable and writable for their owner only, also if those of the backup have mode %i',
    async (mode) => {
      const [copy, to] = [place.file(`copy-${mode}`), place.file(`from-${mode}`)];
      cpSync(backup, copy, { recursive: true });
      copyFileSync(ledger, join(copy, 'vault', 'purge-ledger.ndjson'));
      const parts = { log: join(copy, 'log'), vault: join(copy, 'vault') };
      const names = new Set<string>();
      for (const part of Object.values(parts)) {
        for (const name of readdirSync(part)) {
          chmodSync(join(part, name), mode);
          if (!/^backup.json$|-(?:wal|shm)$/.test(name)) names.add(name);
        }
      }
      const given = restoreArguments({ ...parts, ledger: join(copy, 'vault', 'purge-ledger.ndjson'), to });
      const { code, err } = await epitaph(given);
      expect(code, err).toBe(0);
      for (const name of names) expect([name, lstatSync(join(to, name)).mode & 0o777]).toEqual([name, 0o600]);
      expect(names).toContain('vault.db');
    },
  );

  it('stores a master key that was given as a file, and does not store one from the environment', async () => {
    const key = readFileSync(masterKey, 'utf8').trim();
    const [kept, given] = [place.file('kept-key'), place.file('given-key')];
    expect((await epitaph(restoreArguments({ to: kept }))).code).toBe(0);
    expect(readFileSync(join(kept, 'master.key'), 'utf8').trim()).toBe(key);
    const without = restoreArguments({ 'master-key-file': undefined, to: given });
    expect((await epitaph(without, { EPITAPH_MASTER_KEY: key })).code).toBe(0);
    expect(foundIn(given, [Buffer.from(key), Buffer.from(key, 'base64')]).size).toBe(0);
  });

  it('writes to the target of a link, and leaves the link in place', async () => {
    mkdirSync(place.file('led-to'));
    symlinkSync(place.file('led-to'), place.file('link'));
    expect((await epitaph(restoreArguments({ to: place.file('link') }))).code).toBe(0);
    expect(lstatSync(place.file('link')).isSymbolicLink()).toBe(true);
    expect(readdirSync(place.file('led-to'))).toContain('log.db');
  });
});

describe('a restored store', () => {
  beforeAll(async () => {
    const { code, out, err } = await epitaph(restoreArguments());
    expect(err).not.toContain('epitaph:');
    expect([code, out]).toEqual([0, expect.stringContaining('Erased again: ')]);
    // Checked before any store has opened the folder, so this is the work of the restore alone.
    const now = wrappedKeys(place.file('restored'));
    const purged = [...wrappedAtLast].filter(([, wrapped]) => isZero(wrapped)).map(([id]) => id);
    const again = purged.filter((id) => wrappedThen.has(id) && !isZero(wrappedThen.get(id)!));
    // One that was deleted, one that expired, and one in each of three containers.
    expect(again).toHaveLength(5);
    expect(again.map((id) => isZero(now.get(id)!))).toEqual([true, true, true, true, true]);
    expect(
      foundIn(
        place.file('restored'),
        again.map((id) => wrappedThen.get(id)!),
      ).size,
    ).toBe(0);
    const others = [...wrappedThen]
      .filter(([id, wrapped]) => !purged.includes(id) && !isZero(wrapped))
      .map(([, wrapped]) => wrapped);
    expect(foundIn(place.file('restored'), others).size).toBe(others.length);
  }, 60_000);

  it('shows nothing that was erased after the backup, and everything else as it was backed up', async () => {
    const store = await place.open({ folder: place.file('restored') });
    expect(await readable(store, 'kept', 'stays')).toBe(true);
    const { json } = await store.readItem(store.container('db', 'kept'), 'rewritten', '["p"]');
    expect(JSON.parse(json)).toMatchObject({ v: 1 });
    for (const id of ['deleted', 'expires', 'early', 'lost']) expect(await readable(store, 'kept', id), id).toBe(false);
    for (const name of ['policy', 'partition', 'dropped']) expect(await readable(store, name, 'one'), name).toBe(false);
    await place.close();
  });

  it('tells of each erased item why it is gone and that its content was erased', async () => {
    const store = await place.open({ folder: place.file('restored') });
    const types = async (container: string, id: string) =>
      (await store.history(store.container('db', container), id, '["p"]')).map(({ type, actor }) => `${type} ${actor}`);
    expect((await types('kept', 'deleted')).slice(-2)).toEqual([
      'ItemDeleted system:restore',
      'ItemPurged system:purge',
    ]);
    expect((await types('kept', 'expires')).slice(-2)).toEqual(['ItemExpired system:purge', 'ItemPurged system:purge']);
    expect((await types('policy', 'one')).slice(-2)).toEqual(['ItemDeleted system:restore', 'ItemPurged system:purge']);
    await place.close();
  });

  it('tells of each erased item until when its backup contains the key', async () => {
    const store = await place.open({ folder: place.file('restored') });
    const { vaultLapsesAtMs } = taken;
    for (const [name, id] of [
      ['kept', 'deleted'],
      ['kept', 'expires'],
      ['policy', 'one'],
      ['partition', 'one'],
    ] as const) {
      const container = store.container('db', name);
      const { statement } = await store.certificate(container, id, '["p"]');
      expect(statement.recoverableUntilMs, `${name} ${id}`).toBe(vaultLapsesAtMs);
      const explanation = await store.explain(container, id, '["p"]');
      expect(explanation).toMatchObject({ state: 'purged', recoverableUntilMs: vaultLapsesAtMs });
      expect(explanation.sentence).toContain(`may be kept in backups until ${isoTime(vaultLapsesAtMs)}`);
    }
    await place.close();
  });

  it('passes fsck and the proofs of its log, and goes on working', async () => {
    const store = await place.open({ folder: place.file('restored') });
    expect((await store.fsck()).problems).toEqual([]);
    expect((await store.verifyLog()).problems).toEqual([]);
    await write(store, 'kept', 'deleted', { v: 3 });
    await write(store, 'kept', 'stays', { v: 3 });
    await store.deleteItem(CALLER, store.container('db', 'kept'), 'stays', '["p"]');
    await store.runPurge();
    expect(await readable(store, 'kept', 'deleted')).toBe(true);
    expect((await store.fsck()).problems).toEqual([]);
    await place.close();
  });

  it('has recorded which backup it is from, the position of that, and how many lives the restore ended', () => {
    const log = new DatabaseSync(place.file('restored', 'log.db'), { readOnly: true });
    const [restored, ...more] = log
      .prepare(
        `SELECT shape.text AS names, data FROM events
          JOIN words type ON type.number = events.type JOIN words shape ON shape.number = events.shape
          WHERE type.text = 'StoreRestored'`,
      )
      .all() as { names: string; data: string }[];
    log.close();
    expect(more).toEqual([]);
    const values = JSON.parse(restored!.data) as unknown[];
    const facts = (JSON.parse(restored!.names) as string[]).map((name, index) => [name, values[index]]);
    expect(Object.fromEntries(facts)).toEqual({
      logBackupId: taken.id,
      vaultBackupId: taken.id,
      logPosition: taken.logPosition,
      ledgerHead: head,
      // The item whose own ttl was over is not counted: it expires as usual.
      livesEnded: 4,
    });
  });

  it('never shows a time before the last purge', async () => {
    const store = await place.open({ folder: place.file('restored') });
    const last = Math.max(...ledgerLines(ledger).map(({ atMs }) => Number(atMs ?? 0)));
    expect(store.nowMs()).toBeGreaterThanOrEqual(last);
    await place.close();
  });

  it('continues the ledger, and keeps the time at which its backup lapses', async () => {
    const store = await place.open({ folder: place.file('restored') });
    const lines = ledgerLines(place.file('restored', 'purge-ledger.ndjson'));
    expect(lines.slice(0, ledgerLines(ledger).length)).toEqual(ledgerLines(ledger));
    expect(store.backups().map(({ id, vaultLapsesAtMs }) => [id, vaultLapsesAtMs])).toEqual([
      [taken.id, taken.vaultLapsesAtMs],
    ]);
    await place.close();
    await expect(epitaph(['ledger', place.file('restored', 'purge-ledger.ndjson')])).resolves.toMatchObject({
      code: 0,
    });
  });

  it('tells where its continued ledger is when it is started with the old one', async () => {
    const [own, elsewhere] = [place.file('restored', 'purge-ledger.ndjson'), place.file('elsewhere.ndjson')];
    copyFileSync(ledger, elsewhere);
    const options = { folder: place.file('restored'), purgeLedger: elsewhere };
    await expect(place.open(options)).rejects.toThrow(`an older copy: the store has continued with ${own}`);
    rmSync(elsewhere);
    await expect(place.open(options)).rejects.toThrow(`missing: the store has continued with ${own}`);
    copyFileSync(own, elsewhere);
    const store = await place.open(options);
    expect((await store.purgeLedgerHead()).lines).toBe(ledgerLines(own).length - 1);
    await place.close();
  });

  it('tells clients whose session token is ahead of it that it is behind, instead of showing them less', async () => {
    const store = await place.open({ folder: place.file('restored') });
    const ahead = store.headPosition() + 100;
    await expect(
      store.readItem(store.container('db', 'kept'), itemOf('stays').id, '["p"]', ahead),
    ).rejects.toMatchObject({ code: 'session-not-available' });
    await place.close();
  });
});

describe('an item erased after the backup, in a container with a recovery window,', () => {
  it('is recorded as erased, and is no longer counted as recoverable', async () => {
    const other = new Place();
    let store = await other.open();
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    const container = () => store.container('db', 'c');
    await store.setRecoveryWindow(CALLER, container(), 86_400, 'a test');
    for (const id of ['erased', 'kept']) {
      await write(store, 'c', id);
      await store.deleteItem(CALLER, container(), id, '["p"]');
    }
    await store.backup(CALLER, { folder: other.file('backup'), vaultKeptSeconds: 60 });
    await store.eraseItem(CALLER, container(), 'erased', '["p"]', { reason: 'a test', requestedBy: 'somebody' });
    const last = formatLedgerHead(await store.purgeLedgerHead());
    await other.close();
    const { code } = await epitaph(
      restoring({ backup: other.file('backup'), data: other.file('data'), last, to: other.file('restored') }),
    );
    expect(code).toBe(0);
    store = await other.open({ folder: other.file('restored') });
    const types = async (id: string) => (await store.history(container(), id, '["p"]')).map(({ type }) => type);
    expect(await types('erased')).toEqual(['ItemUpserted', 'ItemDeleted', 'ItemPurged']);
    expect(await types('kept')).toEqual(['ItemUpserted', 'ItemDeleted']);
    expect((await store.purgeStatus()).inGrace).toBe(1);
    await other.dispose();
  });
});

describe('an erasure that was begun and not finished at the time of the backup', () => {
  /** A backup of a store in which the request for an erasure is recorded, but not its outcome. */
  async function begun(other: Place) {
    const cut = other.file('cut');
    let isErasing = false;
    let store = await other.open({
      writers: 'inline',
      onStep: (step) => {
        if (!isErasing || step !== 'vault: before' || existsSync(cut)) return;
        const filter = (file: string) => basename(file) !== 'lock' && !file.endsWith('-shm');
        cpSync(other.file('data'), cut, { recursive: true, filter });
      },
    });
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    await write(store, 'c', 'erased');
    isErasing = true;
    const wish = { reason: 'a test', requestedBy: 'somebody' };
    await store.eraseItem(CALLER, store.container('db', 'c'), 'erased', '["p"]', wish);
    await other.close();
    // A normal start would finish the erasure.
    store = await other.open({ folder: cut, restoring: true });
    const { vaultLapsesAtMs } = await store.backup(CALLER, { folder: other.file('backup'), vaultKeptSeconds: 60 });
    const last = formatLedgerHead(await store.purgeLedgerHead());
    await other.close();
    const from = { backup: other.file('backup'), data: cut, last, to: other.file('restored') };
    return { from, vaultLapsesAtMs };
  }

  it('waits until the purge resumes, so that a lost hold can be placed again before', async () => {
    const other = new Place();
    const { from } = await begun(other);
    const { code, err } = await epitaph(restoring(from).filter((argument) => argument !== '--resume-purge'));
    expect(code, err).toBe(0);
    const store = await other.open({ folder: other.file('restored') });
    const container = store.container('db', 'c');
    const hold = { scope: { kind: 'container' as const }, reason: 'a case' };
    expect((await store.placeHold(CALLER, container, 'case-7', hold)).hold).toMatchObject({ tooLateFor: 0 });
    await store.resumePurge(CALLER);
    const pending = () => store.containerByRid(container.rid)?.retention.erasures;
    expect(pending()).toHaveLength(1);
    await expect.poll(pending, { timeout: 5_000 }).toEqual([]);
    expect(await readable(store, 'c', 'erased')).toBe(true);
    await other.dispose();
  });

  it('is finished by a restore that does not pause the purge, and tells until when that backup contains the key', async () => {
    const other = new Place();
    const { from, vaultLapsesAtMs } = await begun(other);
    const { code, err } = await epitaph(restoring(from));
    expect(code, err).toBe(0);
    const store = await other.open({ folder: other.file('restored') });
    const history = await store.history(store.container('db', 'c'), 'erased', '["p"]');
    expect(history.map(({ type }) => type)).toEqual(['ItemUpserted', 'ItemPurged']);
    expect(history.at(-1)!.data).toMatchObject({ cause: 'erasure', recoverableUntilMs: vaultLapsesAtMs });
    await other.dispose();
  });
});

describe('a hold that was placed after the backup', () => {
  it('can be placed again before the restored store erases what the hold kept', async () => {
    const other = new Place();
    let store = await other.open();
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, 60);
    for (const id of ['held', 'erased']) await write(store, 'c', id);
    await store.backup(CALLER, { folder: other.file('backup'), vaultKeptSeconds: 60 });
    const hold = { scope: { kind: 'items' as const, items: [itemOf('held')] }, reason: 'a case' };
    await store.placeHold(CALLER, store.container('db', 'c'), 'case-7', hold);
    await store.advanceClock(60_000);
    expect(await store.runPurge()).toMatchObject({ purged: 1, heldBack: 1 });
    const last = formatLedgerHead(await store.purgeLedgerHead());
    await other.close();
    const from = { backup: other.file('backup'), data: other.file('data'), last, to: other.file('restored') };
    const { code, out } = await epitaph(restoring(from).filter((argument) => argument !== '--resume-purge'));
    expect(code).toBe(0);
    expect(out).toContain('The purge is paused');

    store = await other.open({ folder: other.file('restored') });
    const container = store.container('db', 'c');
    const stateOf = async (id: string) => (await store.explain(container, id, '["p"]')).state;
    expect(await store.purgeStatus()).toMatchObject({ state: 'paused' });
    const control = (await store.actionsOnStore()).findLast(({ type }) => type === 'PurgePaused');
    expect(control).toMatchObject({ actor: 'system:restore' });
    expect([await stateOf('held'), await stateOf('erased')]).toEqual(['expired', 'purged']);
    expect((await store.placeHold(CALLER, container, 'case-7', hold)).hold).toMatchObject({ tooLateFor: 0 });
    await store.resumePurge(CALLER);
    expect(await store.runPurge()).toMatchObject({ purged: 0, heldBack: 1 });
    expect(await stateOf('held')).toBe('expired');
    await other.dispose();
  });
});

describe('holds and floors that are in the copy of the keys, but not in the older copy of the log,', () => {
  it('are in force again, are recorded, and keep their items', async () => {
    const other = new Place();
    let store = await other.open();
    await store.createDatabase(CALLER, 'db');
    const named = ['c', 'by law', 'lowered', 'raised'];
    for (const name of named) await store.createContainer(CALLER, 'db', name, DEFINITION, 60);
    const held = ['item', 'other item', 'found', 'of key'];
    for (const id of [...held, 'free', 'released']) await write(store, 'c', id);
    for (const name of ['by law', 'lowered', 'raised']) await write(store, name, 'x');
    for (const name of ['c', 'by law', 'lowered']) {
      await write(store, name, 'gone');
      await store.deleteItem(CALLER, store.container('db', name), 'gone', '["p"]');
    }
    expect(await store.runPurge()).toMatchObject({ purged: 3 });
    const floor = (name: string, seconds: number) =>
      store.setRetentionFloor(CALLER, store.container('db', name), seconds, 'a law');
    const hold = (id: string, scope: HoldRequest['scope'], name = 'c') =>
      store.placeHold(CALLER, store.container('db', name), id, { scope, reason: 'a case' });
    await floor('lowered', 500);
    await floor('lowered', 5);
    await floor('raised', 500);
    await floor('raised', 5);
    await hold('before', { kind: 'items', items: [itemOf('released')] });
    await store.releaseHold(CALLER, store.container('db', 'c'), 'before', 'settled');
    await store.backup(CALLER, { folder: other.file('first'), vaultKeptSeconds: 60 });
    await hold('items', { kind: 'items', items: ['item', 'other item', 'gone'].map(itemOf) });
    await hold('query', { kind: 'query', sql: "SELECT * FROM c WHERE c.id = 'found'", parameters: [] });
    await write(store, 'by law', 'y');
    await hold('key', { kind: 'partition-key', partitionKey: '["p"]' }, 'by law');
    // A wrong container in the row of a hold: the name of the hold tells the right one.
    const vault = new DatabaseSync(other.file('data', 'vault.db'));
    expect(vault.prepare("UPDATE holds SET container = 'x' WHERE hold_id LIKE '% key'").run().changes).toBe(1);
    vault.close();
    await hold('all', { kind: 'container' }, 'lowered');
    await floor('by law', 1_000);
    await floor('raised', 500);
    // This container is lost with its record. A new container of that name gets the same rid, but has nothing to do with this one.
    await store.createContainer(CALLER, 'db', 'late', DEFINITION, 60);
    await hold('of the late', { kind: 'container' }, 'late');
    await floor('late', 1_000);
    const wanted = (
      await Promise.all(
        ['c', 'by law', 'lowered'].map((name) => store.holds(store.container('db', name), { after: 0 })),
      )
    ).flat();
    await store.backup(CALLER, { folder: other.file('second'), vaultKeptSeconds: 60 });
    await store.advanceClock(60_000);
    const last = formatLedgerHead(await store.purgeLedgerHead());
    await other.close();
    const { code, err } = await epitaph(
      restoreArguments({
        log: other.file('first', 'log'),
        vault: other.file('second', 'vault'),
        ledger: other.file('data', 'purge-ledger.ndjson'),
        'ledger-head': last,
        'master-key-file': other.file('data', 'master.key'),
        to: other.file('restored'),
      }).concat('--allow-lapsed'),
    );
    expect(code, err).toBe(0);

    store = await other.open({ folder: other.file('restored') });
    const holds = (
      await Promise.all(
        ['c', 'by law', 'lowered'].map((name) => store.holds(store.container('db', name), { after: 0 })),
      )
    ).flat();
    const told = (all: typeof holds) => all.map(({ holdId, scope, tooLateFor }) => [holdId, scope, tooLateFor]);
    expect(told(holds)).toEqual(told(wanted));
    expect(holds.map(({ tooLateFor }) => tooLateFor)).toEqual([0, 1, 0, 1, 1]);
    for (const one of holds.filter(({ holdId }) => holdId !== 'before')) {
      expect(one).toMatchObject({ placedBy: 'system:restore', reason: expect.stringMatching(/older copy/) });
    }
    await store.createContainer(CALLER, 'db', 'late', DEFINITION, 60);
    await write(store, 'late', 'x');
    await store.advanceClock(120_000);
    await store.runPurge();
    const statesOf = (name: string, ...ids: string[]) =>
      Promise.all(ids.map(async (id) => (await store.explain(store.container('db', name), id, '["p"]')).state));
    expect(await statesOf('c', 'item', 'other item', 'found')).toEqual(['expired', 'expired', 'expired']);
    expect(await statesOf('c', 'of key', 'free', 'released')).toEqual(['purged', 'purged', 'purged']);
    expect(await statesOf('late', 'x')).toEqual(['purged']);
    expect(store.container('db', 'by law').retention.floorSeconds).toBe(1_000);
    expect(store.container('db', 'lowered').retention.floorSeconds).toBe(5);
    // The floor had been as high before, so the log still has that height, although the later change is lost.
    expect(store.container('db', 'raised').retention.floorSeconds).toBe(500);
    expect(await statesOf('raised', 'x')).toEqual(['expired']);
    expect((await store.fsck()).problems).toEqual([]);
    await other.dispose();
  });
});

describe('overdue content in a container with little throughput', () => {
  it(
    'is erased by a restore without waiting for request units, because nobody else needs them',
    { timeout: 60_000 },
    async () => {
      const other = new Place();
      const store = await other.open();
      await store.createDatabase(CALLER, 'db');
      const throughput = { kind: 'manual', requestUnitsPerSecond: 400 } as const;
      await store.createContainer(CALLER, 'db', 'c', DEFINITION, 60, throughput);
      // Deleting these costs more than the container's throughput of a minute.
      for (let index = 0; index < 150; index++) await write(store, 'c', `${index}`, { text: 'x'.repeat(400_000) });
      await store.backup(CALLER, { folder: other.file('backup'), vaultKeptSeconds: 60 });
      // A later erasure elsewhere, so that the restored store's time is after the deadline.
      await store.createContainer(CALLER, 'db', 'short', DEFINITION, 1);
      await write(store, 'short', 'erased');
      await store.pausePurge(CALLER);
      await store.advanceClock(60_000);
      const wish = { reason: 'a test', requestedBy: 'somebody' };
      await store.eraseItem(CALLER, store.container('db', 'short'), 'erased', '["p"]', wish);
      const last = formatLedgerHead(await store.purgeLedgerHead());
      await other.close();
      const from = { backup: other.file('backup'), data: other.file('data'), last, to: other.file('restored') };
      const { code, out } = await epitaph(restoring(from));
      expect([code, out]).toEqual([0, expect.stringContaining('0 items')]);
      await other.dispose();
    },
  );
});

describe('a backup that was taken while the purge was paused', () => {
  it('is restored paused, with every end as it was, and with later erasures recorded as erasures', async () => {
    const other = new Place();
    let store = await other.open();
    await store.createDatabase(CALLER, 'db');
    for (const name of ['kept', 'partition', 'dropped']) {
      await store.createContainer(CALLER, 'db', name, DEFINITION, -1);
      await write(store, name, 'one');
      await write(store, name, 'expires', { ttl: 1 });
    }
    const containers = ['kept', 'partition', 'dropped'].map((name) => store.container('db', name));
    const [kept, partition] = containers as [ContainerState, ContainerState];
    const ends = () =>
      Promise.all(
        containers.flatMap((container) =>
          ['one', 'expires'].map(async (id) => {
            const { state, sentence } = await store.explain(container, id, '["p"]');
            return [state, sentence.replace(/erased at .*/, 'erased')];
          }),
        ),
      );
    await store.pausePurge(CALLER);
    await store.deleteItem(CALLER, kept, 'one', '["p"]');
    await store.deletePartitionKey(CALLER, partition, '["p"]');
    await store.advanceClock(2_000);
    await store.deleteContainer(CALLER, 'db', 'dropped');
    await write(store, 'kept', 'stays');
    await store.backup(CALLER, { folder: other.file('backup'), vaultKeptSeconds: 60 });
    await store.resumePurge(CALLER);
    expect(await store.runPurge()).toMatchObject({ purged: 6 });
    const before = await ends();
    expect(before.map(([state]) => state)).toEqual(Array(6).fill('purged'));
    const last = formatLedgerHead(await store.purgeLedgerHead());
    await other.close();
    const { code, err } = await epitaph(
      restoring({ backup: other.file('backup'), data: other.file('data'), last, to: other.file('restored') }),
    );
    expect(code, err).toBe(0);
    store = await other.open({ folder: other.file('restored') });
    expect(await store.purgeStatus()).toMatchObject({ state: 'paused', awaitingErasure: 0 });
    expect(await ends()).toEqual(before);
    expect(await readable(store, 'kept', 'stays')).toBe(true);
    await other.dispose();
  });
});

describe('a backup of a history that an earlier restore has discarded', () => {
  it('is restored with everything that was erased in neither history, and its master key can be changed', async () => {
    const other = new Place();
    let data = other.file('data');
    let store = await other.open();
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    const erase = async (id: string) => {
      await store.deleteItem(CALLER, store.container('db', 'c'), id, '["p"]');
      await store.runPurge();
    };
    const take = (name: string) => store.backup(CALLER, { folder: other.file(name), vaultKeptSeconds: 60 });
    const restore = async (name: string, to: string) => {
      const last = formatLedgerHead(await store.purgeLedgerHead());
      await other.close();
      const { code } = await epitaph(restoring({ backup: other.file(name), data, last, to: other.file(to) }));
      expect(code).toBe(0);
      data = other.file(to);
      store = await other.open({ folder: data });
    };
    for (const id of ['first', 'erased']) await write(store, 'c', id);
    await take('older');
    await write(store, 'c', 'again', { v: 1 });
    await take('younger');
    await restore('older', 'one');
    // The same life by its name, with other content. If its key also had the same number, the ledger would lead to the destruction of both.
    await write(store, 'c', 'again', { v: 2 });
    await erase('again');
    await erase('erased');
    expect(Math.max(...wrappedKeys(data).keys())).toBeGreaterThan(2 ** 40);
    await restore('younger', 'two');
    for (const rotated of [false, true]) {
      const { json } = await store.readItem(store.container('db', 'c'), 'again', '["p"]');
      expect(JSON.parse(json)).toMatchObject({ v: 1 });
      expect(await readable(store, 'c', 'first')).toBe(true);
      expect(await readable(store, 'c', 'erased')).toBe(false);
      await write(store, 'c', `more ${rotated}`);
      expect((await store.fsck()).problems).toEqual([]);
      await other.close();
      if (!rotated) expect((await epitaph(['keys', 'rotate-master', '--data', data])).code).toBe(0);
      store = await other.open({ folder: data });
    }
    await other.dispose();
  });
});

describe('the time until which copies of a key exist, as a purge states it,', () => {
  it('is the time at which the last backup of the keys lapses, until it has lapsed', async () => {
    const other = new Place();
    const store = await other.open();
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    const container = store.container('db', 'c');
    const purge = async (id: string): Promise<number | null> => {
      await write(store, 'c', id);
      await store.deleteItem(CALLER, container, id, '["p"]');
      await store.runPurge();
      const certificate = await store.certificate(container, id, '["p"]');
      return certificate.statement.recoverableUntilMs;
    };
    expect(await purge('before')).toBeNull();
    const long = await store.backup(CALLER, { folder: other.file('long'), vaultKeptSeconds: 20 * 86_400 });
    await store.backup(CALLER, { folder: other.file('short'), vaultKeptSeconds: 86_400 });
    expect(await purge('covered')).toBe(long.vaultLapsesAtMs);
    await store.advanceClock(20 * DAY_MS - 1);
    expect(await purge('still')).toBe(long.vaultLapsesAtMs);
    await store.advanceClock(1);
    expect(await purge('lapsed')).toBeNull();
    await other.dispose();
  });

  it('is the latest possible one if the record of a backup can’t be read', async () => {
    const other = new Place();
    let store = await other.open();
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    const { takenAtMs } = await store.backup(CALLER, { folder: other.file('one'), vaultKeptSeconds: 86_400 });
    await other.close();
    const log = new DatabaseSync(other.file('data', 'log.db'));
    expect(log.prepare("UPDATE events SET version = 99 WHERE stream = 'backups' AND revision = 0").run().changes).toBe(
      1,
    );
    log.close();
    store = await other.open();
    await store.advanceClock(2 * DAY_MS);
    await write(store, 'c', 'a');
    await store.deleteItem(CALLER, store.container('db', 'c'), 'a', '["p"]');
    await store.runPurge();
    const { statement } = await store.certificate(store.container('db', 'c'), 'a', '["p"]');
    expect(statement.recoverableUntilMs).toBe(takenAtMs + 3_660 * DAY_MS);
    await other.dispose();
  });
});

it('an unreadable record of a restore does not prevent the start of the store, access to its containers, or the other checks', async () => {
  const other = new Place();
  let store = await other.open();
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'before', DEFINITION, -1);
  await write(store, 'before', 'a');
  await store.backup(CALLER, { folder: other.file('one'), vaultKeptSeconds: 86_400 });
  await other.close();
  const log = new DatabaseSync(other.file('data', 'log.db'));
  log.exec("UPDATE words SET text = 'StoreRestored' WHERE text = 'BackupCompleted'");
  log.close();
  store = await other.open();
  await store.createContainer(CALLER, 'db', 'after', DEFINITION, -1);
  for (const name of ['before', 'after']) await write(store, name, 'b');
  const verified = await store.verifyLog();
  expect(verified.problems.map(({ code, subject }) => [code, subject])).toEqual([['fact-differs', 'backups']]);
  expect((await store.fsck()).problems).toMatchObject([{ code: 'unreadable-event', subject: 'backups' }]);
  await other.dispose();
});
