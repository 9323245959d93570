import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { turn } from '@epitaph/core/turn.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { CALLER, CLEAR_PATHS, compare, definition, play, question, stepsInTime } from './histories.ts';

const folder = newFolder('clear-paths');
const open = () =>
  openEmbeddedStore({ folder, clock: 'manual', automaticPurge: false, policyGraceSeconds: 60, durable: false });

let store: Store;
beforeAll(async () => {
  store = await open();
  await store.createDatabase(CALLER, 'db');
});
afterAll(async () => {
  await store.close();
  removeFolder(folder);
});

async function rebuild(): Promise<void> {
  store.startRebuild('items');
  for (;;) {
    const status = store.rebuildStatus('items')!;
    if (status.state === 'done') return expect(status.differences).toBe(0);
    expect(status.state).toMatch(/running|comparing/);
    await turn();
  }
}

describe('a query', () => {
  it('has the same rows with clear paths, with pushdown and with plain evaluation, whatever was done to the items', async () => {
    let containers = 0;
    let pushed = 0;
    let cleared = 0;
    await fc.assert(
      fc.asyncProperty(
        stepsInTime,
        fc.array(question, { minLength: 5, maxLength: 20 }),
        fc.constantFrom('nothing', 'nothing', 'restart', 'rebuild', 'purge'),
        async (history, questions, then) => {
          containers += 1;
          for (const [name, paths] of [
            [`clear ${containers}`, CLEAR_PATHS],
            [`plain ${containers}`, undefined],
          ] as const) {
            await store.createContainer(CALLER, 'db', name, definition(paths), -1);
          }
          const both = () =>
            [store.container('db', `clear ${containers}`), store.container('db', `plain ${containers}`)] as const;
          for (const step of history) {
            if (step.kind === 'purge') await store.runPurge();
            if (step.kind === 'advance') await store.advanceClock(step.seconds * 1_000);
            const [clear, plain] = both();
            expect(await play(store, clear, step)).toBe(await play(store, plain, step));
          }
          if (then === 'restart') {
            await store.close();
            store = await open();
          }
          if (then === 'rebuild') await rebuild();
          if (then === 'purge') await store.runPurge();
          for (const asked of questions) {
            const looked = await compare(store, ...both(), asked);
            pushed += looked.pushed;
            cleared += looked.cleared;
          }
        },
      ),
      { numRuns: 25 },
    );
    // It would not test clear paths if they narrowed nothing. By how much depends on the generated queries.
    expect(cleared).toBeLessThan(pushed);
    expect((await store.fsck()).problems).toEqual([]);
  }, 60_000);
});
