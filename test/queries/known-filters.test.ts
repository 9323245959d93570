import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Documents } from '@epitaph/api/store/items/documents.ts';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { evaluate, type Json, parseQuery, planQuery } from '@epitaph/query';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { CALLER, stock, withStore } from './store.ts';

const NAME = 'filtered';
const ITEMS = 2_000;
/** As many as are opened in any case, because a scan begins as if it were of a few rows, and some more. */
const FIRST_OPENED = 1_100;

const COMPUTED = [{ name: 'half', query: 'SELECT VALUE c.n / 2 FROM c' }];

let store: Store;
withStore('known-filters', (opened) => {
  store = opened;
});

/** The number of documents that were opened. */
let opened = 0;
beforeAll(async () => {
  const { parse } = Documents.prototype;
  vi.spyOn(Documents.prototype, 'parse').mockImplementation(function (this: Documents, ...args) {
    opened += 1;
    return parse.apply(this, args);
  });
  // As if the documents did not fit in the cache.
  vi.spyOn(Documents.prototype, 'parsed').mockReturnValue(undefined);
  vi.spyOn(Documents.prototype, 'allParsed').mockReturnValue(undefined);
  await stock(store, NAME, ITEMS, fields, { ...DEFINITION, computedProperties: COMPUTED });
});
afterAll(() => {
  vi.restoreAllMocks();
});
beforeEach(() => {
  opened = 0;
});

const fields = (number: number) => ({
  n: number % 50,
  s: ['a', 'b', 'a text that is longer than a few characters'][number % 3]!,
  list: [number % 7, number % 5],
  deep: { a: { b: number % 11 } },
  long: 'x'.repeat(number % 100 === 0 ? 5_000 : 10),
  ...(number % 40 === 0 ? { option: null } : {}),
});
const items: Json[] = Array.from({ length: ITEMS }, (_, number) => ({ id: `i${number}`, pk: 'p', ...fields(number) }));

async function ask(sql: string, value: Json) {
  const parameters = [{ name: '@v', value }];
  const { rows, examined, extraWork } = await store.queryItems(store.container('db', NAME), {
    sql,
    parameters,
    maxItemCount: 10_000,
  });
  return { rows, cost: [examined, extraWork] };
}

describe('a query that filters', () => {
  it.each([
    ['SELECT VALUE c.id FROM c WHERE c.n = @v', 40],
    ['SELECT c.id, c.s, c.list FROM c WHERE c.n > @v AND c.s != "a" AND c.deep.a.b < 3', 400],
    ['SELECT VALUE {"i": c.id, "x": x} FROM c JOIN x IN c.list WHERE x = 2 AND c.n = @v', 40],
    ['SELECT VALUE c.id FROM c WHERE c.n = @v OR IS_DEFINED(c.option) AND c.option = null', 90],
    ['SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.option) AND c["n"] = @v', 40],
    ['SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.list WHERE x = @v) AND c.n < 4', 160],
    ['SELECT VALUE x FROM x IN c.list WHERE x = @v AND x < 5', 500],
    ['SELECT c.s, COUNT(1) AS count, MAX(c.deep.a.b) AS max FROM c WHERE c.n = @v GROUP BY c.s', 40],
    ['SELECT TOP 7 c.id, c.n FROM c WHERE c.n < @v ORDER BY c.list[0] DESC, c.id', 120],
    ['SELECT DISTINCT VALUE c.s FROM c WHERE c.n = @v', 40],
    ['SELECT VALUE c.id FROM c WHERE c.half = @v', 40],
    ['SELECT VALUE c.id FROM c WHERE LENGTH(c.long) > 1000 AND c.n >= @v', 20],
  ])('opens only the documents that its filter selects, whatever it was before: %s', async (sql, selected) => {
    const costs = [];
    for (const value of [3, 1, 2, 3]) {
      opened = 0;
      const { rows, cost } = await ask(sql, value);
      costs.push(cost);
      const plan = planQuery(parseQuery(sql), [{ name: '@v', value }], { computedProperties: COMPUTED });
      expect(rows).toEqual([...evaluate(plan, items)]);
    }
    expect(opened).toBeLessThan(FIRST_OPENED + selected);
    // The charge is for the documents that the filter decides about, whether or not they are opened.
    expect(costs[3]).toEqual(costs[0]);
  });

  it('goes by the present versions of the items', async () => {
    const sql = 'SELECT VALUE c.id FROM c WHERE c.deep.a.b = @v AND c.n < 100';
    for (let time = 0; time < 3; time += 1) await ask(sql, 100);
    const write = async (number: number, b: number) => {
      const item = itemToWrite({ id: `i${number}`, pk: 'p', ...fields(number), deep: { a: { b } } });
      await store.writeItem(CALLER, store.container('db', NAME), 'upsert', item);
    };
    await write(1_500, 100);
    await write(1_600, 100);
    expect((await ask(sql, 100)).rows).toEqual(['i1500', 'i1600']);
    await write(1_500, 0);
    expect((await ask(sql, 100)).rows).toEqual(['i1600']);
  });

  it('remembers nothing of a query that is asked once, however many pages it has', async () => {
    const sql = 'SELECT VALUE c.id FROM c WHERE c.list[1] < 100 AND IS_DEFINED(c.long)';
    const pageOf = (continuation?: Continuation) => {
      const request = { sql, parameters: [], maxItemCount: 500, continuation };
      return store.queryItems(store.container('db', NAME), request);
    };
    const { continuation } = await pageOf();
    let next = continuation;
    while (next !== undefined) ({ continuation: next } = await pageOf(next));
    const none = sql.replace('< 100', '< 0');
    opened = 0;
    await ask(none, null);
    expect(opened).toBe(ITEMS);
    opened = 0;
    await ask(none, null);
    expect(opened).toBeLessThan(FIRST_OPENED + 100);
  });
});
