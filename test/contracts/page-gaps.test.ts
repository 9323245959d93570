import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, expect, it } from 'vitest';
import { PageGaps } from '@epitaph/storage/sqlite/page-gaps.ts';

const PAGE = 4_096;
const folder = mkdtempSync(join(tmpdir(), 'epitaph-gaps-'));
afterAll(() => rmSync(folder, { recursive: true }));

const ROWS = { 2: 'inner index', 5: 'inner table', 10: 'index', 13: 'table' } as const;

/** A database with left-over bytes in the gap of each page of rows. */
function withLeftovers(name: string) {
  const file = join(folder, name);
  const database = new DatabaseSync(file);
  database.exec(`PRAGMA page_size = ${PAGE}; CREATE TABLE t (text TEXT); CREATE INDEX i ON t (text); BEGIN`);
  const insert = database.prepare('INSERT INTO t VALUES (?)');
  for (let row = 0; row < 100; row += 1) insert.run(`${row}`.padEnd(700, 'x'));
  database.exec('COMMIT');
  database.close();
  const bytes = readFileSync(file);
  const pages = bytes.length / PAGE;
  const kinds = new Set<string>();
  const gaps = Array.from({ length: pages }, (_, index) => {
    const page = bytes.subarray(index * PAGE, (index + 1) * PAGE);
    const at = index === 0 ? 100 : 0;
    const type = page[at] as keyof typeof ROWS;
    kinds.add(ROWS[type]);
    const header = at + (type === 2 || type === 5 ? 12 : 8);
    const gap = page.subarray(header + 2 * page.readUInt16BE(at + 3), page.readUInt16BE(at + 5));
    gap.fill('content');
    return gap;
  });
  // The case is worth nothing without each kind of page.
  expect([...kinds].toSorted()).toEqual(Object.values(ROWS).toSorted());
  expect(gaps.filter(({ length }) => length > 0).length).toBe(pages);
  writeFileSync(file, bytes);
  /** The pages that still have left-over bytes. Everything else must be as it was. */
  const left = (): number[] => {
    const now = readFileSync(file);
    const dirty = gaps.flatMap((gap, index) => {
      const from = gap.byteOffset - bytes.byteOffset;
      const found = now.subarray(from, from + gap.length);
      if (found.equals(gap)) return [index + 1];
      expect(found.every((byte) => byte === 0)).toBe(true);
      found.set(gap);
      return [];
    });
    expect(now.equals(bytes)).toBe(true);
    return dirty;
  };
  return { file, pages, left };
}

/** A journal with pages of these numbers. */
const journalOf = (...numbers: readonly number[]): Buffer =>
  Buffer.concat([
    Buffer.alloc(32),
    ...numbers.map((number) => {
      const frame = Buffer.alloc(24 + PAGE);
      frame.writeUInt32BE(number);
      return frame;
    }),
  ]);

it('what rows have left in the gaps of pages is overwritten, on every kind of page, and nothing else is', () => {
  const { file, left, pages } = withLeftovers('all.db');
  const gaps = new PageGaps(file, PAGE);
  expect(left().length).toBe(pages);
  gaps.wipeAll();
  expect(left()).toEqual([]);
  gaps.wipeChanged();
  gaps.close();
  const database = new DatabaseSync(file);
  expect(database.prepare('PRAGMA integrity_check').all()).toEqual([{ integrity_check: 'ok' }]);
  database.close();
});

it('it is overwritten on all pages of the journal, which may name pages that no longer exist', () => {
  const { file, left, pages } = withLeftovers('journal.db');
  const all = left();
  writeFileSync(`${file}-wal`, Buffer.concat([journalOf(2, pages + 1, 0, 1, pages), Buffer.alloc(100)]));
  const gaps = new PageGaps(file, PAGE);
  gaps.wipeChanged();
  expect(left()).toEqual(all.slice(2, -1));
  writeFileSync(`${file}-wal`, journalOf(3));
  gaps.wipeChanged();
  gaps.close();
  expect(left()).toEqual(all.slice(3, -1));
});
