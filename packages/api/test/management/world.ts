import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { FastifyInstance, LightMyRequestResponse } from 'fastify';
import { z } from 'zod';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { problem } from '@epitaph/api/management/answers.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import type { RouteDescription } from '@epitaph/api/management/routing.ts';
import { sendProblem } from '@epitaph/api/management/send-problem.ts';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';

export const START_MS = Date.UTC(2026, 10, 21, 10);
export const WRITER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
export const READ_ONLY_KEY = Buffer.alloc(64, 1).toString('base64');
export const SECONDARY_KEY = Buffer.alloc(64, 3).toString('base64');
export const AUDITOR_KEY = Buffer.alloc(64, 2).toString('base64');

export interface Sent {
  readonly key?: string | null;
  readonly body?: unknown;
  readonly accept?: string;
}

export interface World {
  readonly store: StoreApi;
  readonly app: FastifyInstance;
  readonly routes: readonly RouteDescription[];
  /** Sends a request, with the primary key unless told otherwise. */
  ask(method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH', url: string, sent?: Sent): Promise<LightMyRequestResponse>;
  /** The answer's JSON, of any shape. */
  get(url: string): Promise<Record<string, unknown>>;
  write(id: string, document?: Readonly<Record<string, unknown>>): Promise<void>;
  /** Writes a document given as JSON; it is in the partition of ann. */
  writeText(id: string, json: string): Promise<void>;
  close(): Promise<void>;
}

/** A server with a manual clock over a store in a folder of its own, with a container `shop/orders` partitioned by `/customer`. */
export async function openWorld(defaultTtl: number | null = 60): Promise<World> {
  const folder = mkdtempSync(path.join(tmpdir(), 'epitaph-management-'));
  const backups = mkdtempSync(path.join(tmpdir(), 'epitaph-backups-'));
  const store = await openEmbeddedStore({
    folder,
    clock: 'manual',
    startMs: START_MS,
    writers: 'inline',
    durable: false,
    automaticPurge: false,
    backupsInto: { below: backups },
  });
  const keys = new KeyRing({
    primary: EMULATOR_KEY,
    secondary: SECONDARY_KEY,
    readOnly: READ_ONLY_KEY,
    auditor: AUDITOR_KEY,
  });
  let routes: readonly RouteDescription[] = [];
  const app = buildServer({
    store,
    keys,
    sendUnroutable: sendProblem,
    plugins: [(server) => (routes = registerManagement(server, { store, keys }))],
  });
  await store.createDatabase(WRITER, 'shop');
  await createOrders(store, defaultTtl);
  const ask: World['ask'] = async (method, url, { key = EMULATOR_KEY, body, accept } = {}) => {
    const response = await app.inject({
      method,
      url: `/_epitaph${url}`,
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(accept === undefined ? {} : { accept }),
      },
      ...(body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    assertAsDescribed(routes, method, url, response);
    return response;
  };
  const writeText: World['writeText'] = async (id, json) => {
    await store.writeItem(WRITER, store.container('shop', 'orders'), 'upsert', {
      id,
      partitionKey: '["ann"]',
      document: JSON.parse(json) as Readonly<Record<string, unknown>>,
      json,
    });
  };
  return {
    store,
    app,
    get routes() {
      return routes;
    },
    ask,
    get: async (url) => (await ask('GET', url)).json<Record<string, unknown>>(),
    write: async (id, document = {}) => writeText(id, JSON.stringify({ id, customer: 'ann', ...document })),
    writeText,
    close: async () => {
      await app.close();
      await store.close();
      rmSync(folder, { recursive: true });
      rmSync(backups, { recursive: true });
    },
  };
}

/** Compares an answer with the OpenAPI description of its route, strictly: nothing may be missing or added. */
function assertAsDescribed(
  routes: readonly RouteDescription[],
  method: string,
  url: string,
  response: LightMyRequestResponse,
): void {
  const path = url.split('?')[0]!;
  const called = routes.find(
    (route) => route.method === method && new RegExp(`^${route.url.replaceAll(/:\w+/g, '[^/]+')}$`).test(path),
  );
  const type = String(response.headers['content-type']).split(';')[0]!;
  const check = (schema: z.ZodType | undefined, value: unknown): void => {
    const verdict = schema?.safeParse(value);
    if (verdict?.success === true) return;
    const why =
      verdict === undefined ? `${type} with ${response.statusCode} is not described` : z.prettifyError(verdict.error);
    throw new Error(`${method} ${path} answers otherwise than its description says:\n${why}`);
  };
  const { status = 200, json, lines, events, files = [], otherwise, headers = {} } = called?.answers ?? {};
  const undeclared = Object.keys(response.headers).filter(
    (name) => name.startsWith('x-epitaph-') && !(name in headers),
  );
  if (undeclared.length > 0)
    throw new Error(`${method} ${path} has headers that are not described: ${undeclared.join(', ')}`);
  if (type === 'application/problem+json') return check(problem, response.json());
  if (response.statusCode === otherwise?.status) return check(otherwise.json, response.json());
  if (response.statusCode !== status) return check(undefined, undefined);
  if (type === 'application/json') return check(json, response.json());
  if (type === 'application/x-ndjson') {
    for (const line of response.body.split('\n')) if (line !== '') check(lines, JSON.parse(line));
    return;
  }
  if (type === 'text/event-stream') {
    for (const { event, data } of eventsIn(response.body)) {
      check(event === 'failed' ? problem : event === 'done' ? events?.done : events?.progress, data);
    }
    return;
  }
  if (!files.includes(type)) check(undefined, undefined);
}

export async function createOrders(store: StoreApi, defaultTtl: number | null, database = 'shop'): Promise<void> {
  const definition = {
    partitionKey: { paths: ['/customer'], kind: 'Hash' as const },
    indexingPolicy: { indexingMode: 'consistent' as const },
  };
  await store.createContainer(WRITER, database, 'orders', definition, defaultTtl);
}

export const ORDERS = '/dbs/shop/colls/orders';

/** `?id=…&partitionKey=…` of an item of customer ann. */
export function item(id: string, more: Readonly<Record<string, string>> = {}): string {
  return `?${new URLSearchParams({ id, partitionKey: '["ann"]', ...more }).toString()}`;
}

/** The events of a text/event-stream. */
export function eventsIn(text: string): { event: string; data: Record<string, unknown> }[] {
  return text
    .split('\n\n')
    .filter((block) => block !== '')
    .map((block) => {
      const [, event = '', data = ''] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? [];
      return { event, data: JSON.parse(data) as Record<string, unknown> };
    });
}
