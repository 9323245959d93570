import type { ContainerState } from '@epitaph/core/container/state.ts';
import { isPseudonym } from '@epitaph/core/item/pseudonym.ts';
import { parseHttpDate } from '../http/http-date.ts';
import type { ChangeFeedPage, ChangeFeedRequest, FeedChange, FeedStart } from '../store/api/change-feed-api.ts';
import type { ShownItem } from '../store/api/items-api.ts';
import { charge } from '../request-units/charge.ts';
import { withSystemProperties } from '../store/items/system-properties.ts';
import { containerHeaders } from './containers.ts';
import { badRequest } from './errors.ts';
import { atLeastOf, headerText, ifNoneMatchOf, pageSizeOf, type Answer, type CosmosRequest } from './request.ts';
import { answeringRangeId, scopeOf } from './scope.ts';

/** Whether a request reads the change feed instead of the items. */
export const isChangeFeed = ({ headers }: CosmosRequest): boolean => headers['a-im'] !== undefined;

/**
 * `GET …/docs` with `A-IM`: a page of the change feed. Its `etag` is the place where the next page begins. A 304 says
 * that there is nothing new, which ends clients' iterators. An empty page with 200 says that the search was cut short.
 */
export async function answerChangeFeed(request: CosmosRequest, container: ContainerState): Promise<Answer> {
  const { store, segments } = request;
  const mode = modeOf(request);
  const scope = scopeOf(request, container);
  const maxItemCount = pageSizeOf(request);
  const page = await store.readChangeFeed(container, {
    mode,
    start: startOf(request),
    notBeforeMs: modifiedSinceOf(request),
    scope,
    maxItemCount,
    // Estimators only read the first change.
    countsLeft: maxItemCount === 1,
    atLeast: await atLeastOf(request),
    signal: request.signal(),
  });
  const headers = {
    etag: `"${page.position}"`,
    'x-ms-item-count': String(page.changes.length),
    ...containerHeaders(
      segments[1]!,
      container,
      sessionPosition(page, store.headPosition()),
      answeringRangeId(request, container, scope),
    ),
  };
  if (page.changes.length === 0 && page.reachedEnd) {
    return { status: 304, body: null, charge: charge.refusedRead, headers };
  }
  const show = mode === 'latest' ? (hasEnvelopes(request) ? showLatestInEnvelope : showLatest) : showVersion;
  const documents = page.changes.map((change) => show(container, change)).join(',');
  const body = `{"_rid":"${container.rid}","Documents":[${documents}],"_count":${page.changes.length}}`;
  return { status: 200, body, charge: charge.changeFeed(page.changes.length, Buffer.byteLength(body)), headers };
}

/**
 * The position in the session token of an answer. For a page that was asked for a single change it is that change's
 * position plus the number of changes after it: estimators subtract the two, and would otherwise count what is written
 * to other containers and ranges too. A reader of that change still sees it in that session, because clients use the
 * highest position that they were given.
 *
 * @source `ChangeFeedEstimatorIterator` of the .NET client, `IncrementalChangeFeedProcessorImpl.getEstimatedLag` of the
 *   Java client
 */
const sessionPosition = ({ changes, left }: ChangeFeedPage, head: number): number =>
  // The page also has the changes that were written together with the one that was asked for.
  left === undefined ? head : changes[0]!.position + changes.length - 1 + left;

function modeOf({ headers }: CosmosRequest): ChangeFeedRequest['mode'] {
  const text = headerText(headers, 'a-im') ?? '';
  switch (text.toLowerCase()) {
    case 'incremental feed':
      return 'latest';
    case 'full-fidelity feed':
      return 'all-versions';
    default:
      throw badRequest(`The value '${text.slice(0, 100)}' specified for the header 'A-IM' is invalid.`);
  }
}

/** A continuation takes precedence over a time, because clients go on sending the time at which they began. */
function startOf(request: CosmosRequest): FeedStart {
  const etag = ifNoneMatchOf(request.headers) ?? '';
  if (etag !== '' && etag !== '*') return { kind: 'after', position: positionOf(etag) };
  if (etag === '*') return { kind: 'now' };
  const atMs = modifiedSinceOf(request);
  return atMs === undefined ? { kind: 'beginning' } : { kind: 'time', atMs };
}

function positionOf(etag: string): number {
  const position = Number(/^"?(\d{1,16})"?$/.exec(etag)?.[1]);
  if (!Number.isSafeInteger(position)) {
    throw badRequest(`Invalid Continuation Token: '${etag.slice(0, 100)}' was not issued by this server.`);
  }
  return position;
}

function modifiedSinceOf({ headers }: CosmosRequest): number | undefined {
  const text = headerText(headers, 'if-modified-since');
  if (text === undefined || text === '') return undefined;
  const atMs = parseHttpDate(text);
  // HTTP ignores an invalid time. Here it is refused, because the feed would otherwise begin at its beginning.
  if (atMs === undefined) {
    throw badRequest(`The value '${text.slice(0, 100)}' specified for the header 'If-Modified-Since' is invalid.`);
  }
  return atMs;
}

function showLatest(container: ContainerState, change: FeedChange): string {
  return change.kind === 'written' ? showItem(container, change.item, change.position) : '{}';
}

/**
 * Whether the client expects entries of both modes in one form.
 *
 * @source `PartitionProcessorHelper` and `ChangeFeedProcessorItem` of the Java client, whose processor would otherwise
 *   find entries without a `current`; `ChangeFeedItem` of the Rust client
 */
const hasEnvelopes = ({ headers }: CosmosRequest): boolean =>
  headerText(headers, 'x-ms-cosmos-changefeed-wire-format-version') === '2021-09-15';

/**
 * The form of {@link showVersion} without the operation: the feed of latest versions does not distinguish creates from
 * replaces.
 */
function showLatestInEnvelope(container: ContainerState, change: FeedChange): string {
  if (change.kind !== 'written') return '{}';
  const metadata = JSON.stringify({ lsn: change.position, crts: change.item.ts });
  return `{"current":${showLatest(container, change)},"metadata":${metadata}}`;
}

/** An entry of the feed of all versions: the item now, the item before, and the operation. */
function showVersion(container: ContainerState, change: FeedChange): string {
  const { position: lsn, previousPosition: previousImageLSN } = change;
  if (change.kind === 'written') {
    const { item, created } = change;
    const operationType = created ? 'create' : 'replace';
    const metadata = { operationType, lsn, crts: item.ts, previousImageLSN };
    return `{"current":${showItem(container, item, lsn)},"metadata":${JSON.stringify(metadata)}}`;
  }
  const metadata = {
    operationType: 'delete',
    lsn,
    crts: Math.floor(change.atMs / 1000),
    previousImageLSN,
    timeToLiveExpired: change.expired,
    id: change.id,
    partitionKey: showPartitionKey(container, change.partitionKey),
  };
  const previous =
    change.previous === undefined ? '' : `"previous":${showItem(container, change.previous, previousImageLSN ?? lsn)},`;
  return `{"current":{},${previous}"metadata":${JSON.stringify(metadata)}}`;
}

/** The document with its system properties and, as in feeds, the log position of its write. */
function showItem(container: ContainerState, item: ShownItem, position: number): string {
  return `${withSystemProperties(container, item).slice(0, -1)},"_lsn":${position}}`;
}

/**
 * The components of a partition key by path, without the leading slash. Components that the item did not have are left
 * out.
 */
function showPartitionKey({ definition }: ContainerState, partitionKey: string): Readonly<Record<string, unknown>> {
  const components = isPseudonym(partitionKey) ? [partitionKey] : (JSON.parse(partitionKey) as readonly unknown[]);
  const shown: Record<string, unknown> = {};
  for (const [index, path] of definition.partitionKey.paths.entries()) {
    const value = components[index];
    if (typeof value !== 'object' || value === null) shown[path.slice(1)] = value;
  }
  return shown;
}
