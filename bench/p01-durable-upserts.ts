/**
 * P1: durable upserts of 1 KB documents, 64 at a time, embedded and in process. Each is decided, sealed, appended with fsync,
 * and projected before it is answered. Creates and updates are measured separately. The peers are a bare loop that commits
 * the same rows in groups of 64, and Emmett's stores, which append one event of the same size for each.
 */
import { type Bench, closeAll, type Rounds, rowOf, takeTurns } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker, seeded } from './support/documents.ts';
import { startEmmettPostgresql, startEmmettSqlite } from './support/emmett-peers.ts';
import { caller, openStore } from './support/epitaph.ts';
import { concurrently, timed } from './support/timing.ts';

const CONCURRENCY = 64;
const SLICE = 4_096;
const EMMETT_SLICE = 1_024;
const MONTH_SECONDS = 2_592_000;

export async function epitaph({ folder }: ContenderOptions): Promise<Contender> {
  const { store, container } = await openStore({ folder: String(folder), clock: 'system', defaultTtl: MONTH_SECONDS });
  const documents = new DocumentMaker();
  const random = seeded(1);
  let created = 0;
  let version = 0;
  const write = (number: number) => store.writeItem(caller, container, 'upsert', documents.make(number, version));
  return {
    works: {
      creates: (count) => timed(() => concurrently(count, CONCURRENCY, () => write(created++))),
      updates: (count) => {
        version += 1;
        return timed(() => concurrently(count, CONCURRENCY, () => write(Math.floor(random() * created))));
      },
    },
    close: () => store.close(),
  };
}

export const bench: Bench = {
  id: 'P1',
  title: 'Durable upserts of 1 KB documents, 64 concurrent',
  async run(context) {
    const ours = await context.ours(import.meta.url, 'epitaph', { folder: context.scratch('epitaph') });
    const bare = await context.peer(import.meta.resolve('./support/bare-loop.ts'), 'bareLoop', {
      folder: context.scratch('bare'),
    });
    const sqlite = await startEmmettSqlite(context);
    const postgresql = await startEmmettPostgresql(context);
    const [creates, updates, bareCreates, bareUpdates, onSqlite, onPostgresql] = await takeTurns(context, [
      { contender: ours, work: 'creates', argument: SLICE },
      { contender: ours, work: 'updates', argument: SLICE },
      { contender: bare, work: 'creates', argument: SLICE },
      { contender: bare, work: 'updates', argument: SLICE },
      { contender: sqlite, work: 'appends', argument: EMMETT_SLICE, mayFail: true },
      { contender: postgresql, work: 'appends', argument: EMMETT_SLICE, mayFail: true },
    ]);
    await closeAll([ours, bare, sqlite, postgresql]);
    const against = (
      work: string,
      figures: Rounds | undefined,
      name: string,
      rounds: Rounds | undefined,
      limit: number,
      note?: string,
    ) =>
      rowOf({
        bench: 'P1',
        unit: '/s',
        work,
        ours: figures!,
        peer: { name, rounds: rounds! },
        target: { of: 'ratio', is: 'at-least', limit },
        ...(note === undefined ? {} : { note }),
      });
    const early = 'on its shared connection, which answers before the commit';
    return [
      against('creates', creates, 'bare group commit', bareCreates, 0.75),
      against('updates', updates, 'bare group commit', bareUpdates, 0.75),
      against('creates', creates, 'Emmett on SQLite', onSqlite, 1.5, early),
      against('creates', creates, 'Emmett on PostgreSQL', onPostgresql, 3),
    ];
  },
};
