import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { type Container, CosmosClient } from '@azure/cosmos';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { type ServerProcess, startServer } from '../e2e/support/server-process.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

const WAYS = ['create', 'upsert', 'replace', 'patch', 'batch', 'bulk', 'script', 'unique key', 'query'] as const;
/** A secret for each way in which content comes into the server. */
const secrets = new Map(WAYS.map((way) => [way, randomBytes(12).toString('hex')]));
const secretOf = (way: (typeof WAYS)[number]) => secrets.get(way)!;

const folder = newFolder('memory');
const snapshots = newFolder('memory-snapshots');
let server: ServerProcess;
let container: Container;

beforeAll(async () => {
  const options = process.env['NODE_OPTIONS'] ?? '';
  process.env['NODE_OPTIONS'] = `${options} --heapsnapshot-signal=SIGUSR2 --diagnostic-dir=${snapshots}`;
  try {
    server = await startServer(['--data', folder, '--clock', 'manual']);
  } finally {
    process.env['NODE_OPTIONS'] = options;
  }
  const client = new CosmosClient({ endpoint: server.endpoint, key: EMULATOR_KEY });
  const { database } = await client.databases.create({ id: 'db' });
  const uniqueKeyPolicy = { uniqueKeys: [{ paths: ['/number'] }] };
  ({ container } = await database.containers.create({ id: 'c', partitionKey: '/pk', defaultTtl: -1, uniqueKeyPolicy }));
});

afterAll(async () => {
  await server.stop();
  removeFolder(folder);
  removeFolder(snapshots);
});

/** The ways whose secrets are in the heap of the server's main thread, after a garbage collection. */
async function waysInHeap(): Promise<string[]> {
  for (const file of readdirSync(snapshots)) rmSync(join(snapshots, file));
  server.signal('SIGUSR2');
  for (let length = 0; ; await setTimeout(100)) {
    const [file] = readdirSync(snapshots);
    if (file === undefined) continue;
    const heap = readFileSync(join(snapshots, file));
    // The snapshot is written in pieces. Only the whole one is an object.
    if (heap.length > 0 && heap.length === length && heap.subarray(-10).toString().trimEnd().endsWith('}')) {
      return WAYS.filter((way) => heap.includes(secretOf(way)));
    }
    ({ length } = heap);
  }
}

const manage = async (path: string, body: object): Promise<unknown> => {
  const headers = { authorization: `Bearer ${EMULATOR_KEY}`, 'content-type': 'application/json' };
  const answer = await fetch(`${server.endpoint}/_epitaph/${path}`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  expect(answer.status).toBe(200);
  return answer.json();
};

it('content is nowhere in the heap once it is purged, whatever way it came and however it was read', async () => {
  const item = (id: string, number: number | string, text: string) => ({ id, pk: 'p', number, text, ttl: 60 });
  for (let number = 0; number < 20; number += 1) {
    await container.items.create(item(`i${number}`, number, `${secretOf('create')} ${number}`));
  }
  await container.items.upsert(item('i1', 1, secretOf('upsert')));
  await container.item('i2', 'p').replace(item('i2', 2, secretOf('replace')));
  await container.item('i3', 'p').patch([{ op: 'set', path: '/text', value: secretOf('patch') }]);
  await container.items.batch([{ operationType: 'Create', resourceBody: item('b', 20, secretOf('batch')) }], 'p');
  await container.items.executeBulkOperations([
    { operationType: 'Create', partitionKey: 'p', resourceBody: item('k', 21, secretOf('bulk')) },
  ]);
  const script = await container.scripts.storedProcedures.create({
    id: 'write',
    body: `function (item) {
      __.createDocument(__.getSelfLink(), item);
      __.queryDocuments(__.getSelfLink(), 'SELECT * FROM c ORDER BY c.text', (error, found) => __.response.setBody(found));
    }`,
  });
  await script.storedProcedure.execute('p', [item('s', 22, secretOf('script'))]);
  await container.items.create(item('u', secretOf('unique key'), 'text'));
  await expect(container.items.create(item('v', secretOf('unique key'), 'text'))).rejects.toMatchObject({ code: 409 });
  for (const query of [
    'SELECT * FROM c ORDER BY c.text',
    'SELECT DISTINCT c.text FROM c',
    'SELECT c.text, COUNT(1) AS n FROM c GROUP BY c.text',
    {
      query: 'SELECT * FROM c WHERE c.text != @text ORDER BY c.text',
      parameters: [{ name: '@text', value: secretOf('query') }],
    },
  ]) {
    const pages = container.items.query(query, { maxItemCount: 5 });
    while (pages.hasMoreResults()) await pages.fetchNext();
  }
  await container.items.readAll().fetchAll();
  await container.items.getChangeFeedIterator({ maxItemCount: 100 }).readNext();
  // Queries end with their answers; everything else is cached.
  expect(await waysInHeap()).toEqual(WAYS.filter((way) => way !== 'query'));

  await manage('clock/advance', { milliseconds: 61_000 });
  await manage('purge/run', {});
  expect(await waysInHeap()).toEqual([]);
});
