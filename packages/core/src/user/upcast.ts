import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent } from '../upcast.ts';
import { userEventSchemas, type UserEvent } from './events.ts';

/** The version each event is written in today. */
export const userEventVersions = {
  UserCreated: 1,
  UserNameTaken: 1,
  UserRenamed: 1,
  UserDeleted: 1,
  PermissionCreated: 1,
  PermissionReplaced: 1,
  PermissionDeleted: 1,
} as const;

/** Reads a recorded event of a user's stream, of whatever version. */
export function readUserEvent(event: RecordedEvent): UserEvent {
  return parseEvent(event, userEventSchemas, userEventVersions);
}
