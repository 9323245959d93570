import type { EventLog } from '../log/event-log.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { containerStream } from './stream-name.ts';

/** A range of log positions: after one, and up to and including the other. */
export interface Between {
  readonly after: number;
  readonly before: number;
}

/** The events of a container between two positions, last one first. */
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
