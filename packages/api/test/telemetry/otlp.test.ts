import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { exportTraces } from '@epitaph/api/telemetry/otlp.ts';
import { traced } from '@epitaph/api/telemetry/tracing.ts';

test('spans reach a collector by OTLP over HTTP, the last ones when the store ends', async () => {
  const received: { readonly url: string | undefined; readonly body: string }[] = [];
  const collector = createServer((request: IncomingMessage, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      received.push({ url: request.url, body: Buffer.concat(chunks).toString('utf8') });
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  }).listen(0, '127.0.0.1');
  await once(collector, 'listening');
  const end = exportTraces(`http://127.0.0.1:${(collector.address() as AddressInfo).port}/v1/traces`);
  try {
    expect(await traced('epitaph.read', { 'epitaph.events': 1 }, async () => 'done')).toBe('done');
  } finally {
    await end();
    collector.close();
  }
  await traced('after the end', {}, async () => {});
  expect(received.map(({ url }) => url)).toEqual(['/v1/traces']);
  expect(received[0]!.body).toContain('epitaph.read');
});
