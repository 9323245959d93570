import { createHash } from 'node:crypto';
import fs, {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LedgerEntry, LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { UnusableFile } from '@epitaph/storage/sqlite/database.ts';
import { type LedgerLine, PurgeLedger, readPurgeLedger } from '@epitaph/storage/sqlite/purge-ledger.ts';
import { Disk } from '../support/disk.ts';
import { TestFolder } from './sqlite-folder.ts';

const STORE = 'b5d5a8f0-0000-4000-8000-000000000001';
const FIRST = `{"ledger":"epitaph-purge-ledger/1","store":"${STORE}"}`;
const hashOf = (line: string): string => createHash('sha256').update(line).digest('base64url');
const destroyed = (keyId: number): LedgerEntry => ({ atMs: 1_000 + keyId, keys: [[keyId, `item-Co1.hash${keyId}.0`]] });
const backup: LedgerEntry = { atMs: 2_000, backup: { id: 'b1', vaultLapsesAtMs: 3_000 } };

let folder: TestFolder;
let file: string;
let ledger: PurgeLedger | undefined;
let disk: Disk | undefined;
beforeEach(() => {
  folder = new TestFolder();
  file = folder.file('purge-ledger.ndjson');
});
afterEach(async () => {
  close();
  disk?.unmount();
  disk = undefined;
  await folder.dispose();
});
const open = (store = STORE): PurgeLedger => (ledger = PurgeLedger.open(file, { store, durable: true }));
const close = () => {
  ledger?.close();
  ledger = undefined;
};
const text = (): string => readFileSync(file, 'utf8');
/** Reads the whole ledger again. */
const read = async (): Promise<{ entries: LedgerEntry[]; head: LedgerHead; store: string }> => {
  const lines: LedgerLine[] = [];
  for await (const line of readPurgeLedger(file)) lines.push(line);
  const { head, store } = lines.at(-1)!;
  return { entries: lines.flatMap(({ entry }) => entry ?? []), head, store };
};

describe('a purge ledger', () => {
  it('begins with its store, and each later line has the hash of the line before', async () => {
    const begun = open();
    expect(text()).toBe(`${FIRST}\n`);
    expect(begun.head).toEqual({ lines: 0, hash: hashOf(FIRST) });
    begun.append([destroyed(1), backup]);
    begun.append([destroyed(2)]);
    const lines = text().trimEnd().split('\n');
    expect(lines.slice(1).map((line) => JSON.parse(line) as unknown)).toEqual(
      [destroyed(1), backup, destroyed(2)].map((entry, index) => ({
        n: index + 1,
        previous: hashOf(lines[index]!),
        ...entry,
      })),
    );
    expect(begun.head).toEqual({ lines: 3, hash: hashOf(lines[3]!) });
    expect(await read()).toEqual({ entries: [destroyed(1), backup, destroyed(2)], head: begun.head, store: STORE });
  });

  it('is continued where it ended', async () => {
    for (let keyId = 1; keyId <= 3; keyId++) {
      const { head } = open();
      expect(head.lines).toBe(keyId - 1);
      expect(head).toEqual((await read()).head);
      ledger!.append([destroyed(keyId)]);
      close();
    }
    expect((await read()).entries).toEqual([1, 2, 3].map(destroyed));
  });

  it('is continued however long it is, and however long its last line', async () => {
    const long: LedgerEntry = { atMs: 5, keys: Array.from({ length: 20_000 }, (_, key) => [key, `item-Co1.${key}.0`]) };
    for (const entries of [Array.from({ length: 4_000 }, (_, keyId) => destroyed(keyId)), [long], [destroyed(1)]]) {
      open().append(entries);
      const { head } = ledger!;
      close();
      expect(open().head).toEqual(head);
      close();
    }
    expect((await read()).head.lines).toBe(4_002);
  });

  it('is continued before a line that a crash has cut short, at whatever character', async () => {
    open().append([destroyed(1)]);
    close();
    const whole = text();
    open().append([destroyed(2)]);
    close();
    const longer = text();
    for (let size = whole.length; size < longer.length; size++) {
      writeFileSync(file, longer.slice(0, size));
      expect((await read()).entries).toEqual([destroyed(1)]);
      expect(open().head.lines).toBe(1);
      expect(text()).toBe(whole);
      close();
    }
    open().append([destroyed(3)]);
    expect((await read()).entries).toEqual([destroyed(1), destroyed(3)]);
  });

  it('is begun again if a crash left no whole line of it', () => {
    for (let size = 0; size <= FIRST.length; size++) {
      writeFileSync(file, FIRST.slice(0, size));
      expect(open().head).toEqual({ lines: 0, hash: hashOf(FIRST) });
      expect(text()).toBe(`${FIRST}\n`);
      close();
      writeFileSync(file, Buffer.alloc(size));
      expect(open().head).toEqual({ lines: 0, hash: hashOf(FIRST) });
      close();
    }
  });

  it('refuses an entry on a full disk, with no half line left, and goes on when there is room', async (context) => {
    const path = folder.file('disk');
    mkdirSync(path);
    disk = new Disk(path);
    disk.mountOrSkip(context, 1);
    file = join(path, 'purge-ledger.ndjson');
    open().append([destroyed(1)]);
    const whole = text();
    const filler = join(path, 'filler');
    for (let written = 1; written > 0;) {
      try {
        appendFileSync(filler, Buffer.alloc(4_096));
      } catch {
        written = 0;
      }
    }
    // The rest of the last page has room for the first part of the line.
    const long: LedgerEntry = { atMs: 5, keys: Array.from({ length: 1_000 }, (_, key) => [key, `item-Co1.${key}.0`]) };
    expect(() => ledger!.append([long])).toThrow(/can't be written: ENOSPC/);
    expect(text()).toBe(whole);
    rmSync(filler);
    ledger!.append([destroyed(2)]);
    expect((await read()).entries).toEqual([destroyed(1), destroyed(2)]);
  });

  it('goes on after its last line even if the rest of a failed write could not be cut off at once', async () => {
    const begun = open();
    begun.append([destroyed(1)]);
    const { writeSync, ftruncateSync } = fs;
    const failing = (cut: typeof ftruncateSync) => {
      const half = (descriptor: number, bytes: Buffer) => {
        writeSync(descriptor, bytes, 0, 10);
        throw new Error('EIO');
      };
      Object.assign(fs, { writeSync: half, ftruncateSync: cut });
      syncBuiltinESMExports();
    };
    const fail = () => {
      throw new Error('EIO, too');
    };
    try {
      failing(fail);
      expect(() => begun.append([destroyed(2)])).toThrow("can't be written: EIO");
      failing(ftruncateSync);
      expect(() => begun.append([destroyed(2)])).toThrow("can't be written: EIO");
      failing(fail);
      expect(() => begun.append([destroyed(2)])).toThrow("can't be written: EIO");
    } finally {
      Object.assign(fs, { writeSync, ftruncateSync });
      syncBuiltinESMExports();
    }
    expect(text().endsWith('\n')).toBe(false);
    begun.append([destroyed(3)]);
    expect(await read()).toMatchObject({ entries: [destroyed(1), destroyed(3)], head: begun.head });
  });

  it('refuses entries after another program has changed it in place, and goes on when the original is copied back', async () => {
    open().append([destroyed(1)]);
    const whole = text();
    for (const changed of ['', whole.slice(0, -5), `${whole}{}\n`]) {
      writeFileSync(file, changed);
      for (let tries = 0; tries < 2; tries += 1) {
        expect(() => ledger!.append([destroyed(2)])).toThrow(
          `can't be written: another program has changed it, as one does that rotates logs: it has ${changed.length} bytes, and had ${whole.length}.`,
        );
        expect(text()).toBe(changed);
      }
    }
    writeFileSync(file, whole);
    ledger!.append([destroyed(3)]);
    expect(await read()).toMatchObject({ entries: [destroyed(1), destroyed(3)], head: ledger!.head });
  });

  it('refuses entries after its file was moved, removed or replaced while it was open', () => {
    const aside = folder.file('aside');
    const ways: readonly (() => void)[] = [
      () => renameSync(file, aside),
      () => rmSync(file),
      () => {
        copyFileSync(file, aside);
        rmSync(file);
        copyFileSync(aside, file);
      },
    ];
    for (const way of ways) {
      open().append([destroyed(1)]);
      const { head } = ledger!;
      const whole = text();
      way();
      expect(() => ledger!.append([destroyed(2)])).toThrow(/can't be written: it was moved, removed or replaced/);
      expect(ledger!.head).toEqual(head);
      for (const left of [file, aside]) if (existsSync(left)) expect(readFileSync(left, 'utf8')).toBe(whole);
      close();
      for (const left of [file, aside]) rmSync(left, { force: true });
    }
  });
});

describe('a purge ledger is refused', () => {
  const refusal = async (of: () => unknown): Promise<string> => {
    try {
      await of();
    } catch (error) {
      expect(error).toBeInstanceOf(UnusableFile);
      return (error as Error).message;
    }
    throw new Error('it was taken');
  };
  beforeEach(() => {
    open().append([destroyed(1), destroyed(2), destroyed(3)]);
    close();
  });

  it('that belongs to another store, has a newer format, or is not a ledger', async () => {
    expect(await refusal(() => open('b5d5a8f0-0000-4000-8000-000000000002'))).toContain('of another store');
    const lines = text();
    writeFileSync(file, lines.replace('epitaph-purge-ledger/1', 'epitaph-purge-ledger/2'));
    for (const of of [open, read])
      expect(await refusal(of)).toContain('written by a newer Epitaph (epitaph-purge-ledger/2)');
    writeFileSync(file, 'hello\n');
    for (const of of [open, read]) expect(await refusal(of)).toContain('is not a purge ledger');
    expect(text()).toBe('hello\n');
    // Such as a key file, or the first line of another store's ledger.
    for (const other of ['hello', FIRST.replace('b5d5', 'c5d5')]) {
      writeFileSync(file, other);
      expect(await refusal(open)).toContain('is not a purge ledger');
      expect(await refusal(read)).toContain('is not a purge ledger');
      expect(text()).toBe(other);
    }
    rmSync(file);
    expect(await refusal(read)).toContain("can't be read");
    writeFileSync(file, '');
    expect(await refusal(read)).toContain('is empty');
  });

  it('whose last line is damaged', async () => {
    const begin = `{"n":4,"previous":"${'a'.repeat(43)}","atMs":1`;
    for (const last of [
      '}',
      'null',
      '{"n":4}',
      `${begin}}`,
      `${begin},"keys":[[1]]}`,
      `${begin},"keys":[["1","a"]]}`,
      `${begin},"keys":[],"more":1}`,
      `${begin},"backup":{"id":"a"}}`,
      `${begin},"backup":{"id":"a","vaultLapsesAtMs":1.5}}`,
      begin.replace('4', '"4"') + ',"keys":[]}',
    ]) {
      appendFileSync(file, `${last}\n`);
      expect(await refusal(open)).toContain('last line is damaged');
      expect(await refusal(read)).toContain('line 5 does not follow');
      writeFileSync(file, `${text().split('\n').slice(0, 4).join('\n')}\n`);
    }
  });

  it('with a line that does not follow from the one before, from the first on', async () => {
    const lines = text().trimEnd().split('\n');
    const broken: readonly (readonly string[])[] = [
      lines.with(1, lines[1]!.replace('hash1', 'hash9')),
      lines.with(2, lines[2]!.replace('"n":2', '"n":3')),
      lines.toSpliced(2, 1),
      [lines[0]!, lines[2]!, lines[1]!, lines[3]!],
    ];
    for (const [index, changed] of broken.entries()) {
      writeFileSync(file, `${changed.join('\n')}\n`);
      expect(await refusal(read)).toContain(`line ${index === 3 ? 2 : 3} does not follow`);
    }
  });
});
