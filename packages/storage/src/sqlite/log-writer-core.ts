import type { KeyObject } from 'node:crypto';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { AppendResult, ExpectedRevision } from '@epitaph/core/log/event-log.ts';
import type { DestroyOutcome, DestroyRequest } from '@epitaph/core/vault/key-vault.ts';
import { explained, LOG_CACHE_KIB, openForWriting } from './database.ts';
import type {
  AppendJob,
  AppendOutcome,
  DestroyJob,
  EventRow,
  LogWriterJob,
  TruncateJob,
  Word,
} from './log-writer-jobs.ts';
import { openVault } from './open-vault.ts';
import { PlacedCrash, type StepHook } from './placed-crash.ts';
import { PurgeLedger } from './purge-ledger.ts';
import { LOG_SCHEMA, LOG_SCHEMA_VERSION } from './schema.ts';
import { recoverSpareKeys, SpareKeys } from './spare-keys.ts';
import { uuidBytes } from './uuid-bytes.ts';
import { VaultTables } from './vault-tables.ts';
import { failureOutcome, type Job, type JobOutcome, type WriterCore } from './writer.ts';

export interface LogWriterOptions {
  readonly logFile: string;
  readonly vaultFile: string;
  readonly masterKey: KeyObject;
  readonly ledgerFile: string;
  /** Id of the store that the ledger must belong to. */
  readonly storeId: string;
  /** OFF only for simulations, in which processes crash, but not the machine. */
  readonly synchronous: 'FULL' | 'OFF';
}

/** How many ends of streams are kept in memory before they are written into the table of streams, in order of name. */
const RECENT_STREAMS = 4_096;
/** A group writes this many of them, or as many as it has jobs if that is more: writing all at once would delay the group. */
const INDEXED_AT_ONCE = 256;

/** The last event of a stream. `last` is its position. */
interface StreamHead {
  readonly revision: number;
  readonly last: number;
}

/**
 * Writes log and vault. In every group keys are committed before events; spare keys were committed long before. So the log never has
 * anything sealed with a key that a crash could undo.
 */
export class LogWriterCore implements WriterCore {
  readonly #log: DatabaseSync;
  readonly #vault: DatabaseSync;
  readonly #ledger: PurgeLedger;
  readonly #step: StepHook;
  readonly #statements: ReturnType<typeof prepareLog>;
  readonly #vaultTables: VaultTables;
  readonly #spareKeys: SpareKeys;
  /** Ids of spare keys that have got rows of their own, until the next job whose answer includes them. */
  readonly #settledKeys: number[] = [];
  #nextPosition = 1;
  readonly #words = new Map<string, number>();
  /** Streams with events after {@link #streamsAsOf}. */
  readonly #recent = new Map<string, StreamHead>();
  #streamsAsOf = 0;
  /** The streams that are still to be written into their table, the next ones last; and the position up to which it will be complete. */
  #indexing: { readonly left: string[]; readonly asOf: number } | undefined;

  constructor(options: LogWriterOptions, step: StepHook = () => {}) {
    this.#step = step;
    this.#vault = openVault(options.vaultFile, options.synchronous);
    try {
      this.#log = openForWriting({
        file: options.logFile,
        what: 'event log',
        cacheKiB: LOG_CACHE_KIB,
        schema: LOG_SCHEMA,
        schemaVersion: LOG_SCHEMA_VERSION,
        synchronous: options.synchronous,
      });
    } catch (error) {
      this.#vault.close();
      throw error;
    }
    try {
      const { storeId, synchronous } = options;
      this.#ledger = PurgeLedger.open(options.ledgerFile, { store: storeId, durable: synchronous === 'FULL' });
    } catch (error) {
      this.#vault.close();
      this.#log.close();
      throw error;
    }
    this.#statements = prepareLog(this.#log);
    this.#vaultTables = new VaultTables(this.#vault, options.masterKey);
    try {
      this.#spareKeys = new SpareKeys(this.#vault, this.#vaultTables, options.masterKey);
      this.#load();
      recoverSpareKeys({ log: this.#log, vault: this.#vault }, this.#vaultTables, options.masterKey, step);
    } catch (error) {
      for (const file of [this.#vault, this.#log, this.#ledger]) file.close();
      throw explained(error, { file: options.vaultFile, what: 'key vault, or the event log beside it,' });
    }
  }

  execute(jobs: readonly Job[]): JobOutcome[] {
    const outcomes: JobOutcome[] = [];
    const typed = jobs as readonly LogWriterJob[];
    const group = (kinds: readonly LogWriterJob['kind'][]) =>
      typed.map((job, index) => ({ job, index })).filter(({ job }) => kinds.includes(job.kind));
    const inTransaction = (
      database: DatabaseSync,
      name: string,
      members: { readonly job: LogWriterJob; readonly index: number }[],
    ) => {
      const settles = name === 'vault' && (members.length > 0 || this.#spareKeys.isStale(this.#nextPosition - 1));
      if (members.length === 0 && !settles) return true;
      this.#step(`${name}: before`);
      try {
        database.exec('BEGIN IMMEDIATE');
        if (settles) this.#spareKeys.settle(this.#nextPosition - 1);
        for (const { job, index } of members) outcomes[index] = { ok: true, value: this.#apply(job) };
        if (database === this.#log) this.#indexStreams(Math.max(INDEXED_AT_ONCE, 2 * members.length));
        this.#step(`${name}: before commit`);
        database.exec('COMMIT');
        if (settles) this.#settled(outcomes, members);
      } catch (error) {
        if (error instanceof PlacedCrash) throw error;
        if (database.isTransaction) database.exec('ROLLBACK');
        if (database === this.#log) this.#load();
        else this.#vaultTables.rolledBack();
        for (const { index } of members) outcomes[index] = failureOutcome(error);
        return false;
      }
      this.#step(`${name}: after commit`);
      return true;
    };

    const appends = group(['append', 'truncate']);
    const keysStored = inTransaction(this.#vault, 'vault keys', [
      ...group(['add-key']),
      ...appends.flatMap(({ job, index }) => {
        if (job.kind !== 'append' || job.keys === undefined) return [];
        return job.keys.map(([id, stream], at) => ({
          job: { kind: 'add-key' as const, id, stream, blobs: [job.blobs[at]!] },
          index,
        }));
      }),
    ]);
    // Spare keys are given even if the append fails: after a conflict, the write is decided again with the same key.
    for (const { job, index } of group(['append', 'give-key'])) {
      if (job.kind === 'give-key') outcomes[index] = { ok: true, value: this.#apply(job) };
      else if (job.kind === 'append') job.spareKeys?.forEach((spare) => this.#spareKeys.give(...spare));
    }
    if (keysStored) inTransaction(this.#log, 'log', appends);
    else {
      // A key that one of the appends uses may be missing, so none of them may be written.
      const failed = outcomes.find((outcome) => outcome !== undefined && !outcome.ok)!;
      for (const { index } of appends) outcomes[index] = failed;
    }
    const others = group(['destroy', 'vault-write', 'add-spare-keys', 'remove-spare-keys']);
    const written = inTransaction(this.#vault, 'vault', others);
    const destructions = others.filter(({ job }) => job.kind === 'destroy');
    if (written && destructions.length > 0) {
      try {
        this.#step('vault checkpoint: before');
        this.#vaultTables.forgetOldPages();
        this.#step('vault checkpoint: after');
        this.#enterIntoLedger(destructions.flatMap(({ job, index }) => destroyed(job as DestroyJob, outcomes[index]!)));
        this.#step('purge ledger: after');
      } catch (error) {
        if (error instanceof PlacedCrash) throw error;
        for (const { index } of destructions) outcomes[index] = failureOutcome(error);
      }
    }
    for (const { job, index } of group(['ledger'])) {
      try {
        outcomes[index] = { ok: true, value: this.#apply(job) };
      } catch (error) {
        outcomes[index] = failureOutcome(error);
      }
    }
    return outcomes;
  }

  /** Called after spare keys with lives got rows of their own: reports their ids in the outcomes of jobs that return them. */
  #settled(outcomes: JobOutcome[], members: readonly { readonly job: LogWriterJob; readonly index: number }[]): void {
    this.#settledKeys.push(...this.#spareKeys.committed(this.#nextPosition - 1));
    for (const { job, index } of members) {
      if (job.kind !== 'add-spare-keys' && job.kind !== 'remove-spare-keys') continue;
      outcomes[index] = { ok: true, value: this.#settledKeys.splice(0) };
    }
  }

  /**
   * Enters destroyed keys into the ledger: after they are destroyed, so that every entry is true; and before the caller is told, so that
   * the log never records a purge that the ledger lacks.
   */
  #enterIntoLedger(gone: readonly DestroyRequest[]): void {
    if (gone.length === 0) return;
    const atMs = gone.reduce((latest, { nowMs }) => Math.max(latest, nowMs), 0);
    this.#ledger.append([{ atMs, keys: gone.map(({ keyId, stream }) => [keyId, stream] as const) }]);
  }

  close(): void {
    // A failure, as of a full disk, does no harm: the next start finds the ends of recent streams and the lives of spare keys in the log.
    this.#tidy(this.#log, () => {
      this.#beginIndexing();
      this.#indexStreams(Number.POSITIVE_INFINITY);
    });
    this.#tidy(this.#vault, () => {
      this.#spareKeys.settle(this.#nextPosition - 1);
      this.#spareKeys.removeAll();
    });
    this.#vault.close();
    this.#log.close();
    this.#ledger.close();
  }

  #tidy(database: DatabaseSync, work: () => void): void {
    try {
      database.exec('BEGIN IMMEDIATE');
      work();
      database.exec('COMMIT');
    } catch {
      if (database.isTransaction) database.exec('ROLLBACK');
    }
  }

  #apply(job: LogWriterJob): unknown {
    switch (job.kind) {
      case 'append':
        return { result: this.#append(job), streamsAsOf: this.#streamsAsOf } satisfies AppendOutcome;
      case 'truncate':
        return this.#truncate(job);
      case 'add-key':
        this.#vaultTables.addKey(job.id, job.stream, job.blobs[0]!);
        return undefined;
      case 'give-key':
        this.#spareKeys.give(job.id, job.stream);
        return undefined;
      case 'add-spare-keys':
        this.#spareKeys.add(job.first, job.blobs[0]!, this.#nextPosition - 1);
        return undefined;
      case 'remove-spare-keys':
        this.#spareKeys.removeAll();
        return undefined;
      case 'destroy':
        return job.requests.map((request) => this.#vaultTables.destroy(request));
      case 'vault-write':
        return this.#vaultTables.write(job);
      case 'ledger':
        if (job.backup !== undefined) {
          this.#ledger.append([{ atMs: job.atMs, backup: job.backup }]);
          this.#step('purge ledger: after');
        }
        return this.#ledger.head satisfies LedgerHead;
    }
  }

  #append({ keys = [], streams, events, blobs }: AppendJob): AppendResult {
    const { insertEvent } = this.#statements;
    const heads = streams.map(([stream]) => this.#head(stream));
    for (let index = 0; index < streams.length; index++) {
      const [stream, expected] = streams[index]!;
      const actual = heads[index]?.revision ?? -1;
      if (actual === expected) continue;
      const retried = streams.map(([name, after], at) => this.#positionOfRetry(name, after, events[at]!));
      const last = retried.at(-1);
      if (last !== undefined && retried.every((found) => found !== undefined)) {
        return { kind: 'appended', position: last.last, firstPositions: retried.map(({ first }) => first) };
      }
      return { kind: 'conflict', stream, expectedRevision: revision(expected), actualRevision: revision(actual) };
    }
    const firstPositions: number[] = [];
    let nextBlob = keys.length;
    for (let index = 0; index < streams.length; index++) {
      const [stream, expected] = streams[index]!;
      let previous = heads[index]?.last ?? 0;
      let next = expected + 1;
      firstPositions.push(this.#nextPosition);
      for (const [id, type, version, at, actor, correlation, causation, shape, data, hasBody] of events[index]!) {
        const position = this.#nextPosition++;
        insertEvent.run(
          position,
          stream,
          next,
          previous,
          this.#word(type),
          version,
          at,
          uuidBytes(id),
          this.#word(actor),
          uuidBytes(correlation),
          causation === null ? null : uuidBytes(causation),
          this.#word(shape),
          data,
          hasBody ? blobs[nextBlob++]! : null,
        );
        previous = position;
        next += 1;
      }
      this.#recent.set(stream, { revision: next - 1, last: previous });
    }
    return { kind: 'appended', position: this.#nextPosition - 1, firstPositions };
  }

  /** Reads the state that this object keeps in memory from the file: at the start, and after a rollback. */
  #load(): void {
    const { lastPosition, streamsAsOf, tail, allWords } = this.#statements;
    this.#nextPosition = (lastPosition.get() as { last: number }).last + 1;
    this.#streamsAsOf = (streamsAsOf.get() as { position: number }).position;
    this.#recent.clear();
    this.#indexing = undefined;
    for (const row of tail.iterate(this.#streamsAsOf) as Iterable<StreamHead & { stream: string }>) {
      this.#recent.set(row.stream, { revision: row.revision, last: row.last });
    }
    this.#words.clear();
    for (const { number, text } of allWords.all() as { number: number; text: string }[]) this.#words.set(text, number);
  }

  #head(stream: string): StreamHead | undefined {
    return this.#recent.get(stream) ?? (this.#statements.findStream.get(stream) as StreamHead | undefined);
  }

  /** Writes the ends of recent streams into their table once there are many, in order of name, so that each page is changed once. */
  #indexStreams(count: number): void {
    if (this.#indexing === undefined && this.#recent.size >= RECENT_STREAMS) this.#beginIndexing();
    if (this.#indexing === undefined) return;
    const { left, asOf } = this.#indexing;
    for (const name of left.splice(-count).toReversed()) {
      const { revision: number, last } = this.#recent.get(name)!;
      this.#statements.putStream.run(name, number, last);
    }
    if (left.length > 0) return;
    this.#indexing = undefined;
    this.#streamsAsOf = asOf;
    this.#statements.setStreamsAsOf.run(asOf);
    // Streams that were written to meanwhile stay in memory, until the next time.
    for (const [name, { last }] of this.#recent) if (last <= asOf) this.#recent.delete(name);
  }

  #beginIndexing(): void {
    this.#indexing = { left: [...this.#recent.keys()].toSorted().toReversed(), asOf: this.#nextPosition - 1 };
  }

  /** The number of a word. A new word is stored in the transaction that first uses it. */
  #word(text: Word): number {
    if (typeof text === 'number') return text;
    let number = this.#words.get(text);
    if (number === undefined) {
      number = this.#words.size + 1;
      this.#statements.insertWord.run(number, text);
      this.#words.set(text, number);
    }
    return number;
  }

  /** The position of these events if the log has exactly them already: then the append is a retry. */
  #positionOfRetry(stream: string, expected: number, events: readonly EventRow[]) {
    const found = this.#chain(stream, expected + 1).slice(0, events.length);
    const same =
      found.length === events.length &&
      found.every(
        (row, index) =>
          row.revision === expected + 1 + index && Buffer.compare(row.id, uuidBytes(events[index]![0])) === 0,
      );
    return same ? { first: found[0]!.position, last: found.at(-1)!.position } : undefined;
  }

  /** The events of a stream from a revision on, oldest first. */
  #chain(stream: string, fromRevision: number) {
    const rows: { position: number; revision: number; previous: number; id: Uint8Array }[] = [];
    let position = this.#head(stream)?.last ?? 0;
    while (position !== 0) {
      const row = this.#statements.findLink.get(position) as (typeof rows)[number] | undefined;
      if (row === undefined || row.revision < fromRevision) break;
      rows.push(row);
      position = row.previous;
    }
    return rows.reverse();
  }

  #truncate({ stream, before }: TruncateJob): number {
    let removed = 0;
    let position = this.#head(stream)?.last ?? 0;
    let isLast = true;
    while (position !== 0) {
      const row = this.#statements.findLink.get(position) as { revision: number; previous: number } | undefined;
      if (row === undefined) break;
      // The last event always stays: the stream's revision and end are known by it.
      if (row.revision < before && !isLast) {
        this.#statements.deleteEvent.run(position);
        removed += 1;
      }
      isLast = false;
      position = row.previous;
    }
    return removed;
  }
}

/** The requests of a job whose keys are destroyed now, or were before. */
function destroyed({ requests }: DestroyJob, outcome: JobOutcome): DestroyRequest[] {
  const outcomes = outcome.ok ? (outcome.value as readonly DestroyOutcome[]) : [];
  return requests.filter((_, index) => {
    const kind = outcomes[index]?.kind;
    return kind === 'destroyed' || kind === 'already-destroyed';
  });
}

function revision(number: number): ExpectedRevision {
  return number === -1 ? 'no-stream' : number;
}

function prepareLog(log: DatabaseSync) {
  return {
    findStream: log.prepare('SELECT revision, last FROM streams WHERE name = ?'),
    putStream: log.prepare('INSERT OR REPLACE INTO streams (name, revision, last) VALUES (?, ?, ?)'),
    streamsAsOf: log.prepare('SELECT position FROM streams_as_of'),
    setStreamsAsOf: log.prepare('UPDATE streams_as_of SET position = ?'),
    lastPosition: log.prepare('SELECT coalesce(max(position), 0) AS last FROM events'),
    tail: log.prepare('SELECT stream, revision, position AS last FROM events WHERE position > ? ORDER BY position'),
    insertEvent: log.prepare(
      `INSERT INTO events (position, stream, revision, previous, type, version, at, id, actor, correlation, causation, shape, data, body)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    allWords: log.prepare('SELECT number, text FROM words'),
    insertWord: log.prepare('INSERT INTO words (number, text) VALUES (?, ?)'),
    findLink: log.prepare('SELECT position, revision, previous, id FROM events WHERE position = ?'),
    deleteEvent: log.prepare('DELETE FROM events WHERE position = ?'),
  } satisfies Record<string, StatementSync>;
}
