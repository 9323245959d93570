import { type Decision, etagDiffers } from '../decision.ts';
import { unreachable } from '../invariant.ts';
import type { ScriptCommand } from './commands.ts';
import type { ScriptEvent } from './events.ts';
import type { ScriptState } from './state.ts';

export type ScriptRefusal =
  | { readonly reason: 'not-found' }
  | { readonly reason: 'already-exists' }
  | { readonly reason: 'precondition-failed' }
  /** The rid is used, by another name or by a script that was deleted: the caller tries the next candidate. */
  | { readonly reason: 'rid-taken' };

export type ScriptDecision = Decision<ScriptEvent, ScriptRefusal>;

const accept = (event: ScriptEvent): ScriptDecision => ({ kind: 'accepted', events: [event] });
const refuse = (reason: ScriptRefusal['reason']): ScriptDecision => ({ kind: 'refused', refusal: { reason } });

/** Decides a command on one script. */
export function decideScript(state: ScriptState | undefined, command: ScriptCommand): ScriptDecision {
  switch (command.type) {
    case 'WriteScript': {
      const { databaseRid, containerRid, kind, name, content, operation, ifMatch } = command;
      if (state === undefined) {
        const data = { databaseRid, containerRid, kind, name, ...content };
        return ifMatch === undefined ? accept({ type: 'ScriptCreated', data }) : refuse('precondition-failed');
      }
      if (state.status !== 'live' || state.name !== name) return refuse('rid-taken');
      if (operation === 'create') return refuse('already-exists');
      return etagDiffers(state.etag, ifMatch)
        ? refuse('precondition-failed')
        : accept({ type: 'ScriptReplaced', data: content });
    }
    case 'ReplaceScript': {
      if (state?.status !== 'live') return refuse('not-found');
      return etagDiffers(state.etag, command.ifMatch)
        ? refuse('precondition-failed')
        : accept({ type: 'ScriptReplaced', data: command.content });
    }
    case 'DeleteScript': {
      if (state?.status !== 'live') return refuse('not-found');
      return etagDiffers(state.etag, command.ifMatch)
        ? refuse('precondition-failed')
        : accept({ type: 'ScriptDeleted', data: {} });
    }
    default:
      return unreachable(command);
  }
}
