import { invariant } from '@epitaph/core/invariant.ts';
import { containerRows } from '@epitaph/projections/catalog/container-rows.ts';
import { type ItemWritten, rowName } from '@epitaph/projections/items/row.ts';
import { NO_KEY } from '@epitaph/projections/items/unreadable-items.ts';
import type { DisappearanceRow, LifeName } from '@epitaph/projections/read-model-store.ts';
import { clearBytes } from '../clear-scan.ts';
import { dueOf } from '../due.ts';
import { type Batch, nameDigest, partitionDigest, toStored } from './batch.ts';
import type { Statements } from './database.ts';
import type { ReadModelStatements } from './read-model-statements.ts';

/** Writes batches of changes to one version of the read models. The caller provides the transaction. */
export class ReadModelWriter {
  readonly #sql: ReadModelStatements;

  constructor(statements: ReadModelStatements) {
    this.#sql = statements;
  }

  /** Removes rows before it inserts others: the next life of an item has the same name. */
  async write(sql: Statements, batch: Batch, despiteLoss: boolean): Promise<void> {
    await this.#purge(sql, batch);
    if (batch.removed.size > 0) {
      const rows = [...batch.removed.values()];
      await sql.query(this.#sql.deleteItems, lifeColumns(rows));
    }
    if (batch.updated.size > 0) {
      const rows = [...batch.updated.values()];
      const updated = await sql.query<{ birth: number; position: number }>(this.#sql.updateItems, [
        ...itemColumns(rows),
        rows.map((row) => row.position),
      ]);
      if (updated.length < rows.length) {
        const found = new Set(updated.map(({ position }) => position));
        await this.#insertLater(
          sql,
          rows.filter(({ position }) => !found.has(position)),
          despiteLoss,
        );
      }
      const births = new Map(updated.map(({ position, birth }) => [position, birth]));
      const copied = rows.filter(({ clear, position }) => clear !== undefined && births.has(position));
      if (copied.length > 0) {
        const replaced = copied.map(({ position }) => births.get(position)!);
        await sql.query(this.#sql.deleteClear, [copied.map(({ container }) => container), replaced]);
        await this.#insertClear(
          sql,
          copied.map((row, index) => ({ ...row, birth: replaced[index]! })),
        );
      }
    }
    if (batch.inserted.size > 0) {
      await this.#insert(sql, [...batch.inserted.values()], despiteLoss);
    }
    const recorded = await this.#recordEnds(sql, batch);
    if (batch.ended.size > recorded.size) {
      const rows = [...batch.ended].filter(([name]) => !recorded.has(name)).map(([, row]) => row);
      await sql.query(this.#sql.insertEnded, [
        ...nameColumns(rows),
        ...columns(rows, 'life', 'stream', 'position', 'cause', 'endedAtMs', 'byPolicyStart'),
        rows.map((row) => nameDigest(row.partitionKey, row.id)),
      ]);
    }
    await this.#disappear(
      sql,
      [...batch.disappeared].filter(([name]) => !recorded.has(name)).map(([, row]) => row),
    );
    if (batch.databases.size > 0) {
      const states = [[...batch.databases.keys()], [...batch.databases.values()]];
      await sql.query(this.#sql.putDatabases, states);
    }
    if (batch.containers.size > 0) await this.#putContainers(sql, batch);
    if (batch.entries.size > 0) {
      const entries = [...batch.entries.values()];
      await sql.query(this.#sql.putEntries, [[...batch.entries.keys()], ...columns(entries, 'kind', 'state', 'gone')]);
    }
    for (const [stream, { position, state }] of batch.startedRuns) {
      await sql.query(this.#sql.insertRun, [position, stream, state]);
    }
    if (batch.completedRuns.size > 0) await sql.query(this.#sql.completeRuns, [[...batch.completedRuns]]);
    for (const { atMs, position } of batch.logMarks) await sql.query(this.#sql.insertLogMark, [atMs, position]);
  }

  async #putContainers(sql: Statements, { containers }: Batch): Promise<void> {
    const written = Array.from(containers, ([number, change]) => ({ number, ...containerRows(change) }));
    const numbers = written.map(({ number }) => number);
    await sql.query(this.#sql.putContainers, [numbers, written.map(({ state }) => state)]);
    const ends = written.flatMap((rows) => rows.ends.map((end) => ({ ...end, number: rows.number })));
    if (ends.length > 0) {
      await sql.query(this.#sql.endLists, columns(ends, 'number', 'list', 'length'));
    }
    const entries = written.flatMap((rows) => rows.entries.map((entry) => ({ ...entry, number: rows.number })));
    if (entries.length === 0) return;
    await sql.query(this.#sql.putListEntries, columns(entries, 'number', 'list', 'place', 'state'));
  }

  async #insertClear(sql: Statements, rows: readonly (ItemWritten & { readonly birth: number })[]): Promise<void> {
    const entries = rows.flatMap(({ container, birth, clear = [] }) =>
      clear.map(({ path, value }) => ({ container, birth, path, value: clearBytes(value) })),
    );
    if (entries.length === 0) return;
    await sql.query(this.#sql.insertClear, columns(entries, 'container', 'birth', 'path', 'value'));
  }

  /**
   * Handles lives that were deleted with their partition key, and whose ends are now recorded in their own streams. If a life's row
   * shows this end already, it only notes the record. A row that differs is removed, and the recorded end replaces it.
   *
   * @returns the names, as in the batch, of the lives whose rows showed their end
   */
  async #recordEnds(sql: Statements, { ended, left }: Batch): Promise<ReadonlySet<string>> {
    const entries = [...ended].filter(([, { cause }]) => cause === 'deleted');
    const recorded = new Set<string>();
    if (entries.length > 0) {
      const rows = entries.map(([, row]) => row);
      const found = await sql.query<{ index: number }>(this.#sql.recordEnds, [
        ...lifeColumns(rows),
        rows.map((row) => row.stream),
        rows.map((row) => row.position),
      ]);
      for (const { index } of found) recorded.add(entries[index - 1]![0]);
    }
    if (left.size > recorded.size) {
      const others = [...left].filter(([name]) => !recorded.has(name)).map(([, life]) => life);
      await sql.query(this.#sql.deleteUnrecorded, lifeColumns(others));
    }
    return recorded;
  }

  async #insert(
    sql: Statements,
    rows: readonly (ItemWritten & { readonly birth: number })[],
    despiteLoss: boolean,
  ): Promise<void> {
    const columns = [...itemColumns(rows), rows.map((row) => row.birth)];
    const [inserted] = await sql.query<{ count: number }>(this.#sql.insertItems, columns);
    if (inserted!.count === rows.length) return this.#insertClear(sql, rows);
    // Some items still have rows of earlier lives: the events of these lives' ends are unreadable, or the log has lost them.
    for (const row of rows) {
      await sql.query(this.#sql.deleteUnended, [...lifeColumns([row]), despiteLoss, NO_KEY]);
      await sql.query(this.#sql.insertItems, [...itemColumns([row]), [row.birth]]);
      const name = [row.container, nameDigest(row.partitionKey, row.id)];
      const [found] = await sql.query<{ birth: number }>(this.#sql.item, name);
      invariant(found?.birth === row.birth, `a new life at ${row.birth} follows on the end of the one before`);
    }
    // If the batch has several lives of an item, only the last one has values in clear.
    const last = new Map(rows.map((row) => [rowName(row.container, row.partitionKey, row.id), row]));
    await this.#insertClear(sql, [...last.values()]);
  }

  /**
   * Handles later writes whose item has no row. A write that another node decided before its item was deleted with its partition key
   * changes nothing any more. Any other row can only be missing because the log has lost an event.
   */
  async #insertLater(sql: Statements, rows: readonly ItemWritten[], despiteLoss: boolean): Promise<void> {
    const [late] = await sql.query<{ count: number }>(this.#sql.countUnrecorded, lifeColumns(rows));
    if (late!.count === rows.length) return;
    invariant(despiteLoss, 'every later write finds its item');
    for (const row of rows) {
      const [left] = await sql.query<{ count: number }>(this.#sql.countUnrecorded, lifeColumns([row]));
      if (left!.count === 0) await this.#insert(sql, [{ ...row, birth: row.position }], despiteLoss);
    }
  }

  /** Writes the row that stands for an unreadable event. */
  async writeUnreadable(sql: Statements, row: ItemWritten, despiteLoss: boolean): Promise<void> {
    const updated = await sql.query<{ birth: number }>(this.#sql.updateItems, [...itemColumns([row]), [row.position]]);
    if (updated.length > 0) return;
    const life = [row.container, nameDigest(row.partitionKey, row.id), row.life];
    if ((await sql.query(this.#sql.hasLeft, life)).length > 0) return;
    await this.#insert(sql, [{ ...row, birth: row.position }], despiteLoss);
  }

  /** Writes the purges of lives that ended in an earlier batch, or that end by their purge. */
  async #purge(sql: Statements, batch: Batch): Promise<void> {
    if (batch.purged.size === 0) return;
    const rows = [...batch.purged.values()];
    const marked = await sql.query<{ index: number }>(this.#sql.purgeEnded, [
      ...lifeColumns(rows),
      rows.map((row) => row.purgedAtMs),
    ]);
    const known = new Set(marked.map(({ index }) => index));
    const others = rows.filter((_, index) => !known.has(index + 1));
    if (others.length === 0) return;
    await sql.query(this.#sql.deleteItems, lifeColumns(others));
    await this.#disappear(
      sql,
      others.map((row) => row.disappearance),
    );
  }

  async #disappear(sql: Statements, rows: readonly DisappearanceRow[]): Promise<void> {
    if (rows.length === 0) return;
    await sql.query(this.#sql.insertDisappearances, [
      ...columns(rows, 'position'),
      ...nameColumns(rows),
      ...columns(rows, 'life', 'cause', 'atMs', 'recordedAtMs', 'purgedAtMs'),
      ...columns(rows, 'actor', 'rule', 'ttl', 'policyVersion'),
    ]);
  }
}

/** The parameters of a statement for many rows: an array for each of the given properties. */
function columns<Row>(rows: readonly Row[], ...names: readonly (keyof Row)[]): unknown[][] {
  return names.map((name) => rows.map((row) => row[name]));
}

/** The parameters for container, partition key and id, as they are stored. */
function nameColumns(rows: readonly Omit<LifeName, 'life'>[]): unknown[][] {
  return [
    rows.map(({ container }) => container),
    rows.map(({ partitionKey }) => toStored(partitionKey)),
    rows.map(({ id }) => toStored(id)),
  ];
}

function lifeColumns(lives: readonly LifeName[]): unknown[][] {
  return [
    lives.map(({ container }) => container),
    lives.map(({ partitionKey, id }) => nameDigest(partitionKey, id)),
    lives.map(({ life }) => life),
  ];
}

/** The parameters of the statements that write items, except for the births. */
function itemColumns(rows: readonly ItemWritten[]): unknown[][] {
  return [
    ...nameColumns(rows),
    ...columns(rows, 'life', 'position', 'ts', 'ttl'),
    rows.map(dueOf),
    ...columns(rows, 'key', 'unreadableTtl'),
    rows.map((row) => partitionDigest(row.partitionKey)),
    rows.map((row) => nameDigest(row.partitionKey, row.id)),
    rows.map((row) => row.sealed?.stream ?? null),
    rows.map((row) => row.revision),
    rows.map((row) => row.sealed?.eventId ?? null),
    rows.map(({ sealed }) => (sealed === undefined ? null : Buffer.from(sealed.body))),
  ];
}
