import { type Decision, etagDiffers } from '../decision.ts';
import { unreachable } from '../invariant.ts';
import type { UserCommand } from './commands.ts';
import type { Permission, UserEvent } from './events.ts';
import type { PermissionState, TakenUserName, UserState } from './state.ts';

/** How many permissions a user may have. Each command on the user folds them all. */
export const MAX_PERMISSIONS = 1_000;

export type UserRefusal =
  | { readonly reason: 'user-not-found' }
  | { readonly reason: 'permission-not-found' }
  | { readonly reason: 'already-exists' }
  /** The name belongs to this user, if the user is live and still has the name. The caller checks that. */
  | { readonly reason: 'name-taken'; readonly user: string }
  /** The rid is used by another user: the caller tries the next candidate. */
  | { readonly reason: 'rid-taken' }
  | { readonly reason: 'precondition-failed' }
  | { readonly reason: 'too-many-permissions' };

export type UserDecision = Decision<UserEvent, UserRefusal>;

const accept = (...events: UserEvent[]): UserDecision => ({ kind: 'accepted', events });
const refuse = (reason: Exclude<UserRefusal['reason'], 'name-taken'>): UserDecision => ({
  kind: 'refused',
  refusal: { reason },
});

/** Decides a command on one user or its permissions. */
export function decideUser(state: UserState | TakenUserName | undefined, command: UserCommand): UserDecision {
  switch (command.type) {
    case 'CreateUser': {
      const { databaseRid, name } = command;
      return free(state, name) ?? accept({ type: 'UserCreated', data: { databaseRid, name } });
    }
    case 'TakeUserName': {
      const { databaseRid, name, user } = command;
      return free(state, name) ?? accept({ type: 'UserNameTaken', data: { databaseRid, name, user } });
    }
    default:
  }
  if (state?.status !== 'live') return refuse('user-not-found');
  switch (command.type) {
    case 'RenameUser':
      if (etagDiffers(state.etag, command.ifMatch)) return refuse('precondition-failed');
      return command.name === state.name ? accept() : accept({ type: 'UserRenamed', data: { name: command.name } });
    case 'DeleteUser':
      return etagDiffers(state.etag, command.ifMatch)
        ? refuse('precondition-failed')
        : accept({ type: 'UserDeleted', data: {} });
    case 'WritePermission': {
      const current = named(state, command.permission.name);
      if (current !== undefined) {
        return command.operation === 'create' ? refuse('already-exists') : decideReplace(state, current, command);
      }
      if (command.ifMatch !== undefined) return refuse('precondition-failed');
      if (covered(state, command.permission)) return refuse('already-exists');
      if (state.permissions.length >= MAX_PERMISSIONS) return refuse('too-many-permissions');
      return accept({ type: 'PermissionCreated', data: { permission: command.permission } });
    }
    case 'ReplacePermission': {
      const current = named(state, command.name);
      if (current === undefined) return refuse('permission-not-found');
      if (current.name !== command.permission.name && named(state, command.permission.name) !== undefined) {
        return refuse('already-exists');
      }
      return decideReplace(state, current, command);
    }
    case 'DeletePermission': {
      const current = named(state, command.name);
      if (current === undefined) return refuse('permission-not-found');
      if (etagDiffers(current.etag, command.ifMatch)) return refuse('precondition-failed');
      return accept({ type: 'PermissionDeleted', data: { birth: current.birth } });
    }
    default:
      return unreachable(command);
  }
}

/** A replacement is recorded even if it changes nothing, because it invalidates the tokens that were issued before. */
function decideReplace(
  state: UserState,
  current: PermissionState,
  { permission, ifMatch }: { readonly permission: Permission; readonly ifMatch?: string | undefined },
): UserDecision {
  if (etagDiffers(current.etag, ifMatch)) return refuse('precondition-failed');
  if (covered(state, permission, current)) return refuse('already-exists');
  return accept({ type: 'PermissionReplaced', data: { birth: current.birth, permission } });
}

/** Why a stream can't take a new user. Undefined if nothing was written to it. */
function free(state: UserState | TakenUserName | undefined, name: string): UserDecision | undefined {
  if (state === undefined) return undefined;
  if (state.name !== name) return refuse('rid-taken');
  if (state.status === 'taken') return { kind: 'refused', refusal: { reason: 'name-taken', user: state.user } };
  return refuse(state.status === 'live' ? 'already-exists' : 'rid-taken');
}

/** A permission by its name, or by its number, which stays the same when it is renamed. */
const named = (state: UserState, name: string | number): PermissionState | undefined =>
  state.permissions.find((permission) => (typeof name === 'string' ? permission.name : permission.birth) === name);

/**
 * Whether another permission has the same resource and partition key: there can be only one. Source: Cosmos DB,
 * "Permissions" (REST). A link of names and a link of rids count as two resources, because the Java client looks for a
 * token by either.
 */
function covered(state: UserState, wanted: Permission, except?: PermissionState): boolean {
  return state.permissions.some(
    ({ birth, resource, target }) =>
      birth !== except?.birth &&
      withoutSlashes(resource) === withoutSlashes(wanted.resource) &&
      target.containerRid === wanted.target.containerRid &&
      target.partitionKey === wanted.target.partitionKey &&
      target.item?.id === wanted.target.item?.id &&
      target.item?.partitionKey === wanted.target.item?.partitionKey,
  );
}

const withoutSlashes = (link: string): string => link.replaceAll(/^\/+|\/+$/g, '');
