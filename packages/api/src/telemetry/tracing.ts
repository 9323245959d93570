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

/**
 * Begins to trace, to whatever provider is registered with `@opentelemetry/api`. Until then each {@link traced} costs
 * one comparison.
 */
export function enableTracing(): void {
  tracer = trace.getTracer('epitaph');
}

export function disableTracing(): void {
  tracer = undefined;
}

/**
 * A span around some work. Attributes are counts, kinds and names of containers: never an id, a key or content, nor
 * the message of an error, which may hold them.
 */
export function traced<Result>(name: string, attributes: Attributes, work: () => Promise<Result>): Promise<Result> {
  return tracer === undefined ? work() : within(tracer, name, { kind: SpanKind.INTERNAL, attributes }, work);
}

/** The same around a request, as a part of the trace that its `traceparent` header names. */
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

/** The code of an expected "no", otherwise the error's class. */
function errorType(error: unknown): string {
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'unknown';
}
