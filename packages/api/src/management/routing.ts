import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { readPartitionKeyHeader } from '../cosmos/partition-key.ts';
import type { KeyRole } from '../http/keys.ts';
import type { Caller, StoreApi } from '../store/store-api.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';

/**
 * Who may call a route: `anyone`, without a key; `audit`, every key; `read`, all but the auditor's; `write`, the
 * primary and the secondary alone.
 */
export type Access = 'anyone' | KeyRole;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Set on the management plane's routes. */
    readonly access?: Access;
  }
}

/** Who makes a request; set before any handler runs. */
export const callers = new WeakMap<FastifyRequest, Caller>();

export type Handler = (request: FastifyRequest, reply: FastifyReply, caller: Caller) => unknown;

export interface RouteOptions {
  /** The handler reads parameters of the query; true by default for what is asked of a container. */
  readonly query?: boolean;
  /** The handler reads a body. */
  readonly body?: boolean;
}

/** One route. Calls without parameters of their own refuse any that are given, so that a mistyped name is noticed. */
export function route(
  scope: FastifyInstance,
  method: HTTPMethods,
  url: string,
  access: Access,
  handler: Handler,
  { query: takesQuery = method === 'GET' && url.includes(':container'), body: takesBody = false }: RouteOptions = {},
): void {
  scope.route({
    method,
    url,
    config: { access },
    handler: async (request, reply) => {
      if (!takesQuery) requests.read(requests.noQuery, request.query, 'query');
      if (!takesBody) requests.read(requests.noBody, request.body, 'body');
      void reply.header('cache-control', 'no-store');
      return handler(request, reply, callers.get(request)!);
    },
  });
}

export function correlationOf(request: FastifyRequest): string {
  return callers.get(request)?.correlationId ?? randomUUID();
}

export const OF_CONTAINER = '/dbs/:database/colls/:container';

/** The container that a path names, or the one of that name which `?rid=` picks out, deleted or not. */
export function containerOf(store: StoreApi, request: FastifyRequest, rid: string | undefined): ContainerState {
  const { database, container } = requests.read(requests.containerParams, request.params, 'path');
  if (rid === undefined) {
    try {
      return store.container(database, container);
    } catch (error) {
      const gone = error instanceof Refusal ? store.deletedContainers(container).slice(0, 5) : [];
      if (gone.length === 0) throw error;
      const rids = gone.map((state) => state.rid).join(', ');
      throw new Refusal(
        'container-not-found',
        `No container ${JSON.stringify(container)} is there now. Deleted ones of that name keep their history; ask with their rid: ${rids}.`,
      );
    }
  }
  const found = store.containerByRid(rid);
  if (found === undefined || found.name !== container) {
    throw new Refusal('container-not-found', `No container ${JSON.stringify(container)} ever had the rid ${rid}.`);
  }
  return found;
}

export function itemOf(
  container: ContainerState,
  id: string,
  partitionKey: string | undefined,
): { readonly key: string; readonly shown: { readonly id: string; readonly partitionKey: unknown } } {
  const read = readPartitionKeyHeader(container.definition, partitionKey);
  if (read === undefined || !read.complete) {
    const paths = container.definition.partitionKey.paths.join(', ');
    throw new Problem(
      'bad-request',
      `An item is named by id and partitionKey, a JSON array with the values of ${paths}.`,
    );
  }
  return { key: read.key, shown: { id, partitionKey: JSON.parse(read.key) as unknown } };
}

export function wantsEvents({ headers }: FastifyRequest): boolean {
  return (headers.accept ?? '').toLowerCase().includes('text/event-stream');
}

/** Aborted when the client goes away before it has its answer. */
export function clientGone(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}
