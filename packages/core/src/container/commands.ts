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
  /** Of its own; none when left out. */
  readonly throughput?: Throughput | undefined;
}

/** What a TTL change would make expire at once: so many items of so many that are visible. */
export interface ExpiringAtOnce {
  readonly items: number;
  readonly of: number;
}

export interface ReplaceContainer {
  readonly type: 'ReplaceContainer';
  readonly definition: ContainerDefinition;
  readonly defaultTtl: DefaultTtl;
  /** Counted by whoever asks, where the container has a brake, or may have one by the time that it is decided. */
  readonly expiring?: ExpiringAtOnce | undefined;
  readonly ifMatch?: string | undefined;
}

/** Changes the TTL alone; also at a later time, and past a brake by confirmation. */
export interface ChangeTtl {
  readonly type: 'ChangeTtl';
  readonly defaultTtl: DefaultTtl;
  /** In milliseconds; now when absent. */
  readonly effectiveFromMs?: number | undefined;
  readonly expiring: ExpiringAtOnce;
  readonly confirmed: boolean;
  readonly reason?: string | undefined;
  /** The log has lost events of the container, so what held before is not known: confirmed, the change says what holds from now on. */
  readonly afterLoss?: boolean | undefined;
}

/** Takes back the TTL change that is to take effect later. */
export interface WithdrawTtl {
  readonly type: 'WithdrawTtl';
  readonly reason?: string | undefined;
}

export interface ChangeTtlBrake {
  readonly type: 'ChangeTtlBrake';
  /** Null for none. */
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
  /** As of {@link ChangeTtl}: nothing has an end there but by this. */
  readonly afterLoss?: boolean | undefined;
}

/** Deletes all items of a partition key at once. */
export interface DeletePartitionKey {
  readonly type: 'DeletePartitionKey';
  readonly partitionKey: string;
}

/** The purge saga says: no life is left that has to have this delete put on record. */
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
   * How long after it is recorded a TTL change takes effect, in milliseconds, so that every node knows of it by then.
   * 0 when absent: there is one node.
   */
  readonly policyDelayMs?: number | undefined;
};
