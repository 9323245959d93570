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
  /** Says of a request why it is refused whatever it asks for, if it is. */
  readonly guard: (request: IncomingMessage) => WireError | undefined;
  /** Whether the server is being stopped. */
  readonly isClosing: () => boolean;
  readonly log: Log;
  /** Whether scripts are run; by default they are. */
  readonly scripts?: boolean | undefined;
  /** What the account says of its consistency; `Session` by default. */
  readonly consistency?: ConsistencyPolicy | undefined;
}

/** The data plane, by the ways that there are to it. */
export interface DataPlane {
  readonly overHttp: RequestListener;
  readonly direct: AnswerDirect;
  /** Refuses scripts that have not begun: the server is being stopped. */
  readonly stopping: () => void;
  /** Ends the scripts that run. */
  readonly close: () => Promise<void>;
}

/**
 * The data plane, as a function around nothing but Node's own HTTP server: targets, headers and bodies are Cosmos DB's, and
 * read here. What a framework does for each request beside that is a tenth of a point read (ADR 29).
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
      log.error({ err: failure }, 'an error could not be answered');
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
      // Another node may have stored a script a moment ago, or put another in its place.
      const isSure = isItself || goesByScripts({ segments, headers: exchange.request.headers }, body);
      // Whoever has a token for one container is not told by the time it takes which others there are: of those that are not
      // known here, other nodes would be asked.
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

  // Who isn't let in doesn't get to send a body.
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
      // Signatures are checked at once; only tokens take a moment.
      if (admitted instanceof Promise) {
        admitted
          .then((found) => letIn(request, response, exchange, found))
          .catch((error: unknown) => fail(exchange, error));
      } else letIn(request, response, exchange, admitted);
    } catch (error) {
      fail(exchange, error);
    }
  };

  // Browsers don't speak it, against which the guard is.
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
 * Clients in direct mode can't be told to take another connection, as `connection: close` tells those over HTTP. But of what is
 * answered like this they know that nothing was done, and try it again for half a minute, writes as well.
 *
 * @source `GoneAndRetryWithRequestRetryPolicy` of the .NET client, `GoneAndRetryWithRetryPolicy` of the Java client
 */
const stopping = (): WireError => new WireError('gone', 'The server is being stopped.');

/**
 * Of several nodes one may go by what another has deleted a moment ago, and has made anew under the same name: what is
 * asked for, or written, is then of that. It may have another partition key, say, so that what is right seems wrong.
 */
async function answerByName(request: CosmosRequest, isRenamed: () => Promise<boolean>): Promise<Answer> {
  try {
    return await answerCharged(request);
  } catch (error) {
    const mayBeOfAnother = isMissing(error) || describeError(error)?.shape.status === 400;
    if (!mayBeOfAnother || !(await isRenamed())) throw error;
    // What a bulk does now is done, whatever else it refuses: the container is the one that has the name.
    return answerCharged({ ...request, isRenamed: undefined });
  }
}

/**
 * How the client came: over TLS where a proxy that ends it says so. Whoever says so untruly is told his own untruth, and
 * nobody else is.
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
