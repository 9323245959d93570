import { ChangeFeedStartFrom, PartitionKeyDefinitionVersion, PartitionKeyKind } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { effectivePartitionKey } from '@epitaph/core/partition-key/effective-partition-key.ts';
import { keyHeader, raw } from '../support/raw.ts';
import { statusOf, World } from '../support/world.ts';
import { documentsOf, estimated, from, ids, keeping, page, readOn, type LatestItem } from './support.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const beginning = ChangeFeedStartFrom.Beginning();

describe('the latest version of each item', () => {
  test('comes once, in the order of last writes, without deleted and expired ones, and then 304', async () => {
    const container = await world.container({ defaultTtl: -1 });
    const { items } = container;
    for (const id of ['a', 'b', 'c', 'd']) await items.create({ id, customer: 'ann', n: 1 });
    await items.upsert({ id: 'a', customer: 'ann', n: 2 });
    await container.item('b', 'ann').delete();
    await items.create({ id: 'e', customer: 'bob', ttl: 10 });
    await world.advance(20_000);
    await items.create({ id: 'f', customer: 'bob' });
    const { changes } = await readOn(container, { changeFeedStartFrom: beginning });
    expect(ids(changes)).toEqual(['c', 'd', 'a', 'f']);
    expect(changes[2]).toMatchObject({ id: 'a', n: 2 });
    const lsns = changes.map(({ _lsn }) => _lsn);
    expect(lsns).toEqual(lsns.toSorted((left, right) => left - right));
    // It has the same properties as in a point read.
    const { resource } = await container.item('a', 'ann').read<LatestItem>();
    const { _lsn, ...shown } = changes[2]!;
    expect(shown).toEqual(resource);
    expect(_lsn).toBeGreaterThan(0);
  });

  test.for([1, 2, 3, 100])('is complete in pages of %i', async (maxItemCount) => {
    const container = await world.container();
    for (let n = 0; n < 7; n += 1) await container.items.create({ id: `i${n}`, customer: n % 2 === 0 ? 'ann' : 'bob' });
    const { changes, pages } = await readOn(container, { changeFeedStartFrom: beginning, maxItemCount });
    expect(ids(changes)).toEqual(['i0', 'i1', 'i2', 'i3', 'i4', 'i5', 'i6']);
    expect(pages).toBeGreaterThanOrEqual(Math.ceil(7 / maxItemCount));
  });

  test.for([1, 2, 100])('of items from one batch is on one page, in pages of %i', async (maxItemCount) => {
    const container = await world.container();
    const { items } = container;
    await items.create({ id: 'alone', customer: 'ann' });
    const together = (...those: string[]) =>
      items.batch(
        those.map((id) => ({ operationType: 'Create', resourceBody: { id, customer: 'ann' } }) as const),
        'ann',
      );
    await together('a', 'b', 'c');
    await items.create({ id: 'bob', customer: 'bob' });
    await together('d', 'e');
    const pages: string[][] = [];
    const iterator = items.getChangeFeedIterator<LatestItem>({ changeFeedStartFrom: beginning, maxItemCount });
    for await (const { result = [] } of iterator.getAsyncIterator()) {
      if (result.length === 0) break;
      pages.push(ids(result));
    }
    const expected = {
      1: [['alone'], ['a', 'b', 'c'], ['bob'], ['d', 'e']],
      2: [
        ['alone', 'a', 'b', 'c'],
        ['bob', 'd', 'e'],
      ],
      100: [['alone', 'a', 'b', 'c', 'bob', 'd', 'e']],
    };
    expect(pages).toEqual(expected[maxItemCount as keyof typeof expected]);
    // An estimator counts each change, even if its page has several.
    const { changes } = await readOn(container, { changeFeedStartFrom: beginning });
    const behindFirst = { 'if-none-match': `"${changes[0]!._lsn}"`, 'x-ms-max-item-count': '1' };
    expect(estimated(await page(world, container.id, behindFirst))).toBe(6);
  });

  test('continues from a continuation, after a restart too, with what was written meanwhile', async () => {
    let container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    await container.items.create({ id: 'b', customer: 'ann' });
    const first = await readOn(container, { changeFeedStartFrom: beginning });
    await container.items.upsert({ id: 'a', customer: 'ann', n: 2 });
    await world.restart();
    container = world.of(container.id);
    await container.items.create({ id: 'c', customer: 'ann' });
    const second = await readOn(container, { changeFeedStartFrom: from(first.continuationToken) });
    expect(ids(second.changes)).toEqual(['a', 'c']);
    const third = await readOn(container, { changeFeedStartFrom: from(second.continuationToken) });
    expect(third.changes).toEqual([]);
  });

  test('from now on has later writes and no earlier ones', async () => {
    const container = await world.container();
    await container.items.create({ id: 'old', customer: 'ann' });
    const iterator = container.items.getChangeFeedIterator<LatestItem>({
      changeFeedStartFrom: ChangeFeedStartFrom.Now(),
    });
    expect((await iterator.readNext()).statusCode).toBe(304);
    await container.items.create({ id: 'new', customer: 'ann' });
    expect(ids((await iterator.readNext()).result)).toEqual(['new']);
    expect((await iterator.readNext()).statusCode).toBe(304);
  });

  test('from a time on has the items that were written at or after it, also older ones', async () => {
    const container = await world.container();
    for (const id of ['a', 'b', 'c']) await container.items.create({ id, customer: 'ann' });
    await world.advance(100_000);
    const since = new Date(await world.now());
    await world.advance(1_000);
    await container.items.upsert({ id: 'b', customer: 'ann', n: 2 });
    await container.items.create({ id: 'd', customer: 'ann' });
    const changeFeedStartFrom = ChangeFeedStartFrom.Time(since);
    expect(ids((await readOn(container, { changeFeedStartFrom })).changes)).toEqual(['b', 'd']);
    expect(ids((await readOn(container, { changeFeedStartFrom, maxItemCount: 1 })).changes)).toEqual(['b', 'd']);
    const later = ChangeFeedStartFrom.Time(new Date(since.getTime() + 3_600_000));
    expect((await readOn(container, { changeFeedStartFrom: later })).changes).toEqual([]);
    const earlier = ChangeFeedStartFrom.Time(new Date(since.getTime() - 10_000));
    expect(ids((await readOn(container, { changeFeedStartFrom: earlier })).changes)).toEqual(['b', 'd']);
  });

  test('from any time on is what the times of all writes say', async () => {
    const container = await world.container();
    const written: { id: string; ts: number }[] = [];
    for (let n = 0; n < 12; n += 1) {
      const { resource } = await container.items.create({ id: `i${n}`, customer: 'ann' });
      written.push({ id: `i${n}`, ts: resource!._ts });
      await world.advance([500, 1_500, 70_000][n % 3]!);
    }
    for (let ts = written[0]!.ts - 1; ts <= written.at(-1)!.ts + 1; ts += 1) {
      const changeFeedStartFrom = ChangeFeedStartFrom.Time(new Date(ts * 1000));
      const { changes } = await readOn(container, { changeFeedStartFrom });
      expect(ids(changes)).toEqual(ids(written.filter((item) => item.ts >= ts)));
      if (ts > written[0]!.ts + 3 && ts % 10 !== 0) ts += 6;
    }
  });

  test('of a partition key has no changes of others', async () => {
    const container = await world.container();
    for (let n = 0; n < 6; n += 1) await container.items.create({ id: `i${n}`, customer: n % 2 === 0 ? 'ann' : 'bob' });
    const first = await readOn(container, {
      changeFeedStartFrom: ChangeFeedStartFrom.Beginning('ann'),
      maxItemCount: 2,
    });
    expect(ids(first.changes)).toEqual(['i0', 'i2', 'i4']);
    await container.items.create({ id: 'i6', customer: 'bob' });
    await container.items.create({ id: 'i7', customer: 'ann' });
    const second = await readOn(container, { changeFeedStartFrom: from(first.continuationToken) });
    expect(ids(second.changes)).toEqual(['i7']);
  });

  test('of all feed ranges together is complete, with each item in one of them', async () => {
    const container = await world.container({ throughput: 18_000 });
    for (let n = 0; n < 20; n += 1) await container.items.create({ id: `i${n}`, customer: `customer ${n}` });
    const whole = await readOn(container, { changeFeedStartFrom: beginning, maxItemCount: 2 });
    expect(ids(whole.changes).toSorted()).toEqual(Array.from({ length: 20 }, (_, n) => `i${n}`).toSorted());
    const found: string[] = [];
    const ranges = await container.getFeedRanges();
    expect(ranges).toHaveLength(3);
    for (const range of ranges) {
      const reading = await readOn(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(range) });
      found.push(...ids(reading.changes));
    }
    expect(found.toSorted()).toEqual(Array.from({ length: 20 }, (_, n) => `i${n}`).toSorted());
  });

  test('of a range of effective partition keys has exactly the items in it', async () => {
    const container = await world.container({
      partitionKey: { paths: ['/customer'], version: PartitionKeyDefinitionVersion.V2 },
    });
    const all = Array.from({ length: 30 }, (_, n) => `i${n}`);
    for (const [n, id] of all.entries()) await container.items.create({ id, customer: `customer ${n}` });
    const { resource } = await container.read();
    const place = (n: number) =>
      effectivePartitionKey(resource!.partitionKey as never, JSON.stringify([`customer ${n}`]));
    const middle = place(7);
    const below = documentsOf(await page(world, container.id, { 'x-ms-start-epk': '', 'x-ms-end-epk': middle }));
    const above = documentsOf(await page(world, container.id, { 'x-ms-start-epk': middle, 'x-ms-end-epk': 'FF' }));
    expect(ids(below)).toEqual(all.filter((_, n) => place(n) < middle));
    expect(ids(above)).toEqual(all.filter((_, n) => place(n) >= middle));
    expect(ids(above)).toContain('i7');
  });

  test('of a prefix of a hierarchical key has all keys with this prefix', async () => {
    const container = await world.container({
      partitionKey: { paths: ['/customer', '/city'], kind: PartitionKeyKind.MultiHash },
    });
    for (const [id, customer, city] of [
      ['a', 'ann', 'rome'],
      ['b', 'ann', 'oslo'],
      ['c', 'anna', 'rome'],
      ['d', 'bob', 'rome'],
    ] as const) {
      await container.items.create({ id, customer, city });
    }
    const reply = await page(world, container.id, keyHeader('ann'));
    expect(ids(documentsOf(reply))).toEqual(['a', 'b']);
    const reading = await readOn(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(['ann', 'oslo']) });
    expect(ids(reading.changes)).toEqual(['b']);
    const prefixed = await readOn(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(['ann']) });
    expect(ids(prefixed.changes)).toEqual(['a', 'b']);
  });

  test('has nothing of another container, nor of an earlier one of the same name', async () => {
    const container = await world.container();
    await container.items.create({ id: 'before', customer: 'ann' });
    await container.delete();
    const again = await world.container({ id: container.id });
    const other = await world.container();
    await other.items.create({ id: 'other', customer: 'ann' });
    await again.items.create({ id: 'after', customer: 'ann' });
    expect(ids((await readOn(again, { changeFeedStartFrom: beginning })).changes)).toEqual(['after']);
  });

  test('skips what expired and was purged between two pages', async () => {
    const container = await world.container({ defaultTtl: 10 });
    for (let n = 0; n < 4; n += 1)
      await container.items.create({ id: `i${n}`, customer: 'ann', ttl: n === 1 ? 1000 : 10 });
    const first = await page(world, container.id, { 'x-ms-max-item-count': '1' });
    expect(ids(documentsOf(first))).toEqual(['i0']);
    await world.advance(20_000);
    await world.purge();
    const rest = await page(world, container.id, { 'if-none-match': String(first.headers['etag']) });
    expect(ids(documentsOf(rest))).toEqual(['i1']);
    expect(await world.fsck()).toEqual([]);
  });

  test('of a deleted container is 404', async () => {
    const container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: beginning, maxItemCount: 1 });
    await iterator.readNext();
    await container.delete();
    expect(await statusOf(iterator.readNext())).toBe(404);
  });
});

describe('a page', () => {
  test('examines little more of the log than it needs, in larger steps if little of it is in its scope', async () => {
    const { id, items } = await world.container();
    for (let n = 0; n < 40; n += 1) await items.create({ id: `i${n}`, customer: n === 39 ? 'bob' : 'ann' });
    const container = world.store.container('shop', id);
    const start = { kind: 'beginning' } as const;
    const read = (scope: object) =>
      world.store.readChangeFeed(container, { mode: 'latest', start, scope, maxItemCount: 4 });
    const first = await read({});
    expect(first.changes).toHaveLength(4);
    expect(first.examined).toBe(16);
    const bobs = await read({ partitionKey: '["bob"]' });
    expect(bobs).toMatchObject({ changes: { length: 1 }, reachedEnd: true });
    expect(bobs.examined).toBeLessThan(200);
  });
});

describe("the client's older iterators", () => {
  test('read a partition key to its end', async () => {
    const container = await world.container();
    for (let n = 0; n < 5; n += 1) await container.items.create({ id: `i${n}`, customer: n === 2 ? 'bob' : 'ann' });
    for (const read of [
      () => container.items.changeFeed<LatestItem>('ann', { startFromBeginning: true, maxItemCount: 2 }),
      () => container.items.readChangeFeed<LatestItem>('ann', { startFromBeginning: true, maxItemCount: 2 }),
    ]) {
      const found: string[] = [];
      for await (const { result } of read().getAsyncIterator()) found.push(...ids(result));
      expect(found).toEqual(['i0', 'i1', 'i3', 'i4']);
    }
  });

  test('continue from a continuation, and begin now by default', async () => {
    const container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    const iterator = container.items.changeFeed<LatestItem>('ann');
    expect((await iterator.fetchNext()).count).toBe(0);
    expect(iterator.hasMoreResults).toBe(false);
    await container.items.create({ id: 'b', customer: 'ann' });
    const next = await iterator.fetchNext();
    expect(ids(next.result)).toEqual(['b']);
    await container.items.create({ id: 'c', customer: 'ann' });
    const resumed = container.items.changeFeed<LatestItem>('ann', { continuation: next.continuation });
    expect(ids((await resumed.fetchNext()).result)).toEqual(['c']);
  });

  test('begin at a time', async () => {
    const container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(10_000);
    const startTime = new Date(await world.now());
    await container.items.create({ id: 'b', customer: 'ann' });
    const iterator = container.items.changeFeed<LatestItem>('ann', { startTime });
    expect(ids((await iterator.fetchNext()).result)).toEqual(['b']);
    expect((await iterator.fetchNext()).count).toBe(0);
  });
});

describe('over bare HTTP', () => {
  test('an answer has its position as etag, which moves past everything that was examined', async () => {
    const container = await world.container();
    const other = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    const first = await page(world, container.id);
    expect(first.status).toBe(200);
    expect(first.headers).toMatchObject({ 'x-ms-item-count': '1', etag: expect.stringMatching(/^"\d+"$/) });
    expect(first.headers['x-ms-session-token']).toMatch(/^0:-1#\d+$/);
    await other.items.create({ id: 'b', customer: 'ann' });
    const second = await page(world, container.id, { 'if-none-match': String(first.headers['etag']) });
    expect(second.status).toBe(304);
    expect(second.text).toBe('');
    const ofRange = await page(world, container.id, { 'x-ms-documentdb-partitionkeyrangeid': '0' });
    expect(ofRange.headers['x-ms-documentdb-partitionkeyrangeid']).toBe('0');
    const place = (etag: unknown) => Number(String(etag).slice(1, -1));
    expect(place(second.headers['etag'])).toBeGreaterThan(place(first.headers['etag']));
  });

  test('clients that ask for it get entries in the form of all versions, but without the operation', async () => {
    const container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    await container.items.upsert({ id: 'a', customer: 'ann', n: 2 });
    const [plain] = documentsOf(await page(world, container.id));
    const reply = await page(world, container.id, { 'x-ms-cosmos-changefeed-wire-format-version': '2021-09-15' });
    expect(reply.json?.['Documents']).toEqual([{ current: plain, metadata: { lsn: plain!._lsn, crts: plain!._ts } }]);
    expect(plain).toMatchObject({ id: 'a', n: 2 });
  });

  test.for<[string, Record<string, string>]>([
    ['latest versions', {}],
    ['all versions and deletes', { 'a-im': 'Full-Fidelity Feed' }],
  ])(
    'an estimator counts the changes that remain of %s by the first one, and no other container’s',
    async ([_, mode]) => {
      const { items, id } = await world.container(keeping(60));
      const other = await world.container();
      const start = await page(world, id, { ...mode, 'if-none-match': '*' });
      const ask = (continuation: unknown) =>
        page(world, id, { ...mode, 'if-none-match': String(continuation), 'x-ms-max-item-count': '1' });
      const left = async (continuation: unknown) => estimated(await ask(continuation));
      expect(await left(start.headers['etag'])).toBe(0);

      for (let n = 0; n < 30; n += 1) {
        await other.items.create({ id: `o${n}`, customer: 'ann' });
        if (n % 10 === 0) await items.create({ id: `i${n}`, customer: 'ann' });
      }
      expect(await left(start.headers['etag'])).toBe(3);
      await items.upsert({ id: 'i0', customer: 'ann', n: 2 });
      await items.create({ id: 'later', customer: 'bob' });
      await other.items.create({ id: 'last', customer: 'ann' });

      const counts: number[] = [];
      let reply = await ask(start.headers['etag']);
      for (; reply.status === 200; reply = await ask(reply.headers['etag'])) counts.push(estimated(reply));
      expect(counts).toEqual('a-im' in mode ? [5, 4, 3, 2, 1] : [4, 3, 2, 1]);
      expect(estimated(reply)).toBe(0);
      // From an earlier position again, and for one partition key alone.
      expect(await left(start.headers['etag'])).toBe(counts[0]);
      const bob = { ...mode, 'if-none-match': String(start.headers['etag']), 'x-ms-max-item-count': '1' };
      expect(estimated(await page(world, id, { ...bob, 'x-ms-documentdb-partitionkey': '["bob"]' }))).toBe(1);
    },
  );

  test('an estimator does not count items that were deleted or have expired', async () => {
    const container = await world.container({ defaultTtl: -1 });
    for (const id of ['a', 'b', 'c']) await container.items.create({ id, customer: 'ann' });
    await container.items.create({ id: 'd', customer: 'ann', ttl: 10 });
    await container.item('b', 'ann').delete();
    const ask = async () => estimated(await page(world, container.id, { 'x-ms-max-item-count': '1' }));
    expect(await ask()).toBe(3);
    await world.advance(20_000);
    await container.item('a', 'ann').delete();
    await world.restart();
    expect(await ask()).toBe(1);
  });

  test('a page ends when its documents get large, and the next one continues it', async () => {
    const container = await world.container();
    const text = 'x'.repeat(1_500_000);
    for (let n = 0; n < 5; n += 1) await container.items.create({ id: `i${n}`, customer: 'ann', text });
    const first = await page(world, container.id);
    expect(ids(documentsOf(first))).toEqual(['i0', 'i1', 'i2']);
    const { changes } = await readOn(container, { changeFeedStartFrom: beginning });
    expect(ids(changes)).toEqual(['i0', 'i1', 'i2', 'i3', 'i4']);
  });

  test.for<[string, Record<string, string>, string]>([
    ['an unknown mode', { 'a-im': 'Some Feed' }, 'A-IM'],
    ['an invalid continuation', { 'if-none-match': '"abc"' }, 'Invalid Continuation Token'],
    ['a continuation of another log', { 'if-none-match': '"99999999"' }, 'beyond the end of the log'],
    ['a continuation with too large a number', { 'if-none-match': '"9999999999999999"' }, 'Invalid Continuation Token'],
    ['an invalid time', { 'if-modified-since': 'yesterday' }, 'If-Modified-Since'],
    ['an invalid range', { 'x-ms-start-epk': 'xyz' }, 'effective partition key'],
    ['an invalid page size', { 'x-ms-max-item-count': '-3' }, 'The input PageSize -3 is invalid.'],
    ['an invalid partition key', { 'x-ms-documentdb-partitionkey': '"a"' }, 'Partition key'],
  ])('%s is refused with 400', async ([_, headers, message]) => {
    const container = await world.container();
    const reply = await page(world, container.id, headers);
    expect(reply.status).toBe(400);
    expect(reply.json).toMatchObject({ code: 'BadRequest', message: expect.stringContaining(message) });
  });

  test('a query of the change feed is refused with 400, and not answered from the items', async () => {
    const container = await world.container();
    const reply = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
      headers: { 'a-im': 'Incremental Feed', 'content-type': 'application/query+json' },
      body: JSON.stringify({ query: 'SELECT * FROM c' }),
    });
    expect(reply.status).toBe(400);
    expect(reply.json).toMatchObject({ message: expect.stringContaining('change feed') });
  });

  test.for<[string, string]>([
    // `time.RFC1123` of Go, in which its client writes times.
    ['Fri, 01 Jan 2021 00:00:00 UTC', 'a time that says UTC'],
    // `DateTimeFormatter.RFC_1123_DATE_TIME` of Java.
    ['Fri, 1 Jan 2021 00:00:00 GMT', 'a day of one digit'],
    // The Java and the .NET client send this for the beginning.
    ['Mon, 01 Jan 0001 00:00:00 GMT', 'the year 1'],
  ])('a time may be %s: %s', async ([time]) => {
    const container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    const reply = await page(world, container.id, { 'if-modified-since': time });
    expect(ids(documentsOf(reply))).toEqual(['a']);
  });

  test('modes are recognised in upper and lower case, because clients differ', async () => {
    const container = await world.container();
    expect((await page(world, container.id, { 'a-im': 'Incremental feed' })).status).toBe(304);
  });
});
