import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { partitionKeyOf } from '@epitaph/core/partition-key/canonical-key.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { evaluate, type Json, parseQuery, planQuery } from '@epitaph/query';
import { DEFINITION } from '../support/definition.ts';
import { CALLER, withStore } from './store.ts';

let store: Store;
withStore('keys', (opened) => {
  store = opened;
});

const DEFINITIONS: Readonly<Record<'flat' | 'hierarchical' | 'pseudonymous', ContainerDefinition>> = {
  flat: DEFINITION,
  hierarchical: { ...DEFINITION, partitionKey: { paths: ['/pk', '/sub'], kind: 'MultiHash', version: 2 } },
  pseudonymous: { ...DEFINITION, epitaph: { pseudonymousIds: true } },
};

type Name = keyof typeof DEFINITIONS;
type Fields = { readonly [name: string]: Json };

let containers = 0;
async function filled(kind: Name, items: readonly Fields[]): Promise<string> {
  containers += 1;
  const name = `${kind}${containers}`;
  await store.createContainer(CALLER, 'db', name, DEFINITIONS[kind], -1);
  for (const item of items) await write(name, item);
  return name;
}

let ids = 0;
async function write(name: string, fields: Fields): Promise<void> {
  ids += 1;
  const container = store.container('db', name);
  const document = { id: `i${ids}`, ...fields };
  const partitionKey = partitionKeyOf(container.definition, document);
  await store.writeItem(CALLER, container, 'create', {
    id: document.id,
    partitionKey,
    document,
    json: JSON.stringify(document),
  });
}

async function documentsOf(name: string): Promise<Fields[]> {
  const { items } = await store.listItems(store.container('db', name), { maxItemCount: 10_000 });
  return items.map(({ json }) => JSON.parse(json) as Fields);
}

async function asked(name: string, sql: string, maxItemCount = 1_000) {
  const rows: unknown[] = [];
  let examined = 0;
  for (let continuation: Continuation | undefined; ;) {
    const page = await store.queryItems(store.container('db', name), {
      sql,
      parameters: [],
      maxItemCount,
      continuation,
    });
    rows.push(...page.rows);
    examined += page.examined;
    continuation = page.continuation;
    if (continuation === undefined) return { rows, examined };
  }
}

const component = fc.constantFrom<(Json | undefined)[]>('p', 'q', 'r', 1, true, null, undefined);
const item = fc
  .record({ pk: component, sub: component, n: fc.nat(5) })
  .map((fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Fields);

const constant = fc.constantFrom('"p"', '"q"', '"r"', '1', 'true', 'null', '"nobody"', '{}');
const listOf = (path: string) =>
  fc
    .array(constant, { minLength: 1, maxLength: 4 })
    .chain((list) =>
      fc.constantFrom(
        `${path} IN (${list.join(', ')})`,
        `(${list.map((one) => `${path} = ${one}`).join(' OR ')})`,
        `ARRAY_CONTAINS([${list.join(', ')}], ${path})`,
      ),
    );
const filter = fc.oneof(
  listOf('c.pk'),
  fc.tuple(listOf('c.pk'), listOf('c.sub')).map((both) => both.join(' AND ')),
  fc.tuple(listOf('c.pk'), fc.constantFrom('c.n > 2', 'c.pk = "p"', 'c.sub = "q"')).map((both) => both.join(' AND ')),
  fc.tuple(constant, constant, constant, constant).map(([a, b, c, d]) => {
    return `(c.pk = ${a} AND c.sub = ${b}) OR (c.pk = ${c} AND c.sub = ${d} AND c.n < 4)`;
  }),
  fc.tuple(constant, constant, constant).map(([a, b, c]) => `c.pk = ${a} OR (c.pk = ${b} AND c.sub = ${c})`),
  fc.tuple(listOf('c.pk'), listOf('c.sub')).map(([one, other]) => `${one} OR ${other}`),
);

describe('a query that names several partition keys', () => {
  it.each(Object.keys(DEFINITIONS) as Name[])(
    'has the rows of these keys, whether or not the container was scanned before: %s',
    async (kind) => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(item, { minLength: 1, maxLength: 25 }),
          fc.array(filter, { minLength: 4, maxLength: 10 }),
          fc.constantFrom('', ' ORDER BY c.n DESC', ' OFFSET 1 LIMIT 9'),
          async (items, filters, rest) => {
            const name = await filled(kind, items);
            for (const where of filters) {
              const sql = `SELECT VALUE c.id FROM c WHERE ${where}${rest}`;
              // A write drops the cached rows of the whole container.
              await write(name, items[0]!);
              const byKey = await asked(name, sql, 3);
              const documents = await documentsOf(name);
              const bare = [...evaluate(planQuery(parseQuery(sql)), documents)];
              expect(byKey.rows, where).toEqual(bare);
              expect((await asked(name, sql, 3)).rows, where).toEqual(bare);
            }
          },
        ),
        { numRuns: 25 },
      );
    },
    60_000,
  );

  it('examines no items of other partition keys', async () => {
    const items = Array.from({ length: 60 }, (_, n) => ({ pk: `k${n % 20}`, sub: Math.floor(n / 20), n }));
    const hierarchical = await filled('hierarchical', items);
    const flat = await filled('flat', items);
    for (const isKept of [false, true]) {
      if (isKept) for (const name of [flat, hierarchical]) await documentsOf(name);
      const looked = async (name: string, where: string) =>
        (await asked(name, `SELECT * FROM c WHERE ${where}`)).examined;
      for (const name of [flat, hierarchical]) {
        expect(await looked(name, 'c.pk IN ("k1", "k2", "k1")')).toBe(6);
        expect(await looked(name, 'c.pk = "k1" OR c.pk = "k2"')).toBe(6);
        expect(await looked(name, '(c.pk = "k1" AND c.n > 5) OR (c.pk = "k7" AND c.n < 5)')).toBe(6);
        expect(await looked(name, 'c.n >= 0 AND ARRAY_CONTAINS(["k3", "nobody"], c.pk)')).toBe(3);
        expect(await looked(name, 'ARRAY_CONTAINS([], c.pk)')).toBe(0);
        expect(await looked(name, 'c.pk IN ("k1", "k2") OR c.n = 3')).toBe(60);
      }
      expect(await looked(hierarchical, 'c.pk IN ("k1", "k2") AND c.sub IN (0, 1)')).toBe(4);
      expect(await looked(hierarchical, '(c.pk = "k1" AND c.sub = 0) OR (c.pk = "k2" AND c.sub = 2)')).toBe(2);
      expect(await looked(hierarchical, '(c.pk = "k1" AND c.sub = 0) OR c.pk = "k2"')).toBe(4);
    }
  });

  it('has no row of a key outside the requested scope', async () => {
    const name = await filled('hierarchical', [
      { pk: 'mine', sub: 1, name: 'here' },
      { pk: 'theirs', sub: 1, name: 'there' },
    ]);
    const rowsOf = async (where: string) => {
      const sql = `SELECT VALUE c.name FROM c WHERE ${where}`;
      const request = { sql, parameters: [], maxItemCount: 10, prefix: '["mine"]' };
      return (await store.queryItems(store.container('db', name), request)).rows;
    };
    const there = (await documentsOf(name)).find((document) => document['name'] === 'there')!;
    expect(await rowsOf('true')).toEqual(['here']);
    expect(await rowsOf('c.pk = "theirs" AND c.sub = 1')).toEqual([]);
    expect(await rowsOf(`c.pk = "theirs" AND c.sub = 1 AND c.id = "${String(there['id'])}"`)).toEqual([]);
  });
});
