import type { RecordedEvent } from './log/recorded-event.ts';
import { UnreadableEvent, WHEN_DAMAGED } from './upcast.ts';

/** What is to be told of a stream that begins with something else than the creation of what it is of. */
export const creationLost = ({ stream, type, position }: RecordedEvent, what: string): UnreadableEvent =>
  new UnreadableEvent(
    `the event log has nothing of ${stream} before ${type} at ${position}: it is damaged, for ${what} is created before anything else. ${WHEN_DAMAGED}`,
  );
