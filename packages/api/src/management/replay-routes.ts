import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { isoTime } from '@epitaph/core/clock.ts';
import type { FollowedScan } from '../store/api/history-api.ts';
import type { StoreApi } from '../store/store-api.ts';
import { clientGone } from '../http/client-gone.ts';
import { answerLongWork } from './long-work.ts';
import * as answers from './answers.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';
import {
  containerOf,
  earlierContainersHeader,
  itemOf,
  OF_CONTAINER,
  recordedContainer,
  route,
  sendJson,
  wantsEvents,
} from './routing.ts';
import { sendStream } from './send-stream.ts';
import * as shapes from './shapes.ts';

/** Routes that read a container's whole history: replays under other policies, and its state at an instant. */
export function replayRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(
    scope,
    {
      method: 'POST',
      url: `${OF_CONTAINER}/ttl/replay`,
      access: 'audit',
      summary:
        'The whole history of a container under other TTL policies, compared with what happened. Changes nothing.',
      query: requests.ridQuery,
      body: requests.replayBody,
      answers: {
        json: answers.replay,
        lines: z.union([answers.difference, answers.summaryOf(answers.replay)]),
        events: { progress: answers.scanProgress, done: answers.replay },
        headers: earlierContainersHeader,
      },
    },
    ({ query, body: { timeline }, request, reply }) => {
      const container = recordedContainer(store, request, reply, query.rid);
      const policies = timeline.map(({ from, defaultTtl }) => ({ fromMs: from, defaultTtl }));
      return answerScan(request, reply, stopping, {
        scan: (follow) => store.replay(container, policies, follow),
        row: shapes.differenceShape,
        summary: (summary) => ({ container: shapes.containerName(container), ...shapes.replayShape(summary) }),
      });
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/as-of`,
      access: 'audit',
      summary: 'What was visible in a container at an instant: how many items, or which ones, one a line.',
      query: requests.asOfQuery,
      answers: {
        json: answers.asOf,
        lines: z.union([answers.itemAsOf, answers.summaryOf(answers.asOf)]),
        events: { progress: answers.scanProgress, done: answers.asOf },
        headers: earlierContainersHeader,
      },
    },
    ({ query: { rid, at }, request, reply }) => {
      const container = recordedContainer(store, request, reply, rid);
      assertNotToCome(store, at);
      return answerScan(request, reply, stopping, {
        scan: (follow) => store.asOf(container, at, follow),
        row: shapes.itemAsOfShape,
        summary: (items) => ({ container: shapes.containerName(container), ...shapes.instant('at', at), items }),
      });
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/content`,
      access: 'read',
      summary: 'The content of a visible item as it was at an instant, or at a revision.',
      query: requests.contentQuery,
      answers: { json: answers.content },
    },
    async ({ query: { id, partitionKey, at, revision }, request, reply }) => {
      if (at !== undefined && revision !== undefined) {
        throw new Problem('bad-request', 'Only one of at and revision can be given in the query.');
      }
      if (at !== undefined) assertNotToCome(store, at);
      const container = containerOf(store, request, undefined);
      const item = itemOf(container, id, partitionKey);
      const content = await store.contentAt(container, id, item.key, { atMs: at, revision });
      const named = { container: shapes.containerName(container), ...item.shown };
      return sendJson(reply, shapes.contentText(named, content));
    },
  );
}

/** @throws Problem bad-request for an instant in the future, about which nothing is on record yet */
function assertNotToCome(store: StoreApi, atMs: number): void {
  const nowMs = store.nowMs();
  if (atMs <= nowMs) return;
  throw new Problem(
    'bad-request',
    `at in the query is in the future: the store's time is ${isoTime(nowMs)}. Explain and preview say what will be.`,
  );
}

/**
 * Answers with a scan in the form that the client asks for: its summary alone; progress and then the summary as server-sent events; or
 * every row as a line of JSON. The scan ends if the client disconnects.
 */
function answerScan<Row, Result>(
  request: FastifyRequest,
  reply: FastifyReply,
  stopping: AbortSignal,
  {
    scan,
    row,
    summary,
  }: {
    readonly scan: (follow: FollowedScan<Row>) => Promise<Result>;
    readonly row: (row: Row) => unknown;
    readonly summary: (result: Result) => unknown;
  },
): unknown {
  if (wantsEvents(request) || !(request.headers.accept ?? '').includes('application/x-ndjson')) {
    return answerLongWork(request, reply, stopping, (follow) => scan(follow).then(summary));
  }
  const signal = AbortSignal.any([stopping, clientGone(reply.raw)]);
  return sendStream(
    reply,
    'application/x-ndjson; charset=utf-8',
    () => linesOf(signal, (write) => scan({ signal, onRow: (found) => write(row(found)) }).then(summary)),
    stopping,
  );
}

/** A stream of the rows that the work writes, a line each, and of its summary as the last line. The work waits while nobody reads. */
function linesOf(
  signal: AbortSignal,
  work: (write: (value: unknown) => Promise<void> | undefined) => Promise<unknown>,
): Readable {
  let resume = (): void => {};
  const lines = new Readable({
    highWaterMark: 64 * 1024,
    read: () => resume(),
    // A writer that waits is resumed and finds that the stream was closed.
    destroy: (error, done) => {
      done(error);
      resume();
    },
  });
  const write = (value: unknown): Promise<void> | undefined => {
    signal.throwIfAborted();
    return lines.push(`${JSON.stringify(value)}\n`) ? undefined : new Promise((resolve) => (resume = resolve));
  };
  work(write)
    .then((summary) => {
      void write({ summary });
      lines.push(null);
    })
    .catch((error: unknown) => lines.destroy(error as Error));
  return lines;
}
