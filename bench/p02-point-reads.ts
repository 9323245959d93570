/**
 * P2: point reads of 1 KB documents in process, one after the other: with the life's key unwrapped each time, with the key
 * cached, and with the decoded document cached. The peer is a bare SELECT by primary key with JSON.parse, over as many
 * documents. Our answers are JSON text, as HTTP sends it. In the rows "parsed", they are parsed too.
 *
 * Between slices, and not timed, the cache of decoded documents is emptied by reading more than it holds: documents of 2 MB.
 * That also evicts the sealed documents from SQLite's page cache, while the peer's table stays in it. So the sealed documents
 * are then read into it again through the log, which decodes nothing. `SqliteKeyVault.forgetUnwrapped` empties the cache of the keys.
 * Within a slice no document is read twice.
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Bench, closeAll, rowOf, takeTurns } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker } from './support/documents.ts';
import { addContainer, caller, openStore, seed } from './support/epitaph.ts';
import { timed } from './support/timing.ts';

/** Less than half of what the vault's key cache and the cache of decoded documents hold, so that all items surely stay cached. */
const ITEMS = 20_000;
const SLICE = 10_000;
/** A prime, so that steps of this size visit every item before any is visited again. */
const STRIDE = 7_919;
const LARGE_ITEMS = 36;
const LARGE_BYTES = 2_000_000;

export async function epitaph({ folder }: ContenderOptions): Promise<Contender> {
  const { store, storage, container } = await openStore({
    folder: String(folder),
    clock: 'system',
    defaultTtl: 2_592_000,
  });
  const large = await addContainer(store, 'large', null);
  const itemsFrom = await storage.log.head();
  await seed(store, container, 0, ITEMS);
  const itemsTo = await storage.log.head();
  const filler = 'f'.repeat(LARGE_BYTES);
  for (let number = 0; number < LARGE_ITEMS; number++) {
    const document = { id: `large-${number}`, pk: 'p', filler };
    const json = JSON.stringify(document);
    await store.writeItem(caller, large, 'upsert', { id: document.id, partitionKey: '["p"]', document, json });
  }
  const names = itemNames();
  let next = 0;
  let seen = 0;
  const read = (count: number, parse: boolean) =>
    timed(async () => {
      for (let done = 0; done < count; done++) {
        const { id, partitionKey } = names[(next = (next + STRIDE) % ITEMS)]!;
        const { json } = await store.readItem(container, id, partitionKey);
        seen += parse ? Object.keys(JSON.parse(json) as object).length : json.length;
      }
      return count;
    });
  const emptyDecoded = async () => {
    for (let number = 0; number < LARGE_ITEMS; number++)
      seen += (await store.readItem(large, `large-${number}`, '["p"]')).json.length;
    for (let position = itemsFrom; position < itemsTo; position += 1_000)
      seen += (await storage.log.readAll(position, Math.min(1_000, itemsTo - position))).length;
  };
  const keysAnew = async (count: number, parse: boolean) => {
    await emptyDecoded();
    storage.vault.forgetUnwrapped();
    return read(count, parse);
  };
  const keysCached = async (count: number, parse: boolean) => {
    // Reading all items caches their keys. Then the cache of decoded documents is emptied.
    for (const { id, partitionKey } of names) seen += (await store.readItem(container, id, partitionKey)).ts;
    await emptyDecoded();
    return read(count, parse);
  };
  const decoded = async (count: number, parse: boolean) => {
    for (const { id, partitionKey } of names) seen += (await store.readItem(container, id, partitionKey)).ts;
    return read(count, parse);
  };
  return {
    works: {
      keysAnew: (count) => keysAnew(count, false),
      keysAnewParsed: (count) => keysAnew(count, true),
      keysCached: (count) => keysCached(count, false),
      keysCachedParsed: (count) => keysCached(count, true),
      decoded: (count) => decoded(count, false),
      decodedParsed: (count) => decoded(count, true),
    },
    close: async () => {
      if (seen === 0) throw new Error('nothing was read');
      await store.close();
    },
  };
}

/** A table of documents by container, partition key and id, and nothing else. */
export async function bareSelect({ folder }: ContenderOptions): Promise<Contender> {
  const database = new DatabaseSync(join(String(folder), 'documents.db'));
  database.exec(`PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA cache_size = -65536;
    CREATE TABLE documents (partition_key TEXT, id TEXT, json TEXT NOT NULL, PRIMARY KEY (partition_key, id)) STRICT, WITHOUT ROWID`);
  const insert = database.prepare('INSERT INTO documents VALUES (?, ?, ?)');
  const documents = new DocumentMaker();
  database.exec('BEGIN');
  for (let number = 0; number < ITEMS; number++) {
    const { id, partitionKey, json } = documents.make(number);
    insert.run(partitionKey, id, json);
  }
  database.exec('COMMIT');
  const select = database.prepare('SELECT json FROM documents WHERE partition_key = ? AND id = ?');
  const names = itemNames();
  let next = 0;
  let seen = 0;
  return {
    works: {
      reads: (count) =>
        timed(() => {
          for (let done = 0; done < count; done++) {
            const { id, partitionKey } = names[(next = (next + STRIDE) % ITEMS)]!;
            const { json } = select.get(partitionKey, id) as { json: string };
            seen += Object.keys(JSON.parse(json) as object).length;
          }
          return count;
        }),
    },
    close: () => {
      if (seen === 0) throw new Error('nothing was read');
      database.close();
    },
  };
}

function itemNames(): { id: string; partitionKey: string }[] {
  const documents = new DocumentMaker();
  return Array.from({ length: ITEMS }, (_, number) => {
    const { id, partitionKey } = documents.make(number);
    return { id, partitionKey };
  });
}

const WORKS = [
  ['keysAnew', 'life keys unwrapped anew', 0.25],
  ['keysCached', 'life keys cached', 0.4],
  ['decoded', 'decoded cache', 1],
] as const;

export const bench: Bench = {
  id: 'P2',
  title: 'Point reads in process',
  async run(context) {
    const ours = await context.ours(import.meta.url, 'epitaph', { folder: context.scratch('epitaph') });
    const bare = await context.peer(import.meta.url, 'bareSelect', { folder: context.scratch('bare') });
    const variants = WORKS.flatMap(([work, name, limit]) => [
      { work, name, limit },
      { work: `${work}Parsed`, name: `${name}, parsed`, limit: null },
    ]);
    const rates = await takeTurns(context, [
      { contender: bare, work: 'reads', argument: SLICE },
      ...variants.map(({ work }) => ({ contender: ours, work, argument: SLICE })),
    ]);
    await closeAll([ours, bare]);
    return variants.map(({ name, limit }, index) =>
      rowOf({
        bench: 'P2',
        work: `point reads, ${name}`,
        unit: '/s',
        ours: rates[index + 1]!,
        peer: { name: 'bare SELECT + JSON.parse', rounds: rates[0]! },
        target: limit === null ? null : { of: 'ratio', is: 'at-least', limit },
      }),
    );
  },
};
