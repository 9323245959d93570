import { type WrappedKey, wrappedKeySchema } from '@epitaph/core/client-encryption-key/events.ts';
import type { ClientEncryptionKeyState } from '@epitaph/core/client-encryption-key/state.ts';
import { databaseSelf } from '../store/items/system-properties.ts';
import { checkName } from './container-body.ts';
import { badRequest } from './errors.ts';
import { answerFeed } from './feed.ts';
import { answerMetadata, answerMetadataRead } from './metadata.ts';
import {
  databaseOf,
  isFeed,
  jsonObjectOf,
  methodNotAllowed,
  owner,
  preconditionOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';

/** The most bytes of a key's body. A wrapped key is a few hundred bytes, and all of them are held in memory. */
const MAX_BODY_BYTES = 16 * 1024;

function showKey(key: ClientEncryptionKeyState) {
  return {
    ...key.wrappedKey,
    id: key.name,
    _rid: key.rid,
    _self: `${databaseSelf({ rid: key.databaseRid })}clientencryptionkeys/${key.rid}/`,
    _etag: key.etag,
    _ts: Math.floor(key.changedAtMs / 1000),
  };
}

/** `/dbs/{db}/clientencryptionkeys` */
export async function answerClientEncryptionKeys(request: CosmosRequest): Promise<Answer> {
  const { store, method, caller } = request;
  const { rid } = owner(databaseOf, request);
  if (isFeed(request)) {
    return answerFeed(request, rid, 'ClientEncryptionKeys', store.listClientEncryptionKeys(rid).map(showKey));
  }
  if (method !== 'POST') throw methodNotAllowed();
  const { name, wrappedKey } = readKey(request);
  const written = await store.createClientEncryptionKey(caller, rid, name, wrappedKey);
  return answerMetadata(201, showKey(written.resource), written.position);
}

/** `/dbs/{db}/clientencryptionkeys/{key}` */
export async function answerClientEncryptionKey(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller, segments } = request;
  const { rid } = owner(databaseOf, request);
  const id = segments[3]!;
  const key = store.listClientEncryptionKeys(rid).find((each) => each.rid === id) ?? store.clientEncryptionKey(rid, id);
  switch (method) {
    case 'GET':
      return answerMetadataRead(request, showKey(key));
    case 'PUT': {
      const { name, wrappedKey } = readKey(request);
      if (name !== key.name) throw badRequest('The id in the body is not the one in the request target.');
      const written = await store.rewrapClientEncryptionKey(caller, rid, name, wrappedKey, preconditionOf(headers));
      return answerMetadata(200, showKey(written.resource), written.position);
    }
    default:
      throw methodNotAllowed();
  }
}

const systemProperties: ReadonlySet<string> = new Set(['id', '_rid', '_self', '_etag', '_ts']);

function readKey(request: CosmosRequest): { readonly name: string; readonly wrappedKey: WrappedKey } {
  if ((request.body?.length ?? 0) > MAX_BODY_BYTES) {
    throw badRequest(`A client encryption key can have at most ${MAX_BODY_BYTES} bytes.`);
  }
  const body = jsonObjectOf(request);
  const name = checkName(body['id']);
  const own = Object.fromEntries(Object.entries(body).filter(([property]) => !systemProperties.has(property)));
  const parsed = wrappedKeySchema.safeParse(own);
  if (parsed.success) return { name, wrappedKey: parsed.data };
  const [issue] = parsed.error.issues;
  throw badRequest(`The client encryption key's '${issue?.path.join('.') ?? ''}' is invalid: ${issue?.message ?? ''}.`);
}
