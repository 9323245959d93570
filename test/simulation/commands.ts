import type { TakenBackup } from '@epitaph/api/store/api/operations-api.ts';
import type { Document } from './documents.ts';
import type { ModelBrake, Policy } from './model.ts';
import type { EarlierItems } from './script-plan.ts';

/** A write, patch or delete of one item. */
export type ItemCommand =
  | {
      readonly kind: 'write';
      readonly operation: 'create' | 'upsert' | 'replace';
      readonly container: string;
      readonly item: string;
      readonly document: Readonly<Record<string, unknown>>;
      readonly ifMatch?: string;
      readonly ifNoneMatch?: '*';
    }
  | {
      readonly kind: 'patch';
      readonly container: string;
      readonly item: string;
      readonly set?: Readonly<Record<string, unknown>>;
      readonly remove?: string;
    }
  | { readonly kind: 'delete'; readonly container: string; readonly item: string; readonly ifMatch?: string };

/** One thing that a script asks for. What it writes may be in another partition than its own, which is refused. */
export type ScriptStep =
  | { readonly kind: 'create' | 'upsert'; readonly document: Document }
  /** By a document of another id it becomes another item. */
  | (OfItem & { readonly kind: 'replace'; readonly document: Document; readonly guard?: ScriptGuard })
  | (OfItem & { readonly kind: 'delete'; readonly guard?: ScriptGuard })
  | (OfItem & { readonly kind: 'read' })
  | { readonly kind: 'list'; readonly pageSize: number }
  /** Of all items whose `v` is at least so much. */
  | { readonly kind: 'query'; readonly least: number; readonly pageSize: number };

interface OfItem {
  readonly item: string;
  /** By the `_self` that the item has when the script is called, if it is there then. */
  readonly bySelf: boolean;
}

/** The etag that it gives with a write: what it was last shown of the item, if anything, or one that the item never had. */
export type ScriptGuard = 'shown' | 'unknown';

/** What a step came to: a status of failure, or the `v` of what it found, sorted. */
export type Told = number | readonly unknown[];

/** What somebody wants held, before it is known what that comes to. */
export type WantedScope =
  | { readonly kind: 'container' }
  | { readonly kind: 'partition-key'; readonly partition: string }
  | { readonly kind: 'items'; readonly items: readonly string[] }
  /** All visible items whose `v` is at least so much. */
  | {
      readonly kind: 'query';
      readonly least: number;
      /** Where something else went on beside it: the lives that it had found before that. */
      readonly found?: readonly string[];
    };

/** What is asked for those who answer for the data. Of a container that is gone as well, but for recoveries. */
export type RetentionCommand =
  | {
      readonly kind: 'place-hold';
      readonly container: string;
      readonly hold: string;
      readonly scope: WantedScope;
    }
  | { readonly kind: 'release-hold'; readonly container: string; readonly hold: string }
  | { readonly kind: 'floor'; readonly container: string; readonly seconds: number }
  | { readonly kind: 'window'; readonly container: string; readonly seconds: number }
  | { readonly kind: 'erase'; readonly container: string; readonly item: string }
  | { readonly kind: 'read-ended'; readonly container: string; readonly item: string; readonly life?: number }
  | { readonly kind: 'recover'; readonly container: string; readonly item: string; readonly life?: number }
  | { readonly kind: 'recover-policy'; readonly container: string; readonly version: number };

/** A stored procedure is called. Its writes are recorded together, or none. */
export interface ScriptCommand {
  readonly kind: 'script';
  readonly container: string;
  readonly partition: string;
  readonly steps: readonly ScriptStep[];
  /** It ends in an error when all is done. */
  readonly fails: boolean;
  /** Where something else went on beside it: what it had found before that. */
  readonly earlier?: EarlierItems;
}

/** One thing that a client or operator asks for. Plain data, so that a run can be told and repeated. */
export type Command =
  | ItemCommand
  | RetentionCommand
  /** All of its steps or none; they are about items of one partition of the container. */
  | { readonly kind: 'batch'; readonly container: string; readonly steps: readonly ItemCommand[] }
  | ScriptCommand
  | { readonly kind: 'delete-partition'; readonly container: string; readonly partition: string }
  | { readonly kind: 'policy'; readonly container: string; readonly policy: Policy }
  /** Through the management call: at an instant to come, or past the brake. */
  | {
      readonly kind: 'policy-from';
      readonly container: string;
      readonly policy: Policy;
      readonly fromMs: number;
      readonly confirmed: boolean;
    }
  | { readonly kind: 'withdraw'; readonly container: string }
  | { readonly kind: 'brake'; readonly container: string; readonly brake: ModelBrake | null }
  | { readonly kind: 'grace'; readonly container: string; readonly seconds: number }
  | {
      readonly kind: 'create-container';
      readonly container: string;
      readonly policy: Policy;
      /** It keeps what its items have at the clear paths in clear. */
      readonly clear?: boolean;
    }
  | { readonly kind: 'delete-container'; readonly container: string }
  | StoreCommand;

/** What an operator asks of the whole store. It changes nothing that a client sees. */
export type StoreCommand =
  | { readonly kind: 'purge' }
  | { readonly kind: 'rebuild' }
  | { readonly kind: 'backup'; readonly keptSeconds: number };

/** What came of a command: `ok` with the etag it made, or the code of the refusal. */
export interface Outcome {
  readonly code: string;
  readonly etag?: string;
  /** Of a batch or a script: what each write made; absent for a delete. */
  readonly etags?: readonly (string | undefined)[];
  /** Of a script: what it heard of each step. */
  readonly told?: readonly Told[];
  /** Of a script: what its writes are to be on record as coming of. */
  readonly cause?: string;
  readonly rid?: string;
  readonly created?: boolean;
  /** Of a recovery by policy: the etags of the lives that it began, by item. */
  readonly recovered?: Readonly<Record<string, string>>;
  /** Of a hold: how many lives it came too late for. */
  readonly tooLateFor?: number;
  /** Of a reading: what was read. */
  readonly json?: string;
  /** When it took effect, for what may be put off to an instant that nobody was answered for. */
  readonly atMs?: number;
  /** Of a TTL change: the container's newest policy after it. */
  readonly policyVersion?: number;
  readonly backup?: TakenBackup;
}

/** An item's name in the model, `partition/id`, taken apart. */
export function nameOf(item: string): {
  readonly id: string;
  readonly partition: string;
  readonly partitionKey: string;
} {
  const slash = item.indexOf('/');
  const partition = item.slice(0, slash);
  return { id: item.slice(slash + 1), partition, partitionKey: JSON.stringify([partition]) };
}

/** True for what concerns no container by its name. */
export function isStoreCommand(command: Command): command is StoreCommand {
  return command.kind === 'purge' || command.kind === 'rebuild' || command.kind === 'backup';
}

/** True for what concerns keeping and erasing; a fault in the midst of it is answered by asking again. */
export function isRetentionCommand(command: Command): command is RetentionCommand {
  return RETENTION_KINDS.has(command.kind);
}

const RETENTION_KINDS: ReadonlySet<string> = new Set<RetentionCommand['kind']>([
  'place-hold',
  'release-hold',
  'floor',
  'window',
  'erase',
  'read-ended',
  'recover',
  'recover-policy',
]);
