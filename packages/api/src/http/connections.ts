import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Writable } from 'node:stream';
import type { Socket } from 'node:net';
import { systemClocks } from '@epitaph/core/clock.ts';

interface Connection {
  readonly socket: Socket;
  /** True for what the HTTP server does not know of. */
  isDirect: boolean;
  underWay: number;
  sinceMs: number;
}

/** Of each server, by who is at their other end: over the socket of a connection that speaks TLS comes another one. */
const connectionsOf = new WeakMap<Server, ReadonlyMap<string, Connection>>();
/** By what their requests come over. To put together who is at the other end takes a fiftieth of a small request. */
const bySocket = new WeakMap<Socket, Connection>();

/**
 * Has a server know all its connections. Node.js counts one among those that it can close only after the handshake where
 * it speaks TLS, and among the idle ones only after its first request; and yet a server that closes waits for each.
 *
 * Where there may be no more connections, those are let go on which nothing has been under way for a while: clients that are
 * made for each request leave theirs behind, and would keep everybody else out, health checks too. The one that found no room is
 * lost; the next finds some.
 *
 * @param leftBehindMs how long nothing has been under way, in milliseconds: a client's own, between two requests, stays
 */
export function followConnections(server: Server, leftBehindMs: number): void {
  const connections = new Map<string, Connection>();
  connectionsOf.set(server, connections);
  const begin = (socket: Socket): void => {
    const peer = peerOf(socket);
    const connection = { socket, isDirect: false, underWay: 0, sinceMs: systemClocks.monotonicMs() };
    connections.set(peer, connection);
    bySocket.set(socket, connection);
    socket.once('close', () => {
      if (connections.get(peer)?.socket === socket) connections.delete(peer);
    });
  };
  server.on('connection', begin);
  server.on('secureConnection', begin);
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => followRequest(socket, response));
  server.on('drop', () => {
    const untilMs = systemClocks.monotonicMs() - leftBehindMs;
    for (const { socket, underWay, sinceMs } of connections.values()) {
      if (underWay === 0 && sinceMs <= untilMs) socket.destroy();
    }
  });
}

/** Counts a request of a connection as under way until its answer is out. */
export function followRequest(socket: Socket, answer: Writable): void {
  const connection = bySocket.get(socket);
  if (connection === undefined) return;
  connection.underWay += 1;
  answer.once('close', () => {
    connection.underWay -= 1;
    connection.sinceMs = systemClocks.monotonicMs();
  });
}

/** Has a connection closed, when its server is, that the HTTP server does not know of. */
export function followDirect(socket: Socket): void {
  const connection = bySocket.get(socket);
  if (connection !== undefined) connection.isDirect = true;
}

const peerOf = ({ localAddress, remoteAddress, remotePort }: Socket): string =>
  `${localAddress} ${remoteAddress} ${remotePort}`;

/** Closes those on which nothing is under way, of direct mode only if they are to be as well. */
export function closeIdleConnections(server: Server, direct: boolean): void {
  server.closeIdleConnections();
  for (const { socket, isDirect, underWay } of connectionsOf.get(server)!.values()) {
    if (socket.bytesRead === 0 || (direct && isDirect && underWay === 0)) socket.destroy();
  }
}

export function closeAllConnections(server: Server): void {
  for (const { socket } of connectionsOf.get(server)!.values()) socket.destroy();
}
