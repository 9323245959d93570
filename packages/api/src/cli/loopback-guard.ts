import type { FastifyInstance } from 'fastify';
import { isLoopbackHostHeader } from '../config/loopback.ts';
import { WireError } from '../cosmos/errors.ts';

/**
 * While everybody knows the key, a web page could let its own name mean 127.0.0.1 and then call this server as its own.
 * So requests must name this machine as itself.
 */
export function refuseOtherHosts(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, next) => {
    if (isLoopbackHostHeader(request.headers.host)) next();
    else
      next(
        new WireError(
          'forbidden',
          'With the published emulator key in force, requests must be to localhost or 127.0.0.1.',
        ),
      );
  });
}
