import { randomUUID } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { wait } from '../config/wait.ts';
import type { KeyRing, KeyRole } from '../http/keys.ts';
import { defaultLimits } from '../http/limits.ts';
import { goesInPieces, piecesOf } from '../http/send-body.ts';
import type { Disappearance, HistoryEntry, StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { writeTar } from '../archive/tar.ts';
import { bundleFiles, prepareBundle } from './bundle.ts';
import { exportFormat, exportText } from './exports.ts';
import { accessInWords, openApiDocument } from './openapi.ts';
import { allPages, answerList, readInParts } from './lists.ts';
import { answerLongWork } from './long-work.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';
import {
  callers,
  clientGone,
  collectRoutes,
  containerOf,
  correlationOf,
  itemOf,
  OF_CONTAINER,
  route,
  wantsEvents,
  type Access,
  type RouteDescription,
} from './routing.ts';
import { metricsRoutes } from './metrics-routes.ts';
import { backupRoutes } from './backup-routes.ts';
import { replayRoutes } from './replay-routes.ts';
import { proofRoutes } from './proof-routes.ts';
import { retentionRoutes } from './retention-routes.ts';
import { policyRoutes } from './policy-routes.ts';
import { sendProblem } from './send-problem.ts';
import { hangUpOnIdle, sendStream } from './send-stream.ts';
import { sendEvents, type ServerSentEvent } from './server-sent-events.ts';
import * as shapes from './shapes.ts';

export interface ManagementOptions {
  readonly store: StoreApi;
  readonly keys: KeyRing;
  /** True once this node is about to stop: it is not ready any more, though it still answers. */
  readonly draining?: () => boolean;
  /** How long a client may take nothing of an answer, in milliseconds. */
  readonly unsentTimeoutMs?: number;
}

const ALLOWED: Readonly<Record<KeyRole, readonly Access[]>> = {
  audit: ['anyone', 'audit'],
  read: ['anyone', 'audit', 'read'],
  write: ['anyone', 'audit', 'read', 'write'],
};

/** How often a rebuild that somebody follows is looked at. */
const FOLLOW_EVERY_MS = 100;
/** How often a purge that somebody follows is asked how far it is. */
const FOLLOW_PURGE_EVERY_MS = 500;
/** Looks without news after which a line is sent all the same, so that nobody on the way takes the connection for dead. */
const QUIET_LOOKS = 100;
const BODY_BYTES = 64 * 1024;
/** Seconds that a purge waits for request units unless it is told otherwise. */
const DEFAULT_PURGE_WAIT_SECONDS = 60;
const EXPORT_PAGE_ROWS = 1000;

/**
 * Puts the management plane on a server, under `/_epitaph`.
 *
 * @returns the routes, as soon as the server is ready
 */
export function registerManagement(app: FastifyInstance, options: ManagementOptions): readonly RouteDescription[] {
  const described: RouteDescription[] = [];
  void app.register(
    (scope, _options, done) => {
      const stopping = new AbortController();
      // Who follows something would keep the server from stopping.
      scope.addHook('preClose', (next) => {
        stopping.abort();
        next();
      });
      collectRoutes(scope, described);
      const { measurements } = options.store;
      scope.addHook('onResponse', (request, reply, next) => {
        const { description } = request.routeOptions.config;
        // By the route, not by the target, so that there are only so many.
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
      admitByKey(scope, options.keys);
      readBodiesAsJson(scope);
      scope.addHook('preHandler', async (request) => {
        const { database, container } = request.params as { readonly database?: string; readonly container?: string };
        if (database !== undefined) await options.store.settleNames(database, container);
      });
      scope.setErrorHandler((error, request, reply) => sendProblem(request, reply, error, correlationOf(request)));
      scope.setNotFoundHandler((request, reply) =>
        sendProblem(
          request,
          reply,
          new Problem(
            'route-not-found',
            `There is no ${request.method} of this path. GET /_epitaph/openapi.json has all that there is.`,
          ),
          correlationOf(request),
        ),
      );
      healthRoutes(scope, options);
      historyRoutes(scope, options.store, stopping.signal);
      policyRoutes(scope, options.store);
      retentionRoutes(scope, options.store, stopping.signal);
      backupRoutes(scope, options.store, stopping.signal);
      proofRoutes(scope, options.store, stopping.signal);
      replayRoutes(scope, options.store, stopping.signal);
      operationRoutes(scope, options.store, stopping.signal);
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
      summary: 'Says that the process answers.',
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
      summary: 'Says whether the store is fit to be asked, or why not.',
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

function historyRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  const of = OF_CONTAINER;

  route(
    scope,
    {
      method: 'GET',
      url: '/history',
      access: 'audit',
      summary:
        'What was asked of the store as a whole, when and by whom: purge runs, pauses, backups, rebuilds, the clock.',
      answers: { json: answers.storeHistory },
    },
    async ({ reply }) =>
      answerList(reply, undefined, {
        head: {},
        name: 'events',
        entries: await store.actionsOnStore(),
        shapeOf: shapes.actionShape,
      }),
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${of}/history`,
      access: 'audit',
      summary:
        'Every recorded fact of an item, oldest first; without an id those of the container; with a limit a page of them.',
      query: requests.historyQuery,
      answers: { json: answers.history },
    },
    async ({ query: { id, partitionKey, limit, continuation, rid }, request, reply }) => {
      const container = containerOf(store, request, rid);
      if (id === undefined) {
        if (partitionKey !== undefined) throw new Problem('bad-request', 'A partitionKey without an id names no item.');
        const after = continuation === undefined ? undefined : Number(continuation);
        if (after !== undefined && !Number.isSafeInteger(after)) {
          throw new Problem('bad-request', "The continuation is one of an item's history.");
        }
        const placeOf = ({ revision }: HistoryEntry): number => revision!;
        const read = (place: number | undefined, most: number) => store.containerHistory(container, place, most);
        return answerList(reply, limit, {
          head: { container: shapes.containerName(container) },
          name: 'events',
          entries: readInParts(read, placeOf, { after, most: limit && limit + 1 }),
          placeOf,
          shapeOf: shapes.historyEntryShape,
        });
      }
      const item = itemOf(container, id, partitionKey);
      const read = (after: string | undefined, most: number) =>
        store.historyPage(container, id, item.key, { after, limit: most });
      const { entries, ...next } =
        limit === undefined ? { entries: allPages(read, continuation) } : await read(continuation, limit);
      return answerList(reply, undefined, {
        head: { ...item.shown, container: shapes.containerName(container), ...next },
        name: 'events',
        entries,
        shapeOf: shapes.historyEntryShape,
      });
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${of}/explain`,
      access: 'audit',
      summary: 'Why an item is or is not there, now or at an instant.',
      query: requests.explainQuery,
      answers: { json: answers.explanation },
    },
    async ({ query: { id, partitionKey, at, rid }, request }) => {
      const container = containerOf(store, request, rid);
      const item = itemOf(container, id, partitionKey);
      return shapes.explanationShape(await store.explain(container, id, item.key, at), container, item.shown);
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${of}/disappearances`,
      access: 'audit',
      summary: 'What left a container, when and why: a page, or all as CSV or line by line.',
      query: requests.disappearancesQuery,
      answers: { json: answers.disappearances, lines: answers.disappearance, files: ['text/csv'] },
    },
    async ({ query, request, reply }) => {
      const container = containerOf(store, request, query.rid);
      const format = exportFormat(request.headers.accept);
      if (format === undefined) {
        const { rows, continuation } = await disappearancesPage(store, container, query, query.limit ?? 100);
        return {
          container: shapes.containerName(container),
          disappearances: rows.map(shapes.disappearanceShape),
          ...(continuation === undefined ? {} : { continuation }),
        };
      }
      if (query.limit !== undefined) throw new Problem('bad-request', 'An export has all rows: it takes no limit.');
      // The first page is read before the answer begins: what is wrong with the request can still be said then.
      const first = await disappearancesPage(store, container, query, EXPORT_PAGE_ROWS);
      const text = exportText(format, disappearancePages(store, container, query, first));
      return sendStream(reply, `${format}; charset=utf-8`, () => Readable.from(text, { objectMode: false }));
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${of}/bundle`,
      access: 'audit',
      summary: 'Everything on record of a container in a period, with proofs, as one archive (tar, gzip). No content.',
      query: requests.periodQuery,
      answers: { files: ['application/gzip'] },
    },
    async ({ query: { from, to, rid }, request, reply }) => {
      const container = containerOf(store, request, rid);
      const signal = AbortSignal.any([stopping, clientGone(reply)]);
      const asked = { container, fromMs: from, toMs: to, signal };
      const prepared = await prepareBundle(store, asked);
      const pages = async function* () {
        const first = await disappearancesPage(store, container, { from, to }, EXPORT_PAGE_ROWS);
        yield* disappearancePages(store, container, { from, to }, first);
      };
      const files = bundleFiles(store, asked, prepared, pages);
      const name = `epitaph-${container.rid.replaceAll(/[^\w-]/g, '')}.tar.gz`;
      void reply.header('content-disposition', `attachment; filename="${name}"`);
      const archive = () =>
        pipeline(Readable.from(writeTar(files, store.nowMs()), { objectMode: false }), createGzip(), (error) => {
          // It breaks the connection off: half an archive must not look like a whole one.
          if (error) request.log.warn({ err: error, correlationId: correlationOf(request) }, 'a bundle was cut short');
        });
      return sendStream(reply, 'application/gzip', archive, stopping);
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${of}/request-units`,
      access: 'read',
      summary: "A container's budget of request units, and what was spent since the server started.",
      answers: { json: answers.requestUnits },
    },
    ({ request }) => {
      const container = containerOf(store, request, undefined);
      return shapes.requestUnitsShape(store.requestUnits.status(container), container);
    },
  );
}

function operationRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  const purgeStatus = async () => shapes.purgeShape(await store.purgeStatus());

  route(
    scope,
    {
      method: 'GET',
      url: '/purge',
      access: 'audit',
      summary: 'What is still to be recorded and erased, and how fast that goes.',
      answers: { json: answers.purge },
    },
    purgeStatus,
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/purge/run',
      access: 'write',
      summary:
        'Purges now, and answers when nothing due is left, or nothing but what users leave no request units over for: for that it waits a minute, or as long as `waitSeconds` says.',
      query: requests.purgeRunQuery,
      answers: { json: answers.purgePass, events: { progress: answers.purge, done: answers.purgePass } },
    },
    async ({ query: { waitSeconds = DEFAULT_PURGE_WAIT_SECONDS }, request, reply, caller }) => {
      // While the clock is held nothing is done, and nothing can be stamped.
      if ((await store.purgeStatus()).state !== 'held-by-clock') {
        await store.recordAction(caller, { type: 'PurgeRunRequested', data: {} });
      }
      return answerLongWork<unknown, unknown>(request, reply, stopping, {
        // A client that goes away doesn't end the pass: others may wait for the same one. Who wants it ended pauses it.
        work: async ({ onProgress, signal }) => {
          const over = new AbortController();
          const patience = { waitMs: waitSeconds * 1000, signal: stopping };
          const pass = store.runPurge(caller, patience).finally(() => over.abort());
          const watch = async (tell: (progress: unknown) => void): Promise<void> => {
            while (!over.signal.aborted && !signal.aborted) {
              tell(await purgeStatus());
              await wait(FOLLOW_PURGE_EVERY_MS, AbortSignal.any([over.signal, signal]));
            }
          };
          const [done] = await Promise.all([pass, onProgress && watch(onProgress)]);
          // What it has not come to any more is still due.
          stopping.throwIfAborted();
          return { ...done, status: await purgeStatus() };
        },
        done: (pass) => pass,
      });
    },
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/purge/pause',
      access: 'write',
      summary: 'Stops recording and erasing until it is resumed, over restarts too.',
      answers: { json: answers.purge },
    },
    async ({ caller }) => {
      await store.pausePurge(caller);
      return purgeStatus();
    },
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/purge/resume',
      access: 'write',
      summary: 'Lets the purge go on.',
      answers: { json: answers.purge },
    },
    async ({ caller }) => {
      await store.resumePurge(caller);
      return purgeStatus();
    },
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/purge/scavenge',
      access: 'write',
      summary: "Has the event log's server give back the space of what was purged.",
      answers: { json: answers.purge },
    },
    async ({ caller }) => {
      await store.startScavenge(caller);
      return purgeStatus();
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/projections',
      access: 'read',
      summary: 'The read models: how far they have come in the log.',
      answers: { json: answers.projections },
    },
    async () => ({ projections: (await store.projections()).map(shapes.projectionShape) }),
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/projections/:name/rebuild',
      access: 'write',
      summary: 'Begins to build the read models anew beside those in use, or goes on where that was cut short.',
      body: requests.rebuildBody,
      answers: { status: 202, json: answers.rebuild },
    },
    async ({ body, request, reply, caller }) => {
      const name = await projectionOf(store, request);
      const eventsPerSecond = body?.eventsPerSecond ?? null;
      await store.recordAction(caller, { type: 'RebuildRequested', data: { projection: name, eventsPerSecond } });
      void reply.code(202).header('location', `/_epitaph/projections/${encodeURIComponent(name)}/rebuild`);
      return shapes.rebuildShape(store.startRebuild(caller, name, body));
    },
  );
  route(
    scope,
    {
      method: 'GET',
      url: '/projections/:name/rebuild',
      access: 'read',
      summary: 'How a rebuild is going, or how the last one went.',
      answers: { json: answers.rebuild, events: { progress: answers.rebuild, done: answers.rebuild } },
    },
    async ({ request, reply }) => {
      const name = await projectionOf(store, request);
      const status = store.rebuildStatus(name);
      if (status === null) throw new Problem('rebuild-not-found');
      return wantsEvents(request)
        ? sendEvents(reply, followRebuild(store, name, stopping))
        : shapes.rebuildShape(status);
    },
  );
  route(
    scope,
    {
      method: 'DELETE',
      url: '/projections/:name/rebuild',
      access: 'write',
      summary: 'Cancels a rebuild; what was built by then is thrown away.',
      answers: { json: answers.rebuild },
    },
    async ({ request, caller }) => {
      const name = await projectionOf(store, request);
      if (store.rebuildStatus(name) === null) throw new Problem('rebuild-not-found');
      await store.recordAction(caller, { type: 'RebuildCancelRequested', data: { projection: name } });
      await store.cancelRebuild(caller, name);
      return shapes.rebuildShape(store.rebuildStatus(name)!);
    },
  );

  route(
    scope,
    {
      method: 'POST',
      url: '/fsck',
      access: 'write',
      summary: 'Derives anew from the log what must be visible, and compares.',
      answers: { json: answers.fsck, events: { progress: answers.fsckProgress, done: answers.fsck } },
    },
    ({ request, reply }) =>
      answerLongWork(request, reply, stopping, {
        work: ({ onProgress, signal }) => store.fsck((done, total) => onProgress?.({ done, total }), signal),
        done: (report) => report,
      }),
  );
}

function clockRoutes(scope: FastifyInstance, store: StoreApi): void {
  const clock = () => shapes.clockShape(store.nowMs(), store.clockKind);
  route(
    scope,
    {
      method: 'GET',
      url: '/clock',
      access: 'read',
      summary: 'The time that the store goes by.',
      answers: { json: answers.clock },
    },
    clock,
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/clock/advance',
      access: 'write',
      summary: 'Turns the manual clock forward.',
      body: requests.advanceBody,
      answers: { json: answers.clock },
    },
    async ({ body: { milliseconds }, caller }) => {
      try {
        await store.advanceClock(caller, milliseconds);
      } catch (error) {
        if (error instanceof RangeError) throw new Problem('bad-request', `milliseconds: ${error.message}.`);
        throw error;
      }
      await store.recordAction(caller, { type: 'ClockAdvanced', data: { milliseconds } });
      return clock();
    },
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/clock/confirm',
      access: 'write',
      summary: 'Accepts the wall clock as it is after a jump.',
      answers: { json: answers.clock },
    },
    async ({ caller }) => {
      const jump = await store.confirmClock(caller);
      if (jump !== undefined) {
        const { expectedMs, wallMs } = jump;
        const data = { expectedMs: Math.floor(expectedMs), wallMs: Math.floor(wallMs) };
        await store.recordAction(caller, { type: 'ClockConfirmed', data });
      }
      return clock();
    },
  );
}

function documentationRoutes(scope: FastifyInstance, described: readonly RouteDescription[]): void {
  let document: object | undefined;
  route(
    scope,
    {
      method: 'GET',
      url: '/openapi.json',
      access: 'anyone',
      summary: 'This description.',
      answers: { json: answers.openApi },
    },
    () => (document ??= openApiDocument(described)),
  );
}

/** An answer that goes in pieces, as a stream of them. */
function inPieces({ method, raw: { socket } }: FastifyRequest, reply: FastifyReply, payload: unknown): unknown {
  if (typeof payload !== 'string' || method === 'HEAD' || !goesInPieces(socket, payload)) return payload;
  const bytes = Buffer.from(payload);
  void reply.header('content-length', bytes.length);
  return piecesOf(bytes);
}

/** Who isn't let in learns nothing else, not even what there is. */
function admitByKey(scope: FastifyInstance, keys: KeyRing): void {
  scope.addHook('onRequest', (request, _reply, next) => {
    const access = request.routeOptions.config.description?.access ?? 'audit';
    const holder = keys.verifyBearer(request.headers.authorization);
    callers.set(request, { actor: holder?.actor ?? 'anonymous', correlationId: randomUUID() });
    if (access === 'anyone') next();
    else if (holder === undefined) next(new Problem('unauthorized', NO_KEY));
    else if (ALLOWED[holder.role].includes(access)) next();
    else next(new Problem('forbidden', `${inWords[holder.role]} does not allow this. ${accessInWords[access]}`));
  });
}

const NO_KEY =
  'The request carries no key of this store. One goes into the header "Authorization: Bearer <key>"; they are in the keys.json of the data folder.';

const inWords: Readonly<Record<KeyRole, string>> = {
  audit: 'The auditor key, which is for history alone,',
  read: 'The read-only key',
  write: 'The key',
};

/** Bodies are JSON whatever their content type says: `curl -d` calls all of them forms. */
function readBodiesAsJson(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', { parseAs: 'string', bodyLimit: BODY_BYTES }, (_request, body, parsed) => {
    if (body === '') {
      parsed(null, undefined);
      return;
    }
    try {
      parsed(null, JSON.parse(body as string));
    } catch {
      parsed(new Problem('bad-request', 'The body is not JSON.'));
    }
  });
}

async function projectionOf(store: StoreApi, request: FastifyRequest): Promise<string> {
  const { name } = requests.read(requests.projectionParams, request.params, 'path');
  const names = (await store.projections()).map((projection) => projection.name);
  if (names.includes(name)) return name;
  throw new Problem(
    'projection-not-found',
    `There is no projection ${JSON.stringify(name)}, only ${names.join(', ')}.`,
  );
}

type Page = Awaited<ReturnType<StoreApi['disappearances']>>;

function disappearancesPage(
  store: StoreApi,
  container: ContainerState,
  { from, to, cause, continuation }: requests.DisappearancesQuery,
  limit: number,
): Promise<Page> {
  return store.disappearances(container, {
    ...(from === undefined ? {} : { fromMs: from }),
    ...(to === undefined ? {} : { toMs: to }),
    ...(cause === undefined ? {} : { cause }),
    ...(continuation === undefined ? {} : { after: continuation }),
    limit,
  });
}

async function* disappearancePages(
  store: StoreApi,
  container: ContainerState,
  query: requests.DisappearancesQuery,
  first: Page,
): AsyncGenerator<readonly Disappearance[]> {
  const pace = new Pace();
  let page = first;
  for (;;) {
    yield page.rows;
    if (page.continuation === undefined) return;
    await pace.step();
    page = await disappearancesPage(store, container, { ...query, continuation: page.continuation }, EXPORT_PAGE_ROWS);
  }
}

async function* followRebuild(store: StoreApi, name: string, stopping: AbortSignal): AsyncGenerator<ServerSentEvent> {
  let sent: unknown;
  for (let quiet = 0; ; quiet += 1) {
    const status = store.rebuildStatus(name)!;
    const over = status.state !== 'running' && status.state !== 'comparing';
    if (over || status !== sent || quiet >= QUIET_LOOKS) {
      yield { event: over ? 'done' : 'progress', data: shapes.rebuildShape(status) };
      sent = status;
      quiet = 0;
    }
    if (over || stopping.aborted) return;
    await wait(FOLLOW_EVERY_MS, stopping);
  }
}
