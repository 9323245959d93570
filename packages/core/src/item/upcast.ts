import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent } from '../upcast.ts';
import { itemEventSchemas, type ItemEvent } from './events.ts';

/** The version each event is written in today, and how an older one becomes it. */
export const itemEventVersions = {
  ItemUpserted: 1,
  ItemRecovered: 1,
  ItemDeleted: 1,
  ItemExpired: 1,
  ItemPurged: 1,
} as const;

/** Reads a recorded event of an item's stream, of whatever version. */
export function readItemEvent(event: RecordedEvent): ItemEvent {
  return parseEvent(event, itemEventSchemas, itemEventVersions);
}
