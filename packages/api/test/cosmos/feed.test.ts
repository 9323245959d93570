import type { FastifyInstance } from 'fastify';
import { describe, expect, test, vi } from 'vitest';
import { systemClocks } from '@epitaph/core/clock.ts';
import { call, DOCS, shop, testServer } from './support/client.ts';

const QUERY = { 'x-ms-documentdb-isquery': 'true', 'content-type': 'application/query+json' };

/** A server with this many databases, and a function that lists them in pages. */
async function withDatabases(count: number) {
  const app = testServer();
  const ids = Array.from({ length: count }, (_, n) => `d${n}`);
  for (const id of ids) await call(app, 'POST', '/dbs', { body: { id } });
  return { app, ids };
}

interface Page {
  readonly rows: readonly unknown[];
  readonly next: string | undefined;
}

async function pageOf(
  app: FastifyInstance,
  { size, after, query }: { readonly size: number; readonly after?: string | undefined; readonly query?: string },
): Promise<Page> {
  const paging = { 'x-ms-max-item-count': `${size}`, ...(after === undefined ? {} : { 'x-ms-continuation': after }) };
  const { status, json, headers } =
    query === undefined
      ? await call(app, 'GET', '/dbs', { headers: paging })
      : await call(app, 'POST', '/dbs', { headers: { ...QUERY, ...paging }, body: { query } });
  expect(status).toBe(200);
  const next = headers['x-ms-continuation'];
  return { rows: json['Databases'] as readonly unknown[], next: next === undefined ? undefined : String(next) };
}

const idsIn = ({ rows }: Page): readonly string[] => rows.map((row) => (row as { readonly id: string }).id);
const remove = (app: FastifyInstance, ids: readonly string[]) =>
  Promise.all(ids.map((id) => call(app, 'DELETE', `/dbs/${id}`)));

describe('a list of resources in pages', () => {
  test.each([
    undefined,
    'SELECT * FROM d',
    'SELECT * FROM d ORDER BY d.id',
    'SELECT d.id FROM d',
    "SELECT 'x' AS _rid, d.id FROM d",
    'SELECT d.id, COUNT(1) AS n FROM d GROUP BY d.id',
  ])('has each entry once although each is deleted after its page, asked by %s', async (query) => {
    const { app, ids } = await withDatabases(7);
    const found: string[] = [];
    let after: string | undefined;
    do {
      const page = await pageOf(app, { size: 2, after, ...(query === undefined ? {} : { query }) });
      found.push(...idsIn(page));
      await remove(app, idsIn(page));
      after = page.next;
    } while (after !== undefined);
    expect(found).toEqual(ids);
  });

  test('continues after the last entry if the next ones are deleted', async () => {
    const { app } = await withDatabases(12);
    const first = await pageOf(app, { size: 3 });
    await remove(app, ['d0', 'd3', 'd4', 'd5', 'd6', 'd7']);
    expect(idsIn(await pageOf(app, { size: 3, after: first.next }))).toEqual(['d8', 'd9', 'd10']);
    // Only the first entry of the page may be left.
    const other = await withDatabases(9);
    const { next: after } = await pageOf(other.app, { size: 2 });
    await remove(other.app, ['d1', 'd2', 'd3', 'd4', 'd5', 'd6']);
    expect(idsIn(await pageOf(other.app, { size: 2, after }))).toEqual(['d7', 'd8']);
  });

  test('continues by number if all entries around the end of the page are deleted, and if rows are equal', async () => {
    const { app } = await withDatabases(12);
    const first = await pageOf(app, { size: 2 });
    await remove(app, ['d0', 'd1', 'd2', 'd3', 'd4', 'd5', 'd6']);
    expect(idsIn(await pageOf(app, { size: 2, after: first.next }))).toEqual(['d9', 'd10']);
    // Two equal rows identify no place.
    const query = 'SELECT VALUE LENGTH(d.id) FROM d';
    const one = await pageOf(app, { size: 2, query });
    await remove(app, ['d7']);
    expect((await pageOf(app, { size: 1, query, after: one.next })).rows).toEqual([3]);
  });

  test('continues by number if the rows of a query are too large to identify', async () => {
    const { app } = await withDatabases(6);
    const many = JSON.stringify(Array.from({ length: 100 }, (_, n) => n));
    const query = `SELECT VALUE { n: x, id: d.id, text: REPLICATE('a', 10000) } FROM d JOIN x IN (SELECT VALUE ${many})`;
    const first = await pageOf(app, { size: 150, query });
    await remove(app, ['d0']);
    expect((await pageOf(app, { size: 1, query, after: first.next })).rows).toMatchObject([{ id: 'd2', n: 50 }]);
  });

  test('tells the number and the kind of its entries', async () => {
    const app = await shop();
    const { json: database } = await call(app, 'GET', '/dbs/shop');
    const { json, headers } = await call(app, 'GET', '/dbs/shop/colls');
    expect(json).toMatchObject({ _rid: database['_rid'], _count: 1, DocumentCollections: [{ id: 'orders' }] });
    expect(headers['x-ms-item-count']).toBe('1');
  });

  test('has tokens of less than 1 kB, and none after the last page', async () => {
    const { app } = await withDatabases(11);
    const first = await pageOf(app, { size: 6 });
    expect(first.next!.length).toBeLessThan(1024);
    const last = await pageOf(app, { size: 5, after: first.next });
    expect(last.rows).toHaveLength(5);
    expect(last.next).toBeUndefined();
  });
});

describe('a query of a list', () => {
  const ask = async (body: unknown) => call(await shop(), 'POST', '/dbs', { headers: QUERY, body });

  test('may have empty parameters and an empty continuation', async () => {
    const { status, json } = await ask({ query: 'SELECT VALUE d.id FROM d', parameters: null, resumeFilter: null });
    expect({ status, rows: json['Databases'] }).toEqual({ status: 200, rows: ['shop'] });
  });

  test('may use the current time', async () => {
    const { status, json } = await ask({ query: 'SELECT VALUE GetCurrentTimestamp() FROM d WHERE NOW() > "2000"' });
    expect({ status, rows: json['Databases'] }).toEqual({ status: 200, rows: [1_763_722_800_000] });
  });

  test('is answered even if the machine was busy with other work meanwhile', async () => {
    const app = await shop();
    let nowMs = performance.now();
    const stalling = vi.spyOn(systemClocks, 'monotonicMs').mockImplementation(() => (nowMs += 1_000));
    const { status, json } = await call(app, 'POST', '/dbs', {
      headers: QUERY,
      body: { query: 'SELECT VALUE d.id FROM d' },
    });
    stalling.mockRestore();
    expect({ status, rows: json['Databases'] }).toEqual({ status: 200, rows: ['shop'] });
  });

  test('is refused if it works too long itself', async () => {
    const numbers = JSON.stringify(Array.from({ length: 200 }, (_, n) => n));
    const joins = ['x', 'y', 'z'].map((name) => `JOIN ${name} IN (SELECT VALUE ${numbers})`).join(' ');
    const { status, json } = await ask({ query: `SELECT VALUE COUNT(1) FROM d ${joins} WHERE x + y + z < 0` });
    expect({ status, text: json['message'] }).toMatchObject({
      status: 400,
      text: expect.stringMatching(/too (?:long|many)/),
    });
  });

  test.each([[[null]], [['@a']], [[{}]], [[{ name: 'a', value: 1 }]], [{ '@a': 1 }], ['@a']])(
    'with %j for parameters is refused',
    async (parameters) => {
      const { status, json } = await ask({ query: 'SELECT * FROM d', parameters });
      expect(status).toBe(400);
      expect(json['message']).toContain('parameters');
    },
  );
});

describe('a query plan', () => {
  const features = 'Aggregate, NonStreamingOrderBy, OrderBy, Top';
  const PLAN = {
    ...QUERY,
    'x-ms-cosmos-is-query-plan-request': 'True',
    'x-ms-cosmos-supported-query-features': features,
  };
  const infoOf = async (app: FastifyInstance, target: string, query: string) => {
    const { status, json } = await call(app, 'POST', target, { headers: PLAN, body: { query } });
    expect({ status, json }).toMatchObject({ status: 200 });
    return json['queryInfo'];
  };
  const passedThrough = { rewrittenQuery: '', orderBy: [], hasNonStreamingOrderBy: false };

  test('of a list passes its query through; a GET of the list is not a query', async () => {
    const app = await shop();
    expect(await infoOf(app, '/dbs', 'SELECT * FROM d ORDER BY d.id')).toMatchObject(passedThrough);
    const read = await call(app, 'GET', '/dbs', { headers: PLAN });
    expect(read.json['Databases']).toHaveLength(1);
  });

  test('with one range describes a vector search, in any spelling, and passes every other query through', async () => {
    const app = await shop();
    const search = (name: string) => `SELECT TOP 3 c.id FROM c ORDER BY ${name}(c.v, [1, 2])`;
    for (const name of ['VectorDistance', 'vectordistance']) {
      expect(await infoOf(app, DOCS, search(name))).toMatchObject({ hasNonStreamingOrderBy: true, top: 3 });
    }
    const ordered = 'SELECT VectorDistance(c.v, [1, 2]) AS far FROM c ORDER BY c.n';
    expect(await infoOf(app, DOCS, ordered)).toMatchObject(passedThrough);
  });

  /** The plan of a query in a container with two ranges. */
  async function planOfTwo(paths: readonly string[], query: string, version = 2) {
    const app = await shop();
    const partitionKey = { paths, version };
    const headers = { 'x-ms-offer-throughput': '12000' };
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'two', partitionKey }, headers });
    const { json } = await call(app, 'POST', '/dbs/shop/colls/two/docs', { headers: PLAN, body: { query } });
    return {
      info: json['queryInfo'] as Readonly<Record<string, unknown>>,
      ranges: json['queryRanges'] as readonly { readonly min: string; readonly max: string }[],
    };
  }
  const everywhere = [{ min: '', max: 'FF', isMinInclusive: true, isMaxInclusive: false }];
  const keys = (count: number) => Array.from({ length: count }, (_, n) => `'k${n}'`).join(', ');

  test('with two ranges lets clients merge the results of each', async () => {
    const { info, ranges } = await planOfTwo(['/a'], 'SELECT * FROM c ORDER BY c.n');
    expect(info).toMatchObject({ orderBy: ['Ascending'], rewrittenQuery: expect.stringContaining('orderByItems') });
    expect(ranges).toEqual(everywhere);
  });

  test.each([
    [100, 100],
    [101, 1],
  ])('names each of up to 100 keys, in order: %i as %i ranges', async (count, expected) => {
    const { ranges } = await planOfTwo(['/a'], `SELECT * FROM c WHERE c.a IN (${keys(count)})`);
    expect(ranges).toHaveLength(expected);
    expect(ranges).toEqual(ranges.toSorted((one, other) => (one.min < other.min ? -1 : 1)));
    if (expected > 1) {
      for (const { min, max, ...ends } of ranges) {
        expect({ same: min === max, ...ends }).toEqual({ same: true, isMinInclusive: true, isMaxInclusive: true });
      }
    } else expect(ranges).toEqual(everywhere);
  });

  test('names keys with equal hashes once: with version 1, those that share 100 characters', async () => {
    const long = 'x'.repeat(100);
    const { ranges } = await planOfTwo(['/a'], `SELECT * FROM c WHERE c.a IN ('${long}1', '${long}2', '1')`, 1);
    expect(ranges).toHaveLength(2);
  });

  test('names the ranges that the leading components of a key include, and all ranges for no key', async () => {
    const { ranges } = await planOfTwo(['/a', '/b'], "SELECT * FROM c WHERE c.a = 'x'");
    const { min } = ranges[0]!;
    expect(ranges).toEqual([{ min, max: `${min}FF`, isMinInclusive: true, isMaxInclusive: false }]);
    // Clients can't use a plan without a range.
    const nothing = await planOfTwo(['/a'], 'SELECT * FROM c WHERE ARRAY_CONTAINS([], c.a)');
    expect(nothing.ranges).toEqual(everywhere);
  });
});
