import type { PartDigest, ReadModelSnapshot } from '@epitaph/projections/read-model-store.ts';
import { containersIn } from '../container-scan.ts';
import { PartDigests } from '../part-digests.ts';
import type { DedicatedConnection, Row } from './database.ts';

/**
 * The digested tables with their columns; the columns by which an index orders the rows, within each container if there is one; and a
 * place before the first row. Bodies are left out: one build may have stored them, and another may have left them to the log.
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
/** How many rows one statement digests. It limits the time of a statement, and the length of its texts. */
const DIGESTED_ROWS = 5_000;

interface DigestedPiece extends Row {
  readonly count: number;
  readonly digest: Buffer;
}

/** A transaction on a separate connection, which sees the state at its begin. The server computes the digests. */
export class PostgresReadModelSnapshot implements ReadModelSnapshot {
  readonly #connection: DedicatedConnection;
  readonly #schema: string;

  constructor(connection: DedicatedConnection, schema: string) {
    this.#connection = connection;
    this.#schema = schema;
  }

  async digests(signal?: AbortSignal): Promise<ReadonlyMap<'catalog' | number, PartDigest>> {
    const parts = new PartDigests();
    for (const digested of DIGESTED) {
      const [table, columns] = digested;
      for (const container of columns.includes('container') ? await this.#containersIn(table) : [undefined]) {
        const part = container ?? null;
        parts.add(part, 0);
        for await (const { count, digest } of this.#pieces(digested, container)) {
          parts.add(part, table === 'items' ? count : 0, `${table} `, digest);
          signal?.throwIfAborted();
        }
      }
    }
    return parts.done();
  }

  /** A piece ends after a number of rows of its own container, so that a missing row in one container moves no other one's pieces. */
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
