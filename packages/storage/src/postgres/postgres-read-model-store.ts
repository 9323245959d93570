import { createHash, type Hash } from 'node:crypto';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { keysBeginningWith } from '@epitaph/core/partition-key/scope.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { secondBounds, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { TimeSpan } from '@epitaph/core/history/preview.ts';
import type { PurgeRunState } from '@epitaph/projections/purge/state.ts';
import {
  type ContainerEntry,
  containerRows,
  containersOf,
  HOLDS,
  POLICIES,
} from '@epitaph/projections/catalog/container-rows.ts';
import type {
  CatalogChange,
  CatalogEntry,
  DisappearanceRow,
  EndedRow,
  ItemRow,
  ItemScan,
  LogMark,
  OverdueStatistics,
  PartDigest,
  ReadModelChange,
  ReadModelSnapshot,
  ReadModelStore,
  SealedWrite,
  UnrecordedEnd,
} from '@epitaph/projections/read-model-store.ts';
import type { ClearCondition, ClearCopy } from '@epitaph/projections/items/clear-values.ts';
import { BEFORE_CLEAR_COPIES, clearBytes, type ClearIndex, fromClearBytes, scanByClear } from '../clear-scan.ts';
import { containersIn } from '../container-scan.ts';
import { type Batch, fromStored, type Life, nameDigest, partitionDigest, segmentsOf, toStored } from './batch.ts';
import type { DedicatedConnection, PostgresDatabase, Row, Statements } from './database.ts';

/** Beyond all times: the `due` of an item whose own ttl of -1 says "never". */
const NEVER_DUE = 9_007_199_254_740_991;
/** The latest time that any item but those of ttl -1 can be due. */
const LAST_DUE = NEVER_DUE - 1;

/** Another projector has written meanwhile: what this one wanted to apply may have been applied. */
export class CheckpointMoved extends StorageUnavailable {}

type Announce = (sql: Statements, changes: readonly ReadModelChange[]) => Promise<void>;

type ContainerOrEntry = Row & { readonly number: number } & (
    | ContainerEntry
    | { readonly list: null; readonly state: string }
  );

const statesOf = (rows: readonly ContainerOrEntry[]) =>
  containersOf(
    rows.filter(({ list }) => list === null),
    rows.filter((row) => row.list !== null),
  );

type CatalogRow = Row & { readonly number: number; readonly kind: string; readonly state: string };

const changeOf = ({ number, kind, state }: CatalogRow) =>
  ({ number, kind, state: JSON.parse(state) as unknown }) as Exclude<CatalogChange, { kind: 'container' }>;

/** One version of the read models: a schema in a PostgreSQL database, read by any number of nodes, written by one. */
export class PostgresReadModelStore implements ReadModelStore {
  readonly #database: PostgresDatabase;
  readonly #schema: string;
  /** Tells other nodes, in the transaction that applies. */
  readonly #announce: Announce | undefined;
  readonly #sql: ReturnType<typeof statements>;

  constructor(database: PostgresDatabase, schema: string, announce?: Announce) {
    this.#database = database;
    this.#schema = schema;
    this.#announce = announce;
    this.#sql = statements(schema);
  }

  /**
   * @throws {CheckpointMoved} when the read models do not stand where the writer knows them to
   */
  async apply(changes: readonly ReadModelChange[], checkpoint: number, after?: number): Promise<void> {
    const segments = segmentsOf(changes);
    const purges = segments.reduce((sum, { batch }) => sum + batch.purges, 0);
    const catalogChanges = segments.reduce(
      (sum, { batch }) => sum + batch.databases.size + batch.containers.size + batch.entries.size,
      0,
    );
    const standing = [checkpoint, purges, catalogChanges, after ?? null];
    await this.#database.transaction(async (sql) => {
      const [moved] = await sql.query<{ catalogChanges: number }>(this.#sql.moveCheckpoint, standing);
      if (moved === undefined) throw new CheckpointMoved('another projector has written to the read models');
      for (const { batch, then } of segments) {
        await this.#write(sql, batch, moved.catalogChanges);
        if (then === undefined) continue;
        const { container, partitionKey, atMs, actor, marks } = then;
        const key = [container, partitionDigest(partitionKey), toStored(partitionKey)];
        const values = [...key, ...secondBounds(marks), atMs, actor];
        await sql.query(this.#sql.deletePartition, values);
      }
      await this.#announce?.(sql, changes);
    });
  }

  async checkpoint(): Promise<number> {
    const [row] = await this.#database.query<{ position: number }>(this.#sql.checkpoint);
    return row!.position;
  }

  /** Where the read models stand, for those who follow. */
  async standing(): Promise<{ position: number; catalogChanges: number }> {
    const [row] = await this.#database.query<{ position: number; catalogChanges: number }>(this.#sql.standing);
    return row!;
  }

  async countPurged(): Promise<number> {
    const [row] = await this.#database.query<{ purged: number }>(this.#sql.checkpoint);
    return row!.purged;
  }

  databases(): Promise<{ number: number; state: DatabaseState }[]> {
    return this.#states<DatabaseState>(this.#sql.databases);
  }

  /** By one statement, so that both are of one instant. */
  async containers(): Promise<readonly { readonly number: number; readonly state: ContainerState }[]> {
    const rows = await this.#database.query<ContainerOrEntry>(this.#sql.containers);
    return statesOf(rows);
  }

  async catalogEntries(): Promise<CatalogEntry[]> {
    return (await this.#database.query<CatalogRow>(this.#sql.entries)).map(changeOf) as CatalogEntry[];
  }

  /** As of {@link SharedReadModels.catalogSince}; by one statement, so that all of it is of one instant. */
  async catalogSince(catalogChanges: number): Promise<CatalogChange[]> {
    const rows = await this.#database.query<CatalogRow & ContainerOrEntry>(this.#sql.catalogSince, [catalogChanges]);
    const containers = statesOf(rows.filter(({ kind }) => kind === 'container'));
    const changes: CatalogChange[] = [
      ...rows.filter(({ kind }) => kind !== 'container').map(changeOf),
      ...containers.map((container) => ({ kind: 'container' as const, ...container })),
    ];
    return changes.toSorted((left, right) => left.number - right.number);
  }

  async findItem(container: number, partitionKey: string, id: string): Promise<ItemRow | undefined> {
    const [row] = await this.#items(this.#sql.item, [container, nameDigest(partitionKey, id)]);
    return row;
  }

  async sealedBodies(container: number, births: readonly number[]): Promise<SealedWrite[]> {
    const values = [container, births, MAX_FETCHED_BYTES];
    return this.#database.query(this.#sql.bodies, values) as unknown as Promise<SealedWrite[]>;
  }

  async scanItems(container: number, scan: ItemScan): Promise<ItemRow[]> {
    const found = scan.clear === undefined ? undefined : await scanByClear(this.#clearIndex(container), scan);
    return found ?? this.#scan(container, scan);
  }

  /** @param births of the items that there are to look at; all when not given */
  #scan(container: number, scan: ItemScan, births: readonly number[] | null = null): Promise<ItemRow[]> {
    const { partitionKey, prefix, afterBirth, limit, marks } = scan;
    const values: unknown[] = [container, afterBirth, ...secondBounds(marks), limit];
    if (births !== null) values.push(births);
    const sql = births === null ? this.#sql : this.#sql.among;
    if (partitionKey !== undefined) {
      values.push(partitionDigest(partitionKey), toStored(partitionKey));
      return this.#items(sql.visibleInPartition, values);
    }
    if (prefix === undefined) return this.#items(sql.visible, values);
    return this.#items(sql.visibleUnderPrefix, [...values, toStored(keysBeginningWith(prefix).from)]);
  }

  #clearIndex(container: number): ClearIndex {
    const paths = (condition: ClearCondition) => condition.map(({ path }) => path);
    const froms = (condition: ClearCondition) => condition.map(({ from }) => clearBytes(from));
    const tos = (condition: ClearCondition) => condition.map(({ to }) => clearBytes(to));
    return {
      count: (spans, limit) =>
        this.#count(this.#sql.countClear, [container, paths(spans), froms(spans), tos(spans), limit]),
      births: async (spans, after) => {
        const values = [container, paths(spans), froms(spans), tos(spans), after];
        return (await this.#database.query<{ birth: number }>(this.#sql.clearInSpans, values)).map(
          ({ birth }) => birth,
        );
      },
      firstBirths: async (points, after, limit) => {
        const values = [container, paths(points), froms(points), after, limit];
        const rows = await this.#database.query<{ index: number; birth: number }>(this.#sql.clearAtPoints, values);
        return points.map((_, at) => rows.filter(({ index }) => index === at + 1).map(({ birth }) => birth));
      },
      countNamed: ({ partitionKey, prefix = '' }, limit) =>
        partitionKey === undefined
          ? this.#count(this.#sql.countUnderPrefix, [container, toStored(keysBeginningWith(prefix).from), limit])
          : this.#count(this.#sql.countInPartition, [container, partitionDigest(partitionKey), limit]),
      among: (births, scan) => this.#scan(container, scan, births),
    };
  }

  countVisible(container: number, marks: Watermarks): Promise<number> {
    return this.#count(this.#sql.countVisible, [container, ...secondBounds(marks)]);
  }

  allItems(container: number, afterBirth: number, limit: number): Promise<ItemRow[]> {
    return this.#items(this.#sql.all, [container, afterBirth, limit]);
  }

  countItems(container: number): Promise<number> {
    return this.#count(this.#sql.count, [container]);
  }

  async containersWithContent(): Promise<number[]> {
    const rows = await this.#database.query<{ container: number }>(this.#sql.withContent);
    return rows.map(({ container }) => container);
  }

  async clearCopies(container: number, after: ClearCopy | undefined, limit: number): Promise<ClearCopy[]> {
    const { path, value, birth } = after ?? BEFORE_CLEAR_COPIES;
    const values = [container, path, clearBytes(value), birth, limit];
    const rows = await this.#database.query<Omit<ClearCopy, 'value'> & { value: Uint8Array }>(
      this.#sql.clearCopies,
      values,
    );
    return rows.map((row) => ({ ...row, value: fromClearBytes(row.value) }));
  }

  async overdueItems(container: number, marks: Watermarks, limit: number): Promise<ItemRow[]> {
    const [ts, due] = secondBounds(marks);
    const byDefault = await this.#items(this.#sql.overdueByDefault, [container, ts, limit]);
    if (byDefault.length === limit) return byDefault;
    return [...byDefault, ...(await this.#items(this.#sql.overdueByOwn, [container, due, limit - byDefault.length]))];
  }

  async overdueStatistics(container: number, marks: Watermarks): Promise<OverdueStatistics> {
    const [row] = await this.#database.query<{
      by_default: number;
      oldest_ts: number | null;
      by_own: number;
      oldest_due: number | null;
    }>(this.#sql.overdueStatistics, [container, ...secondBounds(marks)]);
    const { by_default, oldest_ts, by_own, oldest_due } = row!;
    // By how much the default's items are overdue depends on the policy; the watermark is its measure.
    const oldest: number[] = [];
    if (oldest_due !== null) oldest.push(oldest_due * 1000);
    if (oldest_ts !== null) oldest.push(oldest_ts * 1000 + (marks.itemMs - marks.defaultMs));
    return { count: by_default + by_own, oldestMs: oldest.length === 0 ? null : Math.min(...oldest) };
  }

  async nextDeadlines(container: number, marks: Watermarks): Promise<{ ts: number | null; due: number | null }> {
    const [row] = await this.#database.query<{ ts: number | null; due: number | null }>(this.#sql.nextDeadlines, [
      container,
      ...secondBounds(marks),
    ]);
    return { ts: row!.ts, due: row!.due === NEVER_DUE ? null : row!.due };
  }

  async countByTimes(
    container: number,
    spans: readonly TimeSpan[],
  ): Promise<{ items: number; oldestTs: number | null }[]> {
    const counts: { items: number; oldestTs: number | null }[] = [];
    for (const { by, after, upTo, writtenAfter = -1 } of spans) {
      const [row] = await this.#database.query<(typeof counts)[number]>(
        by === 'default' ? this.#sql.countByTs : this.#sql.countByDue,
        [container, after, Math.min(upTo, LAST_DUE), writtenAfter],
      );
      counts.push(row!);
    }
    return counts;
  }

  itemsByTimes(container: number, { by, after, upTo, writtenAfter = -1 }: TimeSpan, limit: number): Promise<ItemRow[]> {
    const values = [container, after, Math.min(upTo, LAST_DUE), writtenAfter, limit];
    return this.#items(by === 'default' ? this.#sql.itemsByTs : this.#sql.itemsByDue, values);
  }

  async countOddTtls(container: number, marks: Watermarks): Promise<{ never: number; unreadable: number }> {
    const [row] = await this.#database.query<{ never: number; unreadable: number }>(this.#sql.countOddTtls, [
      container,
      NEVER_DUE,
      secondBounds(marks)[0],
    ]);
    return row!;
  }

  async endedLives(
    container: number,
    { byPolicyStart, endedAtOrBeforeMs, after, limit }: Parameters<ReadModelStore['endedLives']>[1],
  ): Promise<EndedRow[]> {
    return this.#named<EndedRow>(this.#sql.ended, [
      container,
      byPolicyStart,
      endedAtOrBeforeMs,
      after?.endedAtMs ?? -1,
      after?.position ?? -1,
      limit,
    ]);
  }

  unrecordedEnds(container: number, limit: number): Promise<UnrecordedEnd[]> {
    return this.#named<UnrecordedEnd>(this.#sql.unrecorded, [container, limit]);
  }

  countEnded(container: number, byPolicyStart: boolean, endedAtOrBeforeMs: number): Promise<number> {
    return this.#count(this.#sql.countEnded, [container, byPolicyStart, endedAtOrBeforeMs]);
  }

  disappearances(
    container: number,
    { fromMs, toMs, cause, after, limit }: Parameters<ReadModelStore['disappearances']>[1],
  ): Promise<DisappearanceRow[]> {
    return this.#named<DisappearanceRow>(this.#sql.disappearances, [
      container,
      fromMs,
      toMs,
      after?.atMs ?? fromMs,
      after?.position ?? -1,
      cause ?? null,
      limit,
    ]);
  }

  erasures(
    container: number,
    { fromMs, toMs, after, limit }: Parameters<ReadModelStore['erasures']>[1],
  ): Promise<DisappearanceRow[]> {
    return this.#named<DisappearanceRow>(this.#sql.erasures, [
      container,
      fromMs,
      toMs,
      after?.purgedAtMs ?? fromMs,
      after?.position ?? -1,
      limit,
    ]);
  }

  countErased(container: number, partitionKey?: string): Promise<number> {
    return partitionKey === undefined
      ? this.#count(this.#sql.countErased, [container])
      : this.#count(this.#sql.countErasedInPartition, [container, toStored(partitionKey)]);
  }

  async openPurgeRuns(): Promise<{ stream: string; state: PurgeRunState }[]> {
    const rows = await this.#database.query<{ stream: string; state: string }>(this.#sql.openRuns);
    return rows.map(({ stream, state }) => ({ stream, state: JSON.parse(state) as PurgeRunState }));
  }

  purgeRuns(afterPosition: number, limit: number): Promise<{ stream: string; position: number }[]> {
    return this.#database.query<{ stream: string; position: number }>(this.#sql.runs, [afterPosition, limit]);
  }

  async logMarkBefore(atMs: number): Promise<number> {
    return (await this.#lastLogMark(atMs))?.position ?? 0;
  }

  lastLogMark(): Promise<LogMark | undefined> {
    return this.#lastLogMark(Number.MAX_SAFE_INTEGER);
  }

  async #lastLogMark(before: number): Promise<LogMark | undefined> {
    const [mark] = await this.#database.query<{ position: number; atMs: number }>(this.#sql.lastLogMark, [before]);
    return mark;
  }

  async snapshot(): Promise<ReadModelSnapshot> {
    const { connection } = await this.#database.dedicated(async (sql) => {
      // Between the pieces of two digests it may stand idle for longer than other transactions may.
      await sql.query('SET idle_in_transaction_session_timeout = 0');
      await sql.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
      // PostgreSQL takes the snapshot at the first statement.
      await sql.query(this.#sql.checkpoint);
    });
    return new PostgresReadModelSnapshot(connection, this.#schema);
  }

  /** The connections are the database's, which others use. */
  async close(): Promise<void> {}

  async #items(sql: string, values: readonly unknown[]): Promise<ItemRow[]> {
    return this.#named<ItemRow>(sql, values);
  }

  async #named<Found extends { readonly partitionKey: string; readonly id: string }>(
    sql: string,
    values: readonly unknown[],
  ): Promise<Found[]> {
    const rows = await this.#database.query(sql, values);
    return rows.map((row) => {
      const { partitionKey, id } = row as unknown as Found;
      return { ...row, partitionKey: fromStored(partitionKey), id: fromStored(id) } as unknown as Found;
    });
  }

  async #count(sql: string, values: readonly unknown[]): Promise<number> {
    const [row] = await this.#database.query<{ count: number }>(sql, values);
    return row!.count;
  }

  async #states<State>(sql: string): Promise<{ number: number; state: State }[]> {
    const rows = await this.#database.query<{ number: number; state: string }>(sql);
    return rows.map(({ number, state }) => ({ number, state: JSON.parse(state) as State }));
  }

  /** What goes comes first: the next life of an item has its name. */
  async #write(sql: Statements, batch: Batch, catalogChanges: number): Promise<void> {
    await this.#purge(sql, batch);
    if (batch.removed.size > 0) {
      const rows = [...batch.removed.values()];
      await sql.query(this.#sql.deleteItems, lifeColumns(rows));
    }
    if (batch.updated.size > 0) {
      const rows = [...batch.updated.values()];
      const updated = await sql.query<{ birth: number; position: number }>(this.#sql.updateItems, [
        ...itemColumns(rows),
        rows.map((row) => row.position),
      ]);
      if (updated.length < rows.length) await this.#checkUnrecorded(sql, rows, updated.length);
      const births = new Map(updated.map(({ position, birth }) => [position, birth]));
      const copied = rows.filter(({ clear, position }) => clear !== undefined && births.has(position));
      if (copied.length > 0) {
        const replaced = copied.map(({ position }) => births.get(position)!);
        await sql.query(this.#sql.deleteClear, [copied.map(({ container }) => container), replaced]);
        await this.#insertClear(
          sql,
          copied.map((row, index) => ({ ...row, birth: replaced[index]! })),
        );
      }
    }
    if (batch.inserted.size > 0) {
      const rows = [...batch.inserted.values()];
      await sql.query(this.#sql.insertItems, [...itemColumns(rows), rows.map((row) => row.birth)]);
      await this.#insertClear(sql, rows);
    }
    const recorded = await this.#recordEnds(sql, batch);
    if (batch.ended.size > recorded.size) {
      const rows = [...batch.ended].filter(([name]) => !recorded.has(name)).map(([, row]) => row);
      await sql.query(this.#sql.insertEnded, [
        rows.map((row) => row.container),
        rows.map((row) => toStored(row.partitionKey)),
        rows.map((row) => toStored(row.id)),
        rows.map((row) => row.life),
        rows.map((row) => row.stream),
        rows.map((row) => row.position),
        rows.map((row) => row.cause),
        rows.map((row) => row.endedAtMs),
        rows.map((row) => row.byPolicyStart),
        rows.map((row) => nameDigest(row.partitionKey, row.id)),
      ]);
    }
    await this.#disappear(
      sql,
      [...batch.disappeared].filter(([name]) => !recorded.has(name)).map(([, row]) => row),
    );
    if (batch.databases.size > 0) {
      const states = [[...batch.databases.keys()], [...batch.databases.values()]];
      await sql.query(this.#sql.putDatabases, [...states, catalogChanges]);
    }
    if (batch.containers.size > 0) await this.#putContainers(sql, batch, catalogChanges);
    if (batch.entries.size > 0) {
      const entries = [...batch.entries.values()];
      await sql.query(this.#sql.putEntries, [
        [...batch.entries.keys()],
        entries.map(({ kind }) => kind),
        entries.map(({ state }) => state),
        entries.map(({ gone }) => gone),
        catalogChanges,
      ]);
    }
    for (const [stream, { position, state }] of batch.startedRuns) {
      await sql.query(this.#sql.insertRun, [position, stream, state]);
    }
    if (batch.completedRuns.size > 0) await sql.query(this.#sql.completeRuns, [[...batch.completedRuns]]);
    for (const { atMs, position } of batch.logMarks) await sql.query(this.#sql.insertLogMark, [atMs, position]);
  }

  async #putContainers(sql: Statements, { containers }: Batch, catalogChanges: number): Promise<void> {
    const written = Array.from(containers, ([number, change]) => ({ number, ...containerRows(change) }));
    const numbers = written.map(({ number }) => number);
    await sql.query(this.#sql.putContainers, [numbers, written.map(({ state }) => state), catalogChanges]);
    const ends = written.flatMap((rows) => rows.ends.map((end) => ({ ...end, number: rows.number })));
    if (ends.length > 0) {
      await sql.query(this.#sql.endLists, [
        ends.map(({ number }) => number),
        ends.map(({ list }) => list),
        ends.map(({ length }) => length),
      ]);
    }
    const entries = written.flatMap((rows) => rows.entries.map((entry) => ({ ...entry, number: rows.number })));
    if (entries.length === 0) return;
    await sql.query(this.#sql.putListEntries, [
      entries.map(({ number }) => number),
      entries.map(({ list }) => list),
      entries.map(({ place }) => place),
      entries.map(({ state }) => state),
      catalogChanges,
    ]);
  }

  async #insertClear(sql: Statements, rows: readonly (Written & { readonly birth: number })[]): Promise<void> {
    const entries = rows.flatMap(({ container, birth, clear = [] }) =>
      clear.map(({ path, value }) => ({ container, birth, path, value: clearBytes(value) })),
    );
    if (entries.length === 0) return;
    await sql.query(this.#sql.insertClear, [
      entries.map(({ container }) => container),
      entries.map(({ birth }) => birth),
      entries.map(({ path }) => path),
      entries.map(({ value }) => value),
    ]);
  }

  /**
   * Lives that left with their partition key and whose rows say so, by their names in the batch: they have it on record
   * now. Rows that say something else make room for what the record says.
   */
  async #recordEnds(sql: Statements, { ended, left }: Batch): Promise<ReadonlySet<string>> {
    const entries = [...ended].filter(([, { cause }]) => cause === 'deleted');
    const recorded = new Set<string>();
    if (entries.length > 0) {
      const rows = entries.map(([, row]) => row);
      const found = await sql.query<{ index: number }>(this.#sql.recordEnds, [
        ...lifeColumns(rows),
        rows.map((row) => row.stream),
        rows.map((row) => row.position),
      ]);
      for (const { index } of found) recorded.add(entries[index - 1]![0]);
    }
    if (left.size > recorded.size) {
      const others = [...left].filter(([name]) => !recorded.has(name)).map(([, life]) => life);
      await sql.query(this.#sql.deleteUnrecorded, lifeColumns(others));
    }
    return recorded;
  }

  /** A write that another node decided before its item left with its partition key changes nothing any more. */
  async #checkUnrecorded(sql: Statements, rows: readonly Written[], updated: number): Promise<void> {
    const [late] = await sql.query<{ count: number }>(this.#sql.countUnrecorded, lifeColumns(rows));
    invariant(updated + late!.count === rows.length, 'every later write finds its item');
  }

  /** Purges of lives that ended in an earlier batch, or that end by their purge. */
  async #purge(sql: Statements, batch: Batch): Promise<void> {
    if (batch.purged.size === 0) return;
    const rows = [...batch.purged.values()];
    const marked = await sql.query<{ index: number }>(this.#sql.purgeEnded, [
      ...lifeColumns(rows),
      rows.map((row) => row.purgedAtMs),
    ]);
    const known = new Set(marked.map(({ index }) => index));
    const others = rows.filter((_, index) => !known.has(index + 1));
    if (others.length === 0) return;
    await sql.query(this.#sql.deleteItems, lifeColumns(others));
    await this.#disappear(
      sql,
      others.map((row) => row.disappearance),
    );
  }

  async #disappear(sql: Statements, rows: readonly DisappearanceRow[]): Promise<void> {
    if (rows.length === 0) return;
    await sql.query(this.#sql.insertDisappearances, [
      rows.map((row) => row.position),
      rows.map((row) => row.container),
      rows.map((row) => toStored(row.partitionKey)),
      rows.map((row) => toStored(row.id)),
      rows.map((row) => row.life),
      rows.map((row) => row.cause),
      rows.map((row) => row.atMs),
      rows.map((row) => row.recordedAtMs),
      rows.map((row) => row.purgedAtMs),
      rows.map((row) => row.actor),
      rows.map((row) => row.rule),
      rows.map((row) => row.ttl),
      rows.map((row) => row.policyVersion),
    ]);
  }
}

type Written = Extract<ReadModelChange, { kind: 'item-written' }>;

/** The parameters $1 to $16 of {@link WRITTEN_ITEMS}; $17 is the birth. */
function lifeColumns(lives: readonly Life[]): unknown[][] {
  return [
    lives.map(({ container }) => container),
    lives.map(({ partitionKey, id }) => nameDigest(partitionKey, id)),
    lives.map(({ life }) => life),
  ];
}

function itemColumns(rows: readonly Written[]): unknown[][] {
  return [
    rows.map((row) => row.container),
    rows.map((row) => toStored(row.partitionKey)),
    rows.map((row) => toStored(row.id)),
    rows.map((row) => row.life),
    rows.map((row) => row.position),
    rows.map((row) => row.ts),
    rows.map((row) => row.ttl),
    rows.map(({ ttl, ts }) => (ttl === null ? null : ttl === -1 ? NEVER_DUE : ts + ttl)),
    rows.map((row) => row.key),
    rows.map((row) => row.unreadableTtl),
    rows.map((row) => partitionDigest(row.partitionKey)),
    rows.map((row) => nameDigest(row.partitionKey, row.id)),
    rows.map((row) => row.sealed?.stream ?? null),
    rows.map((row) => row.revision),
    rows.map((row) => row.sealed?.eventId ?? null),
    rows.map(({ sealed }) => (sealed === undefined ? null : Buffer.from(sealed.body))),
  ];
}

const WRITTEN_ITEMS = `unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
  $8::bigint[], $9::bigint[], $10::boolean[], $11::bytea[], $12::bytea[], $13::text[], $14::bigint[], $15::uuid[],
  $16::bytea[], $17::bigint[]) AS w (container, partition_key, id, life, position, ts, ttl, due, key, unreadable_ttl,
  partition_digest, name_digest, stream, revision, event_id, body, birth)`;

/** Bytes of bodies that are fetched at a time, besides one. */
const MAX_FETCHED_BYTES = 4 * 1024 * 1024;

/**
 * Everything but the bodies, which one build may have and another leave to the log; what orders the rows, within each
 * container where there is one, by an index; and what comes before all of it.
 */
const DIGESTED = [
  ['databases', 'number, state', 'number', [-1]],
  ['containers', 'number, state', 'number', [-1]],
  ['container_entries', 'number, list, place, state', 'number, list, place', [-1, '', -1]],
  ['catalog_entries', 'number, kind, state, gone', 'number', [-1]],
  [
    'items',
    'birth, container, partition_key, id, life, position, ts, ttl, due, key, unreadable_ttl, partition_digest, name_digest',
    'birth',
    [-1],
  ],
  ['item_clear', 'container, birth, path, value', 'birth, path', [-1, -1]],
  [
    'ended',
    'container, partition_key, id, life, stream, position, cause, ended_at, by_policy_start, name_digest',
    'name_digest, life',
    [Buffer.alloc(0), -1],
  ],
  [
    'disappearances',
    'position, container, partition_key, id, life, cause, at, recorded_at, purged_at, actor, rule, ttl, policy_version',
    'at, position',
    [Number.MIN_SAFE_INTEGER, -1],
  ],
] as const;
/** Rows that one statement digests: none may take long, nor gather texts without a bound. */
const DIGESTED_ROWS = 5_000;

interface DigestedPiece extends Row {
  readonly count: number;
  readonly digest: Buffer;
}

/** A transaction on a connection of its own, that sees what was there when it began. The server does the work. */
class PostgresReadModelSnapshot implements ReadModelSnapshot {
  readonly #connection: DedicatedConnection;
  readonly #schema: string;

  constructor(connection: DedicatedConnection, schema: string) {
    this.#connection = connection;
    this.#schema = schema;
  }

  async digests(signal?: AbortSignal): Promise<ReadonlyMap<'catalog' | number, PartDigest>> {
    const parts = new Map<'catalog' | number, { items: number; readonly hash: Hash }>();
    for (const digested of DIGESTED) {
      const [table, columns] = digested;
      for (const container of columns.includes('container') ? await this.#containersIn(table) : [undefined]) {
        const key = container ?? 'catalog';
        const known = parts.get(key) ?? { items: 0, hash: createHash('sha256') };
        parts.set(key, known);
        for await (const { count, digest } of this.#pieces(digested, container)) {
          if (table === 'items') known.items += count;
          known.hash.update(`${table} `).update(digest);
          signal?.throwIfAborted();
        }
      }
    }
    return new Map(
      [...parts].map(([key, { items, hash }]) => [key, { items, digest: hash.digest('base64url') }] as const),
    );
  }

  /** A piece ends after so many rows of its own container: what another one lacks moves no piece's end. */
  async *#pieces(
    [table, columns, order, first]: (typeof DIGESTED)[number],
    container: number | undefined,
  ): AsyncGenerator<DigestedPiece> {
    const within = container === undefined ? [] : [container];
    const places = first.map((_, index) => `$${within.length + index + 1}`).join(', ');
    const behind = `FROM ${this.#schema}.${table} WHERE ${container === undefined ? '' : 'container = $1 AND'}
      (${order}) > (${places}) ORDER BY ${order} LIMIT`;
    const piece = `SELECT count(*) AS count, sha256(convert_to(string_agg(text, ',' ORDER BY place), 'UTF8')) AS digest
      FROM (SELECT row(${columns})::text AS text, row_number() OVER (ORDER BY ${order}) AS place ${behind} ${DIGESTED_ROWS}) AS piece`;
    const end = `SELECT ${order} ${behind} 1 OFFSET ${DIGESTED_ROWS - 1}`;
    let after: unknown[] | undefined = [...first];
    while (after !== undefined) {
      const values: unknown[] = [...within, ...after];
      const [digested] = await this.#connection.query<DigestedPiece>(piece, values);
      if (digested!.count > 0) yield digested!;
      const [last]: Row[] = await this.#connection.query(end, values);
      after = last === undefined ? undefined : order.split(', ').map((name) => last[name]);
    }
  }

  async #containersIn(table: string): Promise<number[]> {
    const rows = await this.#connection.query<{ container: number }>(containersIn(`${this.#schema}.${table}`));
    return rows.map(({ container }) => container);
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }
}

const ITEM = 'birth, container, partition_key AS "partitionKey", id, life, position, ts, ttl, key';
const DISAPPEARANCE = `position, container, partition_key AS "partitionKey", id, life, cause, at AS "atMs",
  recorded_at AS "recordedAtMs", purged_at AS "purgedAtMs", actor, rule, ttl, policy_version AS "policyVersion"`;

const CLEAR_SPANS = 'unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS s (path, low, high)';

/** Scans in order of birth. The parameters of a narrower scope come after those that the condition has. */
function scans(items: string, condition = '') {
  const next = condition === '' ? 6 : 7;
  const visible = `birth > $2 AND ((due IS NULL AND ts > $3) OR due > $4) ${condition} ORDER BY birth LIMIT $5`;
  return {
    visible: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND ${visible}`,
    visibleInPartition: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND partition_digest = $${next}
      AND partition_key = $${next + 1} AND ${visible}`,
    visibleUnderPrefix: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND starts_with(partition_key, $${next})
      AND ${visible}`,
  };
}

function statements(schema: string) {
  const items = `${schema}.items`;
  const ended = `${schema}.ended`;
  return {
    checkpoint: `SELECT position, purged FROM ${schema}.checkpoint`,
    standing: `SELECT position, catalog_changes AS "catalogChanges" FROM ${schema}.checkpoint`,
    moveCheckpoint: `UPDATE ${schema}.checkpoint SET position = $1, purged = purged + $2,
      catalog_changes = catalog_changes + $3 WHERE position = coalesce($4, position) RETURNING catalog_changes AS "catalogChanges"`,
    databases: `SELECT number, state FROM ${schema}.databases ORDER BY number`,
    containers: `SELECT number, NULL AS list, NULL AS place, state FROM ${schema}.containers
      UNION ALL SELECT number, list, place, state FROM ${schema}.container_entries ORDER BY number, list, place`,
    entries: `SELECT number, kind, state FROM ${schema}.catalog_entries WHERE NOT gone ORDER BY number`,
    catalogSince: `WITH changed AS (SELECT number, state FROM ${schema}.containers WHERE changed > $1)
      SELECT number, 'database' AS kind, NULL::text AS list, NULL::bigint AS place, state FROM ${schema}.databases WHERE changed > $1
      UNION ALL SELECT number, 'container', NULL, NULL, state FROM changed
      UNION ALL SELECT number, 'container', list, place, e.state
        FROM ${schema}.container_entries AS e JOIN changed USING (number) WHERE list = '${POLICIES}'
      UNION ALL SELECT number, 'container', list, place, state
        FROM ${schema}.container_entries WHERE changed > $1 AND list = '${HOLDS}'
      UNION ALL SELECT number, kind, NULL, NULL, state FROM ${schema}.catalog_entries WHERE changed > $1
      ORDER BY number, list, place`,
    item: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND name_digest = $2`,
    bodies: `SELECT position, stream, revision, event_id AS "eventId", body FROM
      (SELECT *, sum(octet_length(body)) OVER (ORDER BY birth) - octet_length(body) AS before FROM ${items}
      WHERE container = $1 AND birth = ANY ($2::bigint[]) AND body IS NOT NULL) AS wanted WHERE before < $3`,
    ...scans(items),
    among: scans(items, 'AND birth = ANY ($6::bigint[])'),
    countInPartition: `SELECT count(*) AS count FROM
      (SELECT 1 FROM ${items} WHERE container = $1 AND partition_digest = $2 LIMIT $3) AS counted`,
    countUnderPrefix: `SELECT count(*) AS count FROM
      (SELECT 1 FROM ${items} WHERE container = $1 AND starts_with(partition_key, $2) LIMIT $3) AS counted`,
    countClear: `SELECT count(*) AS count FROM (SELECT 1 FROM ${CLEAR_SPANS} JOIN ${schema}.item_clear AS c
      ON c.container = $1 AND c.path = s.path AND c.value >= s.low AND c.value <= s.high LIMIT $5) AS counted`,
    clearInSpans: `SELECT c.birth FROM ${CLEAR_SPANS} JOIN ${schema}.item_clear AS c
      ON c.container = $1 AND c.path = s.path AND c.value >= s.low AND c.value <= s.high AND c.birth > $5`,
    clearAtPoints: `SELECT s.index, c.birth FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS s (path, value, index)
      CROSS JOIN LATERAL (SELECT birth FROM ${schema}.item_clear WHERE container = $1 AND path = s.path
        AND value = s.value AND birth > $4 ORDER BY birth LIMIT $5) AS c ORDER BY s.index, c.birth`,
    clearCopies: `SELECT birth, path, value FROM ${schema}.item_clear WHERE container = $1
      AND (path, value, birth) > ($2, $3, $4) ORDER BY path, value, birth LIMIT $5`,
    countVisible: `SELECT (SELECT count(*) FROM ${items} WHERE container = $1 AND due IS NULL AND ts > $2)
      + (SELECT count(*) FROM ${items} WHERE container = $1 AND due > $3) AS count`,
    all: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND birth > $2 ORDER BY birth LIMIT $3`,
    count: `SELECT count(*) AS count FROM ${items} WHERE container = $1`,
    withContent: `${containersIn(items)} UNION ${containersIn(ended)}`,
    overdueByDefault: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due IS NULL AND ts <= $2 ORDER BY ts LIMIT $3`,
    overdueByOwn: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due <= $2 ORDER BY due LIMIT $3`,
    overdueStatistics: `SELECT d.count AS by_default, d.oldest AS oldest_ts, o.count AS by_own, o.oldest AS oldest_due FROM
      (SELECT count(*) AS count, min(ts) AS oldest FROM ${items} WHERE container = $1 AND due IS NULL AND ts <= $2) d,
      (SELECT count(*) AS count, min(due) AS oldest FROM ${items} WHERE container = $1 AND due <= $3) o`,
    nextDeadlines: `SELECT (SELECT min(ts) FROM ${items} WHERE container = $1 AND due IS NULL AND ts > $2) AS ts,
      (SELECT min(due) FROM ${items} WHERE container = $1 AND due > $3) AS due`,
    countByTs: `SELECT count(*) AS items, min(ts) AS "oldestTs" FROM ${items}
      WHERE container = $1 AND due IS NULL AND ts > $2 AND ts <= $3 AND ts > $4`,
    countByDue: `SELECT count(*) AS items, min(ts) AS "oldestTs" FROM ${items}
      WHERE container = $1 AND due > $2 AND due <= $3 AND ts > $4`,
    itemsByTs: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due IS NULL AND ts > $2 AND ts <= $3 AND ts > $4
      ORDER BY ts LIMIT $5`,
    itemsByDue: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due > $2 AND due <= $3 AND ts > $4
      ORDER BY due LIMIT $5`,
    countOddTtls: `SELECT (SELECT count(*) FROM ${items} WHERE container = $1 AND due = $2) AS never,
      (SELECT count(*) FROM ${items} WHERE container = $1 AND unreadable_ttl AND ts > $3) AS unreadable`,
    ended: `SELECT container, partition_key AS "partitionKey", id, life, stream, position, cause, ended_at AS "endedAtMs",
      by_policy_start AS "byPolicyStart" FROM ${ended} WHERE container = $1 AND by_policy_start = $2 AND ended_at <= $3
      AND (ended_at, position) > ($4, $5) AND stream IS NOT NULL ORDER BY ended_at, position LIMIT $6`,
    unrecorded: `SELECT container, partition_key AS "partitionKey", id, life, position, ended_at AS "endedAtMs" FROM ${ended}
      WHERE container = $1 AND stream IS NULL ORDER BY position LIMIT $2`,
    countEnded: `SELECT count(*) AS count FROM ${ended} WHERE container = $1 AND by_policy_start = $2 AND ended_at <= $3`,
    erasures: `SELECT ${DISAPPEARANCE} FROM ${schema}.disappearances WHERE container = $1 AND purged_at >= $2
      AND purged_at < $3 AND (purged_at, position) > ($4, $5) ORDER BY purged_at, position LIMIT $6`,
    disappearances: `SELECT ${DISAPPEARANCE} FROM ${schema}.disappearances WHERE container = $1 AND at >= $2 AND at < $3 AND (at, position) > ($4, $5)
      AND ($6::text IS NULL OR cause = $6) ORDER BY at, position LIMIT $7`,
    countErased: `SELECT count(*) AS count FROM ${schema}.disappearances WHERE container = $1 AND purged_at IS NOT NULL`,
    countErasedInPartition: `SELECT count(*) AS count FROM ${schema}.disappearances WHERE container = $1
      AND md5(partition_key) = md5($2) AND partition_key = $2 AND purged_at IS NOT NULL`,
    openRuns: `SELECT stream, state FROM ${schema}.purge_runs WHERE state IS NOT NULL ORDER BY stream`,
    runs: `SELECT stream, position FROM ${schema}.purge_runs WHERE position > $1 ORDER BY position LIMIT $2`,

    lastLogMark: `SELECT position, at AS "atMs" FROM ${schema}.log_marks WHERE at < $1
      ORDER BY at DESC, position DESC LIMIT 1`,
    insertLogMark: `INSERT INTO ${schema}.log_marks (at, position) VALUES ($1, $2)`,

    insertItems: `INSERT INTO ${items} (container, partition_key, id, life, position, ts, ttl, due, key, unreadable_ttl,
      partition_digest, name_digest, stream, revision, event_id, body, birth) SELECT * FROM ${WRITTEN_ITEMS}`,
    updateItems: `UPDATE ${items} AS i SET position = w.position, ts = w.ts, ttl = w.ttl, due = w.due,
      unreadable_ttl = w.unreadable_ttl, stream = w.stream, revision = w.revision, event_id = w.event_id, body = w.body
      FROM ${WRITTEN_ITEMS} WHERE i.container = w.container AND i.name_digest = w.name_digest AND i.life = w.life
      RETURNING i.birth, i.position`,
    deleteItems: `WITH gone AS (
        DELETE FROM ${items} AS i USING unnest($1::bigint[], $2::bytea[], $3::bigint[])
          AS g (container, name_digest, life)
        WHERE i.container = g.container AND i.name_digest = g.name_digest AND i.life = g.life
        RETURNING i.container, i.birth
      )
      DELETE FROM ${schema}.item_clear AS c USING gone WHERE c.container = gone.container AND c.birth = gone.birth`,
    insertClear: `INSERT INTO ${schema}.item_clear (container, birth, path, value)
      SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])`,
    deleteClear: `DELETE FROM ${schema}.item_clear AS c USING unnest($1::bigint[], $2::bigint[]) AS g (container, birth)
      WHERE c.container = g.container AND c.birth = g.birth`,
    insertEnded: `INSERT INTO ${ended} (container, partition_key, id, life, stream, position, cause, ended_at,
      by_policy_start, name_digest) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[],
      $6::bigint[], $7::text[], $8::bigint[], $9::boolean[], $10::bytea[])`,
    recordEnds: `UPDATE ${ended} AS e SET stream = g.stream
      FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::text[], $5::bigint[])
        WITH ORDINALITY AS g (container, name_digest, life, stream, position, index)
      WHERE e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life AND e.stream IS NULL
        AND e.position = g.position
      RETURNING g.index`,
    deleteUnrecorded: `WITH gone AS (
        DELETE FROM ${ended} AS e USING unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS g (container, name_digest, life)
        WHERE e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life AND e.stream IS NULL
        RETURNING e.position
      )
      DELETE FROM ${schema}.disappearances AS d USING gone WHERE d.position = gone.position`,
    countUnrecorded: `SELECT count(*) AS count FROM ${ended} AS e
      JOIN unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS g (container, name_digest, life)
      ON e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life WHERE e.stream IS NULL`,
    deletePartition: `WITH gone AS (
        DELETE FROM ${items} WHERE container = $1 AND partition_digest = $2 AND partition_key = $3
          AND ((due IS NULL AND ts > $4) OR due > $5)
        RETURNING container, partition_key, id, life, position, name_digest, birth
      ), cleared AS (
        DELETE FROM ${schema}.item_clear AS c USING gone WHERE c.container = gone.container AND c.birth = gone.birth
      ), shown AS (
        INSERT INTO ${schema}.disappearances (position, container, partition_key, id, life, cause, at, recorded_at, actor)
        SELECT position, container, partition_key, id, life, 'deleted', $6, $6, $7 FROM gone
      )
      INSERT INTO ${ended} (container, partition_key, id, life, position, cause, ended_at, by_policy_start, name_digest)
      SELECT container, partition_key, id, life, position, 'deleted', $6, false, name_digest FROM gone`,
    purgeEnded: `WITH gone AS (
        DELETE FROM ${ended} AS e USING unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[])
          WITH ORDINALITY AS g (container, name_digest, life, purged_at, index)
        WHERE e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life
        RETURNING e.position, g.purged_at, g.index
      ), marked AS (
        UPDATE ${schema}.disappearances AS d SET purged_at = gone.purged_at FROM gone WHERE d.position = gone.position
      )
      SELECT index FROM gone`,
    insertDisappearances: `INSERT INTO ${schema}.disappearances (position, container, partition_key, id, life, cause, at,
      recorded_at, purged_at, actor, rule, ttl, policy_version) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[],
      $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::text[],
      $12::bigint[], $13::bigint[])`,
    putDatabases: `INSERT INTO ${schema}.databases (number, state, changed)
      SELECT *, $3::bigint FROM unnest($1::bigint[], $2::text[])
      ON CONFLICT (number) DO UPDATE SET state = excluded.state, changed = excluded.changed`,
    putContainers: `INSERT INTO ${schema}.containers (number, state, changed)
      SELECT *, $3::bigint FROM unnest($1::bigint[], $2::text[])
      ON CONFLICT (number) DO UPDATE SET state = excluded.state, changed = excluded.changed`,
    putListEntries: `INSERT INTO ${schema}.container_entries (number, list, place, state, changed)
      SELECT *, $5::bigint FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])
      ON CONFLICT (number, list, place) DO UPDATE SET state = excluded.state, changed = excluded.changed`,
    endLists: `DELETE FROM ${schema}.container_entries AS e
      USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS g (number, list, length)
      WHERE e.number = g.number AND e.list = g.list AND e.place >= g.length`,
    putEntries: `INSERT INTO ${schema}.catalog_entries (number, kind, state, gone, changed)
      SELECT *, $5::bigint FROM unnest($1::bigint[], $2::text[], $3::text[], $4::boolean[])
      ON CONFLICT (number) DO UPDATE SET state = excluded.state, gone = excluded.gone, changed = excluded.changed`,
    insertRun: `INSERT INTO ${schema}.purge_runs (position, stream, state) VALUES ($1, $2, $3)`,
    completeRuns: `UPDATE ${schema}.purge_runs SET state = NULL WHERE stream = ANY ($1::text[]) AND state IS NOT NULL`,
  } satisfies Record<string, string | Record<string, string>>;
}
