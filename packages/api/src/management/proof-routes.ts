import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import type { StoreApi } from '../store/store-api.ts';
import { clientGone } from '../http/client-gone.ts';
import { answerLongWork } from './long-work.ts';
import * as answers from './answers.ts';
import * as requests from './requests.ts';
import { earlierContainersHeader, itemOf, OF_CONTAINER, recordedContainer, route } from './routing.ts';
import { inChunks, sendStream } from './send-stream.ts';

/** Proofs of what is on record, for auditors and for the people they show them to. */
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
      summary: 'A signed checkpoint of all permanent facts, in the format of C2SP tlog-checkpoint.',
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
    async ({ query: { from, to } }) => ({ from, to, hashes: await store.proofConsistency(from, to) }),
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
      const signal = AbortSignal.any([stopping, clientGone(reply.raw)]);
      return sendLines(reply, store.facts(signal), stopping);
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
    ({ request, reply }) =>
      answerLongWork(request, reply, stopping, ({ onProgress, signal }) => store.verifyLog(onProgress, signal)),
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/certificate`,
      access: 'audit',
      summary: 'A certificate of disposal for an item whose content was erased, with its proofs.',
      query: requests.certificateQuery,
      answers: { json: answers.certificate, headers: earlierContainersHeader },
    },
    ({ query: { id, partitionKey, life, rid }, request, reply }) => {
      const container = recordedContainer(store, request, reply, rid);
      return store.certificate(container, id, itemOf(container, id, partitionKey).key, life);
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/certificates`,
      access: 'audit',
      summary: 'Certificates of disposal for every life of a container that was erased in a period.',
      query: requests.periodQuery,
      answers: { lines: z.union([answers.certificate, answers.unproven]), headers: earlierContainersHeader },
    },
    async ({ query: { from, to, rid }, request, reply }) => {
      const container = recordedContainer(store, request, reply, rid);
      const signal = AbortSignal.any([stopping, clientGone(reply.raw)]);
      return sendLines(
        reply,
        await started(store.certificates(container, { fromMs: from, toMs: to }, signal)),
        stopping,
      );
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/purge/runs',
      access: 'audit',
      summary: 'The runs of the purge, oldest first.',
      query: requests.purgeRunsQuery,
      answers: { json: answers.purgeRuns },
    },
    async ({ query: { after = 0, limit = 100 }, reply }) => {
      const signal = AbortSignal.any([stopping, clientGone(reply.raw)]);
      const { runs, unproven, position } = await store.purgeRuns(after, limit, signal);
      return { runs, ...(unproven.length === 0 ? {} : { unproven }), next: position };
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/purge/runs/:run/certificates',
      access: 'audit',
      summary: 'The certificate of a purge run, and then those of every life that it erased.',
      answers: { lines: z.union([answers.runCertificate, answers.certificate, answers.unproven]) },
    },
    async ({ request, reply }) => {
      const { run } = requests.read(requests.purgeRunParams, request.params, 'path');
      const signal = AbortSignal.any([stopping, clientGone(reply.raw)]);
      return sendLines(reply, await started(store.runCertificates(run, signal)), stopping);
    },
  );
}

/** Reads the first page before it returns the pages, so that a fault in the request is known before the answer begins. */
async function started<Row>(pages: AsyncGenerator<readonly Row[]>): Promise<AsyncGenerator<readonly Row[]>> {
  const first = await pages.next();
  return (async function* () {
    if (first.done === true) return;
    yield first.value;
    yield* pages;
  })();
}

function sendLines(reply: FastifyReply, pages: AsyncIterable<readonly unknown[]>, stopping: AbortSignal): FastifyReply {
  const open = () => Readable.from(linesOf(pages), { objectMode: false });
  return sendStream(reply, 'application/x-ndjson; charset=utf-8', open, stopping);
}

async function* linesOf(pages: AsyncIterable<readonly unknown[]>): AsyncGenerator<string> {
  for await (const rows of pages) yield* inChunks(rows.values().map((row) => `${JSON.stringify(row)}\n`));
}
