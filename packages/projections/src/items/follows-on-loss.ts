import { isItemWrite } from '@epitaph/core/item/events.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';

/** For how many events the earlier ones are looked up at a time. */
const LOOK_UPS_AT_ONCE = 16;

/**
 * True if one of the events is a write that follows on what the log has lost: the write before it, or the end of the
 * life before its own. Then the read models can't have that either, whatever else is in them.
 */
export async function followsOnLoss(
  log: Pick<EventLog, 'readBefore' | 'readLast'>,
  events: readonly RecordedEvent[],
): Promise<boolean> {
  const writes = events.filter(isItemWrite);
  for (let start = 0; start < writes.length; start += LOOK_UPS_AT_ONCE) {
    const some = writes.slice(start, start + LOOK_UPS_AT_ONCE);
    const found = await Promise.all(some.map((write) => isBeforeLost(log, write)));
    if (found.includes(true)) return true;
  }
  return false;
}

async function isBeforeLost(log: Pick<EventLog, 'readBefore' | 'readLast'>, write: RecordedEvent): Promise<boolean> {
  if (write.revision > 0) return (await log.readBefore(write))?.revision !== write.revision - 1;
  const { prefix, life } = parseItemStream(write.stream)!;
  if (life === 0) return false;
  const end = await log.readLast(itemStream(prefix, life - 1));
  return end === undefined || isItemWrite(end);
}
