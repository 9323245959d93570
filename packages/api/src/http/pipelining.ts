import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Hangs up on a connection that sends request after request without waiting for answers. No client does that, and all
 * that a read from a connection brings is begun at once: some 2,000 of the shortest requests, before anybody else's.
 *
 * @param most requests that may wait for the answer to one before them
 */
export function withoutPipelines(handler: RequestListener, most: number): RequestListener {
  const waiting = new WeakMap<Socket, number>();
  return (request, response) => {
    const { socket } = request;
    // What was read along with them comes here all the same.
    if (socket.destroyed) return;
    // The response has its connection when the one before it is out.
    if (response.socket === null) {
      const now = (waiting.get(socket) ?? 0) + 1;
      if (now > most) {
        socket.destroy();
        return;
      }
      waiting.set(socket, now);
      response.once('close', () => waiting.set(socket, waiting.get(socket)! - 1));
    }
    handler(request, response);
  };
}
