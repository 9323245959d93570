import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { UserState } from '@epitaph/core/user/state.ts';
import { databaseSelf } from '../store/items/system-properties.ts';
import { checkName } from './container-body.ts';
import { answerFeed } from './feed.ts';
import { answerMetadata, answerMetadataDeleted, answerMetadataRead } from './metadata.ts';
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

export const userSelf = (user: UserState): string => `${databaseSelf({ rid: user.databaseRid })}users/${user.rid}/`;

function showUser(user: UserState) {
  return {
    id: user.name,
    _rid: user.rid,
    _self: userSelf(user),
    _etag: user.etag,
    _permissions: 'permissions/',
    _ts: Math.floor(user.changedAtMs / 1000),
  };
}

/** The user that a target names by name or rid. */
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
  return answerMetadata(created ? 201 : 200, showUser(resource), position);
}

/** `/dbs/{db}/users/{user}` */
export async function answerUser(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const database = owner(databaseOf, request);
  const user = userOf(request, database);
  switch (method) {
    case 'GET':
      return answerMetadataRead(request, showUser(user));
    case 'PUT': {
      const name = checkName(jsonObjectOf(request)['id']);
      const written = await store.renameUser(caller, database.rid, user.name, name, preconditionOf(headers));
      return answerMetadata(200, showUser(written.resource), written.position);
    }
    case 'DELETE': {
      const { position } = await store.deleteUser(caller, database.rid, user.name, preconditionOf(headers));
      return answerMetadataDeleted(position);
    }
    default:
      throw methodNotAllowed();
  }
}
