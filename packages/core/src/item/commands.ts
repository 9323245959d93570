import type { PolicyTimeline } from '../ttl/policy-timeline.ts';
import type { OwnTtl } from '../ttl/ttl-value.ts';
import type { ItemPurged, WriteOperation } from './events.ts';
import type { ItemName } from './pseudonym.ts';

/** What every item command knows of its time and its container; decided with and by nothing else. */
interface InContainer {
  readonly nowMs: number;
  readonly timeline: PolicyTimeline;
}

/** That an item left with its partition key before this command, which its own stream does not say yet. */
export interface LeftWithPartitionKey {
  readonly atMs: number;
  readonly by: string;
  /** Of the item's last write. */
  readonly position?: number;
}

export interface OnLife extends InContainer {
  readonly leftWithPartitionKey?: LeftWithPartitionKey | undefined;
}

interface Conditional {
  /** The etag that the item must have, or `*` for any. */
  readonly ifMatch?: string | undefined;
}

export interface WriteItem extends OnLife, Conditional, ItemName {
  readonly type: 'WriteItem';
  readonly operation: WriteOperation;
  readonly ttl: OwnTtl;
  readonly bytes: number;
  /** Of an upsert: the etag that the item must not have, or `*`: it must not be there. */
  readonly ifNoneMatch?: string | undefined;
  /** See ItemUpserted. That they are free is decided on their own streams. */
  readonly uniqueKeys?: readonly string[] | undefined;
}

export interface DeleteItem extends OnLife, Conditional {
  readonly type: 'DeleteItem';
}

/** Begins a new life with the content of one that has ended. */
export interface RecoverItem extends OnLife, ItemName {
  readonly type: 'RecoverItem';
  readonly fromLife: number;
  readonly ttl: OwnTtl;
  readonly bytes: number;
  /** As of {@link WriteItem}. */
  readonly uniqueKeys?: readonly string[] | undefined;
}

/** The purge saga says: by the projection this life is overdue. The decider looks for itself. */
export interface RecordExpiry extends InContainer {
  readonly type: 'RecordExpiry';
}

/** The purge saga says: this life left with its partition key. The decider looks for itself whether it had expired. */
export interface RecordPartitionKeyDelete extends Pick<InContainer, 'timeline'> {
  readonly type: 'RecordPartitionKeyDelete';
  readonly leftWithPartitionKey: LeftWithPartitionKey;
}

/** The content is gone: the key of the life was destroyed. */
export interface RecordPurge extends Omit<ItemPurged, 'erased'> {
  readonly type: 'RecordPurge';
}

export type ItemCommand = WriteItem | RecoverItem | DeleteItem | RecordExpiry | RecordPartitionKeyDelete | RecordPurge;
