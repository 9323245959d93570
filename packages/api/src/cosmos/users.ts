import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { UserState } from '@epitaph/core/user/state.ts';
import { charge } from './charge.ts';
import { checkName } from './container-body.ts';
import { answerFeed } from './feed.ts';
import {
  databaseOf,
  headerFlag,
  isFeed,
  jsonObjectOf,
  methodNotAllowed,
  owner,
  preconditionOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { sessionToken } from './session-token.ts';
import { databaseSelf } from './system-properties.ts';

export const userSelf = (user: UserState): string => `${databaseSelf({ rid: user.databaseRid })}users/${user.rid}/`;

function showUser(user: UserState): Readonly<Record<string, unknown>> {
  return {
    id: user.name,
    _rid: user.rid,
    _self: userSelf(user),
    _etag: user.etag,
    _permissions: 'permissions/',
    _ts: Math.floor(user.changedAtMs / 1000),
  };
}

/** The user that a target names, by name or rid. */
export function userOf({ store, segments }: CosmosRequest, database: DatabaseState): UserState {
  const name = segments[3]!;
  return store.listUsers(database.rid).find(({ rid }) => rid === name) ?? store.user(database.rid, name);
}

/** `/dbs/{db}/users` */
export async function answerUsers(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const database = owner(databaseOf, request);
  if (isFeed(request)) {
    return answerFeed(request, database.rid, 'Users', store.listUsers(database.rid).map(showUser));
  }
  if (method !== 'POST') throw methodNotAllowed();
  const operation = headerFlag(headers, 'x-ms-documentdb-is-upsert') ? 'upsert' : 'create';
  const name = checkName(jsonObjectOf(request)['id']);
  const { resource, position, created } = await store.createUser(caller, database.rid, name, operation);
  return answerUserState(created ? 201 : 200, resource, position);
}

/** `/dbs/{db}/users/{user}` */
export async function answerUser(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const database = owner(databaseOf, request);
  const user = userOf(request, database);
  switch (method) {
    case 'GET': {
      const answer = answerUserState(200, user, store.headPosition());
      return headers['if-none-match'] === user.etag ? { ...answer, status: 304, body: null } : answer;
    }
    case 'PUT': {
      const name = checkName(jsonObjectOf(request)['id']);
      const written = await store.renameUser(caller, database.rid, user.name, name, preconditionOf(headers));
      return answerUserState(200, written.resource, written.position);
    }
    case 'DELETE': {
      const { position } = await store.deleteUser(caller, database.rid, user.name, preconditionOf(headers));
      return {
        status: 204,
        body: null,
        charge: charge.metadata,
        headers: { 'x-ms-session-token': sessionToken('0', position) },
      };
    }
    default:
      throw methodNotAllowed();
  }
}

function answerUserState(status: number, user: UserState, position: number): Answer {
  return {
    status,
    body: JSON.stringify(showUser(user)),
    charge: charge.metadata,
    headers: { etag: user.etag, 'x-ms-session-token': sessionToken('0', position) },
  };
}
