import { expect, it, onTestFinished, vi } from 'vitest';
import { Truncations } from '@epitaph/projections/purge/truncations.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { itemToWrite } from '../support/item.ts';
import { DEFINITION } from './definition.ts';
import { holdBack } from './held-back.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const START_MS = Date.UTC(2026, 10, 28, 18);

/** A folder of a store whose purge was interrupted by a crash, with two lives erased. */
async function cutShort() {
  const folder = newFolder('long-runs');
  const open = () => openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  const { store } = await open();
  onTestFinished(() => {
    vi.useRealTimers();
    removeFolder(folder);
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
  const items = ['a', 'b'].map((id) => itemToWrite({ id, pk: 'p' }));
  for (const item of items) await store.writeItem(CALLER, container, 'create', item);
  await store.advanceClock(61_000);
  const dies = vi.spyOn(Truncations.prototype, 'truncate').mockRejectedValue(new Error('ended by the test'));
  await expect(store.runPurge()).rejects.toThrow('ended by the test');
  dies.mockRestore();
  await store.close();
  return { open };
}

/** Opens the folder, with a very short wait for the search for what a crash has left. */
async function openSoon(open: () => ReturnType<typeof openEmbedded>): ReturnType<typeof openEmbedded> {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const opening = open();
  while ((await Promise.race([opening, vi.advanceTimersByTimeAsync(100).then(() => undefined)])) === undefined);
  vi.useRealTimers();
  return opening;
}

it('a store opens while it searches for what an interrupted run has left of millions of lives, and purges once that is done', async () => {
  const { open } = await cutShort();
  const looking = holdBack(Truncations.prototype, 'finish', 'next');
  try {
    // when
    const { store } = await openSoon(open);
    onTestFinished(() => store.close());
    // then
    expect(looking.hasCome()).toBe(true);
    await store.writeItem(CALLER, store.container('d', 'c'), 'create', itemToWrite({ id: 'c', pk: 'p' }));
    await store.pausePurge(CALLER);
    await store.resumePurge(CALLER);
    expect(await store.purgeStatus()).toMatchObject({ state: 'running' });
    let isOver = false;
    const purging = store.runPurge().then(() => (isOver = true));
    // Bodies that are still to be removed are not reported as damage.
    const checking = store.fsck();
    for (let turns = 0; turns < 50; turns++) await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    looking.goOn();
    await purging;
    expect((await checking).problems).toEqual([]);
    expect((await store.fsck()).problems).toEqual([]);
  } finally {
    looking.goOn();
    looking.restore();
  }
});

it('a store that closes stops that search, and waits for its current step', async () => {
  const { open } = await cutShort();
  const found = Promise.withResolvers<void>();
  let isOver: boolean | undefined;
  vi.spyOn(Truncations.prototype, 'finish').mockImplementationOnce(async (_from, _nowMs, over) => {
    await found.promise;
    isOver = over?.();
  });
  const { store } = await openSoon(open);
  let isClosed = false;
  const closing = store.close().then(() => (isClosed = true));
  for (let turns = 0; turns < 50; turns++) await new Promise((resolve) => setImmediate(resolve));
  expect(isClosed).toBe(false);
  found.resolve();
  await closing;
  expect(isOver).toBe(true);
});
