import type { PolicyTimeline } from '../ttl/policy-timeline.ts';
import type { OwnTtl } from '../ttl/ttl-value.ts';
import type { Ledger, PurgeCause, WriteOperation } from './events.ts';

/** What every item command knows of its time and its container; decided with and by nothing else. */
interface InContainer {
  readonly nowMs: number;
  readonly timeline: PolicyTimeline;
}

interface Conditional {
  /** The etag that the item must have, or `*` for any. */
  readonly ifMatch?: string | undefined;
  /** `*`: the item must not be there. */
  readonly ifNoneMatch?: string | undefined;
}

export interface WriteItem extends InContainer, Conditional {
  readonly type: 'WriteItem';
  readonly operation: WriteOperation;
  readonly id: string;
  readonly partitionKey: string;
  readonly ttl: OwnTtl;
  readonly bytes: number;
}

export interface DeleteItem extends InContainer, Conditional {
  readonly type: 'DeleteItem';
}

/** The purge saga says: by the projection this life is overdue. The decider looks for itself. */
export interface RecordExpiry extends InContainer {
  readonly type: 'RecordExpiry';
}

/** The content is gone: the key of the life was destroyed. */
export interface RecordPurge {
  readonly type: 'RecordPurge';
  readonly id: string;
  readonly partitionKey: string;
  readonly cause: PurgeCause;
  readonly key: number;
  readonly recoverableUntilMs: number | null;
  readonly ledger: Ledger;
}

export type ItemCommand = WriteItem | DeleteItem | RecordExpiry | RecordPurge;
