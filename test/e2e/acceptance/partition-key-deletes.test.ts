import type { Container } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { keyHeader, raw } from '../support/raw.ts';
import { type Fields, sightings, statusOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const item = (id: string, customer = 'ann', more: object = {}) => ({ id, customer, ...more });

/** A container with two items of `ann` and one of `bob`. */
async function filled(options: { readonly defaultTtl?: number } = {}): Promise<Container> {
  const container = await world.container(options);
  for (const one of [item('a'), item('b'), item('c', 'bob')]) await container.items.create(one);
  return container;
}

const deleteKey = async (container: Container, key: unknown = 'ann') =>
  (
    await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/operations/partitionkeydelete`, {
      headers: keyHeader(key),
      signed: { type: 'colls', link: `dbs/shop/colls/${container.id}` },
    })
  ).status;

const ids = async (container: Container) =>
  (await container.items.query<string>('SELECT VALUE c.id FROM c ORDER BY c.id').fetchAll()).resources;

describe('a delete by partition key', () => {
  test('through the client removes every item of the key from every way of reading at once, and no others', async () => {
    const container = await filled();
    const before = await world.head();
    await container.deleteAllItemsForPartitionKey('ann');
    // The delete is a single event, however many items there are.
    expect(await world.head()).toBe(before + 1);
    const seen = await sightings(container, ['a', 'b']);
    expect(seen).toMatchObject({ reads: [], query: [], queryOfKey: [], queryById: [], count: 0, countAll: 1 });
    expect(await ids(container)).toEqual(['c']);
    expect(await statusOf(container.item('a', 'ann').replace(item('a')))).toBe(404);
    expect(await statusOf(container.item('b', 'ann').delete())).toBe(404);
    expect(await world.fsck()).toEqual([]);
  });

  test('does not block reads and writes, even if many other deletes are waiting', async () => {
    const container = await filled();
    let done = 0;
    const deletes = Array.from({ length: 100 }, async (_, index) => {
      expect(await deleteKey(container, `customer-${index}`)).toBe(200);
      done += 1;
    });
    await vi.waitUntil(() => done > 0, { interval: 1 });
    expect((await container.item('c', 'bob').read()).statusCode).toBe(200);
    await container.items.upsert(item('d', 'bob'));
    expect(done).toBeLessThan(100);
    await Promise.all(deletes);
    expect(await ids(container)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('allows new lives of the same ids, before the purge and after it', async () => {
    const container = await filled();
    await container.deleteAllItemsForPartitionKey('ann');
    expect(await statusOf(container.items.create(item('a')))).toBe(201);
    const lives = async (id: string) =>
      (await world.history(container.id, id)).map(({ type, life }) => `${life} ${type}`);
    expect(await lives('a')).toEqual(['0 ItemUpserted', '0 ItemDeleted', '1 ItemUpserted']);
    expect(await lives('b')).toEqual(['0 ItemUpserted', '0 PartitionKeyDeleted']);
    expect(await world.fsck()).toEqual([]);
    await world.purge();
    expect(await statusOf(container.items.upsert(item('b')))).toBe(201);
    expect(await lives('b')).toEqual(['0 ItemUpserted', '0 ItemDeleted', '0 ItemPurged', '1 ItemUpserted']);
    expect(await ids(container)).toEqual(['a', 'b', 'c']);
    expect(await world.purge()).toMatchObject({ purged: 0 });
    expect(await world.fsck()).toEqual([]);
  });

  test('is given as the reason in the same words before the purge, after it and after a restart', async () => {
    const container = await filled();
    const atMs = await world.now();
    await container.deleteAllItemsForPartitionKey('ann');
    await world.advance(5_000);
    const told = async () => {
      const { state, sentence, deletedAtMs, recordedAtMs } = await world.explain(container.id, 'a', atMs + 4_000);
      const { disappearances } = await world.disappearances(container.id);
      const shown = disappearances.map(({ id, cause, atMs: left, recordedAtMs: on }) => [id, cause, left, on]);
      return { state, sentence, deletedAtMs, recordedAtMs, shown };
    };
    const before = await told();
    expect(before).toMatchObject({ state: 'deleted', deletedAtMs: atMs, recordedAtMs: atMs });
    expect(before.sentence).toContain('with all of its partition key by key:primary');
    expect(before.shown).toEqual([
      ['a', 'deleted', atMs, atMs],
      ['b', 'deleted', atMs, atMs],
    ]);
    await world.purge();
    expect(await told()).toEqual(before);
    const types = (await world.containerHistory(container.id)).map(({ type }) => type);
    expect(types).toEqual(['ContainerCreated', 'PartitionKeyDeleted', 'PartitionKeyDeleteCompleted']);
    const purged = (await world.disappearances(container.id)).disappearances;
    expect(purged.every(({ purgedAtMs }) => purgedAtMs !== null)).toBe(true);
    await world.restart();
    expect(await told()).toEqual(before);
    expect(await world.fsck()).toEqual([]);
  });

  test('does not apply to an item that had expired before, which keeps its own deadline', async () => {
    const container = await filled({ defaultTtl: 10 });
    await container.items.upsert(item('b', 'ann', { ttl: 1_000 }));
    const written = await world.now();
    await world.advance(10_000);
    await container.deleteAllItemsForPartitionKey('ann');
    const expiredAtMs = Math.floor(written / 1000) * 1000 + 10_000;
    expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'expired', expiredAtMs });
    expect(await world.explain(container.id, 'b')).toMatchObject({ state: 'deleted' });
    await world.purge();
    const { disappearances } = await world.disappearances(container.id);
    const causes = disappearances.map(({ id, cause }) => `${String(id)} ${String(cause)}`);
    expect(causes.toSorted()).toEqual(['a expired', 'b deleted', 'c expired']);
    expect(await world.fsck()).toEqual([]);
  });

  test.each([
    ['the purge', false],
    ['an erasure on request', true],
  ])(
    'is reported the same after %s and a rebuild, and is not in the history of an item that had expired before',
    async (_, erased) => {
      const container = await filled({ defaultTtl: 10 });
      await container.items.upsert(item('b', 'ann', { ttl: 1_000 }));
      await world.advance(10_000);
      await container.deleteAllItemsForPartitionKey('ann');
      const types = async (id: string) => (await world.history(container.id, id)).map(({ type }) => type);
      expect([await types('a'), await types('b')]).toEqual([
        ['ItemUpserted'],
        ['ItemUpserted', 'ItemUpserted', 'PartitionKeyDeleted'],
      ]);
      const before = await world.disappearances(container.id);
      const request = { id: 'b', partitionKey: ['ann'], reason: 'a test', requestedBy: 'somebody' };
      if (erased) await world.manage('POST', `/dbs/shop/colls/${container.id}/erase`, request);
      await world.purge();
      await world.manage('POST', '/projections/items/rebuild');
      const status = () => world.manage('GET', '/projections/items/rebuild');
      await vi.waitFor(
        async () => expect((await status()).body).toMatchObject({ state: 'done', differences: 0 }),
        10_000,
      );
      const { disappearances } = await world.disappearances(container.id);
      const positions = (rows: readonly Fields[]) =>
        rows.filter(({ id }) => id === 'b').map(({ id, at, position }) => ({ id, at, position }));
      expect(positions(disappearances)).toEqual(positions(before.disappearances));
      expect(positions(disappearances)).toHaveLength(1);
    },
  );

  test('of a key without items succeeds, and can be repeated', async () => {
    const container = await filled();
    expect(await deleteKey(container, 'nobody')).toBe(200);
    expect(await deleteKey(container)).toBe(200);
    await container.items.create(item('a'));
    expect(await deleteKey(container)).toBe(200);
    expect(await ids(container)).toEqual(['c']);
    await world.purge();
    expect(await world.fsck()).toEqual([]);
    expect((await world.history(container.id, 'a')).map(({ type, life }) => `${life} ${type}`)).toEqual([
      '0 ItemUpserted',
      '0 ItemDeleted',
      '0 ItemPurged',
      '1 ItemUpserted',
      '1 ItemDeleted',
      '1 ItemPurged',
    ]);
  });

  test('needs the whole key, and an existing container', async () => {
    const container = await world.container({ partitionKey: { paths: ['/a', '/b'], kind: 'MultiHash' as never } });
    const target = (id: string) => `/dbs/shop/colls/${id}/operations/partitionkeydelete`;
    const send = (id: string, headers: Readonly<Record<string, string>>) =>
      raw(world.endpoint, 'POST', target(id), { headers, signed: { type: 'colls', link: `dbs/shop/colls/${id}` } });
    expect((await send(container.id, keyHeader('x'))).status).toBe(400);
    expect((await send(container.id, {})).status).toBe(400);
    expect((await send(container.id, { 'x-ms-documentdb-partitionkey': '["x","y"]' })).status).toBe(200);
    expect((await send('nowhere', keyHeader('x'))).status).toBe(404);
  });

  test('happens entirely before or entirely after each concurrent write', async () => {
    const container = await filled();
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        if (index % 20 === 10) return deleteKey(container);
        return (await container.items.upsert(item(`n${index % 5}`))).statusCode;
      }),
    );
    expect(new Set(outcomes)).toEqual(new Set([200, 201]));
    expect(await world.fsck()).toEqual([]);
    await deleteKey(container);
    expect(await ids(container)).toEqual(['c']);
    await world.purge();
    expect(await world.fsck()).toEqual([]);
  });

  test('still gives each item its own reason if the container is deleted before the purge', async () => {
    const container = await filled();
    const { resource } = await container.read();
    await container.deleteAllItemsForPartitionKey('ann');
    await world.advance(1_000);
    await container.delete();
    expect(await world.purge()).toMatchObject({ purged: 3 });
    const { disappearances } = await world.disappearances(container.id, resource!._rid);
    expect(disappearances.map(({ id, cause }) => [id, cause])).toEqual([
      ['a', 'deleted'],
      ['b', 'deleted'],
      ['c', 'container-deleted'],
    ]);
    expect(await world.fsck()).toEqual([]);
  });

  test('is seen by a batch and by a patch, which find none of the deleted items', async () => {
    const container = await filled();
    await container.deleteAllItemsForPartitionKey('ann');
    const { result } = await container.items.batch([{ operationType: 'Read', id: 'a' }], 'ann');
    expect(result!.map(({ statusCode }) => statusCode)).toEqual([404]);
    expect(await statusOf(container.item('a', 'ann').patch([{ op: 'add', path: '/n', value: 1 }]))).toBe(404);
    const again = await container.items.batch(
      [
        { operationType: 'Create', resourceBody: item('a') },
        { operationType: 'Read', id: 'a' },
      ],
      'ann',
    );
    expect(again.result!.map(({ statusCode }) => statusCode)).toEqual([201, 200]);
    expect(await world.fsck()).toEqual([]);
  });
});
