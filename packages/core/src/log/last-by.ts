import type { EventLog } from './event-log.ts';
import type { RecordedEvent } from './recorded-event.ts';

/**
 * The last event of a stream, up to a revision, that fulfils a condition. The condition must be true of all events
 * before one of which it is true, so that a binary search finds the event: a long stream costs little more than a short
 * one.
 *
 * @returns the event without its body; undefined if no event fulfils the condition, 'truncated' if the stream lacks
 *   events
 */
export async function lastBy(
  log: Pick<EventLog, 'readStream'>,
  stream: string,
  upToRevision: number,
  isBy: (event: RecordedEvent) => boolean,
): Promise<RecordedEvent | 'truncated' | undefined> {
  let found: RecordedEvent | undefined;
  for (let [low, high] = [0, upToRevision]; low <= high;) {
    const middle = Math.floor((low + high) / 2);
    const part = { fromRevision: middle, toRevision: middle, withBodies: false };
    const [event] = await log.readStream(stream, part);
    if (event === undefined) return 'truncated';
    if (isBy(event)) {
      found = event;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return found;
}
