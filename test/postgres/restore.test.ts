import { randomUUID } from 'node:crypto';
import { type Container, CosmosClient } from '@azure/cosmos';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import {
  cleanUp,
  command,
  epitaph,
  type Finished,
  type Running,
  serve,
  temporaryFolder,
} from '../../packages/api/test/cli/process.ts';
import { placeOf } from '@epitaph/storage/postgres/database.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { succeeds } from '../support/outcome.ts';
import { environmentOf, fsckOf, manage } from './processes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

const VAULT = 'epitaph_vault';

let server: TestServer;
let double: EventStoreDouble;
let url: string;
let environment: Readonly<Record<string, string>>;
let node: Running;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
beforeEach(async () => {
  if (whyNoPostgres !== undefined) return;
  double = await EventStoreDouble.start();
  url = await server.newDatabase();
  environment = environmentOf(url, double);
});
afterEach(() => {
  cleanUp();
  double?.stop();
});
afterAll(() => server?.dispose());

const start = async () => {
  node = await serve(['--data', temporaryFolder(), '--policy-delay', '1'], environment);
};
const stop = async () => {
  node.child.kill('SIGTERM');
  await node.finished();
};
const carts = async (): Promise<Container> => {
  const client = new CosmosClient({ endpoint: node.endpoint, key: EMULATOR_KEY });
  const { database } = await client.databases.createIfNotExists({ id: 'shop' });
  return (await database.containers.createIfNotExists({ id: 'carts', partitionKey: '/id' })).container;
};
const textOf = async (id: string) => (await (await carts()).item(id, id).read<{ text: string }>()).resource?.text;
const write = async (...ids: string[]) => {
  for (const id of ids) await (await carts()).items.create({ id, text: `text of ${id}` });
};
/** Deletes items, and waits until their content is erased. */
const erase = async (...ids: string[]) => eraseIn(await carts(), ...ids);
const eraseIn = async (container: Container, ...ids: string[]) => {
  const purgedTotal = async () =>
    ((await manage(node.endpoint, 'GET', '/purge')) as { purgedTotal: number }).purgedTotal;
  const before = await purgedTotal();
  for (const id of ids) await container.item(id, id).delete();
  await expect.poll(purgedTotal).toBe(before + ids.length);
};
const headNow = async () => (await command(['ledger', '--endpoint', node.endpoint])).stdout.trim();
/** Creates a store with one item, closes it, and returns the head of its ledger. */
async function headOfOne(): Promise<string> {
  await start();
  await write('kept');
  const head = await headNow();
  await stop();
  return head;
}
const copyOfKeys = () => TestServer.dump(url, VAULT);
const putBack = (keys: string) => TestServer.load(url, VAULT, keys);
const restore = (head: string, ...more: string[]): Promise<Finished> =>
  command(['restore', '--postgres', url, '--ledger-head', head, '--resume-purge', ...more], environment);
const explain = (id: string) =>
  manage(
    node.endpoint,
    'GET',
    `/dbs/shop/colls/carts/explain?id=${id}&partitionKey=${encodeURIComponent(`["${id}"]`)}`,
  );
const refusal = ({ code, stderr }: Finished) => [code, stderr];
const refusedStart = () => epitaph(['serve', '--port', '0', '--data', temporaryFolder()], environment);

describe.skipIf(whyNoPostgres !== undefined)(`servers that are restored from copies${skipReason}`, () => {
  it(
    'show nothing that was erased since the copy of the keys, because the log lists it',
    { timeout: 180_000 },
    async () => {
      await start();
      await write('kept', 'erased');
      const keys = copyOfKeys();
      await erase('erased');
      await write('late', 'late-and-erased');
      await erase('late-and-erased');
      // Containers that the copy does not know. The stream names of their items can't be computed again either.
      for (const id of ['newer', 'emptied']) {
        const { container } = await (await carts()).database.containers.create({ id, partitionKey: '/id' });
        await container.items.create({ id: 'one' });
        if (id === 'emptied') await eraseIn(container, 'one');
      }
      const head = await headNow();
      await stop();
      putBack(keys);

      expect(refusal(await refusedStart())).toEqual([
        2,
        expect.stringMatching(/older copy than the event log.*epitaph restore/s),
      ]);
      expect(refusal(await command(['restore', '--postgres', url], environment))).toEqual([
        2,
        expect.stringMatching(/--ledger-head is needed/),
      ]);
      const [count, hash] = head.split(':') as [string, string];
      expect(refusal(await restore(`${Number(count) + 1}:${hash}`))).toEqual([
        2,
        expect.stringMatching(
          /Keys were destroyed after the copy of the log and the copy of the keys were made.*Nothing was changed/s,
        ),
      ]);
      expect(refusal(await restore(head))).toEqual([2, expect.stringMatching(/it lacks 2 keys.*--accept-lost/s)]);

      const restored = await restore(head, '--accept-lost', '--json');
      expect([restored.code, restored.stderr]).toEqual([0, expect.anything()]);
      expect(JSON.parse(restored.stdout)).toEqual({
        keysDestroyed: 1,
        keysLost: 2,
        containersOfLostNames: 2,
        livesEnded: 2,
        purgePaused: false,
        items: 1,
        problems: [],
      });

      await start();
      expect(await textOf('kept')).toBe('text of kept');
      for (const id of ['erased', 'late', 'late-and-erased']) expect(await textOf(id)).toBe(undefined);
      expect(await explain('erased')).toMatchObject({ state: 'purged' });
      expect(await explain('late')).toMatchObject({
        state: 'purged',
        sentence: expect.stringContaining('system:restore'),
      });
      // No number of a key is given out twice.
      await write('erased', 'late', 'new');
      for (const id of ['erased', 'late', 'new']) expect(await textOf(id)).toBe(`text of ${id}`);
      // The items named with the lost secret are recorded as lost. New items get names by a new secret.
      for (const id of ['newer', 'emptied']) {
        const another = await (await carts()).database.container(id).items.create({ id: 'one' });
        expect(another.statusCode).toBe(201);
      }
      expect(await fsckOf(node.endpoint)).toMatchObject({ ok: true, problems: [] });
      const verified = await command(['verify', 'log', '--endpoint', node.endpoint]);
      expect([verified.code, verified.stdout]).toEqual([0, expect.anything()]);
      await stop();
      // It need not be done twice, and doing it again loses nothing.
      expect(await restore(head)).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(/^Log and keys match again: 6 items/),
      });
    },
  );

  it.each([
    { what: 'lacks', damage: 'DELETE FROM epitaph_vault.secrets' },
    { what: 'has damaged', damage: 'UPDATE epitaph_vault.secrets SET wrapped = substr(wrapped, 1, 20)' },
  ])(
    'are not brought into agreement if the copy of the keys $what the secrets for the items’ names',
    { timeout: 60_000 },
    async ({ damage }) => {
      const head = await headOfOne();
      const keys = copyOfKeys();
      await server.run(`${damage} WHERE name <> 'container proof'`, url);
      expect(refusal(await restore(head, '--accept-lost'))).toEqual([
        2,
        expect.stringMatching(/keys of items in 1 containers, but the secrets.*Nothing was changed/s),
      ]);
      putBack(keys);
      expect(await restore(head)).toMatchObject({ code: 0 });
      await start();
      expect(await explain('kept')).toMatchObject({ state: 'live' });
      await stop();
    },
  );

  it(
    'warn that proofs are signed with a new key if the copy of the keys lacks the former one',
    { timeout: 60_000 },
    async () => {
      const head = await headOfOne();
      const lose = () => server.run("DELETE FROM epitaph_vault.secrets WHERE name = 'container proof'", url);
      const told = expect.stringContaining('proofs are signed with a new key');
      await lose();
      for (const expected of [told, expect.not.stringContaining('proofs are signed with a new key')]) {
        await start();
        await stop();
        expect((await node.finished()).stderr).toEqual(expected);
      }
      await lose();
      expect(await restore(head)).toMatchObject({
        code: 0,
        stderr: told,
      });
    },
  );

  it(
    'are not brought into agreement while the log has an unreadable event: the message names it, and an older copy works',
    { timeout: 60_000 },
    async () => {
      const head = await headOfOne();
      const whole = double.log.copy();
      const metadata = { version: 1, occurredAtMs: 1, actor: 'key:primary', $correlationId: 'a', $causationId: 'a' };
      const damaged = { id: randomUUID(), type: 'ItemUpserted', contentType: 'application/json' };
      const bytes = { metadata: Buffer.from(JSON.stringify(metadata)), data: Buffer.from('{"cut') };
      double.log.append('item-a.b.0', -1, [{ ...damaged, ...bytes }]);
      expect(refusal(await restore(head))).toEqual([
        2,
        expect.stringMatching(
          /^epitaph: The restore failed, because the event log.*ItemUpserted at \d+ is damaged.*older copy/,
        ),
      ]);
      double.log = whole;
      expect(await restore(head)).toMatchObject({ code: 0 });
    },
  );

  it(
    'own the log alone: another database is refused, and so is the one that they were copied from',
    { timeout: 180_000 },
    async () => {
      const belongsTo = (to: string) => [
        2,
        expect.stringContaining(`belongs to the keys of the PostgreSQL database at ${placeOf(to)},`),
      ];
      const first = url;
      await start();
      await stop();
      environment = environmentOf(await server.newDatabase(), double);
      expect(refusal(await refusedStart())).toEqual(belongsTo(first));

      environment = environmentOf(first, double);
      const head = await headOfOne();
      const keys = copyOfKeys();
      url = await server.newDatabase();
      putBack(keys);
      environment = environmentOf(url, double);
      expect(refusal(await restore(head))).toEqual([0, expect.anything()]);
      environment = environmentOf(first, double);
      expect(refusal(await refusedStart())).toEqual(belongsTo(url));
      environment = environmentOf(url, double);
      await start();
      expect(await textOf('kept')).toBe('text of kept');
    },
  );

  it(
    'show nothing that was erased since the copy of the log, because the vault knows it',
    { timeout: 180_000 },
    async () => {
      await start();
      await write('kept', 'erased');
      const log = double.log.copy();
      const hold = ['hold', 'place', 'shop', 'carts', 'case-7', '--partition-key', 'kept', '--reason', 'litigation'];
      expect(await command([...hold, '--endpoint', node.endpoint])).toMatchObject({ code: 0 });
      await erase('erased');
      await write('late');
      const head = await headNow();
      await stop();
      double.log = log;

      expect(refusal(await refusedStart())).toEqual([
        2,
        expect.stringMatching(/read models in PostgreSQL are ahead.*epitaph restore/s),
      ]);
      const restored = await command(['restore', '--postgres', url, '--ledger-head', head, '--json'], environment);
      expect(JSON.parse(restored.stdout)).toEqual({
        keysDestroyed: 0,
        keysLost: 0,
        containersOfLostNames: 0,
        livesEnded: 1,
        purgePaused: true,
        items: 1,
        problems: [],
      });
      await start();
      expect(await textOf('kept')).toBe('text of kept');
      for (const id of ['erased', 'late']) expect(await textOf(id)).toBe(undefined);
      expect(await explain('erased')).toMatchObject({
        state: 'purged',
        sentence: expect.stringContaining('system:restore'),
      });
      // The vault has the hold as well, so it was not lost with its record.
      expect(await manage(node.endpoint, 'GET', '/dbs/shop/colls/carts/holds')).toMatchObject({
        holds: [{ id: 'case-7', state: 'standing', placedBy: 'system:restore' }],
      });
      expect(await explain('kept')).toMatchObject({ state: 'live', holds: ['case-7'] });
      // Policies that were lost with the log can be set again before anything else is erased.
      expect(await manage(node.endpoint, 'GET', '/purge')).toMatchObject({ state: 'paused', awaitingErasure: 0 });
      await write('late');
      expect(await fsckOf(node.endpoint)).toMatchObject({ ok: true, problems: [] });
      await stop();
    },
  );

  it(
    'don’t start with keys older than the log, even if none was destroyed since, because numbers would be given out twice',
    { timeout: 180_000 },
    async () => {
      await start();
      await write('kept');
      const keys = copyOfKeys();
      await write('late');
      const head = await headNow();
      await stop();
      putBack(keys);
      expect(refusal(await refusedStart())).toEqual([
        2,
        expect.stringMatching(/older copy than the event log.*later writes.*epitaph restore/s),
      ]);
      expect(refusal(await restore(head, '--accept-lost'))).toEqual([0, expect.anything()]);
      await start();
      expect(await textOf('kept')).toBe('text of kept');
      expect(await textOf('late')).toBe(undefined);
      await stop();
    },
  );

  it(
    'end items whose keys were lost, leave the numbers that a running node has given out since, and erase what was erased',
    { timeout: 180_000 },
    async () => {
      await start();
      await write('kept');
      await stop();
      const keys = copyOfKeys();
      await start();
      await write('late');
      // An older copy replaces the server while the node runs.
      await server.takePlace(url, VAULT, keys);
      await expect.poll(() => succeeds(write('again'))).toBe(true);
      const keyOf = (id: string) =>
        double.log
          .readForwards(undefined)
          .filter(({ type }) => type === 'ItemUpserted')
          .map(
            ({ metadata }) =>
              (JSON.parse(Buffer.from(metadata).toString()) as { data: { id: string; key: number } }).data,
          )
          .find((data) => data.id === id)!.key;
      expect(keyOf('again')).toBeGreaterThan(keyOf('late'));
      await erase('again');
      const head = await headNow();
      await stop();
      expect(refusal(await restore(head, '--accept-lost'))).toEqual([0, expect.anything()]);
      await start();
      expect(await textOf('kept')).toBe('text of kept');
      for (const id of ['late', 'again']) expect(await textOf(id)).toBe(undefined);
      expect(await fsckOf(node.endpoint)).toMatchObject({ ok: true, problems: [] });
      await stop();
    },
  );

  it(
    'are refused without a record of what was erased since, and while a node is at work',
    { timeout: 180_000 },
    async () => {
      await start();
      await write('kept', 'erased');
      await erase('kept');
      const [log, keys] = [double.log.copy(), copyOfKeys()];
      const before = await headNow();
      await erase('erased');
      const head = await headNow();
      expect(head).not.toBe(before);
      expect(refusal(await restore(head))).toEqual([2, expect.stringMatching(/Nodes use the key vault/)]);
      await stop();
      double.log = log;
      putBack(keys);
      expect(refusal(await restore(head))).toEqual([
        2,
        expect.stringMatching(/Keys were destroyed after the copy of the log and the copy of the keys were made/),
      ]);
    },
  );
});
