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

/** One operation of a script. It may write to another partition than the script's own, which is refused. */
export type ScriptStep =
  | { readonly kind: 'create' | 'upsert'; readonly document: Document }
  /** If the document has another id, the item becomes another item. */
  | (OfItem & { readonly kind: 'replace'; readonly document: Document; readonly guard?: ScriptGuard })
  | (OfItem & { readonly kind: 'delete'; readonly guard?: ScriptGuard })
  | (OfItem & { readonly kind: 'read' })
  | { readonly kind: 'list'; readonly pageSize: number }
  /** Finds all items whose `v` is at least `least`. */
  | { readonly kind: 'query'; readonly least: number; readonly pageSize: number };

interface OfItem {
  readonly item: string;
  /** True to name the item by the `_self` that it has when the script is called, if it exists then. */
  readonly bySelf: boolean;
}

/** The etag that a script gives with a write: the item's etag that it was last shown, if any, or one that the item never had. */
export type ScriptGuard = 'shown' | 'unknown';

/** The result of a step: the status of a failure, or the `v` of each item it found, sorted. */
export type Told = number | readonly unknown[];

/** The scope of a requested hold, before it is resolved to lives. */
export type WantedScope =
  | { readonly kind: 'container' }
  | { readonly kind: 'partition-key'; readonly partition: string }
  | { readonly kind: 'items'; readonly items: readonly string[] }
  /** All visible items whose `v` is at least the given value. */
  | {
      readonly kind: 'query';
      readonly least: number;
      /** If another command ran concurrently: the lives that the hold had found before that command. */
      readonly found?: readonly string[];
    };

/** A command about retention or erasure. Except for recoveries, it may also be about a deleted container. */
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

/** A call of a stored procedure. All its writes are recorded together, or none. */
export interface ScriptCommand {
  readonly kind: 'script';
  readonly container: string;
  readonly partition: string;
  readonly steps: readonly ScriptStep[];
  /** True if the script throws an error after its last step. */
  readonly fails: boolean;
  /** If another command ran concurrently: the items that the script had found before that command. */
  readonly earlier?: EarlierItems;
}

/** One request of a client or operator. It is plain data, so that a run can be printed and repeated. */
export type Command =
  | ItemCommand
  | RetentionCommand
  /** Executes all of its steps or none. They concern items of one partition of the container. */
  | { readonly kind: 'batch'; readonly container: string; readonly steps: readonly ItemCommand[] }
  | ScriptCommand
  | { readonly kind: 'delete-partition'; readonly container: string; readonly partition: string }
  | { readonly kind: 'policy'; readonly container: string; readonly policy: Policy }
  /** A TTL change through the management API: scheduled for a future instant, or overriding the brake. */
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
      /** True if the container keeps its items' values at the clear paths in clear. */
      readonly clear?: boolean;
    }
  | { readonly kind: 'delete-container'; readonly container: string }
  | StoreCommand;

/** An operator's command on the whole store. It changes nothing that a client sees. */
export type StoreCommand =
  | { readonly kind: 'purge' }
  | { readonly kind: 'rebuild' }
  | { readonly kind: 'backup'; readonly keptSeconds: number };

/** The outcome of a command: `ok` with the etag that it created, or the code of the refusal. */
export interface Outcome {
  readonly code: string;
  readonly etag?: string;
  /** For a batch or a script: the etag that each write created; undefined for a delete. */
  readonly etags?: readonly (string | undefined)[];
  /** For a script: the result of each step. */
  readonly told?: readonly Told[];
  /** For a script: the cause that its writes must be recorded with. */
  readonly cause?: string;
  readonly rid?: string;
  readonly created?: boolean;
  /** For a recovery by policy: the etags of the lives that it began, by item. */
  readonly recovered?: Readonly<Record<string, string>>;
  /** For a hold: how many lives it came too late for. */
  readonly tooLateFor?: number;
  /** For a read: the JSON that was read. */
  readonly json?: string;
  /** When the command took effect, if it may be postponed to an instant for which the store has not answered any request. */
  readonly atMs?: number;
  /** For a TTL change: the version of the container's newest policy afterwards. */
  readonly policyVersion?: number;
  readonly backup?: TakenBackup;
}

/** Splits an item's name in the model, `partition/id`. */
export function nameOf(item: string): {
  readonly id: string;
  readonly partition: string;
  readonly partitionKey: string;
} {
  const slash = item.indexOf('/');
  const partition = item.slice(0, slash);
  return { id: item.slice(slash + 1), partition, partitionKey: JSON.stringify([partition]) };
}

/** True for commands that name no container. */
export function isStoreCommand(command: Command): command is StoreCommand {
  return command.kind === 'purge' || command.kind === 'rebuild' || command.kind === 'backup';
}

/** True for commands about retention and erasure. After a fault during such a command, it is given again. */
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
