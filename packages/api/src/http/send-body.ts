import type { Socket } from 'node:net';
import { Readable, type Writable } from 'node:stream';
import { TLSSocket } from 'node:tls';

const PIECE_BYTES = 64 * 1024;

/**
 * Whether a body goes in pieces, as a large one does over TLS: of what is written at once there Node.js tells only when all
 * of it is taken, so that who takes it slowly would pass for one who takes nothing.
 */
export const goesInPieces = (socket: Socket | null, { length }: string | Buffer): boolean =>
  length > PIECE_BYTES && socket instanceof TLSSocket;

/** Sends the body of an answer, in pieces if need be, and ends it. */
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

/** The same bytes, some at a time. */
export function piecesOf(bytes: Buffer): Readable {
  const pieces = function* () {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
  };
  return Readable.from(pieces(), { objectMode: false });
}
