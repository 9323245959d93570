import type { FastifyInstance } from 'fastify';
import { logUnavailable } from '../http/log-unavailable.ts';
import { metricsText } from '../metrics/metrics.ts';
import type { StoreApi } from '../store/store-api.ts';
import { route } from './routing.ts';

/** The version of Prometheus' text format is part of the media type. */
const TEXT_FORMAT = 'text/plain; version=0.0.4; charset=utf-8';

export function metricsRoutes(scope: FastifyInstance, store: StoreApi): void {
  // Scrapes at the same time share one answer, because counting some of the metrics reads the read models.
  let underWay: Promise<string> | undefined;
  route(
    scope,
    {
      method: 'GET',
      url: '/metrics',
      access: 'audit',
      summary: 'Metrics in the text format of Prometheus.',
      answers: { files: ['text/plain'] },
    },
    async ({ request, reply }) => {
      underWay ??= metricsText(store, (error) => logUnavailable(request.log, error)).finally(
        () => (underWay = undefined),
      );
      return reply.type(TEXT_FORMAT).send(await underWay);
    },
  );
}
