import { invariant, InvariantViolation } from '@epitaph/core/invariant.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { CatalogChange, ReadModelChange } from '@epitaph/projections/read-model-store.ts';
import { ANYTHING, type ReadModelNews, type SharedReadModels } from '@epitaph/projections/shared-projector.ts';
import { whenContradictory } from '../contradictory-log.ts';
import {
  type DedicatedConnection,
  type PostgresDatabase,
  SILENT_SECONDS,
  type Statements,
  UnusableServer,
} from './database.ts';
import { assertNoOlderNodes, LOCK_SPACE, locks, migrate } from './migrations.ts';
import { PostgresReadModelStore } from './postgres-read-model-store.ts';
import {
  POSTGRES_READ_MODEL_SCHEMA_VERSION,
  readModelsSchema,
  readModelTables,
  schemaNameOf,
} from './read-model-schema.ts';

interface Version {
  readonly version: number;
  readonly store: PostgresReadModelStore;
}

/** The versions of the read models in a PostgreSQL database. Each version has its own schema. */
export class PostgresReadModels implements SharedReadModels {
  readonly shared = true;
  readonly #database: PostgresDatabase;
  #current: Version;
  #unfinished: SharedReadModels['unfinished'];
  #ear: { readonly connection: DedicatedConnection; readonly onNews: (news: ReadModelNews) => void } | undefined;
  #deaf = false;
  /** Whether the read models were empty when they were opened. */
  readonly #isNew: boolean;
  #hearingAgain: Promise<void> | undefined;
  /** The server session by which this process holds the right to write; undefined if it does not hold it. */
  #leadSession: number | undefined;

  private constructor(database: PostgresDatabase, version: number, isNew: boolean) {
    this.#database = database;
    this.#isNew = isNew;
    this.#current = this.#versionOf(version);
  }

  get unfinished(): SharedReadModels['unfinished'] {
    return this.#unfinished;
  }

  /** @throws {UnusableServer} if a later version of this program has made the read models, or nodes of an older version use them */
  static async open(database: PostgresDatabase): Promise<PostgresReadModels> {
    await migrate(database, readModelsSchema);
    const [version, isNew] = await alone(database, async (sql): Promise<[number, boolean]> => {
      await putBackDropped(sql);
      const [used] = await sql.query<{ version: number; schema_version: number }>(
        'SELECT version, schema_version FROM epitaph_read_models.in_use',
      );
      if (used !== undefined && used.schema_version > POSTGRES_READ_MODEL_SCHEMA_VERSION) {
        throw new UnusableServer(
          `The read models in PostgreSQL have schema ${used.schema_version}, made by a later Epitaph; this one knows ${POSTGRES_READ_MODEL_SCHEMA_VERSION}. Start that version, or a later one.`,
        );
      }
      const isCurrent = used?.schema_version === POSTGRES_READ_MODEL_SCHEMA_VERSION;
      if (isCurrent && (await versions(sql)).includes(used.version)) {
        return [used.version, (await checkpointOf(sql, used.version)) === 0];
      }
      // If the version in use is not known, nodes of an older program may be using it.
      if (!isCurrent) await assertNoOlderNodes(sql);
      // Read models that are missing, or were made by an older version of this program, are built again from the log. All others are
      // dropped: nobody would use them, or remove erased content from them.
      for (const former of await versions(sql)) {
        await drop(sql, former);
        // Numbers of versions are not reused: a running node would take the new version for the one that it knows.
        await sql.query(COUNT_BEYOND, [former]);
      }
      const fresh = await create(sql);
      await use(sql, fresh);
      return [fresh, true];
    });
    const readModels = new PostgresReadModels(database, version, isNew);
    const unfinished = await unfinishedIn(database);
    if (unfinished !== undefined) {
      const { store } = readModels.#versionOf(unfinished);
      readModels.#unfinished = { version: unfinished, position: await store.checkpoint() };
    }
    return readModels;
  }

  get current(): Version {
    return this.#current;
  }

  readonly explained = (error: unknown): unknown => {
    // A syntax error means damaged JSON. Where no other error type is used, only the read models contain JSON.
    if (!(error instanceof InvariantViolation || error instanceof SyntaxError)) return error;
    return this.#isNew && error instanceof InvariantViolation
      ? new UnusableServer(`${error.message}: ${whenContradictory()}`)
      : unusable(this.#current.version, error.message);
  };

  async look(): Promise<{ version: number; position: number; catalogChanges: number }> {
    await this.#listenAgain();
    const version = await versionInUse(this.#database);
    if (version === this.#current.version) return { version, ...(await this.#current.store.standing()) };
    // Another node has swapped the version. No reader may use it before its position is known.
    const standing = await this.#versionOf(version).store.standing();
    this.#use(version);
    return { version, ...standing };
  }

  catalogSince(catalogChanges: number): Promise<CatalogChange[]> {
    return this.#current.store.catalogSince(catalogChanges);
  }

  async openUnfinished(): Promise<Version | undefined> {
    this.#unfinished = undefined;
    // It may have been begun by another node, which had the right to write before.
    const version = await unfinishedIn(this.#database);
    return version === undefined ? undefined : this.#versionOf(version);
  }

  async createNext(): Promise<Version> {
    const version = await alone(this.#database, async (sql) => {
      await this.#assertLeads(sql);
      // Drops versions whose rebuild a crash has interrupted, and former ones. The version in use may still have readers.
      const used = await versionInUse(sql);
      for (const other of await versions(sql)) if (other !== used) await drop(sql, other);
      return create(sql);
    });
    return this.#versionOf(version);
  }

  async swapTo(version: number): Promise<void> {
    const swap = alone(this.#database, async (sql) => {
      invariant((await versions(sql)).includes(version), `a read model of version ${version} was built`);
      // If another process has the right to write by now, it writes to the version in use, and would not notice the swap.
      await this.#assertLeads(sql);
      await use(sql, version);
      await tell(sql, { containers: null });
    });
    await swap.catch(async (error: unknown) => {
      // The connection may have broken between the commit and its answer.
      if ((await alone(this.#database, versionInUse)) !== version) throw error;
    });
    // The old version stays until the next one is built, since other nodes may still read it.
    this.#use(version);
  }

  async discard(version: number): Promise<void> {
    invariant(version !== this.#current.version, 'the version in use is not thrown away');
    if (this.#unfinished?.version === version) this.#unfinished = undefined;
    await alone(this.#database, async (sql) => {
      // If another process has the right to write by now, it may be continuing this version, or using it, so only that process may drop
      // it. And a swap to this version may have been committed although its answer was lost.
      if ((await this.#leads(sql)) && version !== (await versionInUse(sql))) await drop(sql, version);
    });
    this.#database.forgetStatements();
  }

  #use(version: number): void {
    this.#current = this.#versionOf(version);
    this.#database.forgetStatements();
  }

  async lead(onLost: () => void): Promise<{ release(): Promise<void> } | undefined> {
    // All nodes try this every second, and mostly another node has the right. So a query on the pool comes first, which needs no
    // separate connection.
    const holders = await this.#database.query(FIND_HOLDER, [LOCK_SPACE, locks.projector, SILENT_SECONDS]);
    if (holders.length > 0) return undefined;
    // The lock lasts as long as its connection: when this process ends, however it ends, another node can take it.
    const { connection, prepared: session } = await this.#database.dedicated(async (sql) => {
      const [lock] = await sql.query<{ got: boolean; session: number }>(
        'SELECT pg_try_advisory_lock($1, $2) AS got, pg_backend_pid() AS session',
        [LOCK_SPACE, locks.projector],
      );
      if (!lock!.got) return undefined;
      // Waits for a swap that the former holder has begun, so that it is visible from here on.
      await alone(this.#database, () => Promise.resolve());
      return lock!.session;
    });
    if (session === undefined) {
      await connection.close();
      return undefined;
    }
    this.#leadSession = session;
    let released = false;
    connection.onEnd(() => {
      if (this.#leadSession === session) this.#leadSession = undefined;
      if (!released) onLost();
    });
    return {
      release: async () => {
        released = true;
        await connection.close();
      },
    };
  }

  async listen(onNews: (news: ReadModelNews) => void): Promise<{ close(): Promise<void> }> {
    await this.#hear(onNews);
    return { close: () => this.close() };
  }

  async #listenAgain(): Promise<void> {
    if (this.#deaf) this.#hearingAgain ??= this.#hearAgain().finally(() => (this.#hearingAgain = undefined));
    await this.#hearingAgain;
  }

  async tellErased(positions: readonly number[]): Promise<void> {
    for (let from = 0; from < positions.length; from += ERASED_A_NOTE) {
      await tell(this.#database, { erased: positions.slice(from, from + ERASED_A_NOTE) });
    }
  }

  async tellTakesLong(): Promise<void> {
    await tell(this.#database, { containers: [], takesLong: true });
  }

  async close(): Promise<void> {
    await this.#hearingAgain?.catch(() => {});
    const ear = this.#ear;
    this.#ear = undefined;
    this.#deaf = false;
    await ear?.connection.close();
  }

  /** Whether this process still has the right to write, by the server: it may have lost the right without having noticed. */
  async #leads(sql: Statements): Promise<boolean> {
    const session = this.#leadSession;
    if (session === undefined) return false;
    const [lead] = await sql.query<{ held: boolean }>(HOLDS, [LOCK_SPACE, locks.projector, session]);
    return lead!.held;
  }

  async #assertLeads(sql: Statements): Promise<void> {
    if (!(await this.#leads(sql))) throw new StorageUnavailable('another node keeps the read models up to date now');
  }

  async #hear(onNews: (news: ReadModelNews) => void): Promise<void> {
    const { connection } = await this.#database.dedicated(async (ear) => {
      ear.onNotification((payload) => onNews(newsOf(payload)));
      await ear.query(`LISTEN ${CHANNEL}`);
    });
    connection.onEnd(() => {
      this.#deaf ||= this.#ear?.connection === connection;
    });
    this.#ear = { connection, onNews };
  }

  async #hearAgain(): Promise<void> {
    const { onNews } = this.#ear!;
    await this.#hear(onNews);
    this.#deaf = false;
    onNews(ANYTHING);
  }

  #versionOf(version: number): Version {
    const store = new PostgresReadModelStore(this.#database, schemaNameOf(version), (sql, changes) => {
      // Other nodes don't read a version that is still being built.
      if (version === this.#current.version) void tell(sql, notesOf(changes));
    });
    return { version, store };
  }
}

const HOLDS = `SELECT count(*) > 0 AS held FROM pg_locks
  WHERE locktype = 'advisory' AND classid = $1 AND objid = $2 AND pid = $3 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

/**
 * Finds the session that has the right to write. A process that is suspended keeps its connections, and so the right; a silent session
 * is therefore terminated here. When that process resumes, it follows the new writer; changes that it was about to apply are refused
 * because the checkpoint has moved.
 */
const FIND_HOLDER = `SELECT CASE
    WHEN a.usename = current_user AND a.state = 'idle' AND a.state_change < clock_timestamp() - make_interval(secs => $3)
    THEN pg_terminate_backend(a.pid)
  END AS ended
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
  WHERE l.locktype = 'advisory' AND l.classid = $1 AND l.objid = $2 AND l.granted AND a.datname = current_database()`;

const COUNT_BEYOND =
  "SELECT setval('epitaph_read_models.versions', greatest(last_value, $1)) FROM epitaph_read_models.versions";

/** @source PostgreSQL's documentation, appendix A, "PostgreSQL Error Codes" */
const UNDEFINED_TABLE = '42P01';
const UNDEFINED_SCHEMA = '3F000';

/** The channel on which all nodes that use the read models are notified of changes. */
const CHANNEL = 'epitaph_read_models';
/** A comment on the schema of a version. An unfinished version is continued only if it has the comment of this program's version. */
const MADE_BY = `Epitaph read models, schema ${POSTGRES_READ_MODEL_SCHEMA_VERSION}`;
/** PostgreSQL limits the text of a notification to 8,000 bytes. */
const ERASED_A_NOTE = 400;
const MOST_CONTAINERS = 400;

type Notes = Partial<{ readonly [Name in keyof ReadModelNews]: ReadModelNews[Name] | null }>;

function tell(sql: Statements, notes: Notes): Promise<unknown> {
  return sql.query('SELECT pg_notify($1, $2)', [CHANNEL, JSON.stringify(notes)]);
}

function notesOf(changes: readonly ReadModelChange[]): Notes {
  const containers = new Set<number>();
  const databases = new Set<string>();
  for (const change of changes) {
    if (change.kind === 'item-ended') containers.add(change.row.container);
    else if ('container' in change) containers.add(change.container);
    else if (change.kind === 'container') containers.add(change.number);
    else if (change.kind === 'database' && change.state.status === 'deleted') databases.add(change.state.rid);
  }
  if (containers.size + databases.size > MOST_CONTAINERS) return { containers: null };
  return { containers: [...containers], ...(databases.size === 0 ? {} : { databases: [...databases] }) };
}

function newsOf(payload: string | undefined): ReadModelNews {
  const { containers = [], databases, erased, takesLong } = JSON.parse(payload ?? '{}') as Notes;
  return {
    containers: containers ?? undefined,
    databases: databases ?? [],
    erased: erased ?? [],
    ...(takesLong === true ? { takesLong } : {}),
  };
}

function alone<Result>(database: PostgresDatabase, work: (sql: Statements) => Promise<Result>): Promise<Result> {
  return database.transaction(async (sql) => {
    await sql.query('SELECT pg_advisory_xact_lock($1, $2)', [LOCK_SPACE, locks.readModels]);
    return work(sql);
  });
}

/**
 * The checkpoint of a version, after a check that all of its tables are there.
 *
 * @throws {UnusableServer} if a table or the checkpoint is missing
 */
async function checkpointOf(sql: Statements, version: number): Promise<number> {
  const schema = schemaNameOf(version);
  const rows = await sql.query<{ name: string }>('SELECT tablename AS name FROM pg_tables WHERE schemaname = $1', [
    schema,
  ]);
  const there = new Set(rows.map(({ name }) => name));
  for (const [, name] of readModelTables(schema).matchAll(/CREATE TABLE \w+\.(\w+)/g)) {
    if (!there.has(name!)) throw unusable(version, `table ${name} is not there`);
  }
  const [checkpoint] = await sql.query<{ position: number }>(`SELECT position FROM ${schema}.checkpoint`);
  if (checkpoint === undefined) throw unusable(version, 'table checkpoint is empty');
  return checkpoint.position;
}

function unusable(version: number, what: string): UnusableServer {
  const schema = schemaNameOf(version);
  return new UnusableServer(
    `The read models in PostgreSQL are damaged (${what.replace(/\.$/, '')}). Stop all nodes, and drop them (DROP SCHEMA ${schema} CASCADE): they are built again from the log at the next start.`,
  );
}

/** Makes the table of the version in use and the sequence of versions again, if somebody has dropped them but not the versions. */
async function putBackDropped(sql: Statements): Promise<void> {
  const [row] = await sql.query<{ all_there: boolean }>(
    `SELECT to_regclass('epitaph_read_models.in_use') IS NOT NULL
       AND to_regclass('epitaph_read_models.versions') IS NOT NULL AS all_there`,
  );
  if (row!.all_there) return;
  for (const step of readModelsSchema.steps) await sql.query(step);
  for (const version of await versions(sql)) await sql.query(COUNT_BEYOND, [version]);
}

async function create(sql: Statements): Promise<number> {
  const [row] = await sql.query<{ version: number }>("SELECT nextval('epitaph_read_models.versions') AS version");
  await sql.query(readModelTables(schemaNameOf(row!.version)));
  await sql.query(`COMMENT ON SCHEMA ${schemaNameOf(row!.version)} IS '${MADE_BY}'`);
  return row!.version;
}

/** A version later than the one in use is an interrupted rebuild; versions that were swapped out are earlier. */
async function unfinishedIn(sql: Statements): Promise<number | undefined> {
  const used = await versionInUse(sql);
  const [row] = await sql.query<{ nspname: string }>(
    `SELECT nspname FROM pg_namespace
     WHERE nspname ~ '^epitaph_items_v[0-9]+$' AND obj_description(oid, 'pg_namespace') = $1
     ORDER BY substr(nspname, ${schemaNameOf(0).length})::bigint DESC LIMIT 1`,
    [MADE_BY],
  );
  const version = row === undefined ? 0 : versionOfSchema(row.nspname);
  return version > used ? version : undefined;
}

const versionOfSchema = (name: string): number => Number(name.slice(schemaNameOf(0).length - 1));

/** @throws {UnusableServer} if the version is lost. A node may not continue with the one that it has: another may have swapped it. */
async function versionInUse(sql: Statements): Promise<number> {
  const select = 'SELECT version FROM epitaph_read_models.in_use';
  const [used] = await sql.query<{ version: number }>(select).catch(unlessDropped);
  if (used !== undefined) return used.version;
  throw new UnusableServer(
    'The read models in PostgreSQL are damaged (epitaph_read_models.in_use is empty or missing, so it is unknown which of them are in use). Restart a node: it builds new ones from the log, and all nodes then use these.',
  );
}

/** Handles an error: no rows if somebody has dropped the table or its schema. */
function unlessDropped(error: unknown): [] {
  const { code } = error as { readonly code?: string };
  if (code === UNDEFINED_TABLE || code === UNDEFINED_SCHEMA) return [];
  throw error;
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
  return rows.map(({ nspname }) => versionOfSchema(nspname));
}
