/** A contender that uses `@azure/cosmos` with some endpoint. */
import { CosmosClient, type Container } from '@azure/cosmos';
import type { Document } from '@epitaph/api/store/api/items-api.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { type BenchContext, Unavailable } from './bench.ts';
import type { Contender, ContenderOptions, RunningContender } from './contender.ts';
import { DocumentMaker } from './documents.ts';
import type { RunningServer } from './servers.ts';
import { concurrently, timed } from './timing.ts';

const CONCURRENCY = 32;
/** The number of items that are read and upserted. */
const KNOWN = 5_000;

/**
 * @param options `endpoint`; `items`: the number of items before anything is measured; `partitions`: the number of
 *   their partition keys; `container`: its name; `clearPath`: the container's clear path
 */
export async function cosmosClient(options: ContenderOptions): Promise<Contender> {
  const client = new CosmosClient({ endpoint: String(options['endpoint']), key: EMULATOR_KEY });
  const { database } = await client.databases.createIfNotExists({ id: 'bench' });
  const { container } = await database.containers.createIfNotExists({
    id: String(options['container'] ?? 'items'),
    partitionKey: { paths: ['/pk'] },
    ...(options['clearPath'] === undefined ? {} : { epitaph: { clearPaths: [options['clearPath']] } }),
  });
  const documents = new DocumentMaker({ partitions: Number(options['partitions'] ?? 100) });
  const known = Number(options['items'] ?? KNOWN);
  await concurrently(known, CONCURRENCY, (number) => container.items.upsert({ ...documents.make(number).document }));
  let created = known;
  let version = 0;
  const at = (index: number) => documents.make((index * 7_919) % known, version);
  const queries = queriesOf(
    container,
    Array.from({ length: known }, (_, number) => documents.make(number).document),
  );
  return {
    works: {
      create: (count) =>
        timed(() =>
          concurrently(count, CONCURRENCY, () => container.items.create({ ...documents.make(created++).document })),
        ),
      read: (count) =>
        timed(() =>
          concurrently(count, CONCURRENCY, async (index) => {
            const { id, document } = at(index);
            const { resource } = await container.item(id, String(document['pk'])).read<{ id: string }>();
            if (resource === undefined) throw new Error(`${id} is not there`);
          }),
        ),
      upsert: (count) => {
        version += 1;
        return timed(() =>
          concurrently(count, CONCURRENCY, (index) => container.items.upsert({ ...at(index).document })),
        );
      },
      ...Object.fromEntries(
        Object.entries(queries).map(([name, { run, rows }]) => [
          name,
          (count: number) =>
            timed(async () => {
              for (let done = 0; done < count; done++) {
                const found = await run();
                if (found !== rows) throw new Error(`${name}: ${found} rows and not ${rows}`);
              }
              return count;
            }),
        ]),
      ),
    },
    close: () => client.dispose(),
  };
}

/** The queries of P5, with the number of rows that each must return. */
function queriesOf(container: Container, documents: readonly Document[]) {
  const all = async (query: string, partitionKey?: string) => {
    const iterator = container.items.query(query, {
      maxItemCount: 1_000,
      ...(partitionKey === undefined ? {} : { partitionKey }),
    });
    return (await iterator.fetchAll()).resources.length;
  };
  const count = (matches: (document: Document) => boolean) => documents.filter(matches).length;
  return {
    partition: { run: () => all("SELECT * FROM c WHERE c.pk = 'p7'", 'p7'), rows: count(({ pk }) => pk === 'p7') },
    filter: { run: () => all('SELECT * FROM c WHERE c.count > 990'), rows: count((of) => Number(of['count']) > 990) },
    orderBy: { run: () => all('SELECT TOP 50 * FROM c ORDER BY c.amount DESC'), rows: Math.min(50, documents.length) },
    sum: { run: () => all('SELECT VALUE SUM(c.amount) FROM c'), rows: 1 },
  };
}

/** Starts a process with a client for a server's endpoint. */
export async function startClient(
  context: BenchContext,
  server: RunningServer | Unavailable,
  options: ContenderOptions = {},
): Promise<RunningContender | Unavailable> {
  if (server instanceof Unavailable) return server;
  const start = server.ours ? context.ours : context.peer;
  return start(import.meta.url, 'cosmosClient', { ...options, endpoint: server.endpoint });
}
