import type { IncomingMessage, ServerResponse } from 'node:http';
import { tooLarge } from '../cosmos/errors.ts';
import { Pieces } from './pieces.ts';

/** Of a body that is too large, at most. */
const DISCARDED_BYTES = 64 * 1024 * 1024;

/** Whether a request has a body that means something: with GET and HEAD none does. */
export function hasBody({ method, headers }: IncomingMessage): boolean {
  if (method === 'GET' || method === 'HEAD') return false;
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/**
 * Reads the body of a request. After one that is too large its connection ends, unless the client tells how much is left
 * to come and that is not too much: who is still sending it reads the answer only if the connection stays, and the server
 * discards the rest.
 *
 * @param mostBytes that it may have
 * @param done is called once: with the body, or with the reason why there is none
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
