import { context, propagation, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { wait } from '../wait.ts';
import { disableTracing, enableTracing } from './tracing.ts';

/** Milliseconds that the last spans may take: a store that stops does not wait for a collector that is gone. */
const LAST_SPANS_MS = 2_000;

/**
 * Sends traces to a collector by OTLP over HTTP. Endpoint, headers, sampling and the rest are the standard variables'
 * (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, …).
 *
 * Loaded only where it is used: nobody else should wait for it.
 *
 * @param options.url of the collector's traces, where it is not told by variables
 * @param options.onFault told when spans could not be sent and are lost; once, until some could be again
 * @returns what sends the last spans and ends
 */
export function exportTraces({
  url,
  onFault,
}: {
  readonly url?: string | undefined;
  readonly onFault: (error: Error) => void;
}): () => Promise<void> {
  const exporter = new OTLPTraceExporter(url === undefined ? {} : { url });
  const send = exporter.export.bind(exporter);
  let isFailing = false;
  exporter.export = (spans, done) =>
    send(spans, (result) => {
      const { error } = result;
      if (error !== undefined && !isFailing) onFault(error);
      isFailing = error !== undefined;
      done(result);
    });
  const provider = new NodeTracerProvider({
    resource: resourceFromAttributes({ 'service.name': process.env['OTEL_SERVICE_NAME'] ?? 'epitaph' }),
    spanProcessors: [new BatchSpanProcessor(exporter)],
  });
  provider.register();
  enableTracing();
  return async () => {
    disableTracing();
    // What it fails with was told.
    await Promise.race([provider.shutdown().catch(() => {}), wait(LAST_SPANS_MS)]);
    for (const api of [trace, context, propagation]) api.disable();
  };
}
