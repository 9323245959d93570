import { Server as NetServer } from 'node:net';
import { promisify } from 'node:util';
import type { FastifyInstance } from 'fastify';
import { systemClocks } from '@epitaph/core/clock.ts';
import { wait } from '../wait.ts';
import { closeAllConnections, closeIdleConnections } from './connections.ts';

/** How often connections that have become idle are closed meanwhile. */
const SWEEP_MS = 100;

/**
 * For how much of the time to close connections of direct mode stay, of ten seconds one and a half. Clients that are answered 410 try again
 * at once, after a second, and after two more. Who closes while they are at it breaks off writes; and what the Java client is about to
 * send over a connection that it loses is never answered to whoever waits for it.
 *
 * @source `GoneAndRetryWithRetryPolicy` and `RntbdServiceEndpoint.writeWhenConnected` of the Java client's public source
 */
const DIRECT_STAYS = 0.15;

/** Connections that were busy when it began to close are kept alive by whoever was answered on them; others were never used. */
async function closeIdle(app: FastifyInstance, milliseconds: number, until: AbortSignal): Promise<void> {
  const directFromMs = systemClocks.monotonicMs() + milliseconds * DIRECT_STAYS;
  while (!until.aborted) {
    await requestsRead(until);
    closeIdleConnections(app.server, systemClocks.monotonicMs() >= directFromMs);
  }
}

/**
 * Stops accepting, and reads what has been sent by then. Closing as HTTP servers do ends idle connections at once, and
 * takes those for idle, too, whose next request has come and is not read yet: on a busy server most of them, and whoever
 * had sent a write could not know whether it was done.
 */
async function stopAccepting({ server }: FastifyInstance): Promise<void> {
  NetServer.prototype.close.call(server);
  if ((await promisify(server.getConnections.bind(server))()) > 0) await requestsRead();
}

/** A while, and a look at what has come on the connections after it: where the processor is busy, both may be late. */
async function requestsRead(until?: AbortSignal): Promise<void> {
  await wait(SWEEP_MS, until);
  await new Promise<void>((resolve) => void setImmediate(resolve));
}

/** Stops accepting, lets requests under way end, and cuts off those that don't in time. */
export async function closeWithin(app: FastifyInstance, milliseconds: number): Promise<void> {
  await stopAccepting(app);
  const closed = new AbortController();
  const closing = app.close().finally(() => closed.abort());
  void closeIdle(app, milliseconds, closed.signal);
  await Promise.race([closing, wait(milliseconds, closed.signal)]);
  if (!closed.signal.aborted) closeAllConnections(app.server);
  await closing;
}
