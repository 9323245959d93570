import { beforeAll, describe, expect, it } from 'vitest';
import type { Continuation, QueryRequest } from '@epitaph/api/store/api/queries-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { evaluate, type Json, parseQuery, planQuery } from '@epitaph/query';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { CALLER, withStore } from './store.ts';

const ITEMS = 400;

let store: Store;
withStore('by-time', (opened) => {
  store = opened;
});

/** The existing documents, in order of birth. */
let documents: Json[];

async function write(operation: 'create' | 'upsert', number: number, ttl?: number): Promise<void> {
  const document = { id: `i${number}`, pk: `p${number % 7}`, number, kind: number % 5, list: [number % 2, 2], ttl };
  await store.writeItem(CALLER, store.container('db', 'c'), operation, itemToWrite(document));
}

// Times that many items share, and times of one item alone. Some items expire by the default or by their own ttl, also before the queries.
// Some were written again, so that their time is later than their birth.
beforeAll(async () => {
  await store.createContainer(CALLER, 'db', 'c', DEFINITION, 900);
  for (let number = 0; number < ITEMS; number += 1) {
    await write('create', number, [undefined, undefined, undefined, -1, 300, 1_000_000][number % 6]);
    if (number % 60 < 30) await store.advanceClock((number % 4) * 1_000);
    if (number % 9 === 0) await write('upsert', number >> 1);
  }
  await store.advanceClock(600_000);
  const { items } = await store.listItems(store.container('db', 'c'), { maxItemCount: ITEMS });
  documents = items.map(({ json, ts }) => ({ ...(JSON.parse(json) as object), _ts: ts }));
  expect(documents.length).toBeGreaterThan(ITEMS / 2);
  expect(documents.length).toBeLessThan(ITEMS);
});

async function pagesOf(sql: string, size: number, scope: Pick<QueryRequest, 'partitionKey'> = {}) {
  const pages: { readonly rows: readonly Json[]; readonly examined: number }[] = [];
  for (let continuation: Continuation | undefined; ;) {
    const request = { sql, parameters: [], maxItemCount: size, continuation, ...scope };
    const page = await store.queryItems(store.container('db', 'c'), request);
    pages.push({ rows: page.rows as readonly Json[], examined: page.examined });
    continuation = page.continuation;
    if (continuation === undefined) return pages;
  }
}

const QUERIES = [
  'SELECT * FROM c ORDER BY c._ts DESC',
  'SELECT * FROM c ORDER BY c._ts',
  'SELECT VALUE c.number FROM c ORDER BY c._ts DESC, c.id',
  'SELECT VALUE c.id FROM c WHERE c._ts > 0 ORDER BY c._ts, c.number DESC',
  'SELECT TOP 17 c.id FROM c ORDER BY c._ts DESC',
  'SELECT VALUE c.id FROM c ORDER BY c._ts DESC OFFSET 25 LIMIT 40',
  'SELECT c.id FROM c WHERE c.kind = 3 ORDER BY c._ts DESC',
  'SELECT c.id FROM c WHERE c.number = 391 ORDER BY c._ts',
  'SELECT c.id, x FROM c JOIN x IN c.list WHERE x = 1 ORDER BY c._ts DESC',
  'SELECT c.id FROM c WHERE c.kind > 7 ORDER BY c._ts DESC',
  'SELECT DISTINCT c.kind FROM c ORDER BY c._ts',
  'SELECT c._ts, COUNT(1) AS n FROM c GROUP BY c._ts ORDER BY c._ts DESC',
  'SELECT VALUE d.id FROM (SELECT c.id, -c._ts AS _ts FROM c) d ORDER BY d._ts',
  'SELECT VALUE c.id FROM c ORDER BY -c._ts',
];

describe('a page in the order of _ts', () => {
  it.each(QUERIES)('has the rows that it has if all documents are examined: %s', async (sql) => {
    const expected = [...evaluate(planQuery(parseQuery(sql)), documents)];
    for (const size of [1, 7, 40, 1_000]) {
      const rows = (await pagesOf(sql, size)).flatMap((page) => page.rows);
      expect(rows.map(owned)).toEqual(expected.map(owned));
    }
    const ofOne = documents.filter((document) => (document as { pk: string }).pk === 'p3');
    const rows = (await pagesOf(sql, 5, { partitionKey: '["p3"]' })).flatMap((page) => page.rows);
    expect(rows.map(owned)).toEqual([...evaluate(planQuery(parseQuery(sql)), ofOne)].map(owned));
  });

  it.each([
    ['SELECT * FROM c ORDER BY c._ts DESC', 50],
    ['SELECT * FROM c ORDER BY c._ts', 50],
    ['SELECT * FROM c WHERE c.kind = 3 ORDER BY c._ts DESC', 200],
  ])('examines few of the documents after it, and none of those before: %s', async (sql, most) => {
    const pages = await pagesOf(sql, 3);
    const examined = pages.map((page) => page.examined);
    expect(examined[0]).toBeLessThan(most);
    expect(examined.at(-1)).toBeLessThan(most);
    // Many documents are of one second, so finding these takes more.
    expect(examined.reduce((sum, some) => sum + some, 0)).toBeLessThan((pages.length * documents.length) / 2);
  });

  it('is charged once for documents that it examines in vain', async () => {
    const [page] = await pagesOf('SELECT c.id FROM c WHERE c.kind > 7 ORDER BY c._ts DESC', 3);
    expect(page).toEqual({ rows: [], examined: documents.length });
  });
});

/** The properties of a document without those that the store adds. */
function owned(row: Json): Json {
  if (typeof row !== 'object' || row === null || Array.isArray(row)) return row;
  return Object.fromEntries(
    Object.entries(row).filter(([name]) => !['_rid', '_self', '_etag', '_attachments'].includes(name)),
  );
}
