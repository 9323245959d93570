/**
 * P4: point reads and upserts of 1 KB documents over HTTP without a client library, on 64 connections, against an
 * echo of the same bodies on Fastify. Both get the same bytes: requests are signed before they are timed.
 */
import { createHmac } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { CosmosClient } from '@azure/cosmos';
import { type Bench, closeAll, rowOf, takeTurns, Unavailable } from './support/bench.ts';
import type { Contender, ContenderOptions } from './support/contender.ts';
import { DocumentMaker } from './support/documents.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { type RunningServer, startEpitaphServer, startPeerServer } from './support/servers.ts';
import { concurrently, timed } from './support/timing.ts';

const CONNECTIONS = 64;
const ITEMS = 5_000;
const SLICE = 4_096;
/** The number of slices until the code of both sides is compiled, as in P3. */
const WARM_UP = 12;

/** Sends prepared requests, one at a time on each connection, and uses only the length of the responses. */
export async function plainClient({ endpoint, seeded }: ContenderOptions): Promise<Contender> {
  const { hostname, port } = new URL(String(endpoint));
  const documents = new DocumentMaker();
  if (seeded === true) {
    const client = new CosmosClient({ endpoint: String(endpoint), key: EMULATOR_KEY });
    const { database } = await client.databases.createIfNotExists({ id: 'bench' });
    const { container } = await database.containers.createIfNotExists({
      id: 'items',
      partitionKey: { paths: ['/pk'] },
    });
    await concurrently(ITEMS, 32, (number) => container.items.upsert({ ...documents.make(number).document }));
    client.dispose();
  }
  const connections = await Promise.all(Array.from({ length: CONNECTIONS }, () => open(hostname, Number(port))));
  const key = Buffer.from(EMULATOR_KEY, 'base64');
  const request = (verb: 'GET' | 'POST', link: string, path: string, partitionKey: string, body?: string) => {
    const date = new Date().toUTCString();
    const text = `${verb.toLowerCase()}\ndocs\n${link}\n${date.toLowerCase()}\n\n`;
    const signature = createHmac('sha256', key).update(text).digest('base64');
    const head = [
      `${verb} ${path} HTTP/1.1`,
      `host: ${hostname}:${port}`,
      `authorization: ${encodeURIComponent(`type=master&ver=1.0&sig=${signature}`)}`,
      `x-ms-date: ${date}`,
      'x-ms-version: 2020-07-15',
      `x-ms-documentdb-partitionkey: ${partitionKey}`,
      'accept: application/json',
      ...(body === undefined
        ? []
        : [
            'x-ms-documentdb-is-upsert: true',
            'content-type: application/json',
            `content-length: ${Buffer.byteLength(body)}`,
          ]),
    ];
    return Buffer.from(`${head.join('\r\n')}\r\n\r\n${body ?? ''}`);
  };
  let version = 0;
  const send = (requests: readonly Buffer[]) =>
    timed(async () => {
      let next = 0;
      await Promise.all(
        connections.map(async (connection) => {
          while (next < requests.length) await connection.exchange(requests[next++]!);
        }),
      );
      return requests.length;
    });
  const at = (index: number) => documents.make((index * 7_919) % ITEMS, version);
  return {
    works: {
      read: (count) =>
        send(
          Array.from({ length: count }, (_, index) => {
            const { id, partitionKey } = at(index);
            const link = `dbs/bench/colls/items/docs/${id}`;
            return request('GET', link, `/${link}`, partitionKey);
          }),
        ),
      upsert: (count) => {
        version += 1;
        return send(
          Array.from({ length: count }, (_, index) => {
            const { partitionKey, json } = at(index);
            return request('POST', 'dbs/bench/colls/items', '/dbs/bench/colls/items/docs', partitionKey, json);
          }),
        );
      },
    },
    close: () => connections.forEach(({ socket }) => socket.destroy()),
  };
}

interface Connection {
  readonly socket: Socket;
  exchange(request: Buffer): Promise<void>;
}

async function open(host: string, port: number): Promise<Connection> {
  const socket = connect({ host, port, noDelay: true });
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject));
  let received = '';
  let missing = -1;
  let waiting: { resolve: () => void; reject: (error: Error) => void } | undefined;
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
    if (missing < 0) {
      const end = received.indexOf('\r\n\r\n');
      if (end < 0) return;
      const status = received.slice(9, 12);
      if (status !== '200' && status !== '201') {
        waiting?.reject(new Error(received.slice(0, 2_000)));
        return;
      }
      const length = /content-length: (\d+)/i.exec(received.slice(0, end))?.[1];
      missing = end + 4 + Number(length);
    }
    if (received.length < missing) return;
    received = '';
    missing = -1;
    waiting?.resolve();
  });
  socket.on('close', () => waiting?.reject(new Error('the server closed the connection')));
  return {
    socket,
    exchange: (request) =>
      new Promise((resolve, reject) => {
        waiting = { resolve, reject };
        socket.write(request);
      }),
  };
}

export const bench: Bench = {
  id: 'P4',
  title: 'Over HTTP, without a client library',
  async run(context) {
    const start = (server: RunningServer | Unavailable) =>
      server instanceof Unavailable
        ? server
        : (server.ours ? context.ours : context.peer)(import.meta.url, 'plainClient', {
            endpoint: server.endpoint,
            seeded: server.ours,
          });
    const ours = await start(await startEpitaphServer(context));
    const echo = await start(await startPeerServer(context, 'echoServer'));
    const rows = [];
    for (const [work, limit] of [
      ['read', 0.5],
      ['upsert', 0.3],
    ] as const) {
      const sides = [ours, echo].map((contender) => ({ contender, work, argument: SLICE }));
      const [our, peer] = await takeTurns(context, sides, WARM_UP);
      rows.push(
        rowOf({
          bench: 'P4',
          work: `${work}, 64 connections`,
          unit: '/s',
          ours: our!,
          peer: { name: 'an echo on Fastify', rounds: peer! },
          target: { of: 'ratio', is: 'at-least', limit },
        }),
      );
    }
    await closeAll([ours, echo]);
    return rows;
  },
};
