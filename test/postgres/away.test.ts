import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { CosmosClient } from '@azure/cosmos';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import {
  cleanUp,
  command,
  epitaph,
  type Finished,
  serve,
  temporaryFolder,
} from '../../packages/api/test/cli/process.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { Proxy } from '../eventstoredb/proxy.ts';
import { environmentOf, manage } from './processes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

let server: TestServer;
let double: EventStoreDouble;
/** The proxy between the store and PostgreSQL. */
let proxy: Proxy;
let url: string;
let environment: Readonly<Record<string, string>>;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
beforeEach(async () => {
  if (whyNoPostgres !== undefined) return;
  const direct = new URL(await server.newDatabase());
  double = await EventStoreDouble.start();
  proxy = await Proxy.to(Number(direct.port), direct.hostname);
  direct.port = String(proxy.port);
  url = direct.href;
  environment = environmentOf(url, double);
});
afterEach(async () => {
  cleanUp();
  double?.stop();
  await proxy?.close();
});
afterAll(() => server?.dispose());

/** Creates a vault, and returns the head of its ledger. */
const makeVault = async (): Promise<string> => {
  const node = await serve(['--data', temporaryFolder()], environment);
  const { head } = (await manage(node.endpoint, 'GET', '/purge-ledger')) as { readonly head: string };
  node.child.kill('SIGTERM');
  await node.finished();
  return head;
};

const unreachable = (message: RegExp): object => ({
  code: 3,
  stdout: '',
  stderr: expect.stringMatching(message) as string,
});
const lines = ({ stderr }: Finished): number => stderr.trimEnd().split('\n').length;

describe.skipIf(whyNoPostgres !== undefined)(`a start${skipReason}`, () => {
  const starts = (changed: object) =>
    epitaph(['serve', '--port', '0', '--data', temporaryFolder()], { ...environment, ...changed });

  it('before PostgreSQL is there ends with one line and exit code 3: the same start may work later', async () => {
    const nothing = await starts({ EPITAPH_POSTGRES: 'postgresql://x@127.0.0.1:1/db' });
    expect(nothing).toEqual(unreachable(/^epitaph: PostgreSQL at .* can't be used: nothing listens there\./));
    proxy.refuse();
    const gone = await starts({});
    expect(gone).toEqual(
      unreachable(/^epitaph: PostgreSQL at .* can't be used: .*Try again when it can be reached\.$/m),
    );
    proxy.mend();
    proxy.refuseFrom('epitaph_vault');
    const lost = await starts({});
    expect(lost).toEqual(unreachable(/^epitaph: PostgreSQL: .*Try again when it can be reached\.$/m));
    for (const ended of [nothing, gone, lost]) expect(lines(ended)).toBe(1);
  });
});

describe.skipIf(whyNoPostgres !== undefined)(`a database user without the needed rights${skipReason}`, () => {
  const named = async (user: string): Promise<string> => {
    await server.run(`CREATE ROLE ${user} LOGIN PASSWORD 'secret'`);
    const as = new URL(url);
    [as.username, as.password] = [user, 'secret'];
    return as.href;
  };

  it('makes a start and a command end with one line and exit code 2, because somebody has to grant the rights', async () => {
    const EPITAPH_POSTGRES = await named('newcomer');
    const serveArgs = ['serve', '--port', '0', '--data', temporaryFolder()];
    const variables = { ...environment, EPITAPH_POSTGRES, EPITAPH_VAULT_COPIES_KEPT: '60' };
    const file = path.join(temporaryFolder(), 'master.key');
    writeFileSync(file, environment['EPITAPH_MASTER_KEY']!);
    const verify = ['keys', 'verify-master', file];
    const words =
      /^epitaph: PostgreSQL refuses a right that the store needs: permission denied for .*\. Grant it to the user; docs\/servers\.md lists the rights\.\n$/;
    const refused = { code: 2, stdout: '', stderr: expect.stringMatching(words) as string };
    // First there is no vault, then one of another user.
    expect(await epitaph(serveArgs, variables)).toEqual(refused);
    await makeVault();
    expect(await epitaph(serveArgs, variables)).toEqual(refused);
    expect(await command(verify, variables)).toEqual(refused);
  });
});

describe.skipIf(whyNoPostgres !== undefined)(`PostgreSQL that goes away under a node${skipReason}`, () => {
  it('is named in the log once, and not by each request, as answers and documentation say', async () => {
    const node = await serve(['--data', temporaryFolder()], environment);
    proxy.refuse();
    for (let request = 0; request < 3; request += 1) {
      expect(await manage(node.endpoint, 'GET', '/purge')).toMatchObject({ code: 'storage-unavailable' });
    }
    node.child.kill('SIGTERM');
    const told = (await node.finished()).stderr.split('\n').filter((line) => line.includes('correlationId'));
    expect(told).toEqual([expect.stringMatching(/"level":"error".*"correlationId":.*"msg":"PostgreSQL/)]);
  });

  it('is named in the log and not to clients when a node can’t confirm the catalog', async () => {
    const node = await serve(['--data', temporaryFolder()], environment);
    const { databases } = new CosmosClient({ endpoint: node.endpoint, key: EMULATOR_KEY });
    const { database } = await databases.create({ id: 'shop' });
    await database.containers.create({ id: 'c', partitionKey: '/id' });
    proxy.refuse();
    await expect(database.users.create({ id: 'ann' })).rejects.toMatchObject({ code: 503 });
    const target = '/dbs/shop/colls/c/explain?id=a&partitionKey=%5B%22a%22%5D';
    expect(await manage(node.endpoint, 'GET', target)).toMatchObject({
      code: 'busy',
      detail: "The catalog can't be confirmed: the projection is behind the log.",
    });
    node.child.kill('SIGTERM');
    expect((await node.finished()).stderr).toMatch(/"level":"error".*Id":.*"msg":"PostgreSQL/);
  });

  it('is named in the log by a scrape of the metrics, which is answered all the same', async () => {
    const node = await serve(['--data', temporaryFolder()], environment);
    proxy.refuse();
    const headers = { authorization: `Bearer ${EMULATOR_KEY}` };
    const scrape = await fetch(`${node.endpoint}/_epitaph/metrics`, { headers });
    expect([scrape.status, await scrape.text()]).toEqual([200, expect.stringContaining('epitaph_storage_available 0')]);
    node.child.kill('SIGTERM');
    expect((await node.finished()).stderr).toMatch(/"level":"error".*"msg":"PostgreSQL/);
  });
});

describe.skipIf(whyNoPostgres !== undefined)(`PostgreSQL that refuses a node at work${skipReason}`, () => {
  it.each([
    {
      user: 'shut_out',
      what: 'its user',
      refuse:
        "ALTER ROLE shut_out NOLOGIN; SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'shut_out'",
      admit: 'ALTER ROLE shut_out LOGIN',
      words: /"msg":"PostgreSQL: role .* is not permitted to log in"/,
    },
    {
      user: 'restricted',
      what: 'a right',
      refuse: 'REVOKE pg_checkpoint FROM restricted',
      admit: 'GRANT pg_checkpoint TO restricted',
      words: /"msg":"PostgreSQL refuses a right that the store needs: .*Grant it/,
    },
  ])('$what: reported as unavailable storage, and the node goes on when that is mended', async (fault) => {
    const { user } = fault;
    await server.run(`CREATE ROLE ${user} LOGIN IN ROLE pg_checkpoint, pg_monitor`);
    const as = new URL(url);
    const database = as.pathname.slice(1);
    await server.run(`ALTER DATABASE ${database} OWNER TO ${user}`);
    await server.run(`GRANT EXECUTE ON FUNCTION pg_switch_wal() TO ${user}`, server.url(database));
    as.username = user;
    const node = await serve(['--data', temporaryFolder()], { ...environment, EPITAPH_POSTGRES: as.href });
    const databases = new CosmosClient({ endpoint: node.endpoint, key: EMULATOR_KEY }).databases;
    const { container } = await (
      await databases.create({ id: 'shop' })
    ).database.containers.create({ id: 'c', partitionKey: '/id' });
    for (const id of ['a', 'b']) await container.items.create({ id });
    const erase = (id: string) =>
      fetch(`${node.endpoint}/_epitaph/dbs/shop/colls/c/erase`, {
        method: 'POST',
        headers: { authorization: `Bearer ${EMULATOR_KEY}`, 'content-type': 'application/json' },
        body: JSON.stringify({ id, partitionKey: [id], reason: 'asked for', requestedBy: 'the person' }),
      });
    expect((await erase('a')).status).toBe(200);
    await server.run(fault.refuse);
    const refused = await erase('b');
    expect(await refused.json()).toMatchObject({ code: 'storage-unavailable' });
    expect(refused.headers.get('retry-after')).not.toBeNull();
    await server.run(fault.admit);
    await expect.poll(async () => (await erase('b')).status).toBe(200);
    node.child.kill('SIGTERM');
    const told = (await node.finished()).stderr.split('\n').filter((line) => line.includes('correlationId'));
    expect(told).toEqual([expect.stringMatching(fault.words)]);
  });
});

describe.skipIf(whyNoPostgres !== undefined)(`PostgreSQL that goes away under a command${skipReason}`, () => {
  it.each(['FROM pg_namespace', 'FROM epitaph_vault.root'])(
    'ends keys verify-master with one line and exit code 3, at %s',
    { timeout: 60_000 },
    async (statement) => {
      await makeVault();
      const file = path.join(temporaryFolder(), 'master.key');
      writeFileSync(file, environment['EPITAPH_MASTER_KEY']!);
      const verify = () => command(['keys', 'verify-master', file, '--postgres', url]);
      proxy.refuseFrom(statement);
      const ended = await verify();
      expect(ended).toEqual(unreachable(/^epitaph: PostgreSQL: .*Try again when it can be reached\.\n$/));
      expect(lines(ended)).toBe(1);
      proxy.mend();
      expect(await verify()).toMatchObject({ code: 0 });
    },
  );

  it('ends a change of the master key with exit code 3; called again, it continues', async () => {
    await makeVault();
    const next = randomBytes(32).toString('base64');
    const rotate = () =>
      command(['keys', 'rotate-master', '--postgres', url], { ...environment, EPITAPH_NEW_MASTER_KEY: next });
    proxy.refuseFrom('TRUNCATE epitaph_vault.root');
    const ended = await rotate();
    expect(ended).toEqual(
      unreachable(/^epitaph: This was interrupted, .* Before you start a node, run the same command again/),
    );
    expect(lines(ended)).toBe(1);
    proxy.mend();
    expect(await rotate()).toMatchObject({ code: 0 });
  });

  it('ends a restore with exit code 3; called again, it continues', { timeout: 120_000 }, async () => {
    const head = await makeVault();
    const restore = () => command(['restore', '--postgres', url, '--ledger-head', head], environment);
    // Before anything is done, while it opens a node of its own, and at the very end.
    for (const statement of [
      'SELECT 1 FROM pg_namespace',
      'SELECT 1 FROM epitaph_vault.restoring',
      'DELETE FROM epitaph_vault.restoring',
    ]) {
      proxy.refuseFrom(statement);
      const { code, stderr } = await restore();
      expect([statement, code, stderr]).toEqual([
        statement,
        3,
        expect.stringMatching(/(?:^|\n)epitaph: PostgreSQL.*Try again when it can be reached\.\n$/),
      ]);
      proxy.mend();
    }
    expect(await restore()).toMatchObject({ code: 0 });
    const node = await serve(['--data', temporaryFolder()], environment);
    expect(await manage(node.endpoint, 'GET', '/purge')).toMatchObject({ state: 'paused' });
  });
});
