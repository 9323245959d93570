import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Refusal } from '@epitaph/core/errors.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { AtLeast, Caller, Precondition, UpsertPrecondition, Written } from './common.ts';
import type { Continuation } from './queries-api.ts';

/** A document as clients give it, without system properties. */
export type Document = { readonly [property: string]: unknown };

/** One item as it is shown: the document as JSON text plus what the system properties are made of. */
export interface ShownItem extends ItemName {
  /** The document without system properties, as JSON text of an object. */
  readonly json: string;
  /** Position of the life's first event: what `_rid` is made of. */
  readonly birth: number;
  /** `_ts`, Unix seconds. */
  readonly ts: number;
  /** `_etag`, with its quotes. */
  readonly etag: string;
}

/** An item as a read finds it. */
export interface FoundItem extends ShownItem {
  /** Log position of the write that left it so. */
  readonly position: number;
}

/** A partial change: operations as Cosmos DB's PATCH has them, already checked for shape. */
export interface PatchRequest {
  readonly operations: readonly PatchOperation[];
  /** `FROM c WHERE …`; the patch is refused with `patch-condition-not-met` when it does not hold. */
  readonly condition?: string | undefined;
  /**
   * Called with its size when it is the turn of a large document to be patched. What it throws ends the patch, and
   * nothing is done.
   */
  readonly beforeLarge?: ((bytes: number) => void) | undefined;
}

export type PatchOperation =
  | { readonly op: 'add' | 'set' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'incr'; readonly path: string; readonly value: number | bigint }
  | { readonly op: 'remove'; readonly path: string }
  | { readonly op: 'move'; readonly path: string; readonly from: string };

/** A document to write, without system properties: its id and key are those in its text. The text is exact; what is parsed has doubles for all numbers. */
export interface ItemToWrite extends ItemName {
  readonly document: Document;
  readonly json: string;
}

/** One operation of a batch. */
export type BatchOperation = {
  readonly precondition?: UpsertPrecondition | undefined;
  /** Id of the event that it comes of: of the script that asked for it. By default it is the request. */
  readonly causationId?: string | undefined;
} & (
  | { readonly kind: 'write'; readonly operation: 'create' | 'upsert' | 'replace'; readonly item: ItemToWrite }
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
  /** The first operation that can't be done, by its index. Nothing was written. */
  | { readonly kind: 'refused'; readonly index: number; readonly refusal: Refusal };

/** A page of the items in a scope. */
export interface ItemsPage extends Scope {
  readonly maxItemCount: number;
  readonly continuation?: Continuation | undefined;
  /** Wait for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
}

/** Items. `partitionKey` is canonical JSON of an array of components. */
export interface ItemsApi {
  /** The body's text is stored as it is; the caller has checked that it is an object whose id and key are those given. */
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
   * Carries out operations in order, each seeing what those before it did. Either all of them are recorded or none.
   *
   * @param options.dryRun decides only, and writes nothing
   * @throws Refusal not-supported when the log can't append to several streams at once and this needs to
   */
  batchItems(
    caller: Caller,
    container: ContainerState,
    operations: readonly BatchOperation[],
    options?: { readonly dryRun?: boolean; readonly atLeast?: AtLeast | undefined },
  ): Promise<BatchOutcome>;
  /** Every item of a partition key leaves at one instant. Their content is erased by the purge, as after any delete. */
  deletePartitionKey(
    caller: Caller,
    container: ContainerState,
    partitionKey: string,
  ): Promise<{ readonly position: number }>;
  /** @throws Refusal item-not-found, session-not-available */
  readItem(container: ContainerState, id: string, partitionKey: string, atLeast?: AtLeast): Promise<FoundItem>;
  /**
   * The visible item whose life began at a position.
   *
   * @param isWanted asked before anything of it is opened; by the names that are on record
   */
  itemByBirth(
    container: ContainerState,
    birth: number,
    isWanted?: (name: ItemName) => boolean,
  ): Promise<ShownItem | undefined>;
  /** How many visible items there are; in large containers as of a moment ago. */
  countItems(container: ContainerState): Promise<number>;
  /** Visible items in order of birth. */
  listItems(
    container: ContainerState,
    page: ItemsPage,
  ): Promise<{ readonly items: readonly ShownItem[]; readonly continuation?: Continuation }>;
}
