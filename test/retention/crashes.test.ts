import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';
import { isStanding } from '@epitaph/core/retention/hold-register.ts';
import { vaultHoldId } from '@epitaph/core/retention/hold-names.ts';
import { copyAsKilled, type Embedded, newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const WRITER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

const folders: string[] = [];
const folder = (purpose: string): string => {
  const made = newFolder(purpose);
  folders.push(made);
  return made;
};
afterAll(() => folders.forEach(removeFolder));

const open = (at: string, onStep?: (step: string) => void): Promise<Embedded> =>
  openEmbedded({ folder: at, time: START_MS, newId: () => crypto.randomUUID(), policyGraceSeconds: 3_600, onStep });

const container = (store: StoreApi) => store.container('d', 'c');
const write = (store: StoreApi, id: string) =>
  store.writeItem(WRITER, container(store), 'create', itemToWrite({ id, pk: 'p', secret: `of ${id}` }));
const types = async (store: StoreApi, id: string) =>
  (await store.history(container(store), id, PK)).map(({ type }) => type);

interface Scenario {
  readonly name: string;
  readonly prepare: (store: StoreApi) => Promise<void>;
  /** The operation during which a crash comes. Repeated after the crash, it must succeed. */
  readonly act: (store: StoreApi) => Promise<unknown>;
  /** Checks what must be true however far the operation got. */
  readonly check: (embedded: Embedded) => Promise<void>;
}

/** Checks that the vault has exactly the recorded holds and floors. */
async function vaultAgrees({ store, storage }: Embedded): Promise<void> {
  const state = container(store);
  const standing = [...state.retention.holds].filter(isStanding).map(({ holdId }) => vaultHoldId(state.rid, holdId));
  expect(storage.vault.holds().map(({ holdId }) => holdId)).toEqual(standing);
  expect(storage.vault.floors().get(state.rid)?.retention ?? 0).toBe(state.retention.floorSeconds);
}

const place = (store: StoreApi, holdId = 'h') =>
  store.placeHold(WRITER, container(store), holdId, {
    scope: { kind: 'partition-key', partitionKey: PK },
    reason: 'case 7',
  });

const scenarios: readonly Scenario[] = [
  {
    name: 'placing a hold',
    prepare: (store) => place(store, 'another').then(() => {}),
    act: (store) => place(store),
    check: vaultAgrees,
  },
  {
    name: 'placing a hold on a query',
    prepare: async () => {},
    act: (store) =>
      container(store).retention.holds.length > 0
        ? Promise.resolve()
        : store.placeHold(WRITER, container(store), 'q', {
            scope: { kind: 'query', sql: 'SELECT * FROM c', parameters: [] },
            reason: 'case 7',
          }),
    check: vaultAgrees,
  },
  {
    name: 'releasing a hold',
    prepare: (store) => place(store).then(() => {}),
    act: (store) => store.releaseHold(WRITER, container(store), 'h', 'closed'),
    check: vaultAgrees,
  },
  {
    name: 'raising a floor',
    prepare: async () => {},
    act: (store) => store.setRetentionFloor(WRITER, container(store), 600, 'tax law'),
    check: vaultAgrees,
  },
  {
    name: 'lowering a floor',
    prepare: (store) => store.setRetentionFloor(WRITER, container(store), 600, 'tax law').then(() => {}),
    act: (store) => store.setRetentionFloor(WRITER, container(store), 60, 'repealed'),
    check: vaultAgrees,
  },
  {
    name: 'erasing an item with two lives',
    prepare: async (store) => {
      await store.setRecoveryWindow(WRITER, container(store), 3_600, 'operators');
      await store.deleteItem(WRITER, container(store), 'a', PK);
      await write(store, 'a');
    },
    act: (store) => store.eraseItem(WRITER, container(store), 'a', PK, { reason: 'article 17', requestedBy: 'desk 3' }),
    check: async ({ store }) => {
      const state = container(store);
      // Whatever was begun is done and recorded by now.
      expect(state.retention.erasures).toEqual([]);
      const facts = (await store.containerHistory(state)).map(({ type }) => type);
      const count = (type: string) => facts.filter((fact) => fact === type).length;
      expect(count('ErasureCompleted')).toBe(count('ErasureRequested'));
      for (const entry of await store.containerHistory(state)) {
        const { erasedLives, alreadyErasedLives } = entry.data as { erasedLives?: number; alreadyErasedLives?: number };
        if (entry.type === 'ErasureCompleted') expect(erasedLives! + alreadyErasedLives!).toBe(2);
      }
      const purged = (await types(store, 'a')).filter((type) => type === 'ItemPurged').length;
      expect(purged).toBe(count('ErasureRequested') > 0 ? 2 : 0);
      const readable = await store.readItem(state, 'a', PK).then(
        () => true,
        () => false,
      );
      expect(readable).toBe(purged === 0);
    },
  },
  {
    name: 'bringing an item back',
    prepare: async (store) => {
      await store.setRecoveryWindow(WRITER, container(store), 3_600, 'operators');
      await store.deleteItem(WRITER, container(store), 'a', PK);
    },
    act: (store) =>
      store
        .recoverItem(WRITER, container(store), 'a', PK, { reason: 'a mistake' })
        .catch((error: { code?: string }) => {
          // The item had come back already.
          if (error.code !== 'item-not-found' && error.code !== 'already-exists') throw error;
        }),
    check: async ({ store }) => {
      const back = (await types(store, 'a')).filter((type) => type === 'ItemRecovered').length;
      expect(back).toBeLessThanOrEqual(1);
      const read = store.readItem(container(store), 'a', PK);
      if (back === 1) expect((await read).json).toContain('of a');
      else await expect(read).rejects.toMatchObject({ code: 'item-not-found' });
    },
  },
  {
    name: 'bringing back what a policy took',
    prepare: async (store) => {
      await store.advanceClock(60_000);
      await store.changeTtl(WRITER, 'd', 'c', { defaultTtl: 30, confirmed: false });
      await store.advanceClock(1_000);
    },
    act: async (store) => {
      await store.recoverPolicy(WRITER, container(store), 2, { reason: 'mistyped' });
      expect(
        (await store.listItems(container(store), { maxItemCount: 10 })).items.map(({ id }) => id).toSorted(),
      ).toEqual(['a', 'b']);
    },
    check: async ({ store }) => {
      for (const id of ['a', 'b']) {
        expect((await types(store, id)).filter((type) => type === 'ItemRecovered').length).toBeLessThanOrEqual(1);
      }
    },
  },
];

describe.each(scenarios)('a crash while $name', ({ prepare, act, check }) => {
  it('at any step leaves a state that the next start completes, and repeating it succeeds', async () => {
    const at = folder('retention');
    let onStep: ((step: string) => void) | undefined;
    const world = await open(at, (step) => onStep?.(step));
    await world.store.createDatabase(WRITER, 'd');
    await world.store.createContainer(WRITER, 'd', 'c', DEFINITION, -1);
    await write(world.store, 'a');
    await write(world.store, 'b');
    await prepare(world.store);
    const wrecks: { readonly folder: string; readonly step: string }[] = [];
    onStep = (step) => {
      const wreck = join(folder('wreck'), String(wrecks.length));
      copyAsKilled(at, wreck);
      wrecks.push({ folder: wreck, step });
    };
    await act(world.store);
    onStep = undefined;
    await check(world);
    await world.store.close();
    expect(wrecks.length).toBeGreaterThan(4);
    for (const wreck of wrecks) {
      try {
        const recovered = await open(wreck.folder);
        try {
          await check(recovered);
          expect((await recovered.store.fsck()).problems).toEqual([]);
          await act(recovered.store);
          await check(recovered);
          expect((await recovered.store.fsck()).problems).toEqual([]);
        } finally {
          await recovered.store.close();
        }
      } catch (error) {
        throw new Error(`crash at "${wreck.step}": ${(error as Error).message}`, { cause: error });
      }
    }
  }, 60_000);
});

describe('a hold that is only in the log', () => {
  it('is in the vault again after a start, whatever was done to the vault', async () => {
    const at = folder('retention');
    let world = await open(at);
    await world.store.createDatabase(WRITER, 'd');
    await world.store.createContainer(WRITER, 'd', 'c', DEFINITION, -1);
    await write(world.store, 'a');
    await place(world.store);
    await world.store.placeHold(WRITER, container(world.store), 'q', {
      scope: { kind: 'query', sql: 'SELECT * FROM c', parameters: [] },
      reason: 'case 8',
    });
    await world.store.setRetentionFloor(WRITER, container(world.store), 600, 'tax law');
    const before = world.storage.vault.holds();
    // As with a vault restored from an earlier backup.
    for (const { holdId } of before) await world.storage.vault.releaseHold(holdId);
    await world.storage.vault.setFloor(container(world.store).rid, 'retention', 0);
    await world.store.close();
    world = await open(at);
    expect(world.storage.vault.holds()).toEqual(before);
    await vaultAgrees(world);
    await world.store.close();
  });
});
