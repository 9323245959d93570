import { BulkOperationType, type Container, type PatchOperation, PatchOperationType } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { statusOf, World } from '../support/world.ts';

const computedProperties = [
  { name: 'cp_lower', query: 'SELECT VALUE LOWER(c.name) FROM c' },
  { name: 'cp_net', query: 'SELECT VALUE c.price - c.discount FROM c' },
];

let world: World;
let container: Container;

beforeAll(async () => {
  world = await World.open();
  container = await world.container({ computedProperties });
  for (const [index, name] of ['Ann', 'BEN', 'Carla', 'ann'].entries()) {
    await container.items.create({ id: String(index), customer: name, name, price: 10 * index, discount: 1 });
  }
});
afterAll(() => world.end());

const rows = async (sql: string, from = container): Promise<unknown[]> =>
  (await from.items.query<unknown>(sql).fetchAll()).resources;

describe('computed properties', () => {
  test('are returned with the container, and queries see them as properties', async () => {
    expect((await container.read()).resource?.computedProperties).toEqual(computedProperties);
    expect(await rows("SELECT VALUE c.id FROM c WHERE c.cp_lower = 'ann' ORDER BY c.id")).toEqual(['0', '3']);
    expect(await rows('SELECT VALUE c.id FROM c ORDER BY c.cp_net DESC')).toEqual(['3', '2', '1', '0']);
    expect(await rows('SELECT VALUE SUM(c.cp_net) FROM c')).toEqual([56]);
  });

  test('are not part of documents: neither SELECT * nor a read returns them', async () => {
    const [whole] = await rows("SELECT * FROM c WHERE c.id = '0'");
    const { resource } = await container.item('0', 'Ann').read<Record<string, unknown>>();
    for (const document of [whole as Record<string, unknown>, resource!]) {
      expect(Object.keys(document)).not.toContain('cp_lower');
    }
  });

  test('can be used in the condition of a patch, alone and in a batch', async () => {
    const operations: PatchOperation[] = [{ op: PatchOperationType.incr, path: '/discount', value: 0 }];
    const patch = (condition: string) => statusOf(container.item('1', 'BEN').patch({ operations, condition }));
    expect(await patch("FROM c WHERE c.cp_lower = 'ben'")).toBe(200);
    expect(await patch('FROM c WHERE c.cp_net > 9')).toBe(412);
    const batch = async (condition: string) => {
      const operation = { operationType: BulkOperationType.Patch, id: '1', resourceBody: { operations, condition } };
      return (await container.items.batch([operation], 'BEN')).result?.[0]?.statusCode;
    };
    expect(await batch('FROM c WHERE c.cp_net = 9')).toBe(200);
    expect(await batch("FROM c WHERE c.cp_lower = 'BEN'")).toBe(412);
  });

  test('change for all items at once when the container is replaced', async () => {
    const other = await world.container({ computedProperties });
    await other.items.create({ id: 'x', customer: 'x', name: 'Xavier' });
    const { resource } = await other.read();
    const changed = [{ name: 'cp_lower', query: 'SELECT VALUE UPPER(c.name) FROM c' }];
    await other.replace({ ...resource!, computedProperties: changed });
    expect(await rows('SELECT c.cp_lower, c.cp_net FROM c', other)).toEqual([{ cp_lower: 'XAVIER' }]);
  });

  test('are merged and sorted by clients over several ranges', async () => {
    const wide = await world.container({ computedProperties, throughput: 20_000 });
    for (let index = 0; index < 12; index += 1) {
      await wide.items.create({
        id: `i${index}`,
        customer: `c${index}`,
        price: (index * 7) % 12,
        discount: 0,
        name: 'N',
      });
    }
    const found = await rows('SELECT VALUE c.cp_net FROM c ORDER BY c.cp_net', wide);
    expect(found).toEqual(Array.from({ length: 12 }, (_, index) => index));
    expect(await rows('SELECT c.cp_lower, COUNT(1) AS n FROM c GROUP BY c.cp_lower', wide)).toEqual([
      { cp_lower: 'n', n: 12 },
    ]);
  });

  test('can be named in the indexing policy, before they are defined or together with them', async () => {
    const indexingPolicy = { includedPaths: [{ path: '/*' }, { path: '/cp_lower/?' }] };
    const indexed = await world.container({ indexingPolicy });
    const { resource } = await indexed.read();
    await indexed.replace({ ...resource!, computedProperties });
    await indexed.items.create({ id: 'a', customer: 'x', name: 'Xavier' });
    expect(await rows("SELECT VALUE c.id FROM c WHERE c.cp_lower = 'xavier'", indexed)).toEqual(['a']);
  });

  test('that can’t be evaluated are refused with 400, at creation and replacement', async () => {
    const property = (name: string, query = 'SELECT VALUE c.a FROM c') => ({ name, query });
    const bad = [
      [property('cp', 'SELECT c.a FROM c')],
      [property('cp', 'no query at all')],
      [property('cp', 'SELECT VALUE GetCurrentTimestamp() FROM c')],
      [property('id')],
      [property('_ts')],
      [property('')],
      [property('a/b')],
      [property('cp'), property('cp')],
      Array.from({ length: 21 }, (_, index) => property(`cp${index}`)),
      [{ name: 'cp' }],
      'text',
    ] as (typeof computedProperties)[];
    const { resource } = await container.read();
    for (const definitions of bad) {
      await expect(world.container({ computedProperties: definitions })).rejects.toMatchObject({ code: 400 });
      const replaced = container.replace({ ...resource!, computedProperties: definitions });
      await expect(replaced).rejects.toMatchObject({ code: 400 });
    }
    const most = Array.from({ length: 20 }, (_, index) => property(`cp${index}`.padEnd(256, 'x')));
    await world.container({ computedProperties: most });
    await expect(world.container({ computedProperties: [property('x'.repeat(257))] })).rejects.toMatchObject({
      code: 400,
    });
    expect((await container.read()).resource?.computedProperties).toEqual(computedProperties);
    await expect(world.container({ computedProperties: [property('cp'), property('cp')] })).rejects.toMatchObject({
      message: expect.stringContaining("Computed property name 'cp' cannot be used in multiple definitions."),
    });
  });
});
