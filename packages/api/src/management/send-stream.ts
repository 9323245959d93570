import { addAbortListener } from 'node:events';
import type { ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { Problem } from './problems.ts';

/**
 * Answers with a stream, while the work behind it still finds what to send. For a HEAD request the work is not started.
 *
 * @param open starts the work
 * @param stopping aborts the answer, also if its client reads slowly
 */
export function sendStream(
  reply: FastifyReply,
  type: string,
  open: () => Readable,
  stopping?: AbortSignal,
): FastifyReply {
  // A connection kept alive after its answer would delay a server that stops.
  void reply.headers({ 'content-type': type, connection: 'close' });
  // For HEAD, the framework would read the stream to its end and discard it.
  if (reply.request.method === 'HEAD') return reply.send(Readable.from([]));
  const stream = open();
  if (stopping !== undefined) {
    const listening = addAbortListener(stopping, () => stream.destroy(new Problem('busy')));
    stream.once('close', () => listening[Symbol.dispose]());
  }
  return reply.send(stream);
}

/** How many characters of such an answer are sent at once. */
export const CHUNK_CHARACTERS = 64 * 1024;

/** Joins lines to chunks. A line at a time would cost a packet each, and a whole page may have hundreds of megabytes. */
export function* inChunks(lines: Iterable<string>): Generator<string> {
  let chunk = '';
  for (const text of lines) {
    chunk += text;
    if (chunk.length < CHUNK_CHARACTERS) continue;
    yield chunk;
    chunk = '';
  }
  if (chunk !== '') yield chunk;
}

/** Disconnects a client that does not read what was sent to it. Work that has nothing to send yet may take as long as it needs. */
export function hangUpOnIdle(answer: ServerResponse, milliseconds: number): void {
  const { socket } = answer;
  // A request injected by a test has no connection.
  if (!(socket instanceof Socket)) return;
  // All traffic on the socket restarts this timeout. The server sets its own again when the answer has been sent.
  socket.setTimeout(milliseconds);
  answer.on('timeout', () => {
    if (answer.writableLength > 0) answer.destroy();
    else socket.setTimeout(milliseconds);
  });
}
