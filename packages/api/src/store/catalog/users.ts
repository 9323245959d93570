import type { CommandContext } from '@epitaph/core/command-context.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { evolved, newEvents, TooMuchContention } from '@epitaph/core/handle-command.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { UserCommand } from '@epitaph/core/user/commands.ts';
import { decideUser, MAX_PERMISSIONS, type UserDecision, type UserRefusal } from '@epitaph/core/user/decide.ts';
import type { UserEvent } from '@epitaph/core/user/events.ts';
import { evolveUser, foldUser } from '@epitaph/core/user/evolve.ts';
import type { PermissionState, TakenUserName, UserState } from '@epitaph/core/user/state.ts';
import { userStream } from '@epitaph/core/user/stream-name.ts';
import { userEventVersions } from '@epitaph/core/user/upcast.ts';
import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import type { Caller } from '../api/common.ts';
import type { UsersApi } from '../api/users-api.ts';
import type { StoreParts } from '../parts.ts';
import { userRid } from '../rids.ts';
import { onEntry } from './on-entry.ts';

/** How often a renaming that lost a race is repeated. */
const MAX_ATTEMPTS = 20;

interface Done {
  readonly decision: UserDecision;
  /** The user after the command; unchanged if that was refused. */
  readonly state: UserState | TakenUserName | undefined;
  readonly position: number;
}

/** Commands on users and their permissions. */
export class Users {
  readonly #parts: StoreParts;
  readonly #order = new KeyedMutex();

  constructor(parts: StoreParts) {
    this.#parts = parts;
  }

  list(databaseRid: string): readonly UserState[] {
    return this.#parts.catalog.entriesOf('user', databaseRid).map(({ state }) => state);
  }

  find(databaseRid: string, name: string): UserState {
    const found = this.#parts.catalog.entryByName('user', databaseRid, name);
    if (found === undefined) throw new Refusal('user-not-found');
    return found.state;
  }

  readonly create: UsersApi['createUser'] = async (caller, databaseRid, name, operation) => {
    for (let incarnation = 0; ; incarnation++) {
      const rid = userRid(databaseRid, name, incarnation);
      const done = await this.#on(this.#parts.command(caller), rid, { type: 'CreateUser', databaseRid, name });
      if (done.decision.kind === 'accepted') return { resource: live(done), position: done.position, created: true };
      const holder = await this.#holder(done, name);
      if (holder === undefined) continue;
      // A user has nothing but its name, so there is nothing to change.
      if (operation === 'upsert') return { resource: holder, position: done.position, created: false };
      throw new Refusal('already-exists');
    }
  };

  /** The user to whom a name belongs, after the stream for it was refused; undefined to go on to the next stream. */
  async #holder({ decision, state }: Done, name: string): Promise<UserState | undefined> {
    invariant(decision.kind === 'refused', 'only a refusal has a holder');
    const { refusal } = decision;
    switch (refusal.reason) {
      case 'already-exists':
        return state as UserState;
      case 'name-taken': {
        const holder = foldUser(await this.#parts.ports.log.readStream(userStream(refusal.user)));
        return holder?.status === 'live' && holder.name === name ? holder : undefined;
      }
      default:
        return undefined;
    }
  }

  /**
   * Renames a user. The user keeps its stream and rid. So the new name is claimed in the stream that the name leads to,
   * in one append with the renaming, and two users can't get one name.
   */
  readonly rename: UsersApi['renameUser'] = async (caller, databaseRid, name, newName, { ifMatch } = {}) => {
    const user = this.find(databaseRid, name);
    const command: UserCommand = { type: 'RenameUser', name: newName, ifMatch };
    if (newName === name) {
      const done = await this.#on(this.#parts.command(caller), user.rid, command);
      return { resource: live(done), position: done.position, created: false };
    }
    const { log } = this.#parts.ports;
    if (!log.spansStreams) {
      throw new Refusal(
        'not-supported',
        "Users can't be renamed on this event log, because it can not append to several streams at once.",
      );
    }
    for (let incarnation = 0, attempts = 0; attempts < MAX_ATTEMPTS;) {
      const context = this.#parts.command(caller);
      const takenRid = userRid(databaseRid, newName, incarnation);
      const taken = foldUser(await log.readStream(userStream(takenRid)));
      const taking = decideUser(taken, { type: 'TakeUserName', databaseRid, name: newName, user: user.rid });
      if (taking.kind === 'refused') {
        const holder = await this.#holder({ decision: taking, state: taken, position: 0 }, newName);
        if (holder !== undefined) throw new Refusal('already-exists');
        incarnation += 1;
        continue;
      }
      const events = await log.readStream(userStream(user.rid));
      const state = foldUser(events);
      const renaming = decideUser(state, command);
      if (renaming.kind === 'refused') throw refusalOf(renaming.refusal);
      const recorded = newEvents(context, renaming.events, userEventVersions);
      const expectedRevision = events.at(-1)!.revision;
      const result = await log.append([
        {
          stream: userStream(takenRid),
          expectedRevision: 'no-stream',
          events: newEvents(context, taking.events, userEventVersions),
        },
        { stream: userStream(user.rid), expectedRevision, events: recorded },
      ]);
      if (result.kind === 'conflict') {
        attempts += 1;
        continue;
      }
      await this.#parts.projected(result.position);
      const at = { ...result, firstRevision: expectedRevision + 1, firstPosition: result.firstPositions[1]! };
      const renamed = evolved({ stream: userStream(user.rid), evolve: evolveUser }, state, recorded, at);
      return { resource: renamed as UserState, position: result.position, created: false };
    }
    throw new TooMuchContention(`${MAX_ATTEMPTS} attempts to rename a user lost against other writers`);
  };

  readonly delete: UsersApi['deleteUser'] = async (caller, databaseRid, name, { ifMatch } = {}) => {
    const { rid } = this.find(databaseRid, name);
    const command: UserCommand = { type: 'DeleteUser', ifMatch };
    const { position } = await this.#accepted(caller, rid, command);
    return { position };
  };

  readonly writePermission: UsersApi['writePermission'] = async (
    caller,
    user,
    operation,
    permission,
    { ifMatch } = {},
  ) => {
    const done = await this.#accepted(caller, user.rid, { type: 'WritePermission', operation, permission, ifMatch });
    return { ...permissionOf(done, permission.name), created: done.events[0]?.type === 'PermissionCreated' };
  };

  readonly replacePermission: UsersApi['replacePermission'] = async (
    caller,
    user,
    name,
    permission,
    { ifMatch } = {},
  ) => {
    const done = await this.#accepted(caller, user.rid, { type: 'ReplacePermission', name, permission, ifMatch });
    return { ...permissionOf(done, permission.name), created: false };
  };

  readonly deletePermission: UsersApi['deletePermission'] = async (caller, user, name, { ifMatch } = {}) => {
    const { position } = await this.#accepted(caller, user.rid, { type: 'DeletePermission', name, ifMatch });
    return { position };
  };

  async #accepted(caller: Caller, rid: string, command: UserCommand): Promise<Done & { events: readonly UserEvent[] }> {
    const done = await this.#on(this.#parts.command(caller), rid, command);
    if (done.decision.kind === 'refused') throw refusalOf(done.decision.refusal);
    return { ...done, events: done.decision.events };
  }

  #on(context: CommandContext, rid: string, command: UserCommand): Promise<Done> {
    return onEntry<UserState | TakenUserName, UserEvent, UserRefusal>(this.#parts, context, {
      stream: userStream(rid),
      evolve: evolveUser,
      decide: (state) => decideUser(state, command),
      versions: userEventVersions,
      known: () => this.#parts.catalog.entry('user', rid)?.state,
      order: this.#order,
    });
  }
}

function live({ decision, state }: Done): UserState {
  if (decision.kind === 'refused') throw refusalOf(decision.refusal);
  invariant(state?.status === 'live', 'a user is there after a command that changed it');
  return state;
}

function permissionOf(done: Done, name: string): { readonly resource: PermissionState; readonly position: number } {
  const resource = live(done).permissions.find((permission) => permission.name === name);
  invariant(resource !== undefined, 'a permission is there after a command that wrote it');
  return { resource, position: done.position };
}

function refusalOf(refusal: UserRefusal): Refusal {
  switch (refusal.reason) {
    case 'too-many-permissions':
      return new Refusal('bad-request', `A user can have at most ${MAX_PERMISSIONS} permissions.`);
    case 'name-taken':
      return new Refusal('already-exists');
    default:
      invariant(refusal.reason !== 'rid-taken', 'only a creation meets a rid that is taken');
      return new Refusal(refusal.reason);
  }
}
