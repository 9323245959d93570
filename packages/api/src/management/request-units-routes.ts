import type { FastifyInstance } from 'fastify';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { containerOf, OF_CONTAINER, route } from './routing.ts';
import * as shapes from './shapes.ts';

/** The request units that a container may spend, and those that were spent in it. */
export function requestUnitsRoutes(scope: FastifyInstance, store: StoreApi): void {
  route(
    scope,
    {
      method: 'GET',
      url: `${OF_CONTAINER}/request-units`,
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
