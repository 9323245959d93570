import type { RetentionCommand } from '../retention/commands.ts';
import type { ChangeThroughput } from '../throughput/provisioning.ts';
import type { Throughput } from '../throughput/throughput.ts';
import type { DefaultTtl } from '../ttl/ttl-value.ts';
import type { ContainerDefinition } from './definition.ts';
import type { TtlBrake } from './events.ts';

export interface CreateContainer {
  readonly type: 'CreateContainer';
  readonly databaseRid: string;
  readonly name: string;
  readonly definition: ContainerDefinition;
  readonly defaultTtl: DefaultTtl;
  readonly policyGraceSeconds: number;
  /** The container's own throughput. None if left out. */
  readonly throughput?: Throughput | undefined;
}

/** What a TTL change would make expire at once: `items` of the `of` visible items. */
export interface ExpiringAtOnce {
  readonly items: number;
  readonly of: number;
}

export interface ReplaceContainer {
  readonly type: 'ReplaceContainer';
  readonly definition: ContainerDefinition;
  readonly defaultTtl: DefaultTtl;
  /** Counted by the caller if the container has a brake, or may have one by the time the command is decided. */
  readonly expiring?: ExpiringAtOnce | undefined;
  readonly ifMatch?: string | undefined;
}

/** Changes only the TTL. Can take effect at a later time, and can go past a brake if it is confirmed. */
export interface ChangeTtl {
  readonly type: 'ChangeTtl';
  readonly defaultTtl: DefaultTtl;
  /** In milliseconds; now when absent. */
  readonly effectiveFromMs?: number | undefined;
  readonly expiring: ExpiringAtOnce;
  readonly confirmed: boolean;
  readonly reason?: string | undefined;
  /**
   * The log has lost events of the container, so its former TTL is not known. A confirmed change says what applies from
   * now on.
   */
  readonly afterLoss?: boolean | undefined;
}

/** Withdraws the TTL change that is scheduled for later. */
export interface WithdrawTtl {
  readonly type: 'WithdrawTtl';
  readonly reason?: string | undefined;
}

export interface ChangeTtlBrake {
  readonly type: 'ChangeTtlBrake';
  /** Null for no brake. */
  readonly brake: TtlBrake | null;
  readonly reason?: string | undefined;
}

export interface ChangePolicyGrace {
  readonly type: 'ChangePolicyGrace';
  readonly seconds: number;
  readonly reason?: string | undefined;
}

export interface DeleteContainer {
  readonly type: 'DeleteContainer';
  readonly ifMatch?: string | undefined;
  /** As for {@link ChangeTtl}: the items end by this deletion, and not by any earlier policy. */
  readonly afterLoss?: boolean | undefined;
}

/** Deletes all items of a partition key at once. */
export interface DeletePartitionKey {
  readonly type: 'DeletePartitionKey';
  readonly partitionKey: string;
}

/** From the purge: all lives that left with this delete have it recorded in their own streams. */
export interface CompletePartitionKeyDelete {
  readonly type: 'CompletePartitionKeyDelete';
  readonly position: number;
}

export type ContainerCommand = (
  | CreateContainer
  | ReplaceContainer
  | ChangeTtl
  | WithdrawTtl
  | ChangeTtlBrake
  | ChangePolicyGrace
  | ChangeThroughput
  | RetentionCommand
  | DeletePartitionKey
  | CompletePartitionKeyDelete
  | DeleteContainer
) & {
  readonly nowMs: number;
  /**
   * How long after its record a TTL change takes effect, in milliseconds, so that every node knows of it by then. 0 if
   * absent: there is one node.
   */
  readonly policyDelayMs?: number | undefined;
};
