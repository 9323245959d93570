import {
  CosmosClient,
  type Container,
  type ContainerRequest,
  type ErrorResponse,
  type ItemDefinition,
  type PartitionKey,
  type PatchOperation,
} from '@azure/cosmos';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EmbeddedStoreOptions, openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Identities } from '@epitaph/api/http/identities.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import type { Limits } from '@epitaph/api/http/limits.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import type { Store } from '@epitaph/api/store/store.ts';

import { EventStoreDouble } from '../../eventstoredb/double.ts';

export const READ_ONLY_KEY = Buffer.alloc(64, 7).toString('base64');
export const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000000' };

/** Not on a whole second, so tests see that `_ts` is rounded down. */
export const START_MS = Date.UTC(2026, 10, 21, 10, 0, 0, 750);
export const MAX_TTL = 2_147_483_647;

export interface WorldOptions {
  /** Manual by default. */
  readonly clock?: 'manual' | 'system';
  readonly folder?: string;
  readonly startMs?: number;
  /** Off by default, so that each test decides when the purge runs. */
  readonly automaticPurge?: boolean;
  readonly policyGraceSeconds?: number;
  /** Origins of web pages that may call the data plane. */
  readonly origins?: readonly string[];
  /** The identity tokens that are accepted. By default there are none. */
  readonly identities?: Identities;
  readonly limits?: Partial<Limits>;
  readonly scripts?: boolean;
  /** Connection string of an event store for the log. */
  readonly eventStore?: string;
  /** The time after which the event store is scavenged again. */
  readonly scavengeEverySeconds?: number;
  /** The throughput, the clock of the budgets, and how long pages of queries are waited for. */
  readonly provisioning?: Pick<EmbeddedStoreOptions, 'serverless' | 'defaultThroughput' | 'monotonicMs' | 'pageWaitMs'>;
}

export interface Reply<Body = Fields> {
  readonly status: number;
  readonly body: Body;
}

/** JSON of any shape, for tests to look into. */
export type Fields = Readonly<Record<string, unknown>>;

export interface HistoryEvent {
  readonly type: string;
  readonly life: number;
  readonly occurredAtMs: number;
  readonly revision?: number;
  readonly position?: number;
  readonly actor?: string;
  readonly causationId?: string;
  readonly fromLedger?: boolean;
  readonly data: Fields;
}

export interface Explained {
  readonly state: 'live' | 'expired' | 'purged' | 'deleted' | 'never-existed';
  readonly sentence: string;
  readonly life?: number;
  readonly expiredAtMs?: number;
  readonly expiresAtMs?: number;
  readonly deletedAtMs?: number;
  readonly renamedTo?: { readonly id: string; readonly life: number };
  readonly containerDeletedAtMs?: number;
  readonly purgedAtMs?: number;
  readonly recordedAtMs?: number;
  readonly rule?: string;
  readonly arithmetic?: string;
  readonly policy?: { readonly version: number; readonly defaultTtl: number | null; readonly sinceMs: number };
}

interface Running {
  readonly store: Store;
  readonly client: CosmosClient;
  stop(): Promise<void>;
}

/** A whole server on its own folder: real HTTP, the real client, the management plane. */
export class World {
  readonly folder: string;
  readonly #options: WorldOptions;
  #running: Running | undefined;
  #endpoint = '';
  #containers = 0;
  /** With EPITAPH_TEST_LOG=eventstoredb, each world without an event store of its own starts a stand-in for one. */
  #double: EventStoreDouble | undefined;

  private constructor(folder: string, options: WorldOptions) {
    this.folder = folder;
    this.#options = options;
  }

  static async open(options: WorldOptions = {}): Promise<World> {
    const folder = options.folder ?? (await mkdtemp(join(tmpdir(), 'epitaph-acceptance-')));
    const world = new World(folder, options);
    if (process.env['EPITAPH_TEST_LOG'] === 'eventstoredb' && options.eventStore === undefined) {
      world.#double = await EventStoreDouble.start();
    }
    await world.start();
    return world;
  }

  async start(): Promise<void> {
    const { clock = 'manual', automaticPurge = false, policyGraceSeconds, startMs = START_MS } = this.#options;
    const eventStore = this.#options.eventStore ?? this.#double?.connectionString;
    const store = await openEmbeddedStore({
      folder: this.folder,
      eventStore,
      clock,
      automaticPurge,
      scavengeEverySeconds: this.#options.scavengeEverySeconds,
      ...this.#options.provisioning,
      ...(clock === 'manual' ? { startMs } : {}),
      ...(policyGraceSeconds === undefined ? {} : { policyGraceSeconds }),
    });
    const keys = new KeyRing({ primary: EMULATOR_KEY, readOnly: READ_ONLY_KEY });
    const { origins, identities, scripts, limits = {} } = this.#options;
    const app = buildServer({
      store,
      keys,
      origins,
      identities,
      limits,
      scripts,
      plugins: [(server) => registerManagement(server, { store, keys, identities })],
    });
    // The same port as before, because the address of a server does not change when it restarts.
    const port = this.#endpoint === '' ? 0 : Number(new URL(this.#endpoint).port);
    this.#endpoint = await app.listen({ host: '127.0.0.1', port });
    const client = this.connect();
    this.#running = {
      store,
      client,
      stop: async () => {
        client.dispose();
        await app.close();
        await store.close();
      },
    };
  }

  async stop(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    await running?.stop();
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /** Stops the server, and removes its folder. */
  async end(): Promise<void> {
    await this.stop();
    this.#double?.stop();
    await rm(this.folder, { recursive: true, force: true });
  }

  get endpoint(): string {
    return this.#endpoint;
  }

  get client(): CosmosClient {
    return this.#live.client;
  }

  /** The store behind the server, for calls whose order can't be controlled over HTTP. */
  get store(): Store {
    return this.#live.store;
  }

  get #live(): Running {
    if (this.#running === undefined) throw new Error('the server is not running');
    return this.#running;
  }

  /** One more client of the server. */
  connect(options: { readonly key?: string; readonly session?: boolean } = {}): CosmosClient {
    return new CosmosClient({
      endpoint: this.#endpoint,
      key: options.key ?? EMULATOR_KEY,
      ...(options.session === true ? { consistencyLevel: 'Session' } : {}),
    });
  }

  /** Creates a new container in database `shop`, with partition key `/customer` by default. */
  async container(options: Partial<ContainerRequest> = {}): Promise<Container> {
    const { database } = await this.client.databases.createIfNotExists({ id: 'shop' });
    this.#containers += 1;
    const id = options.id ?? `c${this.#containers}`;
    await database.containers.create({ partitionKey: '/customer', ...options, id });
    return this.of(id);
  }

  /** The container with this name, through the present client. */
  of(id: string): Container {
    return this.client.database('shop').container(id);
  }

  /** Sets the container's default TTL as clients do: by a replace of the container. */
  async setTtl(id: string, defaultTtl: number | undefined): Promise<void> {
    const { resource } = await this.of(id).read();
    const { defaultTtl: _, ...rest } = resource!;
    await this.of(id).replace({ ...rest, ...(defaultTtl === undefined ? {} : { defaultTtl }) });
  }

  /** A call of the management plane. */
  async manage<Body = Fields>(method: string, path: string, body?: unknown): Promise<Reply<Body>> {
    const response = await fetch(`${this.#endpoint}/_epitaph${path}`, {
      method,
      headers: { authorization: `Bearer ${EMULATOR_KEY}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Body };
  }

  async #managed<Body>(method: string, path: string, body?: unknown): Promise<Body> {
    const reply = await this.manage<Body>(method, path, body);
    if (reply.status !== 200) throw new Error(`${method} ${path}: ${reply.status} ${JSON.stringify(reply.body)}`);
    return reply.body;
  }

  /** Advances the manual clock, and returns the new time. */
  async advance(milliseconds: number): Promise<number> {
    return (await this.#managed<{ nowMs: number }>('POST', '/clock/advance', { milliseconds })).nowMs;
  }

  async advanceTo(atMs: number): Promise<number> {
    return this.advance(atMs - (await this.now()));
  }

  async now(): Promise<number> {
    return (await this.#managed<{ nowMs: number }>('GET', '/clock')).nowMs;
  }

  purge(): Promise<{ readonly expired: number; readonly purged: number }> {
    return this.#managed('POST', '/purge/run');
  }

  async setGrace(container: string, seconds: number): Promise<void> {
    await this.#managed('PUT', `/dbs/shop/colls/${container}/policy-grace`, { seconds });
  }

  /** The position of the last event in the log. */
  async head(): Promise<number> {
    type Projections = { readonly projections: readonly { readonly headPosition: number }[] };
    return (await this.#managed<Projections>('GET', '/projections')).projections[0]!.headPosition;
  }

  async fsck(): Promise<readonly Fields[]> {
    return (await this.#managed<{ problems: readonly Fields[] }>('POST', '/fsck')).problems;
  }

  explain(container: string, id: string, at?: number, options: ItemOptions = {}): Promise<Explained> {
    const query = itemQuery(id, options);
    if (at !== undefined) query.set('at', String(at));
    return this.#managed('GET', `/dbs/${options.database ?? 'shop'}/colls/${container}/explain?${query.toString()}`);
  }

  async history(container: string, id: string, options: ItemOptions = {}): Promise<readonly HistoryEvent[]> {
    const path = `/dbs/${options.database ?? 'shop'}/colls/${container}/history?${itemQuery(id, options).toString()}`;
    return (await this.#managed<{ events: readonly HistoryEvent[] }>('GET', path)).events;
  }

  /** The history of the container itself. */
  async containerHistory(container: string, rid?: string): Promise<readonly HistoryEvent[]> {
    const query = rid === undefined ? '' : `?rid=${encodeURIComponent(rid)}`;
    const path = `/dbs/shop/colls/${container}/history${query}`;
    return (await this.#managed<{ events: readonly HistoryEvent[] }>('GET', path)).events;
  }

  disappearances(container: string, rid?: string): Promise<{ readonly disappearances: readonly Fields[] }> {
    const query = rid === undefined ? '' : `?rid=${encodeURIComponent(rid)}`;
    return this.#managed('GET', `/dbs/shop/colls/${container}/disappearances${query}`);
  }
}

export interface ItemOptions {
  /** `ann` by default. */
  readonly key?: unknown;
  /** The rid, for a container that was deleted. */
  readonly rid?: string;
  readonly database?: string;
}

function itemQuery(id: string, { key = 'ann', rid }: ItemOptions): URLSearchParams {
  return new URLSearchParams({ id, partitionKey: JSON.stringify([key]), ...(rid === undefined ? {} : { rid }) });
}

/** The status that a call of the client ends with, whether it throws or not. */
export async function statusOf(call: Promise<{ readonly statusCode?: number }>): Promise<number | string | undefined> {
  try {
    return (await call).statusCode;
  } catch (error) {
    return (error as ErrorResponse).code;
  }
}

/** The error with which a call is refused. */
export async function refusalOf(call: Promise<unknown>): Promise<{
  readonly code: number | string | undefined;
  readonly substatus: number | undefined;
  readonly message: string;
}> {
  try {
    await call;
  } catch (error) {
    const { code, substatus, message } = error as ErrorResponse;
    return { code, substatus, message };
  }
  throw new Error('the call was not refused');
}

/** An item whose shape the client's types would not allow. */
export const anyItem = (item: Fields): ItemDefinition => item;
export const anyPatch = (operations: readonly Fields[]): PatchOperation[] => operations as unknown as PatchOperation[];
export const anyKey = (key: unknown): PartitionKey => key as PartitionKey;
/** Settings of a container that the client's types would not allow. */
export const anyContainer = (request: Fields): ContainerRequest => request;

/** What each way of reading finds of some ids. */
export async function sightings(
  container: Container,
  ids: readonly string[],
  key: unknown = 'ann',
): Promise<Sightings> {
  const partitionKey = anyKey(key);
  const parameters = [{ name: '@ids', value: [...ids] }];
  const within = { query: 'SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)', parameters };
  const counted = { query: 'SELECT VALUE COUNT(1) FROM c WHERE ARRAY_CONTAINS(@ids, c.id)', parameters };
  const listed = ids.map((id) => JSON.stringify(id)).join(', ');
  const [reads, query, byKey, byId, count, countAll, feed, feedOfKey] = await Promise.all([
    Promise.all(
      ids.map(async (id) => ((await container.item(id, partitionKey).read()).resource === undefined ? [] : [id])),
    ),
    container.items.query<string>(within).fetchAll(),
    container.items.query<string>(within, { partitionKey }).fetchAll(),
    container.items.query<string>(`SELECT VALUE c.id FROM c WHERE c.id IN (${listed})`, { partitionKey }).fetchAll(),
    container.items.query<number>(counted).fetchAll(),
    container.items.query<number>('SELECT VALUE COUNT(1) FROM c').fetchAll(),
    container.items.readAll<{ id: string }>().fetchAll(),
    container.items.readAll<{ id: string }>({ partitionKey }).fetchAll(),
  ]);
  const among = (found: readonly string[]) => found.filter((id) => ids.includes(id)).sort();
  return {
    reads: reads.flat().sort(),
    query: among(query.resources),
    queryOfKey: among(byKey.resources),
    queryById: among(byId.resources),
    count: count.resources[0],
    countAll: countAll.resources[0],
    feed: among(feed.resources.map(({ id }) => id)),
    feedOfKey: among(feedOfKey.resources.map(({ id }) => id)),
  };
}

export interface Sightings {
  readonly reads: readonly string[];
  readonly query: readonly string[];
  readonly queryOfKey: readonly string[];
  readonly queryById: readonly string[];
  readonly count: number | undefined;
  /** The number of items in the whole container, counted without examining any document. */
  readonly countAll: number | undefined;
  readonly feed: readonly string[];
  readonly feedOfKey: readonly string[];
}

/** What `sightings` returns if all ways of reading find exactly these ids, in a container that has no others. */
export function seen(...ids: readonly string[]): Sightings {
  const sorted = ids.toSorted();
  return {
    reads: sorted,
    query: sorted,
    queryOfKey: sorted,
    queryById: sorted,
    count: ids.length,
    countAll: ids.length,
    feed: sorted,
    feedOfKey: sorted,
  };
}
