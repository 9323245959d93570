import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Refusal, errorCodes, type ErrorCode } from '@epitaph/core/errors.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { problemDetails, problemOf, retryAfterSeconds } from '@epitaph/api/management/problems.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import { AUDITOR_KEY, item, openWorld, ORDERS, READ_ONLY_KEY, type World } from './world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

describe('authorization', () => {
  test('a request without a valid key is told how to send one, and nothing else', async () => {
    for (const key of [null, 'nonsense', Buffer.alloc(64, 9).toString('base64')]) {
      for (const url of ['/purge', '/nothing', `/dbs/nothing/colls/nothing/history`]) {
        const response = await world.ask('GET', url, { key });
        expect(response.statusCode).toBe(401);
        expect(response.headers['www-authenticate']).toBe('Bearer realm="epitaph"');
        expect(response.json()).toMatchObject({ code: 'unauthorized', status: 401 });
      }
    }
  });
});

describe('a request that needs no key', () => {
  test('is answered even if there is no room for others', async () => {
    const { store } = world;
    const keys = new KeyRing({ primary: EMULATOR_KEY });
    const full = buildServer({
      store,
      keys,
      limits: { requestsInFlight: 0 },
      plugins: [(app) => registerManagement(app, { store, keys })],
    });
    const headers = { authorization: `Bearer ${EMULATOR_KEY}` };
    expect((await full.inject({ url: '/_epitaph/purge', headers })).statusCode).toBe(503);
    for (const url of ['/health/live', '/health/ready', '/openapi.json', '/open%61pi.json', '/openapi.json/']) {
      expect([url, (await full.inject(`/_epitaph${url}`)).statusCode]).toEqual([url, 200]);
    }
    await full.close();
  });
});

describe('a refusal', () => {
  test('is a problem detail with a stable code', async () => {
    const response = await world.ask('GET', '/dbs/shop/colls/nothing/history');
    expect(response.headers['content-type']).toMatch(/^application\/problem\+json/);
    expect(response.json()).toEqual({
      type: 'urn:epitaph:problem:container-not-found',
      title: errorCodes['container-not-found'],
      status: 404,
      detail: expect.any(String),
      code: 'container-not-found',
      instance: expect.stringMatching(/^urn:uuid:[0-9a-f-]{36}$/),
    });
  });

  test.each([
    ['GET', '/nothing', undefined, 404, 'route-not-found'],
    ['GET', '', undefined, 404, 'route-not-found'],
    ['PATCH', '/purge', undefined, 404, 'route-not-found'],
    ['GET', '/dbs/nothing/colls/orders/history', undefined, 404, 'database-not-found'],
    ['GET', '/%zz', undefined, 400, 'bad-request'],
    ['GET', `/dbs/${'x'.repeat(5000)}/colls/y/history`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain`, undefined, 400, 'bad-request'],
    // An escape in another encoding would be taken for another name, of which nothing was ever written.
    ['GET', `${ORDERS}/explain?id=M%FCller&partitionKey=%5B%22ann%22%5D`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain?id=a%ED%A0%80&partitionKey=%5B%22ann%22%5D`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain?id=50%&partitionKey=%5B%22ann%22%5D`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain?id=a`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain?id=a&partitionKey=ann`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain?id=a&partitionKey=%5B%5D`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain?id=a&partitionKey=%5B1%2C2%5D`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain${item('a')}&id=b`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain${item('a', { at: 'yesterday' })}`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain${item('a', { at: '2026-02-30' })}`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain${item('a', { at: '2026-11-21T10:00:00' })}`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain${item('a', { When: 'now' })}`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/explain${item('a', { rid: 'nothing' })}`, undefined, 404, 'container-not-found'],
    ['GET', `${ORDERS}/history?partitionKey=%5B%22ann%22%5D`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/disappearances?limit=0`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/disappearances?limit=1e3`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/disappearances?continuation=x`, undefined, 400, 'bad-request'],
    ['GET', `${ORDERS}/disappearances?cause=boredom`, undefined, 400, 'bad-request'],
    ['PUT', `${ORDERS}/policy-grace`, { seconds: -1 }, 400, 'bad-request'],
    ['PUT', `${ORDERS}/policy-grace`, { seconds: 1.5 }, 400, 'bad-request'],
    ['PUT', `${ORDERS}/policy-grace`, { seconds: '5' }, 400, 'bad-request'],
    ['PUT', `${ORDERS}/policy-grace`, '{', 400, 'bad-request'],
    ['PUT', `${ORDERS}/policy-grace`, `"${'x'.repeat(1_100_000)}"`, 413, 'too-large'],
    ['POST', '/clock/advance', {}, 400, 'bad-request'],
    ['POST', '/clock/advance', { milliseconds: -1 }, 400, 'bad-request'],
    ['POST', '/clock/advance', { milliseconds: Number.MAX_SAFE_INTEGER }, 400, 'bad-request'],
    ['POST', '/purge/run', { fast: true }, 400, 'bad-request'],
    ['POST', '/purge/run?fast=true', undefined, 400, 'bad-request'],
    ['POST', '/projections/nothing/rebuild', undefined, 404, 'projection-not-found'],
    ['GET', '/projections/items/rebuild', undefined, 404, 'rebuild-not-found'],
  ] as const)('%s %s with %j is %i %s', async (method, url, body, status, code) => {
    const response = await world.ask(method, url, body === undefined ? {} : { body });
    expect([response.statusCode, response.json<{ code: string }>().code]).toEqual([status, code]);
    expect(response.headers['content-type']).toMatch(/^application\/problem\+json/);
  });

  test('names the part of the request that is wrong', async () => {
    const response = await world.ask('GET', `${ORDERS}/explain${item('a', { at: 'yesterday' })}`);
    expect(response.json()).toMatchObject({
      detail:
        'at in the query must be a time like 2026-11-21T10:00:00Z, a date, or milliseconds since 1970, which have 13 digits.',
      errors: [{ path: 'at', message: expect.any(String) }],
    });
  });

  test.each([
    ['a year', '2025'],
    ['seconds, such as _ts', '1767258000'],
  ])('does not accept %s as a time: as milliseconds it would be in 1970, when nothing had happened', async (_, at) => {
    for (const url of [
      `${ORDERS}/explain${item('a', { at })}`,
      `${ORDERS}/as-of?at=${at}`,
      `${ORDERS}/disappearances?from=${at}`,
      `${ORDERS}/bundle?to=${at}`,
    ]) {
      const response = await world.ask('GET', url);
      expect(response.json(), url).toMatchObject({ code: 'bad-request', detail: expect.stringMatching(/13 digits/) });
    }
    const beginning = await world.ask('GET', `${ORDERS}/disappearances?from=0`);
    expect(beginning.statusCode).toBe(200);
  });

  test.each([
    [
      'GET',
      '/purge?fast=1',
      undefined,
      /^The query has "fast", which this call does not know: it has no parameters\.$/,
    ],
    ['PUT', `${ORDERS}/ttl/brake`, { max: 1 }, /^The body has "max", .*: it knows maxItems, maxShare, reason\.$/],
    ['PUT', `${ORDERS}/ttl/brake`, { maxItems: 1.5 }, /^maxItems in the body must be a whole number\.$/],
    ['PUT', `${ORDERS}/ttl/brake`, { maxShare: 10 }, /^maxShare in the body must be at most 1\.$/],
    ['PUT', `${ORDERS}/ttl`, undefined, /^The body is missing\.$/],
    ['PUT', `${ORDERS}/ttl`, [], /^The body must be an object\.$/],
    ['PUT', `${ORDERS}/ttl`, {}, /^defaultTtl in the body is missing\.$/],
    [
      'PUT',
      `${ORDERS}/ttl`,
      { defaultTtl: 0 },
      /^defaultTtl in the body must be null \(off\), -1 or .* to 2147483647\.$/,
    ],
    ['PUT', `${ORDERS}/ttl`, { defaultTtl: '60' }, /^defaultTtl in the body must be null \(off\), -1 or/],
    ['PUT', `${ORDERS}/holds/h`, { reason: '', container: true }, /^reason in the body must not be empty\.$/],
    ['PUT', `${ORDERS}/holds/h`, { reason: 'r', container: false }, /^container in the body must be true\.$/],
    [
      'PUT',
      `${ORDERS}/holds/h`,
      { reason: 'r', items: [{ id: 'a' }] },
      /^items\.0\.partitionKey in the body is missing\.$/,
    ],
    ['PUT', `${ORDERS}/holds/h`, { reason: 'r', partitionKey: 'ann' }, /a JSON array with the values of \/customer/],
    [
      'PUT',
      `${ORDERS}/holds/h`,
      { reason: 'r', query: { query: 'SELEC' } },
      /^The query can't be used: .*\(SC1001, at position 0 of the query/,
    ],
    ['POST', `${ORDERS}/recover`, { id: 'a' }, /^The body must name an item, by id/],
    ['GET', `${ORDERS}/explain`, undefined, /^id in the query is missing\.$/],
    [
      'GET',
      `${ORDERS}/explain?id=a&partitionKey=ann`,
      undefined,
      /a JSON array with the values of \/customer, such as/,
    ],
    ['GET', `${ORDERS}/disappearances?cause=x`, undefined, /^cause in the query must be one of expired, deleted,/],
    [
      'GET',
      `${ORDERS}/disappearances?from=2026-02-01&to=2026-01-01`,
      undefined,
      /^to in the query must be later than from\.$/,
    ],
    ['GET', `${ORDERS}/bundle?from=2026-01-01&to=2026-01-01`, undefined, /^to in the query must be later than from\.$/],
    ['GET', '/nothing', undefined, /method GET\. GET \/_epitaph\/openapi\.json lists all calls\.$/],
  ] as const)('tells for %s %s with %j what is expected', async (method, url, body, detail) => {
    const response = await world.ask(method, url, body === undefined ? {} : { body });
    expect(response.json<{ detail: string }>().detail).toMatch(detail);
  });

  test('tells which key is needed, and where to send it', async () => {
    const detail = async (key: string | null, method: 'GET' | 'POST', url: string) =>
      (await world.ask(method, url, { key })).json<{ detail: string }>().detail;
    expect(await detail(null, 'GET', '/purge')).toMatch(/header "Authorization: Bearer <key>".*keys\.json/);
    expect(await detail(AUDITOR_KEY, 'GET', '/clock')).toMatch(
      /It needs the primary, the secondary or the read-only key\.$/,
    );
    expect(await detail(READ_ONLY_KEY, 'POST', '/fsck')).toMatch(
      /^The read-only key .* the primary or the secondary key\.$/,
    );
  });

  test('exists for every code of the catalogue', () => {
    for (const code of Object.keys(errorCodes) as ErrorCode[]) {
      const details = problemDetails(problemOf(new Refusal(code))!, 'x');
      expect(details.status).toBeGreaterThanOrEqual(400);
      if (code !== 'session-not-available') expect(details.code).toBe(code);
    }
  });

  test('of a change that is not visible in time says that it may have been recorded, and when to try again', () => {
    const details = problemDetails(problemOf(new Refusal('session-not-available'))!, 'x');
    expect(details).toMatchObject({ status: 503, code: 'storage-unavailable' });
    expect(retryAfterSeconds(details)).toBeGreaterThan(0);
  });
});
