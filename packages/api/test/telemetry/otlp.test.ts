import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { exportTraces } from '@epitaph/api/telemetry/otlp.ts';
import { traced } from '@epitaph/api/telemetry/tracing.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  vi.unstubAllEnvs();
});

/** A collector that answers with a status, or not at all. */
async function collector(status: () => number | undefined) {
  const received: { readonly url: string | undefined; readonly body: string }[] = [];
  const server = createServer((request: IncomingMessage, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      received.push({ url: request.url, body: Buffer.concat(chunks).toString('utf8') });
      const code = status();
      if (code !== undefined) response.writeHead(code, { 'content-type': 'application/json' }).end('{}');
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  ends.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { received, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/traces` };
}

test('spans reach a collector by OTLP over HTTP, the last ones when the store stops', async () => {
  const onFault = vi.fn();
  const { received, url } = await collector(() => 200);
  const end = exportTraces({ url, onFault });
  expect(await traced('epitaph.read', { 'epitaph.events': 1 }, async () => 'done')).toBe('done');
  await end();
  await traced('after the end', {}, async () => {});
  expect(received.map((request) => request.url)).toEqual(['/v1/traces']);
  expect(received[0]!.body).toContain('epitaph.read');
  expect(onFault).not.toHaveBeenCalled();
});

test('spans that a collector refuses are reported once, until it accepts some again', async () => {
  vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '1');
  const onFault = vi.fn();
  let status = 404;
  const { received, url } = await collector(() => status);
  ends.push(exportTraces({ url, onFault }));
  for (const [answer, faults] of [
    [404, 1],
    [404, 1],
    [200, 1],
    [404, 2],
  ] as const) {
    status = answer;
    const before = received.length;
    await traced('epitaph.read', {}, async () => {});
    await vi.waitFor(() => expect(received.length).toBe(before + 1));
    await vi.waitFor(() => expect(onFault).toHaveBeenCalledTimes(faults));
  }
});

test('a store that stops does not wait for a collector that does not answer', async () => {
  const { received, url } = await collector(() => undefined);
  const end = exportTraces({ url, onFault: () => {} });
  await traced('epitaph.read', {}, async () => {});
  const startedMs = performance.now();
  await end();
  expect(received.length).toBe(1);
  expect(performance.now() - startedMs).toBeLessThan(5_000);
});
