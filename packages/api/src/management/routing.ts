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
 * Who may call a route: `anyone`, without a key; `audit`, every key; `read`, all but the auditor's; `write`, the
 * primary and the secondary alone.
 */
export type Access = 'anyone' | KeyRole;

/** Who makes a request; set before any handler runs. */
export const callers = new WeakMap<FastifyRequest, Caller>();

/** What a route answers when all goes well. Every "no" is a problem detail. */
export interface Answers {
  /** 200 when not given. */
  readonly status?: 200 | 202;
  /** As JSON, which is what is answered unless something else is asked for. */
  readonly json?: z.ZodType;
  /** As `application/x-ndjson`: each line. */
  readonly lines?: z.ZodType;
  /** As `text/event-stream`: the data of `progress` and `done`; `failed` carries a problem. */
  readonly events?: { readonly progress: z.ZodType; readonly done: z.ZodType };
  /** As files of these media types, which have no schema. */
  readonly files?: readonly string[];
  /** A further status with a body of its own. */
  readonly otherwise?: { readonly status: number; readonly json: z.ZodType };
  /** Headers that say something, by their names, in words: they may come with a problem, too. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** What is to be known of a route by whoever calls it: the OpenAPI document is made of nothing else. */
export interface RouteDescription<Query extends z.ZodType = z.ZodType, Body extends z.ZodType = z.ZodType> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Below `/_epitaph`. */
  readonly url: string;
  readonly access: Access;
  /** One sentence. */
  readonly summary: string;
  /** Parameters of the query, none when not given: any that are sent are refused, so that a mistyped name is noticed. */
  readonly query?: Query;
  /** The body; likewise. */
  readonly body?: Body;
  readonly answers: Answers;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Set on the management plane's routes, all of them by {@link route}. */
    readonly description?: RouteDescription;
  }
}

/** A request that was let in, with what was read of it by the route's own schemas. */
export interface Given<Query, Body> {
  readonly query: Query;
  readonly body: Body;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly caller: Caller;
}

/** One route, with its documentation. */
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
      // Without a schema there is nothing to read, which is what these defaults say.
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
 * Collects the descriptions of all routes that are put on a scope from now on.
 *
 * @throws Error for a route that was not put there by {@link route}, and so says nothing of itself
 */
export function collectRoutes(scope: FastifyInstance, described: RouteDescription[]): void {
  scope.addHook('onRoute', ({ method, url, config }) => {
    // The framework adds a HEAD to every GET.
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

/** Containers that an answer names, of those that may have had a name: somebody who makes one anew for each test has many. */
const NAMED_CONTAINERS = 5;

/** The rids of some containers, the first of them; undefined for none. */
function ridsOf(containers: readonly ContainerState[]): string | undefined {
  if (containers.length === 0) return undefined;
  return containers
    .slice(0, NAMED_CONTAINERS)
    .map(({ rid }) => rid)
    .join(', ');
}

/** The containers that are gone and had the name of this one in a database of the same name, newest first. */
function deletedNamesakes(store: StoreApi, { name, databaseRid }: ContainerState): readonly ContainerState[] {
  return store.deletedContainers(store.databaseByRid(databaseRid)?.name ?? '', name);
}

/** The rids of deleted containers that had the name of this one, before or after it; undefined for none. */
export function ridsOfNamesakes(store: StoreApi, container: ContainerState): string | undefined {
  return ridsOf(deletedNamesakes(store, container).filter(({ rid }) => rid !== container.rid));
}

/** The deleted containers that had the name of this one before it, newest first. */
export function earlierContainers(store: StoreApi, container: ContainerState): readonly ContainerState[] {
  const gone = deletedNamesakes(store, container);
  // Where it is one of them, those behind it are older; where it is not, all are.
  return gone.slice(gone.findIndex(({ rid }) => rid === container.rid) + 1);
}

/** The container that a path names, or the one of that name which `?rid=` picks out, deleted or not. */
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

/** What a route that answers about {@link recordedContainer} says of its headers. */
export const earlierContainersHeader = {
  [EARLIER_CONTAINERS_HEADER]: `The rids of up to ${NAMED_CONTAINERS} deleted containers that had the name before, newest first, separated by ", ". The answer has nothing about them. Absent if there are none, and with \`rid\`.`,
} as const;

/**
 * The container whose record is asked for. Whoever names it without a rid may not know that others had the name before
 * it; the answer has nothing of theirs, and says so in a header.
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
  // Whoever has it from history and does not know the item names it by its pseudonym.
  if (partitionKey !== undefined && hasPseudonymousIds(container.definition)) {
    if (isItemPseudonym({ id, partitionKey })) return { key: partitionKey, shown: { id, partitionKey } };
  }
  const key = keyOf(container, partitionKey, 'An item is named by id and partitionKey,');
  return { key, shown: { id, partitionKey: JSON.parse(key) as unknown } };
}

/** @throws {Problem} that begins with what was to be named and says what it should be */
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

/** Answers with JSON that is text already. */
export const sendJson = (reply: FastifyReply, json: string): FastifyReply =>
  reply.type('application/json; charset=utf-8').send(json);
