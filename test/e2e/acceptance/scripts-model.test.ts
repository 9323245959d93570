import type { Container } from '@azure/cosmos';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { refusalOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

type Operation =
  | readonly ['create' | 'upsert' | 'replace', id: string, n: number]
  | readonly ['delete' | 'read', id: string]
  | readonly ['query', least: number]
  | readonly ['list'];

/** Executes the given operations, and answers with the outcome of each. Then it fails if it is told to. */
const PERFORM = `function (operations, fails) {
  const c = getContext().getCollection();
  const outcomes = [];
  const next = () => {
    if (outcomes.length === operations.length) {
      if (fails) throw new Error('as it is to');
      getContext().getResponse().setBody(outcomes);
      return;
    }
    const [kind, name, n] = operations[outcomes.length];
    const link = c.getAltLink() + '/docs/' + name;
    const told = (show) => (error, found) => { outcomes.push(error ? error.number : show(found)); next(); };
    const one = told((found) => (found ? found.n : null));
    const many = told((found) => found.map(({ id, n }) => [id, n]).sort());
    const document = { id: name, customer: 'ann', n };
    if (kind === 'create') c.createDocument(c.getSelfLink(), document, one);
    else if (kind === 'upsert') c.upsertDocument(c.getSelfLink(), document, one);
    else if (kind === 'replace') c.replaceDocument(link, document, one);
    else if (kind === 'delete') c.deleteDocument(link, told(() => null));
    else if (kind === 'read') c.readDocument(link, one);
    else if (kind === 'list') c.readDocuments(c.getSelfLink(), { pageSize: 100 }, many);
    else c.queryDocuments(c.getSelfLink(), { query: 'SELECT c.id, c.n FROM c WHERE c.n >= @n', parameters: [{ name: '@n', value: name }] }, many);
  };
  next();
}`;

const id = fc.constantFrom('a', 'b', 'c');
const n = fc.integer({ min: 0, max: 9 });
const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.tuple(fc.constantFrom('create' as const, 'upsert' as const, 'replace' as const), id, n),
  fc.tuple(fc.constantFrom('delete' as const, 'read' as const), id),
  fc.tuple(fc.constant('query' as const), n),
  fc.tuple(fc.constant('list' as const)),
);

/** The outcomes of the operations on a map. */
function perform(items: Map<string, number>, operations: readonly Operation[]): unknown[] {
  const many = (least: number) => [...items].filter(([, value]) => value >= least).toSorted();
  const write = (name: string, value: number) => {
    items.set(name, value);
    return value;
  };
  return operations.map((asked) => {
    switch (asked[0]) {
      case 'create':
        return items.has(asked[1]) ? 409 : write(asked[1], asked[2]);
      case 'upsert':
        return write(asked[1], asked[2]);
      case 'replace':
        return items.has(asked[1]) ? write(asked[1], asked[2]) : 404;
      case 'delete':
        return items.delete(asked[1]) ? null : 404;
      case 'read':
        return items.get(asked[1]) ?? 404;
      case 'query':
        return many(asked[1]);
      case 'list':
        return many(0);
    }
  });
}

async function contents(container: Container): Promise<unknown> {
  const { resources } = await container.items
    .query<[string, number]>('SELECT VALUE [c.id, c.n] FROM c', { partitionKey: 'ann' })
    .fetchAll();
  return resources.toSorted();
}

test('scripts that run one after the other do what they would do on a map, and one that fails does nothing', async () => {
  const container = await world.container();
  await container.scripts.storedProcedures.create({ id: 'perform', body: PERFORM });
  const run = (operations: readonly Operation[], fails: boolean) =>
    container.scripts.storedProcedure('perform').execute('ann', [operations, fails]);
  const items = new Map<string, number>();
  const script = fc.record({ operations: fc.array(operation, { maxLength: 12 }), fails: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(script, { minLength: 1, maxLength: 4 }), async (scripts) => {
      for (const { operations, fails } of scripts) {
        if (fails) {
          expect((await refusalOf(run(operations, true))).message).toContain('as it is to');
        } else {
          const expected = perform(items, operations);
          expect((await run(operations, false)).resource).toEqual(expected);
        }
        expect(await contents(container)).toEqual([...items].toSorted());
      }
    }),
    { numRuns: 25 },
  );
  expect(await world.fsck()).toEqual([]);
});

test('counting by scripts, by patches and by conditional replaces at the same time loses no count', async () => {
  const container = await world.container();
  const counter = container.item('counter', 'ann');
  await container.items.create({ id: 'counter', customer: 'ann', n: 0 });
  const count = `function () {
    const c = getContext().getCollection();
    c.queryDocuments(c.getSelfLink(), 'SELECT * FROM c', (error, [counter]) => {
      if (error) throw error;
      counter.n++;
      c.upsertDocument(c.getSelfLink(), counter, (error) => { if (error) throw error; });
    });
  }`;
  await container.scripts.storedProcedures.create({ id: 'count', body: count });
  const replace = async () => {
    const { resource } = await counter.read<{ id: string; n: number }>();
    const condition = resource!._etag;
    return counter.replace({ ...resource, n: resource!.n + 1 }, { accessCondition: { type: 'IfMatch', condition } });
  };
  const outcomes = await Promise.allSettled(
    Array.from({ length: 12 }, () => [
      container.scripts.storedProcedure('count').execute('ann'),
      counter.patch([{ op: 'incr', path: '/n', value: 1 }]),
      replace(),
    ]).flat(),
  );
  const done = outcomes.filter(({ status }) => status === 'fulfilled').length;
  expect((await counter.read()).resource).toMatchObject({ n: done });
  // Only operations that conflict with another may be refused, and the first of the conflicting ones succeeds.
  expect(done).toBeGreaterThanOrEqual(13);
  const refused = outcomes.flatMap((outcome) =>
    outcome.status === 'rejected' ? [outcome.reason as { code: number }] : [],
  );
  expect(refused.every(({ code }) => code === 412 || code === 449)).toBe(true);
});
