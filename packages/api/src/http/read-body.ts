import type { IncomingMessage, ServerResponse } from 'node:http';
import { tooLarge } from '../cosmos/errors.ts';
import { Pieces } from './pieces.ts';

/** The most bytes of an oversized body that are read and discarded. */
const DISCARDED_BYTES = 64 * 1024 * 1024;

/** Whether a request has a body that matters. With GET and HEAD none does. */
export function hasBody({ method, headers }: IncomingMessage): boolean {
  if (method === 'GET' || method === 'HEAD') return false;
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/**
 * Reads the body of a request. After a body that is too large the connection is closed, unless the client gave its
 * length and the rest is small enough to be discarded: a client that is still sending reads the answer only if the
 * connection stays open.
 *
 * @param mostBytes the most bytes that the body may have
 * @param done called once, with the body or with the reason why there is none
 */
export function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  mostBytes: number,
  done: (error: Error | undefined, body: Buffer | undefined) => void,
): void {
  const toldBytes = Number(request.headers['content-length']);
  const end = (error: Error | undefined, body?: Buffer): void => {
    request.off('data', onData).off('end', onEnd).off('error', onError);
    if (error !== undefined && !(toldBytes <= DISCARDED_BYTES)) response.setHeader('connection', 'close');
    done(error, body);
  };
  const pieces = new Pieces();
  let bytes = 0;
  const onData = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes > mostBytes) end(tooLarge());
    else pieces.push(chunk);
  };
  const onEnd = (): void => end(undefined, pieces.whole());
  const onError = (error: Error): void => end(error);
  if (toldBytes > mostBytes) end(tooLarge());
  else request.on('data', onData).on('end', onEnd).on('error', onError);
}
