import type { Permission } from './events.ts';

export interface PermissionState extends Permission {
  /** Revision of the event that created it: its number within the user, never given out again. */
  readonly birth: number;
  readonly etag: string;
  readonly changedAtMs: number;
}

/** Everything a user's stream says at a moment. */
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

/** A stream that holds no user, only the record that its name was taken by one. */
export interface TakenUserName {
  readonly status: 'taken';
  readonly name: string;
  readonly user: string;
}
