import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { CALLER, stock, withStore } from './store.ts';

let store: Store;
withStore('known-orders', (opened) => {
  store = opened;
});

let containers = 0;
async function newContainer(definition: Parameters<Store['createContainer']>[3] = DEFINITION): Promise<string> {
  containers += 1;
  const name = `c${containers}`;
  await store.createContainer(CALLER, 'db', name, definition, -1);
  return name;
}

async function write(name: string, id: string, fields: object): Promise<void> {
  await store.writeItem(CALLER, store.container('db', name), 'upsert', itemToWrite({ id, pk: 'p', ...fields }));
}

const pageOf = (name: string, sql: string, maxItemCount: number, continuation?: Continuation) =>
  store.queryItems(store.container('db', name), { sql, parameters: [], maxItemCount, continuation });

const item = fc.record({
  n: fc.constantFrom(1, 2, null, 'text', [1]),
  s: fc.constantFrom('a', 'b', 'a text that is longer than a few characters'),
  list: fc.uniqueArray(fc.integer({ min: 0, max: 3 }), { maxLength: 3 }),
  ttl: fc.constantFrom(-1, -1, 10),
});
const change = fc.record({
  /** By number; some exist, and some don't. */
  written: fc.array(fc.tuple(fc.nat({ max: 15 }), item), { maxLength: 3 }),
  deleted: fc.array(fc.nat({ max: 15 }), { maxLength: 2 }),
  expire: fc.boolean(),
});

describe('a page of an ordered query', () => {
  it.each([
    'SELECT c.id, c.n, c._ts FROM c WHERE true ORDER BY c.n',
    'SELECT c.id, c.s FROM c WHERE c.n != 2 ORDER BY c.s DESC, c.n',
    'SELECT c.id, x FROM c JOIN x IN c.list WHERE x != 1 ORDER BY c.s DESC, x',
    'SELECT VALUE c.list[1] FROM c WHERE true ORDER BY c.n DESC',
    'SELECT c.id, c.s FROM c WHERE c.n != 2 ORDER BY c._ts DESC',
    'SELECT c.n, COUNT(1) AS count, SUM(c.list[0]) AS sum, MAX(c.s) AS max FROM c WHERE true GROUP BY c.n',
    'SELECT x, c.s, MAKELIST({"id": c.id, "of": c.n}) AS all FROM c JOIN x IN c.list WHERE x != 1 GROUP BY x, c.s',
    'SELECT VALUE MAKESET(c.n) FROM c WHERE c.n != 2 GROUP BY c.list ORDER BY c.list DESC',
    'SELECT DISTINCT c.s, COUNT(1) AS count, MAKESET(c.n) AS all FROM c WHERE true GROUP BY c.list, c.s',
    'SELECT DISTINCT c.n, c.s FROM c WHERE c.n != 2',
    'SELECT DISTINCT VALUE [x, c.n] FROM c JOIN x IN c.list WHERE x != 1',
    'SELECT DISTINCT VALUE [c.n, c.list[1]] FROM c WHERE true',
    'SELECT DISTINCT c.s, c.n FROM c WHERE c.n != 2 ORDER BY c.s DESC',
    'SELECT DISTINCT VALUE c.list FROM c WHERE true ORDER BY c.n',
  ])('is the same whether or not the order is known, whatever was written meanwhile: %s', async (sql) => {
    let asked = 0;
    let third = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(item, { minLength: 8, maxLength: 14 }),
        fc.array(change, { minLength: 1, maxLength: 6 }),
        fc.integer({ min: 1, max: 3 }),
        async (items, changes, size) => {
          const name = await newContainer();
          for (const [number, fields] of items.entries()) await write(name, `i${number}`, fields);
          let continuation: Continuation | undefined;
          const todo = [...changes];
          let pages = 0;
          do {
            const first = await pageOf(name, sql, size);
            const page = await pageOf(name, sql, size, continuation);
            asked += 1;
            // Nothing is remembered of this query.
            const other = sql.replace('WHERE', `WHERE ${asked} = ${asked} AND`);
            const anew = await pageOf(name, other, size, continuation);
            expect(page.rows).toEqual(anew.rows);
            expect(page.continuation).toEqual(anew.continuation);
            const { rows, examined } =
              continuation === undefined ? anew : await pageOf(name, other.replace('AND', 'AND true AND'), size);
            expect(first).toMatchObject({ rows, examined });
            pages += 1;
            if (pages === 3) third += 1;
            ({ continuation } = page);
            const { written, deleted, expire } = todo.shift() ?? { written: [], deleted: [], expire: false };
            for (const [number, fields] of written) await write(name, `i${number}`, fields);
            for (const number of deleted) {
              await store.deleteItem(CALLER, store.container('db', name), `i${number}`, '["p"]').catch(() => {});
            }
            if (expire) await store.advanceClock(10_000);
            if (asked % 50 === 0) await store.runPurge();
          } while (continuation !== undefined);
        },
      ),
      { numRuns: 25 },
    );
    expect(third).toBeGreaterThan(2);
  });

  it('looks only at its own items and those written since, from the third page on', async () => {
    const name = 'looked-at';
    await stock(store, name, 40, (number) => ({ n: (number * 7) % 40 }));
    const sql = 'SELECT VALUE c.n FROM c ORDER BY c.n';
    const first = await pageOf(name, sql, 5);
    expect(first.examined).toBe(40);
    const second = await pageOf(name, sql, 5, first.continuation);
    expect(second.examined).toBeGreaterThan(40);
    const third = await pageOf(name, sql, 5, second.continuation);
    expect(third.rows).toEqual([10, 11, 12, 13, 14]);
    // A few more tell where the next page begins.
    const own = third.examined;
    expect(own).toBeLessThan(15);
    await write(name, 'new', { n: 15.5 });
    const fourth = await pageOf(name, sql, 5, third.continuation);
    expect(fourth.rows).toEqual([15, 15.5, 16, 17, 18]);
    expect(fourth.examined).toBe(own + 1);
  });

  it('has groups of items that are looked at once', async () => {
    const name = 'grouped';
    await stock(store, name, 40, (number) => ({
      n: number % 20,
      big: { text: 'a text in a part of an item', number },
    }));
    const sql = 'SELECT c.n, COUNT(1) AS count, MAKELIST(c.big) AS all FROM c GROUP BY c.n';
    const first = await pageOf(name, sql, 5);
    const second = await pageOf(name, sql, 5, first.continuation);
    expect([first.examined, second.examined]).toEqual([40, 40]);
    const third = await pageOf(name, sql, 5, second.continuation);
    expect(third.rows).toMatchObject([10, 11, 12, 13, 14].map((n) => ({ n, count: 2, all: [{ number: n }, {}] })));
    expect(third.examined).toBe(0);
    await write(name, 'new', { n: 15 });
    const fourth = await pageOf(name, sql, 5, third.continuation);
    expect(fourth.rows).toMatchObject([{ n: 15, count: 3 }, {}, {}, {}, {}]);
    expect(fourth.examined).toBe(1);
  });

  it.each(['SELECT DISTINCT VALUE c.n FROM c', 'SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n'])(
    'has distinct rows of items that are looked at once: %s',
    async (sql) => {
      const name = `distinct-${sql.length}`;
      await stock(store, name, 40, (number) => ({ n: number % 20 }));
      const first = await pageOf(name, sql, 5);
      const second = await pageOf(name, sql, 5, first.continuation);
      const third = await pageOf(name, sql, 5, second.continuation);
      expect(third.rows).toEqual([10, 11, 12, 13, 14]);
      expect(third.examined).toBeLessThan(10);
      const again = await pageOf(name, sql, 5, second.continuation);
      expect(again.examined).toBe(0);
      await write(name, 'new', { n: 14.5 });
      const { rows, examined } = await pageOf(name, sql, 6, second.continuation);
      expect(rows).toEqual([10, 11, 12, 13, 14, sql.includes('ORDER') ? 14.5 : 15]);
      expect(examined).toBeLessThan(10);
    },
  );

  it.each([
    ['SELECT VALUE c.n FROM c', 5],
    ['SELECT DISTINCT VALUE c.n FROM c', 9],
  ])('is not charged for finding out whether another page follows: %s', async (sql, examined) => {
    const name = `peeked-${examined}`;
    await stock(store, name, 40, (number) => ({ n: number >> 1 }));
    const { rows, continuation, ...page } = await pageOf(name, sql, 5);
    expect(rows).toEqual(examined === 5 ? [0, 0, 1, 1, 2] : [0, 1, 2, 3, 4]);
    expect(continuation).toBeDefined();
    expect(page.examined).toBe(examined);
  });

  it.each([
    'SELECT c.n FROM c WHERE NOT CONTAINS(REPLICATE("a", 9000), "z") GROUP BY c.n',
    'SELECT VALUE SUM(c.n) FROM c WHERE NOT CONTAINS(REPLICATE("a", 9000), "z")',
    'SELECT DISTINCT c.n FROM c WHERE NOT CONTAINS(REPLICATE("a", 9000), "z")',
    'SELECT DISTINCT c.n FROM c WHERE NOT CONTAINS(REPLICATE("a", 9000), "z") ORDER BY c.n',
  ])('costs as a first page what it cost before it was known: %s', async (sql) => {
    const name = `worked-on-${sql.length}`;
    await stock(store, name, 20, (number) => ({ n: number % 10 }));
    const ask = async (continuation?: Continuation) => {
      // The items of a whole container would be in memory.
      const request = { sql, parameters: [], maxItemCount: 2, partitionKey: '["p"]', continuation };
      const { rows, examined, extraWork, ...page } = await store.queryItems(store.container('db', name), request);
      return { rows, cost: [examined, extraWork], continuation: page.continuation };
    };
    const first = await ask();
    expect(first.cost[1]).toBeGreaterThan(200);
    for (let time = 0; time < 3; time += 1) expect(await ask()).toEqual(first);
    if (first.continuation !== undefined) {
      await ask(first.continuation);
      expect(await ask(first.continuation)).toMatchObject({ cost: [0, 0] });
    }
  });

  it('is known by pages of another size, and of queries that select something else', async () => {
    const name = 'shared';
    await stock(store, name, 40, (number) => ({ n: (number * 7) % 40 }));
    const first = await pageOf(name, 'SELECT VALUE {"n": c.n} FROM c ORDER BY c.n', 5);
    await pageOf(name, 'SELECT c.n FROM c ORDER BY c.n', 5, first.continuation);
    const { rows, examined } = await pageOf(
      name,
      'SELECT TOP 20 c.id, c.n AS m FROM c ORDER BY c.n',
      3,
      first.continuation,
    );
    expect(rows).toMatchObject([{ m: 5 }, { m: 6 }, { m: 7 }]);
    expect(examined).toBeLessThan(12);
  });

  it('is found by the time of the page, if the query asks for the time', async () => {
    const name = await newContainer();
    const nowMs = await store.advanceClock(0);
    for (const n of [1, 2, 3, 4]) await write(name, `i${n}`, { n, fromMs: nowMs + (n === 3 ? 5_000 : 0) });
    const sql = 'SELECT VALUE c.n FROM c WHERE c.fromMs <= GetCurrentTimestamp() ORDER BY c.n';
    const first = await pageOf(name, sql, 1);
    const second = await pageOf(name, sql, 1, first.continuation);
    expect([...first.rows, ...second.rows]).toEqual([1, 2]);
    await store.advanceClock(10_000);
    expect((await pageOf(name, sql, 2, second.continuation)).rows).toEqual([3, 4]);
  });

  it('is found by the container’s computed properties of now', async () => {
    const computed = (query: string) => ({ ...DEFINITION, computedProperties: [{ name: 'place', query }] });
    const name = await newContainer(computed('SELECT VALUE c.n FROM c'));
    for (const n of [1, 2, 3, 4]) await write(name, `i${n}`, { n });
    const sql = 'SELECT VALUE c.n FROM c ORDER BY c.place';
    const first = await pageOf(name, sql, 1);
    const second = await pageOf(name, sql, 1, first.continuation);
    expect([...first.rows, ...second.rows]).toEqual([1, 2]);
    await store.replaceContainer(CALLER, 'db', name, computed('SELECT VALUE 10 - c.n FROM c'), -1);
    expect((await pageOf(name, sql, 9, second.continuation)).rows).toEqual([4, 3, 2, 1]);
  });
});
