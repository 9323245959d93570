import type { Container } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { raw } from '../support/raw.ts';
import { anyContainer, type Fields, refusalOf, World } from '../support/world.ts';

const CLEAR = { epitaph: { clearPaths: ['/status', '/address/city', '/total'] } };

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const cities = ['Ghent', 'Quimper', 'Turku'];

async function filled(container: Container): Promise<Container> {
  for (let index = 0; index < 60; index++) {
    await container.items.create({
      id: `order ${index}`,
      customer: index % 2 === 0 ? 'ann' : 'bob',
      status: index % 10 === 0 ? 'open' : 'closed',
      address: { city: cities[index % 3] },
      total: index,
    });
  }
  return container;
}

/** The ids that a query finds, the number of documents that it examined for them, and its charge. */
async function asked(container: Container, where: string, partitionKey?: string) {
  const sql = `SELECT c.id FROM c WHERE ${where}`;
  const reply = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
    body: JSON.stringify({ query: sql }),
    headers: {
      'content-type': 'application/query+json',
      'x-ms-documentdb-isquery': 'true',
      'x-ms-documentdb-query-enablecrosspartition': 'true',
      'x-ms-documentdb-populatequerymetrics': 'true',
      ...(partitionKey === undefined ? {} : { 'x-ms-documentdb-partitionkey': JSON.stringify([partitionKey]) }),
    },
  });
  const { resources } = await container.items
    .query<{ id: string }>(sql, partitionKey === undefined ? {} : { partitionKey })
    .fetchAll();
  const ids = resources.map(({ id }) => id);
  expect((reply.json as { Documents: { id: string }[] }).Documents.map(({ id }) => id)).toEqual(ids);
  const metrics = String(reply.headers['x-ms-documentdb-query-metrics']);
  return {
    ids,
    looked: Number(/retrievedDocumentCount=(\d+)/.exec(metrics)?.[1]),
    charge: Number(reply.headers['x-ms-request-charge']),
  };
}

describe('a container with clear paths', () => {
  test('shows them to clients, and keeps them when a client that does not know them replaces the container', async () => {
    const container = await world.container(anyContainer(CLEAR));
    const { resource } = await container.read();
    expect(resource).toMatchObject(CLEAR);
    const { epitaph: _, ...others } = resource as unknown as Fields;
    await container.replace({ ...(others as unknown as typeof resource & object), defaultTtl: 60 });
    expect((await container.read()).resource).toMatchObject({ ...CLEAR, defaultTtl: 60 });
  });

  test('refuses to change them, and they can not be added to another container later', async () => {
    for (const [before, after] of [
      [CLEAR, { epitaph: { clearPaths: ['/status'] } }],
      [CLEAR, { epitaph: {} }],
      [{}, CLEAR],
    ]) {
      const container = await world.container(anyContainer(before!));
      const { resource } = await container.read();
      const refused = await refusalOf(container.replace({ ...resource!, ...after }));
      expect(refused).toMatchObject({ code: 400 });
      expect(refused.message).toContain("epitaph.clearPaths can't be changed");
    }
  });

  test.each([
    [['status'], "The clear path 'status' could not be accepted"],
    [['/*'], "The clear path '/*' could not be accepted"],
    [['/tags/[]'], "The clear path '/tags/[]' could not be accepted"],
    [['/status/?'], "The clear path '/status/?' could not be accepted"],
    [['/id'], "The clear path '/id' is a system property"],
    [['/_ts'], "The clear path '/_ts' is a system property"],
    [['/customer'], "The clear path '/customer' is given twice, or is a path of the partition key"],
    [['/"customer"'], 'The clear path \'/"customer"\' is given twice, or is a path of the partition key'],
    [['/a', '/"a"'], 'The clear path \'/"a"\' is given twice'],
    [Array.from({ length: 17 }, (_, index) => `/p${index}`), 'at most 16 clear paths'],
    ['/status', "'epitaph.clearPaths' is invalid"],
    [[5], "'epitaph.clearPaths.0' is invalid"],
  ])('is refused if the paths are %j', async (clearPaths, message) => {
    const refused = await refusalOf(world.container(anyContainer({ epitaph: { clearPaths } })));
    expect(refused.code).toBe(400);
    expect(refused.message).toContain(message);
  });

  test('answers like a container without clear paths, and examines fewer documents', async () => {
    const clear = await filled(await world.container(anyContainer(CLEAR)));
    const plain = await filled(await world.container());
    for (const [where, documents, partitionKey] of [
      ["c.status = 'open'", 6],
      ["c.status = 'open'", 6, 'ann'],
      ["c.status IN ('open', 'none')", 6],
      ["c.address.city = 'Turku' AND c.total < 12", 4],
      ['c.total BETWEEN 20 AND 22.5', 3],
      ["c.address.city >= 'R'", 20],
      ["c.status = 'open' OR c.total = 7", 7],
      ["c.status = 'open' AND CONTAINS(c.address.city, 'u')", 6],
      ["c.status = 'none'", 0],
    ] as const) {
      const [one, other] = [await asked(clear, where, partitionKey), await asked(plain, where, partitionKey)];
      expect(one.ids, where).toEqual(other.ids);
      expect(one.looked, where).toBe(documents);
      expect(other.looked, where).toBe(partitionKey === undefined ? 60 : 30);
      expect(one.charge, where).toBeLessThan(other.charge);
    }
    // The copies in clear can not narrow these filters, so all documents are examined.
    for (const where of ["c.status != 'open'", "NOT (c.status = 'open')", "c.status = 'open' OR IS_DEFINED(c.none)"]) {
      const [one, other] = [await asked(clear, where), await asked(plain, where)];
      expect([one.ids, one.looked], where).toEqual([other.ids, 60]);
    }
  });

  test('names them among the indexes that a query used', async () => {
    const container = await filled(await world.container(anyContainer(CLEAR)));
    const { indexMetrics } = await container.items
      .query("SELECT c.id FROM c WHERE c.address.city = 'Turku'", { populateIndexMetrics: true })
      .fetchNext();
    expect(JSON.parse(indexMetrics)).toMatchObject({
      UtilizedIndexes: { SingleIndexes: [{ IndexSpec: '/address/city/?' }] },
    });
  });

  test('finds items by their present values after a patch, a replace and a restart, and none after its expiry', async () => {
    const container = await filled(await world.container(anyContainer({ ...CLEAR, defaultTtl: -1 })));
    const order = container.item('order 1', 'bob');
    await order.patch([{ op: 'set', path: '/status', value: 'open' }]);
    expect((await asked(container, "c.status = 'open'")).ids).toContain('order 1');
    await order.replace({ id: 'order 1', customer: 'bob', status: 'closed', ttl: 5 });
    expect((await asked(container, "c.status = 'open'")).ids).not.toContain('order 1');
    expect((await asked(container, "c.status = 'closed' AND c.ttl = 5")).ids).toEqual(['order 1']);
    await world.restart();
    const again = world.of(container.id);
    expect((await asked(again, "c.status = 'closed' AND c.ttl = 5")).ids).toEqual(['order 1']);
    await world.advance(5_000);
    expect((await asked(again, "c.status = 'closed' AND c.ttl = 5")).ids).toEqual([]);
  });

  test('can also have pseudonymous ids', async () => {
    const both = { epitaph: { ...CLEAR.epitaph, pseudonymousIds: true } };
    const container = await filled(await world.container(anyContainer(both)));
    const { ids, looked } = await asked(container, "c.status = 'open' AND c.customer = 'ann'");
    expect([ids.length, looked]).toEqual([6, 6]);
  });
});
