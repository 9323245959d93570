import { ChangeFeedStartFrom, type Container, type JSONValue } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ALL_VERSIONS, from, keeping, readOn, told, type Version } from '../change-feed/support.ts';
import { raw } from '../support/raw.ts';
import { anyContainer, type Fields, refusalOf, seen, sightings, statusOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open({ policyGraceSeconds: 0 });
});
afterAll(() => world.end());

const PSEUDONYMOUS = { epitaph: { pseudonymousIds: true } };
const create = (more: Fields = {}): Promise<Container> => world.container(anyContainer({ ...PSEUDONYMOUS, ...more }));
const item = (id: string, customer: JSONValue = 'ann', more: Fields = {}) => ({ id, customer, ...more });

/** The form of pseudonyms in answers of the management plane. */
const ID = /^[\w-]{20}$/;
const KEY = /^~[\w-]{20}$/;

describe('a container with pseudonymous ids', () => {
  test('has this setting in its definition, keeps it when a replace omits it, and can not change it', async () => {
    const container = await create();
    const { resource } = await container.read();
    expect(resource).toMatchObject(PSEUDONYMOUS);
    await container.replace({ id: container.id, partitionKey: resource!.partitionKey, defaultTtl: 60 } as never);
    expect((await container.read()).resource).toMatchObject({ ...PSEUDONYMOUS, defaultTtl: 60 });
    const changed = { ...resource!, epitaph: { pseudonymousIds: false } };
    expect(await refusalOf(container.replace(changed))).toMatchObject({
      code: 400,
      message: expect.stringContaining('never rewritten') as string,
    });
    const plain = await world.container();
    const { resource: other } = await plain.read();
    expect(await statusOf(plain.replace({ ...other!, ...PSEUDONYMOUS }))).toBe(400);
  });

  test('is refused with a mistyped setting, or with a hierarchical partition key', async () => {
    expect(await statusOf(world.container(anyContainer({ epitaph: { pseudonymousId: true } })) as never)).toBe(400);
    expect(await statusOf(world.container(anyContainer({ epitaph: { pseudonymousIds: 'yes' } })) as never)).toBe(400);
    const hierarchical = { partitionKey: { paths: ['/a', '/b'], kind: 'MultiHash', version: 2 } };
    expect(await refusalOf(create(hierarchical))).toMatchObject({
      code: 400,
      message: expect.stringContaining('hierarchical') as string,
    });
  });

  test('serves clients like any other container: all ways of reading, writes, patches, deletes', async () => {
    const container = await create();
    expect((await container.items.create(item('a'))).resource).toMatchObject(item('a'));
    expect(await statusOf(container.items.create(item('a')))).toBe(409);
    expect((await container.items.upsert<Fields>(item('b', 'ann', { n: 1 }))).resource).toMatchObject(item('b'));
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('a', 'b'));
    // The same id under another key is another item.
    await container.items.create(item('a', 'bob', { n: 7 }));
    expect((await container.item('a', 'bob').read<Fields>()).resource).toMatchObject({ customer: 'bob', n: 7 });
    const patched = await container.item('b', 'ann').patch<Fields>({
      condition: "FROM c WHERE c.id = 'b' AND c.customer = 'ann' AND c.n = 1",
      operations: [{ op: 'incr', path: '/n', value: 1 }],
    });
    expect(patched.resource).toMatchObject({ id: 'b', customer: 'ann', n: 2 });
    const replaced = await container.item('b', 'ann').replace<Fields>(item('b', 'ann', { n: 3 }));
    expect(replaced.resource).toMatchObject({ id: 'b', n: 3 });
    expect(await statusOf(container.item('b', 'ann').delete())).toBe(204);
    expect(await statusOf(container.item('b', 'ann').read())).toBe(404);
    expect(await world.fsck()).toEqual([]);
  });

  test('answers queries by id, by key, by both and in pages, across keys of every type', async () => {
    const container = await create();
    const keys = ['ann', 'bob', 5, true, null];
    for (const key of keys) for (const id of ['a', 'b']) await container.items.create(item(id, key));
    const rows = async (sql: string, partitionKey?: unknown) =>
      (
        await container.items
          .query<Fields>(sql, { maxItemCount: 3, ...(partitionKey === undefined ? {} : { partitionKey }) } as never)
          .fetchAll()
      ).resources;
    expect(await rows('SELECT c.id FROM c WHERE c.id = "a"')).toEqual(keys.map(() => ({ id: 'a' })));
    expect(await rows('SELECT VALUE c.customer FROM c WHERE c.id = "b"')).toEqual(keys);
    expect(await rows('SELECT c.id, c._ts FROM c WHERE c.customer = "bob"')).toMatchObject([{ id: 'a' }, { id: 'b' }]);
    expect(await rows('SELECT VALUE c.id FROM c WHERE c.customer = 5 AND c.id IN ("b", "c")')).toEqual(['b']);
    expect(await rows('SELECT VALUE c.id FROM c', true)).toEqual(['a', 'b']);
    expect(await rows('SELECT VALUE c.id FROM c WHERE c.id = "a"', 'nobody')).toEqual([]);
    expect(await rows('SELECT VALUE COUNT(1) FROM c WHERE c.id = "a"')).toEqual([5]);
    expect(await rows('SELECT VALUE c.id FROM c ORDER BY c.id DESC OFFSET 4 LIMIT 2')).toEqual(['b', 'a']);
    expect(await rows('SELECT DISTINCT VALUE c.id FROM c')).toEqual(['a', 'b']);
  });

  test('finds its items by the links that it gives out, to read, to replace and to delete', async () => {
    const container = await create();
    const { resource } = await container.items.create<Fields>(item('a', 'bob', { n: 1 }));
    const self = `/${resource!['_self'].replace(/\/$/, '')}`;
    const signed = { type: 'docs', link: self.split('/').at(-1)!.toLowerCase() };
    const read = await raw(world.endpoint, 'GET', self, { signed });
    expect([read.status, read.json]).toEqual([200, expect.objectContaining({ id: 'a', customer: 'bob', n: 1 })]);
    const body = JSON.stringify(item('a', 'bob', { n: 2 }));
    expect((await raw(world.endpoint, 'PUT', self, { signed, body })).json).toMatchObject({ id: 'a', n: 2 });
    expect((await raw(world.endpoint, 'DELETE', self, { signed })).status).toBe(204);
    expect(await statusOf(container.item('a', 'bob').read())).toBe(404);
  });

  test('does batches and bulk requests, and answers with the real ids', async () => {
    const container = await create();
    const batch = await container.items.batch(
      [
        { operationType: 'Create', resourceBody: item('a') },
        { operationType: 'Upsert', resourceBody: item('b', 'ann', { n: 1 }) },
        { operationType: 'Patch', id: 'b', resourceBody: { operations: [{ op: 'incr', path: '/n', value: 4 }] } },
        { operationType: 'Read', id: 'b' },
        { operationType: 'Delete', id: 'a' },
      ],
      'ann',
    );
    expect(batch.result?.map(({ statusCode }) => statusCode)).toEqual([201, 201, 200, 200, 204]);
    expect(batch.result?.[3]?.resourceBody).toMatchObject({ id: 'b', customer: 'ann', n: 5 });
    const bulk = await container.items.executeBulkOperations([
      { operationType: 'Create', resourceBody: item('c', 'bob'), partitionKey: 'bob' },
      { operationType: 'Read', id: 'b', partitionKey: 'ann' },
    ]);
    expect(bulk.map(({ response }) => response?.statusCode)).toEqual([201, 200]);
    expect(await sightings(container, ['b'])).toMatchObject({ ...seen('b'), countAll: 2 });
  });

  test('keeps unique keys, within each partition key', async () => {
    const container = await create({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/mail'] }] } });
    await container.items.create(item('a', 'ann', { mail: 'x' }));
    expect(await statusOf(container.items.create(item('b', 'ann', { mail: 'x' })))).toBe(409);
    const { resource } = await container.items.create<Fields>(item('b', 'bob', { mail: 'x' }));
    expect(resource).toMatchObject({ id: 'b', customer: 'bob' });
    expect(
      (await container.item('b', 'bob').patch<Fields>([{ op: 'set', path: '/n', value: 1 }])).resource,
    ).toMatchObject({ id: 'b', customer: 'bob', n: 1 });
    await container.item('a', 'ann').delete();
    expect(await statusOf(container.items.create(item('c', 'ann', { mail: 'x' })))).toBe(201);
    expect(await world.fsck()).toEqual([]);
  });

  test('deletes all items of a partition key at once, and no others', async () => {
    const container = await create();
    for (const [id, key] of [
      ['a', 'ann'],
      ['b', 'ann'],
      ['a', 'bob'],
    ] as const) {
      await container.items.create(item(id, key));
    }
    await container.deleteAllItemsForPartitionKey('ann');
    expect(await sightings(container, ['a', 'b'])).toMatchObject({ reads: [], queryOfKey: [], countAll: 1 });
    expect(await statusOf(container.items.create(item('a')))).toBe(201);
    await world.purge();
    const types = (await world.history(container.id, 'b')).map(({ type }) => type);
    expect(types).toEqual(['ItemUpserted', 'ItemDeleted', 'ItemPurged']);
    expect(await world.fsck()).toEqual([]);
  });

  test('shows its items in both change feeds under their real ids, also a deleted one while its content is kept', async () => {
    const container = await create(keeping(60));
    const now = ChangeFeedStartFrom.Now();
    const { continuationToken } = await readOn<Version>(container, {
      changeFeedMode: ALL_VERSIONS,
      changeFeedStartFrom: now,
    });
    await container.items.create(item('a'));
    await container.items.create(item('b', 'bob'));
    const latest = async (start: ChangeFeedStartFrom) =>
      (await readOn(container, { changeFeedStartFrom: start })).changes.map(({ id, customer }) => [id, customer]);
    expect(await latest(ChangeFeedStartFrom.Beginning())).toEqual([
      ['a', 'ann'],
      ['b', 'bob'],
    ]);
    expect(await latest(ChangeFeedStartFrom.Beginning('bob'))).toEqual([['b', 'bob']]);
    await container.item('a', 'ann').delete();
    const since = { changeFeedMode: ALL_VERSIONS, changeFeedStartFrom: from(continuationToken) };
    const { changes } = await readOn<Version>(container, since);
    expect(told(changes)).toEqual(['create a', 'create b', 'delete a']);
    expect(changes[2]!.metadata).toMatchObject({ id: 'a', partitionKey: { customer: 'ann' } });
    // After an erasure only the pseudonyms are left.
    const erasure = { id: 'b', partitionKey: ['bob'], reason: 'asked for', requestedBy: 'bob' };
    await world.manage('POST', `/dbs/shop/colls/${container.id}/erase`, erasure);
    const { current, previous, metadata } = (await readOn<Version>(container, since)).changes.at(-1)!;
    expect([current, previous]).toEqual([{}, undefined]);
    expect(metadata).toMatchObject({
      operationType: 'delete',
      partitionKey: { customer: expect.stringMatching(/^~/) },
    });
  });

  test('has one partition key range at any throughput, and refuses requests for a part of it', async () => {
    const container = await create({ throughput: 20_000 });
    await container.items.create(item('a'));
    const docs = `/dbs/shop/colls/${container.id}/docs`;
    const ranges = await raw(world.endpoint, 'GET', `/dbs/shop/colls/${container.id}/pkranges`);
    expect(ranges.json?.['_count']).toBe(1);
    expect(await sightings(container, ['a'])).toEqual(seen('a'));
    const part = await raw(world.endpoint, 'GET', docs, {
      headers: { 'x-ms-start-epk': '', 'x-ms-end-epk': '1FFFFFFF' },
    });
    expect([part.status, part.json?.['message']]).toEqual([400, expect.stringContaining('pseudonyms')]);
  });

  test('refuses permissions that would name an item or a partition key in clear', async () => {
    const container = await create();
    const { user } = await world.client.database('shop').users.upsert({ id: 'u' });
    const permit = (id: string, resource: string, more: Fields = {}) =>
      statusOf(user.permissions.create({ id, permissionMode: 'read', resource, ...more } as never));
    const link = `dbs/shop/colls/${container.id}`;
    expect(await permit('whole', link)).toBe(201);
    expect(await permit('of a key', link, { resourcePartitionKey: ['ann'] })).toBe(400);
    expect(await permit('of an item', `${link}/docs/a`)).toBe(400);
  });
});

describe('the history of a pseudonymous item', () => {
  test('is found by the item’s id and key, and by the pseudonyms that lists show', async () => {
    const container = await create({ defaultTtl: 30 });
    await container.items.create(item('a'));
    await container.items.create(item('b', 'ann', { ttl: -1 }));
    await world.advance(31_000);
    await world.purge();
    expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'purged', id: 'a', partitionKey: ['ann'] });
    expect(await world.explain(container.id, 'b')).toMatchObject({ state: 'live' });
    expect(await world.explain(container.id, 'c')).toMatchObject({ state: 'never-existed' });
    const { disappearances } = await world.disappearances(container.id);
    expect(disappearances).toHaveLength(1);
    const { id, partitionKey } = disappearances[0] as { id: string; partitionKey: string };
    expect(id).toMatch(ID);
    expect(partitionKey).toMatch(KEY);

    // The pseudonyms in the list lead to the item just as its real names do.
    const query = new URLSearchParams({ id, partitionKey }).toString();
    const of = `/dbs/shop/colls/${container.id}`;
    const byPseudonym = await world.manage('GET', `${of}/explain?${query}`);
    expect(byPseudonym).toMatchObject({ status: 200, body: { state: 'purged' } });
    const history = await world.manage<{ events: readonly Fields[] }>('GET', `${of}/history?${query}`);
    expect(history.body.events).toEqual(await world.history(container.id, 'a'));
    const certificate = await world.manage('GET', `${of}/certificate?${query}`);
    const named = new URLSearchParams({ id: 'a', partitionKey: '["ann"]' }).toString();
    expect(certificate).toEqual(await world.manage('GET', `${of}/certificate?${named}`));
    expect(certificate.status).toBe(200);
    expect(await world.manage('POST', '/proof/verify')).toMatchObject({ status: 200, body: { ok: true } });

    // In a container without pseudonyms they are not valid names.
    const plain = await world.container();
    expect((await world.manage('GET', `/dbs/shop/colls/${plain.id}/explain?${query}`)).status).toBe(400);
  });

  test('has all lives of its id', async () => {
    const container = await create({ defaultTtl: 30 });
    await container.items.create(item('a'));
    await world.advance(31_000);
    await container.items.create(item('a'));
    await world.purge();
    const lives = (await world.history(container.id, 'a')).map(({ life, type }) => `${life} ${type}`);
    expect(lives).toEqual(['0 ItemUpserted', '0 ItemExpired', '0 ItemPurged', '1 ItemUpserted']);
    expect(await sightings(container, ['a'])).toEqual(seen('a'));
    expect(await world.fsck()).toEqual([]);
  });

  test('has other pseudonyms in another container', async () => {
    const shown = async () => {
      const container = await create();
      await container.items.create(item('a'));
      await container.item('a', 'ann').delete();
      const { disappearances } = await world.disappearances(container.id);
      return disappearances[0]!;
    };
    const [one, other] = [await shown(), await shown()];
    expect(one['id']).not.toBe(other['id']);
    expect(one['partitionKey']).not.toBe(other['partitionKey']);
  });
});
