import {
  type Container,
  type FeedOptions,
  PartitionKeyDefinitionVersion,
  PartitionKeyKind,
  type SqlQuerySpec,
} from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keyHeader, raw } from '../support/raw.ts';
import { statusOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

interface Page {
  readonly ids: readonly string[];
  readonly continuationToken: string | undefined;
}

type Ask = (continuationToken: string | undefined) => Promise<Page>;

const numbered = (n: number) => `i${String(n).padStart(2, '0')}`;

/** Items i00 … i19. Every fifth expires 10 s after its write. */
async function stocked(): Promise<string> {
  const container = await world.container({ defaultTtl: -1 });
  for (let n = 0; n < 20; n += 1) {
    await container.items.create({ id: numbered(n), customer: 'ann', n, ...(n % 5 === 0 ? { ttl: 10 } : {}) });
  }
  return container.id;
}

/** Ways to read a container page by page. Each page is read by a client that knows only the token. */
const ways: [string, (name: string) => Ask][] = [
  ['the feed', (name) => feed(name)],
  ['the feed of a partition key', (name) => feed(name, keyHeader('ann'))],
  ['readAll', (name) => query(name, 'SELECT * FROM c')],
  ['a query', (name) => query(name, 'SELECT c.id, c.n FROM c WHERE c.n >= 0')],
  [
    'a query of a partition key',
    (name) => query(name, 'SELECT * FROM c WHERE c.customer = "ann"', { partitionKey: 'ann' }),
  ],
  ['an ordered query', (name) => query(name, 'SELECT * FROM c ORDER BY c.n')],
  ['an ordered query, from the end', (name) => query(name, 'SELECT c.id FROM c ORDER BY c.n DESC')],
  ['a query ordered by what all have alike', (name) => query(name, 'SELECT * FROM c ORDER BY c.customer')],
  ['a query with TOP', (name) => query(name, 'SELECT TOP 30 * FROM c')],
  ['a query with OFFSET and LIMIT', (name) => query(name, 'SELECT * FROM c OFFSET 0 LIMIT 30')],
  ['a query for what is distinct', (name) => query(name, 'SELECT DISTINCT c.id, c.n FROM c')],
  ['a query for so many that are distinct', (name) => query(name, 'SELECT DISTINCT TOP 30 c.id FROM c')],
  [
    'an ordered query with a join',
    (name) => query(name, 'SELECT c.id FROM c JOIN x IN (SELECT VALUE [c.n]) ORDER BY x[0]'),
  ],
  ['an ordered query over a query', (name) => query(name, 'SELECT x.id FROM (SELECT c.id, c.n FROM c) x ORDER BY x.n')],
  [
    'an ordered query for what is distinct',
    (name) => query(name, 'SELECT DISTINCT c.n, c.id FROM c ORDER BY c.n DESC'),
  ],
  ['a query for distinct ones of what all have alike', (name) => query(name, 'SELECT DISTINCT c.id FROM c ORDER BY 1')],
  ['a query for groups', (name) => query(name, 'SELECT c.id, COUNT(1) AS count FROM c GROUP BY c.id')],
  ['an ordered query for groups', (name) => query(name, 'SELECT c.id FROM c GROUP BY c.id ORDER BY c.id')],
  ['a query for long groups', (name) => query(name, 'SELECT c.id FROM c GROUP BY c.id, REPLICATE(c.id, 600)')],
  [
    'a query ordered by values that begin alike and are long',
    (name) => query(name, 'SELECT c.id FROM c ORDER BY CONCAT(REPLICATE("x", 2000), c.id) DESC'),
  ],
  [
    'a query for distinct ones, ordered by long values',
    (name) =>
      query(name, 'SELECT DISTINCT c.id, REPLICATE(c.id, 900) AS x FROM c ORDER BY CONCAT(REPLICATE("x", 2000), c.id)'),
  ],
  ['a query for the best', (name) => query(name, 'SELECT c.id FROM c ORDER BY RANK FullTextScore(c.customer, "ann")')],
  ['a query ordered by time', (name) => query(name, 'SELECT * FROM c ORDER BY c._ts', { partitionKey: 'ann' })],
];

function feed(name: string, scope: Readonly<Record<string, string>> = {}): Ask {
  return async (continuationToken) => {
    const reply = await raw(world.endpoint, 'GET', `/dbs/shop/colls/${name}/docs`, {
      headers: {
        'x-ms-max-item-count': '3',
        ...scope,
        ...(continuationToken === undefined ? {} : { 'x-ms-continuation': continuationToken }),
      },
    });
    if (reply.status !== 200) throw new Error(reply.text);
    const documents = reply.json!['Documents'] as readonly { id: string }[];
    return {
      ids: documents.map(({ id }) => id),
      continuationToken: reply.headers['x-ms-continuation'] as string | undefined,
    };
  };
}

function query(name: string, sql: string | SqlQuerySpec, options: FeedOptions = {}): Ask {
  return async (continuationToken) => {
    const asked = world.of(name).items.query<{ id: string }>(sql, {
      maxItemCount: 3,
      ...options,
      ...(continuationToken === undefined ? {} : { continuationToken }),
    });
    const { resources, continuationToken: next } = await asked.fetchNext();
    expect((next ?? '').length).toBeLessThanOrEqual(1_024);
    return { ids: resources.map(({ id }) => id), continuationToken: next };
  };
}

/** The rows of a query page by page. Each page is read by a new iterator that knows only the token. */
async function* pagesOf<Row>(container: Container, sql: string, maxItemCount: number): AsyncGenerator<readonly Row[]> {
  let token: string | undefined;
  do {
    const from = token === undefined ? {} : { continuationToken: token };
    const { resources, continuationToken } = await container.items
      .query<Row>(sql, { maxItemCount, ...from })
      .fetchNext();
    yield resources;
    token = continuationToken;
  } while (token !== undefined);
}

/** Reads to the end, and calls `between` between the pages. */
async function walk(ask: Ask, between: (page: number) => Promise<unknown> = async () => undefined): Promise<string[]> {
  const found: string[] = [];
  let token: string | undefined;
  for (let page = 0; page < 100; page += 1) {
    const { ids, continuationToken } = await ask(token);
    expect(ids.length).toBeLessThanOrEqual(3);
    found.push(...ids);
    if (continuationToken === undefined) return found;
    token = continuationToken;
    await between(page);
  }
  throw new Error('the pages have no end');
}

describe.each(ways)('%s, page by page', (name, way) => {
  const all = Array.from({ length: 20 }, (_, n) => numbered(n));

  test('returns each item exactly once, with restarts between pages', async () => {
    const container = await stocked();
    const found = await walk(way(container), async (page) => {
      if (page % 3 === 1) await world.restart();
    });
    expect(found.toSorted()).toEqual(all);
    if (name === 'an ordered query') expect(found).toEqual(all);
    if (name === 'an ordered query, from the end') expect(found).toEqual(all.toReversed());
  });

  test('leaves out expired items, and neither misses nor repeats the others', async () => {
    const container = await stocked();
    const found = await walk(way(container), async (page) => {
      if (page === 1) await world.advance(10_000);
      if (page === 3) await world.purge();
    });
    const lasting = all.filter((_, n) => n % 5 !== 0);
    expect(found.filter((id) => lasting.includes(id)).toSorted()).toEqual(lasting);
    expect(new Set(found).size).toBe(found.length);
    // Expired items may only be in the first two pages, which were read before they expired.
    expect(found.slice(6).filter((id) => !lasting.includes(id))).toEqual([]);
  });

  test('neither misses nor repeats an item that stays while others are created and deleted', async () => {
    const container = await stocked();
    const items = () => world.of(container).items;
    const item = (n: number) => world.of(container).item(numbered(n), 'ann');
    const removed = [1, 2, 18, 19];
    const found = await walk(way(container), async (page) => {
      if (page === 0) for (const n of [1, 18]) await item(n).delete();
      if (page === 1) await items().create({ id: 'new-low', customer: 'ann', n: -1 });
      if (page === 1) await items().create({ id: 'new-high', customer: 'ann', n: 100 });
      if (page === 2) for (const n of [2, 19]) await item(n).delete();
    });
    const lasting = all.filter((_, n) => !removed.includes(n));
    expect(found.filter((id) => lasting.includes(id)).toSorted()).toEqual(lasting);
    expect(new Set(found).size).toBe(found.length);
  });
});

describe('a page', () => {
  test.each(ways.filter(([name]) => name.includes('query')))('of %s has no token when it is last', async (_, way) => {
    const container = await world.container();
    for (let n = 0; n < 6; n += 1) await container.items.create({ id: numbered(n), customer: 'ann', n });
    const ask = way(container.id);
    const first = await ask(undefined);
    const second = await ask(first.continuationToken);
    expect(second.ids).toHaveLength(3);
    expect(second.continuationToken).toBeUndefined();
  });

  test('token of another kind of reading, or a damaged one, is refused', async () => {
    const container = await stocked();
    const { continuationToken } = await query(container, 'SELECT * FROM c ORDER BY c.n')(undefined);
    const headers = { 'x-ms-continuation': continuationToken! };
    expect((await raw(world.endpoint, 'GET', `/dbs/shop/colls/${container}/docs`, { headers })).status).toBe(400);
    for (const token of ['junk', continuationToken!.slice(1), `${continuationToken!.slice(0, -4)}AAAA`]) {
      await expect(query(container, 'SELECT * FROM c ORDER BY c.n')(token)).rejects.toMatchObject({ code: 400 });
    }
  });

  test('token of another container is refused, because items before its place would be missed', async () => {
    const [one, other] = [await stocked(), await stocked()];
    const read = (headers: Record<string, string>) =>
      raw(world.endpoint, 'GET', `/dbs/shop/colls/${one}/docs`, { headers });
    const { continuationToken: ofFeed } = await feed(other)(undefined);
    expect((await read({ 'x-ms-continuation': ofFeed! })).status).toBe(400);
    const { continuationToken: ofQuery } = await query(other, 'SELECT * FROM c ORDER BY c.n')(undefined);
    await expect(query(one, 'SELECT * FROM c ORDER BY c.n')(ofQuery)).rejects.toMatchObject({ code: 400 });
    // A token from before tokens named their container is accepted.
    const old = Buffer.from('{"kind":"after","birth":1}').toString('base64url');
    expect((await read({ 'x-ms-continuation': old })).status).toBe(200);
  });

  const N = 'SELECT * FROM c ORDER BY c.n';
  const BY_N = { query: 'SELECT * FROM c ORDER BY c[@by]', parameters: [{ name: '@by', value: 'n' }] };
  test.each<[string, SqlQuerySpec | string, SqlQuerySpec | string]>([
    ['reversed', N, `${N} DESC`],
    ['by another value', N, 'SELECT * FROM c ORDER BY c._ts'],
    ['by a parameter with another value', BY_N, { ...BY_N, parameters: [{ name: '@by', value: 'id' }] }],
    ['of other groups', 'SELECT c.n AS id FROM c GROUP BY c.n', 'SELECT c._ts AS id FROM c GROUP BY c._ts'],
    [
      'by another rank',
      'SELECT * FROM c ORDER BY RANK FullTextScore(c.id, "i1")',
      'SELECT * FROM c ORDER BY RANK FullTextScore(c.customer, "ann")',
    ],
  ])(
    'token of a query in another order is refused, because rows before its place would be missed: %s',
    async (_, one, other) => {
      const container = await stocked();
      const { continuationToken } = await query(container, one)(undefined);
      const next = query(container, other)(continuationToken);
      await expect(next).rejects.toMatchObject({
        code: 400,
        message: expect.stringContaining('a query with another ORDER BY') as string,
      });
    },
  );

  test('token is accepted by a different query in the same order, which continues after the same place', async () => {
    const container = await stocked();
    const since = (n: number) => ({
      query: 'SELECT c.id, c.n FROM c WHERE c.n >= @since ORDER BY c.n',
      parameters: [{ name: '@since', value: n }],
    });
    const { ids, continuationToken } = await query(container, since(0))(undefined);
    expect(ids).toEqual(['i00', 'i01', 'i02']);
    const second = await query(container, since(1))(continuationToken);
    expect(second.ids).toEqual(['i03', 'i04', 'i05']);
    const third = await query(container, 'select c.id from c order by c["n"] asc')(second.continuationToken);
    expect(third.ids).toEqual(['i06', 'i07', 'i08']);
  });

  test('token has a hash of its order that is the same in all versions, and a token from before there was one is accepted', async () => {
    const container = await stocked();
    const { continuationToken } = await query(container, N)(undefined);
    const { by, ...before } = JSON.parse(Buffer.from(continuationToken!, 'base64url').toString()) as { by: string };
    expect(by).toBe('2CM3Jga8');
    const token = Buffer.from(JSON.stringify(before)).toString('base64url');
    expect((await query(container, N)(token)).ids).toEqual(['i03', 'i04', 'i05']);
  });

  test('token of another partition key is refused, because items before its place would be missed', async () => {
    const { id: container } = await world.container();
    for (let n = 0; n < 20; n += 1)
      await world.of(container).items.create({ id: `i${n}`, customer: n % 2 ? 'ann' : 'bob', n });
    for (const way of [
      (key: string) => query(container, N, { partitionKey: key }),
      (key: string) => query(container, 'SELECT * FROM c', { partitionKey: key }),
      (key: string) => feed(container, keyHeader(key)),
    ]) {
      const { continuationToken } = await way('ann')(undefined);
      expect((await way('ann')(continuationToken)).ids).toHaveLength(3);
      await expect(way('bob')(continuationToken)).rejects.toThrow('it belongs to another partition key');
    }
  });

  test('token of all partition keys is refused for one of them, and the other way round', async () => {
    const { id: container } = await world.container();
    for (let n = 0; n < 20; n += 1) {
      await world.of(container).items.create({ id: `i${n}`, customer: n % 2 ? 'ann' : 'bob', n });
    }
    for (const way of [
      (key?: string) => query(container, N, key === undefined ? {} : { partitionKey: key }),
      (key?: string) => query(container, 'SELECT * FROM c', key === undefined ? {} : { partitionKey: key }),
      (key?: string) => feed(container, key === undefined ? {} : keyHeader(key)),
    ]) {
      for (const [one, other] of [
        [undefined, 'ann'],
        ['ann', undefined],
      ]) {
        const { continuationToken } = await way(one)(undefined);
        expect((await way(one)(continuationToken)).ids).toHaveLength(3);
        await expect(way(other)(continuationToken)).rejects.toThrow('it belongs to another partition key');
      }
    }
  });

  test('token of a prefix of a hierarchical key is refused for another prefix, for a full key and for all keys', async () => {
    const { id: container } = await world.container({
      partitionKey: {
        paths: ['/tenant', '/user'],
        kind: PartitionKeyKind.MultiHash,
        version: PartitionKeyDefinitionVersion.V2,
      },
    });
    for (let n = 0; n < 20; n += 1) {
      await world.of(container).items.create({ id: `i${n}`, tenant: n % 2 ? 'a' : 'b', user: 'u', n });
    }
    const scopes = [keyHeader('a'), keyHeader('b'), keyHeader('a', 'u'), {}];
    for (const one of scopes) {
      const { continuationToken } = await feed(container, one)(undefined);
      for (const other of scopes) {
        const next = feed(container, other)(continuationToken);
        if (other === one) expect((await next).ids).toHaveLength(3);
        else await expect(next).rejects.toThrow('it belongs to another partition key');
      }
    }
  });

  test('token from before tokens named their partition key is accepted for all keys', async () => {
    const container = await stocked();
    for (const way of [feed(container), query(container, N)]) {
      const { continuationToken } = await way(undefined);
      const { key, ...before } = JSON.parse(Buffer.from(continuationToken!, 'base64url').toString()) as { key: string };
      expect(key).toBe('');
      const token = Buffer.from(JSON.stringify(before)).toString('base64url');
      expect((await way(token)).ids).toEqual(['i03', 'i04', 'i05']);
    }
  });

  test('token of another list is refused: databases, users of another database, and the items of a container', async () => {
    // given
    for (const name of ['l1', 'l2']) {
      const { database } = await world.client.databases.create({ id: name });
      for (const id of ['ann', 'bob', 'eve']) await database.users.create({ id });
    }
    const list = async (target: string, token?: string) => {
      const headers = { 'x-ms-max-item-count': '1', ...(token === undefined ? {} : { 'x-ms-continuation': token }) };
      return raw(world.endpoint, 'GET', target, { headers });
    };
    const next = async (target: string) => String((await list(target)).headers['x-ms-continuation']);
    const tokens = [
      await next('/dbs'),
      await next('/dbs/l1/users'),
      await next(`/dbs/shop/colls/${await stocked()}/docs`),
    ];
    // then
    for (const token of tokens) {
      const { status, json } = await list('/dbs/l2/users', token);
      expect(status).toBe(400);
      expect(json!['message']).toContain('it belongs to another list');
    }
    expect((await list('/dbs/l1/users', tokens[1])).text).toContain('"bob"');
    const old = Buffer.from('{"kind":"skip","rows":1}').toString('base64url');
    expect((await list('/dbs/l1/users', old)).text).toContain('"bob"');
    const ordered = async (sql: string, token?: string) =>
      raw(world.endpoint, 'POST', '/dbs/l1/users', {
        headers: {
          'content-type': 'application/query+json',
          'x-ms-documentdb-isquery': 'true',
          'x-ms-max-item-count': '1',
          ...(token === undefined ? {} : { 'x-ms-continuation': token }),
        },
        body: JSON.stringify({ query: sql }),
      });
    const up = 'SELECT VALUE c.id FROM c ORDER BY c.id';
    const ofUp = String((await ordered(up)).headers['x-ms-continuation']);
    expect((await ordered(up, ofUp)).json!['Users']).toEqual(['bob']);
    expect((await ordered(up, old)).json!['Users']).toEqual(['bob']);
    expect((await ordered('SELECT VALUE c.id FROM c WHERE c.id > "b" ORDER BY c.id', ofUp)).status).toBe(200);
    for (const [sql, token] of [
      ['SELECT VALUE c.id FROM c ORDER BY c.id DESC', ofUp],
      ['SELECT VALUE c.id FROM c', ofUp],
      [up, tokens[1]!],
    ] as const) {
      const { status, json } = await ordered(sql, token);
      expect([sql, status]).toEqual([sql, 400]);
      expect(json!['message']).toContain('a query with another ORDER BY');
    }
    expect((await list('/dbs/l1/users', ofUp)).status).toBe(400);
    for (const name of ['l1', 'l2']) await world.client.database(name).delete();
  });

  test('of COUNT, DISTINCT, TOP or OFFSET is a part of the result that the query would have without pages', async () => {
    const container = await stocked();
    const rows = async (sql: string) => {
      const found: unknown[] = [];
      const asked = world.of(container).items.query<unknown>(sql, { maxItemCount: 2 });
      while (asked.hasMoreResults()) {
        const { resources } = await asked.fetchNext();
        if (resources !== undefined) {
          expect(resources.length).toBeLessThanOrEqual(2);
          found.push(...resources);
        }
      }
      return found;
    };
    expect(await rows('SELECT VALUE COUNT(1) FROM c')).toEqual([20]);
    expect(await rows('SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n')).toEqual([0, 1, 2, 3, 4]);
    expect(await rows('SELECT TOP 5 VALUE c.n FROM c')).toHaveLength(5);
    expect(await rows('SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 5')).toEqual([3, 4, 5, 6, 7]);
    expect(await rows('SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 18 LIMIT 50')).toEqual([1, 0]);
    expect(await rows('SELECT DISTINCT VALUE c.n % 3 FROM c')).toHaveLength(3);
  });

  test.each([
    ['SELECT TOP 13 VALUE c.n FROM c', 13],
    ['SELECT VALUE c.n FROM c OFFSET 4 LIMIT 11', 11],
    ['SELECT DISTINCT TOP 13 VALUE c.n FROM c', 13],
  ])('of %s counts the rows of earlier pages, even if items come and go meanwhile', async (sql, count) => {
    const container = await stocked();
    const given: number[] = [];
    for await (const page of pagesOf<number>(world.of(container), sql, 4)) {
      given.push(...page);
      // Deletes the items that were returned, and creates one that the query would have found, too.
      for (const n of page) await world.of(container).item(numbered(n), 'ann').delete();
      await world.of(container).items.upsert({ id: `more ${given.length}`, customer: 'ann', n: 100 + given.length });
    }
    expect(new Set(given).size).toBe(count);
    expect(given).toEqual(given.toSorted((left, right) => left - right));
  });

  test.each([
    ['SELECT VALUE t FROM c JOIN t IN c.tags', 20],
    ['SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags', 20],
    ['SELECT TOP 13 VALUE t FROM c JOIN t IN c.tags', 13],
    ['SELECT VALUE t FROM c JOIN t IN c.tags OFFSET 7 LIMIT 9', 9],
  ])('of %s has no more rows than asked for, even if one document gives several rows', async (sql, count) => {
    const container = await world.container();
    const all: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      const tags = Array.from({ length: 5 }, (_, tag) => `${n}.${tag}`);
      all.push(...tags);
      await container.items.create({ id: numbered(n), customer: 'ann', tags });
    }
    for (const maxItemCount of [1, 2, 3, 7]) {
      const found: string[] = [];
      for await (const page of pagesOf<string>(container, sql, maxItemCount)) {
        expect(page.length).toBeLessThanOrEqual(maxItemCount);
        found.push(...page);
      }
      const from = sql.includes('OFFSET') ? 7 : 0;
      expect(found).toEqual(all.slice(from, from + count));
    }
  });

  test('of an ordered query continues after values of every type, missing values, and values too long for a token', async () => {
    const container = await world.container();
    const values = [undefined, null, false, true, -1, 0.5, '', 'a', '👻', [], [1], { a: 1 }, undefined, null, 0.5];
    for (const [n, v] of values.entries()) {
      const long = String.fromCodePoint(97 + n).repeat(2_000);
      await container.items.create({ id: numbered(n), customer: 'ann', long, ...(v === undefined ? {} : { v }) });
    }
    const ids = values.map((_, n) => numbered(n));
    const byValue = await walk(query(container.id, 'SELECT * FROM c ORDER BY c.v, c.id DESC'));
    const inOrder = [undefined, undefined, null, null, false, true, -1, 0.5, 0.5, '', 'a', '👻', [], [1], { a: 1 }];
    expect(byValue.map((id) => values[ids.indexOf(id)])).toEqual(inOrder);
    expect(byValue.slice(0, 4)).toEqual(['i12', 'i00', 'i13', 'i01']);
    expect(await walk(query(container.id, 'SELECT * FROM c ORDER BY c.long DESC'))).toEqual(ids.toReversed());
    expect(await walk(query(container.id, 'SELECT TOP 7 * FROM c ORDER BY c.long'))).toEqual(ids.slice(0, 7));
    expect(await walk(query(container.id, 'SELECT * FROM c ORDER BY c.id OFFSET 4 LIMIT 8'))).toEqual(ids.slice(4, 12));
  });

  test('has no item that expired before the page was read, even if earlier pages of the listing had it', async () => {
    const container = await world.container({ defaultTtl: 10 });
    for (let n = 0; n < 6; n += 1) await container.items.create({ id: numbered(n), customer: 'ann', n });
    const asked = container.items.query('SELECT * FROM c', { maxItemCount: 2 });
    expect((await asked.fetchNext()).resources).toHaveLength(2);
    await world.advance(10_000);
    const rest: unknown[] = [];
    while (asked.hasMoreResults()) rest.push(...((await asked.fetchNext()).resources ?? []));
    expect(rest).toEqual([]);
  });
});

describe('a session token', () => {
  const target = (container: Container) => `/dbs/shop/colls/${container.id}/docs`;
  const tokenOf = (headers: Readonly<Record<string, unknown>>) => String(headers['x-ms-session-token']);
  const position = (token: string) => Number(token.split('#')[1]);

  test('makes a write readable at once for every client that has the token', async () => {
    const container = await world.container();
    const other = world.connect({ session: true });
    const theirs = other.database('shop').container(container.id);
    for (let n = 0; n < 25; n += 1) {
      const { headers } = await container.items.upsert({ id: 'a', customer: 'ann', n });
      const sessionToken = tokenOf(headers);
      const [read, asked] = await Promise.all([
        theirs.item('a', 'ann').read({ sessionToken }),
        theirs.items.query('SELECT VALUE c.n FROM c', { sessionToken }).fetchAll(),
      ]);
      expect(read.resource).toMatchObject({ n });
      expect(asked.resources).toEqual([n]);
    }
    other.dispose();
  });

  test('only increases', async () => {
    const container = await world.container();
    let last = 0;
    for (let n = 0; n < 5; n += 1) {
      const { headers } = await container.items.upsert({ id: 'a', customer: 'ann', n });
      expect(position(tokenOf(headers))).toBeGreaterThan(last);
      last = position(tokenOf(headers));
      const read = await container.item('a', 'ann').read();
      expect(position(tokenOf(read.headers))).toBeGreaterThanOrEqual(last);
    }
    await world.restart();
    const read = await world.of(container.id).item('a', 'ann').read();
    expect(position(tokenOf(read.headers))).toBeGreaterThanOrEqual(last);
  });

  test('ahead of the server is answered with 404 and substatus 1002', async () => {
    const container = await world.container();
    const { headers } = await container.items.create({ id: 'a', customer: 'ann' });
    const ahead = { 'x-ms-session-token': `0:-1#${position(tokenOf(headers)) + 1_000}` };
    const message = expect.stringContaining('The read session is not available for the input session token.');
    const expected = { status: 404, headers: { 'x-ms-substatus': '1002' }, json: { code: 'NotFound', message } };
    const read = { headers: { ...keyHeader('ann'), ...ahead } };
    expect(await raw(world.endpoint, 'GET', `${target(container)}/a`, read)).toMatchObject(expected);
    expect(await raw(world.endpoint, 'GET', target(container), { headers: ahead })).toMatchObject(expected);
    const asked = {
      body: '{"query":"SELECT * FROM c"}',
      headers: { ...ahead, 'x-ms-documentdb-isquery': 'true', 'x-ms-documentdb-query-enablecrosspartition': 'true' },
    };
    expect(await raw(world.endpoint, 'POST', target(container), asked)).toMatchObject(expected);
    const batch = (operations: readonly object[]) =>
      raw(world.endpoint, 'POST', target(container), {
        body: JSON.stringify(operations),
        headers: {
          ...keyHeader('ann'),
          ...ahead,
          'x-ms-cosmos-is-batch-request': 'true',
          'x-ms-cosmos-batch-atomic': 'true',
        },
      });
    expect(await batch([{ operationType: 'Read', id: 'a' }])).toMatchObject(expected);
    // A batch that only writes is decided by the log, so its session token does not matter.
    const write = { operationType: 'Upsert', resourceBody: { id: 'b', customer: 'ann' } };
    expect((await batch([write])).status).toBe(200);
    expect(await statusOf(container.item('a', 'ann').read())).toBe(200);
  });

  test('comes with refusals, too, so that a refused client can read the item that was in the way', async () => {
    const container = await world.container();
    const { headers } = await container.items.create({ id: 'a', customer: 'ann' });
    const last = position(tokenOf(headers));
    const call = (method: string, path: string, body?: string) =>
      raw(world.endpoint, method, `${target(container)}${path}`, {
        headers: { ...keyHeader('ann'), 'if-match': '"other"' },
        ...(body === undefined ? {} : { body }),
      });
    for (const [status, reply] of [
      [409, await call('POST', '', '{"id":"a","customer":"ann"}')],
      [412, await call('DELETE', '/a')],
      [404, await call('GET', '/nobody')],
    ] as const) {
      expect(reply.status).toBe(status);
      expect(position(tokenOf(reply.headers))).toBeGreaterThanOrEqual(last);
    }
    const other = await raw(world.endpoint, 'GET', '/dbs/shop/colls/nowhere/docs/a', { headers: keyHeader('ann') });
    expect(other.headers).not.toHaveProperty('x-ms-session-token');
  });
});
