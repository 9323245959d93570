import type { Server } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { Deadline } from '../wait.ts';

/**
 * Bytes that are enough to tell the two apart: the length of a first message of direct mode ends with a zero byte,
 * which HTTP never has.
 */
const TOLD_BY_BYTES = 4;

/**
 * Serves TLS connections that use direct mode outside the HTTP server that accepts them. So direct mode needs no port
 * of its own.
 *
 * @param waitMs how long a connection may be silent at first, in milliseconds
 */
export function serveDirectBeside(server: Server, waitMs: number, serve: (socket: TLSSocket) => void): void {
  const http = server.listeners('secureConnection') as ((socket: TLSSocket) => void)[];
  server.removeAllListeners('secureConnection');
  server.on('secureConnection', (socket: TLSSocket) => {
    const look = (): void => {
      const first = socket.read(TOLD_BY_BYTES) as Buffer | null;
      if (first === null && !socket.readableEnded) return;
      socket.off('readable', look).off('end', look).off('error', hangUp);
      deadline.met();
      if (first !== null) socket.unshift(first);
      if (first?.length === TOLD_BY_BYTES && first[TOLD_BY_BYTES - 1] === 0) serve(socket);
      else for (const listener of http) listener.call(server, socket);
    };
    const hangUp = () => socket.destroy();
    const deadline = new Deadline(hangUp);
    deadline.within(waitMs);
    socket.on('readable', look).on('end', look).on('error', hangUp);
    socket.once('close', () => deadline.met());
  });
}
