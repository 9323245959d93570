import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { Histogram, Measurements, OperationKind } from '../metrics/measurements.ts';
import { traced } from '../telemetry/tracing.ts';

/** Measures and traces what a store does, at the place where it does it. */
export class Observer {
  readonly #measurements: Measurements;
  readonly #monotonicMs: () => number;

  constructor(measurements: Measurements, monotonicMs: () => number) {
    this.#measurements = measurements;
    this.#monotonicMs = monotonicMs;
  }

  operation<Result>(kind: OperationKind, work: () => Promise<Result>): Promise<Result> {
    return traced(`epitaph.${kind}`, {}, () => this.#timed(this.#measurements.operations[kind], work));
  }

  apply(events: number, apply: () => Promise<void>): Promise<void> {
    this.#measurements.projectedEvents += events;
    return traced('epitaph.project', { 'epitaph.events': events }, () =>
      this.#timed(this.#measurements.applies, apply),
    );
  }

  purgeStep<Result>(step: 'record' | 'erase', work: () => Promise<Result>): Promise<Result> {
    return traced(`epitaph.purge.${step}`, {}, () => this.#timed(this.#measurements.purgeSteps[step], work));
  }

  /** The same log with its appends measured. */
  log(log: EventLog): EventLog {
    const measurements = this.#measurements;
    const append: EventLog['append'] = (appends, options) =>
      traced('epitaph.append', { 'epitaph.streams': appends.length }, () =>
        this.#timed(measurements.appends, async () => {
          try {
            const result = await log.append(appends, options);
            if (result.kind === 'conflict') measurements.appendConflicts += 1;
            return result;
          } catch (error) {
            measurements.appendFaults += 1;
            throw error;
          }
        }),
      );
    return {
      spansStreams: log.spansStreams,
      mayAppendLate: log.mayAppendLate,
      append,
      readStream: (stream, options) => log.readStream(stream, options),
      readLast: (stream) => log.readLast(stream),
      ...(log.hasLostEnd === undefined ? {} : { hasLostEnd: (stream: string) => log.hasLostEnd!(stream) }),
      ...(log.lostEnds === undefined ? {} : { lostEnds: (after: number) => log.lostEnds!(after) }),
      readBefore: (event) => log.readBefore(event),
      readAt: (position) => log.readAt(position),
      readBody: (position) => log.readBody(position),
      readAll: (afterPosition, maxCount, options) => log.readAll(afterPosition, maxCount, options),
      scan: (afterPosition, maxCount, streamPrefix, options) =>
        log.scan(afterPosition, maxCount, streamPrefix, options),
      ...(log.findStream === undefined ? {} : { findStream: (prefix: string) => log.findStream!(prefix) }),
      head: () => log.head(),
      get knownHead() {
        return log.knownHead;
      },
      subscribe: (afterPosition, listener, options) => log.subscribe(afterPosition, listener, options),
      truncateStream: (stream, beforeRevision) => log.truncateStream(stream, beforeRevision),
      scavenging: log.scavenging,
      positionsPerEvent: log.positionsPerEvent,
      close: () => log.close(),
    };
  }

  async #timed<Result>(histogram: Histogram, work: () => Promise<Result>): Promise<Result> {
    const startedMs = this.#monotonicMs();
    try {
      return await work();
    } finally {
      histogram.observe(this.#monotonicMs() - startedMs);
    }
  }
}
