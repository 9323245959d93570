import type { Decision } from '../decision.ts';
import { unreachable } from '../invariant.ts';
import type { UniqueKeyCommand } from './commands.ts';
import type { UniqueKeyEvent } from './events.ts';
import type { UniqueKeyState } from './state.ts';

export type UniqueKeyDecision = Decision<UniqueKeyEvent, { readonly reason: 'unique-key-taken' }>;

/** Decides a command on one value of a unique key. */
export function decideUniqueKey({ holder }: UniqueKeyState, command: UniqueKeyCommand): UniqueKeyDecision {
  switch (command.type) {
    case 'TakeUniqueKey':
      if (command.isKept) return { kind: 'refused', refusal: { reason: 'unique-key-taken' } };
      // Recorded even if this life took the value last and gave it up in between: another item may be about to take it.
      return { kind: 'accepted', events: [{ type: 'UniqueKeyTaken', data: { holder: command.by } }] };
    case 'ReleaseUniqueKey':
      return { kind: 'accepted', events: holder === command.of ? [{ type: 'UniqueKeyReleased', data: {} }] : [] };
    default:
      return unreachable(command);
  }
}
