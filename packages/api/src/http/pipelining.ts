import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Begins each request of a connection when the answer to the one before it is out, and hangs up on one that sends many
 * without waiting for answers. No client does that. Node.js begins all that a read from a connection brings at once: some
 * 2,000 of the shortest requests, before anybody else's, or pages for hundreds of megabytes that nobody can take yet.
 *
 * @param most requests that may wait for the answer to one before them
 */
export function withoutPipelines(handler: RequestListener, most: number): RequestListener {
  const waiting = new WeakMap<Socket, number>();
  return (request, response) => {
    const { socket } = request;
    // The response has its connection when the one before it is out.
    if (response.socket !== null) {
      handler(request, response);
      return;
    }
    const now = (waiting.get(socket) ?? 0) + 1;
    if (now > most) {
      // What was read along with it comes here all the same.
      socket.destroy();
      return;
    }
    waiting.set(socket, now);
    response.once('socket', () => {
      waiting.set(socket, waiting.get(socket)! - 1);
      // The time that a client had to take the one before is no limit for how long this one takes to be made.
      socket.setTimeout(0);
      // Node.js is still handing over the connection.
      process.nextTick(handler, request, response);
    });
  };
}
