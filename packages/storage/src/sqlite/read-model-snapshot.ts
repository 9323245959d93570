import type { DatabaseSync } from 'node:sqlite';
import { turn } from '@epitaph/core/turn.ts';
import type { PartDigest, ReadModelSnapshot } from '@epitaph/projections/read-model-store.ts';
import { PartDigests } from '../part-digests.ts';
import { openForReading } from './database.ts';

/** The digested tables, the columns that order their rows, and a place before the first row. */
const DIGESTED_TABLES = [
  ['databases', 'number', [0]],
  ['containers', 'number', [0]],
  ['container_entries', 'number, list, place', [0, '', 0]],
  ['catalog_entries', 'number', [0]],
  ['items', 'birth', [0]],
  ['item_clear', 'birth, path', [0, -1]],
  ['ended', 'container, partition_key, id, life', [0, '', '', 0]],
  ['disappearances', 'position', [0]],
] as const;
/** How many rows are digested at a time. This takes about a millisecond. */
const DIGESTED_ROWS = 500;

interface DigestedPiece {
  readonly part: number | null;
  readonly count: number;
  readonly text: Uint8Array;
}

/** A read transaction on a separate connection. It does not see later writes. */
export class SqliteReadModelSnapshot implements ReadModelSnapshot {
  readonly #database: DatabaseSync;

  constructor(file: string) {
    // A small cache is enough, since each page is read once.
    this.#database = openForReading(file, { cacheKiB: 2_048 });
    // SQLite takes the snapshot at the first read.
    this.#database.exec('BEGIN; SELECT position FROM checkpoint');
  }

  async digests(signal?: AbortSignal): Promise<ReadonlyMap<'catalog' | number, PartDigest>> {
    const parts = new PartDigests();
    for (const [table, order, first] of DIGESTED_TABLES) {
      const { pieces, ends } = this.#digestOf(table, order);
      for (let after: readonly (string | number)[] | undefined = first; after !== undefined;) {
        for (const { part, count, text } of pieces.all(...after) as unknown as DigestedPiece[]) {
          parts.add(part, table === 'items' ? count : 0, text);
        }
        after = ends.get(...after) as unknown as (string | number)[] | undefined;
        await turn();
        signal?.throwIfAborted();
      }
    }
    return parts.done();
  }

  /** Makes SQLite concatenate the rows of each part to one text: fetching row by row would take several times as long. */
  #digestOf(table: string, order: string) {
    const info = this.#database.prepare(`PRAGMA table_info(${table})`).all() as { name: string; type: string }[];
    // JSON can't represent bytes, so they are converted to hexadecimal.
    const columns = info.map(({ name, type }) => (type === 'BLOB' ? `hex(${name})` : name));
    const part = columns.includes('container') ? 'container' : 'NULL';
    const behind = `FROM ${table} WHERE (${order}) > (${order.replaceAll(/\w+/g, '?')}) ORDER BY ${order}`;
    /** Selects the last row of a piece, if the piece is full. */
    const ends = this.#database.prepare(`SELECT ${order} ${behind} LIMIT 1 OFFSET ${DIGESTED_ROWS - 1}`);
    ends.setReturnArrays(true);
    return {
      ends,
      pieces: this.#database.prepare(
        `SELECT part, count(*) AS count, CAST(group_concat(text, '') AS BLOB) AS text
         FROM (SELECT ${part} AS part, json_array('${table}', ${columns.join(', ')}) AS text ${behind} LIMIT ${DIGESTED_ROWS}) GROUP BY part`,
      ),
    };
  }

  async close(): Promise<void> {
    this.#database.close();
  }
}
