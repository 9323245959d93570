import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { databaseSelf } from '../store/items/system-properties.ts';
import { checkName } from './container-body.ts';
import { answerFeed } from './feed.ts';
import { answerMetadata, answerMetadataDeleted, answerMetadataRead } from './metadata.ts';
import {
  databaseOf,
  isFeed,
  jsonObjectOf,
  methodNotAllowed,
  preconditionOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { readThroughput } from './offers.ts';

/** `/dbs` */
export async function answerDatabases(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  if (isFeed(request)) {
    return answerFeed(request, '', 'Databases', store.listDatabases().map(showDatabase));
  }
  if (method !== 'POST') throw methodNotAllowed();
  const { resource, position } = await store.createDatabase(
    caller,
    checkName(jsonObjectOf(request)['id']),
    readThroughput(headers),
  );
  return answerMetadata(201, showDatabase(resource), position);
}

/** `/dbs/{db}` */
export async function answerDatabase(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const database = databaseOf(request);
  switch (method) {
    case 'GET':
      return answerMetadataRead(request, showDatabase(database));
    case 'DELETE': {
      const { position } = await store.deleteDatabase(caller, database.name, preconditionOf(headers));
      return answerMetadataDeleted(position);
    }
    default:
      throw methodNotAllowed();
  }
}

function showDatabase(database: DatabaseState) {
  return {
    id: database.name,
    _rid: database.rid,
    _self: databaseSelf(database),
    _etag: database.etag,
    _colls: 'colls/',
    _users: 'users/',
    _ts: Math.floor(database.createdAtMs / 1000),
  };
}
