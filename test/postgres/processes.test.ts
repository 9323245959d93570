import { CosmosClient, type ErrorResponse } from '@azure/cosmos';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { cleanUp, epitaph, type Running, serve, temporaryFolder } from '../../packages/api/test/cli/process.ts';
import { keyHeader, raw } from '../e2e/support/raw.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { succeeds } from '../support/outcome.ts';
import { fsckOf, toldToRetry } from './processes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

let server: TestServer;
let double: EventStoreDouble;
beforeAll(async () => {
  if (whyNoPostgres !== undefined) return;
  server = await TestServer.start();
});
// A log for each test, because a log belongs to the keys of its own database.
beforeEach(async () => {
  double = await EventStoreDouble.start();
});
afterEach(() => {
  cleanUp();
  double.stop();
});
afterAll(() => server?.dispose());

const environment = (url: string) => ({
  EPITAPH_POSTGRES: url,
  EPITAPH_EVENT_STORE: `esdb://127.0.0.1:${double.port}?tls=false`,
  EPITAPH_MASTER_KEY: Buffer.alloc(32, 5).toString('base64'),
});

const clientOf = (node: Running) => new CosmosClient({ endpoint: node.endpoint, key: EMULATOR_KEY });

describe.skipIf(whyNoPostgres !== undefined)(`epitaph serve --event-store --postgres${skipReason}`, () => {
  it('runs as two processes that see one store, and goes on when one is killed', { timeout: 90_000 }, async () => {
    const url = await server.newDatabase();
    const nodes = [
      await serve(['--data', temporaryFolder()], environment(url)),
      await serve(['--data', temporaryFolder()], environment(url)),
    ] as const;
    const [one, other] = [clientOf(nodes[0]), clientOf(nodes[1])];
    const { database } = await one.databases.create({ id: 'shop' });
    await database.containers.create({ id: 'sessions', partitionKey: '/user' });
    const here = one.database('shop').container('sessions');
    const there = other.database('shop').container('sessions');
    for (let round = 0; round < 20; round++) {
      const [writer, reader] = round % 2 === 0 ? [here, there] : [there, here];
      const written = await writer.items.upsert({ id: 'a', user: 'ann', round });
      const sessionToken = String(written.headers['x-ms-session-token']);
      const { resource } = await reader.item('a', 'ann').read({ sessionToken });
      expect(resource).toMatchObject({ round });
    }
    // The client would ask a second time. So the first answer must be right, also from a node that has not heard of the write yet.
    for (let round = 0; round < 20; round++) {
      const written = await here.items.upsert({ id: 'a', user: 'ann', round: 100 + round });
      const read = await raw(nodes[1].endpoint, 'GET', '/dbs/shop/colls/sessions/docs/a', {
        headers: { ...keyHeader('ann'), 'x-ms-session-token': String(written.headers['x-ms-session-token']) },
      });
      expect([read.status, read.json?.['round']]).toEqual([200, 100 + round]);
    }
    // The first process projects, because it started first. It is killed.
    nodes[0].child.kill('SIGKILL');
    await nodes[0].finished();
    const written = await there.items.upsert({ id: 'b', user: 'ann' });
    expect(written.statusCode).toBe(201);
    const { resources } = await there.items.query('SELECT VALUE c.id FROM c ORDER BY c.id').fetchAll();
    expect(resources).toEqual(['a', 'b']);
    nodes[1].child.kill('SIGTERM');
    expect(await nodes[1].finished()).toMatchObject({ code: 0 });
  });

  it(
    'refuses writes in time, with Retry-After, while no node projects, and then goes on',
    {
      timeout: 90_000,
    },
    async () => {
      const url = await server.newDatabase();
      const projects = () => serve(['--data', temporaryFolder(), '--roles', 'project'], environment(url));
      const projecting = await projects();
      const following = await serve(['--data', temporaryFolder(), '--roles', 'none'], environment(url));
      const client = clientOf(following);
      const { database } = await client.databases.create({ id: 'shop' });
      const { container } = await database.containers.create({ id: 'sessions', partitionKey: '/id' });
      await container.items.create({ id: 'before' });
      projecting.child.kill('SIGKILL');
      await projecting.finished();
      // The first create may be recorded and just not visible yet: 408 says so, which no client repeats by itself. Once the catalog has not
      // been confirmed for a quarter of the policy delay, nothing is recorded any more.
      const create = (id: string) => container.items.create({ id }).catch((error: unknown) => error);
      const first = await create('meanwhile');
      expect(toldToRetry(first) || (first as ErrorResponse).code === 408, String(first)).toBe(true);
      const startMs = performance.now();
      const second = await create('not recorded');
      expect(toldToRetry(second), String(second)).toBe(true);
      // Five seconds, and what a busy machine adds to them.
      expect(performance.now() - startMs).toBeLessThan(15_000);
      await projects();
      await expect.poll(() => succeeds(container.items.create({ id: 'after' }))).toBe(true);
      const { resources } = await container.items.query<string>('SELECT VALUE c.id FROM c ORDER BY c.id').fetchAll();
      expect([
        ['after', 'before'],
        ['after', 'before', 'meanwhile'],
      ]).toContainEqual(resources);
      expect(await fsckOf(following.endpoint)).toMatchObject({ ok: true, problems: [] });
    },
  );

  it.each([
    ['90 seconds ahead of', 90_000],
    ['90 seconds behind', -90_000],
    ['by more than a quarter of the policy delay ahead of', 2_000],
  ])(
    'hides, erases and stamps nothing by the clock of a node that is %s the others',
    { timeout: 60_000 },
    async (_, aheadMs) => {
      const url = await server.newDatabase();
      const right = await serve(['--data', temporaryFolder(), '--policy-grace', '0'], environment(url));
      const { database } = await clientOf(right).databases.create({ id: 'shop' });
      const { container } = await database.containers.create({ id: 'sessions', partitionKey: '/id', defaultTtl: 60 });
      await container.items.create({ id: 'a' });
      const shift = `const { now } = Date; Date.now = () => now() + ${aheadMs};`;
      const wrong = await serve(['--data', temporaryFolder()], {
        ...environment(url),
        NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(shift)}`,
      });
      const there = clientOf(wrong).database('shop').container('sessions');
      expect((await there.item('a', 'a').read()).statusCode).toBe(200);
      expect(toldToRetry(await there.items.create({ id: 'b' }).catch((error: unknown) => error))).toBe(true);
      const asked = await raw(wrong.endpoint, 'GET', '/_epitaph/health/ready');
      expect(asked.status).toBe(503);
      expect(asked.text).toMatch(/the clock is held: .*PostgreSQL's clock.*clocks-differ/);
      // Time for several looks of the purge, which both nodes may do.
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      expect((await container.item('a', 'a').read()).statusCode).toBe(200);
      expect((await container.items.create({ id: 'b' })).statusCode).toBe(201);
    },
  );

  it(
    'ends with exit code 2 and one line on a log with events whose keys are in another database',
    { timeout: 60_000 },
    async () => {
      const used = await serve(['--data', temporaryFolder()], environment(await server.newDatabase()));
      await clientOf(used).databases.create({ id: 'shop' });
      used.child.kill('SIGTERM');
      await used.finished();
      const given = environment(await server.newDatabase());
      const ended = await epitaph(['serve', '--port', '0', '--data', temporaryFolder()], given);
      expect(ended).toMatchObject({ code: 2, stderr: expect.stringMatching(/is new, but the event log/) as string });
      expect(ended.stderr.trim().split('\n').length).toBe(1);
    },
  );

  it.each([
    ['the database is not there', { EPITAPH_POSTGRES: () => server.url('not_there') }, /no such database/],
    ['the master key is missing', { EPITAPH_MASTER_KEY: '' }, /needs a master key/],
    ['the event store is missing', { EPITAPH_EVENT_STORE: '' }, /needs --event-store/],
    [
      'the master key is another',
      { EPITAPH_MASTER_KEY: Buffer.alloc(32, 6).toString('base64') },
      /not the one in force for this key vault/,
    ],
  ])('ends with exit code 2 and one line if %s', { timeout: 60_000 }, async (_, changed, line) => {
    const url = await server.newDatabase();
    const used = await serve(['--data', temporaryFolder()], environment(url));
    used.child.kill('SIGTERM');
    await used.finished();
    const given = Object.fromEntries(
      Object.entries({ ...environment(url), ...changed }).map(([name, value]) => [
        name,
        typeof value === 'function' ? value() : value,
      ]),
    );
    const ended = await epitaph(['serve', '--port', '0', '--data', temporaryFolder()], given);
    expect(ended).toMatchObject({ code: 2, stderr: expect.stringMatching(line) as string });
    expect(ended.stderr.trim().split('\n').length).toBe(1);
  });
});
