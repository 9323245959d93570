import { expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { DEFINITION } from '../support/definition.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

it('containers deleted with their database are no longer metered', async () => {
  const folder = newFolder('gone');
  const store = await openEmbeddedStore({ folder, clock: 'manual', automaticPurge: false });
  try {
    for (const database of ['stays', 'goes']) {
      await store.createDatabase(CALLER, database);
      for (const name of ['a', 'b']) {
        const { resource: container } = await store.createContainer(CALLER, database, name, DEFINITION, null);
        store.requestUnits.admit(container, 'read').charge(1);
      }
    }
    expect(store.requestUnits.metered().length).toBe(4);
    await store.deleteContainer(CALLER, 'stays', 'a');
    await store.deleteDatabase(CALLER, 'goes');
    const left = store.requestUnits.metered().map(({ rid }) => rid);
    expect(left).toEqual([store.container('stays', 'b').rid]);
  } finally {
    await store.close();
    removeFolder(folder);
  }
});
