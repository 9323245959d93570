import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Refusal } from '@epitaph/core/errors.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { AtLeast, Caller, ItemSnapshot, Precondition, UpsertPrecondition, Written } from './common.ts';
import type { Continuation } from './queries-api.ts';

/** A document as clients send it, without system properties. */
export type Document = { readonly [property: string]: unknown };

/** One item as it is shown: the document as JSON text, and the values behind the system properties. */
export interface ShownItem extends ItemName {
  /** The document without system properties, as JSON text of an object. */
  readonly json: string;
  /** Position of the life's first event, from which `_rid` is made. */
  readonly birth: number;
  /** `_ts`, Unix seconds. */
  readonly ts: number;
  /** `_etag`, with its quotes. */
  readonly etag: string;
}

/** An item as a read finds it. */
export interface FoundItem extends ShownItem {
  /** Log position of the write that left it in this state. */
  readonly position: number;
}

/** A partial update with the operations of Cosmos DB's PATCH, whose shape has been checked. */
export interface PatchRequest {
  readonly operations: readonly PatchOperation[];
  /** `FROM c WHERE …`; the patch is refused with `patch-condition-not-met` when it does not hold. */
  readonly condition?: string | undefined;
  /**
   * Called with the size of a large document when it is its turn to be patched. An error that it throws ends the patch
   * without effect.
   */
  readonly beforeLarge?: ((bytes: number) => void) | undefined;
}

export type PatchOperation =
  | { readonly op: 'add' | 'set' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'incr'; readonly path: string; readonly value: number | bigint }
  | { readonly op: 'remove'; readonly path: string }
  | { readonly op: 'move'; readonly path: string; readonly from: string };

/**
 * A document to write, without system properties; its id and key are those in its text. The text is exact, while the
 * parsed document has doubles for all numbers.
 */
export interface ItemToWrite extends ItemName {
  readonly document: Document;
  readonly json: string;
}

export type BatchOperation = {
  readonly precondition?: UpsertPrecondition | undefined;
  /**
   * The id of the event that caused this one, such as the one that stored the script which asked for it. By default the
   * request.
   */
  readonly causationId?: string | undefined;
} & (
  | {
      readonly kind: 'write';
      readonly operation: 'create' | 'upsert' | 'replace';
      readonly item: ItemToWrite;
      /** For a create: the item is the one that the operation before this deletes, under another id. */
      readonly isRename?: boolean;
    }
  | ({ readonly kind: 'patch'; readonly patch: PatchRequest } & ItemName)
  | ({ readonly kind: 'delete' } & ItemName)
  | ({ readonly kind: 'read' } & ItemName)
);

export type BatchResult =
  | { readonly kind: 'written'; readonly item: ShownItem; readonly created: boolean }
  | { readonly kind: 'read'; readonly item: ShownItem }
  | { readonly kind: 'deleted'; /** Size of the document that is gone. */ readonly bytes: number };

export type BatchOutcome =
  | { readonly kind: 'done'; readonly results: readonly BatchResult[]; readonly position: number }
  /** The index of the first operation that can't be done. Nothing was written. */
  | { readonly kind: 'refused'; readonly index: number; readonly refusal: Refusal };

/** A page of the items in a scope. */
export interface ItemsPage extends Scope {
  readonly maxItemCount: number;
  readonly continuation?: Continuation | undefined;
  /** The read waits for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
  /** What to read from, instead of the items as they are now. */
  readonly snapshot?: ItemSnapshot | undefined;
}

/** Items. `partitionKey` is canonical JSON of an array of components. */
export interface ItemsApi {
  /**
   * The body's text is stored as it is. The caller must have checked that it is an object with the given id and key.
   */
  writeItem(
    caller: Caller,
    container: ContainerState,
    operation: 'create' | 'upsert' | 'replace',
    item: ItemToWrite,
    precondition?: UpsertPrecondition,
  ): Promise<Written<ShownItem>>;
  patchItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    patch: PatchRequest,
    precondition?: Precondition,
  ): Promise<Written<ShownItem>>;
  deleteItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    precondition?: Precondition,
  ): Promise<{ readonly position: number; /** Size of the document that is gone. */ readonly bytes: number }>;
  /**
   * Carries out operations in order; each sees what those before it did. Either all of them are recorded or none.
   *
   * @param options.dryRun only decides, and writes nothing
   * @throws Refusal not-supported when several streams must be appended to at once and the log can't do that
   */
  batchItems(
    caller: Caller,
    container: ContainerState,
    operations: readonly BatchOperation[],
    options?: { readonly dryRun?: boolean; readonly atLeast?: AtLeast | undefined },
  ): Promise<BatchOutcome>;
  /** Every item of a partition key ends at one instant. The purge erases their content, as after any delete. */
  deletePartitionKey(
    caller: Caller,
    container: ContainerState,
    partitionKey: string,
  ): Promise<{ readonly position: number }>;
  /**
   * @param from what the read waits for, or a snapshot to read from
   * @throws Refusal item-not-found, session-not-available
   */
  readItem(
    container: ContainerState,
    id: string,
    partitionKey: string,
    from?: AtLeast | ItemSnapshot,
  ): Promise<FoundItem>;
  /**
   * The visible item whose life began at a position.
   *
   * @param isWanted called with the recorded names before anything of the item is opened
   * @param snapshot what to read from, instead of the items as they are now
   */
  itemByBirth(
    container: ContainerState,
    birth: number,
    isWanted?: (name: ItemName) => boolean,
    snapshot?: ItemSnapshot,
  ): Promise<ShownItem | undefined>;
  /** The items as they are now, with everything that is recorded. */
  snapshotItems(container: ContainerState): Promise<ItemSnapshot>;
  /** The number of visible items. For large containers it may be a moment old. */
  countItems(container: ContainerState): Promise<number>;
  /** Visible items in order of birth. */
  listItems(
    container: ContainerState,
    page: ItemsPage,
  ): Promise<{ readonly items: readonly ShownItem[]; readonly continuation?: Continuation }>;
}
