import type { Container, FeedOptions } from '@azure/cosmos';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { raw, signature } from '../support/raw.ts';
import { World } from '../support/world.ts';

const partitionKey = { paths: ['/team'] };
const ITEMS = 100;

/** On this server no page of a query is waited for: each is first answered without rows. */
let hasty: World;
let patient: World;

async function stocked(world: World, throughput: number): Promise<Container> {
  const container = await world.container({ partitionKey, throughput });
  for (let n = 0; n < ITEMS; n += 1) {
    await container.items.create({
      id: `i${n}`,
      team: `t${n % 11}`,
      n,
      rank: n % 7,
      tags: ['x', `t${n % 3}`],
      filler: 'f'.repeat(500),
    });
  }
  return container;
}

beforeAll(async () => {
  hasty = await World.open({ provisioning: { pageWaitMs: 0 } });
  patient = await World.open();
});
afterAll(async () => {
  await hasty.end();
  await patient.end();
});

/** All rows of a query, and the number of pages without rows. */
async function rowsOf(container: Container, query: string, options: FeedOptions) {
  const pages = container.items.query<unknown>(query, options);
  const rows: unknown[] = [];
  let empty = 0;
  while (pages.hasMoreResults()) {
    const page: { readonly resources?: readonly unknown[] } = await pages.fetchNext();
    const found = page.resources ?? [];
    rows.push(...found);
    if (found.length === 0) empty += 1;
    expect(empty).toBeLessThan(5_000);
  }
  return { rows, empty };
}

const QUERIES = [
  'SELECT VALUE COUNT(1) FROM c WHERE c.n % 2 = 0',
  'SELECT VALUE SUM(c.n) FROM c WHERE c.rank > 2',
  'SELECT c.rank, COUNT(1) AS n, AVG(c.n) AS mean FROM c GROUP BY c.rank',
  'SELECT c.n, COUNT(1) AS times FROM c GROUP BY c.n',
  'SELECT VALUE MAX(c.rank) FROM c GROUP BY c.n',
  'SELECT c.n, REPLICATE(c.filler, 100) AS text FROM c GROUP BY c.n, REPLICATE(c.filler, 100)',
  'SELECT VALUE c.n FROM c ORDER BY c.n DESC',
  'SELECT c.id FROM c ORDER BY c.rank, c.n OFFSET 20 LIMIT 30',
  'SELECT DISTINCT VALUE c.rank FROM c',
  'SELECT DISTINCT c.rank FROM c ORDER BY c.rank',
  'SELECT VALUE t FROM c JOIN t IN c.tags WHERE c.n < 40',
  'SELECT TOP 25 c.id FROM c WHERE c.rank = 3',
  'SELECT * FROM c WHERE c.n > 80',
];

describe.each([400, 12_000])(
  'a client whose pages of queries take long, in a container of %d request units,',
  (throughput) => {
    let containers: readonly [Container, Container];
    beforeAll(async () => {
      containers = [await stocked(hasty, throughput), await stocked(patient, throughput)];
    }, 60_000);

    test('gets the rows of all of its queries, whatever the pages are', async () => {
      const [slow, swift] = containers;
      let waited = 0;
      for (const query of QUERIES) {
        for (const options of [
          {},
          { maxItemCount: 7 },
          { maxItemCount: -1 },
          { partitionKey: 't3' },
          { forceQueryPlan: true },
        ]) {
          const found = await rowsOf(slow, query, options);
          const expected = await rowsOf(swift, query, options);
          const without = ({ rows }: typeof found) =>
            rows.map((row) => JSON.stringify(row).replace(/,"_rid".*/, '')).toSorted();
          const inOrder = query.includes('ORDER BY');
          const [is, ought] = [found, expected].map((one) =>
            inOrder ? one.rows.map((row) => JSON.stringify(row)) : without(one),
          );
          expect(is, `${query} ${JSON.stringify(options)}`).toEqual(ought);
          waited += found.empty - expected.empty;
        }
      }
      expect(waited).toBeGreaterThanOrEqual(QUERIES.length * 5);
    }, 60_000);
  },
);

/** An expression that takes a few milliseconds for each document. */
const slowly = `(SELECT VALUE COUNT(1) FROM ${Array.from({ length: 14 }, (_, n) => `t${n} IN c.tags`).join(' JOIN ')})`;

describe('a page of a query that takes long', () => {
  const SQL = 'SELECT c.id FROM c ORDER BY c.n';
  const ask = (container: Container, query: string, token?: string, world = hasty) =>
    raw(world.endpoint, 'POST', `/dbs/${container.database.id}/colls/${container.id}/docs`, {
      headers: {
        'content-type': 'application/query+json',
        'x-ms-documentdb-isquery': 'true',
        'x-ms-documentdb-query-enablecrosspartition': 'true',
        'x-ms-max-item-count': '1000',
        'x-ms-documentdb-populatequerymetrics': 'true',
        ...(token === undefined ? {} : { 'x-ms-continuation': token }),
      },
      body: JSON.stringify({ query, parameters: [] }),
    });
  /** The number of documents that were examined for an answer, which determines its charge. */
  const lookedAt = (headers: Readonly<Record<string, unknown>>) =>
    Number(/retrievedDocumentCount=(\d+)/.exec(headers['x-ms-documentdb-query-metrics'] as string)![1]);

  /** Asks until there are rows. Returns them, and the number of documents that were examined in all of these answers. */
  async function patiently(container: Container, query: string, from?: string) {
    let looked = 0;
    let asked = 0;
    for (let token = from; ; asked += 1) {
      const { status, headers, json } = await ask(container, query, token);
      expect(status).toBe(200);
      looked += lookedAt(headers);
      const rows = json!['Documents'] as readonly { readonly id: string }[];
      token = headers['x-ms-continuation'] as string | undefined;
      if (rows.length > 0 || token === undefined) return { rows, looked };
      expect(asked).toBeLessThan(5_000);
    }
  }
  let container: Container;
  beforeAll(async () => {
    container = await stocked(hasty, 6_000);
  }, 60_000);

  test('is answered without rows and with a token that fetches it; it is computed once, and each answer is charged for its part', async () => {
    const { headers, json } = await ask(container, SQL);
    expect(json).toMatchObject({ Documents: [], _count: 0 });
    const token = headers['x-ms-continuation'] as string;
    expect(token.length).toBeLessThanOrEqual(1_024);
    const { rows, looked } = await patiently(container, SQL, token);
    expect(rows.length).toBe(ITEMS);
    const all = lookedAt(headers) + looked;
    // Each document is examined once, or twice if one took so long that the query was restarted in the slow lane.
    expect(all === ITEMS || (all > ITEMS && all <= 2 * ITEMS)).toBe(true);
  });

  /** The request units that queries of a container have cost. */
  async function spent(world: World, { database, id }: Container): Promise<number> {
    const path = `/dbs/${database.id}/colls/${id}/request-units`;
    const { body } = await world.manage<{ readonly consumed: { readonly query: { readonly requestUnits: number } } }>(
      'GET',
      path,
    );
    return body.consumed.query.requestUnits;
  }

  test('is charged to the container in full if no client fetches it', async () => {
    const before = await spent(hasty, container);
    const abandoned = await ask(container, SQL);
    await setTimeout(1_000);
    // Another query that comes with its token abandons it.
    const other = await ask(container, 'SELECT VALUE 1', abandoned.headers['x-ms-continuation'] as string);
    const answered = [abandoned, other].map(({ headers }) => Number(headers['x-ms-request-charge']));
    const rest = (await spent(hasty, container)) - before - answered[0]! - answered[1]!;
    expect(lookedAt(abandoned.headers) + rest / 0.05).toBeGreaterThanOrEqual(ITEMS - 0.5);
  });

  test('is charged in full if it was asked for by a token from before a restart, and its client has gone', async () => {
    const within = await stocked(patient, 6_000);
    const { resource } = await within.read();
    const place = { kind: 'start', of: resource!._rid, page: 'of-before' };
    const token = Buffer.from(JSON.stringify(place)).toString('base64url');
    const before = await spent(patient, within);
    const link = `dbs/${within.database.id}/colls/${within.id}`;
    const date = new Date().toUTCString();
    const gone = new AbortController();
    const asked = fetch(`${patient.endpoint}/${link}/docs`, {
      method: 'POST',
      headers: {
        authorization: signature('POST', 'docs', link, date, EMULATOR_KEY),
        'x-ms-date': date,
        'content-type': 'application/query+json',
        'x-ms-documentdb-isquery': 'true',
        'x-ms-documentdb-query-enablecrosspartition': 'true',
        'x-ms-continuation': token,
      },
      // Takes a while in total, but not long for any single document.
      body: JSON.stringify({ query: `SELECT VALUE COUNT(1) FROM c WHERE ${slowly} != 1`, parameters: [] }),
      signal: gone.signal,
    });
    await setTimeout(50);
    gone.abort();
    await expect(asked).rejects.toThrow();
    await setTimeout(1_000);
    const { headers } = await ask(within, 'SELECT VALUE 1', token, patient);
    const rest = async () => (await spent(patient, within)) - before - Number(headers['x-ms-request-charge']);
    await expect.poll(rest).toBeGreaterThan(0.05 * ITEMS);
  });

  test('is charged once for the work that was done before it failed', async () => {
    const inner = 'JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list';
    const query = `SELECT VALUE COUNT(1) FROM c ${inner} WHERE c.team = 'x'`;
    const [slow, swift] = await Promise.all(
      [hasty, patient].map(async (world) => {
        const within = await world.container({ partitionKey, throughput: 6_000 });
        for (let n = 0; n <= ITEMS; n += 1) {
          const length = n < ITEMS ? 50 : 10_000;
          await within.items.create({ id: `i${n}`, team: 'x', list: Array.from({ length }, (_, index) => index) });
        }
        let charged = 0;
        let asked = 0;
        for (let token: string | undefined; ; asked += 1) {
          const { status, headers } = await ask(within, query, token, world);
          charged += Number(headers['x-ms-request-charge']);
          if (status === 400) return charged - 2.25 * asked;
          token = headers['x-ms-continuation'] as string;
          await setTimeout(5);
        }
      }),
    );
    expect(slow).toBeLessThan(1.2 * swift!);
  });

  test('is computed again for a token from before a restart, and another one for a token of another query', async () => {
    const { headers } = await ask(container, SQL);
    const token = headers['x-ms-continuation'] as string;
    const { rows: others } = await patiently(container, 'SELECT c.id FROM c WHERE c.n < 3 ORDER BY c.n', token);
    expect(others.map(({ id }) => id)).toEqual(['i0', 'i1', 'i2']);
    await hasty.restart();
    const { rows } = await patiently(container, SQL, token);
    expect(rows.length).toBe(ITEMS);
  });

  test('does not contain an item that was erased before the page was fetched', async () => {
    const { headers } = await ask(container, SQL);
    const token = headers['x-ms-continuation'] as string;
    await setTimeout(1_000);
    const erasure = { id: 'i7', partitionKey: ['t7'], reason: 'asked for', requestedBy: 'the person' };
    const { status } = await hasty.manage('POST', `/dbs/${container.database.id}/colls/${container.id}/erase`, erasure);
    expect(status).toBe(200);
    const { rows } = await patiently(container, SQL, token);
    expect(rows.length).toBe(ITEMS - 1);
    expect(rows.some((row) => row.id === 'i7')).toBe(false);
  });
});
