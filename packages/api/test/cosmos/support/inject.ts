import type { FastifyInstance } from 'fastify';
import lightMyRequest, { type InjectOptions, type Response } from 'light-my-request';

/** Hands a request to a server as if it had come over a connection; the framework's own way reaches the management plane alone. */
export async function inject(app: FastifyInstance, options: InjectOptions): Promise<Response> {
  await app.ready();
  return lightMyRequest((request, response) => app.server.emit('request', request, response), options);
}
