import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Writable } from 'node:stream';
import type { Socket } from 'node:net';
import { systemClocks } from '@epitaph/core/clock.ts';

interface Connection {
  readonly socket: Socket;
  /** True for a connection that the HTTP server does not know of. */
  isDirect: boolean;
  underWay: number;
  sinceMs: number;
}

/**
 * The connections of each server, by the addresses at the other end: with TLS, one connection has two sockets, one over
 * the other.
 */
const connectionsOf = new WeakMap<Server, ReadonlyMap<string, Connection>>();
/** By the socket of its requests. Computing the addresses at the other end takes a fiftieth of a small request. */
const bySocket = new WeakMap<Socket, Connection>();

/**
 * Makes a server know all its connections. Node.js counts a TLS connection among those that it can close only after the
 * handshake, and among the idle ones only after its first request. Yet a server that closes waits for each of them.
 *
 * When the limit of connections is reached, those without a request for a while are closed. Clients that are created
 * for each request leave theirs behind, and would keep everyone else out, including health checks. The connection that
 * found no room is lost; the next one finds some.
 *
 * @param leftBehindMs how long no request has been under way, in milliseconds. It is longer than a client pauses
 *   between two requests
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

/** Counts a request of a connection as under way until its answer has been sent. */
export function followRequest(socket: Socket, answer: Writable): void {
  const connection = bySocket.get(socket);
  if (connection === undefined) return;
  connection.underWay += 1;
  answer.once('close', () => {
    connection.underWay -= 1;
    connection.sinceMs = systemClocks.monotonicMs();
  });
}

/** Makes the server close, with its others, a connection that the HTTP server does not know of. */
export function followDirect(socket: Socket): void {
  const connection = bySocket.get(socket);
  if (connection !== undefined) connection.isDirect = true;
}

const peerOf = ({ localAddress, remoteAddress, remotePort }: Socket): string =>
  `${localAddress} ${remoteAddress} ${remotePort}`;

/** Closes connections without a request under way; those of direct mode only if `direct` is true. */
export function closeIdleConnections(server: Server, direct: boolean): void {
  server.closeIdleConnections();
  for (const { socket, isDirect, underWay } of connectionsOf.get(server)!.values()) {
    if (socket.bytesRead === 0 || (direct && isDirect && underWay === 0)) socket.destroy();
  }
}

export function closeAllConnections(server: Server): void {
  for (const { socket } of connectionsOf.get(server)!.values()) socket.destroy();
}
