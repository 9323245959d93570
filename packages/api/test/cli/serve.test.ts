import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { Agent, get, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect, createServer } from 'node:net';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as wait } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { httpDate, sign } from '../cosmos/support/client.ts';
import { cleanUp, epitaph, serve, start, temporaryFolder } from './process.ts';

afterEach(cleanUp);

/** The printed line uses curl. Tests that run the line are skipped without it. */
const hasCurl = spawnSync('curl', ['--version']).error === undefined;

const BEARER = { authorization: `Bearer ${EMULATOR_KEY}` };

describe('epitaph serve', () => {
  test.runIf(hasCurl)(
    'prints its address, its key, the data folder, and a command line that works when it is pasted',
    async () => {
      const data = temporaryFolder();
      const { endpoint, stdout, child, finished } = await serve(['--data', data]);
      expect(stdout()).toContain(`listening on ${endpoint}\n`);
      expect(stdout()).toContain(`data     ${data} (system clock`);
      expect(stdout()).toContain(EMULATOR_KEY);
      const line = /^ {2}try +(.*)$/m.exec(stdout())![1]!;
      const answer = execFileSync('sh', ['-c', line], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
      expect(JSON.parse(answer)).toMatchObject({ state: 'idle' });
      child.kill('SIGTERM');
      expect(await finished()).toMatchObject({ code: 0, stderr: '' });
    },
  );

  test.runIf(hasCurl)(
    'creates keys of its own beyond loopback and prints none; the printed command line works all the same',
    async () => {
      const data = path.join(temporaryFolder(), "it's here");
      const { endpoint, stdout, child, finished } = await serve([
        '--data',
        data,
        '--host',
        '0.0.0.0',
        '--log-level',
        'debug',
      ]);
      expect(endpoint).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
      const keys = JSON.parse(readFileSync(path.join(data, 'keys.json'), 'utf8')) as Record<string, string>;
      const line = /^ {2}try +(.*)$/m.exec(stdout())![1]!;
      const answer = execFileSync('sh', ['-c', line], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
      expect(JSON.parse(answer)).toMatchObject({ state: 'idle' });
      expect((await fetch(`${endpoint}/_epitaph/purge`, { headers: BEARER })).status).toBe(401);
      child.kill('SIGINT');
      const { code, stdout: printed, stderr } = await finished();
      expect(code).toBe(0);
      for (const key of [...Object.values(keys), EMULATOR_KEY]) expect(printed + stderr).not.toContain(key);
      for (const logged of stderr.trimEnd().split('\n')) expect(JSON.parse(logged)).toHaveProperty('msg');
    },
  );

  test('makes its files private, even in a folder that other users can read', async () => {
    const data = temporaryFolder();
    chmodSync(data, 0o755);
    const { child, finished } = await serve(['--data', data]);
    const open = readdirSync(data).filter((name) => (statSync(path.join(data, name)).mode & 0o077) !== 0);
    expect(open).toEqual([]);
    child.kill('SIGTERM');
    expect((await finished()).code).toBe(0);
  });

  test('makes files private that an older version has left readable for others', async () => {
    const data = temporaryFolder();
    chmodSync(data, 0o755);
    const older = await serve(['--data', data]);
    older.child.kill('SIGTERM');
    await older.finished();
    const databases = () => readdirSync(data).filter((name) => name.includes('.db'));
    for (const name of databases()) chmodSync(path.join(data, name), 0o644);
    const { child, finished } = await serve(['--data', data]);
    const open = databases().filter((name) => (statSync(path.join(data, name)).mode & 0o077) !== 0);
    expect(databases()).toEqual(expect.arrayContaining(['items.v1.db', 'log.db', 'proof.db', 'vault.db']));
    expect(open).toEqual([]);
    child.kill('SIGTERM');
    expect((await finished()).code).toBe(0);
  });

  test('accepts the published key under loopback names only, so that no web page can use it', async () => {
    const { endpoint } = await serve(['--data', temporaryFolder()]);
    const port = Number(new URL(endpoint).port);
    const statusFor = async (host: string, target: string, authorization: string): Promise<string> => {
      const socket = connect(port, '127.0.0.1');
      socket.write(
        `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nx-ms-date: ${date}\r\nAuthorization: ${authorization}\r\nConnection: close\r\n\r\n`,
      );
      let text = '';
      socket.on('data', (chunk) => (text += String(chunk)));
      await once(socket, 'close');
      return text.slice(9, 12);
    };
    const date = httpDate(Date.now());
    for (const [target, authorization] of [
      ['/_epitaph/purge', BEARER.authorization],
      ['/dbs', sign('GET', 'dbs', '', date)],
    ] as const) {
      expect(await statusFor(`localhost:${port}`, target, authorization)).toBe('200');
      expect(await statusFor(`rebound.example:${port}`, target, authorization)).toBe('403');
    }
  });

  test('lets only named web pages use the published key', async () => {
    const data = temporaryFolder();
    const refused = await epitaph(['serve', '--port', '0', '--data', data, '--cors-origins', '*']);
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toMatch(/every web page could read this store. List the allowed origins in --cors-origins/);
    const named = 'http://localhost:5173';
    const { endpoint } = await serve(['--data', data, '--cors-origins', `https://app.example.com,${named}`]);
    const { status, headers } = await fetch(endpoint, { headers: { origin: named } });
    expect([status, headers.get('access-control-allow-origin')]).toEqual([401, named]);
    const key = Buffer.alloc(32, 7).toString('base64');
    const open = await serve(['--data', temporaryFolder(), '--key', key, '--cors-origins', '*']);
    const answer = await fetch(open.endpoint, { headers: { origin: 'https://any.example' } });
    expect(answer.headers.get('access-control-allow-origin')).toBe('*');
  });

  test('answers requests in progress before it stops, and accepts no more', async () => {
    const { endpoint, child, finished } = await serve(['--data', temporaryFolder()]);
    const port = Number(new URL(endpoint).port);
    const body = '{"seconds":1}';
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `PUT /_epitaph/dbs/a/colls/b/policy-grace HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${BEARER.authorization}\r\nContent-Length: ${body.length}\r\n\r\n`,
    );
    let text = '';
    socket.on('data', (chunk) => (text += String(chunk)));
    // Once another request is answered, the head of the first one has arrived.
    await fetch(`${endpoint}/_epitaph/health/live`, { headers: { connection: 'close' } });
    child.kill('SIGTERM');
    await once(child.stdout!, 'data');
    socket.write(body);
    await once(socket, 'close');
    expect(text).toMatch(/^HTTP\/1\.1 404 /);
    expect(await finished()).toMatchObject({ code: 0 });
    await expect(fetch(`${endpoint}/_epitaph/health/live`)).rejects.toThrow();
  });

  test('limits its connections so that enough file descriptors are left', async () => {
    const { endpoint, child, finished } = await serve(['--data', temporaryFolder()], {}, 200);
    const agent = new Agent({ keepAlive: true });
    const ready = async (): Promise<number | undefined> => {
      const request = get(`${endpoint}/_epitaph/purge`, { agent, headers: BEARER });
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      response.resume();
      await once(response, 'end');
      return response.statusCode;
    };
    expect(await ready()).toBe(200);
    const idle = Array.from({ length: 300 }, () => connect(Number(new URL(endpoint).port), '127.0.0.1'));
    await Promise.all(idle.map((socket) => once(socket, 'connect')));
    // Longer than the interval of saving the clock's mark, which opens a file.
    await wait(2_500);
    expect(await ready()).toBe(200);
    for (const socket of idle) socket.destroy();
    agent.destroy();
    child.kill('SIGTERM');
    expect(await finished()).toMatchObject({ code: 0, stderr: '' });
  });

  const most = existsSync('/proc/sys/net/core/somaxconn') ? Number(readFileSync('/proc/sys/net/core/somaxconn')) : 0;
  test.skipIf(most < 1_000)(
    'accepts many clients that connect at once while it is busy, and resets none of them',
    async () => {
      const { endpoint, child } = await serve(['--data', temporaryFolder()]);
      const port = Number(new URL(endpoint).port);
      child.kill('SIGSTOP');
      const sockets = Array.from({ length: 800 }, () => connect(port, '127.0.0.1'));
      const connected = sockets.map((socket) => once(socket, 'connect'));
      // A client that finds no room in the backlog would try again after a second.
      const isIn = await Promise.race([Promise.all(connected).then(() => true), wait(900, false)]);
      child.kill('SIGCONT');
      for (const socket of sockets) socket.destroy();
      await Promise.allSettled(connected);
      expect(isIn).toBe(true);
    },
  );

  test('does not start with too few file descriptors, and says so', async () => {
    const { code, stderr } = await start(['serve', '--port', '0', '--data', temporaryFolder()], {}, 100).finished();
    expect([code, stderr]).toEqual([2, expect.stringContaining('may have 100 files and connections open')]);
  });

  test('stops when a writer thread is lost, because it could not write any more, and keeps what was acknowledged', async () => {
    const data = temporaryFolder();
    // On a signal, the log's writer gets a message that it can't read.
    const sabotage = `import { Worker } from 'node:worker_threads';
      const post = Worker.prototype.postMessage;
      let writer;
      Worker.prototype.postMessage = function (...message) { writer ??= this; return post.apply(this, message); };
      process.on('SIGUSR2', () => post.call(writer, {}));`;
    const { endpoint, child, finished } = await serve(['--data', data], {
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(sabotage)}`,
    });
    const url = `${endpoint}/_epitaph/purge/pause`;
    expect((await fetch(url, { method: 'POST', headers: BEARER })).status).toBe(200);
    child.kill('SIGUSR2');
    const { code, stderr } = await finished();
    expect(code).toBe(1);
    expect(stderr).toContain('nothing can be written until the store is restarted');
    const again = await serve(['--data', data]);
    const status = await fetch(`${again.endpoint}/_epitaph/purge`, { headers: BEARER });
    expect(await status.json()).toMatchObject({ state: 'paused' });
  });

  test('with --drain answers for a while after the signal, reports that it is not ready, and closes connections', async () => {
    const { endpoint, child, finished } = await serve(['--data', temporaryFolder(), '--drain', '2']);
    const ready = () => fetch(`${endpoint}/_epitaph/health/ready`);
    expect((await ready()).status).toBe(200);
    child.kill('SIGTERM');
    await once(child.stdout!, 'data');
    const drained = await ready();
    expect(drained.status).toBe(503);
    expect(await drained.json()).toEqual({ status: 'not-ready', reasons: ['the server is about to stop'] });
    const answered = await fetch(`${endpoint}/_epitaph/purge`, { headers: BEARER });
    expect([answered.status, answered.headers.get('connection')]).toEqual([200, 'close']);
    for (const refusing of ['_epitaph/purge', 'dbs']) {
      const refused = await fetch(`${endpoint}/${refusing}`);
      expect([refused.status, refused.headers.get('connection')]).toEqual([401, 'close']);
    }
    expect(await finished()).toMatchObject({ code: 0 });
  });

  test('stops in order when its terminal hangs up', async () => {
    const { child, finished } = await serve(['--data', temporaryFolder()]);
    child.kill('SIGHUP');
    expect(await finished()).toMatchObject({ code: 0, stdout: expect.stringContaining('stopping (SIGHUP)') });
  });

  test('reports a missing backup folder at the start, before somebody needs a backup', async () => {
    const place = temporaryFolder();
    const file = path.join(place, 'file');
    writeFileSync(file, '');
    for (const [folder, words] of [
      [path.join(place, 'unmounted'), 'does not exist'],
      [file, 'is not a folder'],
      [temporaryFolder(), undefined],
    ] as const) {
      const { child, finished } = await serve(['--data', temporaryFolder(), '--backup-folder', folder]);
      child.kill('SIGTERM');
      const { code, stderr } = await finished();
      expect(code).toBe(0);
      if (words === undefined) expect(stderr).toBe('');
      else {
        expect(stderr.trimEnd().split('\n')).toHaveLength(1);
        expect(JSON.parse(stderr)).toMatchObject({
          level: 'warn',
          msg: `no backup can be taken: the --backup-folder ${folder} ${words}. Is its disk mounted?`,
        });
      }
    }
  });

  test.skipIf(process.getuid?.() === 0)('reports at the start that it may not write to its backup folder', async () => {
    const folder = temporaryFolder();
    chmodSync(folder, 0o500);
    const { child, finished } = await serve(['--data', temporaryFolder(), '--backup-folder', folder]);
    child.kill('SIGTERM');
    expect((await finished()).stderr).toContain("can't be written to");
  });

  test('goes on, and stops in order, when nobody reads what it prints', async () => {
    const { endpoint, child, finished } = await serve(['--data', temporaryFolder()]);
    child.stdout!.destroy();
    expect((await fetch(`${endpoint}/_epitaph/purge`, { headers: BEARER })).status).toBe(200);
    child.kill('SIGTERM');
    expect(await finished()).toMatchObject({ code: 0, stderr: '' });
  });

  test('stops when requests in progress are answered, even if a client keeps its connection', async () => {
    const { endpoint, child, finished } = await serve(['--data', temporaryFolder()]);
    const socket = connect(Number(new URL(endpoint).port), '127.0.0.1');
    socket.write(
      'POST /_epitaph/purge/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n' +
        `Authorization: ${BEARER.authorization}\r\n\r\n{`,
    );
    await fetch(`${endpoint}/_epitaph/health/live`, { headers: { connection: 'close' } });
    child.kill('SIGTERM');
    await once(child.stdout!, 'data');
    await wait(200);
    const endedMs = performance.now();
    socket.write('}');
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 /);
    expect(await finished()).toMatchObject({ code: 0 });
    expect(performance.now() - endedMs).toBeLessThan(5_000);
  });

  test('answers what was sent on any connection before its clients can know that it stops', async () => {
    const { endpoint, child, finished } = await serve(['--data', temporaryFolder()]);
    const port = Number(new URL(endpoint).port);
    const request = 'GET /_epitaph/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n';
    const sockets = Array.from({ length: 20 }, () => connect(port, '127.0.0.1').on('error', () => {}));
    for (const socket of sockets) {
      socket.write(request);
      await once(socket, 'data');
    }
    const answers = sockets.map(async (socket) => Buffer.concat((await socket.toArray()) as Buffer[]).toString());
    child.kill('SIGTERM');
    for (const socket of sockets) socket.write(request);
    for (const answer of await Promise.all(answers)) expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(await finished()).toMatchObject({ code: 0 });
  });

  test('stops at once on a second signal', async () => {
    const { endpoint, child, finished } = await serve(['--data', temporaryFolder()]);
    const socket = connect(Number(new URL(endpoint).port), '127.0.0.1');
    socket.on('error', () => {});
    socket.write(
      'POST /_epitaph/fsck HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n' +
        `Authorization: ${BEARER.authorization}\r\n\r\n`,
    );
    await fetch(`${endpoint}/_epitaph/health/live`, { headers: { connection: 'close' } });
    child.kill('SIGINT');
    await once(child.stdout!, 'data');
    await wait(700);
    child.kill('SIGINT');
    expect(await finished()).toMatchObject({ code: 130 });
  });

  test('stops at a signal during its start, because nobody is served yet', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const { child, finished } = start(['serve', '--port', '0', '--data', temporaryFolder()], {
      EPITAPH_EVENT_STORE: `esdb://127.0.0.1:${port}?tls=false`,
    });
    await once(silent, 'connection');
    child.kill('SIGTERM');
    expect(await finished()).toEqual({ code: 0, stdout: 'epitaph: stopping (SIGTERM)\n', stderr: '' });
    silent.close();
  });

  test('keeps what was written, and time, over a restart', async () => {
    const data = temporaryFolder();
    const first = await serve(['--data', data, '--clock', 'manual', '--now', '2026-11-21T10:00:00Z']);
    await fetch(`${first.endpoint}/_epitaph/clock/advance`, {
      method: 'POST',
      headers: BEARER,
      body: '{"milliseconds":60000}',
    });
    first.child.kill('SIGTERM');
    await first.finished();
    const nowOf = async (endpoint: string): Promise<unknown> =>
      ((await (await fetch(`${endpoint}/_epitaph/clock`, { headers: BEARER })).json()) as { now: unknown }).now;
    const second = await serve(['--data', data, '--clock', 'manual', '--now', '2026-11-21T10:00:00Z']);
    expect(await nowOf(second.endpoint)).toBe('2026-11-21T10:01:00.000Z');
    expect(second.stdout()).toContain('time never goes back');
    second.child.kill('SIGTERM');
    await second.finished();
    const third = await serve(['--data', data, '--clock', 'manual', '--now', '2033-11-21T10:00:00Z']);
    expect(await nowOf(third.endpoint)).toBe('2033-11-21T10:00:00.000Z');
    third.child.kill('SIGTERM');
    await third.finished();
  });
});

describe('a start that is refused', () => {
  test('prints one line of advice and has exit code 2', async () => {
    const data = temporaryFolder();
    const running = await serve(['--data', data]);
    const port = new URL(running.endpoint).port;
    const manual = temporaryFolder();
    const ofManual = await serve(['--data', manual, '--clock', 'manual']);
    ofManual.child.kill('SIGTERM');
    await ofManual.finished();
    const attempts = [
      [['--data', data], /in use by another process/],
      [['--data', manual], /manual clock/],
      [['--data', temporaryFolder(), '--port', port], new RegExp(`^epitaph: Port ${port} on 127.0.0.1 is in use`)],
      [['--data', temporaryFolder(), '--host', '192.0.2.1'], /is not an address of this machine/],
      [['--data', temporaryFolder(), '--host', '0.0.0.0', '--key', EMULATOR_KEY], /loopback only/],
      [['--data', '/dev/null/x'], /can't be made/],
      [['--port', 'x'], /^epitaph: --port: must be a whole number/],
      [['--prot', '1'], /serve has no option --prot/],
    ] as const;
    const ends = await Promise.all(attempts.map(([args]) => epitaph(['serve', '--port', '0', ...args])));
    for (const [n, [args, message]] of attempts.entries()) {
      const { code, stdout, stderr } = ends[n]!;
      expect([args, code, stdout]).toEqual([args, 2, '']);
      expect(stderr).toMatch(message);
      expect(stderr.trimEnd().split('\n')).toHaveLength(1);
    }
  });

  test.each([
    ['http://127.0.0.1:2113', 2, /^epitaph: The connection string of --event-store must begin with esdb/],
    [
      'esdb://me:hidden@127.0.0.1:1?tls=false',
      3,
      /^epitaph: --event-store names 127\.0\.0\.1:1, but: EventStoreDB can't be reached: .*\. Try again when it can be reached\.$/m,
    ],
  ])(
    'because of the event store %s has exit code %i, and prints no password',
    async (eventStore, exitCode, message) => {
      const variables = { EPITAPH_EVENT_STORE: eventStore };
      const { code, stdout, stderr } = await epitaph(['serve', '--port', '0', '--data', temporaryFolder()], variables);
      expect([code, stdout]).toEqual([exitCode, '']);
      expect(stderr).toMatch(message);
      expect(stderr.trimEnd().split('\n')).toHaveLength(1);
      expect(stderr).not.toContain('hidden');
    },
  );

  test.skipIf(process.getuid?.() === 0)('tells which folder lacks the needed rights', async () => {
    const data = temporaryFolder();
    chmodSync(data, 0o500);
    const { code, stderr } = await epitaph(['serve', '--port', '0', '--data', data]);
    expect([code, stderr.trimEnd().split('\n')]).toMatchObject([2, [expect.stringContaining("can't be used")]]);
  });

  const isRoot = process.getuid?.() === 0;
  test.skipIf(isRoot)(
    `names each file that belongs to another user or is read-only${isRoot ? ' (skipped: root may do all; run it as another user)' : ''}`,
    async () => {
      const data = temporaryFolder();
      const running = await serve(['--data', data]);
      running.child.kill('SIGTERM');
      await running.finished();
      for (const [name, mode] of [
        ['.', 0o000],
        ['master.key', 0o000],
        ['clock', 0o000],
        ['vault.db', 0o000],
        ['log.db', 0o400],
        ['proof.db', 0o000],
      ] as const) {
        const file = path.resolve(data, name);
        chmodSync(file, mode);
        const { code, stderr } = await epitaph(['serve', '--port', '0', '--data', data]);
        chmodSync(file, name === '.' ? 0o700 : 0o600);
        expect([name, code, stderr.trimEnd().split('\n')]).toEqual([name, 2, [expect.stringContaining(file)]]);
        expect(stderr).toMatch(/Check its owner, its permissions, and the disk\.$/m);
      }
    },
  );

  test('tells that the data folder is a file', async () => {
    const data = path.join(temporaryFolder(), 'store');
    writeFileSync(data, 'text');
    const { code, stderr } = await epitaph(['serve', '--port', '0', '--data', data]);
    expect([code, stderr]).toEqual([2, `epitaph: The data folder ${data} is a file. Name a folder.\n`]);
    expect(readFileSync(data, 'utf8')).toBe('text');
  });

  test('tells that the folder has other files in it; a folder with the server’s own settings is accepted', async () => {
    const data = temporaryFolder();
    const config = path.join(data, 'settings.json');
    writeFileSync(config, JSON.stringify({ port: 0, 'backup-folder': path.join(data, 'backups') }));
    mkdirSync(path.join(data, 'backups'));
    const refused = await epitaph(['serve', '--port', '0', '--data', data]);
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringMatching(
        /^epitaph: There is no store in .* do not belong to a new one: backups, settings\.json\. .*\.\n$/,
      ),
    ]);
    expect(readdirSync(data)).toEqual(['backups', 'settings.json']);
    const { child, finished } = await serve(['--data', data, '--config', config]);
    child.kill('SIGTERM');
    expect((await finished()).code).toBe(0);
  });

  test('tells unreadable files from damaged ones', async () => {
    for (const name of ['epitaph.json', 'keys.json']) {
      const data = temporaryFolder();
      mkdirSync(path.join(data, name), { mode: 0o700 });
      const { code, stderr } = await epitaph(['serve', '--port', '0', '--data', data]);
      expect([code, stderr]).toEqual([
        2,
        expect.stringMatching(/^epitaph: .*can't be read: EISDIR.*Check its permissions/),
      ]);
    }
  });

  test('names the event that a newer version has written', async () => {
    const data = temporaryFolder();
    const store = await openEmbeddedStore({ folder: data, clock: 'system', durable: false });
    await store.createDatabase({ actor: 'test', correlationId: '00000000-0000-4000-8000-000000000000' }, 'db');
    await store.close();
    const log = new DatabaseSync(path.join(data, 'log.db'));
    log.exec("UPDATE events SET version = 2 WHERE stream LIKE 'database-%'");
    log.close();
    for (const name of ['items.v1.db', 'proof.db']) rmSync(path.join(data, name));
    const { code, stderr } = await epitaph(['serve', '--port', '0', '--data', data]);
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(
        /^epitaph: DatabaseCreated at \d+ has version 2, .*Start that version, or a later one\.\n$/,
      ),
    ]);
  });

  test('because its port is in use leaves the folder unlocked', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as { port: number };
    const data = temporaryFolder();
    expect((await epitaph(['serve', '--data', data, '--port', String(port)])).code).toBe(2);
    other.close();
    const { child, finished } = await serve(['--data', data]);
    child.kill('SIGTERM');
    expect((await finished()).code).toBe(0);
  });
});
