import type { IncomingMessage } from 'node:http';
import { isLoopbackHostHeader } from '../config/loopback.ts';
import { WireError } from '../cosmos/errors.ts';

/**
 * While the well-known key is in use, a web page could point its own name at 127.0.0.1 and then call this server as its
 * own origin. So requests must name this machine by one of its own names.
 *
 * @returns a guard that returns why a request is refused, or undefined
 */
export function otherHostsRefused(): (request: IncomingMessage) => WireError | undefined {
  // Remembered because a client sends the same name with each request. A request without a name is let in too.
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
