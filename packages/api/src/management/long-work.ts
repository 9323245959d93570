import type { FastifyReply, FastifyRequest } from 'fastify';
import { clientGone } from '../http/client-gone.ts';
import { Problem } from './problems.ts';
import { correlationOf, wantsEvents } from './routing.ts';
import { detailsOrLogged } from './send-problem.ts';
import { eventsOf, sendEvents } from './server-sent-events.ts';

/** How a client follows work while it runs. */
export interface Follow {
  /** Not given if the client only wants the result. */
  readonly onProgress?: (progress: unknown) => void;
  /** Aborted when the client disconnects or the server stops. */
  readonly signal: AbortSignal;
}

/**
 * Answers with the result of work that may take long. As the client asks, the answer is the result alone, or server-sent events with the
 * progress and then the result. The work is cancelled if the client disconnects or the server stops.
 *
 * @param work returns the result in the shape of the answer
 */
export function answerLongWork(
  request: FastifyRequest,
  reply: FastifyReply,
  stopping: AbortSignal,
  work: (follow: Follow) => Promise<unknown>,
): FastifyReply | Promise<unknown> {
  const signal = AbortSignal.any([stopping, clientGone(reply.raw)]);
  const run = async (follow: Follow): Promise<unknown> => {
    try {
      return await work(follow);
    } catch (error) {
      // The server's stop ended the work; the request is not at fault.
      throw stopping.aborted ? new Problem('busy') : error;
    }
  };
  if (!wantsEvents(request)) return run({ signal });
  const events = eventsOf(
    (onProgress) => run({ onProgress, signal }),
    (error) => detailsOrLogged(request, error, correlationOf(request)),
  );
  return sendEvents(reply, events);
}
