import { BulkOperationType, type Container, type UniqueKeyPolicy } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EventStoreDouble } from '../../eventstoredb/double.ts';
import { keyHeader, raw } from '../support/raw.ts';
import { anyContainer, anyItem, CALLER, refusalOf, statusOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const EMAIL: UniqueKeyPolicy = { uniqueKeys: [{ paths: ['/email'] }] };
const people = (more: object = {}) => world.container({ uniqueKeyPolicy: EMAIL, ...more });
const person = (id: string, email: unknown, more: object = {}) => anyItem({ id, customer: 'ann', email, ...more });
const create = (container: Container, id: string, email: unknown, more: object = {}) =>
  statusOf(container.items.create(person(id, email, more)));

describe('a unique key', () => {
  test("refuses a second item with the same value in a partition key, with the service's message", async () => {
    const container = await people();
    expect(await create(container, '1', 'a@x')).toBe(201);
    const head = await world.head();
    const refusal = await refusalOf(container.items.create(person('2', 'a@x')));
    expect(refusal.code).toBe(409);
    expect(refusal.message).toContain('Unique index constraint violation.');
    expect(await world.head()).toBe(head);
    expect(await statusOf(container.item('2', 'ann').read())).toBe(404);
    expect(await create(container, '2', 'b@x')).toBe(201);
    expect(await create(container, '2', 'a@x', { customer: 'bob' })).toBe(201);
    expect(await world.fsck()).toEqual([]);
  });

  test('is case-sensitive and distinguishes types', async () => {
    const container = await people();
    const values = ['a', 'A', 1, '1', true, 'true', { b: 1, a: 2 }, [1], '', 0];
    for (const [index, value] of values.entries()) expect(await create(container, `${index}`, value)).toBe(201);
    for (const [index, value] of [...values, { a: 2, b: 1 }, -0, 1.0].entries()) {
      expect(await create(container, `again ${index}`, value)).toBe(409);
    }
  });

  test('distinguishes integers of 64 bits by all of their digits, and compares doubles with them', async () => {
    const container = await people();
    const created = async (id: string, email: string) => {
      const body = `{"id":"${id}","customer":"ann","email":${email}}`;
      const { status } = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
        headers: keyHeader('ann'),
        body,
      });
      return status;
    };
    const values = [
      '9007199254740993',
      '9007199254740992',
      '1234567890123456789',
      '{"a":[1234567890123456788]}',
      '1e18',
      '1.989763852669747E+18',
      '1989763852669747000',
      '-9223372036854775808',
      '18446744073709551615',
      '1.2345678901234567e19',
    ];
    for (const [index, value] of values.entries()) expect(await created(`${index}`, value), value).toBe(201);
    for (const value of [
      ...values,
      '9007199254740992.0',
      '1000000000000000000',
      '1989763852669746944',
      '-9223372036854775809',
      '12345678901234567168',
      '{"a":[1234567890123456788], "b":1}',
    ]) {
      expect(await created('again', value), value).toBe(value.includes('b') ? 201 : 409);
    }
  });

  test('treats a missing value as null, which only one item may have', async () => {
    const container = await people();
    expect(await create(container, '1', undefined)).toBe(201);
    expect(await create(container, '2', null)).toBe(409);
    expect(await create(container, '3', undefined)).toBe(409);
    expect(await statusOf(container.items.upsert(person('1', 'a@x')))).toBe(200);
    expect(await create(container, '2', null)).toBe(201);
  });

  test('of several paths is unique in their combination, and independent of other keys', async () => {
    const container = await world.container({
      uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/name/first', '/name/last'] }, { paths: ['/"e-mail"'] }] },
    });
    const named = (id: string, first: string, last: string, email: string) =>
      statusOf(container.items.create({ id, customer: 'ann', name: { first, last }, 'e-mail': email }));
    expect(await named('1', 'Ann', 'Lee', 'a')).toBe(201);
    expect(await named('2', 'Ann', 'Kay', 'b')).toBe(201);
    expect(await named('3', 'Lee', 'Ann', 'c')).toBe(201);
    expect(await named('4', 'Ann', 'Lee', 'd')).toBe(409);
    expect(await named('4', 'Bob', 'Lee', 'b')).toBe(409);
    // The write that was refused because of one key has not taken the value of the other.
    expect(await named('5', 'Bob', 'Lee', 'd')).toBe(201);
  });

  test('that is freed by an operation of a bulk request can be taken by later ones', async () => {
    const container = await people();
    const { Create, Delete, Patch, Upsert } = BulkOperationType;
    await create(container, '1', 'a@x');
    await create(container, '2', 'b@x');
    await create(container, '3', 'c@x');
    const bulk = await container.items.executeBulkOperations([
      { operationType: Delete, partitionKey: 'ann', id: '1' },
      { operationType: Create, partitionKey: 'ann', resourceBody: person('4', 'a@x') },
      { operationType: Create, partitionKey: 'ann', resourceBody: person('5', 'a@x') },
      { operationType: Upsert, partitionKey: 'ann', resourceBody: person('2', 'd@x') },
      {
        operationType: Patch,
        partitionKey: 'ann',
        id: '3',
        resourceBody: [{ op: 'set', path: '/email', value: 'b@x' }],
      },
      { operationType: Upsert, partitionKey: 'ann', resourceBody: person('6', 'c@x') },
    ]);
    const codes = bulk.map(({ response, error }) => response?.statusCode ?? error?.code);
    expect(codes).toEqual([204, 201, 409, 200, 200, 201]);
    expect(await world.fsck()).toEqual([]);
  });

  test('holds for upsert, replace, patch, batch and bulk', async () => {
    const container = await people();
    await create(container, '1', 'a');
    await create(container, '2', 'b');
    const one = container.item('1', 'ann');
    expect(await statusOf(container.items.upsert(person('3', 'a')))).toBe(409);
    expect(await statusOf(container.items.upsert(person('1', 'b')))).toBe(409);
    expect(await statusOf(one.replace(person('1', 'b')))).toBe(409);
    expect(await statusOf(one.patch([{ op: 'set', path: '/email', value: 'b' }]))).toBe(409);
    expect((await one.read()).resource).toMatchObject({ email: 'a' });
    const { Create, Patch, Upsert } = BulkOperationType;
    const { result } = await container.items.batch(
      [
        { operationType: Create, resourceBody: { id: '4', customer: 'ann', email: 'd' } },
        { operationType: Create, resourceBody: { id: '5', customer: 'ann', email: 'd' } },
      ],
      'ann',
    );
    expect(result!.map(({ statusCode }) => statusCode)).toEqual([424, 409]);
    const bulk = await container.items.executeBulkOperations([
      { operationType: Create, partitionKey: 'ann', resourceBody: { id: '6', customer: 'ann', email: 'a' } },
      { operationType: Upsert, partitionKey: 'ann', resourceBody: { id: '2', customer: 'ann', email: 'a' } },
      {
        operationType: Patch,
        partitionKey: 'ann',
        id: '2',
        resourceBody: [{ op: 'set', path: '/email', value: 'a' }],
      },
      { operationType: Create, partitionKey: 'bob', resourceBody: { id: '6', customer: 'bob', email: 'a' } },
    ]);
    expect(bulk.map(({ response, error }) => response?.statusCode ?? error?.code)).toEqual([409, 409, 409, 201]);
    expect(await world.fsck()).toEqual([]);
  });

  test('is freed by a write with another value, and can be moved within a batch', async () => {
    const container = await people();
    await create(container, '1', 'a');
    const { Create, Patch } = BulkOperationType;
    const { result } = await container.items.batch(
      [
        { operationType: Patch, id: '1', resourceBody: [{ op: 'set', path: '/email', value: 'b' }] },
        { operationType: Create, resourceBody: { id: '2', customer: 'ann', email: 'a' } },
      ],
      'ann',
    );
    expect(result!.map(({ statusCode }) => statusCode)).toEqual([200, 201]);
    expect(await statusOf(container.items.upsert(person('1', 'a')))).toBe(409);
    // An etag that does not match is reported first, and so is an id that exists.
    const options = { accessCondition: { type: 'IfMatch', condition: '"other"' } };
    expect(await statusOf(container.item('1', 'ann').replace(person('1', 'a'), options))).toBe(412);
    expect((await refusalOf(container.items.create(person('1', 'a')))).message).toContain('already exists');
    expect(await world.fsck()).toEqual([]);
  });

  test.each(['before the purge', 'after the purge'])(
    'is free as soon as its item is deleted, expired or removed with its partition key: %s',
    async (when) => {
      const container = await people({ defaultTtl: -1 });
      await create(container, 'deleted', 'a');
      await create(container, 'expired', 'b', { ttl: 10 });
      await create(container, 'left', 'c', { customer: 'bob' });
      await container.item('deleted', 'ann').delete();
      await world.advance(9_000);
      expect(await create(container, 'too early', 'b')).toBe(409);
      await world.advance(1_000);
      await container.deleteAllItemsForPartitionKey('bob');
      if (when === 'after the purge') await world.purge();
      expect(await create(container, '1', 'a')).toBe(201);
      expect(await create(container, '2', 'b')).toBe(201);
      expect(await create(container, '3', 'c', { customer: 'bob' })).toBe(201);
      expect(await create(container, 'expired', 'b')).toBe(409);
      expect(await create(container, 'expired', 'd')).toBe(201);
      expect((await world.history(container.id, 'expired')).map(({ type, life }) => `${life} ${type}`)).toEqual(
        when === 'after the purge'
          ? ['0 ItemUpserted', '0 ItemExpired', '0 ItemPurged', '1 ItemUpserted']
          : ['0 ItemUpserted', '0 ItemExpired', '1 ItemUpserted'],
      );
      expect(await world.fsck()).toEqual([]);
      await world.purge();
      expect(await create(container, '4', 'a')).toBe(409);
      expect(await world.fsck()).toEqual([]);
    },
  );

  test('works with pseudonymous ids, and a query for several ids finds these items', async () => {
    const container = await world.container(
      anyContainer({ uniqueKeyPolicy: EMAIL, epitaph: { pseudonymousIds: true } }),
    );
    expect(await create(container, '1', 'a')).toBe(201);
    expect(await create(container, '2', 'a')).toBe(409);
    expect(await create(container, '2', 'a', { customer: 'bob' })).toBe(201);
    const query =
      "SELECT VALUE c.id FROM c WHERE (c.id = '1' AND c.customer = 'ann') OR (c.id = '2' AND c.customer = 'ann')";
    expect((await container.items.query(query).fetchAll()).resources).toEqual(['1']);
    await container.item('1', 'ann').delete();
    await world.purge();
    expect(await create(container, '2', 'a')).toBe(201);
    expect(await world.fsck()).toEqual([]);
  });

  test('does not show its values in history', async () => {
    const container = await people();
    await create(container, '1', 'a');
    const [written] = await world.history(container.id, '1');
    expect(Object.keys(written!.data)).not.toContain('uniqueKeys');
  });

  test('gives a value to only one of many concurrent creates', async () => {
    const container = await people({ defaultTtl: 5 });
    await create(container, 'former', 'a');
    await world.advance(5_000);
    const statuses = await Promise.all(Array.from({ length: 24 }, (_, index) => create(container, `${index}`, 'a')));
    expect(statuses.filter((status) => status === 201)).toHaveLength(1);
    expect(statuses.filter((status) => status === 409)).toHaveLength(23);
    expect(await world.fsck()).toEqual([]);
  });

  test('holds after a restart', async () => {
    const id = (await people()).id;
    await create(world.of(id), '1', 'a');
    await world.restart();
    expect(await create(world.of(id), '2', 'a')).toBe(409);
    expect(await create(world.of(id), '2', 'b')).toBe(201);
  });
});

describe("a container's unique keys", () => {
  test('are returned as they were given, and can’t be changed', async () => {
    const container = await people();
    const { resource } = await container.read();
    expect(resource!.uniqueKeyPolicy).toEqual(EMAIL);
    expect(await statusOf(container.replace({ ...resource!, defaultTtl: 100 }))).toBe(200);
    const { uniqueKeyPolicy: _, ...without } = resource!;
    expect(await statusOf(container.replace({ ...without, defaultTtl: 200 }))).toBe(200);
    expect((await container.read()).resource!.uniqueKeyPolicy).toEqual(EMAIL);
    for (const uniqueKeys of [[], [{ paths: ['/name'] }], [...EMAIL.uniqueKeys, { paths: ['/name'] }]]) {
      const refusal = await refusalOf(container.replace({ ...resource!, uniqueKeyPolicy: { uniqueKeys } }));
      expect(refusal.code).toBe(400);
      expect(refusal.message).toContain("unique keys can't be changed");
    }
    const plain = await world.container();
    const bare = (await plain.read()).resource!;
    expect(await statusOf(plain.replace({ ...bare, uniqueKeyPolicy: EMAIL }))).toBe(400);
    expect(await statusOf(plain.replace({ ...bare, uniqueKeyPolicy: { uniqueKeys: [] } }))).toBe(200);
  });

  test('are at most ten of at most sixteen paths, each valid and named once', async () => {
    const keys = (count: number) => Array.from({ length: count }, (_, at) => ({ paths: [`/p${at}`] }));
    const paths = (count: number) => [{ paths: Array.from({ length: count }, (_, at) => `/p${at}`) }];
    for (const uniqueKeys of [keys(10), paths(16), []]) {
      expect(await statusOf(world.container({ uniqueKeyPolicy: { uniqueKeys } }).then((made) => made.read()))).toBe(
        200,
      );
    }
    for (const uniqueKeys of [
      keys(11),
      paths(17),
      paths(0),
      [{ paths: ['email'] }],
      [{ paths: ['/a/'] }],
      [{ paths: ['/a/*'] }],
      [{ paths: ['/a/[]'] }],
      [{ paths: ['/_ts'] }],
      [{ paths: ['/id', '/ItemId', '/Type'] }],
      [{ paths: ['/a', '/a'] }],
      [{ paths: ['/a', '/b'] }, { paths: ['/b', '/a'] }],
      [{ paths: '/a' }],
      [{}],
      'email',
    ]) {
      const request = anyContainer({ uniqueKeyPolicy: { uniqueKeys } });
      expect((await refusalOf(world.container(request))).code).toBe(400);
    }
    const ofTheId = world.container({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/id'] }] } });
    expect((await refusalOf(ofTheId)).message).toContain(
      "The unique key path cannot contain system properties. 'id' is a system property.",
    );
  });

  test('on the id, which older versions allowed, do not prevent a replace of their container', async () => {
    const plain = await world.container();
    const { definition } = world.store.container('shop', plain.id);
    const uniqueKeyPolicy = { uniqueKeys: [{ paths: ['/id'] }] };
    await world.store.createContainer(CALLER, 'shop', 'of-before', { ...definition, uniqueKeyPolicy }, null);
    const container = world.client.database('shop').container('of-before');
    const { resource } = await container.read();
    expect(resource).toMatchObject({ uniqueKeyPolicy });
    expect(await statusOf(container.replace({ ...resource!, defaultTtl: 60 }))).toBe(200);
  });

  test('are refused if the log can not append to several streams at once', async () => {
    const double = await EventStoreDouble.start();
    const other = await World.open({ eventStore: double.connectionString });
    try {
      const refusal = await refusalOf(other.container({ uniqueKeyPolicy: EMAIL }));
      expect(refusal.code).toBe(400);
      expect(refusal.message).toContain('unique keys');
      await other.container();
    } finally {
      await other.end();
      double.stop();
    }
  });
});
