import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { keysBeginningWith } from '@epitaph/core/partition-key/scope.ts';
import { isExpired, secondBounds, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { Turns } from '@epitaph/core/turn.ts';
import {
  type ItemRow,
  type ItemScan,
  type ItemsReader,
  MOST_IDS_SOUGHT,
  type PlaceInTime,
  type RowCondition,
} from '@epitaph/projections/read-model-store.ts';
import type { ClearSpan } from '@epitaph/projections/items/clear-values.ts';
import { clearBytes, type ClearIndex, scanByClear } from '../clear-scan.ts';

/** The least number of rows fetched by name at a time: finding the births of a partition costs the same for one as for many. */
const LEAST_BY_NAME = 64;
/** A container with this many items is always read by scanning the items of all containers, of which there may be fewer than births. */
const MANY_ITEMS = 20_000;
/** How many rows of all containers a scan reads before it yields to other work. This takes some milliseconds. */
const ROWS_AT_ONCE = 100_000;

/** The number of items is estimated from samples: at how many places of the log, and how many rows at each. */
const [SAMPLES, SAMPLE_ROWS] = [16, 64];

/** How often a known size of a container, or of a part of it, is used before the items are counted again. */
const TRUSTED_SIZE = 64;

/** How many items a container, or a part of one, was found to have. */
interface Size {
  readonly count: number;
  /** True if all items were counted, false if counting stopped at the limit. */
  readonly isAll: boolean;
  /** The last birth in the store when they were counted. Each item added since then has a higher one. */
  readonly lastBirth: number;
  /** How often the count may still be used before the items are counted again. */
  trusted: number;
}

const walks = new Turns();

/** Reads the current items of the read models in one SQLite file, by one connection. */
export class SqliteItemsReader implements ItemsReader {
  protected readonly database: DatabaseSync;
  readonly #read: ReturnType<typeof prepare>;
  /** The statements of scans, by the text of their additional condition. */
  readonly #scanStatements = new Map<string, ReturnType<typeof prepareScans>>();
  readonly #sizes = new GenerationCache<string, Size>(2_000);
  /** Scans of several steps that are still running. */
  readonly #scans = new Set<Promise<unknown>>();
  /** The last estimate of {@link #items}, and the last birth at that time. */
  #estimated = { items: 0, lastBirth: 0 };
  /** By container, a birth up to which it has no items. It stays valid, since new items have higher births. */
  readonly #noneUpTo = new Map<number, number>();

  constructor(database: DatabaseSync) {
    this.database = database;
    this.#read = prepare(database);
  }

  findItem(container: number, partitionKey: string, id: string): ItemRow | undefined {
    return this.#read.item.get(container, partitionKey, id) as ItemRow | undefined;
  }

  scanItems(container: number, scan: ItemScan): MaybePromise<ItemRow[]> {
    if (scan.clear === undefined) return this.#scan(container, scan);
    return this.underWay(
      scanByClear(this.#clearIndex(container), scan).then((rows) => rows ?? this.#scan(container, scan)),
    );
  }

  protected underWay<Result>(scan: Promise<Result>): Promise<Result> {
    this.#scans.add(scan);
    return scan.finally(() => this.#scans.delete(scan));
  }

  #scan(container: number, scan: ItemScan): MaybePromise<ItemRow[]> {
    const { partitionKey, prefix, marks } = scan;
    const [ts, due] = secondBounds(marks);
    const { condition, values } = conditionOf(scan.where);
    const read = this.#scanning(condition);
    if (partitionKey !== undefined || prefix !== undefined) {
      const { from, to } = keysOf(scan);
      if (this.#isLarge(container, scan)) {
        return this.inOrderOfBirth(container, scan, (after, upTo, limit) =>
          read.visibleNamed.all(...values, container, from, to, after, upTo, ts, due, limit),
        );
      }
      if (partitionKey === undefined) return this.#visibleByName(read.inPrefix, [...values, container, from, to], scan);
      return this.#visibleByName(read.inPartition, [...values, container, partitionKey], scan);
    }
    if (!this.#isLarge(container, scan)) return this.#visibleByName(read.inContainer, [...values, container], scan);
    return this.inOrderOfBirth(container, scan, (after, upTo, limit) =>
      read.visible.all(...values, container, after, upTo, ts, due, limit),
    );
  }

  #scanning(condition: string): ReturnType<typeof prepareScans> {
    let scans = this.#scanStatements.get(condition);
    if (scans === undefined) {
      scans = prepareScans(this.database, condition);
      this.#scanStatements.set(condition, scans);
    }
    return scans;
  }

  /**
   * Finds up to `limit` rows of a container by scanning the rows of all containers in order of birth. Millions of rows of other
   * containers may lie before and between them. So the first birth of the container is remembered, and the scan yields to other
   * work on the way. Births are positions in the log; there may be thousands of positions for each row.
   */
  protected inOrderOfBirth<Row = ItemRow>(
    container: number,
    { afterBirth, upToBirth = this.lastBirth(), limit }: BirthSpan,
    find: (after: number, upTo: number, limit: number) => unknown[],
  ): MaybePromise<Row[]> {
    const noneUpTo = this.#noneUpTo.get(container) ?? 0;
    const found: Row[] = [];
    let at = Math.max(afterBirth, noneUpTo);
    let isBeforeFirst = afterBirth <= noneUpTo;
    // The first step covers a span of positions, which mostly contains enough rows. Further steps cover a number of rows each, few
    // at first, since finding the end of such a step takes time too.
    let rows = ROWS_AT_ONCE / 1_000;
    let next = at + ROWS_AT_ONCE;
    const step = (): boolean => {
      const upTo = Math.min(next, upToBirth);
      if (isBeforeFirst) {
        const first = this.#read.firstBirth.get(container, at, upTo) as { birth: number } | undefined;
        if (first === undefined) at = upTo;
        else {
          isBeforeFirst = false;
          at = first.birth - 1;
          this.#noneUpTo.set(container, at);
        }
      } else {
        for (const row of find(at, upTo, limit - found.length)) found.push(row as Row);
        at = upTo;
      }
      next = at + ROWS_AT_ONCE;
      return found.length >= limit || at >= upToBirth;
    };
    // The first birth of the container is mostly known, and then a page is found in one step.
    const begins = isBeforeFirst;
    if (step() || (begins && !isBeforeFirst && step())) return found;
    const furtherStep = (): boolean => {
      rows = Math.min(rows * 10, ROWS_AT_ONCE);
      next = (this.#read.endOfPiece.get(at, rows - 1) as { birth: number } | undefined)?.birth ?? upToBirth;
      return step();
    };
    return this.underWay(this.inTurns(furtherStep).then(() => found));
  }

  protected async inTurns(step: () => boolean): Promise<void> {
    do await walks.next();
    while (!step());
  }

  protected lastBirth(): number {
    return (this.#read.lastBirth.get() as { birth: number | null }).birth ?? 0;
  }

  /**
   * True if a page of the container, or of the part of it, is found faster by scanning the items of all containers than by the
   * index of names. The index yields all births of the part, which must be sorted for each page.
   */
  #isLarge(container: number, { limit, ...part }: Pick<ItemScan, 'limit' | 'partitionKey' | 'prefix'>): boolean {
    // At this size both ways cost the same, if the items are spread evenly: the index sorts `many` births for a page, and a scan
    // passes `many` items of all containers.
    const many = Math.ceil(Math.sqrt(Math.max(limit, LEAST_BY_NAME) * this.#items()));
    if (part.partitionKey === undefined && part.prefix === undefined) {
      return this.has(container, Math.min(many, MANY_ITEMS));
    }
    const { from, to } = keysOf(part);
    return this.#hasMany(`${container} ${from} ${to}`, many, () =>
      this.#read.countNamed.get(container, from, to, many),
    );
  }

  /** Estimates the number of items of all containers, from the distances between their births at some places of the log. */
  #items(): number {
    const lastBirth = this.lastBirth();
    // An estimate is used until the log is a tenth longer.
    if (lastBirth <= this.#estimated.lastBirth * 1.1) return this.#estimated.items;
    const share = lastBirth / SAMPLES;
    let items = 0;
    for (let start = 0; start < lastBirth; start += share) {
      const end = this.#read.endOfPiece.get(start, SAMPLE_ROWS - 1) as { birth: number } | undefined;
      items += end === undefined ? SAMPLE_ROWS : (share * SAMPLE_ROWS) / (end.birth - start);
    }
    this.#estimated = { items, lastBirth };
    return items;
  }

  protected has(container: number, items: number): boolean {
    return this.#hasMany(`${container}`, items, () => this.#read.countUpTo.get(container, items));
  }

  /**
   * Whether the part has at least this many items. They are not counted again for each page, since that would take as long as the page
   * itself. So the answer may be outdated after many items have gone; then a page takes longer, but is still correct.
   */
  #hasMany(part: string, items: number, countUpToItems: () => unknown): boolean {
    const known = this.#sizes.get(part);
    const lastBirth = this.lastBirth();
    if (known?.isAll === true && known.count + lastBirth - known.lastBirth < items) return false;
    if (known !== undefined && known.count >= items && known.trusted > 0) {
      known.trusted -= 1;
      return true;
    }
    const { count } = countUpToItems() as { count: number };
    this.#sizes.set(part, { count, isAll: count < items, lastBirth, trusted: TRUSTED_SIZE });
    return count >= items;
  }

  /** Finds the births in order by the index of names alone, and then checks for each row whether it is expired. */
  #visibleByName(
    statement: StatementSync,
    keys: (string | number)[],
    { afterBirth, limit, marks }: ItemScan,
  ): ItemRow[] {
    const visible: ItemRow[] = [];
    const size = Math.max(limit, LEAST_BY_NAME);
    let after = afterBirth;
    while (visible.length < limit) {
      const rows = statement.all(...keys, after, size) as unknown as ItemRow[];
      for (const row of rows) if (visible.length < limit && !isExpired(row, marks)) visible.push(row);
      const last = rows.at(-1);
      if (last === undefined || rows.length < size) break;
      after = last.birth;
    }
    return visible;
  }

  #clearIndex(container: number): ClearIndex {
    const sql = this.#read;
    const spanOf = ({ path, from, to }: ClearSpan) => [container, path, clearBytes(from), clearBytes(to)] as const;
    const birthsOf = (rows: unknown) => (rows as { birth: number }[]).map(({ birth }) => birth);
    return {
      count: (condition, limit) => {
        let count = 0;
        for (const span of condition) {
          if (count < limit) count += (sql.countClear.get(...spanOf(span), limit - count) as { count: number }).count;
        }
        return count;
      },
      births: (condition, after) =>
        this.#atOnce(() => condition.flatMap((span) => birthsOf(sql.clearInSpan.all(...spanOf(span), after)))),
      firstBirths: (points, after, limit) =>
        this.#atOnce(() =>
          points.map(({ path, from }) =>
            birthsOf(sql.clearAtPoint.all(container, path, clearBytes(from), after, limit)),
          ),
        ),
      countNamed: ({ partitionKey, prefix }, limit) => {
        const { from, to } = keysOf({ partitionKey, prefix });
        return (sql.countNamed.get(container, from, to, limit) as { count: number }).count;
      },
      among: (births, scan) => this.#visibleAmong(births, scan),
    };
  }

  /** Reads in one transaction. Otherwise an item whose value changes between two statements might be found by neither of them. */
  #atOnce<Result>(read: () => Result): Result {
    if (this.database.isTransaction) return read();
    this.database.exec('BEGIN');
    try {
      return read();
    } finally {
      if (this.database.isTransaction) this.database.exec('COMMIT');
    }
  }

  #visibleAmong(births: readonly number[], { partitionKey, prefix, limit, marks }: ItemScan): ItemRow[] {
    const beginning = prefix === undefined ? '' : keysBeginningWith(prefix).from;
    const visible: ItemRow[] = [];
    const size = Math.max(limit, LEAST_BY_NAME);
    for (let start = 0; start < births.length && visible.length < limit; start += size) {
      const some = JSON.stringify(births.slice(start, start + size));
      for (const row of this.#read.born.all(some) as unknown as ItemRow[]) {
        if (visible.length === limit) break;
        if (isExpired(row, marks) || !row.partitionKey.startsWith(beginning)) continue;
        if (partitionKey === undefined || row.partitionKey === partitionKey) visible.push(row);
      }
    }
    return visible;
  }

  countVisible(container: number, marks: Watermarks): number {
    const [ts, due] = secondBounds(marks);
    return (this.#read.countVisible.get(container, ts, container, due) as { count: number }).count;
  }

  tsAt(container: number, { after, upTo, behind, from }: PlaceInTime): number | undefined {
    const statement = from === 'oldest' ? this.#read.tsFromOldest : this.#read.tsFromNewest;
    return (statement.get(container, after, upTo, behind) as { ts: number } | undefined)?.ts;
  }

  allItems(
    container: number,
    afterBirth: number,
    limit: number,
    upToBirth = this.lastBirth(),
  ): MaybePromise<ItemRow[]> {
    const span = { afterBirth, upToBirth, limit };
    // A short span of births is always scanned directly, whatever the container's size.
    if (upToBirth - afterBirth > LEAST_BY_NAME && !this.#isLarge(container, span)) {
      const rows = this.#scanning(ANY).inContainer.all(container, afterBirth, limit) as unknown as ItemRow[];
      return rows.filter(({ birth }) => birth <= upToBirth);
    }
    return this.inOrderOfBirth(container, span, (after, upTo, most) =>
      this.#read.all.all(container, after, upTo, most),
    );
  }

  /** Resolves when the scans of several steps are done. */
  protected async scansDone(): Promise<void> {
    await Promise.allSettled(this.#scans);
  }
}

interface BirthSpan extends Pick<ItemScan, 'afterBirth' | 'limit'> {
  /** Up to the last birth by default. */
  readonly upToBirth?: number;
}

/** The range of the scan's partition keys: from `from`, before `to`. */
function keysOf({ partitionKey, prefix = '' }: Pick<ItemScan, 'partitionKey' | 'prefix'>): {
  readonly from: string;
  readonly to: string;
} {
  return partitionKey === undefined ? keysBeginningWith(prefix) : { from: partitionKey, to: `${partitionKey}\0` };
}

/** The columns of an item's row. */
export const ITEM = 'birth, container, partition_key AS partitionKey, id, life, position, ts, ttl, key';

const tsInOrder = (order: string) =>
  `SELECT ts FROM items WHERE container = ? AND due IS NULL AND ts > ? AND ts <= ? ORDER BY ${order} LIMIT 1 OFFSET ?`;

/** Statements exist for these numbers of ids. */
const ID_PLACES = [1, 16, MOST_IDS_SOUGHT];

/** The condition of a scan that takes every row. */
const ANY = '';

/** A condition on rows as SQL, to be put before a scan's own conditions, and its values. */
function conditionOf({ ids = [], minTs, maxTs }: RowCondition = {}): {
  readonly condition: string;
  readonly values: (string | number)[];
} {
  const conditions: string[] = [];
  const values: (string | number)[] = [];
  if (ids.length > 0) {
    // Places that are left over repeat the last id, so that a few statements serve every number of ids.
    const places = ID_PLACES.find((number) => number >= ids.length)!;
    conditions.push(
      places === 1 ? 'id = ? AND' : `id IN (${Array.from({ length: places }, () => '?').join(', ')}) AND`,
    );
    values.push(...Array.from({ length: places }, (_, index) => ids[Math.min(index, ids.length - 1)]!));
  }
  if (minTs !== undefined) {
    conditions.push('ts >= ? AND');
    values.push(minTs);
  }
  if (maxTs !== undefined) {
    conditions.push('ts <= ? AND');
    values.push(maxTs);
  }
  return { condition: conditions.length === 0 ? ANY : conditions.join(' '), values };
}

/** Scans of the rows that satisfy a condition. It comes first in the statements, since it excludes most rows. */
function prepareScans(database: DatabaseSync, condition: string) {
  return {
    // These read by the primary key, so that rows come in order of birth without a sort.
    visible: database.prepare(
      `SELECT ${ITEM} FROM items NOT INDEXED WHERE ${condition} container = ? AND birth > ? AND birth <= ?
         AND ((due IS NULL AND ts > ?) OR due > ?) ORDER BY birth LIMIT ?`,
    ),
    visibleNamed: database.prepare(
      `SELECT ${ITEM} FROM items NOT INDEXED WHERE ${condition} container = ? AND partition_key >= ? AND partition_key < ?
         AND birth > ? AND birth <= ? AND ((due IS NULL AND ts > ?) OR due > ?) ORDER BY birth LIMIT ?`,
    ),
    // The index contains the births too. So only numbers are sorted, and only the wanted rows are fetched.
    inPartition: database.prepare(
      `SELECT ${ITEM} FROM items WHERE birth IN
         (SELECT birth FROM items INDEXED BY items_by_name
          WHERE ${condition} container = ? AND partition_key = ? AND birth > ? ORDER BY birth LIMIT ?) ORDER BY birth`,
    ),
    inPrefix: database.prepare(
      `SELECT ${ITEM} FROM items WHERE birth IN
         (SELECT birth FROM items INDEXED BY items_by_name
          WHERE ${condition} container = ? AND partition_key >= ? AND partition_key < ? AND birth > ?
          ORDER BY birth LIMIT ?) ORDER BY birth`,
    ),
    inContainer: database.prepare(
      `SELECT ${ITEM} FROM items WHERE birth IN
         (SELECT birth FROM items INDEXED BY items_by_name
          WHERE ${condition} container = ? AND birth > ? ORDER BY birth LIMIT ?) ORDER BY birth`,
    ),
  } satisfies Record<string, StatementSync>;
}

function prepare(database: DatabaseSync) {
  return {
    item: database.prepare(`SELECT ${ITEM} FROM items WHERE container = ? AND partition_key = ? AND id = ?`),
    firstBirth: database.prepare(
      'SELECT birth FROM items NOT INDEXED WHERE container = ? AND birth > ? AND birth <= ? ORDER BY birth LIMIT 1',
    ),
    lastBirth: database.prepare('SELECT max(birth) AS birth FROM items'),
    endOfPiece: database.prepare('SELECT birth FROM items NOT INDEXED WHERE birth > ? ORDER BY birth LIMIT 1 OFFSET ?'),
    countUpTo: database.prepare(
      `SELECT count(*) AS count FROM (SELECT 1 FROM items INDEXED BY items_by_name WHERE container = ? LIMIT ?)`,
    ),
    countClear: database.prepare(
      `SELECT count(*) AS count FROM (SELECT 1 FROM item_clear INDEXED BY item_clear_by_value
         WHERE container = ? AND path = ? AND value >= ? AND value <= ? LIMIT ?)`,
    ),
    clearInSpan: database.prepare(
      `SELECT birth FROM item_clear INDEXED BY item_clear_by_value
       WHERE container = ? AND path = ? AND value >= ? AND value <= ? AND birth > ?`,
    ),
    clearAtPoint: database.prepare(
      `SELECT birth FROM item_clear INDEXED BY item_clear_by_value
       WHERE container = ? AND path = ? AND value = ? AND birth > ? ORDER BY birth LIMIT ?`,
    ),
    countNamed: database.prepare(
      `SELECT count(*) AS count FROM (SELECT 1 FROM items INDEXED BY items_by_name
         WHERE container = ? AND partition_key >= ? AND partition_key < ? LIMIT ?)`,
    ),
    born: database.prepare(`SELECT ${ITEM} FROM items WHERE birth IN (SELECT value FROM json_each(?)) ORDER BY birth`),
    countVisible: database.prepare(
      `SELECT (SELECT count(*) FROM items WHERE container = ? AND due IS NULL AND ts > ?)
            + (SELECT count(*) FROM items WHERE container = ? AND due > ?) AS count`,
    ),
    tsFromOldest: database.prepare(tsInOrder('ts')),
    tsFromNewest: database.prepare(tsInOrder('ts DESC')),
    all: database.prepare(
      `SELECT ${ITEM} FROM items NOT INDEXED WHERE container = ? AND birth > ? AND birth <= ? ORDER BY birth LIMIT ?`,
    ),
  } satisfies Record<string, StatementSync>;
}
