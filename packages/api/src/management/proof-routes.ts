import { Readable } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { FactLeaf } from '@epitaph/core/proof/leaf.ts';
import type { StoreApi } from '../store/store-api.ts';
import { Problem, problemDetails, problemOf } from './problems.ts';
import * as requests from './requests.ts';
import { clientGone, containerOf, correlationOf, itemOf, OF_CONTAINER, route, wantsEvents } from './routing.ts';
import { eventsOf, sendEvents } from './server-sent-events.ts';

/** Proofs of what is on record: for auditors, and for whoever they show them to. */
export function proofRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(scope, 'GET', '/proof/key', 'anyone', () => ({ publicKey: store.proofKey() }));

  route(
    scope,
    'GET',
    '/proof/checkpoint',
    'audit',
    async (request, reply) => {
      const { size } = requests.read(requests.checkpointQuery, request.query, 'query');
      return reply.type('text/plain; charset=utf-8').send(await store.proofCheckpoint(size));
    },
    { query: true },
  );

  route(
    scope,
    'GET',
    '/proof/consistency',
    'audit',
    (request) => {
      const { from, to } = requests.read(requests.consistencyQuery, request.query, 'query');
      return { from, to, hashes: store.proofConsistency(from, to) };
    },
    { query: true },
  );

  route(scope, 'GET', '/proof/facts', 'audit', (_request, reply) => {
    const signal = AbortSignal.any([stopping, clientGone(reply)]);
    void reply.header('connection', 'close');
    return reply
      .type('application/x-ndjson; charset=utf-8')
      .send(Readable.from(factLines(store.facts(signal)), { objectMode: false }));
  });

  route(scope, 'POST', '/proof/verify', 'audit', (request, reply) => {
    const signal = AbortSignal.any([stopping, clientGone(reply)]);
    if (!wantsEvents(request)) return store.verifyLog(undefined, signal);
    const events = eventsOf((onProgress) => store.verifyLog(onProgress, signal), {
      done: (report) => report,
      failed: (error) => problemDetails(problemOf(error) ?? new Problem('internal'), correlationOf(request)),
    });
    return sendEvents(reply, events);
  });

  route(scope, 'GET', `${OF_CONTAINER}/certificate`, 'audit', (request) => {
    const { id, partitionKey, life, rid } = requests.read(requests.certificateQuery, request.query, 'query');
    const container = containerOf(store, request, rid);
    return store.certificate(container, id, itemOf(container, id, partitionKey).key, life);
  });
}

async function* factLines(pages: AsyncIterable<readonly FactLeaf[]>): AsyncGenerator<string> {
  for await (const facts of pages) {
    if (facts.length > 0) yield `${facts.map((fact) => JSON.stringify(fact)).join('\n')}\n`;
  }
}
