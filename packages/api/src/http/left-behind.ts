import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { systemClocks } from '@epitaph/core/clock.ts';

/**
 * Where there may be no more connections, those are let go on which nothing has been under way for a while: clients that are
 * made for each request leave theirs behind, and would keep everybody else out, health checks too. The one that found no room is
 * lost; the next finds some.
 *
 * @param afterMs how long nothing has been under way, in milliseconds: a client's own, between two requests, stays
 */
export function letGoOfLeftBehind(server: Server, isTls: boolean, afterMs: number): void {
  const connections = new Map<Socket, { underWay: number; sinceMs: number }>();
  const begin = (socket: Socket): void => {
    connections.set(socket, { underWay: 0, sinceMs: systemClocks.monotonicMs() });
    socket.once('close', () => connections.delete(socket));
  };
  server.on('connection', begin);
  if (isTls) {
    // One that never speaks TLS takes a place as well. Whatever comes over it later comes by a socket of its own.
    const unsecured = new Map<string, Socket>();
    server.on('connection', (socket: Socket) => {
      const peer = peerOf(socket);
      unsecured.set(peer, socket);
      socket.once('close', () => {
        if (unsecured.get(peer) === socket) unsecured.delete(peer);
      });
    });
    server.on('secureConnection', (socket: Socket) => {
      const below = unsecured.get(peerOf(socket));
      if (below !== undefined) connections.delete(below);
      begin(socket);
    });
  }
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = connections.get(socket);
    if (connection === undefined) return;
    connection.underWay += 1;
    response.once('close', () => {
      connection.underWay -= 1;
      connection.sinceMs = systemClocks.monotonicMs();
    });
  });
  server.on('drop', () => {
    const untilMs = systemClocks.monotonicMs() - afterMs;
    for (const [socket, { underWay, sinceMs }] of connections) {
      if (underWay === 0 && sinceMs <= untilMs) socket.destroy();
    }
  });
}

const peerOf = ({ localAddress, remoteAddress, remotePort }: Socket): string =>
  `${localAddress} ${remoteAddress} ${remotePort}`;
