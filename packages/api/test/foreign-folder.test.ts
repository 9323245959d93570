import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'epitaph-foreign-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const MASTER_KEY = Buffer.alloc(32, 3).toString('base64');

const start = async (besides: readonly string[] = []): Promise<void> => {
  const store = await openEmbeddedStore({ folder, clock: 'system', durable: false, besides });
  await store.close();
};
/** Creates a file of that name or, with a slash at its end, a folder with something in it. */
const put = (name: string, text = 'text'): void => {
  if (!name.endsWith('/')) writeFileSync(path.join(folder, name), text);
  else {
    mkdirSync(path.join(folder, name));
    writeFileSync(path.join(folder, name, 'file'), text);
  }
};

describe('A folder without a store', () => {
  const ours: readonly (readonly [name: string, text?: string])[] = [
    // Files of a first start that was killed before it created epitaph.json.
    ['lock', ''],
    ['lock-journal', ''],
    ['epitaph.json.new', '{"form'],
    // Files of a later start in a folder from which epitaph.json and all data of the store were removed.
    ['keys.json.new', '{'],
    ['master.key.new', ''],
    ['proof.key.new', ''],
    ['clock.new', '17'],
    // Files that nodes are given before their first start, or keep from an earlier one.
    ['keys.json', '{}'],
    ['master.key', `${MASTER_KEY}\n`],
    ['clock', '1767258000000'],
    // Files of file systems and desktop programs.
    ['lost+found/'],
    ['.DS_Store'],
    ['.snapshot/'],
    // Certificates and keys in PEM: for the store's TLS, and of the authority of its servers.
    ['server.pem'],
    ['cert.crt'],
    ['authority.cer'],
    ['tls.key'],
  ];

  test.each(ours.map(([name, text = 'text']) => [name, text] as const))('becomes one beside %s', async (name, text) => {
    put(name, text);
    await start();
    expect(readdirSync(folder)).toContain('log.db');
  });

  test('can become one with all of these files in it', async () => {
    for (const [name, text] of ours) put(name, text);
    await start();
    await start();
  });

  test('can become one with the files that the store’s options name', async () => {
    for (const name of ['settings.json', 'backups/', 'ledgers/']) put(name);
    const given = ['settings.json', 'backups', 'ledgers/file', '/elsewhere/file', `../${path.basename(folder)}`];
    await expect(start()).rejects.toThrow(/backups, ledgers, settings\.json\./);
    await start(given.map((name) => path.resolve(folder, name)));
    await start();
  });

  test.each([
    'notes.txt',
    'photos/',
    'package.json',
    'lock.txt',
    'new',
    'pem',
    'keys.json.old',
    // Files of a store whose log and epitaph.json are gone. A new store must not begin with its keys, nor show its items.
    'vault.db',
    'items.v1.db',
    'proof.db',
  ])('is left alone if it has %s in it, and the message says so', async (name) => {
    put(name);
    put('master.key', `${MASTER_KEY}\n`);
    const before = readdirSync(folder);
    const refused = start();
    await expect(refused).rejects.toMatchObject({ name: 'UnusableFile' });
    await expect(refused).rejects.toThrow(
      `There is no store in ${folder} (it has no epitaph.json), and it contains files that do not belong to a new one: ${path.basename(name)}. `,
    );
    expect(readdirSync(folder)).toEqual(before);
  });

  test('is described by the first names of its files if it has many', async () => {
    for (let n = 10; n < 30; n++) put(`file-${n}`);
    await expect(start()).rejects.toThrow(': file-10, file-11, file-12 and 17 more.');
  });
});

describe('A folder with a store', () => {
  test('may have anything else in it', async () => {
    await start();
    for (const name of ['notes.txt', 'photos/', 'backup.json']) put(name);
    await start();
  });

  test('that has lost its epitaph.json is reported as such, whatever else is in it', async () => {
    await start();
    rmSync(path.join(folder, 'epitaph.json'));
    put('notes.txt');
    rmSync(path.join(folder, 'lock'));
    await expect(start()).rejects.toThrow(/epitaph\.json is missing: .* contains a log/);
    expect(readFileSync(path.join(folder, 'notes.txt'), 'utf8')).toBe('text');
    expect(readdirSync(folder)).not.toContain('lock');
  });
});
