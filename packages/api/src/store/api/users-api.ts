import type { Permission, PermissionTarget } from '@epitaph/core/user/events.ts';
import type { PermissionState, UserState } from '@epitaph/core/user/state.ts';
import type { Caller, Precondition, Written } from './common.ts';

/** What a valid token allows its holder to do. */
export interface Grant {
  /** The actor in events: `token:<rid of the permission>`. */
  readonly actor: string;
  readonly databaseRid: string;
  readonly target: PermissionTarget;
  readonly writes: boolean;
}

export type TokenVerdict =
  | { readonly ok: true; readonly grant: Grant }
  | { readonly ok: false; readonly reason: 'malformed' | 'wrong-signature' | 'expired' | 'revoked' };

/** Makes a token for a permission, valid for `lifetimeSeconds`. */
export type TokenSigner = (user: UserState, permission: PermissionState, lifetimeSeconds: number) => string;

/** Users and their permissions, by the rid of their database. Lists are in order of creation. */
export interface UsersApi {
  listUsers(databaseRid: string): readonly UserState[];
  /** @throws Refusal user-not-found */
  user(databaseRid: string, name: string): UserState;
  createUser(
    caller: Caller,
    databaseRid: string,
    name: string,
    operation: 'create' | 'upsert',
  ): Promise<Written<UserState>>;
  renameUser(
    caller: Caller,
    databaseRid: string,
    name: string,
    newName: string,
    precondition?: Precondition,
  ): Promise<Written<UserState>>;
  deleteUser(
    caller: Caller,
    databaseRid: string,
    name: string,
    precondition?: Precondition,
  ): Promise<{ position: number }>;
  writePermission(
    caller: Caller,
    user: UserState,
    operation: 'create' | 'upsert',
    permission: Permission,
    precondition?: Precondition,
  ): Promise<Written<PermissionState>>;
  /** A permission by its name, which may change, or by its number within the user. */
  replacePermission(
    caller: Caller,
    user: UserState,
    name: string | number,
    permission: Permission,
    precondition?: Precondition,
  ): Promise<Written<PermissionState>>;
  deletePermission(
    caller: Caller,
    user: UserState,
    name: string | number,
    precondition?: Precondition,
  ): Promise<{ position: number }>;
  /** A function that makes resource tokens for the permissions of a database's users. */
  tokenSigner(databaseRid: string): Promise<TokenSigner>;
  verifyResourceToken(token: string): Promise<TokenVerdict>;
}
