import type { FastifyInstance, FastifyRequest } from 'fastify';
import { wait } from '../wait.ts';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { answerLongWork } from './long-work.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';
import { route, wantsEvents } from './routing.ts';
import { sendEvents, type ServerSentEvent } from './server-sent-events.ts';
import * as shapes from './shapes.ts';

/** How often the progress of a rebuild is checked for a client that follows it. */
const FOLLOW_EVERY_MS = 100;
/** After so many checks without news an event is sent all the same, so that no proxy takes the connection for dead. */
const QUIET_LOOKS = 100;

/** The read models: their progress, rebuilding them, and comparing them with the log. */
export function projectionRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(
    scope,
    {
      method: 'GET',
      url: '/projections',
      access: 'read',
      summary: 'The read models, and up to which position of the log they are.',
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
      summary: 'Starts a rebuild of the read models beside those in use, or continues an interrupted one.',
      body: requests.rebuildBody,
      answers: { status: 202, json: answers.rebuild },
    },
    async ({ body, request, reply, caller }) => {
      const name = await projectionOf(store, request);
      const eventsPerSecond = body?.eventsPerSecond ?? null;
      await store.recordAction(caller, { type: 'RebuildRequested', data: { projection: name, eventsPerSecond } });
      void reply.code(202).header('location', `/_epitaph/projections/${encodeURIComponent(name)}/rebuild`);
      return shapes.rebuildShape(store.startRebuild(name, body));
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
      summary: 'Cancels a rebuild and discards what it has built.',
      answers: { json: answers.rebuild },
    },
    async ({ request, caller }) => {
      const name = await projectionOf(store, request);
      if (store.rebuildStatus(name) === null) throw new Problem('rebuild-not-found');
      await store.recordAction(caller, { type: 'RebuildCancelRequested', data: { projection: name } });
      await store.cancelRebuild(name);
      return shapes.rebuildShape(store.rebuildStatus(name)!);
    },
  );

  route(
    scope,
    {
      method: 'POST',
      url: '/fsck',
      access: 'write',
      summary: 'Checks the whole store (fsck): derives from the log what must be visible, and compares.',
      answers: { json: answers.fsck, events: { progress: answers.fsckProgress, done: answers.fsck } },
    },
    ({ request, reply }) =>
      answerLongWork(request, reply, stopping, ({ onProgress, signal }) =>
        store.fsck((done, total) => onProgress?.({ done, total }), signal),
      ),
  );
}

async function projectionOf(store: StoreApi, request: FastifyRequest): Promise<string> {
  const { name } = requests.read(requests.projectionParams, request.params, 'path');
  const names = (await store.projections()).map((projection) => projection.name);
  if (names.includes(name)) return name;
  throw new Problem(
    'projection-not-found',
    `There is no projection ${JSON.stringify(name)}. There is only ${names.join(', ')}.`,
  );
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
