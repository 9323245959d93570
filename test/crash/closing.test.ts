import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GuardedClock } from '@epitaph/core/clock.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { turn } from '@epitaph/core/turn.ts';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { Store } from '@epitaph/api/store/store.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { SqliteKeyVault } from '@epitaph/storage/sqlite/sqlite-key-vault.ts';
import { StorageFault } from '@epitaph/storage/sqlite/writer.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { fakeMachine } from '../simulation/world.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';

const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000001' };

let folder: string;
beforeEach(() => {
  folder = newFolder('closing');
});
afterEach(() => removeFolder(folder));

const open = (writers: 'inline' | 'threads') =>
  openEmbeddedStore({ folder, clock: 'manual', writers, durable: false, policyGraceSeconds: 0 });

async function filled(store: Store, count: number) {
  await store.createDatabase(CALLER, 'db');
  const { resource } = await store.createContainer(CALLER, 'db', 'c', DEFINITION, 60);
  await Promise.all(Array.from({ length: count }, (_, index) => write(store, resource, `old ${index}`)));
  return resource;
}

function write(store: Store, container: ReturnType<Store['container']>, id: string) {
  return store.writeItem(CALLER, container, 'upsert', itemToWrite({ id, pk: 'p' }));
}

for (const writers of ['inline', 'threads'] as const) {
  describe(`a store (${writers}) that closes`, () => {
    it('while writes are in progress answers every one of them, and keeps those it acknowledged', async () => {
      const store = await open(writers);
      const container = await filled(store, 1);
      const writes = Array.from({ length: 200 }, (_, index) => write(store, container, `new ${index}`));
      const settled = Promise.allSettled(writes);
      await turn();
      await store.close();
      const outcomes = await settled;
      const again = await open(writers);
      for (const [index, outcome] of outcomes.entries()) {
        if (outcome.status === 'rejected') {
          expect(outcome.reason).toBeInstanceOf(Refusal);
          continue;
        }
        expect((await again.readItem(container, `new ${index}`, '["p"]')).etag).toBe(outcome.value.resource.etag);
      }
      expect((await again.fsck()).problems).toEqual([]);
      await again.close();
    });

    it('during a purge stops after the batch, and the next start continues', async () => {
      const store = await open(writers);
      await filled(store, 600);
      await store.advanceClock(61_000);
      const purge = store.runPurge().catch((error: unknown) => error);
      await new Promise((resolve) => setTimeout(resolve, 3));
      await store.close();
      await purge;
      const again = await open(writers);
      await again.runPurge();
      expect(await again.purgeStatus()).toMatchObject({ overdueItems: 0, awaitingErasure: 0, purgedTotal: 600 });
      expect((await again.fsck()).problems).toEqual([]);
      await again.close();
    });

    it('during a rebuild postpones the rebuild, and keeps what it had built', async () => {
      const store = await open(writers);
      const container = await filled(store, 600);
      store.startRebuild('items');
      await store.close();
      const again = await open(writers);
      expect((await again.projections())[0]).toMatchObject({
        version: 1,
        lagEvents: 0,
        rebuild: { state: 'interrupted', version: 2 },
      });
      expect((await again.listItems(container, { maxItemCount: 1_000 })).items.length).toBe(600);
      await again.close();
    });

    it('refuses later requests with a message of its own', async () => {
      const store = await open(writers);
      const container = await filled(store, 1);
      await store.close();
      for (const late of [write(store, container, 'late'), store.readItem(container, 'old 0', '["p"]')]) {
        await expect(late).rejects.toThrow(Refusal);
      }
    });
  });
}

describe('the clock of a store that closes', () => {
  it('saves its mark while the folder is still locked', async () => {
    const storage = await openSqliteStorage({ folder, clock: 'system', writers: 'inline', durable: false });
    const order: string[] = [];
    const mark = { initialMs: 0, save: () => void order.push('mark saved') };
    const store = await Store.open({
      log: new MemoryEventLog(),
      vault: storage.vault,
      sealer: storage.sealer,
      naming: storage.naming,
      readModels: storage.readModels,
      clock: new GuardedClock({ sources: fakeMachine(1_700_000_000_000), mark }),
      closePorts: async () => {
        order.push('ports closed');
        await storage.close();
      },
      automaticPurge: false,
    });
    await store.close();
    expect(order.at(-1)).toBe('ports closed');
  });
});

describe('a store that is started on a clock far ahead of when it was stopped', () => {
  it('hides and erases nothing by that clock before somebody confirms it', async () => {
    const machine = fakeMachine(1_700_000_000_000);
    const start = async () => {
      const storage = await openSqliteStorage({ folder, clock: 'system', writers: 'inline', durable: false });
      const clock = new GuardedClock({ sources: machine, mark: storage.highWaterMark, maxDowntimeMs: 86_400_000 });
      const closePorts = () => storage.close();
      return Store.open({
        ...storage,
        backup: undefined,
        clock,
        closePorts,
        automaticPurge: false,
        policyGraceSeconds: 0,
      });
    };
    let store = await start();
    const container = await filled(store, 1);
    const shown = () =>
      store.readItem(container, 'old 0', '["p"]').then(
        () => true,
        (error: unknown) => !(error instanceof Refusal),
      );
    const purge = () => store.runPurge();
    await store.close();

    machine.wall += 73 * 365 * 86_400_000;
    store = await start();
    expect(await purge()).toMatchObject({ expired: 0, purged: 0 });
    expect(store.health()).toEqual({ ready: false, reasons: [expect.stringContaining('--max-downtime')] });
    expect(await shown()).toBe(true);
    await expect(write(store, container, 'new')).rejects.toMatchObject({ code: 'clock-held' });

    await store.confirmClock();
    expect(store.health().ready).toBe(true);
    expect(await shown()).toBe(false);
    expect(await purge()).toMatchObject({ expired: 1, purged: 1 });
    await store.close();
  });
});

it('a store that can’t be opened after all leaves nothing running that keeps its process alive', async () => {
  const running = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = running();
  const floors = vi.spyOn(SqliteKeyVault.prototype, 'floors').mockImplementationOnce(() => {
    throw new StorageFault({ fault: 'the disk is full' });
  });
  await expect(open('inline')).rejects.toThrow('the disk is full');
  expect(floors).toHaveBeenCalled();
  // Earlier tests' resources may have ended by themselves meanwhile.
  expect(running()).toBeLessThanOrEqual(before);
  await (await open('inline')).close();
});
