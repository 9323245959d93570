import { createHmac } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import type { InjectOptions } from 'light-my-request';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer, type ServerOptions } from '@epitaph/api/http/server.ts';
import { fakeStore } from './fake-store.ts';
import { inject } from './inject.ts';

/** The time of the tests' servers and clients. */
export const NOW_MS = Date.UTC(2026, 10, 21, 12);
export const READ_ONLY_KEY = Buffer.alloc(64, 1).toString('base64');
export const AUDITOR_KEY = Buffer.alloc(64, 2).toString('base64');
export const SECONDARY_KEY = Buffer.alloc(64, 3).toString('base64');

export function testKeys(): KeyRing {
  return new KeyRing(
    { primary: EMULATOR_KEY, secondary: SECONDARY_KEY, readOnly: READ_ONLY_KEY, auditor: AUDITOR_KEY },
    () => NOW_MS,
  );
}

export function testServer(options: Partial<ServerOptions> = {}): FastifyInstance {
  return buildServer({ store: fakeStore(), keys: testKeys(), ...options });
}

export interface Call {
  readonly headers?: Readonly<Record<string, string>>;
  /** An object is sent as JSON, a string or buffer unchanged. */
  readonly body?: unknown;
  readonly key?: string;
  readonly atMs?: number;
  /** What to sign, if it differs from the target. */
  readonly signed?: { readonly type: string; readonly link: string };
}

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | number | undefined>>;
  readonly text: string;
  // The JSON of an answer of any shape.
  readonly json: Readonly<Record<string, unknown>>;
}

/** An instant in the form of the date header. */
export const httpDate = (atMs: number): string => new Date(atMs).toUTCString();

/** The authorization that a client computes for a request. */
export function sign(verb: string, type: string, link: string, date: string, key: string = EMULATOR_KEY): string {
  const text = `${verb.toLowerCase()}\n${type.toLowerCase()}\n${link}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64');
  return encodeURIComponent(`type=master&ver=1.0&sig=${signature}`);
}

/** What a client signs for a path whose names need no decoding. */
function signedParts(path: string): { readonly type: string; readonly link: string } {
  const segments = path
    .split('/')
    .filter((segment) => segment !== '')
    .map(decodeURIComponent);
  if (segments.length === 0) return { type: '', link: '' };
  return segments.length % 2 === 1
    ? { type: segments.at(-1)!, link: segments.slice(0, -1).join('/') }
    : { type: segments.at(-2)!, link: segments.join('/') };
}

/** Sends one signed request. */
export async function call(
  app: FastifyInstance,
  method: NonNullable<InjectOptions['method']>,
  path: string,
  options: Call = {},
): Promise<Reply> {
  const date = httpDate(options.atMs ?? NOW_MS);
  const { type, link } = options.signed ?? signedParts(path);
  const { body } = options;
  const payload = body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const response = await inject(app, {
    method,
    url: path,
    headers: {
      host: 'localhost:8081',
      'x-ms-date': date,
      authorization: sign(method, type, link, date, options.key),
      ...(method === 'POST' || method === 'PUT' ? { 'content-type': 'application/json' } : {}),
      ...options.headers,
    },
    ...(payload === undefined ? {} : { payload }),
  });
  return {
    status: response.statusCode,
    headers: response.headers,
    text: response.payload,
    json: (response.payload === '' ? {} : JSON.parse(response.payload)) as Readonly<Record<string, unknown>>,
  };
}

/** A server with a database `shop` and a container `orders` partitioned by `/customer`. */
export async function shop(options: Partial<ServerOptions> = {}): Promise<FastifyInstance> {
  const app = testServer(options);
  await call(app, 'POST', '/dbs', { body: { id: 'shop' } });
  await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'orders', partitionKey: { paths: ['/customer'] } } });
  return app;
}

export const DOCS = '/dbs/shop/colls/orders/docs';
export const keyHeader = (...components: readonly unknown[]): Readonly<Record<string, string>> => ({
  'x-ms-documentdb-partitionkey': JSON.stringify(components),
});
