import { unreachable } from '../invariant.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { RetentionEvent } from './events.ts';
import type { Retention } from './state.ts';

/** What is known of keeping content after one more event. */
export function evolveRetention(state: Retention, event: RetentionEvent, recorded: RecordedEvent): Retention {
  const { position, actor: by, occurredAtMs: atMs } = recorded;
  switch (event.type) {
    case 'HoldPlaced': {
      const { scope, ...facts } = event.data;
      const kept = scope.kind === 'query' ? { kind: scope.kind, count: scope.lives.length } : scope;
      const hold = { ...facts, scope: kept, placedBy: by, placedAtMs: atMs, position };
      return { ...state, holds: state.holds.withPlaced(hold) };
    }
    case 'HoldReleased': {
      const { holdId, reason } = event.data;
      return { ...state, holds: state.holds.withReleased(holdId, { by, atMs, reason }) };
    }
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
