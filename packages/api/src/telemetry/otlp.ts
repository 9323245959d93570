import { context, propagation, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { wait } from '../wait.ts';
import { disableTracing, enableTracing } from './tracing.ts';

/** Milliseconds to send the last spans. A store that stops does not wait longer for a collector that is gone. */
const LAST_SPANS_MS = 2_000;

/**
 * Sends traces to a collector by OTLP over HTTP. Endpoint, headers, sampling and so on are configured by the standard variables
 * (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, …).
 *
 * This module is imported only if it is used, so that other processes don't wait for it to load.
 *
 * @param options.url the collector's URL for traces, if the variables don't give it
 * @param options.onFault called when spans could not be sent and are lost; called again only after spans could be sent in between
 * @returns a function that sends the last spans and stops tracing
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
    // Failures were passed to `onFault` already.
    await Promise.race([provider.shutdown().catch(() => {}), wait(LAST_SPANS_MS)]);
    for (const api of [trace, context, propagation]) api.disable();
  };
}
