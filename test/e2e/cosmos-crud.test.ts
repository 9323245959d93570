import { CosmosClient, PatchOperationType, type ErrorResponse, type Container } from '@azure/cosmos';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';

const READ_ONLY_KEY = Buffer.alloc(64, 7).toString('base64');

let endpoint: string;
let close: () => Promise<void>;
let client: CosmosClient;

let store: Store;
let accountReads = 0;

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'epitaph-e2e-'));
  store = await openEmbeddedStore({ folder, clock: 'manual' });
  const app = buildServer({
    store,
    keys: new KeyRing({ primary: EMULATOR_KEY, readOnly: READ_ONLY_KEY }),
    plugins: [
      (plane) =>
        plane.addHook('onRequest', (request, _reply, next) => {
          if (request.originalUrl === '/') accountReads += 1;
          next();
        }),
    ],
  });
  endpoint = await app.listen({ host: '127.0.0.1', port: 0 });
  client = new CosmosClient({ endpoint, key: EMULATOR_KEY });
  close = async () => {
    client.dispose();
    await app.close();
    await store.close();
    await rm(folder, { recursive: true });
  };
});
afterAll(() => close());

interface Order {
  readonly id: string;
  readonly customer: string;
  readonly total?: number;
}

async function orders(name: string): Promise<Container> {
  const { database } = await client.databases.createIfNotExists({ id: 'shop' });
  const { container } = await database.containers.createIfNotExists({ id: name, partitionKey: '/customer' });
  return container;
}

/** The status that a call of the client fails with. */
async function statusOf(call: Promise<unknown>): Promise<number | string | undefined> {
  try {
    await call;
    return undefined;
  } catch (error) {
    return (error as ErrorResponse).code;
  }
}

describe('the JavaScript client, unmodified', () => {
  test('reads the account once and stays at the endpoint it was given', async () => {
    const { resource } = await client.getDatabaseAccount();
    expect(resource?.writableLocations[0]?.databaseAccountEndpoint).toBe(endpoint);
    expect(await client.getWriteEndpoint()).toBe(endpoint);
    accountReads = 0;
    for (let n = 0; n < 10; n += 1) await client.databases.readAll().fetchAll();
    expect(accountReads).toBeLessThanOrEqual(1);
  });

  test('creates, lists, queries and deletes databases and containers', async () => {
    const { database, statusCode } = await client.databases.create({ id: 'temporary' });
    expect(statusCode).toBe(201);
    expect(await statusOf(client.databases.create({ id: 'temporary' }))).toBe(409);
    const { resource: container } = await database.containers.create({ id: 'c', partitionKey: '/a/b', defaultTtl: 5 });
    expect(container).toMatchObject({
      id: 'c',
      defaultTtl: 5,
      partitionKey: { paths: ['/a/b'], kind: 'Hash' },
      indexingPolicy: { indexingMode: 'consistent', automatic: true, excludedPaths: [{ path: '/"_etag"/?' }] },
    });
    const { resources: databases } = await client.databases
      .query('SELECT VALUE d.id FROM d WHERE d.id = "temporary"')
      .fetchAll();
    expect(databases).toEqual(['temporary']);
    const { resources: containers } = await database.containers.readAll().fetchAll();
    expect(containers.map(({ id }) => id)).toEqual(['c']);
    const { resource: replaced } = await database
      .container('c')
      .replace({ id: 'c', partitionKey: { paths: ['/a/b'] } });
    expect(replaced?.defaultTtl).toBeUndefined();
    await database.container('c').delete();
    expect(await statusOf(database.container('c').read())).toBe(404);
    expect((await database.delete()).statusCode).toBe(204);
  });

  test('creates, reads, replaces, upserts, patches and deletes items', async () => {
    const container = await orders('crud');
    const { resource, etag, statusCode, requestCharge } = await container.items.create<Order>({
      id: '1',
      customer: 'ann',
      total: 1,
    });
    expect(statusCode).toBe(201);
    expect(requestCharge).toBeGreaterThan(0);
    expect(resource?._etag).toBe(etag);
    expect(await statusOf(container.items.create({ id: '1', customer: 'ann' }))).toBe(409);

    const item = container.item('1', 'ann');
    expect((await item.read<Order>()).resource).toEqual(resource);
    expect((await item.replace({ id: '1', customer: 'ann', total: 2 })).resource?.total).toBe(2);
    expect(
      await statusOf(
        item.replace({ id: '1', customer: 'ann' }, { accessCondition: { type: 'IfMatch', condition: etag } }),
      ),
    ).toBe(412);
    expect((await container.items.upsert({ id: '1', customer: 'ann', total: 3 })).statusCode).toBe(200);
    expect((await container.items.upsert({ id: '2', customer: 'ann', total: 3 })).statusCode).toBe(201);
    const patched = await item.patch<Order>([
      { op: PatchOperationType.incr, path: '/total', value: 4 },
      { op: PatchOperationType.add, path: '/tags', value: ['a'] },
    ]);
    expect(patched.resource).toMatchObject({ total: 7, tags: ['a'] });
    expect(
      await statusOf(
        item.patch({ condition: 'FROM c WHERE c.total > 100', operations: [{ op: 'set', path: '/total', value: 0 }] }),
      ),
    ).toBe(412);
    // A condition can't be given parameters. So one with a parameter is refused, rather than evaluated as false.
    expect(
      await statusOf(
        item.patch({ condition: 'FROM c WHERE c.total > @p', operations: [{ op: 'set', path: '/total', value: 0 }] }),
      ),
    ).toBe(400);
    expect((await item.delete()).statusCode).toBe(204);
    expect((await item.read()).statusCode).toBe(404);
    expect(await statusOf(item.delete())).toBe(404);
  });

  test('uses ids that other servers lose in the address', async () => {
    const container = await orders('ids');
    for (const id of ['a?b', 'a&b=c', 'x+y, z;@$', 'grüße', ' blank ', '50%', 'a%2Fb', '文字', 'it\'s "quoted"']) {
      await container.items.create({ id, customer: 'ann' });
      expect((await container.item(id, 'ann').read()).resource?.id).toBe(id);
      expect((await container.item(id, 'ann').delete()).statusCode).toBe(204);
    }
  });

  test('distinguishes partition keys that look alike: null, missing, numbers, texts', async () => {
    const container = await orders('keys');
    const values = [null, undefined, 0, '0', false, '', 'ünï', 1.5];
    for (const customer of values) await container.items.create({ id: 'same', customer });
    for (const customer of values.filter((value) => value !== undefined)) {
      expect((await container.item('same', customer).read()).resource?.customer).toBe(customer);
    }
    expect((await container.items.readAll().fetchAll()).resources).toHaveLength(values.length);
  });

  test('queries over one and over all partition keys, page by page', async () => {
    const container = await orders('queries');
    for (let n = 0; n < 10; n += 1) {
      await container.items.create({ id: String(n), customer: n % 2 === 0 ? 'ann' : 'bob', total: n });
    }
    const all = container.items.query('SELECT VALUE c.total FROM c ORDER BY c.total DESC', { maxItemCount: 3 });
    const pages: unknown[][] = [];
    while (all.hasMoreResults()) {
      const { resources } = await all.fetchNext();
      if (resources.length > 0) pages.push(resources);
    }
    expect(pages).toEqual([[9, 8, 7], [6, 5, 4], [3, 2, 1], [0]]);
    const ofOne = await container.items
      .query(
        { query: 'SELECT * FROM c WHERE c.total > @least', parameters: [{ name: '@least', value: 4 }] },
        { partitionKey: 'bob', populateQueryMetrics: true },
      )
      .fetchAll();
    expect(ofOne.resources.map(({ total }) => total)).toEqual([5, 7, 9]);
    const count = await container.items.query('SELECT VALUE COUNT(1) FROM c', { forceQueryPlan: true }).fetchAll();
    expect(count.resources).toEqual([10]);
    expect(await statusOf(container.items.query('SELEC * FROM c').fetchAll())).toBe(400);
  });

  test('sends its session token back, and recovers from one of the future by dropping it', async () => {
    const session = new CosmosClient({ endpoint, key: EMULATOR_KEY, consistencyLevel: 'Session' });
    const container = session.database('shop').container((await orders('sessions')).id);
    await container.items.create({ id: '1', customer: 'ann' });
    const read = await container.item('1', 'ann').read();
    expect(read.statusCode).toBe(200);
    const early = await container.item('1', 'ann').read({ sessionToken: '0:-1#999999999' });
    expect(early.statusCode).toBe(200);
    session.dispose();
  });

  test('is refused with a wrong key, and for writes with the read-only key', async () => {
    await orders('guarded');
    const wrong = new CosmosClient({ endpoint, key: Buffer.alloc(64).toString('base64') });
    expect(await statusOf(wrong.databases.readAll().fetchAll())).toBe(401);
    wrong.dispose();
    const reader = new CosmosClient({ endpoint, key: READ_ONLY_KEY });
    const container = reader.database('shop').container('guarded');
    expect((await container.items.query('SELECT * FROM c').fetchAll()).resources).toEqual([]);
    expect(await statusOf(container.items.create({ id: '1', customer: 'ann' }))).toBe(403);
    reader.dispose();
  });

  test('sees an item until its time to live has passed, and not a second longer', async () => {
    const { database } = await client.databases.createIfNotExists({ id: 'shop' });
    const { container } = await database.containers.create({ id: 'brief', partitionKey: '/customer', defaultTtl: 10 });
    await container.items.create({ id: 'by default', customer: 'ann' });
    await container.items.create({ id: 'by itself', customer: 'ann', ttl: 20 });
    await container.items.create({ id: 'never', customer: 'ann', ttl: -1 });
    const visible = async () => {
      const { resources } = await container.items.query('SELECT VALUE c.id FROM c').fetchAll();
      const { resources: listed } = await container.items.readAll().fetchAll();
      expect(listed.map(({ id }) => id)).toEqual(resources);
      return resources as unknown[];
    };
    expect(await visible()).toHaveLength(3);
    await store.advanceClock(10_000);
    expect(await visible()).toEqual(['by itself', 'never']);
    expect((await container.item('by default', 'ann').read()).statusCode).toBe(404);
    expect(await statusOf(container.item('by default', 'ann').delete())).toBe(404);
    expect((await container.items.create({ id: 'by default', customer: 'ann' })).statusCode).toBe(201);
    await store.advanceClock(10_000);
    expect(await visible()).toEqual(['never']);
    for (const ttl of [null, 0, -10, 1.5, '5']) {
      await expect(container.items.upsert({ id: 'bad', customer: 'ann', ttl })).rejects.toMatchObject({
        code: 400,
        message: expect.stringContaining(
          `Ensure to provide a nonzero positive integer less than or equal to '2147483647'`,
        ),
      });
    }
  });

  test('finds an offer of 400 request units for a container', async () => {
    const container = await orders('offered');
    expect((await container.readOffer()).resource?.content?.offerThroughput).toBe(400);
    expect((await client.offers.readAll().fetchAll()).resources.length).toBeGreaterThan(0);
  });

  test('gets clear answers for features that the store does not have, and for missing scripts', async () => {
    const container = await orders('unsupported');
    expect((await container.conflicts.readAll().fetchAll()).resources).toEqual([]);
    expect(await statusOf(container.scripts.storedProcedure('s').read())).toBe(404);
  });
});
