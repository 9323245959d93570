import { BulkOperationType, ChangeFeedStartFrom, type Container } from '@azure/cosmos';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { anyContainer, refusalOf, World } from '../support/world.ts';
import { ALL_VERSIONS, from, keeping, page, readOn, told, type Version } from './support.ts';

let world: World;
beforeEach(async () => {
  world = await World.open({ policyGraceSeconds: 0 });
});
afterEach(() => world.end());

const MINUTE = 60_000;
const OUTSIDE = 'You must read the change feed from within the retention period.';
const now = { changeFeedStartFrom: ChangeFeedStartFrom.Now(), changeFeedMode: ALL_VERSIONS };
const versions = (container: Container, continuationToken: string) =>
  readOn<Version>(container, { changeFeedStartFrom: from(continuationToken), changeFeedMode: ALL_VERSIONS });

/** Sets or removes the retention as clients do: by a replace of the container. */
async function retain(container: Container, minutes: number | undefined): Promise<void> {
  const { resource } = await container.read();
  const { changeFeedPolicy: _, ...rest } = resource!;
  await container.replace({ ...rest, ...(minutes === undefined ? {} : keeping(minutes)) });
}

const floorOf = async (container: Container, target = world) => {
  const { resource } = await container.read();
  await target.stop();
  const storage = await openSqliteStorage({ folder: target.folder, clock: 'manual' });
  const floor = storage.vault.floors().get(resource!._rid)?.['change-feed'];
  await storage.close();
  await target.start();
  return floor;
};

describe('all versions and deletes', () => {
  test('of an item that is written again and again are read as fast as those of many items', async () => {
    const container = await world.container(keeping(60));
    await container.items.create({ id: 'a', customer: 'ann' });
    const { continuationToken } = await readOn(container, now);
    for (let round = 0; round < 40; round += 1) {
      const writes = Array.from({ length: 100 }, () => ({
        operationType: BulkOperationType.Upsert,
        resourceBody: { id: 'a', customer: 'ann', n: round },
      }));
      await container.items.batch(writes, 'ann');
    }
    const { changes, pages } = await versions(container, continuationToken);
    expect(changes).toHaveLength(4_000);
    // A page ends when its time is over.
    expect(pages).toBeLessThan(20);
  });

  test('come one by one: every write with its content, every delete and expiry with the content that was lost', async () => {
    const container = await world.container({ defaultTtl: -1, ...keeping(60) });
    const { continuationToken } = await readOn(container, now);
    await container.items.create({ id: 'a', customer: 'ann', n: 1 });
    await container.items.upsert({ id: 'a', customer: 'ann', n: 2 });
    await container.items.upsert({ id: 'b', customer: 'bob', ttl: 10 });
    await container.item('a', 'ann').patch([{ op: 'incr', path: '/n', value: 40 }]);
    await container.item('a', 'ann').replace({ id: 'a', customer: 'ann', n: 99 });
    await container.item('a', 'ann').delete();
    await world.advance(20_000);
    await world.purge();
    await container.items.create({ id: 'a', customer: 'ann', n: 0 });
    const { changes } = await versions(container, continuationToken);
    expect(told(changes)).toEqual([
      'create a',
      'replace a',
      'create b',
      'replace a',
      'replace a',
      'delete a',
      'delete b (expired)',
      'create a',
    ]);
    expect(changes.map(({ current }) => current['n'])).toEqual([1, 2, undefined, 42, 99, undefined, undefined, 0]);
    const lsns = changes.map(({ metadata }) => metadata.lsn);
    expect(lsns).toEqual(lsns.toSorted((left, right) => left - right));
    expect(new Set(lsns).size).toBe(lsns.length);
    const [first, second, , , fifth, deleted, expired] = changes;
    expect(first!.metadata).toEqual({ operationType: 'create', lsn: lsns[0], crts: first!.current['_ts'] });
    expect(second!.metadata).toMatchObject({ previousImageLSN: lsns[0] });
    expect(deleted).toMatchObject({
      current: {},
      previous: { id: 'a', n: 99, _ts: fifth!.metadata.crts, _rid: first!.current['_rid'] },
      metadata: { previousImageLSN: lsns[4], timeToLiveExpired: false, id: 'a', partitionKey: { customer: 'ann' } },
    });
    expect(expired).toMatchObject({
      previous: { id: 'b', ttl: 10 },
      metadata: { previousImageLSN: lsns[2], timeToLiveExpired: true, id: 'b', partitionKey: { customer: 'bob' } },
    });
    // The next life is another item, with a rid of its own.
    expect(changes[7]!.current['_rid']).not.toBe(first!.current['_rid']);
  });

  test('has an expiry that a later write found before that write', async () => {
    const container = await world.container({ defaultTtl: 10, ...keeping(60) });
    const { continuationToken } = await readOn(container, now);
    await container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(20_000);
    await container.items.upsert({ id: 'a', customer: 'ann', n: 2 });
    const { changes } = await versions(container, continuationToken);
    expect(told(changes)).toEqual(['create a', 'delete a (expired)', 'create a']);
  });

  test('stay readable for the retention, whatever the purge does, and then are gone for good', async () => {
    const container = await world.container({ defaultTtl: -1, ...keeping(10) });
    const { continuationToken: start } = await readOn(container, now);
    await container.items.create({ id: 'gone', customer: 'ann', ttl: 30 });
    await world.advance(MINUTE);
    await container.items.create({ id: 'deleted', customer: 'ann', n: 1 });
    await container.item('deleted', 'ann').delete();
    // The answer to a requested purge says what is kept for the feed, as the purge's status does.
    expect(await world.purge()).toMatchObject({ expired: 1, purged: 0, heldBack: 2 });
    await world.advance(9 * MINUTE);
    expect(await world.purge()).toMatchObject({ purged: 0, heldBack: 2 });
    expect((await world.manage('GET', '/purge')).body).toMatchObject({
      heldBack: 2,
      awaitingErasure: 0,
      state: 'idle',
    });
    const { changes, continuationToken } = await versions(container, start);
    expect(told(changes)).toEqual(
      ['create gone', 'delete gone (expired)', 'create deleted', 'delete deleted'].toSorted(
        (left, right) => told(changes).indexOf(left) - told(changes).indexOf(right),
      ),
    );
    expect(changes.filter(({ previous }) => previous !== undefined)).toHaveLength(2);
    await world.advance(3 * MINUTE);
    expect(await world.purge()).toMatchObject({ purged: 2, heldBack: 0 });
    expect(await refusalOf(versions(container, start))).toMatchObject({
      code: 400,
      message: expect.stringContaining(OUTSIDE),
    });
    // A client that had read to the end can continue.
    await container.items.create({ id: 'new', customer: 'ann' });
    expect(told((await versions(container, continuationToken)).changes)).toEqual(['create new']);
    expect(await world.fsck()).toEqual([]);
  });

  test('have a version within the retention even if it was replaced much later', async () => {
    const container = await world.container(keeping(10));
    const { continuationToken } = await readOn(container, now);
    for (let n = 0; n < 5; n += 1) {
      await container.items.upsert({ id: 'a', customer: 'ann', n });
      await world.advance(MINUTE);
    }
    await world.purge();
    const { changes } = await versions(container, continuationToken);
    expect(changes.map(({ current }) => current['n'])).toEqual([0, 1, 2, 3, 4]);
  });

  test('can be read from a time within the retention', async () => {
    const container = await world.container(keeping(10));
    await container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(5 * MINUTE);
    const since = new Date(await world.now());
    await container.items.create({ id: 'b', customer: 'ann' });
    await container.item('a', 'ann').delete();
    const { changes } = await readOn<Version>(container, {
      changeFeedStartFrom: ChangeFeedStartFrom.Time(since),
      changeFeedMode: ALL_VERSIONS,
    });
    expect(told(changes)).toEqual(['create b', 'delete a']);
  });

  test('of a partition key are only its own', async () => {
    const container = await world.container(keeping(10));
    const start = ChangeFeedStartFrom.Now('ann');
    const reading = await readOn(container, { changeFeedStartFrom: start, changeFeedMode: ALL_VERSIONS });
    for (const customer of ['ann', 'bob']) {
      await container.items.create({ id: 'a', customer });
      await container.item('a', customer).delete();
    }
    const { changes } = await versions(container, reading.continuationToken);
    expect(changes.map(({ metadata }) => metadata.partitionKey?.['customer'])).toEqual([undefined, 'ann']);
  });

  test('have a partition key of null, and no partition key for an item without one', async () => {
    const container = await world.container(keeping(10));
    const { continuationToken } = await readOn(container, now);
    await container.items.create({ id: 'a', customer: null });
    await container.item('a', null).delete();
    await container.items.create({ id: 'a' });
    await container.item('a', {}).delete();
    const { changes } = await versions(container, continuationToken);
    expect(told(changes)).toEqual(['create a', 'delete a', 'create a', 'delete a']);
    expect([changes[1], changes[3]].map((change) => change!.metadata.partitionKey)).toEqual([{ customer: null }, {}]);
  });

  test('have the deletes of a partition key at the time of its deletion, however late they are recorded', async () => {
    const container = await world.container(keeping(10));
    const { continuationToken } = await readOn(container, now);
    await container.items.create({ id: 'a', customer: 'ann' });
    await container.deleteAllItemsForPartitionKey('ann');
    const leftAt = Math.floor((await world.now()) / 1000);
    await world.advance(90_000);
    await world.purge();
    const { changes } = await versions(container, continuationToken);
    expect(told(changes)).toEqual(['create a', 'delete a']);
    expect(changes[1]?.metadata.crts).toBe(leftAt);
  });

  test('continue after a restart, in pages of any size', async () => {
    const container = await world.container(keeping(10));
    const { continuationToken } = await readOn(container, now);
    for (let n = 0; n < 4; n += 1) {
      await container.items.create({ id: `i${n}`, customer: 'ann' });
      await container.item(`i${n}`, 'ann').delete();
    }
    const whole = told((await versions(container, continuationToken)).changes);
    expect(whole).toHaveLength(8);
    const paged: string[] = [];
    let token = continuationToken;
    for (let round = 0; round < 4; round += 1) {
      const iterator = world.of(container.id).items.getChangeFeedIterator<Version>({
        changeFeedStartFrom: from(token),
        changeFeedMode: ALL_VERSIONS,
        maxItemCount: 3,
      });
      const read = await iterator.readNext();
      paged.push(...told(read.result ?? []));
      token = read.continuationToken;
      await world.restart();
    }
    expect(paged).toEqual(whole);
  });

  test('of one batch are on one page, and items that expired together come one by one', async () => {
    const container = await world.container({ defaultTtl: -1, ...keeping(10) });
    const { continuationToken } = await readOn(container, now);
    await container.items.batch(
      [
        ...['a', 'b'].map(
          (id) => ({ operationType: 'Create', resourceBody: { id, customer: 'ann', ttl: 10 } }) as const,
        ),
        { operationType: 'Create', resourceBody: { id: 'c', customer: 'ann' } },
        { operationType: 'Delete', id: 'c' },
      ],
      'ann',
    );
    await world.advance(10_000);
    await world.purge();
    const pages: string[][] = [];
    const iterator = container.items.getChangeFeedIterator<Version>({
      changeFeedStartFrom: from(continuationToken),
      changeFeedMode: ALL_VERSIONS,
      maxItemCount: 1,
    });
    for await (const { result = [] } of iterator.getAsyncIterator()) {
      if (result.length === 0) break;
      pages.push(told(result));
    }
    expect(pages).toEqual([
      ['create a', 'create b', 'create c', 'delete c'],
      ['delete a (expired)'],
      ['delete b (expired)'],
    ]);
  });

  test('of a deleted container are not kept', async () => {
    const container = await world.container({ defaultTtl: -1, ...keeping(1000) });
    await container.items.create({ id: 'a', customer: 'ann' });
    await container.items.create({ id: 'b', customer: 'ann' });
    await container.item('b', 'ann').delete();
    expect(await world.purge()).toMatchObject({ purged: 0 });
    await container.delete();
    expect(await world.purge()).toMatchObject({ purged: 2 });
  });
});

describe('a reading of all versions that can not be complete is refused with 400', () => {
  test('from the beginning, and from a time before the retention', async () => {
    const container = await world.container(keeping(10));
    await world.advance(60 * MINUTE);
    for (const changeFeedStartFrom of [
      ChangeFeedStartFrom.Beginning(),
      ChangeFeedStartFrom.Time(new Date((await world.now()) - 11 * MINUTE)),
    ]) {
      expect(await refusalOf(readOn(container, { changeFeedStartFrom, changeFeedMode: ALL_VERSIONS }))).toMatchObject({
        code: 400,
        message: expect.stringContaining(OUTSIDE),
      });
    }
  });

  test('from a time before the policy, or without a policy, which is answered with the name of the setting', async () => {
    const container = await world.container();
    await world.advance(MINUTE);
    expect(await refusalOf(readOn(container, now))).toMatchObject({
      code: 400,
      message: expect.stringContaining('changeFeedPolicy'),
    });
    const { continuationToken } = await readOn(container, { changeFeedStartFrom: ChangeFeedStartFrom.Now() });
    await container.items.create({ id: 'a', customer: 'ann' });
    await retain(container, 10);
    const before = ChangeFeedStartFrom.Time(new Date((await world.now()) - 30_000));
    const early = readOn(container, { changeFeedStartFrom: before, changeFeedMode: ALL_VERSIONS });
    expect((await refusalOf(early)).message).toContain(OUTSIDE);
    // A continuation of the other mode is a position in the same log, but this one is before the policy.
    expect((await refusalOf(versions(container, continuationToken))).message).toContain(OUTSIDE);
    const reading = await readOn(container, now);
    await container.item('a', 'ann').delete();
    expect(told((await versions(container, reading.continuationToken)).changes)).toEqual(['delete a']);
  });

  test('back to what a shorter retention has not kept', async () => {
    const container = await world.container(keeping(5));
    await world.advance(30 * MINUTE);
    await retain(container, 60);
    const reading = (minutesAgo: number, nowMs: number) =>
      readOn<Version>(container, {
        changeFeedStartFrom: ChangeFeedStartFrom.Time(new Date(nowMs - minutesAgo * MINUTE)),
        changeFeedMode: ALL_VERSIONS,
      });
    const nowMs = await world.now();
    expect((await refusalOf(reading(6, nowMs))).message).toContain(OUTSIDE);
    expect((await reading(4, nowMs)).changes).toEqual([]);
  });

  test.for([-1, 1.5, 43_201, '10', true])('a retention of %j minutes is refused', async (retentionDuration) => {
    const { database } = await world.client.databases.createIfNotExists({ id: 'shop' });
    const request = anyContainer({ id: 'bad', partitionKey: '/customer', changeFeedPolicy: { retentionDuration } });
    expect(await refusalOf(database.containers.create(request))).toMatchObject({
      code: 400,
      message: expect.stringContaining('retentionDuration'),
    });
  });

  test('a retention of 0 minutes, which the .NET client sends for none, means none', async () => {
    const container = await world.container(anyContainer({ changeFeedPolicy: { retentionDuration: 0 } }));
    expect((await refusalOf(readOn(container, now))).message).toContain('changeFeedPolicy');
    expect((await page(world, container.id)).status).toBe(304);
  });
});

describe("the vault's floor for the feed", () => {
  test('follows the policy when it is set, changed and removed; then the purge erases what the floor kept', async () => {
    let container = await world.container(keeping(10));
    expect(await floorOf(container)).toBe(11 * 60);
    container = world.of(container.id);
    await retain(container, 20);
    expect(await floorOf(container)).toBe(21 * 60);
    container = world.of(container.id);
    await container.items.create({ id: 'a', customer: 'ann' });
    await container.item('a', 'ann').delete();
    expect(await world.purge()).toMatchObject({ purged: 0 });
    await retain(container, undefined);
    expect(await world.purge()).toMatchObject({ purged: 1 });
    expect(await floorOf(container)).toBe(undefined);
  });

  test('is corrected at the start if the process crashed between setting it and changing the policy', async () => {
    let [kept, plain] = [await world.container(keeping(10)), await world.container()];
    const rids = [(await kept.read()).resource!._rid, (await plain.read()).resource!._rid];
    await world.stop();
    const storage = await openSqliteStorage({ folder: world.folder, clock: 'manual' });
    await storage.vault.setFloor(rids[0]!, 'change-feed', 0);
    await storage.vault.setFloor(rids[1]!, 'change-feed', 99_999);
    await storage.vault.setFloor('never-made', 'change-feed', 99_999);
    await storage.close();
    await world.start();
    [kept, plain] = [world.of(kept.id), world.of(plain.id)];
    for (const container of [kept, plain]) {
      await container.items.create({ id: 'a', customer: 'ann' });
      await container.item('a', 'ann').delete();
    }
    expect(await world.purge()).toMatchObject({ purged: 1 });
    expect(await world.explain(plain.id, 'a')).toMatchObject({ state: 'purged' });
    expect(await world.explain(kept.id, 'a')).toMatchObject({ state: 'deleted' });
    expect(await floorOf(kept)).toBe(11 * 60);
  });

  test('is neither set nor removed by a refused creation of an existing container', async () => {
    const container = await world.container(keeping(10));
    const { database } = await world.client.databases.createIfNotExists({ id: 'shop' });
    const again = { id: container.id, partitionKey: '/customer', ...keeping(500) };
    expect(await refusalOf(database.containers.create(again))).toMatchObject({ code: 409 });
    expect(await floorOf(container)).toBe(11 * 60);
  });

  test('does not delay the record of expiries, or other erasures', async () => {
    const automatic = await World.open({ policyGraceSeconds: 0, automaticPurge: true });
    try {
      const container = await automatic.container({ defaultTtl: 30, ...keeping(10) });
      const other = await automatic.container({ defaultTtl: 30 });
      const { continuationToken } = await readOn(container, now);
      for (const id of ['a', 'b']) {
        await container.items.create({ id, customer: 'ann' });
        await other.items.create({ id, customer: 'ann' });
        await automatic.advance(40_000);
        await expect
          .poll(async () => told((await versions(container, continuationToken)).changes))
          .toContain(`delete ${id} (expired)`);
        await expect.poll(async () => (await automatic.explain(other.id, id)).state).toBe('purged');
        expect((await automatic.explain(container.id, id)).state).toBe('expired');
      }
      // The purge is not tried again and again while nothing may be erased: each run would be an event in the log.
      await automatic.purge();
      const head = await automatic.head();
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      expect(await automatic.head()).toBe(head);
      await automatic.advance(12 * MINUTE);
      await expect.poll(async () => (await automatic.explain(container.id, 'a')).state).toBe('purged');
      expect(await automatic.fsck()).toEqual([]);
    } finally {
      await automatic.end();
    }
  });
});
