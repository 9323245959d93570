import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent } from '../upcast.ts';
import { clientEncryptionKeyEventSchemas, type ClientEncryptionKeyEvent } from './events.ts';

/** The version each event is written in today. */
export const clientEncryptionKeyEventVersions = {
  ClientEncryptionKeyCreated: 1,
  ClientEncryptionKeyRewrapped: 1,
} as const;

/** Reads a recorded event of a client encryption key's stream, of whatever version. */
export function readClientEncryptionKeyEvent(event: RecordedEvent): ClientEncryptionKeyEvent {
  return parseEvent(event, clientEncryptionKeyEventSchemas, clientEncryptionKeyEventVersions);
}
