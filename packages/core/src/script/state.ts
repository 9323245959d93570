import type { ScriptContent, ScriptKind } from './events.ts';

/** The state of a script, from all events of its stream. */
export interface ScriptState extends ScriptContent {
  readonly status: 'live' | 'deleted';
  readonly rid: string;
  readonly databaseRid: string;
  readonly containerRid: string;
  readonly kind: ScriptKind;
  readonly name: string;
  readonly etag: string;
  readonly changedAtMs: number;
}
