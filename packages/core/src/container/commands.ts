import type { ChangeThroughput } from '../throughput/provisioning.ts';
import type { Throughput } from '../throughput/throughput.ts';
import type { DefaultTtl } from '../ttl/ttl-value.ts';
import type { ContainerDefinition } from './definition.ts';

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

export interface ReplaceContainer {
  readonly type: 'ReplaceContainer';
  readonly definition: ContainerDefinition;
  readonly defaultTtl: DefaultTtl;
  readonly ifMatch?: string | undefined;
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
}

export type ContainerCommand = (
  | CreateContainer
  | ReplaceContainer
  | ChangePolicyGrace
  | ChangeThroughput
  | DeleteContainer
) & {
  readonly nowMs: number;
};
