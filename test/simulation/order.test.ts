import { expect, it } from 'vitest';
import { Refusal } from '@epitaph/core/errors.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from '../retention/inline-store.ts';
import type { ScriptStep } from './commands.ts';
import { Order } from './order.ts';
import { Random } from './random.ts';
import { runScript } from './scripts.ts';

const SEEDS = 60;
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';
const WHY = { reason: 'a test', requestedBy: 'somebody' };
const IDS = ['a', 'b'];

const container = (store: Store) => store.container('d', 'c');
const write = (store: Store, operation: 'create' | 'upsert' | 'replace', id: string) =>
  store.writeItem(CALLER, container(store), operation, itemToWrite({ id, pk: 'p' }));

const SCRIPT = { kind: 'script', container: 'c', partition: 'p', fails: false } as const;
const steps = (id: string): readonly ScriptStep[] => [
  { kind: 'read', item: `p/${id}`, bySelf: true },
  { kind: 'upsert', document: { id, pk: 'p' } },
  { kind: 'delete', item: 'p/b', bySelf: false, guard: 'shown' },
  { kind: 'list', pageSize: 1 },
  { kind: 'create', document: { id: 'b', pk: 'p' } },
];

/** The commands that run concurrently on a store. */
const COMMANDS: Readonly<Record<string, (store: Store, id: string, seed: number) => Promise<unknown>>> = {
  create: (store, id) => write(store, 'create', id),
  upsert: (store, id) => write(store, 'upsert', id),
  replace: (store, id) => write(store, 'replace', id),
  delete: (store, id) => store.deleteItem(CALLER, container(store), id, PK),
  read: (store, id) => store.readItem(container(store), id, PK),
  script: (store, id) => runScript(store, CALLER, 'd', { ...SCRIPT, steps: steps(id) }),
  'delete partition key': (store) => store.deletePartitionKey(CALLER, container(store), PK),
  erase: (store, id) => store.eraseItem(CALLER, container(store), id, PK, WHY),
  recover: (store, id) => store.recoverItem(CALLER, container(store), id, PK, WHY),
  hold: (store, _id, seed) =>
    store.placeHold(CALLER, container(store), `h${seed}`, { scope: { kind: 'container' }, reason: 'a test' }),
  release: (store) => store.releaseHold(CALLER, container(store), 'h', 'a test'),
  floor: (store, _id, seed) => store.setRetentionFloor(CALLER, container(store), (seed % 2) * 60, 'a test'),
  window: (store, _id, seed) => store.setRecoveryWindow(CALLER, container(store), (seed % 2) * 60, 'a test'),
  ttl: (store, _id, seed) =>
    store.changeTtl(CALLER, 'd', 'c', { defaultTtl: [null, 1, 60][seed % 3]!, confirmed: true, reason: 'a test' }),
  'delete container': (store) => store.deleteContainer(CALLER, 'd', 'c'),
  'create container': (store) => store.createContainer(CALLER, 'd', 'c', DEFINITION, 60),
  'delete database': (store) => store.deleteDatabase(CALLER, 'd'),
  'turn the clock': (store) => store.advanceClock(1_500),
  purge: (store) => store.runPurge(),
  fsck: async (store) => expect((await store.fsck()).problems).toEqual([]),
};

/** An existing item and a deleted one, sometimes with a hold. */
async function begin(store: Store, random: Random): Promise<void> {
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, random.pick([null, 60, 1]));
  for (const id of IDS) await write(store, 'create', id);
  if (random.chance(0.3)) {
    const request = { scope: { kind: 'partition-key', partitionKey: PK }, reason: 'a test' } as const;
    await store.placeHold(CALLER, container(store), 'h', request);
  }
  await (random.chance(0.5) ? COMMANDS['delete']!(store, 'b', 0) : COMMANDS['delete partition key']!(store, 'b', 0));
}

/** Runs some commands concurrently, with their steps in an order given by the seed. The resulting store must be consistent. */
async function check(seed: number): Promise<void> {
  const random = new Random(seed);
  const order = new Order(random);
  const { store } = await openInlineStore('order', (storage) => order.rule(storage));
  await begin(store, random);
  const names = Array.from({ length: random.int(2, 4) }, () => random.pick(Object.keys(COMMANDS)));
  const failures: unknown[] = [];
  const works = names.map((name) => {
    const id = random.pick(IDS);
    return async () => {
      try {
        await COMMANDS[name]!(store, id, seed);
      } catch (error) {
        if (!(error instanceof Refusal)) failures.push(error);
      }
    };
  });
  await order.run(works);
  const about = `seed ${seed}: ${names.join(', ')}`;
  expect(failures, about).toEqual([]);
  expect((await store.fsck()).problems, about).toEqual([]);
  await store.runPurge();
  expect((await store.fsck()).problems, about).toEqual([]);
  for (const state of store.deletedContainers('d', 'c')) {
    for (const id of IDS) expect((await store.explain(state, id, PK)).state, about).not.toBe('live');
  }
  for (const database of store.listDatabases()) {
    for (const state of store.listContainers(database.name)) {
      for (const id of IDS) {
        const isThere = await store.readItem(state, id, PK).then(
          () => true,
          () => false,
        );
        expect((await store.explain(state, id, PK)).state === 'live', about).toBe(isThere);
      }
    }
  }
  await store.close();
}

it('concurrent commands leave a consistent store, in whatever order their steps come', async () => {
  for (let seed = 1; seed <= SEEDS; seed++) await check(seed);
}, 120_000);
