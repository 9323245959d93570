import { join } from 'node:path';
import type { Contender, ContenderOptions } from './contender.ts';
import { DocumentMaker } from './documents.ts';
import { loadPeer } from './peers.ts';
import { concurrently, timed } from './timing.ts';

interface EmmettEvent {
  readonly type: string;
  readonly data: object;
}

/** The part of Emmett's stores that is used here. */
interface EmmettStore {
  appendToStream(stream: string, events: readonly EmmettEvent[]): Promise<unknown>;
  readonly schema: { migrate(): Promise<unknown> };
  consumer(options: object): EmmettConsumer;
  close?(): Promise<void>;
}

interface EmmettProcessorOptions {
  readonly processorId: string;
  readonly startFrom: 'BEGINNING';
  readonly eachMessage: () => void;
  readonly stopAfter: () => boolean;
}

interface EmmettConsumer {
  /** Only for SQLite. */
  processor?(options: EmmettProcessorOptions): unknown;
  /** Only for PostgreSQL. */
  reactor?(options: EmmettProcessorOptions): unknown;
  start(): Promise<void>;
  close(): Promise<void>;
}

interface EmmettSqliteConnection {
  close(): void;
}

const CONCURRENCY = 64;
/** The number of events in one append while seeding. */
const SEED_BATCH = 500;

/**
 * Emmett's SQLite store in its fastest configuration: all on one shared connection. With one connection for each append,
 * which is the default, 64 concurrent appends fail with SQLITE_BUSY. On the shared connection, overlapping appends are
 * one transaction, and all except the last are answered before the commit. It is measured like this, to its advantage.
 */
export async function emmettSqlite({ folder, seed }: ContenderOptions): Promise<Contender> {
  const { getSQLiteEventStore, sqliteConnection } = loadPeer<{
    getSQLiteEventStore(options: object): EmmettStore;
    sqliteConnection(options: { fileName: string }): EmmettSqliteConnection;
  }>('emmett-sqlite', '@event-driven-io/emmett-sqlite');
  const fileName = join(String(folder), 'emmett.db');
  const connection = sqliteConnection({ fileName });
  const store = getSQLiteEventStore({ fileName, connectionOptions: { singleton: true, connection } });
  return contender(
    store,
    Number(seed ?? 0),
    () => store,
    () => connection.close(),
  );
}

/** Emmett's PostgreSQL store with its own pool. */
export async function emmettPostgresql({ connectionString, seed }: ContenderOptions): Promise<Contender> {
  const { getPostgreSQLEventStore } = loadPeer<{
    getPostgreSQLEventStore(connectionString: string): EmmettStore;
  }>('emmett-postgresql', '@event-driven-io/emmett-postgresql');
  const open = () => getPostgreSQLEventStore(String(connectionString));
  const store = open();
  // When its consumer is closed, it closes the store's pool, too.
  return contender(store, Number(seed ?? 0), open, () => store.close?.());
}

async function contender(
  store: EmmettStore,
  seed: number,
  storeToConsume: () => EmmettStore,
  close: () => Promise<void> | void | undefined,
): Promise<Contender> {
  await store.schema.migrate();
  const documents = new DocumentMaker();
  let created = 0;
  let consumers = 0;
  const event = (): { stream: string; event: EmmettEvent } => {
    const { id, partitionKey, document } = documents.make(created++);
    return { stream: id, event: { type: 'ItemUpserted', data: { id, partitionKey, document } } };
  };
  for (let done = 0; done < seed; done += SEED_BATCH) {
    const events = Array.from({ length: Math.min(SEED_BATCH, seed - done) }, event);
    await store.appendToStream(
      `seed-${done}`,
      events.map((made) => made.event),
    );
  }
  return {
    works: {
      appends: (count) =>
        timed(() =>
          concurrently(count, CONCURRENCY, () => {
            const made = event();
            return store.appendToStream(made.stream, [made.event]);
          }),
        ),
      /** Reads all seeded events from the beginning with its consumer, and does nothing with them. */
      consume: () =>
        timed(async () => {
          let seen = 0;
          const consumer = storeToConsume().consumer({ pulling: { batchSize: 1_000, pullingFrequencyInMs: 0 } });
          const options: EmmettProcessorOptions = {
            processorId: `bench-${++consumers}`,
            startFrom: 'BEGINNING',
            eachMessage: () => {
              seen += 1;
            },
            stopAfter: () => seen >= seed,
          };
          if (consumer.reactor === undefined) consumer.processor!(options);
          else consumer.reactor(options);
          await consumer.start();
          await consumer.close();
          return seen;
        }),
    },
    close: async () => {
      await close();
    },
  };
}
