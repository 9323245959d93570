import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { metricsText } from '@epitaph/api/metrics/metrics.ts';
import { type Embedded, InjectedFault, newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const HOUR_MS = 3_600_000;

/** A machine whose clocks move only when told to. */
class Machine {
  wall = Date.UTC(2026, 10, 21, 10);
  monotonic = 0;
  wallMs = () => this.wall;
  monotonicMs = () => this.monotonic;
  pass(milliseconds: number): void {
    this.wall += milliseconds;
    this.monotonic += milliseconds;
  }
}

let folder: string;
let machine: Machine;
let embedded: Embedded;
const open = () => openEmbedded({ folder, time: machine, newId: () => crypto.randomUUID() });
const container = () => embedded.store.container('db', 'c');
const ends = async () =>
  (await embedded.store.containerHistory(container()))
    .filter(({ type }) => type.startsWith('Erasure'))
    .map(({ type, actor }) => [type, actor]);
const write = async (id: string) => {
  const item = itemToWrite({ id, pk: 'p' });
  await embedded.store.writeItem(CALLER, container(), 'upsert', item);
};

beforeEach(async () => {
  folder = newFolder('held-clock');
  machine = new Machine();
  embedded = await open();
  await embedded.store.createDatabase(CALLER, 'db');
  await embedded.store.createContainer(CALLER, 'db', 'c', DEFINITION, null);
  await write('a');
  // The request is recorded, and nothing that should follow.
  embedded.log.failAt(1, 'before');
  const request = { reason: 'article 17', requestedBy: 'desk 3' };
  await expect(embedded.store.eraseItem(CALLER, container(), 'a', '["p"]', request)).rejects.toThrow(InjectedFault);
  await embedded.store.close();
  // While the store is down, the wall clock is set back.
  machine.wall -= HOUR_MS;
  machine.monotonic = 0;
  embedded = await open();
});
afterEach(async () => {
  await embedded.store.close();
  removeFolder(folder);
});

describe('an interrupted erasure on request, at a start with a held clock', () => {
  it('waits, and is carried out when the clock is right again without a confirmation', async () => {
    expect(embedded.store.health().ready).toBe(false);
    expect(await ends()).toEqual([['ErasureRequested', 'key:primary']]);
    machine.pass(HOUR_MS);
    await vi.waitFor(async () =>
      expect(await ends()).toEqual([
        ['ErasureRequested', 'key:primary'],
        ['ErasureCompleted', 'key:primary'],
      ]),
    );
    expect(await embedded.store.explain(container(), 'a', '["p"]')).toMatchObject({ state: 'purged' });
    expect((await embedded.store.fsck()).problems).toEqual([]);
  });

  it('is carried out once: an item written after it is kept', async () => {
    machine.pass(HOUR_MS);
    await Promise.all([embedded.store.confirmClock(), embedded.store.confirmClock()]);
    await write('a');
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await ends()).toHaveLength(2);
    expect(await embedded.store.explain(container(), 'a', '["p"]')).toMatchObject({ state: 'live', life: 1 });
  });

  it('does not prevent the store from closing, and waits for the next start', async () => {
    await embedded.store.close();
    machine.pass(HOUR_MS);
    embedded = await open();
    expect(await ends()).toHaveLength(2);
  });
});

describe('a purge with a held clock', () => {
  it('records and erases nothing, although deadlines had passed before, until the clock is trusted', async () => {
    machine.pass(HOUR_MS);
    const { store } = embedded;
    const { resource: expiring } = await store.createContainer(CALLER, 'db', 'expiring', DEFINITION, 60);
    for (const [id, ttl] of [
      ['overdue', 10],
      ['deleted', -1],
    ] as const) {
      const item = itemToWrite({ id, pk: 'p', ttl });
      await store.writeItem(CALLER, expiring, 'create', item);
    }
    await store.deleteItem(CALLER, expiring, 'deleted', '["p"]');
    machine.pass(20_000);
    machine.wall += 24 * HOUR_MS;
    expect(await store.runPurge()).toMatchObject({ expired: 0, purged: 0 });
    expect(await store.purgeStatus()).toMatchObject({ state: 'held-by-clock' });
    machine.wall -= 24 * HOUR_MS;
    expect(await store.runPurge()).toMatchObject({ expired: 1, purged: 2 });
  });

  it('can be paused together with the confirmation, to check first what it would erase', async () => {
    machine.pass(HOUR_MS);
    const { store } = embedded;
    const { resource: expiring } = await store.createContainer(CALLER, 'db', 'expiring', DEFINITION, 60);
    for (const id of ['a', 'b']) {
      const document = { id, pk: 'p' };
      await store.writeItem(CALLER, expiring, 'create', { id, partitionKey: '["p"]', document, json: '{}' });
    }
    machine.wall += 24 * HOUR_MS;
    // The clock is accepted, but the disk has no room for the record of the pause.
    embedded.log.failAt(0, 'before');
    await expect(store.confirmClock({ pausePurge: CALLER })).rejects.toThrow(InjectedFault);
    expect(await store.runPurge()).toMatchObject({ expired: 0, purged: 0 });
    await store.confirmClock({ pausePurge: CALLER });
    expect(await store.runPurge()).toMatchObject({ expired: 0, purged: 0 });
    expect(await store.purgeStatus()).toMatchObject({ state: 'paused', overdueItems: 2 });
    const scope = { kind: 'items', items: [{ id: 'a', partitionKey: '["p"]' }] } as const;
    await store.placeHold(CALLER, expiring, 'h', { scope, reason: 'a test' });
    await store.resumePurge(CALLER);
    expect(await store.runPurge()).toMatchObject({ expired: 2, purged: 1, heldBack: 1 });
  });

  it('reports the held clock, although it is paused as well', async () => {
    machine.pass(HOUR_MS);
    const { store } = embedded;
    await store.pausePurge(CALLER);
    expect(await store.purgeStatus()).toMatchObject({ state: 'paused' });
    machine.wall += 24 * HOUR_MS;
    expect(await store.purgeStatus()).toMatchObject({ state: 'held-by-clock' });
    expect(await metricsText(store)).toMatch(/^epitaph_purge_state\{state="held-by-clock"\} 1$/m);
    await store.confirmClock();
    expect(await store.purgeStatus()).toMatchObject({ state: 'paused' });
  });
});
