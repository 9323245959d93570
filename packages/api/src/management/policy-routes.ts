import type { FastifyInstance } from 'fastify';
import type { StoreApi } from '../store/store-api.ts';
import * as requests from './requests.ts';
import { containerOf, OF_CONTAINER, route } from './routing.ts';
import * as shapes from './shapes.ts';

/** A container's TTL policies: what is on record, what a change would do, and the changes. */
export function policyRoutes(scope: FastifyInstance, store: StoreApi): void {
  route(scope, 'GET', `${OF_CONTAINER}/ttl`, 'audit', (request) => {
    const { rid } = requests.read(requests.ridQuery, request.query, 'query');
    return shapes.policiesShape(containerOf(store, request, rid), store.nowMs());
  });

  route(
    scope,
    'POST',
    `${OF_CONTAINER}/ttl/preview`,
    'read',
    async (request) => {
      const { defaultTtl, effectiveFrom } = requests.read(requests.previewBody, request.body, 'body');
      const container = containerOf(store, request, undefined);
      const preview = await store.previewTtl(container, { defaultTtl, effectiveFromMs: effectiveFrom });
      return shapes.previewShape(preview, container);
    },
    { body: true },
  );

  route(
    scope,
    'PUT',
    `${OF_CONTAINER}/ttl`,
    'write',
    async (request, _reply, caller) => {
      const { defaultTtl, effectiveFrom, confirm, reason } = requests.read(requests.ttlBody, request.body, 'body');
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      const changed = await store.changeTtl(caller, database, container, {
        defaultTtl,
        effectiveFromMs: effectiveFrom,
        confirmed: confirm ?? false,
        reason,
      });
      return shapes.policiesShape(changed, store.nowMs());
    },
    { body: true },
  );

  route(
    scope,
    'DELETE',
    `${OF_CONTAINER}/ttl/scheduled`,
    'write',
    async (request, _reply, caller) => {
      const { reason } = requests.read(requests.reasonBody, request.body ?? {}, 'body');
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      return shapes.policiesShape(await store.withdrawTtl(caller, database, container, reason), store.nowMs());
    },
    { body: true },
  );

  route(
    scope,
    'PUT',
    `${OF_CONTAINER}/ttl/brake`,
    'write',
    async (request, _reply, caller) => {
      const { maxItems, maxShare, reason } = requests.read(requests.brakeBody, request.body, 'body');
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      const brake =
        maxItems === undefined && maxShare === undefined
          ? null
          : { ...(maxItems === undefined ? {} : { maxItems }), ...(maxShare === undefined ? {} : { maxShare }) };
      return shapes.policiesShape(await store.setTtlBrake(caller, database, container, brake, reason), store.nowMs());
    },
    { body: true },
  );

  route(
    scope,
    'PUT',
    `${OF_CONTAINER}/policy-grace`,
    'write',
    async (request, _reply, caller) => {
      const { seconds, reason } = requests.read(requests.policyGraceBody, request.body, 'body');
      const { database, container } = requests.read(requests.containerParams, request.params, 'path');
      const changed = await store.setPolicyGrace(caller, database, container, seconds, reason);
      return { container: shapes.containerName(changed), policyGraceSeconds: changed.policyGraceSeconds };
    },
    { body: true },
  );
}
