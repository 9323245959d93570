import { beforeAll, describe, expect, it } from 'vitest';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { Json } from '@epitaph/query';
import { stock, withStore } from './store.ts';

let store: Store;
withStore('page-ends', (opened) => {
  store = opened;
});

const NAMED = 'c.id IN ("i3", "i1", "i2") AND c.pk = "p"';
const RANK = 'ORDER BY RANK FullTextScore(c.words, "word")';

/** The rows of each page of an answer. */
async function pagesOf(
  name: string,
  sql: string,
  maxItemCount: number,
  continuation?: Continuation,
): Promise<(readonly Json[])[]> {
  const pages: (readonly Json[])[] = [];
  do {
    const page = await store.queryItems(store.container('db', name), {
      sql,
      parameters: [],
      maxItemCount,
      continuation,
    });
    pages.push(page.rows as readonly Json[]);
    ({ continuation } = page);
  } while (continuation !== undefined && pages.length < 20);
  return pages;
}

describe('the pages of an answer', () => {
  beforeAll(() => stock(store, 'few', 10, (n) => ({ n, m: n % 3, words: n < 5 ? 'word '.repeat(n) : 'other' })));

  it.each([
    [
      'end with the last row, whatever comes after it',
      'SELECT VALUE c.n FROM c WHERE c.n < 4',
      [
        [0, 1],
        [2, 3],
      ],
    ],
    ['leave out what is not distinct, on whichever page it was', 'SELECT DISTINCT VALUE c.m FROM c', [[0, 1], [2]]],
    ['are one without rows for the first none', 'SELECT TOP 0 VALUE c.n FROM c', [[]]],
    ['end with the last of the first ones', 'SELECT TOP 3 VALUE c.n FROM c', [[0, 1], [2]]],
    ['end with the last of the first ones in order', 'SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC', [[9, 8], [7]]],
    [
      'are no more than the first ones in order take',
      'SELECT TOP 4 VALUE c.n FROM c ORDER BY c.n DESC',
      [
        [9, 8],
        [7, 6],
      ],
    ],
    ['are of named items in the same order', `SELECT VALUE c.n FROM c WHERE ${NAMED}`, [[1, 2], [3]]],
    ['of the best end with the last', `SELECT VALUE c.n FROM c ${RANK} OFFSET 0 LIMIT 2`, [[4, 3]]],
    ['of the best leave out rows once', `SELECT VALUE c.n FROM c ${RANK} OFFSET 1 LIMIT 3`, [[3, 2], [1]]],
    ['leave out rows once', 'SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 3', [[3, 4], [5]]],
  ])('%s', async (_, sql, pages) => {
    expect(await pagesOf('few', sql, 2)).toEqual(pages);
  });

  it('don’t wait for a search through all remaining documents', async () => {
    await stock(store, 'many', 300, (n) => ({ n }));
    expect(await pagesOf('many', 'SELECT VALUE c.n FROM c WHERE c.n < 2', 2)).toEqual([[0, 1], []]);
  });

  it('continue with the row that was too long for the one before', async () => {
    await stock(store, 'long', 4, (n) => ({ n, text: 'x'.repeat(n < 3 ? 1_500_000 : 1) }));
    // With and without a continuation.
    for (const continuation of [undefined, { kind: 'skip', rows: 0 } as const]) {
      const pages = await pagesOf('long', 'SELECT TOP 4 VALUE [c.n, c.text] FROM c', 10, continuation);
      expect(pages.map((page) => page.map((row) => (row as number[])[0]))).toEqual([
        [0, 1],
        [2, 3],
      ]);
    }
  });

  it('leave out expired items, in look-ups by id and in a cached scan', async () => {
    await stock(store, 'expiring', 3, (n) => (n === 1 ? { n, ttl: 5 } : { n }));
    const named = 'SELECT VALUE c.n FROM c WHERE c.id IN ("i0", "i1") AND c.pk = "p"';
    const scanned = 'SELECT VALUE c.n FROM c WHERE c.n >= 0';
    for (let times = 0; times < 2; times += 1) expect(await pagesOf('expiring', scanned, 10)).toEqual([[0, 1, 2]]);
    expect(await pagesOf('expiring', named, 10)).toEqual([[0, 1]]);
    await store.advanceClock(5_000);
    expect(await pagesOf('expiring', scanned, 10)).toEqual([[0, 2]]);
    expect(await pagesOf('expiring', named, 10)).toEqual([[0]]);
  });

  it('in order continue if fewer rows could be chosen from than a page has room for', async () => {
    const list = Array.from({ length: 50_000 }, () => 1);
    await stock(store, 'wide', 30, (n) => ({ n, list }));
    const pages = await pagesOf('wide', 'SELECT c.n, c.list FROM c ORDER BY c.n', 100);
    const numbers = (rows: readonly Json[]) => rows.map((row) => (row as { readonly n: number }).n);
    expect(pages.length).toBeGreaterThan(1);
    expect(numbers(pages.flat())).toEqual(Array.from({ length: 30 }, (_, n) => n));
    const few = await pagesOf('wide', 'SELECT c.n, c.list FROM c ORDER BY c.n OFFSET 27 LIMIT 2', 100);
    expect(few.map(numbers)).toEqual([[27, 28]]);
  });
});
