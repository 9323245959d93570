import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Turns } from '@epitaph/core/turn.ts';
import { parseExactText } from '../cosmos/json.ts';
import { type Identities, identityTokenOfBearer, type Principal } from '../http/identities.ts';
import type { Holder, KeyRing, KeyRole } from '../http/keys.ts';
import { defaultLimits } from '../http/limits.ts';
import { goesInPieces, piecesOf } from '../http/send-body.ts';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { backupRoutes } from './backup-routes.ts';
import { clockRoutes } from './clock-routes.ts';
import { historyRoutes } from './history-routes.ts';
import { metricsRoutes } from './metrics-routes.ts';
import { accessInWords, openApiDocument } from './openapi.ts';
import { policyRoutes } from './policy-routes.ts';
import { BODY_BYTES, Problem } from './problems.ts';
import { projectionRoutes } from './projection-routes.ts';
import { proofRoutes } from './proof-routes.ts';
import { purgeRoutes } from './purge-routes.ts';
import { replayRoutes } from './replay-routes.ts';
import { requestUnitsRoutes } from './request-units-routes.ts';
import { retentionRoutes } from './retention-routes.ts';
import { callers, collectRoutes, correlationOf, route, type Access, type RouteDescription } from './routing.ts';
import { sendProblem } from './send-problem.ts';
import { hangUpOnIdle } from './send-stream.ts';

export interface ManagementOptions {
  readonly store: StoreApi;
  readonly keys: KeyRing;
  readonly identities?: Identities | undefined;
  /** True once this node is about to stop. It then reports that it is not ready, though it still answers. */
  readonly draining?: () => boolean;
  /** Milliseconds after which a client that reads nothing of its answer is disconnected. */
  readonly unsentTimeoutMs?: number;
}

const ALLOWED: Readonly<Record<KeyRole, readonly Access[]>> = {
  audit: ['anyone', 'audit'],
  read: ['anyone', 'audit', 'read'],
  write: ['anyone', 'audit', 'read', 'write'],
};

/**
 * Registers the management plane on a server, under `/_epitaph`.
 *
 * @returns the descriptions of the routes, complete as soon as the server is ready
 */
export function registerManagement(app: FastifyInstance, options: ManagementOptions): readonly RouteDescription[] {
  const described: RouteDescription[] = [];
  void app.register(
    (scope, _options, done) => {
      const stopping = new AbortController();
      // A client that follows a stream of events would otherwise keep the server from stopping.
      scope.addHook('preClose', (next) => {
        stopping.abort();
        next();
      });
      collectRoutes(scope, described);
      const { measurements } = options.store;
      scope.addHook('onResponse', (request, reply, next) => {
        const { description } = request.routeOptions.config;
        // Requests are counted by route and not by URL, so that the number of labels is bounded.
        const operation = description === undefined ? 'none' : `${description.method} ${description.url}`;
        measurements.countRequest('management', operation, reply.statusCode);
        next();
      });
      const { unsentTimeoutMs = defaultLimits.unsentTimeoutMs } = options;
      scope.addHook('onRequest', (_request, reply, next) => {
        hangUpOnIdle(reply.raw, unsentTimeoutMs);
        next();
      });
      scope.addHook('onSend', (request, reply, payload, next) => next(null, inPieces(request, reply, payload)));
      admitCallers(scope, options);
      refuseUnreadable(scope);
      readBodiesAsJson(scope);
      beginOneByOne(scope);
      scope.addHook('preHandler', async (request) => {
        const { database, container } = request.params as { readonly database?: string; readonly container?: string };
        // People act on the answers of this plane, so none may leave out what any node has acknowledged.
        if (database !== undefined) await options.store.settleNames(database, container, true);
      });
      scope.setErrorHandler((error, request, reply) => sendProblem(request, reply, error, correlationOf(request)));
      scope.setNotFoundHandler((request, reply) =>
        sendProblem(
          request,
          reply,
          new Problem(
            'route-not-found',
            `There is no management call with this path and the method ${request.method}. GET /_epitaph/openapi.json lists all calls.`,
          ),
          correlationOf(request),
        ),
      );
      healthRoutes(scope, options);
      historyRoutes(scope, options.store, stopping.signal);
      requestUnitsRoutes(scope, options.store);
      policyRoutes(scope, options.store);
      retentionRoutes(scope, options.store, stopping.signal);
      backupRoutes(scope, options.store, stopping.signal);
      proofRoutes(scope, options.store, stopping.signal);
      replayRoutes(scope, options.store, stopping.signal);
      purgeRoutes(scope, options.store, stopping.signal);
      projectionRoutes(scope, options.store, stopping.signal);
      clockRoutes(scope, options.store);
      metricsRoutes(scope, options.store);
      documentationRoutes(scope, described);
      done();
    },
    { prefix: '/_epitaph' },
  );
  return described;
}

function healthRoutes(scope: FastifyInstance, { store, draining }: ManagementOptions): void {
  route(
    scope,
    {
      method: 'GET',
      url: '/health/live',
      access: 'anyone',
      summary: 'Says that the process is alive.',
      answers: { json: answers.live },
    },
    () => ({ status: 'live' }),
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/health/ready',
      access: 'anyone',
      summary: 'Says whether the store is ready, and if not, why.',
      answers: { json: answers.ready, otherwise: { status: 503, json: answers.notReady } },
    },
    ({ reply }) => {
      const { reasons } = store.health();
      const all = draining?.() === true ? ['the server is about to stop', ...reasons] : reasons;
      if (all.length === 0) return { status: 'ready' };
      void reply.code(503);
      return { status: 'not-ready', reasons: all };
    },
  );
}

function documentationRoutes(scope: FastifyInstance, described: readonly RouteDescription[]): void {
  // Anyone may read the document, and read it slowly. So all responses share the same bytes.
  let document: Buffer | undefined;
  route(
    scope,
    {
      method: 'GET',
      url: '/openapi.json',
      access: 'anyone',
      summary: 'This description.',
      answers: { json: answers.openApi },
    },
    ({ reply }) => {
      document ??= Buffer.from(JSON.stringify(openApiDocument(described)));
      return reply.type('application/json; charset=utf-8').send(document);
    },
  );
}

/** Turns an answer into a stream of pieces if it has to be sent in pieces. */
function inPieces({ method, raw: { socket } }: FastifyRequest, reply: FastifyReply, payload: unknown): unknown {
  if (!(typeof payload === 'string' || payload instanceof Buffer)) return payload;
  if (method === 'HEAD' || !goesInPieces(socket, payload)) return payload;
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  void reply.header('content-length', bytes.length);
  return piecesOf(bytes);
}

/** Admits a request by its key or by an identity token. A client that is not admitted learns nothing, not even which routes exist. */
function admitCallers(
  scope: FastifyInstance,
  { keys, identities }: Pick<ManagementOptions, 'keys' | 'identities'>,
): void {
  scope.addHook('onRequest', async (request) => {
    const access = request.routeOptions.config.description?.access ?? 'audit';
    const { authorization } = request.headers;
    const correlationId = randomUUID();
    callers.set(request, { actor: 'anonymous', correlationId });
    const token = identities === undefined || access === 'anyone' ? undefined : identityTokenOfBearer(authorization);
    const holder = token === undefined ? keys.verifyBearer(authorization) : await identified(identities!, token);
    if (holder !== undefined) callers.set(request, { actor: holder.actor, correlationId });
    if (access === 'anyone') return;
    if (holder === undefined) throw new Problem('unauthorized', NO_KEY);
    if (ALLOWED[holder.role].includes(access)) return;
    throw new Problem('forbidden', `${inWords[holder.role]} does not allow this. ${accessInWords[access]}`);
  });
}

/** @throws Problem for a token that can't be accepted, and for an identity that may not make management calls */
async function identified(identities: Identities, token: string): Promise<Holder> {
  const verdict = await identities.verify(token);
  if (verdict.ok) return holderOf(verdict.principal);
  throw new Problem(verdict.reason === 'invalid' ? 'unauthorized' : 'busy', verdict.why);
}

function holderOf({ actor, assignments }: Principal): Holder {
  const has = (wanted: string): boolean => assignments.some(({ role }) => role === wanted);
  if (has('administrator')) return { actor, role: 'write' };
  if (has('auditor')) return { actor, role: 'audit' };
  throw new Problem(
    'forbidden',
    'Management calls are for the roles administrator and auditor, and this identity has neither.',
  );
}

const NO_KEY =
  'The request has no key of this store. Send one in the header "Authorization: Bearer <key>". The keys are in keys.json in the data folder.';

const inWords: Readonly<Record<KeyRole, string>> = {
  audit: 'The auditor key or role, which is only for history,',
  read: 'The read-only key',
  write: 'The key',
};

/**
 * Starts requests one at a time, with other work in between. Hundreds of requests may arrive at once, and most of them work for a whole
 * turn of the event loop before they first yield. Routes that need no key, such as the health checks, do little work and do not wait.
 */
function beginOneByOne(scope: FastifyInstance): void {
  const beginnings = new Turns();
  scope.addHook('preHandler', async ({ routeOptions: { config } }) => {
    if (config.description?.access !== 'anyone') await beginnings.next();
  });
}

/** Parses every body as JSON, whatever its content type: `curl -d` declares each one as a form. */
function readBodiesAsJson(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: BODY_BYTES }, (_request, body, parsed) => {
    if (body.length === 0) {
      parsed(null, undefined);
      return;
    }
    try {
      // The parameters of a query are compared with values in documents, so numbers must not be rounded.
      parsed(null, parseExactText(body as Buffer, defaultLimits.jsonDepth));
    } catch (error) {
      parsed(error as Error);
    }
  });
}

/**
 * Refuses a request target whose percent-escapes are malformed or not UTF-8. The framework would take such escapes literally, look for an
 * id that nobody used, and answer that nothing is on record.
 */
function refuseUnreadable(scope: FastifyInstance): void {
  scope.addHook('onRequest', ({ originalUrl }, _reply, next) => {
    try {
      decodeURIComponent(originalUrl);
      next();
    } catch {
      next(new Problem('bad-request', 'The request target is not a valid URI.'));
    }
  });
}
