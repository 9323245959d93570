import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, versionsOf } from '../upcast.ts';
import { uniqueKeyEventSchemas, type UniqueKeyEvent } from './events.ts';

export const uniqueKeyEventVersions = versionsOf(uniqueKeyEventSchemas);

/** Reads a recorded event of the stream of a unique key's value, in any version. */
export function readUniqueKeyEvent(event: RecordedEvent): UniqueKeyEvent {
  return parseEvent(event, uniqueKeyEventSchemas, uniqueKeyEventVersions);
}
