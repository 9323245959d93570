import { Agent, request } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { once } from 'node:events';
import {
  CosmosClient,
  PartitionKeyDefinitionVersion,
  PermissionMode,
  TriggerOperation,
  TriggerType,
} from '@azure/cosmos';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { readGuid, writeGuid } from '@epitaph/api/direct/guid.ts';
import { directRequest } from '@epitaph/api/direct/request.ts';
import { tokenTypes, readTokens, TokenWriter, UnreadableTokens } from '@epitaph/api/direct/tokens.ts';
import { closeWithin } from '@epitaph/api/http/close-within.ts';
import { closeIdleConnections } from '@epitaph/api/http/connections.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import type { Limits } from '@epitaph/api/http/limits.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { Deadline } from '@epitaph/api/wait.ts';
import { collectGarbage } from '../../packages/api/test/collect-garbage.ts';
import { sign } from '../../packages/api/test/cosmos/support/client.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { whyWithout } from '../support/programs.ts';
import { selfSigned, type SelfSigned } from '../support/self-signed.ts';
import { ANSWER, DirectClient, FACTS, firstMessage, message, token } from './support/direct-client.ts';

type FastifyInstance = ReturnType<typeof buildServer>;

const skipped = whyWithout('openssl');
const IN = { database: 'shop', container: 'orders' } as const;
const ANN = { ...IN, partitionKey: '["ann"]' } as const;
const READ_ONLY_KEY = Buffer.alloc(64, 7).toString('base64');

describe.skipIf(skipped)(`direct mode${skipped}`, () => {
  let folder: string;
  let tls: SelfSigned;
  let store: Store;
  let app: FastifyInstance;
  let port: number;
  let client: DirectClient;
  let readsOrders: string;
  const faults: unknown[] = [];

  async function listen(limits: Partial<Limits> = {}): Promise<FastifyInstance> {
    const keys = new KeyRing({ primary: EMULATOR_KEY, readOnly: READ_ONLY_KEY });
    const server = buildServer({ store, keys, limits, tls: { cert: tls.certificate, key: tls.key } });
    server.log.error = (fault: unknown) => void faults.push(fault);
    await server.listen({ host: 'localhost', port: 0 });
    return server;
  }
  const portOf = ({ server }: FastifyInstance): number => (server.address() as { port: number }).port;

  /** Runs with a server of its own, which is closed afterwards. */
  async function withServer(
    limits: Partial<Limits>,
    use: (port: number, server: FastifyInstance) => Promise<void>,
  ): Promise<void> {
    const server = await listen(limits);
    try {
      await use(portOf(server), server);
    } finally {
      await closeWithin(server, 1_000);
    }
  }

  /** Makes reads of items wait until they are released. */
  function holdReads() {
    const original = store.readItem.bind(store);
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const readItem = vi.spyOn(store, 'readItem').mockImplementation(async (...asked) => {
      await released;
      return original(...asked);
    });
    onTestFinished(() => readItem.mockRestore());
    return { readItem, release };
  }

  beforeAll(async () => {
    folder = newFolder('direct');
    tls = selfSigned();
    store = await openEmbeddedStore({ folder, clock: 'system', durable: false });
    app = await listen();
    port = portOf(app);
    const agent = new Agent({ ca: tls.certificate });
    const overHttp = new CosmosClient({ endpoint: `https://localhost:${port}`, key: EMULATOR_KEY, agent });
    const { database } = await overHttp.databases.createIfNotExists({ id: 'shop' });
    const { container } = await database.containers.createIfNotExists({ id: 'orders', partitionKey: '/customer' });
    const greet =
      "function (name) { console.log('to ' + name + ' é'); getContext().getResponse().setBody('hello ' + name); }";
    await container.scripts.storedProcedures.create({ id: 'greet', body: greet });
    for (const [id, triggerType, of] of [
      ['prüfen 日本', TriggerType.Pre, 'request'],
      ['after', TriggerType.Post, 'response'],
    ] as const) {
      const body = `function () { __.${of}.setBody({ ...__.${of}.getBody(), ${of}: 'changed' }); }`;
      await container.scripts.triggers.create({ id, body, triggerType, triggerOperation: TriggerOperation.All });
    }
    await database.containers.createIfNotExists({
      id: 'wide',
      partitionKey: { paths: ['/customer'], version: PartitionKeyDefinitionVersion.V2 },
      throughput: 12_000,
    });
    const { user } = await database.users.create({ id: 'ann' });
    const permission = { id: 'orders', permissionMode: PermissionMode.Read, resource: 'dbs/shop/colls/orders' };
    readsOrders = (await user.permissions.create(permission)).resource!._token;
    overHttp.dispose();
    agent.destroy();
    client = await DirectClient.open(port, tls.certificate);
  });
  afterAll(async () => {
    client.socket.destroy();
    await closeWithin(app, 1_000);
    await store.close();
    tls.remove();
    removeFolder(folder);
    expect(faults).toEqual([]);
  });

  interface Addresses {
    readonly _count: number;
    readonly Addresss: readonly {
      readonly physcialUri: string;
      readonly partitionKeyRangeId: string;
      isPrimary: boolean;
    }[];
  }

  /** Asks like the .NET client, which escapes the link twice, and signs it as a request for items. */
  function addresses(link: string, ids: string, headers: Readonly<Record<string, string>> = {}, key = EMULATOR_KEY) {
    const date = new Date().toUTCString();
    const authorization = sign('get', 'docs', link.split('/').at(-1)!.toLowerCase(), date, key);
    const query = `$resolveFor=${encodeURIComponent(encodeURIComponent(`${link}/docs`))}&$filter=protocol eq rntbd&$partitionKeyRangeIds=${ids}`;
    return addressesBy(query, { authorization, 'x-ms-date': date, ...headers });
  }

  function addressesBy(
    query: string,
    headers: Readonly<Record<string, string>>,
  ): Promise<{ status: number; json: Addresses & { readonly message?: string } }> {
    return new Promise((resolve, reject) => {
      request(
        {
          port,
          host: 'localhost',
          ca: tls.certificate,
          servername: 'localhost',
          path: `//addresses/?${query.replaceAll(' ', '%20')}`,
          headers,
        },
        (response) => {
          let text = '';
          response.on('data', (chunk: Buffer) => (text += chunk.toString()));
          response.on('end', () => resolve({ status: response.statusCode!, json: JSON.parse(text) as Addresses }));
        },
      )
        .on('error', reject)
        .end();
    });
  }

  const linkOf = (container: string): string => {
    const { rid, databaseRid } = store.container('shop', container);
    return `dbs/${databaseRid}/colls/${rid}`;
  };

  test('a container’s ranges have addresses at the port that the client used, and unknown ranges have none', async () => {
    const { status, json } = await addresses(linkOf('wide'), '1,2,99999');
    expect(status).toBe(200);
    const uri = expect.stringMatching(`^rntbd://localhost:${port}/apps/.*/partitions/1/replicas/0p/$`) as string;
    expect(json.Addresss[0]).toEqual({
      isPrimary: true,
      protocol: 'rntbd',
      physcialUri: uri,
      partitionKeyRangeId: '1',
    });
    expect(json.Addresss.map(({ partitionKeyRangeId }) => partitionKeyRangeId)).toEqual([...'11112222']);
    expect(new Set(json.Addresss.map(({ physcialUri }) => physcialUri)).size).toBe(8);
    expect(json.Addresss.filter(({ isPrimary }) => isPrimary)).toHaveLength(2);
    const unmapped = await addresses(linkOf('orders'), '0', { host: 'db.example' });
    expect(unmapped.json.Addresss[0]!.physcialUri).toMatch(/^rntbd:\/\/db\.example:443\//);
    const nowhere = await addresses(linkOf('orders'), '0', { host: 'a:b:c' });
    expect(nowhere).toMatchObject({ status: 400, json: { message: expect.stringContaining('Host') as string } });
  });

  test('addresses are given to clients that may read the container, if it exists', async () => {
    expect((await addresses(linkOf('orders'), '0', {}, READ_ONLY_KEY)).status).toBe(200);
    expect((await addresses(linkOf('orders'), '0', {}, Buffer.alloc(64, 1).toString('base64'))).status).toBe(401);
    const other = linkOf('orders').replace(/.{8}$/, 'AAAAAAA=');
    expect(await addresses(other, '0')).toMatchObject({ status: 404, json: { message: expect.any(String) as string } });
  });

  test('the addresses for databases are this server’s, too', async () => {
    const date = new Date().toUTCString();
    const headers = (link: string) => ({ authorization: sign('get', 'dbs', link, date), 'x-ms-date': date });
    const { json } = await addressesBy('$resolveFor=dbs/shop', headers('dbs/shop'));
    expect(json).toMatchObject({ _rid: '', _count: 4, Addresss: [{ partitionKeyRangeId: '' }, {}, {}, {}] });
    expect(json.Addresss[3]!.physcialUri).toMatch(/\/services\/master\/partitions\/\/replicas\/3s\/$/);
    expect(await addressesBy('$filter=none', headers(''))).toMatchObject({ status: 400 });
    const link = linkOf('orders');
    const authorization = sign('get', 'docs', link.split('/').at(-1)!.toLowerCase(), date);
    const ofNone = await addressesBy(`$resolveFor=${link}/docs`, { authorization, 'x-ms-date': date });
    expect(ofNone).toMatchObject({ status: 200, json: { _count: 0 } });
  });

  test('a client that comes through an HTTP proxy is told to use gateway mode', async () => {
    const { status, json } = await addresses(linkOf('orders'), '0', { 'x-forwarded-for': '10.0.0.1' });
    expect(status).toBe(400);
    expect(json.message).toContain('ConnectionMode.Gateway');
  });

  test('a client that uses an IPv6 address, which clients in direct mode can’t connect to, is told to use a host name', async () => {
    const { status, json } = await addresses(linkOf('orders'), '0', { host: `[::1]:${port}` });
    expect(status).toBe(400);
    expect(json.message).toMatch(/use a host name.*ConnectionMode\.Gateway/);
  });

  test('items are written, read, queried and deleted, and answers have the tokens that clients rely on', async () => {
    const created = await client.call({ operation: 'create', ...ANN, body: { id: 'a', customer: 'ann', n: 1 } });
    expect(created).toMatchObject({ status: 201, json: { id: 'a', n: 1, _rid: expect.any(String) as string } });
    expect(created.tokens.get(ANSWER.rangeId)?.toString()).toBe('0');
    const lsn = Number(created.tokens.get(ANSWER.lsn));
    expect(lsn).toBeGreaterThan(0);
    // The token has no range, because the client adds it.
    expect(created.tokens.get(ANSWER.sessionToken)?.toString()).toBe(`-1#${lsn}`);
    expect(created.tokens.get(ANSWER.charge)).toBeGreaterThan(1);
    const etag = created.tokens.get(ANSWER.etag)!.toString();
    expect(etag).toBe(created.json['_etag']);
    const conflict = await client.call({ operation: 'create', ...ANN, body: { id: 'a', customer: 'ann' } });
    expect(conflict).toMatchObject({ status: 409, json: { code: 'Conflict' } });
    // The refused client's session must include the write that was in its way.
    expect(conflict.tokens.get(ANSWER.sessionToken)?.toString()).toBe(`-1#${lsn}`);

    const item = { ...ANN, item: 'a' };
    const session = `0:-1#${lsn}`;
    const read = await client.call({ operation: 'read', ...item, sessionToken: session, consistencyLevel: 2 });
    expect(read).toMatchObject({ status: 200, json: created.json });
    // The position of the item's last write. With it the client accepts the same answer from several replicas as one, however far the log
    // has advanced in between.
    expect(read.tokens.get(ANSWER.itemLocalLsn)).toBe(BigInt(lsn));
    expect(read.tokens.get(ANSWER.itemLsn)).toBe(BigInt(lsn));
    // At the stronger consistency levels, the client requires that all replicas have what this one has.
    const { localLsn, quorumAckedLsn, quorumAckedLocalLsn, replicaSetSize, writeQuorum } = ANSWER;
    for (const one of [localLsn, quorumAckedLsn, quorumAckedLocalLsn]) {
      expect(read.tokens.get(one)).toBe(read.tokens.get(ANSWER.lsn));
    }
    expect([replicaSetSize, writeQuorum].map((one) => read.tokens.get(one))).toEqual([4, 4]);
    expect((await client.call({ operation: 'read', ...item, match: etag })).status).toBe(304);
    const replaced = { id: 'a', customer: 'ann', n: 2 };
    expect(await client.call({ operation: 'replace', ...item, match: '"other"', body: replaced })).toMatchObject({
      status: 412,
    });
    const minimal = await client.call({
      operation: 'replace',
      ...item,
      match: etag,
      body: replaced,
      returnPreference: 1,
    });
    expect(minimal).toMatchObject({ status: 200, text: '' });
    const patch = { operations: [{ op: 'incr', path: '/n', value: 5 }] };
    expect(await client.call({ operation: 'patch', ...item, body: patch })).toMatchObject({
      status: 200,
      json: { n: 7 },
    });
    expect((await client.call({ operation: 'upsert', ...ANN, body: { id: 'b', customer: 'ann' } })).status).toBe(201);
    expect((await client.call({ operation: 'upsert', ...ANN, body: { id: 'b', customer: 'ann' } })).status).toBe(200);

    const batch = [
      { operationType: 'Upsert', resourceBody: { id: 'b', customer: 'ann' } },
      { operationType: 'Create', resourceBody: { id: 'b', customer: 'ann' } },
    ];
    const undone = await client.call({ operation: 'batch', ...ANN, batchAtomic: 1, body: batch });
    expect(undone.status).toBe(207);
    expect(JSON.parse(undone.text)).toMatchObject([{ statusCode: 424 }, { statusCode: 409 }]);
    const query = { query: 'SELECT VALUE c.id FROM c ORDER BY c.id' };
    const found = await client.call({ operation: 'query', ...ANN, body: query });
    expect(found).toMatchObject({ status: 200, json: { Documents: ['a', 'b'] } });
    const page = await client.call({ operation: 'readFeed', ...IN, rangeId: '0', pageSize: 1 });
    expect(page.json).toMatchObject({ _count: 1, Documents: [{ id: 'a' }] });
    expect(page.tokens.get(ANSWER.itemCount)).toBe(1);
    const continuation = page.tokens.get(ANSWER.continuation)!.toString();
    const next = await client.call({ operation: 'readFeed', ...IN, rangeId: '0', pageSize: 0xffffffff, continuation });
    expect(next.json).toMatchObject({ _count: 1, Documents: [{ id: 'b' }] });
    const changes = { operation: 'readFeed', ...IN, rangeId: '0', aIm: 'Incremental Feed' } as const;
    const changed = await client.call(changes);
    expect(changed.json).toMatchObject({ _count: 2 });
    const after = changed.tokens.get(ANSWER.etag)!.toString();
    expect(await client.call({ ...changes, match: after })).toMatchObject({ status: 304, text: '' });

    expect((await client.call({ operation: 'delete', ...item })).status).toBe(204);
    const gone = await client.call({ operation: 'read', ...item, sessionToken: session });
    expect(gone).toMatchObject({ status: 404, json: { code: 'NotFound' } });
    // With this, a client that reads in a session knows that the server is far enough.
    expect(Number(gone.tokens.get(ANSWER.sessionToken)?.toString().slice(3))).toBeGreaterThanOrEqual(lsn);
  });

  test('stored procedures run, and return their log if asked to', async () => {
    const call = { operation: 'execute', ...ANN, procedure: 'greet', body: ['ann'] } as const;
    const logged = await client.call({ ...call, logsScript: 1 });
    expect(logged).toMatchObject({ status: 200, text: '"hello ann"' });
    expect(decodeURIComponent(String(logged.tokens.get(ANSWER.scriptLog)))).toBe('to ann é');
    expect((await client.call(call)).tokens.get(ANSWER.scriptLog)).toBeUndefined();
  });

  test('a request runs the triggers that it names, in any language', async () => {
    const body = { id: 'triggered', customer: 'ann' };
    const naming = { preTriggers: 'prüfen 日本', postTriggers: 'after' };
    const { status, json } = await client.call({ operation: 'create', ...ANN, ...naming, body });
    expect([status, json]).toMatchObject([201, { ...body, request: 'changed', response: 'changed' }]);
    const { status: deleted } = await client.call({ operation: 'delete', ...ANN, item: 'triggered' });
    expect(deleted).toBe(204);
  });

  test('ids are used as they are, without escapes, and items can be read by their rids as well', async () => {
    for (const id of ['a b', 'ü', '日本 😀', 'a%20b', '100%25', 'a?b&c=d', 'a+b;c,d@e$', '~`^{|}"']) {
      const body = { id, customer: 'ann' };
      expect([id, (await client.call({ operation: 'create', ...ANN, body })).status]).toEqual([id, 201]);
      const { status, json } = await client.call({ operation: 'read', ...ANN, item: id });
      expect([status, json['id']]).toEqual([200, id]);
      const rid = Buffer.from(String(json['_rid']).replaceAll('-', '/'), 'base64');
      const byRid = { resourceId: rid, partitionKey: '["ann"]', link: String(json['_rid']).toLowerCase() };
      expect(await client.call({ operation: 'read', ...byRid })).toMatchObject({ status: 200, json: { id } });
      expect((await client.call({ operation: 'delete', ...ANN, item: id })).status).toBe(204);
    }
  });

  test('a range that has split is answered with 410, so that clients learn of the split, except for a part of its keys', async () => {
    // The addresses are still given. A client that got none would ask for everything that the range had, as it does upon a 410.
    expect((await addresses(linkOf('wide'), '0')).json).toMatchObject({ _count: 4 });
    const wide = { database: 'shop', container: 'wide', body: { query: 'SELECT * FROM c' } } as const;
    const gone = await client.call({ operation: 'query', ...wide, rangeId: '0' });
    expect([gone.status, gone.tokens.get(ANSWER.substatus)]).toEqual([410, 1002]);
    const part = { startEpk: Buffer.from('05'), endEpk: Buffer.from('06'), readFeedKeyType: 3 };
    expect(await client.call({ operation: 'query', ...wide, rangeId: '0', ...part })).toMatchObject({ status: 200 });
    expect(await client.call({ operation: 'query', ...wide, rangeId: '2' })).toMatchObject({ status: 200 });
  });

  test.each([
    'SELECT VALUE COUNT(1) FROM c',
    'SELECT c.customer FROM c ORDER BY c.id',
    'SELECT DISTINCT VALUE c.customer FROM c',
    'SELECT TOP 3 * FROM c',
    'SELECT * FROM c OFFSET 1 LIMIT 2',
    'SELECT c.customer, MAX(c.id) AS last FROM c GROUP BY c.customer',
  ])(
    'a range that has split still answers queries that clients would have to merge, as their plan may be from before: %s',
    async (query) => {
      const wide = { database: 'shop', container: 'wide', body: { query } } as const;
      expect(await client.call({ operation: 'query', ...wide, rangeId: '0' })).toMatchObject({ status: 200 });
    },
  );

  test('the strongest consistency is accepted for databases, for which clients always ask for it, and refused for items', async () => {
    const shop = { operation: 'read', database: 'shop', ofDatabase: true, consistencyLevel: 0 } as const;
    expect(await client.call(shop)).toMatchObject({ status: 200, json: { id: 'shop' } });
    const missing = await client.call({ ...shop, database: 'none' });
    expect(missing.status).toBe(404);
    expect(Number(missing.tokens.get(ANSWER.lsn))).toBeGreaterThan(0);
    expect(await client.call({ operation: 'read', ...ANN, item: 'a', consistencyLevel: 0 })).toMatchObject({
      status: 400,
      json: { message: expect.stringContaining('not stronger') as string },
    });
  });

  test('many requests on a connection run at once, and each answer names its request', async () => {
    const ids = Array.from({ length: 300 }, (_, index) => `many-${index}`);
    const created = await Promise.all(
      ids.map((id) =>
        client.call({ operation: 'create', ...ANN, body: { id, customer: 'ann', text: 'x'.repeat(500) } }),
      ),
    );
    expect(created.map(({ status, json }) => [status, json['id']])).toEqual(ids.map((id) => [201, id]));
    expect(new Set(created.map(({ activityId }) => activityId)).size).toBe(300);
    const read = await Promise.all(ids.map((item) => client.call({ operation: 'read', ...ANN, item })));
    expect(read.map(({ json }) => json['id'])).toEqual(ids);
  });

  test('a connection has at most 100 requests in progress, and later ones wait for an answer', async () => {
    const { readItem, release } = holdReads();
    const other = await DirectClient.open(port, tls.certificate);
    const answers = Array.from({ length: 130 }, () => other.call({ operation: 'read', ...ANN, item: 'none' }));
    await expect.poll(() => readItem.mock.calls.length, { interval: 5 }).toBe(100);
    await client.call({ operation: 'read', database: 'shop', ofDatabase: true });
    expect(readItem).toHaveBeenCalledTimes(100);
    release();
    expect(new Set((await Promise.all(answers)).map(({ status }) => status))).toEqual(new Set([404]));
    other.socket.destroy();
  });

  test('no more requests of a connection are read while its client has not taken the answers', async () => {
    const text = 'x'.repeat(1_900_000);
    await client.call({ operation: 'upsert', ...ANN, body: { id: 'large', customer: 'ann', text } });
    const readItem = vi.spyOn(store, 'readItem');
    onTestFinished(() => readItem.mockRestore());
    const [[there], other] = await Promise.all([
      once(app.server, 'secureConnection') as Promise<[TLSSocket]>,
      DirectClient.open(port, tls.certificate),
    ]);
    other.socket.pause();
    const read = { operation: 'read', ...ANN, item: 'large' } as const;
    const answers = Array.from({ length: 8 }, () => other.call(read));
    await expect.poll(() => readItem.mock.calls.length, { interval: 5 }).toBe(8);
    for (let turn = 0; turn < 20; turn++) await client.call({ operation: 'read', database: 'shop', ofDatabase: true });
    answers.push(other.call(read), other.call(read));
    await expect.poll(() => there.readableLength, { interval: 5 }).toBeGreaterThan(0);
    // The server was waiting for one request already.
    expect(readItem).toHaveBeenCalledTimes(9);
    other.socket.resume();
    expect(new Set((await Promise.all(answers)).map(({ status }) => status))).toEqual(new Set([200]));
    other.socket.destroy();
    await client.call({ operation: 'delete', ...ANN, item: 'large' });
  });

  test('each answer has TLS records of its own, because the Java client would mix answers up otherwise', async () => {
    const other = await DirectClient.open(port, tls.certificate);
    const ids = Array.from({ length: 40 }, (_, index) => `record-${index}`);
    const create = (id: string, index: number) =>
      other.call({ operation: 'create', ...ANN, body: { id, customer: 'ann', text: 'x'.repeat(index * 1_000) } });
    expect(new Set((await Promise.all(ids.map(create))).map(({ status }) => status))).toEqual(new Set([201]));
    const read = await Promise.all(ids.map((item) => other.call({ operation: 'read', ...ANN, item })));
    expect(read.map(({ json }) => json['id'])).toEqual(ids);
    expect(other.joined).toBe(0);
    other.socket.destroy();
  });

  test('requests that exactly fill the buffer of unread ones wait until others are answered', async () => {
    const of = (text: string) =>
      ({ operation: 'upsert', ...ANN, body: { id: 'full', customer: 'ann', text } }) as const;
    const head = client.bytesOf(of('')).bytes.length;
    client.socket.cork();
    // Four of them fill a TLS record, and sixteen fill the buffer of Node.js.
    const answers = Array.from({ length: 160 }, () => client.call(of('x'.repeat(4_096 - head))));
    client.socket.uncork();
    expect(new Set((await Promise.all(answers)).map(({ status }) => Math.floor(status / 100)))).toEqual(new Set([2]));
  });

  test('bytes that come a few at a time are not kept as separate pieces', async () => {
    await withServer({}, async (at, server) => {
      const [[there], other] = await Promise.all([
        once(server.server, 'secureConnection') as Promise<[TLSSocket]>,
        DirectClient.connected(at, tls.certificate),
      ]);
      const bytes = firstMessage();
      for (const [from, to, left] of [
        // Too few bytes to recognise the protocol.
        [0, 2, 2],
        [2, 9, 0],
        [9, 40, 0],
        [40, bytes.length, 0],
      ] as const) {
        const before = there.bytesRead;
        other.socket.write(bytes.subarray(from, to));
        await expect.poll(() => there.bytesRead, { interval: 5 }).toBeGreaterThan(before);
        await new Promise((resolve) => setImmediate(resolve));
        expect(there.readableLength).toBe(left);
      }
      expect((await other.call({ operation: 'read', database: 'shop', ofDatabase: true })).status).toBe(200);
      other.socket.destroy();
    });
  });

  test('a large answer is written in pieces, so that a slow client can be told from one that takes nothing', async () => {
    const text = 'x'.repeat(400_000);
    await client.call({ operation: 'upsert', ...ANN, body: { id: 'large', customer: 'ann', text } });
    await withServer({}, async (at, server) => {
      const [[there], other] = await Promise.all([
        once(server.server, 'secureConnection') as Promise<[TLSSocket]>,
        DirectClient.open(at, tls.certificate),
      ]);
      const unsent: number[] = [];
      const write = there.write.bind(there) as (...given: unknown[]) => boolean;
      vi.spyOn(there, 'write').mockImplementation((...given: unknown[]) => {
        const isTaken = write(...given);
        unsent.push(there.writableLength);
        return isTaken;
      });
      expect((await other.call({ operation: 'read', ...ANN, item: 'large' })).json).toMatchObject({ text });
      expect(Math.max(...unsent)).toBeLessThan(200_000);
      other.socket.destroy();
    });
    await client.call({ operation: 'delete', ...ANN, item: 'large' });
  });

  test('the server closes an idle connection a little later than it tells the client, so that the client closes it first', async () => {
    const within = vi.spyOn(Deadline.prototype, 'within');
    onTestFinished(() => within.mockRestore());
    const other = await DirectClient.open(port, tls.certificate);
    const { status, tokens } = other.greeting;
    expect([status, ...[0x00, 0x04, 0x05].map((one) => tokens.get(one))]).toEqual([200, 1, 1_800, 30]);
    expect([0x01, 0x02].map((one) => String(tokens.get(one)))).toEqual(['2020-07-15', 'epitaph']);
    expect(within.mock.lastCall![0]).toBeGreaterThan(1_800_000);
    other.socket.destroy();
  });

  test('a closed connection leaves nothing in memory', async () => {
    let there: WeakRef<TLSSocket> | undefined;
    app.server.once('secureConnection', (socket: TLSSocket) => (there = new WeakRef(socket)));
    const other = await DirectClient.open(port, tls.certificate);
    there!.deref()!.destroy();
    await other.closed();
    await vi.waitFor(() => {
      collectGarbage();
      expect(there!.deref() === undefined).toBe(true);
    }, 5_000);
  });

  test('the received bytes of a large body count against the limit until it is answered, or its client has gone', async () => {
    await withServer({ largeBodyBytes: 1_000, largeBodyBytesInFlight: 10_000 }, async (at) => {
      const upsert = (bytes: number) =>
        ({ operation: 'upsert', ...ANN, body: { id: 'body', customer: 'ann', text: 'x'.repeat(bytes) } }) as const;
      const [one, other] = await Promise.all([1, 2].map(() => DirectClient.open(at, tls.certificate)));
      one!.socket.write(one!.bytesOf(upsert(12_000)).bytes.subarray(0, -1));
      const isLetIn = async (bytes: number) => (await other!.call(upsert(bytes))).status < 300;
      await expect.poll(() => isLetIn(2_000), { interval: 5 }).toBe(false);
      expect(await isLetIn(500)).toBe(true);
      one!.socket.destroy();
      await expect.poll(() => isLetIn(2_000), { interval: 5 }).toBe(true);
      // There is room for it when it begins, but it grows to more than twice the limit.
      await expect(other!.call(upsert(25_000))).rejects.toThrow('hung up');
    });
  });

  test('a refused request is answered, and the connection continues after its body', async () => {
    const create = { operation: 'create', ...ANN, body: { id: 'refused', customer: 'ann' } } as const;
    const wrong = await client.call({ ...create, key: Buffer.alloc(64, 1).toString('base64') });
    expect(wrong).toMatchObject({ status: 401, json: { code: 'Unauthorized' } });
    expect(await client.call({ ...create, key: READ_ONLY_KEY })).toMatchObject({ status: 403 });
    const large = { ...create, body: Buffer.alloc(5 * 1024 * 1024, 'x') };
    expect(await client.call(large)).toMatchObject({ status: 413 });
    expect(await client.call({ ...create, body: Buffer.from('{"id":') })).toMatchObject({ status: 400 });
    expect(await client.call({ ...create, operation: 'unknown' })).toMatchObject({ status: 400 });
    expect(await client.call({ operation: 'read', ...ANN, item: 'refused' })).toMatchObject({ status: 404 });
  });

  test('a resource token is checked for each request, and gives access to its scope only', async () => {
    const item = { operation: 'read', ...ANN, item: 'none' } as const;
    const authorization = encodeURIComponent(readsOrders);
    const body = { id: 'by-token', customer: 'ann' };
    const statuses = [
      await client.call({ ...item, authorization }),
      await client.call({ ...item, container: 'wide', authorization }),
      await client.call({ operation: 'create', ...ANN, authorization, body }),
      await client.call({ operation: 'create', ...ANN, authorization: authorization.slice(0, -9), body }),
      await client.call({ ...item, authorization: '' }),
      await client.call(item),
    ].map(({ status }) => status);
    expect(statuses).toEqual([404, 403, 403, 401, 401, 404]);
  });

  test('a body that is too large is refused before any of it has been received', async () => {
    await withServer({ bodyBytes: 1_000 }, async (at) => {
      const other = await DirectClient.open(at, tls.certificate);
      const { bytes, transportId } = other.bytesOf({ operation: 'create', ...ANN, body: Buffer.alloc(1_001, ' ') });
      other.socket.write(bytes.subarray(0, -1_001));
      expect(await other.answerTo(transportId)).toMatchObject({ status: 413 });
      other.socket.destroy();
    });
  });

  test('requests beyond the limit are refused with 429 and a time to retry', async () => {
    await withServer({ requestsInFlight: 5 }, async (at) => {
      const other = await DirectClient.open(at, tls.certificate);
      const body = { id: 'room', customer: 'ann' };
      const answers = await Promise.all(
        Array.from({ length: 60 }, () => other.call({ operation: 'upsert', ...ANN, body })),
      );
      const statuses = new Set(answers.map(({ status }) => status));
      expect([...statuses].toSorted()).toEqual(expect.arrayContaining([429]));
      const turnedAway = answers.find(({ status }) => status === 429)!;
      expect(Number(turnedAway.tokens.get(ANSWER.retryAfterMs))).toBeGreaterThan(0);
      other.socket.destroy();
    });
  });

  describe('the server closes a connection', () => {
    const limits = { requestTimeoutMs: 300 };
    const hugeTokens = Buffer.from('ffffff7f0000000000000000000000000000000000000000', 'hex');
    test.each([
      ['whose first message does not say who the client is', () => message(3, 3, crypto.randomUUID(), [])],
      ['whose first message has another operation', () => message(0, 3, crypto.randomUUID(), FACTS)],
      ['whose first message is too long', () => hugeTokens],
      ['whose first message is cut short', () => firstMessage().subarray(0, -3)],
      ['whose head is cut short', () => firstMessage().subarray(0, 9)],
      [
        'with a token that is longer than its message',
        () => message(0, 0, crypto.randomUUID(), [Buffer.from('010007ff61', 'hex')]),
      ],
      ['with a token of an unknown type', () => message(0, 0, crypto.randomUUID(), [Buffer.from('01007f61', 'hex')])],
    ])('%s', async (_, bytes) => {
      await withServer(limits, async (at) => {
        const other = await DirectClient.connected(at, tls.certificate);
        other.socket.write(bytes());
        await other.closed();
      });
    });

    test('whose request stays incomplete, or has longer headers than allowed', async () => {
      await withServer(limits, async (at) => {
        const inMiddle = await DirectClient.open(at, tls.certificate);
        const { bytes } = inMiddle.bytesOf({ operation: 'create', ...ANN, body: { id: 'half', customer: 'ann' } });
        inMiddle.socket.write(bytes.subarray(0, -1));
        await inMiddle.closed();
        const long = await DirectClient.open(at, tls.certificate);
        await expect(long.call({ operation: 'read', ...ANN, item: 'x'.repeat(60_000) })).rejects.toThrow('hung up');
        expect(store.container('shop', 'orders').name).toBe('orders');
      });
    });

    test('whose request has no number to answer to, because the client would wait for ever', async () => {
      const other = await DirectClient.open(port, tls.certificate);
      // The number is negative.
      other.socket.write(message(3, 3, crypto.randomUUID(), [Buffer.from('4d0003ffffffff', 'hex')]));
      await other.closed();
    });

    test('on which nothing is sent, over HTTP or not; and not one that is idle after a request', async () => {
      await withServer({ ...limits, unsentTimeoutMs: 100 }, async (at) => {
        const idle = await DirectClient.open(at, tls.certificate);
        const read = { operation: 'read', database: 'shop', ofDatabase: true } as const;
        expect((await idle.call(read)).status).toBe(200);
        const silent = await DirectClient.connected(at, tls.certificate);
        await silent.closed();
        expect((await idle.call(read)).status).toBe(200);
        idle.socket.destroy();
      });
    });

    test('that its client has ended', async () => {
      const others = await Promise.all([1, 2].map(() => DirectClient.open(port, tls.certificate)));
      others[0]!.socket.end();
      others[1]!.socket.end(others[1]!.bytesOf({ operation: 'read', ...ANN, item: 'none' }).bytes);
      await Promise.all(others.map((other) => other.closed()));
    });

    test('whose client takes nothing of its answers', async () => {
      const items = [
        { id: 'large', bytes: 1_900_000, times: 20 },
        { id: 'small', bytes: 60_000, times: 300 },
      ];
      for (const { id, bytes } of items) {
        await client.call({ operation: 'upsert', ...ANN, body: { id, customer: 'ann', text: 'x'.repeat(bytes) } });
      }
      await withServer({ unsentTimeoutMs: 300 }, async (at, server) => {
        const others = await Promise.all(
          items.map(async ({ id, times }) => {
            const other = await DirectClient.open(at, tls.certificate);
            other.socket.pause();
            for (let count = 0; count < times; count++) void other.call({ operation: 'read', ...ANN, item: id });
            return other;
          }),
        );
        const connections = () =>
          new Promise<number>(
            (resolve) => void server.server.getConnections((_error: unknown, count: number) => resolve(count)),
          );
        await expect.poll(connections, { timeout: 10_000 }).toBe(0);
        for (const other of others) other.socket.destroy();
      });
      for (const { id } of items) await client.call({ operation: 'delete', ...ANN, item: id });
    });
  });

  test('a stop answers the requests in progress, and ends the connection', async () => {
    await withServer({}, async (at, server) => {
      const other = await DirectClient.open(at, tls.certificate);
      const under = Promise.all(
        Array.from({ length: 40 }, (_, index) =>
          other.call({ operation: 'upsert', ...ANN, body: { id: `stop-${index}`, customer: 'ann' } }),
        ),
      );
      const startedMs = performance.now();
      await closeWithin(server, 3_000);
      expect((await under).every(({ status }) => status === 201 || status === 200)).toBe(true);
      await other.closed();
      expect(performance.now() - startedMs).toBeLessThan(5_000);
    });
  });

  test('a connection without requests in progress is idle, and can be closed', async () => {
    await withServer({}, async (at, server) => {
      const [other, idle] = await Promise.all([1, 2].map(() => DirectClient.open(at, tls.certificate)));
      const { readItem, release } = holdReads();
      const answered = other!.call({ operation: 'read', ...ANN, item: 'none' });
      await expect.poll(() => readItem.mock.calls.length, { interval: 5 }).toBe(1);
      closeIdleConnections(server.server, true);
      await idle!.closed();
      release();
      expect(await answered).toMatchObject({ status: 404 });
      await expect
        .poll(() => (closeIdleConnections(server.server, true), other!.socket.closed), { interval: 5 })
        .toBe(true);
    });
  });

  test('requests during a stop are answered with 410, so that clients try again, also their writes', async () => {
    await withServer({}, async (at, server) => {
      const other = await DirectClient.open(at, tls.certificate);
      const answered: number[] = [];
      const upserting = (async () => {
        try {
          for (;;) {
            const { status } = await other.call({ operation: 'upsert', ...ANN, body: { id: 'late', customer: 'ann' } });
            answered.push(status);
          }
        } catch {
          // The server has closed the connection.
        }
      })();
      await closeWithin(server, 500);
      await upserting;
      const first = answered.indexOf(410);
      expect(answered.slice(0, first).every((status) => status === 200 || status === 201)).toBe(true);
      expect(new Set(answered.slice(first))).toEqual(new Set([410]));
    });
  });

  test('connections stay open for a while during a stop, so that clients learn of it by answers', async () => {
    await withServer({}, async (at, server) => {
      const other = await DirectClient.open(at, tls.certificate);
      const closing = closeWithin(server, 6_000);
      // Longer than it takes to close the idle connections of HTTP.
      await delay(300);
      expect(await other.call({ operation: 'read', ...ANN, item: 'a' })).toMatchObject({ status: 410 });
      await other.closed();
      await closing;
    });
  });

  test('a client learns at once that a container was deleted', async () => {
    const { status, tokens } = await client.call({ operation: 'read', ...ANN, container: 'gone', item: 'one' });
    expect({ status, substatus: tokens.get(ANSWER.substatus) }).toEqual({ status: 404, substatus: 1003 });
    expect((tokens.get(ANSWER.sessionToken) as Buffer).toString()).toBe(`-1#${store.headPosition()}`);
  });

  test('HTTP is answered on the same port, even if it comes byte by byte', async () => {
    const socket = connect({ port, host: 'localhost', ca: tls.certificate });
    await once(socket, 'secureConnect');
    for (const character of 'GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n') {
      socket.write(character);
      await new Promise((resolve) => setImmediate(resolve));
    }
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
    await once(socket, 'close');
    expect(text).toMatch(/^HTTP\/1\.1 401 /);
  });

  test('invalid bytes on one connection do not affect others', { timeout: 60_000 }, async () => {
    await withServer({ requestTimeoutMs: 500 }, async (at) => {
      const good = await DirectClient.open(at, tls.certificate);
      const { bytes } = good.bytesOf({ operation: 'upsert', ...ANN, body: { id: 'fuzz', customer: 'ann' } });
      const edits = fc.array(fc.record({ at: fc.nat(bytes.length - 1), to: fc.nat(255) }), {
        minLength: 1,
        maxLength: 8,
      });
      await fc.assert(
        fc.asyncProperty(edits, fc.nat(bytes.length), async (edited, cut) => {
          const broken = Buffer.from(bytes);
          for (const { at: place, to } of edited) broken[place] = to;
          const other = await DirectClient.open(at, tls.certificate);
          other.socket.end(Buffer.concat([broken, bytes.subarray(0, cut)]));
          await other.closed();
        }),
        { numRuns: 60 },
      );
      expect((await good.call({ operation: 'read', database: 'shop', ofDatabase: true })).status).toBe(200);
      good.socket.destroy();
    });
  });
});

describe('a message', () => {
  const ORDERS = [token(0x15, 'string', 'shop'), token(0x16, 'string', 'orders')];
  const requestOf = (resource: number, operation: number, ...tokens: readonly Buffer[]) =>
    directRequest(
      { resource, operation, activityId: 'a', tokens: readTokens(Buffer.concat(tokens)) },
      { version: '2020-07-15', userAgent: 'tests' },
    );

  test.each([
    ['a batch', 3, 0x25, 'POST', '/dbs/shop/colls/orders/docs', { 'x-ms-cosmos-is-batch-request': 'true' }],
    ['a query', 3, 0x09, 'POST', '/dbs/shop/colls/orders/docs', { 'x-ms-documentdb-isquery': 'true' }],
    ['a HEAD of items', 3, 0x12, 'HEAD', '/dbs/shop/colls/orders/docs', {}],
    ['a HEAD of a container', 2, 0x11, 'HEAD', '/dbs/shop/colls/orders', {}],
    ['a stored procedure', 7, 0x08, 'POST', '/dbs/shop/colls/orders/sprocs/do%2Fit', {}],
  ])('that is %s becomes the same request as over HTTP', (_, resource, operation, method, url, headers) => {
    const named = resource === 7 ? [...ORDERS, token(0x1b, 'string', 'do/it')] : ORDERS;
    const common = { 'x-ms-activity-id': 'a', 'x-ms-version': '2020-07-15', 'user-agent': 'tests' };
    const request = requestOf(resource, operation, ...named);
    expect(request).toMatchObject({ isKnown: true, method, url, transportId: 0, headers: { ...common, ...headers } });
  });

  test('has headers as tokens, some of which are numbers', () => {
    const { headers } = requestOf(
      3,
      4,
      ...ORDERS,
      token(0x42, 'byte', 0),
      token(0x40, 'byte', 1),
      token(0x3e, 'byte', 1),
      token(0x43, 'uint32', 7),
      token(0x14, 'uint32', 10),
      token(0xfe, 'byte', 3),
      token(0x10, 'byte', 3),
      token(0x62, 'bytes', Buffer.from('05c1', 'hex')),
      token(0x63, 'bytes', Buffer.from('ff', 'hex')),
      // A type that this token never has.
      token(0x0003, 'uint32', 12),
      token(0x2b, 'string', '["é"]'),
    );
    expect(headers).toMatchObject({
      'x-ms-documentdb-populatequerymetrics': 'false',
      'x-ms-documentdb-populatequotainfo': 'true',
      'x-ms-documentdb-script-enable-logging': 'true',
      'x-ms-documentdb-responsecontinuationtokenlimitinkb': '7',
      'x-ms-documentdb-expiry-seconds': '10',
      'x-ms-cosmos-read-consistency-strategy': 'LatestCommitted',
      'x-ms-consistency-level': 'Eventual',
      'x-ms-start-epk': '05C1',
      'x-ms-end-epk': 'FF',
      'x-ms-date': '12',
      'x-ms-documentdb-partitionkey': Buffer.from('["é"]').toString('latin1'),
    });
    const asText = requestOf(3, 4, ...ORDERS, token(0x64, 'byte', 3), token(0x62, 'bytes', '05c1'));
    expect(asText.headers).toMatchObject({ 'x-ms-start-epk': '05C1' });
  });

  test('can name resources by their rids, each of which begins with that of its parent', () => {
    const rid = Buffer.from('0102030405060708090a0b0c0d0e0fff', 'hex');
    const urls = [
      [1, 4],
      [2, 8],
      [5, 8],
      [3, 16],
    ].map(([resource, bytes]) => requestOf(resource!, 3, token(0x00, 'bytes', rid.subarray(0, bytes))).url);
    expect(urls.map(decodeURIComponent)).toEqual([
      '/dbs/AQIDBA==',
      '/dbs/AQIDBA==/colls/AQIDBAUGBwg=',
      '/dbs/AQIDBA==/users/AQIDBAUGBwg=',
      '/dbs/AQIDBA==/colls/AQIDBAUGBwg=/docs/AQIDBAUGBwgJCgsMDQ4P-w==',
    ]);
  });

  test('is not affected by tokens of a wrong type', () => {
    const wrong = [0x4d, 0x04, 0x10, 0xfe, 0x82].map((one) => token(one, 'string', 'length'));
    const { url, transportId, headers } = requestOf(3, 3, ...wrong, token(0x15, 'uint32', 7), token(0x00, 'uint32', 7));
    expect([url, transportId]).toEqual(['/', 0]);
    expect(Object.keys(headers)).toEqual(['x-ms-activity-id', 'x-ms-version', 'user-agent']);
  });

  test('has its id in the byte order of a .NET GUID', () => {
    const bytes = Buffer.from('ff33221100554477668899aabbccddeeff', 'hex');
    const guid = '00112233-4455-6677-8899-aabbccddeeff';
    expect(readGuid(bytes, 1)).toBe(guid);
    const written = Buffer.alloc(17, 0xff);
    writeGuid(guid, written, 1);
    expect(written).toEqual(bytes);
  });

  test('for an unknown operation or resource is recognised as unknown', () => {
    expect([requestOf(3, 0x7777), requestOf(0x7777, 3), requestOf(0, 0)].map(({ isKnown }) => isKnown)).toEqual([
      false,
      false,
      false,
    ]);
  });
});

describe('tokens', () => {
  test('are read as they were written', () => {
    const writer = new TokenWriter();
    writer.number(1, 'byte', 255);
    writer.number(2, 'uint32', 4_294_967_295);
    writer.number(3, 'int64', -1);
    writer.number(4, 'double', 12.25);
    writer.text(5, 'smallString', 'é'.repeat(200));
    writer.text(6, 'string', 'x'.repeat(70_000));
    writer.text(0xffff, 'string', 'a text');
    const bytes = Buffer.concat(writer.parts);
    expect(bytes).toHaveLength(writer.length);
    const tokens = readTokens(bytes);
    expect([...tokens.keys()]).toEqual([1, 2, 3, 4, 5, 6, 0xffff]);
    expect([1, 2, 3, 4].map((number) => tokens.get(number))).toEqual([255, 4_294_967_295, -1n, 12.25]);
    // Text that is too long for its type is cut.
    expect(tokens.get(5)).toEqual(Buffer.from('é'.repeat(200)).subarray(0, 255));
    expect(String(tokens.get(6))).toBe('x'.repeat(65_535));
    expect(String(tokens.get(0xffff))).toBe('a text');
  });

  test('of unknown numbers are skipped, whatever their type', () => {
    const sizes = { byte: 1, uint16: 2, uint32: 4, int32: 4, uint64: 8, int64: 8, guid: 16, float: 4, double: 8 };
    const parts = Object.entries(tokenTypes).map(([type, id]) => {
      const size = (sizes as Record<string, number>)[type];
      const lengthBytes = type.startsWith('small') ? 1 : type.startsWith('long') ? 4 : 2;
      const value =
        size === undefined ? Buffer.from([3, 0, 0, 0].slice(0, lengthBytes).concat(1, 2, 3)) : Buffer.alloc(size);
      return Buffer.concat([Buffer.from([id, 0x7f, id]), value]);
    });
    const tokens = readTokens(Buffer.concat([...parts, token(1, 'string', 'last')]));
    expect([...tokens.keys()]).toEqual([...Object.values(tokenTypes).map((id) => 0x7f00 + id), 1]);
    const bytes = [...tokens.values()].filter((value): value is Buffer => value instanceof Buffer);
    expect(bytes.map(({ length }) => length)).toEqual([16, 3, 3, 3, 3, 3, 3, 4]);
    expect(String(tokens.get(1))).toBe('last');
  });

  test('of any bytes are read or refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        try {
          readTokens(Buffer.from(bytes));
        } catch (error) {
          expect(error).toBeInstanceOf(UnreadableTokens);
        }
      }),
    );
  });
});
