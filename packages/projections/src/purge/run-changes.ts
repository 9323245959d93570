import { unreachable } from '@epitaph/core/invariant.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { ReadModelChange } from '../read-model-store.ts';
import { isPurgeRunStream, readPurgeRunEvent } from './events.ts';

/** Keeps the runs that are under way, so that one which a crash has cut short is found and resumed. */
export function purgeRunChange(recorded: RecordedEvent): ReadModelChange | undefined {
  if (!isPurgeRunStream(recorded.stream)) return undefined;
  const event = readPurgeRunEvent(recorded);
  switch (event.type) {
    case 'PurgeRunStarted':
      return {
        kind: 'purge-run',
        stream: recorded.stream,
        state: {
          status: 'started',
          startedAtMs: recorded.occurredAtMs,
          upToPosition: event.data.upToPosition,
          effectiveNowMs: event.data.effectiveNowMs,
        },
      };
    case 'PurgeRunCompleted':
      return { kind: 'purge-run-completed', stream: recorded.stream };
    default:
      return unreachable(event);
  }
}
