import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { secondBounds, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { TimeSpan } from '@epitaph/core/history/preview.ts';
import type { PurgeRunState } from '@epitaph/projections/purge/state.ts';
import { type ContainerEntry, containersOf } from '@epitaph/projections/catalog/container-rows.ts';
import type {
  CatalogChange,
  CatalogEntry,
  ItemRow,
  ItemsSnapshot,
  LogMark,
  ReadModelChange,
  ReadModelSnapshot,
  ReadModelStore,
  SealedWrite,
} from '@epitaph/projections/read-model-store.ts';
import type { ClearCopy } from '@epitaph/projections/items/clear-values.ts';
import { BEFORE_CLEAR_COPIES, clearBytes, fromClearBytes } from '../clear-scan.ts';
import { LAST_DUE, NEVER_DUE } from '../due.ts';
import { nameDigest, partitionDigest, segmentsOf, toStored } from './batch.ts';
import type { PostgresDatabase, Row, Statements } from './database.ts';
import { type LookUps, PostgresItemsReader } from './postgres-items-reader.ts';
import { PostgresReadModelSnapshot } from './read-model-snapshot.ts';
import { readModelStatements } from './read-model-statements.ts';
import { ReadModelWriter } from './read-model-writer.ts';

/** Limit for the bytes of bodies that are fetched at a time. The last body may exceed it. */
const MAX_FETCHED_BYTES = 4 * 1024 * 1024;
/** How many bodies one statement fetches for concurrent requests. Each may be as large as a document may be. */
const BODIES_AT_ONCE = 16;
/** How many items one statement removes with their partition key: to remove millions at once would exceed the time limit. */
const PARTITION_PIECE = 5_000;

/**
 * The server's estimate of the tables' sizes is first checked after `first` changes, and then whenever their number has grown by the factor
 * `apart`.
 */
const SIZE_LOOKS = { first: 500, apart: 10 };

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

/** One version of the read models: a schema in a PostgreSQL database. Any number of nodes read it, and one writes it. */
export class PostgresReadModelStore extends PostgresItemsReader implements ReadModelStore {
  readonly #database: PostgresDatabase;
  readonly #schema: string;
  /** Notifies other nodes, in the same transaction that applies the changes. */
  readonly #announce: Announce | undefined;
  readonly #writer: ReadModelWriter;
  readonly #livesByName: LookUps<{ readonly life: number | null }>;
  readonly #bodiesByBirth: LookUps<SealedWrite>;
  /** The number of changes applied by this object, and the number at which the server's estimate of sizes is checked next. */
  #applied = 0;
  #nextSizeLook = SIZE_LOOKS.first;

  constructor(database: PostgresDatabase, schema: string, announce?: Announce) {
    super(database, readModelStatements(schema));
    this.#database = database;
    this.#schema = schema;
    this.#announce = announce;
    this.#writer = new ReadModelWriter(this.sql);
    this.#livesByName = this.lookUps(this.sql.lastLives, this.sql.lastLife);
    this.#bodiesByBirth = this.lookUps(this.sql.bodiesOf, this.sql.bodyOf, BODIES_AT_ONCE);
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
          const gone = await sql.query<{ lastBirth: number | null }>(this.sql.deletePartition, piece);
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
    const moved = await sql.query(this.sql.moveCheckpoint, standing);
    if (moved.length === 0) throw new CheckpointMoved('another projector has written to the read models');
  }

  /**
   * Makes the server update its statistics if it takes the tables for much smaller than they are. By itself it does so within minutes,
   * if at all. Until then sessions use query plans made for empty tables, by which a look-up scans all rows of a container.
   */
  async #tellSize(): Promise<void> {
    const { knownRows } = await this.row<{ knownRows: number }>(this.sql.sizeKnown);
    if (knownRows < this.#applied / 2) await this.#database.query(this.sql.analyze);
  }

  async checkpoint(): Promise<number> {
    return (await this.row<{ position: number }>(this.sql.checkpoint)).position;
  }

  /** The position of the read models, for nodes that follow. */
  standing(): Promise<{ position: number; catalogChanges: number }> {
    return this.row(this.sql.standing);
  }

  async countPurged(): Promise<number> {
    return (await this.row<{ purged: number }>(this.sql.checkpoint)).purged;
  }

  databases(): Promise<{ number: number; state: DatabaseState }[]> {
    return this.#states<DatabaseState>(this.sql.databases);
  }

  /** Reads containers and their entries by one statement, so that both are of the same moment. */
  async containers(): Promise<readonly { readonly number: number; readonly state: ContainerState }[]> {
    const rows = await this.#database.query<ContainerOrEntry>(this.sql.containers);
    return statesOf(rows);
  }

  async catalogEntries(): Promise<CatalogEntry[]> {
    return (await this.#database.query<CatalogRow>(this.sql.entries)).map(changeOf) as CatalogEntry[];
  }

  /** See {@link SharedReadModels.catalogSince}. Reads by one statement, so that all rows are of the same moment. */
  async catalogSince(catalogChanges: number): Promise<CatalogChange[]> {
    const rows = await this.#database.query<CatalogRow & ContainerOrEntry>(this.sql.catalogSince, [catalogChanges]);
    const containers = statesOf(rows.filter(({ kind }) => kind === 'container'));
    const changes: CatalogChange[] = [
      ...rows.filter(({ kind }) => kind !== 'container').map(changeOf),
      ...containers.map((container) => ({ kind: 'container' as const, ...container })),
    ];
    return changes.toSorted((left, right) => left.number - right.number);
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
    return this.#database.query(this.sql.bodies, values) as unknown as Promise<SealedWrite[]>;
  }

  async dueOtherwise(container: number, afterBirth: number, upToBirth: number): Promise<number[]> {
    const values = [container, afterBirth, upToBirth];
    const rows = await this.#database.query<{ birth: number }>(this.sql.dueOtherwise, values);
    return rows.map(({ birth }) => birth);
  }

  countItems(container: number): Promise<number> {
    return this.count(this.sql.count, [container]);
  }

  async containersWithContent(): Promise<number[]> {
    const rows = await this.#database.query<{ container: number }>(this.sql.withContent);
    return rows.map(({ container }) => container);
  }

  async clearCopies(container: number, after: ClearCopy | undefined, limit: number): Promise<ClearCopy[]> {
    const { path, value, birth } = after ?? BEFORE_CLEAR_COPIES;
    const values = [container, path, clearBytes(value), birth, limit];
    const rows = await this.#database.query<Omit<ClearCopy, 'value'> & { value: Uint8Array }>(
      this.sql.clearCopies,
      values,
    );
    return rows.map((row) => ({ ...row, value: fromClearBytes(row.value) }));
  }

  async overdueItems(container: number, marks: Watermarks, limit: number): Promise<ItemRow[]> {
    const [ts, due] = secondBounds(marks);
    const byDefault = await this.items(this.sql.overdueByDefault, [container, ts, limit]);
    if (byDefault.length === limit) return byDefault;
    return [...byDefault, ...(await this.items(this.sql.overdueByOwn, [container, due, limit - byDefault.length]))];
  }

  readonly overdueStatistics: ReadModelStore['overdueStatistics'] = (container, marks) =>
    this.row(this.sql.overdueStatistics, [container, ...secondBounds(marks)]);

  async nextDeadlines(container: number, marks: Watermarks): Promise<{ ts: number | null; due: number | null }> {
    const values = [container, ...secondBounds(marks)];
    const { ts, due } = await this.row<{ ts: number | null; due: number | null }>(this.sql.nextDeadlines, values);
    return { ts, due: due === NEVER_DUE ? null : due };
  }

  async countByTimes(
    container: number,
    spans: readonly TimeSpan[],
  ): Promise<{ items: number; oldestTs: number | null }[]> {
    const counts: { items: number; oldestTs: number | null }[] = [];
    for (const { by, after, upTo, writtenAfter = -1 } of spans) {
      const values = [container, after, Math.min(upTo, LAST_DUE), writtenAfter];
      counts.push(await this.row(by === 'default' ? this.sql.countByTs : this.sql.countByDue, values));
    }
    return counts;
  }

  itemsByTimes(container: number, { by, after, upTo, writtenAfter = -1 }: TimeSpan, limit: number): Promise<ItemRow[]> {
    const values = [container, after, Math.min(upTo, LAST_DUE), writtenAfter, limit];
    return this.items(by === 'default' ? this.sql.itemsByTs : this.sql.itemsByDue, values);
  }

  countOddTtls(container: number, marks: Watermarks): Promise<{ never: number; unreadable: number }> {
    return this.row(this.sql.countOddTtls, [container, NEVER_DUE, secondBounds(marks)[0]]);
  }

  readonly endedLives: ReadModelStore['endedLives'] = (container, { byPolicyStart, endedAtOrBeforeMs, after, limit }) =>
    this.named(this.sql.ended, [
      container,
      byPolicyStart,
      endedAtOrBeforeMs,
      after?.endedAtMs ?? -1,
      after?.position ?? -1,
      limit,
    ]);

  readonly unrecordedEnds: ReadModelStore['unrecordedEnds'] = (container, limit) =>
    this.named(this.sql.unrecorded, [container, limit]);

  countEnded(container: number, byPolicyStart: boolean, endedAtOrBeforeMs: number): Promise<number> {
    return this.count(this.sql.countEnded, [container, byPolicyStart, endedAtOrBeforeMs]);
  }

  readonly disappearances: ReadModelStore['disappearances'] = (container, { fromMs, toMs, cause, after, limit }) =>
    this.named(this.sql.disappearances, [
      container,
      fromMs,
      toMs,
      after?.atMs ?? fromMs,
      after?.position ?? -1,
      cause ?? null,
      limit,
    ]);

  readonly erasures: ReadModelStore['erasures'] = (container, { fromMs, toMs, after, limit }) =>
    this.named(this.sql.erasures, [container, fromMs, toMs, after?.purgedAtMs ?? fromMs, after?.position ?? -1, limit]);

  countErased(container: number, partitionKey?: string): Promise<number> {
    return partitionKey === undefined
      ? this.count(this.sql.countErased, [container])
      : this.count(this.sql.countErasedInPartition, [container, toStored(partitionKey)]);
  }

  async openPurgeRuns(): Promise<{ stream: string; state: PurgeRunState }[]> {
    const rows = await this.#database.query<{ stream: string; state: string }>(this.sql.openRuns);
    return rows.map(({ stream, state }) => ({ stream, state: JSON.parse(state) as PurgeRunState }));
  }

  purgeRuns(afterPosition: number, limit: number): Promise<{ stream: string; position: number }[]> {
    return this.#database.query(this.sql.runs, [afterPosition, limit]);
  }

  async logMarkBefore(atMs: number): Promise<number> {
    return (await this.#lastLogMark(atMs))?.position ?? 0;
  }

  lastLogMark(): Promise<LogMark | undefined> {
    return this.#lastLogMark(Number.MAX_SAFE_INTEGER);
  }

  async #lastLogMark(before: number): Promise<LogMark | undefined> {
    const [mark] = await this.#database.query<{ position: number; atMs: number }>(this.sql.lastLogMark, [before]);
    return mark;
  }

  async itemsSnapshot(): Promise<ItemsSnapshot> {
    const { statements, close } = await this.#database.snapshot();
    return Object.assign(new PostgresItemsReader(statements, this.sql), { close });
  }

  async snapshot(): Promise<ReadModelSnapshot> {
    const { connection } = await this.#database.dedicated(async (sql) => {
      // This transaction may be idle for longer than others, while another version is read for comparison.
      await sql.query('SET idle_in_transaction_session_timeout = 0');
      await sql.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
      // PostgreSQL takes the snapshot at the first statement.
      await sql.query(this.sql.checkpoint);
    });
    return new PostgresReadModelSnapshot(connection, this.#schema);
  }

  /** Closes nothing: the connections belong to the database, which others use. */
  async close(): Promise<void> {}

  async #states<State>(sql: string): Promise<{ number: number; state: State }[]> {
    const rows = await this.#database.query<{ number: number; state: string }>(sql);
    return rows.map(({ number, state }) => ({ number, state: JSON.parse(state) as State }));
  }
}
