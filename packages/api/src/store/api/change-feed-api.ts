import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { AtLeast } from './common.ts';
import type { ShownItem } from './items-api.ts';

/** Where a reader of a change feed begins. */
export type FeedStart =
  | { readonly kind: 'beginning' }
  /** Only changes after this request. */
  | { readonly kind: 'now' }
  /** Changes at or after a time, in milliseconds. */
  | { readonly kind: 'time'; readonly atMs: number }
  /** Changes after a log position, taken from an earlier page. */
  | { readonly kind: 'after'; readonly position: number };

export interface ChangeFeedRequest {
  /** `latest`: every item as it is now, in order of its last write. `all-versions`: every write, delete and expiry. */
  readonly mode: 'latest' | 'all-versions';
  readonly start: FeedStart;
  /** Leaves out changes before this time, in milliseconds, wherever the reader begins. */
  readonly notBeforeMs?: number | undefined;
  readonly scope: Scope;
  /** The most changes of a page, but for those that were written together with the last of them. */
  readonly maxItemCount: number;
  /** Asks for {@link ChangeFeedPage.left}. */
  readonly countsLeft?: boolean | undefined;
  /** The read waits for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A change as a feed shows it. Deletes and expiries are in the feed of all versions only. */
export type FeedChange =
  | {
      readonly kind: 'written';
      readonly item: ShownItem;
      /** Log position of the write. */
      readonly position: number;
      /** True for the first write of a life. */
      readonly created: boolean;
      /** Log position of the write that this one replaced; all versions only. */
      readonly previousPosition?: number;
    }
  | (ItemName & {
      readonly kind: 'deleted';
      readonly position: number;
      /** The time at which it was recorded, in milliseconds. */
      readonly atMs: number;
      readonly expired: boolean;
      /** The item before the change. */
      readonly previous?: ShownItem;
      readonly previousPosition?: number;
    });

export interface ChangeFeedPage {
  readonly changes: readonly FeedChange[];
  /** Where the next page begins: everything up to and including this position has been examined. */
  readonly position: number;
  /** False when the page ended early, to be short, so that there may be more changes. */
  readonly reachedEnd: boolean;
  /** Events that were examined. */
  readonly examined: number;
  /**
   * About how many changes come after this page: exact up to some thousands, and above that rather too many. Absent if
   * it was not requested, and for a page without changes.
   */
  readonly left?: number;
}

export interface ChangeFeedApi {
  /**
   * A page of a container's change feed.
   *
   * @throws Refusal bad-request for a start outside what is kept; session-not-available
   */
  readChangeFeed(container: ContainerState, request: ChangeFeedRequest): Promise<ChangeFeedPage>;
}
