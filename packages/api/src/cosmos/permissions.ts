import { z } from 'zod';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { hasPseudonymousIds } from '@epitaph/core/item/pseudonym.ts';
import type { Permission, PermissionTarget } from '@epitaph/core/user/events.ts';
import type { PermissionState, UserState } from '@epitaph/core/user/state.ts';
import type { TokenSigner } from '../store/api/users-api.ts';
import { permissionRid } from '../store/rids.ts';
import { checkName } from './container-body.ts';
import { badRequest, WireError } from './errors.ts';
import { answerFeed } from './feed.ts';
import { checkItemId } from './item-body.ts';
import { findByRid } from './items.ts';
import { answerMetadata, answerMetadataDeleted, type Metadata } from './metadata.ts';
import { readPartitionKeyHeader } from './partition-key.ts';
import {
  containerOf,
  databaseOf,
  headerFlag,
  headerText,
  isFeed,
  jsonObjectOf,
  methodNotAllowed,
  owner,
  preconditionOf,
  writesPlainLinks,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { userOf, userSelf } from './users.ts';

/**
 * Seconds for which a token is valid: the shortest and longest time, and the default.
 *
 * @source `User.CreatePermissionAsync` of the .NET client: 24 hours at most, where older pages still say 5
 */
const LIFETIME_SECONDS = { least: 10, most: 86_400, default: 3_600 };

const bodySchema = z.looseObject({
  permissionMode: z.string().regex(/^(?:read|all)$/i, "it is neither 'Read' nor 'All'"),
  resource: z.string().min(1).max(4_096),
  resourcePartitionKey: z.unknown().optional(),
});

/** `/dbs/{db}/users/{user}/permissions` */
export async function answerPermissions(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller } = request;
  const database = owner(databaseOf, request);
  const user = userOf(request, database);
  const show = await shower(request, database, user);
  if (isFeed(request)) {
    return answerFeed(request, user.rid, 'Permissions', user.permissions.map(show));
  }
  if (method !== 'POST') throw methodNotAllowed();
  const operation = headerFlag(headers, 'x-ms-documentdb-is-upsert') ? 'upsert' : 'create';
  const permission = await readPermission(request);
  const written = await store.writePermission(caller, user, operation, permission, preconditionOf(headers));
  return answerMetadata(written.created ? 201 : 200, show(written.resource), written.position);
}

/** `/dbs/{db}/users/{user}/permissions/{permission}` */
export async function answerPermission(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller, segments } = request;
  const database = owner(databaseOf, request);
  const user = userOf(request, database);
  const name = segments[5]!;
  const ofRid = user.permissions.find(({ birth }) => permissionRid(user.rid, birth) === name);
  const permission = ofRid ?? user.permissions.find((each) => each.name === name);
  if (permission === undefined) throw new Refusal('permission-not-found');
  // Another permission may have the name by now, so the one that was found is named by its number.
  const which = ofRid?.birth ?? permission.name;
  const show = await shower(request, database, user);
  switch (method) {
    case 'GET':
      return answerMetadata(200, show(permission), store.headPosition());
    case 'PUT': {
      const wanted = await readPermission(request);
      const written = await store.replacePermission(caller, user, which, wanted, preconditionOf(headers));
      return answerMetadata(200, show(written.resource), written.position);
    }
    case 'DELETE': {
      const { position } = await store.deletePermission(caller, user, which, preconditionOf(headers));
      return answerMetadataDeleted(position);
    }
    default:
      throw methodNotAllowed();
  }
}

type Shower = (permission: PermissionState) => Metadata;

/** A function that shows permissions, each with a new token. */
async function shower(request: CosmosRequest, database: DatabaseState, user: UserState): Promise<Shower> {
  const lifetimeSeconds = lifetimeOf(request);
  const sign: TokenSigner = await request.store.tokenSigner(database.rid);
  return (permission) => {
    const rid = permissionRid(user.rid, permission.birth);
    const { resourcePartitionKey } = permission;
    return {
      id: permission.name,
      permissionMode: permission.permissionMode,
      resource: permission.resource,
      ...(resourcePartitionKey === undefined ? {} : { resourcePartitionKey }),
      _rid: rid,
      _self: `${userSelf(user)}permissions/${rid}/`,
      _etag: permission.etag,
      _ts: Math.floor(permission.changedAtMs / 1000),
      _token: sign(user, permission, lifetimeSeconds),
    };
  };
}

function lifetimeOf({ headers }: CosmosRequest): number {
  const text = headerText(headers, 'x-ms-documentdb-expiry-seconds');
  if (text === undefined || text === '') return LIFETIME_SECONDS.default;
  const seconds = Number(text);
  const { least, most } = LIFETIME_SECONDS;
  if (Number.isInteger(seconds) && seconds >= least && seconds <= most) return seconds;
  throw badRequest(
    `The value '${text.slice(0, 100)}' specified for the header 'x-ms-documentdb-expiry-seconds' is invalid: it must be from ${least} to ${most}.`,
  );
}

async function readPermission(request: CosmosRequest): Promise<Permission> {
  const body = jsonObjectOf(request);
  const name = checkName(body['id']);
  const parsed = bodySchema.safeParse(body);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw badRequest(`The permission's '${issue?.path.join('.') ?? ''}' is invalid: ${issue?.message ?? ''}.`);
  }
  const { permissionMode, resource, resourcePartitionKey } = parsed.data;
  const given = resourcePartitionKey ?? undefined;
  return {
    name,
    permissionMode,
    resource,
    ...(given === undefined ? {} : { resourcePartitionKey: given }),
    target: await targetOf(request, resource, given),
  };
}

/** The target that a link, of names or of rids, and a partition key refer to now. */
async function targetOf(request: CosmosRequest, link: string, key: unknown): Promise<PermissionTarget> {
  const segments = link.split('/').filter((segment) => segment !== '');
  const [dbs, , colls, , docs, item] = segments;
  const isContainer = dbs === 'dbs' && colls === 'colls';
  if (!isContainer || !(segments.length === 4 || (segments.length === 6 && docs === 'docs'))) {
    throw badRequest(
      "The permission's 'resource' is not the link of a container or an item: dbs/…/colls/… or dbs/…/colls/…/docs/….",
    );
  }
  const container = linked(request, segments);
  if (container.databaseRid !== owner(databaseOf, request).rid) {
    throw badRequest("The permission's 'resource' is in another database than the user.");
  }
  if (hasPseudonymousIds(container.definition) && (item !== undefined || key !== undefined)) {
    throw badRequest(
      'This container uses pseudonymous ids, so that no event has ids and partition keys, but an event would record those of this permission. Give a permission for the whole container.',
    );
  }
  const partitionKey = key === undefined ? undefined : partitionKeyOf(container, key);
  if (item === undefined)
    return { containerRid: container.rid, ...(partitionKey === undefined ? {} : { partitionKey }) };
  const id = writesPlainLinks(request.headers) ? item : decoded(item);
  const found = segments[3] === container.rid ? await findByRid(request, container, item) : undefined;
  if (found === undefined) {
    return {
      containerRid: container.rid,
      item: { id: checkItemId(id), ...(partitionKey === undefined ? {} : { partitionKey }) },
    };
  }
  if (partitionKey !== undefined && partitionKey !== found.partitionKey) {
    throw badRequest("The permission's 'resourcePartitionKey' is not that of the item.");
  }
  return { containerRid: container.rid, item: { id: found.id, partitionKey: found.partitionKey } };
}

/** The container of a link. The names in the link may be URL-encoded or not. */
function linked(request: CosmosRequest, segments: readonly string[]): ContainerState {
  try {
    return containerOf({ ...request, segments });
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    return containerOf({ ...request, segments: segments.map(decoded) });
  }
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

function partitionKeyOf(container: ContainerState, key: unknown): string {
  const components = JSON.stringify(Array.isArray(key) ? key : [key]);
  const read = readPartitionKeyHeader(container.definition, components);
  if (read?.complete !== true) {
    throw badRequest(
      "The permission's 'resourcePartitionKey' does not name every part of the container's partition key.",
    );
  }
  return read.key;
}
