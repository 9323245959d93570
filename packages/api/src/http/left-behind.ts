import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { systemClocks } from '@epitaph/core/clock.ts';

interface Connection {
  readonly socket: Socket;
  underWay: number;
  sinceMs: number;
}

/**
 * Where there may be no more connections, those are let go on which nothing has been under way for a while: clients that are
 * made for each request leave theirs behind, and would keep everybody else out, health checks too. The one that found no room is
 * lost; the next finds some.
 *
 * @param afterMs how long nothing has been under way, in milliseconds: a client's own, between two requests, stays
 */
export function letGoOfLeftBehind(server: Server, afterMs: number): void {
  /** By who is at their other end: over the socket of a connection that speaks TLS comes another one. */
  const connections = new Map<string, Connection>();
  /** By what their requests come over. To put together who is at the other end takes a fiftieth of a small request. */
  const bySocket = new WeakMap<Socket, Connection>();
  const begin = (socket: Socket): void => {
    const peer = peerOf(socket);
    const connection = { socket, underWay: 0, sinceMs: systemClocks.monotonicMs() };
    connections.set(peer, connection);
    bySocket.set(socket, connection);
    socket.once('close', () => {
      if (connections.get(peer)?.socket === socket) connections.delete(peer);
    });
  };
  server.on('connection', begin);
  server.on('secureConnection', begin);
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = bySocket.get(socket);
    if (connection === undefined) return;
    connection.underWay += 1;
    response.once('close', () => {
      connection.underWay -= 1;
      connection.sinceMs = systemClocks.monotonicMs();
    });
  });
  server.on('drop', () => {
    const untilMs = systemClocks.monotonicMs() - afterMs;
    for (const { socket, underWay, sinceMs } of connections.values()) {
      if (underWay === 0 && sinceMs <= untilMs) socket.destroy();
    }
  });
}

const peerOf = ({ localAddress, remoteAddress, remotePort }: Socket): string =>
  `${localAddress} ${remoteAddress} ${remotePort}`;
