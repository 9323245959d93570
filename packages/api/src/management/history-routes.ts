import { pipeline, Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import type { FastifyInstance } from 'fastify';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Explanation } from '@epitaph/core/history/explain.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { writeTar } from '../archive/tar.ts';
import type { Disappearance, HistoryEntry } from '../store/api/history-api.ts';
import type { StoreApi } from '../store/store-api.ts';
import { clientGone } from '../http/client-gone.ts';
import * as answers from './answers.ts';
import { bundleFiles, prepareBundle } from './bundle.ts';
import { exportFormat, exportText } from './exports.ts';
import { allPages, answerList, readInParts } from './lists.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';
import {
  containerOf,
  correlationOf,
  earlierContainersHeader,
  itemOf,
  OF_CONTAINER,
  recordedContainer,
  ridsOfNamesakes,
  route,
} from './routing.ts';
import { isOfLeaving } from './send-problem.ts';
import { sendStream } from './send-stream.ts';
import * as shapes from './shapes.ts';

/** Rows that an export reads from the store at once. */
const EXPORT_PAGE_ROWS = 1000;

/** History routes: what is on record of the store, a container or an item; and what has left, when and why. */
export function historyRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(
    scope,
    {
      method: 'GET',
      url: '/history',
      access: 'audit',
      summary:
        'What was done to the store as a whole, when and by whom: purge runs, pauses, backups, rebuilds, the clock.',
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
      url: `${OF_CONTAINER}/history`,
      access: 'audit',
      summary:
        'Every recorded fact of an item, oldest first; without an id, of the container. With a limit, a page of them.',
      query: requests.historyQuery,
      answers: { json: answers.history, headers: earlierContainersHeader },
    },
    async ({ query: { id, partitionKey, limit, continuation, rid }, request, reply }) => {
      const container = recordedContainer(store, request, reply, rid);
      if (id === undefined) {
        if (partitionKey !== undefined)
          throw new Problem('bad-request', 'partitionKey needs an id: both together name an item.');
        const after = continuation === undefined ? undefined : Number(continuation);
        if (after !== undefined && !Number.isSafeInteger(after * 2)) {
          throw new Problem('bad-request', 'The continuation belongs to the history of an item.');
        }
        return answerList(reply, limit, {
          head: { container: shapes.containerName(container) },
          name: 'events',
          entries: containerFacts(store, container, after, limit && limit + 1),
          placeOf: ({ place }) => place,
          shapeOf: ({ entry }) => shapes.historyEntryShape(entry),
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
      url: `${OF_CONTAINER}/explain`,
      access: 'audit',
      summary: 'Why an item is or is not there, now or at an instant.',
      query: requests.explainQuery,
      answers: { json: answers.explanation },
    },
    async ({ query: { id, partitionKey, at, rid }, request }) => {
      const container = containerOf(store, request, rid);
      const item = itemOf(container, id, partitionKey);
      const explanation = await store.explain(container, id, item.key, at);
      return shapes.explanationShape(pointingBack(store, container, explanation), container, item.shown);
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/disappearances`,
      access: 'audit',
      summary: 'What left a container, when and why: a page, or all as CSV or line by line.',
      query: requests.disappearancesQuery,
      answers: {
        json: answers.disappearances,
        lines: answers.disappearance,
        files: ['text/csv'],
        headers: earlierContainersHeader,
      },
    },
    async ({ query, request, reply }) => {
      const container = recordedContainer(store, request, reply, query.rid);
      const format = exportFormat(request.headers.accept);
      if (format === undefined) {
        const { rows, continuation } = await disappearancesPage(store, container, query, query.limit ?? 100);
        return {
          container: shapes.containerName(container),
          disappearances: rows.map(shapes.disappearanceShape),
          continuation,
        };
      }
      if (query.limit !== undefined)
        throw new Problem('bad-request', "limit can't be used with an export, which has all rows.");
      // The first page is read before the answer begins, while a fault in the request can still be answered with an error.
      const first = await disappearancesPage(store, container, query, EXPORT_PAGE_ROWS);
      const text = exportText(format, disappearancePages(store, container, query, first));
      return sendStream(reply, `${format}; charset=utf-8`, () => Readable.from(text, { objectMode: false }));
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/bundle`,
      access: 'audit',
      summary: 'Everything on record of a container in a period, with proofs, as one archive (tar, gzip). No content.',
      query: requests.periodQuery,
      answers: { files: ['application/gzip'], headers: earlierContainersHeader },
    },
    async ({ query: { from, to, rid }, request, reply }) => {
      const container = recordedContainer(store, request, reply, rid);
      const signal = AbortSignal.any([stopping, clientGone(reply.raw)]);
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
          // The connection is cut, so that an incomplete archive is not taken for a complete one.
          if (!error) return;
          const correlationId = correlationOf(request);
          if (isOfLeaving(request, error))
            request.log.info({ correlationId }, 'a bundle was not sent completely: the client disconnected');
          else request.log.warn({ err: error, correlationId }, 'a bundle was not sent completely');
        });
      return sendStream(reply, 'application/gzip', archive, stopping);
    },
  );
}

type Page = Awaited<ReturnType<StoreApi['disappearances']>>;

/**
 * The facts on record of a container after a place, in order. The place of one of its own facts is the fact's revision. If the container
 * was deleted with its database, that fact is in the database's stream; its place is half-way to the container's next fact.
 */
async function* containerFacts(
  store: StoreApi,
  container: ContainerState,
  after: number | undefined,
  most: number | undefined,
): AsyncGenerator<{ readonly place: number; readonly entry: HistoryEntry }> {
  const deletion = await store.deletionWithDatabase(container);
  let withDatabase = deletion && { place: deletion.afterRevision + 0.5, entry: deletion.entry };
  if (withDatabase !== undefined && after !== undefined && withDatabase.place <= after) withDatabase = undefined;
  const read = (place: number | undefined, count: number) => store.containerHistory(container, place, count);
  const own = readInParts(read, ({ revision }) => revision!, { after: after && Math.floor(after), most });
  for await (const entry of own) {
    const place = entry.revision!;
    if (withDatabase !== undefined && withDatabase.place < place) {
      yield withDatabase;
      withDatabase = undefined;
    }
    yield { place, entry };
  }
  if (withDatabase !== undefined) yield withDatabase;
}

function disappearancesPage(
  store: StoreApi,
  container: ContainerState,
  { from, to, cause, continuation }: requests.DisappearancesQuery,
  limit: number,
): Promise<Page> {
  return store.disappearances(container, { fromMs: from, toMs: to, cause, after: continuation, limit });
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

/**
 * Adds the namesakes of a container to an explanation that says `never-existed`. That is true of the current container only, and a client
 * that asks for an item of long ago may not know that the container was created anew since.
 */
function pointingBack(store: StoreApi, container: ContainerState, explanation: Explanation): Explanation {
  if (explanation.state !== 'never-existed') return explanation;
  const earlier = ridsOfNamesakes(store, container);
  if (earlier === undefined) return explanation;
  return {
    ...explanation,
    sentence: `${explanation.sentence} Deleted containers of that name are different ones and keep their own history; ask with their rid: ${earlier}.`,
  };
}
