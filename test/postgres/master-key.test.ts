import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { CosmosClient } from '@azure/cosmos';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { openDatabase, PostgresDatabase, UnusableServer } from '@epitaph/storage/postgres/database.ts';
import { LOCK_SPACE, locks } from '@epitaph/storage/postgres/migrations.ts';
import { PostgresKeyVault } from '@epitaph/storage/postgres/postgres-key-vault.ts';
import {
  checkPostgresMasterKey,
  rotatePostgresMasterKey,
  withoutNodes,
  WorkCutShort,
} from '@epitaph/storage/postgres/rotate-master-key.ts';
import { cleanUp, command, epitaph, serve, temporaryFolder } from '../../packages/api/test/cli/process.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { environmentOf, fsckOf } from './processes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

// The test searches the server's files, so it needs a server of its own.
const why =
  process.env['EPITAPH_TEST_POSTGRES'] === undefined
    ? whyNoPostgres
    : 'the files of the server that EPITAPH_TEST_POSTGRES names are out of reach';
const reason = why === undefined ? skipReason : ` [skipped: ${why}]`;

let server: TestServer;
let double: EventStoreDouble;
beforeAll(async () => {
  if (why !== undefined) return;
  server = await TestServer.start();
  double = await EventStoreDouble.start();
});
afterEach(cleanUp);
afterAll(async () => {
  double?.stop();
  await server?.dispose();
});

describe.skipIf(why !== undefined)(`the master key of keys in PostgreSQL${reason}`, () => {
  it(
    'is changed while no node is at work, and afterwards the old key opens nothing',
    { timeout: 120_000 },
    async () => {
      const url = await server.newDatabase();
      const environment = environmentOf(url, double);
      const next = randomBytes(32).toString('base64');
      const rotate = (current: string, to: string | undefined) =>
        command(['keys', 'rotate-master'], {
          EPITAPH_POSTGRES: url,
          EPITAPH_MASTER_KEY: current,
          ...(to === undefined ? {} : { EPITAPH_NEW_MASTER_KEY: to }),
        });
      const old = environment['EPITAPH_MASTER_KEY']!;
      const wrappings = async () => {
        const database = new PostgresDatabase(url, 1);
        const rows = await database.query<{ wrapped: Buffer }>(
          'SELECT wrapped FROM epitaph_vault.root UNION ALL SELECT wrapped FROM epitaph_vault.secrets',
        );
        await database.close();
        return rows.map(({ wrapped }) => wrapped);
      };
      const held = (bytes: Buffer) =>
        server
          .files()
          .filter((file) => file.bytes.includes(bytes))
          .map(({ file }) => file);

      let node = await serve(['--data', temporaryFolder()], environment);
      const items = async () => {
        const client = new CosmosClient({ endpoint: node.endpoint, key: EMULATOR_KEY });
        const { database } = await client.databases.createIfNotExists({ id: 'shop' });
        return (await database.containers.createIfNotExists({ id: 'carts', partitionKey: '/id' })).container;
      };
      await (await items()).items.create({ id: 'a', text: 'from before' });
      const busy = await rotate(old, next);
      expect([busy.code, busy.stderr]).toEqual([
        2,
        expect.stringMatching(/Nodes use the key vault .* Stop all of them first/),
      ]);
      node.child.kill('SIGTERM');
      await node.finished();

      const before = await wrappings();
      expect(before.length).toBeGreaterThan(1);
      for (const wrapping of before) expect(held(wrapping)).not.toEqual([]);
      for (const [current, to, words] of [
        [next, randomBytes(32).toString('base64'), /not the one in force for this key vault\. Nothing was changed/],
        [old, undefined, /EPITAPH_NEW_MASTER_KEY/],
        [old, 'short', /32 bytes/],
      ] as const) {
        const refused = await rotate(current, to);
        expect([refused.code, refused.stderr]).toEqual([2, expect.stringMatching(words)]);
      }
      expect(await wrappings()).toEqual(before);

      expect(await rotate(old, next)).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(/^Rewrapped the root .* 3 in total/),
      });
      for (const wrapping of before) expect(held(wrapping)).toEqual([]);
      // As after a crash just before the end.
      expect(await rotate(old, next)).toMatchObject({ code: 0, stdout: expect.stringMatching(/ 0 in total/) });

      const file = path.join(temporaryFolder(), 'master.key');
      for (const [key, code] of [
        [old, 2],
        [next, 0],
      ] as const) {
        writeFileSync(file, key);
        expect((await command(['keys', 'verify-master', file, '--postgres', url])).code).toBe(code);
      }
      const refused = await epitaph(['serve', '--port', '0', '--data', temporaryFolder()], environment);
      expect([refused.code, refused.stderr]).toEqual([
        2,
        expect.stringMatching(/master key is not the one in force .* before a change/),
      ]);
      node = await serve(['--data', temporaryFolder()], { ...environment, EPITAPH_MASTER_KEY: next });
      expect((await (await items()).item('a', 'a').read()).resource).toMatchObject({ text: 'from before' });
      await (await items()).items.create({ id: 'b', text: 'from after' });
      await (await items()).item('a', 'a').delete();
      await expect.poll(async () => (await (await items()).item('b', 'b').read()).resource).toMatchObject({ id: 'b' });
      expect(await fsckOf(node.endpoint)).toMatchObject({ ok: true, problems: [] });
    },
  );

  it('is checked, and refused if it is wrong, without upgrading a vault of an older version', async () => {
    const [current, next, wrong] = [1, 2, 3].map(() => createSecretKey(randomBytes(32))) as [
      KeyObject,
      KeyObject,
      KeyObject,
    ];
    const url = await server.newDatabase();
    const database = await openDatabase(url);
    await (await PostgresKeyVault.open({ database, master: current })).close();
    await database.close();
    await server.run('UPDATE epitaph_vault.schema_version SET version = 4', url);
    await server.run('ALTER TABLE epitaph_vault.log DROP COLUMN owner', url);
    const version = () => server.run('SELECT version FROM epitaph_vault.schema_version', url);
    await checkPostgresMasterKey(url, current);
    await expect(checkPostgresMasterKey(url, wrong)).rejects.toThrow('does not open the key vault');
    await expect(rotatePostgresMasterKey({ url, current: wrong, next })).rejects.toThrow('Nothing was changed');
    expect(await version()).toEqual([{ version: 4 }]);
    expect(await rotatePostgresMasterKey({ url, current, next })).toBe(1);
    expect(await version()).toEqual([{ version: 6 }]);
  });

  describe('and the lock that keeps nodes from starting meanwhile', () => {
    const [current, next] = [createSecretKey(randomBytes(32)), createSecretKey(randomBytes(32))];
    const GUARD = `SELECT pg_terminate_backend(pid) FROM pg_locks
      WHERE locktype = 'advisory' AND classid = ${LOCK_SPACE} AND objid = ${locks.nodes} AND mode = 'ExclusiveLock'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
    const vaultAt = async (url: string) => {
      const database = await openDatabase(url);
      await (await PostgresKeyVault.open({ database, master: current })).close();
      await database.close();
    };
    const generations = (url: string) =>
      server.run(
        'SELECT r.generation AS root, e.generation AS erased FROM epitaph_vault.root r, epitaph_vault.erased e',
        url,
      );

    it('ends the work when it is lost, because nodes may start then: nothing of a transaction is left', async () => {
      const url = await server.newDatabase();
      await vaultAt(url);
      const work = withoutNodes(url, [current], (database) =>
        database.transaction(async (sql) => {
          await sql.query('INSERT INTO epitaph_vault.restoring (one) VALUES (1)');
          await server.run(GUARD, url);
          await new Promise((resolve) => setTimeout(resolve, 1_000));
          await sql.query('UPDATE epitaph_vault.log SET owner = gen_random_uuid()');
        }),
      );
      await expect(work).rejects.toThrow(WorkCutShort);
      await expect(work).rejects.toThrow(/lost in the middle.* Before you start a node, run the same command again/);
      expect(await server.run('SELECT 1 FROM epitaph_vault.restoring', url)).toEqual([]);
    });

    it('may be lost at the end of a change: a root that a node makes then is not taken for erased', async () => {
      const url = await server.newDatabase();
      await vaultAt(url);
      const database = await openDatabase(url);
      const changed = database.transaction(async (sql) => {
        // Recording what is erased has to wait; reading it does not.
        await sql.query('LOCK TABLE epitaph_vault.erased IN EXCLUSIVE MODE');
        const rotating = rotatePostgresMasterKey({ url, current, next }).catch((error: unknown) => error);
        const waiting =
          "SELECT count(*) AS waiting FROM pg_locks WHERE relation = 'epitaph_vault.erased'::regclass AND NOT granted";
        await expect.poll(() => server.run(waiting, url)).toEqual([{ waiting: 1 }]);
        await server.run(GUARD, url);
        // As a node does that destroys a key, and dies before the former root is erased.
        await server.run('UPDATE epitaph_vault.root SET generation = generation + 1', url);
        return rotating;
      });
      expect(await changed).toBeInstanceOf(WorkCutShort);
      await expect.poll(() => generations(url)).toEqual([{ root: 3, erased: 2 }]);
      await database.close();
    });

    it('does not stop a node that was cut off: with the old key that node finds nothing, and says why', async () => {
      const url = await server.newDatabase();
      const database = await openDatabase(url);
      const vault = await PostgresKeyVault.open({ database, master: current });
      const { key, stored } = await vault.createKey('item-rid.life.0');
      await stored;
      await vault.containerSecret('rid');
      const ears = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^epitaph [0-9]'";
      await server.run(`${ears} AND datname = current_database()`, url);
      expect(await rotatePostgresMasterKey({ url, current, next })).toBe(2);
      // Its connection is gone, and with it what it had cached.
      const refusal = /master key is not the one/;
      await expect(vault.findKey(key.keyId, 'item-rid.life.0')).rejects.toThrow(refusal);
      await expect(vault.containerSecret('rid')).rejects.toThrow(refusal);
      // It makes no secret either, which nobody else could open.
      await expect(vault.containerSecret('another')).rejects.toThrow(refusal);
      await vault.close();
      await database.close();
    });

    it('tells which key is in force if the server keeps its old files after all', async () => {
      const url = await server.newDatabase();
      await vaultAt(url);
      await server.run("SELECT pg_create_physical_replication_slot('late', true)");
      try {
        const refused = rotatePostgresMasterKey({ url, current, next });
        await expect(refused).rejects.toThrow(UnusableServer);
        await expect(refused).rejects.toThrow(
          /^The new master key is in force.*pg_replication_slots.*Run this command again/,
        );
      } finally {
        await server.run("SELECT pg_drop_replication_slot('late')");
      }
      expect(await rotatePostgresMasterKey({ url, current, next })).toBe(0);
      expect(await generations(url)).toEqual([{ root: 2, erased: 2 }]);
    });
  });
});
