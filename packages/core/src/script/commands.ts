import type { ScriptContent, ScriptKind } from './events.ts';

export interface WriteScript {
  readonly type: 'WriteScript';
  readonly operation: 'create' | 'upsert';
  readonly databaseRid: string;
  readonly containerRid: string;
  readonly kind: ScriptKind;
  readonly name: string;
  readonly content: ScriptContent;
  readonly ifMatch?: string | undefined;
}

export interface ReplaceScript {
  readonly type: 'ReplaceScript';
  readonly content: ScriptContent;
  readonly ifMatch?: string | undefined;
}

export interface DeleteScript {
  readonly type: 'DeleteScript';
  readonly ifMatch?: string | undefined;
}

export type ScriptCommand = WriteScript | ReplaceScript | DeleteScript;
