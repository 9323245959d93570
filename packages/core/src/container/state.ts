import type { Retention } from '../retention/state.ts';
import type { Provisioning } from '../throughput/provisioning.ts';
import type { PolicyStart } from '../ttl/policy-timeline.ts';
import type { TtlBrake } from './events.ts';
import type { ContainerDefinition } from './definition.ts';

/** A policy with who recorded it, when and why. */
export interface RecordedPolicy extends PolicyStart {
  /** The actor who set it. */
  readonly setBy: string;
  readonly recordedAtMs: number;
  readonly reason?: string;
  /** It was requested to take effect later than it was recorded. */
  readonly scheduled?: true;
}

/** The record that all items of a partition key left at an instant. */
export interface PartitionKeyDelete {
  readonly partitionKey: string;
  readonly atMs: number;
  /** Position of the record in the log. Lives whose last write is before it have left. */
  readonly position: number;
  /** The actor who asked for it. */
  readonly by: string;
}

/** The state of a container, from all events of its stream. Plain data: the read model stores it as JSON. */
export interface ContainerState extends Provisioning {
  readonly status: 'live' | 'deleted';
  readonly rid: string;
  readonly databaseRid: string;
  readonly name: string;
  readonly definition: ContainerDefinition;
  /** The TTL history; see ttl/policy-timeline.ts. */
  readonly timeline: readonly RecordedPolicy[];
  /** The highest policy version ever given out, if that policy was withdrawn and so is not in the timeline. */
  readonly withdrawnVersion?: number;
  /** How much a TTL change may make expire at once. Absent for no limit. */
  readonly brake?: TtlBrake;
  readonly policyGraceSeconds: number;
  /** Deletes by partition key, oldest first, that are not yet recorded in all lives they concern. */
  readonly partitionKeyDeletes: readonly PartitionKeyDelete[];
  /** Holds, floors, and whatever else the stream says about keeping content. */
  readonly retention: Retention;
  readonly etag: string;
  readonly createdAtMs: number;
  readonly changedAtMs: number;
  readonly deletedAtMs: number | null;
  /** Who deleted it, if it was deleted. */
  readonly deletedBy?: string;
  /** Only in read models: the log had lost events of the container when they were made, so this state may be wrong. */
  readonly lacksEvents?: true;
  /** Only in read models: the log has items of the container whose names are lost. */
  readonly hasNameless?: true;
}
