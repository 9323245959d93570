import { generateKeyPair, SignJWT } from 'jose';
import type { FastifyInstance } from 'fastify';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { Refusal } from '@epitaph/core/errors.ts';
import { assignedStore } from '@epitaph/api/cosmos/assigned.ts';
import type { WireError } from '@epitaph/api/cosmos/errors.ts';
import { Identities, type IdentityRole, type Issuer } from '@epitaph/api/http/identities.ts';
import { call, DOCS, keyHeader, NOW_MS, testServer } from './support/client.ts';
import { fakeStore } from './support/fake-store.ts';
import { AUDIENCE, identityHeader, TestIssuer } from './support/issuer.ts';

const HOUR_MS = 3_600_000;

let issuer: TestIssuer;
beforeAll(async () => {
  issuer = await TestIssuer.start();
});
afterEach(() => void (issuer.fault = undefined));
afterAll(() => issuer.stop());

const assign = (principal: string, role: IdentityRole, database?: string, container?: string) => ({
  principal,
  role,
  scope: { database, container },
});

describe('an identity token', () => {
  const told: string[] = [];
  let nowMs = NOW_MS;
  const identities = (issuers: readonly Issuer[] = [issuer.as([assign('ann', 'reader')])]) =>
    Identities.of(issuers, { nowMs: () => nowMs, onFault: (message) => told.push(message) });

  test('names its principal, verified by its issuer’s keys, and what the principal may do', async () => {
    const ring = await identities();
    expect(await ring.verify(await issuer.token('ann'))).toEqual({
      ok: true,
      principal: { id: 'ann', actor: 'entra:ann', assignments: [assign('ann', 'reader')] },
    });
    expect(await ring.verify(await issuer.token('bob'))).toMatchObject({
      principal: { actor: 'entra:bob', assignments: [] },
    });
    const inFile = await identities([
      issuer.as([], { keys: JSON.parse(issuer.jwks) as Issuer['keys'], claim: 'sub', name: 'own' }),
    ]);
    const verdict = await inFile.verify(await issuer.token('ann', { sub: 'auth0|7' }));
    expect(verdict).toMatchObject({ principal: { actor: 'own:auth0|7' } });
  });

  test.each<[string, (good: string) => string | Promise<string>, string]>([
    ['for somebody else', () => issuer.token('ann', { aud: 'api://other' }), '"aud"'],
    ['of another issuer', () => issuer.token('ann', { iss: 'https://elsewhere.example' }), '"iss"'],
    ['of no issuer', () => issuer.token('ann', { iss: undefined }), '"iss"'],
    ['that has expired', () => issuer.token('ann', { exp: NOW_MS / 1000 - 61 }), '"exp"'],
    ['that never expires', () => issuer.token('ann', { exp: undefined }), '"exp"'],
    ['that is not good yet', () => issuer.token('ann', { nbf: NOW_MS / 1000 + 61 }), '"nbf"'],
    ['that names nobody', () => issuer.token('ann', { oid: undefined }), '"oid"'],
    ['that names several', () => issuer.token('ann', { oid: ['ann', 'bob'] }), '"oid"'],
    ['with a name that can’t be told on record', () => issuer.token('ann\nkey:primary'), '"oid"'],
    ['with a name that is too long', () => issuer.token('a'.repeat(129)), '"oid"'],
    ['that was changed', (good) => good.replace(/\.(.)/, (_, first: string) => `.${first === 'e' ? 'f' : 'e'}`), ''],
    ['whose signature was changed', (good) => `${good.slice(0, -8)}AAAAAAAA`, 'signature'],
    ['without a signature', (good) => `${good.slice(0, good.lastIndexOf('.'))}.`, 'signature'],
    [
      'that says it needs none',
      (good) => [Buffer.from('{"alg":"none"}').toString('base64url'), good.split('.')[1], ''].join('.'),
      'alg',
    ],
    ['that is none', () => 'a.b.c', ''],
    ['that is too long', (good) => good + 'a'.repeat(16_384), 'too long'],
  ])('%s is refused', async (_, forge, why) => {
    const ring = await identities();
    const verdict = await ring.verify(await forge(await issuer.token('ann')));
    expect(verdict).toEqual({ ok: false, reason: 'invalid', why: expect.stringContaining(why) as string });
  });

  test('signed by another key is refused, whatever it claims about the key', async () => {
    const { privateKey } = await generateKeyPair('RS256');
    const claims = { iss: issuer.url, aud: AUDIENCE, oid: 'ann', exp: NOW_MS / 1000 + 60 };
    const [kept] = (JSON.parse(issuer.jwks) as { keys: { kid: string }[] }).keys;
    const ring = await identities();
    for (const header of [{ kid: kept!.kid }, {}, { kid: 'mine' }, { jku: 'https://elsewhere.example/keys' }]) {
      const forged = await new SignJWT(claims).setProtectedHeader({ alg: 'RS256', ...header }).sign(privateKey);
      expect(await ring.verify(forged)).toMatchObject({ ok: false, reason: 'invalid' });
    }
    // The published key, misused as a secret for a symmetric signature.
    const secret = new TextEncoder().encode(issuer.jwks);
    const forged = await new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: kept!.kid }).sign(secret);
    expect(await ring.verify(forged)).toMatchObject({ ok: false, reason: 'invalid' });
  });

  test('is refused after its end, and after its assignments were removed', async () => {
    const ring = await identities();
    const token = await issuer.token('ann');
    expect(await ring.verify(token)).toMatchObject({ ok: true });
    ring.use([issuer.as([])]);
    expect(await ring.verify(token)).toMatchObject({ principal: { assignments: [] } });
    const short = await issuer.token('ann', { exp: NOW_MS / 1000 + 60 });
    expect(await ring.verify(short)).toMatchObject({ ok: true });
    nowMs += 121_000;
    expect([(await ring.verify(short)).ok, (await ring.verify(token)).ok]).toEqual([false, true]);
    nowMs += HOUR_MS;
    expect(await ring.verify(token)).toMatchObject({ ok: false, reason: 'invalid' });
    nowMs = NOW_MS;
  });

  test('has the roles of its groups, by the claim that lists them and no other', async () => {
    const ofGroup = { group: 'readers', role: 'reader', scope: {} } as const;
    const assigned = [assign('ann', 'contributor', 'shop'), ofGroup, assign('readers', 'administrator')];
    const may = async (claims: object, more: Partial<Issuer> = {}) => {
      const ring = await identities([issuer.as(assigned, more)]);
      const verdict = await ring.verify(await issuer.token('ann', { ...claims }));
      return verdict.ok ? verdict.principal.assignments.map(({ role }) => role) : verdict.why;
    };
    expect(await may({ groups: ['others', 'readers'] })).toEqual(['contributor', 'reader']);
    expect(await may({ roles: ['readers'] }, { groups: 'roles' })).toEqual(['contributor', 'reader']);
    // In no group, in another one, not a list, and what Entra ID sends for principals in too many groups.
    const overage = { _claim_names: { groups: 'src1' } };
    for (const claims of [{}, { groups: ['others'] }, { groups: 'readers' }, { roles: ['readers'] }, overage]) {
      expect(await may(claims)).toEqual(['contributor']);
    }
    // A principal with the group's name is not in the group, and a group with the principal's name is not the principal.
    const ring = await identities([issuer.as(assigned)]);
    expect(await ring.verify(await issuer.token('readers'))).toMatchObject({
      principal: { assignments: [assign('readers', 'administrator')] },
    });
  });

  test('is verified again after a while, with keys that are fetched once', async () => {
    await issuer.rotate();
    const ring = await identities();
    const token = await issuer.token('ann');
    const before = issuer.asked;
    for (let n = 0; n < 3; n++) await ring.verify(token);
    await ring.verify(await issuer.token('bob'));
    expect(issuer.asked - before).toBe(1);
    const withdrawn = await identities();
    expect(await withdrawn.verify(token)).toMatchObject({ ok: true });
    await issuer.rotate();
    withdrawn.use([issuer.as([assign('ann', 'reader')])]);
    expect(await withdrawn.verify(token)).toMatchObject({ ok: false, reason: 'invalid' });
  });

  test('is refused some time after its issuer has withdrawn the key', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs });
    onTestFinished(() => {
      nowMs = NOW_MS;
      vi.useRealTimers();
    });
    const ring = await identities();
    const token = await issuer.token('ann');
    expect(await ring.verify(token)).toMatchObject({ ok: true });
    await issuer.rotate();
    nowMs += 16 * 60_000;
    vi.setSystemTime(nowMs);
    expect(await ring.verify(token)).toMatchObject({ ok: false, reason: 'invalid' });
  });

  test.each([
    ['answers with a fault', { status: 500, text: '' }],
    ['answers something else', { status: 200, text: '<html>' }],
    ['answers what is no set of keys', { status: 200, text: '[]' }],
    ['answers more than anybody has keys', { status: 200, text: `{"keys": []}${' '.repeat(1_048_576)}` }],
  ])('can’t be verified while its issuer %s, and can be again as soon as that is over', async (_, fault) => {
    const ring = await identities();
    const token = await issuer.token('ann');
    told.length = 0;
    issuer.fault = fault;
    expect(await ring.verify(token)).toMatchObject({ ok: false, reason: 'unavailable' });
    expect(await ring.verify(token)).toMatchObject({ ok: false, reason: 'unavailable' });
    expect(told).toEqual([expect.stringContaining(`the keys of entra can't be fetched from ${issuer.url}`) as string]);
    issuer.fault = undefined;
    expect(await ring.verify(token)).toMatchObject({ ok: true });
  });

  test('is verified with the former keys for an hour in which new ones can’t be fetched', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs });
    onTestFinished(() => void vi.useRealTimers());
    const ring = await identities();
    expect(await ring.verify(await issuer.token('ann'))).toMatchObject({ ok: true });
    issuer.fault = { status: 503, text: '' };
    told.length = 0;
    // As after a change of the assignments.
    ring.use([issuer.as([assign('bob', 'reader')])]);
    for (const [minutes, ok] of [
      [0, true],
      [11, true],
      [59, true],
      [61, false],
    ] as const) {
      nowMs = NOW_MS + minutes * 60_000;
      vi.setSystemTime(nowMs);
      const token = await issuer.token('bob', { n: minutes }, { atMs: nowMs });
      expect([minutes, (await ring.verify(token)).ok]).toEqual([minutes, ok]);
      // Reported from the beginning, while there is time to mend it.
      expect(told).toContainEqual(expect.stringContaining("can't be fetched"));
    }
    // A token of an unknown key can't be judged.
    nowMs = NOW_MS;
    vi.setSystemTime(nowMs);
    await issuer.rotate();
    const bySomeOther = await issuer.token('bob');
    expect(await ring.verify(bySomeOther)).toMatchObject({ ok: false, reason: 'unavailable' });
  });

  test('that is unsigned lets the keys be fetched ten times a second at most, while that fails', async () => {
    const ring = await identities();
    const header = Buffer.from('{"alg":"RS256","kid":"none"}').toString('base64url');
    const junk = [header, Buffer.from(JSON.stringify({ iss: issuer.url })).toString('base64url'), 'AAAA'].join('.');
    issuer.fault = { status: 500, text: '' };
    const before = issuer.asked;
    for (const untilMs = performance.now() + 150; performance.now() < untilMs;) await ring.verify(junk);
    expect(issuer.asked - before).toBeLessThanOrEqual(3);
  });

  test.each(['a file', 'its address'])(
    'of an issuer whose key in %s is unusable is not reported as a defect of the store',
    async (where) => {
      const [key] = (JSON.parse(issuer.jwks) as { keys: object[] }).keys;
      const text = JSON.stringify({ keys: [{ ...key, n: 'AQAB' }] });
      const token = await issuer.token('ann');
      issuer.fault = { status: 200, text };
      const keys = where === 'a file' ? (JSON.parse(text) as Issuer['keys']) : new URL(issuer.url);
      const ring = await identities([issuer.as([], { keys })]);
      told.length = 0;
      for (let n = 0; n < 2; n++) expect(await ring.verify(token)).toMatchObject({ ok: false, reason: 'unavailable' });
      expect(told).toEqual([expect.stringContaining("a key of entra can't be used: ") as string]);
    },
  );
});

describe('an identity', () => {
  let app: FastifyInstance;
  beforeAll(async () => {
    const identities = await Identities.of(
      [
        issuer.as([
          assign('reader', 'reader'),
          assign('contributor', 'contributor'),
          assign('of-shop', 'contributor', 'shop'),
          assign('of-orders', 'contributor', 'shop', 'orders'),
          assign('reads-orders', 'reader', 'shop', 'orders'),
          assign('mixed', 'reader', 'shop'),
          assign('mixed', 'contributor', 'shop', 'orders'),
          assign('of-two', 'reader', 'shop', 'orders'),
          assign('of-two', 'contributor', 'elsewhere'),
          assign('of-all-and-one', 'reader'),
          assign('of-all-and-one', 'contributor', 'shop', 'orders'),
          assign('admin', 'administrator'),
          assign('auditor', 'auditor'),
        ]),
      ],
      { nowMs: () => NOW_MS },
    );
    app = testServer({ store: fakeStore(), identities });
    for (const database of ['shop', 'elsewhere']) {
      await call(app, 'POST', '/dbs', { body: { id: database } });
      for (const id of ['orders', 'others']) {
        await call(app, 'POST', `/dbs/${database}/colls`, { body: { id, partitionKey: { paths: ['/customer'] } } });
      }
    }
  });

  const as = async (principal: string, ...[method, path, options = {}]: Tail) => {
    const authorization = identityHeader(await issuer.token(principal));
    return call(app, method, path, { ...options, headers: { authorization, ...options.headers } });
  };
  type Tail = Parameters<typeof call> extends [unknown, ...infer Rest] ? Rest : never;
  const create = async (principal: string, docs = DOCS): Promise<number> => {
    const body = { id: crypto.randomUUID(), customer: 'ann' };
    return (await as(principal, 'POST', docs, { body, headers: keyHeader('ann') })).status;
  };
  const statuses = (principal: string, paths: readonly string[]) =>
    Promise.all(paths.map(async (path) => (await as(principal, 'GET', path)).status));

  test('reads and writes as its roles allow, within their scope, and nothing else', async () => {
    const feeds = ['shop', 'elsewhere'].flatMap((database) =>
      ['orders', 'others'].map((container) => `/dbs/${database}/colls/${container}/docs`),
    );
    const told: Record<string, readonly [reads: readonly number[], writes: readonly number[]]> = {};
    const principals = [
      'reader',
      'contributor',
      'of-shop',
      'of-orders',
      'reads-orders',
      'mixed',
      'of-two',
      'of-all-and-one',
      'admin',
      'auditor',
      'nobody',
    ];
    for (const principal of principals) {
      const writes = await Promise.all(feeds.map((feed) => create(principal, feed)));
      told[principal] = [await statuses(principal, feeds), writes];
    }
    expect(told).toEqual({
      reader: [
        [200, 200, 200, 200],
        [403, 403, 403, 403],
      ],
      contributor: [
        [200, 200, 200, 200],
        [201, 201, 201, 201],
      ],
      'of-shop': [
        [200, 200, 403, 403],
        [201, 201, 403, 403],
      ],
      'of-orders': [
        [200, 403, 403, 403],
        [201, 403, 403, 403],
      ],
      'reads-orders': [
        [200, 403, 403, 403],
        [403, 403, 403, 403],
      ],
      mixed: [
        [200, 200, 403, 403],
        [201, 403, 403, 403],
      ],
      'of-two': [
        [200, 403, 200, 200],
        [403, 403, 201, 201],
      ],
      'of-all-and-one': [
        [200, 200, 200, 200],
        [201, 403, 403, 403],
      ],
      admin: [
        [200, 200, 200, 200],
        [201, 201, 201, 201],
      ],
      auditor: [
        [403, 403, 403, 403],
        [403, 403, 403, 403],
      ],
      nobody: [
        [403, 403, 403, 403],
        [403, 403, 403, 403],
      ],
    });
  });

  test('sees the databases and containers within its scope, by name and by rid', async () => {
    const ids = async (principal: string, path: string, list: string) =>
      ((await as(principal, 'GET', path)).json[list] as { id: string }[] | undefined)?.map(({ id }) => id);
    expect(await ids('reader', '/dbs', 'Databases')).toEqual(['shop', 'elsewhere']);
    expect(await ids('of-orders', '/dbs', 'Databases')).toEqual(['shop']);
    expect(await ids('of-orders', '/dbs/shop/colls', 'DocumentCollections')).toEqual(['orders']);
    expect(
      await statuses('of-orders', ['/', '/dbs/shop', '/dbs/shop/colls/orders', '/dbs/shop/colls/orders/pkranges']),
    ).toEqual([200, 200, 200, 200]);
    // The answers do not reveal what else exists.
    const hidden = [
      '/dbs/elsewhere',
      '/dbs/nothing',
      '/dbs/shop/colls/others',
      '/dbs/shop/colls/nothing',
      '/dbs/nothing/colls',
    ];
    expect(await statuses('of-orders', hidden)).toEqual([403, 403, 403, 403, 403]);
    const self = async (path: string) =>
      `/${((await call(app, 'GET', path)).json as { _self: string })._self.replace(/\/$/, '')}`;
    const [orders, others] = [await self('/dbs/shop/colls/orders'), await self('/dbs/shop/colls/others')];
    expect(await statuses('of-orders', [orders, `${orders}/docs`, `${others}/docs`])).toEqual([200, 200, 403]);
    expect(await create('of-orders', `${orders}/docs`)).toBe(201);
    expect(await create('of-orders', `${others}/docs`)).toBe(403);
    // A rid is derived from names, so it could be used to guess them.
    const never = others.replace(/.=$/, 'A=');
    for (const path of [never, `${never}/docs`, others, `${others}/docs`]) {
      const { status, text } = await as('of-orders', 'GET', path);
      expect([path, status, /others/.test(text)]).toEqual([path, 403, false]);
    }
    for (const principal of ['reader', 'of-all-and-one']) {
      expect(await statuses(principal, [never, others])).toEqual([404, 200]);
    }
  });

  test('is refused outside its roles’ scope before other nodes are asked for the name', async () => {
    const asked: unknown[] = [];
    const settleNames = async (...names: unknown[]) => void asked.push(names);
    const identities = await Identities.of([issuer.as([assign('of-orders', 'contributor', 'shop', 'orders')])], {
      nowMs: () => NOW_MS,
    });
    const node = testServer({ store: fakeStore({ settleNames }), identities });
    const authorization = identityHeader(await issuer.token('of-orders'));
    for (const path of [
      '/dbs/nothing',
      '/dbs/nothing/colls',
      '/dbs/shop/colls/nothing',
      '/dbs/shop/colls/nothing/docs',
    ]) {
      expect((await call(node, 'GET', path, { headers: { authorization } })).status).toBe(403);
    }
    expect(asked).toEqual([]);
    await call(node, 'GET', DOCS, { headers: { authorization } });
    expect(asked).toEqual([['shop', 'orders', false]]);
  });

  test.each<[string, Tail[0], string]>([
    ['make a database', 'POST', '/dbs'],
    ['delete a database', 'DELETE', '/dbs/shop'],
    ['make a container', 'POST', '/dbs/shop/colls'],
    ['change a container', 'PUT', '/dbs/shop/colls/orders'],
    ['delete a container', 'DELETE', '/dbs/shop/colls/orders'],
    ['read throughput', 'GET', '/offers'],
    ['read users', 'GET', '/dbs/shop/users'],
    ['read permissions, whose tokens may be for more', 'GET', '/dbs/shop/users/ann/permissions'],
    ['make a user', 'POST', '/dbs/shop/users'],
    ['make a client encryption key', 'POST', '/dbs/shop/clientencryptionkeys'],
    ['make a stored procedure', 'POST', '/dbs/shop/colls/orders/sprocs'],
  ])('can’t %s by a data role, as in Cosmos DB', async (_, method, path) => {
    const reply = await as('contributor', method, path, { body: { id: 'x' } });
    expect(reply.status).toBe(403);
    expect(reply.headers['x-ms-substatus']).toBe('5300');
    expect(reply.json['message']).toContain(`The given request [${method} ${path}] cannot be authorized by AAD token`);
  });

  test('is told which role is missing, in a form that tools of Cosmos DB know', async () => {
    const reply = await as('nobody', 'GET', '/dbs/shop');
    expect(reply.headers['x-ms-substatus']).toBe('5301');
    expect(reply.json['message']).toContain(
      'principal [nobody] does not have required RBAC permissions to perform action [Microsoft.DocumentDB/databaseAccounts/readMetadata] on resource [/]',
    );
    const { json } = await as('reads-orders', 'POST', DOCS, {
      body: { id: 'x', customer: 'ann' },
      headers: keyHeader('ann'),
    });
    expect(json['message']).toContain(
      'action [Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/*] on resource [dbs/shop/colls/orders]',
    );
  });

  test('is refused with 401 if the token is not good, and asked to try again if that can’t be determined', async () => {
    const stale = identityHeader(await issuer.token('reader', { exp: NOW_MS / 1000 - HOUR_MS }));
    const reply = await call(app, 'GET', '/dbs', { headers: { authorization: stale } });
    expect([reply.status, reply.json['message']]).toEqual([
      401,
      expect.stringContaining('The identity token is not valid: "exp"'),
    ]);
    issuer.fault = { status: 502, text: '' };
    const away = testServer({ identities: await Identities.of([issuer.as([])], { nowMs: () => NOW_MS }) });
    const authorization = identityHeader(await issuer.token('reader'));
    const later = await call(away, 'GET', '/dbs', { headers: { authorization } });
    issuer.fault = undefined;
    expect([later.status, later.headers['retry-after'] !== undefined]).toEqual([503, true]);
  });
});

test('the store of a principal refuses everything outside its roles, whichever method is called', async () => {
  const store = fakeStore();
  const [reads, writes] = [
    ['readItem', 'itemByBirth', 'countItems', 'listItems', 'queryItems', 'readChangeFeed'],
    ['writeItem', 'patchItem', 'deleteItem', 'batchItems', 'deletePartitionKey'],
  ] as const;
  for (const name of [...reads, ...writes]) Object.assign(store, { [name]: async () => 'done' });
  const caller = { actor: 'key:primary', correlationId: '' };
  await store.createDatabase(caller, 'shop');
  const definition = {
    partitionKey: { paths: ['/customer'], kind: 'Hash' as const, version: 2 as const },
    indexingPolicy: { indexingMode: 'consistent' as const },
  };
  const [orders, others] = await Promise.all(
    ['orders', 'others'].map(
      async (name) => (await store.createContainer(caller, 'shop', name, definition, null)).resource,
    ),
  );
  const ask = async (role: IdentityRole, name: string, container: unknown): Promise<unknown> => {
    const principal = { id: 'ann', actor: 'entra:ann', assignments: [assign('ann', role, 'shop', 'orders')] };
    const method = Reflect.get(assignedStore(store, principal), name) as (...asked: unknown[]) => Promise<unknown>;
    try {
      return await method(
        ...(writes.includes(name as never) ? [caller, container, [{ kind: 'delete' }]] : [container]),
      );
    } catch (error) {
      return (error as WireError).shape.substatus;
    }
  };
  for (const name of reads) {
    expect(await ask('reader', name, orders), name).toBe('done');
    expect(await ask('contributor', name, others), name).toBe(5301);
  }
  for (const name of writes) {
    expect(await ask('contributor', name, orders), name).toBe('done');
    expect([await ask('reader', name, orders), await ask('contributor', name, others)], name).toEqual([5301, 5301]);
  }
  // The same goes for definitions, by name or by rid.
  const definitions = assignedStore(store, {
    id: 'ann',
    actor: 'entra:ann',
    assignments: [assign('ann', 'contributor', 'shop', 'orders')],
  });
  const { resource: elsewhere } = await store.createDatabase(caller, 'elsewhere');
  expect(definitions.database('shop').name).toBe('shop');
  expect(definitions.databaseByRid(orders!.databaseRid)?.name).toBe('shop');
  expect(definitions.container('shop', 'orders').rid).toBe(orders!.rid);
  expect(definitions.deletedContainers('shop', 'orders')).toEqual([]);
  for (const notFor of [
    () => definitions.database('elsewhere'),
    () => definitions.databaseByRid(elsewhere.rid),
    () => definitions.databaseByRid('AAAAAA=='),
    () => definitions.listContainers('elsewhere'),
    () => definitions.container('shop', 'others'),
    () => definitions.containerByRid(others!.rid),
    () => definitions.deletedContainers('shop', 'others'),
    () => definitions.listClientEncryptionKeys(elsewhere.rid),
    () => definitions.clientEncryptionKey(elsewhere.rid, 'key'),
  ]) {
    expect(notFor).toThrow(expect.objectContaining({ shape: expect.objectContaining({ substatus: 5301 }) as object }));
  }
  // Something that may be a rid is looked up as one.
  expect(() => definitions.database('AAAAAA==')).toThrow(Refusal);
  expect(() => definitions.container('AAAAAA==', 'orders')).toThrow(Refusal);
  expect(() => definitions.container('shop', 'AAAAAAAAAAA=')).toThrow(Refusal);
  // Methods that nobody has listed are refused.
  for (const name of ['deleteContainer', 'changeTtl', 'placeHold', 'explain']) {
    expect(await ask('contributor', name, orders), name).toBe(5301);
  }
});
