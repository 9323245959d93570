import type { Provisioning } from '../throughput/provisioning.ts';

/** Everything a database's stream says at a moment. */
export interface DatabaseState extends Provisioning {
  readonly status: 'live' | 'deleted';
  readonly rid: string;
  readonly name: string;
  readonly etag: string;
  readonly createdAtMs: number;
  readonly deletedAtMs: number | null;
  /** Who deleted it, if anyone. */
  readonly deletedBy?: string;
}
