import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { systemClocks } from '@epitaph/core/clock.ts';
import { Refusal, errorCodes, type ErrorCode } from '@epitaph/core/errors.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { PartUnreadable } from '@epitaph/api/store/damage.ts';
import { PurgeFault } from '@epitaph/projections/purge/faults.ts';
import { closeWithin } from '@epitaph/api/http/close-within.ts';
import { parseHttpDate } from '@epitaph/api/http/http-date.ts';
import type { ServerOptions } from '@epitaph/api/http/server.ts';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';
import { collectGarbage } from '../collect-garbage.ts';
import { fakeStore } from './support/fake-store.ts';
import { call, DOCS, httpDate, keyHeader, NOW_MS, shop, sign, testKeys, testServer } from './support/client.ts';

const open: FastifyInstance[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((app) => app.close()));
});

async function listening(app: FastifyInstance): Promise<number> {
  open.push(app);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const address = app.server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Sends bytes unchanged, and resolves with everything that is answered until the connection closes. */
function exchange(port: number, bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    let text = '';
    socket.on('data', (chunk) => (text += chunk.toString()));
    socket.on('close', () => resolve(text));
    socket.on('error', reject);
  });
}

describe('the account', () => {
  test('is at the address that the client used, and is not called localhost', async () => {
    const { status, json, headers } = await call(testServer(), 'GET', '/', { headers: { host: 'db.example:9' } });
    expect(status).toBe(200);
    // The Java clients parse these as numbers.
    expect(headers).toMatchObject({ 'x-ms-max-media-storage-usage-mb': '2048', 'x-ms-media-storage-usage-mb': '0' });
    expect(json['id']).not.toBe('localhost');
    const locations = [{ name: expect.any(String), databaseAccountEndpoint: 'http://db.example:9' }];
    expect(json).toMatchObject({ writableLocations: locations, readableLocations: locations });
  });

  test('allows clients that plan queries themselves to send chains of AND and OR and lists of any length', async () => {
    const { json } = await call(testServer(), 'GET', '/');
    expect(JSON.parse(String(json['queryEngineConfiguration']))).toMatchObject({
      maxLogicalAndPerSqlQuery: 2_147_483_647,
      maxLogicalOrPerSqlQuery: 2_147_483_647,
      maxInExpressionItemsCount: 2_147_483_647,
    });
  });

  test.each([
    ['https', 'https://db.example'],
    ['HTTPS, http', 'https://db.example'],
    ['http', 'http://db.example'],
    ['javascript', 'http://db.example'],
    ['', 'http://db.example'],
  ])('has the scheme that a proxy in front of it reports: %j', async (forwarded, expected) => {
    const headers = { host: 'db.example', 'x-forwarded-proto': forwarded };
    const { json } = await call(testServer(), 'GET', '/', { headers });
    expect(json).toMatchObject({ writableLocations: [{ databaseAccountEndpoint: expected }] });
  });
});

describe('the server', () => {
  test('answers the request for replica addresses that a client in direct mode sends', async () => {
    const target = '//addresses/?$resolveFor=dbs%2fAQ%3d%3d%2fcolls%2fAQ%3d%3d%2fdocs&$filter=protocol eq rntbd';
    const { status, json } = await call(testServer(), 'GET', target.replaceAll(' ', '%20'));
    expect(status).toBe(400);
    expect(json['message']).toContain('start the server with --tls-cert');
  });

  test('answers unknown routes and methods in Cosmos DB’s shape', async () => {
    const app = await shop();
    for (const [method, path, status] of [
      ['GET', '/nothing', 404],
      ['GET', '/dbs/shop/nothing', 404],
      ['GET', '/dbs/shop/colls/orders/docs/1/2/3', 404],
      ['DELETE', '/dbs', 405],
      ['PUT', '/dbs/shop', 405],
      ['POST', '/', 405],
      ['OPTIONS', '/dbs', 405],
      ['QUERY', '/dbs', 405],
      ['PROPFIND', '/dbs', 405],
      ['PROPFIND', '/nothing', 404],
      ['GET', '/_epitaph/nothing', 404],
      ['GET', '/_epitaphs', 404],
      ['GET', '/_cosmos', 404],
    ] as const) {
      const reply = await call(app, method, path);
      expect([path, reply.status]).toEqual([path, status]);
      expect(reply.json).toMatchObject({ code: expect.any(String), message: expect.stringContaining('ActivityId: ') });
      expect(reply.headers['x-ms-activity-id']).toMatch(/^[0-9a-f-]{36}$/);
      expect(Number(reply.headers['x-ms-request-charge'])).toBeGreaterThanOrEqual(0);
    }
  });

  test('gives every answer a unique activity id', async () => {
    const app = await shop();
    const ids = new Set<unknown>();
    for (let n = 0; n < 20; n += 1) ids.add((await call(app, 'GET', '/dbs')).headers['x-ms-activity-id']);
    expect(ids.size).toBe(20);
  });

  test('uses the client’s activity id in the answer and in the events that the request records', async () => {
    const callers: string[] = [];
    const inner = fakeStore();
    const store = Object.assign(Object.create(inner) as typeof inner, {
      writeItem: (...args: Parameters<typeof inner.writeItem>) => {
        callers.push(args[0].correlationId);
        return inner.writeItem(...args);
      },
    });
    const app = await shop({ store });
    const write = (id: string) =>
      call(app, 'POST', DOCS, {
        headers: { ...keyHeader('ann'), 'x-ms-activity-id': id },
        body: { id: `o${callers.length}`, customer: 'ann' },
      });
    const id = '7f1c2a90-56b1-0d3e-1f00-aa5a1c0e7b42';
    expect((await write(id)).headers['x-ms-activity-id']).toBe(id);
    // In the form that logs use: a UUID is the same in upper and lower case.
    expect((await write(id.toUpperCase())).headers['x-ms-activity-id']).toBe(id);
    expect(callers).toEqual([id, id]);
    const refused = await call(app, 'GET', `${DOCS}/nobody`, {
      headers: { ...keyHeader('ann'), 'x-ms-activity-id': id },
    });
    expect(refused.headers['x-ms-activity-id']).toBe(id);
    expect(refused.json['message']).toContain(`ActivityId: ${id}`);
    const stranger = await call(app, 'GET', DOCS, {
      key: Buffer.alloc(64).toString('base64'),
      headers: { 'x-ms-activity-id': id },
    });
    expect([stranger.status, stranger.headers['x-ms-activity-id']]).toEqual([401, id]);
    for (const none of ['mine', id.slice(1), `${id}${id}`, '00000000-0000-0000-0000-000000000000']) {
      const own = (await write(none)).headers['x-ms-activity-id'];
      expect(own).toMatch(/^[0-9a-f-]{36}$/);
      expect(own).not.toBe(none);
    }
  });

  test.each(Object.keys(errorCodes) as ErrorCode[])(
    'gives the refusal %s a status below 500, or 503 with Retry-After, or 507 for a full disk',
    async (code) => {
      const store = fakeStore({ readItem: () => Promise.reject(new Refusal(code)) });
      const app = await shop({ store });
      const reply = await call(app, 'GET', `${DOCS}/1`, { headers: keyHeader('ann') });
      expect(reply.json).toMatchObject({ code: expect.any(String), message: expect.any(String) });
      if (code === 'busy' || code === 'clock-held' || code === 'storage-unavailable') {
        expect(reply.status).toBe(503);
        expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0);
        expect(Number(reply.headers['x-ms-retry-after-ms'])).toBeGreaterThan(0);
      } else if (code === 'backup-failed') {
        expect(reply.status).toBe(507);
      } else {
        expect(reply.status).toBeGreaterThanOrEqual(400);
        expect(reply.status).toBeLessThan(500);
      }
    },
  );

  test('answers a write with 408 (it may have been done) if the read model did not follow in time', async () => {
    const store = fakeStore({ writeItem: () => Promise.reject(new Refusal('session-not-available')) });
    const app = await shop({ store });
    expect((await call(app, 'POST', DOCS, { body: { id: '1', customer: 'ann' } })).status).toBe(408);
  });

  test('in a bulk, answers only writes with 408; reads can simply be repeated', async () => {
    const late = () => Promise.reject(new Refusal('session-not-available'));
    const app = await shop({ store: fakeStore({ writeItem: late, deleteItem: late, readItem: late }) });
    const headers = {
      ...keyHeader('ann'),
      'x-ms-cosmos-is-batch-request': 'true',
      'x-ms-cosmos-batch-continue-on-error': 'true',
    };
    const operations = [
      { operationType: 'Create', resourceBody: { id: '1', customer: 'ann' } },
      { operationType: 'Delete', id: '2' },
      { operationType: 'Read', id: '3' },
    ];
    const { json } = await call(app, 'POST', DOCS, { headers, body: operations });
    expect(json).toMatchObject([{ statusCode: 408 }, { statusCode: 408 }, { statusCode: 404, subStatusCode: 1002 }]);
  });

  test('does not repeat a write of a bulk that may have been done, even in a container with unique keys, where it repeats others', async () => {
    let writes = 0;
    const writeItem = () => {
      writes += 1;
      return Promise.reject(new Refusal('session-not-available'));
    };
    const app = await shop({ store: fakeStore({ writeItem }) });
    const uniqueKeyPolicy = { uniqueKeys: [{ paths: ['/name'] }] };
    const definition = { id: 'people', partitionKey: { paths: ['/customer'] }, uniqueKeyPolicy };
    await call(app, 'POST', '/dbs/shop/colls', { body: definition });
    const body = ['1', '2'].map((id) => ({ operationType: 'Create', resourceBody: { id, customer: 'ann', name: id } }));
    const headers = { 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-continue-on-error': 'true' };
    const { json } = await call(app, 'POST', '/dbs/shop/colls/people/docs', {
      headers: { ...keyHeader('ann'), ...headers },
      body,
    });
    expect(json).toMatchObject([{ statusCode: 408 }, { statusCode: 408 }]);
    expect(writes).toBe(2);
  });

  test('evaluates a request again, also a bulk, if another container has the name by now', async () => {
    const known = fakeStore();
    let isKnown = false;
    const store = fakeStore({
      ...known,
      container: (database, name) => {
        const earlier = known.container(database, name);
        const { definition } = earlier;
        const partitionKey = { ...definition.partitionKey, paths: ['/account'] };
        return isKnown ? { ...earlier, definition: { ...definition, partitionKey } } : earlier;
      },
      whoHas: () => {
        const before = isKnown;
        return async () => (isKnown = true) !== before;
      },
    });
    const app = await shop({ store });
    const ann = keyHeader('ann');
    expect((await call(app, 'POST', DOCS, { headers: ann, body: { id: '1', account: 'ann' } })).status).toBe(201);
    isKnown = false;
    const bulk = { ...ann, 'x-ms-cosmos-is-batch-request': 'true' };
    const body = [
      { operationType: 'Create', resourceBody: { id: '2', account: 'ann' } },
      { operationType: 'Create', resourceBody: { id: '3', account: 'bob' } },
    ];
    const { json } = await call(app, 'POST', DOCS, { headers: bulk, body });
    expect(json).toMatchObject([{ statusCode: 201 }, { statusCode: 400 }]);
  });

  test('answers that the container is not found if the container was deleted after the request had found it', async () => {
    const gone = () => Promise.reject(new Refusal('container-not-found'));
    const store = fakeStore({ writeItem: gone, readItem: gone, deleteContainer: gone });
    const app = await shop({ store });
    const ann = keyHeader('ann');
    const resourceBody = { id: '1', customer: 'ann' };
    const missing = { status: 404, headers: { 'x-ms-substatus': '1003' } };
    expect(await call(app, 'GET', `${DOCS}/1`, { headers: ann })).toMatchObject(missing);
    expect(await call(app, 'POST', DOCS, { body: resourceBody })).toMatchObject(missing);
    const bulk = { ...ann, 'x-ms-cosmos-is-batch-request': 'true' };
    const { json } = await call(app, 'POST', DOCS, {
      headers: bulk,
      body: [{ operationType: 'Create', resourceBody }],
    });
    expect(json).toMatchObject([{ statusCode: 404, subStatusCode: 1003 }]);
    const container = await call(app, 'DELETE', DOCS.slice(0, DOCS.lastIndexOf('/')));
    expect(container.status).toBe(404);
    expect(container.headers).not.toHaveProperty('x-ms-substatus');
  });

  test('reports a defect in full to the log, once, and without details to the client', async () => {
    const error = vi.fn();
    const logger = silent({ error });
    const store = fakeStore({ readItem: () => Promise.reject(new TypeError('secret detail')) });
    const app = await shop({ store, logger });
    const reply = await call(app, 'GET', `${DOCS}/1`, { headers: keyHeader('ann') });
    expect(reply.status).toBe(500);
    expect(reply.json['code']).toBe('InternalServerError');
    expect(reply.text).not.toContain('secret');
    expect(error).toHaveBeenCalledTimes(1);
    expect(error.mock.calls[0]?.[0]).toMatchObject({
      err: { message: 'secret detail' },
      activityId: reply.headers['x-ms-activity-id'],
    });
  });

  const damage = new UnreadableEvent('ItemUpserted at 7 is damaged: Unexpected token in "of another item"');
  const part = new PartUnreadable('The item "1" can not be read.', { cause: damage });
  const fault = new PurgeFault('the read models have the policies of container-rid otherwise than the event log');
  test.each([
    { error: damage, says: 'the event log or the key vault is damaged', logged: damage.message, isToRestore: true },
    { error: part, says: part.message, logged: `${part.message} ${damage.message}`, isToRestore: true },
    { error: fault, says: fault.message, logged: fault.message, isToRestore: false },
  ])(
    'reports damage to the client and, with its place, to the log, and never a part of the data: $logged',
    async ({ error: thrown, says, logged, isToRestore }) => {
      const error = vi.fn();
      const readItem = () => Promise.reject(thrown);
      const app = await shop({ store: fakeStore({ readItem }), logger: silent({ error }) });
      const reply = await call(app, 'GET', `${DOCS}/1`, { headers: keyHeader('ann') });
      expect(reply.status).toBe(500);
      expect(reply.json['message']).toContain(says);
      expect(String(reply.json['message']).includes('what must be restored')).toBe(isToRestore);
      expect(reply.text).not.toContain('another item');
      expect(error.mock.calls).toEqual([[{ activityId: reply.headers['x-ms-activity-id'] }, logged]]);
    },
  );

  test.each([[{}], [{ uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/email'] }] } }]])(
    'survives a defect in an operation of a bulk, in a container with %j',
    async (definition) => {
      const unhandled = vi.fn();
      process.on('unhandledRejection', unhandled);
      const store = fakeStore({ writeItem: () => Promise.reject(new TypeError('a defect')) });
      const app = testServer({ store });
      await call(app, 'POST', '/dbs', { body: { id: 'shop' } });
      const partitionKey = { paths: ['/customer'] };
      await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'orders', partitionKey, ...definition } });
      const create = { operationType: 'Create', partitionKey: '["ann"]', resourceBody: { id: '1', customer: 'ann' } };
      for (const goesOn of ['true', 'false']) {
        const headers = { 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-continue-on-error': goesOn };
        expect((await call(app, 'POST', DOCS, { headers, body: [create, create] })).status).toBe(500);
      }
      await new Promise((resolve) => void setImmediate(resolve));
      process.off('unhandledRejection', unhandled);
      expect(unhandled).not.toHaveBeenCalled();
    },
  );

  test('lets other work run between the reads of a bulk, each of which may take long', async () => {
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns += 1;
      if (!isOver) setImmediate(count);
    };
    const readItem = async (): Promise<never> => {
      const untilMs = performance.now() + 6;
      while (performance.now() < untilMs);
      throw new Refusal('item-not-found');
    };
    const app = await shop({ store: fakeStore({ readItem }) });
    const body = Array.from({ length: 20 }, (_, n) => ({ operationType: 'Read', id: `${n}`, partitionKey: '["ann"]' }));
    const headers = { 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-continue-on-error': 'true' };
    const reply = call(app, 'POST', DOCS, { headers, body });
    count();
    expect((await reply).json).toHaveLength(20);
    isOver = true;
    expect(turns).toBeGreaterThan(15);
  });

  test('refuses requests beyond its bound, admits others afterwards, and answers requests that need no key all the while', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const store = fakeStore();
    const app = await shop({
      store: { ...store, readItem: (...args) => held.then(() => store.readItem(...args)) },
      limits: { requestsInFlight: 3 },
      plugins: [
        (plane) => plane.get('/_epitaph/live', { config: { isForAnyone: true } }, () => ({ ok: true })),
        (plane) => plane.get('/_epitaph/holds', () => ({ ok: true })),
      ],
    });
    const read = () => call(app, 'GET', `${DOCS}/1`, { headers: keyHeader('ann') });
    const first = [read(), read(), read()];
    await vi.waitFor(async () => expect((await call(app, 'GET', '/dbs')).status).toBe(429));
    const refused = await call(app, 'GET', '/dbs');
    expect(refused.headers['retry-after']).toBe('1');
    expect(refused.headers['x-ms-substatus']).toBe('3200');
    expect(refused.json).toMatchObject({
      code: 'TooManyRequests',
      message: expect.stringContaining('nothing was done'),
    });
    expect((await app.inject('/_epitaph/holds')).statusCode).toBe(503);
    expect((await app.inject('/_epitaph/live')).statusCode).toBe(200);
    release();
    expect((await Promise.all(first)).map(({ status }) => status)).toEqual([404, 404, 404]);
    for (let n = 0; n < 10; n += 1) expect((await call(app, 'GET', '/dbs')).status).toBe(200);
  });

  test('tells refused clients to retry one after the other, and none to wait for long', async () => {
    const store = fakeStore({ readItem: () => new Promise(() => undefined) });
    const app = await shop({ store, limits: { requestsInFlight: 1 } });
    void call(app, 'GET', `${DOCS}/1`, { headers: keyHeader('ann') });
    await vi.waitFor(async () => expect((await call(app, 'GET', '/dbs')).status).toBe(429));
    vi.spyOn(systemClocks, 'monotonicMs').mockReturnValue(1_000_000_000);
    const waits: number[] = [];
    for (let n = 0; n < 3_100; n += 1) {
      waits.push(Number((await call(app, 'GET', '/dbs')).headers['x-ms-retry-after-ms']));
    }
    vi.restoreAllMocks();
    expect(waits.slice(0, 4)).toEqual([100, 101, 102, 103]);
    expect(waits.slice(-2)).toEqual([3_000, 3_000]);
  });

  test('keeps a request’s place until it is done, even if the client has gone', async () => {
    const store = fakeStore();
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const app = await shop({
      store: { ...store, readItem: (...args) => held.then(() => store.readItem(...args)) },
      limits: { requestsInFlight: 5 },
    });
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const head = (verb: string, link: string, path: string) =>
      `${verb} ${path} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nx-ms-documentdb-partitionkey: ["ann"]\r\nauthorization: ${sign(verb, 'docs', link, date)}\r\n\r\n`;
    for (let n = 0; n < 5; n += 1) {
      await new Promise<void>((resolve) => {
        const socket = connect(port, '127.0.0.1', () => {
          socket.write(head('GET', 'dbs/shop/colls/orders/docs/1', `${DOCS}/1`));
          setTimeout(() => socket.destroy(), 20);
        });
        socket.on('close', () => resolve());
      });
      expect([n, (await call(app, 'GET', '/dbs')).status]).toEqual([n, n < 4 ? 200 : 429]);
    }
    release();
    await vi.waitFor(async () => expect((await call(app, 'GET', '/dbs')).status).toBe(200));
  });

  test('keeps the room for a large body until its request is done, even if the client has gone', async () => {
    const store = fakeStore();
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const writeItem = vi.fn<StoreApi['writeItem']>((...args) => held.then(() => store.writeItem(...args)));
    const app = await shop({ store: { ...store, writeItem }, limits: { largeBodyBytesInFlight: 100_000 } });
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const authorization = sign('POST', 'docs', 'dbs/shop/colls/orders', date);
    const body = JSON.stringify({ id: '1', customer: 'ann', text: 'x'.repeat(110_000) });
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(
        `POST ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      ),
    );
    const [, answer] = (await once(app.server, 'request')) as [unknown, ServerResponse];
    await vi.waitFor(() => expect(writeItem).toHaveBeenCalled());
    socket.destroy();
    await once(answer, 'close');
    expect((await call(app, 'POST', DOCS, { body: JSON.parse(body) as object })).status).toBe(429);
    release();
    await vi.waitFor(async () =>
      expect((await call(app, 'POST', DOCS, { body: JSON.parse(body) as object })).status).toBe(409),
    );
  });

  test('takes no place for a client that leaves while its token is verified', async () => {
    const grant = { actor: 'token:x', databaseRid: 'x', writes: true, target: { containerRid: 'x' } };
    let asked = 0;
    const verifyResourceToken = async () => {
      asked += 1;
      await sleep(100);
      return { ok: true, grant };
    };
    const app = await shop({
      store: { ...fakeStore(), verifyResourceToken } as unknown as StoreApi,
      limits: { requestsInFlight: 2 },
    });
    const port = await listening(app);
    const authorization = encodeURIComponent('type=resource&ver=1&sig=x');
    for (let n = 1; n <= 5; n += 1) {
      const socket = connect(port, '127.0.0.1', () => {
        socket.write(`GET ${DOCS}/1 HTTP/1.1\r\nhost: x\r\nauthorization: ${authorization}\r\n\r\n`);
      });
      await vi.waitFor(() => expect(asked).toBe(n));
      socket.destroy();
    }
    await sleep(200);
    for (let n = 0; n < 3; n += 1) expect((await call(app, 'GET', '/dbs')).status).toBe(200);
  });

  test.each([
    ['ends its side', (socket: Socket) => void socket.end()],
    ['closes', (socket: Socket) => void socket.destroy()],
    ['resets', (socket: Socket) => void socket.resetAndDestroy()],
  ])(
    'has all its places again after clients each of which %s somewhere in a request or its answer',
    async (_how, leave) => {
      const store = fakeStore();
      let hold = (): Promise<void> => sleep(10);
      const limits = {
        requestsInFlight: 3,
        largeBodyBytesInFlight: 3_000_000,
        unsentBytes: 9_000_000,
        unsentTimeoutMs: 300,
      };
      const { app, port, ask } = await manyLargeItems(limits, {
        ...store,
        readItem: async (...args) => {
          await hold();
          return store.readItem(...args);
        },
      });
      const date = httpDate(NOW_MS);
      const signed = (verb: string, target: string, link: string) =>
        `${verb} ${target} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nx-ms-documentdb-partitionkey: ["ann"]\r\nauthorization: ${sign(verb, 'docs', link, date)}\r\n`;
      const read = `${signed('GET', `${DOCS}/1`, 'dbs/shop/colls/orders/docs/1')}\r\n`;
      const upsert = `${signed('POST', DOCS, 'dbs/shop/colls/orders')}x-ms-documentdb-is-upsert: true\r\n`;
      const item = (text: string) => `{"id":"w","customer":"ann","text":"${text}"}`;
      const withBody = (head: string, body: string) => `${head}content-length: ${body.length}\r\n\r\n${body}`;
      const large = item('x'.repeat(70_000));
      const requests = [
        ask,
        read,
        read.repeat(4),
        withBody(upsert, item('')),
        withBody(upsert, large),
        withBody(upsert, item('x'.repeat(5_000_000))),
        withBody(upsert.replace('authorization', 'x-authorization'), large),
        `${upsert}transfer-encoding: chunked\r\n\r\n${large.length.toString(16)}\r\n${large}\r\n0\r\n\r\n`,
        'GET /_epitaph/nothing HTTP/1.1\r\nhost: x\r\n\r\n',
      ];
      for (const request of requests) {
        const head = request.indexOf('\r\n\r\n') + 4;
        const { length } = request;
        for (const bytes of new Set([
          5,
          head - 2,
          head,
          head + 1,
          Math.ceil((head + length) / 2),
          length - 1,
          length,
        ])) {
          for (const waitMs of [0, 8, 25]) {
            const socket = connect(port, '127.0.0.1').pause();
            socket.on('error', () => undefined);
            await once(socket, 'connect');
            socket.write(request.slice(0, bytes));
            await sleep(waitMs);
            leave(socket);
            if (waitMs === 8) socket.destroy();
          }
        }
      }
      const largeAgain = () =>
        call(app, 'POST', DOCS, { body: { id: 'w', customer: 'bob', text: 'x'.repeat(70_000) } });
      await vi.waitFor(async () => expect([201, 409]).toContain((await largeAgain()).status), 5_000);
      let release = (): void => undefined;
      const held = new Promise<void>((resolve) => (release = resolve));
      hold = () => held;
      const reads = [1, 2, 3].map(() => call(app, 'GET', `${DOCS}/1`, { headers: keyHeader('ann') }));
      await vi.waitFor(async () => expect((await call(app, 'GET', '/dbs')).status).toBe(429));
      release();
      expect((await Promise.all(reads)).map(({ status }) => status)).toEqual([200, 200, 200]);
      expect(await taken(port, ask)).toBeGreaterThan(8_000_000);
    },
  );

  test.each([
    ['feed', 'GET', undefined],
    ['query', 'POST', '{"query":"SELECT * FROM c"}'],
  ])('makes no page of a %s if the client has left before it was begun', async (_what, verb, query) => {
    const store = fakeStore();
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const [listItems, queryItems] = [vi.fn(store.listItems), vi.fn(store.queryItems)];
    const settleNames: StoreApi['settleNames'] = (_database, _container, isItself) => (isItself ? undefined : held);
    const app = await shop({ store: { ...store, listItems, queryItems, settleNames } });
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const authorization = sign(verb, 'docs', 'dbs/shop/colls/orders', date);
    const asQuery = `x-ms-documentdb-isquery: true\r\nx-ms-documentdb-query-enablecrosspartition: true\r\ncontent-length: ${query?.length}\r\n`;
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(
        `${verb} ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\n${query === undefined ? '' : asQuery}\r\n${query ?? ''}`,
      );
    });
    const [{ socket: there }] = (await once(app.server, 'request')) as [{ readonly socket: Socket }];
    await sleep(50);
    const left = once(there, 'close');
    socket.destroy();
    await left;
    release();
    await vi.waitFor(() =>
      expect(store.measurements.requests()).toContainEqual({
        plane: 'data',
        status: '4xx',
        operation: 'query',
        count: 1,
      }),
    );
    expect(listItems).not.toHaveBeenCalled();
    expect(queryItems).not.toHaveBeenCalled();
  });

  test('closes a connection if even a refusal can’t be answered', async () => {
    const error = vi.fn();
    const store = fakeStore();
    const port = await listening(testServer({ store, logger: silent({ error }) }));
    vi.spyOn(store.measurements, 'countRequest').mockImplementation(() => {
      throw new Error('no room for another count');
    });
    const heard = exchange(port, 'GET /dbs HTTP/1.1\r\nhost: x\r\n\r\n').catch(() => '');
    expect(await heard).toBe('');
    expect(error).toHaveBeenCalledWith(expect.anything(), 'an error response could not be sent');
  });

  test('answers input that is not HTTP, or too much of it, in Cosmos DB’s shape', async () => {
    const port = await listening(testServer());
    const noHttp = await exchange(port, 'no http at all\r\n\r\n');
    expect(noHttp).toMatch(/^HTTP\/1\.1 400 [^]*"code":"BadRequest"/);
    const date = parseHttpDate(/^date: (.*)$/im.exec(noHttp)![1]!)!;
    expect(Math.abs(Date.now() - date)).toBeLessThan(60_000);
    const large = `GET / HTTP/1.1\r\nhost: x\r\nx-large: ${'x'.repeat(70_000)}\r\n\r\n`;
    expect(await exchange(port, large)).toMatch(/^HTTP\/1\.1 431 [^]*"code":"RequestHeaderFieldsTooLarge"/);
    const long = `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`;
    expect(await exchange(port, long)).toMatch(/^HTTP\/1\.1 414 [^]*"code":"RequestUriTooLong"/);
  });

  test('carries out and answers the requests that came before input that is not HTTP, and then refuses that', async () => {
    const port = await listening(await shop());
    const date = httpDate(NOW_MS);
    const authorization = sign('POST', 'docs', 'dbs/shop/colls/orders', date);
    const head = `POST ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\n`;
    const create = (id: string) => {
      const body = `{"id":"${id}","customer":"ann"}`;
      return `${head}content-length: ${body.length}\r\n\r\n${body}`;
    };
    const statuses = async (bytes: string) => (await exchange(port, bytes)).match(/HTTP\/1\.1 \d+/g);
    const junk = 'no http at all\r\n\r\n';
    const large = `GET / HTTP/1.1\r\nx-large: ${'x'.repeat(70_000)}\r\n\r\n`;
    expect(await statuses(create('o1') + junk)).toEqual(['HTTP/1.1 201', 'HTTP/1.1 400']);
    expect(await statuses(create('o2') + create('o2') + large)).toEqual(
      [201, 409, 431].map((one) => `HTTP/1.1 ${one}`),
    );
    expect(await statuses(`${head}transfer-encoding: chunked\r\n\r\n${junk}`)).toEqual(['HTTP/1.1 400']);
  });

  test.each(['/', '/_epitaph/health'])(
    'tells a request for %s without a Host header what is missing',
    async (target) => {
      const port = await listening(testServer());
      const hostless = (version: string) =>
        exchange(port, `GET ${target} HTTP/${version}\r\nconnection: close\r\n\r\n`);
      expect(await hostless('1.1')).toMatch(/^HTTP\/1\.1 400 [^]*"code":"BadRequest"[^]*Host/);
      // HTTP/1.0 does not have this header.
      expect(await hostless('1.0')).not.toMatch(/^HTTP\/1\.1 400 /);
    },
  );

  test('tells a client that begins with HTTP/2 to use HTTP/1.1 as soon as it sends a request, however its bytes arrive', async () => {
    const port = await listening(testServer());
    const start = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
    const settings = '\0\0\0\u0004\0\0\0\0\0';
    // A frame with a setting whose bytes look like another frame.
    const oneSetting = '\0\0\u0006\u0004\0\0\0\0\0\0\0\u0001\u0001\0\0';
    const request = '\0\0\u0001\u0001\u0005\0\0\0\u0001\u0082';
    for (const pieces of [
      [start + settings, request],
      [start, settings, oneSetting, request],
      [start + oneSetting.slice(0, 12), oneSetting.slice(12) + request.slice(0, 3), request.slice(3)],
      ['PRI * HT', `TP/2.0${start.slice(14)}`, settings + request],
    ]) {
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
      const heard: string[] = [];
      socket.on('data', (chunk: Buffer) => heard.push(chunk.toString('hex')));
      const ended = once(socket, 'end');
      for (const piece of pieces) {
        expect(heard.join('')).not.toContain('0d');
        socket.write(piece);
        await sleep(20);
      }
      await ended;
      // SETTINGS, and GOAWAY with HTTP_1_1_REQUIRED (RFC 9113).
      const frames = ['000000040000000000', '000008070000000000', '00000000', '0000000d'];
      expect(heard.join('')).toBe(frames.join(''));
      socket.destroy();
    }
  });

  test('answers 408 if the body of a request never arrives', async () => {
    const app = await shop({ limits: { requestTimeoutMs: 300 } });
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const head = `POST ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${sign('POST', 'docs', 'dbs/shop/colls/orders', date)}\r\ncontent-length: 100\r\n\r\n{`;
    const answer = await exchange(port, head);
    expect(answer).toMatch(/^HTTP\/1\.1 408 [^]*"code":"RequestTimeout"/);
  });

  test.each([
    ['nothing', ''],
    ['half of a head', 'GET / HTTP/1.1\r\nhost: x\r\n'],
  ])('closes a connection on which %s comes, even if the client keeps its side open', async (_what, bytes) => {
    const app = testServer({ limits: { requestTimeoutMs: 300 } });
    const port = await listening(app);
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => socket.write(bytes));
    await once(socket.resume(), 'end');
    const connections = promisify(app.server.getConnections.bind(app.server));
    await vi.waitFor(async () => expect(await connections()).toBe(0), { timeout: 5_000 });
    socket.destroy();
  });

  test.each([
    ['half of a head', 'GET / HTTP/1.1\r\nhost: x\r\n'],
    ['a request that is not answered', 'GET / HTTP/1.1\r\nhost: x\r\n\r\n'],
  ])('closes within the given time, even if %s has come', async (_what, bytes) => {
    const app = testServer();
    app.server.removeAllListeners('request');
    const port = await listening(app);
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    await once(app.server, 'connection');
    const ended = once(socket.on('error', () => {}).resume(), 'close');
    const beganMs = performance.now();
    await closeWithin(app, 200);
    await ended;
    expect(performance.now() - beganMs).toBeGreaterThan(200);
  });

  test('closes without waiting for connections on which nothing has arrived', async () => {
    const app = testServer();
    const socket = connect(await listening(app), '127.0.0.1');
    await once(app.server, 'connection');
    const ended = once(socket, 'close');
    await closeWithin(app, 60_000);
    await ended;
  }, 10_000);

  test('answers a request that was sent before it closes, even if it had not read it by then', async () => {
    const app = testServer();
    const socket = connect(await listening(app), '127.0.0.1');
    const head = 'GET /_epitaph/nothing HTTP/1.1\r\nhost: x\r\n\r\n';
    const answered = async () => expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 404 /);
    socket.write(head);
    await answered();
    socket.write(head);
    await Promise.all([closeWithin(app, 60_000), answered()]);
  }, 10_000);

  test('closes abandoned connections for new ones when the limit is reached, and no others', async () => {
    const port = await listening(testServer({ limits: { connections: 4, leftBehindMs: 2_000 } }));
    const head = 'GET /_epitaph/nothing HTTP/1.1\r\nhost: x\r\n\r\n';
    const answered = async (socket: Socket) =>
      expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 404 /);
    const open = () => connect(port, '127.0.0.1');
    const [silent, left, used, busy] = [open(), open(), open(), open()];
    const ends = Promise.all([silent, left].map((socket) => once(socket.resume(), 'close')));
    for (const socket of [left, used]) {
      socket.write(head);
      await answered(socket);
    }
    const date = httpDate(NOW_MS);
    const signed = `x-ms-date: ${date}\r\nauthorization: ${sign('POST', 'docs', 'dbs/shop/colls/orders', date)}\r\n`;
    busy.write(`POST ${DOCS} HTTP/1.1\r\nhost: x\r\n${signed}content-length: 2\r\n\r\n{`);
    await sleep(2_100);
    used.write(head);
    await answered(used);

    await exchange(port, head).catch(() => {});
    await ends;
    expect(await exchange(port, `${head.slice(0, -2)}connection: close\r\n\r\n`)).toMatch(/^HTTP\/1\.1 404 /);
    used.write(head);
    await answered(used);
    busy.write('}');
    expect(String((await once(busy, 'data'))[0])).toMatch(/^HTTP\/1\.1 /);
    for (const socket of [used, busy]) socket.destroy();
  });

  test('frees the memory of a closed connection', async () => {
    const app = testServer();
    const port = await listening(app);
    let there: WeakRef<Socket> | undefined;
    app.server.once('connection', (socket: Socket) => (there = new WeakRef(socket)));
    const client = connect(port, '127.0.0.1');
    client.resume().end();
    await once(client, 'close');
    await vi.waitFor(() => {
      collectGarbage();
      expect(there!.deref() === undefined).toBe(true);
    }, 5_000);
  });

  test('refuses a request without a valid signature before its body is read', async () => {
    const port = await listening(testServer());
    const head = 'POST /dbs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1000000\r\n\r\n';
    expect(await exchange(port, head)).toMatch(/^HTTP\/1\.1 401 /);
  });

  test('stops making pages while clients leave them unread, and hangs up on those clients if others wait', async () => {
    const { port, ask, hungUp } = await manyLargeItems({ unsentBytes: 40 * 1024 * 1024, unsentTimeoutMs: 60_000 });
    const idle = Array.from({ length: 12 }, () => {
      const socket = connect(port, '127.0.0.1', () => socket.write(ask));
      return socket;
    });
    const startedMs = performance.now();
    expect(await taken(port, ask)).toBeGreaterThan(8_000_000);
    expect(performance.now() - startedMs).toBeGreaterThan(500);
    // Not on all of them: clients for whose pages there is room may take their time.
    expect(hungUp.length).toBeGreaterThan(0);
    expect(hungUp.length).toBeLessThan(12);
    for (const socket of idle) socket.destroy();
  });

  test('hangs up on a client that reads nothing of its answer, and not on a slow one', async () => {
    const { port, ask, hungUp } = await manyLargeItems({ unsentTimeoutMs: 1_500 });
    const idle = connect(port, '127.0.0.1', () => idle.write(ask));
    const slow = connect(port, '127.0.0.1', () => slow.write(ask));
    let bytes = 0;
    await new Promise<void>((resolve, reject) => {
      slow.on('close', () => reject(new Error(`hung up on after ${bytes} bytes`)));
      slow.on('data', (chunk) => {
        bytes += chunk.length;
        if (bytes > 8_000_000) resolve();
        slow.pause();
        setTimeout(() => slow.resume(), 15);
      });
    });
    await vi.waitFor(() => expect(hungUp).toContain(idle.localPort), 10_000);
    idle.destroy();
    slow.destroy();
  }, 30_000);

  test('answers a body that is far too large, reads it to its end, and goes on with the connection', async () => {
    const port = await listening(await shop());
    const date = httpDate(NOW_MS);
    const authorization = sign('POST', 'docs', 'dbs/shop/colls/orders', date);
    const head = (length: number) =>
      `POST ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\ncontent-length: ${length}\r\n\r\n`;
    const socket = connect(port, '127.0.0.1');
    const answers: string[] = [];
    socket.on('data', (chunk) => answers.push(...(String(chunk).match(/HTTP\/1\.1 \d+/g) ?? [])));
    const failed = once(socket, 'error').then(([error]) => Promise.reject(error as Error));
    const sent = new Promise<void>((resolve) => {
      socket.write(head(50_000_000));
      socket.write(Buffer.alloc(50_000_000, 'x'), () => resolve());
    });
    await Promise.race([sent, failed]);
    const body = '{"id":"1","customer":"ann"}';
    socket.write(`${head(body.length)}${body}`);
    await Promise.race([vi.waitFor(() => expect(answers).toEqual(['HTTP/1.1 413', 'HTTP/1.1 201'])), failed]);
    socket.destroy();
  });

  test('refuses a chunked body once it gets too large, and closes its connection', async () => {
    const port = await listening(await shop({ limits: { bodyBytes: 1_000 } }));
    const date = httpDate(NOW_MS);
    const authorization = sign('POST', 'docs', 'dbs/shop/colls/orders', date);
    const head = `POST ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\ntransfer-encoding: chunked\r\n\r\n`;
    const chunk = `1f4\r\n${' '.repeat(500)}\r\n`;
    // The last chunk never comes.
    expect(await exchange(port, head + chunk.repeat(3))).toMatch(/^HTTP\/1\.1 413 .*connection: close/is);
  });

  test('answers a request that arrives while it closes, and then closes the connection', async () => {
    const app = testServer();
    const port = await listening(app);
    const socket = connect(port, '127.0.0.1');
    const answer: string[] = [];
    socket.setEncoding('utf8').on('data', (text: string) => answer.push(text));
    // In the middle of a request, so that the connection is not idle.
    const reached = once(app.server, 'connection').then(([there]) => once(there as Socket, 'data'));
    socket.write('GET /dbs HTTP/1.1\r\nhost: x\r\n');
    await reached;
    const closed = app.close();
    socket.write('\r\n');
    await once(socket, 'close');
    expect(answer.join('')).toMatch(/^HTTP\/1\.1 401 .*connection: close/is);
    await closed;
  });

  test('hangs up on a client that sends many requests without waiting for answers, and not on one that sends a few', async () => {
    const keys = testKeys();
    const begun = vi.spyOn(keys, 'verifyMasterSignature');
    const port = await listening(testServer({ keys }));
    const ask = 'GET /dbs HTTP/1.1\r\nhost: x\r\n\r\n';
    const last = 'GET /dbs HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n';
    const few = await exchange(port, ask.repeat(16) + last);
    expect(few.match(/HTTP\/1\.1 401/g)).toHaveLength(17);
    begun.mockClear();
    const many = await exchange(port, ask.repeat(1_000) + last).catch(() => '');
    expect(many.match(/HTTP/g) ?? []).toHaveLength(0);
    expect(begun).toHaveBeenCalledTimes(1);
  });

  test('begins a request only when the one before it on the same connection is answered', async () => {
    const port = await listening(await shop());
    const date = httpDate(NOW_MS);
    const signed = (verb: string, link: string) =>
      `host: x\r\nx-ms-date: ${date}\r\nx-ms-documentdb-partitionkey: ["ann"]\r\nauthorization: ${sign(verb, 'docs', link, date)}\r\n`;
    const body = '{"id":"1","customer":"ann"}';
    const create = `POST ${DOCS} HTTP/1.1\r\n${signed('POST', 'dbs/shop/colls/orders')}content-length: ${body.length}\r\n\r\n${body}`;
    const read = `GET ${DOCS}/1 HTTP/1.1\r\n${signed('GET', 'dbs/shop/colls/orders/docs/1')}`;
    const remove = `DELETE ${DOCS}/1 HTTP/1.1\r\n${signed('DELETE', 'dbs/shop/colls/orders/docs/1')}\r\n`;
    const text = await exchange(port, `${create}${read}\r\n${remove}${create}${read}connection: close\r\n\r\n`);
    expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual([201, 200, 204, 201, 200].map((one) => `HTTP/1.1 ${one}`));
  });

  test('frees the places of requests that wait behind others on a connection when the connection closes', async () => {
    const store = fakeStore();
    const app = await shop({
      store: { ...store, readItem: (...args) => sleep(100).then(() => store.readItem(...args)) },
      limits: { requestsInFlight: 3 },
    });
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const authorization = sign('GET', 'docs', 'dbs/shop/colls/orders/docs/1', date);
    const read = `GET ${DOCS}/1 HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nx-ms-documentdb-partitionkey: ["ann"]\r\nauthorization: ${authorization}\r\n\r\n`;
    for (let n = 0; n < 3; n += 1) {
      const socket = connect(port, '127.0.0.1', () => socket.write(read.repeat(3)));
      await once(app.server, 'request');
      socket.destroy();
      await vi.waitFor(async () => expect((await call(app, 'GET', '/dbs')).status).toBe(200));
    }
  });

  test('does not count the time that a request waits behind another against the time for reading an answer', async () => {
    const { port, ask } = await manyLargeItems(
      { unsentTimeoutMs: 300 },
      {
        settleNames: (_database, container, isItself) =>
          container === undefined && isItself ? sleep(1_000) : undefined,
      },
    );
    const date = httpDate(NOW_MS);
    const authorization = sign('GET', 'dbs', 'dbs/shop', date);
    const slow = `GET /dbs/shop HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\n\r\n`;
    const answers = (await exchange(port, ask + slow)).match(/HTTP\/1\.1 \d+/g);
    expect(answers).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200']);
  });

  test('hangs up on a client that reads none of its many small answers', async () => {
    const app = await shop({ limits: { unsentTimeoutMs: 300, requestsInFlight: 1 } });
    expect(
      (await call(app, 'POST', DOCS, { body: { id: '1', customer: 'ann', text: 'x'.repeat(60_000) } })).status,
    ).toBe(201);
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const authorization = sign('GET', 'docs', 'dbs/shop/colls/orders/docs/1', date);
    const read = `GET ${DOCS}/1 HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nx-ms-documentdb-partitionkey: ["ann"]\r\nauthorization: ${authorization}\r\n\r\n`;
    const socket = connect(port, '127.0.0.1').pause();
    const [there] = (await once(app.server, 'connection')) as [Socket];
    let isHungUp = false;
    there.once('close', () => (isHungUp = true));
    // Fills the system's buffers. One more answer then holds the only place.
    for (let isOut = true; isOut;) {
      socket.write(read);
      const [, response] = (await once(app.server, 'request')) as [unknown, ServerResponse];
      await Promise.race([once(response, 'close'), sleep(200)]);
      isOut = response.closed;
    }
    expect((await call(app, 'GET', '/dbs')).status).toBe(429);
    await vi.waitFor(() => expect(isHungUp).toBe(true), 5_000);
    expect((await call(app, 'GET', '/dbs')).status).toBe(200);
    socket.destroy();
  });

  test('keeps little more than the bytes of a body that arrives byte by byte', async () => {
    const app = await shop();
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const authorization = sign('POST', 'docs', 'dbs/shop/colls/orders', date);
    const socket = connect(port, '127.0.0.1');
    const [there] = (await once(app.server, 'connection')) as [Socket];
    collectGarbage();
    const before = process.memoryUsage().heapUsed;
    const byBytes = (text: string) => text.replaceAll(/./g, '1\r\n$&\r\n');
    const text = 'abcdefghij'.repeat(20_000);
    const begun = byBytes(`{"id":"1","customer":"ann","text":"${text}`);
    socket.write(
      `POST ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\ntransfer-encoding: chunked\r\n\r\n${begun}`,
    );
    await vi.waitFor(() => expect(there.bytesRead).toBeGreaterThan(begun.length), 20_000);
    await sleep(50);
    collectGarbage();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(15_000_000);
    socket.write(`${byBytes('"}')}0\r\n\r\n`);
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 201 /);
    expect((await call(app, 'GET', `${DOCS}/1`, { headers: keyHeader('ann') })).json).toMatchObject({ text });
    socket.destroy();
  });

  test('does not answer unreadable input in the middle of another answer', async () => {
    const { port, ask, hungUp } = await manyLargeItems({});
    const socket = connect(port, '127.0.0.1').pause();
    // The request has a body that is ignored, and that is never ended correctly.
    socket.write(`${ask.slice(0, -2)}transfer-encoding: chunked\r\n\r\n`);
    await sleep(300);
    socket.write('no http at all\r\n');
    let text = '';
    socket.on('data', (chunk) => (text += String(chunk))).on('error', () => undefined);
    socket.resume();
    await once(socket, 'close');
    expect(text).toMatch(/^HTTP\/1\.1 200 /);
    expect(text).not.toContain('HTTP/1.1 400');
    expect(hungUp).toHaveLength(1);
  });

  test('ignores an Expect header with an unknown value', async () => {
    const port = await listening(testServer());
    for (const expected of ['tea', '100-continue']) {
      const head = `POST /dbs HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: ${expected}\r\ncontent-length: 2\r\n\r\n{}`;
      expect(await exchange(port, head)).toMatch(
        /^(?:HTTP\/1\.1 100 Continue\r\n\r\n)?HTTP\/1\.1 401 [^]*"code":"Unauthorized"/,
      );
    }
  });

  test('does not count the body of a GET, which needs no key, against the room for bodies', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const app = await shop({
      limits: { largeBodyBytesInFlight: 100_000 },
      plugins: [(plane) => plane.get('/_epitaph/nothing', () => held)],
    });
    const port = await listening(app);
    const socket = connect(port, '127.0.0.1', () =>
      socket.write('GET /_epitaph/nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n'),
    );
    await once(app.server, 'request');
    socket.write('x'.repeat(110_000));
    const text = 'x'.repeat(100_000);
    for (let n = 0; n < 5; n += 1) {
      await sleep(20);
      expect((await call(app, 'POST', DOCS, { body: { id: `${n}`, customer: 'ann', text } })).status).toBe(201);
    }
    release();
    socket.destroy();
  });

  test.each([
    ['tell their length', 'content-length: 1000000\r\n\r\n'],
    ['do not', 'transfer-encoding: chunked\r\n\r\nf4240\r\n'],
  ])('bounds the large bodies in flight, which %s', async (_what, length) => {
    const app = await shop({ limits: { largeBodyBytesInFlight: 100_000 } });
    const port = await listening(app);
    const date = httpDate(NOW_MS);
    const authorization = sign('POST', 'docs', 'dbs/shop/colls/orders', date);
    const head = `POST ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\n${length}{`;
    const socket = connect(port, '127.0.0.1', () => socket.write(head));
    await once(app.server, 'request');
    const text = 'x'.repeat(100_000);
    const large = () => call(app, 'POST', DOCS, { body: { id: '1', customer: 'ann', text } });
    // Bytes that have not arrived take no room.
    expect((await large()).status).toBe(201);
    socket.write('x'.repeat(110_000));
    await vi.waitFor(async () => expect((await large()).status).toBe(429));
    expect((await call(app, 'POST', DOCS, { body: { id: '2', customer: 'ann' } })).status).toBe(201);
    socket.destroy();
    await vi.waitFor(async () => expect((await large()).status).not.toBe(429));
    // If many begin while there is room, not all of them are accepted.
    const sockets: Socket[] = [];
    for (let begun = 0; begun < 10; begun += 1) {
      const one = connect(port, '127.0.0.1', () => one.write(head)).on('error', () => undefined);
      sockets.push(one);
      await once(app.server, 'request');
    }
    const ended = sockets.map((one) => once(one.resume(), 'close'));
    for (const one of sockets) one.write('x'.repeat(50_000));
    // This is long before any of them would time out.
    expect(await Promise.race([...ended, sleep(10_000)])).toBeDefined();
    for (const one of sockets) one.destroy();
    await vi.waitFor(async () => expect((await large()).status).not.toBe(429));
  });
});

/** A server with a list larger than the buffers of an unread connection, a request for it, and the client ports of closed connections. */
async function manyLargeItems(
  limits: NonNullable<ServerOptions['limits']>,
  overrides: Parameters<typeof fakeStore>[0] = {},
) {
  const app = await shop({ limits, store: fakeStore(overrides) });
  for (let n = 0; n < 8; n += 1) {
    const body = { id: String(n), customer: 'ann', text: 'x'.repeat(1_100_000) };
    expect((await call(app, 'POST', DOCS, { body })).status).toBe(201);
  }
  const date = httpDate(NOW_MS);
  const authorization = sign('GET', 'docs', 'dbs/shop/colls/orders', date);
  const ask = `GET ${DOCS} HTTP/1.1\r\nhost: x\r\nx-ms-date: ${date}\r\nauthorization: ${authorization}\r\n\r\n`;
  const hungUp: (number | undefined)[] = [];
  app.server.on('connection', (socket: Socket) => {
    const { remotePort } = socket;
    socket.on('close', () => hungUp.push(remotePort));
  });
  return { app, port: await listening(app), ask, hungUp };
}

/** Reads an answer, and resolves with the number of bytes. */
async function taken(port: number, ask: string): Promise<number> {
  const socket = connect(port, '127.0.0.1', () => socket.write(ask));
  let bytes = 0;
  for await (const chunk of socket) {
    bytes += (chunk as Buffer).length;
    if (bytes > 8_000_000) break;
  }
  return bytes;
}

/** A logger without output, apart from the given methods. */
function silent(own: object): FastifyBaseLogger {
  const quiet = (): void => undefined;
  const levels = { fatal: quiet, error: quiet, warn: quiet, info: quiet, debug: quiet, trace: quiet, silent: quiet };
  const logger = { level: 'info', ...levels, ...own, child: () => logger } as unknown as FastifyBaseLogger;
  return logger;
}
