import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { type EventOf, parseEvent, versionsOf } from '@epitaph/core/upcast.ts';
import { z } from 'zod';

export const purgeRunStartedSchema = z.object({
  /** Only what was in the log up to this position is a candidate. */
  upToPosition: z.int(),
  /** The time by which candidates are overdue, in milliseconds. */
  effectiveNowMs: z.int(),
});
export const purgeRunCompletedSchema = z.object({ expired: z.int(), purged: z.int(), heldBack: z.int() });

const runSchemas = { PurgeRunStarted: purgeRunStartedSchema, PurgeRunCompleted: purgeRunCompletedSchema };

/** The events in the stream of one purge run. */
export type PurgeRunEvent = EventOf<typeof runSchemas>;

/** Contains `PurgePaused` and `PurgeResumed`, which only say that an operator has paused or resumed the purge. */
export const PURGE_CONTROL_STREAM = 'purge-control';
const RUN_PREFIX = 'purge-run-';

export const purgeRunStream = (runId: string): string => `${RUN_PREFIX}${runId}`;
export const isPurgeRunStream = (stream: string): boolean => stream.startsWith(RUN_PREFIX);

export const purgeEventVersions = { ...versionsOf(runSchemas), PurgePaused: 1, PurgeResumed: 1 };

export function readPurgeRunEvent(event: RecordedEvent): PurgeRunEvent {
  return parseEvent(event, runSchemas, purgeEventVersions);
}
