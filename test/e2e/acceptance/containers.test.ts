import type { Container, ContainerDefinition } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { raw } from '../support/raw.ts';
import { anyContainer, anyItem, refusalOf, seen, sightings, statusOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
  await world.container({ id: 'first' });
});
afterAll(() => world.end());

const create = (id: string, settings: Record<string, unknown>) =>
  world.client
    .database('shop')
    .containers.create(anyContainer({ id, partitionKey: { paths: ['/customer'] }, ...settings }));
const replace = (container: Container, settings: Record<string, unknown>) =>
  container.replace(
    anyContainer({ id: container.id, partitionKey: { paths: ['/customer'] }, ...settings }) as ContainerDefinition,
  );

describe('time to live without an index', () => {
  const without = { indexingPolicy: { indexingMode: 'none', automatic: false } };

  test.each([-1, 1, 1_000])('is refused with a default of %s at creation', async (defaultTtl) => {
    const head = await world.head();
    const { code, message } = await refusalOf(create('no-index', { ...without, defaultTtl }));
    expect(code).toBe(400);
    expect(message).toContain("indexing mode 'none'");
    expect(await world.head()).toBe(head);
    expect(await statusOf(world.of('no-index').read())).toBe(404);
  });

  test.each([-1, 1, 1_000])('is refused with a default of %s if a replace adds one of the two', async (defaultTtl) => {
    const timed = await world.container({ defaultTtl });
    const unindexed = await world.container(anyContainer(without));
    const before = { head: await world.head(), timed: await timed.read(), unindexed: await unindexed.read() };
    for (const call of [
      () => replace(timed, { ...without, defaultTtl }),
      () => replace(unindexed, { ...without, defaultTtl }),
    ]) {
      expect((await refusalOf(call())).code).toBe(400);
    }
    expect(await world.head()).toBe(before.head);
    expect((await timed.read()).resource).toEqual(before.timed.resource);
    expect((await unindexed.read()).resource).toEqual(before.unindexed.resource);
    expect((await replace(timed, without)).resource).not.toHaveProperty('defaultTtl');
    expect((await replace(unindexed, { defaultTtl })).resource).toMatchObject({ defaultTtl });
  });

  test('is off if it has no default: an item’s own ttl has no effect', async () => {
    const container = await world.container(anyContainer(without));
    await container.items.create({ id: 'a', customer: 'ann', ttl: 1 });
    await world.advance(100_000);
    expect(await sightings(container, ['a'])).toEqual(seen('a'));
  });

  test.each(['consistent', 'lazy', 'Consistent'])('works with the indexing mode %s', async (indexingMode) => {
    const container = await world.container(anyContainer({ indexingPolicy: { indexingMode }, defaultTtl: 5 }));
    await container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(5_000);
    expect(await sightings(container, ['a'])).toEqual(seen());
  });
});

describe('a container', () => {
  test('is created with the properties that Cosmos DB adds', async () => {
    const { resource } = await create('defaults', {});
    expect(resource).toMatchObject({
      id: 'defaults',
      partitionKey: { paths: ['/customer'], kind: 'Hash' },
      indexingPolicy: {
        indexingMode: 'consistent',
        automatic: true,
        includedPaths: [{ path: '/*' }],
        excludedPaths: [{ path: '/"_etag"/?' }],
      },
      conflictResolutionPolicy: { mode: 'LastWriterWins', conflictResolutionPath: '/_ts' },
      geospatialConfig: { type: 'Geography' },
    });
    expect(resource).not.toHaveProperty('defaultTtl');
    expect(Buffer.from((resource as unknown as { _rid: string })._rid.replaceAll('-', '/'), 'base64')).toHaveLength(8);
    expect((await world.of('defaults').read()).resource).toEqual(resource);
  });

  test('treats a defaultTtl of null as none, at creation and replacement', async () => {
    const { container, resource } = await create('nothing', { defaultTtl: null });
    expect(resource).not.toHaveProperty('defaultTtl');
    expect((await replace(container, { defaultTtl: 7 })).resource).toMatchObject({ defaultTtl: 7 });
    expect((await replace(container, { defaultTtl: null })).resource).not.toHaveProperty('defaultTtl');
    expect((await world.containerHistory('nothing')).map(({ type, data }) => [type, data['to']])).toEqual([
      ['ContainerCreated', undefined],
      ['ContainerTtlChanged', 7],
      ['ContainerTtlChanged', null],
    ]);
  });

  test('can’t change its id or its partition key, and is not replaced with a stale etag', async () => {
    const { container, etag } = await create('fixed', { defaultTtl: 7 });
    const head = await world.head();
    const before = (await container.read()).resource;
    for (const settings of [
      { id: 'other' },
      { partitionKey: { paths: ['/other'] } },
      { partitionKey: { paths: ['/customer', '/other'], kind: 'MultiHash', version: 2 } },
      { indexingPolicy: { indexingMode: 'sometimes' } },
      { indexingPolicy: 'none' },
      { partitionKey: 'customer' },
    ]) {
      expect(await statusOf(replace(container, settings)), JSON.stringify(settings)).toBe(400);
    }
    const stale = { accessCondition: { type: 'IfMatch', condition: '"stale"' } } as const;
    expect(await statusOf(container.replace(before!, stale))).toBe(412);
    expect(await statusOf(container.delete(stale))).toBe(412);
    expect(await world.head()).toBe(head);
    expect((await container.read()).resource).toEqual(before);
    const fitting = { accessCondition: { type: 'IfMatch', condition: etag } } as const;
    expect(await statusOf(container.replace({ ...before!, defaultTtl: 8 }, fitting))).toBe(200);
    expect(await statusOf(container.replace({ ...before!, defaultTtl: 9 }, fitting))).toBe(412);
  });

  test.each(['', 'a/b', String.raw`a\b`, 'a?b', 'a#b', 'ends with a blank ', 'x'.repeat(256)])(
    'can’t be called %j',
    async (id) => {
      const head = await world.head();
      await expect(create(id, {})).rejects.toThrow();
      await expect(world.client.databases.create({ id })).rejects.toThrow();
      expect(await world.head()).toBe(head);
    },
  );

  test.each(['ünï cödé 文字', '👻', "it's", '__proto__', 'constructor', 'docs', 'a+b&c=d;e,f', '%41', 'x'.repeat(255)])(
    'can be called %j',
    async (id) => {
      const { container } = await create(id, {});
      expect(await statusOf(container.items.create({ id: '1', customer: 'ann' }))).toBe(201);
      expect((await container.item('1', 'ann').read()).resource).toMatchObject({ id: '1' });
      expect((await container.read()).resource!.id).toBe(id);
      expect((await container.delete()).statusCode).toBe(204);
    },
  );

  test('that does not exist answers every request with 404', async () => {
    const missing = world.of('never-there');
    expect(await statusOf(missing.read())).toBe(404);
    expect(await statusOf(missing.delete())).toBe(404);
    expect(await statusOf(replace(missing, {}))).toBe(404);
    expect(await statusOf(missing.items.create(anyItem({ id: '1', customer: 'ann' })))).toBe(404);
    expect(
      await statusOf(
        missing.items
          .query('SELECT * FROM c')
          .fetchAll()
          .then(() => ({ statusCode: 200 })),
      ),
    ).toBe(404);
    expect((await world.manage('GET', '/dbs/shop/colls/never-there/history')).status).toBe(404);
  });
});

describe('a container that is deleted', () => {
  test('deletes its items, which can be explained after the purge, and shares nothing with a later container of the same name', async () => {
    const { container, resource } = await create('again', { defaultTtl: 100 });
    const { _rid: rid } = resource as unknown as { _rid: string };
    for (const id of ['kept', 'expired', 'deleted']) {
      await container.items.create({ id, customer: 'ann', ...(id === 'expired' ? { ttl: 5 } : {}) });
    }
    await container.item('deleted', 'ann').delete();
    await world.advance(50_000);
    expect((await container.delete()).statusCode).toBe(204);
    const deletedAtMs = await world.now();
    expect(await statusOf(container.read())).toBe(404);
    expect(await statusOf(container.item('kept', 'ann').read())).toBe(404);
    expect(await statusOf(container.items.create({ id: 'late', customer: 'ann' }))).toBe(404);
    expect(await world.explain('again', 'kept', undefined, { rid })).toMatchObject({
      state: 'deleted',
      containerDeletedAtMs: deletedAtMs,
    });

    const next = await create('again', {});
    const { _rid: nextRid } = next.resource as unknown as { _rid: string };
    expect(nextRid).not.toBe(rid);
    expect(await sightings(next.container, ['kept', 'expired', 'deleted'])).toEqual(seen());
    expect(await statusOf(next.container.items.create({ id: 'kept', customer: 'ann', second: true }))).toBe(201);
    expect((await world.containerHistory('again')).map(({ type }) => type)).toEqual(['ContainerCreated']);
    expect((await world.containerHistory('again', rid)).map(({ type }) => type)).toEqual([
      'ContainerCreated',
      'ContainerDeleted',
    ]);

    await world.purge();
    await world.restart();
    expect(await world.explain('again', 'kept', undefined, { rid })).toMatchObject({
      state: 'purged',
      containerDeletedAtMs: deletedAtMs,
      purgedAtMs: expect.any(Number),
    });
    expect(await world.explain('again', 'kept', deletedAtMs - 1, { rid })).toMatchObject({ state: 'live' });
    expect(await world.explain('again', 'expired', undefined, { rid })).toMatchObject({
      state: 'purged',
      rule: 'item-ttl',
    });
    expect(await world.explain('again', 'deleted', undefined, { rid })).toMatchObject({
      state: 'purged',
      deletedAtMs: expect.any(Number),
    });
    const causes = (await world.disappearances('again', rid)).disappearances.map(({ id, cause }) => [id, cause]);
    expect(causes.toSorted()).toEqual([
      ['deleted', 'deleted'],
      ['expired', 'expired'],
      ['kept', 'container-deleted'],
    ]);
    expect((await world.history('again', 'kept', { rid })).map(({ type }) => type)).toEqual([
      'ItemUpserted',
      'ItemPurged',
    ]);
    expect((await world.history('again', 'kept')).map(({ type }) => type)).toEqual(['ItemUpserted']);
    expect((await world.of('again').item('kept', 'ann').read()).resource).toMatchObject({ second: true });
    expect(await world.explain('again', 'kept')).toMatchObject({ state: 'live', life: 0 });
    expect((await world.manage('GET', '/dbs/shop/colls/again/history?rid=AAAAAAAAAAA%3D')).status).toBe(404);
    expect((await world.manage('GET', `/dbs/shop/colls/first/history?rid=${encodeURIComponent(rid)}`)).status).toBe(
      404,
    );
    expect(await world.fsck()).toEqual([]);
  });

  test('and created again many times has a separate history each time', async () => {
    const rids: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      const { container, resource } = await create('over', { defaultTtl: n + 1 });
      rids.push((resource as unknown as { _rid: string })._rid);
      await container.items.create({ id: 'a', customer: 'ann', n });
      await container.delete();
    }
    expect(new Set(rids).size).toBe(4);
    await world.purge();
    for (const [n, rid] of rids.entries()) {
      const [created] = await world.containerHistory('over', rid);
      expect(created!.data).toMatchObject({ defaultTtl: n + 1 });
      expect(await world.explain('over', 'a', undefined, { rid })).toMatchObject({ state: 'purged', life: 0 });
    }
  });
});

describe('a database that is deleted', () => {
  test('deletes its containers and their items', async () => {
    const { database } = await world.client.databases.create({ id: 'doomed' });
    const made = await database.containers.create({ id: 'c', partitionKey: '/customer', defaultTtl: 100 });
    const { _rid: rid } = made.resource as unknown as { _rid: string };
    await made.container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(1_000);
    expect((await database.delete()).statusCode).toBe(204);
    expect(await statusOf(database.read())).toBe(404);
    expect(await statusOf(made.container.read())).toBe(404);
    expect(await statusOf(made.container.item('a', 'ann').read())).toBe(404);
    expect(await statusOf(database.containers.create({ id: 'd', partitionKey: '/customer' }))).toBe(404);

    expect(await statusOf(world.client.databases.create({ id: 'doomed' }))).toBe(201);
    expect((await database.containers.readAll().fetchAll()).resources).toEqual([]);
    const again = await database.containers.create({ id: 'c', partitionKey: '/customer' });
    expect((again.resource as unknown as { _rid: string })._rid).not.toBe(rid);
    expect((await again.container.items.readAll().fetchAll()).resources).toEqual([]);
    await world.purge();
    const options = { rid, database: 'doomed' };
    expect(await world.explain('c', 'a', undefined, options)).toMatchObject({
      state: 'purged',
      containerDeletedAtMs: expect.any(Number),
    });
    expect((await world.history('c', 'a', options)).map(({ type }) => type)).toEqual(['ItemUpserted', 'ItemPurged']);
    expect(await world.fsck()).toEqual([]);
  });
});

test('a client encryption policy with a key that the database does not have is refused', async () => {
  const encrypted = anyContainer({
    clientEncryptionPolicy: { includedPaths: [{ path: '/a', clientEncryptionKeyId: 'none' }], policyFormatVersion: 1 },
  });
  const { code, message } = await refusalOf(world.container(encrypted));
  expect(code).toBe(400);
  expect(message).toContain("ClientEncryptionKey with id '[none]' does not exist.");
});

test('a client encryption policy is permanent: no replace changes, drops or adds one', async () => {
  const policy = (path: string) => ({
    includedPaths: [
      {
        path,
        clientEncryptionKeyId: 'key',
        encryptionType: 'Randomized',
        encryptionAlgorithm: 'AEAD_AES_256_CBC_HMAC_SHA256',
      },
    ],
    policyFormatVersion: 1,
  });
  const key = { id: 'key', encryptionAlgorithm: 'AEAD_AES_256_CBC_HMAC_SHA256', wrappedDataEncryptionKey: 'AAAA' };
  const keyWrapMetadata = { type: 'akv', name: 'kek', value: 'https://vault/kek', algorithm: 'RSA-OAEP' };
  const made = { body: JSON.stringify({ ...key, keyWrapMetadata }) };
  expect((await raw(world.endpoint, 'POST', '/dbs/shop/clientencryptionkeys', made)).status).toBe(201);
  const encrypted = await world.container(anyContainer({ clientEncryptionPolicy: policy('/a') }));
  const plain = await world.container();
  for (const [container, settings] of [
    [encrypted, {}],
    [encrypted, { clientEncryptionPolicy: null }],
    [encrypted, { clientEncryptionPolicy: policy('/b') }],
    [plain, { clientEncryptionPolicy: policy('/a') }],
  ] as const) {
    const { code, message } = await refusalOf(replace(container, settings));
    expect(code).toBe(400);
    expect(message).toContain("'clientEncryptionPolicy' cannot be changed as part of collection replace operation.");
  }
  const { resource } = await replace(encrypted, { clientEncryptionPolicy: policy('/a'), defaultTtl: 60 });
  expect(resource).toMatchObject({ clientEncryptionPolicy: policy('/a'), defaultTtl: 60 });
  expect((await replace(plain, { clientEncryptionPolicy: null, defaultTtl: 60 })).resource!.defaultTtl).toBe(60);
});
