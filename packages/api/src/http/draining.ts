import type { ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';

/**
 * The time between a signal to stop and the end of listening. Requests are still answered, but readiness is false, so
 * that a load balancer sends no more of them. And each connection ends with its answer, so that a client with an open
 * connection changes to another node and does not find a closed port in the middle of a request.
 */
export class Draining {
  #begun = false;

  get begun(): boolean {
    return this.#begun;
  }

  begin(): void {
    this.#begun = true;
  }

  register(app: FastifyInstance): void {
    // Comes before all hooks: once a hook refuses a request, the later ones are not called.
    app.server.prependListener('request', (_request, response: ServerResponse) => {
      if (this.#begun) response.setHeader('connection', 'close');
    });
  }
}
