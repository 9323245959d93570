import { UnusableServer, type PostgresDatabase, type Statements } from './database.ts';

/** Numbers of advisory locks: two integers, the first of which is ours ("EPIT"). */
export const LOCK_SPACE = 0x45504954;
export const locks = { migration: 1, vault: 2, projector: 3, readModels: 4, nodes: 5 } as const;

export interface Schema {
  /** The schema in the database that everything of it is in. */
  readonly name: string;
  /** What it is, for messages: "key vault", … */
  readonly what: string;
  /** Step n takes version n to n + 1; the first makes it all. Steps are only ever added. */
  readonly steps: readonly string[];
  /** Finishes what a first step can't do in SQL. */
  readonly afterCreation?: (statements: Statements) => Promise<void>;
}

/**
 * Brings a schema to the version of this program, in one transaction, one node at a time.
 *
 * @throws {UnusableServer} for one that a later version has made, or that is somebody else's
 */
export async function migrate(database: PostgresDatabase, schema: Schema): Promise<void> {
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
    for (const step of schema.steps.slice(version)) await sql.query(step);
    if (version === 0) await schema.afterCreation?.(sql);
    await sql.query(`UPDATE ${schema.name}.schema_version SET version = ${newest}`);
  });
}

async function versionOf(sql: Statements, { name, what }: Schema): Promise<number> {
  const [known] = await sql.query('SELECT to_regclass($1) AS found', [`${name}.schema_version`]);
  if (known?.['found'] === null) {
    throw new UnusableServer(
      `The schema ${name} in PostgreSQL is not the ${what} of Epitaph. Take another database, or rename that schema.`,
    );
  }
  const [row] = await sql.query<{ version: number }>(`SELECT version FROM ${name}.schema_version`);
  return row?.version ?? 0;
}
