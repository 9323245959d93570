import type { Provisioning } from '../throughput/provisioning.ts';

/** The state of a database, from all events of its stream. */
export interface DatabaseState extends Provisioning {
  readonly status: 'live' | 'deleted';
  readonly rid: string;
  readonly name: string;
  readonly etag: string;
  readonly createdAtMs: number;
  readonly deletedAtMs: number | null;
  /** Who deleted it, if it was deleted. */
  readonly deletedBy?: string;
}
