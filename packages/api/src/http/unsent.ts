import type { Server, ServerResponse } from 'node:http';
import { Socket } from 'node:net';

/**
 * Hangs up on clients that take nothing of an answer: until it is out its request has its place among those under way.
 * Small answers are no exception. The system's buffers take some, but not those of a client that asks again and again.
 *
 * @param afterMs how long it takes nothing, in milliseconds
 */
export function hangUpOnUnsent(server: Server, afterMs: number): void {
  // Whatever is taken begins this time anew, and the server sets its own when the answer is out.
  function handedOver(this: ServerResponse): void {
    if (this.writableLength > 0 && this.socket instanceof Socket) this.socket.setTimeout(afterMs);
  }
  server.prependListener('request', (_request, response: ServerResponse) => response.on('prefinish', handedOver));
}
