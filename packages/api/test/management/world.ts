import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { FastifyInstance, LightMyRequestResponse } from 'fastify';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import { sendProblem } from '@epitaph/api/management/send-problem.ts';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';

export const START_MS = Date.UTC(2026, 10, 21, 10);
export const WRITER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
export const READ_ONLY_KEY = Buffer.alloc(64, 1).toString('base64');
export const AUDITOR_KEY = Buffer.alloc(64, 2).toString('base64');

export interface Sent {
  readonly key?: string | null;
  readonly body?: unknown;
  readonly accept?: string;
}

export interface World {
  readonly store: StoreApi;
  readonly app: FastifyInstance;
  /** Sends with the primary key unless told otherwise. */
  ask(method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH', url: string, sent?: Sent): Promise<LightMyRequestResponse>;
  /** The answer's JSON; tests look into answers of all shapes. */
  get(url: string): Promise<Record<string, unknown>>;
  write(id: string, document?: Readonly<Record<string, unknown>>): Promise<void>;
  close(): Promise<void>;
}

/** A server with the manual clock over a store in a folder of its own, with a container `shop/orders` by `/customer`. */
export async function openWorld(defaultTtl: number | null = 60): Promise<World> {
  const folder = mkdtempSync(path.join(tmpdir(), 'epitaph-management-'));
  const store = await openEmbeddedStore({
    folder,
    clock: 'manual',
    startMs: START_MS,
    writers: 'inline',
    durable: false,
    automaticPurge: false,
  });
  const keys = new KeyRing({ primary: EMULATOR_KEY, readOnly: READ_ONLY_KEY, auditor: AUDITOR_KEY });
  const app = buildServer({
    store,
    keys,
    sendUnroutable: sendProblem,
    plugins: [(server) => registerManagement(server, { store, keys })],
  });
  await store.createDatabase(WRITER, 'shop');
  await createOrders(store, defaultTtl);
  const ask: World['ask'] = (method, url, { key = EMULATOR_KEY, body, accept } = {}) =>
    app.inject({
      method,
      url: `/_epitaph${url}`,
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(accept === undefined ? {} : { accept }),
      },
      ...(body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
  return {
    store,
    app,
    ask,
    get: async (url) => (await ask('GET', url)).json<Record<string, unknown>>(),
    write: async (id, document = {}) => {
      const whole = { id, customer: 'ann', ...document };
      await store.writeItem(WRITER, store.container('shop', 'orders'), 'upsert', {
        id,
        partitionKey: '["ann"]',
        document: whole,
        json: JSON.stringify(whole),
      });
    },
    close: async () => {
      await app.close();
      await store.close();
      rmSync(folder, { recursive: true });
    },
  };
}

export async function createOrders(store: StoreApi, defaultTtl: number | null): Promise<void> {
  const definition = {
    partitionKey: { paths: ['/customer'], kind: 'Hash' as const },
    indexingPolicy: { indexingMode: 'consistent' as const },
  };
  await store.createContainer(WRITER, 'shop', 'orders', definition, defaultTtl);
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
