import type { IncomingHttpHeaders } from 'node:http';
import { Refusal } from '@epitaph/core/errors.ts';
import { PurgeFault } from '@epitaph/projections/purge/faults.ts';
import { logUnavailable, type Log } from '../http/log-unavailable.ts';
import type { Pages } from '../http/pages.ts';
import type { Measurements } from '../metrics/measurements.ts';
import { charge } from '../request-units/charge.ts';
import { damageIn, isDamage } from '../store/damage.ts';
import { chargeOfError, operationOf } from './charged.ts';
import { containerHeaders, sessionHeaders } from './containers.ts';
import { describeError, errorBody, WireError, wireShapes, type WireShape } from './errors.ts';
import type { Exchange } from './exchange.ts';
import { readPartitionKeyHeader } from './partition-key.ts';
import { rangeIdOf } from './ranges.ts';
import { containerOf, ownerGone, partitionKeyHeader } from './request.ts';
import { isRead } from './router.ts';
import { activityIdOf, type Admitted } from './admission.ts';
import { send } from './send-answer.ts';

/** Answers an error in Cosmos DB's form. Clients crash on an error without a body. */
export function sendError(
  exchange: Exchange,
  error: unknown,
  { log, measurements, pages }: { readonly log: Log; readonly measurements: Measurements; readonly pages: Pages },
): void {
  const { admitted } = exchange;
  const { headers } = exchange.request;
  const method = exchange.request.method!;
  const activityId = admitted?.activityId ?? activityIdOf(headers);
  const described = describeError(notWaitedFor(exchange, error) ?? wentMeanwhile(admitted, error) ?? error);
  if (described === undefined) {
    // A defect: the log gets all of it, once; the client only learns where to look.
    log.error({ err: error, activityId }, 'a request failed unexpectedly');
  } else if (isDamage(error) || error instanceof PurgeFault) log.error({ activityId }, damageIn(error));
  else logUnavailable(log, error, { activityId });
  const shape: WireShape = described?.shape ?? wireShapes.internal;
  const said = described?.message ?? "An internal error occurred. Search the server's log for the activity id.";
  const message = isDamage(error)
    ? `${said} Search the server's log for the activity id: it says what must be restored.`
    : said;
  // Requests that are not admitted are counted together, without their operation.
  const operation =
    admitted === undefined ? 'none' : operationOf({ method, segments: admitted.target.segments, headers });
  measurements.countRequest('data', operation, shape.status);
  send(
    exchange,
    {
      status: shape.status,
      body: errorBody(
        shape.code,
        message,
        activityId,
        error instanceof WireError ? error.additionalErrorInfo : undefined,
      ),
      charge: shape.status === 429 ? charge.throttled : chargeOfError({ method, headers }, error),
      headers: { ...errorHeaders(shape), ...(admitted === undefined ? {} : refusedSession(admitted, headers, shape)) },
    },
    activityId,
    pages,
  );
}

/** The session token of a refused request, so that the client goes on from the state that the refusal is based on. */
function refusedSession(
  { store, target: { segments } }: Admitted,
  headers: IncomingHttpHeaders,
  { status }: WireShape,
): Readonly<Record<string, string>> {
  if (segments[4] !== 'docs') return {};
  try {
    const container = containerOf({ store, segments });
    const given = readPartitionKeyHeader(container.definition, partitionKeyHeader(headers));
    const rangeId = rangeIdOf(container, given?.key);
    // As with Cosmos DB, on which tests of the JavaScript and the Java client rely. For something that is missing, the
    // answer has no path, so clients note nothing in their sessions; a read without its key looks in another range.
    if (status === 404) return sessionHeaders(rangeId, store.headPosition());
    return containerHeaders(segments[1]!, container, store.headPosition(), rangeId);
  } catch {
    // The container does not exist, the token is not for it, or the key can't be read. The error itself says so.
    return {};
  }
}

/**
 * The error for a write that was recorded but whose read model did not follow in time: the client must learn that the
 * write may have been done. For a read the error is about its session, and stays as it is.
 */
function notWaitedFor({ request }: Exchange, error: unknown): WireError | undefined {
  if (!(error instanceof Refusal) || error.code !== 'session-not-available') return undefined;
  return isRead(request.method!, request.headers)
    ? undefined
    : new WireError('requestTimeout', 'The request took too long to finish; it may have been carried out.');
}

/** The error for a target in a container that has been deleted since. */
function wentMeanwhile(admitted: Admitted | undefined, error: unknown): WireError | undefined {
  return admitted !== undefined && admitted.target.segments.length > 4 ? ownerGone(error) : undefined;
}

export function errorHeaders({ substatus, retryAfterSeconds }: WireShape): Readonly<Record<string, string>> {
  return {
    ...(substatus === undefined ? {} : { 'x-ms-substatus': String(substatus) }),
    ...(retryAfterSeconds === undefined
      ? {}
      : {
          'retry-after': String(Math.ceil(retryAfterSeconds)),
          'x-ms-retry-after-ms': String(Math.ceil(retryAfterSeconds * 1000)),
        }),
  };
}
