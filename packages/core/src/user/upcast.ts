import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, versionsOf } from '../upcast.ts';
import { userEventSchemas, type UserEvent } from './events.ts';

export const userEventVersions = versionsOf(userEventSchemas);

/** Reads a recorded event of a user's stream, in any version. */
export function readUserEvent(event: RecordedEvent): UserEvent {
  return parseEvent(event, userEventSchemas, userEventVersions);
}
