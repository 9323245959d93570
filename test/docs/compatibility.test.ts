import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { readPage, ROOT, tableAfter } from './markdown.ts';

const PAGE = 'docs/compatibility.md';
const VERDICTS = ['works', 'differs', 'kept', 'refused'];
const tables = ['account, databases, containers', 'items', 'queries'];

interface Row {
  readonly operation: string;
  readonly verdict: string;
  readonly note: string;
  readonly checks: readonly { readonly file: string; readonly title: string }[];
}

const rows: readonly Row[] = tables.flatMap((table) =>
  tableAfter(readPage(PAGE), `checked: ${table}`).map(([operation = '', verdict = '', note = '', checks = '']) => ({
    operation,
    verdict,
    note,
    checks: checksIn(checks),
  })),
);

/** Links to tests: a file with a title. */
function checksIn(text: string): Row['checks'] {
  return Array.from(text.matchAll(/\[[^\]]+\]\((\S+) "([^"]+)"\)/g), ([, file, title]) => ({
    file: path.posix.join(path.posix.dirname(PAGE), file!),
    title: title!,
  }));
}

/** Whether a test file has a test of this title, or the .NET program a check. */
function hasTest(file: string, title: string): boolean {
  if (!existsSync(path.join(ROOT, file))) return false;
  const text = readFileSync(path.join(ROOT, file), 'utf8');
  // Titles of parameterized tests begin with a placeholder.
  return ["'", '`', '"', '%s ', '%j '].some((before) =>
    ["'", '`', '"'].some((after) => text.includes(`${before}${title}${after}`)),
  );
}

describe('each row of the page on compatibility', () => {
  test('has one of the four verdicts, and an explanation if it "differs"', () => {
    expect(rows.length).toBeGreaterThan(40);
    expect(rows.filter(({ verdict }) => !VERDICTS.includes(verdict))).toEqual([]);
    expect(rows.filter(({ verdict, note }) => verdict === 'differs' && note === '')).toEqual([]);
  });

  test('names existing tests', () => {
    expect(rows.filter(({ checks }) => checks.length === 0).map(({ operation }) => operation)).toEqual([]);
    const missing = rows.flatMap(({ operation, checks }) =>
      checks.filter(({ file, title }) => !hasTest(file, title)).map(({ file, title }) => [operation, file, title]),
    );
    expect(missing).toEqual([]);
  });
});

test('the page on compliance names existing tests', () => {
  const checks = checksIn(readPage('docs/compliance.md'));
  expect(checks.length).toBeGreaterThan(10);
  expect(checks.filter(({ file, title }) => !hasTest(file, title))).toEqual([]);
});
