import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { disableTracing, enableTracing } from './tracing.ts';

/**
 * Sends traces to a collector by OTLP over HTTP. Endpoint, headers, sampling and the rest are the standard variables'
 * (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, …).
 *
 * Loaded only where it is used: nobody else should wait for it.
 *
 * @param url of the collector's traces, where it is not told by variables
 * @returns what sends the last spans and ends
 */
export function exportTraces(url?: string): () => Promise<void> {
  const provider = new NodeTracerProvider({
    resource: resourceFromAttributes({ 'service.name': process.env['OTEL_SERVICE_NAME'] ?? 'epitaph' }),
    spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter(url === undefined ? {} : { url }))],
  });
  provider.register();
  enableTracing();
  return async () => {
    disableTracing();
    await provider.shutdown();
  };
}
