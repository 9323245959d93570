import type { PolicyTimeline } from '../ttl/policy-timeline.ts';
import type { OwnTtl } from '../ttl/ttl-value.ts';
import type { ItemPurged, WriteOperation } from './events.ts';
import type { ItemName } from './pseudonym.ts';

/** The time and the TTL history of the container, which every item command has. Nothing else enters the decision. */
interface InContainer {
  readonly nowMs: number;
  readonly timeline: PolicyTimeline;
}

/** The item left with its partition key before this command, and its own stream does not say so yet. */
export interface LeftWithPartitionKey {
  readonly atMs: number;
  readonly by: string;
  /** Position of the item's last write. */
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
  /** For an upsert: the etag that the item must not have, or `*` if the item must not exist. */
  readonly ifNoneMatch?: string | undefined;
  /** See ItemUpserted. Whether the values are free is decided on their own streams. */
  readonly uniqueKeys?: readonly string[] | undefined;
}

export interface DeleteItem extends OnLife, Conditional {
  readonly type: 'DeleteItem';
}

/** Begins a new life with the content of a life that has ended. */
export interface RecoverItem extends OnLife, ItemName {
  readonly type: 'RecoverItem';
  readonly fromLife: number;
  readonly ttl: OwnTtl;
  readonly bytes: number;
  /** See {@link WriteItem}. */
  readonly uniqueKeys?: readonly string[] | undefined;
}

/** From the purge: according to the read model this life is overdue. The decider checks this itself. */
export interface RecordExpiry extends InContainer {
  readonly type: 'RecordExpiry';
}

/** From the purge: this life left with its partition key. The decider checks itself whether it had expired before. */
export interface RecordPartitionKeyDelete extends Pick<InContainer, 'timeline'> {
  readonly type: 'RecordPartitionKeyDelete';
  readonly leftWithPartitionKey: LeftWithPartitionKey;
}

/** The key of the life is destroyed, so its content is gone. */
export interface RecordPurge extends Omit<ItemPurged, 'erased'> {
  readonly type: 'RecordPurge';
}

export type ItemCommand = WriteItem | RecoverItem | DeleteItem | RecordExpiry | RecordPartitionKeyDelete | RecordPurge;
