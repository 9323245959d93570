import type { FastifyInstance, FastifyRequest } from 'fastify';
import { WireError } from '../cosmos/errors.ts';
import type { Limits } from './limits.ts';

/**
 * Bounds what a server has under way, so that overload ends in quick refusals instead of a growing heap.
 *
 * A request counts from when its body is there until its answer is out, so slow senders hold no place. Of large
 * bodies, which hold memory while they arrive, the bytes count: who sends one slowly takes no room from others.
 *
 * @param exempt tells by the target what is let in always: health, which must answer under load most of all
 */
export function limitInFlight(app: FastifyInstance, limits: Limits, exempt: (url: string) => boolean): void {
  let requests = 0;
  let largeBodyBytes = 0;

  app.addHook('preParsing', (request, reply, payload, next) => {
    if (!isLargeBody(request, limits)) {
      next(null, payload);
      return;
    }
    if (largeBodyBytes >= limits.largeBodyBytesInFlight) {
      next(overloaded());
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
    if (exempt(request.originalUrl)) {
      next();
      return;
    }
    if (requests >= limits.requestsInFlight) {
      next(overloaded());
      return;
    }
    requests += 1;
    reply.raw.once('close', () => {
      requests -= 1;
    });
    next();
  });
}

const overloaded = (): WireError => new WireError('unavailable', 'The server is overloaded; try again.');

function isLargeBody({ raw: { headers } }: FastifyRequest, { largeBodyBytes }: Limits): boolean {
  const length = headers['content-length'];
  return length === undefined ? headers['transfer-encoding'] !== undefined : Number(length) >= largeBodyBytes;
}
