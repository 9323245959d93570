import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { ReadModelStore } from '@epitaph/projections/read-model-store.ts';

/** The most events by which keys are judged. */
const JUDGED_EVENTS = 3_000;

/**
 * Some of the last events of a log, by which it is judged whether keys go with it; without bodies. A log on a server is
 * read from places that the read models have noted: what they have seen since the last but one, and what came then.
 */
export async function lastEvents(
  log: EventLog,
  store: Pick<ReadModelStore, 'lastLogMark' | 'logMarkBefore'>,
): Promise<RecordedEvent[]> {
  const mark = await store.lastLogMark();
  const after = mark === undefined ? 0 : await store.logMarkBefore(mark.atMs);
  return log.readAll(after, JUDGED_EVENTS, { withBodies: false, mayBeTruncated: true });
}
