import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';

const PIECE_BYTES = 64 * 1024;

/**
 * Sends the body of an answer and ends it. Over TLS a large one goes in pieces: of what is written at once Node.js tells
 * only when all of it is taken, so that who takes it slowly would pass for one who takes nothing.
 */
export function sendBody(answer: ServerResponse, body: string | Buffer, encoding: BufferEncoding): void {
  if (!(answer.socket instanceof TLSSocket) || body.length <= PIECE_BYTES) {
    answer.end(body, encoding);
    return;
  }
  const bytes = typeof body === 'string' ? Buffer.from(body, encoding) : body;
  answer.write(bytes.subarray(0, PIECE_BYTES));
  piecesOf(bytes.subarray(PIECE_BYTES)).pipe(answer);
}

/** The same bytes, some at a time. */
export function piecesOf(bytes: Buffer): Readable {
  const pieces = function* () {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
  };
  return Readable.from(pieces(), { objectMode: false });
}
