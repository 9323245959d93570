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
 * The store as the edge sees it: what HTTP, the command line and in-process users call. Every expected "no" is
 * thrown as a `Refusal` with a code of core/errors.ts.
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
  /** Who may spend how much, and who has spent what. The edge asks and tells it; the purge does so itself. */
  readonly requestUnits: RequestUnits;
  /** What was measured since the start. */
  readonly measurements: Measurements;
  nowMs(): number;
  readonly clockKind: 'system' | 'manual';
  /**
   * For how long time stands still, in milliseconds, because times were used that the system clock has yet to come to;
   * until then nothing expires. 0 while it goes on, while it is held, and for a manual clock.
   */
  clockStandsStillMs(): number;
  /** Why nothing is stamped, expires or is erased before the clock agrees again or is confirmed; undefined while it goes on. */
  clockHeld(): string | undefined;
  /** @throws Refusal not-supported unless the clock is manual; RangeError for a bad number. */
  advanceClock(milliseconds: number): Promise<number>;
  /**
   * Accepts the wall clock as it is after a jump.
   *
   * @param options `pausePurge`: who has the purge paused with it. Nothing that is overdue by the new time is erased then,
   *   also if the pause could not be recorded: until it is, or the purge is resumed.
   * @returns the jump that was accepted, undefined if there was none
   */
  confirmClock(options?: { readonly pausePurge?: Caller | undefined }): Promise<ClockJump | undefined>;
  /** Highest log position that this store knows of. */
  headPosition(): number;
  /** Whether the log has come to a position. Another node may have written more than is known here: then it is asked. */
  reaches(position: number): MaybePromise<boolean>;
  /** Ends gracefully: finishes writes under way, refuses new ones, closes files. */
  close(): Promise<void>;
}
