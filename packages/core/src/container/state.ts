import type { Provisioning } from '../throughput/provisioning.ts';
import type { PolicyStart } from '../ttl/policy-timeline.ts';
import type { ContainerDefinition } from './definition.ts';

/** A policy with what history says of it. */
export interface RecordedPolicy extends PolicyStart {
  /** The actor who set it. */
  readonly setBy: string;
  readonly recordedAtMs: number;
  readonly reason?: string;
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
  readonly policyGraceSeconds: number;
  readonly etag: string;
  readonly createdAtMs: number;
  readonly changedAtMs: number;
  readonly deletedAtMs: number | null;
}
