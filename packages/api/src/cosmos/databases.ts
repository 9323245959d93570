import { charge } from './charge.ts';
import { checkName } from './container-body.ts';
import { answerFeed } from './feed.ts';
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
import { sessionToken } from './session-token.ts';
import { showDatabase } from './system-properties.ts';

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
  return {
    status: 201,
    body: JSON.stringify(showDatabase(resource)),
    charge: charge.metadata,
    headers: { etag: resource.etag, 'x-ms-session-token': sessionToken('0', position) },
  };
}

/** `/dbs/{db}` */
export async function answerDatabase(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const database = databaseOf(request);
  switch (method) {
    case 'GET':
      if (headers['if-none-match'] === database.etag) return { status: 304, body: null, charge: charge.metadata };
      return {
        status: 200,
        body: JSON.stringify(showDatabase(database)),
        charge: charge.metadata,
        headers: { etag: database.etag },
      };
    case 'DELETE': {
      const { position } = await store.deleteDatabase(caller, database.name, preconditionOf(headers));
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
