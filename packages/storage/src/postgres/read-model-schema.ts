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
      -- how many lives were purged in all, counted here because counting rows takes as long as there are rows
      purged bigint NOT NULL,
      -- how many changes of databases, containers and catalog entries there were: whoever keeps them in memory looks at this
      catalog_changes bigint NOT NULL
    );
    INSERT INTO ${schema}.checkpoint VALUES (1, 0, 0, 0);
    -- A row of the catalog says after how many changes it last changed, so that who knows the others reads it alone.
    CREATE TABLE ${schema}.databases (number bigint PRIMARY KEY, state text NOT NULL, changed bigint NOT NULL);
    CREATE INDEX databases_by_change ON ${schema}.databases (changed);
    CREATE TABLE ${schema}.containers (number bigint PRIMARY KEY, state text NOT NULL, changed bigint NOT NULL);
    CREATE INDEX containers_by_change ON ${schema}.containers (changed);
    -- What of a container's state grows for years: see container-rows.ts.
    CREATE TABLE ${schema}.container_entries (
      number bigint NOT NULL,
      list text COLLATE "C" NOT NULL,
      place bigint NOT NULL,
      state text NOT NULL,
      changed bigint NOT NULL,
      PRIMARY KEY (number, list, place)
    );
    CREATE INDEX container_entries_by_change ON ${schema}.container_entries (changed);
    -- What databases have besides containers: users with their permissions, client encryption keys, and containers: scripts; those that are gone, too.
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
      -- ts + ttl for a ttl of its own, null without; for -1 a number beyond all times
      due bigint,
      key bigint NOT NULL,
      unreadable_ttl boolean NOT NULL,
      -- digests of the partition key, and of it with the id: an index takes no text as long as these may be
      partition_digest bytea NOT NULL,
      name_digest bytea NOT NULL,
      -- the sealed body and what it takes to open it; null where the log has to be asked
      stream text,
      revision bigint,
      event_id uuid,
      body bytea,
      PRIMARY KEY (container, birth)
    );
    -- Sealed bytes can't be compressed; out of line, they stay out of scans that need none.
    ALTER TABLE ${schema}.items ALTER body SET STORAGE EXTERNAL, ALTER body SET STATISTICS 0;
    CREATE UNIQUE INDEX items_by_name ON ${schema}.items (container, name_digest);
    CREATE INDEX items_by_partition ON ${schema}.items (container, partition_digest, birth);
    -- Find what is overdue and count what a policy would remove: both are ranges of one of them.
    CREATE INDEX items_by_ts ON ${schema}.items (container, ts) WHERE due IS NULL;
    CREATE INDEX items_by_due ON ${schema}.items (container, due, ts) WHERE due IS NOT NULL;
    CREATE INDEX items_unreadable_ttl ON ${schema}.items (container) WHERE unreadable_ttl;
    -- What containers have chosen to keep in clear of their items: see clear-values.ts. Goes with the item's row.
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
      -- null while the life's own stream does not say that it left with its partition key
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
    -- An index takes no text as long as partition keys may be.
    CREATE INDEX erasures_by_partition ON ${schema}.disappearances (container, md5(partition_key)) WHERE purged_at IS NOT NULL;
    CREATE TABLE ${schema}.purge_runs (
      -- of the run's start in the log
      position bigint PRIMARY KEY,
      stream text COLLATE "C" NOT NULL,
      -- null once it is completed
      state text
    );
    CREATE INDEX open_purge_runs ON ${schema}.purge_runs (stream) WHERE state IS NOT NULL;
    -- Nothing up to the position happened after the time, in milliseconds: see log-marks.ts.
    CREATE TABLE ${schema}.log_marks (at bigint NOT NULL, position bigint NOT NULL, PRIMARY KEY (at, position));
  `;
}
