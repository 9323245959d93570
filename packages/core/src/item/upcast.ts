import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, versionsOf } from '../upcast.ts';
import { itemEventSchemas, type ItemEvent } from './events.ts';

export const itemEventVersions = versionsOf(itemEventSchemas);

/** Reads a recorded event of an item's stream, in any version. */
export function readItemEvent(event: RecordedEvent): ItemEvent {
  return parseEvent(event, itemEventSchemas, itemEventVersions);
}
