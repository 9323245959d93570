import type { ChangeThroughput } from '../throughput/provisioning.ts';
import type { Throughput } from '../throughput/throughput.ts';

export interface CreateDatabase {
  readonly type: 'CreateDatabase';
  readonly name: string;
  /** The throughput that its containers share. None if left out. */
  readonly throughput?: Throughput | undefined;
}

export interface DeleteDatabase {
  readonly type: 'DeleteDatabase';
  readonly ifMatch?: string | undefined;
}

export type DatabaseCommand = CreateDatabase | ChangeThroughput | DeleteDatabase;
