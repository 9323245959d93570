import { GCM_OVERHEAD_BYTES } from '../crypto/aes-gcm.ts';
import { KEY_BYTES, OWNER_BYTES } from '../crypto/key-wrapping.ts';

/** The event log. Bodies are sealed; everything else is in clear. */
export const LOG_SCHEMA_VERSION = 1;
export const LOG_SCHEMA = `
  CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    stream TEXT NOT NULL,
    revision INTEGER NOT NULL,
    -- position of the previous event in the stream, 0 for none: a stream is a chain, so it needs no index
    previous INTEGER NOT NULL,
    -- numbers from the table words
    type INTEGER NOT NULL,
    version INTEGER NOT NULL,
    at INTEGER NOT NULL,
    id BLOB NOT NULL,
    actor INTEGER NOT NULL,
    correlation BLOB NOT NULL,
    -- null if it is the same as correlation
    causation BLOB,
    -- shape: the number of the word with the data's property names; data: the values as a JSON array
    shape INTEGER NOT NULL,
    data TEXT NOT NULL,
    body BLOB
  ) STRICT;
  -- Texts that many events share: types, actors, lists of property names.
  CREATE TABLE words (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
  -- The end of each stream as of a position. Later ends are found in the events. Names are hashes, so each new name would
  -- change another page. So new names are added many at a time, in order.
  CREATE TABLE streams (
    name TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    last INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE streams_as_of (one INTEGER PRIMARY KEY CHECK (one = 1), position INTEGER NOT NULL) STRICT;
  INSERT INTO streams_as_of VALUES (1, 0);
`;

/** This many of the last events of a log in the folder are used to find out whether the vault is an older copy. */
export const JUDGED_EVENTS = 1_000;

/** How many spare keys a batch has. */
export const SPARE_KEYS = 512;
/** Length of the header of a batch, in bytes. */
export const SPARE_HEAD_BYTES = 16;
/** Slots for batches: one in use, the next one, and the rest of former ones. */
export const SPARE_SLOTS = [0, 1, 2, 3] as const;
const SPARE_BATCH_BYTES = SPARE_HEAD_BYTES + SPARE_KEYS * KEY_BYTES + GCM_OVERHEAD_BYTES;
const SPARE_BATCHES_TABLE = `
  -- Batches of keys that have no lives yet, each in one row. The rows exist from the beginning and are overwritten in
  -- place; a row without a batch has zeros.
  CREATE TABLE spare_keys (slot INTEGER PRIMARY KEY, wrapped BLOB NOT NULL) STRICT;
  INSERT INTO spare_keys VALUES ${SPARE_SLOTS.map((slot) => `(${slot}, zeroblob(${SPARE_BATCH_BYTES}))`).join(', ')};
`;

const HOLD_INDEXES = `
  CREATE INDEX holds_by_container ON holds (container);
  CREATE INDEX held_lives_by_hold ON held_lives (hold_id);
  -- The prefixes of the streams that a hold covers. The holds on a stream are found by looking up its own prefix of each
  -- length that exists here, however many holds there are.
  CREATE TABLE held_prefixes (
    length INTEGER NOT NULL,
    prefix TEXT NOT NULL,
    hold_id TEXT NOT NULL,
    PRIMARY KEY (length, prefix, hold_id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX held_prefixes_by_hold ON held_prefixes (hold_id);
`;
/** The key vault. It is in a file of its own, so that a copy of the log contains nothing that can be read. */
export const VAULT_SCHEMA_VERSION = 5;
export const VAULT_SCHEMA = `
  -- Rows are only appended; a key that is stored later has zeros until then. A destroyed key is overwritten in place with
  -- zeros. So nothing moves within a page, and no copy is left behind.
  CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    owner BLOB NOT NULL,
    wrapped BLOB NOT NULL
  ) STRICT;
  CREATE TABLE holds (
    hold_id TEXT PRIMARY KEY,
    container TEXT NOT NULL,
    scope TEXT NOT NULL,
    placed_at INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE held_lives (
    stream TEXT NOT NULL,
    hold_id TEXT NOT NULL,
    PRIMARY KEY (stream, hold_id)
  ) STRICT, WITHOUT ROWID;
  -- set by operators; counts from a life's last write
  CREATE TABLE floors (container TEXT PRIMARY KEY, seconds INTEGER NOT NULL) STRICT;
  -- set by the change feed; counts from a life's last event
  CREATE TABLE feed_floors (container TEXT PRIMARY KEY, seconds INTEGER NOT NULL) STRICT;
  CREATE TABLE secrets (name TEXT PRIMARY KEY, wrapped BLOB NOT NULL) STRICT;
  ${HOLD_INDEXES}
  ${SPARE_BATCHES_TABLE}
`;
/** Statements that migrate each older version to the next one, from version 1 on. */
export const VAULT_MIGRATIONS: readonly string[] = [
  'CREATE TABLE feed_floors (container TEXT PRIMARY KEY, seconds INTEGER NOT NULL) STRICT',
  `${HOLD_INDEXES}
  INSERT INTO held_prefixes
    SELECT length(prefix), prefix, hold_id FROM (
      SELECT hold_id, 'item-' || (scope ->> '$.containerRid') || '.' AS prefix FROM holds
        WHERE scope ->> '$.kind' = 'container'
      UNION SELECT hold_id, scope ->> '$.prefix' FROM holds WHERE scope ->> '$.kind' = 'stream-prefix'
      UNION SELECT hold_id, value FROM holds, json_each(scope, '$.prefixes') WHERE scope ->> '$.kind' = 'stream-prefixes'
    )`,
  SPARE_BATCHES_TABLE,
  // Since this version the log may have events of scripts, which older programs can't read. So they must refuse the vault.
  '',
];

/**
 * The read models. They can be rebuilt from the log at any time: a file of an older schema is deleted, and built again at the next
 * start. So raise this number after any change here, or in the states that are stored as JSON.
 */
export const READ_MODEL_SCHEMA_VERSION = 15;
export const READ_MODEL_SCHEMA = `
  CREATE TABLE checkpoint (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    position INTEGER NOT NULL,
    -- number of all purged lives. It is kept here because counting rows takes longer the more there are
    purged INTEGER NOT NULL,
    -- identifies the last opening of the folder; the folder's own file has the same value
    opening TEXT
  ) STRICT;
  INSERT INTO checkpoint VALUES (1, 0, 0, NULL);
  CREATE TABLE databases (number INTEGER PRIMARY KEY, rid TEXT NOT NULL UNIQUE, state TEXT NOT NULL) STRICT;
  CREATE TABLE containers (number INTEGER PRIMARY KEY, rid TEXT NOT NULL UNIQUE, state TEXT NOT NULL) STRICT;
  -- The lists of a container's state that grow for years: see container-rows.ts.
  CREATE TABLE container_entries (
    number INTEGER NOT NULL,
    list TEXT NOT NULL,
    place INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (number, list, place)
  ) STRICT, WITHOUT ROWID;
  -- What databases have besides containers (users with their permissions, client encryption keys), and the scripts of containers.
  CREATE TABLE catalog_entries (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    state TEXT NOT NULL
  ) STRICT;
  CREATE TABLE items (
    -- position of the life's first event in the log
    birth INTEGER PRIMARY KEY,
    container INTEGER NOT NULL,
    partition_key TEXT NOT NULL,
    id TEXT NOT NULL,
    life INTEGER NOT NULL,
    -- position in the log of the last write, which has the sealed body
    position INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    -- the item's own ttl, null for none
    ttl INTEGER,
    -- ts + ttl; null without an own ttl; for -1 a number after all times
    due INTEGER,
    key INTEGER NOT NULL,
    unreadable_ttl INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX items_by_name ON items (container, partition_key, id);
  -- Finds overdue items, and counts those that a policy would remove: both are ranges of this index.
  CREATE INDEX items_by_time ON items (container, due, ts);
  CREATE INDEX items_unreadable_ttl ON items (container) WHERE unreadable_ttl = 1;
  -- Values of items at the container's clear paths: see clear-values.ts. Deleted with the item's row.
  CREATE TABLE item_clear (
    birth INTEGER NOT NULL,
    path INTEGER NOT NULL,
    container INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (birth, path)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX item_clear_by_value ON item_clear (container, path, value, birth);
  CREATE TABLE ended (
    container INTEGER NOT NULL,
    partition_key TEXT NOT NULL,
    id TEXT NOT NULL,
    life INTEGER NOT NULL,
    -- null if the life left with its partition key, and its own stream does not record that yet
    stream TEXT,
    position INTEGER NOT NULL,
    cause TEXT NOT NULL,
    ended_at INTEGER NOT NULL,
    by_policy_start INTEGER NOT NULL,
    PRIMARY KEY (container, partition_key, id, life)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX ended_by_time ON ended (container, by_policy_start, ended_at, position);
  CREATE INDEX ended_unrecorded ON ended (container, position) WHERE stream IS NULL;
  CREATE TABLE disappearances (
    position INTEGER PRIMARY KEY,
    container INTEGER NOT NULL,
    partition_key TEXT NOT NULL,
    id TEXT NOT NULL,
    life INTEGER NOT NULL,
    cause TEXT NOT NULL,
    at INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    purged_at INTEGER,
    actor TEXT,
    rule TEXT,
    ttl INTEGER,
    policy_version INTEGER
  ) STRICT;
  CREATE INDEX disappearances_by_time ON disappearances (container, at, position);
  CREATE INDEX erasures_by_time ON disappearances (container, purged_at, position) WHERE purged_at IS NOT NULL;
  CREATE INDEX erasures_by_partition ON disappearances (container, partition_key) WHERE purged_at IS NOT NULL;
  CREATE TABLE purge_runs (
    -- position in the log of the run's start
    position INTEGER PRIMARY KEY,
    stream TEXT NOT NULL,
    -- null once it is completed
    state TEXT
  ) STRICT;
  CREATE INDEX open_purge_runs ON purge_runs (stream) WHERE state IS NOT NULL;
  -- Nothing up to the position happened after the time (milliseconds): see log-marks.ts.
  CREATE TABLE log_marks (at INTEGER NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (at, position)) STRICT, WITHOUT ROWID;
`;

/** The tree of the permanent facts, in tiles of 256 hashes. It is made from the log, and deleted like the read models. */
export const PROOF_SCHEMA_VERSION = 1;
export const PROOF_SCHEMA = `
  CREATE TABLE proof (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    size INTEGER NOT NULL,
    position INTEGER NOT NULL
  ) STRICT;
  INSERT INTO proof VALUES (1, 0, 0);
  CREATE TABLE tiles (
    level INTEGER NOT NULL,
    number INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    hashes BLOB NOT NULL,
    PRIMARY KEY (level, number)
  ) STRICT;
  CREATE INDEX tiles_by_position ON tiles (level, first_position);
`;

/** The owner in the row of a key that is not stored yet. */
export const NOBODY = `zeroblob(${OWNER_BYTES})`;

export const LAST_KEY_ID = 'SELECT coalesce(max(id), 0) AS last FROM keys';

/** Selects the holds on a stream, each once. */
export const HOLDS_ON_STREAM = `
  WITH RECURSIVE lengths (of) AS (
    SELECT min(length) FROM held_prefixes
    UNION ALL SELECT (SELECT min(length) FROM held_prefixes WHERE length > of) FROM lengths WHERE of IS NOT NULL
  )
  SELECT hold_id FROM lengths CROSS JOIN held_prefixes WHERE length = of AND prefix = substr(?1, 1, of)
  UNION SELECT hold_id FROM held_lives WHERE stream = ?1
`;
