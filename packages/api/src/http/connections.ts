import type { Server } from 'node:http';
import type { Socket } from 'node:net';

const connections = new WeakMap<Server, Set<Socket>>();

/**
 * Has a server know all its connections. Node.js counts one among those that it can close only after the handshake where
 * it speaks TLS, and among the idle ones only after its first request; and yet a server that closes waits for each.
 */
export function followConnections(server: Server): void {
  const open = new Set<Socket>();
  connections.set(server, open);
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
}

/** Closes those on which nothing is under way. */
export function closeIdleConnections(server: Server): void {
  server.closeIdleConnections();
  for (const socket of connections.get(server)!) if (socket.bytesRead === 0) socket.destroy();
}

export function closeAllConnections(server: Server): void {
  server.closeAllConnections();
  for (const socket of connections.get(server)!) socket.destroy();
}
