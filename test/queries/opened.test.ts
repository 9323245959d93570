import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Continuation, QueryRequest } from '@epitaph/api/store/api/queries-api.ts';
import { Host } from '../../packages/query/test/host.ts';
import { type Embedded, newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { CALLER } from './store.ts';

const ITEMS = 50;
const START_MS = 1_700_000_000_000;

let folder: string;
let embedded: Embedded;
/** The number of bodies read from the log. A test may do something before the next one. */
let opened = 0;
let beforeNext: (() => Promise<void>) | undefined;

const open = async () => {
  embedded = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  const { log } = embedded;
  const readBody = log.readBody.bind(log);
  log.readBody = (position) => {
    opened += 1;
    const happens = beforeNext;
    beforeNext = undefined;
    return happens === undefined ? readBody(position) : happens().then(() => readBody(position));
  };
};

beforeEach(async () => {
  folder = newFolder('opened');
  await open();
  const { store } = embedded;
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'c', DEFINITION, null);
  const container = store.container('db', 'c');
  for (let number = 0; number < ITEMS; number += 1) {
    const document = { id: `i${String(number).padStart(2, '0')}`, pk: 'p', number };
    await store.writeItem(CALLER, container, 'create', itemToWrite(document));
    await store.advanceClock(1_000);
  }
  // After a restart, no document is cached in decoded form.
  await store.close();
  await open();
  opened = 0;
});

afterEach(async () => {
  await embedded.store.close();
  removeFolder(folder);
});

async function pageOf(
  sql: string,
  maxItemCount: number,
  continuation?: Continuation,
  userFunctions?: QueryRequest['userFunctions'],
) {
  const { store } = embedded;
  const asked = { sql, parameters: [], maxItemCount, continuation, userFunctions };
  const page = await store.queryItems(store.container('db', 'c'), asked);
  return { ...page, numbers: page.rows.map((row) => (row as { number: number }).number) };
}

const latest = (count: number, last = ITEMS - 1) => Array.from({ length: count }, (_, index) => last - index);

describe('a page in the order of id or _ts', () => {
  it.each([
    ['SELECT * FROM c ORDER BY c._ts DESC', 10],
    ['SELECT c.number FROM c WHERE c._ts > 0 ORDER BY c.id DESC', ITEMS],
  ])('opens only the documents of its rows: %s', async (sql, examined) => {
    const first = await pageOf(sql, 5);
    expect(first.numbers).toEqual(latest(5));
    // A few more tell where the next page begins.
    expect(opened).toBeLessThan(15);
    // It is charged as if all candidates had been opened.
    expect(first.examined).toBe(examined);
    const next = await pageOf(sql, 5, first.continuation);
    expect(next.numbers).toEqual(latest(5, 44));
    expect(opened).toBeLessThan(25);
  });

  it('opens only documents that a user-defined function chooses by their ids', async () => {
    const host = Host.of({ isEven: (id) => Number(String(id).slice(1)) % 2 === 0, same: (document) => document });
    const sql = 'SELECT c.number, udf.same(c).pk AS pk FROM c WHERE udf.isEven(c.id) ORDER BY c._ts DESC';
    const { rows } = await pageOf(sql, 3, undefined, host);
    expect(rows).toEqual([48, 46, 44].map((number) => ({ number, pk: 'p' })));
    expect(opened).toBeLessThan(15);
  });

  it('opens only its documents also after skipped ones', async () => {
    const { numbers } = await pageOf('SELECT * FROM c ORDER BY c.id OFFSET 30 LIMIT 3', 5);
    expect(numbers).toEqual([30, 31, 32]);
    expect(opened).toBeLessThan(15);
  });

  it('does the same work whether or not all documents are open: no other rows are built', async () => {
    const worked =
      'ARRAY_LENGTH(ARRAY(SELECT VALUE x.at FROM x IN ARRAY_CONCAT([1, 2, 3], StringSplit(REPLICATE("a ", 500), " "))))';
    const sql = `SELECT c.number, ${worked} AS n FROM c ORDER BY c.id DESC`;
    const before = await pageOf(sql, 5);
    expect(before.extraWork).toBeGreaterThan(0);
    await pageOf('SELECT * FROM c WHERE c.number = -1', 5);
    opened = 0;
    const after = await pageOf(sql, 5);
    expect(opened).toBe(0);
    expect(after).toMatchObject({ numbers: before.numbers, examined: ITEMS, extraWork: before.extraWork });
  });

  it('opens no more large documents than fit on the page, and a few that tell where the next one begins', async () => {
    const large = { pk: 'p', number: 0, text: 'x'.repeat(1_500_000) };
    for (let number = 100; number < 110; number += 1) {
      const item = itemToWrite({ ...large, id: `i${number}`, number });
      await embedded.store.writeItem(CALLER, embedded.store.container('db', 'c'), 'create', item);
      await embedded.store.advanceClock(1_000);
    }
    await embedded.store.close();
    await open();
    opened = 0;
    const first = await pageOf('SELECT * FROM c ORDER BY c._ts DESC', 1_000);
    expect(first.numbers).toEqual([109, 108]);
    expect(opened).toBe(6);
    const next = await pageOf('SELECT * FROM c ORDER BY c._ts DESC', 1_000, first.continuation);
    expect(next.numbers).toEqual([107, 106]);
    expect(opened).toBe(8);
  });

  it('opens all documents if the filter needs more than id and _ts', async () => {
    const { numbers } = await pageOf('SELECT * FROM c WHERE c.number < 40 ORDER BY c._ts DESC', 5);
    expect(numbers).toEqual(latest(5, 39));
    expect(opened).toBe(ITEMS);
  });

  it('has the next row instead of one that is erased before it is opened', async () => {
    const { store } = embedded;
    const sql = 'SELECT * FROM c ORDER BY c._ts DESC';
    beforeNext = async () => {
      for (const id of ['i48', 'i46', ...latest(10, 42).map((number) => `i${number}`)]) {
        const request = { reason: 'asked for', requestedBy: 'the person' };
        await store.eraseItem(CALLER, store.container('db', 'c'), id, '["p"]', request);
      }
    };
    const first = await pageOf(sql, 5);
    expect(first.numbers).toEqual([49, 47, 45, 44, 43]);
    const next = await pageOf(sql, 5, first.continuation);
    expect(next.numbers).toEqual(latest(5, 32));
  });
});

describe('a query by id or _ts without a partition key', () => {
  it.each([
    ['SELECT * FROM c WHERE c.id = "i07"', [7]],
    ['SELECT * FROM c WHERE c.id IN ("i07", "i31", "other") AND c.number > 10', [31]],
    ['SELECT * FROM c WHERE c._ts >= 1700000048', [48, 49]],
    ['SELECT * FROM c WHERE c._ts BETWEEN 1700000010 AND 1700000012.5 ORDER BY c.id DESC', [12, 11, 10]],
    ['SELECT * FROM c WHERE c._ts > 1e300', []],
    ['SELECT * FROM c WHERE c._ts < -1', []],
  ])('examines only the rows with that id or _ts: %s', async (sql, expected) => {
    const { store } = embedded.storage.readModels.current;
    const scanItems = store.scanItems.bind(store);
    let given = 0;
    store.scanItems = async (...scan) => {
      const rows = await scanItems(...scan);
      given += rows.length;
      return rows;
    };
    const { numbers } = await pageOf(sql, 100);
    expect(numbers).toEqual(expected);
    expect(given).toBeLessThanOrEqual(3);
    expect(opened).toBe(given);
  });
});

it('a query has each item once, although half a surrogate pair is written as U+FFFD, of which an id consists', async () => {
  const item = itemToWrite({ id: '\ufffd', pk: 'p' });
  await embedded.store.writeItem(CALLER, embedded.store.container('db', 'c'), 'create', item);
  // The row is read from its place in the file.
  await embedded.store.close();
  await open();
  const sql = 'SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)';
  const parameters = [{ name: '@ids', value: ['\ud800', '\ufffd'] }];
  const request = { sql, parameters, maxItemCount: 10, partitionKey: '["p"]' };
  expect((await embedded.store.queryItems(embedded.store.container('db', 'c'), request)).rows).toEqual(['\ufffd']);
});
