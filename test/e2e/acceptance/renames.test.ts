import { BulkOperationType, ChangeFeedStartFrom } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EventStoreDouble } from '../../eventstoredb/double.ts';
import { ALL_VERSIONS, ids, keeping, readOn, told, type Version } from '../change-feed/support.ts';
import {
  anyContainer,
  anyItem,
  type HistoryEvent,
  refusalOf,
  seen,
  sightings,
  statusOf,
  World,
} from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const { Create, Delete, Read, Replace } = BulkOperationType;
const doc = (id: string, n = 1, more: object = {}) => anyItem({ id, customer: 'ann', n, ...more });
const lives = async (container: string, id: string) =>
  (await world.history(container, id)).map(({ type, life }) => `${life} ${type}`);

describe('a replace with another id', () => {
  test.each(['of a container like any other', 'where ids are pseudonyms'])('renames the item: %s', async (where) => {
    const container = await world.container(
      anyContainer(where === 'where ids are pseudonyms' ? { epitaph: { pseudonymousIds: true } } : {}),
    );
    const { resource: before } = await container.items.create(doc('a'));
    const { statusCode, resource, etag } = await container.item('a', 'ann').replace(doc('b', 2));
    expect(statusCode).toBe(200);
    expect(resource).toMatchObject({ id: 'b', n: 2, _etag: etag });
    expect(resource!._rid).not.toBe(before!._rid);
    expect((await container.item('b', 'ann').read()).resource).toEqual(resource);
    expect(await statusOf(container.item('a', 'ann').read())).toBe(404);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('b'));
    expect(await world.fsck()).toEqual([]);
  });

  test('is recorded as the end of one item and the beginning of another, at one instant by the same actor', async () => {
    const container = await world.container();
    await container.items.create(doc('a'));
    await world.advance(5_000);
    await container.item('a', 'ann').replace(doc('b'));
    const [, deleted] = await world.history(container.id, 'a');
    const [created, ...more] = await world.history(container.id, 'b');
    expect(more).toEqual([]);
    expect(deleted).toMatchObject({ type: 'ItemDeleted', life: 0, actor: 'key:primary' });
    expect(created).toMatchObject({
      type: 'ItemUpserted',
      life: 0,
      actor: 'key:primary',
      data: { operation: 'create' },
    });
    expect(created!.occurredAtMs).toBe(deleted!.occurredAtMs);
    expect((await world.explain(container.id, 'b')).state).toBe('live');
  });

  test('has on record where the item went and where it came from, and the reason of its end says so for good', async () => {
    const container = await world.container();
    await container.items.create(doc('b'));
    await container.item('b', 'ann').delete();
    await container.items.create(doc('a'));
    await container.item('a', 'ann').replace(doc('b'));
    const [, deleted] = await world.history(container.id, 'a');
    const created = (await world.history(container.id, 'b')).at(-1);
    expect(deleted!.data['renamedTo']).toMatch(/^item-.+\.1$/);
    expect(created!.data['renamedFrom']).toMatch(/^item-.+\.0$/);
    const why = async (id: string) => world.explain(container.id, id);
    const renamedTo = { id: 'b', life: 1 };
    const deletedAtMs = deleted!.occurredAtMs;
    const replaced = `"a" was replaced under the id "b" at ${new Date(deletedAtMs).toISOString()} by key:primary.`;
    expect(await why('a')).toMatchObject({ state: 'deleted', deletedAtMs, renamedTo });
    expect((await why('a')).sentence).toContain(replaced);
    await container.item('b', 'ann').delete();
    await world.purge();
    expect(await why('a')).toMatchObject({ state: 'purged', deletedAtMs, renamedTo });
    expect((await why('a')).sentence).toContain(replaced);
    expect(await why('b')).not.toHaveProperty('renamedTo');
    expect((await why('b')).sentence).toContain('was deleted at');
  });

  test('is explained by pseudonyms in a container that has no ids on record', async () => {
    const container = await world.container(anyContainer({ epitaph: { pseudonymousIds: true } }));
    await container.items.create(doc('a'));
    await container.item('a', 'ann').replace(doc('secret'));
    const { renamedTo, sentence } = await world.explain(container.id, 'a');
    expect(renamedTo).toMatchObject({ life: 0 });
    expect(sentence).toContain(`replaced under an id with the pseudonym "${renamedTo!.id}" at`);
    const [{ data }] = (await world.history(container.id, 'secret')) as [HistoryEvent];
    expect(renamedTo!.id).toBe(data['id']);
  });

  test('is refused if the item is missing or not the expected version, or the id is taken, and writes nothing', async () => {
    const container = await world.container({ defaultTtl: -1 });
    const { etag: stale } = await container.items.create(doc('a'));
    const { etag } = await container.items.upsert(doc('a', 2));
    await container.items.create(doc('taken'));
    await container.items.create(doc('overdue', 1, { ttl: 10 }));
    await world.advance(10_000);
    const head = await world.head();
    const rename = (from: string, to: string, condition?: string, more: object = {}) =>
      statusOf(
        container
          .item(from, 'ann')
          .replace(
            doc(to, 3, more),
            condition === undefined ? {} : { accessCondition: { type: 'IfMatch', condition } },
          ),
      );
    expect(await rename('missing', 'b')).toBe(404);
    expect(await rename('overdue', 'b')).toBe(404);
    expect(await rename('missing', 'taken')).toBe(404);
    expect(await rename('a', 'taken')).toBe(409);
    expect(await rename('a', 'b', stale)).toBe(412);
    expect(await rename('a', 'taken', stale)).toBe(412);
    expect(await rename('a', 'b', etag, { customer: 'bob' })).toBe(400);
    expect(await rename('a', 'b', etag, { ttl: 0 })).toBe(400);
    expect(await world.head()).toBe(head);
    expect(await rename('a', 'b', etag)).toBe(200);
    expect(await rename('taken', 'overdue')).toBe(200);
    expect(await sightings(container, ['a', 'b', 'taken', 'overdue'])).toEqual(seen('b', 'overdue'));
    expect(await world.fsck()).toEqual([]);
  });

  test('among many at once succeeds for only one with the same item, and for only one with the same id', async () => {
    const container = await world.container();
    await Promise.all(['a', 'b', 'c', 'd'].map((id) => container.items.create(doc(id))));
    const rename = (from: string, to: string) => statusOf(container.item(from, 'ann').replace(doc(to)));
    const statuses = await Promise.all([
      ...['e', 'f', 'g', 'h'].map((id) => rename('a', id)),
      ...['b', 'c', 'd'].map((id) => rename(id, 'x')),
    ]);
    expect(statuses.slice(0, 4).toSorted()).toEqual([200, 404, 404, 404]);
    expect(statuses.slice(4).toSorted()).toEqual([200, 409, 409]);
    expect(await world.fsck()).toEqual([]);
  });

  test('and back begins the second life of the first id', async () => {
    const container = await world.container();
    await container.items.create(doc('a'));
    await container.item('a', 'ann').replace(doc('b', 2));
    await container.item('b', 'ann').replace(doc('a', 3));
    expect(await lives(container.id, 'a')).toEqual(['0 ItemUpserted', '0 ItemDeleted', '1 ItemUpserted']);
    expect(await lives(container.id, 'b')).toEqual(['0 ItemUpserted', '0 ItemDeleted']);
    await world.purge();
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ id: 'a', n: 3 });
    expect(await world.fsck()).toEqual([]);
  });

  test('restarts the countdown of the ttl', async () => {
    const container = await world.container({ defaultTtl: 60 });
    await container.items.create(doc('a'));
    await world.advance(50_000);
    await container.item('a', 'ann').replace(doc('b'));
    await world.advance(50_000);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('b'));
    await world.advance(10_000);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen());
  });

  test('keeps the values of unique keys, or takes others that are free', async () => {
    const container = await world.container({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/email'] }] } });
    const person = (id: string, email: string) => doc(id, 1, { email });
    await container.items.create(person('a', 'a@x'));
    await container.items.create(person('other', 'o@x'));
    expect(await statusOf(container.item('a', 'ann').replace(person('b', 'a@x')))).toBe(200);
    expect(await statusOf(container.items.create(person('a', 'a@x')))).toBe(409);
    expect(await statusOf(container.item('b', 'ann').replace(person('c', 'o@x')))).toBe(409);
    expect(await statusOf(container.item('b', 'ann').replace(person('c', 'c@x')))).toBe(200);
    expect(await statusOf(container.items.create(person('a', 'a@x')))).toBe(201);
    expect(await statusOf(container.items.create(person('d', 'c@x')))).toBe(409);
    expect(await world.fsck()).toEqual([]);
  });

  test('is in the change feed as the new item; in all versions as a delete and a create', async () => {
    const container = await world.container(keeping(60));
    const changeFeedStartFrom = ChangeFeedStartFrom.Now();
    const all = await readOn<Version>(container, { changeFeedStartFrom, changeFeedMode: ALL_VERSIONS });
    const latest = await readOn(container, { changeFeedStartFrom });
    await container.items.create(doc('a'));
    await container.item('a', 'ann').replace(doc('b', 2));
    const from = (continuationToken: string) => ({
      changeFeedStartFrom: ChangeFeedStartFrom.Continuation(continuationToken),
    });
    expect(ids((await readOn(container, from(latest.continuationToken))).changes)).toEqual(['b']);
    const options = { ...from(all.continuationToken), changeFeedMode: ALL_VERSIONS };
    const { changes } = await readOn<Version>(container, options);
    expect(told(changes)).toEqual(['create a', 'delete a', 'create b']);
    expect(changes[1]!.previous).toMatchObject({ id: 'a', n: 1 });
    expect(changes[2]!.current).toMatchObject({ id: 'b', n: 2 });
  });

  test('works as an operation of a batch, is seen by the later ones, and has one result', async () => {
    const container = await world.container();
    await container.items.create(doc('a'));
    const { result } = await container.items.batch(
      [
        { operationType: Create, resourceBody: { id: 'first', customer: 'ann' } },
        { operationType: Replace, id: 'a', resourceBody: { id: 'b', customer: 'ann', n: 2 } },
        { operationType: Read, id: 'b' },
        { operationType: Replace, id: 'b', resourceBody: { id: 'a', customer: 'ann', n: 3 } },
        { operationType: Delete, id: 'first' },
      ],
      'ann',
    );
    expect(result!.map(({ statusCode }) => statusCode)).toEqual([201, 200, 200, 200, 204]);
    expect(result![1]!.resourceBody).toMatchObject({ id: 'b', n: 2 });
    expect(result![2]!.resourceBody).toEqual(result![1]!.resourceBody);
    expect((await container.item('a', 'ann').read()).resource).toEqual(result![3]!.resourceBody);
    expect(await sightings(container, ['a', 'b', 'first'])).toEqual(seen('a'));
    const ends = (await world.history(container.id, 'a')).map(({ data }) => data['renamedTo']);
    expect(ends).toEqual([undefined, expect.stringMatching(/\.0$/), undefined]);
    expect((await world.explain(container.id, 'b')).renamedTo).toEqual({ id: 'a', life: 1 });
    expect((await world.explain(container.id, 'first')).sentence).toContain('was deleted at');
    expect(await world.fsck()).toEqual([]);
  });

  test('works in a bulk request, in its turn among the operations on both ids', async () => {
    const container = await world.container();
    await container.items.create(doc('a'));
    const partitionKey = 'ann';
    const results = await container.items.executeBulkOperations([
      { operationType: Create, partitionKey, resourceBody: { id: 'b', customer: 'ann' } },
      { operationType: Delete, partitionKey, id: 'b' },
      { operationType: Replace, partitionKey, id: 'a', resourceBody: { id: 'b', customer: 'ann', n: 2 } },
      { operationType: Read, partitionKey, id: 'a' },
      { operationType: Read, partitionKey, id: 'b' },
      { operationType: Replace, partitionKey, id: 'a', resourceBody: { id: 'c', customer: 'ann' } },
    ]);
    const codes = results.map(({ response, error }) => response?.statusCode ?? error?.code);
    expect(codes).toEqual([201, 204, 200, 404, 200, 404]);
    expect(await world.fsck()).toEqual([]);
  });

  test('is refused if the log can not append to several streams at once, and writes nothing', async () => {
    const double = await EventStoreDouble.start();
    const other = await World.open({ eventStore: double.connectionString });
    try {
      const container = await other.container();
      await container.items.create(doc('a'));
      const refusal = await refusalOf(container.item('a', 'ann').replace(doc('b')));
      expect(refusal.code).toBe(400);
      expect(refusal.message).toContain("can't change an item's id");
      expect(await sightings(container, ['a', 'b'])).toEqual(seen('a'));
    } finally {
      await other.end();
      double.stop();
    }
  });
});
