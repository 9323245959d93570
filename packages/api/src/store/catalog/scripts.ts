import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import type { ScriptCommand } from '@epitaph/core/script/commands.ts';
import { decideScript, type ScriptRefusal } from '@epitaph/core/script/decide.ts';
import type { ScriptKind } from '@epitaph/core/script/events.ts';
import { evolveScript } from '@epitaph/core/script/evolve.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import { scriptStream } from '@epitaph/core/script/stream-name.ts';
import { scriptEventVersions } from '@epitaph/core/script/upcast.ts';
import type { Caller, Written } from '../api/common.ts';
import { MAX_SCRIPTS, type ScriptsApi } from '../api/scripts-api.ts';
import type { StoreParts } from '../parts.ts';
import { scriptRid } from '../rids.ts';
import { onEntry } from './on-entry.ts';

export class Scripts {
  readonly #parts: StoreParts;
  readonly #order = new KeyedMutex();

  constructor(parts: StoreParts) {
    this.#parts = parts;
  }

  list({ rid }: ContainerState, kind: ScriptKind): readonly ScriptState[] {
    return this.#parts.catalog.scriptsOf(rid, kind);
  }

  find({ rid }: ContainerState, kind: ScriptKind, name: string): ScriptState {
    const found = this.#parts.catalog.script(rid, kind, name);
    if (found === undefined) throw new Refusal('script-not-found');
    return found;
  }

  /** One write at a time for each container, so that each sees how many scripts there are. */
  readonly write: ScriptsApi['writeScript'] = (...asked) => this.#order.run(asked[1].rid, () => this.#write(...asked));

  readonly #write: ScriptsApi['writeScript'] = async (
    caller,
    { rid: containerRid, databaseRid },
    operation,
    { kind, name, content },
    { ifMatch } = {},
  ) => {
    const there = this.#parts.catalog.scriptsOf(containerRid, kind);
    if (there.length >= MAX_SCRIPTS && there.every((script) => script.name !== name)) {
      throw new Refusal('bad-request', `A container can have at most ${MAX_SCRIPTS} scripts of each kind.`);
    }
    const command = {
      type: 'WriteScript',
      operation,
      databaseRid,
      containerRid,
      kind,
      name,
      content,
      ifMatch,
    } as const;
    for (let incarnation = 0; ; incarnation++) {
      const rid = scriptRid(containerRid, kind, name, incarnation);
      const { decision, state, position } = await this.#on(caller, rid, command);
      if (decision.kind === 'accepted') {
        return { resource: state!, position, created: decision.events[0]!.type === 'ScriptCreated' };
      }
      if (decision.refusal.reason !== 'rid-taken') throw refusalOf(decision.refusal);
    }
  };

  readonly replace: ScriptsApi['replaceScript'] = async (caller, { rid }, content, { ifMatch } = {}) =>
    this.#accepted(caller, rid, { type: 'ReplaceScript', content, ifMatch });

  readonly delete: ScriptsApi['deleteScript'] = async (caller, { rid }, { ifMatch } = {}) =>
    this.#accepted(caller, rid, { type: 'DeleteScript', ifMatch });

  async #accepted(caller: Caller, rid: string, command: ScriptCommand): Promise<Written<ScriptState>> {
    const { decision, state, position } = await this.#on(caller, rid, command);
    if (decision.kind === 'refused') throw refusalOf(decision.refusal);
    return { resource: state!, position, created: false };
  }

  #on(caller: Caller, rid: string, command: ScriptCommand) {
    return onEntry(this.#parts, this.#parts.command(caller), {
      stream: scriptStream(rid),
      evolve: evolveScript,
      decide: (state: ScriptState | undefined) => decideScript(state, command),
      versions: scriptEventVersions,
      known: () => this.#parts.catalog.entry('script', rid)?.state,
      order: this.#order,
    });
  }
}

function refusalOf({ reason }: ScriptRefusal): Refusal {
  invariant(reason !== 'rid-taken', 'only a creation meets a rid that is taken');
  return new Refusal(reason === 'not-found' ? 'script-not-found' : reason);
}
