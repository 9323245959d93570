import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ScriptContent, ScriptKind } from '@epitaph/core/script/events.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import type { Caller, Precondition, Written } from './common.ts';

/** Scripts of a kind in one container at most: all of them are held in memory. */
export const MAX_SCRIPTS = 100;

/** JavaScript that clients store in a container: kept here, run by who asks for it. Lists are in order of creation. */
export interface ScriptsApi {
  listScripts(container: ContainerState, kind: ScriptKind): readonly ScriptState[];
  /** @throws Refusal script-not-found */
  script(container: ContainerState, kind: ScriptKind, name: string): ScriptState;
  /** The same, for who wants to have it run, which not everybody may who may see it. */
  scriptToRun(container: ContainerState, kind: ScriptKind, name: string): ScriptState;
  /** @throws Refusal already-exists for a create of what there is; bad-request where there are too many */
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
