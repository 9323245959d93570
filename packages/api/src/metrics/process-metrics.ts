import { monitorEventLoopDelay } from 'node:perf_hooks';
import { systemClocks } from '@epitaph/core/clock.ts';
import type { MetricsText } from './text-format.ts';

/** Approximate: this module is loaded at the start of the program. */
const startedAtSeconds = systemClocks.wallMs() / 1000;
/** The interval between two samples of the event loop, in milliseconds. Each measured delay includes it, so it is subtracted. */
const LOOP_RESOLUTION_MS = 20;
let loopDelay: ReturnType<typeof monitorEventLoopDelay> | undefined;

/** Metrics of the process, under the names that exporters commonly use. The event loop is watched from the first call on. */
export function writeProcessMetrics(text: MetricsText): void {
  if (loopDelay === undefined) {
    loopDelay = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
    loopDelay.enable();
  }
  const { user, system } = process.cpuUsage();
  text.gauge('process_start_time_seconds', 'When the process started, Unix time.', startedAtSeconds);
  text.counter('process_cpu_seconds_total', 'CPU time that was used.', (user + system) / 1e6);
  text.gauge('process_resident_memory_bytes', 'Resident memory of the process.', process.memoryUsage.rss());
  const delay = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e9 - LOOP_RESOLUTION_MS / 1000);
  const since = 'since the metrics were last read.';
  text.gauge(
    'nodejs_eventloop_lag_p50_seconds',
    `Delay of the event loop, median ${since}`,
    delay(loopDelay.percentile(50)),
  );
  text.gauge(
    'nodejs_eventloop_lag_p99_seconds',
    `Delay of the event loop, 99th percentile ${since}`,
    delay(loopDelay.percentile(99)),
  );
  text.gauge('nodejs_eventloop_lag_max_seconds', `Delay of the event loop, maximum ${since}`, delay(loopDelay.max));
  loopDelay.reset();
}
