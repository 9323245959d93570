import { describe, expect, it } from 'vitest';
import { Random } from './random.ts';
import { simulate } from './simulation.ts';
import { World } from './world.ts';

/**
 * The number of seeds in CI, with this many commands each. Before a release 10,000 others of 60 run: `npm run simulate -- --seed 1 --count
 * 10000`.
 */
const SEEDS = 75;
const LENGTH = 38;
const PER_TEST = 25;

describe('the store agrees with the model', () => {
  for (let first = 1; first <= SEEDS; first += PER_TEST) {
    const last = first + PER_TEST - 1;
    it(`through random commands, crashes, faults and jumping clocks of the seeds ${first} to ${last}`, async () => {
      for (let seed = first; seed <= last; seed++) await simulate(seed, LENGTH);
    }, 120_000);
  }

  it('on what has expired for ever when the policy that expired it is replaced within its own millisecond, also over a restart', async () => {
    for (const between of ['nothing', 'purge', 'restart', 'purge and restart']) {
      const world = await World.open(new Random(1), 1_700_000_000_500);
      await world.run({ kind: 'create-container', container: 'c1', policy: null });
      const document = { id: 'a', pk: 'x', v: 1 };
      await world.run({ kind: 'write', operation: 'create', container: 'c1', item: 'x/a', document });
      await world.advance(100_000);
      await world.run({ kind: 'policy', container: 'c1', policy: 1 });
      await world.check();
      if (between.startsWith('purge')) await world.run({ kind: 'purge' });
      if (between.endsWith('restart')) await world.restart();
      await world.run({ kind: 'policy', container: 'c1', policy: null });
      await world.check();
      await world.run({ kind: 'purge' });
      await world.checkPurged();
      await world.close();
    }
  });

  it('on why an item ended that is erased on request while its partition key is deleted, also as read from the log', async () => {
    const erase = { kind: 'erase', container: 'c1', item: 'x/a' } as const;
    const leave = { kind: 'delete-partition', container: 'c1', partition: 'x' } as const;
    for (const commands of [
      [erase, leave],
      [leave, erase],
    ]) {
      const world = await World.open(new Random(1), 1_700_000_000_500);
      await world.run({ kind: 'create-container', container: 'c1', policy: null });
      const document = { id: 'a', pk: 'x', v: 1 };
      await world.run({ kind: 'write', operation: 'create', container: 'c1', item: 'x/a', document });
      await world.run(...commands);
      await world.run({ kind: 'purge' });
      await world.checkPurged();
      await world.run({ kind: 'rebuild' });
      await world.checkPurged();
      await world.close();
    }
  });

  it('on why an item ended whose partition key was deleted within the millisecond in which a policy began, also over a restart', async () => {
    for (const restarts of [false, true]) {
      const world = await World.open(new Random(1), 1_700_000_000_500);
      await world.run({ kind: 'create-container', container: 'c1', policy: null });
      const document = { id: 'a', pk: 'x', v: 1 };
      await world.run({ kind: 'write', operation: 'create', container: 'c1', item: 'x/a', document });
      await world.advance(100_000);
      await world.run({ kind: 'delete-partition', container: 'c1', partition: 'x' });
      if (restarts) await world.restart();
      await world.run({ kind: 'policy', container: 'c1', policy: 1 });
      await world.check();
      await world.run({ kind: 'purge' });
      await world.checkPurged();
      await world.close();
    }
  });

  it('on the record of what an interrupted purge had erased, whatever keeps ended items since', async () => {
    for (const write of [1, 2, 3, 4]) {
      const world = await World.open(new Random(1), 1_700_000_000_500);
      await world.run({ kind: 'create-container', container: 'c2', policy: 1 });
      const document = { id: 'a', pk: 'x', v: 1, u: 1 };
      await world.run({ kind: 'write', operation: 'create', container: 'c2', item: 'x/a', document });
      await world.advance(2_000);
      await world.runWithFault(write, 'before', { kind: 'purge' });
      await world.run({ kind: 'window', container: 'c2', seconds: 600 });
      await world.run({ kind: 'purge' });
      await world.checkPurged();
      await world.close();
    }
  });

  it('that no hold prevents an erasure whose key an interrupted purge had destroyed', async () => {
    for (const write of [1, 2, 3, 4]) {
      const world = await World.open(new Random(1), 1_700_000_000_500);
      await world.run({ kind: 'create-container', container: 'c1', policy: 1 });
      const document = { id: 'a', pk: 'x', v: 1 };
      await world.run({ kind: 'write', operation: 'create', container: 'c1', item: 'x/a', document });
      await world.advance(2_000);
      await world.runWithFault(write, 'before', { kind: 'purge' });
      const scope = { kind: 'items', items: ['x/a'] } as const;
      await world.run({ kind: 'place-hold', container: 'c1', hold: 'h1', scope });
      await world.run({ kind: 'erase', container: 'c1', item: 'x/a' });
      await world.run({ kind: 'purge' });
      await world.checkPurged();
      await world.close();
    }
  });

  it('that a purge leaves no writes whose removal failed during a concurrent erasure', async () => {
    for (const write of [0, 1, 2, 3, 4, 5, 6]) {
      const world = await World.open(new Random(1), 1_700_000_000_500);
      await world.run({ kind: 'create-container', container: 'c1', policy: null });
      for (const id of ['a', 'b']) {
        const document = { id, pk: 'x', v: 1 };
        await world.run({ kind: 'write', operation: 'create', container: 'c1', item: `x/${id}`, document });
      }
      await world.run({ kind: 'delete-container', container: 'c1' });
      await world.runWithFault(write, 'before', { kind: 'erase', container: 'c1', item: 'x/a' }, { kind: 'purge' });
      await world.run({ kind: 'purge' });
      await world.checkPurged();
      await world.close();
    }
  });

  it('on a restored backup of a discarded history, whatever was erased since under the same name', async () => {
    const world = await World.open(new Random(1), 1_700_000_000_500);
    await world.run({ kind: 'create-container', container: 'c1', policy: null });
    const create = (id: string, v: number) =>
      ({ kind: 'write', operation: 'create', container: 'c1', item: `x/${id}`, document: { id, pk: 'x', v } }) as const;
    await world.run(create('a', 1));
    await world.run({ kind: 'backup', keptSeconds: 60 });
    await world.run(create('b', 2));
    await world.run({ kind: 'backup', keptSeconds: 60 });
    await world.restore(0);
    await world.run(create('b', 3));
    await world.run({ kind: 'delete', container: 'c1', item: 'x/b' });
    await world.run({ kind: 'purge' });
    await world.restore(1);
    await world.check();
    await world.checkPurged();
    await world.close();
  });

  it('and a run can be repeated: the same seed does the same', async () => {
    for (const seed of [7, 3_024]) {
      const [one, two] = [await simulate(seed), await simulate(seed)];
      expect(two).toEqual(one);
    }
  });
});
