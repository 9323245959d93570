import { Server as NetServer } from 'node:net';
import { promisify } from 'node:util';
import type { FastifyInstance } from 'fastify';
import { systemClocks } from '@epitaph/core/clock.ts';
import { wait } from '../wait.ts';
import { closeAllConnections, closeIdleConnections } from './connections.ts';

/** How often connections that have become idle are closed meanwhile. */
const SWEEP_MS = 100;

/**
 * The share of the closing time for which connections of direct mode stay open: of ten seconds, one and a half. Clients
 * that are answered 410 retry at once, after one second, and after two more. Closing while they do so would break off
 * writes, and a request that the Java client is about to send over a lost connection never gets an answer.
 *
 * @source `GoneAndRetryWithRetryPolicy` and `RntbdServiceEndpoint.writeWhenConnected` of the Java client's public
 *   source
 */
const DIRECT_STAYS = 0.15;

/**
 * Closes idle connections. Those that were busy when closing began are kept alive by their clients; others were never
 * used.
 */
async function closeIdle(app: FastifyInstance, milliseconds: number, until: AbortSignal): Promise<void> {
  const directFromMs = systemClocks.monotonicMs() + milliseconds * DIRECT_STAYS;
  while (!until.aborted) {
    await requestsRead(until);
    closeIdleConnections(app.server, systemClocks.monotonicMs() >= directFromMs);
  }
}

/**
 * Stops accepting, and reads what has been sent by then. The normal closing of an HTTP server ends idle connections at
 * once. It takes a connection for idle even if its next request has arrived and is not read yet. On a busy server those
 * are most connections, and a client that had sent a write could not know whether it was done.
 */
async function stopAccepting({ server }: FastifyInstance): Promise<void> {
  NetServer.prototype.close.call(server);
  if ((await promisify(server.getConnections.bind(server))()) > 0) await requestsRead();
}

/**
 * Waits for a while, and then for a look at what has arrived on the connections: on a busy processor both may be late.
 */
async function requestsRead(until?: AbortSignal): Promise<void> {
  await wait(SWEEP_MS, until);
  await new Promise<void>((resolve) => void setImmediate(resolve));
}

/** Stops accepting, lets requests under way end, and cuts off those that take too long. */
export async function closeWithin(app: FastifyInstance, milliseconds: number): Promise<void> {
  await stopAccepting(app);
  const closed = new AbortController();
  const closing = app.close().finally(() => closed.abort());
  void closeIdle(app, milliseconds, closed.signal);
  await Promise.race([closing, wait(milliseconds, closed.signal)]);
  if (!closed.signal.aborted) closeAllConnections(app.server);
  await closing;
}
