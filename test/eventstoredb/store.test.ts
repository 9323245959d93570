import { ChangeFeedStartFrom, type ErrorResponse } from '@azure/cosmos';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { ItemAsOf } from '@epitaph/api/store/api/history-api.ts';
import { CLAIM_MS, Scavenges } from '@epitaph/projections/purge/scavenges.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';
import { START_MS, World, refusalOf, seen, sightings, statusOf } from '../e2e/support/world.ts';
import { CALLER, Place, write } from '../backup/setup.ts';
import { DEFINITION } from '../support/definition.ts';
import { DoubleLog } from './double-log.ts';
import { EventStoreDouble } from './double.ts';
import { Proxy } from './proxy.ts';

const metricsOf = async (endpoint: string): Promise<string> => {
  const answer = await fetch(`${endpoint}/_epitaph/metrics`, { headers: { authorization: `Bearer ${EMULATOR_KEY}` } });
  return answer.text();
};
const newId = () => crypto.randomUUID();

let double: EventStoreDouble;
let proxy: Proxy;
let world: World;

beforeEach(async () => {
  double = await EventStoreDouble.start();
  proxy = await Proxy.to(double.port);
  world = await World.open({ eventStore: proxy.connectionString, policyGraceSeconds: 0 });
});

afterEach(async () => {
  proxy.mend();
  await world.end();
  await proxy.close();
  double.stop();
});

test('a store with its log on an event store creates, reads, changes, queries and deletes', async () => {
  const container = await world.container();
  const created = await container.items.create({ id: 'a', customer: 'ann', n: 1, text: 'ä'.repeat(5_000) });
  expect(created.resource).toMatchObject({ id: 'a', n: 1 });
  expect((await container.item('a', 'ann').read()).resource).toMatchObject({ n: 1, text: 'ä'.repeat(5_000) });
  await container.item('a', 'ann').replace({ id: 'a', customer: 'ann', n: 2 });
  await container.item('a', 'ann').patch([{ op: 'incr', path: '/n', value: 5 }]);
  await container.items.upsert({ id: 'b', customer: 'ann', n: 9 });
  expect(await statusOf(container.items.create({ id: 'a', customer: 'ann' }))).toBe(409);
  const stale = { accessCondition: { type: 'IfMatch', condition: created.etag } };
  expect(await statusOf(container.item('a', 'ann').delete(stale))).toBe(412);
  const query = 'SELECT VALUE c.n FROM c WHERE c.customer = "ann" ORDER BY c.n';
  expect((await container.items.query<number>(query).fetchAll()).resources).toEqual([7, 9]);
  await container.item('b', 'ann').delete();
  expect(await sightings(container, ['a', 'b'])).toEqual(seen('a'));
  expect((await world.history('c1', 'a')).map(({ type }) => type)).toEqual([
    'ItemUpserted',
    'ItemUpserted',
    'ItemUpserted',
  ]);
  expect(await world.fsck()).toEqual([]);
});

test('items expire on time, are purged, truncated by $tb, scavenged, and stay explained', async () => {
  const container = await world.container({ defaultTtl: 60 });
  await container.items.create({ id: 'a', customer: 'ann', secret: 'of the moment' });
  await container.item('a', 'ann').replace({ id: 'a', customer: 'ann', secret: 'of another' });
  await container.items.create({ id: 'kept', customer: 'ann', ttl: -1 });
  await world.advance(59_000);
  expect(await sightings(container, ['a', 'kept'])).toEqual(seen('a', 'kept'));
  await world.advance(1_000);
  expect(await sightings(container, ['a', 'kept'])).toEqual(seen('kept'));
  expect(await world.purge()).toMatchObject({ expired: 1, purged: 1 });

  const purged = double.log.readForwards(undefined).find(({ type }) => type === 'ItemPurged')!;
  const remains = { sealedBytes: expect.any(Number), removedBy: 'scavenge' };
  expect((await world.history('c1', 'a')).at(-1)?.data['remains']).toEqual(remains);
  expect(await world.explain('c1', 'a')).toMatchObject({
    remains,
    sentence: expect.stringMatching(
      /erased at .*; \d+ sealed bytes, which nothing opens any more, .* next scavenge\.$/,
    ),
  });
  expect(double.log.readStream(purged.stream)!.map(({ type }) => type)).toEqual(['ItemExpired', 'ItemPurged']);
  const inAll = () => double.log.readForwards(undefined).filter(({ stream }) => stream === purged.stream).length;
  expect(inAll()).toBe(4);
  expect((await world.manage('GET', '/purge')).body).toMatchObject({
    scavenge: { livesWaiting: 1, last: null, everySeconds: null, nextAt: null },
  });
  expect(await world.manage('POST', '/purge/scavenge')).toMatchObject({
    status: 200,
    body: { scavenge: { livesWaiting: 0, last: { id: double.scavenges[0], state: 'done' } } },
  });
  expect(await world.manage('GET', '/history')).toMatchObject({
    body: {
      events: expect.arrayContaining([expect.objectContaining({ type: 'ScavengeStarted', actor: 'key:primary' })]),
    },
  });
  expect(inAll()).toBe(2);

  const check = async () => {
    expect((await world.explain('c1', 'a')).state).toBe('purged');
    expect((await world.history('c1', 'a')).map(({ type }) => type)).toEqual([
      'ItemUpserted',
      'ItemUpserted',
      'ItemExpired',
      'ItemPurged',
    ]);
    expect((await world.disappearances('c1')).disappearances).toMatchObject([{ id: 'a' }]);
    const { status, body } = await world.manage(
      'GET',
      '/dbs/shop/colls/c1/certificate?id=a&partitionKey=["ann"]&life=0',
    );
    expect([status, body]).toMatchObject([200, { facts: [{ leaf: 6 }, { leaf: 7 }] }]);
    expect(await sightings(world.of('c1'), ['a', 'kept'])).toEqual(seen('kept'));
    expect(await world.fsck()).toEqual([]);
  };
  await check();
  await world.restart();
  await check();
  await world.of('c1').items.create({ id: 'a', customer: 'ann', life: 2 });
  expect(await sightings(world.of('c1'), ['a', 'kept'])).toEqual(seen('a', 'kept'));
});

test('events of another program in the streams of items change nothing, are reported, and don’t prevent the end of other items', async () => {
  const container = await world.container({ defaultTtl: 60 });
  for (const id of ['overdue', 'live', 'other']) {
    await container.items.create({ id, customer: 'ann', ...(id === 'live' ? { ttl: -1 } : {}) });
  }
  const [overdue, live] = double.log.readForwards(undefined).filter(({ type }) => type === 'ItemUpserted');
  for (const { stream } of [overdue!, live!]) {
    const nothing = Buffer.from('{}');
    const event = { id: newId(), type: 'Ordered', contentType: 'application/json', metadata: nothing, data: nothing };
    expect(double.log.append(stream, 0, [event]).kind).toBe('appended');
  }
  expect(await world.explain('c1', 'live')).toMatchObject({ state: 'live' });
  await world.advance(60_000);
  expect(await world.manage('POST', '/purge/run')).toMatchObject({
    status: 500,
    body: { code: 'purge-fault', detail: expect.stringContaining(`${overdue!.stream} ends at revision 1`) },
  });
  const states = ['overdue', 'live', 'other'].map(async (id) => (await world.explain('c1', id)).state);
  expect(await Promise.all(states)).toEqual(['expired', 'live', 'purged']);
  expect(await statusOf(container.item('live', 'ann').replace({ id: 'live', customer: 'ann' }))).toBe(500);
  const { problems } = (await world.manage('POST', '/fsck')).body as { problems: { code: string; subject: string }[] };
  expect(problems.map(({ code, subject }) => [code, subject])).toEqual([
    ['writes-missing', overdue!.stream],
    ['writes-missing', live!.stream],
  ]);
});

test.each([
  { how: '', isForGood: false },
  { how: ' for good', isForGood: true },
])(
  'a stream that another program has deleted$how takes no more events, and appends to it do not affect other items',
  async ({ isForGood }) => {
    const container = await world.container();
    for (const id of ['a', 'b']) await container.items.create({ id, customer: 'ann' });
    await container.item('a', 'ann').delete();
    await world.purge();
    const { stream } = double.log.readForwards(undefined).find(({ type }) => type === 'ItemPurged')!;
    if (isForGood) double.log.tombstone(stream);
    else double.log.deleteStream(stream);

    const told = async () => {
      for (const what of ['explain', 'history']) {
        const target = `/dbs/shop/colls/c1/${what}?id=a&partitionKey=["ann"]`;
        expect(await world.manage('GET', target)).toMatchObject({
          status: 500,
          body: { detail: expect.stringContaining(`lost the last event of ${stream}`) },
        });
      }
    };
    await told();
    expect(await statusOf(container.items.create({ id: 'a', customer: 'ann' }))).toBe(500);
    await container.items.upsert({ id: 'b', customer: 'ann', n: 2 });
    await container.items.create({ id: 'c', customer: 'ann' });
    expect(await sightings(container, ['a', 'b', 'c'])).toEqual(seen('b', 'c'));
    if (!isForGood) expect(double.log.readStream(stream)).toEqual([]);
    await told();
    await world.restart();
    expect(await sightings(world.of('c1'), ['a', 'b', 'c'])).toEqual(seen('b', 'c'));
    const problem = { code: 'writes-missing', subject: stream, message: expect.any(String) };
    expect(await world.fsck()).toEqual([problem]);
    await world.manage('POST', '/projections/items/rebuild');
    await expect
      .poll(async () => (await world.manage('GET', '/projections/items/rebuild')).body)
      .toMatchObject({ state: 'done' });
    expect(await sightings(world.of('c1'), ['a', 'b', 'c'])).toEqual(seen('b', 'c'));
  },
);

test('existing items whose streams another program has deleted for good are reported, and don’t prevent the end of other items', async () => {
  const container = await world.container({ defaultTtl: 60 });
  for (const id of ['overdue', 'live', 'other']) {
    await container.items.create({ id, customer: 'ann', ...(id === 'live' ? { ttl: -1 } : {}) });
  }
  const [overdue, live] = double.log.readForwards(undefined).filter(({ type }) => type === 'ItemUpserted');
  for (const { stream } of [overdue!, live!]) double.log.tombstone(stream);
  await world.advance(60_000);
  expect(await world.manage('POST', '/purge/run')).toMatchObject({
    status: 500,
    body: { code: 'purge-fault', detail: expect.stringContaining(`nothing of ${overdue!.stream}`) },
  });
  expect(await world.explain('c1', 'other')).toMatchObject({ state: 'purged' });
  expect(await statusOf(container.item('live', 'ann').replace({ id: 'live', customer: 'ann' }))).toBe(500);
  const problems = await world.fsck();
  expect(problems.map(({ code }) => code)).toEqual(['writes-missing', 'writes-missing']);
});

test('an event that a node appended to a deleted stream, and could not hide before it died, is ignored by all nodes and rebuilds', async () => {
  const container = await world.container();
  for (const id of ['a', 'b']) await container.items.create({ id, customer: 'ann' });
  await container.item('a', 'ann').delete();
  const created = double.log.readForwards(undefined).find(({ type }) => type === 'ItemUpserted')!;
  await world.purge();
  const { stream } = created;
  double.log.deleteStream(stream);
  expect(double.log.append(stream, -1, [{ ...created, id: newId() }])).toMatchObject({ last: { revision: 3 } });

  await container.items.create({ id: 'c', customer: 'ann' });
  expect(await sightings(container, ['a', 'b', 'c'])).toEqual(seen('b', 'c'));
  expect(await statusOf(container.items.create({ id: 'a', customer: 'ann' }))).toBe(500);
  await world.restart();
  expect(await sightings(world.of('c1'), ['a', 'b', 'c'])).toEqual(seen('b', 'c'));
  expect(await world.fsck()).toEqual([{ code: 'writes-missing', subject: stream, message: expect.any(String) }]);
  await world.manage('POST', '/projections/items/rebuild');
  await expect
    .poll(async () => (await world.manage('GET', '/projections/items/rebuild')).body)
    .toMatchObject({ state: 'done' });
  expect(await sightings(world.of('c1'), ['a', 'b', 'c'])).toEqual(seen('b', 'c'));
});

test('a schedule starts a scavenge if the last one is long enough ago and something was purged since', async () => {
  await world.end();
  double.log = new DoubleLog();
  world = await World.open({ eventStore: proxy.connectionString, policyGraceSeconds: 0, scavengeEverySeconds: 3_600 });
  const container = await world.container({ defaultTtl: 60 });
  const scavenge = async () => ((await world.manage('GET', '/purge')).body as { scavenge: unknown }).scavenge;
  const purgeOne = async (id: string) => {
    await world.of('c1').items.create({ id, customer: 'ann' });
    await world.advance(60_000);
    await world.purge();
  };
  await world.restart();
  expect(await scavenge()).toMatchObject({ livesWaiting: 0, last: null, everySeconds: 3_600, nextAt: null });
  expect(double.scavenges).toEqual([]);

  await purgeOne('a');
  const firstMs = START_MS + 60_000;
  // The store checks the schedule when it starts, and every few seconds after that.
  await world.restart();
  await expect.poll(scavenge).toMatchObject({
    livesWaiting: 0,
    last: { state: 'done', startedAtMs: firstMs },
    nextAt: null,
  });
  expect(await scavenge()).toMatchObject({ last: { id: double.scavenges[0] } });
  expect(await sightings(container, ['a'])).toEqual(seen());

  await purgeOne('b');
  await world.restart();
  const nextAtMs = firstMs + 3_600_000;
  expect(await scavenge()).toMatchObject({ livesWaiting: 1, nextAt: new Date(nextAtMs).toISOString(), nextAtMs });
  await world.advance(nextAtMs - (START_MS + 120_000));
  await world.restart();
  await expect.poll(scavenge).toMatchObject({ livesWaiting: 0, last: { state: 'done', startedAtMs: nextAtMs } });
  expect(double.scavenges).toHaveLength(2);
  const metrics = await metricsOf(world.endpoint);
  expect(metrics).toContain('epitaph_scavenge_state{state="done"} 1');
  expect(metrics).toContain(`epitaph_scavenge_last_start_timestamp_seconds ${nextAtMs / 1000}`);
});

test('a schedule begins with the first purge, with the system clock as well', async () => {
  await world.end();
  double.log = new DoubleLog();
  world = await World.open({ eventStore: proxy.connectionString, clock: 'system', scavengeEverySeconds: 3_600 });
  const container = await world.container();
  await container.items.create({ id: 'a', customer: 'ann' });
  await container.item('a', 'ann').delete();
  expect(await world.purge()).toMatchObject({ purged: 1 });
  await world.restart();
  await expect.poll(() => double.scavenges.length, { timeout: 5_000 }).toBe(1);
});

test('of several nodes with one schedule only one starts the scavenge, and another if that one dies during it', async () => {
  const logs = await Promise.all([1, 2, 3].map(() => openEventStoreLog({ connectionString: double.connectionString })));
  const nodes = logs.map((log) => new Scavenges(log));
  const at = (nowMs: number) => ({ nowMs, actor: 'system:schedule', correlationId: newId(), newId });
  const allAt = (nowMs: number) => Promise.all(nodes.map((node) => node.startIfDue(at(nowMs), 3_600_000, 5)));
  try {
    expect((await allAt(0)).filter(Boolean)).toEqual([true]);
    expect(double.scavenges).toHaveLength(1);
    expect(await allAt(3_599_999)).toEqual([false, false, false]);
    expect((await allAt(3_600_000)).filter(Boolean)).toEqual([true]);
    expect(double.scavenges).toHaveLength(2);

    const dying = await openEventStoreLog({ connectionString: double.connectionString });
    Object.assign(dying, { scavenging: { ...dying.scavenging, start: () => Promise.reject(new Error('gone')) } });
    await expect(new Scavenges(dying).startIfDue(at(7_200_000), 3_600_000, 5)).rejects.toThrow('gone');
    await dying.close();
    expect(await allAt(7_200_000 + CLAIM_MS - 1)).toEqual([false, false, false]);
    expect((await nodes[0]!.last())?.id).toBe(double.scavenges[1]);
    expect((await allAt(7_200_000 + CLAIM_MS)).filter(Boolean)).toEqual([true]);
    expect(double.scavenges).toHaveLength(3);
  } finally {
    for (const log of logs) await log.close();
  }
});

test('the change feed begins at a given time, and a continuation from another store is refused', async () => {
  const container = await world.container();
  for (const id of ['a', 'b', 'c', 'd']) {
    await container.items.create({ id, customer: 'ann' });
    await world.advance(600_000);
  }
  const from = async (changeFeedStartFrom: ChangeFeedStartFrom) => {
    const iterator = container.items.getChangeFeedIterator<{ id: string }>({ changeFeedStartFrom });
    const { result, continuationToken } = await iterator.readNext();
    return { ids: result.map(({ id }) => id), continuationToken };
  };
  const { ids, continuationToken } = await from(ChangeFeedStartFrom.Time(new Date(START_MS + 1_200_000)));
  expect(ids).toEqual(['c', 'd']);
  const forged = continuationToken.replace(/(\d{4,})/, (position) => String(Number(position) - 7));
  expect(forged).not.toBe(continuationToken);
  expect(await refusalOf(from(ChangeFeedStartFrom.Continuation(forged)))).toMatchObject({ code: 400 });
});

test('a rebuilt read model equals the live one', async () => {
  const container = await world.container({ defaultTtl: 60 });
  for (let n = 0; n < 20; n++)
    await container.items.create({ id: String(n), customer: 'ann', ...(n % 2 ? {} : { ttl: -1 }) });
  await world.advance(60_000);
  await world.purge();
  const path = '/projections/items/rebuild';
  expect((await world.manage('POST', path)).status).toBe(202);
  await expect
    .poll(async () => (await world.manage('GET', path)).body)
    .toMatchObject({
      state: 'done',
      differences: 0,
    });
  expect((await sightings(container, ['0', '1'])).reads).toEqual(['0']);
});

test('while the event store is gone, writes are refused with 503 and Retry-After, and then succeed again', async () => {
  const container = await world.container();
  await container.items.create({ id: 'a', customer: 'ann' });
  proxy.refuse();
  const refused = (await world
    .connect()
    .database('shop')
    .container('c1')
    .items.create({ id: 'b', customer: 'ann' })
    .catch((error: unknown) => error)) as ErrorResponse;
  expect(refused.code).toBe(503);
  proxy.mend();
  await container.items.upsert({ id: 'b', customer: 'ann' });
  expect(await sightings(container, ['a', 'b'])).toEqual(seen('a', 'b'));
  expect(await world.fsck()).toEqual([]);
}, 60_000);

test('a batch over several items, or a script that deletes an item and creates it again, is refused with an explanation, and none of it is written', async () => {
  const container = await world.container();
  const { message } = await refusalOf(
    container.items.batch(
      [
        { operationType: 'Create', resourceBody: { id: 'a', customer: 'ann' } },
        { operationType: 'Create', resourceBody: { id: 'b', customer: 'ann' } },
      ],
      'ann',
    ),
  );
  expect(message).toMatch(/event log .* only one item/);
  expect(await sightings(container, ['a', 'b'])).toEqual(seen());
  // Each life of an item is a stream.
  await container.items.create({ id: 'a', customer: 'ann', n: 1 });
  const body = `function (again) {
    const c = getContext().getCollection();
    const item = { id: 'a', customer: 'ann', n: 2 };
    c.upsertDocument(c.getSelfLink(), item);
    c.deleteDocument(c.getAltLink() + '/docs/a');
    if (again) c.createDocument(c.getSelfLink(), item);
  }`;
  await container.scripts.storedProcedures.create({ id: 'p', body });
  const again = await refusalOf(container.scripts.storedProcedure('p').execute('ann', [true]));
  expect(again.message).toMatch(/several streams .* can't create an item again that it has deleted/);
  expect((await container.item('a', 'ann').read()).resource).toMatchObject({ n: 1 });
  await container.scripts.storedProcedure('p').execute('ann', [false]);
  expect(await sightings(container, ['a'])).toEqual(seen());
});

test('a data folder opens only with its own event log', async () => {
  await (await world.container()).items.create({ id: 'a', customer: 'ann' });
  await world.stop();
  const other = await EventStoreDouble.start();
  try {
    const opening = (options: { readonly folder?: string; readonly eventStore?: string }) =>
      World.open(options).then((opened) => opened.end());
    await expect(opening({ folder: world.folder })).rejects.toThrow(/--event-store/);
    await expect(opening({ folder: world.folder, eventStore: other.connectionString })).rejects.toThrow(
      /another event log/,
    );
    await expect(opening({ eventStore: proxy.connectionString })).rejects.toThrow(/keys are not in/);
  } finally {
    other.stop();
  }
  await world.start();
  expect((await world.of('c1').item('a', 'ann').read()).resource).toMatchObject({ id: 'a' });
});

describe('a life whose purge record is larger than the server accepts', () => {
  let place: Place;
  let store: Store;
  beforeEach(() => {
    place = new Place();
  });
  afterEach(() => place.dispose());
  const at = ({ port }: EventStoreDouble) => `esdb://127.0.0.1:${port}?tls=false`;
  const purged = async (items: Readonly<Record<string, string>>) => {
    const last = Object.entries(items).map(async ([id, name]) => {
      const history = await store.history(store.container('db', name), id, '["p"]');
      return history.at(-1)?.type === 'ItemPurged';
    });
    return Promise.all(last);
  };

  test('is recorded with as many of its writes as there is room for', async () => {
    const narrow = await EventStoreDouble.start({ maxAppendBytes: 2_000 });
    store = await place.open({ eventStore: at(narrow) });
    await store.createDatabase(CALLER, 'db');
    const { resource: container } = await store.createContainer(CALLER, 'db', 'c', DEFINITION, 10);
    const startMs = store.nowMs();
    for (let number = 0; number < 300; number++) {
      await write(store, 'c', 'a', { number });
      await store.advanceClock(100);
    }
    await write(store, 'c', 'b');
    await store.advanceClock(20_000);
    await store.runPurge();
    expect(await purged({ a: 'c', b: 'c' })).toEqual([true, true]);

    const history = await store.history(container, 'a', '["p"]');
    const writes = history.filter(({ type }) => type === 'ItemUpserted');
    const omitted = 300 - writes.length;
    expect(omitted).toBeGreaterThan(0);
    expect(writes[0]).toMatchObject({ revision: 0, occurredAtMs: startMs, data: { omittedAfter: omitted } });
    expect(writes.slice(1).map(({ revision, occurredAtMs }) => [revision, occurredAtMs])).toEqual(
      Array.from({ length: writes.length - 1 }, (_, index) => index + omitted + 1).map((revision) => [
        revision,
        startMs + revision * 100,
      ]),
    );
    expect(history.map(({ revision }) => revision).slice(-3)).toEqual([299, 300, 301]);
    const explained = await store.explain(container, 'a', '["p"]', startMs + 10_000);
    expect(explained).toMatchObject({ state: 'live', sentence: expect.stringContaining(`written ${omitted} times`) });
    const then: ItemAsOf[] = [];
    const onRow = async (row: ItemAsOf) => void then.push(row);
    expect(await store.asOf(container, startMs + 10_000, { onRow })).toBe(1);
    expect(await store.asOf(container, startMs + 29_950, { onRow })).toBe(1);
    const there = { id: 'a', partitionKey: '["p"]', life: 0 };
    expect(then).toEqual([there, { ...there, writtenAtMs: startMs + 29_900, ttl: null }]);
    const { statement } = await store.certificate(container, 'a', '["p"]');
    expect(statement).toMatchObject({ writes: 300, firstWriteAtMs: startMs, lastWriteAtMs: startMs + 29_900 });
    for (const report of [await store.fsck(), await store.verifyLog()]) expect(report.problems).toEqual([]);
    narrow.stop();
  });

  test('if there is room for none, does not prevent other purges, and is purged once the server accepts more', async () => {
    const wide = await EventStoreDouble.start();
    store = await place.open({ eventStore: at(wide) });
    await store.createDatabase(CALLER, 'db');
    const long = 'x'.repeat(250);
    const items = { [long]: 'busy', b: 'busy', c: 'other' };
    for (const name of ['busy', 'other']) await store.createContainer(CALLER, 'db', name, DEFINITION, -1);
    for (const [id, name] of Object.entries(items)) {
      await write(store, name, id);
      await store.deleteItem(CALLER, store.container('db', name), id, '["p"]');
    }
    await place.close();
    const narrow = await EventStoreDouble.start({ maxAppendBytes: 700 });
    narrow.log = wide.log;
    store = await place.open({ eventStore: at(narrow) });
    await expect(store.runPurge()).rejects.toThrow('MaxAppendSize');
    expect(await purged(items)).toEqual([false, true, true]);
    await place.close();
    narrow.stop();

    store = await place.open({ eventStore: at(wide) });
    await store.runPurge();
    expect(await purged(items)).toEqual([true, true, true]);
    expect((await store.fsck()).problems).toEqual([]);
    await place.close();
    wide.stop();
  });
});
