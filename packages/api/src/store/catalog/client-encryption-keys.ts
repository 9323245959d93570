import type { ClientEncryptionKeyCommand } from '@epitaph/core/client-encryption-key/commands.ts';
import { decideClientEncryptionKey } from '@epitaph/core/client-encryption-key/decide.ts';
import { evolveClientEncryptionKey } from '@epitaph/core/client-encryption-key/evolve.ts';
import type { ClientEncryptionKeyState } from '@epitaph/core/client-encryption-key/state.ts';
import { clientEncryptionKeyStream } from '@epitaph/core/client-encryption-key/stream-name.ts';
import { clientEncryptionKeyEventVersions } from '@epitaph/core/client-encryption-key/upcast.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { assertEndNotLost } from '@epitaph/core/item/read-life.ts';
import type { CatalogApi } from '../api/catalog-api.ts';
import type { Caller } from '../api/common.ts';
import type { StoreParts } from '../parts.ts';
import { clientEncryptionKeyRid } from '../rids.ts';
import { onEntry } from './on-entry.ts';

export class ClientEncryptionKeys {
  readonly #parts: StoreParts;

  constructor(parts: StoreParts) {
    this.#parts = parts;
  }

  list(databaseRid: string): readonly ClientEncryptionKeyState[] {
    return this.#parts.catalog.entriesOf('client-encryption-key', databaseRid).map(({ state }) => state);
  }

  find(databaseRid: string, name: string): ClientEncryptionKeyState {
    const found = this.#parts.catalog.entryByName('client-encryption-key', databaseRid, name);
    if (found === undefined) throw new Refusal('client-encryption-key-not-found');
    return found.state;
  }

  readonly create: CatalogApi['createClientEncryptionKey'] = async (caller, databaseRid, name, wrappedKey) => {
    for (let incarnation = 0; ; incarnation++) {
      const rid = clientEncryptionKeyRid(databaseRid, name, incarnation);
      const command = { type: 'CreateClientEncryptionKey', databaseRid, name, wrappedKey } as const;
      const { decision, state, position } = await this.#on(caller, rid, command);
      if (decision.kind === 'accepted') return { resource: state!, position, created: true };
      if (decision.refusal.reason !== 'rid-taken') throw new Refusal('already-exists');
    }
  };

  readonly rewrap: CatalogApi['rewrapClientEncryptionKey'] = async (
    caller,
    databaseRid,
    name,
    wrappedKey,
    { ifMatch } = {},
  ) => {
    const { rid } = this.find(databaseRid, name);
    const command = { type: 'RewrapClientEncryptionKey', wrappedKey, ifMatch } as const;
    const { decision, state, position } = await this.#on(caller, rid, command);
    if (decision.kind === 'accepted') return { resource: state!, position, created: false };
    // Read models from before the loss may have the key, which must not pass for one that never existed.
    if (decision.refusal.reason === 'not-found')
      await assertEndNotLost(this.#parts.ports.log, clientEncryptionKeyStream(rid));
    invariant(decision.refusal.reason === 'precondition-failed', 'a key that was found stays');
    throw new Refusal('precondition-failed');
  };

  #on(caller: Caller, rid: string, command: ClientEncryptionKeyCommand) {
    return onEntry(this.#parts, this.#parts.command(caller), {
      stream: clientEncryptionKeyStream(rid),
      evolve: evolveClientEncryptionKey,
      decide: (state: ClientEncryptionKeyState | undefined) => decideClientEncryptionKey(state, command),
      versions: clientEncryptionKeyEventVersions,
    });
  }
}
