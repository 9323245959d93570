import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Begins each request of a connection when the answer to the one before has been sent, and hangs up on a client that
 * sends many without waiting for answers, as no real client does. Node.js begins all requests that one read from a
 * connection brings: about 2,000 of the shortest, before anyone else's, or pages of hundreds of megabytes that no one
 * can read yet.
 *
 * @param most requests that may wait for the answer to an earlier one
 */
export function withoutPipelines(handler: RequestListener, most: number): RequestListener {
  const waiting = new WeakMap<Socket, number>();
  return (request, response) => {
    const { socket } = request;
    // The response has its connection once the one before has been sent.
    if (response.socket !== null) {
      handler(request, response);
      return;
    }
    const now = (waiting.get(socket) ?? 0) + 1;
    if (now > most) {
      // The requests that were read together with this one still arrive here.
      socket.destroy();
      return;
    }
    waiting.set(socket, now);
    response.once('socket', () => {
      waiting.set(socket, waiting.get(socket)! - 1);
      // The time that the client had to read the answer before does not limit how long this answer may take.
      socket.setTimeout(0);
      // Node.js is still handing over the connection.
      process.nextTick(handler, request, response);
    });
  };
}
