import { ChangeFeedStartFrom, type Container, TriggerOperation, TriggerType } from '@azure/cosmos';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Fields, refusalOf, World } from '../support/world.ts';
import { raw, type RawReply } from '../support/raw.ts';

/** The clock of the budgets. It stands still until a test advances it. */
let budgetMs = 1_000_000;
let world: World;
beforeAll(async () => {
  world = await World.open({ provisioning: { monotonicMs: () => budgetMs } });
});
afterAll(() => world.end());
// Every test begins with full budgets.
beforeEach(() => {
  budgetMs += 60_000;
});

interface Consumed {
  readonly operations: number;
  readonly requestUnits: number;
  readonly throttled: number;
}
interface Status extends Fields {
  readonly available: number | null;
  readonly leftOver: number | null;
  readonly consumed: Readonly<Record<'read' | 'query' | 'changeFeed' | 'write' | 'batch' | 'purge', Consumed>>;
}
const unitsOf = async (id: string, within = world): Promise<Status> =>
  (await within.manage<Status>('GET', `/dbs/shop/colls/${id}/request-units`)).body;

const purgeStatus = async (): Promise<Fields> => (await world.manage('GET', '/purge')).body;

/** Reads without the client's own retries. */
const read = (container: Container, id = 'a'): Promise<RawReply> =>
  raw(world.endpoint, 'GET', `/dbs/shop/colls/${container.id}/docs/${id}`, {
    headers: { 'x-ms-documentdb-partitionkey': '["ann"]' },
  });

/** Spends all of a container's budget, and a little more. */
async function exhaust(container: Container): Promise<void> {
  for (;;) {
    const { status } = await read(container);
    if (status === 429) return;
    expect([200, 404]).toContain(status);
  }
}

const filled = async (settings: Fields): Promise<Container> => {
  const container = await world.container(settings);
  await container.items.create({ id: 'a', customer: 'ann' });
  return container;
};

describe('a container with throughput', () => {
  test('answers 429 over its budget, says when to come back, and does nothing', async () => {
    const container = await filled({ throughput: 400 });
    await exhaust(container);
    const head = await world.head();
    const answer = await read(container);
    expect(answer).toMatchObject({ status: 429, json: { code: 'TooManyRequests' } });
    expect(answer.json!['message']).toContain('Request rate is large');
    expect(answer.headers).toMatchObject({
      'x-ms-substatus': '3200',
      'retry-after': '1',
      'x-ms-request-charge': '0.38',
    });
    const waitMs = Number(answer.headers['x-ms-retry-after-ms']);
    expect(waitMs).toBeGreaterThan(0);
    const body = JSON.stringify({ id: 'b', customer: 'ann' });
    const path = `/dbs/shop/colls/${container.id}/docs`;
    expect((await raw(world.endpoint, 'POST', path, { body })).status).toBe(429);
    expect(await world.head()).toBe(head);
    budgetMs += waitMs;
    expect((await read(container)).status).toBe(200);
  });

  test('allows about its throughput in each second', async () => {
    const container = await filled({ throughput: 500 });
    await exhaust(container);
    budgetMs += 1_000;
    let passed = 0;
    while ((await read(container)).status === 200) passed += 1;
    // A read costs one unit, and the budget was overdrawn by less than one.
    expect(passed).toBeGreaterThanOrEqual(499);
    expect(passed).toBeLessThanOrEqual(501);
  });

  test('makes the client retry until the budget allows the request', async () => {
    const container = await filled({ throughput: 400 });
    // The batch overdraws the budget by most of a second, so the first try comes too early even on a slow machine.
    const wide = Array.from({ length: 100 }, (_, at) => ({
      operationType: 'Create' as const,
      resourceBody: { id: `wide${at}`, customer: 'ann', values: Array.from({ length: 20 }, (_, value) => value) },
    }));
    await container.items.batch(wide, 'ann');
    const timer = setInterval(() => (budgetMs += 20), 20);
    try {
      const { resource } = await container.items.create({ id: 'b', customer: 'ann' });
      expect(resource).toMatchObject({ id: 'b' });
    } finally {
      clearInterval(timer);
    }
    expect((await unitsOf(container.id)).consumed.write.throttled).toBeGreaterThan(0);
  });

  test('uses a raised throughput at once', async () => {
    const container = await filled({ throughput: 400 });
    await exhaust(container);
    const { resource: offer } = await container.readOffer();
    await world.client.offer(offer!.id).replace({ ...offer!, content: { ...offer!.content!, offerThroughput: 4_000 } });
    budgetMs += 10;
    expect((await read(container)).status).toBe(200);
    expect(await unitsOf(container.id)).toMatchObject({
      budget: 'container',
      throughput: { kind: 'manual', requestUnitsPerSecond: 4_000 },
    });
  });

  test('limits neither other containers, nor its own metadata, nor the management plane', async () => {
    const container = await filled({ throughput: 400 });
    const other = await filled({ throughput: 400 });
    await exhaust(container);
    expect((await read(other)).status).toBe(200);
    expect((await container.read()).statusCode).toBe(200);
    expect((await container.readOffer()).resource).toBeDefined();
    // Clients need these to send a request at all, and to know where to. Without them they could not even retry.
    expect((await raw(world.endpoint, 'GET', `/dbs/shop/colls/${container.id}/pkranges`)).status).toBe(200);
    const plan = { 'x-ms-cosmos-is-query-plan-request': 'true', 'content-type': 'application/query+json' };
    const query = { headers: plan, body: '{"query":"SELECT * FROM c"}' };
    expect((await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, query)).status).toBe(200);
    expect((await unitsOf(container.id)).consumed.read.throttled).toBe(1);
    expect((await world.explain(container.id, 'a')).state).toBe('live');
  });

  test('on autoscale is limited to its maximum', async () => {
    const container = await filled({ maxThroughput: 1_000 });
    await exhaust(container);
    const { consumed } = await unitsOf(container.id);
    expect(consumed.read.requestUnits + consumed.write.requestUnits).toBeGreaterThanOrEqual(1_000);
    expect(consumed.read.requestUnits + consumed.write.requestUnits).toBeLessThan(1_002);
  });
});

describe('a database with throughput', () => {
  test('gives its containers one shared budget, except those with their own', async () => {
    const { database } = await world.client.databases.create({ id: 'shared', throughput: 400 });
    for (const [id, settings] of Object.entries({ one: {}, two: {}, own: { throughput: 400 } })) {
      const { container } = await database.containers.create({ id, partitionKey: '/customer', ...settings });
      await container.items.create({ id: 'a', customer: 'ann' });
    }
    const readIn = async (id: string) =>
      (
        await raw(world.endpoint, 'GET', `/dbs/shared/colls/${id}/docs/a`, {
          headers: { 'x-ms-documentdb-partitionkey': '["ann"]' },
        })
      ).status;
    while ((await readIn('one')) === 200);
    expect(await readIn('two')).toBe(429);
    expect(await readIn('own')).toBe(200);
    const { body } = await world.manage<Status>('GET', '/dbs/shared/colls/two/request-units');
    expect(body).toMatchObject({ budget: 'database', throughput: { kind: 'manual', requestUnitsPerSecond: 400 } });
  });
});

describe('a container without throughput', () => {
  test('is metered by kind and not limited', async () => {
    const container = await filled({});
    for (let count = 0; count < 500; count += 1) expect((await read(container)).status).toBe(200);
    await container.items.query('SELECT * FROM c').fetchAll();
    await container.item('a', 'ann').delete();
    expect((await container.item('a', 'ann').read()).statusCode).toBe(404);
    expect((await refusalOf(container.item('a', 'ann').replace({ id: 'a', customer: 'ann' }))).code).toBe(404);
    expect(await unitsOf(container.id)).toMatchObject({
      container: { name: container.id },
      budget: 'none',
      serverless: false,
      throughput: { kind: 'none' },
      available: null,
      leftOver: null,
      consumed: {
        // The 404 costs what a read costs.
        read: { operations: 501, requestUnits: 501, throttled: 0 },
        // A create, a delete, and a replace that was refused.
        write: { operations: 3, requestUnits: 11.82, throttled: 0 },
        query: { operations: 1 },
      },
    });
  });

  test('reports the charge of each request', async () => {
    const container = await filled({});
    const item = container.item('a', 'ann');
    const wide = { id: 'b', customer: 'ann', values: Array.from({ length: 100 }, (_, at) => at) };
    expect((await item.read()).requestCharge).toBe(1);
    expect((await container.items.create({ id: 'c', customer: 'ann' })).requestCharge).toBe(5.29);
    expect((await container.items.create(wide)).requestCharge).toBe(15.29);
    expect((await item.patch([{ op: 'set', path: '/x', value: 1 }])).requestCharge).toBe(5.39);
    expect((await item.delete()).requestCharge).toBe(5.29);
    expect((await container.items.query('SELECT * FROM c').fetchAll()).requestCharge).toBeGreaterThan(2);
    expect((await container.read()).requestCharge).toBe(1);
    expect(Number((await read(container, 'missing')).headers['x-ms-request-charge'])).toBe(1);
  });

  test('charges by the bytes of a document, not by its characters, for every operation', async () => {
    // given two documents of 10 KB, of which one has a third of the characters
    const container = await world.container({});
    const texts = { plain: 'x'.repeat(10_000), wide: `${'\u20ac'.repeat(3_333)}x` };
    const charges = async (id: string, text: string): Promise<readonly number[]> => {
      const document = { id, customer: id, text };
      const item = container.item(id, id);
      const done = [
        await container.items.create(document),
        await item.read(),
        await container.items.query('SELECT * FROM c', { partitionKey: id }).fetchAll(),
        await item.replace(document),
        await item.patch([{ op: 'set', path: '/x', value: 1 }]),
      ].map(({ requestCharge }) => requestCharge);
      // The header is used because the client truncates the charge of a feed page to a whole number.
      const { headers } = await container.items
        .getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(id) })
        .readNext();
      const read = await container.items.batch([{ operationType: 'Read', id }], id);
      return [
        ...done,
        Number(headers['x-ms-request-charge']),
        read.result![0]!.requestCharge,
        (await item.delete()).requestCharge,
      ];
    };
    // when
    const [plain, wide] = [await charges('plain', texts.plain), await charges('wide', texts.wide)];
    // then
    expect(wide).toEqual(plain);
    expect(plain).toEqual([9.44, 1.91, 5.8, 9.44, 9.54, 1.96, 1.91, 9.34]);
  });

  test('charges a query for its work on a document, the same each time, and also if it is refused because of that work', async () => {
    const container = await world.container({});
    await container.items.create({ id: 'a', customer: 'ann', list: Array.from({ length: 100 }, (_, n) => n) });
    const chargeOf = async (
      joined: string,
      query = `SELECT VALUE COUNT(1) FROM c ${joined}`,
    ): Promise<readonly [status: number, charge: number]> => {
      const { status, headers } = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
        headers: { 'x-ms-documentdb-isquery': 'true', 'x-ms-documentdb-query-enablecrosspartition': 'true' },
        body: JSON.stringify({ query }),
      });
      return [status, Number(headers['x-ms-request-charge'])];
    };
    const one = 'JOIN x IN c.list';
    expect(await chargeOf(one)).toEqual([200, 2.3]);
    const joined = await chargeOf(`${one} JOIN y IN c.list JOIN z IN c.list`);
    expect(joined).toEqual([200, expect.closeTo(230, -2)]);
    expect(await chargeOf(`${one} JOIN y IN c.list JOIN z IN c.list`)).toEqual(joined);
    // The work of a subquery in FROM is charged as well, whatever is done with its rows.
    const inner = `(SELECT VALUE x FROM c ${one} JOIN y IN c.list JOIN z IN c.list WHERE y + z = 0) d`;
    for (const query of [`SELECT VALUE COUNT(1) FROM ${inner}`, `SELECT VALUE d FROM ${inner} ORDER BY d`]) {
      expect((await chargeOf('', query))[1], query).toBeGreaterThan(joined[1]);
    }
    const refused = await chargeOf(`${one} JOIN y IN c.list JOIN z IN c.list JOIN u IN c.list`);
    expect(refused).toEqual([400, expect.closeTo(1_000, -3)]);
    const { consumed } = await unitsOf(container.id);
    expect(consumed.query.requestUnits).toBeGreaterThan(2 * joined[1] + refused[1]);
  });

  test('without an index does not charge for indexing', async () => {
    const indexingPolicy = { indexingMode: 'none' as const, automatic: false };
    const container = await world.container({ indexingPolicy });
    const wide = { id: 'b', customer: 'ann', values: Array.from({ length: 100 }, (_, at) => at) };
    expect((await container.items.create(wide)).requestCharge).toBe(5.09);
  });
});

describe('the purge of a container with throughput', () => {
  const ITEMS = 200;
  const expiring = async (settings: Fields): Promise<Container> => {
    const container = await world.container({ defaultTtl: 10, ...settings });
    await container.items.create({ id: 'a', customer: 'ann', ttl: -1 });
    for (let at = 0; at < ITEMS; at += 1) {
      budgetMs += 100;
      await container.items.create({ id: `i${at}`, customer: 'ann' });
    }
    return container;
  };

  test('waits while requests use the whole budget, reports that, and continues when they do not; no expired item is visible meanwhile', async () => {
    const container = await expiring({ throughput: 400 });
    const unlimited = await world.container({ defaultTtl: 10 });
    await unlimited.items.create({ id: 'z', customer: 'ann' });
    // The purge begins with the units that were left over until now.
    await exhaust(container);
    await world.advance(10_000);
    const before = await unitsOf(container.id);
    const running = world.store.runPurge();
    const waiting = async () => (await purgeStatus())['state'] === 'waiting-for-request-units';
    await expect.poll(waiting).toBe(true);

    const affordable = Math.floor(before.leftOver! / 5.29);
    expect(affordable).toBeLessThan(ITEMS);
    await expect.poll(async () => (await unitsOf(container.id)).consumed.purge.operations).toBe(affordable);
    await expect.poll(purgeStatus).toMatchObject({
      overdueItems: ITEMS - affordable,
      waitingForRequestUnits: ITEMS - affordable,
    });
    // The purge of a container without a limit does not wait.
    expect((await unitsOf(unlimited.id)).consumed.purge).toEqual({ operations: 1, requestUnits: 5.29, throttled: 0 });
    // Expired items are gone, whether their purge has been paid for or not.
    budgetMs += 100;
    expect((await container.items.query('SELECT VALUE COUNT(1) FROM c').fetchAll()).resources).toEqual([1]);

    await world.advance(5_000);
    expect((await purgeStatus())['oldestOverdueMs']).toBeGreaterThanOrEqual(5_000);

    // Requests go on spending the whole budget. So nothing is left over, however much time passes.
    for (let tenths = 0; tenths < 20; tenths += 1) {
      await exhaust(container);
      budgetMs += 100;
    }
    expect((await unitsOf(container.id)).consumed.purge.operations).toBe(affordable);
    expect((await purgeStatus())['overdueItems']).toBe(ITEMS - affordable);

    // The requests stop. Now a second's worth is left over at a time, and half of it lets the purge continue.
    const timer = setInterval(() => (budgetMs += 250), 25);
    try {
      expect(await running).toMatchObject({ expired: ITEMS + 1, heldBack: 0 });
    } finally {
      clearInterval(timer);
    }
    expect(await purgeStatus()).toMatchObject({
      state: 'idle',
      overdueItems: 0,
      waitingForRequestUnits: 0,
      awaitingErasure: 0,
      millisecondsToDrain: 0,
    });
    const { consumed } = await unitsOf(container.id);
    expect(consumed.purge.operations).toBe(ITEMS);
    expect(consumed.purge.requestUnits).toBeCloseTo(ITEMS * 5.29);
    expect(await world.fsck()).toEqual([]);
  });

  test('never takes units from requests: the budget of the next second is whole', async () => {
    const container = await expiring({ throughput: 400 });
    budgetMs += 10_000;
    await world.advance(10_000);
    const timer = setInterval(() => (budgetMs += 250), 25);
    try {
      await world.purge();
    } finally {
      clearInterval(timer);
    }
    budgetMs += 1_000;
    const { available, leftOver } = await unitsOf(container.id);
    expect(available).toBe(400);
    expect(leftOver).toBeLessThanOrEqual(400);
  });

  test('that runs automatically does not loop while it waits, and delays nothing else', async () => {
    await world.stop();
    const automatic = await World.open({ automaticPurge: true, provisioning: { monotonicMs: () => budgetMs } });
    const within = world;
    world = automatic;
    try {
      const container = await expiring({ throughput: 400 });
      const unlimited = await world.container({ defaultTtl: 10 });
      const consumed = async (id: string) => (await unitsOf(id)).consumed.purge.operations;
      await exhaust(container);
      await world.advance(10_000);
      const affordable = Math.floor((await unitsOf(container.id)).leftOver! / 5.29);
      await expect.poll(() => consumed(container.id)).toBeGreaterThanOrEqual(affordable);
      await expect
        .poll(purgeStatus)
        .toMatchObject({ state: 'waiting-for-request-units', awaitingErasure: 0, run: null });
      const head = await world.head();
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      expect(await world.head()).toBe(head);

      // Items that expire in other containers, and items that clients delete in this one, are not delayed.
      await unlimited.items.create({ id: 'z', customer: 'ann' });
      await world.advance(10_000);
      await expect.poll(() => consumed(unlimited.id)).toBe(1);
      budgetMs += 100;
      await container.item('a', 'ann').delete();
      await exhaust(container);
      await expect.poll(async () => (await world.explain(container.id, 'a')).state).toBe('purged');
      await expect.poll(purgeStatus).toMatchObject({ state: 'waiting-for-request-units' });
    } finally {
      await automatic.end();
      world = within;
      await world.start();
    }
  });

  test('that was requested is answered after its waiting time, and says what is left', async () => {
    const container = await expiring({ throughput: 400 });
    await exhaust(container);
    await world.advance(10_000);
    const affordable = Math.floor((await unitsOf(container.id)).leftOver! / 5.29);
    const left = ITEMS - affordable;
    expect(left).toBeGreaterThan(0);
    const { body } = await world.manage('POST', '/purge/run?waitSeconds=0');
    expect(body).toMatchObject({
      expired: affordable,
      purged: affordable,
      status: { state: 'waiting-for-request-units', overdueItems: left, waitingForRequestUnits: left },
    });
    expect((await world.manage('POST', '/purge/run?waitSeconds=ever')).status).toBe(400);
    await container.delete();
    await world.purge();
  });

  test('does not wait once the container is deleted', async () => {
    const container = await expiring({ throughput: 400 });
    await exhaust(container);
    await world.advance(10_000);
    await container.delete();
    expect(await world.purge()).toMatchObject({ expired: ITEMS });
    expect(await purgeStatus()).toMatchObject({ state: 'idle', overdueItems: 0, awaitingErasure: 0 });
  });
});

describe('the quota headers of a container', () => {
  test('have the number of documents', async () => {
    const container = await world.container({ defaultTtl: -1 });
    const usage = async (): Promise<string> => {
      const { headers } = await container.read({ populateQuotaInfo: true });
      expect(headers['x-ms-resource-quota']).toContain('collectionSize=10485760');
      expect(headers['x-ms-documentdb-collection-index-transformation-progress']).toBe('100');
      return String(headers['x-ms-resource-usage']);
    };
    expect(await usage()).toContain('documentsCount=0;');
    for (const id of ['a', 'b', 'c']) await container.items.create({ id, customer: 'ann', ttl: id === 'c' ? 5 : -1 });
    expect(await usage()).toContain('documentsCount=3;');
    await world.advance(5_000);
    expect(await usage()).toContain('documentsCount=2;');
  });

  test('have the numbers of scripts, as the answers to requests for scripts do', async () => {
    const container = await world.container();
    const { scripts } = container;
    await scripts.userDefinedFunctions.create({ id: 'f', body: 'function () {}' });
    const procedures = ['p', 'q'].map((name) => scripts.storedProcedures.create({ id: name, body: 'function () {}' }));
    await Promise.all(procedures);
    const pre = { triggerType: TriggerType.Pre, triggerOperation: TriggerOperation.All };
    const { headers } = await scripts.triggers.create({ id: 't', body: 'function () {}', ...pre });
    const counts = 'functions=1;storedProcedures=2;triggers=1;';
    expect(headers).toMatchObject({ 'x-ms-resource-usage': counts });
    expect(headers['x-ms-resource-quota']).toMatch(/^functions=100;storedProcedures=100;triggers=100;/);
    const told = [
      await scripts.trigger('t').read(),
      await scripts.storedProcedure('p').replace({ id: 'p', body: 'function (a) {}' }),
      await container.read({ populateQuotaInfo: true }),
    ].map((answer) => String(answer.headers['x-ms-resource-usage']));
    expect(told).toEqual([counts, counts, `${counts}documentsCount=0;`]);
  });
});

describe('an account', () => {
  test('that is serverless has no limits and no offers, and meters everything', async () => {
    const serverless = await World.open({ provisioning: { serverless: true, monotonicMs: () => budgetMs } });
    try {
      const container = await serverless.container({ defaultTtl: 1 });
      for (let at = 0; at < 150; at += 1) await container.items.create({ id: `i${at}`, customer: 'ann' });
      await serverless.advance(1_000);
      expect(await serverless.purge()).toMatchObject({ expired: 150, purged: 150 });
      expect(await unitsOf(container.id, serverless)).toMatchObject({
        serverless: true,
        budget: 'none',
        consumed: { write: { operations: 150, throttled: 0 }, purge: { operations: 150, requestUnits: 793.5 } },
      });
      const offers = 'Reading or replacing offers is not supported for serverless accounts.';
      for (const asked of [
        () => container.readOffer(),
        () => serverless.client.offers.readAll().fetchAll(),
        () => serverless.client.offer('a').read(),
      ]) {
        expect(await refusalOf(asked())).toMatchObject({ code: 400, message: expect.stringContaining(offers) });
      }
      const refused = await refusalOf(serverless.container({ throughput: 400 }));
      expect(refused).toMatchObject({ code: 400 });
      expect(refused.message).toContain('not supported for serverless accounts');
      expect((await refusalOf(serverless.client.databases.create({ id: 'x', throughput: 400 }))).code).toBe(400);
    } finally {
      await serverless.end();
    }
  });

  test('with a default throughput gives it to containers that are created without one', async () => {
    const defaultThroughput = { kind: 'manual', requestUnitsPerSecond: 600 } as const;
    const provisioned = await World.open({ provisioning: { defaultThroughput, monotonicMs: () => budgetMs } });
    try {
      const plain = await provisioned.container({});
      expect((await plain.readOffer()).resource!.content).toMatchObject({ offerThroughput: 600 });
      expect(await unitsOf(plain.id, provisioned)).toMatchObject({
        budget: 'container',
        throughput: defaultThroughput,
      });
      const { database } = await provisioned.client.databases.create({ id: 'shared', throughput: 500 });
      const { container: sharing } = await database.containers.create({ id: 'sharing', partitionKey: '/customer' });
      expect((await sharing.readOffer()).resource).toBe(undefined);
    } finally {
      await provisioned.end();
    }
  });
});

describe('several operations in one request', () => {
  const creates = (from: number, count: number) =>
    Array.from({ length: count }, (_, at) => ({
      operationType: 'Create' as const,
      partitionKey: 'ann',
      resourceBody: { id: `n${from + at}`, customer: 'ann' },
    }));
  /** A bulk request as the client sends it, but without the client's own retries. */
  const bulk = (
    container: Container,
    from: number,
    count: number,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<RawReply> =>
    raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
      headers: {
        ...headers,
        'x-ms-cosmos-is-batch-request': 'true',
        'x-ms-cosmos-batch-atomic': 'false',
        'x-ms-cosmos-batch-continue-on-error': 'true',
        'x-ms-documentdb-partitionkeyrangeid': '0',
      },
      body: JSON.stringify(creates(from, count).map((each) => ({ ...each, partitionKey: '["ann"]' }))),
    });

  test('of a bulk request are admitted one by one, as far as the budget goes', async () => {
    const container = await world.container({ throughput: 400 });
    const { status, text } = await bulk(container, 0, 100);
    const results = JSON.parse(text) as readonly Fields[];
    expect(status).toBe(207);
    const created = results.filter(({ statusCode }) => statusCode === 201);
    // 400 units are enough for 75 writes of 5.29, and one more may begin on the rest.
    expect(created).toHaveLength(76);
    const turnedAway = results.filter(({ statusCode }) => statusCode === 429);
    expect(turnedAway).toHaveLength(24);
    expect(turnedAway[0]).toMatchObject({ subStatusCode: 3200, requestCharge: 0.38 });
    expect(turnedAway[0]!['retryAfterMilliseconds']).toBeGreaterThan(0);
    expect(await unitsOf(container.id)).toMatchObject({
      consumed: { write: { operations: 76, throttled: 24 }, batch: { operations: 0 } },
    });
  });

  test('of a bulk request have shorter waits for the JavaScript client, because it waits for one after the other', async () => {
    // given
    const toldBy = async (headers: Readonly<Record<string, string>>): Promise<readonly number[]> => {
      const { text } = await bulk(await world.container({ throughput: 400 }), 0, 100, headers);
      const told = (JSON.parse(text) as readonly Fields[]).map((result) => result['retryAfterMilliseconds']);
      return told.filter((waitMs) => typeof waitMs === 'number');
    };
    // when
    const others = await toldBy({ 'user-agent': 'cosmos-netstandard-sdk/3.64.0' });
    const javaScript = await toldBy({ 'x-ms-useragent': 'Node.js/24 azure-cosmos-js/4.10.1' });
    // then
    expect(others).toHaveLength(24);
    expect(others).toEqual(others.toSorted((left, right) => left - right));
    expect(javaScript).toHaveLength(24);
    expect(javaScript.reduce((sum, waitMs) => sum + waitMs, 0)).toBe(others.at(-1));
  });

  test('of a bulk request are charged what each of them reports', async () => {
    const container = await world.container({ throughput: 400 });
    const wide = {
      id: 'wide',
      customer: 'ann',
      ...Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`p${n}`, n])),
    };
    const results = await container.items.bulk([
      { operationType: 'Create', partitionKey: 'ann', resourceBody: wide },
      { operationType: 'Read', partitionKey: 'ann', id: 'wide' },
    ]);
    const [written, read] = results.map(({ requestCharge }) => requestCharge);
    expect(written).toBeGreaterThan(10);
    expect(read).toBeGreaterThan(0);
    expect(await unitsOf(container.id)).toMatchObject({
      consumed: { write: { operations: 1, requestUnits: written }, read: { operations: 1, requestUnits: read } },
    });
  });

  test('of a bulk request all succeed with the client’s retries', async () => {
    const container = await world.container({ throughput: 400 });
    const timer = setInterval(() => (budgetMs += 20), 20);
    try {
      const results = await container.items.executeBulkOperations(creates(0, 150));
      expect(results.map(({ response }) => response?.statusCode)).toEqual(Array.from({ length: 150 }, () => 201));
    } finally {
      clearInterval(timer);
    }
  });

  test('of a batch are admitted and charged together', async () => {
    const container = await world.container({ throughput: 400 });
    const operations = creates(0, 90).map(({ operationType, resourceBody }) => ({ operationType, resourceBody }));
    const { result } = await container.items.batch(operations, 'ann');
    expect(result).toHaveLength(90);
    expect((await read(container)).status).toBe(429);
    expect(await unitsOf(container.id)).toMatchObject({ consumed: { batch: { operations: 1, requestUnits: 476.1 } } });
  });
});
