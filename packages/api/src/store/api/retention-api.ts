import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { RecordedScope } from '@epitaph/core/retention/events.ts';
import type { RecordedHold } from '@epitaph/core/retention/hold-register.ts';
import type { Caller } from './common.ts';
import type { PastContent } from './history-api.ts';
import type { QueryRequest } from './queries-api.ts';

/** What a hold should cover. Partition keys are canonical JSON of an array of components. */
export interface HoldRequest {
  readonly scope:
    | { readonly kind: 'container' }
    | { readonly kind: 'partition-key'; readonly partitionKey: string }
    | {
        readonly kind: 'items';
        readonly items: readonly ItemName[];
      }
    | { readonly kind: 'query'; readonly sql: string; readonly parameters: QueryRequest['parameters'] };
  readonly reason: string;
}

/** A hold with everything that it names. */
export type ShownHold = Omit<RecordedHold, 'scope'> & { readonly scope: RecordedScope };

export interface PlacedHold {
  readonly hold: ShownHold;
  /** False if the hold existed already. */
  readonly placed: boolean;
}

export interface ErasureOutcome {
  /** Log position of the request. */
  readonly position: number;
  readonly erasedLives: number;
  readonly alreadyErasedLives: number;
}

export interface RecoveredItem {
  readonly life: number;
  readonly fromLife: number;
  /** `_ts` of the new life. */
  readonly ts: number;
  readonly position: number;
  /** When the item will expire under the present policies, in milliseconds; null for never. */
  readonly expiresAtMs: number | null;
}

export interface RecoverySummary {
  readonly recovered: number;
  /** Items left alone because something was written under their names since; that may be an earlier recovery. */
  readonly writtenSince: number;
  /** Items that are still gone because another item has their value of a unique key. */
  readonly uniqueKeyTaken: number;
  /** Items left alone because their content is gone. */
  readonly erased: number;
  /** Items left alone because their data in the log or the vault is damaged. */
  readonly unreadable: number;
}

/** What keeps content, and what erases it on request. All of this works for deleted containers too. */
export interface RetentionApi {
  /**
   * Holds of a container after a position of the log, in the order in which they were placed, including released ones.
   */
  holds(
    container: ContainerState,
    page: { readonly after: number; readonly limit?: number | undefined },
  ): Promise<readonly RecordedHold[]>;
  /** @throws Refusal hold-not-found */
  hold(container: ContainerState, holdId: string): Promise<ShownHold>;
  /**
   * Resolves when no key that the hold covers can be destroyed any more.
   *
   * @throws Refusal already-exists for another hold of that id, hold-too-wide for a query that finds too much
   */
  placeHold(caller: Caller, container: ContainerState, holdId: string, request: HoldRequest): Promise<PlacedHold>;
  /** @throws Refusal hold-not-found */
  releaseHold(caller: Caller, container: ContainerState, holdId: string, reason: string): Promise<ShownHold>;
  setRetentionFloor(
    caller: Caller,
    container: ContainerState,
    seconds: number,
    reason: string,
  ): Promise<ContainerState>;
  setRecoveryWindow(
    caller: Caller,
    container: ContainerState,
    seconds: number,
    reason: string,
  ): Promise<ContainerState>;
  /**
   * Erases every life of an item now.
   *
   * @throws Refusal item-not-found, held with what keeps the item
   */
  eraseItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    request: { readonly reason: string; readonly requestedBy: string },
  ): Promise<ErasureOutcome>;
  /**
   * Begins a new life with the content of an ended one, by default the last.
   *
   * @throws Refusal item-not-found, already-exists while a newer life is live, content-erased
   */
  recoverItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    request: { readonly reason: string; readonly life?: number | undefined },
  ): Promise<RecoveredItem>;
  /**
   * Recovers every item that the start of one policy ended. @throws Refusal bad-request for a policy that never existed
   */
  recoverPolicy(
    caller: Caller,
    container: ContainerState,
    policyVersion: number,
    request: {
      readonly reason: string;
      readonly onProgress?: ((progress: { readonly done: number; readonly total: number }) => void) | undefined;
      readonly signal?: AbortSignal | undefined;
    },
  ): Promise<RecoverySummary>;
  /**
   * The content of an ended life, by default of the last one that has content. It is the content of its last write, or
   * of the write of a revision. The reading is recorded first.
   *
   * @throws Refusal item-not-found, content-erased
   */
  heldContent(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    request: {
      readonly reason: string;
      readonly life?: number | undefined;
      readonly revision?: number | undefined;
    },
  ): Promise<PastContent>;
}
