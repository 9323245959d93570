import { readFileSync } from 'node:fs';
import Fastify from 'fastify';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import { type Access, collectRoutes } from '@epitaph/api/management/routing.ts';
import { AUDITOR_KEY, createOrders, openWorld, READ_ONLY_KEY, START_MS, type World, WRITER } from './world.ts';

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly 'x-epitaph-access': Access;
  readonly security: readonly unknown[];
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly schema: { type?: string } }[];
  readonly responses: Readonly<Record<string, { readonly headers?: Readonly<Record<string, unknown>> }>>;
}
interface Document {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, unknown>> };
}

const CONTENT = 'what nobody but a reader may see';
let world: World;
let document: Document;
beforeAll(async () => {
  world = await openWorld();
  document = (await world.ask('GET', '/openapi.json', { key: null })).json();
  await world.write('kept', { ttl: -1, secret: CONTENT });
  await world.write('gone', { secret: CONTENT });
  await world.store.advanceClock(100_000);
  await world.ask('POST', '/purge/run');
});
afterAll(() => world.close());

const operations = () =>
  Object.entries(document.paths).flatMap(([path, byMethod]) =>
    Object.entries(byMethod).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );

test('docs/management.md has every call, with the key that it needs', () => {
  const keys: Readonly<Record<Access, string>> = { anyone: 'none', audit: 'any', read: 'read-only', write: 'primary' };
  const page = readFileSync(new URL('../../../../docs/management.md', import.meta.url), 'utf8');
  const rows = Array.from(page.matchAll(/^\| (`(?:GET|POST|PUT|DELETE) .*?) \| ([a-z-]+) \|/gm));
  const shown = rows.flatMap(([, calls, key]) =>
    Array.from(calls!.matchAll(/`((?:GET|POST|PUT|DELETE) [^`?]+)[^`]*`/g), ([, call]) => `${call} ${key}`),
  );
  const there = operations().map(({ method, path, operation }) => {
    const short = path.replace('/_epitaph', '').replace('/dbs/{database}/colls/{container}', '{c}');
    return `${method} ${short} ${keys[operation['x-epitaph-access']]}`;
  });
  expect(shown.toSorted()).toEqual(there.toSorted());
});

describe('the OpenAPI document', () => {
  test('describes every existing route, and no other', async () => {
    const app = Fastify();
    const registered: string[] = [];
    app.addHook('onRoute', ({ method, url }) => {
      if (method !== 'HEAD') registered.push(`${String(method)} ${url.replaceAll(/:(\w+)/g, '{$1}')}`);
    });
    registerManagement(app, { store: world.store, keys: new KeyRing({ primary: EMULATOR_KEY }) });
    await app.ready();
    await app.close();
    expect(
      operations()
        .map(({ method, path }) => `${method} ${path}`)
        .sort(),
    ).toEqual(registered.sort());
    expect(registered.length).toBeGreaterThan(30);
  });

  test('refers only to its own parts, and names each operation once', () => {
    const text = JSON.stringify(document);
    const references = Array.from(text.matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g), ([, name]) => name!);
    expect(references.length).toBeGreaterThan(20);
    expect(references.filter((name) => !Object.hasOwn(document.components.schemas, name))).toEqual([]);
    expect(text.match(/"\$(?:schema|id)"/)).toBeNull();
    const names = operations().map(({ operation }) => operation.operationId);
    expect(new Set(names).size).toBe(names.length);
    expect(document.openapi).toBe('3.1.0');
  });

  test('describes parameters by the schemas that parse requests', () => {
    const explain = document.paths['/_epitaph/dbs/{database}/colls/{container}/explain']!['get']!;
    expect(explain.parameters).toEqual([
      expect.objectContaining({ name: 'database', in: 'path', required: true }),
      expect.objectContaining({ name: 'container', in: 'path', required: true }),
      { name: 'id', in: 'query', required: true, schema: { type: 'string', minLength: 1, maxLength: 1023 } },
      { name: 'partitionKey', in: 'query', required: false, schema: { type: 'string', maxLength: 8192 } },
      { name: 'at', in: 'query', required: false, description: expect.any(String), schema: { type: 'string' } },
      { name: 'rid', in: 'query', required: false, schema: { type: 'string', maxLength: 64 } },
    ]);
  });

  // Every test that uses this world checks that no answer has an undescribed header.
  test('describes the header for earlier containers where it is sent, also with a problem', async () => {
    const other = await openWorld();
    try {
      await other.store.deleteContainer(WRITER, 'shop', 'orders');
      await createOrders(other.store, null);
      for (const { method, path, operation } of operations()) {
        const { '200': done, default: problem } = operation.responses;
        const declared = [done, problem].map((answer) => answer?.headers !== undefined);
        const sent = path.endsWith('/replay')
          ? { body: { timeline: [{ from: String(START_MS), defaultTtl: null }] } }
          : {};
        const { headers, statusCode } = await other.ask(method as 'GET', target(path, operation, 'kept'), sent);
        const isSent = 'x-epitaph-earlier-containers' in headers;
        expect([method, path, statusCode, ...declared]).toEqual([method, path, statusCode, isSent, isSent]);
      }
    } finally {
      await other.close();
    }
    const certificate = document.paths['/_epitaph/dbs/{database}/colls/{container}/certificate']!['get']!;
    expect(certificate.responses['default']).toMatchObject({
      headers: {
        'x-epitaph-earlier-containers': {
          description: expect.stringContaining('rids of up to 5 deleted containers') as string,
          schema: { type: 'string' },
        },
      },
    });
  });

  test('refuses a route without a description, and says how to add one', () => {
    const app = Fastify();
    collectRoutes(app, []);
    expect(() => app.get('/bare', () => 'x')).toThrow(
      'GET /bare has no description: put it on the server with route()',
    );
  });
});

/** POSTs that change nothing: calls with a body, or long ones. */
const READING_POSTS = [
  '/_epitaph/dbs/{database}/colls/{container}/ttl/preview',
  '/_epitaph/dbs/{database}/colls/{container}/ttl/replay',
  '/_epitaph/proof/verify',
];
/** Calls that return content and are therefore not for auditors. The first one shows that the search for content works. */
const CONTENT_CALLS = ['/_epitaph/dbs/{database}/colls/{container}/content'];
const WITHOUT_KEY = [
  '/_epitaph/health/live',
  '/_epitaph/health/ready',
  '/_epitaph/proof/key',
  '/_epitaph/openapi.json',
];

/** The target of an operation, with a value for every parameter. */
function target(path: string, { parameters = [] }: Operation, id: string): string {
  const values: Readonly<Record<string, string>> = {
    database: 'shop',
    container: 'orders',
    name: 'items',
    id,
    partitionKey: '["ann"]',
    at: String(START_MS + 50_000),
    ...(path.endsWith('/consistency') ? { from: '1', to: '2' } : { from: '0', to: String(START_MS * 2) }),
  };
  const filled = path.slice('/_epitaph'.length).replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? 'x');
  const query = new URLSearchParams();
  for (const { name, in: where } of parameters) {
    if (where === 'query' && values[name] !== undefined) query.set(name, values[name]);
  }
  return `${filled}?${query.toString()}`;
}

describe('access to the operations', () => {
  test('that change something is for the primary and the secondary key alone, and nothing else is', () => {
    for (const { method, path, operation } of operations()) {
      const access = operation['x-epitaph-access'];
      // Held content may be shown to few, and the reading is recorded.
      const changes = (method !== 'GET' && !READING_POSTS.includes(path)) || path.endsWith('/held-content');
      expect([method, path, access === 'write']).toEqual([method, path, changes]);
      expect([path, access === 'anyone']).toEqual([path, WITHOUT_KEY.includes(path)]);
      expect(operation.security).toEqual(access === 'anyone' ? [] : [{ key: [] }]);
    }
  });

  test('is for every route as the document says', async () => {
    const levels = ['anyone', 'audit', 'read', 'write'];
    for (const { method, path, operation } of operations()) {
      const needed = levels.indexOf(operation['x-epitaph-access']);
      for (const [level, key] of [null, AUDITOR_KEY, READ_ONLY_KEY, EMULATOR_KEY].entries()) {
        const response = await world.ask(method as 'GET', target(path, operation, 'kept'), { key });
        const refused = response.statusCode === 401 || response.statusCode === 403;
        expect([method, path, levels[level], refused]).toEqual([method, path, levels[level], level < needed]);
        if (refused) expect(response.statusCode).toBe(level === 0 ? 401 : 403);
        expect(response.headers['cache-control']).toBe('no-store');
      }
    }
  });

  test('of an auditor covers history, and no content', async () => {
    let answered = 0;
    for (const { method, path, operation } of operations()) {
      for (const id of ['kept', 'gone']) {
        const response = await world.ask(method as 'GET', target(path, operation, id), { key: AUDITOR_KEY });
        if (response.statusCode === 200) answered += 1;
        expect([path, response.body.includes(CONTENT)]).toEqual([path, false]);
      }
    }
    expect(answered).toBeGreaterThan(20);
    for (const path of CONTENT_CALLS) {
      const response = await world.ask('GET', target(path, document.paths[path]!['get']!, 'kept'), {
        key: READ_ONLY_KEY,
      });
      expect([path, response.body.includes(CONTENT)]).toEqual([path, true]);
    }
  });
});
