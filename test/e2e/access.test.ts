import {
  ChangeFeedStartFrom,
  CosmosClient,
  PartitionKeyDefinitionVersion,
  PartitionKeyKind,
  PermissionMode,
  type ErrorResponse,
  type PermissionDefinition,
} from '@azure/cosmos';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Documents } from '@epitaph/api/store/items/documents.ts';
import { effectivePartitionKey, rangeOfKey } from '@epitaph/core/partition-key/effective-partition-key.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { keyHeader, raw } from './support/raw.ts';
import { READ_ONLY_KEY, refusalOf, World } from './support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

/** The status that a call of the client fails with; 0 when it does not fail. */
async function statusOf(call: Promise<unknown>): Promise<number> {
  try {
    await call;
    return 0;
  } catch (error) {
    return Number((error as ErrorResponse).code);
  }
}

let databases = 0;
/** A database with a container `orders` by `/customer`, two items in it, and a user `ann`. */
async function shop() {
  databases += 1;
  const { database } = await world.client.databases.create({ id: `shop ${databases}` });
  const { container } = await database.containers.create({ id: 'orders', partitionKey: '/customer' });
  await container.items.create({ id: 'o1', customer: 'ann', total: 1 });
  await container.items.create({ id: 'o2', customer: 'bob', total: 2 });
  const { user } = await database.users.create({ id: 'ann' });
  return { database, container, user };
}
type Shop = Awaited<ReturnType<typeof shop>>;

async function permit(
  { user, container }: Shop,
  definition: Partial<PermissionDefinition> = {},
  options: { readonly resourceTokenExpirySeconds?: number } = {},
): Promise<string> {
  const id = `p${databases}-${crypto.randomUUID()}`;
  const body = { id, permissionMode: PermissionMode.Read, resource: container.url, ...definition };
  const { resource } = await user.permissions.create(body, options);
  return resource!._token;
}

const clients: CosmosClient[] = [];
afterAll(() => clients.forEach((each) => each.dispose()));

/** The container, as a client with only this token has it. */
function holding(token: string, { database, container }: Shop) {
  const holder = new CosmosClient({
    endpoint: world.endpoint,
    resourceTokens: { [`dbs/${database.id}/colls/${container.id}`]: token, [container.id]: token },
    connectionPolicy: { enableBackgroundEndpointRefreshing: false },
  });
  clients.push(holder);
  return holder.database(database.id).container(container.id);
}

afterAll(async () => expect(await world.fsck()).toEqual([]));

describe('users', () => {
  test('are created, listed, queried, read, renamed and deleted', async () => {
    const { database } = await shop();
    const { resource: created, statusCode } = await database.users.create({ id: 'Carla Käfer' });
    expect(statusCode).toBe(201);
    expect(created).toMatchObject({ id: 'Carla Käfer', _permissions: 'permissions/', _etag: expect.any(String) });
    expect((await database.users.readAll().fetchAll()).resources.map(({ id }) => id)).toEqual(['ann', 'Carla Käfer']);
    const spec = { query: 'SELECT * FROM root r WHERE r.id=@id', parameters: [{ name: '@id', value: 'Carla Käfer' }] };
    expect((await database.users.query(spec).fetchAll()).resources).toHaveLength(1);
    expect(await statusOf(database.users.create({ id: 'Carla Käfer' }))).toBe(409);
    const { resource: renamed } = await database.user('Carla Käfer').replace({ id: 'carla' });
    expect(renamed).toMatchObject({ id: 'carla', _rid: (created as unknown as { _rid: string })._rid });
    expect(await statusOf(database.user('Carla Käfer').read())).toBe(404);
    expect((await database.user('carla').read()).resource?.id).toBe('carla');
    expect((await database.user('carla').delete()).statusCode).toBe(204);
    expect(await statusOf(database.user('carla').read())).toBe(404);
    expect(await statusOf(database.user('carla').delete())).toBe(404);
  });

  test('are created by an upsert if they are missing, and left as they are otherwise', async () => {
    const { database } = await shop();
    expect((await database.users.upsert({ id: 'dora' })).statusCode).toBe(201);
    expect((await database.users.upsert({ id: 'dora' })).statusCode).toBe(200);
    expect((await database.users.readAll().fetchAll()).resources).toHaveLength(2);
  });

  test('have unique names, however often names are taken and given up', async () => {
    const { database } = await shop();
    await database.users.create({ id: 'b' });
    expect(await statusOf(database.user('b').replace({ id: 'ann' }))).toBe(409);
    await database.user('ann').replace({ id: 'anna' });
    expect(await statusOf(database.users.create({ id: 'anna' }))).toBe(409);
    expect(await statusOf(database.user('b').replace({ id: 'anna' }))).toBe(409);
    await database.user('b').replace({ id: 'ann' });
    await database.user('ann').replace({ id: 'b' });
    await database.users.create({ id: 'ann' });
    await database.user('anna').delete();
    await database.users.create({ id: 'anna' });
    await database.user('anna').replace({ id: 'anna' });
    const names = (await database.users.readAll().fetchAll()).resources.map(({ id }) => id);
    expect(names.toSorted()).toEqual(['ann', 'anna', 'b']);
    const results = await Promise.all(
      ['ann', 'anna', 'b'].map((name) => statusOf(database.user(name).replace({ id: 'one' }))),
    );
    expect(results.toSorted()).toEqual([0, 409, 409]);
  });

  test('are refused with an invalid id, a missing database or a stale etag', async () => {
    const { database } = await shop();
    expect(
      (await raw(world.endpoint, 'POST', `/dbs/${encodeURI(database.id)}/users`, { body: '{"id":7}' })).status,
    ).toBe(400);
    expect(await statusOf(world.client.database('none').users.create({ id: 'x' }))).toBe(404);
    const accessCondition = { type: 'IfMatch', condition: '"old"' };
    expect(await statusOf(database.user('ann').delete({ accessCondition }))).toBe(412);
    expect(await statusOf(database.user('ann').replace({ id: 'x' }, { accessCondition }))).toBe(412);
  });
});

describe('permissions', () => {
  test('may exist twice for a container, once by its name and once by its rid', async () => {
    const { user, container } = await shop();
    const { _self: self } = (await container.read()).resource!;
    for (const [id, resource] of [
      ['by name', container.url],
      ['by rid', self],
    ] as const) {
      const created = await user.permissions.create({ id, permissionMode: PermissionMode.Read, resource });
      expect(created.statusCode).toBe(201);
    }
    const again = { id: 'again', permissionMode: PermissionMode.All, resource: self };
    expect(await statusOf(user.permissions.create(again))).toBe(409);
  });

  test('are created, listed, queried, replaced under another id, and deleted', async () => {
    const { user, container } = await shop();
    const definition = {
      id: 'p',
      permissionMode: PermissionMode.Read,
      resource: container.url,
      // A client that writes back what it has read must not grant more than before.
      resourcePartitionKey: ['ann'],
    };
    const { resource: created, statusCode } = await user.permissions.create(definition);
    expect(statusCode).toBe(201);
    expect(created).toMatchObject(definition);
    expect(created!._token).toMatch(/^type=resource&ver=1&sig=[^;]+;[^;]+;$/);
    expect((await user.permissions.readAll().fetchAll()).resources).toHaveLength(1);
    expect(
      (await user.permissions.query({ query: "SELECT * FROM r WHERE r.id='p'" }).fetchAll()).resources,
    ).toHaveLength(1);
    expect(await statusOf(user.permissions.create(definition))).toBe(409);
    expect(await statusOf(user.permissions.create({ ...definition, id: 'q' }))).toBe(409);
    expect(await statusOf(user.permissions.create({ ...definition, id: 'q', resource: `/${container.url}/` }))).toBe(
      409,
    );
    const upserted = await user.permissions.upsert({ ...definition, permissionMode: PermissionMode.All });
    expect(upserted.statusCode).toBe(200);
    expect(upserted.resource?.permissionMode).toBe('all');
    const { resource: renamed } = await user.permission('p').replace({ ...definition, id: 'r' });
    expect(renamed).toMatchObject({ ...definition, id: 'r' });
    expect(await statusOf(user.permission('p').read())).toBe(404);
    await user.permission('r').delete();
    expect(await statusOf(user.permission('r').read())).toBe(404);
  });

  test('can be created concurrently', async () => {
    const { database, user } = await shop();
    const names = Array.from({ length: 60 }, (_, index) => `side ${index}`);
    await Promise.all(names.map((id) => database.containers.create({ id, partitionKey: '/customer' })));
    await Promise.all(
      names.map((id) =>
        user.permissions.create({ id, permissionMode: PermissionMode.Read, resource: database.container(id).url }),
      ),
    );
    expect((await user.permissions.readAll().fetchAll()).resources).toHaveLength(60);
  });

  test('are refused for anything but a container or an item, for a missing one, and for another database’s', async () => {
    const { user, container, database } = await shop();
    const other = await shop();
    const create = (definition: object) =>
      statusOf(
        user.permissions.create({
          id: 'p',
          permissionMode: PermissionMode.Read,
          resource: container.url,
          ...definition,
        }),
      );
    expect(await create({ resource: `dbs/${database.id}` })).toBe(400);
    expect(await create({ resource: 'nonsense' })).toBe(400);
    expect(await create({ resource: `${container.url}/sprocs/s` })).toBe(400);
    expect(await create({ resource: `dbs/${database.id}/colls/none` })).toBe(404);
    expect(await create({ resource: other.container.url })).toBe(400);
    expect(await create({ permissionMode: 'write' })).toBe(400);
    expect(await create({ resourcePartitionKey: ['a', 'b'] })).toBe(400);
    expect(await create({ resourcePartitionKey: [{ a: 1 }] })).toBe(400);
    expect(await create({ resource: `dbs/${database.id}/users/ann` })).toBe(400);
    // Neither the database's name nor the container's is valid in a URL.
    expect(await create({ resource: 'dbs/100%/colls/100%' })).toBe(404);
  });

  test('are for the partition key that they name, and for the item’s own if its link has rids', async () => {
    const { user, container, database } = await shop();
    const create = async (definition: { resource?: string; resourcePartitionKey?: unknown }) => {
      const id = crypto.randomUUID();
      const body = { id, permissionMode: PermissionMode.Read, resource: container.url, ...definition };
      return (await user.permissions.create(body as never)).resource;
    };
    const { resource: o1 } = await container.item('o1', 'ann').read();
    const item = o1!._self;
    expect(await statusOf(create({ resource: item, resourcePartitionKey: ['bob'] }))).toBe(400);
    expect(await create({ resource: item, resourcePartitionKey: ['ann'] })).toMatchObject({ resource: item });
    // In a link of names, what looks like an item's rid is an id.
    await container.items.create({ id: o1!._rid, customer: 'bob', total: 3 });
    const named = await create({ resource: `${container.url}/docs/${o1!._rid}` });
    const ofNamed = holding(named!._token, { user, container, database });
    expect(await statusOf(ofNamed.item('o1', 'ann').read())).toBe(403);
    expect((await ofNamed.item(o1!._rid, 'bob').read()).resource).toMatchObject({ total: 3 });
    // A single value need not be in an array.
    const ofBob = holding((await create({ resourcePartitionKey: 'bob' }))!._token, { user, container, database });
    expect(await statusOf(ofBob.item('o1', 'ann').read())).toBe(403);
    expect((await ofBob.item('o2', 'bob').read()).resource).toMatchObject({ total: 2 });
    // Null is no partition key: all of the container.
    const all = await create({ resourcePartitionKey: null });
    expect(all).not.toHaveProperty('resourcePartitionKey');
    const ofAll = holding(all!._token, { user, container, database });
    expect((await ofAll.item('o2', 'bob').read()).resource).toMatchObject({ total: 2 });
    const paths = ['/tenant', '/customer'];
    const { container: other } = await database.containers.create({
      id: 'hierarchical',
      partitionKey: { paths, kind: PartitionKeyKind.MultiHash, version: PartitionKeyDefinitionVersion.V2 },
    });
    expect(await statusOf(create({ resource: other.url, resourcePartitionKey: ['t'] }))).toBe(400);
  });

  test('have tokens that are valid for 10 seconds to 24 hours', async () => {
    const here = await shop();
    for (const seconds of [9, 86_401, 1.5]) {
      expect(await statusOf(permit(here, {}, { resourceTokenExpirySeconds: seconds })), `${seconds}`).toBe(400);
    }
    await permit(here, {}, { resourceTokenExpirySeconds: 86_400 });
  });

  test('are hidden from the read-only key, which could use their tokens for changes', async () => {
    const { database, user, container } = await shop();
    await user.permissions.create({ id: 'p', permissionMode: PermissionMode.All, resource: container.url });
    const path = `/dbs/${encodeURI(database.id)}/users/ann`;
    const link = `dbs/${database.id}/users/ann`;
    const as = (target: string, signed: { type: string; link: string }) =>
      raw(world.endpoint, 'GET', target, { key: READ_ONLY_KEY, signed });
    expect((await as(path, { type: 'users', link })).status).toBe(200);
    expect((await as(`${path}/permissions`, { type: 'permissions', link })).status).toBe(403);
    expect((await as(`${path}/permissions/p`, { type: 'permissions', link: `${link}/permissions/p` })).status).toBe(
      403,
    );
  });
});

describe('queries with a plan over several ranges', () => {
  test('are answered for the read-only key and for resource tokens, too', async () => {
    const { database } = await world.client.databases.create({ id: 'wide' });
    const partitionKey = { paths: ['/customer'], version: PartitionKeyDefinitionVersion.V2 };
    const { container } = await database.containers.create({ id: 'orders', partitionKey, throughput: 12_000 });
    for (let n = 0; n < 6; n += 1) await container.items.create({ id: `o${n}`, customer: `c${n}`, total: n % 2 });
    const { user } = await database.users.create({ id: 'ann' });
    const here = { database, container, user };
    const reader = new CosmosClient({ endpoint: world.endpoint, key: READ_ONLY_KEY });
    clients.push(reader);
    // Each client asks for its plans before any other has had one for this definition of the container.
    for (const orders of [
      reader.database(database.id).container(container.id),
      holding(await permit(here), here),
      container,
    ]) {
      const groups = 'SELECT c.total, COUNT(1) AS n FROM c GROUP BY c.total';
      const found = (await orders.items.query<{ total: number }>(groups).fetchAll()).resources;
      expect(found.toSorted((a, b) => a.total - b.total)).toEqual([
        { total: 0, n: 3 },
        { total: 1, n: 3 },
      ]);
      const sorted = 'SELECT VALUE c.id FROM c ORDER BY c.id DESC';
      const { resources } = await orders.items.query(sorted, { forceQueryPlan: true }).fetchAll();
      expect(resources).toEqual(['o5', 'o4', 'o3', 'o2', 'o1', 'o0']);
      // After a change of the definition, plans are computed again.
      await container.replace({ id: container.id, partitionKey, defaultTtl: -1 });
    }
  });
});

describe('a token', () => {
  test('to read a container reads all of it, and changes nothing', async () => {
    const here = await shop();
    const orders = holding(await permit(here), here);
    expect((await orders.read()).resource?.id).toBe('orders');
    expect((await orders.item('o1', 'ann').read()).resource?.total).toBe(1);
    expect((await orders.items.readAll().fetchAll()).resources).toHaveLength(2);
    const sorted = await orders.items.query('SELECT VALUE c.id FROM c ORDER BY c.total DESC').fetchAll();
    expect(sorted.resources).toEqual(['o2', 'o1']);
    expect(await statusOf(orders.items.create({ id: 'o3', customer: 'ann' }))).toBe(403);
    expect(await statusOf(orders.items.upsert({ id: 'o1', customer: 'ann' }))).toBe(403);
    expect(await statusOf(orders.item('o1', 'ann').replace({ id: 'o1', customer: 'ann' }))).toBe(403);
    expect(await statusOf(orders.item('o1', 'ann').replace({ id: 'o3', customer: 'ann' }))).toBe(403);
    expect(await statusOf(orders.item('o1', 'ann').patch([{ op: 'set', path: '/total', value: 7 }]))).toBe(403);
    expect(await statusOf(orders.item('o1', 'ann').delete())).toBe(403);
    expect(await statusOf(orders.delete())).toBe(403);
    expect((await here.container.item('o1', 'ann').read()).resource).toMatchObject({ total: 1 });
  });

  test('can come from a permission feed as well', async () => {
    const here = await shop();
    const { user, container, database } = here;
    await user.permissions.create({ id: 'p', permissionMode: PermissionMode.Read, resource: container.url });
    const { resources: permissionFeed } = await user.permissions.readAll().fetchAll();
    const holder = new CosmosClient({
      endpoint: world.endpoint,
      permissionFeed,
      connectionPolicy: { enableBackgroundEndpointRefreshing: false },
    });
    clients.push(holder);
    expect((await holder.database(database.id).container('orders').item('o2', 'bob').read()).statusCode).toBe(200);
  });

  test('for changes to a container changes its items, under its own name, but not the container itself', async () => {
    const here = await shop();
    const { resource } = await here.container.read();
    const orders = holding(await permit(here, { permissionMode: PermissionMode.All, resource: resource!._self }), here);
    await orders.items.create({ id: 'o3', customer: 'ann' });
    await orders.items.upsert({ id: 'o3', customer: 'ann', total: 5 });
    await orders.item('o3', 'ann').patch([{ op: 'incr', path: '/total', value: 1 }]);
    expect((await orders.item('o3', 'ann').read()).resource?.total).toBe(6);
    expect((await orders.item('o3', 'ann').delete()).statusCode).toBe(204);
    const { resources } = await here.user.permissions.readAll().fetchAll();
    const { _rid } = resources[0] as unknown as { _rid: string };
    const rids = resource as unknown as { _rid: string };
    const history = await world.store.history(world.store.containerByRid(rids._rid)!, 'o3', '["ann"]');
    expect(new Set(history.map(({ actor }) => actor))).toEqual(new Set([`token:${_rid}`]));
    expect(await statusOf(orders.delete())).toBe(403);
    expect(
      await statusOf(orders.replace({ id: 'orders', partitionKey: { paths: ['/customer'] }, defaultTtl: 1 })),
    ).toBe(403);
  });

  test('for one partition key sees and changes only that one', async () => {
    const here = await shop();
    const orders = holding(
      await permit(here, { permissionMode: PermissionMode.All, resourcePartitionKey: ['ann'] }),
      here,
    );
    await orders.items.create({ id: 'o3', customer: 'ann' });
    const query = (options: object) => orders.items.query('SELECT VALUE c.id FROM c', options).fetchAll();
    expect((await query({ partitionKey: 'ann' })).resources).toEqual(['o1', 'o3']);
    expect(await statusOf(query({ partitionKey: 'bob' }))).toBe(403);
    expect(await statusOf(query({}))).toBe(403);
    expect(await statusOf(orders.items.readAll().fetchAll())).toBe(403);
    expect(await statusOf(orders.item('o2', 'bob').read())).toBe(403);
    expect(await statusOf(orders.items.create({ id: 'o4', customer: 'bob' }))).toBe(403);
    expect(await statusOf(orders.item('o2', 'bob').delete())).toBe(403);
  });

  test('reads the change feed of its own scope', async () => {
    const here = await shop();
    const changes = async (token: string, partitionKey?: string) => {
      const orders = holding(token, here);
      const start = ChangeFeedStartFrom.Beginning(partitionKey);
      const page = await orders.items.getChangeFeedIterator({ changeFeedStartFrom: start }).readNext();
      return page.result.map(({ id }: { id: string }) => id).toSorted();
    };
    expect(await changes(await permit(here))).toEqual(['o1', 'o2']);
    const token = await permit(here, { resourcePartitionKey: ['ann'] });
    expect(await changes(token, 'ann')).toEqual(['o1']);
    expect(await statusOf(changes(token, 'bob'))).toBe(403);
    expect(await statusOf(changes(token))).toBe(403);
  });

  test('is checked for each operation of a batch and of a bulk request', async () => {
    const here = await shop();
    const all = holding(await permit(here, { permissionMode: PermissionMode.All }), here);
    const ann = holding(
      await permit(here, { permissionMode: PermissionMode.All, resourcePartitionKey: ['ann'] }),
      here,
    );
    const reader = holding(await permit(here, { id: 'reader', resourcePartitionKey: ['bob'] }), here);
    const create = (id: string, customer: string) =>
      ({ operationType: 'Create', resourceBody: { id, customer } }) as const;
    expect((await ann.items.batch([create('b1', 'ann')], 'ann')).code).toBe(200);
    await expect(ann.items.batch([create('b2', 'bob')], 'bob')).rejects.toThrow('Insufficient permissions');
    await expect(reader.items.batch([create('b3', 'bob')], 'bob')).rejects.toThrow('Insufficient permissions');
    const bulk = async (container: typeof all) =>
      (
        await container.items.executeBulkOperations([
          { ...create('c1', 'ann'), partitionKey: 'ann' },
          { ...create('c2', 'bob'), partitionKey: 'bob' },
        ])
      ).map(({ response, error }) => response?.statusCode ?? error?.code);
    expect(await bulk(ann)).toEqual([201, 403]);
    expect(await bulk(all)).toEqual([409, 201]);
    const { resources } = await here.container.items.query('SELECT VALUE c.id FROM c').fetchAll();
    expect(resources.toSorted()).toEqual(['b1', 'c1', 'c2', 'o1', 'o2']);
  });

  test('for one partition key does not reach another one by links with rids', async () => {
    const here = await shop();
    const token = await permit(here, { permissionMode: PermissionMode.All, resourcePartitionKey: ['ann'] });
    const self = async (id: string, key: string) =>
      `/${((await here.container.item(id, key).read()).resource as { _self: string })._self}`;
    const call = (method: string, target: string, body?: string) =>
      raw(world.endpoint, method, target, {
        authorization: encodeURIComponent(token),
        headers: keyHeader('ann'),
        ...(body === undefined ? {} : { body }),
      });
    expect((await call('GET', await self('o1', 'ann'))).status).toBe(200);
    // The answer is the one for a rid that never existed, so the holder learns nothing about existing rids.
    const gone = await self('o1', 'ann');
    await here.container.item('o1', 'ann').delete();
    for (const link of [gone, await self('o2', 'bob')]) {
      expect((await call('GET', link)).status, link).toBe(404);
      expect((await call('DELETE', link)).status, link).toBe(404);
    }
    expect((await here.container.item('o2', 'bob').read()).statusCode).toBe(200);
    const target = `/dbs/${encodeURI(here.database.id)}/colls/orders/docs`;
    expect((await call('POST', target, '{"id":"x","customer":"bob"}')).status).toBe(400);
  });

  test('for one partition key may be used with the key’s range, as the Python client sends it', async () => {
    const here = await shop();
    const token = await permit(here, { resourcePartitionKey: ['ann'] });
    const query = async (start: string, end: string) =>
      raw(world.endpoint, 'POST', `/dbs/${encodeURI(here.database.id)}/colls/orders/docs`, {
        authorization: encodeURIComponent(token),
        headers: { 'content-type': 'application/query+json', 'x-ms-start-epk': start, 'x-ms-end-epk': end },
        body: '{"query":"SELECT VALUE c.id FROM c"}',
      });
    const of = (key: string) => rangeOfKey(effectivePartitionKey({ kind: 'Hash', version: 1 }, `["${key}"]`));
    const { min, max } = of('ann');
    expect((await query(min, max)).json?.['Documents']).toEqual(['o1']);
    expect((await query(min, min)).json?.['Documents']).toEqual(['o1']);
    expect((await query(of('bob').min, of('bob').max)).status).toBe(403);
    expect((await query(min, `${max.slice(0, -1)}F`)).status).toBe(403);
    expect((await query('', max)).status).toBe(403);
    expect((await query('', 'FF')).status).toBe(403);
  });

  test('for one partition key reveals nothing about other keys’ values in clear by charges and metrics', async () => {
    const here = await shop();
    const definition = { id: 'clear', partitionKey: '/customer', epitaph: { clearPaths: ['/mail'] } };
    const { container } = await here.database.containers.create(definition);
    await container.items.create({ id: 'o0', customer: 'ann', mail: 'ann' });
    for (const id of ['o1', 'o2', 'o3']) await container.items.create({ id, customer: 'bob', mail: 'bob' });
    const token = await permit({ ...here, container }, { resourcePartitionKey: ['ann'] });
    const told = async (filter: string) => {
      const { status, headers, json } = await raw(world.endpoint, 'POST', `/${encodeURI(container.url)}/docs`, {
        authorization: encodeURIComponent(token),
        headers: {
          ...keyHeader('ann'),
          'content-type': 'application/query+json',
          'x-ms-documentdb-populatequerymetrics': 'true',
          'x-ms-cosmos-populateindexmetrics-v2': 'true',
        },
        body: JSON.stringify({ query: `SELECT VALUE c.id FROM c WHERE ${filter}` }),
      });
      expect(status).toBe(200);
      const counts = String(headers['x-ms-documentdb-query-metrics']).match(/\w+(?:Count|Size|Ratio)=[\d.]+/g);
      return [json?.['Documents'], headers['x-ms-request-charge'], headers['x-ms-cosmos-index-utilization'], counts];
    };
    for (const filter of [
      (mail: string) => `c.mail = '${mail}'`,
      (mail: string) => `c.mail IN ('${mail}')`,
      (mail: string) => `(c.mail = '${mail}' AND c.n = 1) OR (c.mail = 'nil' AND c.n = 2)`,
    ]) {
      expect(await told(filter('bob'))).toEqual(await told(filter('eve')));
    }
    expect((await told("c.mail = 'ann'"))[0]).toEqual(['o0']);
  });

  test('for one item is valid for that item only', async () => {
    const here = await shop();
    const { resource } = await here.container.item('o1', 'ann').read();
    const tokens = [
      await permit(here, {
        permissionMode: PermissionMode.All,
        resource: (resource as unknown as { _self: string })._self,
      }),
      await permit(here, {
        permissionMode: PermissionMode.All,
        resource: `${here.container.url}/docs/o1`,
      }),
    ];
    for (const token of tokens) {
      const orders = holding(token, here);
      expect((await orders.item('o1', 'ann').read()).resource?.id).toBe('o1');
      await orders.item('o1', 'ann').replace({ id: 'o1', customer: 'ann', total: 3 });
      expect(await statusOf(orders.item('o2', 'bob').read())).toBe(403);
      expect(await statusOf(orders.items.readAll().fetchAll())).toBe(403);
      expect(await statusOf(orders.items.query('SELECT * FROM c', { partitionKey: 'ann' }).fetchAll())).toBe(403);
      expect(await statusOf(orders.items.create({ id: 'o3', customer: 'ann' }))).toBe(403);
      expect(await statusOf(orders.items.upsert({ id: 'o1', customer: 'ann' }))).toBe(403);
      expect(await statusOf(orders.item('o1', 'ann').replace({ id: 'o3', customer: 'ann' }))).toBe(403);
      expect((await orders.item('o1', 'ann').read()).resource).toMatchObject({ id: 'o1', total: 3 });
    }
  });

  test('for changes to a partition key runs stored procedures, which can access no more than it can', async () => {
    const here = await shop();
    const body = `function (id) {
      const c = getContext().getCollection();
      c.readDocument(c.getAltLink() + '/docs/' + id, (error, found) => {
        if (error) throw error;
        found.seen = true;
        c.replaceDocument(found._self, found, (error) => { if (error) throw error; });
      });
    }`;
    await here.container.scripts.storedProcedures.create({ id: 'see', body });
    const { url } = here.container;
    const written = { permissionMode: PermissionMode.All, resource: url, resourcePartitionKey: ['ann'] };
    const procedureFor = async (permission: object) =>
      holding(await permit(here, permission), here).scripts.storedProcedure('see');
    const procedure = await procedureFor(written);
    await procedure.execute('ann', ['o1']);
    expect((await here.container.item('o1', 'ann').read()).resource).toMatchObject({ seen: true });
    expect(await statusOf(procedure.execute('bob', ['o2']))).toBe(400);
    expect((await here.container.item('o2', 'bob').read()).resource).not.toHaveProperty('seen');
    expect(await statusOf(procedure.read())).toBe(403);
    expect(await statusOf(procedure.delete())).toBe(403);
    const reading = await procedureFor({ permissionMode: PermissionMode.Read, resource: url });
    expect(await statusOf(reading.execute('ann', ['o1']))).toBe(403);
  });

  test('for an item whose id looks escaped is for that item, not for the one with the unescaped id', async () => {
    const here = await shop();
    const ids = ['o%31', 'https%3A%2F%2Fexample.com', '50%25'];
    for (const id of [...ids, '50%']) await here.container.items.create({ id, customer: 'ann' });
    for (const id of ids) {
      const item = here.container.item(id, 'ann');
      const token = await permit(here, { resource: item.url, resourcePartitionKey: ['ann'] });
      const orders = holding(token, here);
      expect((await orders.item(id, 'ann').read()).resource?.id).toBe(id);
      expect(await statusOf(orders.item(decodeURIComponent(id).replaceAll('/', ''), 'ann').read())).toBe(403);
    }
  });

  test('for an item is valid if its client escapes ids in links, as the .NET client does', async () => {
    const here = await shop();
    await here.container.items.create({ id: 'a b', customer: 'ann' });
    const { json } = await raw(world.endpoint, 'POST', `/dbs/${encodeURI(here.database.id)}/users/ann/permissions`, {
      headers: { 'user-agent': 'cosmos-netstandard-sdk/3.64.0' },
      body: JSON.stringify({ id: 'p', permissionMode: 'Read', resource: encodeURI(`${here.container.url}/docs/a b`) }),
    });
    const orders = holding(String(json!['_token']), here);
    expect((await orders.item('a b', 'ann').read()).resource?.id).toBe('a b');
  });

  test('gives access to nothing else: no other container, database, user, permission, offer or key', async () => {
    const here = await shop();
    const { database } = here;
    await database.containers.create({ id: 'others', partitionKey: '/pk' });
    const authorization = encodeURIComponent(await permit(here, { permissionMode: PermissionMode.All }));
    const base = `/dbs/${encodeURI(database.id)}`;
    const status = async (method: string, target: string) =>
      (
        await raw(world.endpoint, method, target, {
          authorization,
          ...(method === 'POST' ? { body: '{"id":"x"}' } : {}),
        })
      ).status;
    expect(await status('GET', '/')).toBe(200);
    expect(await status('GET', `${base}/colls/orders/pkranges`)).toBe(200);
    for (const target of [
      '/dbs',
      base,
      `${base}/colls`,
      `${base}/colls/others`,
      `${base}/colls/others/docs`,
      `${base}/colls/others/pkranges`,
      `${base}/users`,
      `${base}/users/ann`,
      `${base}/users/ann/permissions`,
      `${base}/clientencryptionkeys`,
      `${base}/colls/orders/sprocs`,
      `${base}/colls/orders/conflicts`,
      '/offers',
    ]) {
      expect(await status('GET', target), target).toBe(403);
      expect(await status('POST', target), target).toBe(403);
    }
    for (const method of ['PUT', 'DELETE']) expect(await status(method, `${base}/colls/orders`)).toBe(403);
    expect((await raw(world.endpoint, 'GET', '/_epitaph/purge', { authorization })).status).not.toBe(200);
  });

  test('expires at its time', async () => {
    const here = await shop();
    const short = holding(await permit(here, {}, { resourceTokenExpirySeconds: 10 }), here);
    const usual = holding(await permit(here, { resourcePartitionKey: ['ann'] }), here);
    expect((await short.item('o1', 'ann').read()).statusCode).toBe(200);
    await world.advance(9_000);
    expect((await short.item('o1', 'ann').read()).statusCode).toBe(200);
    await world.advance(1_000);
    expect(await statusOf(short.item('o1', 'ann').read())).toBe(403);
    expect((await usual.item('o1', 'ann').read()).statusCode).toBe(200);
    await world.advance(3_590_000);
    expect(await statusOf(usual.item('o1', 'ann').read())).toBe(403);
  });

  test('ends when its permission is replaced or deleted, or its user, container or database is', async () => {
    const ends: readonly ((here: Shop) => Promise<unknown>)[] = [
      ({ user, container }) =>
        user.permissions.upsert({ id: 'p', permissionMode: PermissionMode.Read, resource: container.url }),
      ({ user }) => user.permission('p').delete(),
      ({ user }) => user.delete(),
      ({ container }) => container.delete(),
      ({ database }) => database.delete(),
    ];
    for (const [index, end] of ends.entries()) {
      const here = await shop();
      const orders = holding(await permit(here, { id: 'p' }), here);
      expect((await orders.item('o1', 'ann').read()).statusCode).toBe(200);
      await end(here);
      expect(await refusalOf(orders.item('o1', 'ann').read()), `end ${index}`).toMatchObject({
        code: 401,
        message: expect.stringContaining('Read the permission for a new token.'),
      });
    }
  });

  test('is valid after a restart and a renaming of its user, but not for a new user of the same name', async () => {
    const here = await shop();
    const token = await permit(here, { id: 'p' });
    await here.user.replace({ id: 'anna' });
    await world.restart();
    const orders = holding(token, here);
    expect((await orders.item('o1', 'ann').read()).statusCode).toBe(200);
    const again = world.client.database(here.database.id);
    await again.user('anna').delete();
    const { user } = await again.users.create({ id: 'anna' });
    await user.permissions.create({ id: 'p', permissionMode: PermissionMode.Read, resource: here.container.url });
    expect(await statusOf(orders.item('o1', 'ann').read())).toBe(401);
  });

  test('that was altered is refused, and never causes an internal error', async () => {
    const here = await shop();
    const token = await permit(here);
    const target = `/dbs/${encodeURI(here.database.id)}/colls/orders`;
    const statusWith = async (authorization: string) =>
      (await raw(world.endpoint, 'GET', target, { authorization })).status;
    expect(await statusWith(encodeURIComponent(token))).toBe(200);
    const [, payload = ''] = token.split(';');
    const other = (change: (facts: unknown[]) => unknown): string =>
      Buffer.from(
        JSON.stringify(change(JSON.parse(Buffer.from(payload, 'base64url').toString()) as unknown[])),
      ).toString('base64url');
    const forged = [
      other(([user, birth, etag, end]) => [user, birth, etag, Number(end) + 1]),
      other(([, birth, etag, end]) => ['AAAAAAAAAAA=', birth, etag, end]),
      other(([user, birth, etag]) => [user, birth, etag, 'never']),
      other(() => null),
      other((facts) => [...facts, 1]),
    ];
    for (const each of forged) expect(await statusWith(encodeURIComponent(token.replace(payload, each)))).toBe(401);
    expect(await statusWith('type%3dresource%zz')).toBe(401);
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc
            .tuple(fc.nat(token.length - 1), fc.string({ minLength: 1, maxLength: 3 }))
            .map(([at, text]) => token.slice(0, at) + text + token.slice(at + 1)),
          fc.string().map((text) => `type=resource&ver=1&sig=${text};${text};`),
          fc.base64String().map((text) => `${token.slice(0, 70)}${text}`),
        ),
        async (text) => {
          fc.pre(text !== token && text.isWellFormed());
          expect(await statusWith(encodeURIComponent(text))).toBe(401);
        },
      ),
      { numRuns: 200 },
    );
  });

  test('has no documents decrypted that are outside its scope, because the response time would reveal them', async () => {
    const here = await shop();
    const { database, container } = here;
    const own = (await container.item('o1', 'ann').read()).resource as unknown as { readonly _self: string };
    const theirs = (await container.item('o2', 'bob').read()).resource as unknown as { readonly _self: string };
    const item = { resource: `${container.url}/docs/o1`, resourcePartitionKey: ['ann'] };
    const opened = vi.spyOn(Documents.prototype, 'show');
    for (const definition of [item, { resourcePartitionKey: ['ann'] }]) {
      const authorization = encodeURIComponent(
        await permit({ ...here, user: (await database.users.create({ id: crypto.randomUUID() })).user }, definition),
      );
      const statusOfRead = async ({ _self: self }: { readonly _self: string }) =>
        (await raw(world.endpoint, 'GET', `/${self}`, { authorization, headers: keyHeader('ann') })).status;
      opened.mockClear();
      expect([await statusOfRead(own), opened.mock.calls.length > 0]).toEqual([200, true]);
      opened.mockClear();
      expect(await statusOfRead(theirs)).not.toBe(200);
      expect(opened).not.toHaveBeenCalled();
    }
    opened.mockRestore();
  });

  test('that was forged for a user without permissions creates nothing in the vault', async () => {
    const { database, user } = await shop();
    const { _rid: rid } = (await user.read()).resource as unknown as { readonly _rid: string };
    const secrets = (): unknown => {
      const vault = new DatabaseSync(join(world.folder, 'vault.db'), { readOnly: true });
      const { count } = vault.prepare('SELECT count(*) AS count FROM secrets').get() as { readonly count: number };
      vault.close();
      return count;
    };
    const before = secrets();
    const facts = Buffer.from(JSON.stringify([rid, 0, 'x', 9_999_999_999])).toString('base64url');
    const authorization = encodeURIComponent(
      `type=resource&ver=1&sig=${Buffer.alloc(32).toString('base64')};${facts};`,
    );
    const target = `/dbs/${encodeURI(database.id)}/colls/orders`;
    expect((await raw(world.endpoint, 'GET', target, { authorization })).status).toBe(401);
    expect(secrets()).toBe(before);
  });

  test('is not in any file, nor is its secret', async () => {
    const here = await shop();
    const token = await permit(here);
    const signature = /sig=([^;]+)/.exec(token)![1]!;
    const { _rid: databaseRid } = (await here.database.read()).resource as unknown as { _rid: string };
    expect((await holding(token, here).item('o1', 'ann').read()).statusCode).toBe(200);
    const texts: (string | Buffer)[] = [signature, Buffer.from(signature, 'base64')];
    const search = async () => {
      for (const name of await readdir(world.folder)) {
        const bytes = await readFile(join(world.folder, name));
        for (const text of texts) expect(bytes.includes(text), name).toBe(false);
      }
    };
    await search();
    await world.stop();
    const storage = await openSqliteStorage({ folder: world.folder, clock: 'manual' });
    const secret = Buffer.from(await storage.vault.containerSecret(databaseRid));
    await storage.close();
    texts.push(secret, secret.toString('base64'), secret.toString('hex'));
    await search();
    await world.start();
  });
});

describe('client encryption keys', () => {
  const body = (id: string, wrapped: string) => ({
    id,
    encryptionAlgorithm: 'AEAD_AES_256_CBC_HMAC_SHA256',
    wrappedDataEncryptionKey: wrapped,
    keyWrapMetadata: { type: 'akv', name: 'kek', value: 'https://vault/kek', algorithm: 'RSA-OAEP' },
  });

  test('are created, read, listed, queried and wrapped again, and returned as the client wrapped them', async () => {
    const { database } = await shop();
    const path = `/dbs/${encodeURI(database.id)}/clientencryptionkeys`;
    const created = await raw(world.endpoint, 'POST', path, { body: JSON.stringify(body('key', 'AAAA')) });
    expect(created.status).toBe(201);
    expect(created.json).toMatchObject({ ...body('key', 'AAAA'), _rid: expect.any(String), _etag: expect.any(String) });
    expect((await database.readClientEncryptionKey('key')).resource).toMatchObject(body('key', 'AAAA'));
    expect((await raw(world.endpoint, 'POST', path, { body: JSON.stringify(body('key', 'B')) })).status).toBe(409);
    const list = await raw(world.endpoint, 'GET', path);
    expect(list.json).toMatchObject({ ClientEncryptionKeys: [{ id: 'key' }], _count: 1 });
    const query = { body: '{"query":"SELECT VALUE c.id FROM c"}', headers: { 'x-ms-documentdb-isquery': 'true' } };
    expect((await raw(world.endpoint, 'POST', path, query)).json).toMatchObject({ ClientEncryptionKeys: ['key'] });
    const replace = (value: object, headers: Readonly<Record<string, string>> = {}) =>
      raw(world.endpoint, 'PUT', `${path}/key`, { body: JSON.stringify(value), headers });
    expect((await replace(body('key', 'BBBB'), { 'if-match': '"old"' })).status).toBe(412);
    expect((await replace(body('other', 'BBBB'))).status).toBe(400);
    expect((await replace({ id: 'key' })).status).toBe(400);
    expect((await replace({ ...body('key', 'BBBB'), more: 'x'.repeat(20_000) })).status).toBe(400);
    const replaced = await replace(body('key', 'BBBB'), { 'if-match': String(created.json?.['_etag']) });
    expect(replaced.json).toMatchObject(body('key', 'BBBB'));
    expect((await raw(world.endpoint, 'DELETE', `${path}/key`)).status).toBe(405);
    expect((await raw(world.endpoint, 'GET', `${path}/none`)).status).toBe(404);
  });

  test('survive a restart and a rebuild of the read models, as users and permissions do', async () => {
    const here = await shop();
    const token = await permit(here, { id: 'p' });
    const path = `/dbs/${encodeURI(here.database.id)}/clientencryptionkeys`;
    await raw(world.endpoint, 'POST', path, { body: JSON.stringify(body('key', 'AAAA')) });
    await world.restart();
    await world.manage('POST', '/projections/items/rebuild');
    type Rebuild = { readonly state: string; readonly differences?: number };
    const done = async () => (await world.manage<Rebuild>('GET', '/projections/items/rebuild')).body;
    await expect.poll(async () => (await done()).state).toBe('done');
    expect((await done()).differences).toBe(0);
    expect((await raw(world.endpoint, 'GET', `${path}/key`)).status).toBe(200);
    expect((await holding(token, here).item('o1', 'ann').read()).statusCode).toBe(200);
    expect(await world.fsck()).toEqual([]);
  });
});

describe('the conflicts feed', () => {
  test('is empty, because a store that decides every write once has no conflicts', async () => {
    const { container, database } = await shop();
    expect((await container.conflicts.readAll().fetchAll()).resources).toEqual([]);
    expect((await container.conflicts.query('SELECT * FROM c').fetchAll()).resources).toEqual([]);
    // A bare request, because the client signs the read of a conflict like the read of a user.
    const one = `/dbs/${encodeURI(database.id)}/colls/orders/conflicts/x`;
    expect((await raw(world.endpoint, 'GET', one)).status).toBe(404);
  });
});
