import type { FastifyInstance } from 'fastify';
import { isLoopbackHostHeader } from '../config/loopback.ts';
import { WireError } from '../cosmos/errors.ts';

/**
 * While everybody knows the key, a web page could let its own name mean 127.0.0.1 and then call this server as its own.
 * So requests must name this machine as itself.
 */
export function refuseOtherHosts(app: FastifyInstance): void {
  // A client sends the same name with each of its requests. None at all is let in, too.
  let letInLast: string | undefined;
  app.addHook('onRequest', (request, _reply, next) => {
    const { host } = request.headers;
    if (host === letInLast || isLoopbackHostHeader(host)) {
      letInLast = host;
      next();
    } else
      next(
        new WireError(
          'forbidden',
          'With the published emulator key in force, requests must be to localhost or 127.0.0.1.',
        ),
      );
  });
}
