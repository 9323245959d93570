import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

export const ROOT = path.resolve(import.meta.dirname, '../..');

export interface Block {
  /** The hidden comment on the line before: `runs`, `prints`, `server`, …; empty without one. */
  readonly mark: string;
  readonly language: string;
  readonly text: string;
}

/** The pages of the documentation, as paths from the root. */
export function pages(): string[] {
  return ['README.md', 'llms.txt', ...globSync('docs/**/*.md', { cwd: ROOT })].map((file) =>
    file.replaceAll(path.sep, '/'),
  );
}

export function readPage(page: string): string {
  return readFileSync(path.join(ROOT, page), 'utf8');
}

/** Fenced blocks in order, each with the mark before it. */
export function blocksOf(text: string): Block[] {
  const fences = /(?:<!-- ([^>]*?) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm;
  return Array.from(text.matchAll(fences), ([, mark, language, body]) => ({
    mark: mark ?? '',
    language: language ?? '',
    text: body ?? '',
  }));
}

/** The rows of the table that follows a hidden comment, without its head and with unchanged cells. */
export function tableAfter(text: string, mark: string): string[][] {
  const start = text.indexOf(`<!-- ${mark} -->\n`);
  if (start < 0) throw new Error(`no table is marked ${mark}`);
  const lines = text.slice(start).split('\n').slice(1);
  const rows = lines.slice(
    0,
    lines.findIndex((line) => !line.startsWith('|')),
  );
  return rows.slice(2).map((line) =>
    line
      .replaceAll(String.raw`\|`, '\u0000')
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll('\u0000', '|')),
  );
}

/** The text without fenced blocks and inline code, to search for links. */
export function prose(text: string): string {
  return text.replaceAll(/^```[\s\S]*?^```$/gm, '').replaceAll(/`[^`\n]*`/g, '');
}

/** The anchors of a page, made from its headings as GitHub does. */
export function anchorsOf(text: string): Set<string> {
  const headings = text.replaceAll(/^```[\s\S]*?^```$/gm, '').matchAll(/^#+ (.*)$/gm);
  return new Set(
    Array.from(headings, ([, title]) =>
      title!
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

/** True if the output is what the page shows; `…` on the page stands for anything within a line. */
export function matchesShown(printed: string, shown: string): boolean {
  const actual = printed.trim().split('\n');
  const expected = shown.trim().split('\n');
  return (
    actual.length === expected.length &&
    expected.every((line, index) => {
      const pattern = line.trimEnd().split('…').map(literally).join('.*');
      return new RegExp(`^${pattern}$`, 'u').test(actual[index]!.trimEnd());
    })
  );
}

function literally(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
}
