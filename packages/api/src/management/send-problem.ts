import { randomUUID } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { logUnavailable } from '../http/log-unavailable.ts';
import { Problem, problemDetails, type ProblemDetails, problemOf, retryAfterSeconds } from './problems.ts';

/** Answers with an error as problem details. */
export function sendProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  error: unknown,
  correlationId: string = randomUUID(),
): FastifyReply {
  const details = detailsOrLogged(request, error, correlationId);
  const retryAfter = retryAfterSeconds(details);
  return reply
    .code(details.status)
    .headers({
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
      ...(details.status === 401 ? { 'www-authenticate': 'Bearer realm="epitaph"' } : {}),
      ...(retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) }),
    })
    .send(JSON.stringify(details));
}

/** The problem details of an error. A defect is logged in full; the client only learns where to look. */
export function detailsOrLogged(request: FastifyRequest, error: unknown, correlationId: string): ProblemDetails {
  const problem = problemOf(error);
  if (problem === undefined && !isOfLeaving(request, error))
    request.log.error({ err: error, correlationId }, 'a request failed unexpectedly');
  logUnavailable(request.log, error, { correlationId });
  return problemDetails(
    problem ?? new Problem('internal', "An internal error occurred. Search the server's log for the instance."),
    correlationId,
  );
}

/** True for an error that only means that the client disconnected. That is no defect. */
export function isOfLeaving({ raw }: FastifyRequest, error: unknown): boolean {
  const { name, code } = error as { readonly name?: string; readonly code?: string };
  return raw.socket.destroyed && (name === 'AbortError' || code === 'ERR_STREAM_PREMATURE_CLOSE');
}
