import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { hasPseudonymousIds, isPartitionPseudonym } from '@epitaph/core/item/pseudonym.ts';
import type { RecordedHold } from '@epitaph/core/retention/hold-register.ts';
import { jsonText } from '@epitaph/query';
import type { HoldRequest } from '../store/api/retention-api.ts';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { answerList, readInParts } from './lists.ts';
import { answerLongWork } from './long-work.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';
import {
  containerOf,
  earlierContainersHeader,
  itemOf,
  keyOf,
  OF_CONTAINER,
  recordedContainer,
  route,
  sendJson,
} from './routing.ts';
import * as shapes from './shapes.ts';

/** Routes for what protects content from erasure, what erases it on request, and what recovers it. */
export function retentionRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  holdRoutes(scope, store);
  floorRoutes(scope, store);
  recoveryRoutes(scope, store, stopping);

  route(
    scope,
    {
      method: 'POST',
      url: `${OF_CONTAINER}/erase`,
      access: 'write',
      summary:
        'Erases every life of an item now, unless a hold or a retention floor forbids it. Request and refusal are recorded.',
      query: requests.ridQuery,
      body: requests.eraseBody,
      answers: { json: answers.erasure },
    },
    async ({ query: { rid }, body: { id, partitionKey, ...why }, request, caller }) => {
      const container = containerOf(store, request, rid);
      const item = itemOf(container, id, textOf(partitionKey));
      const outcome = await store.eraseItem(caller, container, id, item.key, why);
      return { container: shapes.containerName(container), ...item.shown, ...outcome };
    },
  );
}

function holdRoutes(scope: FastifyInstance, store: StoreApi): void {
  const ofHold = `${OF_CONTAINER}/holds/:hold`;
  const holdIn = (request: FastifyRequest): string => requests.read(requests.holdParams, request.params, 'path').hold;

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/holds`,
      access: 'audit',
      summary:
        'The legal holds of a container, also released ones, in the order in which they were placed. Without a limit, all of them.',
      query: requests.holdsQuery,
      answers: { json: answers.holds, headers: earlierContainersHeader },
    },
    async ({ query: { rid, limit, continuation }, request, reply }) => {
      const container = recordedContainer(store, request, reply, rid);
      const placeOf = ({ position }: RecordedHold): number => position;
      const read = (after = 0, most: number) => store.holds(container, { after, limit: most });
      return answerList(reply, limit, {
        head: { container: shapes.containerName(container) },
        name: 'holds',
        entries: readInParts(read, placeOf, { after: continuation, most: limit && limit + 1 }),
        placeOf,
        shapeOf: shapes.holdShape,
      });
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: ofHold,
      access: 'audit',
      summary: 'A legal hold, with everything that it names.',
      query: requests.ridQuery,
      answers: { json: answers.hold, headers: earlierContainersHeader },
    },
    async ({ query: { rid }, request, reply }) =>
      shapes.holdShape(await store.hold(recordedContainer(store, request, reply, rid), holdIn(request))),
  );

  route(
    scope,
    {
      method: 'PUT',
      url: ofHold,
      access: 'write',
      summary:
        'Places a legal hold: after the answer, nothing that it covers is erased. 200 if the hold existed already.',
      query: requests.ridQuery,
      body: requests.holdBody,
      answers: { json: answers.hold, otherwise: { status: 201, json: answers.hold } },
    },
    async ({ query: { rid }, body, request, reply, caller }) => {
      const container = containerOf(store, request, rid);
      const { hold, placed } = await store.placeHold(caller, container, holdIn(request), holdOf(container, body));
      void reply.code(placed ? 201 : 200);
      return shapes.holdShape(hold);
    },
  );

  route(
    scope,
    {
      method: 'DELETE',
      url: ofHold,
      access: 'write',
      summary: 'Releases a legal hold. It stays on record. The purge then erases at once what is due.',
      query: requests.ridQuery,
      body: requests.givenReasonBody,
      answers: { json: answers.hold },
    },
    async ({ query: { rid }, body: { reason }, request, caller }) => {
      const container = containerOf(store, request, rid);
      return shapes.holdShape(await store.releaseHold(caller, container, holdIn(request), reason));
    },
  );
}

function floorRoutes(scope: FastifyInstance, store: StoreApi): void {
  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/retention`,
      access: 'audit',
      summary: 'How long a container keeps content: its retention floor, its recovery window, its policy grace.',
      query: requests.ridQuery,
      answers: { json: answers.retention },
    },
    ({ query: { rid }, request }) => shapes.retentionShape(containerOf(store, request, rid)),
  );

  const setting = (name: string, summary: string, set: StoreApi['setRetentionFloor']): void =>
    route(
      scope,
      {
        method: 'PUT',
        url: `${OF_CONTAINER}/${name}`,
        access: 'write',
        summary,
        query: requests.ridQuery,
        body: requests.retentionBody,
        answers: { json: answers.retention },
      },
      async ({ query: { rid }, body: { seconds, reason }, request, caller }) => {
        const container = containerOf(store, request, rid);
        await set(caller, container, seconds, reason);
        return shapes.retentionShape(containerOf(store, request, container.rid));
      },
    );
  setting(
    'retention-floor',
    'Sets the retention floor: how long after the last write content is not erased. 0 for no floor.',
    (...args) => store.setRetentionFloor(...args),
  );
  setting(
    'recovery-window',
    'Sets the recovery window: how long after its end an item can be brought back. 0 for none.',
    (...args) => store.setRecoveryWindow(...args),
  );
}

function recoveryRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(
    scope,
    {
      method: 'POST',
      url: `${OF_CONTAINER}/recover`,
      access: 'write',
      summary:
        'Brings back an item that has ended but is not erased, or all items that expired when a policy took effect.',
      body: requests.recoverBody,
      answers: {
        json: answers.recovered.or(answers.recoveredPolicy),
        events: { progress: answers.recoveryProgress, done: answers.recoveredPolicy },
      },
    },
    async ({ body, request, reply, caller }) => {
      const container = containerOf(store, request, undefined);
      if ('id' in body) {
        const { id, partitionKey, ...how } = body;
        const item = itemOf(container, id, textOf(partitionKey));
        const recovered = await store.recoverItem(caller, container, id, item.key, how);
        return { container: shapes.containerName(container), ...item.shown, ...shapes.recoveredShape(recovered) };
      }
      const { policyVersion, reason } = body;
      // The recovery ends if the client disconnects. Asked for again, it continues.
      return answerLongWork(request, reply, stopping, async (follow) => {
        const summary = await store.recoverPolicy(caller, container, policyVersion, { reason, ...follow });
        return { container: shapes.containerName(container), policyVersion, ...summary };
      });
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/held-content`,
      access: 'write',
      summary:
        'The content of a life that has ended but is not erased: of the last one or of `life`, as of its last write or of `revision`. The call is recorded, with who made it and why.',
      query: requests.heldContentQuery,
      answers: { json: answers.content },
    },
    async ({ query: { id, partitionKey, rid, ...wanted }, request, reply, caller }) => {
      const container = containerOf(store, request, rid);
      const item = itemOf(container, id, partitionKey);
      const content = await store.heldContent(caller, container, id, item.key, wanted);
      const named = { container: shapes.containerName(container), ...item.shown };
      return sendJson(reply, shapes.contentText(named, content));
    },
  );
}

function holdOf(container: ContainerState, body: z.infer<typeof requests.holdBody>): HoldRequest {
  const { reason, ...given } = body;
  const { partitionKey, items, query } = given;
  if (Object.keys(given).length !== 1) {
    throw new Problem('bad-request', 'A hold names one of container (true), partitionKey, items or query.');
  }
  if (partitionKey !== undefined) {
    const text = textOf(partitionKey)!;
    const isNamed = hasPseudonymousIds(container.definition) && isPartitionPseudonym(text);
    return { reason, scope: { kind: 'partition-key', partitionKey: isNamed ? text : keyOf(container, text) } };
  }
  if (items !== undefined) {
    const named = items.map(({ id, partitionKey: of }) => ({
      id,
      partitionKey: itemOf(container, id, textOf(of)).key,
    }));
    return { reason, scope: { kind: 'items', items: named } };
  }
  if (query !== undefined) {
    return { reason, scope: { kind: 'query', sql: query.query, parameters: query.parameters ?? [] } };
  }
  return { reason, scope: { kind: 'container' } };
}

const textOf = (partitionKey: readonly unknown[] | string | undefined): string | undefined =>
  typeof partitionKey === 'object' ? jsonText(partitionKey) : partitionKey;
