/**
 * P5: queries over 5,000 items of 1 KB in 100 partitions through `@azure/cosmos`, one after the other: all items of one
 * partition (50), a filter over all partitions (about 50 match), the first 50 of an ORDER BY, and a SUM. Then the same filter
 * in a container that keeps the filter's path in clear, compared with the container that does not.
 */
import { type Bench, closeAll, rowOf, takeTurns } from './support/bench.ts';
import { startClient } from './support/cosmos-client.ts';
import { startEpitaphServer, startPeerServer } from './support/servers.ts';

const ITEMS = 5_000;
const WORKS = [
  { work: 'partition', name: 'all of a partition' },
  { work: 'filter', name: 'a filter over all partitions' },
  { work: 'orderBy', name: 'TOP 50 of an ORDER BY' },
  { work: 'sum', name: 'SUM' },
] as const;
/** The number of queries of a slice. The peer executes about 20 per second. */
const OUR_SLICE = 50;
const PEER_SLICE = 2;

export const bench: Bench = {
  id: 'P5',
  title: 'Queries through the JavaScript client',
  async run(context) {
    const server = await startEpitaphServer(context);
    const ours = await startClient(context, server, { items: ITEMS });
    const peer = await startClient(context, await startPeerServer(context, 'cosmosdbServer'), { items: ITEMS });
    const rows = [];
    for (const { work, name } of WORKS) {
      const [our, others] = await takeTurns(context, [
        { contender: ours, work, argument: OUR_SLICE },
        { contender: peer, work, argument: PEER_SLICE, mayFail: true },
      ]);
      rows.push(
        rowOf({
          bench: 'P5',
          work: name,
          unit: '/s',
          ours: our!,
          peer: { name: '@vercel/cosmosdb-server', rounds: others! },
          target: { of: 'ratio', is: 'at-least', limit: 20 },
        }),
      );
    }
    const clear = await startClient(context, server, { items: ITEMS, container: 'clear', clearPath: '/count' });
    const [byPath, without] = await takeTurns(context, [
      { contender: clear, work: 'filter', argument: OUR_SLICE },
      { contender: ours, work: 'filter', argument: OUR_SLICE },
    ]);
    rows.push(
      rowOf({
        bench: 'P5',
        work: 'the filter by a clear path',
        unit: '/s',
        ours: byPath!,
        peer: { name: 'without the clear path', rounds: without! },
        target: null,
      }),
    );
    await closeAll([ours, peer, clear]);
    return rows;
  },
};
