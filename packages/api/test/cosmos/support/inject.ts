import type { FastifyInstance } from 'fastify';
import lightMyRequest, { type InjectOptions, type Response } from 'light-my-request';

/** Passes a request to a server as if it had come over a connection. The framework's own way reaches only the management plane. */
export async function inject(app: FastifyInstance, options: InjectOptions): Promise<Response> {
  await app.ready();
  return lightMyRequest((request, response) => app.server.emit('request', request, response), options);
}
