import type { FastifyInstance, FastifyRequest } from 'fastify';
import { systemClocks } from '@epitaph/core/clock.ts';
import { overloaded, WireError } from '../cosmos/errors.ts';
import type { Limits } from './limits.ts';

/** Milliseconds after which who is turned away comes again: at least, behind the one before, and at most. */
const WAIT_MS = { least: 100, apart: 1, most: 3_000 };

/** What is told apart of targets. */
export interface Targets {
  /** Let in always: health, which must answer under load most of all. */
  readonly isHealth: (url: string) => boolean;
  readonly isManagement: (url: string) => boolean;
}

/**
 * Bounds what a server has under way, so that overload ends in quick refusals instead of a growing heap. Clients of the data
 * plane are told 429, which all of them wait for and come back after, as programs that send thousands of requests at once
 * count on; with 503 and one region they give up. Each is sent behind those turned away before it.
 *
 * A request counts from when its body is there until its answer is out, so slow senders hold no place. Of large
 * bodies, which hold memory while they arrive, the bytes count: who sends one slowly takes no room from others.
 */
export function limitInFlight(app: FastifyInstance, limits: Limits, { isHealth, isManagement }: Targets): void {
  let requests = 0;
  let largeBodyBytes = 0;
  /** When the last of those who were turned away comes again. */
  let lastComesMs = 0;

  const turnedAway = ({ originalUrl }: FastifyRequest): WireError => {
    if (isManagement(originalUrl)) return new WireError('unavailable', 'The server is overloaded; try again.');
    const nowMs = systemClocks.monotonicMs();
    lastComesMs = Math.min(Math.max(lastComesMs + WAIT_MS.apart, nowMs + WAIT_MS.least), nowMs + WAIT_MS.most);
    return overloaded(lastComesMs - nowMs);
  };

  app.addHook('preParsing', (request, reply, payload, next) => {
    if (!isLargeBody(request, limits)) {
      next(null, payload);
      return;
    }
    if (largeBodyBytes >= limits.largeBodyBytesInFlight) {
      next(turnedAway(request));
      return;
    }
    let bytes = 0;
    reply.raw.once('close', () => {
      largeBodyBytes -= bytes;
    });
    payload.on('data', (chunk: Buffer) => {
      // Of an answer that is out already nothing would take it off again.
      if (reply.raw.closed) return;
      bytes += chunk.length;
      largeBodyBytes += chunk.length;
      // Many that had begun when there was room.
      if (largeBodyBytes > 2 * limits.largeBodyBytesInFlight) request.raw.destroy();
    });
    next(null, payload);
  });

  app.addHook('preHandler', (request, reply, next) => {
    if (isHealth(request.originalUrl)) {
      next();
      return;
    }
    if (requests >= limits.requestsInFlight) {
      next(turnedAway(request));
      return;
    }
    requests += 1;
    reply.raw.once('close', () => {
      requests -= 1;
    });
    next();
  });
}

function isLargeBody({ raw: { headers } }: FastifyRequest, { largeBodyBytes }: Limits): boolean {
  const length = headers['content-length'];
  return length === undefined ? headers['transfer-encoding'] !== undefined : Number(length) >= largeBodyBytes;
}
