import { chmodSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import path from 'node:path';
import { CosmosClient, type ErrorResponse } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { cleanUp, command } from '../../packages/api/test/cli/process.ts';
import { AUDIENCE, TestIssuer } from '../../packages/api/test/cosmos/support/issuer.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { whyWithout } from '../support/programs.ts';
import { selfSigned, type SelfSigned } from '../support/self-signed.ts';
import { startServer, type ServerProcess } from './support/server-process.ts';

// The client sends such tokens only over TLS.
const skipped = whyWithout('openssl');

describe.skipIf(skipped)(`clients with identity tokens${skipped}`, () => {
  let folder: string;
  let tls: SelfSigned;
  let issuer: TestIssuer;
  let server: ServerProcess;
  let agent: Agent;
  let owner: CosmosClient;
  const clients: CosmosClient[] = [];

  const file = (name: string): string => path.join(folder, name);
  const assign = (principal: string, role: string, scope?: string) => ({ principal, role, scope });
  const everybody = [
    assign('service', 'contributor', '/dbs/shop/colls/orders'),
    assign('report', 'reader'),
    assign('ops', 'administrator'),
    assign('audit', 'auditor'),
  ];
  const writeIdentities = (assignments: readonly object[], more: object = {}): void => {
    const one = { name: 'entra', issuer: issuer.url, audiences: [AUDIENCE], keys: issuer.url, assignments, ...more };
    writeFileSync(file('identities.json'), JSON.stringify({ issuers: [one] }), { mode: 0o644 });
  };
  const token = (principal: string) => issuer.token(principal, {}, { atMs: Date.now() });

  beforeAll(async () => {
    folder = newFolder('identities');
    tls = selfSigned();
    issuer = await TestIssuer.start();
    writeIdentities(everybody);
    const files = ['--tls-cert', tls.file, '--tls-key', tls.keyFile, '--identities', file('identities.json')];
    server = await startServer(['--data', file('data'), '--log-level', 'info', ...files]);
    agent = new Agent({ ca: tls.certificate, keepAlive: true });
    owner = new CosmosClient({ endpoint: server.endpoint.replace('127.0.0.1', 'localhost'), key: EMULATOR_KEY, agent });
    clients.push(owner);
    const { database } = await owner.databases.create({ id: 'shop' });
    await database.containers.create({ id: 'orders', partitionKey: '/customer', defaultTtl: -1 });
    await database.containers.create({ id: 'others', partitionKey: '/customer' });
  });
  afterAll(async () => {
    clients.forEach((client) => client.dispose());
    agent?.destroy();
    await server?.stop();
    await issuer?.stop();
    tls?.remove();
    cleanUp();
    removeFolder(folder);
  });

  /** An application's client. It has no key, and asks a credential for tokens. */
  function clientOf(principal: string): CosmosClient {
    const client = new CosmosClient({
      endpoint: server.endpoint.replace('127.0.0.1', 'localhost'),
      agent,
      aadCredentials: {
        getToken: async () => ({ token: await token(principal), expiresOnTimestamp: Date.now() + 3_600_000 }),
      },
    });
    clients.push(client);
    return client;
  }

  const refusal = (asked: Promise<unknown>): Promise<readonly [unknown, unknown]> =>
    asked.then(
      () => [0, 0] as const,
      ({ code, substatus }: ErrorResponse) => [code, substatus ?? 0] as const,
    );

  function manage(
    method: string,
    target: string,
    bearer: string,
    body?: object,
  ): Promise<{ status: number; json: { readonly events?: readonly { readonly actor: string }[] } }> {
    return new Promise((resolve, reject) => {
      const url = `${server.endpoint.replace('127.0.0.1', 'localhost')}/_epitaph/${target}`;
      const asked = request(url, { method, agent, headers: { authorization: `Bearer ${bearer}` } }, (response) => {
        let text = '';
        response.on('data', (chunk) => (text += String(chunk)));
        response.on('end', () => resolve({ status: response.statusCode!, json: JSON.parse(text) as object }));
      });
      asked.once('error', reject).end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  test('read and write what their roles allow, and are recorded under their own names', async () => {
    const { database } = await clientOf('service').databases.createIfNotExists({ id: 'shop' });
    const { container } = await database.containers.createIfNotExists({ id: 'orders' });
    await container.items.create({ id: 'o1', customer: 'ann', total: 1 });
    await container.items.upsert({ id: 'o2', customer: 'ann', total: 2, ttl: 600 });
    await container.item('o1', 'ann').patch([{ op: 'incr', path: '/total', value: 1 }]);
    const batch = [{ operationType: 'Upsert' as const, resourceBody: { id: 'o3', customer: 'ann', total: 3 } }];
    expect((await container.items.batch(batch, 'ann')).code).toBe(200);
    const bulk = [
      { operationType: 'Create' as const, partitionKey: 'bob', resourceBody: { id: 'o4', customer: 'bob' } },
    ];
    expect((await container.items.executeBulkOperations(bulk))[0]!.response?.statusCode).toBe(201);
    const { resources } = await container.items.query('SELECT VALUE SUM(c.total) FROM c').fetchAll();
    expect(resources).toEqual([7]);
    const changes = await container.items.getChangeFeedIterator({ maxItemCount: 10 }).readNext();
    expect(changes.statusCode).toBeLessThan(400);
    await container.item('o3', 'ann').delete();

    const report = clientOf('report').database('shop');
    expect((await report.containers.readAll().fetchAll()).resources.map(({ id }) => id)).toEqual(['orders', 'others']);
    expect(
      (await report.container('orders').items.query('SELECT VALUE c.id FROM c').fetchAll()).resources,
    ).toHaveLength(3);
    expect(await refusal(report.container('orders').items.create({ id: 'x', customer: 'ann' }))).toEqual([403, 5301]);
    expect(await refusal(database.container('others').items.readAll().fetchAll())).toEqual([403, 5301]);
    expect(await refusal(clientOf('service').databases.create({ id: 'mine' }))).toEqual([403, 5300]);
    expect(await refusal(container.delete())).toEqual([403, 5300]);
    expect(await refusal(clientOf('stranger').database('shop').read())).toEqual([403, 5301]);

    const { json } = await manage(
      'GET',
      'dbs/shop/colls/orders/history?id=o1&partitionKey=["ann"]',
      await token('audit'),
    );
    expect(json.events?.map(({ actor }) => actor)).toEqual(['entra:service', 'entra:service']);
  });

  test('make management calls as administrators, who are recorded under their own names, or as auditors', async () => {
    const policy = 'dbs/shop/colls/others/ttl';
    const [ops, audit, service] = [await token('ops'), await token('audit'), await token('service')];
    const changed = await manage('PUT', policy, ops, { defaultTtl: 3600, reason: 'retention plan 7' });
    expect(changed.status).toBeLessThan(300);
    const { status, json } = await manage('GET', policy, audit);
    expect([status, JSON.stringify(json)]).toEqual([200, expect.stringContaining('entra:ops')]);
    expect((await manage('POST', 'purge/run', audit)).status).toBe(403);
    expect((await manage('GET', policy, service)).status).toBe(403);
    expect((await manage('GET', policy, `${ops}x`)).status).toBe(401);
    const asked = ['purge', '--endpoint', server.endpoint.replace('127.0.0.1', 'localhost'), '--tls-ca', tls.file];
    expect(await command(asked, { EPITAPH_KEY: audit })).toMatchObject({ code: 0, stderr: '' });
    // A role without a scope is valid for the data plane, too.
    await clientOf('ops').databases.create({ id: 'made by ops' });
  });

  test('lose a role as soon as the identities file is read again, and nothing by an invalid file', async () => {
    const orders = clientOf('service').database('shop').container('orders');
    const read = () => refusal(orders.item('o1', 'ann').read());
    expect(await read()).toEqual([0, 0]);
    writeFileSync(file('identities.json'), '{"issuers": [');
    server.signal('SIGHUP');
    await expect.poll(() => server.stderr()).toContain('the former one stays in use');
    expect(await read()).toEqual([0, 0]);
    writeIdentities(everybody.slice(1));
    server.signal('SIGHUP');
    await expect.poll(read).toEqual([403, 5301]);
    writeIdentities(everybody);
    chmodSync(file('identities.json'), 0o666);
    server.signal('SIGHUP');
    await expect.poll(() => server.stderr()).toContain('can be changed by others');
    expect(await read()).toEqual([403, 5301]);
  });

  test('may come from a server without TLS, which also reads the file again at SIGHUP and does not end', async () => {
    writeIdentities(everybody, { keys: 'keys.jwks' });
    writeFileSync(file('keys.jwks'), issuer.jwks);
    chmodSync(file('identities.json'), 0o600);
    const plain = await startServer([
      '--data',
      file('plain'),
      '--log-level',
      'info',
      '--identities',
      file('identities.json'),
    ]);
    plain.signal('SIGHUP');
    await expect.poll(() => plain.stderr()).toContain('the identities file was read again');
    const purge = () => fetch(`${plain.endpoint}/_epitaph/purge`, { headers: { authorization: `Bearer ${bearer}` } });
    const bearer = await token('audit');
    expect((await purge()).status).toBe(200);
    expect(await plain.stop()).toMatchObject({ code: 0 });
  });
});
