import { Server as NetServer } from 'node:net';
import { promisify } from 'node:util';
import type { FastifyInstance } from 'fastify';
import { wait } from '../wait.ts';
import { closeAllConnections, closeIdleConnections } from './connections.ts';

/** How often connections that have become idle are closed meanwhile. */
const SWEEP_MS = 100;

/** Connections that were busy when it began to close are kept alive by whoever was answered on them; others were never used. */
async function closeIdle(app: FastifyInstance, until: AbortSignal): Promise<void> {
  while (!until.aborted) {
    await requestsRead(until);
    closeIdleConnections(app.server);
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
  void closeIdle(app, closed.signal);
  await Promise.race([closing, wait(milliseconds, closed.signal)]);
  if (!closed.signal.aborted) closeAllConnections(app.server);
  await closing;
}
