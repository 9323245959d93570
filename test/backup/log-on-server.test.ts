import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { restoreStore } from '@epitaph/api/cli/restore-store.ts';
import type { EmbeddedStoreOptions } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { formatLedgerHead, parseLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { UnusableFile } from '@epitaph/storage/sqlite/database.ts';
import { DoubleLog } from '../eventstoredb/double-log.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { foundIn } from '../secrecy/search.ts';
import { DEFINITION } from '../support/definition.ts';
import { Wreckage } from '../support/wreckage.ts';
import { cleanUp, epitaph as commandLine, serve } from '../../packages/api/test/cli/process.ts';
import { CALLER, epitaph, isZero, ledgerLines, Place, readable, wrappedKeys, write } from './setup.ts';

const KEPT_SECONDS = 30 * 86_400;

let double: EventStoreDouble;
let place: Place;
let store: Store;
let data: string;
beforeEach(async () => {
  double = await EventStoreDouble.start();
  place = new Place();
  data = place.file('data');
  store = await open();
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
});
afterEach(async () => {
  cleanUp();
  await place.dispose();
  double.stop();
});

const open = (options: Partial<EmbeddedStoreOptions> = {}): Promise<Store> =>
  place.open({ folder: data, eventStore: double.connectionString, ...options });
const container = (name = 'c') => store.container('db', name);
const take = (name: string) => store.backup(CALLER, { folder: place.file(name), vaultKeptSeconds: KEPT_SECONDS });
const erase = async (id: string, name = 'c') => {
  await store.deleteItem(CALLER, container(name), id, '["p"]');
  await store.runPurge();
};

/** Copies of the current ledger, its head and the master key, which operators keep elsewhere. Closes the store. */
async function lastWords(name: string): Promise<{ readonly ledger: string; readonly head: string }> {
  const head = formatLedgerHead(await store.purgeLedgerHead());
  const ledger = place.file(`${name}.ndjson`);
  writeFileSync(ledger, readFileSync(join(data, 'purge-ledger.ndjson')));
  await place.close();
  writeFileSync(place.file('master.key'), readFileSync(join(data, 'master.key')));
  return { ledger, head };
}

interface Restore {
  readonly backup: string;
  readonly ledger: string;
  readonly head: string;
  readonly to: string;
}

const command = ({ backup, ledger, head, to }: Restore): string[] => [
  'restore',
  ...Object.entries({
    'event-store': double.connectionString,
    vault: place.file(backup, 'vault'),
    ledger,
    'ledger-head': head,
    'master-key-file': place.file('master.key'),
    to: place.file(to),
  }).flatMap(([name, value]) => [`--${name}`, value]),
  '--allow-lapsed',
  '--resume-purge',
  '--json',
];

async function restored(restore: Restore, ...more: string[]): Promise<Record<string, unknown>> {
  const { code, out, err } = await epitaph([...command(restore), ...more]);
  expect(code, err + out).toBe(0);
  data = place.file(restore.to);
  store = await open();
  expect((await store.fsck()).problems).toEqual([]);
  expect((await store.verifyLog()).problems).toEqual([]);
  return JSON.parse(out) as Record<string, unknown>;
}

async function refused(restore: Restore, ...more: string[]): Promise<string> {
  const before = double.log.readForwards(undefined).length;
  const { code, out, err } = await epitaph([...command(restore), ...more]);
  expect([code, out], err).toEqual([2, '']);
  expect(existsSync(place.file(restore.to))).toBe(false);
  expect(existsSync(place.file(`${restore.to}.restoring`))).toBe(false);
  expect(double.log.readForwards(undefined)).toHaveLength(before);
  return err;
}

const ids = async (...wanted: string[]): Promise<string[]> => {
  const found: string[] = [];
  for (const id of wanted) if (await readable(store, 'c', id)) found.push(id);
  return found;
};
const types = async (id: string, name = 'c') =>
  (await store.history(container(name), id, '["p"]')).map(({ type, actor }) => `${type} ${actor}`);

/** The wrapped keys in a backup that have since been destroyed in a data folder. */
function goneSince(backup: string, now: string): Buffer[] {
  const later = wrappedKeys(now);
  return [...wrappedKeys(place.file(backup, 'vault'))]
    .filter(([id, wrapped]) => !isZero(wrapped) && isZero(later.get(id)!))
    .map(([, wrapped]) => wrapped);
}

describe('a backup of a store whose event log is on a server', () => {
  it('has a vault part only, which names its log, and counts as a copy of the keys', async () => {
    await write(store, 'c', 'one');
    const taken = await take('backup');
    expect(taken.parts).toEqual(['vault']);
    expect(readdirSync(place.file('backup'))).toEqual(['vault']);
    const manifest = JSON.parse(readFileSync(place.file('backup', 'vault', 'backup.json'), 'utf8')) as object;
    const facts = JSON.parse(readFileSync(join(data, 'epitaph.json'), 'utf8')) as Record<string, string>;
    expect(manifest).toMatchObject({ part: 'vault', store: facts['id'], log: facts['log'] });
    expect(store.backups()).toMatchObject([{ id: taken.id, state: 'completed', logPosition: taken.logPosition }]);
    expect(ledgerLines(join(data, 'purge-ledger.ndjson')).at(-1)).toHaveProperty('backup');
    await erase('one');
    const { statement } = await store.certificate(container(), 'one', '["p"]');
    expect(statement.recoverableUntilMs).toBe(taken.vaultLapsesAtMs);
  });

  it('can be taken by a running server, which says that the log is not part of it', async () => {
    await place.close();
    mkdirSync(place.file('below'));
    const { endpoint } = await serve(['--data', data, '--clock', 'manual', '--backup-folder', place.file('below')], {
      EPITAPH_EVENT_STORE: double.connectionString,
    });
    const online = (...more: string[]) => commandLine(['backup', ...more, '--endpoint', endpoint]);
    const { code, stdout, stderr } = await online('one');
    expect([code, stdout], stderr).toEqual([0, expect.stringContaining('log    none: back up the event log')]);
    const json = await online('two', '--json');
    expect(JSON.parse(json.stdout)).toMatchObject({ parts: ['vault'], folder: place.file('below', 'two') });
    expect(readdirSync(place.file('below', 'two'))).toEqual(['vault']);
  });

  it('can be taken of a stopped store, which says that the log is not part of it', async () => {
    await place.close();
    const offline = ['backup', place.file('offline'), '--data', data];
    const without = await epitaph(offline);
    expect([without.code, without.err]).toEqual([2, expect.stringContaining('--event-store')]);
    const { code, out, err } = await epitaph([...offline, '--event-store', double.connectionString]);
    expect([code, out], err).toEqual([0, expect.stringContaining('log    none: back up the event log')]);
    expect(readdirSync(place.file('offline'))).toEqual(['vault']);
  });

  it('that a crash has interrupted is removed by the next one, and so are copies of keys that have lapsed', async () => {
    await place.close();
    store = await open({ backupsInto: { below: place.file() } });
    const below = (folder: string) => store.backup(CALLER, { folder, vaultKeptSeconds: 60 });
    for (const name of ['cut', 'old']) await below(name);
    rmSync(place.file('cut', 'vault', 'backup.json'));
    await store.advanceClock(60_000);
    await below('new');
    expect(['cut', 'old', 'new'].map((name) => existsSync(place.file(name, 'vault')))).toEqual([false, false, true]);
  });
});

describe('keys restored beside a log on a server', () => {
  it('open everything except what was erased since they were copied', async () => {
    for (const id of ['stays', 'early', 'deleted']) await write(store, 'c', id);
    await write(store, 'c', 'expires', { ttl: 100 });
    await erase('early');
    await take('backup');
    await write(store, 'c', 'stays', { v: 2 });
    await erase('deleted');
    await store.advanceClock(200_000);
    await store.runPurge();
    const now = store.nowMs();
    const erased = goneSince('backup', data);
    expect(erased).toHaveLength(2);
    const last = await lastWords('last');
    rmSync(data, { recursive: true });

    const answer = await restored({ backup: 'backup', ...last, to: 'restored' });
    expect(answer).toMatchObject({ keysDestroyed: 2, keysLost: 0, livesEnded: 0, items: 1, problems: [] });
    expect(await ids('stays', 'early', 'deleted', 'expires')).toEqual(['stays']);
    expect(JSON.parse((await store.readItem(container(), 'stays', '["p"]')).json)).toMatchObject({ v: 2 });
    expect(store.nowMs()).toBeGreaterThanOrEqual(now);
    expect((await types('deleted')).at(-1)).toBe('ItemPurged system:purge');
    await place.close();
    expect(foundIn(data, erased).size).toBe(0);
    const recorded = double.log.readForwards(undefined).filter(({ type }) => type === 'StoreRestored');
    expect(recorded).toHaveLength(1);
    store = await open();
    await write(store, 'c', 'deleted', { v: 3 });
    expect(await ids('deleted')).toEqual(['deleted']);
  });

  it('lack the keys of later writes: this loss must be accepted, and these items end', async () => {
    await write(store, 'c', 'stays');
    await store.createContainer(CALLER, 'db', 'window', DEFINITION, -1);
    await store.setRecoveryWindow(CALLER, container('window'), 86_400, 'a test');
    await store.setRetentionFloor(CALLER, container('window'), 500, 'a law');
    await write(store, 'window', 'stays');
    await take('backup');
    await store.setRetentionFloor(CALLER, container('window'), 5, 'a law');
    await write(store, 'c', 'late');
    await write(store, 'c', 'late-erased');
    await erase('late-erased');
    await write(store, 'c', 'held');
    const scope = { kind: 'items', items: [{ id: 'held', partitionKey: '["p"]' }] } as const;
    await store.placeHold(CALLER, container(), 'a-hold', { reason: 'a test', scope });
    await write(store, 'window', 'kept');
    await store.deleteItem(CALLER, container('window'), 'kept', '["p"]');
    // Containers that the copy does not know. The stream names of their items can't be computed again either.
    for (const name of ['new', 'dropped']) await store.createContainer(CALLER, 'db', name, DEFINITION, -1);
    const pseudonymous = { ...DEFINITION, epitaph: { pseudonymousIds: true } };
    await store.createContainer(CALLER, 'db', 'pseudonymous', pseudonymous, -1);
    await write(store, 'pseudonymous', 'one');
    await write(store, 'new', 'overdue', { ttl: 10 });
    await write(store, 'new', 'live');
    await write(store, 'dropped', 'one');
    await store.setRecoveryWindow(CALLER, container('new'), 86_400, 'a test');
    await write(store, 'new', 'deleted');
    await store.deleteItem(CALLER, container('new'), 'deleted', '["p"]');
    await store.advanceClock(20_000);
    await store.deleteContainer(CALLER, 'db', 'dropped');
    const last = await lastWords('last');
    rmSync(data, { recursive: true });

    const restore = { backup: 'backup', ...last, to: 'restored' };
    expect(await refused(restore)).toMatch(/it lacks 8 keys.*--accept-lost/);
    const answer = await restored(restore, '--accept-lost');
    expect(answer).toMatchObject({ keysDestroyed: 0, keysLost: 8, containersOfLostNames: 3, items: 2, problems: [] });
    expect(await ids('stays', 'late', 'late-erased', 'held')).toEqual(['stays']);
    expect((await types('late')).slice(1)).toEqual(['ItemDeleted system:restore', 'ItemPurged system:purge']);
    expect((await types('kept', 'window')).at(-1)).toBe('ItemPurged system:purge');
    expect(await store.purgeStatus()).toMatchObject({ awaitingErasure: 0, inGrace: 0 });
    // The copy of the keys still has the higher floor.
    expect(container('window').retention.floorSeconds).toBe(5);
    for (const [name, id] of [
      ['c', 'late'],
      ['c', 'held'],
      ['new', 'overdue'],
      ['new', 'live'],
    ] as const) {
      await write(store, name, id, { v: 2 });
      expect(await readable(store, name, id), `${name} ${id}`).toBe(true);
    }
    await erase('live', 'new');
    expect((await store.fsck()).problems).toEqual([]);
    await place.close();
    // It need not be done twice. Doing it again with the same old ledger loses later writes again.
    const again = await restored({ ...restore, to: 'again' }, '--accept-lost');
    expect(again).toMatchObject({ keysLost: 4, containersOfLostNames: 1, items: 2, problems: [] });
  });

  it('merge two histories into one, even if a container had another secret in each', async () => {
    await take('older');
    await write(store, 'c', 'one');
    await take('younger');
    const restore = async (backup: string, to: string) => {
      const last = await lastWords(to);
      return restored({ backup, ...last, to }, '--accept-lost');
    };
    expect(await restore('older', 'first')).toMatchObject({ keysLost: 1, containersOfLostNames: 1 });
    await write(store, 'c', 'one', { v: 2 });
    expect(await restore('younger', 'second')).toMatchObject({
      keysDestroyed: 1,
      keysLost: 1,
      containersOfLostNames: 1,
      items: 0,
    });
    expect(await ids('one')).toEqual([]);
    await write(store, 'c', 'one', { v: 3 });
    expect(await ids('one')).toEqual(['one']);
    for (const report of [await store.fsck(), await store.verifyLog()]) expect(report.problems).toEqual([]);
  });

  it('are refused with another log, and if the parts do not belong together', async () => {
    await write(store, 'c', 'one');
    await take('backup');
    const last = await lastWords('last');
    const restore = { backup: 'backup', ...last, to: 'restored' };
    const { log } = double;
    double.log = new DoubleLog();
    // The log gets its id when it is first asked for.
    await epitaph(command(restore));
    expect(await refused(restore)).toContain('another event log');
    double.log = log;
    writeFileSync(place.file('wrong.key'), Buffer.alloc(32, 7).toString('base64'));
    expect(await refused(restore, '--master-key-file', place.file('wrong.key'))).toContain('does not open');
    expect(await refused(restore, '--log', place.file('backup', 'vault'))).toContain('exclude each other');
    const [lines, hash] = last.head.split(':') as [string, string];
    expect(await refused({ ...restore, head: `${Number(lines) + 1}:${hash}` })).toContain('is incomplete');
    expect(await refused({ ...restore, ledger: place.file('nowhere') })).toContain('There is no purge ledger');
    const other = new Place();
    await (await other.open()).backup(CALLER, { folder: place.file('embedded'), vaultKeptSeconds: 60 });
    await other.dispose();
    expect(await refused({ ...restore, backup: 'embedded' })).toContain('Use --log instead of --event-store');
    const withLog = command(restore).map((word) => (word === '--event-store' ? '--log' : word));
    withLog[2] = place.file('embedded', 'log');
    expect((await epitaph(withLog)).err).toContain('Use --event-store instead of --log');
    const noLog = ['restore', ...command(restore).slice(3)];
    const { code, err } = await epitaph(noLog);
    expect([code, err]).toEqual([2, expect.stringContaining('--log is needed')]);
    double.stop();
    const away = await epitaph(command(restore));
    expect([away.code, away.err]).toEqual([
      3,
      expect.stringMatching(/^epitaph: --event-store names .*can't be reached/),
    ]);
    await double.start();
  });
});

describe('a log restored to an earlier moment, with its keys', () => {
  it('shows nothing that was erased since either was copied, because the ledger lists it', async () => {
    for (const id of ['stays', 'first', 'second', 'third']) await write(store, 'c', id);
    const older = double.log.copy();
    await erase('first');
    await write(store, 'c', 'between');
    await take('backup');
    await erase('second');
    const younger = double.log.copy();
    await erase('third');
    await write(store, 'c', 'after');
    const last = await lastWords('last');
    const erased = goneSince('backup', data);
    for (const [name, log] of Object.entries({ older, younger })) {
      double.log = log;
      const answer = await restored({ backup: 'backup', ...last, to: name });
      expect(answer, name).toMatchObject({ keysDestroyed: 2, keysLost: 0, problems: [] });
      expect(await ids('stays', 'first', 'second', 'third', 'between', 'after'), name).toEqual(
        name === 'older' ? ['stays'] : ['stays', 'between'],
      );
      expect((await types('third')).slice(-2), name).toEqual(['ItemDeleted system:restore', 'ItemPurged system:purge']);
      // As if the one had never existed, and as a new life of the other.
      await write(store, 'c', 'after', { v: 2 });
      await write(store, 'c', 'third', { v: 2 });
      expect(await ids('third', 'after'), name).toEqual(['third', 'after']);
      await place.close();
      expect(foundIn(data, erased).size, name).toBe(0);
    }
  });

  it('loses no key of the events left in it if the keys can be taken from the data folder', async () => {
    for (const id of ['stays', 'erased']) await write(store, 'c', id);
    const earlier = double.log.copy();
    await erase('erased');
    for (const id of ['after', 'stays']) await write(store, 'c', id, { v: 2 });
    await place.close();
    double.log = earlier;
    await expect(open()).rejects.toThrow(/it is an older copy.*restore the store from a backup/);
    const offline = ['backup', place.file('backup'), '--data', data, '--event-store', double.connectionString];
    const taken = await epitaph(offline);
    expect(taken.code, taken.err).toBe(0);
    const [, head] = /ledger head (\S+)/.exec(taken.out)!;
    writeFileSync(place.file('master.key'), readFileSync(join(data, 'master.key')));
    const ledger = join(data, 'purge-ledger.ndjson');
    const answer = await restored({ backup: 'backup', ledger, head: head!, to: 'restored' });
    expect(answer).toMatchObject({ keysDestroyed: 0, keysLost: 0, livesEnded: 1, items: 1 });
    expect(await ids('stays', 'erased', 'after')).toEqual(['stays']);
    expect(JSON.parse((await store.readItem(container(), 'stays', '["p"]')).json)).not.toHaveProperty('v');
  });
});

describe('an older copy of the keys in the data folder', () => {
  const vaultFiles = () => readdirSync(data).filter((name) => name.startsWith('vault.db'));
  const older = async (work: () => Promise<void>) => {
    await write(store, 'c', 'stays');
    await place.close();
    mkdirSync(place.file('copy'));
    for (const name of vaultFiles()) cpSync(join(data, name), place.file('copy', name));
    store = await open();
    await work();
    await place.close();
    for (const name of vaultFiles()) rmSync(join(data, name));
    for (const name of readdirSync(place.file('copy'))) cpSync(place.file('copy', name), join(data, name));
    await expect(open()).rejects.toThrow(/vault\.db is an older copy than the event log/);
  };

  it('is refused if the number of a key would be given out again', () => older(() => write(store, 'c', 'later')));

  it('is refused if content that was recorded as erased could be read again', () => older(() => erase('stays')));
});

describe('a log on a server belongs to one data folder:', () => {
  const refusal = async (folder: string): Promise<string> => {
    const error: unknown = await open({ folder }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(UnusableFile);
    return (error as Error).message;
  };

  it('if two folders are begun on an empty log, the second is refused', async () => {
    await place.close();
    double.log = new DoubleLog();
    const [first, second] = [place.file('first'), place.file('second')];
    for (const folder of [first, first]) {
      store = await open({ folder });
      await place.close();
    }
    for (const _ of [1, 2]) expect(await refusal(second)).toContain(`belongs to the keys of ${first} at `);
    store = await open({ folder: first });
  });

  it('not any more to the folder from whose backup keys were restored, until that folder is restored itself', async () => {
    await write(store, 'c', 'one');
    await take('backup');
    const last = await lastWords('last');
    const left = data;
    await restored({ backup: 'backup', ...last, to: 'restored' });
    await place.close();
    expect(await refusal(left)).toMatch(/belongs to the keys of \S+restored at .*epitaph restore/);
    const rotate = ['keys', 'rotate-master', '--data', left, '--event-store', double.connectionString];
    expect(await epitaph(rotate)).toMatchObject({ code: 2, err: expect.stringContaining('restored at ') });
    store = await open();
    await write(store, 'c', 'two');
    await place.close();

    const offline = ['backup', place.file('of-left'), '--data', left, '--event-store', double.connectionString];
    const taken = await epitaph(offline);
    expect(taken.code, taken.err).toBe(0);
    const [, head] = /ledger head (\S+)/.exec(taken.out)!;
    const ledger = join(left, 'purge-ledger.ndjson');
    const given = data;
    await restored({ backup: 'of-left', ledger, head: head!, to: 'left-restored' }, '--accept-lost');
    expect(await ids('one', 'two')).toEqual(['one']);
    await place.close();
    expect(await refusal(given)).toMatch(/belongs to the keys of \S+left-restored at /);
  });

  it('that of an older version to the folder that is started first', async () => {
    await place.close();
    const unmarked = (folder: string) => {
      const file = join(folder, 'epitaph.json');
      const { owner: _, ...facts } = JSON.parse(readFileSync(file, 'utf8')) as { readonly owner?: string };
      writeFileSync(file, JSON.stringify(facts));
    };
    const [identity] = double.log.readStream('$$epitaph')!.slice(-1);
    const { owner, ...metadata } = JSON.parse(Buffer.from(identity!.data).toString()) as Record<string, unknown>;
    expect(owner).toMatchObject({ name: expect.stringContaining(data) });
    const plain = Buffer.from(JSON.stringify(metadata));
    double.log.append('$$epitaph', identity!.revision, [{ ...identity!, id: crypto.randomUUID(), data: plain }]);
    unmarked(data);
    const copy = place.file('copy');
    cpSync(data, copy, { recursive: true });
    store = await open();
    await place.close();
    expect(await refusal(copy)).toContain(`belongs to the keys of ${data} at `);
    store = await open();
  });
});

describe('a purge ledger that is not the newest,', () => {
  it('is completed from the log, which has recorded the erasures', async () => {
    await write(store, 'c', 'stays');
    await take('older');
    await write(store, 'c', 'erased');
    await take('younger');
    const stale = { ledger: place.file('stale.ndjson'), head: formatLedgerHead(await store.purgeLedgerHead()) };
    writeFileSync(stale.ledger, readFileSync(join(data, 'purge-ledger.ndjson')));
    const earlier = double.log.copy();
    await erase('erased');
    await lastWords('unused');
    const erased = goneSince('younger', data);
    expect(erased).toHaveLength(1);

    expect(await restored({ backup: 'younger', ...stale, to: 'one' })).toMatchObject({ keysDestroyed: 1 });
    expect(await ids('stays', 'erased')).toEqual(['stays']);
    await place.close();
    expect(foundIn(data, erased).size).toBe(0);
    expect(await restored({ backup: 'older', ...stale, to: 'two' })).toMatchObject({ keysDestroyed: 0, keysLost: 0 });
    // The ledger now contains the key that the older copy never had, so it can be told when the log no longer has it.
    const last = await lastWords('last');
    double.log = earlier;
    expect(await restored({ backup: 'younger', ...last, to: 'three' })).toMatchObject({
      keysDestroyed: 1,
      livesEnded: 1,
    });
    expect(await ids('stays', 'erased')).toEqual(['stays']);
    await place.close();
    expect(foundIn(data, erased).size).toBe(0);
  });
});

describe('a crash during a restore of keys', () => {
  it('leaves, at every step, no folder that a store would open, and the same command completes the restore', async () => {
    for (const id of ['stays', 'erased']) await write(store, 'c', id);
    await write(store, 'c', 'due', { ttl: 100 });
    await take('backup');
    await write(store, 'c', 'late');
    await store.deleteItem(CALLER, container(), 'erased', '["p"]');
    await store.eraseItem(CALLER, container(), 'erased', '["p"]', { reason: 'a test', requestedBy: 'somebody' });
    await store.advanceClock(200_000);
    // The purge is paused, so overdue items remain.
    await store.pausePurge(CALLER);
    await store.resumePurge(CALLER);
    const erased = goneSince('backup', data);
    const now = wrappedKeys(place.file('backup', 'vault'));
    const last = await lastWords('last');
    const due = [...now.values()].filter((wrapped) => !isZero(wrapped) && !erased.some((key) => key.equals(wrapped)));
    const wreckage = new Wreckage<DoubleLog>();
    let copies = 0;
    const target = place.file('target');
    mkdirSync(target);
    const wreck = (step: string) => {
      const path = place.file(`wreck-${copies++}`);
      const filter = (file: string) => basename(file) !== 'lock' && !file.endsWith('-shm');
      cpSync(target, path, { recursive: true, filter });
      // The log only grows, so its length is enough to tell its states apart.
      wreckage.keep(step, path, double.log.copy(), String(double.log.readForwards(undefined).length));
    };
    const restore = (path: string, onStep: (step: string) => void = () => {}) =>
      restoreStore({
        log: { eventStore: double.connectionString },
        vault: place.file('backup', 'vault'),
        ledger: last.ledger,
        ledgerHead: parseLedgerHead(last.head)!,
        to: join(path, 'restored'),
        masterKey: readFileSync(place.file('master.key'), 'utf8').trim(),
        keepMasterKey: true,
        nowMs: 0,
        allowLapsed: false,
        acceptLost: true,
        writers: 'inline',
        onStep,
      });
    const { log } = double;
    double.onAppend = (moment, stream) => wreck(`append ${moment}: ${stream.replace(/[-.].*/, '')}`);
    await restore(target, wreck);
    double.onAppend = undefined;
    for (const step of [
      'restore folder: marked',
      'restore keys: after commit',
      'restore keys: by the log',
      'vault checkpoint: before',
      'purge ledger: after',
      'append after: item',
      'append after: backups',
      'restore place: taken',
      'restore mark: removed',
    ]) {
      expect(wreckage.steps).toContain(step);
    }

    await wreckage.each(async ({ steps, path, known: then }, at) => {
      double.log = then;
      const done = steps.includes('restore mark: removed');
      for (const name of done ? [] : readdirSync(path)) {
        data = join(path, name);
        if (existsSync(join(data, 'epitaph.json'))) {
          await expect(open({ writers: 'inline' }), at).rejects.toThrow('Run the same epitaph restore command');
        }
      }
      if (!done) expect((await restore(path)).report.problems, at).toEqual([]);
      expect(readdirSync(path), at).toEqual(['restored']);
      data = join(path, 'restored');
      expect(foundIn(data, erased).size, at).toBe(0);
      store = await open({ writers: 'inline' });
      expect(await ids('stays', 'erased', 'due', 'late'), at).toEqual(['stays']);
      for (const id of ['erased', 'due', 'late']) expect((await types(id)).at(-1), at).toContain('ItemPurged');
      expect((await store.fsck()).problems, at).toEqual([]);
      await place.close();
      // Nothing is left either of the items that it purged first and that were then created again.
      expect(
        due.filter((key) => foundIn(data, [key]).size > 0),
        at,
      ).toHaveLength(1);
      const listed = ledgerLines(join(data, 'purge-ledger.ndjson')).flatMap(({ keys }) => (keys as unknown[]) ?? []);
      expect(new Set(listed.map((key) => (key as [number])[0])).size, at).toBe(3);
      rmSync(path, { recursive: true });
    });
    double.log = log;
  }, 240_000);
});
