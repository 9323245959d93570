import { describe, expect, test } from 'vitest';
import {
  consistencyByStrategy,
  consistencyLevels,
  consistencyOf,
  defaultConsistency,
} from '@epitaph/api/cosmos/consistency.ts';
import { positionIn } from '@epitaph/api/cosmos/session-token.ts';
import type { AtLeast } from '@epitaph/api/store/api/common.ts';
import { fakeStore } from './support/fake-store.ts';
import { call, DOCS, keyHeader, shop } from './support/client.ts';

const asked = (level: string) => ({ 'x-ms-consistency-level': level });
const byStrategy = (strategy: string) => ({ 'x-ms-cosmos-read-consistency-strategy': strategy });

describe('the consistency level of a request', () => {
  test('is the account’s by default, and may be weaker but not stronger', () => {
    for (const [own, level] of consistencyLevels.entries()) {
      const policy = { ...defaultConsistency, level };
      expect(consistencyOf(undefined, policy)).toBe(level);
      for (const [index, wanted] of consistencyLevels.entries()) {
        if (index >= own) expect(consistencyOf(wanted.toLowerCase(), policy)).toBe(wanted);
        else expect(() => consistencyOf(wanted, policy)).toThrow(/not stronger than the service consistency level/);
      }
    }
  });

  test('is a 400 if it is invalid, also for writes and for the account', async () => {
    const app = await shop();
    for (const [method, path] of [
      ['GET', '/'],
      ['GET', DOCS],
      ['POST', DOCS],
    ] as const) {
      expect((await call(app, method, path, { headers: asked('Sometimes') })).status).toBe(400);
      expect((await call(app, method, path, { headers: asked('Strong') })).status).toBe(400);
    }
    expect((await call(app, 'GET', DOCS, { headers: asked('Eventual') })).status).toBe(200);
  });

  test('says what reads, lists and queries wait for', async () => {
    const waited: (AtLeast | undefined)[] = [];
    const inner = fakeStore();
    const store = Object.assign(Object.create(inner) as typeof inner, {
      readItem: (...args: Parameters<typeof inner.readItem>) => {
        waited.push(args[3] as AtLeast | undefined);
        return inner.readItem(...args);
      },
      listItems: (...args: Parameters<typeof inner.listItems>) => {
        waited.push(args[1].atLeast);
        return inner.listItems(...args);
      },
      queryItems: (...args: Parameters<typeof inner.queryItems>) => {
        waited.push(args[1].atLeast);
        return inner.queryItems(...args);
      },
    });
    const app = await shop({ store, consistency: { ...defaultConsistency, level: 'Strong' } });
    await call(app, 'POST', DOCS, { body: { id: 'o1', customer: 'ann' }, headers: keyHeader('ann') });
    const waits = async (level: string, strategy?: string) => {
      waited.length = 0;
      const headers = {
        ...keyHeader('ann'),
        'x-ms-session-token': '0:-1#2',
        ...(level === '' ? {} : asked(level)),
        ...(strategy === undefined ? {} : byStrategy(strategy)),
      };
      expect((await call(app, 'GET', `${DOCS}/o1`, { headers })).status).toBe(200);
      await call(app, 'GET', DOCS, { headers });
      const query = { 'x-ms-documentdb-isquery': 'true' };
      await call(app, 'POST', DOCS, { headers: { ...headers, ...query }, body: { query: 'SELECT * FROM c' } });
      expect(waited).toHaveLength(3);
      expect(new Set(waited).size).toBe(1);
      return waited[0];
    };
    expect(await waits('')).toBe('head');
    expect(await waits('Strong')).toBe('head');
    expect(await waits('BoundedStaleness')).toBe('head');
    expect(await waits('Session')).toBe(2);
    expect(await waits('ConsistentPrefix')).toBeUndefined();
    expect(await waits('Eventual')).toBeUndefined();
    // The strategy takes precedence over the level.
    expect(await waits('Eventual', 'GlobalStrong')).toBe('head');
    expect(await waits('Eventual', 'LatestCommitted')).toBe('head');
    expect(await waits('Strong', 'Session')).toBe(2);
    expect(await waits('Strong', 'Eventual')).toBeUndefined();
  });

  test('may be a strategy, which the account’s own level does not limit, except for the strongest', async () => {
    const weak = { ...defaultConsistency, level: 'Eventual' } as const;
    expect(consistencyByStrategy('LatestCommitted', 'Eventual', weak)).toBe('BoundedStaleness');
    expect(consistencyByStrategy('session', undefined, weak)).toBe('Session');
    expect(consistencyByStrategy('', 'ConsistentPrefix', defaultConsistency)).toBe('ConsistentPrefix');
    const app = await shop();
    for (const strategy of ['GlobalStrong', 'Latest']) {
      const reply = await call(app, 'GET', DOCS, { headers: byStrategy(strategy) });
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain(`'${strategy}'`);
    }
    const headers = { ...keyHeader('ann'), ...byStrategy('LatestCommitted') };
    expect((await call(app, 'POST', DOCS, { headers, body: { id: 'o1', customer: 'ann' } })).status).toBe(201);
  });

  test('is shown with the account, including the bounds', async () => {
    const app = await shop();
    expect((await call(app, 'GET', '/')).json['userConsistencyPolicy']).toEqual({ defaultConsistencyLevel: 'Session' });
    const bounded = await shop({ consistency: { ...defaultConsistency, level: 'BoundedStaleness' } });
    expect((await call(bounded, 'GET', '/')).json['userConsistencyPolicy']).toEqual({
      defaultConsistencyLevel: 'BoundedStaleness',
      maxStalenessPrefix: 100,
      maxIntervalInSeconds: 5,
    });
  });
});

describe('a session token', () => {
  test.each([
    [undefined, undefined],
    ['', undefined],
    ['0:-1#12', 12],
    ['0:12', 12],
    ['17:-1#0', 0],
    ['0:-1', 0],
    ['0:-1#12,1:-1#15,2:-1#3', 15],
  ])('%j asks for position %j', (token, position) => {
    expect(positionIn(token)).toBe(position);
  });

  test.each([
    [{}, /^0:-1#\d+$/],
    [{ 'x-ms-version': '2018-06-18' }, /^0:-1#\d+$/],
    [{ 'x-ms-version': '2017-11-15' }, /^0:\d+$/],
  ])('is sent to a client of %j in the form that it reads, and is accepted back', async (version, form) => {
    const app = await shop();
    const body = { id: 'o1', customer: 'ann' };
    const { headers } = await call(app, 'POST', DOCS, { body, headers: { ...keyHeader('ann'), ...version } });
    expect(headers['x-ms-session-token']).toMatch(form);
    const session = { ...keyHeader('ann'), ...version, 'x-ms-session-token': String(headers['x-ms-session-token']) };
    expect((await call(app, 'GET', `${DOCS}/o1`, { headers: session })).status).toBe(200);
    const missing = await call(app, 'GET', `${DOCS}/o2`, { headers: session });
    expect([missing.status, missing.headers['x-ms-session-token']]).toEqual([404, expect.stringMatching(form)]);
  });

  test.each([
    '12',
    ':',
    '0:',
    '0:-1#',
    '0:-1#12 ',
    '0: 12',
    '0:-2',
    '0:1.5',
    '0:x',
    'x',
    '0:-1#12,',
    '0:9007199254740992',
  ])('is not %j', (junk) => {
    expect(() => positionIn(junk)).toThrow(`The session token provided '${junk}' is invalid.`);
  });
});
