import {
  context,
  propagation,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type Tracer,
} from '@opentelemetry/api';
import type { IncomingHttpHeaders } from 'node:http';

let tracer: Tracer | undefined;

/** Starts tracing, to the provider that is registered with `@opentelemetry/api`. Until then each {@link traced} costs one comparison. */
export function enableTracing(): void {
  tracer = trace.getTracer('epitaph');
}

export function disableTracing(): void {
  tracer = undefined;
}

/**
 * Runs work within a span. Attributes are counts, kinds and names of containers. They are never an id, a key, content or an error's
 * message, which may contain those.
 */
export function traced<Result>(name: string, attributes: Attributes, work: () => Promise<Result>): Promise<Result> {
  return tracer === undefined ? work() : within(tracer, name, { kind: SpanKind.INTERNAL, attributes }, work);
}

/** Runs the work of a request within a span, as part of the trace that the request's `traceparent` header names. */
export function tracedRequest<Result>(
  name: string,
  headers: IncomingHttpHeaders,
  attributes: Attributes,
  work: () => Promise<Result>,
): Promise<Result> {
  if (tracer === undefined) return work();
  const active = tracer;
  return context.with(propagation.extract(context.active(), headers), () =>
    within(active, name, { kind: SpanKind.SERVER, attributes }, work),
  );
}

function within<Result>(
  active: Tracer,
  name: string,
  options: { readonly kind: SpanKind; readonly attributes: Attributes },
  work: () => Promise<Result>,
): Promise<Result> {
  return active.startActiveSpan(name, options, async (span) => {
    try {
      return await work();
    } catch (error) {
      span.setStatus({ code: SpanStatusCode.ERROR });
      span.setAttribute('error.type', errorType(error));
      throw error;
    } finally {
      span.end();
    }
  });
}

/** The code of an expected refusal, otherwise the class of the error. */
function errorType(error: unknown): string {
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'unknown';
}
