import { invariant } from '@epitaph/core/invariant.ts';
import type { ReadModelStore, ReadModelVersions } from '@epitaph/projections/read-model-store.ts';
import { type PostgresDatabase, type Statements, UnusableServer } from './database.ts';
import { LOCK_SPACE, locks, migrate } from './migrations.ts';
import { PostgresReadModelStore } from './postgres-read-model-store.ts';
import {
  POSTGRES_READ_MODEL_SCHEMA_VERSION,
  readModelsSchema,
  readModelTables,
  schemaNameOf,
} from './read-model-schema.ts';

interface Version {
  readonly version: number;
  readonly store: ReadModelStore;
}

/** The versions of the read models in a PostgreSQL database, each a schema of its own. */
export class PostgresReadModels implements ReadModelVersions {
  readonly #database: PostgresDatabase;
  #current: Version;

  private constructor(database: PostgresDatabase, version: number) {
    this.#database = database;
    this.#current = this.#versionOf(version);
  }

  /** @throws {UnusableServer} for read models that a later version of this program has made */
  static async open(database: PostgresDatabase): Promise<PostgresReadModels> {
    await migrate(database, readModelsSchema);
    const version = await alone(database, async (sql) => {
      const [used] = await sql.query<{ version: number; schema_version: number }>(
        'SELECT version, schema_version FROM epitaph_read_models.in_use',
      );
      if (used !== undefined && used.schema_version > POSTGRES_READ_MODEL_SCHEMA_VERSION) {
        throw new UnusableServer(
          `The read models in PostgreSQL have schema ${used.schema_version}, made by a later Epitaph; this one knows ${POSTGRES_READ_MODEL_SCHEMA_VERSION}. Start that version, or a later one.`,
        );
      }
      if (used?.schema_version === POSTGRES_READ_MODEL_SCHEMA_VERSION) return used.version;
      // What an older version of this program has projected is projected again, from the log.
      const fresh = await create(sql);
      await use(sql, fresh);
      if (used !== undefined) await drop(sql, used.version);
      return fresh;
    });
    return new PostgresReadModels(database, version);
  }

  get current(): Version {
    return this.#current;
  }

  /** Looks which version is in use now: another node may have swapped it. @returns true when it is another one */
  async refresh(): Promise<boolean> {
    const [used] = await this.#database.query<{ version: number }>('SELECT version FROM epitaph_read_models.in_use');
    if (used!.version === this.#current.version) return false;
    this.#current = this.#versionOf(used!.version);
    return true;
  }

  async createNext(): Promise<Version> {
    const version = await alone(this.#database, async (sql) => {
      // Versions that a crash has cut short, or that were in use before; the last one may still have readers.
      const [used] = await sql.query<{ version: number }>('SELECT version FROM epitaph_read_models.in_use');
      for (const other of await versions(sql)) if (other !== used!.version) await drop(sql, other);
      return create(sql);
    });
    return this.#versionOf(version);
  }

  async swapTo(version: number): Promise<void> {
    await alone(this.#database, async (sql) => {
      invariant((await versions(sql)).includes(version), `a read model of version ${version} was built`);
      await use(sql, version);
      await sql.query('SELECT pg_notify($1, $2)', [CHANNEL, JSON.stringify({ version })]);
    });
    // The old one stays until the next is built: on other nodes it is still being read.
    this.#current = this.#versionOf(version);
  }

  async discard(version: number): Promise<void> {
    invariant(version !== this.#current.version, 'the version in use is not thrown away');
    await alone(this.#database, (sql) => drop(sql, version));
  }

  async close(): Promise<void> {}

  #versionOf(version: number): Version {
    return { version, store: new PostgresReadModelStore(this.#database, schemaNameOf(version)) };
  }
}

/** What is told on this channel concerns every node that reads the read models. */
export const CHANNEL = 'epitaph_read_models';

function alone<Result>(database: PostgresDatabase, work: (sql: Statements) => Promise<Result>): Promise<Result> {
  return database.transaction(async (sql) => {
    await sql.query('SELECT pg_advisory_xact_lock($1, $2)', [LOCK_SPACE, locks.readModels]);
    return work(sql);
  });
}

async function create(sql: Statements): Promise<number> {
  const [row] = await sql.query<{ version: number }>("SELECT nextval('epitaph_read_models.versions') AS version");
  await sql.query(readModelTables(schemaNameOf(row!.version)));
  return row!.version;
}

async function use(sql: Statements, version: number): Promise<void> {
  await sql.query(
    `INSERT INTO epitaph_read_models.in_use (one, version, schema_version) VALUES (1, $1, $2)
     ON CONFLICT (one) DO UPDATE SET version = excluded.version, schema_version = excluded.schema_version`,
    [version, POSTGRES_READ_MODEL_SCHEMA_VERSION],
  );
}

async function drop(sql: Statements, version: number): Promise<void> {
  await sql.query(`DROP SCHEMA IF EXISTS ${schemaNameOf(version)} CASCADE`);
}

async function versions(sql: Statements): Promise<number[]> {
  const rows = await sql.query<{ nspname: string }>(
    "SELECT nspname FROM pg_namespace WHERE nspname ~ '^epitaph_items_v[0-9]+$'",
  );
  return rows.map(({ nspname }) => Number(nspname.slice(schemaNameOf(0).length - 1)));
}
