import { unreachable } from '../invariant.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { UniqueKeyEvent } from './events.ts';
import { initialUniqueKeyState, type UniqueKeyState } from './state.ts';
import { readUniqueKeyEvent } from './upcast.ts';

/** The state after an event. The last event alone determines it. */
export function evolveUniqueKey(_state: UniqueKeyState, event: UniqueKeyEvent): UniqueKeyState {
  switch (event.type) {
    case 'UniqueKeyTaken':
      return { holder: event.data.holder };
    case 'UniqueKeyReleased':
      return { holder: undefined };
    default:
      return unreachable(event);
  }
}

export function foldUniqueKey(events: readonly RecordedEvent[]): UniqueKeyState {
  let state = initialUniqueKeyState;
  for (const event of events) state = evolveUniqueKey(state, readUniqueKeyEvent(event));
  return state;
}
