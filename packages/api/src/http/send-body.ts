import type { Socket } from 'node:net';
import { Readable, type Writable } from 'node:stream';
import { TLSSocket } from 'node:tls';

const PIECE_BYTES = 64 * 1024;

/**
 * Whether a body is sent in pieces, as a large one is over TLS. Node.js reports what was written to such a socket only
 * when all of it has been taken, so a client that reads slowly would look like one that reads nothing.
 */
export const goesInPieces = (socket: Socket | null, { length }: string | Buffer): boolean =>
  length > PIECE_BYTES && socket instanceof TLSSocket;

/** Sends and ends the body of an answer, in pieces if necessary. */
export function sendBody(
  answer: Writable & { readonly socket: Socket | null },
  body: string | Buffer,
  encoding: BufferEncoding,
): void {
  if (!goesInPieces(answer.socket, body)) {
    answer.end(body, encoding);
    return;
  }
  const bytes = typeof body === 'string' ? Buffer.from(body, encoding) : body;
  answer.write(bytes.subarray(0, PIECE_BYTES));
  piecesOf(bytes.subarray(PIECE_BYTES)).pipe(answer);
}

/** The same bytes in pieces. */
export function piecesOf(bytes: Buffer): Readable {
  const pieces = function* () {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
  };
  return Readable.from(pieces(), { objectMode: false });
}
