import { hash } from 'node:crypto';
import { jsonText, MAX_NEIGHBOURS } from '@epitaph/query';
import type { ListPlace } from './continuation.ts';
import { isJsonObject } from './json.ts';

/** Characters of a hash that identifies a row: 66 bits. */
const HASH_CHARACTERS = 11;
/** Characters of rows that are hashed for a page. A query of a few resources can produce very long rows. */
const MAX_HASHED_CHARACTERS = 4 * 1024 * 1024;

/**
 * A page of a list, which is computed again for each page, and the place where the next one begins. The place names the
 * rows on both sides of the page's end. So a client that deletes the rows of each page, as a clean-up does, finds all
 * the others on the next.
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
 * Names by which the rows of a list can be told apart and found again on the next page: the rids of resources, or
 * hashes of rows that a query has made. None if two rows have the same name, because it would not give a place.
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
