import { beforeAll, describe, expect, it } from 'vitest';
import type { Continuation, QueryRequest } from '@epitaph/api/store/api/queries-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { UserFunctions } from '@epitaph/query';
import { Host, type UserFunction } from '../../packages/query/test/host.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { CALLER, withStore } from './store.ts';

const ITEMS = 40;

let store: Store;
withStore('user-functions', (opened) => {
  store = opened;
});

beforeAll(async () => {
  await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
  for (let n = 0; n < ITEMS; n += 1) {
    const list = Array.from({ length: 60 }, (_, index) => index);
    const item = itemToWrite({ id: `i${String(n).padStart(2, '0')}`, pk: 'p', n, list, text: 'x'.repeat(1_000 * n) });
    await store.writeItem(CALLER, store.container('db', 'c'), 'create', item);
  }
});

const ask = (sql: string, userFunctions?: QueryRequest['userFunctions'], rest: Partial<QueryRequest> = {}) =>
  store.queryItems(store.container('db', 'c'), { sql, parameters: [], maxItemCount: 100, userFunctions, ...rest });

async function pages(sql: string, userFunctions: QueryRequest['userFunctions'], maxItemCount: number) {
  const found: unknown[][] = [];
  for (let continuation: Continuation | undefined; ;) {
    const page = await ask(sql, userFunctions, { maxItemCount, continuation });
    found.push([...page.rows]);
    if (page.continuation === undefined) return found;
    ({ continuation } = page);
  }
}

const same: UserFunction = (x) => x;

describe('a query that calls user-defined functions', () => {
  it('is refused if the container has no function of that name', async () => {
    const refused = { message: expect.stringContaining("'f' is not a recognized user-defined function name.") };
    await expect(ask('SELECT VALUE udf.f(c) FROM c')).rejects.toMatchObject(refused);
    await expect(ask('SELECT VALUE udf.f(c) FROM c', Host.of({ F: same }))).rejects.toMatchObject(refused);
  });

  it('fails with the error of a call, and only when it reaches that call', async () => {
    const failure = new Error('no input');
    const host = Host.of({
      f: (n) => {
        if (n === 25) throw failure;
        return n;
      },
    });
    const sql = 'SELECT VALUE udf.f(c.n) FROM c';
    const page = await ask(sql, host, { maxItemCount: 20 });
    expect(page.rows).toHaveLength(20);
    await expect(ask(sql, host, { maxItemCount: 20, continuation: page.continuation })).rejects.toBe(failure);
    expect((await ask('SELECT TOP 25 VALUE udf.f(c.n) FROM c', host)).rows).toHaveLength(25);
    await expect(ask(`${sql} ORDER BY c.n`, host)).rejects.toBe(failure);
    expect((await ask('SELECT VALUE udf.f(c.n) FROM c WHERE c.id < "i10"', host)).rows).toHaveLength(10);
  });

  it('is charged for each call once, however often documents are tried', async () => {
    const calls = (count: number) => Array.from({ length: count }, () => 'udf.f(c.n)').join(' + ');
    const worked = async (count: number, of: string) => {
      const page = await ask(`SELECT VALUE ${calls(count)} FROM c WHERE ${of}`, Host.of({ f: same }));
      return page.extraWork;
    };
    const [few, many] = [await worked(20, 'c.n < 4'), await worked(40, 'c.n < 4')];
    expect(few).toBeGreaterThan(4 * 20 * 400);
    expect(many - few).toBeCloseTo(4 * 20 * 502, -3);
    expect(await worked(40, 'c.n < 8')).toBeGreaterThan(1.9 * many);
  });

  it('stops when its client leaves', async () => {
    const gone = new AbortController();
    const called = Promise.withResolvers<void>();
    const call: UserFunctions['call'] = (_calls, signal) => {
      called.resolve();
      return new Promise((_, reject) => {
        signal!.addEventListener('abort', () => reject(signal!.reason as Error));
      });
    };
    const never = { names: new Set(['f']), call };
    const asked = ask('SELECT VALUE udf.f(c.n) FROM c', never, { signal: gone.signal }).catch(
      (error: unknown) => error,
    );
    await called.promise;
    gone.abort(new Error('the client is gone'));
    expect(await asked).toMatchObject({ message: 'the client is gone' });
  });

  it('goes on while other queries work long on a document, or hold much memory', async () => {
    const host = () => Host.of({ f: same });
    const long =
      'SELECT VALUE udf.f((SELECT VALUE COUNT(1) FROM x IN c.list JOIN y IN c.list JOIN z IN c.list)) FROM c WHERE c.n < 1';
    const large =
      'SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE udf.f([c.text, x]) FROM x IN c.list)) FROM c WHERE c.n > 38';
    const answers = await Promise.all([ask(long, host()), ...[1, 2, 3].map(() => ask(large, host()))]);
    expect(answers.map(({ rows }) => rows)).toEqual([[216_000], [60], [60], [60]]);
  });

  it('continues its pages where they ended, by values that functions returned', async () => {
    const host = Host.of({ rest: (n) => (n as number) % 7, same });
    const expected = Array.from({ length: ITEMS }, (_, n) => n).toSorted((a, b) => (b % 7) - (a % 7) || b - a);
    expect((await pages('SELECT VALUE c.n FROM c ORDER BY udf.rest(c.n) DESC', host, 3)).flat()).toEqual(expected);
    const grouped = 'SELECT udf.rest(c.n) AS r, udf.same(COUNT(1)) AS n FROM c GROUP BY udf.rest(c.n)';
    expect(await pages(grouped, host, 4)).toEqual([
      [0, 1, 2, 3].map((r) => ({ r, n: 6 })),
      [4, 5, 6].map((r) => ({ r, n: r === 4 ? 6 : 5 })),
    ]);
  });
});
