import { creationLost } from '../creation-lost.ts';
import { invariant, unreachable } from '../invariant.ts';
import { etagOf } from '../item/events.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { ClientEncryptionKeyState } from './state.ts';
import { parseClientEncryptionKeyStream } from './stream-name.ts';
import { readClientEncryptionKeyEvent } from './upcast.ts';

/** The key's state after one more recorded event. */
export function evolveClientEncryptionKey(
  state: ClientEncryptionKeyState | undefined,
  recorded: RecordedEvent,
): ClientEncryptionKeyState {
  const event = readClientEncryptionKeyEvent(recorded);
  const stamp = { etag: etagOf(recorded.id), changedAtMs: recorded.occurredAtMs };
  switch (event.type) {
    case 'ClientEncryptionKeyCreated': {
      const rid = parseClientEncryptionKeyStream(recorded.stream);
      invariant(state === undefined && rid !== undefined, 'a key is created once, in its own stream');
      return { rid, ...event.data, ...stamp };
    }
    case 'ClientEncryptionKeyRewrapped':
      if (state === undefined) throw creationLost(recorded, 'a key');
      return { ...state, wrappedKey: event.data.wrappedKey, ...stamp };
    default:
      return unreachable(event);
  }
}

/** Folds a key's whole stream. */
export function foldClientEncryptionKey(events: readonly RecordedEvent[]): ClientEncryptionKeyState | undefined {
  let state: ClientEncryptionKeyState | undefined;
  for (const event of events) state = evolveClientEncryptionKey(state, event);
  return state;
}
