import { type Decision, etagDiffers } from '../decision.ts';
import { unreachable } from '../invariant.ts';
import type { ClientEncryptionKeyCommand } from './commands.ts';
import type { ClientEncryptionKeyEvent } from './events.ts';
import type { ClientEncryptionKeyState } from './state.ts';

export type ClientEncryptionKeyRefusal =
  | { readonly reason: 'not-found' }
  | { readonly reason: 'already-exists' }
  | { readonly reason: 'precondition-failed' }
  /** The rid is taken by another name: the caller tries the next candidate. */
  | { readonly reason: 'rid-taken' };

export type ClientEncryptionKeyDecision = Decision<ClientEncryptionKeyEvent, ClientEncryptionKeyRefusal>;

/** Decides a command on one client encryption key. */
export function decideClientEncryptionKey(
  state: ClientEncryptionKeyState | undefined,
  command: ClientEncryptionKeyCommand,
): ClientEncryptionKeyDecision {
  const refuse = (reason: ClientEncryptionKeyRefusal['reason']): ClientEncryptionKeyDecision => ({
    kind: 'refused',
    refusal: { reason },
  });
  switch (command.type) {
    case 'CreateClientEncryptionKey': {
      if (state !== undefined) return refuse(state.name === command.name ? 'already-exists' : 'rid-taken');
      const { type: _, ...data } = command;
      return { kind: 'accepted', events: [{ type: 'ClientEncryptionKeyCreated', data }] };
    }
    case 'RewrapClientEncryptionKey': {
      const { wrappedKey, ifMatch } = command;
      if (state === undefined) return refuse('not-found');
      if (etagDiffers(state.etag, ifMatch)) return refuse('precondition-failed');
      return { kind: 'accepted', events: [{ type: 'ClientEncryptionKeyRewrapped', data: { wrappedKey } }] };
    }
    default:
      return unreachable(command);
  }
}
