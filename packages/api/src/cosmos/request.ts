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

/** A request that has been let in, as the handlers get it. */
export interface CosmosRequest {
  readonly store: StoreApi;
  readonly limits: Limits;
  readonly pages: Pages;
  /** Runs the scripts that clients store; undefined if the server runs none. */
  readonly scripts: ScriptRunner | undefined;
  readonly method: string;
  /** The decoded segments of the target. */
  readonly segments: readonly string[];
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer | undefined;
  readonly caller: Caller;
  /**
   * Whether a range that has split counts as gone for this request: true in direct mode, where clients use the ranges
   * that they know until they are told.
   */
  readonly isToldOfSplits: boolean;
  /** The consistency that a read needs; the levels are Cosmos DB's. */
  readonly consistency: ConsistencyLevel;
  readonly consistencyPolicy: ConsistencyPolicy;
  /**
   * Finds out whether the target names another database or container now than when the request came. Undefined if no
   * other node can have created it again.
   */
  readonly isRenamed: (() => Promise<boolean>) | undefined;
  /** Scheme and authority that the client used, without a trailing slash. */
  readonly endpoint: () => string;
  /** Aborted when the client is gone. */
  readonly signal: () => AbortSignal;
}

/** The answer of a handler. The sender adds the activity id and the other headers that all answers have. */
export interface Answer {
  readonly status: number;
  /** JSON text, or bytes in another format; null for no body. */
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
 * The most bytes of a response header whose text is cut to fit, such as index metrics. Clients in Node refuse more than 16 KB of headers in
 * all.
 */
export const MAX_HEADER_BYTES = 8 * 1024;

/**
 * The text of a header that may have characters outside ASCII. Node.js reads each byte of a header as a Latin-1
 * character. If the bytes are valid UTF-8, they are decoded as that, because they would name something else otherwise.
 * All others stay as they are, as older Java clients send them.
 */
export function unicodeHeaderText(headers: IncomingHttpHeaders, name: string): string | undefined {
  const text = headerText(headers, name);
  if (text === undefined || !/[\u0080-\u00ff]/.test(text)) return text;
  const bytes = Buffer.from(text, 'latin1');
  return isUtf8(bytes) ? bytes.toString() : text;
}

/** The text of the partition key header. Clients escape characters outside ASCII, as `\u00e9`; other programs may not. */
export const partitionKeyHeader = (headers: IncomingHttpHeaders): string | undefined =>
  unicodeHeaderText(headers, 'x-ms-documentdb-partitionkey');

/** What a proxy appends to an etag to name its compression. No etag of this server ends like this. */
const COMPRESSED = /--?(?:gzip|br|zstd|deflate)"$/;

/**
 * The etag that a condition names. A proxy that compresses answers changes their etags. nginx makes them weak
 * (`W/"…"`), Apache and Caddy append the compression (`"…-gzip"`). Neither undoes that when it forwards a condition.
 * Here each form names one version of one resource all the same.
 *
 * @source https://httpd.apache.org/docs/2.4/mod/mod_deflate.html#deflatealteretag
 */
export const etagIn = (condition: string | undefined): string | undefined =>
  (condition?.startsWith('W/"') === true ? condition.slice(2) : condition)?.replace(COMPRESSED, '"');

export const ifNoneMatchOf = (headers: IncomingHttpHeaders): string | undefined => etagIn(headers['if-none-match']);

/**
 * The precondition of a write to an existing resource. Its If-None-Match is ignored, as by Cosmos DB, because clients
 * may have it in options that they send with every request. Only an upsert uses it (`upsertPreconditionOf`).
 *
 * @source https://learn.microsoft.com/dotnet/api/microsoft.azure.cosmos.requestoptions.ifnonematchetag
 */
export function preconditionOf(headers: IncomingHttpHeaders): Precondition | undefined {
  const ifMatch = etagIn(headers['if-match']);
  return ifMatch === undefined ? undefined : { ifMatch };
}

/** The precondition of an upsert that finds an item. With `*` in If-None-Match it only creates. */
export function upsertPreconditionOf(headers: IncomingHttpHeaders): UpsertPrecondition | undefined {
  const ifNoneMatch = ifNoneMatchOf(headers);
  return ifNoneMatch === undefined ? preconditionOf(headers) : { ...preconditionOf(headers), ifNoneMatch };
}

/**
 * What a read must wait for: everything acknowledged at the stronger levels, the session's own writes at `Session`, and
 * nothing at the weaker ones, for which clients don't send a token either.
 *
 * @throws WireError 400 for an invalid token, 404/1002 for one with a position that the log has not reached
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

/** `x-ms-max-item-count`: the server chooses the size of a page if it is absent, -1 or 0. */
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

/**
 * Checks the limit for a continuation, in kilobytes. The continuations of this server are short, so any valid limit is
 * enough.
 */
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

/** Whether the client is `@azure/cosmos`, which behaves unlike the others in some ways. */
export const isJavaScriptClient = (headers: IncomingHttpHeaders): boolean =>
  clientOf(headers)?.includes('azure-cosmos-js/') === true;

export const isDotNetClient = (headers: IncomingHttpHeaders): boolean =>
  /\b(cosmos|documentdb)-(dotnet|netcore|netstandard)-sdk\//.test(headers['user-agent'] ?? '');

/**
 * Whether the client writes ids into links of resources without escaping them, so that what looks like an escape is
 * part of an id. The .NET client escapes them.
 *
 * @source `uriFactory` of `@azure/cosmos`, `CosmosPermissionProperties` of the Java client; Python programs write links
 *   themselves
 */
export const writesPlainLinks = (headers: IncomingHttpHeaders): boolean =>
  /azure-cosmos-js\/|azsdk-(?:java|python)-cosmos/.test(clientOf(headers) ?? '');

/** In browsers a page can't set the usual header. */
const clientOf = (headers: IncomingHttpHeaders): string | undefined =>
  headerText(headers, 'x-ms-useragent') ?? headers['user-agent'];

/** A batch does not count as a query, whatever its other headers are, because it may write. */
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

/** Whether a request is for a list: for everything in it, or for what a query finds. */
export const isFeed = ({ method, headers }: Pick<CosmosRequest, 'method' | 'headers'>): boolean =>
  method === 'GET' || (method === 'POST' && (isQuery(headers) || isQueryPlan(headers)));

export const methodNotAllowed = (): WireError =>
  new WireError('methodNotAllowed', 'The requested verb is not supported.');

/** Whether a request runs a stored procedure. */
export const isRunOfScript = (method: string, segments: readonly string[]): boolean =>
  method === 'POST' && segments.length === 6 && segments[4] === 'sprocs';

/** @throws WireError 400 if the server runs no scripts */
export function scriptRunner({ scripts }: Pick<CosmosRequest, 'scripts'>): ScriptRunner {
  if (scripts === undefined) throw badRequest('This server does not run scripts: it was started with --scripts off.');
  return scripts;
}

/** The database that a target names by name or rid. */
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

/** The container that a target names. The rest of the target is ignored. */
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

/** As `find`, for a target below it: a missing owner gets another "not found" than a missing resource. */
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

/** The answer for something in a container that was deleted after it had been found. */
export const ownerGone = (error: unknown): WireError | undefined => (isMissing(error) ? ownerNotFound() : undefined);

const ownerNotFound = (): WireError => new WireError('ownerNotFound', 'Owner resource does not exist');

export function isMissing(error: unknown): boolean {
  return error instanceof Refusal && (error.code === 'database-not-found' || error.code === 'container-not-found');
}

/** Whether the target names the container by its rid, as `_self` links do. */
export const byRid = (request: CosmosRequest, container: ContainerState): boolean =>
  request.segments[3] === container.rid && container.name !== container.rid;
