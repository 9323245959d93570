import { copyFileSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import type { SecretLifeKey } from '@epitaph/storage/crypto/gcm-body-sealer.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { copyAsKilled, newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from '../support/definition.ts';
import { filesOf, formsOf, foundIn, search } from './search.ts';

/** Occurs in every body, and nowhere else. */
const SECRET = 'Kestrel-47-Brodowy-Xanthippe-91';
const FORMS = formsOf(SECRET);
/** Occurs in ids and partition keys, which are in clear by design. So the search must find it. */
const NAME = 'Quill-8-Ottokar';
const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const LIVES = 300;

const folder = newFolder('secrecy');
const backup = newFolder('secrecy-backup');
const places: string[] = [];
const copies = newFolder('secrecy-copies');
let store: Store;

/** Copies the folder while it is in use, including journals and shared memory. */
function copyNow(name: string): string {
  const to = join(copies, name);
  mkdirSync(to);
  for (const file of readdirSync(folder))
    if (!file.startsWith('lock')) copyFileSync(join(folder, file), join(to, file));
  places.push(to);
  return to;
}

/** The wrapped keys as a reader of the vault's file sees them. */
function wrappedKeys(of: string): Map<number, Buffer> {
  const database = new DatabaseSync(join(of, 'vault.db'), { readOnly: true });
  const rows = database.prepare('SELECT id, wrapped FROM keys').all() as { id: number; wrapped: Uint8Array }[];
  database.close();
  return new Map(rows.map((row) => [row.id, Buffer.from(row.wrapped)]));
}

const isZero = (bytes: Buffer): boolean => bytes.every((byte) => byte === 0);
const documentOf = (index: number, round: number) => ({
  id: `${NAME}-${index}`,
  pk: `p${index % 7}`,
  round,
  text: `${SECRET} ${'x'.repeat((index * 37) % 900)} ${SECRET}`,
  nested: { [SECRET]: [SECRET, { deep: SECRET }] },
});

async function load(container: ReturnType<Store['container']>, round: number, ttl?: number): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: 32 }, async () => {
      while (next < LIVES) {
        const index = next++;
        const document = { ...documentOf(index, round), ...(ttl === undefined || index % 2 === 0 ? {} : { ttl }) };
        const item = { id: document.id, partitionKey: JSON.stringify([document.pk]) };
        await store.writeItem(CALLER, container, 'upsert', { ...item, document, json: JSON.stringify(document) });
        if (index % 5 === 0) {
          const operations = [{ op: 'set' as const, path: '/more', value: `${SECRET} patched` }];
          await store.patchItem(CALLER, container, item.id, item.partitionKey, { operations });
        }
        if (index % 11 === 0) await store.deleteItem(CALLER, container, item.id, item.partitionKey);
        if (index === Math.floor(LIVES / 2)) copyNow(`load ${round} of ${container.name}`);
      }
    }),
  );
}

let beforePurge: string;
let wrappedBefore: Map<number, Buffer>;
const bareKeys: Buffer[] = [];

beforeAll(async () => {
  store = await openEmbeddedStore({
    folder,
    clock: 'manual',
    automaticPurge: false,
    policyGraceSeconds: 0,
    durable: false,
    backupsInto: 'anywhere',
  });
  await store.createDatabase(CALLER, 'db');
  const { resource: kept } = await store.createContainer(CALLER, 'db', 'kept', DEFINITION, -1);
  const withUniqueKey = { ...DEFINITION, uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/text'] }] } };
  const { resource: gone } = await store.createContainer(CALLER, 'db', 'gone', withUniqueKey, null);
  for (let round = 0; round < 2; round++) await load(kept, round, 60);
  // The backup copies the folder while it is written to.
  const loading = load(kept, 2, 60);
  await store.backup(CALLER, { folder: backup, vaultKeptSeconds: 60 });
  places.push(backup);
  await loading;
  await load(gone, 0);
  // Content that is kept after its end, read under a hold, and recovered.
  const ended = { id: `${NAME}-11`, partitionKey: '["p4"]' };
  await store.placeHold(CALLER, kept, 'held', { scope: { kind: 'items', items: [ended] }, reason: 'a hold' });
  const read = await store.heldContent(CALLER, kept, ended.id, ended.partitionKey, { reason: 'looked at' });
  expect(read.json).toContain(SECRET);
  await store.recoverItem(CALLER, kept, ended.id, ended.partitionKey, { reason: 'wanted' });
  await store.eraseItem(CALLER, kept, `${NAME}-1`, '["p1"]', { reason: 'asked for', requestedBy: 'somebody' });
  // Reads and queries have bodies in clear, but only in memory.
  const sql = 'SELECT * FROM c WHERE CONTAINS(c.text, @s) ORDER BY c.text';
  await store.queryItems(kept, { sql, parameters: [{ name: '@s', value: SECRET }], maxItemCount: 50 });
  await store.deleteContainer(CALLER, 'db', 'gone');
  await store.advanceClock(61_000);
  beforePurge = copyNow('before the purge');
  wrappedBefore = wrappedKeys(folder);
  const before = await openSqliteStorage({
    folder: await foldersOf('bare keys', beforePurge, beforePurge),
    clock: 'manual',
  });
  for (const event of await before.log.readAll(0, 100_000)) {
    if (event.type !== 'ItemUpserted') continue;
    const found = before.vault.findKey(Number(event.data['key']), event.stream);
    if (found.status === 'there') bareKeys.push((found.key as SecretLifeKey).secret.export());
  }
  await before.close();
  const purge = store.runPurge();
  await new Promise((resolve) => setTimeout(resolve, 20));
  copyNow('during the purge');
  await purge;
  copyNow('after the purge');
}, 60_000);

afterAll(async () => {
  await store.close();
  removeFolder(folder);
  removeFolder(copies);
  removeFolder(backup);
});

/** A folder with the log and read models of one copy and the vault of another. */
async function foldersOf(name: string, logOf: string, vaultOf: string): Promise<string> {
  const to = join(copies, name);
  mkdirSync(to);
  for (const file of readdirSync(logOf)) {
    if (!file.startsWith('vault.db') && !file.endsWith('-shm')) copyFileSync(join(logOf, file), join(to, file));
  }
  for (const file of readdirSync(vaultOf)) {
    if ((file.startsWith('vault.db') && !file.endsWith('-shm')) || file === 'master.key') {
      copyFileSync(join(vaultOf, file), join(to, file));
    }
  }
  return to;
}

describe('the content of documents', () => {
  it('would be found by the search, in whatever form it were stored', () => {
    const eyes = join(copies, 'eyes');
    for (const [index, form] of [...FORMS.values()].entries()) {
      mkdirSync(join(eyes, String(index)), { recursive: true });
      writeFileSync(
        join(eyes, String(index), 'file'),
        Buffer.concat([Buffer.alloc(10_001, 7), form, Buffer.alloc(99)]),
      );
      expect(search(join(eyes, String(index)), FORMS).length).toBeGreaterThan(0);
    }
    for (const padding of ['', 'a', 'ab', 'abc']) {
      mkdirSync(join(eyes, `base64 ${padding}`));
      writeFileSync(
        join(eyes, `base64 ${padding}`, 'file'),
        Buffer.from(`${padding}${SECRET}${padding}`).toString('base64'),
      );
      expect(search(join(eyes, `base64 ${padding}`), FORMS).length, padding).toBeGreaterThan(0);
    }
    const named = search(beforePurge, formsOf(NAME)).map((found) => found.file.replace(/-wal$/, ''));
    expect(new Set(named)).toEqual(new Set(['log.db', 'items.v1.db']));
  });

  it('is in clear in no file: under load, before, during and after a purge, with updates, patches and deletes', () => {
    expect(places.length).toBe(8);
    const files = new Set(places.flatMap((place) => filesOf(place).map(({ file }) => file)));
    // All files that a data folder can have. Whoever adds one must make sure that it is searched.
    expect([...files].filter((file) => !file.endsWith('-shm')).toSorted()).toEqual([
      'backup.json',
      'clock',
      'epitaph.json',
      'items.v1.db',
      'items.v1.db-wal',
      'log.db',
      'log.db-wal',
      'master.key',
      'proof.db',
      'proof.db-wal',
      'proof.key',
      'purge-ledger.ndjson',
      'vault.db',
      'vault.db-wal',
    ]);
    for (const place of places) {
      expect(
        filesOf(place).some(({ bytes }) => bytes.length > 100_000),
        `${place} holds data`,
      ).toBe(true);
      expect(search(place, FORMS), place).toEqual([]);
    }
    expect(search(folder, FORMS)).toEqual([]);
  });

  it('is in clear in no file that a killed process leaves, nor after that folder was opened and used again', async () => {
    const killed = join(copies, 'killed');
    copyAsKilled(places[1]!, killed);
    expect(search(killed, FORMS)).toEqual([]);
    const again = await openEmbeddedStore({ folder: killed, clock: 'manual', automaticPurge: false, durable: false });
    await again.advanceClock(100_000);
    await again.runPurge();
    again.startRebuild('items');
    while (again.rebuildStatus('items')?.state !== 'done') await new Promise((resolve) => setTimeout(resolve, 5));
    expect(search(killed, FORMS)).toEqual([]);
    await again.close();
    expect(search(killed, FORMS)).toEqual([]);
  });
});

describe('the key of a life', () => {
  it('is in no file of the folder once it is destroyed, wrapped or not', () => {
    const after = wrappedKeys(folder);
    const destroyed = [...wrappedBefore].filter(([id, wrapped]) => !isZero(wrapped) && isZero(after.get(id)!));
    // The keys of every life with a ttl, every deleted one, and every one in the deleted container.
    expect(destroyed.length).toBeGreaterThan(LIVES);
    expect(destroyed.length).toBeLessThan(wrappedBefore.size);
    const whole = destroyed.map(([, wrapped]) => wrapped);
    // Not even a part of it.
    const parts = whole.flatMap((wrapped) => [wrapped.subarray(0, 16), wrapped.subarray(-16)]);
    expect(foundIn(beforePurge, [...whole, ...parts]).size).toBe(whole.length * 3);
    expect(foundIn(folder, [...whole, ...parts]).size).toBe(0);
  });

  it('is never in a file unwrapped', () => {
    expect(bareKeys.length).toBeGreaterThan(LIVES);
    for (const place of [beforePurge, places.at(-1)!, backup, folder]) {
      expect(foundIn(place, bareKeys).size).toBe(0);
    }
  });
});

describe('a copy of log and read models made before the purge', () => {
  it('opens with the vault of then, and with the vault of after opens nothing that was purged', async () => {
    const after = wrappedKeys(folder);
    const bodiesWith = async (name: string, vaultOf: string) => {
      const storage = await openSqliteStorage({ folder: await foldersOf(name, beforePurge, vaultOf), clock: 'manual' });
      const counts = { opened: 0, destroyed: 0 };
      const events = (await storage.log.readAll(0, 100_000)).filter((event) => event.type === 'ItemUpserted');
      const anyKey = events
        .map((event) => storage.vault.findKey(Number(event.data['key']), event.stream))
        .find((found) => found.status === 'there');
      for (const event of events) {
        const keyId = Number(event.data['key']);
        const found = storage.vault.findKey(keyId, event.stream);
        if (found.status === 'there') {
          const plain = storage.sealer.open(found.key, event.stream, event.revision, event.body!);
          expect(Buffer.from(plain).includes(SECRET)).toBe(true);
          counts.opened += 1;
        } else {
          expect(found.status).toBe('destroyed');
          expect(isZero(after.get(keyId)!)).toBe(true);
          if (anyKey?.status === 'there') {
            expect(() => storage.sealer.open(anyKey.key, event.stream, event.revision, event.body!)).toThrow(
              SealBroken,
            );
          }
          counts.destroyed += 1;
        }
      }
      await storage.close();
      return counts;
    };
    const then = await bodiesWith('log of before, vault of before', beforePurge);
    const now = await bodiesWith('log of before, vault of after', places.at(-1)!);
    expect(then.destroyed).toBe(0);
    expect(then.opened).toBeGreaterThan(LIVES * 3);
    expect(now.destroyed).toBeGreaterThan(LIVES);
    expect(now.opened).toBeGreaterThan(0);
    expect(now.opened + now.destroyed).toBe(then.opened);
  });
});
