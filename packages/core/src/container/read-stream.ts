import type { EventLog } from '../log/event-log.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { containerStream } from './stream-name.ts';

/** Positions of the log: behind one, and up to another. */
export interface Between {
  readonly after: number;
  readonly before: number;
}

/** What a container's stream has between two positions; the last of it first. */
export async function* containerEvents(
  log: Pick<EventLog, 'readLast' | 'readBefore'>,
  rid: string,
  { after, before }: Between,
): AsyncGenerator<RecordedEvent> {
  let event = await log.readLast(containerStream(rid));
  for (; event !== undefined && event.position > after; event = await log.readBefore(event)) {
    if (event.position <= before) yield event;
  }
}
