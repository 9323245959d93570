import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ScriptContent, ScriptKind } from '@epitaph/core/script/events.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import type { Caller, Precondition, Written } from './common.ts';

/** The most scripts of a kind in one container: all of them are held in memory. */
export const MAX_SCRIPTS = 100;

/**
 * JavaScript that clients store in a container. The store keeps it, and the caller runs it. Lists are in order of
 * creation.
 */
export interface ScriptsApi {
  listScripts(container: ContainerState, kind: ScriptKind): readonly ScriptState[];
  /** @throws Refusal script-not-found */
  script(container: ContainerState, kind: ScriptKind, name: string): ScriptState;
  /** As {@link script}, for a caller that wants to run it: not everyone who may see a script may run it. */
  scriptToRun(container: ContainerState, kind: ScriptKind, name: string): ScriptState;
  /** @throws Refusal already-exists for a create of an existing script; bad-request when there are too many */
  writeScript(
    caller: Caller,
    container: ContainerState,
    operation: 'create' | 'upsert',
    script: { readonly kind: ScriptKind; readonly name: string; readonly content: ScriptContent },
    precondition?: Precondition,
  ): Promise<Written<ScriptState>>;
  replaceScript(
    caller: Caller,
    script: ScriptState,
    content: ScriptContent,
    precondition?: Precondition,
  ): Promise<Written<ScriptState>>;
  deleteScript(
    caller: Caller,
    script: ScriptState,
    precondition?: Precondition,
  ): Promise<{ readonly position: number }>;
}
