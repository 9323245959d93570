import type { Writable } from 'node:stream';

/** A signal that is aborted if the client disconnects before its answer is complete. */
export function clientGone(response: Writable): AbortSignal {
  const controller = new AbortController();
  if (response.closed) controller.abort();
  response.once('close', () => {
    if (!response.writableFinished) controller.abort();
  });
  return controller.signal;
}
