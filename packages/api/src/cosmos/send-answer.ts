import { systemClocks } from '@epitaph/core/clock.ts';
import type { Pages } from '../http/pages.ts';
import { sendBody } from '../http/send-body.ts';
import type { Exchange } from './exchange.ts';
import { headerText, type Answer } from './request.ts';
import { sessionTokenFor } from './session-token.ts';

/**
 * What every answer says to those who keep some, as browsers do. They tell answers apart by their targets alone, so that
 * one partition key's would be given for another's, and would have what is erased here.
 *
 * @source Cosmos DB's answers, as the examples of its REST reference show them
 */
export const KEPT_BY_NOBODY = 'no-store, no-cache';

/** Sends an answer: text, or bytes, and a few headers. */
export function send(
  { request, response, arrivedMs }: Exchange,
  answer: Answer,
  activityId: string,
  pages: Pages,
): void {
  const { body } = answer;
  const tookMs = systemClocks.monotonicMs() - arrivedMs;
  const headers: string[] = ['x-ms-activity-id', activityId, 'x-ms-request-charge', String(answer.charge)];
  // Clients' diagnostics tell the server's part of the time from the network's by it.
  headers.push('x-ms-request-duration-ms', tookMs.toFixed(3), 'cache-control', KEPT_BY_NOBODY);
  const version = headerText(request.headers, 'x-ms-version');
  for (const name in answer.headers) {
    const value = answer.headers[name]!;
    headers.push(name, name === 'x-ms-session-token' ? sessionTokenFor(version, value) : value);
  }
  if (body === null) {
    // There are clients that read every answer as JSON, and no answer at all from an empty text of that type.
    headers.push('content-type', 'application/json');
    if (answer.status !== 204 && answer.status !== 304) headers.push('content-length', '0');
    response.writeHead(answer.status, headers);
    response.end();
    return;
  }
  const type = typeof body === 'string' ? 'application/json' : 'application/octet-stream';
  const bytes = Buffer.byteLength(body);
  headers.push('content-type', type, 'content-length', String(bytes));
  response.writeHead(answer.status, headers);
  // Text of ASCII alone, as most is, goes out faster when it is said to be that.
  const encoding = bytes === body.length ? 'latin1' : 'utf8';
  if (bytes < SENT_ALONE_FROM) sendTogether(() => response.end(body, encoding));
  else {
    // What is on its way is not in the heap any more.
    sendBody(response, body, encoding);
    pages.handedOver(response, bytes);
  }
}

/** Bytes of an answer that takes longer to send than to wake its client for. */
const SENT_ALONE_FROM = 64 * 1024;

const toSend: (() => void)[] = [];

/**
 * Sends when all requests that have arrived by now are worked off as far as they can be: a client on the same machine is
 * then woken once for many answers, and waking it takes a fifth of the time of a small request.
 */
function sendTogether(send: () => void): void {
  if (toSend.push(send) > 1) return;
  setImmediate(() => {
    for (const one of toSend.splice(0)) one();
  });
}
