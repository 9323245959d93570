import { Pace } from '../turn.ts';
import type { EventLog } from './event-log.ts';
import type { RecordedEvent } from './recorded-event.ts';

/** One event of a container may name ten thousand lives. */
const PAGE_EVENTS = 32;

/**
 * A stream that is never truncated from its beginning, a few events at a time: a container's has more each year, and who
 * looks for something in it holds up nobody.
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
    // A page is short at the end, and where the log has lost events: what is behind these is there all the same.
    if (events.length < PAGE_EVENTS && ((await log.readLast(stream))?.revision ?? -1) <= toRevision) return;
    await pace.step();
  }
}
