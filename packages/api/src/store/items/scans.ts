import { isInScope, type Scope } from '@epitaph/core/partition-key/scope.ts';
import { isExpired, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { turn } from '@epitaph/core/turn.ts';
import type { ContainerNumber, ItemRow, ItemScan } from '@epitaph/projections/read-model-store.ts';
import type { Items, Moment } from '../parts.ts';
import { type KeptScan, MAX_SCANNED_ROWS } from '../item-rows.ts';

/** Rows handed out at a time. Other work gets its turn between two batches. */
const BATCH = 256;
/** As {@link BATCH}, for rows that are already in memory. */
export const KEPT_BATCH = 1024;
/** The most rows fetched at a time, when fetching a few costs as much as fetching many. */
const LARGEST_FETCH = 4096;

export interface Scanned {
  readonly rows: readonly ItemRow[];
  /** Rows that were examined to find these. */
  readonly scanned: number;
  /** The birth up to which every row has been examined. */
  readonly through: number;
  /** True when no piece follows. */
  readonly isLast: boolean;
}

/** How a scan yields to other work. */
interface ScanManners {
  readonly signal?: AbortSignal | undefined;
  /** Called between batches. By default other work gets a turn. */
  readonly giveWay?: () => Promise<void>;
}

/** The row of the item whose life began at a position, visible or not. */
export async function rowBornAt(
  { readModel }: Pick<Items, 'readModel'>,
  container: ContainerNumber,
  birth: number,
): Promise<ItemRow | undefined> {
  const [row] = await readModel.allItems(container, birth - 1, 1, birth);
  return row;
}

/**
 * The visible items of a scope in order of birth, in batches that may be empty. Ends after the last item.
 *
 * @param options.wanted how many items the caller wants, if it knows
 */
export async function* scanScope(
  { within, items, marks }: Moment,
  scope: Scope & Pick<ItemScan, 'clear' | 'where'>,
  afterBirth: number,
  { wanted = BATCH, ...manners }: ScanManners & { readonly wanted?: number } = {},
): AsyncGenerator<Scanned> {
  const kept = items.rows;
  const { partitionKey, prefix, range, clear, where } = scope;
  const byIndex = partitionKey !== undefined || prefix !== undefined || clear !== undefined;
  if (!byIndex) {
    const scan = kept.scanned(within.number);
    if (scan !== undefined) {
      yield* ofKept(scan, { within, marks }, scope, afterBirth, manners);
      return;
    }
  }
  const { signal, giveWay = turn } = manners;
  const changesBefore = kept.changesOf(within.number);
  // The rows of a whole container are kept for the next scan of it, until the container changes.
  const collects = !byIndex && where === undefined && afterBirth === 0 && kept.beginCollecting(within.number);
  let whole: ItemRow[] | undefined = collects ? [] : undefined;
  try {
    // One row more than wanted shows whether another page follows.
    let size = range === undefined ? Math.min(wanted + 1, LARGEST_FETCH) : BATCH;
    for (let after = afterBirth; ;) {
      signal?.throwIfAborted();
      const fetched = await items.readModel.scanItems(within.number, {
        partitionKey,
        prefix,
        clear,
        where,
        afterBirth: after,
        limit: size,
        marks,
      });
      if (whole !== undefined) {
        whole.push(...fetched);
        if (whole.length > MAX_SCANNED_ROWS) whole = undefined;
        else if (fetched.length < size) kept.keep(within.number, whole, changesBefore);
      }
      for (let start = 0; start < fetched.length; start += BATCH) {
        const batch = fetched.slice(start, start + BATCH);
        const rows =
          range === undefined
            ? batch
            : batch.filter((row) => isInScope(within.state.definition, { range }, row.partitionKey));
        const isLast = start + BATCH >= fetched.length && fetched.length < size;
        yield { rows, scanned: batch.length, through: batch.at(-1)!.birth, isLast };
        if (isLast) return;
        // Long scans yield, so that other requests are not held up.
        await giveWay();
        signal?.throwIfAborted();
      }
      if (fetched.length < size) return;
      after = fetched.at(-1)!.birth;
      size = byIndex ? Math.min(Math.max(size, BATCH) * 4, LARGEST_FETCH) : BATCH;
    }
  } finally {
    if (collects) kept.endCollecting(within.number);
  }
}

/** As {@link scanScope}, for several scopes without common items. Returns their items merged in order of birth. */
export async function* scanScopes(
  moment: Moment,
  scopes: readonly (Scope & Pick<ItemScan, 'clear' | 'where'>)[],
  afterBirth: number,
  manners: ScanManners,
): AsyncGenerator<Scanned> {
  const heads = scopes.map((scope) => ({
    scan: scanScope(moment, scope, afterBirth, manners),
    rows: [] as readonly ItemRow[],
    at: 0,
  }));
  let left = heads;
  let scanned = 0;
  let rows: ItemRow[] = [];
  for (;;) {
    for (const head of left) {
      // The next row of the result is known only when every scan has its own next row.
      while (head.at === head.rows.length) {
        const { value, done } = await head.scan.next();
        if (done === true) break;
        scanned += value.scanned;
        head.rows = value.rows;
        head.at = 0;
      }
    }
    left = left.filter((head) => head.at < head.rows.length);
    if (left.length === 0) break;
    do {
      const first = left.reduce((one, other) => (birthOf(other) < birthOf(one) ? other : one));
      rows.push(first.rows[first.at]!);
      first.at += 1;
      if (first.at === first.rows.length) break;
    } while (rows.length < BATCH);
    if (rows.length < BATCH) continue;
    yield { rows, scanned, through: rows.at(-1)!.birth, isLast: false };
    scanned = 0;
    rows = [];
  }
  yield { rows, scanned, through: rows.at(-1)?.birth ?? afterBirth, isLast: true };
}

const birthOf = ({ rows, at }: { readonly rows: readonly ItemRow[]; readonly at: number }): number => rows[at]!.birth;

/** As {@link scanScope}, from kept rows. Some may have expired since they were read. */
async function* ofKept(
  scan: KeptScan,
  { within, marks }: Pick<Moment, 'within' | 'marks'>,
  { range }: Scope,
  afterBirth: number,
  { signal, giveWay = turn }: ScanManners,
): AsyncGenerator<Scanned> {
  const all = scan.rows;
  const isAllVisible = !hasExpired(scan, marks);
  let start = firstAfter(all, afterBirth);
  while (start < all.length) {
    const batch = all.slice(start, start + KEPT_BATCH);
    start += batch.length;
    const rows =
      isAllVisible && range === undefined
        ? batch
        : batch.filter(
            (row) =>
              !isExpired(row, marks) &&
              (range === undefined || isInScope(within.state.definition, { range }, row.partitionKey)),
          );
    yield { rows, scanned: batch.length, through: batch.at(-1)!.birth, isLast: start >= all.length };
    if (start >= all.length) return;
    await giveWay();
    signal?.throwIfAborted();
  }
}

/** Whether any row of a kept scan has expired. */
export function hasExpired({ firstToExpire }: KeptScan, marks: Watermarks): boolean {
  return firstToExpire.some((row) => isExpired(row, marks));
}

/** Index of the first row born after a position, in rows that are in order of birth. */
export function firstAfter(rows: readonly ItemRow[], birth: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (rows[middle]!.birth <= birth) low = middle + 1;
    else high = middle;
  }
  return low;
}
