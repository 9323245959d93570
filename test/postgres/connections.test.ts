import { createSecretKey } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import { ANYTHING, type ReadModelNews, SharedProjector } from '@epitaph/projections/shared-projector.ts';
import {
  openDatabase,
  type PostgresDatabase,
  type Statements,
  UnusableServer,
} from '@epitaph/storage/postgres/database.ts';
import { LOCK_SPACE, locks } from '@epitaph/storage/postgres/migrations.ts';
import { openPostgresStorage } from '@epitaph/storage/postgres/open-postgres-storage.ts';
import { pause } from '@epitaph/storage/patience.ts';
import { PostgresKeyVault } from '@epitaph/storage/postgres/postgres-key-vault.ts';
import { PostgresReadModels } from '@epitaph/storage/postgres/postgres-read-models.ts';
import { Proxy } from '../eventstoredb/proxy.ts';
import { Cluster } from './nodes.ts';
import { Pooler, type Pooling } from './pooler.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';
import { StatementProxy } from './statement-proxy.ts';

/**
 * Long enough to notice a dead connection, which takes a beat and its timeout, and for the pool to close its idle connections, which takes
 * ten seconds.
 */
const noticed = () => new Promise((resolve) => setTimeout(resolve, 11_000));
const SOON = { timeout: 20_000, interval: 250 };

let server: TestServer;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
afterAll(() => server?.dispose());

/** A database that one process reaches over a network that the test can break, and another process directly. */
async function overANetwork(
  body: (far: PostgresDatabase, near: PostgresDatabase, proxy: Proxy) => Promise<void>,
): Promise<void> {
  const url = new URL(await server.newDatabase());
  const proxy = await Proxy.to(Number(url.port), url.hostname);
  const near = await openDatabase(url.href);
  url.port = String(proxy.port);
  url.hostname = '127.0.0.1';
  const far = await openDatabase(url.href);
  try {
    await body(far, near, proxy);
  } finally {
    proxy.cut();
    proxy.mend();
    await far.close();
    await near.close();
    await proxy.close();
  }
}

const lock = (sql: Statements) => sql.query<{ got: boolean }>('SELECT pg_try_advisory_lock(7) AS got');

// The tests run concurrently, each in a database of its own, because they mostly wait.
const CONCURRENT = { timeout: 90_000, concurrent: true };

describe.skipIf(whyNoPostgres !== undefined)(`a pooler before the server${skipReason}`, CONCURRENT, () => {
  it.each<[Pooling, RegExp]>([
    ['drops what sessions are to be like', /does not pass on these settings of a session: .*lock_timeout = '10s'/],
    [
      'gives one session to all, by transaction',
      /gives a session, with its locks, to other clients after each transaction/,
    ],
  ])('that %s is refused when the store is opened', async (pooling, reason) => {
    const url = await server.newDatabase();
    const pooler = await Pooler.to(url, pooling);
    try {
      const refusal = openDatabase(pooler.url(url));
      await expect(refusal).rejects.toThrow(UnusableServer);
      await expect(refusal).rejects.toThrow(reason);
    } finally {
      await pooler.close();
    }
  });

  it('is accepted if it keeps sessions apart and the role has the settings that it drops', async () => {
    const url = new URL(await server.newDatabase());
    url.username = 'pooled';
    const settings = {
      default_transaction_isolation: 'read committed',
      synchronous_commit: 'on',
      lock_timeout: '10s',
      idle_in_transaction_session_timeout: '20s',
    };
    await server.run('CREATE ROLE pooled LOGIN');
    for (const [name, value] of Object.entries(settings)) {
      await server.run(`ALTER ROLE pooled SET ${name} = '${value}'`);
    }
    const pooler = await Pooler.to(url.href, 'drops what sessions are to be like');
    try {
      const database = await openDatabase(pooler.url(url.href));
      await expect(database.query('SELECT 1 AS one')).resolves.toEqual([{ one: 1 }]);
      await database.close();
    } finally {
      await pooler.close();
    }
  });
});

describe.skipIf(whyNoPostgres !== undefined)(`connections of the pool${skipReason}`, CONCURRENT, () => {
  it('fail soon if the server is gone silently, but not if it takes long to answer', ({ expect }) =>
    overANetwork(async (far, near, proxy) => {
      const slow = near.query<{ done: boolean }>('SELECT pg_sleep(18) IS NOT NULL AS done');
      await far.query('SELECT 1');
      proxy.block();
      const startedMs = performance.now();
      const asked = await Promise.allSettled([far.query('SELECT 2'), far.transaction((sql) => sql.query('SELECT 3'))]);
      expect(asked).toMatchObject([1, 2].map(() => ({ reason: expect.any(StorageUnavailable) as unknown })));
      expect(performance.now() - startedMs).toBeLessThan(25_000);
      proxy.cut();
      proxy.mend();
      expect(await far.query('SELECT 4 AS four')).toEqual([{ four: 4 }]);
      expect(await slow).toEqual([{ done: true }]);
    }));

  it('fail soon if the server has lost the one that they wait on while it accepts others', ({ expect }) =>
    overANetwork(async (far, _near, proxy) => {
      const startedMs = performance.now();
      const lost = far.transaction(async (sql) => {
        await sql.query('SELECT 1');
        proxy.sever();
        await sql.query('SELECT 2');
      });
      await expect(lost).rejects.toThrow(StorageUnavailable);
      expect(performance.now() - startedMs).toBeLessThan(25_000);
      // A statement that the server is executing is waited for.
      const atWork = far.query('SELECT pg_sleep(14) IS NOT NULL AS done');
      expect(await atWork).toEqual([{ done: true }]);
    }));

  it('are replaced at their next use if the server silently lost them while they were idle', ({ expect }) =>
    overANetwork(async (far, _near, proxy) => {
      const all = () => Promise.all(Array.from({ length: 10 }, () => far.query('SELECT pg_sleep(0.1)')));
      await all();
      await pause(1_000);
      proxy.sever();
      const startedMs = performance.now();
      await far.transaction((sql) => sql.query('SELECT 1'));
      await all();
      // A second for the answer that does not come. The rest is for slow machines.
      expect(performance.now() - startedMs).toBeLessThan(3_500);
    }));

  it('that can’t be opened are reported, both in the pool and beside it, even if nothing answers', ({ expect }) =>
    overANetwork(async (far, _near, proxy) => {
      proxy.cut();
      proxy.block();
      const asked = await Promise.allSettled([far.query('SELECT 1'), far.dedicated((sql) => lock(sql))]);
      expect(asked).toMatchObject([1, 2].map(() => ({ reason: expect.any(StorageUnavailable) as unknown })));
    }));

  it('are replaced if they lead to a server that accepts no more writes, because another has taken its place', ({
    expect,
  }) =>
    overANetwork(async (far) => {
      await far.transaction((sql) => sql.query('CREATE TABLE written (at timestamptz)'));
      const write = () => far.transaction((sql) => sql.query('INSERT INTO written VALUES (now())'));
      await far.transaction(async (sql) => {
        await sql.query('SET default_transaction_read_only = on');
      });
      await expect(write()).rejects.toThrow(StorageUnavailable);
      await write();
    }));

  it('commit nothing of a transaction in which a statement failed, and report that, even if nobody awaited the statement', ({
    expect,
  }) =>
    overANetwork(async (far) => {
      await far.query('CREATE TABLE asked (number integer PRIMARY KEY)');
      const put = (sql: Statements, number: number) => sql.query('INSERT INTO asked VALUES ($1)', [number]);
      const failing = far.transaction(async (sql) => {
        void put(sql, 1);
        void put(sql, 1);
        await put(sql, 2).catch(() => {});
        void put(sql, 3);
      });
      await expect(failing).rejects.toThrow('duplicate key');
      expect(await far.query('SELECT number FROM asked')).toEqual([]);
      await far.transaction(async (sql) => {
        void put(sql, 1);
      });
      expect(await far.query('SELECT number FROM asked')).toEqual([{ number: 1 }]);
    }));

  it('commit nothing of a transaction whose BEGIN failed, although more was sent after it', async ({ expect }) => {
    const url = new URL(await server.newDatabase());
    const proxy = await StatementProxy.to(url.hostname, Number(url.port));
    const database = await openDatabase(proxy.url(url.href));
    try {
      await database.query('CREATE TABLE begun (number integer PRIMARY KEY)');
      const put = (...numbers: readonly number[]) =>
        database.transaction(async (sql) => {
          for (const number of numbers) void sql.query('INSERT INTO begun VALUES ($1)', [number]);
        });
      await put(1, 2);
      proxy.spoil('BEGIN');
      // The later statements may find the connection ended before the reason has been read.
      await expect(put(3, 4)).rejects.toThrow(/syntax error|Connection terminated/);
      await put(5);
      expect(await database.query('SELECT number FROM begun')).toEqual([{ number: 1 }, { number: 2 }, { number: 5 }]);
    } finally {
      await database.close();
      await proxy.close();
    }
  });

  it('say once that PostgreSQL can’t be used, also to callers in the middle of a transaction', ({ expect }) =>
    overANetwork(async (far, near) => {
      await near.close();
      await expect(far.transaction(() => near.query('SELECT 1'))).rejects.toThrow(/^PostgreSQL: Cannot use a pool/);
    }));

  it('have the settings that the vault relies on, whatever the database and the URL say', async ({ expect }) => {
    const url = new URL(await server.newDatabase());
    const name = url.pathname.slice(1);
    for (const setting of ["default_transaction_isolation = 'repeatable read'", 'synchronous_commit = off']) {
      await server.run(`ALTER DATABASE ${name} SET ${setting}`);
    }
    url.searchParams.set('options', '-c work_mem=8MB -c synchronous_commit=off');
    const database = await openDatabase(url.href);
    const inForce = (sql: Statements) =>
      sql.query(
        `SELECT current_setting('transaction_isolation') AS isolation, current_setting('synchronous_commit') AS commit,
                current_setting('lock_timeout') AS wait, current_setting('work_mem') AS memory`,
      );
    const expected = [{ isolation: 'read committed', commit: 'on', wait: '10s', memory: '8MB' }];
    expect(await inForce(database)).toEqual(expected);
    expect(await database.transaction(inForce)).toEqual(expected);
    await database.close();
  });

  it.skipIf(process.env['EPITAPH_TEST_POSTGRES'] !== undefined)(
    'are refused if they lead to a standby: it may show an earlier moment, and its locks exclude nobody else',
    async ({ expect }) => {
      const own = await TestServer.start();
      try {
        const database = await openDatabase(await own.newDatabase());
        const readModels = await PostgresReadModels.open(database);
        const signal = join(own.folder!, 'data', 'standby.signal');
        own.stop();
        writeFileSync(signal, '', { mode: 0o644 });
        own.startAgain();
        for (const use of [
          () => database.query('SELECT 1'),
          () => database.transaction((sql) => sql.query('SELECT 1')),
          () => readModels.lead(() => {}),
        ]) {
          await expect(use()).rejects.toThrow(StorageUnavailable);
        }
        own.stop();
        rmSync(signal);
        own.startAgain();
        expect(await database.query('SELECT 1 AS one')).toEqual([{ one: 1 }]);
        await (await readModels.lead(() => {}))!.release();
        await database.close();
      } finally {
        await own.dispose();
      }
    },
  );
});

describe.skipIf(whyNoPostgres !== undefined)(`connections outside the pool${skipReason}`, CONCURRENT, () => {
  it('fail with StorageUnavailable, and leave no lock behind if their set-up fails', ({ expect }) =>
    overANetwork(async (one, other) => {
      const broken = one.dedicated((sql) => sql.query('SELECT pg_terminate_backend(pg_backend_pid())'));
      await expect(broken).rejects.toThrow(StorageUnavailable);
      const failed = one.dedicated(async (sql) => {
        expect(await lock(sql)).toEqual([{ got: true }]);
        throw new Error('something else is missing');
      });
      await expect(failed).rejects.toThrow('something else is missing');
      const { connection } = await other.dedicated(async () => {});
      await expect.poll(() => lock(connection)).toEqual([{ got: true }]);
      await connection.close();
    }));

  it('fail soon if the server silently loses them during their set-up', ({ expect }) =>
    overANetwork(async (far, _near, proxy) => {
      const startedMs = performance.now();
      const lost = far.dedicated(async (sql) => {
        proxy.sever();
        await lock(sql);
      });
      await expect(lost).rejects.toThrow(StorageUnavailable);
      expect(performance.now() - startedMs).toBeLessThan(25_000);
    }));

  it('are not given out if they ended while something else was waited for, because nobody would be told', ({
    expect,
  }) =>
    overANetwork(async (one, other) => {
      const readModels = await PostgresReadModels.open(one);
      const { promise: over, resolve: goOn } = Promise.withResolvers<void>();
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      // Another node is creating or removing versions, for which a node that is to write waits.
      const busy = other.transaction(async (sql) => {
        await sql.query('SELECT pg_advisory_xact_lock($1, $2)', [LOCK_SPACE, locks.readModels]);
        begin();
        await over;
      });
      await begun;
      let isLost = false;
      const lead = readModels
        .lead(() => (isLost = true))
        .then(
          (got) => ({ got }),
          (error: unknown) => ({ error }),
        );
      const end = () =>
        other.query<{ ended: boolean }>(
          "SELECT pg_terminate_backend(pid) AS ended FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
          [locks.projector],
        );
      await expect.poll(end).toEqual([{ ended: true }]);
      await expect.poll(end).toEqual([]);
      // The process notices it a moment later.
      await new Promise((resolve) => setTimeout(resolve, 500));
      goOn();
      await busy;
      expect(await lead).toEqual({ error: expect.any(StorageUnavailable) as unknown });
      expect(isLost).toBe(false);
      const again = await readModels.lead(() => {});
      await again!.release();
    }));

  it('are replaced if the server has silently lost them, because a follower that hears nothing stays behind', ({
    expect,
  }) =>
    overANetwork(async (far, near, proxy) => {
      const news: ReadModelNews[] = [];
      const [follower, projecting] = [await PostgresReadModels.open(far), await PostgresReadModels.open(near)];
      await follower.listen((heard) => news.push(heard));
      proxy.sever();
      await projecting.tellErased([5]);
      await noticed();
      // The follower may have missed anything.
      await expect.poll(() => follower.look().then(() => news), SOON).toEqual([ANYTHING]);
      await projecting.tellErased([6]);
      await expect.poll(() => news.at(-1)).toEqual({ containers: [], databases: [], erased: [6] });
      await follower.close();
    }));

  it('of the node that projects are replaced, too, because another node may purge', ({ expect }) =>
    overANetwork(async (_far, near) => {
      const [projecting, purging] = [await PostgresReadModels.open(near), await PostgresReadModels.open(near)];
      const news: ReadModelNews[] = [];
      const projector = new SharedProjector({
        log: new MemoryEventLog(),
        vault: new MemoryKeyVault(),
        sealer: new ToyBodySealer(),
        readModels: projecting,
        mayProject: true,
        onApplied: () => {},
        onNews: (heard) => news.push(heard),
      });
      await projector.start();
      expect(projector.projects).toBe(true);
      news.splice(0);
      await near.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN epitaph_read%'",
      );
      await expect.poll(() => news, SOON).toEqual([ANYTHING]);
      await purging.tellErased([6]);
      await expect.poll(() => news.at(-1)).toEqual({ containers: [], databases: [], erased: [6] });
      expect(projector.projects).toBe(true);
      await projector.close();
    }));

  it('that are lost make the vault drop its cached keys, so that it keeps none that others destroy', ({ expect }) =>
    overANetwork(async (far, near, proxy) => {
      const master = createSecretKey(Buffer.alloc(32, 5));
      const [one, other] = [
        await PostgresKeyVault.open({ database: far, master }),
        await PostgresKeyVault.open({ database: near, master }),
      ];
      const stream = 'item-rid.a.0';
      const { key, stored } = await one.createKey(stream);
      await stored;
      const find = async () => (await one.findKey(key.keyId, stream)).status;
      expect(await find()).toBe('there');
      proxy.sever();
      expect(await find()).toBe('there');
      await other.destroyKeys([{ keyId: key.keyId, stream, lastWriteTs: 1, lastEventAtMs: 1, nowMs: 2 }]);
      await noticed();
      await expect.poll(() => find().catch(() => 'away'), SOON).toBe('destroyed');
      await one.close();
      await other.close();
    }));

  it('are not left behind by a vault that is closed while it listens again', ({ expect }) =>
    overANetwork(async (far, near) => {
      const vault = await PostgresKeyVault.open({ database: far, master: createSecretKey(Buffer.alloc(32, 5)) });
      const LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN epitaph_vault'";
      const listeners = () => near.query(`SELECT pid ${LISTENERS}`);
      const ended = () => near.query<{ ended: boolean }>(`SELECT pg_terminate_backend(pid) AS ended ${LISTENERS}`);
      await expect.poll(ended).toEqual([{ ended: true }]);
      await expect.poll(ended).toEqual([]);
      // The process notices it a moment later.
      await new Promise((resolve) => setTimeout(resolve, 500));
      const found = vault.findKey(1, 'item-rid.a.0');
      await vault.close();
      await found;
      // The server takes a moment to end a closed session.
      await expect.poll(listeners).toEqual([]);
    }));

  it('are all closed if the storage can’t be opened after all', ({ expect }) =>
    overANetwork(async (_far, near) => {
      const url = await server.newDatabase();
      const open = (id: string) =>
        openPostgresStorage({
          url,
          masterKey: Buffer.alloc(32, 5).toString('base64'),
          log: { id, name: 'a log', isEmpty: true, claim: (owner) => Promise.resolve(owner) },
        });
      await (await open('one')).close();
      const name = new URL(url).pathname.slice(1);
      const left = () => near.query('SELECT pid FROM pg_stat_activity WHERE datname = $1', [name]);
      await expect.poll(left).toEqual([]);
      await expect(open('another')).rejects.toThrow('belongs to another event log');
      await expect.poll(left).toEqual([]);
    }));

  it('with the right to write are ended by another node if their own node stands still', ({ expect }) =>
    overANetwork(async (far, near, proxy) => {
      const [stopped, other] = [await PostgresReadModels.open(far), await PostgresReadModels.open(near)];
      let lost = false;
      const lead = await stopped.lead(() => (lost = true));
      expect(await other.lead(() => {})).toBe(undefined);
      proxy.block();
      let next: Awaited<ReturnType<PostgresReadModels['lead']>>;
      await expect.poll(async () => (next = await other.lead(() => {})) !== undefined, SOON).toBe(true);
      proxy.mend();
      await expect.poll(() => lost).toBe(true);
      await lead!.release();
      await next!.release();
    }));

  it('with the right to write are given back by a node that fails to begin, so that it or another can try again', async ({
    expect,
  }) => {
    const cluster = new Cluster(await server.newDatabase());
    try {
      const [first, second] = [await cluster.start(), await cluster.start()];
      const { readModels } = second.storage;
      const [lead, look] = [readModels.lead.bind(readModels), readModels.look.bind(readModels)];
      let failures = 0;
      readModels.lead = async (onLost) => {
        const got = await lead(onLost);
        if (got !== undefined && failures === 0) {
          readModels.look = () => {
            failures += 1;
            readModels.look = look;
            return Promise.reject(new StorageUnavailable('PostgreSQL: sorry, too many clients already'));
          };
        }
        return got;
      };
      await first.close();
      await expect.poll(() => second.store.projects).toBe(true);
      expect(failures).toBe(1);
    } finally {
      await cluster.dispose();
    }
  });
});
