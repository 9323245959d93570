import { hash } from 'node:crypto';
import { jsonText, MAX_NEIGHBOURS } from '@epitaph/query';
import type { ListPlace } from './continuation.ts';
import { isJsonObject } from './json.ts';

/** Characters of a hash that names a row: 66 bits. */
const HASH_CHARACTERS = 11;
/** Characters of rows that are hashed for a page: those that a query makes of a few resources may be very much. */
const MAX_HASHED_CHARACTERS = 4 * 1024 * 1024;

/**
 * A page of a list that is made anew for each, and where the next one begins. The rows on both sides of the page's end are
 * named, so that who deletes what a page has, as a clean-up does, finds all of the others on the next.
 */
export function pageOfList<Row>(
  rows: readonly Row[],
  place: ListPlace | undefined,
  size: number,
): { readonly page: readonly Row[]; readonly next?: ListPlace } {
  const start = place === undefined ? 0 : startOf(rows, place);
  const page = rows.slice(start, start + size);
  const end = start + page.length;
  if (end >= rows.length) return { page };
  const [names] = namingsOf(rows);
  if (names === undefined) return { page, next: { kind: 'skip', rows: end } };
  const before = names.slice(Math.max(0, end - MAX_NEIGHBOURS), end);
  const after = names.slice(end, end + MAX_NEIGHBOURS);
  return { page, next: { kind: 'skip', rows: end, near: { before, after } } };
}

function startOf(rows: readonly unknown[], { rows: count, near }: ListPlace): number {
  if (near === undefined) return count;
  for (const names of namingsOf(rows)) {
    const after = near.after.map((name) => names.indexOf(name)).find((index) => index >= 0);
    if (after !== undefined) return after;
    const before = near.before.map((name) => names.indexOf(name)).findLast((index) => index >= 0);
    if (before !== undefined) return before + 1;
  }
  return count;
}

/**
 * What tells the rows of a list apart, and stays with them from page to page: rids of resources, and of what a query has
 * made of resources, as their ids, what it says. None where two are alike, which are at no place of their own.
 */
function* namingsOf(rows: readonly unknown[]): Generator<readonly string[]> {
  for (const nameOf of [ridOf, hashWithin(MAX_HASHED_CHARACTERS)]) {
    const names = namedBy(rows, nameOf);
    if (names !== undefined) yield names;
  }
}

function namedBy(
  rows: readonly unknown[],
  nameOf: (row: unknown) => string | undefined,
): readonly string[] | undefined {
  const names = new Set<string>();
  for (const row of rows) {
    const name = nameOf(row);
    if (name === undefined || names.has(name)) return undefined;
    names.add(name);
  }
  return [...names];
}

function ridOf(row: unknown): string | undefined {
  const rid = isJsonObject(row) ? row['_rid'] : undefined;
  return typeof rid === 'string' ? rid : undefined;
}

function hashWithin(maxCharacters: number): (row: unknown) => string | undefined {
  let characters = 0;
  return (row) => {
    const text = jsonText(row);
    characters += text.length;
    return characters > maxCharacters ? undefined : hash('sha256', text, 'base64url').slice(0, HASH_CHARACTERS);
  };
}
