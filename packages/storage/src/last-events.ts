import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { ReadModelStore } from '@epitaph/projections/read-model-store.ts';

/** The largest number of events that are used to check keys. */
const JUDGED_EVENTS = 3_000;

/**
 * Reads some of the last events of a log, without bodies, to check whether keys belong to the log. A log on a server is read from
 * positions that the read models have recorded: from the last mark but one on.
 */
export async function lastEvents(
  log: EventLog,
  store: Pick<ReadModelStore, 'lastLogMark' | 'logMarkBefore'>,
): Promise<RecordedEvent[]> {
  const mark = await store.lastLogMark();
  const after = mark === undefined ? 0 : await store.logMarkBefore(mark.atMs);
  return log.readAll(after, JUDGED_EVENTS, { withBodies: false, mayBeTruncated: true });
}
