/**
 * P8: rebuilding the read models from a log of 1 KB documents. The peers are the simplest possible scan, which reads and parses
 * every row of a log with the same documents as JSON text, and Emmett's consumer, which reads the same events and does nothing
 * with them.
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Bench, closeAll, rowOf, takeTurns } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker } from './support/documents.ts';
import { startEmmettPostgresql, startEmmettSqlite } from './support/emmett-peers.ts';
import { openStore, rebuildNow, seededFolder } from './support/epitaph.ts';
import { timed } from './support/timing.ts';

const PAGE = 2_000;

export async function epitaph({ folder, items }: ContenderOptions): Promise<Contender> {
  await seededFolder(String(folder), Number(items));
  const { store } = await openStore({ folder: String(folder), clock: 'manual', automaticPurge: false });
  return {
    works: {
      rebuild: () =>
        timed(async () => {
          await rebuildNow(store);
          return Number(items);
        }),
    },
    close: () => store.close(),
  };
}

export async function bareScan({ folder, items }: ContenderOptions): Promise<Contender> {
  const database = new DatabaseSync(join(String(folder), 'log.db'));
  database.exec(`PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA cache_size = -65536;
    CREATE TABLE events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL, type TEXT NOT NULL, data TEXT NOT NULL) STRICT`);
  const insert = database.prepare('INSERT INTO events VALUES (?, ?, ?, ?)');
  const documents = new DocumentMaker();
  database.exec('BEGIN');
  for (let number = 1; number <= Number(items); number++) {
    const { id, json } = documents.make(number);
    insert.run(number, id, 'ItemUpserted', json);
  }
  database.exec('COMMIT');
  const page = database.prepare(
    'SELECT position, stream, type, data FROM events WHERE position > ? ORDER BY position LIMIT ?',
  );
  return {
    works: {
      scan: () =>
        timed(() => {
          let fields = 0;
          for (let after = 0; ;) {
            const rows = page.all(after, PAGE) as { position: number; data: string }[];
            if (rows.length === 0) break;
            after = rows.at(-1)!.position;
            for (const { data } of rows) fields += Object.keys(JSON.parse(data) as object).length;
          }
          if (fields === 0) throw new Error('nothing was scanned');
          return Number(items);
        }),
    },
    close: () => database.close(),
  };
}

const size = (full: boolean) => (full ? 1_000_000 : 100_000);

export const bench: Bench = {
  id: 'P8',
  title: 'Rebuild of the items projection from the log',
  seeds: (full) => [size(full)],
  async run(context) {
    const items = size(context.full);
    const emmettEvents = context.full ? 50_000 : 10_000;
    const ours = await context.ours(import.meta.url, 'epitaph', { folder: context.scratch('epitaph'), items });
    const bare = await context.peer(import.meta.url, 'bareScan', { folder: context.scratch('bare'), items });
    const sqlite = await startEmmettSqlite(context, emmettEvents);
    const postgresql = await startEmmettPostgresql(context, emmettEvents);
    const [rebuilds, scans, onSqlite, onPostgresql] = await takeTurns(context, [
      { contender: ours, work: 'rebuild', argument: 0 },
      { contender: bare, work: 'scan', argument: 0 },
      { contender: sqlite, work: 'consume', argument: 0, mayFail: true },
      { contender: postgresql, work: 'consume', argument: 0, mayFail: true },
    ]);
    await closeAll([ours, bare, sqlite, postgresql]);
    const row = { bench: 'P8', work: `rebuild from ${items.toLocaleString('en')} events`, unit: '/s', ours: rebuilds! };
    const consumed = `consumer over ${emmettEvents.toLocaleString('en')} events, 1,000 a batch, no pause between`;
    return [
      rowOf({
        ...row,
        peer: { name: 'bare scan + JSON.parse', rounds: scans! },
        target: { of: 'ratio', is: 'at-least', limit: 0.4 },
        judged: context.full,
      }),
      rowOf({
        ...row,
        peer: { name: 'Emmett on SQLite', rounds: onSqlite! },
        target: { of: 'ratio', is: 'at-least', limit: 15 },
        judged: context.full,
        note: consumed,
      }),
      rowOf({
        ...row,
        peer: { name: 'Emmett on PostgreSQL', rounds: onPostgresql! },
        target: { of: 'ratio', is: 'at-least', limit: 15 },
        judged: context.full,
        note: consumed,
      }),
    ];
  },
};
