import { creationLost } from '../creation-lost.ts';
import { invariant, unreachable } from '../invariant.ts';
import { etagOf } from '../item/events.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { ScriptState } from './state.ts';
import { parseScriptStream } from './stream-name.ts';
import { readScriptEvent } from './upcast.ts';

/** The script's state after one more recorded event. */
export function evolveScript(state: ScriptState | undefined, recorded: RecordedEvent): ScriptState {
  const event = readScriptEvent(recorded);
  const stamp = { etag: etagOf(recorded.id), changedAtMs: recorded.occurredAtMs };
  if (event.type === 'ScriptCreated') {
    const rid = parseScriptStream(recorded.stream);
    invariant(state === undefined && rid !== undefined, 'a script is created once, in its own stream');
    return { status: 'live', rid, ...event.data, ...stamp };
  }
  if (state === undefined) throw creationLost(recorded, 'a script');
  invariant(state.status === 'live', 'only a live script changes');
  switch (event.type) {
    case 'ScriptReplaced':
      return { ...state, ...event.data, ...stamp };
    case 'ScriptDeleted':
      return { ...state, status: 'deleted', body: '', ...stamp };
    default:
      return unreachable(event);
  }
}

/** Folds a script's whole stream. */
export function foldScript(events: readonly RecordedEvent[]): ScriptState | undefined {
  let state: ScriptState | undefined;
  for (const event of events) state = evolveScript(state, event);
  return state;
}
