import { context, propagation, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { disableTracing, enableTracing } from '@epitaph/api/telemetry/tracing.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { item, openWorld, ORDERS, type World } from '../management/world.ts';

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
let world: World;
beforeAll(async () => {
  provider.register();
  world = await openWorld();
});
afterAll(async () => {
  disableTracing();
  await world.close();
  await provider.shutdown();
  for (const api of [trace, context, propagation]) api.disable();
});

test('nothing is traced without a collector', async () => {
  await world.write('untraced');
  expect(exporter.getFinishedSpans()).toEqual([]);
});

test('a request, its append, the projection and the purge have spans that name no item', async () => {
  enableTracing();
  const traceId = '0af7651916cd43dd8448eb211c80319c';
  const response = await world.app.inject({
    method: 'PUT',
    url: `/_epitaph${ORDERS}/policy-grace`,
    headers: { authorization: `Bearer ${EMULATOR_KEY}`, traceparent: `00-${traceId}-b7ad6b7169203331-01` },
    payload: '{"seconds":0}',
  });
  expect(response.statusCode).toBe(200);
  await world.write('a-telling-id', { secret: 'a-telling-content' });
  await world.ask('GET', `${ORDERS}/explain${item('a-telling-id')}`);
  await world.ask('GET', `${ORDERS}/explain?id=a-telling-id`);
  await world.store.advanceClock(90_000);
  await world.ask('POST', '/purge/run');

  const spans = exporter.getFinishedSpans();
  const named = (name: string) => spans.filter((span) => span.name === name);
  const [request] = named('PUT /dbs/:database/colls/:container/policy-grace');
  expect(request!.spanContext().traceId).toBe(traceId);
  const inRequest = named('epitaph.append').filter((span) => span.spanContext().traceId === traceId);
  expect(inRequest.map((span) => span.parentSpanContext?.spanId)).toEqual([request!.spanContext().spanId]);
  const [upsert] = named('epitaph.upsert');
  expect(
    named('epitaph.append').filter((span) => span.parentSpanContext?.spanId === upsert!.spanContext().spanId),
  ).toHaveLength(1);
  for (const name of ['epitaph.project', 'epitaph.purge.record', 'epitaph.purge.erase', 'epitaph.explain']) {
    expect([name, named(name).length > 0]).toEqual([name, true]);
  }
  const refused = spans.filter((span) => span.attributes['error.type'] === 'bad-request');
  expect(refused.map((span) => span.name)).toEqual(['GET /dbs/:database/colls/:container/explain']);
  const said = JSON.stringify(
    spans.map(({ name, attributes, events, status }) => ({ name, attributes, events, status })),
  );
  expect(said).not.toMatch(/telling|ann/);
});
