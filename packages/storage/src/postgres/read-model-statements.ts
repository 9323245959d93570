import { isDueOtherwise } from '../due.ts';
import { HOLDS, POLICIES } from '@epitaph/projections/catalog/container-rows.ts';
import { containersIn } from '../container-scan.ts';

/** The written items as rows. The parameters $1 to $16 are their columns, and $17 is the births. */
const WRITTEN_ITEMS = `unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
  $8::bigint[], $9::bigint[], $10::boolean[], $11::bytea[], $12::bytea[], $13::text[], $14::bigint[], $15::uuid[],
  $16::bytea[], $17::bigint[]) AS w (container, partition_key, id, life, position, ts, ttl, due, key, unreadable_ttl,
  partition_digest, name_digest, stream, revision, event_id, body, birth)`;

const ITEM = 'birth, container, partition_key AS "partitionKey", id, life, position, ts, ttl, key';
const BODY = 'position, stream, revision, event_id AS "eventId", body';
const DISAPPEARANCE = `position, container, partition_key AS "partitionKey", id, life, cause, at AS "atMs",
  recorded_at AS "recordedAtMs", purged_at AS "purgedAtMs", actor, rule, ttl, policy_version AS "policyVersion"`;

const NAMES = 'unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS n (container, digest, index)';
const CLEAR_SPANS = 'unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS s (path, low, high)';

/** Scans in order of birth. The condition uses the parameters from $6 on; those of a narrower scope follow. */
function scans(items: string, condition: string, parameters: number) {
  const next = 6 + parameters;
  const visible = `birth > $2 AND ((due IS NULL AND ts > $3) OR due > $4) ${condition} ORDER BY birth LIMIT $5`;
  return {
    visible: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND ${visible}`,
    visibleInPartition: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND partition_digest = $${next}
      AND partition_key = $${next + 1} AND ${visible}`,
    visibleUnderPrefix: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND starts_with(partition_key, $${next})
      AND ${visible}`,
  };
}
export type ScanStatements = ReturnType<typeof scans>;

const tsInOrder = (items: string, order: string) =>
  `SELECT ts FROM ${items} WHERE container = $1 AND due IS NULL AND ts > $2 AND ts <= $3 ORDER BY ${order} OFFSET $4 LIMIT 1`;

/** The statements that read and write one version of the read models, in its own schema. */
export function readModelStatements(schema: string) {
  const items = `${schema}.items`;
  const ended = `${schema}.ended`;
  const catalogChanges = `(SELECT catalog_changes FROM ${schema}.checkpoint)`;
  const itemOf = (container: string, digest: string) =>
    `SELECT ${ITEM} FROM ${items} WHERE container = ${container} AND name_digest = ${digest}`;
  const bodyOf = (container: string, birth: string) =>
    `SELECT ${BODY} FROM ${items} WHERE container = ${container} AND birth = ${birth} AND body IS NOT NULL`;
  const lastLifeOf = (container: string, digest: string) =>
    `SELECT max(life) AS life FROM (SELECT life FROM ${items} WHERE container = ${container} AND name_digest = ${digest}
      UNION ALL SELECT max(life) FROM ${ended} WHERE container = ${container} AND name_digest = ${digest}) AS lives`;
  return {
    checkpoint: `SELECT position, purged FROM ${schema}.checkpoint`,
    standing: `SELECT position, catalog_changes AS "catalogChanges" FROM ${schema}.checkpoint`,
    moveCheckpoint: `UPDATE ${schema}.checkpoint SET position = $1, purged = purged + $2,
      catalog_changes = catalog_changes + $3 WHERE position = coalesce($4, position) RETURNING 1`,
    databases: `SELECT number, state FROM ${schema}.databases ORDER BY number`,
    containers: `SELECT number, NULL AS list, NULL AS place, state FROM ${schema}.containers
      UNION ALL SELECT number, list, place, state FROM ${schema}.container_entries ORDER BY number, list, place`,
    entries: `SELECT number, kind, state FROM ${schema}.catalog_entries WHERE NOT gone ORDER BY number`,
    catalogSince: `WITH changed AS (SELECT number, state FROM ${schema}.containers WHERE changed > $1)
      SELECT number, 'database' AS kind, NULL::text AS list, NULL::bigint AS place, state FROM ${schema}.databases WHERE changed > $1
      UNION ALL SELECT number, 'container', NULL, NULL, state FROM changed
      UNION ALL SELECT number, 'container', list, place, e.state
        FROM ${schema}.container_entries AS e JOIN changed USING (number) WHERE list = '${POLICIES}'
      UNION ALL SELECT number, 'container', list, place, state
        FROM ${schema}.container_entries WHERE changed > $1 AND list = '${HOLDS}'
      UNION ALL SELECT number, kind, NULL, NULL, state FROM ${schema}.catalog_entries WHERE changed > $1
      ORDER BY number, list, place`,
    item: itemOf('$1', '$2'),
    itemsOf: `SELECT n.index, found.* FROM ${NAMES} CROSS JOIN LATERAL (${itemOf('n.container', 'n.digest')} LIMIT 1) AS found`,
    lastLife: lastLifeOf('$1', '$2'),
    lastLives: `SELECT n.index, found.life FROM ${NAMES} CROSS JOIN LATERAL (${lastLifeOf('n.container', 'n.digest')}) AS found`,
    bodyOf: bodyOf('$1', '$2'),
    bodiesOf: `SELECT n.index, found.* FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS n (container, birth, index)
      CROSS JOIN LATERAL (${bodyOf('n.container', 'n.birth')} LIMIT 1) AS found`,
    bodies: `SELECT ${BODY} FROM
      (SELECT *, sum(octet_length(body)) OVER (ORDER BY birth) - octet_length(body) AS before FROM ${items}
      WHERE container = $1 AND birth = ANY ($2::bigint[]) AND body IS NOT NULL) AS wanted WHERE before < $3`,
    ...scans(items, '', 0),
    among: scans(items, 'AND birth = ANY ($6::bigint[])', 1),
    where: scans(items, 'AND ($6::text[] IS NULL OR id = ANY ($6)) AND ts BETWEEN $7 AND $8 AND birth <= $9', 4),
    // If all containers together have fewer rows by the server's estimate, so has this one, and nothing is scanned to find that out.
    birthBeyond: `SELECT birth FROM ${items} WHERE container = $1 AND birth > $2
      AND (SELECT reltuples FROM pg_class WHERE oid = '${items}'::regclass) > $3 ORDER BY birth OFFSET $3 LIMIT 1`,
    countInPartition: `SELECT count(*) AS count FROM
      (SELECT 1 FROM ${items} WHERE container = $1 AND partition_digest = $2 LIMIT $3) AS counted`,
    countUnderPrefix: `SELECT count(*) AS count FROM
      (SELECT 1 FROM ${items} WHERE container = $1 AND starts_with(partition_key, $2) LIMIT $3) AS counted`,
    countClear: `SELECT count(*) AS count FROM (SELECT 1 FROM ${CLEAR_SPANS} JOIN ${schema}.item_clear AS c
      ON c.container = $1 AND c.path = s.path AND c.value >= s.low AND c.value <= s.high LIMIT $5) AS counted`,
    clearInSpans: `SELECT c.birth FROM ${CLEAR_SPANS} JOIN ${schema}.item_clear AS c
      ON c.container = $1 AND c.path = s.path AND c.value >= s.low AND c.value <= s.high AND c.birth > $5`,
    clearAtPoints: `SELECT s.index, c.birth FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS s (path, value, index)
      CROSS JOIN LATERAL (SELECT birth FROM ${schema}.item_clear WHERE container = $1 AND path = s.path
        AND value = s.value AND birth > $4 ORDER BY birth LIMIT $5) AS c ORDER BY s.index, c.birth`,
    clearCopies: `SELECT birth, path, value FROM ${schema}.item_clear WHERE container = $1
      AND (path, value, birth) > ($2, $3, $4) ORDER BY path, value, birth LIMIT $5`,
    countVisible: `SELECT (SELECT count(*) FROM ${items} WHERE container = $1 AND due IS NULL AND ts > $2)
      + (SELECT count(*) FROM ${items} WHERE container = $1 AND due > $3) AS count`,
    tsFromOldest: tsInOrder(items, 'ts'),
    tsFromNewest: tsInOrder(items, 'ts DESC'),
    all: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND birth > $2 AND birth <= $4 ORDER BY birth LIMIT $3`,
    dueOtherwise: `SELECT birth FROM ${items} WHERE container = $1 AND birth > $2 AND birth <= $3
      AND ${isDueOtherwise('IS DISTINCT FROM')}`,
    sizeKnown: `SELECT reltuples AS "knownRows" FROM pg_class WHERE oid = '${items}'::regclass`,
    analyze: `ANALYZE ${items}, ${ended}, ${schema}.item_clear, ${schema}.disappearances`,
    count: `SELECT count(*) AS count FROM ${items} WHERE container = $1`,
    withContent: `${containersIn(items)} UNION ${containersIn(ended)}`,
    overdueByDefault: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due IS NULL AND ts <= $2 ORDER BY ts LIMIT $3`,
    overdueByOwn: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due <= $2 ORDER BY due LIMIT $3`,
    overdueStatistics: `SELECT d.count + o.count AS count, d.oldest AS "oldestTs", o.oldest AS "oldestDue" FROM
      (SELECT count(*) AS count, min(ts) AS oldest FROM ${items} WHERE container = $1 AND due IS NULL AND ts <= $2) d,
      (SELECT count(*) AS count, min(due) AS oldest FROM ${items} WHERE container = $1 AND due <= $3) o`,
    nextDeadlines: `SELECT (SELECT min(ts) FROM ${items} WHERE container = $1 AND due IS NULL AND ts > $2) AS ts,
      (SELECT min(due) FROM ${items} WHERE container = $1 AND due > $3) AS due`,
    countByTs: `SELECT count(*) AS items, min(ts) AS "oldestTs" FROM ${items}
      WHERE container = $1 AND due IS NULL AND ts > $2 AND ts <= $3 AND ts > $4`,
    countByDue: `SELECT count(*) AS items, min(ts) AS "oldestTs" FROM ${items}
      WHERE container = $1 AND due > $2 AND due <= $3 AND ts > $4`,
    itemsByTs: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due IS NULL AND ts > $2 AND ts <= $3 AND ts > $4
      ORDER BY ts LIMIT $5`,
    itemsByDue: `SELECT ${ITEM} FROM ${items} WHERE container = $1 AND due > $2 AND due <= $3 AND ts > $4
      ORDER BY due LIMIT $5`,
    countOddTtls: `SELECT (SELECT count(*) FROM ${items} WHERE container = $1 AND due = $2) AS never,
      (SELECT count(*) FROM ${items} WHERE container = $1 AND unreadable_ttl AND ts > $3) AS unreadable`,
    ended: `SELECT container, partition_key AS "partitionKey", id, life, stream, position, cause, ended_at AS "endedAtMs",
      by_policy_start AS "byPolicyStart" FROM ${ended} WHERE container = $1 AND by_policy_start = $2 AND ended_at <= $3
      AND (ended_at, position) > ($4, $5) AND stream IS NOT NULL ORDER BY ended_at, position LIMIT $6`,
    unrecorded: `SELECT container, partition_key AS "partitionKey", id, life, position, ended_at AS "endedAtMs" FROM ${ended}
      WHERE container = $1 AND stream IS NULL ORDER BY position LIMIT $2`,
    countEnded: `SELECT count(*) AS count FROM ${ended} WHERE container = $1 AND by_policy_start = $2 AND ended_at <= $3`,
    erasures: `SELECT ${DISAPPEARANCE} FROM ${schema}.disappearances WHERE container = $1 AND purged_at >= $2
      AND purged_at < $3 AND (purged_at, position) > ($4, $5) ORDER BY purged_at, position LIMIT $6`,
    disappearances: `SELECT ${DISAPPEARANCE} FROM ${schema}.disappearances WHERE container = $1 AND at >= $2 AND at < $3 AND (at, position) > ($4, $5)
      AND ($6::text IS NULL OR cause = $6) ORDER BY at, position LIMIT $7`,
    countErased: `SELECT count(*) AS count FROM ${schema}.disappearances WHERE container = $1 AND purged_at IS NOT NULL`,
    countErasedInPartition: `SELECT count(*) AS count FROM ${schema}.disappearances WHERE container = $1
      AND md5(partition_key) = md5($2) AND partition_key = $2 AND purged_at IS NOT NULL`,
    openRuns: `SELECT stream, state FROM ${schema}.purge_runs WHERE state IS NOT NULL ORDER BY stream`,
    runs: `SELECT stream, position FROM ${schema}.purge_runs WHERE position > $1 ORDER BY position LIMIT $2`,

    lastLogMark: `SELECT position, at AS "atMs" FROM ${schema}.log_marks WHERE at < $1
      ORDER BY at DESC, position DESC LIMIT 1`,
    insertLogMark: `INSERT INTO ${schema}.log_marks (at, position) VALUES ($1, $2)`,

    insertItems: `WITH made AS (
        INSERT INTO ${items} (container, partition_key, id, life, position, ts, ttl, due, key, unreadable_ttl,
          partition_digest, name_digest, stream, revision, event_id, body, birth) SELECT * FROM ${WRITTEN_ITEMS}
        ON CONFLICT (container, name_digest) DO NOTHING RETURNING 1
      )
      SELECT count(*) AS count FROM made`,
    deleteUnended: `WITH gone AS (
        DELETE FROM ${items} AS i USING unnest($1::bigint[], $2::bytea[], $3::bigint[])
          AS g (container, name_digest, life)
        WHERE i.container = g.container AND i.name_digest = g.name_digest AND i.life < g.life AND ($4 OR i.key = $5)
        RETURNING i.container, i.birth
      )
      DELETE FROM ${schema}.item_clear AS c USING gone WHERE c.container = gone.container AND c.birth = gone.birth`,
    hasLeft: `SELECT FROM ${ended} WHERE container = $1 AND name_digest = $2 AND life = $3
      UNION ALL SELECT FROM ${items} WHERE container = $1 AND name_digest = $2 AND life > $3`,
    updateItems: `UPDATE ${items} AS i SET position = w.position, ts = w.ts, ttl = w.ttl, due = w.due, key = w.key,
      unreadable_ttl = w.unreadable_ttl, stream = w.stream, revision = w.revision, event_id = w.event_id, body = w.body
      FROM ${WRITTEN_ITEMS} WHERE i.container = w.container AND i.name_digest = w.name_digest AND i.life = w.life
      RETURNING i.birth, i.position`,
    deleteItems: `WITH gone AS (
        DELETE FROM ${items} AS i USING unnest($1::bigint[], $2::bytea[], $3::bigint[])
          AS g (container, name_digest, life)
        WHERE i.container = g.container AND i.name_digest = g.name_digest AND i.life = g.life
        RETURNING i.container, i.birth
      )
      DELETE FROM ${schema}.item_clear AS c USING gone WHERE c.container = gone.container AND c.birth = gone.birth`,
    insertClear: `INSERT INTO ${schema}.item_clear (container, birth, path, value)
      SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])`,
    deleteClear: `DELETE FROM ${schema}.item_clear AS c USING unnest($1::bigint[], $2::bigint[]) AS g (container, birth)
      WHERE c.container = g.container AND c.birth = g.birth`,
    insertEnded: `INSERT INTO ${ended} (container, partition_key, id, life, stream, position, cause, ended_at,
      by_policy_start, name_digest) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[],
      $6::bigint[], $7::text[], $8::bigint[], $9::boolean[], $10::bytea[])`,
    recordEnds: `UPDATE ${ended} AS e SET stream = g.stream
      FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::text[], $5::bigint[])
        WITH ORDINALITY AS g (container, name_digest, life, stream, position, index)
      WHERE e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life AND e.stream IS NULL
        AND e.position = g.position
      RETURNING g.index`,
    deleteUnrecorded: `WITH gone AS (
        DELETE FROM ${ended} AS e USING unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS g (container, name_digest, life)
        WHERE e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life AND e.stream IS NULL
        RETURNING e.position
      )
      DELETE FROM ${schema}.disappearances AS d USING gone WHERE d.position = gone.position`,
    countUnrecorded: `SELECT count(*) AS count FROM ${ended} AS e
      JOIN unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS g (container, name_digest, life)
      ON e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life WHERE e.stream IS NULL`,
    deletePartition: `WITH gone AS (
        DELETE FROM ${items} WHERE container = $1 AND birth = ANY (ARRAY(
          SELECT birth FROM ${items} WHERE container = $1 AND partition_digest = $2 AND partition_key = $3
            AND birth > $8 AND ((due IS NULL AND ts > $4) OR due > $5) ORDER BY birth LIMIT $9
        ))
        RETURNING container, partition_key, id, life, position, name_digest, birth
      ), cleared AS (
        DELETE FROM ${schema}.item_clear AS c USING gone WHERE c.container = gone.container AND c.birth = gone.birth
      ), shown AS (
        INSERT INTO ${schema}.disappearances (position, container, partition_key, id, life, cause, at, recorded_at, actor)
        SELECT position, container, partition_key, id, life, 'deleted', $6, $6, $7 FROM gone
      ), unrecorded AS (
        INSERT INTO ${ended} (container, partition_key, id, life, position, cause, ended_at, by_policy_start, name_digest)
        SELECT container, partition_key, id, life, position, 'deleted', $6, false, name_digest FROM gone
      )
      SELECT max(birth) AS "lastBirth" FROM gone`,
    purgeEnded: `WITH gone AS (
        DELETE FROM ${ended} AS e USING unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[])
          WITH ORDINALITY AS g (container, name_digest, life, purged_at, index)
        WHERE e.container = g.container AND e.name_digest = g.name_digest AND e.life = g.life
        RETURNING e.position, g.purged_at, g.index
      ), marked AS (
        UPDATE ${schema}.disappearances AS d SET purged_at = gone.purged_at FROM gone WHERE d.position = gone.position
      )
      SELECT index FROM gone`,
    insertDisappearances: `INSERT INTO ${schema}.disappearances (position, container, partition_key, id, life, cause, at,
      recorded_at, purged_at, actor, rule, ttl, policy_version) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[],
      $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::text[],
      $12::bigint[], $13::bigint[])`,
    putDatabases: `INSERT INTO ${schema}.databases (number, state, changed)
      SELECT *, ${catalogChanges} FROM unnest($1::bigint[], $2::text[])
      ON CONFLICT (number) DO UPDATE SET state = excluded.state, changed = excluded.changed`,
    putContainers: `INSERT INTO ${schema}.containers (number, state, changed)
      SELECT *, ${catalogChanges} FROM unnest($1::bigint[], $2::text[])
      ON CONFLICT (number) DO UPDATE SET state = excluded.state, changed = excluded.changed`,
    putListEntries: `INSERT INTO ${schema}.container_entries (number, list, place, state, changed)
      SELECT *, ${catalogChanges} FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])
      ON CONFLICT (number, list, place) DO UPDATE SET state = excluded.state, changed = excluded.changed`,
    endLists: `DELETE FROM ${schema}.container_entries AS e
      USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS g (number, list, length)
      WHERE e.number = g.number AND e.list = g.list AND e.place >= g.length`,
    putEntries: `INSERT INTO ${schema}.catalog_entries (number, kind, state, gone, changed)
      SELECT *, ${catalogChanges} FROM unnest($1::bigint[], $2::text[], $3::text[], $4::boolean[])
      ON CONFLICT (number) DO UPDATE SET state = excluded.state, gone = excluded.gone, changed = excluded.changed`,
    insertRun: `INSERT INTO ${schema}.purge_runs (position, stream, state) VALUES ($1, $2, $3)`,
    completeRuns: `UPDATE ${schema}.purge_runs SET state = NULL WHERE stream = ANY ($1::text[]) AND state IS NOT NULL`,
  } satisfies Record<string, string | Record<string, string>>;
}

export type ReadModelStatements = ReturnType<typeof readModelStatements>;
