import type { IncomingMessage } from 'node:http';
import { isLoopbackHostHeader } from '../config/loopback.ts';
import { WireError } from '../cosmos/errors.ts';

/**
 * While everybody knows the key, a web page could let its own name mean 127.0.0.1 and then call this server as its own.
 * So requests must name this machine as itself.
 *
 * @returns a guard that says why a request is refused, if it is
 */
export function otherHostsRefused(): (request: IncomingMessage) => WireError | undefined {
  // A client sends the same name with each of its requests. None at all is let in, too.
  let letInLast: string | undefined;
  return ({ headers: { host } }) => {
    if (host !== letInLast && !isLoopbackHostHeader(host)) {
      return new WireError(
        'forbidden',
        'With the published emulator key in force, requests must be to localhost or 127.0.0.1.',
      );
    }
    letInLast = host;
    return undefined;
  };
}
