import { answerClientEncryptionKey, answerClientEncryptionKeys } from './client-encryption-keys.ts';
import { answerAccount } from './account.ts';
import { answerAddresses } from './addresses.ts';
import { answerContainer, answerContainers } from './containers.ts';
import { answerDatabase, answerDatabases } from './databases.ts';
import { WireError } from './errors.ts';
import { answerItem, answerItems, answerPartitionKeyDelete } from './items.ts';
import { afterReading } from './long-texts.ts';
import { answerOffer, answerOffers } from './offers.ts';
import { answerPartitionKeyRanges } from './ranges.ts';
import { answerPermission, answerPermissions } from './permissions.ts';
import { containerOf, isFeed, owner, type Answer, type CosmosRequest } from './request.ts';
import { answerScript, answerScripts, isScripts } from './scripts/scripts.ts';
import { answerUnsupportedFeed, answerUnsupportedResource, isUnsupportedKind } from './unsupported.ts';
import { answerUser, answerUsers } from './users.ts';

/** Whether a request changes nothing, so that a read-only key may make it. */
export function isRead(method: string, headers: CosmosRequest['headers']): boolean {
  return method === 'HEAD' || isFeed({ method, headers });
}

/**
 * Passes a request to the handler of its target.
 *
 * @throws WireError, Refusal or QueryError for every request that is not carried out
 */
export function route(request: CosmosRequest): Answer | Promise<Answer> {
  // Queries of items are read when it is the turn of their pages.
  return request.segments[4] === 'docs' ? routeTarget(request) : afterReading(request, () => routeTarget(request));
}

function routeTarget(request: CosmosRequest): Answer | Promise<Answer> {
  const { segments } = request;
  switch (segments[0]) {
    case undefined:
      return answerAccount(request);
    case 'dbs':
      return routeDatabases(request);
    case 'addresses':
      return answerAddresses(request);
    case 'offers':
      if (segments.length === 1) return answerOffers(request);
      if (segments.length === 2) return answerOffer(request);
      break;
    default:
  }
  throw unknownTarget();
}

const unknownTarget = (): WireError =>
  new WireError('notFound', 'Resource Not Found: there is no such kind of resource.');

function routeDatabases(request: CosmosRequest): Answer | Promise<Answer> {
  const { segments } = request;
  const { length } = segments;
  if (length === 1) return answerDatabases(request);
  if (length === 2) return answerDatabase(request);
  if (segments[2] === 'colls') {
    if (length === 3) return answerContainers(request);
    if (length === 4) return answerContainer(request);
    return routeContainer(request);
  }
  if (segments[2] === 'users') {
    if (length === 3) return answerUsers(request);
    if (length === 4) return answerUser(request);
    if (segments[4] === 'permissions') {
      if (length === 5) return answerPermissions(request);
      if (length === 6) return answerPermission(request);
    }
  } else if (segments[2] === 'clientencryptionkeys') {
    if (length === 3) return answerClientEncryptionKeys(request);
    if (length === 4) return answerClientEncryptionKey(request);
  }
  throw unknownTarget();
}

function routeContainer(request: CosmosRequest): Answer | Promise<Answer> {
  const { segments } = request;
  const { length } = segments;
  switch (segments[4]) {
    case 'docs':
      if (length === 5) return answerItems(request);
      if (length === 6) return answerItem(request);
      break;
    case 'pkranges':
      if (length === 5) return answerPartitionKeyRanges(request);
      break;
    case 'addresses':
      if (length === 6) return answerAddresses(request);
      break;
    case 'operations':
      if (length === 6 && segments[5] === 'partitionkeydelete') return answerPartitionKeyDelete(request);
      break;
    default:
      if (!isScripts(segments[4])) break;
      if (length === 5) return answerScripts(request);
      if (length === 6) return answerScript(request);
  }
  return routeUnsupported(request);
}

/** Resources below a container that are not supported: `conflicts`, `attachments`, and what is below them. */
function routeUnsupported(request: CosmosRequest): Answer {
  const { segments } = request;
  const kind = segments.at(segments.length % 2 === 1 ? -1 : -2)!;
  if (!isUnsupportedKind(segments[4]!) && !isUnsupportedKind(kind)) throw unknownTarget();
  const container = owner(containerOf, request);
  if (!isUnsupportedKind(kind)) throw unknownTarget();
  return segments.length % 2 === 1
    ? answerUnsupportedFeed(request, kind, container)
    : answerUnsupportedResource(request, kind);
}
