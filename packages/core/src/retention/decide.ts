import type { Decision } from '../decision.ts';
import { unreachable } from '../invariant.ts';
import type { RetentionCommand, SettleErasure } from './commands.ts';
import type { RetentionEvent } from './events.ts';
import { isStanding } from './hold-register.ts';
import type { Retention } from './state.ts';

/** How many holds may be in force on a container at a time. Every node has them in memory. */
export const MAX_STANDING_HOLDS = 20_000;

export type RetentionRefusal =
  /** A hold was given that id before, and may be released by now: an id means the same hold for ever. */
  { readonly reason: 'hold-exists' } | { readonly reason: 'hold-not-found' } | { readonly reason: 'too-many-holds' };

export type RetentionDecision = Decision<RetentionEvent, RetentionRefusal>;

const accept = (...events: RetentionEvent[]): RetentionDecision => ({ kind: 'accepted', events });
const refuse = (refusal: RetentionRefusal): RetentionDecision => ({ kind: 'refused', refusal });

/** Decides what is recorded about keeping and erasing content. What may be erased is decided by the vault, not here. */
export function decideRetention(state: Retention, command: RetentionCommand): RetentionDecision {
  switch (command.type) {
    case 'PlaceHold': {
      const { holdId, scope, reason, tooLateFor } = command;
      if (state.holds.find(holdId) !== undefined) return refuse({ reason: 'hold-exists' });
      if (state.holds.standing >= MAX_STANDING_HOLDS) return refuse({ reason: 'too-many-holds' });
      return accept({ type: 'HoldPlaced', data: { holdId, scope, reason, tooLateFor } });
    }
    case 'ReleaseHold': {
      const { holdId, reason } = command;
      const hold = state.holds.find(holdId);
      if (hold === undefined) return refuse({ reason: 'hold-not-found' });
      return isStanding(hold) ? accept({ type: 'HoldReleased', data: { holdId, reason } }) : accept();
    }
    case 'ChangeRetentionFloor': {
      const { seconds: toSeconds, reason } = command;
      if (toSeconds === state.floorSeconds) return accept();
      return accept({ type: 'RetentionFloorChanged', data: { fromSeconds: state.floorSeconds, toSeconds, reason } });
    }
    case 'ChangeRecoveryWindow': {
      const { seconds: toSeconds, reason } = command;
      const fromSeconds = state.recoveryWindowSeconds;
      if (toSeconds === fromSeconds) return accept();
      return accept({ type: 'RecoveryWindowChanged', data: { fromSeconds, toSeconds, reason } });
    }
    case 'RequestErasure': {
      const { item, requestedBy, reason } = command;
      return accept({ type: 'ErasureRequested', data: { item, requestedBy, reason } });
    }
    case 'SettleErasure':
      return settleErasure(state, command);
    case 'RequestRecovery': {
      const { item, policyVersion, reason } = command;
      const what = {
        ...(item === undefined ? {} : { item }),
        ...(policyVersion === undefined ? {} : { policyVersion }),
      };
      return accept({ type: 'RecoveryRequested', data: { ...what, reason } });
    }
    case 'RecordHeldContentRead': {
      const { life, revision, reason } = command;
      return accept({ type: 'HeldContentRead', data: { life, revision, reason } });
    }
    default:
      return unreachable(command);
  }
}

function settleErasure(
  { erasures, holds, floorSeconds }: Retention,
  { position, erasedLives, alreadyErasedLives, kept }: SettleErasure,
): RetentionDecision {
  const pending = erasures.find((erasure) => erasure.position === position);
  // Another node, or a start after a crash, has settled the request already.
  if (pending === undefined) return accept();
  const { item } = pending;
  if (kept === undefined) {
    return accept({ type: 'ErasureCompleted', data: { position, item, erasedLives, alreadyErasedLives } });
  }
  const { floorUntilMs, isUnrecorded = false } = kept;
  // If nothing that kept the content is in force any more, another node may have erased it by now.
  const isOver = (holdId: string): boolean => {
    const hold = holds.find(holdId);
    return hold !== undefined && !isStanding(hold);
  };
  const isByFloor = floorUntilMs !== null && floorSeconds > 0;
  if (!isUnrecorded && !isByFloor && kept.holds.every(isOver)) return accept();
  return accept({
    type: 'ErasureRefused',
    data: { position, item, holds: [...kept.holds], floorUntilMs, erasedLives },
  });
}
