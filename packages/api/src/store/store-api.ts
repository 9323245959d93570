import type { ClockJump } from '@epitaph/core/clock.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { Measurements } from '../metrics/measurements.ts';
import type { RequestUnits } from '../request-units/request-units.ts';
import type { CatalogApi } from './api/catalog-api.ts';
import type { ChangeFeedApi } from './api/change-feed-api.ts';
import type { Caller } from './api/common.ts';
import type { HistoryApi } from './api/history-api.ts';
import type { ItemsApi } from './api/items-api.ts';
import type { OperationsApi } from './api/operations-api.ts';
import type { ProofsApi } from './api/proofs-api.ts';
import type { QueriesApi } from './api/queries-api.ts';
import type { RetentionApi } from './api/retention-api.ts';
import type { ScriptsApi } from './api/scripts-api.ts';
import type { UsersApi } from './api/users-api.ts';

/**
 * The store for its callers: HTTP, the command line and in-process users. Every expected "no" is thrown as a `Refusal`
 * with a code of core/errors.ts.
 */
export interface StoreApi
  extends
    CatalogApi,
    UsersApi,
    ScriptsApi,
    ItemsApi,
    QueriesApi,
    ChangeFeedApi,
    HistoryApi,
    RetentionApi,
    ProofsApi,
    OperationsApi {
  /**
   * The budgets of request units and what has been spent. The HTTP layer asks it and reports to it; the purge does so
   * itself.
   */
  readonly requestUnits: RequestUnits;
  /** What was measured since the start. */
  readonly measurements: Measurements;
  nowMs(): number;
  readonly clockKind: 'system' | 'manual';
  /**
   * How long time stands still, in milliseconds, because times were used that the system clock has not reached yet.
   * Until it has, nothing expires. 0 while time goes on, while the clock is held, and for a manual clock.
   */
  clockStandsStillMs(): number;
  /**
   * Why the clock is held: nothing is stamped, expires or is erased before it agrees again or is confirmed. Undefined
   * while it goes on.
   */
  clockHeld(): string | undefined;
  /** @throws Refusal not-supported unless the clock is manual; RangeError for a number that is not allowed */
  advanceClock(milliseconds: number): Promise<number>;
  /**
   * Accepts the wall clock as it is after a jump.
   *
   * @param options `pausePurge`: the caller that pauses the purge at the same time. Then nothing that is overdue by the
   *   new time is erased before the pause is recorded, or the purge is resumed, even if recording fails at first.
   * @returns the jump that was accepted, undefined if there was none
   */
  confirmClock(options?: { readonly pausePurge?: Caller | undefined }): Promise<ClockJump | undefined>;
  /** The highest log position that this store knows of. */
  headPosition(): number;
  /**
   * Whether the log has reached a position. Another node may have written more than this one knows; then the log is
   * asked.
   */
  reaches(position: number): MaybePromise<boolean>;
  /** Closes gracefully: finishes writes under way, refuses new ones, closes files. */
  close(): Promise<void>;
}
