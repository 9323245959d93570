import type { Permission } from './events.ts';

export interface CreateUser {
  readonly type: 'CreateUser';
  readonly databaseRid: string;
  readonly name: string;
}

/** For the stream that belongs to the new name of a renamed user. */
export interface TakeUserName {
  readonly type: 'TakeUserName';
  readonly databaseRid: string;
  readonly name: string;
  readonly user: string;
}

export interface RenameUser {
  readonly type: 'RenameUser';
  readonly name: string;
  readonly ifMatch?: string | undefined;
}

export interface DeleteUser {
  readonly type: 'DeleteUser';
  readonly ifMatch?: string | undefined;
}

export interface WritePermission {
  readonly type: 'WritePermission';
  readonly operation: 'create' | 'upsert';
  readonly permission: Permission;
  readonly ifMatch?: string | undefined;
}

export interface ReplacePermission {
  readonly type: 'ReplacePermission';
  /** The permission's present name, or its number within the user. The name in `permission` may be a new one. */
  readonly name: string | number;
  readonly permission: Permission;
  readonly ifMatch?: string | undefined;
}

export interface DeletePermission {
  readonly type: 'DeletePermission';
  /** The permission's name, or its number within the user. */
  readonly name: string | number;
  readonly ifMatch?: string | undefined;
}

export type UserCommand =
  | CreateUser
  | TakeUserName
  | RenameUser
  | DeleteUser
  | WritePermission
  | ReplacePermission
  | DeletePermission;
