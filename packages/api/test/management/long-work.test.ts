import Fastify from 'fastify';
import { expect, test } from 'vitest';
import { answerLongWork, type Follow } from '@epitaph/api/management/long-work.ts';
import { sendProblem } from '@epitaph/api/management/send-problem.ts';
import { eventsIn } from './world.ts';

/** A server with one long operation, and its log. */
function serverOf(work: (follow: Follow) => Promise<unknown>) {
  const logged: string[] = [];
  const stopping = new AbortController();
  const app = Fastify({ logger: { level: 'error', stream: { write: (line: string) => logged.push(line) } } });
  app.setErrorHandler((error, request, reply) => sendProblem(request, reply, error));
  app.post('/job', (request, reply) =>
    answerLongWork(request, reply, stopping.signal, (follow) => work(follow).then((result) => ({ result }))),
  );
  const ask = async (accept: string) => {
    const { payload } = await app.inject({ method: 'POST', url: '/job', headers: { accept } });
    return accept === 'text/event-stream' ? eventsIn(payload).at(-1)!.data : (JSON.parse(payload) as unknown);
  };
  return { app, ask, logged, stopping };
}

const ways = ['application/json', 'text/event-stream'];

test.each(ways)(
  'a defect in a long operation is logged in full, and the client is told where to look (%s)',
  async (accept) => {
    const { ask, logged } = serverOf(() => Promise.reject(new TypeError('x is not a function')));
    const problem = await ask(accept);
    expect(problem).toMatchObject({ code: 'internal', status: 500 });
    expect(JSON.stringify(problem)).not.toContain('x is not');
    expect(logged.join()).toContain('x is not a function');
    const { instance } = problem as { readonly instance: string };
    expect(logged.join()).toContain(instance.replace('urn:uuid:', ''));
  },
);

test.each(ways)(
  'a long operation interrupted by a stopping server is not reported as a fault of the request (%s)',
  async (accept) => {
    const { ask, logged, stopping } = serverOf(({ signal }) => {
      stopping.abort();
      return Promise.reject(signal.reason as Error);
    });
    expect(await ask(accept)).toMatchObject({ code: 'busy', status: 503 });
    expect(logged).toEqual([]);
  },
);

test.each(ways)('a client that leaves cancels the operation (%s)', async (accept) => {
  const started = Promise.withResolvers<AbortSignal>();
  const { app, logged } = serverOf(({ onProgress, signal }) => {
    onProgress?.({ done: 1, total: 2 });
    started.resolve(signal);
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
  });
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  const client = new AbortController();
  const asked = fetch(`${address}/job`, { method: 'POST', headers: { accept }, signal: client.signal });
  asked.catch(() => {});
  const signal = await started.promise;
  expect(signal.aborted).toBe(false);
  client.abort();
  await expect.poll(() => signal.aborted).toBe(true);
  await app.close();
  expect(logged).toEqual([]);
});
