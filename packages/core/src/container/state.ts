import type { Retention } from '../retention/state.ts';
import type { Provisioning } from '../throughput/provisioning.ts';
import type { PolicyStart } from '../ttl/policy-timeline.ts';
import type { TtlBrake } from './events.ts';
import type { ContainerDefinition } from './definition.ts';

/** A policy with what history says of it. */
export interface RecordedPolicy extends PolicyStart {
  /** The actor who set it. */
  readonly setBy: string;
  readonly recordedAtMs: number;
  readonly reason?: string;
  /** It was asked for to take effect later than it was recorded. */
  readonly scheduled?: true;
}

/** All items of a partition key left at an instant. */
export interface PartitionKeyDelete {
  readonly partitionKey: string;
  readonly atMs: number;
  /** Of the record in the log: lives whose last write stands before it left. */
  readonly position: number;
  /** The actor who asked for it. */
  readonly by: string;
}

/** Everything a container's stream says at a moment. Plain data: the read model keeps it as JSON. */
export interface ContainerState extends Provisioning {
  readonly status: 'live' | 'deleted';
  readonly rid: string;
  readonly databaseRid: string;
  readonly name: string;
  readonly definition: ContainerDefinition;
  /** The TTL history; see ttl/policy-timeline.ts. */
  readonly timeline: readonly RecordedPolicy[];
  /** The highest policy version ever given out, where that is not the timeline's last: one that was withdrawn. */
  readonly withdrawnVersion?: number;
  /** How much a TTL change may make expire at once; absent for no limit. */
  readonly brake?: TtlBrake;
  readonly policyGraceSeconds: number;
  /** Deletes by partition key, oldest first, that not all lives concerned have on record yet. */
  readonly partitionKeyDeletes: readonly PartitionKeyDelete[];
  /** Holds, floors, and what else the stream says of keeping content. */
  readonly retention: Retention;
  readonly etag: string;
  readonly createdAtMs: number;
  readonly changedAtMs: number;
  readonly deletedAtMs: number | null;
  /** Who deleted it, if anyone. */
  readonly deletedBy?: string;
  /** Of the read models alone: the log had lost events of it when they were made, so the above may not be what was so. */
  readonly lacksEvents?: true;
  /** Of the read models alone: the log has items of it of which it can't say the name. */
  readonly hasNameless?: true;
}
