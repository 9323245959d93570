import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { TimeSpan } from '@epitaph/core/history/preview.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { secondBounds, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { PurgeRunState } from '@epitaph/projections/purge/state.ts';
import { type ContainerEntry, containersOf } from '@epitaph/projections/catalog/container-rows.ts';
import {
  type CatalogEntry,
  type DisappearanceRow,
  type EndedRow,
  type ItemRow,
  type ItemsSnapshot,
  type LifeName,
  type LogMark,
  type OverdueStatistics,
  type ReadModelChange,
  type ReadModelSnapshot,
  type ReadModelStore,
  type UnrecordedEnd,
} from '@epitaph/projections/read-model-store.ts';
import { rowName } from '@epitaph/projections/items/row.ts';
import type { ClearCopy } from '@epitaph/projections/items/clear-values.ts';
import { BEFORE_CLEAR_COPIES, clearBytes, fromClearBytes } from '../clear-scan.ts';
import { containersIn } from '../container-scan.ts';
import { isDueOtherwise, LAST_DUE, NEVER_DUE } from '../due.ts';
import { NameFilter, type NamesInPieces } from './name-filter.ts';
import { EMPTY_JOURNAL, toApplyJob } from './read-model-writer-core.ts';
import { SqliteReadModelSnapshot } from './read-model-snapshot.ts';
import { ITEM, SqliteItemsReader } from './sqlite-items-reader.ts';
import { SqliteItemsSnapshots } from './sqlite-items-snapshots.ts';
import type { Writer } from './writer.ts';

/** A container with fewer items is read through the index of names, not by scanning the items of all containers. */
const FEW_ITEMS = 1_000;
/** How many ended lives are read before yielding to other work if some ends are not recorded yet. This takes about as long. */
const ENDED_AT_ONCE = 5_000;

/** The name filter is filled bit by bit: each new item causes this many more names to be read, until all are. */
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

/** One version of the read models in one SQLite file. The writer's thread writes it, this thread reads it. */
export class SqliteReadModelStore extends SqliteItemsReader implements ReadModelStore {
  readonly #writer: Writer;
  readonly #snapshots: SqliteItemsSnapshots;
  /** Whether there are, or were, values in clear. The writer erases their remnants with each purge. */
  #hasClear: boolean;
  readonly #read: ReturnType<typeof prepare>;
  /** The names of all present items, and of ended lives that have not been purged. */
  readonly #names = new NameFilter(() => this.#readNames());

  constructor(writer: Writer, database: DatabaseSync) {
    super(database);
    this.#writer = writer;
    this.#snapshots = new SqliteItemsSnapshots(database.location()!, () => writer.submit(EMPTY_JOURNAL));
    this.#read = prepare(database);
    this.#hasClear = this.#read.anyClear.get() !== undefined;
  }

  async apply(
    changes: readonly ReadModelChange[],
    checkpoint: number,
    _after?: number,
    despiteLoss = false,
  ): Promise<void> {
    let isPurge = false;
    for (const change of changes) {
      if (change.kind === 'item-written') {
        this.#names.add(nameOf(change));
        this.#hasClear ||= change.clear !== undefined && change.clear.length > 0;
      } else if (change.kind === 'item-ended') this.#names.add(nameOf(change.row));
      else if (change.kind === 'item-purged') isPurge = true;
    }
    const write = () => this.#writer.submit<void>(toApplyJob(changes, checkpoint, despiteLoss));
    await (isPurge && this.#hasClear ? this.#snapshots.whileErasing(write) : write());
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

  dueOtherwise(container: number, afterBirth: number, upToBirth: number): MaybePromise<number[]> {
    const birthsOf = (rows: readonly { readonly birth: number }[]) => rows.map(({ birth }) => birth);
    if (!this.has(container, FEW_ITEMS)) {
      const rows = this.#read.dueOtherwiseOfFew.all(container, afterBirth, upToBirth);
      return birthsOf(rows as { birth: number }[]);
    }
    const span = { afterBirth, upToBirth: Math.min(upToBirth, this.lastBirth()), limit: Number.POSITIVE_INFINITY };
    const found = this.inOrderOfBirth<{ birth: number }>(container, span, (after, upTo) =>
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
    return this.underWay(this.inTurns(step).then(() => found));
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

  itemsSnapshot(): Promise<ItemsSnapshot> {
    return this.#snapshots.open();
  }

  async snapshot(): Promise<ReadModelSnapshot> {
    return new SqliteReadModelSnapshot(this.database.location()!);
  }

  async close(): Promise<void> {
    await this.#writer.idle();
    // Scans yield between their steps, and another version of the read models may have been put to use meanwhile.
    await this.scansDone();
    if (this.database.isOpen) this.database.close();
    this.#snapshots.close();
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

/** A place in the order in which lives have ended. */
type EndedPlace = Pick<EndedRow, 'endedAtMs' | 'position'>;

const placed = ({ endedAtMs, position }: EndedPlace): readonly [number, number] => [endedAtMs, position];

function states<State>(statement: StatementSync): { number: number; state: State }[] {
  return (statement.all() as { number: number; state: string }[]).map(({ number, state }) => ({
    number,
    state: JSON.parse(state) as State,
  }));
}

const DISAPPEARANCE = `position, container, partition_key AS partitionKey, id, life, cause, at AS atMs,
  recorded_at AS recordedAtMs, purged_at AS purgedAtMs, actor, rule, ttl, policy_version AS policyVersion`;

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
    anyClear: database.prepare('SELECT 1 FROM item_clear LIMIT 1'),
    clearCopies: database.prepare(
      `SELECT birth, path, value FROM item_clear INDEXED BY item_clear_by_value
       WHERE container = ? AND (path, value, birth) > (?, ?, ?) ORDER BY path, value, birth LIMIT ?`,
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
