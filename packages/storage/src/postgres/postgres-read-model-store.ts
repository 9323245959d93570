import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { keysBeginningWith } from '@epitaph/core/partition-key/scope.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { secondBounds, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { TimeSpan } from '@epitaph/core/history/preview.ts';
import type { PurgeRunState } from '@epitaph/projections/purge/state.ts';
import { type ContainerEntry, containersOf } from '@epitaph/projections/catalog/container-rows.ts';
import type {
  CatalogChange,
  CatalogEntry,
  ItemRow,
  ItemScan,
  LogMark,
  PlaceInTime,
  ReadModelChange,
  ReadModelSnapshot,
  ReadModelStore,
  RowCondition,
  SealedWrite,
} from '@epitaph/projections/read-model-store.ts';
import type { ClearCondition, ClearCopy } from '@epitaph/projections/items/clear-values.ts';
import { BEFORE_CLEAR_COPIES, clearBytes, type ClearIndex, fromClearBytes, scanByClear } from '../clear-scan.ts';
import { LAST_DUE, NEVER_DUE } from '../due.ts';
import { fromStored, nameDigest, partitionDigest, segmentsOf, toStored } from './batch.ts';
import type { PostgresDatabase, Row, Statements } from './database.ts';
import { PostgresReadModelSnapshot } from './read-model-snapshot.ts';
import { type ReadModelStatements, readModelStatements, type ScanStatements } from './read-model-statements.ts';
import { ReadModelWriter } from './read-model-writer.ts';
import { Together } from './together.ts';

/** Limit for the bytes of bodies that are fetched at a time. The last body may exceed it. */
const MAX_FETCHED_BYTES = 4 * 1024 * 1024;
/** How many bodies one statement fetches for concurrent requests. Each may be as large as a document may be. */
const BODIES_AT_ONCE = 16;
/** How many items one statement removes with their partition key: to remove millions at once would exceed the time limit. */
const PARTITION_PIECE = 5_000;

/** The server's estimate of the tables' sizes is first checked after so many changes, and then after so many times as many each. */
const SIZE_LOOKS = { first: 500, apart: 10 };

/** How many rows one statement may scan. This takes a second. */
const ROWS_AT_ONCE = 1_000_000;

/** Another projector has written meanwhile, so the changes may have been applied already. */
export class CheckpointMoved extends StorageUnavailable {}

type Announce = (sql: Statements, changes: readonly ReadModelChange[]) => void;

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

/** Look-ups of rows by container and one more value. The result is undefined if there is no such row. */
type LookUps<Found> = Together<readonly [container: number, by: unknown], Found | undefined>;

const named = <Found extends { readonly partitionKey: string; readonly id: string }>(row: Found): Found => ({
  ...row,
  partitionKey: fromStored(row.partitionKey),
  id: fromStored(row.id),
});

/** One version of the read models: a schema in a PostgreSQL database. Any number of nodes read it, and one writes it. */
export class PostgresReadModelStore implements ReadModelStore {
  readonly #database: PostgresDatabase;
  readonly #schema: string;
  /** Notifies other nodes, in the same transaction that applies the changes. */
  readonly #announce: Announce | undefined;
  readonly #sql: ReadModelStatements;
  readonly #writer: ReadModelWriter;
  readonly #rowsByName: LookUps<ItemRow>;
  readonly #livesByName: LookUps<{ readonly life: number | null }>;
  readonly #bodiesByBirth: LookUps<SealedWrite>;
  /** The number of changes applied by this object, and the number at which the server's estimate of sizes is checked next. */
  #applied = 0;
  #nextSizeLook = SIZE_LOOKS.first;

  constructor(database: PostgresDatabase, schema: string, announce?: Announce) {
    this.#database = database;
    this.#schema = schema;
    this.#announce = announce;
    this.#sql = readModelStatements(schema);
    this.#writer = new ReadModelWriter(this.#sql);
    this.#rowsByName = this.#lookUps(this.#sql.itemsOf, this.#sql.item);
    this.#livesByName = this.#lookUps(this.#sql.lastLives, this.#sql.lastLife);
    this.#bodiesByBirth = this.#lookUps(this.#sql.bodiesOf, this.#sql.bodyOf, BODIES_AT_ONCE);
  }

  /** @throws {CheckpointMoved} if the checkpoint is not the one that the caller expects */
  async apply(
    changes: readonly ReadModelChange[],
    checkpoint: number,
    after?: number,
    despiteLoss = false,
  ): Promise<void> {
    const segments = segmentsOf(changes);
    const purges = segments.reduce((sum, { batch }) => sum + batch.purges, 0);
    const catalogChanges = segments.reduce(
      (sum, { batch }) => sum + batch.databases.size + batch.containers.size + batch.entries.size,
      0,
    );
    const standing = [checkpoint, purges, catalogChanges, after ?? null];
    await this.#database.transaction(async (transaction) => {
      const moved = this.#moveCheckpoint(transaction, standing);
      // The following statements are sent without waiting. Each of them also awaits this one, and so reports its failure: their
      // results are not used if the checkpoint has not moved.
      moved.catch(() => {});
      const sql: Statements = {
        query: async <Result extends Row>(text: string, values?: readonly unknown[]) =>
          (await Promise.all([transaction.query<Result>(text, values), moved]))[0],
      };
      for (const { batch, then } of segments) {
        await this.#writer.write(sql, batch, despiteLoss);
        if (then === undefined) continue;
        if (then.kind === 'item-written') {
          await this.#writer.writeUnreadable(sql, then, despiteLoss);
          continue;
        }
        const { container, partitionKey, atMs, actor, marks } = then;
        const key = [container, partitionDigest(partitionKey), toStored(partitionKey)];
        const values = [...key, ...secondBounds(marks), atMs, actor];
        for (let after: number | null = 0; after !== null;) {
          const piece: readonly unknown[] = [...values, after, PARTITION_PIECE];
          const gone = await sql.query<{ lastBirth: number | null }>(this.#sql.deletePartition, piece);
          after = gone[0]!.lastBirth;
        }
      }
      await moved;
      this.#announce?.(transaction, changes);
    });
    this.#applied += changes.length;
    if (this.#applied < this.#nextSizeLook) return;
    this.#nextSizeLook *= SIZE_LOOKS.apart;
    // If this fails, the changes are applied nevertheless.
    this.#tellSize().catch(() => {});
  }

  async #moveCheckpoint(sql: Statements, standing: readonly unknown[]): Promise<void> {
    const moved = await sql.query(this.#sql.moveCheckpoint, standing);
    if (moved.length === 0) throw new CheckpointMoved('another projector has written to the read models');
  }

  /**
   * Makes the server update its statistics if it takes the tables for much smaller than they are. By itself it does so within minutes,
   * if at all. Until then sessions use query plans made for empty tables, by which a look-up scans all rows of a container.
   */
  async #tellSize(): Promise<void> {
    const { knownRows } = await this.#row<{ knownRows: number }>(this.#sql.sizeKnown);
    if (knownRows < this.#applied / 2) await this.#database.query(this.#sql.analyze);
  }

  async checkpoint(): Promise<number> {
    return (await this.#row<{ position: number }>(this.#sql.checkpoint)).position;
  }

  /** The position of the read models, for nodes that follow. */
  standing(): Promise<{ position: number; catalogChanges: number }> {
    return this.#row(this.#sql.standing);
  }

  async countPurged(): Promise<number> {
    return (await this.#row<{ purged: number }>(this.#sql.checkpoint)).purged;
  }

  databases(): Promise<{ number: number; state: DatabaseState }[]> {
    return this.#states<DatabaseState>(this.#sql.databases);
  }

  /** Reads containers and their entries by one statement, so that both are of the same moment. */
  async containers(): Promise<readonly { readonly number: number; readonly state: ContainerState }[]> {
    const rows = await this.#database.query<ContainerOrEntry>(this.#sql.containers);
    return statesOf(rows);
  }

  async catalogEntries(): Promise<CatalogEntry[]> {
    return (await this.#database.query<CatalogRow>(this.#sql.entries)).map(changeOf) as CatalogEntry[];
  }

  /** See {@link SharedReadModels.catalogSince}. Reads by one statement, so that all rows are of the same moment. */
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
    const row = await this.#rowsByName.answer([container, nameDigest(partitionKey, id)]);
    return row && named(row);
  }

  /** Always false: other nodes make items too, so this process can't know. */
  isUnknown(): boolean {
    return false;
  }

  async lastLife(container: number, partitionKey: string, id: string): Promise<number | undefined> {
    const row = await this.#livesByName.answer([container, nameDigest(partitionKey, id)]);
    return row?.life ?? undefined;
  }

  async sealedBodies(container: number, births: readonly number[]): Promise<SealedWrite[]> {
    if (births.length === 1) {
      const body = await this.#bodiesByBirth.answer([container, births[0]!]);
      return body === undefined ? [] : [body];
    }
    const values = [container, births, MAX_FETCHED_BYTES];
    return this.#database.query(this.#sql.bodies, values) as unknown as Promise<SealedWrite[]>;
  }

  async scanItems(container: number, scan: ItemScan): Promise<ItemRow[]> {
    const found = scan.clear === undefined ? undefined : await scanByClear(this.#clearIndex(container), scan);
    if (found !== undefined) return found;
    return scan.where === undefined ? this.#scan(container, scan) : this.#scanWhere(container, scan, scan.where);
  }

  /**
   * Scans in pieces, so that no statement scans all of a large container, which could exceed the time limit. A piece is a number of
   * rows, not a range of births: births are positions in the log, and millions of positions may lie between two of them.
   */
  async #scanWhere(container: number, scan: ItemScan, where: RowCondition): Promise<ItemRow[]> {
    const { ids, minTs = 0, maxTs = Number.MAX_SAFE_INTEGER } = where;
    const found: ItemRow[] = [];
    for (let { afterBirth } = scan; found.length < scan.limit && afterBirth < Number.MAX_SAFE_INTEGER;) {
      // For a partition, the index contains its rows alone, so no pieces are needed.
      const upToBirth = scan.partitionKey === undefined ? await this.#endOfPiece(container, afterBirth) : undefined;
      const piece = { ...scan, afterBirth, limit: scan.limit - found.length };
      afterBirth = upToBirth ?? Number.MAX_SAFE_INTEGER;
      const values = [ids?.map(toStored) ?? null, minTs, maxTs, afterBirth];
      found.push(...(await this.#scan(container, piece, this.#sql.where, values)));
    }
    return found;
  }

  async #endOfPiece(container: number, afterBirth: number): Promise<number | undefined> {
    const values = [container, afterBirth, ROWS_AT_ONCE];
    return (await this.#database.query<{ birth: number }>(this.#sql.birthBeyond, values))[0]?.birth;
  }

  /** @param condition the values of the statements' additional condition */
  #scan(
    container: number,
    { partitionKey, prefix, afterBirth, limit, marks }: ItemScan,
    sql: ScanStatements = this.#sql,
    condition: readonly unknown[] = [],
  ): Promise<ItemRow[]> {
    const values: unknown[] = [container, afterBirth, ...secondBounds(marks), limit, ...condition];
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
      among: (births, scan) => this.#scan(container, scan, this.#sql.among, [births]),
    };
  }

  countVisible(container: number, marks: Watermarks): Promise<number> {
    return this.#count(this.#sql.countVisible, [container, ...secondBounds(marks)]);
  }

  async tsAt(container: number, { after, upTo, behind, from }: PlaceInTime): Promise<number | undefined> {
    const statement = from === 'oldest' ? this.#sql.tsFromOldest : this.#sql.tsFromNewest;
    const [row] = await this.#database.query<{ ts: number }>(statement, [container, after, upTo, behind]);
    return row?.ts;
  }

  allItems(
    container: number,
    afterBirth: number,
    limit: number,
    upToBirth = Number.MAX_SAFE_INTEGER,
  ): Promise<ItemRow[]> {
    return this.#items(this.#sql.all, [container, afterBirth, limit, upToBirth]);
  }

  async dueOtherwise(container: number, afterBirth: number, upToBirth: number): Promise<number[]> {
    const values = [container, afterBirth, upToBirth];
    const rows = await this.#database.query<{ birth: number }>(this.#sql.dueOtherwise, values);
    return rows.map(({ birth }) => birth);
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

  readonly overdueStatistics: ReadModelStore['overdueStatistics'] = (container, marks) =>
    this.#row(this.#sql.overdueStatistics, [container, ...secondBounds(marks)]);

  async nextDeadlines(container: number, marks: Watermarks): Promise<{ ts: number | null; due: number | null }> {
    const values = [container, ...secondBounds(marks)];
    const { ts, due } = await this.#row<{ ts: number | null; due: number | null }>(this.#sql.nextDeadlines, values);
    return { ts, due: due === NEVER_DUE ? null : due };
  }

  async countByTimes(
    container: number,
    spans: readonly TimeSpan[],
  ): Promise<{ items: number; oldestTs: number | null }[]> {
    const counts: { items: number; oldestTs: number | null }[] = [];
    for (const { by, after, upTo, writtenAfter = -1 } of spans) {
      const values = [container, after, Math.min(upTo, LAST_DUE), writtenAfter];
      counts.push(await this.#row(by === 'default' ? this.#sql.countByTs : this.#sql.countByDue, values));
    }
    return counts;
  }

  itemsByTimes(container: number, { by, after, upTo, writtenAfter = -1 }: TimeSpan, limit: number): Promise<ItemRow[]> {
    const values = [container, after, Math.min(upTo, LAST_DUE), writtenAfter, limit];
    return this.#items(by === 'default' ? this.#sql.itemsByTs : this.#sql.itemsByDue, values);
  }

  countOddTtls(container: number, marks: Watermarks): Promise<{ never: number; unreadable: number }> {
    return this.#row(this.#sql.countOddTtls, [container, NEVER_DUE, secondBounds(marks)[0]]);
  }

  readonly endedLives: ReadModelStore['endedLives'] = (container, { byPolicyStart, endedAtOrBeforeMs, after, limit }) =>
    this.#named(this.#sql.ended, [
      container,
      byPolicyStart,
      endedAtOrBeforeMs,
      after?.endedAtMs ?? -1,
      after?.position ?? -1,
      limit,
    ]);

  readonly unrecordedEnds: ReadModelStore['unrecordedEnds'] = (container, limit) =>
    this.#named(this.#sql.unrecorded, [container, limit]);

  countEnded(container: number, byPolicyStart: boolean, endedAtOrBeforeMs: number): Promise<number> {
    return this.#count(this.#sql.countEnded, [container, byPolicyStart, endedAtOrBeforeMs]);
  }

  readonly disappearances: ReadModelStore['disappearances'] = (container, { fromMs, toMs, cause, after, limit }) =>
    this.#named(this.#sql.disappearances, [
      container,
      fromMs,
      toMs,
      after?.atMs ?? fromMs,
      after?.position ?? -1,
      cause ?? null,
      limit,
    ]);

  readonly erasures: ReadModelStore['erasures'] = (container, { fromMs, toMs, after, limit }) =>
    this.#named(this.#sql.erasures, [
      container,
      fromMs,
      toMs,
      after?.purgedAtMs ?? fromMs,
      after?.position ?? -1,
      limit,
    ]);

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
    return this.#database.query(this.#sql.runs, [afterPosition, limit]);
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
      // This transaction may be idle for longer than others, while another version is read for comparison.
      await sql.query('SET idle_in_transaction_session_timeout = 0');
      await sql.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
      // PostgreSQL takes the snapshot at the first statement.
      await sql.query(this.#sql.checkpoint);
    });
    return new PostgresReadModelSnapshot(connection, this.#schema);
  }

  /** Closes nothing: the connections belong to the database, which others use. */
  async close(): Promise<void> {}

  #items(sql: string, values: readonly unknown[]): Promise<ItemRow[]> {
    return this.#named(sql, values);
  }

  async #named<Found extends { readonly partitionKey: string; readonly id: string }>(
    sql: string,
    values: readonly unknown[],
  ): Promise<Found[]> {
    const rows = await this.#database.query(sql, values);
    return rows.map((row) => named(row as unknown as Found));
  }

  /**
   * @param many the statement for several look-ups, whose parameters are arrays. Each row has the number of its look-up in `index`,
   *   from 1 on
   * @param one the statement for one look-up
   */
  #lookUps<Found>(many: string, one: string, atOnce?: number): LookUps<Found> {
    return new Together(async (names: readonly (readonly [number, unknown])[]) => {
      if (names.length === 1) return [(await this.#database.query(one, names[0]))[0] as Found | undefined];
      const columns = [names.map(([container]) => container), names.map(([, by]) => by)];
      const rows = await this.#database.query<{ readonly index: number }>(many, columns);
      const found = new Map<number, Found>();
      for (const { index, ...row } of rows) found.set(index - 1, row as Found);
      return names.map((_, index) => found.get(index));
    }, atOnce);
  }

  /** The row of a statement that always returns one row. */
  async #row<Found>(sql: string, values?: readonly unknown[]): Promise<Found> {
    return (await this.#database.query(sql, values))[0] as Found;
  }

  async #count(sql: string, values: readonly unknown[]): Promise<number> {
    return (await this.#row<{ count: number }>(sql, values)).count;
  }

  async #states<State>(sql: string): Promise<{ number: number; state: State }[]> {
    const rows = await this.#database.query<{ number: number; state: string }>(sql);
    return rows.map(({ number, state }) => ({ number, state: JSON.parse(state) as State }));
  }
}
