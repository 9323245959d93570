import { CosmosClient } from '@azure/cosmos';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { cleanUp, type Running, serve, temporaryFolder } from '../../packages/api/test/cli/process.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { Balancer } from './balancer.ts';
import { Load } from './load.ts';
import { clientTarget, countWrites, environmentOf, fsckOf } from './processes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

let server: TestServer;
let double: EventStoreDouble;
let balancer: Balancer;
beforeAll(async () => {
  if (whyNoPostgres !== undefined) return;
  server = await TestServer.start();
  double = await EventStoreDouble.start();
  balancer = await Balancer.start();
});
afterEach(cleanUp);
afterAll(async () => {
  await balancer?.close();
  double?.stop();
  await server?.dispose();
});

describe.skipIf(whyNoPostgres !== undefined)(`a rolling restart${skipReason}`, () => {
  it(
    'fails no request of a client behind a balancer, loses nothing, and shows each client its own writes',
    {
      timeout: 120_000,
    },
    async () => {
      const environment = environmentOf(await server.newDatabase(), double);
      const start = async (): Promise<Running> => {
        const node = await serve(['--data', temporaryFolder(), '--drain', '1'], environment);
        await balancer.add(node.endpoint);
        return node;
      };
      let nodes = [await start(), await start()];
      const client = new CosmosClient({ endpoint: balancer.endpoint, key: EMULATOR_KEY });
      const { database } = await client.databases.create({ id: 'shop' });
      const { container } = await database.containers.create({ id: 'sessions', partitionKey: '/id' });
      const load = Load.start([clientTarget(container)], { workers: 6 });
      await load.goesOn(30);
      // Each in turn, the one that projects first.
      for (const node of nodes) {
        node.child.kill('SIGTERM');
        expect(await node.finished()).toMatchObject({ code: 0, stderr: '' });
        balancer.remove(node.endpoint);
        await load.goesOn(30);
        nodes = [...nodes, await start()].filter((other) => other !== node);
        await load.goesOn(30);
      }
      await load.stop();
      expect(load.failures).toEqual([]);
      for (const item of load.items) load.judge(item, await clientTarget(container).read(item.id));
      expect(load.wrong).toEqual([]);
      expect(countWrites(double)).toBe(load.acknowledged);
      for (const node of nodes) expect(await fsckOf(node.endpoint)).toMatchObject({ ok: true, problems: [] });
    },
  );
});
