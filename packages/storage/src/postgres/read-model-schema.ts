import type { Schema } from './schema.ts';

/** The schema with the version of the read models that is in use, and the schema version that made it. */
export const readModelsSchema: Schema = {
  name: 'epitaph_read_models',
  what: 'list of read models',
  steps: [
    `
    CREATE TABLE IF NOT EXISTS epitaph_read_models.in_use (
      one integer PRIMARY KEY CHECK (one = 1),
      version integer NOT NULL,
      schema_version integer NOT NULL
    );
    CREATE SEQUENCE IF NOT EXISTS epitaph_read_models.versions;
    `,
  ],
};

/**
 * The version of the read models' own schema. They can be rebuilt from the log at any time: those of an older schema are dropped, and
 * built again at the next start. So raise this number after any change here, or in the states that are stored as JSON.
 */
export const POSTGRES_READ_MODEL_SCHEMA_VERSION = 14;

/** The name of the database schema of one version of the read models. */
export function schemaNameOf(version: number): string {
  return `epitaph_items_v${version}`;
}

/** Ids, partition keys and stream names are stored with JSON's escapes: PostgreSQL accepts neither NUL nor half of a surrogate pair. */
export function readModelTables(schema: string): string {
  return `
    CREATE SCHEMA ${schema};
    CREATE TABLE ${schema}.checkpoint (
      one integer PRIMARY KEY CHECK (one = 1),
      position bigint NOT NULL,
      -- number of all purged lives. It is kept here because counting rows takes longer the more there are
      purged bigint NOT NULL,
      -- number of all changes of databases, containers and catalog entries. It shows nodes whether theirs in memory are current
      catalog_changes bigint NOT NULL
    );
    INSERT INTO ${schema}.checkpoint VALUES (1, 0, 0, 0);
    -- In rows of the catalog, "changed" is the number of changes at its last change. So a node reads only the rows that it does not know yet.
    CREATE TABLE ${schema}.databases (number bigint PRIMARY KEY, state text NOT NULL, changed bigint NOT NULL);
    CREATE INDEX databases_by_change ON ${schema}.databases (changed);
    CREATE TABLE ${schema}.containers (number bigint PRIMARY KEY, state text NOT NULL, changed bigint NOT NULL);
    CREATE INDEX containers_by_change ON ${schema}.containers (changed);
    -- The lists of a container's state that grow for years: see container-rows.ts.
    CREATE TABLE ${schema}.container_entries (
      number bigint NOT NULL,
      list text COLLATE "C" NOT NULL,
      place bigint NOT NULL,
      state text NOT NULL,
      changed bigint NOT NULL,
      PRIMARY KEY (number, list, place)
    );
    CREATE INDEX container_entries_by_change ON ${schema}.container_entries (changed);
    -- What databases have besides containers (users with their permissions, client encryption keys), and the scripts of containers. Deleted ones stay.
    CREATE TABLE ${schema}.catalog_entries (
      number bigint PRIMARY KEY,
      kind text NOT NULL,
      state text NOT NULL,
      gone boolean NOT NULL,
      changed bigint NOT NULL
    );
    CREATE INDEX catalog_entries_by_change ON ${schema}.catalog_entries (changed);
    CREATE TABLE ${schema}.items (
      -- position of the life's first event in the log
      birth bigint NOT NULL,
      container bigint NOT NULL,
      partition_key text NOT NULL,
      id text NOT NULL,
      life bigint NOT NULL,
      position bigint NOT NULL,
      ts bigint NOT NULL,
      -- the item's own ttl, null for none
      ttl bigint,
      -- ts + ttl; null without an own ttl; for -1 a number after all times
      due bigint,
      key bigint NOT NULL,
      unreadable_ttl boolean NOT NULL,
      -- digests of the partition key, and of partition key and id: these texts may be too long for an index
      partition_digest bytea NOT NULL,
      name_digest bytea NOT NULL,
      -- the sealed body, and what is needed to open it; null if it must be read from the log
      stream text,
      revision bigint,
      event_id uuid,
      body bytea,
      PRIMARY KEY (container, birth)
    );
    -- Sealed bytes can't be compressed. Stored out of line, they don't slow down scans that don't need them.
    ALTER TABLE ${schema}.items ALTER body SET STORAGE EXTERNAL, ALTER body SET STATISTICS 0;
    CREATE UNIQUE INDEX items_by_name ON ${schema}.items (container, name_digest);
    CREATE INDEX items_by_partition ON ${schema}.items (container, partition_digest, birth);
    -- These find overdue items, and count those that a policy would remove: both are ranges of one of these indexes.
    CREATE INDEX items_by_ts ON ${schema}.items (container, ts) WHERE due IS NULL;
    CREATE INDEX items_by_due ON ${schema}.items (container, due, ts) WHERE due IS NOT NULL;
    CREATE INDEX items_unreadable_ttl ON ${schema}.items (container) WHERE unreadable_ttl;
    -- Values of items at the container's clear paths: see clear-values.ts. Deleted with the item's row.
    CREATE TABLE ${schema}.item_clear (
      container bigint NOT NULL,
      birth bigint NOT NULL,
      path bigint NOT NULL,
      value bytea NOT NULL,
      PRIMARY KEY (container, birth, path)
    );
    CREATE INDEX item_clear_by_value ON ${schema}.item_clear (container, path, value, birth);
    CREATE TABLE ${schema}.ended (
      container bigint NOT NULL,
      partition_key text NOT NULL,
      id text NOT NULL,
      life bigint NOT NULL,
      -- null if the life left with its partition key, and its own stream does not record that yet
      stream text,
      position bigint NOT NULL,
      cause text NOT NULL,
      ended_at bigint NOT NULL,
      by_policy_start boolean NOT NULL,
      name_digest bytea NOT NULL,
      PRIMARY KEY (container, name_digest, life)
    );
    CREATE INDEX ended_by_time ON ${schema}.ended (container, by_policy_start, ended_at, position);
    CREATE INDEX ended_unrecorded ON ${schema}.ended (container, position) WHERE stream IS NULL;
    CREATE TABLE ${schema}.disappearances (
      position bigint PRIMARY KEY,
      container bigint NOT NULL,
      partition_key text NOT NULL,
      id text NOT NULL,
      life bigint NOT NULL,
      cause text NOT NULL,
      at bigint NOT NULL,
      recorded_at bigint NOT NULL,
      purged_at bigint,
      actor text,
      rule text,
      ttl bigint,
      policy_version bigint
    );
    CREATE INDEX disappearances_by_time ON ${schema}.disappearances (container, at, position);
    CREATE INDEX erasures_by_time ON ${schema}.disappearances (container, purged_at, position) WHERE purged_at IS NOT NULL;
    -- Partition keys may be too long for an index.
    CREATE INDEX erasures_by_partition ON ${schema}.disappearances (container, md5(partition_key)) WHERE purged_at IS NOT NULL;
    CREATE TABLE ${schema}.purge_runs (
      -- position in the log of the run's start
      position bigint PRIMARY KEY,
      stream text COLLATE "C" NOT NULL,
      -- null once it is completed
      state text
    );
    CREATE INDEX open_purge_runs ON ${schema}.purge_runs (stream) WHERE state IS NOT NULL;
    -- Nothing up to the position happened after the time (milliseconds): see log-marks.ts.
    CREATE TABLE ${schema}.log_marks (at bigint NOT NULL, position bigint NOT NULL, PRIMARY KEY (at, position));
  `;
}
