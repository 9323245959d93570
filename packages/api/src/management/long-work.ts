import type { FastifyReply, FastifyRequest } from 'fastify';
import { clientGone } from '../http/client-gone.ts';
import { Problem } from './problems.ts';
import { correlationOf, wantsEvents } from './routing.ts';
import { detailsOrLogged } from './send-problem.ts';
import { eventsOf, sendEvents } from './server-sent-events.ts';

/** How work is followed while it goes on. */
export interface Follow {
  /** Not given when nobody looks. */
  readonly onProgress?: (progress: unknown) => void;
  /** Aborted when the client goes away or the server stops. */
  readonly signal: AbortSignal;
}

/**
 * Work that may take long, answered as the client wants: its result when it is done; or, as server-sent events, its
 * progress and then the result. A client that goes away cancels it, and so does a server that stops.
 *
 * @param work comes to the result as the answer has it
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
      // Cut short by the server itself, it is no fault of the request.
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
