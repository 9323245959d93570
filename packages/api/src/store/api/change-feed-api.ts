import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { AtLeast } from './common.ts';
import type { ShownItem } from './items-api.ts';

/** Where a reading of a change feed begins. */
export type FeedStart =
  | { readonly kind: 'beginning' }
  /** Only what comes after this request. */
  | { readonly kind: 'now' }
  /** What happened at or after a time, in milliseconds. */
  | { readonly kind: 'time'; readonly atMs: number }
  /** After a log position that an earlier page gave. */
  | { readonly kind: 'after'; readonly position: number };

export interface ChangeFeedRequest {
  /** `latest`: every item as it is now, in order of its last write. `all-versions`: every write, delete and expiry. */
  readonly mode: 'latest' | 'all-versions';
  readonly start: FeedStart;
  /** Leaves out what happened before this time, in milliseconds, wherever the reading begins. */
  readonly notBeforeMs?: number | undefined;
  readonly scope: Scope;
  /** The most changes of a page, but for those that were written together with the last of them. */
  readonly maxItemCount: number;
  /** Asks for {@link ChangeFeedPage.left}. */
  readonly countsLeft?: boolean | undefined;
  /** Wait for this first (session token, consistency level). */
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
      /** When it was recorded, in milliseconds. */
      readonly atMs: number;
      readonly expired: boolean;
      /** The item as it was. */
      readonly previous?: ShownItem;
      readonly previousPosition?: number;
    });

export interface ChangeFeedPage {
  readonly changes: readonly FeedChange[];
  /** Where the next page goes on: everything up to and including this position has been looked at. */
  readonly position: number;
  /** False when the page ended early, to be short, and there may be more by now. */
  readonly reachedEnd: boolean;
  /** Events that were looked at. */
  readonly examined: number;
  /**
   * About how many changes come after this page: as many as there are up to some thousands, else rather too many. Absent where
   * nobody asked, and of a page without changes.
   */
  readonly left?: number;
}

export interface ChangeFeedApi {
  /**
   * A page of a container's change feed.
   *
   * @throws Refusal bad-request for a start that lies outside what is kept; session-not-available
   */
  readChangeFeed(container: ContainerState, request: ChangeFeedRequest): Promise<ChangeFeedPage>;
}
