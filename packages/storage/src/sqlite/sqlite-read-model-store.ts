import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { TimeSpan } from '@epitaph/core/history/preview.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { keysBeginningWith } from '@epitaph/core/partition-key/scope.ts';
import { isExpired, secondBounds, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { Turns } from '@epitaph/core/turn.ts';
import type { PurgeRunState } from '@epitaph/projections/purge/state.ts';
import { type ContainerEntry, containersOf } from '@epitaph/projections/catalog/container-rows.ts';
import {
  type CatalogEntry,
  type DisappearanceRow,
  type EndedRow,
  type ItemRow,
  type ItemScan,
  type LifeName,
  type LogMark,
  MOST_IDS_SOUGHT,
  type OverdueStatistics,
  type PlaceInTime,
  type ReadModelChange,
  type ReadModelSnapshot,
  type ReadModelStore,
  type RowCondition,
  type UnrecordedEnd,
} from '@epitaph/projections/read-model-store.ts';
import { rowName } from '@epitaph/projections/items/row.ts';
import type { ClearCopy, ClearSpan } from '@epitaph/projections/items/clear-values.ts';
import { BEFORE_CLEAR_COPIES, clearBytes, type ClearIndex, fromClearBytes, scanByClear } from '../clear-scan.ts';
import { containersIn } from '../container-scan.ts';
import { isDueOtherwise, LAST_DUE, NEVER_DUE } from '../due.ts';
import { NameFilter, type NamesInPieces } from './name-filter.ts';
import { toApplyJob } from './read-model-writer-core.ts';
import { SqliteReadModelSnapshot } from './read-model-snapshot.ts';
import type { Writer } from './writer.ts';

/** The least number of rows fetched by name at a time: finding the births of a partition costs the same for one as for many. */
const LEAST_BY_NAME = 64;
/** A container with fewer items is read through the index of names, not by scanning the items of all containers. */
const FEW_ITEMS = 1_000;
/** A container with this many items is always read by scanning the items of all containers, of which there may be fewer than births. */
const MANY_ITEMS = 20_000;
/** How many rows of all containers a scan reads before it yields to other work. This takes some milliseconds. */
const ROWS_AT_ONCE = 100_000;
/** How many ended lives are read before yielding to other work if some ends are not recorded yet. This takes about as long. */
const ENDED_AT_ONCE = 5_000;

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

/** The name filter is filled bit by bit: each new item causes so many more names to be read, until all are. */
const NAMES_AT_ONCE = 32;

const nameOf = ({ container, partitionKey, id }: Omit<LifeName, 'life'>): string =>
  rowName(container, partitionKey, id);

/**
 * The names of rows, page by page; `read` returns the page after a row. The first page that is not full is the last one, since
 * new rows could be added forever.
 */
function* namesOf<Row extends LifeName>(read: (last: Row | undefined) => object[]): NamesInPieces {
  let rows: Row[] = [];
  do {
    rows = read(rows.at(-1)) as Row[];
    yield rows.map(nameOf);
  } while (rows.length === NAMES_AT_ONCE);
}

const walks = new Turns();

/** One version of the read models in one SQLite file. The writer's thread writes it, this thread reads it. */
export class SqliteReadModelStore implements ReadModelStore {
  readonly #writer: Writer;
  readonly #database: DatabaseSync;
  readonly #read: ReturnType<typeof prepare>;
  /** The statements of scans, by the text of their additional condition. */
  readonly #scanStatements = new Map<string, ReturnType<typeof prepareScans>>();
  readonly #sizes = new GenerationCache<string, Size>(2_000);
  /** Scans of several steps that are still running. */
  readonly #scans = new Set<Promise<unknown>>();
  /** The last estimate of {@link #items}, and the last birth at that time. */
  #estimated = { items: 0, lastBirth: 0 };
  /** The names of all present items, and of ended lives that have not been purged. */
  readonly #names = new NameFilter(() => this.#readNames());
  /** By container, a birth up to which it has no items. It stays valid, since new items have higher births. */
  readonly #noneUpTo = new Map<number, number>();

  constructor(writer: Writer, database: DatabaseSync) {
    this.#writer = writer;
    this.#database = database;
    this.#read = prepare(database);
  }

  async apply(
    changes: readonly ReadModelChange[],
    checkpoint: number,
    _after?: number,
    despiteLoss = false,
  ): Promise<void> {
    for (const change of changes) {
      if (change.kind === 'item-written') this.#names.add(nameOf(change));
      else if (change.kind === 'item-ended') this.#names.add(nameOf(change.row));
    }
    await this.#writer.submit(toApplyJob(changes, checkpoint, despiteLoss));
  }

  checkpoint(): number {
    const row = this.#read.checkpoint.get() as { position: number } | undefined;
    invariant(row !== undefined, 'the read models say how far they have come');
    return row.position;
  }

  countPurged(): number {
    return (this.#read.checkpoint.get() as { purged: number }).purged;
  }

  logMarkBefore(atMs: number): number {
    return this.#lastLogMark(atMs)?.position ?? 0;
  }

  lastLogMark(): LogMark | undefined {
    return this.#lastLogMark(Number.MAX_SAFE_INTEGER);
  }

  #lastLogMark(before: number): LogMark | undefined {
    return this.#read.lastLogMark.get(before) as LogMark | undefined;
  }

  databases(): { number: number; state: DatabaseState }[] {
    return states<DatabaseState>(this.#read.databases);
  }

  containers(): readonly { readonly number: number; readonly state: ContainerState }[] {
    const entries = this.#read.containerEntries.all() as unknown as (ContainerEntry & { number: number })[];
    return containersOf(this.#read.containers.all() as { number: number; state: string }[], entries);
  }

  catalogEntries(): CatalogEntry[] {
    return (this.#read.entries.all() as { number: number; kind: string; state: string }[]).map(
      (row) => ({ ...row, state: JSON.parse(row.state) as unknown }) as CatalogEntry,
    );
  }

  findItem(container: number, partitionKey: string, id: string): ItemRow | undefined {
    return this.#read.item.get(container, partitionKey, id) as ItemRow | undefined;
  }

  isUnknown(container: number, partitionKey: string, id: string): boolean {
    return this.#names.isNew(rowName(container, partitionKey, id));
  }

  lastLife(container: number, partitionKey: string, id: string): number | undefined {
    if (this.isUnknown(container, partitionKey, id)) return undefined;
    const name = [container, partitionKey, id];
    return (this.#read.lastLife.get(...name, ...name) as { life: number | null }).life ?? undefined;
  }

  /** Reads the items first: an item that ends in the meantime is then found among the ended lives. */
  *#readNames(): NamesInPieces {
    const { namesOfItems, namesOfEnded } = this.#read;
    yield* namesOf<LifeName & { birth: number }>((last) => namesOfItems.all(last?.birth ?? 0, NAMES_AT_ONCE));
    const first: LifeName = { container: 0, partitionKey: '', id: '', life: 0 };
    yield* namesOf<LifeName>(({ container, partitionKey, id, life } = first) =>
      namesOfEnded.all(container, partitionKey, id, life, NAMES_AT_ONCE),
    );
  }

  scanItems(container: number, scan: ItemScan): MaybePromise<ItemRow[]> {
    if (scan.clear === undefined) return this.#scan(container, scan);
    return this.#underWay(
      scanByClear(this.#clearIndex(container), scan).then((rows) => rows ?? this.#scan(container, scan)),
    );
  }

  #underWay<Result>(scan: Promise<Result>): Promise<Result> {
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
        return this.#inOrderOfBirth(container, scan, (after, upTo, limit) =>
          read.visibleNamed.all(...values, container, from, to, after, upTo, ts, due, limit),
        );
      }
      if (partitionKey === undefined) return this.#visibleByName(read.inPrefix, [...values, container, from, to], scan);
      return this.#visibleByName(read.inPartition, [...values, container, partitionKey], scan);
    }
    if (!this.#isLarge(container, scan)) return this.#visibleByName(read.inContainer, [...values, container], scan);
    return this.#inOrderOfBirth(container, scan, (after, upTo, limit) =>
      read.visible.all(...values, container, after, upTo, ts, due, limit),
    );
  }

  #scanning(condition: string): ReturnType<typeof prepareScans> {
    let scans = this.#scanStatements.get(condition);
    if (scans === undefined) {
      scans = prepareScans(this.#database, condition);
      this.#scanStatements.set(condition, scans);
    }
    return scans;
  }

  /**
   * Finds up to `limit` rows of a container by scanning the rows of all containers in order of birth. Millions of rows of other
   * containers may lie before and between them. So the first birth of the container is remembered, and the scan yields to other
   * work on the way. Births are positions in the log; there may be thousands of positions for each row.
   */
  #inOrderOfBirth<Row = ItemRow>(
    container: number,
    { afterBirth, upToBirth = this.#lastBirth(), limit }: BirthSpan,
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
    return this.#underWay(this.#inTurns(furtherStep).then(() => found));
  }

  async #inTurns(step: () => boolean): Promise<void> {
    do await walks.next();
    while (!step());
  }

  #lastBirth(): number {
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
      return this.#has(container, Math.min(many, MANY_ITEMS));
    }
    const { from, to } = keysOf(part);
    return this.#hasMany(`${container} ${from} ${to}`, many, () =>
      this.#read.countNamed.get(container, from, to, many),
    );
  }

  /** Estimates the number of items of all containers, from the distances between their births at some places of the log. */
  #items(): number {
    const lastBirth = this.#lastBirth();
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

  #has(container: number, items: number): boolean {
    return this.#hasMany(`${container}`, items, () => this.#read.countUpTo.get(container, items));
  }

  /**
   * Whether the part has at least so many items. They are not counted again for each page, since that would take as long as the
   * page itself. So the answer may be outdated after many items have gone; then a page takes longer, but is still correct.
   */
  #hasMany(part: string, items: number, countUpToItems: () => unknown): boolean {
    const known = this.#sizes.get(part);
    const lastBirth = this.#lastBirth();
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
    this.#database.exec('BEGIN');
    try {
      return read();
    } finally {
      if (this.#database.isTransaction) this.#database.exec('COMMIT');
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
    upToBirth = this.#lastBirth(),
  ): MaybePromise<ItemRow[]> {
    const span = { afterBirth, upToBirth, limit };
    // A short span of births is always scanned directly, whatever the container's size.
    if (upToBirth - afterBirth > LEAST_BY_NAME && !this.#isLarge(container, span)) {
      const rows = this.#scanning(ANY).inContainer.all(container, afterBirth, limit) as unknown as ItemRow[];
      return rows.filter(({ birth }) => birth <= upToBirth);
    }
    return this.#inOrderOfBirth(container, span, (after, upTo, most) =>
      this.#read.all.all(container, after, upTo, most),
    );
  }

  dueOtherwise(container: number, afterBirth: number, upToBirth: number): MaybePromise<number[]> {
    const birthsOf = (rows: readonly { readonly birth: number }[]) => rows.map(({ birth }) => birth);
    if (!this.#has(container, FEW_ITEMS)) {
      const rows = this.#read.dueOtherwiseOfFew.all(container, afterBirth, upToBirth);
      return birthsOf(rows as { birth: number }[]);
    }
    const span = { afterBirth, upToBirth: Math.min(upToBirth, this.#lastBirth()), limit: Number.POSITIVE_INFINITY };
    const found = this.#inOrderOfBirth<{ birth: number }>(container, span, (after, upTo) =>
      this.#read.dueOtherwise.all(container, after, upTo),
    );
    return found instanceof Promise ? found.then(birthsOf) : birthsOf(found);
  }

  countItems(container: number): number {
    return (this.#read.count.get(container) as { count: number }).count;
  }

  containersWithContent(): number[] {
    return (this.#read.withContent.all() as { container: number }[]).map(({ container }) => container);
  }

  clearCopies(container: number, after: ClearCopy | undefined, limit: number): ClearCopy[] {
    const { path, value, birth } = after ?? BEFORE_CLEAR_COPIES;
    const rows = this.#read.clearCopies.all(container, path, clearBytes(value), birth, limit);
    return (rows as unknown as (Omit<ClearCopy, 'value'> & { value: Uint8Array })[]).map((row) => ({
      ...row,
      value: fromClearBytes(row.value),
    }));
  }

  overdueItems(container: number, marks: Watermarks, limit: number): ItemRow[] {
    const [ts, due] = secondBounds(marks);
    const byDefault = this.#read.overdueByDefault.all(container, ts, limit) as unknown as ItemRow[];
    if (byDefault.length === limit) return byDefault;
    const byOwn = this.#read.overdueByOwn.all(container, due, limit - byDefault.length) as unknown as ItemRow[];
    return [...byDefault, ...byOwn];
  }

  overdueStatistics(container: number, marks: Watermarks): OverdueStatistics {
    const [ts, due] = secondBounds(marks);
    return this.#read.overdueStatistics.get(container, ts, due) as unknown as OverdueStatistics;
  }

  nextDeadlines(container: number, marks: Watermarks): { ts: number | null; due: number | null } {
    const [ts, due] = secondBounds(marks);
    const next = this.#read.nextDeadlines.get(container, ts, container, due) as {
      ts: number | null;
      due: number | null;
    };
    return { ts: next.ts, due: next.due === NEVER_DUE ? null : next.due };
  }

  countByTimes(container: number, spans: readonly TimeSpan[]): { items: number; oldestTs: number | null }[] {
    return spans.map(({ by, after, upTo, writtenAfter = -1 }) => {
      const statement = by === 'default' ? this.#read.countByTs : this.#read.countByDue;
      return statement.get(container, after, Math.min(upTo, LAST_DUE), writtenAfter) as {
        items: number;
        oldestTs: number | null;
      };
    });
  }

  itemsByTimes(container: number, { by, after, upTo, writtenAfter = -1 }: TimeSpan, limit: number): ItemRow[] {
    const statement = by === 'default' ? this.#read.itemsByTs : this.#read.itemsByDue;
    return statement.all(container, after, Math.min(upTo, LAST_DUE), writtenAfter, limit) as unknown as ItemRow[];
  }

  countOddTtls(container: number, marks: Watermarks): { never: number; unreadable: number } {
    const [ts] = secondBounds(marks);
    const counted = this.#read.countOddTtls.get(container, NEVER_DUE, container, container, ts);
    return counted as { never: number; unreadable: number };
  }

  unrecordedEnds(container: number, limit: number): UnrecordedEnd[] {
    return this.#read.unrecorded.all(container, limit) as unknown as UnrecordedEnd[];
  }

  endedLives(
    container: number,
    { byPolicyStart, endedAtOrBeforeMs, after, limit }: Parameters<ReadModelStore['endedLives']>[1],
  ): MaybePromise<EndedRow[]> {
    const { ended, endedPlace, anyUnrecorded } = this.#read;
    const found: EndedRow[] = [];
    let at: EndedPlace = after ?? { endedAtMs: -1, position: -1 };
    const takeUpTo = (upTo: EndedPlace): void => {
      const rows = ended.all(container, byPolicyStart ? 1 : 0, ...placed(at), ...placed(upTo), limit - found.length);
      for (const row of rows as unknown as (Omit<EndedRow, 'byPolicyStart'> & { byPolicyStart: number })[]) {
        found.push({ ...row, byPolicyStart: row.byPolicyStart === 1 });
      }
    };
    const last: EndedPlace = { endedAtMs: endedAtOrBeforeMs, position: Number.MAX_SAFE_INTEGER };
    if (anyUnrecorded.get(container) === undefined) {
      takeUpTo(last);
      return found;
    }
    // A million unrecorded ends may lie before and between the wanted lives, so this goes in steps.
    const step = (): boolean => {
      const span = [container, byPolicyStart ? 1 : 0, endedAtOrBeforeMs, ...placed(at), ENDED_AT_ONCE - 1] as const;
      const upTo = endedPlace.get(...span) as EndedPlace | undefined;
      takeUpTo(upTo ?? last);
      if (upTo === undefined) return true;
      at = upTo;
      return found.length >= limit;
    };
    if (step()) return found;
    return this.#underWay(this.#inTurns(step).then(() => found));
  }

  countEnded(container: number, byPolicyStart: boolean, endedAtOrBeforeMs: number): number {
    return (this.#read.countEnded.get(container, byPolicyStart ? 1 : 0, endedAtOrBeforeMs) as { count: number }).count;
  }

  disappearances(
    container: number,
    { fromMs, toMs, cause: given, after, limit }: Parameters<ReadModelStore['disappearances']>[1],
  ): DisappearanceRow[] {
    const { leftAt, leftAfter } = this.#read;
    const cause = given ?? null;
    return pageInTime(
      { fromMs, toMs, after: after && [after.atMs, after.position], limit },
      {
        at: (atMs, position, most) => leftAt.all(container, atMs, position, cause, cause, most),
        behind: (afterMs, beforeMs, most) => leftAfter.all(container, afterMs, beforeMs, cause, cause, most),
      },
    );
  }

  erasures(
    container: number,
    { fromMs, toMs, after, limit }: Parameters<ReadModelStore['erasures']>[1],
  ): DisappearanceRow[] {
    const { erasedAt, erasedAfter } = this.#read;
    return pageInTime(
      { fromMs, toMs, after: after && [after.purgedAtMs, after.position], limit },
      {
        at: (atMs, position, most) => erasedAt.all(container, atMs, position, most),
        behind: (afterMs, beforeMs, most) => erasedAfter.all(container, afterMs, beforeMs, most),
      },
    );
  }

  countErased(container: number, partitionKey?: string): number {
    const { countErased, countErasedInPartition } = this.#read;
    const row =
      partitionKey === undefined ? countErased.get(container) : countErasedInPartition.get(container, partitionKey);
    return (row as { count: number }).count;
  }

  openPurgeRuns(): { stream: string; state: PurgeRunState }[] {
    return (this.#read.openRuns.all() as { stream: string; state: string }[]).map(({ stream, state }) => ({
      stream,
      state: JSON.parse(state) as PurgeRunState,
    }));
  }

  purgeRuns(afterPosition: number, limit: number): { stream: string; position: number }[] {
    return this.#read.runs.all(afterPosition, limit) as { stream: string; position: number }[];
  }

  async snapshot(): Promise<ReadModelSnapshot> {
    return new SqliteReadModelSnapshot(this.#database.location()!);
  }

  async close(): Promise<void> {
    await this.#writer.idle();
    // Scans yield between their steps, and another version of the read models may have been put to use meanwhile.
    await Promise.allSettled(this.#scans);
    if (this.#database.isOpen) this.#database.close();
    await this.#writer.close();
  }
}

/**
 * A page of a period's rows in order of time and position, after a given row. The remaining rows of that row's instant are read
 * by a statement of their own: for a condition on both columns, SQLite uses only the time in the index, and a million rows may
 * have the same time.
 */
function pageInTime<Row>(
  page: { fromMs: number; toMs: number; after: readonly [atMs: number, position: number] | undefined; limit: number },
  rows: {
    at: (atMs: number, afterPosition: number, limit: number) => unknown[];
    behind: (afterMs: number, beforeMs: number, limit: number) => unknown[];
  },
): Row[] {
  const { fromMs, toMs, after, limit } = page;
  if (after === undefined || after[0] < fromMs) return rows.behind(fromMs - 1, toMs, limit) as Row[];
  const found = after[0] < toMs ? rows.at(...after, limit) : [];
  if (found.length < limit) found.push(...rows.behind(after[0], toMs, limit - found.length));
  return found as Row[];
}

interface BirthSpan extends Pick<ItemScan, 'afterBirth' | 'limit'> {
  /** Up to the last birth by default. */
  readonly upToBirth?: number;
}

/** A place in the order in which lives have ended. */
type EndedPlace = Pick<EndedRow, 'endedAtMs' | 'position'>;

const placed = ({ endedAtMs, position }: EndedPlace): readonly [number, number] => [endedAtMs, position];

/** The range of the scan's partition keys: from `from`, before `to`. */
function keysOf({ partitionKey, prefix = '' }: Pick<ItemScan, 'partitionKey' | 'prefix'>): {
  readonly from: string;
  readonly to: string;
} {
  return partitionKey === undefined ? keysBeginningWith(prefix) : { from: partitionKey, to: `${partitionKey}\0` };
}

function states<State>(statement: StatementSync): { number: number; state: State }[] {
  return (statement.all() as { number: number; state: string }[]).map(({ number, state }) => ({
    number,
    state: JSON.parse(state) as State,
  }));
}

const ITEM = 'birth, container, partition_key AS partitionKey, id, life, position, ts, ttl, key';
const DISAPPEARANCE = `position, container, partition_key AS partitionKey, id, life, cause, at AS atMs,
  recorded_at AS recordedAtMs, purged_at AS purgedAtMs, actor, rule, ttl, policy_version AS policyVersion`;

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
    lastLogMark: database.prepare(
      'SELECT position, at AS atMs FROM log_marks WHERE at < ? ORDER BY at DESC, position DESC LIMIT 1',
    ),
    checkpoint: database.prepare('SELECT position, purged FROM checkpoint'),
    databases: database.prepare('SELECT number, state FROM databases ORDER BY number'),
    containers: database.prepare('SELECT number, state FROM containers ORDER BY number'),
    containerEntries: database.prepare(
      'SELECT number, list, place, state FROM container_entries ORDER BY number, list, place',
    ),
    entries: database.prepare('SELECT number, kind, state FROM catalog_entries ORDER BY number'),
    item: database.prepare(`SELECT ${ITEM} FROM items WHERE container = ? AND partition_key = ? AND id = ?`),
    namesOfItems: database.prepare(
      `SELECT birth, container, partition_key AS partitionKey, id FROM items NOT INDEXED
       WHERE birth > ? ORDER BY birth LIMIT ?`,
    ),
    namesOfEnded: database.prepare(
      `SELECT container, partition_key AS partitionKey, id, life FROM ended
       WHERE (container, partition_key, id, life) > (?, ?, ?, ?)
       ORDER BY container, partition_key, id, life LIMIT ?`,
    ),
    lastLife: database.prepare(
      `SELECT max(life) AS life FROM
         (SELECT life FROM items WHERE container = ? AND partition_key = ? AND id = ?
          UNION ALL SELECT max(life) FROM ended WHERE container = ? AND partition_key = ? AND id = ?)`,
    ),
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
    clearCopies: database.prepare(
      `SELECT birth, path, value FROM item_clear INDEXED BY item_clear_by_value
       WHERE container = ? AND (path, value, birth) > (?, ?, ?) ORDER BY path, value, birth LIMIT ?`,
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
    dueOtherwise: database.prepare(
      `SELECT birth FROM items NOT INDEXED WHERE container = ? AND birth > ? AND birth <= ? AND ${isDueOtherwise('IS NOT')}`,
    ),
    dueOtherwiseOfFew: database.prepare(
      `SELECT birth FROM items INDEXED BY items_by_name
       WHERE container = ? AND birth > ? AND birth <= ? AND ${isDueOtherwise('IS NOT')}`,
    ),
    count: database.prepare('SELECT count(*) AS count FROM items WHERE container = ?'),
    withContent: database.prepare(`${containersIn('items')} UNION ${containersIn('ended')}`),
    overdueByDefault: database.prepare(
      `SELECT ${ITEM} FROM items WHERE container = ? AND due IS NULL AND ts <= ? ORDER BY ts LIMIT ?`,
    ),
    overdueByOwn: database.prepare(`SELECT ${ITEM} FROM items WHERE container = ? AND due <= ? ORDER BY due LIMIT ?`),
    // Counts and minima are separate subqueries: then each is answered by an index alone, without reading rows.
    overdueStatistics: database.prepare(
      `SELECT (SELECT count(*) FROM items WHERE container = ?1 AND due IS NULL AND ts <= ?2)
                + (SELECT count(*) FROM items WHERE container = ?1 AND due <= ?3) AS count,
              (SELECT min(ts) FROM items WHERE container = ?1 AND due IS NULL AND ts <= ?2) AS oldestTs,
              (SELECT min(due) FROM items WHERE container = ?1 AND due <= ?3) AS oldestDue`,
    ),
    nextDeadlines: database.prepare(
      `SELECT (SELECT min(ts) FROM items WHERE container = ? AND due IS NULL AND ts > ?) AS ts,
              (SELECT min(due) FROM items WHERE container = ? AND due > ?) AS due`,
    ),
    countByTs: database.prepare(
      `SELECT (SELECT count(*) FROM items WHERE container = ?1 AND due IS NULL AND ts > max(?2, ?4) AND ts <= ?3) AS items,
              (SELECT min(ts) FROM items WHERE container = ?1 AND due IS NULL AND ts > max(?2, ?4) AND ts <= ?3) AS oldestTs`,
    ),
    countByDue: database.prepare(
      `SELECT count(*) AS items, min(ts) AS oldestTs FROM items
       WHERE container = ? AND due > ? AND due <= ? AND ts > ?`,
    ),
    itemsByTs: database.prepare(
      `SELECT ${ITEM} FROM items WHERE container = ? AND due IS NULL AND ts > ? AND ts <= ? AND ts > ?
       ORDER BY ts LIMIT ?`,
    ),
    itemsByDue: database.prepare(
      `SELECT ${ITEM} FROM items WHERE container = ? AND due > ? AND due <= ? AND ts > ? ORDER BY due LIMIT ?`,
    ),
    // Expired items are few and are found by their times: the unary plus keeps SQLite from using the index of unreadable ttls.
    countOddTtls: database.prepare(
      `SELECT (SELECT count(*) FROM items WHERE container = ? AND due = ?) AS never,
              (SELECT count(*) FROM items WHERE container = ? AND unreadable_ttl = 1)
            - (SELECT count(*) FROM items WHERE container = ? AND due IS NULL AND ts <= ? AND +unreadable_ttl = 1)
              AS unreadable`,
    ),
    ended: database.prepare(
      `SELECT container, partition_key AS partitionKey, id, life, stream, position, cause, ended_at AS endedAtMs,
              by_policy_start AS byPolicyStart
       FROM ended WHERE container = ? AND by_policy_start = ? AND (ended_at, position) > (?, ?)
         AND (ended_at, position) <= (?, ?) AND stream IS NOT NULL
       ORDER BY ended_at, position LIMIT ?`,
    ),
    // The place at which a step of ENDED_AT_ONCE rows ends. Unrecorded ends are included.
    endedPlace: database.prepare(
      `SELECT ended_at AS endedAtMs, position FROM ended
       WHERE container = ? AND by_policy_start = ? AND ended_at <= ? AND (ended_at, position) > (?, ?)
       ORDER BY ended_at, position LIMIT 1 OFFSET ?`,
    ),
    anyUnrecorded: database.prepare(
      'SELECT 1 FROM ended INDEXED BY ended_unrecorded WHERE container = ? AND stream IS NULL LIMIT 1',
    ),
    unrecorded: database.prepare(
      `SELECT container, partition_key AS partitionKey, id, life, position, ended_at AS endedAtMs
       FROM ended WHERE container = ? AND stream IS NULL ORDER BY position LIMIT ?`,
    ),
    countEnded: database.prepare(
      'SELECT count(*) AS count FROM ended WHERE container = ? AND by_policy_start = ? AND ended_at <= ?',
    ),
    leftAt: database.prepare(
      `SELECT ${DISAPPEARANCE} FROM disappearances WHERE container = ? AND at = ? AND position > ?
         AND (? IS NULL OR cause = ?) ORDER BY position LIMIT ?`,
    ),
    leftAfter: database.prepare(
      `SELECT ${DISAPPEARANCE} FROM disappearances WHERE container = ? AND at > ? AND at < ?
         AND (? IS NULL OR cause = ?) ORDER BY at, position LIMIT ?`,
    ),
    erasedAt: database.prepare(
      `SELECT ${DISAPPEARANCE} FROM disappearances WHERE container = ? AND purged_at = ? AND position > ?
         ORDER BY position LIMIT ?`,
    ),
    erasedAfter: database.prepare(
      `SELECT ${DISAPPEARANCE} FROM disappearances WHERE container = ? AND purged_at > ? AND purged_at < ?
         ORDER BY purged_at, position LIMIT ?`,
    ),
    countErased: database.prepare(
      'SELECT count(*) AS count FROM disappearances WHERE container = ? AND purged_at IS NOT NULL',
    ),
    countErasedInPartition: database.prepare(
      `SELECT count(*) AS count FROM disappearances
       WHERE container = ? AND partition_key = ? AND purged_at IS NOT NULL`,
    ),
    openRuns: database.prepare('SELECT stream, state FROM purge_runs WHERE state IS NOT NULL ORDER BY stream'),
    runs: database.prepare('SELECT stream, position FROM purge_runs WHERE position > ? ORDER BY position LIMIT ?'),
  } satisfies Record<string, StatementSync>;
}
