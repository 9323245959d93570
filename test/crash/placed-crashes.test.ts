import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Command, ItemCommand } from '../simulation/commands.ts';
import { copyAsKilled, newFolder, removeFolder } from '../simulation/embedded.ts';
import { liveContainer, WITH_UNIQUE_KEY } from '../simulation/expected.ts';
import type { Model } from '../simulation/model.ts';
import { Random } from '../simulation/random.ts';
import { World } from '../simulation/world.ts';
import { Wreckage } from '../support/wreckage.ts';

const START_MS = 1_700_000_000_500;
const SEED = 20_261_121;

/** What was known when a process was killed. */
interface Known {
  readonly before: Model;
  readonly underWay: readonly Command[];
  readonly nowMs: number;
}

const write = (
  operation: 'create' | 'upsert' | 'replace',
  item: string,
  v: number,
  ttl?: number,
): Extract<ItemCommand, { kind: 'write' }> => {
  const [pk, id] = item.split('/');
  return {
    kind: 'write',
    operation,
    container: 'c1',
    item,
    document: { id, pk, v, ...(ttl === undefined ? {} : { ttl }) },
  };
};

/** A write in the container with a unique key. */
const unique = (operation: 'create' | 'upsert' | 'replace', item: string, u: unknown, ttl?: number): ItemCommand => {
  const plain = write(operation, item, 1, ttl);
  return { ...plain, container: WITH_UNIQUE_KEY, document: { ...plain.document, u } };
};

/** Everything that changes files, once: commands, concurrent commands, or milliseconds to pass. */
const WORKLOAD: readonly (Command | readonly Command[] | number)[] = [
  { kind: 'create-container', container: 'c1', policy: 60, clear: true },
  { kind: 'create-container', container: 'c2', policy: null },
  write('create', 'x/a', 1),
  [write('create', 'x/b', 2, 5), write('create', 'x/c', 3, -1), write('upsert', 'y/a', 4)],
  write('replace', 'x/a', 5, 10),
  { kind: 'patch', container: 'c1', item: 'x/b', set: { v: 6 } },
  { kind: 'delete', container: 'c1', item: 'y/a' },
  write('create', 'y/a', 7),
  // One after the other, because concurrent writes share their commits.
  write('upsert', 'x/e', 15),
  { kind: 'patch', container: 'c1', item: 'x/e', set: { v: 16 } },
  write('replace', 'x/e', 17),
  { kind: 'delete', container: 'c1', item: 'x/e' },
  write('create', 'x/e', 18, 5),
  { kind: 'patch', container: 'c1', item: 'x/e', set: { v: 19 } },
  { ...write('create', 'y/b', 8), container: 'c2' },
  {
    kind: 'batch',
    container: 'c1',
    steps: [
      write('create', 'y/d', 11),
      { kind: 'patch', container: 'c1', item: 'y/d', set: { v: 12 } },
      write('create', 'y/e', 13),
      { kind: 'delete', container: 'c1', item: 'y/d' },
    ],
  },
  { kind: 'policy', container: 'c2', policy: -1 },
  [unique('create', 'x/a', 1, 5), unique('create', 'x/b', 1)],
  {
    kind: 'batch',
    container: 'c2',
    steps: [unique('upsert', 'x/a', 2, 5), unique('upsert', 'x/b', 1)],
  },
  5_000,
  // x/b is overdue now. This write records its end and begins its next life.
  write('upsert', 'x/b', 9, 5),
  // The holder of 2 is overdue as well. Its end is recorded with the value's new holder.
  unique('upsert', 'x/c', 2),
  { kind: 'purge' },
  [{ kind: 'delete-partition', container: 'c2', partition: 'x' }, unique('create', 'x/d', 2)],
  { kind: 'purge' },
  6_000,
  { kind: 'grace', container: 'c1', seconds: 10 },
  { kind: 'policy', container: 'c1', policy: 1 },
  { kind: 'purge' },
  { kind: 'rebuild' },
  10_000,
  [write('create', 'y/c', 10), { kind: 'purge' }],
  { kind: 'policy', container: 'c1', policy: null },
  // Content that is kept, erased on request, and recovered.
  { kind: 'place-hold', container: 'c1', hold: 'h1', scope: { kind: 'items', items: ['y/c'] } },
  { kind: 'erase', container: 'c1', item: 'y/c' },
  [{ kind: 'delete', container: 'c1', item: 'y/c' }, { kind: 'purge' }],
  { kind: 'recover', container: 'c1', item: 'y/c' },
  [
    { kind: 'release-hold', container: 'c1', hold: 'h1' },
    { kind: 'floor', container: 'c1', seconds: 1 },
  ],
  2_000,
  [{ kind: 'erase', container: 'c1', item: 'y/c' }, { kind: 'purge' }],
  write('create', 'y/f', 14),
  2_000,
  { kind: 'policy', container: 'c1', policy: 1 },
  { kind: 'recover-policy', container: 'c1', version: 4 },
  { kind: 'policy-from', container: 'c1', policy: -1, fromMs: START_MS + 3_600_000, confirmed: false },
  { kind: 'withdraw', container: 'c1' },
  { kind: 'delete-container', container: 'c2' },
  { kind: 'purge' },
  { kind: 'create-container', container: 'c2', policy: -1 },
  { kind: 'rebuild' },
];

let world: World;
const wreckage = new Wreckage<Known>();
const place = newFolder('wrecks');

/** Runs the workload once, and keeps a copy of the folder after each step. Each copy is what a crash at that step would leave. */
beforeAll(async () => {
  world = await World.open(new Random(SEED), START_MS);
  let copies = 0;
  for (const [index, entry] of WORKLOAD.entries()) {
    if (typeof entry === 'number') {
      await world.advance(entry);
      continue;
    }
    const commands = Array.isArray(entry) ? (entry as readonly Command[]) : [entry as Command];
    const before = structuredClone(world.model);
    const nowMs = world.now();
    world.watchSteps((step) => {
      const folder = join(place, String(copies++));
      copyAsKilled(world.folder, folder);
      wreckage.keep(step, folder, { before, underWay: commands, nowMs }, String(index));
    });
    await world.run(...commands);
    world.watchSteps(undefined);
  }
}, 60_000);

afterAll(async () => {
  await world.close();
  removeFolder(place);
});

/** One of three recoveries is checked once more between its two purges, and is followed by another start. */
const LOOKED_AT_CLOSELY = 3;
let recoveries = 0;

/** What must hold however a store came to be: it converges, shows the truth, and goes on working. */
async function converges(recovered: World): Promise<void> {
  await recovered.check();
  await recovered.run({ kind: 'purge' });
  await recovered.checkPurged();
  recoveries += 1;
  const isLookedAtClosely = recoveries % LOOKED_AT_CLOSELY === 0;
  if (isLookedAtClosely) await recovered.check();
  if (liveContainer(recovered.model, 'c1') === undefined) {
    await recovered.run({ kind: 'create-container', container: 'c1', policy: 5 });
  }
  await recovered.run(write('upsert', 'x/a', 100), write('upsert', 'x/new', 101, 1));
  await recovered.run({ kind: 'patch', container: 'c1', item: 'x/a', set: { v: 102 } });
  await recovered.advance(3_600_000);
  await recovered.run({ kind: 'purge' });
  await recovered.checkPurged();
  if (!isLookedAtClosely) return;
  await recovered.restart();
  await recovered.check();
}

describe('a crash', () => {
  it('was placed at every step that changes a file: of appends, projection, purge, destruction and swap', () => {
    const { steps, wrecks } = wreckage;
    expect(steps.length).toBeGreaterThan(450);
    expect(wrecks.length).toBeGreaterThan(200);
    expect([...new Set(steps)].toSorted()).toEqual(
      [
        ...['vault keys', 'log', 'vault', 'read model'].flatMap((name) => [
          `${name}: before`,
          `${name}: before commit`,
          `${name}: after commit`,
        ]),
        'vault checkpoint: before',
        'vault checkpoint: after',
        'read model build: before',
        'read model build: begun',
        'purge ledger: after',
        'read model swap: before',
        'read model swap: after',
      ].toSorted(),
    );
  });

  it('at any step loses nothing that was acknowledged and shows nothing that had ended, and the store converges', async () => {
    let seed = SEED;
    await wreckage.each(async ({ path, known: { before, underWay, nowMs } }) => {
      const folder = newFolder('recovered');
      copyAsKilled(path, folder);
      const recovered = await World.adopt(new Random(seed++), START_MS, folder, before, underWay, nowMs);
      try {
        await converges(recovered);
      } finally {
        await recovered.close();
      }
    });
  }, 240_000);

  it('during the recovery from a crash has the same result', async () => {
    const random = new Random(SEED);
    let second = 0;
    await wreckage.each(async ({ path, known: { before, underWay, nowMs } }) => {
      if (!random.chance(0.25)) return;
      const [first, again] = [newFolder('recovered'), newFolder('recovered')];
      copyAsKilled(path, first);
      const crashAt = random.int(1, 25);
      let steps = 0;
      const onStep = () => {
        steps += 1;
        if (steps === crashAt) copyAsKilled(first, again);
      };
      const recovering = await World.adopt(random, START_MS, first, before, underWay, nowMs, onStep);
      recovering.watchSteps(onStep);
      await recovering.run({ kind: 'purge' });
      recovering.watchSteps(undefined);
      await recovering.close();
      if (steps < crashAt) return removeFolder(again);
      second += 1;
      const commands: Command[] = [...underWay, { kind: 'purge' }];
      const recovered = await World.adopt(random, START_MS, again, before, commands, nowMs);
      try {
        await converges(recovered);
      } finally {
        await recovered.close();
      }
    });
    expect(second).toBeGreaterThan(20);
  }, 240_000);
});
