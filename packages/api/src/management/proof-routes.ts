import { Readable } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { FactLeaf } from '@epitaph/core/proof/leaf.ts';
import type { StoreApi } from '../store/store-api.ts';
import { Problem, problemDetails, problemOf } from './problems.ts';
import * as answers from './answers.ts';
import * as requests from './requests.ts';
import { clientGone, containerOf, correlationOf, itemOf, OF_CONTAINER, route, wantsEvents } from './routing.ts';
import { eventsOf, sendEvents } from './server-sent-events.ts';

/** Proofs of what is on record: for auditors, and for whoever they show them to. */
export function proofRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(
    scope,
    {
      method: 'GET',
      url: '/proof/key',
      access: 'anyone',
      summary: 'The public key that checkpoints are signed with.',
      answers: { json: answers.proofKey },
    },
    () => ({ publicKey: store.proofKey() }),
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/proof/checkpoint',
      access: 'audit',
      summary: 'A signed checkpoint of all permanent facts, as C2SP tlog-checkpoint has it.',
      query: requests.checkpointQuery,
      answers: { files: ['text/plain'] },
    },
    async ({ query, reply }) => reply.type('text/plain; charset=utf-8').send(await store.proofCheckpoint(query.size)),
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/proof/consistency',
      access: 'audit',
      summary: 'Proves that the facts of an earlier checkpoint are the beginning of those of a later one.',
      query: requests.consistencyQuery,
      answers: { json: answers.consistency },
    },
    ({ query: { from, to } }) => ({ from, to, hashes: store.proofConsistency(from, to) }),
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/proof/facts',
      access: 'audit',
      summary: 'Every permanent fact as it is in the tree, in order.',
      answers: { lines: answers.fact },
    },
    ({ reply }) => {
      const signal = AbortSignal.any([stopping, clientGone(reply)]);
      void reply.header('connection', 'close');
      return reply
        .type('application/x-ndjson; charset=utf-8')
        .send(Readable.from(factLines(store.facts(signal)), { objectMode: false }));
    },
  );

  route(
    scope,
    {
      method: 'POST',
      url: '/proof/verify',
      access: 'audit',
      summary: 'Checks the whole log against the tree that was made when its facts were recorded. Changes nothing.',
      answers: {
        json: answers.logVerification,
        events: { progress: answers.scanProgress, done: answers.logVerification },
      },
    },
    ({ request, reply }) => {
      const signal = AbortSignal.any([stopping, clientGone(reply)]);
      if (!wantsEvents(request)) return store.verifyLog(undefined, signal);
      const events = eventsOf((onProgress) => store.verifyLog(onProgress, signal), {
        done: (report) => report,
        failed: (error) => problemDetails(problemOf(error) ?? new Problem('internal'), correlationOf(request)),
      });
      return sendEvents(reply, events);
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/certificate`,
      access: 'audit',
      summary: 'A certificate of disposal for an item whose content was erased, with its proofs.',
      query: requests.certificateQuery,
      answers: { json: answers.certificate },
    },
    ({ query: { id, partitionKey, life, rid }, request }) => {
      const container = containerOf(store, request, rid);
      return store.certificate(container, id, itemOf(container, id, partitionKey).key, life);
    },
  );
}

async function* factLines(pages: AsyncIterable<readonly FactLeaf[]>): AsyncGenerator<string> {
  for await (const facts of pages) {
    if (facts.length > 0) yield `${facts.map((fact) => JSON.stringify(fact)).join('\n')}\n`;
  }
}
