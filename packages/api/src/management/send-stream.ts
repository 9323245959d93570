import { addAbortListener } from 'node:events';
import type { ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { Problem } from './problems.ts';

/**
 * Answers with what is found while it is found. Who asks for the head alone has nothing looked for.
 *
 * @param open begins the work that finds it
 * @param stopping cuts the answer off, also where its client is slow to take it
 */
export function sendStream(
  reply: FastifyReply,
  type: string,
  open: () => Readable,
  stopping?: AbortSignal,
): FastifyReply {
  // Kept alive after its end, the connection would hold up a server that stops.
  void reply.headers({ 'content-type': type, connection: 'close' });
  // The framework would read a stream to its end, for nobody, and as fast as it can.
  if (reply.request.method === 'HEAD') return reply.send(Readable.from([]));
  const stream = open();
  if (stopping !== undefined) {
    const listening = addAbortListener(stopping, () => stream.destroy(new Problem('busy')));
    stream.once('close', () => listening[Symbol.dispose]());
  }
  return reply.send(stream);
}

/** Of what is sent while it is found so much goes out at a time. */
export const CHUNK_CHARACTERS = 64 * 1024;

/** Lines put together to parts of some size: each would cost a packet, and all of a page may be hundreds of megabytes. */
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

/** Hangs up on a client that takes nothing of what is there for it; work that has nothing to tell yet may take its time. */
export function hangUpOnIdle(answer: ServerResponse, milliseconds: number): void {
  const { socket } = answer;
  // A test that injects its requests has no connection.
  if (!(socket instanceof Socket)) return;
  // Whatever is sent or taken begins this time anew, and the server sets its own when the answer is out.
  socket.setTimeout(milliseconds);
  answer.on('timeout', () => {
    if (answer.writableLength > 0) answer.destroy();
    else socket.setTimeout(milliseconds);
  });
}
