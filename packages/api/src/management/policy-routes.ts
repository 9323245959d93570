import type { FastifyInstance } from 'fastify';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { answerList } from './lists.ts';
import * as requests from './requests.ts';
import { containerOf, earlierContainersHeader, OF_CONTAINER, recordedContainer, route } from './routing.ts';
import * as shapes from './shapes.ts';

/** A container's TTL policies: reading them, previewing a change, and changing them. */
export function policyRoutes(scope: FastifyInstance, store: StoreApi): void {
  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/ttl`,
      access: 'audit',
      summary: 'The TTL policies of a container: in force, scheduled, past. With a limit, a page of the past ones.',
      query: requests.policiesQuery,
      answers: { json: answers.policies, headers: earlierContainersHeader },
    },
    ({ query: { rid, limit, continuation = 0 }, request, reply }) => {
      const { past, ...head } = shapes.policiesShape(recordedContainer(store, request, reply, rid), store.nowMs());
      return answerList(reply, limit, {
        head,
        name: 'past',
        entries: past.filter(({ version }) => version > continuation),
        placeOf: ({ version }) => version,
        shapeOf: (policy) => policy,
      });
    },
  );

  route(
    scope,
    {
      method: 'POST',
      url: `${OF_CONTAINER}/ttl/preview`,
      access: 'read',
      summary: 'What a TTL policy would do with the items that the container has now. Changes nothing.',
      body: requests.previewBody,
      answers: { json: answers.preview },
    },
    async ({ body: { defaultTtl, effectiveFrom }, request }) => {
      const container = containerOf(store, request, undefined);
      const preview = await store.previewTtl(container, { defaultTtl, effectiveFromMs: effectiveFrom });
      return shapes.previewShape(preview, container);
    },
  );

  route(
    scope,
    {
      method: 'PUT',
      url: `${OF_CONTAINER}/ttl`,
      access: 'write',
      summary: 'Changes the TTL policy of a container, now or from an instant on.',
      body: requests.ttlBody,
      answers: { json: answers.policies },
    },
    async ({ body: { defaultTtl, effectiveFrom, confirm, reason }, request, caller }) => {
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      const changed = await store.changeTtl(caller, database, container, {
        defaultTtl,
        effectiveFromMs: effectiveFrom,
        confirmed: confirm ?? false,
        reason,
      });
      return shapes.changedPoliciesShape(changed, store.nowMs());
    },
  );

  route(
    scope,
    {
      method: 'DELETE',
      url: `${OF_CONTAINER}/ttl/scheduled`,
      access: 'write',
      summary: 'Withdraws the scheduled change of the TTL policy.',
      body: requests.reasonBody.optional(),
      answers: { json: answers.policies },
    },
    async ({ body, request, caller }) => {
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      const changed = await store.withdrawTtl(caller, database, container, body?.reason);
      return shapes.changedPoliciesShape(changed, store.nowMs());
    },
  );

  route(
    scope,
    {
      method: 'PUT',
      url: `${OF_CONTAINER}/ttl/brake`,
      access: 'write',
      summary: 'Sets how many items a TTL change may make expire at once without confirmation.',
      body: requests.brakeBody,
      answers: { json: answers.policies },
    },
    async ({ body: { maxItems, maxShare, reason }, request, caller }) => {
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      const brake =
        maxItems === undefined && maxShare === undefined
          ? null
          : { ...(maxItems === undefined ? {} : { maxItems }), ...(maxShare === undefined ? {} : { maxShare }) };
      const changed = await store.setTtlBrake(caller, database, container, brake, reason);
      return shapes.changedPoliciesShape(changed, store.nowMs());
    },
  );

  route(
    scope,
    {
      method: 'PUT',
      url: `${OF_CONTAINER}/policy-grace`,
      access: 'write',
      summary: 'Sets how long the content of items that expired by a policy change is kept.',
      body: requests.policyGraceBody,
      answers: { json: answers.policyGrace },
    },
    async ({ body: { seconds, reason }, request, caller }) => {
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      const changed = await store.setPolicyGrace(caller, database, container, seconds, reason);
      return { container: shapes.containerName(changed), policyGraceSeconds: changed.policyGraceSeconds };
    },
  );
}
