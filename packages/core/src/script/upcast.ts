import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, versionsOf } from '../upcast.ts';
import { type ScriptEvent, scriptEventSchemas } from './events.ts';

export const scriptEventVersions = versionsOf(scriptEventSchemas);

/** Reads a recorded event of a script's stream, in any version. */
export function readScriptEvent(event: RecordedEvent): ScriptEvent {
  return parseEvent(event, scriptEventSchemas, scriptEventVersions);
}
