import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeContinuation, encodeContinuation } from '@epitaph/api/cosmos/continuation.ts';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { evaluate, type Json, parseQuery, planQuery } from '@epitaph/query';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { CALLER, withStore } from './store.ts';

let store: Store;
withStore('paging', (opened) => {
  store = opened;
});

/** Queries whose rows are all different and contain everything that they are ordered by. */
const IN_PLACE = [
  'SELECT VALUE c.id FROM c',
  'SELECT VALUE c.id FROM c ORDER BY c.n',
  'SELECT VALUE c.id FROM c ORDER BY c.n DESC, c.s',
  'SELECT c.id, c.n FROM c ORDER BY c.id DESC',
  'SELECT c.id, c.s FROM c WHERE c._ts > 1 ORDER BY c._ts DESC, c.id',
  'SELECT VALUE [c.id, x] FROM c JOIN x IN c.list',
  'SELECT VALUE [c.id, x] FROM c JOIN x IN c.list ORDER BY c.n',
  'SELECT VALUE [c.id, x] FROM c JOIN x IN c.list ORDER BY c.n DESC',
  'SELECT VALUE [c.id, x] FROM c JOIN x IN c.list WHERE x != 2 ORDER BY x DESC, c.s',
  'SELECT VALUE [c.id, x, y] FROM c JOIN x IN c.list JOIN y IN c.list WHERE x >= y ORDER BY c.s DESC, y',
  'SELECT VALUE [d.id, x] FROM (SELECT c.id, c.n, c.list FROM c WHERE c.n != 1) d JOIN x IN d.list ORDER BY d.n DESC',
  'SELECT DISTINCT c.n FROM c ORDER BY c.n',
  'SELECT DISTINCT c.n, c.s FROM c ORDER BY c.n DESC',
  'SELECT DISTINCT VALUE [x, c.s] FROM c JOIN x IN c.list ORDER BY x',
  'SELECT VALUE [c.n] FROM c GROUP BY c.n',
  'SELECT VALUE {"n": c.n, "s": c.s} FROM c GROUP BY c.s, c.n',
  'SELECT VALUE [c.n, c.s] FROM c GROUP BY c.s, c.n ORDER BY c.n DESC',
  'SELECT DISTINCT VALUE c.s FROM c GROUP BY c.s, c.n ORDER BY c.s',
  'SELECT DISTINCT VALUE c.s FROM c GROUP BY c.s, c.n',
  'SELECT VALUE x FROM c JOIN x IN c.list GROUP BY x ORDER BY x DESC',
  'SELECT VALUE [REPLICATE(c.s, 700), c.n] FROM c GROUP BY REPLICATE(c.s, 700), c.n',
];

/** Ordered by values that no token has room for. Pages continue beside the rows that were next to the last one. */
const BY_LONG_VALUES = [
  'SELECT VALUE c.id FROM c ORDER BY CONCAT(REPLICATE("long", 300), c.s)',
  'SELECT VALUE c.id FROM c ORDER BY c.n, CONCAT(REPLICATE("long", 300), c.s) DESC',
  'SELECT VALUE [c.id, x] FROM c JOIN x IN c.list ORDER BY [REPLICATE("long", 300), x] DESC',
  'SELECT DISTINCT c.s, c.n FROM c ORDER BY REPLICATE(c.s, 1000) DESC, c.n',
];

/** Rows change their places, because scores depend on all documents. */
const IN_ANY_ORDER = [
  'SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.s, "ab", "a")',
  'SELECT VALUE c.id FROM c WHERE c.n != 1 ORDER BY RANK RRF(FullTextScore(c.s, "ab"), FullTextScore(c.s, "b"))',
];
const words = fc.constantFrom('a', 'b', 'ab', '\uffff', '👻');
const item = fc.record({
  n: fc.constantFrom<Json>(1, 2, 3, null, 'text', [1], { a: 1 }),
  s: words,
  list: fc.uniqueArray(fc.integer({ min: 0, max: 4 }), { maxLength: 4 }),
  ttl: fc.constantFrom(-1, -1, 10),
});
type Item = Readonly<Record<'n' | 's' | 'list' | 'ttl', Json>>;

/** Changes between two pages: some of the items, by index, are deleted, and others are created. */
const between = fc.record({
  gone: fc.array(fc.nat(), { maxLength: 3 }),
  come: fc.array(item, { maxLength: 2 }),
  expire: fc.boolean(),
});

let containers = 0;
async function stocked(items: readonly Item[]): Promise<string> {
  containers += 1;
  const name = `c${containers}`;
  await store.createContainer(CALLER, 'db', name, DEFINITION, -1);
  await Promise.all(items.map((one) => write(name, one)));
  return name;
}

let ids = 0;
async function write(name: string, fields: Item): Promise<void> {
  ids += 1;
  const written = itemToWrite({ id: `i${ids}`, pk: 'p', ...fields });
  await store.writeItem(CALLER, store.container('db', name), 'create', written);
}

/** The existing documents, in order of birth. */
async function documentsOf(name: string): Promise<{ readonly id: string; readonly [name: string]: Json }[]> {
  const { items } = await store.listItems(store.container('db', name), { maxItemCount: 1_000 });
  return items.map(({ json, ts }) => ({ ...(JSON.parse(json) as { id: string }), _ts: ts }));
}

async function happen(
  name: string,
  { gone, come, expire }: typeof between extends fc.Arbitrary<infer Found> ? Found : never,
) {
  for (const place of gone) {
    const there = await documentsOf(name);
    const chosen = there[place % Math.max(1, there.length)];
    if (chosen !== undefined) await store.deleteItem(CALLER, store.container('db', name), chosen.id, '["p"]');
  }
  for (const one of come) await write(name, one);
  if (expire) await store.advanceClock(10_000);
}

/** All pages, each asked for by its token alone. */
async function paged(name: string, sql: string, size: number, meanwhile: () => Promise<void>): Promise<unknown[]> {
  const rows: unknown[] = [];
  for (let continuation: Continuation | undefined; ;) {
    const container = store.container('db', name);
    const page = await store.queryItems(container, {
      sql,
      parameters: [],
      maxItemCount: size,
      continuation,
    });
    expect(page.rows.length).toBeLessThanOrEqual(size);
    rows.push(...page.rows);
    if (page.continuation === undefined) return rows;
    const token = encodeContinuation(page, { of: container.rid, key: undefined });
    expect(token.length).toBeLessThanOrEqual(1_024);
    ({ continuation } = decodeContinuation(token, { of: container.rid, key: undefined }));
    expect(rows.length).toBeLessThan(2_000);
    await meanwhile();
  }
}

const texts = (rows: readonly unknown[]) => rows.map((row) => JSON.stringify(row));

describe('the pages of a query', () => {
  it.each([...IN_PLACE, ...BY_LONG_VALUES, ...IN_ANY_ORDER])(
    'contain every row that exists all the time once, in order, whatever is deleted and created: %s',
    async (sql) => {
      const plan = planQuery(parseQuery(sql));
      const isLong = BY_LONG_VALUES.includes(sql);
      let changes = 0;
      await fc.assert(
        fc.asyncProperty(
          fc.array(item, { minLength: 3, maxLength: 14 }),
          fc.array(between, { minLength: 2, maxLength: 6 }),
          fc.integer({ min: 1, max: 3 }),
          async (items, steps, size) => {
            const name = await stocked(items);
            const first = await documentsOf(name);
            const todo = [...steps];
            const found = texts(
              await paged(name, sql, size, async () => {
                const step = todo.shift();
                if (step !== undefined) {
                  changes += 1;
                  // Some of the rows next to the page's end have to stay.
                  const fewer = { ...step, gone: step.gone.slice(0, 1), expire: false };
                  await happen(name, isLong ? fewer : step);
                }
              }),
            );
            const last = new Set((await documentsOf(name)).map(({ id }) => id));
            const lasting = first.filter(({ id }) => last.has(id));
            const expected = texts([...evaluate(plan, lasting)]);
            // A row that left and came back may be returned again.
            if (!isLong) expect(new Set(found).size).toBe(found.length);
            const kept = found.filter((row) => expected.includes(row));
            if (IN_ANY_ORDER.includes(sql)) expect(kept.toSorted()).toEqual(expected.toSorted());
            else expect(kept).toEqual(expected);
          },
        ),
        { numRuns: 15 },
      );
      expect(changes).toBeGreaterThan(5);
    },
  );

  it('miss nothing with long values that begin alike if all rows around the end of a page are deleted', async () => {
    for (const direction of ['ASC', 'DESC']) {
      const name = await stocked(Array.from({ length: 40 }, () => ({ n: 1, s: 'a', list: [], ttl: -1 })));
      const ids = (await documentsOf(name)).map(({ id }) => id);
      const sql = `SELECT VALUE c.id FROM c ORDER BY CONCAT(REPLICATE("x", 2000), c.id) ${direction}`;
      const order = direction === 'ASC' ? ids.toSorted() : ids.toSorted().toReversed();
      let pages = 0;
      const found = await paged(name, sql, 10, async () => {
        pages += 1;
        if (pages !== 2) return;
        for (const id of order.slice(14, 26)) {
          await store.deleteItem(CALLER, store.container('db', name), id, '["p"]');
        }
      });
      expect([...new Set(found)]).toEqual([...order.slice(0, 20), ...order.slice(26)]);
      // The first half of the group comes again, because a token of limited length can't tell its rows apart.
      expect(found).toHaveLength(20 + 14 + 14);
    }
  });

  it('of a ranked search continue by a number of rows if there are more than a token can name', async () => {
    const name = await stocked(
      Array.from({ length: 400 }, (_, n) => ({ n, s: 'ab '.repeat((n % 7) + 1), list: [], ttl: -1 })),
    );
    const sql = 'SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.s, "ab")';
    const plan = planQuery(parseQuery(sql));
    expect(await paged(name, sql, 60, async () => {})).toEqual([...evaluate(plan, await documentsOf(name))]);
  });

  const counted: Continuation = { kind: 'skip', rows: 2 };
  const afterFirst: Continuation = { kind: 'sorted', keys: [[1]], birth: 1, rows: 1 };
  it.each<[string, Continuation]>([
    ['SELECT VALUE c.s FROM c GROUP BY c.s', counted],
    ['SELECT VALUE [c.id, x] FROM c JOIN x IN c.list ORDER BY c.n', counted],
    ['SELECT VALUE c.id FROM c ORDER BY c.n DESC', afterFirst],
    ['SELECT VALUE c.id FROM c ORDER BY c.n DESC, c.s', { ...afterFirst, keys: [[1], ['a']] }],
  ])('refuse tokens of versions that returned the rows in another order: %s', async (sql, continuation) => {
    const name = await stocked(
      Array.from({ length: 4 }, (_, n) => ({ n: 1, s: 'ba'.charAt(n % 2), list: [n], ttl: -1 })),
    );
    const page = store.queryItems(store.container('db', name), { sql, parameters: [], maxItemCount: 2, continuation });
    await expect(page).rejects.toThrow('Invalid Continuation Token');
  });

  it('accept tokens of versions that returned the rows in the same order', async () => {
    const name = await stocked(Array.from({ length: 4 }, () => ({ n: 1, s: 'a', list: [], ttl: -1 })));
    const container = store.container('db', name);
    const { items } = await store.listItems(container, { maxItemCount: 4 });
    const ids = items.map(({ json }) => (JSON.parse(json) as { id: string }).id);
    for (const [sql, continuation] of [
      ['SELECT TOP 4 VALUE c.id FROM c', { kind: 'skip', rows: 2 }],
      ['SELECT DISTINCT VALUE c.id FROM c', { kind: 'skip', rows: 2 }],
      ['SELECT VALUE c.id FROM c ORDER BY c.n', { kind: 'sorted', keys: [[1]], birth: items[1]!.birth, rows: 2 }],
    ] as const) {
      const page = await store.queryItems(container, { sql, parameters: [], maxItemCount: 9, continuation });
      expect(page.rows, sql).toEqual(ids.slice(2));
    }
  });
});
