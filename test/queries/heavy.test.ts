import { describe, expect, it } from 'vitest';
import { chargeOfError } from '@epitaph/api/cosmos/charged.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { DEFINITION } from '../support/definition.ts';
import { CALLER, stock, withStore } from './store.ts';

/** Milliseconds that this thread has worked. */
const workedMs = (): number => process.threadCpuUsage().user / 1_000;

let store: Store;
withStore(
  'heavy',
  (opened) => {
    store = opened;
  },
  // The time that this thread has worked. Beside other tests a query takes several times as long in real time, and would reach its limits.
  { monotonicMs: workedMs, pageWaitMs: 600_000 },
);

const ask = (name: string, sql: string, signal?: AbortSignal) =>
  store.queryItems(store.container('db', name), { sql, parameters: [], maxItemCount: 100, signal });

interface Counted<Result> {
  readonly result: Result;
  readonly turns: number;
  /** Milliseconds of work in the longest turn, and in all of them. */
  readonly longestMs: number;
  readonly totalMs: number;
}

/** Counts the turns that the event loop has while some work is done. */
async function counted<Result>(work: Promise<Result>): Promise<Counted<Result>> {
  const startedMs = workedMs();
  let lastMs = startedMs;
  let longestMs = 0;
  let turns = 0;
  let isRunning = true;
  const { promise: last, resolve: end } = Promise.withResolvers<void>();
  const count = (): void => {
    turns += 1;
    const nowMs = workedMs();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
    if (isRunning) setImmediate(count);
    else end();
  };
  setImmediate(count);
  const result = await work.finally(() => (isRunning = false));
  await last;
  return { result, turns, longestMs, totalMs: lastMs - startedMs };
}

describe('a query that takes long', () => {
  it('is charged for the documents that it has examined when its client leaves', async () => {
    // given
    await stock(store, 'left', 2_000, (n) => ({ text: 'a text '.repeat(200), n }));
    const gone = new AbortController();
    // when
    const text = Array(20).fill('UPPER(c.text)').join(' || ');
    const asked = ask('left', `SELECT VALUE COUNT(1) FROM c WHERE LENGTH(${text}) > 0`, gone.signal);
    const left = asked.catch((error: unknown) => error);
    setTimeout(() => gone.abort(new Error('the client is gone')), 5);
    const error = await left;
    // then
    expect(error).toMatchObject({ message: 'the client is gone' });
    const query = { method: 'POST', headers: { 'x-ms-documentdb-isquery': 'true' } };
    expect(chargeOfError(query, error)).toBeGreaterThan(1);
  });

  it('gives other work turns between documents, also between those that were looked up together', async () => {
    await stock(store, 'joined', 20, () => ({ list: Array.from({ length: 60 }, (_, n) => n) }));
    const sql = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list WHERE x + y + z >= 0';
    const { result, turns } = await counted(ask('joined', sql));
    expect(result.rows).toEqual([20 * 60 ** 3]);
    expect(turns).toBeGreaterThanOrEqual(10);
  });

  it('does so if some documents are much more work than all before them', async () => {
    await stock(store, 'uneven', 400, (n) => (n < 256 ? {} : { list: Array.from({ length: 25 }, (_, at) => at) }));
    const sql = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list WHERE x + y + z >= 0';
    const { result, turns } = await counted(ask('uneven', sql));
    expect(result.rows).toEqual([144 * 25 ** 3]);
    expect(turns).toBeGreaterThanOrEqual(10);
  });

  it('works on one document at a time in the slow lane, also after many that were no work', async () => {
    const list = Array.from({ length: 70 }, (_, n) => n);
    await stock(store, 'late', 400, (n) => (n < 392 ? {} : { list }));
    const sql = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list WHERE x + y + z >= 0';
    const { result, longestMs, totalMs } = await counted(ask('late', sql));
    expect(result.rows).toEqual([8 * 70 ** 3]);
    expect(longestMs).toBeLessThan(totalMs / 3);
  });

  it('does so between the items that it names', async () => {
    await store.createContainer(CALLER, 'db', 'named', DEFINITION, -1);
    const ids = Array.from({ length: 30_000 }, (_, n) => `"${n}"`).join();
    const sql = `SELECT * FROM c WHERE c.id IN (${ids}) AND c.pk = "p"`;
    const { result, turns } = await counted(ask('named', sql));
    expect(result.rows).toEqual([]);
    expect(turns).toBeGreaterThanOrEqual(5);
  });

  it('leaves other work half of the time while it works long on a document or a group, even if many queries do', async () => {
    await stock(store, 'slow', 3, () => ({ list: Array.from({ length: 120 }, (_, n) => n) }));
    const joined = 'SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list';
    const values = JSON.stringify(Array.from({ length: 100 }, (_, n) => n));
    const joins = ['x', 'y', 'z'].map((name) => `${name} IN (SELECT VALUE ${values})`).join(' JOIN ');
    const grouped = `SELECT c.id, (SELECT VALUE COUNT(1) FROM ${joins}) AS n FROM c GROUP BY c.id`;
    const groups = ['i0', 'i1', 'i2'].map((id) => ({ id, n: 1_000_000 }));
    const asked = [joined, grouped, joined, grouped, joined, joined].map((sql) => ask('slow', sql));
    const { result: pages, turns } = await counted(Promise.all(asked));
    expect(pages.map(({ rows }) => rows)).toEqual(
      [joined, grouped, joined, grouped, joined, joined].map((sql) => (sql === joined ? [3 * 120 ** 3] : groups)),
    );
    expect(turns).toBeGreaterThanOrEqual(500);
    // Work that was begun in vain is not counted.
    expect(pages[2]?.extraWork).toBe(pages[0]?.extraWork);
    expect(pages[0]?.extraWork).toBeGreaterThan(3 * 120 ** 3);
  });

  it('leaves other work its time while the conditions of many patches take long', async () => {
    await stock(store, 'patched', 20, (n) => ({ n }));
    const values = JSON.stringify(Array.from({ length: 80 }, (_, n) => n));
    const joins = ['x', 'y', 'z'].map((name) => `${name} IN (SELECT VALUE ${values})`).join(' JOIN ');
    const patch = {
      operations: [{ op: 'set' as const, path: '/n', value: -1 }],
      condition: `FROM c WHERE (SELECT VALUE COUNT(1) FROM ${joins}) = 512000`,
    };
    let turns = 0;
    let isRunning = true;
    const count = (): void => {
      turns += 1;
      if (isRunning) setImmediate(count);
    };
    setImmediate(count);
    const outcome = await store.batchItems(
      CALLER,
      store.container('db', 'patched'),
      Array.from({ length: 20 }, (_, n) => ({ kind: 'patch' as const, id: `i${n}`, partitionKey: '["p"]', patch })),
    );
    isRunning = false;
    expect(outcome).toMatchObject({ kind: 'done' });
    expect(turns).toBeGreaterThanOrEqual(100);
  });

  it('waits for queries that hold much memory already, and frees its memory when it ends, fails, or is cancelled', async () => {
    await stock(store, 'texts', 300, (n) => ({ text: `${n} `.padEnd(4_000, 'text '), list: n === 299 ? [1, 2] : [] }));
    const groups = 'SELECT c.text, COUNT(1) AS n FROM c GROUP BY c.text ORDER BY c.text';
    // It fails at its last document.
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

describe('on a machine that leaves it no time', () => {
  let busy: Store;
  let elapsedMs = 0;
  withStore(
    'busy',
    (opened) => {
      busy = opened;
    },
    { monotonicMs: () => (elapsedMs += 50), pageWaitMs: 600_000 },
  );

  it('neither a query nor the condition of a patch is refused because of the time that other work took', async () => {
    await busy.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    const document = { id: 'a', pk: 'p', list: Array.from({ length: 40 }, (_, n) => n) };
    const item = { id: 'a', partitionKey: '["p"]', document, json: JSON.stringify(document) };
    const container = () => busy.container('db', 'c');
    await busy.writeItem(CALLER, container(), 'create', item);
    const joined = 'JOIN x IN c.list JOIN y IN c.list';
    const query = {
      sql: `SELECT VALUE COUNT(1) FROM c ${joined}`,
      parameters: [],
      maxItemCount: 100,
      signal: undefined,
    };
    expect((await busy.queryItems(container(), query)).rows).toEqual([1_600]);
    const patch = {
      operations: [{ op: 'set' as const, path: '/n', value: 1 }],
      condition: 'FROM c WHERE (SELECT VALUE COUNT(1) FROM x IN c.list JOIN y IN c.list) = 1600',
    };
    await busy.patchItem(CALLER, container(), 'a', '["p"]', patch);
  });
});
