import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isoTime, systemClocks } from '@epitaph/core/clock.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { DATE_WINDOW_MS, resourceTokenIn, type KeyRing, type SignatureVerdict } from '../http/keys.ts';
import { defaultLimits, type Limits } from '../http/limits.ts';
import { Pages } from '../http/pages.ts';
import { sendBody } from '../http/send-body.ts';
import type { Measurements } from '../metrics/measurements.ts';
import type { StoreApi } from '../store/store-api.ts';
import { tracedRequest } from '../telemetry/tracing.ts';
import {
  consistencyByStrategy,
  defaultConsistency,
  type ConsistencyLevel,
  type ConsistencyPolicy,
} from './consistency.ts';
import { charge } from './charge.ts';
import { answerCharged, chargeOfError, operationOf } from './charged.ts';
import { containerHeaders, sessionHeaders } from './containers.ts';
import { badRequest, describeError, errorBody, WireError, wireShapes, type WireShape } from './errors.ts';
import { checkTargetGranted, grantedStore } from './granted.ts';
import { readPartitionKeyHeader } from './partition-key.ts';
import { rangeIdOf } from './ranges.ts';
import { notForWrites, readOnlyStore } from './read-only.ts';
import { containerOf, headerText, ownerGone, partitionKeyHeader, type Answer, type CosmosRequest } from './request.ts';
import { isRead } from './router.ts';
import { otherSignedLinks, parseTarget, type Target } from './target.ts';

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

/** What is known of a request before its body is read. */
interface Admitted {
  readonly activityId: string;
  readonly target: Target;
  /** What events carry. */
  readonly actor: string;
  readonly consistency: ConsistencyLevel;
  /** The store, or what of it a resource token lets its holder see. */
  readonly store: StoreApi;
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
  const readOnly = readOnlyStore(options.store);
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
        const admitted = admit(request, options, limits, readOnly);
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
    const { measurements } = options.store;
    scope.setErrorHandler((error, request, reply) => sendError(request, reply, error, measurements, pages));
    scope.all(INTERNAL_ROUTE, async (request, reply) => {
      const admitted = request.cosmos!;
      // `dbs/<name>/colls/<name>/…`
      const { segments } = admitted.target;
      const settling = options.store.settleNames(segments[1], segments[3]);
      if (settling !== undefined) await settling;
      const cosmos = cosmosRequest(request, reply, admitted, { options, limits, pages });
      const operation = operationOf(cosmos);
      const answer = await tracedRequest(operation, cosmos.headers, { 'epitaph.plane': 'data' }, () =>
        answerCharged(cosmos),
      );
      measurements.countRequest('data', operation, answer.status);
      return send(reply, answer, admitted.activityId, pages);
    });
    done();
  });
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

function admit(
  request: FastifyRequest,
  options: CosmosOptions,
  limits: Limits,
  readOnly: StoreApi,
): Admitted | Promise<Admitted> {
  const { headers } = request.raw;
  const type = headers['content-type'];
  if (type !== undefined && type !== 'application/json' && type !== 'application/query+json') {
    // The framework refuses content types that it can't parse; what a query is, the raw header still tells.
    headers['content-type'] = type.startsWith('application/query+json') ? 'application/query+json' : 'application/json';
  }
  const target = parseTarget(request.originalUrl, limits.targetCharacters);
  if (target.segments[0] === 'addresses') throw inDirectMode();
  const policy = options.consistency ?? defaultConsistency;
  const consistency = consistencyByStrategy(
    headerText(headers, 'x-ms-cosmos-read-consistency-strategy'),
    headerText(headers, 'x-ms-consistency-level'),
    policy,
  );
  const token = resourceTokenIn(headers.authorization);
  if (token !== undefined) return admitToken(request, token, target, consistency, options.store);
  const verdict = options.keys.verifyMasterSignature({
    authorization: headers.authorization,
    verb: request.method,
    resourceType: target.resourceType,
    resourceLink: target.resourceLink,
    otherLinks: () => otherSignedLinks(target),
    msDate: headerText(headers, 'x-ms-date'),
    date: headers.date,
  });
  if (!verdict.ok) throw notLetIn(verdict);
  const { holder } = verdict;
  if (holder.role === 'audit') {
    throw new WireError('forbidden', "The auditor key sees history only: it can't be used on the data plane.");
  }
  if (holder.role === 'read' && !isRead(request.method, headers)) throw notForWrites();
  // A permission is shown with its token, which may be one for changes.
  if (holder.role === 'read' && target.segments[4] === 'permissions') {
    throw new WireError('forbidden', "The read-only key can't be used for permissions.");
  }
  const store = holder.role === 'read' ? readOnly : options.store;
  return { activityId: activityIdOf(headers), target, actor: holder.actor, consistency, store };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';

/**
 * What names a request in its answer, in the server's log and in what it records: the id that its client knows it by, or
 * a new one. Only UUIDs are taken, which say nothing and have one length.
 *
 * @source Cosmos DB, "Common REST response headers": x-ms-activity-id echoes the request's
 */
function activityIdOf(headers: IncomingHttpHeaders): string {
  const given = headerText(headers, 'x-ms-activity-id')?.toLowerCase();
  return given !== undefined && UUID.test(given) && given !== NIL_UUID ? given : randomUUID();
}

/** Of replicas, which there are none of. Clients sign this in a way of its own; the answer is for anyone. */
const inDirectMode = (): WireError =>
  badRequest(
    'The client is in direct mode, the default of the .NET and the Java client, and this server speaks gateway mode only: set ConnectionMode.Gateway in the CosmosClientOptions (.NET), or call gatewayMode() of the CosmosClientBuilder (Java).',
  );

async function admitToken(
  request: FastifyRequest,
  token: string,
  target: Target,
  consistency: ConsistencyLevel,
  store: StoreApi,
): Promise<Admitted> {
  const verdict = await store.verifyResourceToken(token);
  if (!verdict.ok) {
    if (verdict.reason === 'expired') throw new WireError('forbidden', 'The authorization token has expired.');
    throw new WireError('unauthorized', "The input authorization token can't serve the request: it is not valid.");
  }
  const { grant } = verdict;
  const { method } = request;
  checkTargetGranted(grant, { segments: target.segments, method, isRead: isRead(method, request.raw.headers) });
  const activityId = activityIdOf(request.raw.headers);
  return { activityId, target, actor: grant.actor, consistency, store: grantedStore(store, grant) };
}

function notLetIn(verdict: Extract<SignatureVerdict, { readonly ok: false }>): WireError {
  switch (verdict.reason) {
    case 'missing':
      return new WireError(
        'unauthorized',
        "Required Header 'authorization' is missing. Ensure a valid Authorization token is passed.",
      );
    case 'malformed':
      return new WireError(
        'unauthorized',
        "The authorization header has an invalid format: it is not 'type=master&ver=1.0&sig=…', URL-encoded.",
      );
    case 'unsupported':
      return new WireError('unauthorized', 'Only authorization by a master key or a resource token is supported.');
    case 'no-date':
      return new WireError('unauthorized', "The 'x-ms-date' header is missing or not a date as HTTP has it.");
    case 'date-outside-window':
      return new WireError('forbidden', notValidNow(verdict.dateMs, verdict.nowMs));
    case 'wrong-signature': {
      const payload = JSON.stringify(verdict.payload).slice(1, -1);
      return new WireError(
        'unauthorized',
        `The input authorization token can't serve the request. The wrong key is being used or the expected payload is not built as per the protocol. For more info: https://aka.ms/cosmosdb-tsg-unauthorized. Server used the following payload to sign: '${payload}'`,
      );
    }
    default:
      return verdict satisfies never;
  }
}

/** In Cosmos DB's words: its three times show at once whose clock is off, and by how much. */
function notValidNow(dateMs: number, nowMs: number): string {
  const [start, end, now] = [dateMs - DATE_WINDOW_MS, dateMs + DATE_WINDOW_MS, nowMs].map(isoTime);
  return `The authorization token is not valid at the current time. Please create another token and retry (token start time: ${start}, token expiry time: ${end}, current server time: ${now}).`;
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
  { options, limits, pages }: { readonly options: CosmosOptions; readonly limits: Limits; readonly pages: Pages },
): CosmosRequest {
  return {
    store,
    limits,
    pages,
    method: request.method,
    segments: target.segments,
    headers: request.raw.headers,
    body: request.body instanceof Buffer ? request.body : undefined,
    caller: { actor, correlationId: activityId },
    consistency,
    consistencyPolicy: options.consistency ?? defaultConsistency,
    endpoint: () => `${schemeOf(request)}://${request.raw.headers.host ?? 'localhost'}`,
    signal: () => {
      const controller = new AbortController();
      reply.raw.once('close', () => {
        if (!reply.raw.writableFinished) controller.abort();
      });
      return controller.signal;
    },
  };
}

/**
 * What every answer says to those who keep some, as browsers do. They tell answers apart by their targets alone, so that
 * one partition key's would be given for another's, and would have what is erased here.
 *
 * @source Cosmos DB's answers, as the examples of its REST reference show them
 */
export const KEPT_BY_NOBODY = 'no-store, no-cache';

/**
 * Answers past the framework, whose own way of sending looks at everything that an answer could be; these are text
 * and a few headers, and sent thousands of times a second.
 */
function send(reply: FastifyReply, answer: Answer, activityId: string, pages: Pages): FastifyReply {
  reply.hijack();
  const { raw } = reply;
  const { body } = answer;
  const tookMs = systemClocks.monotonicMs() - reply.request.arrivedMs;
  const headers: string[] = ['x-ms-activity-id', activityId, 'x-ms-request-charge', String(answer.charge)];
  // Clients' diagnostics tell the server's part of the time from the network's by it.
  headers.push('x-ms-request-duration-ms', tookMs.toFixed(3), 'cache-control', KEPT_BY_NOBODY);
  for (const name in answer.headers) headers.push(name, answer.headers[name]!);
  // Of a connection that ends after this answer the framework keeps account in its own headers.
  if (reply.getHeader('connection') === 'close') headers.push('connection', 'close');
  if (body === null) {
    // There are clients that read every answer as JSON, and no answer at all from an empty text of that type.
    headers.push('content-type', 'application/json');
    if (answer.status !== 204 && answer.status !== 304) headers.push('content-length', '0');
    raw.writeHead(answer.status, headers);
    raw.end();
    return reply;
  }
  const type = typeof body === 'string' ? 'application/json' : 'application/octet-stream';
  const bytes = Buffer.byteLength(body);
  headers.push('content-type', type, 'content-length', String(bytes));
  raw.writeHead(answer.status, headers);
  // Text of ASCII alone, as most is, goes out faster when it is said to be that.
  const encoding = bytes === body.length ? 'latin1' : 'utf8';
  if (bytes < SENT_ALONE_FROM) sendTogether(() => raw.end(body, encoding));
  else {
    // What is on its way is not in the heap any more.
    sendBody(raw, body, encoding);
    pages.handedOver(raw, bytes);
  }
  return reply;
}

/** Bytes of an answer that takes longer to send than to wake its client for. */
const SENT_ALONE_FROM = 64 * 1024;

const toSend: (() => void)[] = [];

/**
 * Sends when all requests that have arrived by now are worked off as far as they can be: a client on the same machine is
 * then woken once for many answers, and waking it takes a fifth of the time of a small request.
 */
function sendTogether(send: () => void): void {
  if (toSend.push(send) > 1) return;
  setImmediate(() => {
    for (const one of toSend.splice(0)) one();
  });
}

/** Of a body that is too large, at most. */
const DISCARDED_BYTES = 64 * 1024 * 1024;

/** Answers an error in Cosmos DB's shape. Clients die of an error without a body. */
function sendError(
  request: FastifyRequest,
  reply: FastifyReply,
  error: unknown,
  measurements: Measurements,
  pages: Pages,
): FastifyReply {
  const activityId = request.cosmos?.activityId ?? activityIdOf(request.raw.headers);
  const described = describeError(notWaitedFor(request, error) ?? wentMeanwhile(request, error) ?? error);
  if (described === undefined) {
    // A defect: the log has all of it, once; the client learns only where to look.
    request.log.error({ err: error, activityId }, 'a request failed unexpectedly');
  } else if (error instanceof StorageUnavailable && error.isForOperator) {
    request.log.error({ activityId }, error.message);
  }
  const shape: WireShape = described?.shape ?? wireShapes.internal;
  const message =
    described?.message ?? 'An internal error occurred; the activity id finds it in the log of the server.';
  const { method, cosmos, raw } = request;
  // Who is still sending what is too large reads the answer only if his connection stays; the server discards the rest.
  if (shape.status === 413 && Number(raw.headers['content-length']) <= DISCARDED_BYTES)
    reply.removeHeader('connection');
  // Of who isn't let in nothing is taken down but that.
  const operation =
    cosmos === null ? 'none' : operationOf({ method, segments: cosmos.target.segments, headers: raw.headers });
  measurements.countRequest('data', operation, shape.status);
  return send(
    reply,
    {
      status: shape.status,
      body: errorBody(
        shape.code,
        message,
        activityId,
        error instanceof WireError ? error.additionalErrorInfo : undefined,
      ),
      charge:
        shape.status === 429
          ? charge.throttled
          : chargeOfError({ method: request.method, headers: request.raw.headers }, error),
      headers: { ...errorHeaders(shape), ...(cosmos === null ? {} : refusedSession(cosmos, raw.headers, shape)) },
    },
    activityId,
    pages,
  );
}

/** Who is refused for what is there, or is not, goes on from it: its session is of what was looked at. */
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
    // As with Cosmos DB, on which tests for the JavaScript and the Java client count: of what is not there, clients,
    // finding no path, note nothing in their sessions; a read without its key looks in another range.
    if (status === 404) return sessionHeaders(rangeId, store.headPosition());
    return containerHeaders(segments[1]!, container, store.headPosition(), rangeId);
  } catch {
    // No such container, none that the token is for, or a key that can't be read: that is what the error says.
    return {};
  }
}

/**
 * A write that was recorded but whose read model did not follow in time. For a read that is a matter of its session;
 * who wrote must learn that the write may well have been done.
 */
function notWaitedFor(request: FastifyRequest, error: unknown): WireError | undefined {
  if (!(error instanceof Refusal) || error.code !== 'session-not-available') return undefined;
  return isRead(request.method, request.raw.headers)
    ? undefined
    : new WireError('requestTimeout', 'The request took too long to finish; it may have been carried out.');
}

/** Of what the target names below a container, which has gone since. */
function wentMeanwhile({ cosmos }: FastifyRequest, error: unknown): WireError | undefined {
  return cosmos !== null && cosmos.target.segments.length > 4 ? ownerGone(error) : undefined;
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
