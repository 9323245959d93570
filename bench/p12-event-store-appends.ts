/**
 * P12: 64 concurrent appends of an event of 1 KB, each to a stream of its own, through the log on EventStoreDB and through
 * that server's own client. Also writes, reads, the purge and a rebuild in the configuration for several nodes: the log on
 * EventStoreDB, keys and read models in PostgreSQL, with one node and without HTTP.
 */
import { randomBytes } from 'node:crypto';
import { binaryEvent, EventStoreDBClient, NO_STREAM } from '@eventstore/db-client';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';
import { type Bench, type BenchContext, closeAll, type Row, rowOf, takeTurns, Unavailable } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker } from './support/documents.ts';
import { addContainer, caller, rebuildNow, seed } from './support/epitaph.ts';
import { startEventStore } from './support/event-store.ts';
import { startPostgres } from './support/postgres.ts';
import { concurrently, timed } from './support/timing.ts';

const CONCURRENCY = 64;
const EVENT_BYTES = 1024;
const SLICE = 2_048;
const PURGE_SLICE = 1_024;
const TTL_SECONDS = 1;
const ITEMS = 5_000;

/** PostgreSQL's settings for the vault, as in docs/servers.md. */
const POSTGRES = {
  settings: ['wal_recycle=off', 'wal_keep_size=0', 'log_parameter_max_length=0', 'log_parameter_max_length_on_error=0'],
  initdb: ['--wal-segsize=1'],
};

/** Events like those of the store, but not sealed. Both sides append the same bytes, which are made before the timing starts. */
function makeEvents(count: number) {
  const body = randomBytes(EVENT_BYTES);
  return Array.from({ length: count }, () => ({
    stream: `bench-${crypto.randomUUID()}`,
    id: crypto.randomUUID(),
    type: 'ItemUpserted',
    body,
    facts: { $correlationId: crypto.randomUUID(), $causationId: crypto.randomUUID(), actor: 'key:primary' },
    occurredAtMs: Date.now(),
  }));
}

export async function adapter({ connectionString }: ContenderOptions): Promise<Contender> {
  const log = await openEventStoreLog({ connectionString: String(connectionString) });
  return {
    works: {
      append: (count) => {
        const made = makeEvents(count);
        return timed(() =>
          concurrently(count, CONCURRENCY, async (index) => {
            const { stream, id, type, body, facts, occurredAtMs } = made[index]!;
            const { $correlationId: correlationId, $causationId: causationId, actor } = facts;
            const event = { id, type, version: 1, data: {}, body, occurredAtMs, actor, correlationId, causationId };
            const result = await log.append([{ stream, expectedRevision: 'no-stream', events: [event] }]);
            if (result.kind !== 'appended') throw new Error(`${stream} was there`);
          }),
        );
      },
    },
    close: () => log.close(),
  };
}

export async function bareClient({ connectionString }: ContenderOptions): Promise<Contender> {
  const client = EventStoreDBClient.connectionString(String(connectionString));
  return {
    works: {
      append: (count) => {
        const made = makeEvents(count);
        return timed(() =>
          concurrently(count, CONCURRENCY, async (index) => {
            const { stream, id, type, body, facts, occurredAtMs } = made[index]!;
            const metadata = Buffer.from(JSON.stringify({ ...facts, occurredAtMs, version: 1, data: {} }));
            const event = binaryEvent({ id, type, data: body, metadata });
            await client.appendToStream(stream, event, { expectedRevision: NO_STREAM });
          }),
        );
      },
    },
    close: () => client.dispose(),
  };
}

/** The store as one of several nodes. That has no manual clock, so the bench waits until the items have expired. */
export async function sharedStore({ connectionString, postgres, folder }: ContenderOptions): Promise<Contender> {
  const store = await openEmbeddedStore({
    folder: String(folder),
    clock: 'system',
    masterKey: randomBytes(32).toString('base64'),
    eventStore: String(connectionString),
    shared: { url: String(postgres), roles: new Set(['project', 'purge']), policyDelayMs: 4_000 },
    policyGraceSeconds: 0,
    automaticPurge: false,
  });
  await store.createDatabase(caller, 'bench');
  const items = await addContainer(store, 'items', null);
  const short = await addContainer(store, 'short', TTL_SECONDS);
  await seed(store, items, 0, ITEMS);
  const documents = new DocumentMaker();
  let made = ITEMS;
  return {
    works: {
      write: (count) =>
        timed(() =>
          concurrently(count, CONCURRENCY, () => store.writeItem(caller, items, 'upsert', documents.make(made++))),
        ),
      read: (count) =>
        timed(() =>
          concurrently(count, CONCURRENCY, (index) => {
            const { id, partitionKey } = documents.make((index * 7_919) % ITEMS);
            return store.readItem(items, id, partitionKey);
          }),
        ),
      purge: async (count) => {
        await seed(store, short, 0, count);
        // One second is added, since `_ts` and deadlines are whole seconds.
        await new Promise((resolve) => setTimeout(resolve, (TTL_SECONDS + 1) * 1000));
        return timed(async () => (await store.runPurge()).purged);
      },
      rebuild: () =>
        timed(async () => {
          await rebuildNow(store);
          return made;
        }),
    },
    close: () => store.close(),
  };
}

async function sharedRows(context: BenchContext, connectionString: string): Promise<Row[]> {
  const postgres = await startPostgres(context.scratch('postgresql'), context.say, POSTGRES);
  if (postgres instanceof Unavailable) return [unavailable('EventStoreDB and PostgreSQL', postgres)];
  context.atEnd(() => postgres.stop());
  const contender = await context.ours(import.meta.url, 'sharedStore', {
    connectionString,
    postgres: postgres.connectionString,
    folder: context.scratch('node'),
  });
  const rows: Row[] = [];
  for (const [work, argument, name] of [
    ['write', SLICE, `creates, ${CONCURRENCY} at a time`],
    ['read', SLICE, `point reads, ${CONCURRENCY} at a time`],
    ['purge', PURGE_SLICE, 'purge, items'],
    ['rebuild', 0, 'rebuild, items'],
  ] as const) {
    const [ours] = await takeTurns(context, [{ contender, work, argument }]);
    rows.push(
      rowOf({ bench: 'P12', work: `EventStoreDB and PostgreSQL: ${name}`, unit: '/s', ours: ours!, target: null }),
    );
  }
  await contender.close();
  return rows;
}

/** A row for a work that could not be measured on this machine. */
function unavailable(work: string, { reason }: Unavailable): Row {
  const note = `not available: ${reason}`;
  return { bench: 'P12', work, unit: '/s', ours: null, peer: null, ratio: null, target: null, reached: null, note };
}

async function holdsEvents(connectionString: string): Promise<boolean> {
  const log = await openEventStoreLog({ connectionString });
  try {
    return (await log.head()) > 0;
  } finally {
    await log.close();
  }
}

export const bench: Bench = {
  id: 'P12',
  title: 'Appends to EventStoreDB, and the store on it and PostgreSQL',
  async run(context) {
    const server = await startEventStore(context.scratch('eventstore'));
    if (server instanceof Unavailable) return [unavailable(`appends of 1 KB, ${CONCURRENCY} at a time`, server)];
    context.atEnd(() => server.stop());
    const { connectionString } = server;
    // This comes first. Later, a new database would have to read the events of the appends, and of other stores, without their keys.
    const shared = (await holdsEvents(connectionString))
      ? [
          unavailable(
            'EventStoreDB and PostgreSQL',
            new Unavailable('the server named holds events; this takes an empty one'),
          ),
        ]
      : await sharedRows(context, connectionString);
    const ours = await context.ours(import.meta.url, 'adapter', { connectionString });
    const bare = await context.peer(import.meta.url, 'bareClient', { connectionString });
    const [appends, bareAppends] = await takeTurns(context, [
      { contender: ours, work: 'append', argument: SLICE },
      { contender: bare, work: 'append', argument: SLICE },
    ]);
    await closeAll([ours, bare]);
    return [
      rowOf({
        bench: 'P12',
        work: `appends of 1 KB, ${CONCURRENCY} at a time`,
        unit: '/s',
        ours: appends!,
        peer: { name: 'bare @eventstore/db-client', rounds: bareAppends! },
        target: { of: 'ratio', is: 'at-least', limit: 0.9 },
      }),
      ...shared,
    ];
  },
};
