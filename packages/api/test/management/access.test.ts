import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Refusal, errorCodes, type ErrorCode } from '@epitaph/core/errors.ts';
import { problemDetails, problemOf, retryAfterSeconds } from '@epitaph/api/management/problems.ts';
import { item, openWorld, ORDERS, type World } from './world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

describe('who is let in', () => {
  test('a request without a valid key is told how to bring one, and nothing else', async () => {
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

describe('a "no"', () => {
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
    ['PUT', `${ORDERS}/policy-grace`, `"${'x'.repeat(70_000)}"`, 413, 'too-large'],
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
      detail: 'at in the query: must be a time like 2026-11-21T10:00:00Z, or milliseconds since 1970.',
      errors: [{ path: 'at', message: expect.any(String) }],
    });
  });

  test('exists for every code of the catalogue', () => {
    for (const code of Object.keys(errorCodes) as ErrorCode[]) {
      const details = problemDetails(problemOf(new Refusal(code))!, 'x');
      expect(details.status).toBeGreaterThanOrEqual(400);
      if (code !== 'session-not-available') expect(details.code).toBe(code);
    }
  });

  test('that what was recorded is not seen in time says that it may be there, and when to come again', () => {
    const details = problemDetails(problemOf(new Refusal('session-not-available'))!, 'x');
    expect(details).toMatchObject({ status: 503, code: 'storage-unavailable' });
    expect(retryAfterSeconds(details)).toBeGreaterThan(0);
  });
});
