import type { Container } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { refusalOf, World } from '../support/world.ts';

let world: World;
let container: Container;
beforeAll(async () => {
  world = await World.open();
  container = await world.container();
});
afterAll(() => world.end());

describe('a request that names', () => {
  test('an indexing directive is taken and changes nothing: the item is found like any other', async () => {
    await container.items.create({ id: 'excluded', customer: 'ann', n: 1 }, { indexingDirective: 'Exclude' });
    const { resources } = await container.items.query('SELECT VALUE c.id FROM c WHERE c.n = 1').fetchAll();
    expect(resources).toEqual(['excluded']);
  });

  test('a trigger is refused, and nothing is written', async () => {
    const head = await world.head();
    for (const options of [{ preTriggerInclude: 'stamp' }, { postTriggerInclude: ['count'] }]) {
      const { code, message } = await refusalOf(container.items.create({ id: 'triggered', customer: 'ann' }, options));
      expect(code).toBe(400);
      expect(message).toMatch(/not supported/);
    }
    expect(await world.head()).toBe(head);
  });
});

describe('a container', () => {
  test('a unique key policy that would not be enforced is refused at creation', async () => {
    const uniqueKeyPolicy = { uniqueKeys: [{ paths: ['/email'] }] };
    const { code, message } = await refusalOf(world.container({ uniqueKeyPolicy }));
    expect(code).toBe(400);
    expect(message).toMatch(/not supported/);
  });
});

describe('every answer', () => {
  test('has a charge, more for a larger document and a query that reads more', async () => {
    const written = async (id: string, text: string) =>
      (await container.items.upsert({ id, customer: 'bob', text })).requestCharge;
    const small = await written('small', 'x');
    expect(small).toBeGreaterThan(0);
    expect(await written('large', 'x'.repeat(100_000))).toBeGreaterThan(5 * small);
    const read = await container.item('small', 'bob').read();
    expect(read.requestCharge).toBeGreaterThan(0);
    expect(read.requestCharge).toBeLessThan(small);
    const charged = async (sql: string) => (await container.items.query(sql).fetchAll()).requestCharge;
    const one = await charged("SELECT * FROM c WHERE c.id = 'small' AND c.customer = 'bob'");
    for (let n = 0; n < 50; n += 1) await written(`more${n}`, 'x');
    expect(await charged('SELECT * FROM c')).toBeGreaterThan(one);
  });
});
