import type { Policy } from './model.ts';

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

/** One thing that a client or operator asks for. Plain data, so that a run can be told and repeated. */
export type Command =
  | ItemCommand
  /** All of its steps or none; they are about items of one partition of the container. */
  | { readonly kind: 'batch'; readonly container: string; readonly steps: readonly ItemCommand[] }
  | { readonly kind: 'delete-partition'; readonly container: string; readonly partition: string }
  | { readonly kind: 'policy'; readonly container: string; readonly policy: Policy }
  | { readonly kind: 'grace'; readonly container: string; readonly seconds: number }
  | { readonly kind: 'create-container'; readonly container: string; readonly policy: Policy }
  | { readonly kind: 'delete-container'; readonly container: string }
  | { readonly kind: 'purge' }
  | { readonly kind: 'rebuild' };

/** What came of a command: `ok` with the etag it made, or the code of the refusal. */
export interface Outcome {
  readonly code: string;
  readonly etag?: string;
  /** Of a batch: what each step made; absent for a delete. */
  readonly etags?: readonly (string | undefined)[];
  readonly rid?: string;
  readonly created?: boolean;
  /** When it took effect, for what may be put off to an instant that nobody was answered for. */
  readonly atMs?: number;
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
