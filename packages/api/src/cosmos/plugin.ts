import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { systemClocks } from '@epitaph/core/clock.ts';
import { gathered } from '@epitaph/core/turn.ts';
import { clientGone } from '../http/client-gone.ts';
import type { KeyRing } from '../http/keys.ts';
import { defaultLimits, type Limits } from '../http/limits.ts';
import { Pages } from '../http/pages.ts';
import type { StoreApi } from '../store/store-api.ts';
import { tracedRequest } from '../telemetry/tracing.ts';
import { defaultConsistency, type ConsistencyPolicy } from './consistency.ts';
import { answerCharged, operationOf } from './charged.ts';
import { describeError } from './errors.ts';
import { admit, type Admitted, type Gate } from './admission.ts';
import { send } from './send-answer.ts';
import { sendError } from './send-error.ts';
import { readOnlyStore } from './read-only.ts';
import { headerText, isMissing, type Answer, type CosmosRequest } from './request.ts';

export interface CosmosOptions {
  readonly store: StoreApi;
  readonly keys: KeyRing;
  readonly limits?: Limits | undefined;
  /** What the account says of its consistency; `Session` by default. */
  readonly consistency?: ConsistencyPolicy | undefined;
}

/** The one route that the framework knows of the data plane; {@link rewriteToCosmos} leads every target there. */
const INTERNAL_ROUTE = '/_cosmos';

/** Leads all but the management plane to the data plane, which reads the raw target itself. */
export function rewriteToCosmos(url: string): string {
  return isManagement(url) ? url : INTERNAL_ROUTE;
}

/** True for the targets of the management plane. */
export function isManagement(url: string): boolean {
  if (!url.startsWith('/_epitaph')) return false;
  const next = url[9];
  return next === undefined || next === '/' || next === '?';
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set on requests of the data plane once they are let in. */
    cosmos: Admitted | null;
    /** When a request of the data plane came, in milliseconds of the monotonic clock. */
    arrivedMs: number;
  }
}

/** Puts the data plane on a server whose `rewriteUrl` is {@link rewriteToCosmos}. */
export function registerCosmos(app: FastifyInstance, options: CosmosOptions): void {
  const limits = options.limits ?? defaultLimits;
  const pages = new Pages(limits);
  const consistencyPolicy = options.consistency ?? defaultConsistency;
  const { store, keys } = options;
  const gate: Gate = { store, readOnly: readOnlyStore(store), keys, limits, consistencyPolicy };
  void app.register((scope, _options, done) => {
    scope.decorateRequest('cosmos', null);
    scope.decorateRequest('arrivedMs', 0);
    // Bodies are JSON by route, whatever their content type says: PATCH often comes without one.
    scope.removeAllContentTypeParsers();
    for (const type of ['application/json', 'application/query+json', '*']) {
      scope.addContentTypeParser(type, { parseAs: 'buffer', bodyLimit: limits.bodyBytes }, (_request, body, parsed) =>
        parsed(null, body),
      );
    }
    // Who isn't let in doesn't get to send a body.
    scope.addHook('onRequest', (request, _reply, next) => {
      request.arrivedMs = systemClocks.monotonicMs();
      try {
        const admitted = admit(request, gate);
        // Signatures are checked at once; only resource tokens take a moment.
        if (admitted instanceof Promise) {
          void letIn(request, admitted, next);
          return;
        }
        request.cosmos = admitted;
        next();
      } catch (error) {
        next(error as Error);
      }
    });
    const { measurements } = store;
    scope.setErrorHandler((error, request, reply) => sendError(request, reply, error, measurements, pages));
    scope.all(INTERNAL_ROUTE, async (request, reply) => {
      await gathered();
      const admitted = request.cosmos!;
      // `dbs/<name>/colls/<name>/…`
      const { segments } = admitted.target;
      const container = segments[2] === 'colls' ? segments[3] : undefined;
      const isItself = segments.length <= 4;
      // Whoever has a token for one container is not told by the time it takes which others there are: of those that are not
      // known here, other nodes would be asked.
      const settling =
        admitted.isByToken && !isItself ? undefined : store.settleNames(segments[1], container, isItself);
      if (settling !== undefined) await settling;
      const isRenamed = store.whoHas(segments[1], container);
      const cosmos = cosmosRequest(request, reply, admitted, { consistencyPolicy, limits, pages, isRenamed });
      const operation = operationOf(cosmos);
      const answer = await tracedRequest(operation, cosmos.headers, { 'epitaph.plane': 'data' }, () =>
        isRenamed === undefined ? answerCharged(cosmos) : answerByName(cosmos, isRenamed),
      );
      measurements.countRequest('data', operation, answer.status);
      return send(reply, answer, admitted.activityId, pages);
    });
    done();
  });
}

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
    return answerCharged(request);
  }
}

async function letIn(
  request: FastifyRequest,
  admitted: Promise<Admitted>,
  next: (error?: Error) => void,
): Promise<void> {
  try {
    request.cosmos = await admitted;
  } catch (error) {
    next(error as Error);
    return;
  }
  next();
}

/**
 * How the client came: over TLS where a proxy that ends it says so. Whoever says so untruly is told his own untruth, and
 * nobody else is.
 */
function schemeOf(request: FastifyRequest): string {
  const forwarded = headerText(request.raw.headers, 'x-forwarded-proto')?.split(',', 1)[0]?.trim().toLowerCase();
  return forwarded === 'https' || forwarded === 'http' ? forwarded : request.protocol;
}

function cosmosRequest(
  request: FastifyRequest,
  reply: FastifyReply,
  { activityId, target, actor, consistency, store }: Admitted,
  surroundings: Pick<CosmosRequest, 'consistencyPolicy' | 'limits' | 'pages' | 'isRenamed'>,
): CosmosRequest {
  return {
    ...surroundings,
    store,
    method: request.method,
    segments: target.segments,
    headers: request.raw.headers,
    body: request.body instanceof Buffer ? request.body : undefined,
    caller: { actor, correlationId: activityId },
    consistency,
    endpoint: () => `${schemeOf(request)}://${request.raw.headers.host ?? 'localhost'}`,
    signal: () => clientGone(reply),
  };
}
