import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, versionsOf } from '../upcast.ts';
import { clientEncryptionKeyEventSchemas, type ClientEncryptionKeyEvent } from './events.ts';

export const clientEncryptionKeyEventVersions = versionsOf(clientEncryptionKeyEventSchemas);

/** Reads a recorded event of a client encryption key's stream, in any version. */
export function readClientEncryptionKeyEvent(event: RecordedEvent): ClientEncryptionKeyEvent {
  return parseEvent(event, clientEncryptionKeyEventSchemas, clientEncryptionKeyEventVersions);
}
