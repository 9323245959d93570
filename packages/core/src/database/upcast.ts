import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, versionsOf } from '../upcast.ts';
import { databaseEventSchemas, type DatabaseEvent } from './events.ts';

export const databaseEventVersions = versionsOf(databaseEventSchemas);

/** Reads a recorded event of a database's stream, in any version. */
export function readDatabaseEvent(event: RecordedEvent): DatabaseEvent {
  return parseEvent(event, databaseEventSchemas, databaseEventVersions);
}
