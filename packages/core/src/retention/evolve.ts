import { unreachable } from '../invariant.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { HoldPlaced, RetentionEvent } from './events.ts';
import type { StandingHold } from './hold-register.ts';
import type { Retention } from './state.ts';

/** The retention state after one more event. */
export function evolveRetention(state: Retention, event: RetentionEvent, recorded: RecordedEvent): Retention {
  const { position, actor: by } = recorded;
  switch (event.type) {
    case 'HoldPlaced':
      return { ...state, holds: state.holds.withPlaced(placedHold(event.data, recorded)) };
    case 'HoldReleased':
      return { ...state, holds: state.holds.withReleased(event.data.holdId, position) };
    case 'RetentionFloorChanged':
      return { ...state, floorSeconds: event.data.toSeconds };
    case 'RecoveryWindowChanged':
      return { ...state, recoveryWindowSeconds: event.data.toSeconds };
    case 'ErasureRequested':
      return { ...state, erasures: [...state.erasures, { position, item: event.data.item, by }] };
    case 'ErasureRefused':
    case 'ErasureCompleted':
      return { ...state, erasures: state.erasures.filter((pending) => pending.position !== event.data.position) };
    case 'RecoveryRequested':
    case 'HeldContentRead':
      return state;
    default:
      return unreachable(event);
  }
}

/** A hold, from the event that recorded it. */
export function placedHold({ scope, ...facts }: HoldPlaced, recorded: RecordedEvent): StandingHold {
  const { actor: placedBy, occurredAtMs: placedAtMs, position } = recorded;
  const kept = scope.kind === 'query' ? { kind: scope.kind, count: scope.lives.length } : scope;
  return { ...facts, scope: kept, placedBy, placedAtMs, position };
}
