import { writeSync } from 'node:fs';
import { Refusal } from '@epitaph/core/errors.ts';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { BatchOperation } from '@epitaph/api/store/api/items-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { Random } from '../simulation/random.ts';
import { DEFINITION } from '../support/definition.ts';
import { type Intent, TOGETHER } from './kill-rounds.ts';

/**
 * The process that is killed: an embedded store as it ships, under full write load, with the purge running. It reports each operation
 * before it begins (`b`) and each acknowledgement afterwards (`a`). It writes these synchronously, so that a report is out even if the next
 * instruction is the last.
 *
 * Arguments: folder, seed, first number of the values.
 */
const [folder = '', seedText = '1', valueText = '1'] = process.argv.slice(2);
const random = new Random(Number(seedText));
let value = Number(valueText);

const WRITERS = 32;
const ITEMS_EACH = 12;
const PARTITION_OWNERS = 4;
const KEEPERS = 2;
const BATCHES = 2;
const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };

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

/** Each writer has items of its own, so that each item has at most one unanswered operation. */
async function write(writer: number): Promise<void> {
  for (;;) {
    const item = `w${writer}-${random.int(0, ITEMS_EACH - 1)}`;
    const partitionKey = JSON.stringify([`p${writer % 8}`]);
    const action = random.weighted({ upsert: 6, create: 2, patch: 3, delete: 1, erase: 0.5 });
    const ttl = random.pick([undefined, undefined, 1, 1, 2, 3_600]);
    const intent: Intent = { action, v: ++value, ...(ttl === undefined ? {} : { ttl }) };
    tell(`b ${item} ${JSON.stringify(intent)}`);
    try {
      if (action === 'delete') {
        await store.deleteItem(CALLER, within, item, partitionKey);
        tell(`a ${item} 0`);
      } else if (action === 'erase') {
        await store.eraseItem(CALLER, within, item, partitionKey, { reason: 'killed soon', requestedBy: 'nobody' });
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

/** Has a partition key to itself, fills it, and deletes it. */
async function ownPartition(owner: number): Promise<void> {
  const pk = `q${owner}`;
  for (;;) {
    if (random.chance(0.04)) {
      tell(`b ${pk} ${JSON.stringify({ action: 'delete-partition', v: ++value } satisfies Intent)}`);
      await store.deletePartitionKey(CALLER, within, JSON.stringify([pk]));
      tell(`a ${pk} 0`);
      continue;
    }
    const id = `${pk}-${random.int(0, 5)}`;
    const document = { id, pk, v: ++value };
    tell(`b ${id} ${JSON.stringify({ action: 'upsert', v: value } satisfies Intent)}`);
    const item = { id, partitionKey: JSON.stringify([pk]), document, json: JSON.stringify(document) };
    const { resource } = await store.writeItem(CALLER, within, 'upsert', item);
    tell(`a ${id} ${resource.ts}`);
  }
}

/** Writes several items in one append, as scripts and batches do, all with the same value; some begin new lives. */
async function writeTogether(batch: number): Promise<void> {
  const pk = `b${batch}`;
  const partitionKey = JSON.stringify([pk]);
  for (let isThere = false; ; isThere = true) {
    const v = ++value;
    const begins = isThere && random.chance(0.3);
    const operations = TOGETHER.flatMap((id): BatchOperation[] => {
      const document = { id, pk, v };
      const item = { id, partitionKey, document, json: JSON.stringify(document) };
      const write = { kind: 'write', operation: 'upsert', item } as const;
      return begins ? [{ kind: 'delete', id, partitionKey }, write] : [write];
    });
    tell(`b ${pk} ${JSON.stringify({ action: 'batch', v } satisfies Intent)}`);
    const outcome = await store.batchItems(CALLER, within, operations);
    if (outcome.kind === 'refused') throw outcome.refusal;
    tell(`a ${pk} 0`);
  }
}

/** Places holds on items that expire soon, releases some, and recovers some items. */
async function keep(): Promise<void> {
  const held: string[] = [];
  for (;;) {
    const id = `h${++value}`;
    const item = { id, partitionKey: '["h"]' };
    const document = { id, pk: 'h', v: value, ttl: 1 };
    tell(`b ${id} ${JSON.stringify({ action: 'hold', v: value } satisfies Intent)}`);
    await store.placeHold(CALLER, within, id, { scope: { kind: 'items', items: [item] }, reason: 'kept' });
    await store.writeItem(CALLER, within, 'create', { ...item, document, json: JSON.stringify(document) });
    tell(`a ${id} 0`);
    held.push(id);
    const other = { id: random.pick(held), partitionKey: '["h"]' };
    try {
      await store.recoverItem(CALLER, within, other.id, other.partitionKey, { reason: 'wanted' });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
    }
    if (random.chance(0.5)) {
      held.splice(held.indexOf(other.id), 1);
      tell(`b ${other.id} ${JSON.stringify({ action: 'release', v: 0 } satisfies Intent)}`);
      await store.releaseHold(CALLER, within, other.id, 'done with');
      tell(`a ${other.id} 0`);
    }
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
}

/** Changes the container's policy between two that expire nothing, and changes its floor and window. */
async function govern(): Promise<void> {
  for (;;) {
    const defaultTtl = store.container('db', 'c').timeline.at(-1)!.defaultTtl === -1 ? 2_147_483_647 : -1;
    tell(`b policy ${JSON.stringify({ action: 'policy', v: defaultTtl } satisfies Intent)}`);
    const { timeline } = await store.changeTtl(CALLER, 'db', 'c', { defaultTtl, confirmed: false });
    tell(`a policy ${timeline.at(-1)!.version}`);
    await store.setRetentionFloor(CALLER, within, random.int(0, 1), 'governed');
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

await Promise.all([
  ...Array.from({ length: WRITERS }, (_, writer) => write(writer)),
  ...Array.from({ length: PARTITION_OWNERS }, (_, owner) => ownPartition(owner)),
  ...Array.from({ length: BATCHES }, (_, batch) => writeTogether(batch)),
  ...Array.from({ length: KEEPERS }, () => keep()),
  govern(),
]);
