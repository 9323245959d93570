import type { RecordedEvent } from './log/recorded-event.ts';
import { UnreadableEvent, WHEN_DAMAGED } from './upcast.ts';

/** The error for a stream whose first event is not the creation of the thing that it belongs to. */
export const creationLost = ({ stream, type, position }: RecordedEvent, what: string): UnreadableEvent =>
  new UnreadableEvent(
    `the event log has nothing of ${stream} before ${type} at ${position}: it is damaged, because ${what} is created before anything else. ${WHEN_DAMAGED}`,
  );
