import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { TLSSocket } from 'node:tls';
import { systemClocks } from '@epitaph/core/clock.ts';
import { gathered } from '@epitaph/core/turn.ts';
import type { InFlight, Place } from '../http/in-flight.ts';
import { clientGone } from '../http/client-gone.ts';
import type { Identities } from '../http/identities.ts';
import type { KeyRing } from '../http/keys.ts';
import type { Limits } from '../http/limits.ts';
import type { Log } from '../http/log-unavailable.ts';
import { Pages } from '../http/pages.ts';
import { hasBody, readBody } from '../http/read-body.ts';
import { ScriptRunner } from '@epitaph/scripts';
import type { StoreApi } from '../store/store-api.ts';
import { tracedRequest } from '../telemetry/tracing.ts';
import { admit, type Admitted, type Asked, type Gate } from './admission.ts';
import type { AnswerDirect, DirectBody } from '../direct/connection.ts';
import { answerCharged, operationOf } from './charged.ts';
import { defaultConsistency, type ConsistencyPolicy } from './consistency.ts';
import { badRequest, describeError, overloaded, tooLarge, WireError } from './errors.ts';
import type { Exchange, Reply } from './exchange.ts';
import { readOnlyStore } from './read-only.ts';
import { headerText, isMissing, type Answer, type CosmosRequest } from './request.ts';
import { goesByScripts } from './scripts/goes-by-scripts.ts';
import { send } from './send-answer.ts';
import { sendError } from './send-error.ts';

export interface CosmosOptions {
  readonly store: StoreApi;
  readonly keys: KeyRing;
  readonly identities?: Identities | undefined;
  readonly limits: Limits;
  readonly inFlight: InFlight;
  /** Returns the error for a request that is refused whatever it asks for. */
  readonly guard: (request: IncomingMessage) => WireError | undefined;
  /** Whether the server is being stopped. */
  readonly isClosing: () => boolean;
  readonly log: Log;
  /** Whether the server runs scripts; true by default. */
  readonly scripts?: boolean | undefined;
  /** The account's consistency; `Session` by default. */
  readonly consistency?: ConsistencyPolicy | undefined;
}

/** The data plane, with one entry for each way of reaching it. */
export interface DataPlane {
  readonly overHttp: RequestListener;
  readonly direct: AnswerDirect;
  /** Refuses scripts that have not begun, because the server is being stopped. */
  readonly stopping: () => void;
  /** Ends the scripts that are running. */
  readonly close: () => Promise<void>;
}

/**
 * The data plane as a function on Node's own HTTP server. Targets, headers and bodies are Cosmos DB's and are read
 * here. A framework's work for each request would cost a tenth of a point read (ADR 29).
 */
export function cosmosPlane({
  store,
  keys,
  identities,
  limits,
  inFlight,
  guard,
  isClosing,
  log,
  ...options
}: CosmosOptions): DataPlane {
  const pages = new Pages(limits);
  const scripts =
    options.scripts === false ? undefined : new ScriptRunner({ timeMs: limits.scriptMs, now: () => store.nowMs() });
  const consistencyPolicy = options.consistency ?? defaultConsistency;
  const gate: Gate = { store, readOnly: readOnlyStore(store), keys, identities, limits, consistencyPolicy };
  const { measurements } = store;

  const fail = (exchange: Exchange, error: unknown): void => {
    try {
      sendError(exchange, error, { log, measurements, pages });
    } catch (failure) {
      log.error({ err: failure }, 'an error response could not be sent');
      exchange.response.destroy();
    }
  };

  const answer = async (
    exchange: Exchange,
    admitted: Admitted,
    place: Place,
    body: Buffer | undefined,
  ): Promise<void> => {
    place.workBegins();
    try {
      if (!place.enter()) throw overloaded(inFlight.comesBackInMs());
      await gathered();
      // `dbs/<name>/colls/<name>/…`
      const { segments } = admitted.target;
      const container = segments[2] === 'colls' ? segments[3] : undefined;
      const isItself = segments.length <= 4;
      // Another node may have stored or replaced a script a moment ago.
      const isSure = isItself || goesByScripts({ segments, headers: exchange.request.headers }, body);
      // For an unknown container other nodes would be asked, and the time of that would show the holder of a token for
      // one container which others exist.
      const settling = admitted.isByToken && !isSure ? undefined : store.settleNames(segments[1], container, isSure);
      if (settling !== undefined) await settling;
      const isRenamed = store.whoHas(segments[1], container);
      const request = cosmosRequest(exchange, admitted, body, { consistencyPolicy, limits, pages, scripts, isRenamed });
      const operation = operationOf(request);
      const answered = await tracedRequest(operation, request.headers, { 'epitaph.plane': 'data' }, () =>
        isRenamed === undefined ? answerCharged(request) : answerByName(request, isRenamed),
      );
      measurements.countRequest('data', operation, answered.status);
      send(exchange, answered, admitted.activityId, pages);
    } catch (error) {
      fail(exchange, error);
    } finally {
      place.workEnds();
    }
  };

  // A client that isn't let in can't send a body.
  const letIn = (request: IncomingMessage, response: ServerResponse, exchange: Exchange, admitted: Admitted): void => {
    exchange.admitted = admitted;
    const place = inFlight.placeFor(response);
    if (!hasBody(request)) {
      void answer(exchange, admitted, place, undefined);
      return;
    }
    if (!place.takeBody(request)) throw overloaded(inFlight.comesBackInMs());
    readBody(request, response, limits.bodyBytes, (error, body) => {
      if (error === undefined) void answer(exchange, admitted, place, body);
      else fail(exchange, error);
    });
  };

  const overHttp: RequestListener = (request, response) => {
    const exchange = begun(request, response, false);
    try {
      const refused = guard(request);
      if (refused !== undefined) throw refused;
      const admitted = admit(request, gate);
      // Signatures are checked synchronously; only tokens take a moment.
      if (admitted instanceof Promise) {
        admitted
          .then((found) => letIn(request, response, exchange, found))
          .catch((error: unknown) => fail(exchange, error));
      } else letIn(request, response, exchange, admitted);
    } catch (error) {
      fail(exchange, error);
    }
  };

  // Direct mode needs no guard, because the guard is against browsers, which don't speak direct mode.
  const direct: AnswerDirect = (request, reply, bodyBytes) => {
    const asked = { ...request, socket: reply.socket };
    const exchange = begun(asked, reply, true);
    const letInDirect = (admitted: Admitted): DirectBody => {
      exchange.admitted = admitted;
      const place = inFlight.placeFor(reply);
      if (bodyBytes > limits.bodyBytes) throw tooLarge();
      const isLarge = bodyBytes >= limits.largeBodyBytes;
      if (isLarge && !place.hasRoomForBody()) throw overloaded(inFlight.comesBackInMs());
      return {
        take: (bytes) => !isLarge || place.takePiece(bytes),
        end: (body) => void answer(exchange, admitted, place, body),
      };
    };
    const refuse = (error: unknown): undefined => fail(exchange, error) as undefined;
    try {
      if (isClosing()) throw stopping();
      if (!request.isKnown) throw badRequest('There is no such operation in direct mode.');
      const admitted = admit(asked, gate);
      return admitted instanceof Promise ? admitted.then(letInDirect).catch(refuse) : letInDirect(admitted);
    } catch (error) {
      return refuse(error);
    }
  };
  return { overHttp, direct, stopping: () => scripts?.refuse(), close: async () => scripts?.close() };
}

const begun = (request: Asked, response: Reply, isDirect: boolean): Exchange => ({
  request,
  response,
  isDirect,
  arrivedMs: systemClocks.monotonicMs(),
  admitted: undefined,
});

/**
 * Clients in direct mode can't be told to use another connection, as `connection: close` tells those over HTTP. But
 * this answer tells them that nothing was done, and they retry for half a minute, writes as well.
 *
 * @source `GoneAndRetryWithRequestRetryPolicy` of the .NET client, `GoneAndRetryWithRetryPolicy` of the Java client
 */
const stopping = (): WireError => new WireError('gone', 'The server is being stopped.');

/**
 * On one of several nodes, a request may use a container or database that another node has just deleted and created
 * again under the same name, while the client means the new one. That may have another partition key, for instance, so
 * that a correct request is refused. Then the request is repeated with the new one.
 */
async function answerByName(request: CosmosRequest, isRenamed: () => Promise<boolean>): Promise<Answer> {
  try {
    return await answerCharged(request);
  } catch (error) {
    const mayBeOfAnother = isMissing(error) || describeError(error)?.shape.status === 400;
    if (!mayBeOfAnother || !(await isRenamed())) throw error;
    // The container is now the one that has the name. What a bulk does to it counts, whatever else is refused.
    return answerCharged({ ...request, isRenamed: undefined });
  }
}

/**
 * The scheme that the client used: TLS if a proxy that ends it says so. A client that sends a false header only gets
 * its own false scheme back.
 */
function schemeOf({ headers, socket }: Asked): string {
  const forwarded = headerText(headers, 'x-forwarded-proto')?.split(',', 1)[0]?.trim().toLowerCase();
  if (forwarded === 'https' || forwarded === 'http') return forwarded;
  return socket instanceof TLSSocket ? 'https' : 'http';
}

function cosmosRequest(
  { request, response, isDirect }: Exchange,
  { activityId, target, actor, consistency, store }: Admitted,
  body: Buffer | undefined,
  surroundings: Pick<CosmosRequest, 'consistencyPolicy' | 'limits' | 'pages' | 'scripts' | 'isRenamed'>,
): CosmosRequest {
  let gone: AbortSignal | undefined;
  return {
    ...surroundings,
    store,
    method: request.method!,
    segments: target.segments,
    headers: request.headers,
    body,
    caller: { actor, correlationId: activityId },
    isToldOfSplits: isDirect,
    consistency,
    endpoint: () => `${schemeOf(request)}://${request.headers.host ?? 'localhost'}`,
    signal: () => (gone ??= clientGone(response)),
  };
}
