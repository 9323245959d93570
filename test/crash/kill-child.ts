import { writeSync } from 'node:fs';
import { Refusal } from '@epitaph/core/errors.ts';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { Random } from '../simulation/random.ts';
import type { Intent } from './kill-rounds.ts';

/**
 * The process that is killed: an embedded store as it ships, under full write load, its purge running. It tells each
 * intent before it acts (`b`) and each acknowledgement after (`a`), written synchronously, so that what was told is
 * told even if the next instruction is the last.
 *
 * Arguments: folder, seed, first number of the values.
 */
const [folder = '', seedText = '1', valueText = '1'] = process.argv.slice(2);
const random = new Random(Number(seedText));
let value = Number(valueText);

const WRITERS = 32;
const ITEMS_EACH = 12;
const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const DEFINITION = {
  partitionKey: { paths: ['/pk'], kind: 'Hash' as const, version: 2 as const },
  indexingPolicy: { indexingMode: 'consistent' as const },
};

function tell(line: string): void {
  const bytes = Buffer.from(`${line}\n`);
  for (let written = 0; written < bytes.length;) {
    try {
      written += writeSync(1, bytes, written);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    }
  }
}

async function container(store: Store) {
  try {
    return store.container('db', 'c');
  } catch {
    await store.createDatabase(CALLER, 'db').catch((error: unknown) => {
      if (!(error instanceof Refusal)) throw error;
    });
    return (await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1)).resource;
  }
}

const store = await openEmbeddedStore({
  folder,
  clock: 'system',
  policyGraceSeconds: 0,
  onFault: (error) => tell(`f ${String((error as Error).stack ?? error).replaceAll('\n', ' ')}`),
});
const within = await container(store);
tell('ready');

/** Each writer has items of its own, so of each item at most one intent is open. */
async function write(writer: number): Promise<void> {
  for (;;) {
    const item = `w${writer}-${random.int(0, ITEMS_EACH - 1)}`;
    const partitionKey = JSON.stringify([`p${writer % 8}`]);
    const action = random.weighted({ upsert: 6, create: 2, patch: 3, delete: 1 });
    const ttl = random.pick([undefined, undefined, 1, 1, 2, 3_600]);
    const intent: Intent = { action, v: ++value, ...(ttl === undefined ? {} : { ttl }) };
    tell(`b ${item} ${JSON.stringify(intent)}`);
    try {
      if (action === 'delete') {
        await store.deleteItem(CALLER, within, item, partitionKey);
        tell(`a ${item} 0`);
      } else if (action === 'patch') {
        const operations = [{ op: 'set' as const, path: '/v', value: intent.v }];
        const { resource } = await store.patchItem(CALLER, within, item, partitionKey, { operations });
        tell(`a ${item} ${resource.ts}`);
      } else {
        const document = {
          id: item,
          pk: `p${writer % 8}`,
          v: intent.v,
          pad: 'x'.repeat(300),
          ...(ttl === undefined ? {} : { ttl }),
        };
        const json = JSON.stringify(document);
        const { resource } = await store.writeItem(CALLER, within, action, { id: item, partitionKey, document, json });
        tell(`a ${item} ${resource.ts}`);
      }
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      tell(`n ${item} ${error.code}`);
    }
  }
}

await Promise.all(Array.from({ length: WRITERS }, (_, writer) => write(writer)));
