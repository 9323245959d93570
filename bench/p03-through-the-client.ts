/**
 * P3: creates, point reads and upserts of 1 KB documents through `@azure/cosmos`, 32 at a time, against our server,
 * a server of canned answers (the client's own ceiling) and `@vercel/cosmosdb-server`. Server and client are a
 * process each.
 *
 * `@vercel/cosmosdb-server` closes each connection after its response, so a client spends most of its time on connecting.
 * So it is measured twice: as its command line starts it, and with an option that is documented only in its code.
 */
import { type Bench, closeAll, type Row, rowOf, takeTurns } from './support/bench.ts';
import { startClient } from './support/cosmos-client.ts';
import { startEpitaphServer, startPeerServer } from './support/servers.ts';

const SLICE = 1_024;
/**
 * The number of slices until the code of all sides is compiled. Before that, ours is at a disadvantage, since there is more
 * of it. After 12 slices V8's threads still take 20 µs of each create; after 24 and more, 10 µs.
 */
const WARM_UP = 24;
const WORKS = ['create', 'read', 'upsert'] as const;
const PEERS = [
  { factory: 'cannedServer', name: 'canned answers', options: {}, limit: 0.8 },
  { factory: 'cosmosdbServer', name: '@vercel/cosmosdb-server', options: {}, limit: 3 },
  {
    factory: 'cosmosdbServer',
    name: '@vercel/cosmosdb-server, connections kept open',
    options: { keepAlive: true },
    limit: undefined,
  },
] as const;

export const bench: Bench = {
  id: 'P3',
  title: 'Through the JavaScript client',
  async run(context) {
    const ours = await startClient(context, await startEpitaphServer(context));
    const peers = [];
    for (const { factory, options } of PEERS) {
      peers.push(await startClient(context, await startPeerServer(context, factory, options)));
    }
    const rows: Row[] = [];
    for (const work of WORKS) {
      const sides = [
        { contender: ours, work, argument: SLICE },
        ...peers.map((contender) => ({ contender, work, argument: SLICE, mayFail: true })),
      ];
      const [our, ...others] = await takeTurns(context, sides, WARM_UP);
      PEERS.forEach(({ name, limit }, index) =>
        rows.push(
          rowOf({
            bench: 'P3',
            work: `${work}, 32 at a time`,
            unit: '/s',
            ours: our!,
            peer: { name, rounds: others[index]! },
            target: limit === undefined ? null : { of: 'ratio', is: 'at-least', limit },
          }),
        ),
      );
    }
    await closeAll([ours, ...peers]);
    return rows;
  },
};
