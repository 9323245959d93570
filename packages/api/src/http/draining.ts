import type { ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';

/**
 * The time between a signal to stop and the end of listening. Requests are answered as ever, but readiness says no, so
 * that a balancer sends no more of them, and each connection ends with its answer, so that who holds one open turns
 * to another node instead of meeting a closed port in the middle of a request.
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
    // Before all hooks, of which the first that refuses a request is the last that it meets.
    app.server.prependListener('request', (_request, response: ServerResponse) => {
      if (this.#begun) response.setHeader('connection', 'close');
    });
  }
}
