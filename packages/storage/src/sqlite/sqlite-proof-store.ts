import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { type ProofStore, type Tile, TILE_HASHES } from '@epitaph/projections/proof/proof-store.ts';
import { rmSync } from 'node:fs';
import { isOutdated, openForWriting, UnusableFile } from './database.ts';
import { sqliteCodeOf, sqliteCodes } from './failures.ts';
import { PROOF_SCHEMA, PROOF_SCHEMA_VERSION } from './schema.ts';
import { failureOutcome, StorageFault } from './writer.ts';

/** The tree of permanent facts in a SQLite file. It is written in batches, on the calling thread. */
export class SqliteProofStore implements ProofStore {
  readonly #database: DatabaseSync;
  readonly #file: string;
  readonly #sql: ReturnType<typeof prepare>;

  constructor(file: string) {
    if (isOutdated(file, PROOF_SCHEMA_VERSION)) {
      for (const suffix of ['', '-wal', '-shm']) rmSync(file + suffix, { force: true });
    }
    this.#file = file;
    this.#database = openForWriting({
      file,
      what: 'proof tree',
      remedy: 'Delete it, with its -wal and -shm files: it is made again from the log at the next start.',
      schema: PROOF_SCHEMA,
      schemaVersion: PROOF_SCHEMA_VERSION,
      synchronous: 'NORMAL',
    });
    try {
      this.#sql = prepare(this.#database);
    } catch (error) {
      // The version of the schema is right, so a table is missing.
      this.#database.close();
      throw this.#damaged((error as Error).message);
    }
  }

  state(): { size: number; position: number } {
    const state = this.#read(() => this.#sql.state.get());
    if (state === undefined) throw this.#damaged('how far it has come is lost');
    return state as { size: number; position: number };
  }

  write(tiles: readonly Tile[], state: { readonly size: number; readonly position: number }): void {
    this.#change(tiles, state, () => {});
  }

  clear(): void {
    this.#change([], { size: 0, position: 0 }, () => this.#sql.removeTiles.run());
  }

  #change(
    tiles: readonly Tile[],
    { size, position }: { readonly size: number; readonly position: number },
    before: () => void,
  ): void {
    this.#database.exec('BEGIN IMMEDIATE');
    try {
      before();
      for (const { level, number, hashes, firstPosition } of tiles) {
        this.#sql.putTile.run(level, number, firstPosition, hashes);
      }
      this.#sql.setState.run(size, position);
      this.#database.exec('COMMIT');
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
      throw failed(error, this.#file);
    }
  }

  tile(level: number, number: number): Tile | undefined {
    const tile = this.#read(() => this.#sql.tile.get(level, number)) as Tile | undefined;
    // The last tile of a level may not exist yet. If it is lost, the tree itself notices that.
    if (tile === undefined && number < Math.floor(this.state().size / TILE_HASHES ** (level + 1))) {
      throw this.#damaged(`tile ${number} of level ${level} is lost`);
    }
    return tile;
  }

  tileAt(position: number): Tile | undefined {
    return this.#read(() => this.#sql.tileAt.get(position)) as Tile | undefined;
  }

  #read<Result>(read: () => Result): Result {
    try {
      return read();
    } catch (error) {
      throw sqliteCodeOf(error) === sqliteCodes.corrupt ? this.#damaged((error as Error).message) : error;
    }
  }

  #damaged(why: string): UnusableFile {
    return new UnusableFile(
      `${this.#file}: the proof tree is damaged (${why}). Stop the store, and delete the file, with its -wal and -shm files: it is made again from the log at the next start.`,
    );
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }
}

/** Converts an error of SQLite or the disk to one that says what to do. */
function failed(error: unknown, file: string): unknown {
  const outcome = failureOutcome(error, `delete ${file}, with its -wal and -shm files: it is made again from the log`);
  return outcome.ok ? error : new StorageFault(outcome.failure);
}

const TILE = 'level, number, first_position AS firstPosition, hashes';

function prepare(database: DatabaseSync) {
  return {
    state: database.prepare('SELECT size, position FROM proof'),
    setState: database.prepare('UPDATE proof SET size = ?, position = ?'),
    putTile: database.prepare(
      'INSERT OR REPLACE INTO tiles (level, number, first_position, hashes) VALUES (?, ?, ?, ?)',
    ),
    removeTiles: database.prepare('DELETE FROM tiles'),
    tile: database.prepare(`SELECT ${TILE} FROM tiles WHERE level = ? AND number = ?`),
    tileAt: database.prepare(
      `SELECT ${TILE} FROM tiles WHERE level = 0 AND first_position <= ? ORDER BY first_position DESC LIMIT 1`,
    ),
  } satisfies Record<string, StatementSync>;
}
