import type { Server, ServerResponse } from 'node:http';
import { Socket } from 'node:net';

/**
 * Hangs up on clients that read nothing of an answer: until it has been sent, its request keeps its place among those
 * under way. This includes small answers. The system's buffers take some of them, but not those of a client that asks
 * again and again.
 *
 * @param afterMs how long the client reads nothing, in milliseconds
 */
export function hangUpOnUnsent(server: Server, afterMs: number): void {
  // Each piece that is read starts this timeout again. The server sets its own when the answer has been sent.
  function handedOver(this: ServerResponse): void {
    if (this.writableLength > 0 && this.socket instanceof Socket) this.socket.setTimeout(afterMs);
  }
  server.prependListener('request', (_request, response: ServerResponse) => response.on('prefinish', handedOver));
}
