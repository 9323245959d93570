import { UnusableServer, type PostgresDatabase, type Statements } from './database.ts';
import { POSTGRES_READ_MODEL_SCHEMA_VERSION } from './read-model-schema.ts';
import type { Schema } from './schema.ts';
import { vaultSchema } from './vault-schema.ts';

/** Advisory locks are identified by two integers. The first one is the store's own ("EPIT"). */
export const LOCK_SPACE = 0x45504954;
export const locks = { migration: 1, vault: 2, projector: 3, readModels: 4, nodes: 5 } as const;

/** The application name of nodes on the server. It differs between versions that can't work on the same database. */
export const NODE_NAME = `epitaph ${vaultSchema.steps.length}.${POSTGRES_READ_MODEL_SCHEMA_VERSION}`;

/**
 * Migrates a schema to the version of this program, in one transaction. Only one node at a time does so.
 *
 * @throws {UnusableServer} if a later version has made the schema, if nodes of an earlier version use it, or if it belongs to another
 *   program
 */
export async function migrate(
  database: PostgresDatabase,
  schema: Schema & {
    /** Called after the schema was created, for what can't be done in SQL alone. */
    readonly afterCreation?: (statements: Statements) => Promise<void>;
    /** Throws if the schema must not be changed after all. */
    readonly check?: (statements: Statements) => Promise<unknown>;
  },
): Promise<void> {
  await database.transaction(async (sql) => {
    await sql.query('SELECT pg_advisory_xact_lock($1, $2)', [LOCK_SPACE, locks.migration]);
    const [there] = await sql.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [schema.name]);
    let version = 0;
    if (there === undefined) {
      await sql.query(`CREATE SCHEMA ${schema.name}`);
      await sql.query(`CREATE TABLE ${schema.name}.schema_version (version integer NOT NULL)`);
      await sql.query(`INSERT INTO ${schema.name}.schema_version VALUES (0)`);
    } else version = await versionOf(sql, schema);
    const newest = schema.steps.length;
    if (version > newest) {
      throw new UnusableServer(
        `The ${schema.what} in PostgreSQL (schema ${schema.name}) has version ${version}, made by a later Epitaph; this one knows ${newest}. Start that version, or a later one.`,
      );
    }
    if (version === newest) return;
    if (version > 0) await assertNoOlderNodes(sql);
    await makeNewer(sql, schema, version);
    if (version === 0) await schema.afterCreation?.(sql);
    await schema.check?.(sql);
    await sql.query(`UPDATE ${schema.name}.schema_version SET version = ${newest}`);
  });
}

/** @throws {UnusableServer} if the tables are not those of the recorded version */
async function makeNewer(sql: Statements, { name, what, steps }: Schema, version: number): Promise<void> {
  try {
    if (version < 0) throw new Error('there is no such version');
    for (const step of steps.slice(version)) await sql.query(step);
  } catch (error) {
    const { code, message } = error as Error & { readonly code?: unknown };
    // A step makes something that exists already, or changes something that does not exist.
    const isOfAnother = version < 0 || (typeof code === 'string' && code.startsWith('42') && code !== '42501');
    if (!isOfAnother) throw error;
    throw new UnusableServer(
      `The ${what} in PostgreSQL (schema ${name}) is incomplete: its table schema_version says ${version}, but its other tables are of another version (${message}). Restore a copy of all of its tables.`,
      { cause: error },
    );
  }
}

/**
 * Must be called before tables are changed or dropped: running nodes of another version would go on to use them, or those that replace
 * them.
 *
 * @throws {UnusableServer} while such nodes are running
 */
export async function assertNoOlderNodes(sql: Pick<Statements, 'query'>): Promise<void> {
  const [{ others } = { others: 0 }] = await sql.query<{ others: number }>(OTHER_NODES, [
    LOCK_SPACE,
    locks.nodes,
    NODE_NAME,
  ]);
  if (others === 0) return;
  throw new UnusableServer(
    `Nodes of an older version (${others}) use this PostgreSQL database. Stop all of them first: this version migrates the tables that they use.`,
  );
}

const OTHER_NODES = `
  SELECT count(*)::int AS others FROM pg_locks JOIN pg_stat_activity USING (pid)
  WHERE locktype = 'advisory' AND classid = $1 AND objid = $2 AND granted
    AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND application_name <> $3`;

async function versionOf(sql: Statements, { name, what }: Schema): Promise<number> {
  const [known] = await sql.query('SELECT to_regclass($1) AS found', [`${name}.schema_version`]);
  if (known?.['found'] === null) {
    throw new UnusableServer(
      `The schema ${name} in PostgreSQL is not the ${what} of Epitaph. Take another database, or rename that schema.`,
    );
  }
  const [row] = await sql.query<{ version: number }>(`SELECT version FROM ${name}.schema_version`);
  if (row !== undefined) return row.version;
  throw new UnusableServer(
    `The ${what} in PostgreSQL (schema ${name}) is incomplete: its table schema_version is empty. Restore a copy of all of its tables.`,
  );
}
