import type { EventLog } from './event-log.ts';
import type { RecordedEvent } from './recorded-event.ts';

/**
 * The last event of a stream, among those up to a revision, of which something is true that is true of all before it:
 * found by halves, so that a long stream costs little more than a short one.
 *
 * @returns the event without its body; undefined where it is true of none, 'truncated' where the stream has lost some
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
