/** Servers as contenders. Each listens on a port that the system chooses. Its only work, `port`, returns that port. */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import Fastify from 'fastify';
import { type BenchContext, Unavailable } from './bench.ts';
import type { Contender, ContenderOptions, RunningContender } from './contender.ts';
import { DocumentMaker } from './documents.ts';
import { installPeer, loadPeer } from './peers.ts';

/** The store as `npm start` runs it: embedded, durable, behind its own HTTP server. */
export async function epitaphServer({ folder }: ContenderOptions): Promise<Contender> {
  const store = await openEmbeddedStore({ folder: String(folder), clock: 'system' });
  const app = buildServer({ store, keys: new KeyRing({ primary: EMULATOR_KEY }) });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return {
    works: { port: () => ({ port: (app.server.address() as AddressInfo).port }) },
    close: async () => {
      app.server.closeAllConnections();
      await app.close();
      await store.close();
    },
  };
}

/**
 * `@vercel/cosmosdb-server`: keeps everything in memory and syncs nothing.
 *
 * @param options `keepAlive`: leaves connections open. By default it closes each after its answer. Its command line can't
 *   change that, and its README does not mention the option
 */
export async function cosmosdbServer({ keepAlive = false }: ContenderOptions): Promise<Contender> {
  const { createHttpServer } = loadPeer<{ createHttpServer: (options: object) => Server }>(
    'cosmosdb-server',
    '@vercel/cosmosdb-server',
  );
  const server = createHttpServer({ keepAlive });
  // It tells clients an https address, even if it was started with plain HTTP.
  server.prependListener('request', (request, response: ServerResponse) => {
    if (request.url !== '/') return;
    const end = response.end.bind(response) as (text: string) => ServerResponse;
    response.end = ((text: string) => end(text.replaceAll('https://', 'http://'))) as typeof response.end;
  });
  // It listens on every address, as in its README, and therefore calls itself "localhost".
  await new Promise<void>((resolve) => server.listen(0, resolve));
  return listening(server);
}

/** Shows the client's own limit: every answer is a prepared text, with the headers of our answers. */
export async function cannedServer(): Promise<Contender> {
  const rid = 'AAAAAIAAAAA=';
  const { json } = new DocumentMaker().make(0);
  const system = `,"_rid":"AAAAAIAAAAAAAAAAAAAAAQ==","_self":"dbs/AAAAAA==/colls/${rid}/docs/AAAAAIAAAAAAAAAAAAAAAQ==/","_etag":"\\"00000000-0000-0000-0000-000000000000\\"","_attachments":"attachments/","_ts":1700000000}`;
  const item = `${json.slice(0, -1)}${system}`;
  const container = JSON.stringify({
    id: 'items',
    _rid: rid,
    _self: `dbs/AAAAAA==/colls/${rid}/`,
    partitionKey: { paths: ['/pk'], kind: 'Hash', version: 2 },
  });
  const database = JSON.stringify({ id: 'bench', _rid: 'AAAAAA==', _self: 'dbs/AAAAAA==/' });
  const server = createServer((request, response) => {
    request.resume();
    request.on('end', () => {
      const { method, url = '/' } = request;
      const ofItem = url.includes('/docs');
      const location = [{ name: 'local', databaseAccountEndpoint: `http://${request.headers.host}` }];
      const body = ofItem
        ? item
        : url.includes('/colls')
          ? container
          : url.startsWith('/dbs')
            ? database
            : JSON.stringify({
                id: 'canned',
                _rid: 'canned',
                writableLocations: location,
                readableLocations: location,
                enableMultipleWriteLocations: false,
                userConsistencyPolicy: { defaultConsistencyLevel: 'Session' },
              });
      response.writeHead(method === 'POST' ? 201 : 200, {
        'x-ms-activity-id': '00000000-0000-0000-0000-000000000000',
        'x-ms-request-charge': '5.29',
        'x-ms-request-duration-ms': '1.000',
        'cache-control': 'no-store, no-cache',
        etag: '"00000000-0000-0000-0000-000000000000"',
        'x-ms-session-token': '0:-1#1',
        'x-ms-documentdb-partitionkeyrangeid': '0',
        lsn: '1',
        'x-ms-content-path': rid,
        'x-ms-alt-content-path': 'dbs/bench/colls/items',
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      });
      response.end(body);
    });
  });
  return listening(server);
}

/** An echo on Fastify: a POST is answered with its own body, a GET with a document of 1 KB. */
export async function echoServer(): Promise<Contender> {
  const app = Fastify({ logger: false });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, parsed) => parsed(null, body));
  const { json } = new DocumentMaker().make(0);
  app.all('/*', (request, reply) => {
    void reply.type('application/json').send(request.body ?? json);
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return {
    works: { port: () => ({ port: (app.server.address() as AddressInfo).port }) },
    close: async () => {
      app.server.closeAllConnections();
      await app.close();
    },
  };
}

async function listening(server: Server): Promise<Contender> {
  if (!server.listening) await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    works: { port: () => ({ port: (server.address() as AddressInfo).port }) },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const FACTORIES = import.meta.url;

/** A running server, and its address. */
export interface RunningServer {
  readonly ours: boolean;
  readonly endpoint: string;
  readonly contender: RunningContender;
}

export async function startEpitaphServer(context: BenchContext): Promise<RunningServer> {
  const contender = await context.ours(FACTORIES, 'epitaphServer', { folder: context.scratch('epitaph') });
  return located(contender, '127.0.0.1', true);
}

export async function startPeerServer(
  context: BenchContext,
  factory: 'cosmosdbServer' | 'cannedServer' | 'echoServer',
  options: ContenderOptions = {},
): Promise<RunningServer | Unavailable> {
  const missing = factory === 'cosmosdbServer' ? installPeer('cosmosdb-server', context.say) : undefined;
  const contender = missing ?? (await context.peer(FACTORIES, factory, options));
  return contender instanceof Unavailable
    ? contender
    : located(contender, factory === 'cosmosdbServer' ? 'localhost' : '127.0.0.1', false);
}

async function located(contender: RunningContender, host: string, ours: boolean): Promise<RunningServer> {
  const { port } = await contender.call('port', 0);
  return { endpoint: `http://${host}:${port}`, contender, ours };
}
