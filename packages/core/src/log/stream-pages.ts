import { Pace } from '../turn.ts';
import type { EventLog } from './event-log.ts';
import type { RecordedEvent } from './recorded-event.ts';

/** Events in a page. Few, because one event of a container may name ten thousand lives. */
const PAGE_EVENTS = 32;

/**
 * Reads a stream that is never truncated from its beginning, a few events at a time. A container's stream grows each
 * year, and a search in it must not hold up other work.
 */
export async function* streamPages(
  log: Pick<EventLog, 'readStream' | 'readLast'>,
  stream: string,
  signal?: AbortSignal,
): AsyncGenerator<readonly RecordedEvent[]> {
  const pace = new Pace();
  for (let fromRevision = 0; ; fromRevision += PAGE_EVENTS) {
    signal?.throwIfAborted();
    const toRevision = fromRevision + PAGE_EVENTS - 1;
    const events = await log.readStream(stream, { fromRevision, toRevision });
    if (events.length > 0) yield events;
    // A page is also short where the log has lost events, so the stream's end is looked up before the reading stops.
    if (events.length < PAGE_EVENTS && ((await log.readLast(stream))?.revision ?? -1) <= toRevision) return;
    await pace.step();
  }
}
