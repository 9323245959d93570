import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { invariant, InvariantViolation } from '@epitaph/core/invariant.ts';
import {
  isGone,
  type DisappearanceRow,
  type EndedRow,
  type ReadModelChange,
} from '@epitaph/projections/read-model-store.ts';
import { secondBounds } from '@epitaph/core/ttl/watermarks.ts';
import { type ContainerRows, containerRows } from '@epitaph/projections/catalog/container-rows.ts';
import type { ClearEntry } from '@epitaph/projections/items/clear-values.ts';
import { isUnreadable } from '@epitaph/projections/items/unreadable-items.ts';
import { clearBytes } from '../clear-scan.ts';
import { dueOf } from '../due.ts';
import { whenContradictory } from '../contradictory-log.ts';
import { BUSY_MS, EMPTYING_MS, explained, openForWriting, whenUnfit } from './database.ts';
import { sqliteCodeOf, sqliteCodes } from './failures.ts';
import { PageGaps } from './page-gaps.ts';
import { PlacedCrash, type StepHook } from './placed-crash.ts';
import { READ_MODEL_SCHEMA, READ_MODEL_SCHEMA_VERSION } from './schema.ts';
import { failureOutcome, type Job, type JobOutcome, type WriterCore } from './writer.ts';

export interface ApplyJob extends Job {
  readonly kind: 'apply';
  readonly changes: readonly (WrittenRow | WrittenContainer | OtherChange)[];
  /** Undefined if the job changes nothing. */
  readonly checkpoint: number | undefined;
  readonly despiteLoss: boolean;
}

/** Changes nothing, and so only lets the writer empty its journal, if that is due. */
export const EMPTY_JOURNAL: ApplyJob = { kind: 'apply', changes: [], checkpoint: undefined, despiteLoss: false };

type OtherChange = Exclude<ReadModelChange, { kind: 'item-written' | 'container' }>;

/** The rows of a container that are to be written. Its whole state would otherwise be copied to the writer's thread each time. */
interface WrittenContainer extends ContainerRows {
  readonly kind: 'container';
  readonly number: number;
  readonly rid: string;
}

/** The most frequent change, an item's write, as a flat row. */
export type WrittenRow = readonly [
  container: number,
  partitionKey: string,
  id: string,
  life: number,
  revision: number,
  position: number,
  ts: number,
  ttl: number | null,
  key: number,
  unreadableTtl: boolean,
  clear: readonly ClearEntry[] | undefined,
  isUnreadable: boolean,
];

export function toApplyJob(changes: readonly ReadModelChange[], checkpoint: number, despiteLoss = false): ApplyJob {
  return {
    kind: 'apply',
    changes: changes.map((change) =>
      change.kind === 'item-written'
        ? [
            change.container,
            change.partitionKey,
            change.id,
            change.life,
            change.revision,
            change.position,
            change.ts,
            change.ttl,
            change.key,
            change.unreadableTtl,
            change.clear,
            change.isUnreadable === true,
          ]
        : change.kind === 'container'
          ? writtenContainer(change)
          : change,
    ),
    checkpoint,
    despiteLoss,
  };
}

function writtenContainer(change: Extract<ReadModelChange, { kind: 'container' }>): WrittenContainer {
  const { kind, number, state } = change;
  return { kind, number, rid: state.rid, ...containerRows(change) };
}

/** If SQLite does not checkpoint by itself, the journal is emptied at this size, in bytes, even if it has nothing to erase. */
const LONG_JOURNAL = 64 * 1024 * 1024;

export interface ReadModelWriterOptions {
  readonly file: string;
  readonly synchronous: 'NORMAL' | 'OFF';
}

/** Writes one version of the read models. */
export class ReadModelWriterCore implements WriterCore {
  readonly #database: DatabaseSync;
  readonly #statements: ReturnType<typeof prepare>;
  readonly #step: StepHook;
  readonly #file: string;
  readonly #whenDamaged: string;
  /** True if the file was empty when it was opened, so that all of its content comes from the current log. */
  readonly #isOfThisLog: boolean;
  /** Set if the file has or had values in clear: then removed values are overwritten everywhere in the file. */
  #gaps: PageGaps | undefined;
  /** True if an earlier version may have left values anywhere in the file. */
  #mustWipeAll: boolean;
  /** True if bytes of removed values may still be in the journal. */
  #hasRemnants = false;
  /** True if values of purged lives may be among them; also at the start, since a former process may have been killed before that. */
  #mustEmptyJournal = true;

  constructor(options: ReadModelWriterOptions, step: StepHook = () => {}) {
    this.#step = step;
    this.#file = options.file;
    this.#whenDamaged = `delete ${options.file}, with its -wal and -shm files: it is built again from the log at the next start`;
    const named = {
      file: options.file,
      what: 'read model',
      remedy: 'Delete it, with its -wal and -shm files: it is built again from the log at the next start.',
    };
    this.#database = openForWriting({
      ...named,
      schema: READ_MODEL_SCHEMA,
      schemaVersion: READ_MODEL_SCHEMA_VERSION,
      synchronous: options.synchronous,
    });
    try {
      this.#statements = prepare(this.#database);
      this.#isOfThisLog = (this.#statements.findCheckpoint.get() as { position: number } | undefined)?.position === 0;
      this.#mustWipeAll = this.#statements.anyClear.get() !== undefined;
      if (this.#mustWipeAll) this.#keepClear();
      this.#emptyJournal();
    } catch (error) {
      this.#database.close();
      throw explained(error, named);
    }
  }

  execute(jobs: readonly Job[]): JobOutcome[] {
    const applies = jobs as readonly ApplyJob[];
    this.#step('read model: before');
    let written: ApplyJob['changes'][number] | undefined;
    try {
      this.#database.exec('BEGIN IMMEDIATE');
      for (const { changes, checkpoint, despiteLoss } of applies) {
        for (const change of changes) {
          written = change;
          if (isRow(change)) this.#write(change, despiteLoss);
          else this.#apply(change);
        }
        if (checkpoint !== undefined) this.#statements.checkpoint.run(checkpoint);
      }
      this.#step('read model: before commit');
      this.#database.exec('COMMIT');
    } catch (error) {
      if (error instanceof PlacedCrash) throw error;
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
      const failed = failureOutcome(error, this.#whenDamaged, isUnfit(error) ? this.#whenUnfit(written) : undefined);
      return applies.map(() => failed);
    }
    this.#step('read model: after commit');
    if (this.#mustEmptyJournal || this.#hasLongJournal()) this.#emptyJournal();
    return applies.map(() => ({ ok: true, value: undefined }));
  }

  #whenUnfit(written: ApplyJob['changes'][number] | undefined): string {
    if (!this.#isOfThisLog) return whenUnfit(this.#file);
    return whenContradictory(written === undefined ? undefined : positionOf(written));
  }

  close(): void {
    // Otherwise SQLite would empty the journal itself when it closes the file, without wiping the gaps.
    if (this.#gaps !== undefined) this.#emptyJournal();
    this.#database.close();
    this.#gaps?.close();
  }

  #write(row: WrittenRow, despiteLoss: boolean): void {
    const [container, partitionKey, id, life, revision, position, ts, ttl, key, unreadableTtl, clear, standsIn] = row;
    const due = dueOf({ ts, ttl });
    const unreadable = unreadableTtl ? 1 : 0;
    const sql = this.#statements;
    const name = [container, partitionKey, id, life] as const;
    const insert = () => {
      const columns = [position, ...name, position, ts, ttl, due, key, unreadable] as const;
      if (sql.insertItem.run(...columns).changes === 0) {
        // The item still has a row of the life before: the event of that life's end is unreadable, or the log has lost it.
        invariant(
          this.#deleteUnended(name, despiteLoss),
          `a new life at ${position} follows on the end of the one before`,
        );
        sql.insertItem.run(...columns);
      }
      if (clear !== undefined) this.#insertClear(container, position, clear);
    };
    if (revision === 0) {
      insert();
      return;
    }
    const { changes } = sql.updateItem.run(position, ts, ttl, due, key, unreadable, ...name);
    if (changes === 0 && sql.unrecordedEnd.get(...name) === undefined) {
      if (standsIn && sql.hasLeft.get(...name, ...name) !== undefined) return;
      invariant(standsIn || despiteLoss, `a later write at ${position} finds its item`);
      insert();
      return;
    }
    if (clear === undefined || changes === 0) return;
    const { birth } = sql.birth.get(container, partitionKey, id) as { birth: number };
    this.#deleteClear(birth);
    this.#insertClear(container, birth, clear);
  }

  /** Deletes the row of an earlier life of an item whose end is missing. */
  #deleteUnended(
    [container, partitionKey, id, life]: readonly [number, string, string, number],
    despiteLoss: boolean,
  ): boolean {
    const earlier = this.#statements.earlierLife.get(container, partitionKey, id, life) as
      | { life: number; key: number }
      | undefined;
    if (earlier === undefined || !(despiteLoss || isUnreadable(earlier))) return false;
    return this.#deleteItem(container, partitionKey, id, earlier.life);
  }

  #insertClear(container: number, birth: number, entries: readonly ClearEntry[]): void {
    if (entries.length > 0 && this.#gaps === undefined) this.#keepClear();
    for (const { path, value } of entries) this.#statements.insertClear.run(birth, path, container, clearBytes(value));
  }

  #deleteClear(birth: number): void {
    if (this.#gaps === undefined) return;
    if (this.#statements.deleteClear.run(birth).changes > 0) this.#hasRemnants = true;
  }

  /** From now on SQLite overwrites deleted content. This makes every deletion in the file slower. */
  #keepClear(): void {
    const { page_size: pageSize } = this.#database.prepare('PRAGMA page_size').get() as { page_size: number };
    this.#gaps = new PageGaps(this.#file, pageSize);
    this.#database.exec('PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint = 0');
  }

  #hasLongJournal(): boolean {
    return this.#gaps !== undefined && this.#gaps.journalBytes > LONG_JOURNAL;
  }

  /**
   * Erases the remnants of deleted values. SQLite has overwritten them in the file, but older versions of pages are in the journal until
   * it is emptied, and gaps in pages keep the bytes of rows that were moved within the page or to another one.
   */
  #emptyJournal(): void {
    // This fails while a reader holds an older state, for a comparison, or if the disk is full. The next batch tries again.
    if (!this.#isEmptied()) return;
    this.#hasRemnants = false;
    this.#mustEmptyJournal = false;
  }

  #isEmptied(): boolean {
    this.#database.exec(`PRAGMA busy_timeout = ${this.#mustEmptyJournal ? EMPTYING_MS : 0}`);
    const { moveJournal, emptyJournal } = this.#statements;
    try {
      if (this.#gaps !== undefined) {
        if ((moveJournal.get() as { busy: number }).busy !== 0) return false;
        if (this.#mustWipeAll) this.#gaps.wipeAll();
        else this.#gaps.wipeChanged();
        this.#mustWipeAll = false;
        // SQLite's cache has pages with their old bytes, and would write them with the next change.
        this.#database.exec('PRAGMA shrink_memory');
      }
      return (emptyJournal.get() as { busy: number }).busy === 0;
    } catch {
      return false;
    } finally {
      this.#database.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
    }
  }

  #deleteItem(container: number, partitionKey: string, id: string, life: number): boolean {
    const gone = this.#statements.deleteItem.get(container, partitionKey, id, life) as { birth: number } | undefined;
    if (gone !== undefined) this.#deleteClear(gone.birth);
    return gone !== undefined;
  }

  #apply(change: WrittenContainer | OtherChange): void {
    const sql = this.#statements;
    switch (change.kind) {
      case 'item-ended': {
        const { container, partitionKey, id, life, stream, position, cause, endedAtMs, byPolicyStart } = change.row;
        const wasThere = this.#deleteItem(container, partitionKey, id, life);
        if (!wasThere && this.#recordEnd(change.row)) return;
        sql.insertEnded.run(
          container,
          partitionKey,
          id,
          life,
          stream,
          position,
          cause,
          endedAtMs,
          byPolicyStart ? 1 : 0,
        );
        this.#disappear(change.disappearance);
        return;
      }
      case 'partition-key-deleted': {
        const { container, partitionKey, atMs, actor, marks } = change;
        const visible = [container, partitionKey, ...secondBounds(marks)] as const;
        sql.disappearPartition.run(atMs, atMs, actor, ...visible);
        sql.endPartition.run(atMs, ...visible);
        for (const { birth } of sql.deletePartition.all(...visible) as { birth: number }[]) this.#deleteClear(birth);
        return;
      }
      case 'item-purged': {
        const { container, partitionKey, id, life, purgedAtMs } = change;
        const ended = sql.endedPosition.get(container, partitionKey, id, life) as { position: number } | undefined;
        if (ended === undefined) {
          this.#deleteItem(container, partitionKey, id, life);
          this.#disappear(change.disappearance);
        } else {
          sql.deleteEnded.run(container, partitionKey, id, life);
          sql.markPurged.run(purgedAtMs, ended.position);
        }
        sql.countPurged.run();
        this.#mustEmptyJournal ||= this.#hasRemnants;
        return;
      }
      case 'database':
        sql.putDatabase.run(change.number, change.state.rid, JSON.stringify(change.state));
        return;
      case 'container':
        this.#putContainer(change);
        return;
      case 'user':
      case 'client-encryption-key':
      case 'script':
        if (isGone(change)) sql.removeEntry.run(change.number);
        else sql.putEntry.run(change.number, change.kind, JSON.stringify(change.state));
        return;
      case 'purge-run':
        sql.insertRun.run(change.position, change.stream, JSON.stringify(change.state));
        return;
      case 'purge-run-completed':
        sql.completeRun.run(change.stream);
        return;
      case 'log-mark':
        sql.insertLogMark.run(change.atMs, change.position);
        return;
    }
  }

  /**
   * True for a life that was deleted with its partition key, and whose rows show that already. This change is only the record of its end
   * in its own stream.
   */
  #recordEnd({ container, partitionKey, id, life, stream, position, cause }: EndedRow): boolean {
    const sql = this.#statements;
    const known = sql.unrecordedEnd.get(container, partitionKey, id, life) as { position: number } | undefined;
    if (known === undefined) return false;
    if (known.position === position && cause === 'deleted') {
      sql.recordEnd.run(stream, container, partitionKey, id, life);
      return true;
    }
    sql.deleteEnded.run(container, partitionKey, id, life);
    sql.deleteDisappearance.run(known.position);
    return false;
  }

  #putContainer({ number, rid, state, entries, ends }: WrittenContainer): void {
    const sql = this.#statements;
    sql.putContainer.run(number, rid, state);
    for (const { list, length } of ends) sql.endList.run(number, list, length);
    for (const { list, place, state: entry } of entries) sql.putListEntry.run(number, list, place, entry);
  }

  #disappear(row: DisappearanceRow): void {
    this.#statements.insertDisappearance.run(
      row.position,
      row.container,
      row.partitionKey,
      row.id,
      row.life,
      row.cause,
      row.atMs,
      row.recordedAtMs,
      row.purgedAtMs,
      row.actor,
      row.rule,
      row.ttl,
      row.policyVersion,
    );
  }
}

function isRow(change: ApplyJob['changes'][number]): change is WrittenRow {
  return Array.isArray(change);
}

/** The log position at which a life was written, ended or purged; undefined for other changes. */
function positionOf(change: ApplyJob['changes'][number]): number | undefined {
  if (isRow(change)) return change[5];
  if (change.kind === 'item-ended') return change.row.position;
  return change.kind === 'item-purged' ? change.disappearance.position : undefined;
}

const VISIBLE_IN_PARTITION = 'WHERE container = ? AND partition_key = ? AND ((due IS NULL AND ts > ?) OR due > ?)';

/** True for an error of a change that does not fit the existing rows. */
const isUnfit = (error: unknown): boolean =>
  error instanceof InvariantViolation || sqliteCodeOf(error) === sqliteCodes.constraint;

function prepare(database: DatabaseSync) {
  return {
    findCheckpoint: database.prepare('SELECT position FROM checkpoint'),
    checkpoint: database.prepare('UPDATE checkpoint SET position = ?'),
    countPurged: database.prepare('UPDATE checkpoint SET purged = purged + 1'),
    insertItem: database.prepare(
      `INSERT INTO items (birth, container, partition_key, id, life, position, ts, ttl, due, key, unreadable_ttl)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (container, partition_key, id) DO NOTHING`,
    ),
    earlierLife: database.prepare(
      'SELECT life, key FROM items WHERE container = ? AND partition_key = ? AND id = ? AND life < ?',
    ),
    hasLeft: database.prepare(
      `SELECT 1 FROM ended WHERE container = ? AND partition_key = ? AND id = ? AND life = ?
       UNION ALL SELECT 1 FROM items WHERE container = ? AND partition_key = ? AND id = ? AND life > ?`,
    ),
    updateItem: database.prepare(
      `UPDATE items SET position = ?, ts = ?, ttl = ?, due = ?, key = ?, unreadable_ttl = ?
       WHERE container = ? AND partition_key = ? AND id = ? AND life = ?`,
    ),
    deleteItem: database.prepare(
      'DELETE FROM items WHERE container = ? AND partition_key = ? AND id = ? AND life = ? RETURNING birth',
    ),
    birth: database.prepare('SELECT birth FROM items WHERE container = ? AND partition_key = ? AND id = ?'),
    anyClear: database.prepare('SELECT 1 FROM item_clear LIMIT 1'),
    insertClear: database.prepare('INSERT INTO item_clear (birth, path, container, value) VALUES (?, ?, ?, ?)'),
    deleteClear: database.prepare('DELETE FROM item_clear WHERE birth = ?'),
    moveJournal: database.prepare('PRAGMA wal_checkpoint(FULL)'),
    emptyJournal: database.prepare('PRAGMA wal_checkpoint(TRUNCATE)'),
    insertEnded: database.prepare(
      `INSERT INTO ended (container, partition_key, id, life, stream, position, cause, ended_at, by_policy_start)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    unrecordedEnd: database.prepare(
      `SELECT position FROM ended
       WHERE container = ? AND partition_key = ? AND id = ? AND life = ? AND stream IS NULL`,
    ),
    recordEnd: database.prepare(
      'UPDATE ended SET stream = ? WHERE container = ? AND partition_key = ? AND id = ? AND life = ?',
    ),
    disappearPartition: database.prepare(
      `INSERT INTO disappearances (position, container, partition_key, id, life, cause, at, recorded_at, actor)
       SELECT position, container, partition_key, id, life, 'deleted', ?, ?, ? FROM items ${VISIBLE_IN_PARTITION}`,
    ),
    endPartition: database.prepare(
      `INSERT INTO ended (container, partition_key, id, life, position, cause, ended_at, by_policy_start)
       SELECT container, partition_key, id, life, position, 'deleted', ?, 0 FROM items ${VISIBLE_IN_PARTITION}`,
    ),
    deletePartition: database.prepare(`DELETE FROM items ${VISIBLE_IN_PARTITION} RETURNING birth`),
    endedPosition: database.prepare(
      'SELECT position FROM ended WHERE container = ? AND partition_key = ? AND id = ? AND life = ?',
    ),
    deleteEnded: database.prepare(
      'DELETE FROM ended WHERE container = ? AND partition_key = ? AND id = ? AND life = ?',
    ),
    insertDisappearance: database.prepare(
      `INSERT INTO disappearances
         (position, container, partition_key, id, life, cause, at, recorded_at, purged_at, actor, rule, ttl, policy_version)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    deleteDisappearance: database.prepare('DELETE FROM disappearances WHERE position = ?'),
    markPurged: database.prepare('UPDATE disappearances SET purged_at = ? WHERE position = ?'),
    putDatabase: database.prepare('INSERT OR REPLACE INTO databases (number, rid, state) VALUES (?, ?, ?)'),
    putContainer: database.prepare('INSERT OR REPLACE INTO containers (number, rid, state) VALUES (?, ?, ?)'),
    putListEntry: database.prepare(
      'INSERT OR REPLACE INTO container_entries (number, list, place, state) VALUES (?, ?, ?, ?)',
    ),
    endList: database.prepare('DELETE FROM container_entries WHERE number = ? AND list = ? AND place >= ?'),
    putEntry: database.prepare('INSERT OR REPLACE INTO catalog_entries (number, kind, state) VALUES (?, ?, ?)'),
    removeEntry: database.prepare('DELETE FROM catalog_entries WHERE number = ?'),
    insertRun: database.prepare('INSERT INTO purge_runs (position, stream, state) VALUES (?, ?, ?)'),
    insertLogMark: database.prepare('INSERT INTO log_marks (at, position) VALUES (?, ?)'),
    completeRun: database.prepare('UPDATE purge_runs SET state = NULL WHERE stream = ? AND state IS NOT NULL'),
  } satisfies Record<string, StatementSync>;
}
