import { isUtf8 } from 'node:buffer';
import type { IncomingHttpHeaders } from 'node:http';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { ScriptRunner } from '@epitaph/scripts';
import type { Limits } from '../http/limits.ts';
import type { Pages } from '../http/pages.ts';
import type { AtLeast, Caller, Precondition, UpsertPrecondition } from '../store/api/common.ts';
import { isRid } from '../store/rids.ts';
import type { StoreApi } from '../store/store-api.ts';
import type { ConsistencyLevel, ConsistencyPolicy } from './consistency.ts';
import { badRequest, WireError } from './errors.ts';
import { isJsonObject, parseJson, type JsonObject } from './json.ts';
import { positionIn } from './session-token.ts';

/** A request that has been let in, as the handlers see it. */
export interface CosmosRequest {
  readonly store: StoreApi;
  readonly limits: Limits;
  readonly pages: Pages;
  /** What runs the scripts that clients store; undefined where none are run. */
  readonly scripts: ScriptRunner | undefined;
  readonly method: string;
  /** Decoded segments of the target. */
  readonly segments: readonly string[];
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer | undefined;
  readonly caller: Caller;
  /** Whether a range that has split is gone for it: in direct mode, whose clients know ranges until they are told so. */
  readonly isToldOfSplits: boolean;
  /** What a read of this request must see; the levels are Cosmos DB's. */
  readonly consistency: ConsistencyLevel;
  readonly consistencyPolicy: ConsistencyPolicy;
  /**
   * Whether what the target names is another database or container by now than when the request came; undefined where
   * no other node can have made it anew.
   */
  readonly isRenamed: (() => Promise<boolean>) | undefined;
  /** Scheme and authority that the client used, without a slash at the end. */
  readonly endpoint: () => string;
  /** Ends work for a client that is gone. */
  readonly signal: () => AbortSignal;
}

/** What a handler answers; the edge adds activity id and the rest that all answers have. */
export interface Answer {
  readonly status: number;
  /** JSON text, or bytes of another format; null for none. */
  readonly body: string | Buffer | null;
  readonly charge: number;
  readonly headers?: Readonly<Record<string, string>>;
}

export function headerText(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/** Boolean headers come as `true` or `True`. */
export function headerFlag(headers: IncomingHttpHeaders, name: string): boolean {
  const value = headers[name];
  return typeof value === 'string' && value.length === 4 && value.toLowerCase() === 'true';
}

/**
 * The text of the partition key header. Clients escape what is not ASCII, as `\u00e9`; programs that write their
 * requests themselves may not. Node.js reads each byte of a header as a character of Latin-1; bytes that are UTF-8 are
 * meant as that, and name another key otherwise. Those that are not stay what they are, as older Java clients send them.
 */
export function partitionKeyHeader(headers: IncomingHttpHeaders): string | undefined {
  const text = headerText(headers, 'x-ms-documentdb-partitionkey');
  if (text === undefined || !/[\u0080-\u00ff]/.test(text)) return text;
  const bytes = Buffer.from(text, 'latin1');
  return isUtf8(bytes) ? bytes.toString() : text;
}

/** How an etag ends that a proxy has given the name of its compression; none of ours does. */
const COMPRESSED = /--?(?:gzip|br|zstd|deflate)"$/;

/**
 * The etag that a condition names. A proxy that compresses answers makes their etags weak on the way (`W/"…"`), as nginx
 * does, or puts the way of compression at their end (`"…-gzip"`), as Apache and Caddy do, and takes neither back when it
 * passes a condition on; here each names one version of one resource all the same.
 *
 * @source https://httpd.apache.org/docs/2.4/mod/mod_deflate.html#deflatealteretag
 */
export const etagIn = (condition: string | undefined): string | undefined =>
  (condition?.startsWith('W/"') === true ? condition.slice(2) : condition)?.replace(COMPRESSED, '"');

export const ifNoneMatchOf = (headers: IncomingHttpHeaders): string | undefined => etagIn(headers['if-none-match']);

/**
 * What a write of what is there is guarded by. Its If-None-Match is ignored, as by Cosmos DB, whose clients may have it in
 * the options that they give to every request; only an upsert has one (`upsertPreconditionOf`).
 *
 * @source https://learn.microsoft.com/dotnet/api/microsoft.azure.cosmos.requestoptions.ifnonematchetag
 */
export function preconditionOf(headers: IncomingHttpHeaders): Precondition | undefined {
  const ifMatch = etagIn(headers['if-match']);
  return ifMatch === undefined ? undefined : { ifMatch };
}

/** What an upsert is guarded by where it finds something: with `*` in If-None-Match it only creates. */
export function upsertPreconditionOf(headers: IncomingHttpHeaders): UpsertPrecondition | undefined {
  const ifNoneMatch = ifNoneMatchOf(headers);
  return ifNoneMatch === undefined ? preconditionOf(headers) : { ...preconditionOf(headers), ifNoneMatch };
}

/**
 * What a read must wait for: everything acknowledged at the stronger levels, the session's own writes at `Session`, and
 * nothing at the weaker ones, for which clients don't send a token either.
 *
 * @throws WireError 400 for a token that is junk, 404/1002 for one of a position that the log has not reached
 */
export function atLeastOf(request: CosmosRequest): MaybePromise<AtLeast | undefined> {
  switch (request.consistency) {
    case 'Strong':
    case 'BoundedStaleness':
      return 'head';
    case 'ConsistentPrefix':
    case 'Eventual':
      return undefined;
    default:
  }
  const position = positionIn(headerText(request.headers, 'x-ms-session-token'));
  if (position === undefined) return undefined;
  const reached = (isReached: boolean): number => {
    if (isReached) return position;
    throw new WireError('sessionNotAvailable', 'The read session is not available for the input session token.');
  };
  const isReached = request.store.reaches(position);
  return isReached instanceof Promise ? isReached.then(reached) : reached(isReached);
}

/** `x-ms-max-item-count`: absent, -1 or 0 leaves the size of a page to the server. */
export function pageSizeOf({ headers, limits }: CosmosRequest): number {
  const text = headerText(headers, 'x-ms-max-item-count');
  if (text === undefined || text === '' || text === '-1' || text === '0') return limits.defaultPageItems;
  const count = Number(text);
  if (!Number.isSafeInteger(count) || count < 1) {
    throw badRequest(
      `The input PageSize ${text.slice(0, 100)} is invalid. Ensure to pass a valid page size which must be a positive integer or -1 for a dynamic page size.`,
    );
  }
  return Math.min(count, limits.pageItems);
}

/** Kilobytes that a continuation may take: those given here are short, so any limit that is one will do. */
export function checkContinuationLimit({ headers }: CosmosRequest): void {
  const text = headerText(headers, 'x-ms-documentdb-responsecontinuationtokenlimitinkb');
  if (text === undefined || text === '') return;
  const kilobytes = Number(text);
  if (kilobytes === 0) throw badRequest('The continuation token limit specified is not large enough.');
  if (Number.isSafeInteger(kilobytes) && kilobytes > 0) return;
  throw badRequest(
    'Please pass in a valid continuation token size limit which must be a positive integer, of kilobytes.',
  );
}

export function jsonObjectOf({ body, limits }: CosmosRequest, parse = parseJson): JsonObject {
  const value = jsonOf(body, limits, parse);
  if (!isJsonObject(value)) throw badRequest('The request body is not a JSON object.');
  return value;
}

export function jsonOf(body: Buffer | undefined, limits: Limits, parse = parseJson): unknown {
  if (body === undefined || body.length === 0) throw badRequest('The request body is empty.');
  return parse(body, limits.jsonDepth);
}

export const isBatch = (headers: IncomingHttpHeaders): boolean => headerFlag(headers, 'x-ms-cosmos-is-batch-request');

/** Whether the client is `@azure/cosmos`, some of whose ways are its own. */
export const isJavaScriptClient = (headers: IncomingHttpHeaders): boolean =>
  clientOf(headers)?.includes('azure-cosmos-js/') === true;

export const isDotNetClient = (headers: IncomingHttpHeaders): boolean =>
  /\b(cosmos|documentdb)-(dotnet|netcore|netstandard)-sdk\//.test(headers['user-agent'] ?? '');

/**
 * Whether the client writes the ids in links of resources as they are, so that what looks like an escape is part of an id.
 * The .NET client escapes them.
 *
 * @source `uriFactory` of `@azure/cosmos`, `CosmosPermissionProperties` of the Java client; Python programs write links
 *   themselves
 */
export const writesPlainLinks = (headers: IncomingHttpHeaders): boolean =>
  /azure-cosmos-js\/|azsdk-(?:java|python)-cosmos/.test(clientOf(headers) ?? '');

/** Browsers let nobody set the usual header. */
const clientOf = (headers: IncomingHttpHeaders): string | undefined =>
  headerText(headers, 'x-ms-useragent') ?? headers['user-agent'];

/** A batch is no query, whatever else is said of it: it may write. */
export function isQuery(headers: IncomingHttpHeaders): boolean {
  return (
    !isBatch(headers) &&
    (headerFlag(headers, 'x-ms-documentdb-isquery') ||
      headerFlag(headers, 'x-ms-documentdb-query') ||
      (headers['content-type']?.startsWith('application/query+json') ?? false))
  );
}

export const isQueryPlan = (headers: IncomingHttpHeaders): boolean =>
  !isBatch(headers) && headerFlag(headers, 'x-ms-cosmos-is-query-plan-request');

/** True for a request of a list, of all that is in it or of what a query finds. */
export const isFeed = ({ method, headers }: Pick<CosmosRequest, 'method' | 'headers'>): boolean =>
  method === 'GET' || (method === 'POST' && (isQuery(headers) || isQueryPlan(headers)));

export const methodNotAllowed = (): WireError =>
  new WireError('methodNotAllowed', 'The requested verb is not supported.');

/** Whether a target is a stored procedure that is to be run. */
export const isRunOfScript = (method: string, segments: readonly string[]): boolean =>
  method === 'POST' && segments.length === 6 && segments[4] === 'sprocs';

/** @throws WireError 400 where no scripts are run */
export function scriptRunner({ scripts }: Pick<CosmosRequest, 'scripts'>): ScriptRunner {
  if (scripts === undefined) throw badRequest('Scripts are not run by this server: it was started with --scripts off.');
  return scripts;
}

/** The database that a target names, by name or rid. */
export function databaseOf({ store, segments }: Pick<CosmosRequest, 'store' | 'segments'>): DatabaseState {
  const name = segments[1]!;
  try {
    return store.database(name);
  } catch (error) {
    if (!isMissing(error)) throw error;
    const found = isRid(name) ? store.databaseByRid(name) : undefined;
    if (found?.status !== 'live') throw new WireError('notFound', `Resource Not Found: no database '${name}'.`);
    return found;
  }
}

/** The container that a target names; what is below it in the target is not looked at. */
export function containerOf(request: Pick<CosmosRequest, 'store' | 'segments'>): ContainerState {
  const { store, segments } = request;
  const name = segments[3]!;
  try {
    return store.container(segments[1]!, name);
  } catch (error) {
    if (!isMissing(error)) throw error;
    const byRid = isRid(name) ? store.containerByRid(name) : undefined;
    const database = byRid?.status === 'live' ? databaseOf(request) : undefined;
    if (byRid !== undefined && byRid.databaseRid === database?.rid) return store.container(database.name, byRid.name);
    throw new WireError('notFound', `Resource Not Found: no container '${name}'.`);
  }
}

/** The same for what lies below: a missing owner is another "not found" than a missing resource. */
export function owner<T>(find: (request: CosmosRequest) => T, request: CosmosRequest): T {
  try {
    return find(request);
  } catch (error) {
    if (error instanceof WireError && error.shape.status === 404) {
      throw ownerNotFound();
    }
    throw error;
  }
}

/** What whoever asks for something in a container is told when that went after it had been found. */
export const ownerGone = (error: unknown): WireError | undefined => (isMissing(error) ? ownerNotFound() : undefined);

const ownerNotFound = (): WireError => new WireError('ownerNotFound', 'Owner resource does not exist');

export function isMissing(error: unknown): boolean {
  return error instanceof Refusal && (error.code === 'database-not-found' || error.code === 'container-not-found');
}

/** True when the target names the container by its rid, as `_self` links do. */
export const byRid = (request: CosmosRequest, container: ContainerState): boolean =>
  request.segments[3] === container.rid && container.name !== container.rid;
