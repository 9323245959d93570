import { MAX_NEIGHBOURS } from '@epitaph/query';
import type { ListPlace } from './continuation.ts';
import { isJsonObject } from './json.ts';

/**
 * A page of a list that is made anew for each, and where the next one begins. Rows that are resources are named on both
 * sides of the page's end, so that who deletes what a page has, as a clean-up does, finds all of the others on the next.
 */
export function pageOfList<Row>(
  rows: readonly Row[],
  place: ListPlace | undefined,
  size: number,
): { readonly page: readonly Row[]; readonly next?: ListPlace } {
  const rids = ridsOf(rows);
  const start = place === undefined ? 0 : startOf(rids, place);
  const page = rows.slice(start, start + size);
  const end = start + page.length;
  if (end >= rows.length) return { page };
  if (rids === undefined) return { page, next: { kind: 'skip', rows: end } };
  const before = rids.slice(Math.max(0, end - MAX_NEIGHBOURS), end);
  const after = rids.slice(end, end + MAX_NEIGHBOURS);
  return { page, next: { kind: 'skip', rows: end, near: { before, after } } };
}

function startOf(rids: readonly string[] | undefined, { rows, near }: ListPlace): number {
  if (rids === undefined || near === undefined) return rows;
  const after = near.after.map((rid) => rids.indexOf(rid)).find((index) => index >= 0);
  if (after !== undefined) return after;
  const before = near.before.map((rid) => rids.indexOf(rid)).findLast((index) => index >= 0);
  return before === undefined ? rows : before + 1;
}

/** Undefined for what a query has made of resources: a row may then come twice, and names no place. */
function ridsOf(rows: readonly unknown[]): readonly string[] | undefined {
  const rids: string[] = [];
  for (const row of rows) {
    const rid = isJsonObject(row) ? row['_rid'] : undefined;
    if (typeof rid !== 'string') return undefined;
    rids.push(rid);
  }
  return new Set(rids).size === rids.length ? rids : undefined;
}
