import type { Permission } from './events.ts';

export interface PermissionState extends Permission {
  /** Revision of the event that created it. This is its number within the user, which is never used again. */
  readonly birth: number;
  readonly etag: string;
  readonly changedAtMs: number;
}

/** The state of a user, from all events of its stream. */
export interface UserState {
  readonly status: 'live' | 'deleted';
  readonly rid: string;
  readonly databaseRid: string;
  readonly name: string;
  /** In order of creation; empty once the user is deleted. */
  readonly permissions: readonly PermissionState[];
  readonly etag: string;
  readonly changedAtMs: number;
}

/** A stream without a user, which only has the record that a user has taken its name. */
export interface TakenUserName {
  readonly status: 'taken';
  readonly name: string;
  readonly user: string;
}
