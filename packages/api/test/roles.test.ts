import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { Identities, type IdentityRole } from '@epitaph/api/http/identities.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import type { RouteDescription } from '@epitaph/api/management/routing.ts';
import { call, DOCS, keyHeader, NOW_MS, testKeys, testServer } from './cosmos/support/client.ts';
import { inject } from './cosmos/support/inject.ts';
import { identityHeader, TestIssuer } from './cosmos/support/issuer.ts';

const ROLES: Readonly<Record<string, readonly [role: IdentityRole, database?: string, container?: string]>> = {
  reader: ['reader'],
  'reader of orders': ['reader', 'shop', 'orders'],
  contributor: ['contributor'],
  'contributor of shop': ['contributor', 'shop'],
  'contributor of orders': ['contributor', 'shop', 'orders'],
  'contributor elsewhere': ['contributor', 'elsewhere'],
  auditor: ['auditor'],
  administrator: ['administrator'],
};
const everybody = [...Object.keys(ROLES), 'nobody'];
const idOf = (who: string): string => who.replaceAll(' ', '-');

let folder: string;
let store: Awaited<ReturnType<typeof openEmbeddedStore>>;
let issuer: TestIssuer;
let app: FastifyInstance;
let routes: readonly RouteDescription[];
const tokens = new Map<string, string>();

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'epitaph-roles-'));
  store = await openEmbeddedStore({
    folder,
    clock: 'manual',
    startMs: NOW_MS,
    writers: 'inline',
    durable: false,
    automaticPurge: false,
  });
  issuer = await TestIssuer.start();
  const assignments = Object.entries(ROLES).map(([who, [role, database, container]]) => ({
    principal: idOf(who),
    role,
    scope: { database, container },
  }));
  const identities = await Identities.of([issuer.as(assignments)], { nowMs: () => NOW_MS });
  const keys = testKeys();
  const plugins = [
    (server: FastifyInstance) => void (routes = registerManagement(server, { store, keys, identities })),
  ];
  app = testServer({ store, identities, plugins });
  for (const database of ['shop', 'elsewhere', 'spare']) await call(app, 'POST', '/dbs', { body: { id: database } });
  for (const id of ['orders', 'others', 'spare']) {
    await call(app, 'POST', '/dbs/shop/colls', { body: { ...definition, id } });
  }
  const script = { body: 'function () {}', triggerType: 'Pre', triggerOperation: 'All' };
  await call(app, 'POST', '/dbs/shop/colls/orders/sprocs', { body: { ...script, id: 'sweep' } });
  await call(app, 'POST', '/dbs/shop/colls/orders/triggers', { body: { ...script, id: 'stamp' } });
  await call(app, 'POST', '/dbs/shop/users', { body: { id: 'ann' } });
  const permission = { id: 'p', permissionMode: 'All', resource: 'dbs/shop/colls/others' };
  await call(app, 'POST', '/dbs/shop/users/ann/permissions', { body: permission });
  await call(app, 'POST', DOCS, { body: { id: 'o1', customer: 'ann' }, headers: keyHeader('ann') });
  for (const who of everybody) {
    tokens.set(who, await issuer.token(idOf(who)));
    const body = { id: `of-${idOf(who)}`, customer: 'ann' };
    await call(app, 'POST', DOCS, { body, headers: keyHeader('ann') });
  }
});
afterAll(async () => {
  await app?.close();
  await store?.close();
  await issuer?.stop();
  rmSync(folder, { recursive: true, force: true });
});

type Method = Parameters<typeof call>[1];
interface Asked {
  readonly what: string;
  readonly method: Method;
  /** Contains `{who}` in place of the caller's name. */
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly status?: number;
}

const ann = keyHeader('ann');
const query = { 'x-ms-documentdb-isquery': 'true', 'content-type': 'application/query+json' };
const everywhere = { ...query, 'x-ms-documentdb-query-enablecrosspartition': 'true' };
const all = { query: 'SELECT * FROM c' };
const batch = { ...ann, 'x-ms-cosmos-is-batch-request': 'true' };
const atomic = { ...batch, 'x-ms-cosmos-batch-atomic': 'true' };
const definition = {
  id: 'orders',
  partitionKey: { paths: ['/customer'] },
  changeFeedPolicy: { retentionDuration: 60 },
};
const reads = [{ operationType: 'Read', id: 'o1' }];
const upsert = [{ operationType: 'Upsert', resourceBody: { id: 'batched', customer: 'ann' } }];

const readsOfMetadata: readonly Asked[] = [
  { what: 'the database', method: 'GET', path: '/dbs/shop' },
  { what: 'its containers', method: 'GET', path: '/dbs/shop/colls' },
  { what: 'a query of containers', method: 'POST', path: '/dbs/shop/colls', headers: query, body: all },
  { what: 'its client encryption keys', method: 'GET', path: '/dbs/shop/clientencryptionkeys' },
];
const readsOfOrders: readonly Asked[] = [
  { what: 'the container', method: 'GET', path: '/dbs/shop/colls/orders' },
  { what: 'its ranges', method: 'GET', path: '/dbs/shop/colls/orders/pkranges' },
  { what: 'its scripts', method: 'GET', path: '/dbs/shop/colls/orders/sprocs' },
  { what: 'a stored procedure', method: 'GET', path: '/dbs/shop/colls/orders/sprocs/sweep' },
  { what: 'an item', method: 'GET', path: `${DOCS}/o1`, headers: ann },
  { what: 'all items', method: 'GET', path: DOCS },
  { what: 'a query', method: 'POST', path: DOCS, headers: everywhere, body: all },
  {
    what: 'a plan',
    method: 'POST',
    path: DOCS,
    headers: { ...everywhere, 'x-ms-cosmos-is-query-plan-request': 'true' },
    body: all,
  },
  { what: 'the change feed', method: 'GET', path: DOCS, headers: { 'a-im': 'Incremental feed' } },
  {
    what: 'the feed of all versions',
    method: 'GET',
    path: DOCS,
    headers: { 'a-im': 'Full-Fidelity Feed', 'if-none-match': '*' },
    status: 304,
  },
  { what: 'a batch of reads', method: 'POST', path: DOCS, headers: atomic, body: reads },
  { what: 'a bulk of reads', method: 'POST', path: DOCS, headers: batch, body: reads },
];
const writesOfOrders: readonly Asked[] = [
  { what: 'create', method: 'POST', path: DOCS, headers: ann, body: { id: 'by-{who}', customer: 'ann' }, status: 201 },
  { what: 'replace', method: 'PUT', path: `${DOCS}/o1`, headers: ann, body: { id: 'o1', customer: 'ann' } },
  {
    what: 'upsert',
    method: 'POST',
    path: DOCS,
    headers: { ...ann, 'x-ms-documentdb-is-upsert': 'true' },
    body: { id: 'o1', customer: 'ann' },
  },
  {
    what: 'patch',
    method: 'PATCH',
    path: `${DOCS}/o1`,
    headers: ann,
    body: { operations: [{ op: 'add', path: '/x', value: 1 }] },
  },
  { what: 'delete', method: 'DELETE', path: `${DOCS}/of-{who}`, headers: ann, status: 204 },
  { what: 'a batch', method: 'POST', path: DOCS, headers: atomic, body: upsert },
  { what: 'a batch said to be a query', method: 'POST', path: DOCS, headers: { ...query, ...atomic }, body: upsert },
  { what: 'a bulk', method: 'POST', path: DOCS, headers: batch, body: upsert },
  { what: 'a run of a stored procedure', method: 'POST', path: '/dbs/shop/colls/orders/sprocs/sweep', headers: ann },
  {
    what: 'create with a trigger',
    method: 'POST',
    path: DOCS,
    headers: { ...ann, 'x-ms-documentdb-pre-trigger-include': 'stamp' },
    body: { id: 'triggered-by-{who}', customer: 'ann' },
    status: 201,
  },
  {
    what: 'the delete of a partition key',
    method: 'POST',
    path: '/dbs/shop/colls/orders/operations/partitionkeydelete',
    headers: keyHeader('bob'),
  },
];
const forAdministrators: readonly Asked[] = [
  { what: 'a database', method: 'POST', path: '/dbs', body: { id: 'made' }, status: 201 },
  { what: 'a container', method: 'POST', path: '/dbs/shop/colls', body: { ...definition, id: 'made' }, status: 201 },
  { what: 'another definition', method: 'PUT', path: '/dbs/shop/colls/orders', body: definition },
  {
    what: 'another definition, said to be a query',
    method: 'PUT',
    path: '/dbs/shop/colls/orders',
    headers: query,
    body: definition,
  },
  {
    what: 'a new stored procedure',
    method: 'POST',
    path: '/dbs/shop/colls/orders/sprocs',
    body: { id: 'made', body: 'function () {}' },
    status: 201,
  },
  { what: 'the delete of a trigger', method: 'DELETE', path: '/dbs/shop/colls/orders/triggers/stamp', status: 204 },
  { what: 'the delete of a container', method: 'DELETE', path: '/dbs/shop/colls/spare', status: 204 },
  { what: 'the delete of a database', method: 'DELETE', path: '/dbs/spare', status: 204 },
  { what: 'throughput', method: 'GET', path: '/offers' },
  { what: 'a query of throughput', method: 'POST', path: '/offers', headers: query, body: all },
  { what: 'users', method: 'GET', path: '/dbs/shop/users' },
  { what: 'a query of users', method: 'POST', path: '/dbs/shop/users', headers: query, body: all },
  { what: 'a user', method: 'GET', path: '/dbs/shop/users/ann' },
  { what: 'a new user', method: 'POST', path: '/dbs/shop/users', body: { id: 'bob' }, status: 201 },
  { what: 'permissions', method: 'GET', path: '/dbs/shop/users/ann/permissions' },
  { what: 'a permission', method: 'GET', path: '/dbs/shop/users/ann/permissions/p' },
  { what: 'the delete of a user', method: 'DELETE', path: '/dbs/shop/users/ann', status: 204 },
];

const REFUSED = '403/5301';
const NOT_BY_A_DATA_ROLE = '403/5300';

/** The substatus with which docs/access.md lets a role be refused in the data plane; undefined if it is allowed. */
function refusal(who: string, kind: 'metadata' | 'read' | 'write' | 'administration'): string | undefined {
  if (who === 'administrator') return undefined;
  const [role, database, container] = ROLES[who] ?? [];
  if (role !== 'reader' && role !== 'contributor') return REFUSED;
  if (kind === 'administration') return NOT_BY_A_DATA_ROLE;
  if ((database ?? 'shop') !== 'shop' || (container ?? 'orders') !== 'orders') return REFUSED;
  return kind === 'write' && role !== 'contributor' ? REFUSED : undefined;
}

const ask = async (who: string, { method, path: target, body, headers }: Asked): Promise<string> => {
  const named = (text: string): string => text.replaceAll('{who}', idOf(who));
  const payload = body === undefined ? {} : { body: named(JSON.stringify(body)) };
  const authorization = identityHeader(tokens.get(who)!);
  const reply = await call(app, method, named(target), { ...payload, headers: { authorization, ...headers } });
  if (reply.status === 207) {
    // The answer to a bulk has a status for each operation.
    const [{ statusCode, subStatusCode }] = reply.json as unknown as [Readonly<Record<string, number>>];
    return subStatusCode === undefined ? String(statusCode) : `${statusCode}/${subStatusCode}`;
  }
  const substatus = reply.headers['x-ms-substatus'];
  return substatus === undefined ? String(reply.status) : `${reply.status}/${String(substatus)}`;
};

test.each([
  ['metadata', readsOfMetadata],
  ['read', readsOfOrders],
  ['write', writesOfOrders],
  ['administration', forAdministrators],
] as const)('over Cosmos DB’s protocol each role may do what docs/access.md says: %s', async (kind, operations) => {
  for (const asked of operations) {
    // The administrator comes last, because what it deletes is gone.
    for (const who of everybody.toSorted((one) => (one === 'administrator' ? 1 : -1))) {
      const expected = refusal(who, kind) ?? String(asked.status ?? 200);
      expect([asked.what, who, await ask(who, asked)]).toEqual([asked.what, who, expected]);
    }
  }
});

test('roles for one container do nothing in others', async () => {
  const { json } = await call(app, 'GET', '/dbs/shop/colls/others');
  const rid = (json as { _rid: string })._rid;
  for (const asked of [...readsOfOrders, ...writesOfOrders]) {
    for (const name of ['others', rid]) {
      const elsewhere = { ...asked, path: asked.path.replace('/orders', `/${name}`) };
      for (const who of ['reader of orders', 'contributor of orders']) {
        expect([asked.what, who, await ask(who, elsewhere)]).toEqual([asked.what, who, REFUSED]);
      }
    }
  }
});

test('only a role for the whole store is told that no database has a given rid', async () => {
  const { json } = await call(app, 'GET', '/dbs/shop');
  const { _rid: rid } = json as { _rid: string };
  const gone = `${rid.startsWith('A') ? 'B' : 'A'}${rid.slice(1)}`;
  for (const who of everybody) {
    const [role, database] = ROLES[who] ?? [];
    const isForAll =
      who === 'administrator' || ((role === 'reader' || role === 'contributor') && database === undefined);
    const asked = { what: 'a database that is not there', method: 'GET', path: `/dbs/${gone}` } as const;
    expect([who, await ask(who, asked)]).toEqual([who, isForAll ? '404' : REFUSED]);
  }
});

test('administrators may make all management calls, auditors those of the auditor key, and data roles none', async () => {
  const may: Readonly<Record<string, readonly string[]>> = {
    administrator: ['anyone', 'audit', 'read', 'write'],
    auditor: ['anyone', 'audit'],
  };
  for (const { method, url, access } of routes) {
    for (const who of everybody) {
      // Allowed calls fail for lack of parameters, or because nothing has the name "none", and do nothing.
      const target = `${url.replaceAll(/:\w+/g, 'none')}?nonsense=1`;
      const headers = { authorization: `Bearer ${tokens.get(who)!}` };
      const { statusCode } = await inject(app, { method, url: `/_epitaph${target}`, headers });
      expect([method, url, who, statusCode === 403]).toEqual([
        method,
        url,
        who,
        !(may[who] ?? ['anyone']).includes(access),
      ]);
      expect([401, 500].includes(statusCode)).toBe(false);
    }
  }
});
