import type { RecordedScope } from './events.ts';

/** A hold as the container's stream has it; one that was released stays. */
export interface RecordedHold {
  readonly holdId: string;
  /** Of a query's result only how many lives it named: the event at `position` has their names. */
  readonly scope: Exclude<RecordedScope, { kind: 'query' }> | { readonly kind: 'query'; readonly count: number };
  readonly reason: string;
  readonly tooLateFor: number;
  readonly placedBy: string;
  readonly placedAtMs: number;
  /** Of the `HoldPlaced` in the log. */
  readonly position: number;
  readonly released?: { readonly by: string; readonly atMs: number; readonly reason: string };
}

/** A request of which it is not on record what became of it. */
export interface PendingErasure {
  /** Of the `ErasureRequested` in the log. */
  readonly position: number;
  readonly item: string;
  readonly by: string;
}

/** What a container's stream says of keeping content. */
export interface Retention {
  readonly holds: readonly RecordedHold[];
  /** 0 for none. */
  readonly floorSeconds: number;
  /** 0 for none. */
  readonly recoveryWindowSeconds: number;
  readonly erasures: readonly PendingErasure[];
}

export const initialRetention: Retention = { holds: [], floorSeconds: 0, recoveryWindowSeconds: 0, erasures: [] };
