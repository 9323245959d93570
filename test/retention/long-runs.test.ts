import { expect, it, onTestFinished, vi } from 'vitest';
import { Truncations } from '@epitaph/projections/purge/truncations.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { itemToWrite } from '../support/item.ts';
import { DEFINITION } from './definition.ts';
import { holdBack } from './held-back.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const START_MS = Date.UTC(2026, 10, 28, 18);

it('a store is open while it looks for what a crash has left of a run that has purged millions, and purges when that is done', async () => {
  // given: a run that was cut short
  const folder = newFolder('long-runs');
  const open = () => openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  let { store } = await open();
  onTestFinished(async () => {
    vi.useRealTimers();
    await store.close();
    removeFolder(folder);
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
  const items = ['a', 'b'].map((id) => itemToWrite({ id, pk: 'p' }));
  for (const item of items) await store.writeItem(CALLER, container, 'create', item);
  await store.advanceClock(61_000);
  const dies = vi.spyOn(Truncations.prototype, 'done').mockRejectedValue(new Error('ended by the test'));
  await expect(store.runPurge()).rejects.toThrow('ended by the test');
  dies.mockRestore();
  await store.close();
  const looking = holdBack(Truncations.prototype, 'finish', 'next');
  try {
    // when
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'], shouldAdvanceTime: true, advanceTimeDelta: 500 });
    ({ store } = await open());
    // then
    expect(looking.hasCome()).toBe(true);
    await store.writeItem(CALLER, store.container('d', 'c'), 'create', itemToWrite({ id: 'c', pk: 'p' }));
    await store.pausePurge(CALLER);
    await store.resumePurge(CALLER);
    expect(await store.purgeStatus()).toMatchObject({ state: 'running' });
    let isOver = false;
    const purging = store.runPurge().then(() => (isOver = true));
    for (let turns = 0; turns < 50; turns++) await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    looking.goOn();
    await purging;
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    looking.goOn();
    looking.restore();
  }
});
