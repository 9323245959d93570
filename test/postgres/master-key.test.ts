import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { CosmosClient } from '@azure/cosmos';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { PostgresDatabase } from '@epitaph/storage/postgres/database.ts';
import { cleanUp, epitaph, serve, temporaryFolder } from '../../packages/api/test/cli/process.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { environmentOf, fsckOf } from './processes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

// Files are searched, so the server must be one of ours.
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
  it('is changed while no node is at work; then the old one opens nothing there', { timeout: 120_000 }, async () => {
    const url = await server.newDatabase();
    const environment = environmentOf(url, double);
    const next = randomBytes(32).toString('base64');
    const rotate = (current: string, to: string | undefined) =>
      epitaph(['keys', 'rotate-master'], {
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
    expect([busy.code, busy.stderr]).toEqual([2, expect.stringMatching(/Nodes are at work .* Stop all of them first/)]);
    node.child.kill('SIGTERM');
    await node.finished();

    const before = await wrappings();
    expect(before.length).toBeGreaterThan(1);
    for (const wrapping of before) expect(held(wrapping)).not.toEqual([]);
    for (const [current, to, words] of [
      [next, randomBytes(32).toString('base64'), /not the one this key vault was made with. Nothing was changed/],
      [old, undefined, /EPITAPH_NEW_MASTER_KEY/],
      [old, 'short', /32 bytes/],
    ] as const) {
      const refused = await rotate(current, to);
      expect([refused.code, refused.stderr]).toEqual([2, expect.stringMatching(words)]);
    }
    expect(await wrappings()).toEqual(before);

    expect(await rotate(old, next)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^Wrapped anew: .* 3 in all/),
    });
    for (const wrapping of before) expect(held(wrapping)).toEqual([]);
    // As after a crash just before the end.
    expect(await rotate(old, next)).toMatchObject({ code: 0, stdout: expect.stringMatching(/ 0 in all/) });

    const file = path.join(temporaryFolder(), 'master.key');
    for (const [key, code] of [
      [old, 2],
      [next, 0],
    ] as const) {
      writeFileSync(file, key);
      expect((await epitaph(['keys', 'verify-master', file, '--postgres', url])).code).toBe(code);
    }
    const refused = await epitaph(['serve', '--port', '0', '--data', temporaryFolder()], environment);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringMatching(/master key is not the one/)]);
    node = await serve(['--data', temporaryFolder()], { ...environment, EPITAPH_MASTER_KEY: next });
    expect((await (await items()).item('a', 'a').read()).resource).toMatchObject({ text: 'from before' });
    await (await items()).items.create({ id: 'b', text: 'from after' });
    await (await items()).item('a', 'a').delete();
    await expect.poll(async () => (await (await items()).item('b', 'b').read()).resource).toMatchObject({ id: 'b' });
    expect(await fsckOf(node.endpoint)).toMatchObject({ ok: true, problems: [] });
  });
});
