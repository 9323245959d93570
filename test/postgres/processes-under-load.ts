import { CosmosClient } from '@azure/cosmos';
import { expect } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { type Running, serve, temporaryFolder } from '../../packages/api/test/cli/process.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { Load } from './load.ts';
import { clientTarget, environmentOf, fsckOf, manage } from './processes.ts';
import type { TestServer } from './server.ts';

/** As short as possible, so that changes take effect within the run. */
const POLICY_DELAY_SECONDS = 1;

/**
 * Several processes of one store on this machine, all under load: items that stay, items with a ttl of a second that one node purges, a
 * container whose policy changes again and again, and creates of the same ids on every node.
 */
export async function processesUnderLoad(server: TestServer, count: number, seconds: number): Promise<void> {
  const double = await EventStoreDouble.start();
  try {
    const environment = environmentOf(await server.newDatabase(), double);
    const nodes: Running[] = [];
    for (let index = 0; index < count; index++) {
      const roles = index === 0 ? 'project,purge' : 'project';
      const options = ['--roles', roles, '--policy-delay', String(POLICY_DELAY_SECONDS), '--policy-grace', '0'];
      nodes.push(await serve(['--data', temporaryFolder(), ...options], environment));
    }
    const databases = nodes.map(({ endpoint }) => new CosmosClient({ endpoint, key: EMULATOR_KEY }).database('shop'));
    await databases[0]!.client.databases.create({ id: 'shop' });
    for (const [id, defaultTtl] of [
      ['kept', undefined],
      ['short', 1],
      ['changing', -1],
    ] as const) {
      await databases[0]!.containers.create({ id, partitionKey: '/id', ...(defaultTtl && { defaultTtl }) });
    }

    // A session for each node. The number in the item tells what a read must see, so each node reads its own items.
    const loads = databases.map((database, index) =>
      Load.start([clientTarget(database.container('kept'))], { workers: 3, prefix: `node${index}-` }),
    );
    const untilMs = performance.now() + seconds * 1000;
    const failures: unknown[] = [];
    const during = async (work: (turn: number) => Promise<unknown>) => {
      for (let turn = 0; performance.now() < untilMs; turn++) {
        await work(turn).catch((error: unknown) => failures.push(error));
      }
    };
    const winners: number[] = [];
    await Promise.all([
      during(async (turn) => {
        const attempts = await Promise.allSettled(
          databases.map((database) => database.container('kept').items.create({ id: `contested-${turn}`, n: 0 })),
        );
        winners.push(attempts.filter(({ status }) => status === 'fulfilled').length);
        for (const attempt of attempts) {
          if (attempt.status === 'rejected') expect(attempt.reason).toMatchObject({ code: 409 });
        }
      }),
      ...databases.flatMap((database, index) => [
        during((turn) => database.container('short').items.upsert({ id: `${index}-${turn}` })),
        during((turn) => database.container('changing').items.upsert({ id: `${index}-${turn % 50}`, turn })),
      ]),
      during(async (turn) => {
        // By another node each time, and one at a time, because changes of one container wait for each other.
        const database = databases[turn % count]!;
        await database
          .container('changing')
          .replace({ id: 'changing', partitionKey: { paths: ['/id'] }, defaultTtl: turn % 2 === 0 ? 1 : 3_600 });
        await new Promise((resolve) => setTimeout(resolve, (POLICY_DELAY_SECONDS * 1000) / 2));
      }),
    ]);
    for (const load of loads) await load.stop();
    expect(failures).toEqual([]);
    expect(winners.length).toBeGreaterThan(0);
    expect(winners.filter((won) => won !== 1)).toEqual([]);
    for (const [index, load] of loads.entries()) {
      expect(load.failures).toEqual([]);
      for (const item of load.items)
        load.judge(item, await clientTarget(databases[index]!.container('kept')).read(item.id));
      expect(load.wrong).toEqual([]);
    }

    // The items of one second: the node with the role purges each of them, once.
    const endpoint = nodes[0]!.endpoint;
    await expect
      .poll(
        async () => {
          const purge = (await manage(endpoint, 'GET', '/purge')) as { overdueItems: number; awaitingErasure: number };
          return purge.overdueItems + purge.awaitingErasure;
        },
        { timeout: 60_000, interval: 200 },
      )
      .toBe(0);
    for (const node of nodes) expect(await fsckOf(node.endpoint)).toMatchObject({ ok: true, problems: [] });
    for (const type of ['ItemExpired', 'ItemPurged']) {
      const streams = double.log.readForwards(undefined).filter((record) => record.type === type);
      expect(streams.length).toBeGreaterThan(0);
      expect(new Set(streams.map(({ stream }) => stream)).size).toBe(streams.length);
    }
    for (const node of nodes) {
      node.child.kill('SIGTERM');
      expect(await node.finished()).toMatchObject({ code: 0, stderr: '' });
    }
  } finally {
    double.stop();
  }
}
