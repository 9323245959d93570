import type { Writable } from 'node:stream';

/** Aborted when the client goes away before it has its answer. */
export function clientGone(response: Writable): AbortSignal {
  const controller = new AbortController();
  if (response.closed) controller.abort();
  response.once('close', () => {
    if (!response.writableFinished) controller.abort();
  });
  return controller.signal;
}
