import { describe, expect, it } from 'vitest';
import type { Store } from '@epitaph/api/store/store.ts';
import type { Json } from '@epitaph/query';
import { DEFINITION } from '../support/definition.ts';
import { CALLER, withStore } from './store.ts';

let store: Store;
withStore('heavy', (opened) => {
  store = opened;
});

async function stocked(name: string, count: number, fields: (n: number) => { readonly [name: string]: Json }) {
  await store.createContainer(CALLER, 'db', name, DEFINITION, -1);
  await Promise.all(
    Array.from({ length: count }, (_, n) => {
      const document = { id: `i${n}`, pk: 'p', ...fields(n) };
      const item = { id: document.id, partitionKey: '["p"]', document, json: JSON.stringify(document) };
      return store.writeItem(CALLER, store.container('db', name), 'create', item);
    }),
  );
}

const ask = (name: string, sql: string, signal?: AbortSignal) =>
  store.queryItems(store.container('db', name), { sql, parameters: [], maxItemCount: 100, signal });

describe('a query that takes long', () => {
  it('lets others have their turn between documents, those that are looked up together not done together', async () => {
    await stocked('joined', 20, () => ({ list: Array.from({ length: 90 }, (_, n) => n) }));
    let turns = 0;
    const { promise: last, resolve: end } = Promise.withResolvers<void>();
    let isRunning = true;
    const count = (): void => {
      turns += 1;
      if (isRunning) setImmediate(count);
      else end();
    };
    setImmediate(count);
    const sql = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list WHERE x + y + z >= 0';
    expect((await ask('joined', sql)).rows).toEqual([20 * 90 ** 3]);
    isRunning = false;
    await last;
    expect(turns).toBeGreaterThanOrEqual(10);
  });

  it('waits for those that hold much already, and makes room when it ends, fails, or is given up', async () => {
    await stocked('texts', 300, (n) => ({ text: `${n} `.padEnd(4_000, 'text '), list: n === 299 ? [1, 2] : [] }));
    const groups = 'SELECT c.text, COUNT(1) AS n FROM c GROUP BY c.text ORDER BY c.text';
    // By its last document.
    const failing = 'SELECT c.text, MAX((SELECT VALUE x FROM x IN c.list)) AS n FROM c GROUP BY c.text ORDER BY c.text';
    for (let round = 0; round < 3; round += 1) {
      const controllers = Array.from({ length: 10 }, () => new AbortController());
      const asked = [
        ...Array.from({ length: 10 }, () => ask('texts', groups)),
        ...Array.from({ length: 4 }, () => ask('texts', failing)),
        ...controllers.map(({ signal }) => ask('texts', groups, signal)),
      ];
      const settled = Promise.allSettled(asked);
      await new Promise((resolve) => setTimeout(resolve, 20));
      for (const controller of controllers) controller.abort(new Error('given up'));
      const [first, ...others] = await settled;
      expect(first).toMatchObject({ status: 'fulfilled', value: { rows: { length: 100 } } });
      expect(others.slice(0, 9).every(({ status }) => status === 'fulfilled')).toBe(true);
      expect(others.slice(9, 13).every(({ status }) => status === 'rejected')).toBe(true);
    }
  });
});
