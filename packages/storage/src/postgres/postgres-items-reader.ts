import { keysBeginningWith } from '@epitaph/core/partition-key/scope.ts';
import { secondBounds, type Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type {
  ItemRow,
  ItemScan,
  ItemsReader,
  PlaceInTime,
  RowCondition,
} from '@epitaph/projections/read-model-store.ts';
import type { ClearCondition } from '@epitaph/projections/items/clear-values.ts';
import { clearBytes, type ClearIndex, scanByClear } from '../clear-scan.ts';
import { fromStored, nameDigest, partitionDigest, toStored } from './batch.ts';
import type { Statements } from './database.ts';
import type { ReadModelStatements, ScanStatements } from './read-model-statements.ts';
import { Together } from './together.ts';

/** How many rows one statement may scan. This takes a second. */
const ROWS_AT_ONCE = 1_000_000;

/** Look-ups of rows by container and one more value. The result is undefined if there is no such row. */
export type LookUps<Found> = Together<readonly [container: number, by: unknown], Found | undefined>;

const named = <Found extends { readonly partitionKey: string; readonly id: string }>(row: Found): Found => ({
  ...row,
  partitionKey: fromStored(row.partitionKey),
  id: fromStored(row.id),
});

/** Reads the current items of one version of the read models. */
export class PostgresItemsReader implements ItemsReader {
  protected readonly sql: ReadModelStatements;
  protected readonly connection: Statements;
  readonly #rowsByName: LookUps<ItemRow>;

  /** @param connection the pool, or a transaction */
  constructor(connection: Statements, sql: ReadModelStatements) {
    this.connection = connection;
    this.sql = sql;
    this.#rowsByName = this.lookUps(sql.itemsOf, sql.item);
  }

  async findItem(container: number, partitionKey: string, id: string): Promise<ItemRow | undefined> {
    const row = await this.#rowsByName.answer([container, nameDigest(partitionKey, id)]);
    return row && named(row);
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
      found.push(...(await this.#scan(container, piece, this.sql.where, values)));
    }
    return found;
  }

  async #endOfPiece(container: number, afterBirth: number): Promise<number | undefined> {
    const values = [container, afterBirth, ROWS_AT_ONCE];
    return (await this.connection.query<{ birth: number }>(this.sql.birthBeyond, values))[0]?.birth;
  }

  /** @param condition the values of the statements' additional condition */
  #scan(
    container: number,
    { partitionKey, prefix, afterBirth, limit, marks }: ItemScan,
    sql: ScanStatements = this.sql,
    condition: readonly unknown[] = [],
  ): Promise<ItemRow[]> {
    const values: unknown[] = [container, afterBirth, ...secondBounds(marks), limit, ...condition];
    if (partitionKey !== undefined) {
      values.push(partitionDigest(partitionKey), toStored(partitionKey));
      return this.items(sql.visibleInPartition, values);
    }
    if (prefix === undefined) return this.items(sql.visible, values);
    return this.items(sql.visibleUnderPrefix, [...values, toStored(keysBeginningWith(prefix).from)]);
  }

  #clearIndex(container: number): ClearIndex {
    const paths = (condition: ClearCondition) => condition.map(({ path }) => path);
    const froms = (condition: ClearCondition) => condition.map(({ from }) => clearBytes(from));
    const tos = (condition: ClearCondition) => condition.map(({ to }) => clearBytes(to));
    return {
      count: (spans, limit) =>
        this.count(this.sql.countClear, [container, paths(spans), froms(spans), tos(spans), limit]),
      births: async (spans, after) => {
        const values = [container, paths(spans), froms(spans), tos(spans), after];
        return (await this.connection.query<{ birth: number }>(this.sql.clearInSpans, values)).map(
          ({ birth }) => birth,
        );
      },
      firstBirths: async (points, after, limit) => {
        const values = [container, paths(points), froms(points), after, limit];
        const rows = await this.connection.query<{ index: number; birth: number }>(this.sql.clearAtPoints, values);
        return points.map((_, at) => rows.filter(({ index }) => index === at + 1).map(({ birth }) => birth));
      },
      countNamed: ({ partitionKey, prefix = '' }, limit) =>
        partitionKey === undefined
          ? this.count(this.sql.countUnderPrefix, [container, toStored(keysBeginningWith(prefix).from), limit])
          : this.count(this.sql.countInPartition, [container, partitionDigest(partitionKey), limit]),
      among: (births, scan) => this.#scan(container, scan, this.sql.among, [births]),
    };
  }

  countVisible(container: number, marks: Watermarks): Promise<number> {
    return this.count(this.sql.countVisible, [container, ...secondBounds(marks)]);
  }

  async tsAt(container: number, { after, upTo, behind, from }: PlaceInTime): Promise<number | undefined> {
    const statement = from === 'oldest' ? this.sql.tsFromOldest : this.sql.tsFromNewest;
    const [row] = await this.connection.query<{ ts: number }>(statement, [container, after, upTo, behind]);
    return row?.ts;
  }

  allItems(
    container: number,
    afterBirth: number,
    limit: number,
    upToBirth = Number.MAX_SAFE_INTEGER,
  ): Promise<ItemRow[]> {
    return this.items(this.sql.all, [container, afterBirth, limit, upToBirth]);
  }

  protected items(sql: string, values: readonly unknown[]): Promise<ItemRow[]> {
    return this.named(sql, values);
  }

  protected async named<Found extends { readonly partitionKey: string; readonly id: string }>(
    sql: string,
    values: readonly unknown[],
  ): Promise<Found[]> {
    const rows = await this.connection.query(sql, values);
    return rows.map((row) => named(row as unknown as Found));
  }

  /**
   * @param many the statement for several look-ups, whose parameters are arrays. Each row has the number of its look-up in `index`,
   *   from 1 on
   * @param one the statement for one look-up
   */
  protected lookUps<Found>(many: string, one: string, atOnce?: number): LookUps<Found> {
    return new Together(async (names: readonly (readonly [number, unknown])[]) => {
      if (names.length === 1) return [(await this.connection.query(one, names[0]))[0] as Found | undefined];
      const columns = [names.map(([container]) => container), names.map(([, by]) => by)];
      const rows = await this.connection.query<{ readonly index: number }>(many, columns);
      const found = new Map<number, Found>();
      for (const { index, ...row } of rows) found.set(index - 1, row as Found);
      return names.map((_, index) => found.get(index));
    }, atOnce);
  }

  /** The row of a statement that always returns one row. */
  protected async row<Found>(sql: string, values?: readonly unknown[]): Promise<Found> {
    return (await this.connection.query(sql, values))[0] as Found;
  }

  protected async count(sql: string, values: readonly unknown[]): Promise<number> {
    return (await this.row<{ count: number }>(sql, values)).count;
  }
}
