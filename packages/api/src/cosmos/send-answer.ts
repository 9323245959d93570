import { systemClocks } from '@epitaph/core/clock.ts';
import type { Pages } from '../http/pages.ts';
import { sendBody } from '../http/send-body.ts';
import type { Exchange } from './exchange.ts';
import { headerText, type Answer } from './request.ts';
import { sessionTokenFor } from './session-token.ts';

/**
 * The `cache-control` of every answer, for caches such as those of browsers. They tell answers apart only by their
 * targets. So they would return the answer for one partition key for another, and would keep what is erased here.
 *
 * @source Cosmos DB's answers, as the examples of its REST reference show them
 */
export const KEPT_BY_NOBODY = 'no-store, no-cache';

/** Sends an answer: text or bytes, and a few headers. */
export function send(
  { request, response, arrivedMs }: Exchange,
  answer: Answer,
  activityId: string,
  pages: Pages,
): void {
  const { body } = answer;
  const tookMs = systemClocks.monotonicMs() - arrivedMs;
  const headers: string[] = ['x-ms-activity-id', activityId, 'x-ms-request-charge', String(answer.charge)];
  // Clients' diagnostics use it to separate the server's time from the network's.
  headers.push('x-ms-request-duration-ms', tookMs.toFixed(3), 'cache-control', KEPT_BY_NOBODY);
  const version = headerText(request.headers, 'x-ms-version');
  for (const name in answer.headers) {
    const value = answer.headers[name]!;
    headers.push(name, name === 'x-ms-session-token' ? sessionTokenFor(version, value) : value);
  }
  if (body === null) {
    // Some clients read every answer as JSON, and fail on an empty text of that type.
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
  // Text that is all ASCII, as most is, is sent faster as Latin-1.
  const encoding = bytes === body.length ? 'latin1' : 'utf8';
  if (bytes < SENT_ALONE_FROM) sendTogether(() => response.end(body, encoding));
  else {
    // Once it is handed to the connection, the body is outside the heap, so its bytes are counted.
    sendBody(response, body, encoding);
    pages.handedOver(response, bytes);
  }
}

/** From this size in bytes, sending an answer takes longer than waking its client. */
const SENT_ALONE_FROM = 64 * 1024;

const toSend: (() => void)[] = [];

/**
 * Sends when all requests that have arrived so far have been worked on as far as possible. A client on the same machine
 * is then woken once for many answers; waking it takes a fifth of the time of a small request.
 */
function sendTogether(send: () => void): void {
  if (toSend.push(send) > 1) return;
  setImmediate(() => {
    for (const one of toSend.splice(0)) one();
  });
}
