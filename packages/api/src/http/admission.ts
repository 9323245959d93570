import type { FastifyInstance, FastifyRequest } from 'fastify';
import { WireError } from '../cosmos/errors.ts';
import type { Limits } from './limits.ts';

/**
 * Bounds what a server has under way, so that overload ends in quick refusals instead of a growing heap.
 *
 * A request counts from when its body is there until its answer is out, so slow senders hold no place; large bodies,
 * which hold memory while they arrive, have places of their own.
 *
 * @param exempt tells by the target what is let in always: health, which must answer under load most of all
 */
export function limitInFlight(app: FastifyInstance, limits: Limits, exempt: (url: string) => boolean): void {
  let requests = 0;
  let largeBodies = 0;

  app.addHook('onRequest', (request, reply, next) => {
    if (!isLargeBody(request, limits)) {
      next();
      return;
    }
    if (largeBodies >= limits.largeBodiesInFlight) {
      next(overloaded());
      return;
    }
    largeBodies += 1;
    reply.raw.once('close', () => {
      largeBodies -= 1;
    });
    next();
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
