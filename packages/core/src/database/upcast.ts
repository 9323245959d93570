import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent } from '../upcast.ts';
import { databaseEventSchemas, type DatabaseEvent } from './events.ts';

/** The version each event is written in today. */
export const databaseEventVersions = { DatabaseCreated: 1, ThroughputChanged: 1, DatabaseDeleted: 1 } as const;

/** Reads a recorded event of a database's stream, of whatever version. */
export function readDatabaseEvent(event: RecordedEvent): DatabaseEvent {
  return parseEvent(event, databaseEventSchemas, databaseEventVersions);
}
