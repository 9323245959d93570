/**
 * P7: the purge of overdue items while nothing else happens. It records the expiry, destroys the key, records the purge and
 * truncates the log. The peer is a bare sweep, which selects overdue rows and deletes them in batches of 500. Also the latency
 * of 32 concurrent point reads and 8 concurrent upserts in another container, without the purge and while it runs at full rate.
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Bench, closeAll, rowOf, takeTurns } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker, seeded } from './support/documents.ts';
import { addContainer, caller, openStore, seed } from './support/epitaph.ts';
import { percentile } from './support/statistics.ts';
import { timed, turn } from './support/timing.ts';

const TTL_SECONDS = 100;
const SLICE = 4_096;
const SWEEP_BATCH = 500;
const READERS = 32;
const WRITERS = 8;
const SERVED_ITEMS = 10_000;
/** The number of overdue items for one slice of latencies. It is more than the purge can process meanwhile. */
const BACKLOG = 10_000;

export async function epitaph({ folder }: ContenderOptions): Promise<Contender> {
  const { store, container } = await openStore({
    folder: String(folder),
    clock: 'manual',
    defaultTtl: TTL_SECONDS,
    automaticPurge: false,
  });
  const served = await addContainer(store, 'served', null);
  await seed(store, served, 0, SERVED_ITEMS);
  const documents = new DocumentMaker();
  const random = seeded(7);
  let made = 0;
  const makeOverdue = async (count: number) => {
    await seed(store, container, made, made + count);
    made += count;
    await store.advanceClock((TTL_SECONDS + 1) * 1000);
  };

  const latencies = async (milliseconds: number, goesOn: () => boolean) => {
    const reads: number[] = [];
    const writes: number[] = [];
    const until = performance.now() + milliseconds;
    const client = async (times: number[], request: (number: number) => Promise<unknown>) => {
      while (performance.now() < until && goesOn()) {
        const startedMs = performance.now();
        // A request arrives through the event loop, so anything that blocks the loop delays it.
        await turn();
        await request(Math.floor(random() * SERVED_ITEMS));
        times.push(performance.now() - startedMs);
      }
    };
    await timed(async () => {
      await Promise.all([
        ...Array.from({ length: READERS }, () =>
          client(reads, (number) => {
            const { id, partitionKey } = documents.make(number);
            return store.readItem(served, id, partitionKey);
          }),
        ),
        ...Array.from({ length: WRITERS }, () =>
          client(writes, (number) => store.writeItem(caller, served, 'upsert', documents.make(number, made))),
        ),
      ]);
      return reads.length + writes.length;
    });
    return {
      readsP50: percentile(reads, 0.5),
      readsP99: percentile(reads, 0.99),
      writesP50: percentile(writes, 0.5),
      writesP99: percentile(writes, 0.99),
      writes: writes.length,
    };
  };

  return {
    works: {
      purge: async (count) => {
        await makeOverdue(count);
        return timed(async () => {
          const { expired, purged } = await store.runPurge();
          if (expired !== count || purged !== count)
            throw new Error(`${count} overdue: ${expired} expired, ${purged} purged`);
          return count;
        });
      },
      /** Measures latencies for some milliseconds without a purge. */
      alone: (milliseconds) => latencies(milliseconds, () => true),
      /** The same while a purge is running. The rest of the purge is done afterwards. */
      besidePurge: async (milliseconds) => {
        await makeOverdue(BACKLOG);
        let running = true;
        const startedMs = performance.now();
        const stop = new AbortController();
        const purge = store.runPurge({ signal: stop.signal }).finally(() => {
          running = false;
        });
        const figures = await latencies(milliseconds, () => running);
        const elapsedMs = performance.now() - startedMs;
        stop.abort();
        const { expired, purged } = await purge;
        // Recording the expiry is half of the work, and the erasure is the other half.
        const purgedPerSecond = ((expired + purged) / 2 / elapsedMs) * 1000;
        await store.runPurge();
        return { ...figures, purgedPerSecond };
      },
    },
    close: () => store.close(),
  };
}

/** A table of documents with their deadlines, and a simple sweep. */
export async function bareSweep({ folder }: ContenderOptions): Promise<Contender> {
  const database = new DatabaseSync(join(String(folder), 'documents.db'));
  database.exec(`PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    PRAGMA wal_autocheckpoint = 8000; PRAGMA cache_size = -65536;
    CREATE TABLE documents (number INTEGER PRIMARY KEY, partition_key TEXT NOT NULL, id TEXT NOT NULL, due INTEGER NOT NULL, json TEXT NOT NULL) STRICT;
    CREATE UNIQUE INDEX by_name ON documents (partition_key, id);
    CREATE INDEX by_due ON documents (due)`);
  const insert = database.prepare('INSERT INTO documents VALUES (?, ?, ?, ?, ?)');
  const overdue = database.prepare('SELECT number FROM documents WHERE due <= ? ORDER BY due LIMIT ?');
  const remove = database.prepare('DELETE FROM documents WHERE number = ?');
  const documents = new DocumentMaker();
  let made = 0;
  return {
    works: {
      sweep: (count) => {
        database.exec('BEGIN');
        for (let done = 0; done < count; done++) {
          const { id, partitionKey, json } = documents.make(++made);
          insert.run(made, partitionKey, id, made, json);
        }
        database.exec('COMMIT');
        return timed(() => {
          let removed = 0;
          for (;;) {
            const rows = overdue.all(made, SWEEP_BATCH) as { number: number }[];
            if (rows.length === 0) return removed;
            database.exec('BEGIN IMMEDIATE');
            for (const { number } of rows) remove.run(number);
            database.exec('COMMIT');
            removed += rows.length;
          }
        });
      },
    },
    close: () => database.close(),
  };
}

export const bench: Bench = {
  id: 'P7',
  title: 'Purge of overdue items',
  async run(context) {
    const ours = await context.ours(import.meta.url, 'epitaph', { folder: context.scratch('epitaph') });
    const bare = await context.peer(import.meta.url, 'bareSweep', { folder: context.scratch('bare') });
    const [purges, sweeps] = await takeTurns(context, [
      { contender: ours, work: 'purge', argument: SLICE },
      { contender: bare, work: 'sweep', argument: SLICE },
    ]);
    const alone = { reads: [] as number[], writes: [] as number[] };
    const beside = { reads: [] as number[], writes: [] as number[], rate: [] as number[] };
    const sliceMs = context.seconds * 1000;
    for (let round = -1; round < context.rounds; round++) {
      const without = await ours.call('alone', sliceMs);
      const during = await ours.call('besidePurge', sliceMs);
      if (round < 0) continue;
      alone.reads.push(without['readsP99']!);
      alone.writes.push(without['writesP99']!);
      beside.reads.push(during['readsP99']!);
      beside.writes.push(during['writesP99']!);
      beside.rate.push(during['purgedPerSecond']!);
    }
    await closeAll([ours, bare]);
    const latency = (work: string, during: number[], without: number[]) =>
      rowOf({
        bench: 'P7',
        work: `p99 of ${work} while the purge runs`,
        unit: 'ms',
        ours: during,
        peer: { name: 'without the purge', rounds: without },
        target: { of: 'ratio', is: 'at-most', limit: 2 },
      });
    return [
      rowOf({
        bench: 'P7',
        work: 'purge while idle, items',
        unit: '/s',
        ours: purges!,
        peer: { name: 'bare SELECT + DELETE sweep', rounds: sweeps! },
        target: { of: 'ours', is: 'at-least', limit: 5_000 },
      }),
      latency('32 concurrent point reads', beside.reads, alone.reads),
      latency('8 concurrent upserts', beside.writes, alone.writes),
      rowOf({ bench: 'P7', work: 'purge beside those requests, items', unit: '/s', ours: beside.rate, target: null }),
    ];
  },
};
