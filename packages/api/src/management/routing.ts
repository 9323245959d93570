import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { isKeyText } from '@epitaph/core/partition-key/key-text.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { hasPseudonymousIds, isItemPseudonym } from '@epitaph/core/item/pseudonym.ts';
import { readPartitionKeyHeader } from '../cosmos/partition-key.ts';
import type { KeyRole } from '../http/keys.ts';
import type { Caller } from '../store/api/common.ts';
import type { StoreApi } from '../store/store-api.ts';
import { tracedRequest } from '../telemetry/tracing.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';

/**
 * Who may call a route. `anyone`: no key is needed; `audit`: every key; `read`: every key but the auditor's; `write`: the primary and the
 * secondary key only.
 */
export type Access = 'anyone' | KeyRole;

/** The caller of each request; set before any handler runs. */
export const callers = new WeakMap<FastifyRequest, Caller>();

/** The successful answers of a route. Every refusal is a problem detail. */
export interface Answers {
  /** 200 when not given. */
  readonly status?: 200 | 202;
  /** The schema of the JSON answer, which is sent unless the client asks for another format. */
  readonly json?: z.ZodType;
  /** The schema of each line, if the answer is `application/x-ndjson`. */
  readonly lines?: z.ZodType;
  /** The schemas of the data of `progress` and `done`, if the answer is `text/event-stream`. The data of `failed` is a problem. */
  readonly events?: { readonly progress: z.ZodType; readonly done: z.ZodType };
  /** Media types of answers that are files, which have no schema. */
  readonly files?: readonly string[];
  /** A second status, with a body of its own. */
  readonly otherwise?: { readonly status: number; readonly json: z.ZodType };
  /** Headers with a meaning of their own, described by name. A problem may have them, too. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** The documentation of a route for its callers. The OpenAPI document is made from these descriptions alone. */
export interface RouteDescription<Query extends z.ZodType = z.ZodType, Body extends z.ZodType = z.ZodType> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** The path below `/_epitaph`. */
  readonly url: string;
  readonly access: Access;
  /** One sentence. */
  readonly summary: string;
  /** The schema of the query parameters; no parameters if not given. Unknown parameters are refused, so that a mistyped name is noticed. */
  readonly query?: Query;
  /** The schema of the body; no body if not given. */
  readonly body?: Body;
  readonly answers: Answers;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The description of a management route. {@link route} sets it on all of them. */
    readonly description?: RouteDescription;
  }
}

/** A request that was admitted, with its query and body as the route's schemas parsed them. */
export interface Given<Query, Body> {
  readonly query: Query;
  readonly body: Body;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly caller: Caller;
}

/** Registers a route with its documentation. */
export function route<
  Query extends z.ZodType = typeof requests.noQuery,
  Body extends z.ZodType = typeof requests.noBody,
>(
  scope: FastifyInstance,
  description: RouteDescription<Query, Body>,
  handler: (given: Given<z.infer<Query>, z.infer<Body>>) => unknown,
): void {
  const { method, url } = description;
  scope.route({
    method,
    url,
    config: { description, isForAnyone: description.access === 'anyone' },
    handler: async (request, reply) => {
      // These defaults accept nothing, so the types of query and body fit a route without schemas.
      const query = requests.read((description.query ?? requests.noQuery) as Query, request.query, 'query');
      const body = requests.read((description.body ?? requests.noBody) as Body, request.body, 'body');
      void reply.header('cache-control', 'no-store');
      return tracedRequest(`${method} ${url}`, request.raw.headers, { 'epitaph.plane': 'management' }, async () =>
        handler({ query, body, request, reply, caller: callers.get(request)! }),
      );
    },
  });
}

/**
 * Collects the descriptions of all routes that are registered on a scope from now on.
 *
 * @throws Error for a route without a description, which was not registered by {@link route}
 */
export function collectRoutes(scope: FastifyInstance, described: RouteDescription[]): void {
  scope.addHook('onRoute', ({ method, url, config }) => {
    // The framework adds a HEAD route to every GET route.
    if (method === 'HEAD') return;
    const description = config?.description;
    if (description === undefined) {
      throw new Error(
        `${String(method)} ${url} has no description: put it on the server with route() of management/routing.ts.`,
      );
    }
    described.push(description);
  });
}

export function correlationOf(request: FastifyRequest): string {
  return callers.get(request)?.correlationId ?? randomUUID();
}

export const OF_CONTAINER = '/dbs/:database/colls/:container';

/** The most containers that an answer names. A client that creates a container for each test leaves many of the same name. */
const NAMED_CONTAINERS = 5;

/** The rids of the first few of some containers; undefined if there are none. */
function ridsOf(containers: readonly ContainerState[]): string | undefined {
  if (containers.length === 0) return undefined;
  return containers
    .slice(0, NAMED_CONTAINERS)
    .map(({ rid }) => rid)
    .join(', ');
}

/** The deleted containers that had this container's name, in a database of the same name, newest first. */
function deletedNamesakes(store: StoreApi, { name, databaseRid }: ContainerState): readonly ContainerState[] {
  return store.deletedContainers(store.databaseByRid(databaseRid)?.name ?? '', name);
}

/** The rids of deleted containers that had this container's name, before or after it; undefined if there are none. */
export function ridsOfNamesakes(store: StoreApi, container: ContainerState): string | undefined {
  return ridsOf(deletedNamesakes(store, container).filter(({ rid }) => rid !== container.rid));
}

/** The deleted containers that had this container's name before it, newest first. */
export function earlierContainers(store: StoreApi, container: ContainerState): readonly ContainerState[] {
  const gone = deletedNamesakes(store, container);
  // If the container itself is in the list, those after it are older. If not, it still exists and all of them are older.
  return gone.slice(gone.findIndex(({ rid }) => rid === container.rid) + 1);
}

/** The container that a path names, or the container of that name with the given rid, deleted or not. */
export function containerOf(store: StoreApi, request: FastifyRequest, rid: string | undefined): ContainerState {
  const { database, container } = requests.read(requests.containerParams, request.params, 'path');
  if (rid === undefined) {
    try {
      return store.container(database, container);
    } catch (error) {
      const rids = error instanceof Refusal ? ridsOf(store.deletedContainers(database, container)) : undefined;
      if (rids === undefined) throw error;
      throw new Refusal(
        'container-not-found',
        `No container ${JSON.stringify(container)} exists now. Deleted ones of that name keep their history; ask with their rid: ${rids}.`,
      );
    }
  }
  const found = store.containerByRid(rid);
  if (found?.name !== container || store.databaseByRid(found.databaseRid)?.name !== database) {
    throw new Refusal(
      'container-not-found',
      `No container ${JSON.stringify(container)} of a database ${JSON.stringify(database)} ever had the rid ${rid}.`,
    );
  }
  return found;
}

const EARLIER_CONTAINERS_HEADER = 'x-epitaph-earlier-containers';

/** The documentation of the header that {@link recordedContainer} sets. */
export const earlierContainersHeader = {
  [EARLIER_CONTAINERS_HEADER]: `The rids of up to ${NAMED_CONTAINERS} deleted containers that had the name before, newest first, separated by ", ". The answer has nothing about them. Absent if there are none, and with \`rid\`.`,
} as const;

/**
 * The container whose record is asked for. A client that names it without a rid may not know that other containers had the name before. The
 * answer has nothing about those, and a header says so.
 */
export function recordedContainer(
  store: StoreApi,
  request: FastifyRequest,
  reply: FastifyReply,
  rid: string | undefined,
): ContainerState {
  const container = containerOf(store, request, rid);
  const earlier = rid === undefined ? ridsOf(earlierContainers(store, container)) : undefined;
  if (earlier !== undefined) void reply.header(EARLIER_CONTAINERS_HEADER, earlier);
  return container;
}

export function itemOf(
  container: ContainerState,
  id: string,
  partitionKey: string | undefined,
): { readonly key: string; readonly shown: { readonly id: string; readonly partitionKey: unknown } } {
  // A client that knows an item only from the history names it by its pseudonym.
  if (partitionKey !== undefined && hasPseudonymousIds(container.definition)) {
    if (isItemPseudonym({ id, partitionKey })) return { key: partitionKey, shown: { id, partitionKey } };
  }
  const key = keyOf(container, partitionKey, 'An item is named by id and partitionKey,');
  return { key, shown: { id, partitionKey: JSON.parse(key) as unknown } };
}

/** @throws {Problem} that begins with `named` and says what the partition key should be */
export function keyOf({ definition }: ContainerState, text: string | undefined, named = 'A partition key is'): string {
  const read = text !== undefined && isKeyText(text) ? readPartitionKeyHeader(definition, text) : undefined;
  if (read?.complete === true) return read.key;
  const { paths } = definition.partitionKey;
  const example = JSON.stringify(['ann', 'smith', 'leeds'].slice(0, paths.length));
  throw new Problem('bad-request', `${named} a JSON array with the values of ${paths.join(', ')}, such as ${example}.`);
}

export function wantsEvents({ headers }: FastifyRequest): boolean {
  return (headers.accept ?? '').toLowerCase().includes('text/event-stream');
}

/** Answers with JSON that is serialized already. */
export const sendJson = (reply: FastifyReply, json: string): FastifyReply =>
  reply.type('application/json; charset=utf-8').send(json);
