import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent } from '../upcast.ts';
import { uniqueKeyEventSchemas, type UniqueKeyEvent } from './events.ts';

/** The version each event is written in today. */
export const uniqueKeyEventVersions = { UniqueKeyTaken: 1, UniqueKeyReleased: 1 } as const;

/** Reads a recorded event of the stream of a unique key's value, of whatever version. */
export function readUniqueKeyEvent(event: RecordedEvent): UniqueKeyEvent {
  return parseEvent(event, uniqueKeyEventSchemas, uniqueKeyEventVersions);
}
