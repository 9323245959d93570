import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { sendStream } from './send-stream.ts';

export interface ServerSentEvent {
  readonly event: string;
  readonly data: unknown;
}

/**
 * Answers with server-sent events as they occur. The iteration ends if the client disconnects, and waits for a client that reads slowly.
 *
 * Source of the format: WHATWG HTML, "Server-sent events".
 */
export function sendEvents(reply: FastifyReply, events: AsyncIterable<ServerSentEvent>): FastifyReply {
  const texts = async function* () {
    for await (const { event, data } of events) yield `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
  };
  void reply.header('cache-control', 'no-store');
  return sendStream(reply, 'text/event-stream', () => Readable.from(texts(), { objectMode: false, highWaterMark: 1 }));
}

/**
 * Turns work that reports progress through a callback into events: `progress` with the latest report, if it was not sent yet; `done` with
 * the result; or `failed` with what `failed` makes of the error. Reports are skipped while the client reads slowly.
 */
export async function* eventsOf(
  work: (report: (progress: unknown) => void) => Promise<unknown>,
  failed: (error: unknown) => unknown,
): AsyncGenerator<ServerSentEvent> {
  let latest: { readonly data: unknown } | undefined;
  let wake = (): void => {};
  let end: ServerSentEvent | undefined;
  const finished = work((data) => {
    latest = { data };
    wake();
  }).then(
    (data) => ({ event: 'done', data }),
    (error: unknown) => ({ event: 'failed', data: failed(error) }),
  );
  void finished.then((event) => {
    end = event;
    wake();
  });
  for (;;) {
    if (latest !== undefined) {
      const { data } = latest;
      latest = undefined;
      yield { event: 'progress', data };
    } else if (end !== undefined) {
      yield end;
      return;
    } else {
      await new Promise<void>((resolve) => (wake = resolve));
    }
  }
}
