import { expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('the purge looks for what is overdue in the containers where something can be, and in no others', async () => {
  const folder = newFolder('many-containers');
  const store = await openEmbeddedStore({ folder, clock: 'system', policyGraceSeconds: 0 });
  const asked = vi.spyOn(SqliteReadModelStore.prototype, 'overdueItems');
  try {
    await store.createDatabase(CALLER, 'd');
    for (let number = 0; number < 30; number++) {
      await store.createContainer(CALLER, 'd', `c${number}`, DEFINITION, 3600);
    }
    await expect.poll(() => new Set(asked.mock.calls.map(([container]) => container)).size).toBe(30);
    // All have been looked at; nothing more is asked of them.
    asked.mockClear();
    const container = store.container('d', 'c7');
    const document = { id: 'i', pk: 'p', ttl: 1 };
    const item = { id: 'i', partitionKey: '["p"]', document, json: JSON.stringify(document) };
    await store.writeItem(CALLER, container, 'create', item);
    const explained = () => store.explain(container, 'i', '["p"]');
    await expect.poll(async () => (await explained()).state, { timeout: 10_000 }).toBe('purged');
    expect(new Set(asked.mock.calls.map(([number]) => number)).size).toBe(1);
  } finally {
    asked.mockRestore();
    await store.close();
    removeFolder(folder);
  }
});
