import { unreachable } from '@epitaph/core/invariant.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { ReadModelChange } from '../read-model-store.ts';
import { isPurgeRunStream, readPurgeRunEvent } from './events.ts';

/**
 * The read models keep the positions of runs in the log, to list them, and the candidates of open runs, so that a run
 * that was interrupted by a crash can be resumed.
 */
export function purgeRunChange(recorded: RecordedEvent): ReadModelChange | undefined {
  if (!isPurgeRunStream(recorded.stream)) return undefined;
  const event = readPurgeRunEvent(recorded);
  switch (event.type) {
    case 'PurgeRunStarted':
      return {
        kind: 'purge-run',
        stream: recorded.stream,
        position: recorded.position,
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
