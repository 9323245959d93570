import { copyFileSync, readFileSync } from 'node:fs';
import { once } from 'node:events';
import http2 from 'node:http2';
import { Agent, request } from 'node:https';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { CosmosClient } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { outOfDate } from '@epitaph/api/config/tls.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { closeWithin } from '@epitaph/api/http/close-within.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { pause } from '@epitaph/storage/patience.ts';
import { cleanUp, command, start } from '../../packages/api/test/cli/process.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { whyWithout } from '../support/programs.ts';
import { selfSigned, type SelfSigned } from '../support/self-signed.ts';
import { startServer, type ServerProcess } from './support/server-process.ts';

const skipped = whyWithout('openssl');

describe.skipIf(skipped)(`TLS${skipped}`, () => {
  let folder: string;
  let first: SelfSigned;
  let second: SelfSigned;
  let server: ServerProcess;
  let endpoint: string;

  const file = (name: string): string => path.join(folder, name);
  const install = ({ file: cert, keyFile }: SelfSigned): void => {
    copyFileSync(cert, file('cert.pem'));
    copyFileSync(keyFile, file('key.pem'));
  };

  beforeAll(async () => {
    folder = newFolder('tls');
    [first, second] = [selfSigned(), selfSigned()];
    install(first);
    server = await startServer(['--data', file('data'), '--tls-cert', file('cert.pem'), '--tls-key', file('key.pem')]);
    endpoint = server.endpoint.replace('127.0.0.1', 'localhost');
  });
  afterAll(async () => {
    await server.stop();
    cleanUp();
    first.remove();
    second.remove();
    removeFolder(folder);
  });

  /** The status of an answer if only this certificate is trusted. */
  function statusWith({ certificate }: SelfSigned): Promise<number | string> {
    return new Promise((resolve) => {
      request(`${endpoint}/_epitaph/health/live`, { ca: certificate, agent: false }, (response) => {
        response.resume();
        resolve(response.statusCode!);
      })
        .once('error', (error: NodeJS.ErrnoException) => resolve(error.code!))
        .end();
    });
  }

  test('a client of Cosmos DB and the command line work over TLS, with the certificate that they trust', async () => {
    expect(endpoint).toMatch(/^https:/);
    const client = new CosmosClient({ endpoint, key: EMULATOR_KEY, agent: new Agent({ ca: first.certificate }) });
    const { database } = await client.databases.createIfNotExists({ id: 'shop' });
    const { container } = await database.containers.createIfNotExists({ id: 'orders', partitionKey: '/customer' });
    await container.items.create({ id: 'a', customer: 'ann' });
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ id: 'a' });
    client.dispose();
    const asked = ['explain', 'shop', 'orders', 'a', '--partition-key', 'ann', '--endpoint', endpoint];
    const byFlag = await command([...asked, '--tls-ca', first.file]);
    expect(byFlag).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining('"a" is visible') as string });
    expect(await command(asked, { EPITAPH_TLS_CA: first.file })).toEqual(byFlag);
  });

  test('large requests one after the other on a connection, each with a large answer, arrive whole', async () => {
    const agent = new Agent({ ca: first.certificate, keepAlive: true });
    const client = new CosmosClient({ endpoint, key: EMULATOR_KEY, agent });
    const { database } = await client.databases.createIfNotExists({ id: 'shop' });
    const { container } = await database.containers.createIfNotExists({ id: 'large', partitionKey: '/customer' });
    const create = (n: number) => ({
      operationType: 'Create' as const,
      partitionKey: 'ann',
      resourceBody: { id: String(n), customer: 'ann', text: 'x'.repeat(110_000) },
    });
    const results = await container.items.executeBulkOperations(Array.from({ length: 100 }, (_, n) => create(n)));
    expect(results.map(({ response, error }) => response?.statusCode ?? error?.message)).toEqual(Array(100).fill(201));
    client.dispose();
    agent.destroy();
  });

  test('a client that only supports HTTP/2 is told to use HTTP/1.1', async () => {
    const session = http2.connect(endpoint, { ca: first.certificate }).on('error', () => undefined);
    const [code] = (await once(session, 'goaway')) as [number];
    expect(code).toBe(http2.constants.NGHTTP2_HTTP_1_1_REQUIRED);
    const agreed = async (...ALPNProtocols: string[]) => {
      const { hostname: host, port } = new URL(endpoint);
      const socket = connectTls({ host, port: Number(port), ca: first.certificate, ALPNProtocols });
      return once(socket, 'secureConnect').then(
        () => (socket.destroy(), socket.alpnProtocol),
        (error: NodeJS.ErrnoException) => error.code,
      );
    };
    expect(await agreed('h2', 'http/1.1')).toBe('http/1.1');
    expect(await agreed()).toBe(false);
    expect(await agreed('smtp')).toBe('ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL');
  });

  test('the command line reports a certificate that is not trusted, and plain HTTP is not answered', async () => {
    const refused = await command(['purge', '--endpoint', endpoint]);
    expect(refused).toMatchObject({ code: 3, stdout: '' });
    expect(refused.stderr).toMatch(/certificate .* is not trusted .*--tls-ca/);
    await expect(fetch(endpoint.replace('https', 'http'))).rejects.toThrow();
    const plainly = await command(['purge', '--endpoint', endpoint.replace('https', 'http')]);
    expect(plainly).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('Should it begin with https://?') as string,
    });
    expect((await command(['purge', '--endpoint', endpoint, '--tls-ca', file('nothing')])).code).toBe(2);
  });

  test('a renewed certificate is used without a restart, and an invalid one is not', async () => {
    expect(await statusWith(first)).toBe(200);
    install(second);
    server.signal('SIGHUP');
    await expect.poll(() => statusWith(second)).toBe(200);
    expect(await statusWith(first)).not.toBe(200);
    copyFileSync(first.keyFile, file('key.pem'));
    server.signal('SIGHUP');
    await expect.poll(() => server.stderr()).toContain("can't be used together");
    expect(await statusWith(second)).toBe(200);
  });

  test('a signal to renew the certificate does not end a store that is still starting', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const starting = start(['serve', '--port', '0', '--data', file('starting'), '--log-level', 'info'], {
      EPITAPH_EVENT_STORE: `esdb://127.0.0.1:${port}?tls=false`,
      EPITAPH_TLS_CERT: first.file,
      EPITAPH_TLS_KEY: first.keyFile,
    });
    await once(silent, 'connection');
    starting.child.kill('SIGHUP');
    await expect.poll(() => starting.texts.stderr).toContain('the certificate was read again');
    starting.child.kill('SIGTERM');
    expect(await starting.finished()).toMatchObject({ code: 0, stdout: 'epitaph: stopping (SIGTERM)\n' });
    silent.close();
  });

  test('a certificate that is out of date is reported', () => {
    const tls = { cert: readFileSync(first.file), key: readFileSync(first.keyFile) };
    expect(outOfDate(tls, Date.now())).toBeUndefined();
    expect(outOfDate(tls, Date.UTC(2525, 0))).toMatch(/^the certificate has expired at 20/);
    expect(outOfDate(tls, 0)).toMatch(/^the certificate is not valid before 20/);
  });

  test('a server does not start with only one of the two TLS files, or with files that do not belong together', async () => {
    const started = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await startServer(['--data', file('other'), ...args]).then(
        (running) => running.stop(),
        (error: { readonly code: number; readonly stderr: string }) => error,
      );
      expect([code, stderr.trimEnd().split('\n')]).toEqual([2, [expect.stringMatching(/^epitaph: /)]]);
      return stderr;
    };
    expect(await started('--tls-cert', first.file)).toContain('--tls-cert: needs --tls-key');
    expect(await started('--tls-key', first.keyFile)).toContain('--tls-key: needs --tls-cert');
    expect(await started('--tls-cert', first.file, '--tls-key', second.keyFile)).toContain("can't be used together");
    expect(await started('--tls-cert', file('none'), '--tls-key', second.keyFile)).toContain("can't be read");
  });

  test('a server that closes waits for running requests, but not for handshakes, even if one has begun', async () => {
    const store = await openEmbeddedStore({ folder: file('closing'), clock: 'system' });
    const { promise: late, resolve: answer } = Promise.withResolvers<string>();
    const listening = async () => {
      const app = buildServer({
        store,
        keys: new KeyRing({ primary: EMULATOR_KEY }),
        tls: { cert: first.certificate, key: first.key },
        plugins: [(server) => void server.get('/_epitaph/late', () => late)],
      });
      await app.listen({ host: '127.0.0.1', port: 0 });
      return { app, to: { port: (app.server.address() as AddressInfo).port, host: '127.0.0.1' } };
    };
    try {
      const { app, to } = await listening();
      const asking = connectTls({ ...to, ca: first.certificate, servername: 'localhost' });
      asking.write('GET /_epitaph/late HTTP/1.1\r\nhost: x\r\n\r\n');
      await once(app.server, 'request');
      const silent = connect(to);
      await once(app.server, 'connection');
      const unused = connectTls({ ...to, ca: first.certificate, servername: 'localhost' });
      await once(app.server, 'secureConnection');
      const closing = closeWithin(app, 60_000);
      await Promise.all([once(silent, 'close'), once(unused.resume(), 'close')]);
      answer('done');
      expect(String((await once(asking, 'data'))[0])).toMatch(/^HTTP\/1\.1 200 [^]*done$/);
      await closing;

      const other = await listening();
      const half = connect(other.to, () => half.write('\x16\x03\x01'));
      await once(other.app.server, 'connection');
      await closeWithin(other.app, 200);
      await once(half, 'close');
    } finally {
      await store.close();
    }
  }, 10_000);

  test('a connection without a handshake is closed after the same time as one without a request', async () => {
    const store = await openEmbeddedStore({ folder: file('idle'), clock: 'system' });
    const app = buildServer({
      store,
      keys: new KeyRing({ primary: EMULATOR_KEY }),
      limits: { requestTimeoutMs: 300 },
      tls: { cert: first.certificate, key: first.key },
    });
    try {
      await app.listen({ host: '127.0.0.1', port: 0 });
      const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
      await once(socket, 'close');
    } finally {
      await app.close();
      await store.close();
    }
  });

  test('a connection without a handshake is closed to make room when there are too many, like one that was left behind', async () => {
    const store = await openEmbeddedStore({ folder: file('full'), clock: 'system' });
    const app = buildServer({
      store,
      keys: new KeyRing({ primary: EMULATOR_KEY }),
      limits: { connections: 2, leftBehindMs: 1_000 },
      tls: { cert: first.certificate, key: first.key },
    });
    try {
      await app.listen({ host: '127.0.0.1', port: 0 });
      const { port } = app.server.address() as AddressInfo;
      const open = () => connectTls({ port, host: '127.0.0.1', ca: first.certificate, servername: 'localhost' });
      const answered = async (socket: Socket): Promise<void> => {
        socket.write('GET /_epitaph/nothing HTTP/1.1\r\nhost: x\r\n\r\n');
        expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 404 /);
      };
      const used = open();
      await answered(used);
      const silent = connect(port, '127.0.0.1');
      const end = once(silent, 'close');
      await pause(1_100);
      await answered(used);

      await expect(once(open(), 'secureConnect')).rejects.toThrow('disconnected');
      await end;
      const next = open();
      await answered(next);
      await answered(used);
      for (const socket of [used, next]) socket.destroy();
    } finally {
      await app.close();
      await store.close();
    }
  });
});
