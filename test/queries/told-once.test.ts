import { expect, it } from 'vitest';
import type { Store } from '@epitaph/api/store/store.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { CALLER, withStore } from './store.ts';

let hasty: Store;
let patient: Store;
withStore('told-hastily', (store) => (hasty = store), { pageWaitMs: 2 });
withStore('told-at-once', (store) => (patient = store), { pageWaitMs: 600_000 });

it('a page that is asked for again and again is charged what it costs in one go, although it is begun again if it takes long', async () => {
  const list = (length: number) => Array.from({ length }, (_, n) => n);
  const sql = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list WHERE x + y + z >= 0';
  const worked = async (store: Store) => {
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    const container = store.container('db', 'c');
    for (let n = 0; n < 24; n++) {
      const item = itemToWrite({ id: `i${n}`, pk: 'p', list: list(n < 20 ? 20 : 60) });
      await store.writeItem(CALLER, container, 'create', item);
    }
    const total = { examined: 0, extraWork: 0, answers: 0 };
    for (let pageId: string | undefined; ;) {
      const page = await store.queryItems(container, { sql, parameters: [], maxItemCount: 100, pageId });
      expect(Math.min(page.examined, page.extraWork), 'nothing is taken back').toBeGreaterThanOrEqual(0);
      total.examined += page.examined;
      total.extraWork += page.extraWork;
      total.answers += 1;
      ({ pageId } = page);
      if (pageId === undefined) return { ...total, rows: page.rows };
    }
  };
  const { answers, ...once } = await worked(patient);
  expect(answers).toBe(1);
  const told = await worked(hasty);
  expect(told.answers).toBeGreaterThan(2);
  expect(told).toMatchObject(once);
});
