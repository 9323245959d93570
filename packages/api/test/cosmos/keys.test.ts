import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { EMULATOR_KEY, KeyRing, resourceTokenIn } from '@epitaph/api/http/keys.ts';
import { parseHttpDate } from '@epitaph/api/http/http-date.ts';
import { readOnlyStore } from '@epitaph/api/cosmos/read-only.ts';
import {
  AUDITOR_KEY,
  call,
  DOCS,
  httpDate,
  NOW_MS,
  READ_ONLY_KEY,
  SECONDARY_KEY,
  shop,
  sign,
  testKeys,
  testServer,
} from './support/client.ts';
import { fakeStore } from './support/fake-store.ts';

const MINUTE = 60_000;

describe('a signed request', () => {
  test('is accepted with the primary and the secondary key', async () => {
    const app = testServer();
    expect((await call(app, 'GET', '/dbs')).status).toBe(200);
    expect((await call(app, 'GET', '/dbs', { key: SECONDARY_KEY })).status).toBe(200);
  });

  test('is refused with another key, with the text that should have been signed', async () => {
    const reply = await call(testServer(), 'GET', '/dbs', { key: Buffer.alloc(64).toString('base64') });
    expect(reply.status).toBe(401);
    expect(reply.json['code']).toBe('Unauthorized');
    expect(reply.json['message']).toContain("payload to sign: 'get\\ndbs\\n\\n");
  });

  test('may read but not write with the read-only key, and neither with the auditor’s', async () => {
    const app = await shop();
    expect((await call(app, 'GET', DOCS, { key: READ_ONLY_KEY })).status).toBe(200);
    const query = {
      body: { query: 'SELECT * FROM c' },
      headers: { 'x-ms-documentdb-isquery': 'True', 'x-ms-documentdb-query-enablecrosspartition': 'True' },
    };
    expect((await call(app, 'POST', DOCS, { ...query, key: READ_ONLY_KEY })).status).toBe(200);
    const write = { body: { id: '1', customer: 'ann' }, key: READ_ONLY_KEY };
    expect((await call(app, 'POST', DOCS, write)).status).toBe(403);
    expect((await call(app, 'DELETE', '/dbs/shop', { key: READ_ONLY_KEY })).status).toBe(403);
    expect((await call(app, 'GET', DOCS, { key: AUDITOR_KEY })).status).toBe(403);
  });

  test('can’t write with the read-only key by pretending to be a query', async () => {
    const ann = { 'x-ms-documentdb-partitionkey': '["ann"]' };
    const asQuery: readonly Readonly<Record<string, string>>[] = [
      { 'x-ms-documentdb-isquery': 'true', 'x-ms-documentdb-query-enablecrosspartition': 'true' },
      { 'x-ms-documentdb-query': 'true' },
      { 'content-type': 'application/query+json' },
      { 'x-ms-cosmos-is-query-plan-request': 'true' },
    ];
    const asBatch: readonly Readonly<Record<string, string>>[] = [
      {},
      { 'x-ms-cosmos-batch-atomic': 'true' },
      { 'x-ms-documentdb-is-upsert': 'true' },
    ];
    const app = await shop();
    expect((await call(app, 'POST', DOCS, { headers: ann, body: { id: '1', customer: 'ann' } })).status).toBe(201);
    const body = [
      { operationType: 'Create', resourceBody: { id: '2', customer: 'ann' } },
      { operationType: 'Delete', id: '1' },
    ];
    for (const query of asQuery) {
      for (const batch of asBatch) {
        const headers = { ...ann, ...query, ...batch, 'x-ms-cosmos-is-batch-request': 'true' };
        expect((await call(app, 'POST', DOCS, { headers, body, key: READ_ONLY_KEY })).status).toBe(403);
      }
      const path = '/dbs/shop/colls/orders/operations/partitionkeydelete';
      const signed = { type: 'colls', link: 'dbs/shop/colls/orders' };
      const headers = { ...ann, ...query };
      expect((await call(app, 'POST', path, { headers, signed, key: READ_ONLY_KEY })).status).toBe(405);
    }
    const { json } = await call(app, 'GET', DOCS, { key: READ_ONLY_KEY });
    expect(json['Documents']).toMatchObject([{ id: '1' }]);
  });

  test('with the read-only key gets a store without writes', async () => {
    const store = fakeStore();
    const readOnly = readOnlyStore(store);
    await store.createDatabase({ actor: 'key:primary', correlationId: '' }, 'shop');
    expect(readOnly.database('shop')).toBe(store.database('shop'));
    for (const name of Object.keys(store) as (keyof typeof store)[]) {
      if (!/^(?:create|replace|delete(?!d)|write|patch|batch|change|rename|rewrap|set|token)/.test(name)) continue;
      expect(() => (readOnly[name] as () => unknown)()).toThrow("can't be used for writes");
    }
  });

  test('is valid for 15 minutes before and after its date', async () => {
    const app = testServer();
    const statusAt = async (offsetMs: number) => (await call(app, 'GET', '/dbs', { atMs: NOW_MS + offsetMs })).status;
    expect(await statusAt(15 * MINUTE)).toBe(200);
    expect(await statusAt(-15 * MINUTE)).toBe(200);
    expect(await statusAt(15 * MINUTE + 1000)).toBe(403);
    expect(await statusAt(-15 * MINUTE - 1000)).toBe(403);
  });

  test('with an outdated date is refused with both times, which show whose clock is wrong', async () => {
    const reply = await call(testServer(), 'GET', '/dbs', { atMs: NOW_MS + 60 * MINUTE });
    expect(reply.json['code']).toBe('Forbidden');
    const at = (offsetMs: number) => new Date(NOW_MS + offsetMs).toISOString();
    expect(reply.json['message']).toContain(
      `(token start time: ${at(45 * MINUTE)}, token expiry time: ${at(75 * MINUTE)}, current server time: ${at(0)})`,
    );
  });

  test('is valid only for its verb, resource type and link', async () => {
    const app = await shop();
    const at = httpDate(NOW_MS);
    const others = [
      sign('post', 'dbs', 'dbs/shop', at),
      sign('get', 'colls', 'dbs/shop', at),
      sign('get', 'dbs', 'dbs/Shop', at),
      sign('get', 'dbs', 'shop', at),
    ];
    for (const authorization of others) {
      expect((await call(app, 'GET', '/dbs/shop', { headers: { authorization } })).status).toBe(401);
    }
  });

  test('may sign only the rid if the target consists of rids', async () => {
    const app = await shop();
    const { json } = await call(app, 'GET', '/dbs/shop/colls/orders');
    const signed = { type: 'colls', link: String(json['_rid']).toLowerCase() };
    const reply = await call(app, 'GET', `/${String(json['_self'])}`, { signed });
    expect(reply.status).toBe(200);
    expect(reply.json['id']).toBe('orders');
  });

  test('is a 401 in Cosmos DB’s shape if its authorization is malformed in any way', async () => {
    const app = testServer();
    const good = sign('GET', 'dbs', '', httpDate(NOW_MS));
    const malformed = [
      '',
      ' ',
      'Bearer abc',
      '%',
      '%E0%A4%A',
      'type=master&ver=1.0',
      'type=master&ver=1.0&sig=',
      'type=master&ver=1.0&sig=%00',
      'type%3dmaster%26ver%3d1.0%26sig%3dAAAA',
      'type=master&ver=2.0&sig=AAAA',
      // The base64 is as long as that of a signature, but decodes to one byte more.
      `type=master&ver=1.0&sig=${'A'.repeat(44)}`,
      'type%3Daad%26ver%3D1.0%26sig%3Dxxx',
      good.replace('1.0', '2.0'),
      `${good}AAAA`,
      good.slice(0, -8),
      'x'.repeat(10_000),
    ];
    for (const authorization of malformed) {
      const reply = await call(app, 'GET', '/dbs', { headers: { authorization } });
      expect(reply.status, authorization.slice(0, 60)).toBe(401);
      expect(reply.json['code']).toBe('Unauthorized');
      expect(reply.headers['x-ms-activity-id']).toMatch(/^[0-9a-f-]{36}$/);
    }
    expect((await call(app, 'GET', '/dbs', { headers: { 'x-ms-date': 'yesterday' } })).status).toBe(401);
  });

  test('is told apart from other kinds of authorization', () => {
    const reasonOf = (text: string) =>
      testKeys().verifyMasterSignature({
        authorization: encodeURIComponent(text),
        verb: 'GET',
        resourceType: 'dbs',
        resourceLink: '',
        msDate: httpDate(NOW_MS),
        date: undefined,
      });
    for (const kind of ['aad', 'sas']) {
      expect(reasonOf(`type=${kind}&ver=1.0&sig=x`)).toEqual({ ok: false, reason: 'unsupported' });
    }
    expect(reasonOf('type=other&ver=1.0&sig=x')).toEqual({ ok: false, reason: 'malformed' });
    const token = `type=resource&ver=1&sig=${'x'.repeat(1_000)}`;
    expect(resourceTokenIn(encodeURIComponent(token))).toBe(token);
    for (const other of [undefined, 'type=master&ver=1.0&sig=x', token + 'x'.repeat(4_096)]) {
      expect(resourceTokenIn(other)).toBe(undefined);
    }
  });

  test('is also accepted with a date near the store’s time, which goes on when the system clock has jumped', () => {
    const texts = { primary: EMULATOR_KEY };
    const jumped = () => NOW_MS + 365 * 86_400_000;
    const verdictOf = (keys: KeyRing) =>
      keys.verifyMasterSignature({
        authorization: sign('GET', 'dbs', '', httpDate(NOW_MS), EMULATOR_KEY),
        verb: 'GET',
        resourceType: 'dbs',
        resourceLink: '',
        msDate: httpDate(NOW_MS),
        date: undefined,
      });
    expect(verdictOf(new KeyRing(texts, jumped))).toMatchObject({ reason: 'date-outside-window' });
    expect(verdictOf(new KeyRing(texts, jumped, () => NOW_MS))).toMatchObject({ ok: true });
    expect(verdictOf(new KeyRing(texts, () => NOW_MS, jumped))).toMatchObject({ ok: true });
    expect(verdictOf(new KeyRing(texts, jumped, jumped))).toMatchObject({ reason: 'date-outside-window' });
  });

  test('is verified each time, even if the same text was signed correctly before, and by the key that signed it', () => {
    const keys = testKeys();
    const date = httpDate(NOW_MS);
    const verdictOf = (key: string) =>
      keys.verifyMasterSignature({
        authorization: sign('GET', 'dbs', '', date, key),
        verb: 'GET',
        resourceType: 'dbs',
        resourceLink: '',
        msDate: date,
        date: undefined,
      });
    const actors = [
      [EMULATOR_KEY, 'key:primary'],
      [READ_ONLY_KEY, 'key:read-only'],
      [SECONDARY_KEY, 'key:secondary'],
      [EMULATOR_KEY, 'key:primary'],
    ] as const;
    for (const [key, actor] of actors) {
      expect(verdictOf(key)).toMatchObject({ ok: true, holder: { actor } });
      expect(verdictOf(Buffer.alloc(64).toString('base64'))).toMatchObject({ ok: false, reason: 'wrong-signature' });
    }
  });

  test('may have its date in the date header', async () => {
    const keys = testKeys();
    const date = httpDate(NOW_MS);
    const signed = { verb: 'GET', resourceType: 'dbs', resourceLink: '', msDate: undefined, date };
    const signature = createHmac('sha256', Buffer.from(EMULATOR_KEY, 'base64'))
      .update(`get\ndbs\n\n\n${date.toLowerCase()}\n`)
      .digest('base64');
    const authorization = encodeURIComponent(`type=master&ver=1.0&sig=${signature}`);
    expect(keys.verifyMasterSignature({ ...signed, authorization })).toMatchObject({ ok: true });
    const verdict = keys.verifyMasterSignature({
      ...signed,
      authorization: sign('GET', 'dbs', '', '', EMULATOR_KEY),
    });
    expect(verdict).toMatchObject({
      ok: false,
      reason: 'wrong-signature',
      payload: `get\ndbs\n\n\n${date.toLowerCase()}\n`,
    });
  });
});

describe('a bearer', () => {
  test('has the role and the actor of its key', () => {
    const keys = testKeys();
    expect(keys.verifyBearer(`Bearer ${EMULATOR_KEY}`)).toEqual({ role: 'write', actor: 'key:primary' });
    expect(keys.verifyBearer(`bearer ${SECONDARY_KEY}`)).toEqual({ role: 'write', actor: 'key:secondary' });
    expect(keys.verifyBearer(`Bearer ${READ_ONLY_KEY}`)).toEqual({ role: 'read', actor: 'key:read-only' });
    expect(keys.verifyBearer(`Bearer ${AUDITOR_KEY}`)).toEqual({ role: 'audit', actor: 'key:auditor' });
  });

  test('is refused with anything else', () => {
    const keys = testKeys();
    for (const header of [undefined, '', 'Bearer', 'Bearer ', `Basic ${EMULATOR_KEY}`, `Bearer ${EMULATOR_KEY}=`]) {
      expect(keys.verifyBearer(header)).toBeUndefined();
    }
  });
});

describe('a key ring', () => {
  test('accepts no key that is short or not base64', () => {
    for (const primary of ['', 'short', 'not base64!'.repeat(10), Buffer.alloc(31).toString('base64')]) {
      expect(() => new KeyRing({ primary })).toThrow(RangeError);
    }
    expect(() => new KeyRing({ primary: Buffer.alloc(32).toString('base64') })).not.toThrow();
  });

  test('hides its keys when it is printed', () => {
    expect(JSON.stringify(testKeys())).toBe('{}');
  });
});

describe('a date', () => {
  test('is parsed as the runtime parses it', () => {
    for (const iso of [
      '1970-01-01T00:00:00Z',
      '1999-12-31T23:59:59Z',
      '2000-02-29T12:00:00Z',
      '2026-11-21T11:56:06Z',
      '2400-03-01T00:00:00Z',
    ]) {
      const ms = Date.parse(iso);
      expect(parseHttpDate(new Date(ms).toUTCString())).toBe(ms);
      expect(parseHttpDate(new Date(ms).toUTCString().toLowerCase())).toBe(ms);
      expect(parseHttpDate(new Date(ms).toUTCString().replace('GMT', 'UTC'))).toBe(ms);
    }
    expect(parseHttpDate('Sun, 1 Nov 2026 11:56:06 GMT')).toBe(Date.parse('2026-11-01T11:56:06Z'));
  });

  test('is undefined in any other form', () => {
    const others = [
      '',
      '2026-11-21',
      'Sat, 21 Nov 2026',
      'Sat, 41 Nov 2026 11:56:06 GMT',
      'Sat, 21 Noo 2026 11:56:06 GMT',
      'Sat, 21 Nov 2026 24:56:06 GMT',
      'Sat, 21 anf 2026 11:56:06 GMT',
      'Sat, 21 Nov 2026 11:56:06 CET',
      'Sat, 021 Nov 2026 11:56:06 GMT',
    ];
    for (const text of others) expect(parseHttpDate(text), text).toBeUndefined();
  });
});
