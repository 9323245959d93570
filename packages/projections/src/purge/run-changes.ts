import { unreachable } from '@epitaph/core/invariant.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { ReadModelChange } from '../read-model-store.ts';
import { isPurgeRunStream, readPurgeRunEvent } from './events.ts';

/**
 * Keeps where runs are in the log, so that they can be listed, and what those under way set out to do, so that one which a
 * crash has cut short is resumed.
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
