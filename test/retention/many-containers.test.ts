import { expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('a store that closes waits for the look that the purge takes at a container, and has it take no more', async () => {
  const folder = newFolder('many-containers');
  const faults: unknown[] = [];
  const store = await openEmbeddedStore({ folder, clock: 'system', onFault: (error) => faults.push(error) });
  let underWay = 0;
  const looked = vi.spyOn(SqliteReadModelStore.prototype, 'nextDeadlines').mockImplementation(
    (() =>
      new Promise((resolve) => {
        underWay += 1;
        setTimeout(() => {
          underWay -= 1;
          resolve({ ts: null, due: null });
        }, 20);
      })) as never,
  );
  try {
    await store.createDatabase(CALLER, 'd');
    for (let number = 0; number < 30; number++) {
      await store.createContainer(CALLER, 'd', `c${number}`, DEFINITION, 3600);
    }
    await expect.poll(() => looked.mock.calls.length, { interval: 1 }).toBeGreaterThan(0);
    await store.close();
    const looks = looked.mock.calls.length;
    expect([looks < 30, underWay]).toEqual([true, 0]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([looked.mock.calls.length, faults]).toEqual([looks, []]);
  } finally {
    vi.restoreAllMocks();
    await store.close();
    removeFolder(folder);
  }
});

it('the purge looks for what is overdue in the containers where something can be, and in no others', async () => {
  const folder = newFolder('many-containers');
  const store = await openEmbeddedStore({ folder, clock: 'system', policyGraceSeconds: 0 });
  const looked = vi.spyOn(SqliteReadModelStore.prototype, 'nextDeadlines');
  const asked = vi.spyOn(SqliteReadModelStore.prototype, 'overdueItems');
  const containersOf = ({ mock }: { readonly mock: { readonly calls: readonly (readonly unknown[])[] } }) =>
    new Set(mock.calls.map(([container]) => container)).size;
  try {
    await store.createDatabase(CALLER, 'd');
    for (let number = 0; number < 30; number++) {
      await store.createContainer(CALLER, 'd', `c${number}`, DEFINITION, 3600);
    }
    await expect.poll(() => containersOf(looked)).toBe(30);
    looked.mockClear();
    const container = store.container('d', 'c7');
    const document = { id: 'i', pk: 'p', ttl: 1 };
    const item = { id: 'i', partitionKey: '["p"]', document, json: JSON.stringify(document) };
    await store.writeItem(CALLER, container, 'create', item);
    const explained = () => store.explain(container, 'i', '["p"]');
    await expect.poll(async () => (await explained()).state, { timeout: 10_000 }).toBe('purged');
    expect([containersOf(looked), containersOf(asked)]).toEqual([1, 1]);
  } finally {
    vi.restoreAllMocks();
    await store.close();
    removeFolder(folder);
  }
});
