import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { openForReading, openForWriting } from '@epitaph/storage/sqlite/database.ts';
import {
  LOG_SCHEMA,
  LOG_SCHEMA_VERSION,
  READ_MODEL_SCHEMA,
  READ_MODEL_SCHEMA_VERSION,
  VAULT_SCHEMA,
  VAULT_SCHEMA_VERSION,
} from '@epitaph/storage/sqlite/schema.ts';
import type { Contender, ContenderOptions } from './contender.ts';
import { DocumentMaker, seeded } from './documents.ts';
import { caller, openStore } from './epitaph.ts';
import { timed } from './timing.ts';

const BATCH = 64;
/** The number of different rows that are written again and again under new names and numbers. */
const SAMPLES = 512;

type Row = Record<string, SQLInputValue>;
type Overrides = Readonly<Record<string, SQLInputValue>>;

/**
 * The time that the disk and SQLite alone take. A plain loop on one thread writes the rows of an upsert into the same
 * tables, and commits them in groups of 64, without decider, cryptography or promises.
 *
 * The rows are those that the store itself has written for such documents: a sample of each kind is read from a
 * small store made first, and written again and again under new positions and names. So they stay the same rows when
 * the schema changes. For each event the loop looks up its stream and writes the stream's end, as the simplest log would.
 */
export async function bareLoop({ folder }: ContenderOptions): Promise<Contender> {
  const sampled = join(String(folder), 'sample');
  await writeSample(sampled);
  const open = (name: string, schema: string, schemaVersion: number, synchronous: 'FULL' | 'NORMAL') => ({
    sample: openForReading(join(sampled, name)),
    database: openForWriting({
      file: join(String(folder), name),
      what: name,
      schema,
      schemaVersion,
      synchronous,
      secureDelete: name === 'vault.db',
    }),
  });
  const log = open('log.db', LOG_SCHEMA, LOG_SCHEMA_VERSION, 'FULL');
  const vault = open('vault.db', VAULT_SCHEMA, VAULT_SCHEMA_VERSION, 'FULL');
  const items = open('items.v1.db', READ_MODEL_SCHEMA, READ_MODEL_SCHEMA_VERSION, 'NORMAL');

  const events = rowsOf(log.sample, `SELECT * FROM events WHERE body IS NOT NULL ORDER BY position`);
  const created = { events: events.slice(0, SAMPLES), keys: rowsOf(vault.sample, 'SELECT * FROM keys ORDER BY id') };
  const updated = {
    events: events.slice(SAMPLES),
    items: rowsOf(items.sample, 'SELECT * FROM items ORDER BY position'),
  };
  for (const { sample } of [log, vault, items]) sample.close();

  const insertEvent = inserter(log.database, 'events', created.events[0]!);
  const insertKey = inserter(vault.database, 'keys', created.keys[0]!);
  const insertItem = inserter(items.database, 'items', updated.items[0]!);
  const updateItem = updater(
    items.database,
    'items',
    ['container', 'partition_key', 'id', 'life'],
    Object.keys(updated.items[0]!).filter((name) => !['birth', 'key'].includes(name)),
  );
  const findStream = log.database.prepare('SELECT revision, last FROM streams WHERE name = ?');
  const insertStream = log.database.prepare('INSERT INTO streams (name, revision, last) VALUES (?, ?, ?)');
  const updateStream = log.database.prepare('UPDATE streams SET revision = ?, last = ? WHERE name = ?');
  const checkpoint = items.database.prepare('UPDATE checkpoint SET position = ?');
  const nameLength = String(created.events[0]!['stream']).length;
  const streamNames: string[] = [];
  const random = seeded(1);
  let position = 0;

  const create = (count: number) => {
    for (let done = 0; done < count; done += BATCH) {
      const first = streamNames.length;
      const numbers = Array.from({ length: BATCH }, (_, index) => first + index);
      const at = new Map<number, number>();
      for (const _ of numbers) streamNames.push(randomBytes(nameLength).toString('base64url').slice(0, nameLength));
      inTransaction(vault.database, () => {
        for (const number of numbers) insertKey(created.keys[number % SAMPLES]!, { id: number + 1 });
      });
      inTransaction(log.database, () => {
        for (const number of numbers) {
          const stream = streamNames[number]!;
          findStream.get(stream);
          position += 1;
          insertEvent(created.events[number % SAMPLES]!, { position, stream, revision: 0, previous: 0 });
          insertStream.run(stream, 0, position);
          at.set(number, position);
        }
      });
      inTransaction(items.database, () => {
        for (const number of numbers) {
          const birth = at.get(number)!;
          insertItem(updated.items[number % SAMPLES]!, {
            birth,
            position: birth,
            id: `item-${number}`,
            key: number + 1,
          });
        }
        checkpoint.run(position);
      });
    }
    return count;
  };
  const update = (count: number) => {
    for (let done = 0; done < count; done += BATCH) {
      const numbers = Array.from({ length: BATCH }, () => Math.floor(random() * streamNames.length));
      const at: number[] = [];
      inTransaction(log.database, () => {
        for (const number of numbers) {
          const stream = streamNames[number]!;
          const head = findStream.get(stream) as { revision: number; last: number };
          position += 1;
          insertEvent(updated.events[number % SAMPLES]!, {
            position,
            stream,
            revision: head.revision + 1,
            previous: head.last,
          });
          updateStream.run(head.revision + 1, position, stream);
          at.push(position);
        }
      });
      inTransaction(items.database, () => {
        numbers.forEach((number, index) => {
          updateItem(updated.items[number % SAMPLES]!, { position: at[index]!, id: `item-${number}` });
        });
        checkpoint.run(position);
      });
    }
    return count;
  };
  return {
    works: {
      creates: (count) => timed(() => create(count)),
      updates: (count) => timed(() => update(count)),
    },
    close: () => {
      for (const { database } of [items, log, vault]) database.close();
    },
  };
}

/** A small store in which each of some items was created and then updated once, in the same order. */
async function writeSample(folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const { store, container } = await openStore({
    folder,
    clock: 'system',
    defaultTtl: 2_592_000,
    automaticPurge: false,
  });
  const documents = new DocumentMaker();
  for (const version of [0, 1]) {
    for (let number = 0; number < SAMPLES; number++) {
      await store.writeItem(caller, container, 'upsert', documents.make(number, version));
    }
  }
  await store.close();
}

function rowsOf(database: DatabaseSync, sql: string): Row[] {
  return database.prepare(sql).all();
}

/** Inserts rows of a sample, with other values in some columns. */
function inserter(database: DatabaseSync, table: string, sample: Row) {
  const names = Object.keys(sample);
  const statement = database.prepare(
    `INSERT INTO ${table} (${names.map((name) => `"${name}"`).join(', ')}) VALUES (${names.map(() => '?').join(', ')})`,
  );
  return (row: Row, overrides: Overrides) => statement.run(...names.map((name) => overrides[name] ?? row[name]!));
}

/** Updates a row, found by its key, to that of a sample. An override of a key column selects another row. */
function updater(database: DatabaseSync, table: string, key: readonly string[], columns: readonly string[]) {
  const changed = columns.filter((name) => !key.includes(name));
  const equals = (name: string) => `"${name}" = ?`;
  const statement = database.prepare(
    `UPDATE ${table} SET ${changed.map(equals).join(', ')} WHERE ${key.map(equals).join(' AND ')}`,
  );
  return (row: Row, overrides: Overrides) => {
    const { changes } = statement.run(...[...changed, ...key].map((name) => overrides[name] ?? row[name]!));
    if (changes !== 1) throw new Error(`an update of ${table} found ${changes} rows`);
  };
}

function inTransaction(database: DatabaseSync, work: () => void): void {
  database.exec('BEGIN IMMEDIATE');
  work();
  database.exec('COMMIT');
}
