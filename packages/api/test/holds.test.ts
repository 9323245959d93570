import { expect, it } from 'vitest';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { handleContainer } from '@epitaph/core/container/handle.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { vaultHoldId } from '@epitaph/core/retention/hold-names.ts';
import { MemoryKeyVault } from '@epitaph/core/testing/memory-key-vault.ts';
import { Catalog } from '@epitaph/projections/catalog/catalog.ts';
import { Holds } from '../src/store/retention/holds.ts';
import type { StoreParts } from '../src/store/parts.ts';

const HOUR_MS = 3_600_000;
const NOW_MS = 10 * HOUR_MS;
const RID = 'rid';

it.each([
  { nodes: undefined, left: ['anew'] },
  { nodes: {}, left: ['just now', 'anew'] },
])(
  'holds without a record are removed by a start, beside other nodes ($nodes) only old ones, and not one that is placed again meanwhile',
  async ({ nodes, left }) => {
    const log = new MemoryEventLog();
    const vault = new MemoryKeyVault();
    const context = { nowMs: 1, actor: 'a', correlationId: 'c', newId: () => crypto.randomUUID() };
    await handleContainer(
      log,
      context,
      RID,
      {
        type: 'CreateContainer',
        databaseRid: 'd',
        name: 'c',
        definition: { partitionKey: { paths: ['/pk'], kind: 'Hash' }, indexingPolicy: { indexingMode: 'consistent' } },
        defaultTtl: null,
        policyGraceSeconds: 0,
        nowMs: 1,
      },
      async () => undefined,
    );
    const catalog = new Catalog();
    catalog.put({ kind: 'container', number: 1, state: foldContainer(log.readStream(containerStream(RID)))! });
    const place = (name: string, placedAtMs: number) =>
      vault.placeHold({
        holdId: vaultHoldId(RID, name),
        containerRid: RID,
        scope: { kind: 'container', containerRid: RID },
        placedAtMs,
      });
    await place('long ago', NOW_MS - 2 * HOUR_MS);
    await place('just now', NOW_MS - 1_000);
    await place('anew', NOW_MS - 2 * HOUR_MS);
    const ports = {
      log,
      vault: Object.assign(Object.create(vault), {
        floors: async () => {
          await place('anew', NOW_MS);
          return vault.floors();
        },
      }) as MemoryKeyVault,
      clock: { now: () => NOW_MS },
      nodes,
    };
    const parts = { ports, catalog } as unknown as StoreParts;
    const unasked = {} as never;
    await new Holds(parts, unasked, unasked, unasked).settleAll();
    expect(vault.holds().map(({ holdId }) => holdId)).toEqual(left.map((name) => vaultHoldId(RID, name)));
  },
);
